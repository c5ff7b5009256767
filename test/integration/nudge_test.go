package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// patientKubelets do not try a held pod again while the test lasts: what starts was nudged.
func patientKubelets(_ int, o *cluster.NodeOptions) { o.SandboxRetry = time.Hour }

// untilNudged waits until as many containers run on the machine, and says how long that took.
func (w *world) untilNudged(h *host, containers int) {
	w.t.Helper()
	begin := time.Now()
	w.until("held pods run on the node", func() bool { return len(h.Running()) >= containers })
	w.t.Logf("%d held pods run after %s", containers, time.Since(begin).Round(10*time.Millisecond))
}

// The machine is back in the middle of its fence, and holds pods: they start as soon as the mark has gone, and not when
// their kubelet tries again by itself.
func TestNudgeWhenTheMarkGoes(t *testing.T) {
	w := newWorld(t, plan{nodes: 3, node: patientKubelets})
	h := w.hosts[0]
	w.Attacher().SetDelays(0, forever)
	w.fill(h, 2, w.volumes("db", 2))
	// The record cannot name an inline volume. So the mark holds all pods for as long as that of a pod is attached.
	disk := w.bare("disk", h)
	disk.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}}}
	w.create(disk)
	attachments := w.Client().StorageV1().VolumeAttachments()
	inline, err := attachments.Create(w.ctx, inlineAttachment(w.ns, h.Name()), metav1.CreateOptions{})
	kit.Must(t, err)
	inline.Status.Attached = true // one that was never attached holds nothing
	inline, err = attachments.UpdateStatus(w.ctx, inline, metav1.UpdateOptions{})
	kit.Must(t, err)
	c := w.start(settings{})
	h.cut()
	w.untilPhase(h, taint.PhaseEvicting)
	w.until("StatefulSet's pods gone", func() bool { return len(w.podsOn(h)) == 0 })
	// A node that is back before that lets pods start that use none of the volumes.
	w.untilEvent("Node", h.Name(), "WaitingForDetach")
	h.boot()
	w.until("node Ready again", func() bool { return w.ready(h) })
	// What is bound before the controller has seen the new boot is evicted with the rest.
	w.during(time.Second, "marked while volumes are attached", func() error {
		if !w.marked(h) {
			return errors.New("no mark")
		}
		return nil
	})
	for _, name := range []string{"late-0", "late-1", "late-2", "late-3"} {
		w.create(w.bare(name, h))
		w.untilEvent("Pod", name, "FailedCreatePodSandBox")
	}
	// Five seconds after the mark the controller reads which claims hold it, and could name the volumes.
	w.during(6*time.Second, "held under the mark", func() error {
		for _, p := range w.podsOn(h) {
			if note := p.Annotations[taint.NudgedAnnotation]; note != "" {
				return fmt.Errorf("pod %s was nudged under the mark, at %s", p.Name, note)
			}
		}
		if n := len(h.Running()); n != 0 || !w.marked(h) {
			return fmt.Errorf("marked %v, %d containers; want the mark and none", w.marked(h), n)
		}
		return nil
	})
	w.Attacher().SetDelays(0, 0)
	kit.Must(t, attachments.Delete(w.ctx, inline.Name, metav1.DeleteOptions{}))
	w.until("the mark gone", func() bool { return !w.marked(h) })
	w.untilNudged(h, 4)
	c.untilMetric(`forcefence_nudges_total{result="sent"}`, 4)
	c.untilMetric(`forcefence_node_protection{protection="fail-closed"}`, 3)
}

// inlineAttachment attaches a volume of a CSI driver that has no PersistentVolume.
func inlineAttachment(name, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-inline"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "inline.example.net", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "inline.example.net", VolumeHandle: "v"},
				},
			}},
		},
	}
}

// A machine reboots before it is taken for dead: its pods are held until its Node is Ready on the new boot, and start
// then.
func TestNudgeAfterReboot(t *testing.T) {
	w := newWorld(t, plan{nodes: 3, node: func(i int, o *cluster.NodeOptions) {
		patientKubelets(i, o)
		o.ReadyDelay = 500 * time.Millisecond
	}})
	h := w.hosts[0]
	w.fill(h, 6, w.volumes("db", 3), w.plain("web", 3))
	before := w.podsOn(h)
	c := w.start(settings{})
	c.untilMetric(`forcefence_node_protection{protection="fail-closed"}`, 3) // it knows the boot before this one
	h.cut()
	h.boot()
	begin := time.Now()
	w.until("pods held after the boot", func() bool {
		return slices.ContainsFunc(w.podsOn(h),
			func(p corev1.Pod) bool { return taint.IsHeldByHook(&p, taint.DefaultKey) })
	})
	w.until("the new boot is Ready", func() bool {
		n := w.node(h)
		return cluster.IsReady(n) && n.Status.NodeInfo.BootID == h.machine.BootID()
	})
	w.untilNudged(h, len(before))
	t.Logf("%s from power-on", time.Since(begin).Round(10*time.Millisecond))
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(before)))
	if err := untouched(before, w.podsOn(h)); err != nil {
		t.Error(err)
	}
	kit.Must(t, w.alone(h))
}
