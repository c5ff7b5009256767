package interop

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

// drainKey is the taint by which Harvester asks KubeVirt to migrate virtual machines off a node.
const drainKey = "kubevirt.io/drain"

var settings = schema.GroupVersionResource{Group: "harvesterhci.io", Version: "v1beta1", Resource: "settings"}

// runSettingsPatch sets Harvester's times by the page's own command: 15 s and 180 s are shorter here. They are longer
// than forcefence needs to see whether a machine is on. The second is longer than the controller-manager needs to
// taint three nodes, one in 10 s: the writer of another taint hides who set the first.
func runSettingsPatch(w *world) {
	w.t.Helper()
	kubectl, err := cluster.KubectlPath(w.ctx)
	kit.Must(w.t, err)
	block := pageBlock(w.t, "virtual-machines.md", "## Hosts of KubeVirt and Harvester",
		"sh test=test/interop.TestHosts")
	_, args, _ := strings.Cut(block, "patch")
	args = strings.NewReplacer("false", "true", ":15,", ":3,", ":180}", ":35}").Replace(args)
	cmd := exec.CommandContext(w.ctx, "sh", "-c", `"$0" "$1" `+args, kubectl, "patch")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", block, err, out)
	}
	if got := w.find(settings, "", "vm-force-reset-policy").Object["value"]; got !=
		`{"enable":true,"period":3,"vmMigrationTimeout":35}` {
		w.t.Fatalf("setting: got %s", got)
	}
}

// tainted reports whether the host's Node has the taint.
func (f *fleet) tainted(h *machine.Host, key string) bool {
	f.t.Helper()
	for _, t := range f.node(h).Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

// claims returns the texts of the Events about the out-of-service taint that another client set.
func (f *fleet) claims(h *machine.Host) (texts []string) {
	f.t.Helper()
	list, err := f.Client().EventsV1().Events("").List(f.ctx, metav1.ListOptions{})
	kit.Must(f.t, err)
	for _, e := range list.Items {
		if e.Regarding.Kind == "Node" && e.Regarding.Name == h.Name() && e.Reason == "OutOfServiceByOther" {
			texts = append(texts, e.Note)
		}
	}
	return texts
}

// The kubelet of a host hangs. Harvester claims by time that the machine is off, and the guard refuses that.
func harvesterRefused(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	h, _ := f.inhabit(hosts)
	pod := f.ReadyPods(f.name)[0].UID
	h.StopHeartbeats()
	f.untilUnknown(h.Node)
	f.until("Harvester drains the node", func() bool { return f.tainted(h, drainKey) })
	f.logged(h.Name(), "failed to add non-graceful taint", "the node's machine was On when forcefence last asked")
	f.during(5*time.Second, "the node has no out-of-service taint, and its pod is left alone", func() bool {
		return !f.tainted(h, corev1.TaintNodeOutOfService) && f.Pods(f.name)[0].UID == pod
	})
	h.ResumeHeartbeats()
	f.until("Harvester ends its drain", func() bool { return !f.tainted(h, drainKey) })
	if got := f.Pods(f.name)[0].UID; got != pod {
		t.Errorf("pod: got another one, %s, want %s", got, pod)
	}
}

// The same, but an annotation lets the claim pass: an Event names who made it.
func harvesterAllowed(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.occupy(hosts[:1])
	h := hosts[0]
	_, err := f.Kubectl(f.ctx, "annotate", "node", h.Name(), "forcefence.io/out-of-service-anyway=test")
	kit.Must(t, err)
	h.StopHeartbeats()
	f.until("Harvester's claim passes", func() bool { return f.tainted(h, corev1.TaintNodeOutOfService) })
	f.until("an Event about it", func() bool { return len(f.claims(h)) > 0 })
	if got := f.claims(h)[0]; !strings.Contains(got, `"harvester" set it`) || !strings.Contains(got, "is on") {
		t.Errorf("Event: got %q, want it to name Harvester, and that the machine is on", got)
	}
}

// A host loses its power: forcefence is done before Harvester claims anything, and the claim is true.
func harvesterDead(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	h, _ := f.inhabit(hosts)
	kit.Must(t, h.Machine.CutPower())
	start := time.Now()
	f.untilFenced(h, taint.ResultEvicted)
	f.untilReplaced(h)
	t.Logf("%5.1f s after the power cut: the pod runs elsewhere", time.Since(start).Seconds())
	if f.tainted(h, corev1.TaintNodeOutOfService) {
		t.Error("Harvester's claim came first, want forcefence to be done before it")
	}
	f.until("Harvester's claim", func() bool { return f.tainted(h, corev1.TaintNodeOutOfService) })
	t.Logf("%5.1f s after the power cut: Harvester's claim", time.Since(start).Seconds())
	if got := f.claims(h); len(got) > 0 {
		t.Errorf("Events: got %q, want none about a claim that is true", got)
	}
	kit.Must(t, f.hosts.Boot(f.ctx, []string{h.Name()}, nil))
	f.until("Harvester takes its taints back", func() bool {
		return !f.tainted(h, corev1.TaintNodeOutOfService) && !f.tainted(h, drainKey)
	})
}
