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
	AlertDetail string      // what Alert does not say; may be empty
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
	// NoAction does nothing until something changes.
	NoAction struct{}
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
	// ReadStorageSetting reads whether a setting of the storage system ends pods as a policy does.
	ReadStorageSetting struct{}
	// ReadAwaitedClaims reads the claims in these pods' namespaces that Pending pods of ReplicaSets elsewhere wait for.
	ReadAwaitedClaims struct{ Pods []Pod }
	// ListEtcdPods lists the etcd pods.
	ListEtcdPods struct{}
	// ReadClaims reads the claims that these PersistentVolumes are bound to.
	ReadClaims struct{ PVs []string }
	// AskDevices asks all of the machine's devices at once.
	AskDevices struct{}
)

// Writes of the Node. Each is one PATCH with the look's resourceVersion.
type (
	// WriteRecord writes the record. The mark stays as it is.
	WriteRecord struct{ Record taint.Record }
	// SetMark sets the mark and writes the record.
	SetMark struct{ Record taint.Record }
	// RemoveMark removes the marks of Record.ID and writes the record.
	RemoveMark struct {
		Record   taint.Record
		HeldPods []Pod // ended or deleted pods that only foreign finalizers keep, for a report
		// LeftAttachments are attachments of volumes that no pod of the fence used, for a report.
		LeftAttachments []Attachment
		Spared          []Pod // unfinished pods that stay, because the node came back; for a report
	}
	// AnnouncePolicy names, in an annotation, the policies that will act without proof.
	AnnouncePolicy struct {
		Note        string
		Pods        []Pod        // what the policy will end,
		Attachments []Attachment // or delete, for a report
	}
	// SetPoweredOnCondition sets the condition PoweredOnNotReady.
	SetPoweredOnCondition struct{ On bool }
	// ExpireReady sets the stale Ready=True to Unknown.
	ExpireReady struct{}
	// ClearVolumes sets the node's volume lists.
	ClearVolumes struct {
		InUse    []corev1.UniqueVolumeName
		Attached []corev1.AttachedVolume
		Policy   string // the policy and its WithoutProof, on an unmarked node; "": a fence's
	}
	// AddOutOfServiceTaint adds our out-of-service taint.
	AddOutOfServiceTaint struct{}
	// RemoveOutOfServiceTaint removes it.
	RemoveOutOfServiceTaint struct{}
)

// Power actions. Each is checked once more right before it is sent (decide.Node.StillHolds).
type (
	// PowerOff powers the machine off.
	PowerOff struct{ Move proof.Move }
	// PowerOn powers the machine on, through the devices at these indexes of Facts.Devices, one after the other.
	PowerOn struct{ Devices []int }
	// WithdrawOrders takes orders to power the machine off back, and then writes the record, which lacks them. It
	// needs no last check: nothing is powered off by it.
	WithdrawOrders struct {
		Orders []taint.DeviceRef
		Record taint.Record
	}
)

// Writes of pods and attachments. Each write has the object's UID and resourceVersion. It may be sent only while
// decide.Node.MaySend allows it.
type (
	// EndPods ends pods, in the order in which to begin, and deletes those that are AtOnce.
	EndPods struct {
		Pods   []Pod
		Policy string // the policy and its WithoutProof, on an unmarked node; "": a fence's
		Urgent bool   // the node's other pods wait until these are deleted
	}
	// DeletePods deletes ended pods with grace 0.
	DeletePods struct {
		Pods     []Pod
		Returned bool // no proof is needed: the node came back, or a policy ended the pods
		ByPolicy bool // a policy ended them
	}
	// SparePods marks pods as spared by the record's Token.
	SparePods struct{ Pods []Pod }
	// SetPodsNotReady sets Ready False on pods that stay.
	SetPodsNotReady struct{ Pods []Pod }
	// FenceStorage has the storage of a policy cut the node off. Pods are those that wait for it, for a report.
	FenceStorage struct {
		Pods         []Pod
		Name, Policy string // the policy; the same with its WithoutProof
	}
	// DeleteAttachments deletes attachments.
	DeleteAttachments struct {
		Attachments []Attachment
		Policy      string // the policy and its WithoutProof, on an unmarked node; "": a fence's
	}
)

