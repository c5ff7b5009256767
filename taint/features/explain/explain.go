// Package explain predicts what would happen to a node if it fell silent now. For devices that answer Off, On or
// nothing it says which course the recovery would take, and what would stop it. It lists which pods would be moved,
// which stay, and which replacements would find no room.
//
// It is pure, and decides nothing itself. It plays taint/decide's course of the node, as an executor against a model of
// the cluster (play.go), and reports what that did. Where replacements find room is package room's estimate.
//
// It promises: every decision that it reports was made by the controller's own rules, fed with the snapshot. It leaves
// out what a controller remembers and a snapshot cannot hold. These are limits that were hit a moment ago, devices that
// stopped to answer, and power-offs that failed.
package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/room"
)

// Snapshot is a cluster at one moment. Its objects are never changed.
type Snapshot struct {
	Now   providers.Instant
	Key   string       // the mark's key
	Node  *corev1.Node // that falls silent
	Facts decide.Facts // the node's configuration
	Quiet []bool       // for each of Facts.Devices: it does not answer for a machine that runs

	Nodes    []corev1.Node                    // all, this one too
	Leases   map[string]*coordinationv1.Lease // by node; one that is not there was never renewed
	LeaseAge map[string]time.Duration         // by node: how long ago it renewed its Lease
	Limits   *fleet.Limits                    // the storm guard's; nil: the defaults

	Pods        []action.Pod            // the pods bound to the node, with their volumes
	Attachments []action.Attachment     // the attachments that name the node
	Members     map[string]bool         // as decide.Node.SawMembers has them
	Owners      map[string]action.Owner // as SawOwners; a pod that is missing here belongs to its own owner only
	Rival       string                  // as SawRival

	// For the replacements.
	All      []corev1.Pod                        // of all nodes
	Volumes  map[string]*corev1.PersistentVolume // by name: those of Pods that could be read
	CSINodes map[string]*storagev1.CSINode       // by node; nil: not read
	Attached []storagev1.VolumeAttachment        // of all nodes
}

// Report is what would happen.
type Report struct {
	Node         string             `json:"node"`
	Scenarios    []Scenario         `json:"scenarios"` // if the devices answered Off, On, and nothing
	Stay         []Stay             `json:"stay"`      // pods that no fence moves
	Replacements []room.Replacement `json:"replacements"`
}

// Scenario is what would happen if the node's devices gave one answer.
type Scenario struct {
	DeviceState string        `json:"deviceState"` // Off, On, Unknown
	Outcome     Outcome       `json:"outcome"`
	Reason      string        `json:"reason"` // why it ends, or where it stops
	Text        string        `json:"text"`
	Steps       []Event       `json:"steps"` // what would be reported on the way, as Events of the Node
	Through     []string      `json:"through,omitempty"`
	Moved       []string      `json:"moved"`  // pods that the fence ends and deletes, in their order
	Policy      []PolicyEnded `json:"policy"` // pods that policies end without proof
	Detach      []string      `json:"detach"` // volumes that must be detached before the mark is removed
}

// Outcome is how a scenario ends, from a closed set.
type Outcome string

// The outcomes.
const (
	Moves      Outcome = "moves"   // the pods are moved, and the mark is removed
	ShadowOnly Outcome = "tells"   // mode shadow: forcefence only reports what it would do
	Nothing    Outcome = "nothing" // it stops before any pod is ended, as long as nothing changes
	Hangs      Outcome = "hangs"   // it began, and does not end by itself
)

// Event is one thing that would be reported.
type Event struct {
	Seconds float64 `json:"seconds"` // after the last heartbeat
	Reason  string  `json:"reason"`
	Text    string  `json:"text"`
}

// PolicyEnded are pods that a policy ends.
type PolicyEnded struct {
	Seconds float64  `json:"seconds"`
	Policy  string   `json:"policy"`
	Pods    []string `json:"pods"`
}

// Stay is a pod that stays on the node.
type Stay struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// ReportOf returns the report on a snapshot.
func ReportOf(s Snapshot) Report {
	r := Report{Node: s.Node.Name, Scenarios: []Scenario{}, Stay: []Stay{}}
	for _, supposed := range []providers.PowerState{providers.PowerOff, providers.PowerOn, providers.PowerUnknown} {
		r.Scenarios = append(r.Scenarios, playScenario(s, supposed))
	}
	for _, p := range s.Pods {
		switch staying, expected := evict.StayingPodOf(p); {
		case p.HasUnfinishedDeletion(): // a fence deletes it
		case p.Terminal:
			r.Stay = append(r.Stay, Stay{podName(p), "finished"})
		case expected:
			r.Stay = append(r.Stay, Stay{podName(p), staying.Reason()})
		case p.Exempt != taint.NotExempt:
			r.Stay = append(r.Stay, Stay{podName(p), p.Exempt.Describe()})
		}
	}
	slices.SortFunc(r.Stay, func(a, b Stay) int { return cmp.Or(cmp.Compare(a.Why, b.Why), cmp.Compare(a.Pod, b.Pod)) })
	r.Replacements = findReplacements(s)
	return r
}

func podName(p action.Pod) string { return p.Namespace + "/" + p.Name }
