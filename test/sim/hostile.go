package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
)

// namespaceUser is a user who may edit one namespace, and what else people leave behind: pods that are deleted and
// never finish, and attachments of a driver that is gone. It has dice of its own, so that the other histories stay what
// they were. The zero value does nothing.
type namespaceUser struct {
	w       *World
	rng     *rand.Rand
	made    int
	streams int  // streams of new pods under way
	hangs   bool // unmounts hang: a kubelet reports a deleted pod as Succeeded, and does not confirm its end
}

// goneDriver is the attacher of attachments that no controller detaches.
const goneDriver = "gone"

// addUser adds the user to every fifth history.
func (w *World) addUser() {
	if w.Small != nil || w.Seed%5 != 2 {
		return
	}
	u := &namespaceUser{w: w, rng: rand.New(rand.NewPCG(w.Seed, 0x75736572))}
	w.user, u.hangs = u, u.rng.IntN(2) == 0
	w.count("a namespace user")
	for i := range 1 + u.rng.IntN(2) {
		u.leaveAttachment(i)
	}
	for range 2 + u.rng.IntN(6) {
		w.after(u.between(0, 3*time.Minute), u.act)
	}
}

func (u *namespaceUser) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(u.rng.Int64N(int64(hi-lo)))
}

// leaveAttachment adds an attachment that no pod uses and no controller detaches: its driver was uninstalled.
func (u *namespaceUser) leaveAttachment(i int) {
	m := u.w.machines[u.rng.IntN(len(u.w.machines))]
	volume := fmt.Sprintf("left-%d", i)
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(volume, m.name),
			Finalizers: []string{"external-attacher/gone"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: goneDriver, NodeName: m.name,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
	switch u.rng.IntN(3) {
	case 0:
		a.Status.Attached = true
	case 1:
		at := metav1.NewTime(u.w.now)
		a.Status.Attached, a.DeletionTimestamp = true, &at
	default: // nothing was ever attached
		a.Finalizers = nil
	}
	u.w.api.putAttachment(a)
}

// act is one act of the user.
func (u *namespaceUser) act() {
	if u.w.calm || u.w.down {
		return
	}
	switch u.rng.IntN(3) {
	case 0:
		u.deletePod()
	default:
		m := u.w.machines[u.rng.IntN(len(u.w.machines))]
		u.w.count("stream of new pods")
		u.w.logf("user: binds new pods to %s", m.name)
		u.streams++
		u.stream(m, u.w.now.Add(u.between(5*time.Second, 4*time.Minute)))
	}
}

// deletePod deletes any pod with its grace period, as kubectl delete does.
func (u *namespaceUser) deletePod() {
	w := u.w
	if len(w.api.pods) == 0 {
		return
	}
	p := w.api.pods[u.rng.IntN(len(w.api.pods))]
	if isMirror(p) || p.DeletionTimestamp != nil {
		return
	}
	w.count("pod deleted by a user")
	w.logf("user: deletes %s (%s)", p.Name, p.UID)
	_ = w.api.deletePod("user", p.Name, string(p.UID), "", 30)
}

// stream binds a new pod to the node again and again, undoes what a fence wrote on its pods, and deletes some of them.
func (u *namespaceUser) stream(m *machine, until time.Time) {
	w := u.w
	if w.now.After(until) || w.calm && !m.power {
		u.streams--
		return
	}
	if !w.down && w.api.node(m.name) != nil {
		u.made++
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("late-%d", u.made), Namespace: "default"}}
		p.Spec.NodeName, p.Status.Phase = m.name, corev1.PodPending
		_ = w.api.createPod(p)
	}
	for _, p := range w.api.pods {
		switch {
		case p.Labels != nil || p.Spec.Volumes != nil || len(p.Name) < 5 || p.Name[:5] != "late-":
		case u.rng.IntN(8) == 0:
			_ = w.api.deletePod("user", p.Name, string(p.UID), "", int64(u.rng.IntN(2)*30))
		case taint.SparedBy(p) != "" && u.rng.IntN(2) == 0:
			w.count("sparing undone")
			_ = w.api.patchPod("user", p.Name, string(p.UID), "", func(p *corev1.Pod) {
				p.Annotations = nil
			})
		}
	}
	w.after(u.between(100*time.Millisecond, 4*time.Second), func() { u.stream(m, until) })
}

// hangsUnmount reports whether the kubelet of a pod that was deleted reports it as finished and cannot unmount its
// volumes: then the pod stays until the machine is off.
func (u *namespaceUser) hangsUnmount() bool {
	return u != nil && u.hangs && !u.w.calm && u.rng.IntN(2) == 0
}

// claimOf returns the claim that a volume is bound to: none for the volumes of a driver that is gone, or one that no
// pod uses.
func (u *namespaceUser) claimOf(pv string) string {
	if pv == "left-0" {
		return ""
	}
	return "default/" + pv
}
