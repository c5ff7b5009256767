package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// begin starts a controller of the installation in that namespace, and does not wait.
func (w *world) begin(binary, dir, kubeconfig, ns string) *cluster.Part {
	w.t.Helper()
	config := filepath.Join(dir, ns+".yaml")
	kit.Must(w.t, os.WriteFile(config, fmt.Appendf(nil, `listen: {metrics: ""}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 500ms}
providers:
- {name: racks, redfish: {username: forcefence, passwordFile: %s/password}}
nodes:
- {name: all, selector: "", provider: racks, machine: {from: list, list: [{node: nobody, id: "https://192.0.2.1"}]}}
`, dir), 0o600))
	ip, err := kit.FreePodIP()
	kit.Must(w.t, err)
	identity := fmt.Sprintf("%s-%d", ns, time.Now().UnixNano())
	p := cluster.NewPart(ns, binary, []string{"run", "--config=" + config, "--kubeconfig=" + kubeconfig,
		"--identity=" + identity, "--log-format=json"}, filepath.Join(dir, identity+".log"), nil, nil)
	p.Env = []string{"POD_NAMESPACE=" + ns, "POD_IP=" + ip}
	w.endsWithTest(p)
	kit.Must(w.t, p.Launch())
	return p
}

// logOf is what a program printed.
func logOf(p *cluster.Part) string {
	b, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestOneLeads: of two installations in two namespaces, the one with the chart's rights and no more leads. Each
// process of the other one says whose the Lease is and ends, also while no process leads.
func TestOneLeads(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "forcefence")
	kit.Must(t, os.WriteFile(filepath.Join(dir, "password"), []byte("x\n"), 0o600))
	w := newWorld(t, cluster.Options{})
	w.install(noHook)
	ours := filepath.Join(dir, "ours.kubeconfig")
	kit.Must(t, w.tokenKubeconfig(ours))
	first := w.begin(binary, dir, ours, namespace)
	leader := w.leader("")
	refused := func(when string) {
		t.Helper()
		second := w.begin(binary, dir, w.c.Kubeconfig(), "second")
		w.until("the second installation ends "+when, func() (bool, error) {
			return second.ExitCode() > 0, errors.New(logOf(second))
		})
		if said := logOf(second); !strings.Contains(said, "another forcefence is installed in this cluster: Lease "+
			"kube-system/forcefence belongs to the one in namespace "+namespace+", and this one is in second.") ||
			strings.Contains(said, "Successfully acquired lease") {
			t.Errorf("%s: the second installation said\n%s\nwant that it does not lead, and why", when, said)
		}
	}
	refused("beside the leader")
	if now := w.leader(""); now != leader {
		t.Errorf("leader: got %s, want %s as before", now, leader)
	}

	// Told to stop, the leader says nothing of an error.
	said := len(logOf(first))
	first.Stop()
	if code, last := first.ExitCode(), logOf(first)[said:]; code != 0 || strings.Contains(last, `"level":"ERROR"`) {
		t.Errorf("after SIGTERM: got exit status %d, want 0 and no ERROR in\n%s", code, last)
	}
	refused("while no process leads")

	// A replica begins at once after a release, and waits for the Lease of one that dies.
	second := w.begin(binary, dir, ours, namespace)
	w.leader("")
	second.Kill()
	died := time.Now()
	third := w.begin(binary, dir, ours, namespace)
	w.until("the next replica leads", func() (bool, error) {
		return strings.Contains(logOf(third), "Successfully acquired lease"), errors.New(logOf(third))
	})
	// 6 s since its last renewal, which was up to 4 s ago where the machine is busy
	if waited := time.Since(died); waited < 2*time.Second {
		t.Errorf("the next replica leads %s after the one before was killed, want the Lease to run out first", waited)
	}
}

