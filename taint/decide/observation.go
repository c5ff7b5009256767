package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// Observation is the outcome of the action that Next returned, or what was seen of a node that needs no look. The set
// is closed; Node.Apply folds one in.
type Observation interface{ isObservation() }

// Results of reads. Their lists and maps are not changed afterwards.
type (
	// NodeRead is a live look at the Node and its Lease, and what the configuration says about the node now.
	NodeRead struct {
		Look  taint.Look
		Facts Facts
		// Node is the source of Look, for a recording. No decision uses it. nil: it does not exist.
		Node *corev1.Node
	}
	// PodsListed has the pods bound to the node, without the volumes of pods that have claims.
	PodsListed struct{ Pods []action.Pod }
	// VolumesRead has the volumes of pods' claims, by the pods' UIDs. A pod that is missing there has none.
	VolumesRead struct {
		ByPod map[string][]action.Volume
		Err   error // why some claims could not be read, for a report; nil: all were
	}
	// AttachmentsListed has the attachments that name the node. Live: the API server listed them.
	AttachmentsListed struct {
		Attachments []action.Attachment
		Live        bool
	}
	// OwnersRead has what controls the owners of the requested pods, by the pods' UIDs.
	OwnersRead struct{ ByPod map[string]action.Owner }
	// StorageSettingRead is why a setting of the storage system keeps policies from ending pods; "" if none does.
	StorageSettingRead struct{ Why string }
	// AwaitedClaimsRead has the claims, as namespace/name, that Pending pods of ReplicaSets elsewhere wait for.
	AwaitedClaimsRead struct{ Claims map[string]bool }
	// ClaimsRead has the claims, as namespace/name, of the requested volumes. A claim is "" for an unbound volume, and
	// action.UnreadClaim for one that could not be read.
	ClaimsRead struct{ ByVolume map[string]string }
	// EtcdPodsListed has the nodes on which an etcd pod is bound, and whether that pod is Ready.
	EtcdPodsListed struct{ Ready map[string]bool }
	// DevicesAnswered has one answer of each of the machine's devices, in the order of Facts.Devices.
	DevicesAnswered struct{ Answers []providers.Answer }
)

// What a cache shows of a node between looks. Applying it does not use the fleet.
type (
	// StorageReported is what storage systems report about the node to the policies, by their adapters' names.
	StorageReported struct {
		Policies []policy.Policy
		Health   map[string]action.Health
	}
	// NodeIdle says that the node is idle. All is forgotten except what its policies remember.
	NodeIdle struct{ Look taint.Look }
)

// ReadFailed is a read without a result. The node is looked at again.
type ReadFailed struct{ Err error }

// ActionDone is the outcome of an action that changes something.
type ActionDone struct {
	Err      error             // PowerOff, PowerOn: why a device did not accept it; else why the write failed
	SentAt   providers.Instant // PowerOff: when it was sent
	Withheld bool              // the action no longer held: nothing was sent
	// Results has the results of writes of pods or attachments by UID (EndPods, DeletePods, SparePods, SetPodsNotReady,
	// DeleteAttachments). A write that is missing there was not tried.
	Results map[string]action.WriteResult

	// What is reported to people besides that. No decision uses it.
	Writes Writes
	Power  []PowerSent // PowerOff, PowerOn: the result of each device that was to send it
	Proof  string      // WriteRecord, SetMark, RemoveMark: the record's proof, as it was written
}

// Writes is the result of a run of writes of pods or attachments.
type Writes struct {
	Made      map[string]bool      // by UID: this process made the write
	Failed    int                  // how many failed for another reason than a change of the object
	FirstErr  error                // the first of these
	Throttled int                  // how many writes the API server throttled
	Stopped   bool                 // the node showed life, or the proof was lost
	Answers   [][]providers.Answer // what devices answered during the run
}

// PowerSent is the result of a power action through one device.
type PowerSent struct {
	Device   string
	Err      error // nil: the device accepted it
	Withheld bool  // nothing was sent to it
}

func (NodeRead) isObservation()           {}
func (PodsListed) isObservation()         {}
func (VolumesRead) isObservation()        {}
func (AttachmentsListed) isObservation()  {}
func (OwnersRead) isObservation()         {}
func (StorageSettingRead) isObservation() {}
func (AwaitedClaimsRead) isObservation()  {}
func (ClaimsRead) isObservation()         {}
func (EtcdPodsListed) isObservation()     {}
func (DevicesAnswered) isObservation()    {}
func (StorageReported) isObservation()    {}
func (NodeIdle) isObservation()           {}
func (ReadFailed) isObservation()         {}
func (ActionDone) isObservation()         {}
