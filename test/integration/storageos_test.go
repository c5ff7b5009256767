package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/storageos"
)

// pool is a storage system with StorageOS' API, whose volumes are the cluster's. It says of nodes and of volumes (by
// their PersistentVolumes' names) whether they are healthy.
type pool struct {
	w   *world
	api *storageos.API
}

func newPool(w *world) *pool { return &pool{w, storageos.New(w.t)} }

// sets the health of one of the system's "nodes" or "volumes".
func (p *pool) sets(what, name, health string) {
	p.w.t.Helper()
	if what == "nodes" {
		p.api.SetNode(name, health)
		return
	}
	pv, err := p.w.Client().CoreV1().PersistentVolumes().Get(p.w.ctx, name, metav1.GetOptions{})
	kit.Must(p.w.t, err)
	p.api.SetHandle(pv.Spec.CSI.VolumeHandle, health)
}

// rules are the pool's adapter and policies over it, one for each word, for the nodes that are labelled with it.
func (p *pool) rules(intervals string) settings {
	var b strings.Builder
	fmt.Fprintf(&b, "storage:\n- name: pool\n  preset: storageos\n  drivers: [%s]\n", cluster.CSIDriver)
	fmt.Fprintf(&b, "  rest: {address: %q, username: %s, passwordFile: %q, caFile: %q, poll: 1s}\n", p.api.URL,
		storageos.User, p.api.Password, p.api.CAFile)
	b.WriteString("policies:\n")
	for _, word := range []string{"storage-fences", "accept-duplicates"} {
		fmt.Fprintf(&b, "- {name: %s, preset: storageos, storage: pool, nodes: word=%[1]s, withoutProof: %[1]s, "+
			"%[2]s}\n", word, intervals)
	}
	return settings{Top: b.String()}
}

// fenced is a StatefulSet of one pod with a volume, labelled as said, and its PersistentVolume once it runs on the
// node.
func (p *pool) fenced(h *host, name, label string, volume bool) (pv string) {
	p.w.t.Helper()
	wl := p.w.workload(name, 1)
	wl.Volume = volume
	set := wl.StatefulSet()
	if label != "" {
		set.Spec.Template.Labels["storageos.com/fenced"] = label
	}
	p.w.fill(h, len(p.w.ReadyPods(p.w.ns))+1, set)
	return p.volumeOf("data-" + name + "-0")
}

func (p *pool) volumeOf(claim string) string {
	c, err := p.w.Client().CoreV1().PersistentVolumeClaims(p.w.ns).Get(p.w.ctx, claim, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return c.Spec.VolumeName
}

// preProvisioned is a pod's claim that is bound to a volume made by hand.
func (p *pool) preProvisioned(h *host, name string) (pv string) {
	w := p.w
	w.t.Helper()
	pv = "static-" + w.ns
	w.kubectlApply(fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: %[2]s, volumeHandle: by-hand/lun-of-%[1]s}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[3]s, namespace: %[4]s}
spec:
  storageClassName: ""
  volumeName: %[1]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`, pv, cluster.CSIDriver, name, w.ns))
	set := w.workload(name, 1).StatefulSet()
	set.Spec.Template.Labels["storageos.com/fenced"] = "true"
	set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	w.fill(h, len(w.ReadyPods(w.ns))+1, set)
	return pv
}

// cordon keeps replacements off a node that its storage calls unhealthy, as StorageOS' scheduler does.
func (p *pool) cordon(h *host) {
	_, err := p.w.Client().CoreV1().Nodes().
		Patch(p.w.ctx, h.Name(), types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	kit.Must(p.w.t, err)
}

// refuses has the API server refuse that forcefence ends the pod, until stop is called.
func (p *pool) refuses(pod string) (stop func()) {
	w := p.w
	w.t.Helper()
	label := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"refuse":%s}}}`, value)
		_, err := w.Client().CoreV1().Pods(w.ns).Patch(w.ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
		kit.Must(w.t, err)
	}
	label(`"yes"`)
	end := fmt.Appendf(nil, `{"status":{"phase":"Failed","reason":%q}}`, taint.TombstoneReason)
	w.until("the API server to refuse it", func() bool {
		_, err := w.Client().CoreV1().Pods(w.ns).
			Patch(w.ctx, pod, types.MergePatchType, end, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}},
				"status")
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
	return func() { label("null") }
}

