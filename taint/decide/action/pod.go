package action

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// Pod is what the kernel needs to know of a pod bound to the node.
type Pod struct {
	Namespace, Name, UID, ResourceVersion string

	Exempt     taint.Exemption
	Terminal   bool   // Succeeded or Failed, set by anyone
	Tombstone  bool   // our tombstone
	Spared     string // taint.SparedBy
	Message    string // the message of its status
	First      bool   // matches the configured selector: storage and CSI controllers
	Priority   int32
	Deleting   bool     // has a deletionTimestamp
	Grace      int64    // deletionGracePeriodSeconds, if Deleting
	Finalizers []string // foreign ones: forcefence sets none

	Ready           bool // its condition Ready is True
	ContainersReady bool // its condition ContainersReady is True

	Labels      map[string]string
	Owner       Owner
	DeleteAt    time.Time // its deletionTimestamp; zero: it was not deleted
	Tolerations []corev1.Toleration
	Volumes     []Volume // of its claims, as far as they resolve
	Claims      bool     // it has claims, and its Volumes are unknown
	ClaimNames  []string `json:",omitempty"` // the PersistentVolumeClaims that it uses, in its namespace
	OtherVolume string   `json:",omitempty"` // the name of a volume that is no claim's and may hold data; "": none

	// InlineVolume reports that an OtherVolume is an in-tree volume that a CSI driver serves: it is attached without a
	// PersistentVolume.
	InlineVolume bool `json:",omitempty"`

	Cut string `json:",omitempty"` // taint.CutParts: what was too large to be kept; no policy ends such a pod

	Small  bool // set by Step: the pod cannot grow, so write the smallest form
	AtOnce bool `json:",omitempty"` // set by Step: it has no volumes to clear, so delete it as soon as it is ended
}

// Owner is what controls a pod.
type Owner struct {
	Kind, Name string // "" for none; a ReplicaSet of a Deployment becomes that Deployment, once Known
	Known      bool   // the owner's own owner was looked up
	Direct     string // the kind that controls the pod itself, if Kind is that owner's owner; "": Kind is
}

// Volume is a persistent volume that a pod uses.
type Volume struct {
	PV     string
	Handle string                  // its CSI driver's name for it; "" for a non-CSI volume
	Health Health                  // what its storage system reports
	Claim  string                  // the PersistentVolumeClaim, in the pod's namespace
	Driver string                  // its CSI driver; "" for a non-CSI volume
	Unique corev1.UniqueVolumeName // the name in the node's lists; "" for a non-CSI volume
	// Migrated is the second name in the node's lists of an in-tree volume that Kubernetes serves by a CSI driver; ""
	// for any other volume.
	Migrated corev1.UniqueVolumeName
	// OneNode reports that no second node can use the volume while it is attached to one (its access modes).
	OneNode bool `json:",omitempty"`
	// Unread reports that the claim, or its PersistentVolume, may exist and could not be read. Unique is unknown then,
	// and PV is known only where another object names it. Such a volume may be any of the node's list entries.
	Unread bool
}

// UnreadClaim replaces the claim of a PersistentVolume that could not be read. It equals no claim's namespace/name.
const UnreadClaim = "?"

// ShouldMove reports whether the pod is to be moved: it is neither exempt nor finished.
func (p Pod) ShouldMove() bool { return p.Exempt == taint.NotExempt && !p.Terminal }

// IsHeldByFinalizers reports whether the pod was deleted with grace 0 and only foreign finalizers keep it. It can never
// start again.
func (p Pod) IsHeldByFinalizers() bool { return p.Deleting && p.Grace == 0 && len(p.Finalizers) > 0 }

// ownFinalizers are those that stock controllers remove from an ended pod by themselves, moments later. The Job
// controller does so once it has counted the pod, the garbage collector once dependents are gone or orphaned.
var ownFinalizers = []string{
	"batch.kubernetes.io/job-tracking", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents,
}

// KeepingFinalizers returns the finalizers that no stock controller removes from an ended pod by itself.
func (p Pod) KeepingFinalizers() []string {
	return slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool {
		return slices.Contains(ownFinalizers, f)
	})
}

