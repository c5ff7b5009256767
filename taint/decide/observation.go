package decide

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
)

// Observation is what became of the action that Next returned, or what is seen of a node that need not be looked at. The
// set is closed; Node.Apply takes one in.
type Observation interface{ observation() }

// Elsewhere is what other objects than the Node say of it: it is part of Facts.Excluded and Facts.KeptOn.
type Elsewhere struct {
	Excluded string `json:"excluded,omitempty"`
	KeptOn   string `json:"keptOn,omitempty"`
}

// What was read. Lists and maps are not changed after they were observed.
type (
	// NodeRead is a live look at the Node and its Lease, and what the configuration says of the node now.
	NodeRead struct {
		Look  taint.Look
		Facts Facts
		// Node and Elsewhere are what these were made of, for a recording. Nothing is decided by them.
		Node      *corev1.Node // nil: it does not exist
		Elsewhere Elsewhere
	}
	// PodsListed are the pods bound to the node, without the volumes of those that have claims.
	PodsListed struct{ Pods []action.Pod }
	// VolumesRead are the volumes that pods' claims lead to, by the pods' UIDs. A pod that has none there has none.
	VolumesRead struct {
		Of     map[string][]action.Volume
		Unread error // why some claims could not be read, to be told; nil: all were
	}
	// AttachmentsListed are the attachments that name the node. Live: the API server listed them.
	AttachmentsListed struct {
		Attachments []action.Attachment
		Live        bool
	}
	// OwnersRead is what controls the owners of the pods that were asked about, by the pods' UIDs.
	OwnersRead struct{ Of map[string]action.Owner }
	// RivalRead is why a setting of the storage's own keeps policies from ending pods; "" if none does.
	RivalRead struct{ Why string }
	// WaitingRead are the claims, as namespace/name, that Pending pods of ReplicaSets wait for elsewhere.
	WaitingRead struct{ Claims map[string]bool }
	// ClaimsRead are the claims, as namespace/name, of the volumes that were asked about. A claim is "" for an unbound
	// volume, and action.UnreadClaim for one that could not be read.
	ClaimsRead struct{ Of map[string]string }
	// MembersRead are the nodes on which a pod of etcd is bound, and whether it is Ready.
	MembersRead struct{ Ready map[string]bool }
	// DevicesAnswered has one answer of each of the machine's devices, in the order of Facts.Devices.
	DevicesAnswered struct{ Answers []providers.Answer }
)

// What is seen of a node between looks, of a cache. It asks no fleet.
type (
	// StorageHeard is what storage systems say of the node, by their adapters' names, to the policies.
	StorageHeard struct {
		Policies []policy.Policy
		Says     map[string]storage.Health
	}
	// Rested is that the node is idle: it is forgotten, but for what its policies saw of it.
	Rested struct{ Look taint.Look }
)

// ReadFailed is a read that brought nothing. The node is looked at again.
type ReadFailed struct{ Err error }

// ActionDone is how an action that changes something ended.
type ActionDone struct {
	Err  error             // PowerOff, PowerOn: why a device did not accept it; else why the write failed
	Sent providers.Instant // PowerOff: when it was sent
	Late bool              // the action did not hold any more: nothing was sent
	// Tombstone, Delete, Spare, SetNotReady, DeleteAttachments: how the writes of pods or attachments ended, by UID;
	// one that is not in it was not tried
	How map[string]action.WriteResult

	// What people are told beside that. Nothing is decided by it.
	Writes Writes
	Power  []PowerSent // PowerOff, PowerOn: by each device that was to send it
}

// Writes is how a run of writes of pods or attachments went.
type Writes struct {
	Made    map[string]bool      // by UID: this process made the write
	Failed  int                  // how many failed for another reason than a change
	First   error                // the first of these
	Crowded int                  // for how many the API server had no room
	Stopped bool                 // the node showed life, or the proof was lost
	Asked   [][]providers.Answer // what devices answered in the middle
}

// PowerSent is how one device took a power action.
type PowerSent struct {
	Device string
	Err    error // nil: it accepted it
	Late   bool  // nothing was sent to it
}

func (NodeRead) observation()          {}
func (PodsListed) observation()        {}
func (VolumesRead) observation()       {}
func (AttachmentsListed) observation() {}
func (OwnersRead) observation()        {}
func (RivalRead) observation()         {}
func (WaitingRead) observation()       {}
func (ClaimsRead) observation()        {}
func (MembersRead) observation()       {}
func (DevicesAnswered) observation()   {}
func (StorageHeard) observation()      {}
func (Rested) observation()            {}
func (ReadFailed) observation()        {}
func (ActionDone) observation()        {}
