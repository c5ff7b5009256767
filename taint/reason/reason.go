// Package reason is the one table of what forcefence says: every reason of a decision and every Event, how much it matters, its text, and
// what a person does about it. It imports nothing of the project, and decides nothing.
package reason

// Reason is why something was decided or is reported, from a closed set: it is an Event's reason and a log's key.
type Reason string

// The reasons of decisions.
const (
	Gone             Reason = "NodeGone"                  // the Node object does not exist
	Marked           Reason = "NodeMarked"                // marked already: package evict decides
	NotMarked        Reason = "NotMarked"                 // package fence decides
	BadRecord        Reason = "RecordUnreadable"          // nobody knows what the record announced
	MarkVanished     Reason = "MarkRemovedByOther"        // the record stands at Armed or Evicting, and the mark is gone
	Healthy          Reason = "NodeHealthy"               // nothing points at a dead node
	NeverOff         Reason = "FencedNodeNeverPoweredOff" // the boot id is the one it had when its machine was said to be off
	Explaining       Reason = "AskingWhichRun"            // the same, where boot ids tell no boots apart: the device is asked whether it was started
	StartedAgain     Reason = "MachineStartedAgain"       // it was: this run of the machine is not the one that its device said was over
	Excluded         Reason = "NodeExcluded"              // maintenance, pause, opt-out
	UnknownMode      Reason = "UnknownMode"               // the mode is none that this version has
	NoMachine        Reason = "NoMachine"                 // no provider knows the node, or two claim it
	Distrusted       Reason = "DeviceDistrusted"          // its device said Off of a machine that was on
	AllStale         Reason = "AllLeasesStale"            // every node looks dead at once: it is the API server's fault, or ours
	MostStale        Reason = "MostLeasesStale"           // fewer than half of the nodes are heard: nobody is powered off
	NoWork           Reason = "NothingToEvict"            // no pod to move, no volume to detach
	StaysDead        Reason = "NodeStaysDead"             // nothing is left to do since its fence ended
	Asking           Reason = "AskingMachine"             // no answer since the node was looked at
	Unknown          Reason = "PowerUnknown"              // no usable answer: never off by waiting
	Disagree         Reason = "DevicesDisagree"           // one says Off, another On: that proves nothing
	Changing         Reason = "PowerChanging"
	PoweredOn        Reason = "PoweredOnNotReady" // observe mode
	ControlPlane     Reason = "ControlPlaneNode"  // not powered off without a quorum guard
	StillBeating     Reason = "KubeletHeartbeats" // NotReady, but its kubelet renews its Lease: it can stop its pods itself
	InGrace          Reason = "WaitingForGrace"
	OneAtATime       Reason = "AnotherPowerOff"
	Announcing       Reason = "PoweringOff"
	SendingOff       Reason = "SendingPowerOff"
	AwaitingOff      Reason = "AwaitingOff"
	NotAccepted      Reason = "PowerOffNotAccepted" // the device did not take the power-off: it is sent again
	PowerOffRefused  Reason = "PowerOffRefused"     // nor will it: sending it again would not help
	PowerOffFailed   Reason = "PowerOffFailed"
	BackingOff       Reason = "PowerOffBackOff"
	Recovered        Reason = "NodeRecovered"
	Rearming         Reason = "MarkBackOff"          // the last fence of this life of the node ended just now
	PostsNotReady    Reason = "KubeletPostsNotReady" // a kubelet that itself says NotReady is alive until it misses a renewal
	ProvenOff        Reason = "MachineOff"
	LookedTooEarly   Reason = "LookOlderThanAnswer"
	UnexpectedAnswer Reason = "UnexpectedAnswer"
	Released         Reason = "ReleasedByPerson"     // a person ended the last fence of this very life of the node
	ModeObserve      Reason = "ModeObserve"          // the mode changed before the power-off was sent
	Adopting         Reason = "MarkedByPerson"       // a mark without a record of ours
	Refused          Reason = "MarkRefusedPoweredOn" // a person's mark, and the device says On
	MarkDisagree     Reason = "MarkRefusedDisagree"  // a person's mark, and the devices disagree
	StillReady       Reason = "NodeStillReady"       // a person's mark, no device: wait for NotReady or a heartbeat
	Confirming       Reason = "ConfirmingOff"        // asking after the mark
	Expiring         Reason = "ReadyIsStale"
	Confirmed        Reason = "MachineConfirmedOff"
	Vouched          Reason = "PersonVouches"   // begun without proof under a person's mark
	NotConfirmed     Reason = "OffNotConfirmed" // the question after the mark was not answered Off
	Alive            Reason = "NodeAlive"       // a heartbeat, a boot or another Node object since the record
	Tombstoning      Reason = "EndingPods"
	StockEviction    Reason = "WaitingForStockEviction"
	Clearing         Reason = "ClearingVolumes"
	Deleting         Reason = "DeletingPods"
	ProofLost        Reason = "ProofLost"    // in the middle, and the device no longer says Off
	Returned         Reason = "NodeReturned" // in the middle, and the node is alive
	Sparing          Reason = "SparingPods"  // the node returned: what is not tombstoned lives
	Retrying         Reason = "RetryingPods" // writes of some pods failed; all others are done
	Stuck            Reason = "PodsStuck"    // an alert: pods that the API server lets nobody end or delete
	WaitingDetach    Reason = "WaitingForDetach"
	PolicyEnding     Reason = "PolicyEndingPods" // without proof, in the name of a policy
	PolicyDeleting   Reason = "PolicyDeletingPods"
	Finished         Reason = "NodeEvicted"
	FinishedReturn   Reason = "NodeReturnedAndCleared"
)

