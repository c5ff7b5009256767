// Package action has what the kernel decides to do: a Decision, and the closed set of Actions. taint/decide and the
// packages below it return them, and decide.Do carries them out. Nothing translates one into another.
package action

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// Decision is one action and its reason.
type Decision struct {
	Action       Action
	Reason       reason.Reason
	Detail       string        // text for a person besides Reason; may be empty
	RequeueAfter time.Duration // Wait: when to look again

	// What is reported to people besides the reason.
	Alert       string      // "" or why a person should look; the mark stays
	Stuck       []StuckPod  // pods that the API server does not let us end, delete, spare or set not ready
	Notes       []Note      // what policies leave undone
	PolicyBlock PolicyBlock // why policies end nothing that they would end otherwise
	// ReportOnceKey is what a refusal of many nodes is about, so that it is reported once; "" for a refusal of this
	// node alone.
	ReportOnceKey string
	Would         ShadowDecision // Wait: what mode fence would do now, where the mode is shadow
}

// Action is one thing to do next: to read, to ask, to act, or to wait. The set is closed: decide.World has one method
// for each.
type Action interface{ isAction() }

// Name returns the action's name, for logs and stories.
func Name(a Action) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", a), "action.")
}

// Is reports whether a decision's action is of the kind A.
func Is[A Action](d Decision) bool {
	_, is := d.Action.(A)
	return is
}

// No action: nothing is read or done until the next look at the node.
type (
	// Leave does nothing until something changes.
	Leave struct{}
	// Wait does nothing until Decision.RequeueAfter has passed.
	Wait struct {
		Returned bool // a marked node came back: its mark waits for what its fence began
	}
)

// Reads. Each is live unless noted.
type (
	// ReadNode reads the Node and its Lease, and what the configuration and the Node say about the node.
	ReadNode struct{}
	// ListPods lists all pods that are bound to the node.
	ListPods struct{}
	// ReadVolumes reads the volumes of these pods' claims.
	ReadVolumes struct{ Pods []Pod }
	// ListAttachments lists the VolumeAttachments that name the node. Without Live a cache may answer, which may be
	// behind.
	ListAttachments struct{ Live bool }
	// ReadOwners reads what controls the owners of these pods.
	ReadOwners struct{ Pods []Pod }
	// ReadRival reads whether a setting of the storage system ends pods as a policy does.
	ReadRival struct{}
	// ReadWaiting reads the claims in these pods' namespaces that Pending pods of ReplicaSets elsewhere wait for.
	ReadWaiting struct{ Pods []Pod }
	// ReadMembers lists the etcd pods.
	ReadMembers struct{}
	// ReadClaims reads the claims that these PersistentVolumes are bound to.
	ReadClaims struct{ PVs []string }
	// Ask asks all of the machine's devices at once.
	Ask struct{}
)

// Writes of the Node. Each is one PATCH with the look's resourceVersion.
type (
	// Write writes the record. The mark stays as it is.
	Write struct{ Record taint.Record }
	// Arm sets the mark and writes the record.
	Arm struct{ Record taint.Record }
	// Unmark removes the marks of Record.ID and writes the record.
	Unmark struct {
		Record taint.Record
		Kept   []Pod // ended pods that only foreign finalizers keep, for a report
	}
	// Announce names, in an annotation, the policies that will act without proof.
	Announce struct {
		Note        string
		Pods        []Pod        // what the policy will end,
		Attachments []Attachment // or delete, for a report
	}
	// Condition sets the condition PoweredOnNotReady.
	Condition struct{ On bool }
	// ExpireReady sets the stale Ready=True to Unknown.
	ExpireReady struct{}
	// ClearVolumes sets the node's volume lists.
	ClearVolumes struct {
		InUse    []corev1.UniqueVolumeName
		Attached []corev1.AttachedVolume
		Policy   string // the policy and its WithoutProof, on an unmarked node; "": a fence's
	}
	// OutOfService adds our out-of-service taint.
	OutOfService struct{}
	// InService removes it.
	InService struct{}
)

// Power actions. Each is checked once more right before it is sent (decide.Node.StillHolds).
type (
	// PowerOff powers the machine off.
	PowerOff struct{ Move proof.Move }
	// PowerOn powers the machine on, through the devices at these indexes of Facts.Devices, one after the other.
	PowerOn struct{ Devices []int }
)

// Writes of pods and attachments. Each write has the object's UID and resourceVersion. It may be sent only while
// decide.Node.MaySend allows it.
type (
	// Tombstone ends pods, in the order in which to begin.
	Tombstone struct {
		Pods   []Pod
		Policy string // the policy and its WithoutProof, on an unmarked node; "": a fence's
	}
	// Delete deletes ended pods with grace 0.
	Delete struct {
		Pods     []Pod
		Returned bool // no proof is needed: the node came back, or a policy ended the pods
		Policy   bool // a policy ended them
	}
	// Spare marks pods as spared by the record's Token.
	Spare struct{ Pods []Pod }
	// SetNotReady sets Ready False on pods that stay.
	SetNotReady struct{ Pods []Pod }
	// DeleteAttachments deletes attachments.
	DeleteAttachments struct {
		Attachments []Attachment
		Policy      string // the policy and its WithoutProof, on an unmarked node; "": a fence's
	}
)

