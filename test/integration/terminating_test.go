package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// finish makes a pod of a dead node what it is while an unmount hangs: a client deleted it, and its kubelet reported
// the phase and could do no more.
func (w *world) finish(name string, phase corev1.PodPhase) corev1.Pod {
	w.t.Helper()
	w.kubectl("delete", "pod", name, "-n", w.ns, "--wait=false")
	p, err := w.Client().CoreV1().Pods(w.ns).Patch(w.ctx, name, types.MergePatchType,
		[]byte(`{"status":{"phase":"`+string(phase)+`"}}`), metav1.PatchOptions{}, "status")
	kit.Must(w.t, err)
	return *p
}

// untilElsewhere waits until a pod of that name with another UID runs, on another node.
func (w *world) untilElsewhere(h *host, before corev1.Pod) {
	w.t.Helper()
	w.until(before.Name+" to run elsewhere", func() bool {
		for _, p := range w.ReadyPods(w.ns) {
			if p.Name == before.Name && p.UID != before.UID && p.Spec.NodeName != h.Name() {
				return true
			}
		}
		return false
	})
}

// A StatefulSet's pod that finished and is Terminating, because its kubelet died before the unmount, is removed with
// the proof. Its volume goes with it. The other pods of the node are recovered as ever.
func TestSucceededPodIsRemoved(t *testing.T) { finishedPodIsRemoved(t, corev1.PodSucceeded) }

// The same holds for one that failed.
func TestFailedPodIsRemoved(t *testing.T) { finishedPodIsRemoved(t, corev1.PodFailed) }

func finishedPodIsRemoved(t *testing.T, phase corev1.PodPhase) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 3, w.workload("web", 1).StatefulSet(), w.volumes("db", 1), w.plain("dep", 1))
	before := w.podsOn(h)
	h.cut()
	web, db := w.finish("web-0", phase), w.finish("db-0", phase)
	w.start(settings{})
	w.untilDone(h, taint.ResultEvicted)
	w.untilElsewhere(h, web)
	w.untilElsewhere(h, db)
	w.untilReplaced(h, before)
}

// Such a pod is work: a node on which nothing else is left is fenced for it alone.
func TestFinishedPodAloneIsWork(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 1, w.workload("web", 1).StatefulSet())
	h.cut()
	web := w.finish("web-0", corev1.PodFailed)
	w.start(settings{})
	w.untilDone(h, taint.ResultEvicted)
	w.untilElsewhere(h, web)
}

// A pod that tolerates the mark stays, until a person deletes it, and so does a DaemonSet's pod until its DaemonSet is
// deleted: then the objects are removed with a proof, although the first fence is over.
func TestDeletedExemptPodIsRemoved(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	stays := w.workload("tol", 1)
	stays.Volume = true
	stays.Tolerations = []corev1.Toleration{{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	w.fill(h, 2, stays.StatefulSet(), w.plain("dep", 1))
	w.create(w.workload("agent", 0).DaemonSet())
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, 2+len(w.hosts)))
	tol := pod(t, w.pods(), "tol-0")
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	if !w.has("tol-0") {
		t.Fatal("a pod that tolerates the mark was removed, and no client had deleted it")
	}
	w.kubectl("delete", "pod", "tol-0", "-n", w.ns, "--wait=false")
	w.untilElsewhere(h, tol)
	w.kubectl("delete", "daemonset", "agent", "-n", w.ns, "--wait=false")
	w.until("no pod on the dead node", func() bool { return len(w.podsOn(h)) == 0 })
}

// strayAttachment creates an attachment that no pod uses, of a driver that is gone, and returns its name.
func (w *world) strayAttachment(h *host, name, pv string, change func(*storagev1.VolumeAttachment)) string {
	w.t.Helper()
	api := w.Client().StorageV1().VolumeAttachments()
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + name,
			Finalizers: []string{"external-attacher/gone-example-com"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "gone.example.com", NodeName: h.Name(),
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	if change != nil {
		change(va)
	}
	status := va.Status
	va, err := api.Create(w.ctx, va, metav1.CreateOptions{})
	kit.Must(w.t, err)
	va.Status = status
	_, err = api.UpdateStatus(w.ctx, va, metav1.UpdateOptions{})
	kit.Must(w.t, err)
	w.t.Cleanup(func() {
		ctx := context.Background()
		_ = api.Delete(ctx, va.Name, metav1.DeleteOptions{})
		_, _ = api.Patch(ctx, va.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
	})
	return va.Name
}

// Attachments of a driver that is gone, one of them being deleted since before the outage, keep no mark: neither of a
// machine that is off nor of one that is back. An Event names attachment, volume and driver.
func TestStrayAttachmentsHoldNothing(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 1), w.plain("web", 1))
	before := w.podsOn(h)
	stray := w.strayAttachment(h, "stray", "gone-pv", nil)
	deleting := w.strayAttachment(h, "deleting", "gone-pv-2", nil)
	w.kubectl("delete", "volumeattachment", deleting, "--wait=false")
	// The volume of this one is still there, and bound to a claim that no pod uses.
	w.kubectlApply(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unused, namespace: ` + w.ns + `}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ` + cluster.StorageClass + `
  resources: {requests: {storage: 1Gi}}
`)
	var unused string
	w.until("claim unused to be bound", func() bool { unused = w.volumeOf("unused"); return unused != "" })
	bound := w.strayAttachment(h, "bound", unused, nil)
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
	text := w.untilEvent("Node", h.Name(), "AttachmentLeftBehind")
	for _, want := range []string{stray, deleting, bound, "gone-pv", "gone.example.com"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Event does not name %s: %s", want, text)
		}
	}
	h.boot()
	w.until("node ready and open", func() bool { return w.ready(h) && !w.marked(h) })

	// And the node that comes back in the middle of a fence: nothing is left to wait for but those.
	w.fill(h, 3, w.volumes("late", 1))
	w.Attacher().SetDelays(0, time.Hour)
	h.cut()
	w.untilPhase(h, taint.PhaseEvicting)
	w.until("late-0 to be removed", func() bool { return len(w.podsOn(h)) == 0 })
	h.boot()
	w.until("node back and Ready", func() bool { return w.ready(h) })
	w.Attacher().SetDelays(0, 0)
	w.until("mark to be gone", func() bool { return !w.marked(h) })
}

// An attachment that was never attached holds no mark: its driver attaches nothing.
func TestNeverAttachedHoldsNothing(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 1), w.plain("web", 1))
	before := w.podsOn(h)
	w.strayAttachment(h, "never", "stuck-pv", func(va *storagev1.VolumeAttachment) {
		va.Finalizers, va.Status.Attached = nil, false
	})
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.untilReplaced(h, before)
}
