package taint

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/forcefence/forcefence/providers"
)

// Instant is providers.Instant, for packages that do not import providers.
type Instant = providers.Instant

// Look is what one live look at a Node and its Lease saw, reduced to what a fence decides on. The zero value is a Node
// that does not exist.
type Look struct {
	Sent, Got Instant // when the reads were sent, and when both were answered

	Exists          bool
	Name            string
	UID             string
	ResourceVersion string
	BootID          string // "" if the kubelet never reported one
	SystemUUID      string
	Labels          map[string]string

	Ready      corev1.ConditionStatus // "" if there is no such condition
	ReadySince time.Time              // the condition's lastTransitionTime
	// Heartbeat is the condition's lastHeartbeatTime, by the kubelet's clock. Only the kubelet changes it, in each
	// status that it writes: the node lifecycle controller keeps it when it writes Unknown, and so do we. Zero: no
	// kubelet ever wrote one.
	Heartbeat time.Time

	PoweredOn bool // PoweredOnCondition is True

	Mark      *Mark
	MarkedBy  string // who set the mark, in the form of Record.By; "" without one
	Record    *Record
	RecordErr error // why the annotation cannot be read; nil: it can, or there is none
	Unproven  []Unproven

	Taints   []corev1.Taint
	InUse    []corev1.UniqueVolumeName
	Attached []corev1.AttachedVolume

	LeaseRV       string        // "" if there is no Lease
	LeaseDuration time.Duration // as the Lease has it; zero: it has none
}

// MachineUUID returns the system UUID of the machine that the node is taken for. That is the one that the node reports,
// until a fence is open: then it is the record's, if the pin names the same machine. A kubelet's credential can change
// what is reported and what is recorded, but not the pin.
func (l Look) MachineUUID() string {
	if r := l.Record; r.IsOpen() && r.Machine != nil && r.Machine.SystemUUID != "" &&
		r.Machine.Pin() == l.Labels[PinLabel] {
		return r.Machine.SystemUUID
	}
	return l.SystemUUID
}

// NewLook reduces a Node (nil: not found) and its Lease (nil: none) to a Look. It does not change the objects, and they
// must not be changed afterwards.
func NewLook(node *corev1.Node, lease *coordinationv1.Lease, key string, sent, got Instant) Look {
	l := Look{Sent: sent, Got: got}
	if node == nil {
		return l
	}
	l.Exists = true
	l.Name, l.UID, l.ResourceVersion, l.Labels = node.Name, string(node.UID), node.ResourceVersion, node.Labels
	l.BootID, l.SystemUUID = node.Status.NodeInfo.BootID, node.Status.NodeInfo.SystemUUID
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			l.Ready, l.ReadySince, l.Heartbeat = c.Status, c.LastTransitionTime.Time, heartbeatOf(c)
		}
		l.PoweredOn = l.PoweredOn || c.Type == PoweredOnCondition && c.Status == corev1.ConditionTrue
	}
	l.Record, l.RecordErr = RecordOf(node)
	l.Unproven = unprovenOf(node)
	if m, ok := FindMark(node, key, l.Record.IDOr("")); ok {
		l.Mark, l.MarkedBy = &m, markedBy(node)
	}
	l.Taints, l.InUse, l.Attached = node.Spec.Taints, node.Status.VolumesInUse, node.Status.VolumesAttached
	if lease != nil {
		l.LeaseRV, l.LeaseDuration = lease.ResourceVersion, LeaseDuration(lease)
	}
	return l
}

// heartbeatOf returns when the kubelet wrote the Ready condition, by its clock; zero: not known.
func heartbeatOf(ready corev1.NodeCondition) time.Time {
	if ready.Reason == neverUpdated || ready.Reason == ExpiredReason {
		return time.Time{}
	}
	return ready.LastHeartbeatTime.Time
}

// neverUpdated is the reason of a condition that the node lifecycle controller made for a Node without any status: its
// lastHeartbeatTime is the Node's creation (kubernetes pkg/controller/nodelifecycle).
const neverUpdated = "NodeStatusNeverUpdated"

// ExpiredReason is the reason of Ready once a device said that the machine is off (step 5). An older version changed
// lastHeartbeatTime with it, so the time says nothing then.
const ExpiredReason = "MachinePoweredOff"

// LeaseDuration returns the duration that a Lease states, without checking it; zero if it states none.
func LeaseDuration(l *coordinationv1.Lease) time.Duration {
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

// IsReady reports whether the Node's Ready condition is True, no matter who wrote it and when.
func (l Look) IsReady() bool { return l.Ready == corev1.ConditionTrue }

// IsUnschedulable reports whether the scheduler binds only pods that tolerate everything to the node. That is so if the
// node is cordoned, or carries the NoSchedule taint that the node lifecycle controller sets a moment after Ready has
// become False or Unknown. The scheduler itself looks at taints alone, not at Ready.
func (l Look) IsUnschedulable() bool {
	return slices.ContainsFunc(l.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule && (t.Key == corev1.TaintNodeNotReady ||
			t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeUnschedulable)
	})
}

