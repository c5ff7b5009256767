package integration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// A volume that is never detached: the attach/detach controller does not run. What onDetachTimeout says is done once
// the time is over, and not before; until the volume is detached the mark stays, and an alert says so.
func TestDetachTimeout(t *testing.T) {
	w := newWorld(t,
		plan{nodes: 4,
			own: &cluster.Options{KCMArgs: []string{"--controllers=*,-persistentvolume-attach-detach-controller"}}})
	force, out, back := w.hosts[0], w.hosts[1], w.hosts[2]
	attach := func(h *host) string {
		pv := "left-on-" + h.Name()
		core, once := w.Client().CoreV1(), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		_, err := core.PersistentVolumes().Create(w.ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: pv},
			Spec: corev1.PersistentVolumeSpec{AccessModes: once, Capacity: size,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef:                      &corev1.ObjectReference{Namespace: w.ns, Name: pv},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: cluster.CSIDriver, VolumeHandle: pv}}},
		}, metav1.CreateOptions{})
		kit.Must(t, err)
		_, err = core.PersistentVolumeClaims(w.ns).Create(w.ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: pv},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: once, VolumeName: pv, StorageClassName: new(""),
				Resources: corev1.VolumeResourceRequirements{Requests: size}},
		}, metav1.CreateOptions{})
		kit.Must(t, err)
		user := w.bare("user-"+h.Name(), h)
		user.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pv},
		}}}
		w.create(user)
		va, err := w.Client().StorageV1().VolumeAttachments().Create(w.ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "va-" + h.Name()},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: cluster.CSIDriver, NodeName: h.Name(),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		}, metav1.CreateOptions{})
		kit.Must(t, err)
		w.until("the volume is attached", func() bool {
			va, err = w.Client().StorageV1().VolumeAttachments().Get(w.ctx, va.Name, metav1.GetOptions{})
			return err == nil && va.Status.Attached
		})
		return va.Name
	}
	detach := func(name string) {
		kit.Must(t, w.Client().StorageV1().VolumeAttachments().Delete(w.ctx, name, metav1.DeleteOptions{}))
	}
	outOfService := func(h *host) bool {
		return slices.ContainsFunc(w.node(h).Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	}
	on := attach(force)
	_, _ = attach(out), attach(back)

	c := w.start(settings{Detach: "10s", Top: "onDetachTimeout: delete-attachments"})
	force.cut()
	w.untilDone(force, taint.ResultEvicted)
	w.untilEvent("Node", force.Name(), "FenceNeedsPerson")
	w.untilEvent("Node", force.Name(), "DeletingAttachments")
	if _, err := w.Client().StorageV1().VolumeAttachments().Get(w.ctx, on, metav1.GetOptions{}); err == nil ||
		len(w.attachments(out)) != 1 {
		t.Errorf("the dead node's attachment: got %v, want not found; another node's: got %v, want one", err,
			w.attachments(out))
	}

	c.configure(settings{Detach: "10s", Top: "onDetachTimeout: out-of-service"})
	c.untilMetric(`forcefence_config_reloads_total{result="ok"}`, 1)
	out.cut()
	back.cut()
	w.until("both nodes are out of service", func() bool { return outOfService(out) && outOfService(back) })
	if !w.marked(out) || !w.marked(back) || outOfService(w.hosts[3]) {
		t.Error("a node is out of service without its mark")
	}
	w.untilEvent("Node", out.Name(), "TakenOutOfService")
	detach("va-" + out.Name())
	w.untilDone(out, taint.ResultEvicted)
	if outOfService(out) {
		t.Error("the mark is gone, and the node is still out of service")
	}
	back.boot()
	w.until("the node that is back is in service", func() bool { return !outOfService(back) })
	if !w.marked(back) || len(w.attachments(back)) != 1 {
		t.Errorf("back: got marked %v, attachments %v; want the mark until its volume is detached", w.marked(back),
			w.attachments(back))
	}
	detach("va-" + back.Name())
	w.untilDone(back, taint.ResultReturned)
}