// IsTombstoneHeld reports whether the pod is tombstoned and only foreign finalizers keep it. A fence does not wait for
// it, and reports it (step 12).
func (p Pod) IsTombstoneHeld() bool { return p.Tombstone && p.IsHeldByFinalizers() }

// NeedsDelete reports whether the pod is tombstoned and must still be deleted.
func (p Pod) NeedsDelete() bool { return p.Tombstone && !p.IsHeldByFinalizers() }

// HasUnfinishedDeletion reports whether another client deleted a pod that a fence does not end, and the pod's kubelet
// has not confirmed that it stopped. Such a pod has finished, or is exempt. With a proof the fence deletes it; its
// phase stays as it is. No kubelet starts a pod that has a deletionTimestamp, so it needs no tombstone.
func (p Pod) HasUnfinishedDeletion() bool {
	return p.Deleting && !p.Tombstone && !p.ShouldMove() && !p.IsHeldByFinalizers()
}

// Attachment is a VolumeAttachment that names the node.
type Attachment struct {
	Name, UID, ResourceVersion string

	PV       string // "" for an inline volume
	Attacher string // the CSI driver
	Deleting bool
	// NeverAttached reports that it reads attached: false and has no finalizer: nothing is to be detached.
	NeverAttached bool `json:",omitempty"`
}

// StaysReady reports whether the pod stays on its node, has not finished and reads Ready.
func (p Pod) StaysReady() bool { return p.Exempt != taint.NotExempt && !p.Terminal && p.Ready }

// WriteResult is the result of a pod write.
type WriteResult uint8

// The results of pod writes. The zero value is Accepted.
const (
	Accepted WriteResult = iota // written, or the pod is gone
	Changed                     // another client wrote first
	Failed                      // a time-out, or a fault of the API server: the same write may succeed later
	Denied                      // refused: an admission policy or webhook, a missing right, an invalid object
	TooLarge                    // at a limit of the API server or of etcd: the pod may not grow by what the write adds
	Undone                      // written, and another client wrote the opposite
)

// String returns the result in words, for people.
func (r WriteResult) String() string {
	return [...]string{
		"accepted", "other clients keep changing it", "the API server returns errors", "the API server refuses it",
		"too large for the API server", "another client undoes it",
	}[r]
}

// StuckPod is a pod, what could not be done with it, and why.
type StuckPod struct {
	Pod
	Write PodWrite
	Why   WriteResult
}

// PodWrite is one kind of write of a pod.
type PodWrite uint8

// The writes of pods.
const (
	WritesEnd      PodWrite = iota // EndPods
	WritesDelete                   // DeletePods
	WritesSpare                    // SparePods
	WritesNotReady                 // SetPodsNotReady
)

// String returns the action's name, for logs.
func (w PodWrite) String() string {
	return [...]string{"EndPods", "DeletePods", "SparePods", "SetPodsNotReady"}[w]
}

// Note is something to report besides the action.
type Note struct {
	Why    reason.Reason
	Detail string
}

// PolicyBlock is why policies end nothing that they would end otherwise. The zero value means no block.
type PolicyBlock struct {
	Why           reason.Reason // "": it is not reported
	Detail        string
	ReportOnceKey string // identifies what many nodes share, which is reported once; may be empty
}

// ShadowDecision is what mode fence would do. The zero value is nothing.
type ShadowDecision struct {
	Action Action // WriteRecord or SetMark, with a record without an id
	Pods   []Pod  // the pods that the fence would move
}

// Health is the health of a node or of a volume by its storage system. The zero value is Unknown.
type Health struct {
	Known   bool
	Healthy bool   // false unless Known
	Why     string // why it is not healthy, or why that is unknown; for people
}

// VolumeName names a pod's volume by everything that an adapter may use to find it.
type VolumeName struct {
	Driver, Handle   string // of the PersistentVolume's spec.csi
	PV               string // the PersistentVolume's name
	Namespace, Claim string // the PersistentVolumeClaim
}