// The Events that are no decisions.
const (
	NeedsPerson     Reason = "FenceNeedsPerson"         // a mark that does not come to its end
	NoHook          Reason = "NoHookOnNode"             // an eviction begins on a node without a hook
	OddLease        Reason = "LeaseDurationOutOfBounds" // the Lease names a duration that is not believed
	NotBelieved     Reason = "MachineNotBelieved"       // what leads a healthy node to its machine is not believed
	Repinned        Reason = "MachineRepinned"          // a healthy node is led to another machine than before
	Answers         Reason = "MachineAnswers"           // a machine that could not be asked can be
	NotAnswering    Reason = "MachineNotAnswering"      // a healthy node's machine cannot be asked
	Fenced          Reason = "NodeFenced"               // on a pod: it was ended
	PolicyEnded     Reason = "PolicyEndedPod"           // on a pod: it was ended, without proof
	FinalizersKeep  Reason = "FinalizersKeepPod"        // on a pod: ended and deleted, and still there
	DrainNotOurs    Reason = "DrainGuardedByOther"      // a PodDisruptionBudget that is not ours selects the storage pod
	DrainNotGuarded Reason = "DrainNotGuarded"          // a storage pod that no budget of ours can be made for
	LeftBehind      Reason = "PodLeftBehind"            // on a pod: the fence ended without what it wanted to do with it
)

// Severity is how much a reason matters. The zero value is for those who look for a fault of ours.
type Severity uint8

// The severities.
const (
	Debug   Severity = iota // a line in the log at debug, no Event
	Info                    // a line in the log, a normal Event
	Warning                 // the same as a warning
)

// State is a node's state in the metric forcefence_nodes.
type State string

// The states. The zero value leaves the state as it is.
const (
	StateHealthy     State = "healthy"
	StateSuspect     State = "suspect"
	StatePoweringOff State = "powering_off"
	StateArmed       State = "armed"
	StateEvicting    State = "evicting"
	StateNoMachine   State = "no_machine"
	StateExcluded    State = "excluded"
	StateDistrusted  State = "distrusted"
	StateBroken      State = "record_unreadable"
	StateStuck       State = "stuck"
	StateDisagree    State = "devices_disagree"
)

// Row is what is said of a reason.
type Row struct {
	Reason   Reason
	Severity Severity
	State    State  // the node's, from this reason on
	Text     string // of the Event, with words in braces to be replaced; "" where there is none
	Do       string // what a person does about it, in Markdown; "" where nothing is to be done
}