// HasOwnMark reports whether the mark belongs to the fence of the record. Any other mark is a person's.
func (l Look) HasOwnMark() bool {
	return l.Mark != nil && l.Record.IsOpen() && l.Record.ID == l.Mark.Value
}

// SameLife reports whether two looks saw the same life of a Node.
func (l Look) SameLife(o Look) bool { return o.Exists && o.Life().StillHolds(l) }

// IsAliveSince reports whether the Node shows a life that the record does not have: recreated, booted again, or a
// heartbeat of either kind after those of the record. An older version's record names no status.
func (l Look) IsAliveSince(r *Record) bool { return !r.Life().StillHolds(l) }

// IsReleased reports whether a person ended the fence of this life of the node. A heartbeat or a boot begins another
// life.
func (l Look) IsReleased() bool {
	return l.Record != nil && l.Record.Result == ResultReleased && !l.IsAliveSince(l.Record)
}

// PowerOffDevices returns the devices that the record names: they accepted a power-off of ours, or may have, since the
// node's last sign of life. It is nil if there is no record, or the node has shown life since.
func (l Look) PowerOffDevices() []DeviceRef {
	if l.Record == nil || l.IsAliveSince(l.Record) {
		return nil
	}
	return l.Record.PowerOffTo
}

// OrdersToWithdraw returns the devices that may still carry out a power-off, and must not any more. A node that shows
// life since the record voids all orders, and so does the end of their fence. One remains: that by which the machine
// went off, after a fence that moved everything. It keeps the machine off until a power-on, or a sign of life. An open
// fence of a dead node takes nothing back: its machine might be powered on in the middle.
func (l Look) OrdersToWithdraw() []DeviceRef {
	switch r := l.Record; {
	case r == nil:
		return nil
	case l.IsAliveSince(r):
		return r.Orders
	case r.IsOpen():
		return nil
	case r.Result == ResultEvicted:
		return r.WithoutOrders(r.OffBy).Orders
	default:
		return r.Orders
	}
}

// IsOlder reports whether a resourceVersion is known to come before another.
func IsOlder(rv, than string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && c < 0
}

// markedBy returns who wrote the Node's taints last, by its managed fields, in the form of Record.By. The taints are
// one list, so the writer of another taint replaces the one who set the mark. The stock controllers, which set no mark,
// and forcefence itself are therefore not believed: the writer is unknown then, and counts as a person. kubectl counts
// as a person.
func markedBy(node *corev1.Node) string {
	m := taintsManager(node)
	if m == "" || strings.HasPrefix(m, "kubectl") {
		return ByPerson
	}
	return byOther + m
}

// taintsManager returns the manager of the Node's taints, by its managed fields. It is "" if there is none, or if it is
// a client that sets only taints of its own: forcefence or a stock controller.
func taintsManager(node *corev1.Node) string {
	var last *metav1.ManagedFieldsEntry
	for i := range node.ManagedFields {
		f := &node.ManagedFields[i]
		if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:taints"`) &&
			(last == nil || f.Time != nil && last.Time.Before(f.Time)) {
			last = f
		}
	}
	if last == nil {
		return ""
	}
	switch last.Manager {
	case "forcefence", "kube-controller-manager", "cloud-controller-manager":
		return ""
	default:
		return last.Manager
	}
}

// OutOfServiceByOther reports whether the Node has an out-of-service taint that is not ours, and which client set it.
// The client is its name in the Node's managed fields, or "" if these do not show it.
func OutOfServiceByOther(node *corev1.Node) (client string, found bool) {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService && !isOutOfService(t) {
			return taintsManager(node), true
		}
	}
	return "", false
}

// HasAnnounced reports whether the Node already announces that the policy ends pods in the present period in which it
// is not Ready.
func (l Look) HasAnnounced(policy, word string) bool {
	return slices.ContainsFunc(l.Unproven, l.newUnproven(policy, word).isSame)
}

// EncodeAnnouncement returns the value of PolicyAnnotation in which a new announcement replaces the policy's earlier
// one. It keeps the newest few announcements.
func (l Look) EncodeAnnouncement(policy, word string, at time.Time) string {
	now := l.newUnproven(policy, word)
	now.At = at.UTC().Truncate(time.Second)
	list := slices.DeleteFunc(slices.Clone(l.Unproven), func(u Unproven) bool { return u.Policy == policy })
	list = append(list, now)
	b, err := json.Marshal(list[max(0, len(list)-maxUnproven):])
	if err != nil {
		return "[]" // a time outside years 0..9999: no API server accepts such a condition
	}
	return string(b)
}

func (l Look) newUnproven(policy, word string) Unproven {
	return Unproven{Policy: policy, WithoutProof: word, NodeUID: l.UID, Since: l.ReadySince.UTC()}
}
