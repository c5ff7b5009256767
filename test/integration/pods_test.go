package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// pod finds one by name.
func pod(t *testing.T, list []corev1.Pod, name string) corev1.Pod {
	t.Helper()
	i := slices.IndexFunc(list, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("pod %s: not there", name)
	}
	return list[i]
}

// Exempt and finished pods stay as they are, volumes included. A pod with another controller's finalizer is ended, and
// delays nothing.
func TestWhatIsNotEvicted(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	tolerating := w.workload("stays", 1)
	tolerating.Volume, tolerating.Mixed = true, true
	tolerating.Tolerations = []corev1.Toleration{
		{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	succeeded := w.bare("succeeded", h)
	succeeded.Annotations = map[string]string{cluster.RunForAnnotation: "100ms"}
	held := w.bare("held", h)
	held.Finalizers = []string{"example.com/keep"}
	w.fill(h, 3, tolerating.StatefulSet(), w.volumes("goes", 1), held)
	w.create(w.workload("agent", 0).DaemonSet(), succeeded, w.bare("failed", h))
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, 3+len(w.hosts)+1))
	w.until("pod succeeded", func() bool { return pod(t, w.pods(), "succeeded").Status.Phase == corev1.PodSucceeded })
	_, err := w.Client().CoreV1().Pods(w.ns).Patch(w.ctx, "failed", types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed","reason":"Error"}}`), metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	w.until("its containers ended", func() bool { return !h.running(pod(t, w.pods(), "failed")) })
	goes := pod(t, w.pods(), "goes-0")
	keep := slices.DeleteFunc(w.podsOn(h), func(p corev1.Pod) bool { return p.Name == "goes-0" || p.Name == "held" })
	if len(keep) != 4 {
		t.Fatalf("pods to be kept: got %d, want the DaemonSet's, the tolerating, the succeeded and the failed one",
			len(keep))
	}
	volume := func(claim string) (pv, handle string) {
		c, err := w.Client().CoreV1().PersistentVolumeClaims(w.ns).Get(w.ctx, claim, metav1.GetOptions{})
		kit.Must(t, err)
		v, err := w.Client().CoreV1().PersistentVolumes().Get(w.ctx, c.Spec.VolumeName, metav1.GetOptions{})
		kit.Must(t, err)
		return v.Name, v.Spec.CSI.VolumeHandle
	}
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, []corev1.Pod{goes})

	if err := untouched(keep, w.pods()); err != nil {
		t.Error(err)
	}
	if got := pod(t, w.pods(), "held"); got.DeletionTimestamp == nil || !taint.IsTombstone(&got) ||
		len(got.Finalizers) != 1 {
		t.Errorf("pod with a finalizer: got phase %s (%s), deleting since %v, finalizers %v; want a tombstone, "+
			"Terminating, its finalizer kept",
			got.Status.Phase, got.Status.Reason, got.DeletionTimestamp, got.Finalizers)
	}
	w.untilEvent("Pod", "held", "FinalizersKeepPod")
	data, dataHandle := volume("data-stays-0")
	scratch, scratchHandle := volume("stays-0-scratch")
	stay := []string{data, scratch}
	slices.Sort(stay)
	if got := slices.Sorted(slices.Values(w.attachments(h))); !slices.Equal(got, stay) {
		t.Errorf("attachments: got %v, want the tolerating pod's %v alone", got, stay)
	}
	want := []string{"kubernetes.io/csi/" + cluster.CSIDriver + "^" + dataHandle,
		"kubernetes.io/csi/" + cluster.CSIDriver + "^" + scratchHandle}
	slices.Sort(want)
	// the attach/detach controller writes its list late (F5)
	w.until(fmt.Sprintf("volumes in use and attached to be %v", want), func() bool {
		var inUse, attached []string
		node := w.node(h)
		for _, v := range node.Status.VolumesInUse {
			inUse = append(inUse, string(v))
		}
		for _, v := range node.Status.VolumesAttached {
			attached = append(attached, string(v.Name))
		}
		slices.Sort(inUse)
		slices.Sort(attached)
		return slices.Equal(inUse, want) && slices.Equal(attached, want)
	})
	// It runs again where it was, with its volume.
	h.boot()
	w.until("tolerating pod runs again", func() bool { return h.running(pod(t, w.pods(), "stays-0")) })
	if err := untouched(keep, w.pods()); err != nil {
		t.Error(err)
	}
}

// Pods that Kubernetes itself evicts at once from a lost node, by name: no replacement is ever hit by that.
func TestStockEvictionHitsNoReplacement(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	at := w.workload("once", 12)
	at.Tolerations = leavingWithin(0)
	soon := w.workload("soon", 4)
	soon.Tolerations = leavingWithin(10) // longer than all else takes, so that the fence waits for this alone
	w.fill(h, 18, at.StatefulSet(), soon.StatefulSet(), w.plain("web", 2))
	before := w.pods()
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	w.during(6*time.Second, "each pod has had two lives: on the dead node, and one more", func() error {
		lives := w.seen.lives()
		for _, p := range before {
			if ref := metav1.GetControllerOf(&p); ref != nil && ref.Kind == "StatefulSet" && lives[p.Name] != 2 {
				return fmt.Errorf("pods called %s: got %d, want 2", p.Name, lives[p.Name])
			}
		}
		if n := len(w.ReadyPods(w.ns)); n < len(before) {
			return fmt.Errorf("ready pods: got %d, want %d", n, len(before))
		}
		return nil
	})
	w.untilEvent("Node", h.Name(), "WaitingForStockEviction")
}
