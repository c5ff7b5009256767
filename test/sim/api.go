package sim

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

// Errors of the model's API server, and of the way to it.
var (
	errNotFound = errors.New("not found")
	errConflict = errors.New("conflict")
	errExists   = errors.New("already exists")
	errTimeout  = errors.New("time-out")
	errTooLarge = errors.New("request is too large")
)

// kind numbers what is stored.
type kind uint8

const (
	nodes kind = iota
	leases
	pods
	attachments
	kinds
)

// state is everything stored at one moment. Objects and slices are never changed in place: a write makes new ones, so a
// state once taken is a snapshot.
type state struct {
	at          time.Time
	rv          uint64
	nodes       []*corev1.Node
	leases      []*coordinationv1.Lease
	pods        []*corev1.Pod
	attachments []*storagev1.VolumeAttachment
}

func (s *state) node(name string) *corev1.Node                      { return find(s.nodes, name) }
func (s *state) lease(name string) *coordinationv1.Lease            { return find(s.leases, name) }
func (s *state) pod(name string) *corev1.Pod                        { return find(s.pods, name) }
func (s *state) attachment(name string) *storagev1.VolumeAttachment { return find(s.attachments, name) }

func (s *state) podsOn(node string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

func (s *state) attachmentsOf(node string) []*storagev1.VolumeAttachment {
	var out []*storagev1.VolumeAttachment
	for _, a := range s.attachments {
		if a.Spec.NodeName == node {
			out = append(out, a)
		}
	}
	return out
}

func find[T metav1.Object](list []T, name string) (none T) {
	for _, o := range list {
		if o.GetName() == name {
			return o
		}
	}
	return none
}

// server is the API server: the newest state and all that came before it.
type server struct {
	w *World
	state
	past    []state
	changed [kinds]time.Time

	pause       map[string]string                // the ConfigMap that pauses all; nil: there is none
	maintenance map[string]*coordinationv1.Lease // medik8s', by node
}

// asOf is the state that a cache shows which is as old as t.
func (s *server) asOf(t time.Time) *state {
	i := sort.Search(len(s.past), func(i int) bool { return s.past[i].at.After(t) })
	return &s.past[max(i-1, 0)]
}

// commit makes what was written visible, and wakes who watches it.
func (s *server) commit(k kind) {
	if k != leases {
		s.w.steps++
	}
	s.at = s.w.now
	s.changed[k] = s.w.now
	s.past = append(s.past, s.state)
	for _, c := range s.w.stock {
		if c.wants[k] {
			c.wake()
		}
	}
	for _, m := range s.w.machines {
		if m.k != nil {
			m.k.changed(k)
		}
	}
}

// put stores o, in place of the object of its name if there is one, under a new resourceVersion.
func put[T metav1.Object](s *server, list *[]T, k kind, o T) {
	s.rv++
	o.SetResourceVersion(strconv.FormatUint(s.rv, 10))
	i := slices.IndexFunc(*list, func(x T) bool { return x.GetName() == o.GetName() })
	*list = slices.Clone(*list)
	if i < 0 {
		*list = append(*list, o)
	} else {
		(*list)[i] = o
	}
	s.commit(k)
}

func drop[T metav1.Object](s *server, list *[]T, k kind, name string) {
	s.rv++
	*list = slices.DeleteFunc(slices.Clone(*list), func(x T) bool { return x.GetName() == name })
	s.commit(k)
}

// patchNode changes a Node; rv "" sets no precondition. edit gets a copy whose maps and slices it must replace, not
// change.
func (s *server) patchNode(by, name, rv string, edit func(*corev1.Node)) (err error) {
	var n *corev1.Node
	defer func() { s.w.receiveNode(by, name, rv, n, err) }()
	old := s.node(name)
	switch {
	case old == nil:
		return errNotFound
	case rv != "" && old.ResourceVersion != rv:
		return errConflict
	}
	n = new(*old)
	edit(n)
	s.w.check.nodeWrite(by, rv, old, n)
	put(s, &s.nodes, nodes, n)
	return nil
}

func (s *server) createNode(n *corev1.Node) error {
	if s.node(n.Name) != nil {
		return errExists
	}
	n.UID = types.UID(s.w.id("node-"))
	s.w.near.register(n)
	put(s, &s.nodes, nodes, n)
	return nil
}

func (s *server) deleteNode(name string) {
	drop(s, &s.nodes, nodes, name)
	s.w.forgotten(name)
}

// renew writes a Lease; rv "" takes whatever there is.
func (s *server) renew(name, rv string) error {
	old := s.lease(name)
	if old != nil && rv != "" && old.ResourceVersion != rv {
		return errConflict
	}
	now := metav1.NewMicroTime(s.w.now)
	put(s, &s.leases, leases, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now},
	})
	return nil
}

func (s *server) createPod(p *corev1.Pod) error {
	if s.pod(p.Name) != nil {
		return errExists
	}
	p.UID = types.UID(s.w.id("pod-"))
	put(s, &s.pods, pods, p)
	return nil
}

// patchPod changes a pod; uid and rv "" set no precondition.
func (s *server) patchPod(by, name, uid, rv string, edit func(*corev1.Pod)) (err error) {
	var p *corev1.Pod
	defer func() { s.w.receivePod(by, "patch", name, uid, rv, p, err) }()
	old, err := s.matchPod(name, uid, rv)
	if err != nil {
		return err
	}
	p = new(*old)
	edit(p)
	if s.w.limits.large == p.Name &&
		(len(p.Annotations) > len(old.Annotations) || len(p.Status.Conditions) > len(old.Status.Conditions)) {
		return errTooLarge
	}
	s.w.check.podWrite(by, uid, rv, old, p)
	put(s, &s.pods, pods, p)
	return nil
}