// TestCleanup: what the controller leaves on Nodes goes, what others wrote stays, and nothing that is under way is
// disturbed.
func TestCleanup(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "forcefence")
	w := newWorld(t, quiet)
	w.fixtures()
	w.install(noHook)
	now := metav1.NowMicro()
	holder, seconds := "pod-1", int32(15)
	leases := w.c.Client().CoordinationV1().Leases(metav1.NamespaceSystem)
	l, err := leases.Get(w.ctx, "forcefence", metav1.GetOptions{}) // of fixtures
	kit.Must(t, err)
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
	l, err = leases.Update(w.ctx, l, metav1.UpdateOptions{})
	kit.Must(t, err)

	nodes := func() map[string]corev1.Node {
		t.Helper()
		list, err := w.c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		kit.Must(t, err)
		out := map[string]corev1.Node{}
		for _, n := range list.Items {
			n.ManagedFields, n.ResourceVersion = nil, ""
			out[n.Name] = n
		}
		return out
	}
	before := nodes()
	run := func(status int, want []string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(w.ctx, binary,
			append([]string{"cleanup", "--kubeconfig", w.c.Kubeconfig()}, args...)...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !bytes.Contains(out, []byte(text)) {
				t.Errorf("cleanup %v: want %q in\n%s", args, text, out)
			}
		}
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Errorf("cleanup %v: got exit status %d, want %d:\n%s", args, got, status, out)
		}
	}
	untouched := func(when string) {
		t.Helper()
		for name, n := range nodes() {
			if diff := cmp.Diff(before[name], n); diff != "" {
				t.Errorf("%s: node %s was changed (-before +now):\n%s", when, name, diff)
			}
		}
	}
	leads, open := "Lease kube-system/forcefence held by pod-1", "6 fences not done: "
	run(1, []string{leads, open, `node marked: annotation forcefence.io/fence, mark "f-1"`,
		"node broken: annotation forcefence.io/fence, the fence's record is unreadable",
		"node open: annotation forcefence.io/fence, label " + taint.PinLabel + `, fence "f-1" is in phase Evicting`,
		"node done: annotation forcefence.io/fence\n",
		"condition forcefence.io/PoweredOnNotReady, label " + taint.PinLabel}, "--yes")
	untouched("a controller leads")
	old := metav1.NewMicroTime(now.Add(-2 * time.Minute))
	l.Spec.RenewTime = &old
	_, err = leases.Update(w.ctx, l, metav1.UpdateOptions{})
	kit.Must(t, err)
	run(1, []string{open}, "--yes")
	untouched("fences not done")
	run(1, []string{"nothing was changed: add --yes"}, "--force")
	untouched("it was not told to")
	run(0, []string{`released node marked: mark "f-1" is removed`, "node done is clean", "node dead is clean"}, "--yes",
		"--force")

	for name, n := range nodes() { // what others wrote, as it was
		want := before[name]
		maps.DeleteFunc(want.Annotations, func(k, _ string) bool { return strings.Contains(k, "forcefence") })
		delete(want.Labels, taint.PinLabel)
		delete(want.Labels, taint.NamedLabel)
		want.Spec.Taints = slices.DeleteFunc(want.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		want.Status.Conditions = slices.DeleteFunc(want.Status.Conditions,
			func(c corev1.NodeCondition) bool { return strings.HasPrefix(string(c.Type), "forcefence.io/") })
		if diff := cmp.Diff(want, n); diff != "" {
			t.Errorf("node %s (-without ours +got):\n%s", name, diff)
		}
	}
	run(0, []string{"there is nothing to remove"})
}

// TestOneControlPlaneNode: both replicas run on it, none on a worker, and a new version takes their place.
func TestOneControlPlaneNode(t *testing.T) {
	w := newWorld(t, cluster.Options{})
	w.install(noHook)
	nodes, err := w.c.AddNodes(w.ctx, 2,
		func(i int) cluster.NodeOptions { return cluster.NodeOptions{Name: fmt.Sprintf("n%d", i)} })
	kit.Must(t, err)
	_, err = w.c.Kubectl(w.ctx, "label", "node", nodes[0].Name(), "node-role.kubernetes.io/control-plane=")
	kit.Must(t, err)
	_, err = w.c.Kubectl(w.ctx, "taint", "node", nodes[0].Name(), "node-role.kubernetes.io/control-plane:NoSchedule")
	kit.Must(t, err)
	both := func(when string, old map[types.UID]bool) map[types.UID]bool {
		t.Helper()
		now := map[types.UID]bool{}
		w.until("two replicas run on the control-plane node "+when, func() (bool, error) {
			clear(now)
			pods := w.c.Pods(namespace)
			for _, p := range pods {
				if p.Spec.NodeName == nodes[1].Name() {
					t.Fatalf("%s runs on the worker", p.Name)
				}
			}
			for _, p := range w.c.ReadyPods(namespace) {
				if !old[p.UID] {
					now[p.UID] = true
				}
			}
			return len(now) == 2 && len(pods) == 2, fmt.Errorf("%d new ones do, of %d pods", len(now), len(pods))
		})
		return now
	}
	first := both("at first", nil)
	_, err = w.c.Kubectl(w.ctx, "-n", namespace, "rollout", "restart", "deployment/forcefence")
	kit.Must(t, err)
	both("after the rollout", first)
}
