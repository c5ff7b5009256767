// Package explain says what would become of a node if it fell silent now: which course its recovery would take if its devices said Off, On
// or nothing, what would stop it, which pods would be moved and which stay, and which replacements would find no room.
//
// It is pure, and decides nothing itself: it plays taint/decide's course of the node, as an executor against a model of the cluster
// (play.go), and tells what that did. Only where replacements find room (room.go) is a rule of its own, an estimate of what Kubernetes'
// scheduler would do.
//
// It promises: nothing that it says was decided by another rule than the controller's, fed with what the snapshot holds. What a controller
// remembers and a snapshot cannot hold is passed over: limits that were hit a moment ago, devices that stopped to answer, power-offs that
// failed.
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
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// Snapshot is a cluster at one moment. Its objects are not changed.
type Snapshot struct {
	Now   providers.Instant
	Key   string       // the mark's key
	Node  *corev1.Node // that falls silent
	Facts decide.Facts // what the configuration says of it
	Quiet []bool       // of each of Facts.Devices: it says nothing of a machine that runs

	Nodes    []corev1.Node                    // all, this one too
	Leases   map[string]*coordinationv1.Lease // by node; one that is not there was never renewed
	LeaseAge map[string]time.Duration         // by node: how long ago its Lease was renewed
	Limits   *fleet.Limits                    // of the storm guard; nil: the defaults

	// Instead of Nodes, Leases and Limits: what the fleet says of the node, and will say; which devices are distrusted, and for which node's record;
	// and the Lease.
	Fleet      *fleet.View
	Distrusted map[string]string
	LeaseRV    string

	Pods        []action.Pod            // bound to the node, with their volumes
	Attachments []action.Attachment     // that name the node
	Members     map[string]bool         // as decide.Node.SawMembers has them
	Owners      map[string]action.Owner // as SawOwners; a pod that is not there belongs to its own owner alone
	Rival       string                  // as SawRival

	// For the replacements.
	All      []corev1.Pod                        // of all nodes
	Volumes  map[string]*corev1.PersistentVolume // by name: those of Pods
	CSINodes map[string]*storagev1.CSINode       // by node; nil: not read
	Attached []storagev1.VolumeAttachment        // of all nodes
}

// Report is what would happen.
type Report struct {
	Node         string        `json:"node"`
	Scenarios    []Scenario    `json:"courses"` // if the devices said Off, On, and nothing
	Stay         []Stay        `json:"stay"`    // pods that no fence moves
	Replacements []Replacement `json:"replacements"`
}

// Scenario is what would happen if the node's devices said one thing.
type Scenario struct {
	DeviceState string        `json:"says"` // Off, On, Unknown
	Outcome     Outcome       `json:"outcome"`
	Reason      string        `json:"reason"` // why it ends, or where it stops
	Text        string        `json:"text"`
	Steps       []Event       `json:"steps"` // what is told on the way, as Events of the Node
	Through     []string      `json:"through,omitempty"`
	Moved       []string      `json:"moved"`    // pods that are ended and deleted by the fence, in their order
	Policy      []PolicyEnded `json:"byPolicy"` // and without proof
	Detach      []string      `json:"detach"`   // volumes that must be detached before the mark goes
}

// Outcome is how a course ends, from a closed set.
type Outcome string

// The outcomes.
const (
	Moves      Outcome = "moves"   // the pods are moved, and the mark goes
	ShadowOnly Outcome = "tells"   // mode shadow: what would be done is told
	Nothing    Outcome = "nothing" // it stops before any pod is ended, for as long as things are as they are
	Hangs      Outcome = "hangs"   // it began, and does not come to its end by itself
)

// Event is one thing that is told.
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

// Stay is a pod that stays.
type Stay struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// exemptReasons are why a pod stays.
var exemptReasons = map[taint.Exemption]string{
	taint.ExemptStatic:   "static pod: it belongs to the node",
	taint.ExemptTolerate: "tolerates the mark",
	taint.ExemptDaemon:   "pod of a DaemonSet",
}

// ReportOf is the report on a snapshot.
func ReportOf(s Snapshot) Report {
	r := Report{Node: s.Node.Name, Scenarios: []Scenario{}, Stay: []Stay{}}
	for _, supposed := range []providers.PowerState{providers.PowerOff, providers.PowerOn, providers.PowerUnknown} {
		r.Scenarios = append(r.Scenarios, PlayScenario(s, supposed))
	}
	for _, p := range s.Pods {
		switch why, exempt := exemptReasons[p.Exempt]; {
		case p.Terminal:
			r.Stay = append(r.Stay, Stay{podName(p), "finished"})
		case exempt:
			r.Stay = append(r.Stay, Stay{podName(p), why})
		}
	}
	slices.SortFunc(r.Stay, func(a, b Stay) int { return cmp.Or(cmp.Compare(a.Why, b.Why), cmp.Compare(a.Pod, b.Pod)) })
	r.Replacements = findReplacements(s)
	return r
}

func podName(p action.Pod) string { return p.Namespace + "/" + p.Name }