func (s *server) matchPod(name, uid, rv string) (*corev1.Pod, error) {
	p := s.pod(name)
	switch {
	case p == nil:
		return nil, errNotFound
	case uid != "" && string(p.UID) != uid, rv != "" && p.ResourceVersion != rv:
		return nil, errConflict
	}
	return p, nil
}

// deletePod is a DELETE with grace seconds. A pod that is terminal or bound to no node goes at once, and one with
// finalizers stays until they are gone.
func (s *server) deletePod(by, name, uid, rv string, grace int64) error {
	old, err := s.matchPod(name, uid, rv)
	s.w.receivePod(by, fmt.Sprint("delete ", grace), name, uid, rv, nil, err)
	if err != nil {
		return err
	}
	s.w.check.podWrite(by, uid, rv, old, nil)
	if taint.IsTerminal(old) || old.Spec.NodeName == "" {
		grace = 0
	}
	if grace == 0 && len(old.Finalizers) == 0 {
		drop(s, &s.pods, pods, name)
		return nil
	}
	if old.DeletionTimestamp != nil && *old.DeletionGracePeriodSeconds <= grace {
		return nil
	}
	p := *old
	at := metav1.NewTime(s.w.now)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	put(s, &s.pods, pods, &p)
	return nil
}

// dropFinalizers is some other controller finishing its work.
func (s *server) dropFinalizers(name string) {
	old := s.pod(name)
	if old == nil || len(old.Finalizers) == 0 {
		return
	}
	if old.DeletionTimestamp != nil && *old.DeletionGracePeriodSeconds == 0 {
		drop(s, &s.pods, pods, name)
		return
	}
	p := *old
	p.Finalizers = nil
	put(s, &s.pods, pods, &p)
}

func (s *server) putAttachment(a *storagev1.VolumeAttachment) {
	put(s, &s.attachments, attachments, a)
}

// deleteAttachment is a DELETE: the attacher detaches the volume, whatever the node says, and its finalizer keeps the
// object until then. The attach/detach controller notices later, and then writes volumesAttached.
func (s *server) deleteAttachment(name, uid, rv string) error {
	s.w.receive("", "delete", "volumeattachments/"+name, map[string]string{"uid": uid, "rv": rv})
	a := s.attachment(name)
	switch {
	case a == nil:
		return errNotFound
	case string(a.UID) != uid || a.ResourceVersion != rv:
		return errConflict
	case a.DeletionTimestamp != nil:
		return nil
	}
	w, b, node := s.w, *a, a.Spec.NodeName
	at := metav1.NewTime(w.now)
	b.DeletionTimestamp = &at
	s.putAttachment(&b)
	w.count("attachment deleted")
	w.after(w.between(20*time.Millisecond, time.Second), func() {
		if a := s.attachment(name); a != nil && string(a.UID) == uid {
			s.dropAttachment(name)
		}
		w.after(w.between(0, time.Minute), func() { w.writeAttached(node, nil) })
	})
	return nil
}

func (s *server) dropAttachment(name string) { drop(s, &s.attachments, attachments, name) }

// setReady writes the Ready condition.
func setReady(n *corev1.Node, status corev1.ConditionStatus, now time.Time) {
	old := readyOf(n)
	since := metav1.NewTime(now)
	if old != nil && old.Status == status {
		since = old.LastTransitionTime
	}
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastTransitionTime: since}
	if old != nil {
		c.LastHeartbeatTime = old.LastHeartbeatTime // only a kubelet changes it
	}
	setCondition(n, c)
}

// setHeartbeat notes in the Node that its kubelet writes the status now.
func setHeartbeat(n *corev1.Node, now time.Time) {
	if c := readyOf(n); c != nil {
		beat := *c
		beat.LastHeartbeatTime = metav1.NewTime(now.Truncate(time.Second))
		setCondition(n, beat)
	}
}

func setPoweredOn(n *corev1.Node, on bool, now time.Time) {
	c := corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(now)}
	if on {
		c.Status = corev1.ConditionTrue
	}
	setCondition(n, c)
}

// setCondition puts a condition in the place of the one of its type. The old list stays as it is: the past has it.
func setCondition(n *corev1.Node, c corev1.NodeCondition) {
	var out []corev1.NodeCondition
	for _, o := range n.Status.Conditions {
		if o.Type != c.Type {
			out = append(out, o)
		}
	}
	out = append(out, c)
	n.Status.Conditions = out
}

func readyOf(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func isReady(n *corev1.Node) bool {
	c := readyOf(n)
	return c != nil && c.Status == corev1.ConditionTrue
}

// setPodReady writes the conditions Ready and ContainersReady of a pod.
func setPodReady(p *corev1.Pod, status corev1.ConditionStatus, reason string) {
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		setPodCondition(p, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
	}
}

// setPodCondition writes one condition of a pod, whose list of conditions other versions of it may share.
func setPodCondition(p *corev1.Pod, c corev1.PodCondition) {
	rest := slices.DeleteFunc(slices.Clone(p.Status.Conditions),
		func(o corev1.PodCondition) bool { return o.Type == c.Type })
	rest = append(rest, c)
	p.Status.Conditions = rest
}

// isTrue reports whether a condition of the pod is True.
func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

func setRecord(n *corev1.Node, text string) { note(n, taint.RecordAnnotation, text) }

func note(n *corev1.Node, key, text string) { n.Annotations = with(n.Annotations, key, text) }