func (FenceStorage) isAction()            {}
func (NoAction) isAction()                {}
func (Wait) isAction()                    {}
func (ReadNode) isAction()                {}
func (ListPods) isAction()                {}
func (ReadVolumes) isAction()             {}
func (ListAttachments) isAction()         {}
func (ReadOwners) isAction()              {}
func (ReadStorageSetting) isAction()      {}
func (ReadAwaitedClaims) isAction()       {}
func (ListEtcdPods) isAction()            {}
func (ReadClaims) isAction()              {}
func (AskDevices) isAction()              {}
func (WriteRecord) isAction()             {}
func (SetMark) isAction()                 {}
func (RemoveMark) isAction()              {}
func (AnnouncePolicy) isAction()          {}
func (SetPoweredOnCondition) isAction()   {}
func (ExpireReady) isAction()             {}
func (ClearVolumes) isAction()            {}
func (AddOutOfServiceTaint) isAction()    {}
func (RemoveOutOfServiceTaint) isAction() {}
func (PowerOff) isAction()                {}
func (PowerOn) isAction()                 {}
func (EndPods) isAction()                 {}
func (DeletePods) isAction()              {}
func (SparePods) isAction()               {}
func (SetPodsNotReady) isAction()         {}
func (DeleteAttachments) isAction()       {}
func (WithdrawOrders) isAction()          {}

// RecordOf returns the record that an action writes; the zero Record if it writes none.
func RecordOf(a Action) taint.Record {
	if w, ok := a.(interface{ writtenRecord() taint.Record }); ok {
		return w.writtenRecord()
	}
	return taint.Record{}
}

func (a WriteRecord) writtenRecord() taint.Record { return a.Record }
func (a SetMark) writtenRecord() taint.Record     { return a.Record }
func (a RemoveMark) writtenRecord() taint.Record  { return a.Record }

func (a WithdrawOrders) writtenRecord() taint.Record { return a.Record }

// PodsOf returns the pods that an action writes, or reports.
func PodsOf(a Action) []Pod {
	if w, ok := a.(interface{ affectedPods() []Pod }); ok {
		return w.affectedPods()
	}
	return nil
}

func (a AnnouncePolicy) affectedPods() []Pod  { return a.Pods }
func (a EndPods) affectedPods() []Pod         { return a.Pods }
func (a FenceStorage) affectedPods() []Pod    { return a.Pods }
func (a DeletePods) affectedPods() []Pod      { return a.Pods }
func (a SparePods) affectedPods() []Pod       { return a.Pods }
func (a SetPodsNotReady) affectedPods() []Pod { return a.Pods }

// PolicyOf returns the policy, with its WithoutProof, in whose name an action is done without proof; "" for a fence's
// action.
func PolicyOf(a Action) string {
	if w, ok := a.(interface{ policyText() string }); ok {
		return w.policyText()
	}
	return ""
}

func (a ClearVolumes) policyText() string      { return a.Policy }
func (a EndPods) policyText() string           { return a.Policy }
func (a FenceStorage) policyText() string      { return a.Policy }
func (a DeleteAttachments) policyText() string { return a.Policy }

// PodWriteOf returns the kind of write, and the pods, of an action that writes pods.
func PodWriteOf(a Action) (w PodWrite, pods []Pod, is bool) {
	if w, ok := a.(interface{ podWrite() PodWrite }); ok {
		return w.podWrite(), PodsOf(a), true
	}
	return 0, nil, false
}

func (EndPods) podWrite() PodWrite         { return WritesEnd }
func (DeletePods) podWrite() PodWrite      { return WritesDelete }
func (SparePods) podWrite() PodWrite       { return WritesSpare }
func (SetPodsNotReady) podWrite() PodWrite { return WritesNotReady }

// AttachmentsOf returns the attachments that an action deletes, or reports.
func AttachmentsOf(a Action) []Attachment {
	switch a := a.(type) {
	case AnnouncePolicy:
		return a.Attachments
	case DeleteAttachments:
		return a.Attachments
	}
	return nil
}

// IsByPolicy reports whether the action is a policy's, on an unmarked node.
func IsByPolicy(a Action) bool {
	d, deletes := a.(DeletePods)
	return PolicyOf(a) != "" || deletes && d.ByPolicy
}

// NeedsNoProof reports whether the action needs no proof: it is of a fence whose node came back, or deletes what a
// policy ended.
func NeedsNoProof(a Action) bool {
	switch a := a.(type) {
	case SparePods, RemoveOutOfServiceTaint:
		return true
	case DeletePods:
		return a.Returned
	case Wait:
		return a.Returned
	}
	return false
}

// LetsRest reports whether the action leaves the node as it is until the next look.
func LetsRest(a Action) bool {
	switch a.(type) {
	case Wait, NoAction:
		return true
	}
	return false
}

// IsRead reports whether the action reads from the API server, or from a cache, and changes nothing.
func IsRead(a Action) bool {
	switch a.(type) {
	case ReadNode, ListPods, ReadVolumes, ListAttachments, ReadOwners, ReadStorageSetting, ReadAwaitedClaims,
		ListEtcdPods, ReadClaims:
		return true
	}
	return false
}