func (Leave) isAction()             {}
func (Wait) isAction()              {}
func (ReadNode) isAction()          {}
func (ListPods) isAction()          {}
func (ReadVolumes) isAction()       {}
func (ListAttachments) isAction()   {}
func (ReadOwners) isAction()        {}
func (ReadRival) isAction()         {}
func (ReadWaiting) isAction()       {}
func (ReadMembers) isAction()       {}
func (ReadClaims) isAction()        {}
func (Ask) isAction()               {}
func (Write) isAction()             {}
func (Arm) isAction()               {}
func (Unmark) isAction()            {}
func (Announce) isAction()          {}
func (Condition) isAction()         {}
func (ExpireReady) isAction()       {}
func (ClearVolumes) isAction()      {}
func (OutOfService) isAction()      {}
func (InService) isAction()         {}
func (PowerOff) isAction()          {}
func (PowerOn) isAction()           {}
func (Tombstone) isAction()         {}
func (Delete) isAction()            {}
func (Spare) isAction()             {}
func (SetNotReady) isAction()       {}
func (DeleteAttachments) isAction() {}

// RecordOf returns the record that an action writes; the zero Record if it writes none.
func RecordOf(a Action) taint.Record {
	if w, ok := a.(interface{ record() taint.Record }); ok {
		return w.record()
	}
	return taint.Record{}
}

func (a Write) record() taint.Record  { return a.Record }
func (a Arm) record() taint.Record    { return a.Record }
func (a Unmark) record() taint.Record { return a.Record }

// PodsOf returns the pods that an action writes, or reports.
func PodsOf(a Action) []Pod {
	if w, ok := a.(interface{ pods() []Pod }); ok {
		return w.pods()
	}
	return nil
}

func (a Announce) pods() []Pod    { return a.Pods }
func (a Tombstone) pods() []Pod   { return a.Pods }
func (a Delete) pods() []Pod      { return a.Pods }
func (a Spare) pods() []Pod       { return a.Pods }
func (a SetNotReady) pods() []Pod { return a.Pods }

// PolicyOf returns the policy, with its WithoutProof, in whose name an action is done without proof; "" for a fence's
// action.
func PolicyOf(a Action) string {
	if w, ok := a.(interface{ policy() string }); ok {
		return w.policy()
	}
	return ""
}

func (a ClearVolumes) policy() string      { return a.Policy }
func (a Tombstone) policy() string         { return a.Policy }
func (a DeleteAttachments) policy() string { return a.Policy }

// PodWriteOf returns the kind of write, and the pods, of an action that writes pods.
func PodWriteOf(a Action) (w PodWrite, pods []Pod, is bool) {
	if w, ok := a.(interface{ podWrite() PodWrite }); ok {
		return w.podWrite(), PodsOf(a), true
	}
	return 0, nil, false
}

func (Tombstone) podWrite() PodWrite   { return Ends }
func (Delete) podWrite() PodWrite      { return Deletes }
func (Spare) podWrite() PodWrite       { return Spares }
func (SetNotReady) podWrite() PodWrite { return SetsNotReady }

// AttachmentsOf returns the attachments that an action deletes, or reports.
func AttachmentsOf(a Action) []Attachment {
	switch a := a.(type) {
	case Announce:
		return a.Attachments
	case DeleteAttachments:
		return a.Attachments
	}
	return nil
}

// IsByPolicy reports whether the action is a policy's, on an unmarked node.
func IsByPolicy(a Action) bool {
	d, deletes := a.(Delete)
	return PolicyOf(a) != "" || deletes && d.Policy
}

// NeedsNoProof reports whether the action needs no proof: it is of a fence whose node came back, or deletes what a
// policy ended.
func NeedsNoProof(a Action) bool {
	switch a := a.(type) {
	case Spare, InService:
		return true
	case Delete:
		return a.Returned
	case Wait:
		return a.Returned
	}
	return false
}

// IsRead reports whether the action reads from the API server, or from a cache, and changes nothing.
func IsRead(a Action) bool {
	_, reads := a.(interface{ isRead() })
	return reads
}

func (ReadNode) isRead()        {}
func (ListPods) isRead()        {}
func (ReadVolumes) isRead()     {}
func (ListAttachments) isRead() {}
func (ReadOwners) isRead()      {}
func (ReadRival) isRead()       {}
func (ReadWaiting) isRead()     {}
func (ReadMembers) isRead()     {}
func (ReadClaims) isRead()      {}