// Of returns a reason's row. Every reason has one.
func Of(r Reason) Row { return rows[r] }

// Table returns all rows, those of decisions first, each part in the order of its course.
func Table() []Row { return append([]Row(nil), table...) }

var rows = func() map[Reason]Row {
	m := map[Reason]Row{}
	for _, r := range table {
		m[r.Reason] = r
	}
	return m
}()

var table = []Row{
	{Gone, Debug, "", "", ""},
	{Marked, Debug, "", "", ""},
	{NotMarked, Debug, "", "", ""},
	{BadRecord, Warning, StateBroken, "The fence's record cannot be read: nothing is done, and a mark stays. To start afresh: forcefence release {node} --yes.",
		"Somebody edited the annotation. `forcefence release`."},
	{MarkVanished, Warning, "", "Somebody removed the mark in the middle of the fence. To end a fence, use: forcefence release {node} --yes.",
		"Use `forcefence release` to end a fence."},
	{Healthy, Debug, StateHealthy, "", ""},
	{NeverOff, Warning, StateDistrusted, "The node is back on the boot that it was on when its device {device} said Off: the machine was never off. Its device is not believed until a person runs: forcefence release {node} --yes.",
		"Do not trust that device. `forcefence release` once it is repaired."},
	{Explaining, Debug, StateHealthy, "", ""},
	{StartedAgain, Debug, StateHealthy, "", ""},
	{Excluded, Debug, StateExcluded, "", ""},
	{UnknownMode, Warning, StateSuspect, "The node looks dead, and this version does not know the configured {detail}: nothing is done.",
		"Correct `mode`, or run a version that has it."},
	{NoMachine, Warning, StateNoMachine, "The node looks dead, and no provider can tell whether its machine is off: {detail}.",
		"No rule of the configuration claims the node, or two do, or two nodes claim one machine. Correct `nodes:`."},
	{Distrusted, Warning, StateDistrusted, "Device {device} once said Off of a machine that was on. It is not believed until a person runs: forcefence release {detail} --yes.",
		"Do not trust that device. `forcefence release` once it is repaired."},
	{AllStale, Warning, StateSuspect, "Every node looks dead at once: no node is fenced.",
		"Look at the API server."},
	{MostStale, Warning, StateSuspect, "The node looks dead ({why}) and its machine is on. Fewer than half of the nodes are heard: no machine is powered off until they are.",
		"Look at the API server and the network."},
	{NoWork, Info, StateSuspect, "The node looks dead ({why}), and there is nothing to evict: {detail}.",
		"Pods that tolerate every taint stay on a dead node, those of StatefulSets too. Narrow their tolerations if they should move."},
	{StaysDead, Debug, StateSuspect, "", ""},
	{Asking, Debug, "", "", ""},
	{Unknown, Warning, StateSuspect, "The node looks dead ({why}). Its device {device} does not tell whether the machine is off: {detail}. Unknown is never off.",
		"Look at the device: the Event has the cause, such as `untrusted` (its certificate), `denied` (password, licence), `unreachable`, `not_found` or `permanent`. Or fence by hand."},
	{Disagree, Warning, StateDisagree, "The node looks dead ({why}). Its devices disagree whether the machine is off: {raw}. Nothing is done until they agree.",
		"One of them is wrong, or speaks of another machine: look at each, and correct `nodes:` or the device. Or fence by hand."},
	{Changing, Debug, "", "", ""},
	{PoweredOn, Warning, StateSuspect, "The node looks dead ({why}), but its machine is on: nothing is evicted ({detail}).",
		"The machine is not dead: look at its kubelet and network. Mode `fence` powers such a machine off. If the Event ends in `never pinned`, the node names its machine itself and was not healthy since forcefence began: power it off by hand, or map it by `list`."},
	{ControlPlane, Warning, StateSuspect, "The node looks dead and its machine is on. Control-plane nodes are not powered off.",
		"Power it off by hand if the others are enough for etcd's quorum."},
	{StillBeating, Info, StateSuspect, "The node is NotReady, but its kubelet still renews its Lease: the machine is not powered off.",
		"Nothing: the kubelet can stop its pods itself."},
	{InGrace, Info, StateSuspect, "The node looks dead ({why}) and its machine is on: it is powered off after the grace period.", ""},
	{OneAtATime, Info, StateSuspect, "Waiting: another machine is being powered off.", ""},
	{Announcing, Warning, StatePoweringOff, "The node looks dead ({why}) and its machine is on: powering it off through {device}.", ""},
	{SendingOff, Debug, "", "", ""},
	{AwaitingOff, Info, StatePoweringOff, "Sent the power-off. Waiting until {device} says Off.", ""},
	{NotAccepted, Warning, StatePoweringOff, "Device {device} did not accept the power-off ({detail}). It is sent again.",
		"The Event has the cause."},
	{PowerOffRefused, Warning, StateSuspect, "Device {device} refuses the power-off for good ({detail}): nothing is evicted. It is tried again later.",
		"The device offers no power-off, refuses the credential, or is another machine's: the Event has the cause. It is tried again after five times `powerOffTimeout`."},
	{PowerOffFailed, Warning, StateSuspect, "The machine did not come to Off in time: nothing is evicted. It is tried again later.",
		"The device accepted a power-off, and the machine stayed on. Look at the device."},
	{BackingOff, Warning, StateSuspect, "The last power-off failed. Waiting before the next.",
		"Look at the device."},
	{Recovered, Info, "", "The node shows life: the power-off is cancelled.", ""},
	{Rearming, Warning, StateSuspect, "The last fence ended just now, and the node has shown no life since. Waiting before the next.",
		"Nothing: there is more to do on the node, and it goes on by itself. The wait doubles each time."},
	{PostsNotReady, Info, StateSuspect, "The machine's device says Off ({raw}), but the node's own kubelet says NotReady and has not missed a heartbeat. Waiting until it misses one.",
		"Nothing: it goes on by itself. If no heartbeat is missed, the device is wrong."},
	{ProvenOff, Warning, StateArmed, "Device {device} says that the machine is off ({raw}): marking the node.", ""},
	{LookedTooEarly, Debug, "", "", ""},
	{UnexpectedAnswer, Debug, "", "", ""},
	{Released, Info, StateSuspect, "A person released this node. It is left alone until it comes back.", ""},
	{ModeObserve, Info, "", "The mode is observe now: the power-off is cancelled.", ""},
	{Adopting, Warning, StateArmed, "{by} marked the node as shut down.", ""},
	{Refused, Warning, StateArmed, "The node is marked as shut down, but device {device} says that its machine is on: nothing is evicted.",
		"Power the machine off, or take the mark off with `forcefence release`. `manualMarks: trust` believes the person."},
	{MarkDisagree, Warning, StateDisagree, "The node is marked as shut down, but its devices disagree: {raw}. Nothing is evicted.",
		"One of them says On: look at each. Take the mark off with `forcefence release`, or power the machine off. `manualMarks: trust` believes the person."},
	{StillReady, Warning, StateArmed, "The node is marked as shut down, and still reads Ready. Waiting for NotReady, or for a heartbeat, which removes the mark.", ""},
	{Confirming, Debug, "", "", ""},
	{Expiring, Debug, "", "", ""},
	{Confirmed, Warning, StateEvicting, "The machine is off ({raw}, asked after the mark), and the node has shown no life: evicting its pods.", ""},
	{Vouched, Warning, StateEvicting, "Evicting without proof: a person vouches that the machine is off ({detail}).", ""},
	{NotConfirmed, Warning, "", "The machine was not confirmed off after the mark ({detail}): nothing was evicted, and the mark is removed.", ""},
	{Alive, Warning, "", "The node is alive: nothing was evicted, and the mark is removed.", ""},
	{Tombstoning, Warning, StateEvicting, "Ending {pods} pods.", ""},
	{StockEviction, Info, StateEvicting, "Waiting for Kubernetes' own eviction to reach pods that it is about to delete.", ""},
	{Clearing, Warning, StateEvicting, "Clearing the evicted pods' volumes from the node's volume lists.", ""},
	{Deleting, Warning, StateEvicting, "Deleting {pods} pods.", ""},
	{ProofLost, Warning, StateEvicting, "The machine is no longer proven off ({detail}): no more pods are ended until it is.",
		"Look at the device."},
	{Returned, Warning, StateEvicting, "The machine is back: no more pods are ended. Those that were ended are deleted, then the mark is removed.", ""},
	{Sparing, Warning, StateEvicting, "The machine is back: {pods} pods were not evicted, and resume when the mark is removed.", ""},
	{Retrying, Warning, StateEvicting, "Some pods could not be ended or deleted, and are tried again. All others are done.",
		"Look at the controller's log for the cause."},
	{Stuck, Debug, "", "", ""},
	{WaitingDetach, Info, StateEvicting, "All pods are gone. Waiting until their volumes are detached.", ""},
	{PolicyEnding, Warning, "", "Ending {pods} pods of a node that looks dead ({why}): {detail}. Its machine may run.", ""},
	{PolicyDeleting, Debug, "", "", ""},
	{Finished, Warning, "", "All pods are gone and their volumes are detached: the mark is removed.", ""},
	{FinishedReturn, Warning, "", "The node came back. All ended pods are gone and their volumes are detached: the mark is removed.", ""},
	{NeedsPerson, Warning, "", "The fence cannot end by itself ({detail}). The mark stays. To remove it: forcefence release {node} --yes.",
		"Most often a volume does not detach: look at its CSI driver. `PodsStuck` names pods that the API server lets nobody end or delete, such as one that is as large as etcd allows: all others were moved; make it smaller. Or `forcefence release`."},
	{NoHook, Warning, "", "This node has no hook that holds its pods: if its machine boots before the mark is removed, they start again beside their replacements. Disable automatic power-on until then (the BMC's power restore policy). For the next time, install the hook.",
		"Disable automatic power-on until the mark is removed (the BMC's power restore policy). Install the hook."},
	{OddLease, Warning, "", "The node's Lease names a duration that is not between {min} and {max}: {default} is used instead (nodeLeaseDurationSeconds of its kubelet).",
		"Correct `nodeLeaseDurationSeconds` of its kubelet."},
	{NotBelieved, Warning, "", "The node could not be fenced now: {detail}.",
		"What leads to the node's machine changed while the node looked dead, its system UUID changed, or another node has that machine. If the change is right: `kubectl label node NODE forcefence.node-restriction.kubernetes.io/machine-`, once the node is healthy."},
	{Repinned, Warning, "", "The node is led to another machine than before, {detail}, and is healthy: the new machine is believed from now on.",
		"If none of you did that, look at the node."},
	{Answers, Info, "", "{detail}", ""},
	{NotAnswering, Warning, "", "{detail}",
		"The cause is in the Event, as for `PowerUnknown`. Look at the device."},
	{Fenced, Warning, "", "The machine of node {node} is off ({detail}): the pod was ended so that it can run elsewhere (fence {fence}).", ""},
	{PolicyEnded, Warning, "", "Node {node} looks dead: the pod was ended so that it can run elsewhere ({detail}). Its machine may run.", ""},
	{FinalizersKeep, Warning, "", "The pod was ended and deleted, and can never start again. Its name stays taken until its finalizers are removed: {detail}.",
		"Look at who set the finalizers."},
	{DrainNotOurs, Warning, "", "A PodDisruptionBudget that is not forcefence's selects a pod of the storage system on this node: {detail}. forcefence makes none beside it, since a pod with two can never be evicted: whether a drain waits for the node's data is that budget's matter.",
		"Delete that PodDisruptionBudget, or make it select other pods, if forcefence is to guard the drain."},
	{DrainNotGuarded, Warning, "", "No PodDisruptionBudget can hold up a drain of this node for its storage: {detail}.",
		"Correct `identity` and `pods` of the drain item. A DaemonSet's pods are not evicted by `kubectl drain`: a drain does not wait for them."},
	{LeftBehind, Warning, "", "{detail}",
		"Its node came back, and the pod could not be deleted (it was ended, and never starts again) or marked as spared (it lives). Look at its size and at admission webhooks."},
}