// refused counts what that policy refused.
func (p *pool) refused() (n float64) {
	w := p.w
	w.t.Helper()
	text, err := w.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(w.ctx)
	kit.Must(w.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") &&
			strings.Contains(line, `"deny"`) && strings.Contains(line, `"refusal-`+w.ns+`"`) {
			one, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, "}")+1:]), 64)
			kit.Must(w.t, err)
			n += one
		}
	}
	return n
}

// StorageOS' document, item by item, over its REST API, with short intervals: one node whose kubelet is cut off under
// each withoutProof, one whose pods the API server refuses to end, and one that stays Ready.
func TestStorageOS(t *testing.T) {
	w := newWorld(t, plan{nodes: 6, doubles: true, own: &options})
	p := newPool(w)
	fences, written, alive, refused := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	for h, word := range map[*host]string{
		fences: "storage-fences", written: "accept-duplicates", alive: "storage-fences", refused: "accept-duplicates"} {
		w.kubectl("label", "node", h.Name(), "word="+word)
		p.sets("nodes", h.Name(), "online")
	}
	well := []string{p.fenced(fences, "dynamic", "true", true), p.preProvisioned(fences, "static"),
		p.fenced(written, "written", "true", true), p.fenced(alive, "alive", "true", true)}
	well = append(well, p.fenced(refused, "slow", "true", true), p.fenced(refused, "never", "true", true))
	sick := p.fenced(fences, "sick", "true", true)
	for _, pv := range append(well, p.fenced(fences, "shouts", "True", true),
		p.fenced(fences, "unlabelled", "", true)) {
		p.sets("volumes", pv, "online")
	}
	p.sets("volumes", sick, "offline")
	p.fenced(fences, "plain", "true", false)
	before := w.pods()
	w.refuses("pods/status", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+w.ns+"}}",
		fmt.Sprintf(`!("refuse" in object.metadata.?labels.orValue({}) && object.status.?reason.orValue("") == %q)`,
			taint.TombstoneReason), "not today")
	freed, letGo := p.refuses("slow-0"), p.refuses("never-0")
	ff := w.start(w.installed(p.rules("pollInterval: 1s, expiryInterval: 20s, timeout: 5s, retryInterval: 1s"),
		"config: {storage: [{name: pool, preset: storageos, drivers: ["+cluster.CSIDriver+"]}], "+
			"policies: [{name: pool, preset: storageos, storage: pool, withoutProof: storage-fences}]}"))
	w.untilPinned(w.hosts...)
	gone := func(name string) bool { return !slices.Contains(uids(w.pods(), name+"-"), uids(before, name+"-")[0]) }
	replaced := func(name string, h *host) time.Duration {
		begun := time.Now()
		w.until(name+" to run elsewhere", func() bool {
			return slices.ContainsFunc(w.ReadyPods(w.ns),
				func(p *corev1.Pod) bool { return p.Name == name+"-0" && p.Spec.NodeName != h.Name() })
		})
		return time.Since(begun)
	}
	for _, h := range []*host{fences, written, refused} {
		h.partition()
		w.until("NotReady", func() bool { return !w.ready(h) })
	}
	for _, h := range []*host{fences, written, alive, refused} {
		p.cordon(h)
	}
	w.during(2*time.Second, "nodes whose storage is healthy", func() error { return untouched(before, w.pods()) })

	begun := time.Now()
	probes := p.refused()
	p.sets("nodes", refused.Name(), "offline")
	p.sets("nodes", fences.Name(), "offline")
	for _, name := range []string{"dynamic", "static"} {
		w.until(name+" to be ended", func() bool { return gone(name) })
	}
	ended := time.Since(begun)
	t.Run("dynamic", func(t *testing.T) {
		t.Logf("unhealthy to the last pod deleted %s, replacement runs %s after", ended.Round(time.Millisecond),
			replaced("dynamic", fences).Round(time.Millisecond))
	})
	t.Run("pre-provisioned", func(*testing.T) { replaced("static", fences) })
	fast := time.Since(begun)
	if note := w.untilEvent("Pod", "dynamic-", "PolicyEndedPod"); !strings.Contains(note,
		"policy storage-fences, without proof: storage-fences") {
		t.Errorf("Event of an ended pod: got %q, want the policy and its word", note)
	}
	t.Run("clears only its own entries", func(t *testing.T) {
		left := fmt.Sprint(w.node(fences).Status.VolumesInUse)
		if n := len(w.node(fences).Status.VolumesInUse); n != 3 {
			t.Errorf("volumes in use: got %s, want those of the three pods that stay", left)
		}
	})
	stay := slices.DeleteFunc(slices.Clone(before), func(p corev1.Pod) bool {
		return !slices.ContainsFunc([]string{"shouts-", "unlabelled-", "plain-"},
			func(name string) bool { return strings.HasPrefix(p.Name, name) })
	})
	t.Run("label not exactly true, no storage PVC", func(t *testing.T) {
		if err := untouched(stay, w.pods()); err != nil {
			t.Error(err)
		}
	})
	t.Run("retry after errors", func(*testing.T) {
		w.until("both to be refused twice", func() bool { return p.refused() >= probes+4 })
		freed()
		w.until("the pod to be ended that is refused no more", func() bool { return gone("slow") })
	})
	t.Run("timeout", func(t *testing.T) {
		note := w.untilEvent("Node", refused.Name(), "PolicyTimedOut")
		if !strings.Contains(note, "policy accept-duplicates") || !strings.Contains(note, "pod "+w.ns+"/never-0") {
			t.Errorf("Event of what was given up: got %q, want the policy and the pod", note)
		}
		if !ff.log.has("Policy gave up", refused.Name(), "never-0") {
			t.Error("the log does not tell what was given up")
		}
		letGo()
	})
	t.Run("unhealthy volume skipped then processed after expiry", func(t *testing.T) {
		if note := w.untilEvent("Node", fences.Name(), "PolicySkippedPods"); !strings.Contains(note, sick) {
			t.Errorf("Event of what is skipped: got %q, want volume %s", note, sick)
		}
		p.sets("volumes", sick, "online")
		w.until("the skipped pod to be ended", func() bool { return gone("sick") })
		if since := time.Since(begun); since < 19*time.Second {
			t.Errorf("looked at again after %s, want the expiry", since)
		}
	})
	// pods are not watched, its kubelet is cut off, and its storage says nothing new
	t.Run("resync without events", func(t *testing.T) {
		w.until("the pod to be ended that was given up", func() bool { return gone("never") && w.has("never-0") })
		if since := pod(t, w.pods(), "never-0").CreationTimestamp.Sub(begun); since < 18*time.Second {
			t.Errorf("ended at most %s after its storage became unhealthy, want the expiry", since)
		}
	})
	t.Run("rule as written", func(t *testing.T) {
		begun := time.Now()
		p.sets("nodes", written.Name(), "offline")
		w.until("its pod to be ended", func() bool { return gone("written") })
		w.until("its attachment to be deleted",
			func() bool { return !slices.Contains(w.attachments(written), well[2]) })
		if n := len(w.node(written).Status.VolumesInUse); n != 1 {
			t.Errorf("volumes in use: got %d, want the ended pod's still there", n)
		}
		replaced("written", written)
		t.Logf("unhealthy until the replacement runs: %s as written, %s where the storage fences",
			time.Since(begun).Round(time.Millisecond), fast.Round(time.Millisecond))
	})
	t.Run("healthy then unhealthy again, on a Ready node", func(t *testing.T) {
		p.sets("nodes", alive.Name(), "offline")
		w.until("its pod to be ended", func() bool { return gone("alive") })
		replaced("alive", alive)
		w.kubectl("uncordon", alive.Name())
		again := p.fenced(alive, "again", "true", true)
		p.sets("volumes", again, "online")
		first := uids(w.pods(), "again-")
		w.during(3*time.Second, "a pod that came when the node was done", func() error {
			if now := uids(w.pods(), "again-"); !slices.Equal(now, first) {
				return fmt.Errorf("got %v, want %v", now, first)
			}
			return nil
		})
		p.cordon(alive)
		p.sets("nodes", alive.Name(), "online")
		w.during(2*time.Second, "it is healthy", func() error {
			if now := uids(w.pods(), "again-"); !slices.Equal(now, first) {
				return fmt.Errorf("got %v, want %v", now, first)
			}
			return nil
		})
		p.sets("nodes", alive.Name(), "offline")
		w.until("the pod to be ended", func() bool { return !slices.Equal(uids(w.pods(), "again-"), first) })
		if !w.ready(alive) {
			t.Error("the node is not Ready")
		}
	})
}
