// Package judge finds the promises that were not kept, in an account of what clients wrote, what devices answered and
// what ran on the machines. It knows the promises and the mark's key from the public documents, and imports nothing of
// this repository, so that it shares no mistake with what it judges. Findings is a pure function.
package judge

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// MarkKey is the key of the taint that marks a node.
const MarkKey = "forcefence.io/node-shutdown"

// Roles of a run's pods, the values of their label RoleLabel. The first two are to move.
const (
	RoleLabel = "app"

	RolePlain      = "plain"
	RoleVolume     = "volume"
	RoleTolerating = "tolerating"
	RoleDaemon     = "daemon"
	RoleStatic     = "static"
	RoleFinished   = "finished"
	RoleOther      = "other" // on another node
)

// ForeignKey is the key of a label, an annotation and a taint of each Node that belong to none of what is judged.
const ForeignKey = "example.com/foreign"

// Checks, by the names that findings and tables have.
const (
	CheckTwice   = "twice"
	CheckProof   = "proof"
	CheckDeposed = "deposed"
	CheckExempt  = "exempt"
	CheckPower   = "power"
	CheckEnd     = "end"
	CheckStorage = "storage"
	CheckClaim   = "claim"
	CheckTaken   = "taken"   // of Harm
	CheckForeign = "foreign" // of Harm
	CheckAccount = "account" // the accounts do not fit each other: nothing that follows from them is worth much
)

// Finding is a promise that was not kept, or harm that was done.
type Finding struct {
	Check string
	Text  string
}

// Account is all that is known of one run.
type Account struct {
	Victim   string // the node that lost its power
	Writes   []Write
	Versions []Version // in their order; of each object the state of before, first
	Leads    []Lead    // in their order
	Log      []Question

	Runs     []Span // of pods: What is namespace/name
	Mounts   []Span // volumes in use, by handle
	Attached []Span // volumes attached, by handle, by the storage's own account
	Alive    []Span // machines with power
	Beats    []Span // of no length: renewals of Leases
	Stalls   []Span // in which the machine that all of it runs on ran no process

	Kept []string // volumes that are to stay in the lists of a Node, by their names there
	Ends []string // what was not as it should be at the end
}

// Write is one accepted write, from any client.
type Write struct {
	Life                          string // of a judged process; "": of another client
	Verb, Resource, Sub, Key, UID string
	RV                            string    // of the object after it; of a deletion as the answer had it
	Node                          string    // of a pod, an attachment, a NetworkFence or a NodeClaim
	Order                         Order     // of a NetworkFence
	Sent                          time.Time // when a judged process's came to its proxy
	Received, Done                time.Time // by the API server
}

// Order is what a NetworkFence asks of the storage, and what its status says.
type Order struct{ State, Result, Message string }

// Version is one state of an object.
type Version struct {
	Resource string // pods, nodes
	Key      string // namespace/name or name
	UID      string
	RV       string
	Gone     bool // deleted; the object is its last state
	Pod      *corev1.Pod
	Node     *corev1.Node
	Seen     time.Time // when the watch brought it: a little later than it came to be
}

// Lead is a write of the leader's Lease that names its writer: a taking or a renewal.
type Lead struct {
	Life string
	Done time.Time
}

// Question is one line of the devices' own log: what was asked of a machine, and what its device answered.
type Question struct {
	System    string // the machine's node
	Method    string
	Word      string    // PowerState, or the reset that was asked for; "": neither
	At        time.Time // when it came in
	Delivered time.Time // when it was answered; zero: never
}

// Span is what held on a node from one moment to another. A zero To: it still does.
type Span struct {
	Node, What string
	UID        string // of a pod
	From, To   time.Time
}

// Sent is a proxy's account of a request that went on to the API server.
type Sent struct {
	At   time.Time // when it came in
	Life string    // of its process
}
