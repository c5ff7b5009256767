// Package reason is the one table of what forcefence says: every reason of a decision and every Event, how much it matters, its text, and
// what a person does about it. It imports nothing of the project, and decides nothing.
package reason

import "strings"

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
	ModeDisabled     Reason = "ModeDisabled"              // nobody is asked, and nothing is begun
	MarkNotTaken     Reason = "MarkNotTakenUp"            // a person's mark, in a mode that begins nothing
	UnknownMode      Reason = "UnknownMode"               // the mode is none that this version has
	NoMachine        Reason = "NoMachine"                 // no provider knows the node, or two claim it
	Distrusted       Reason = "DeviceDistrusted"          // its device said Off of a machine that was on
	AllStale         Reason = "AllLeasesStale"            // every node looks dead at once: it is the API server's fault, or ours
	MostStale        Reason = "MostLeasesStale"           // fewer than half of the nodes renew their Leases: nobody is powered off
	NoWork           Reason = "NothingToEvict"            // no pod to move, no volume to detach
	StaysDead        Reason = "NodeStaysDead"             // nothing is left to do since its fence ended
	Asking           Reason = "AskingMachine"             // no answer since the node was looked at
	Unknown          Reason = "PowerUnknown"              // no usable answer: never off by waiting
	Disagree         Reason = "DevicesDisagree"           // one says Off, another On: that proves nothing
	Changing         Reason = "PowerChanging"
	PoweredOn        Reason = "PoweredOnNotReady" // observe mode
	ControlPlane     Reason = "ControlPlaneNode"  // not powered off: the configuration does not allow it
	VMHost           Reason = "KubeVirtHost"      // not powered off: its virtual machines may still serve
	KeptOn           Reason = "PowerOffHeldUp"    // not powered off: a drain or a shutdown of the node is under way, or it is cordoned
	StillBeating     Reason = "KubeletHeartbeats" // NotReady, but its kubelet renews its Lease: it can stop its pods itself
	InGrace          Reason = "WaitingForGrace"
	PowerOffLimit    Reason = "PowerOffLimit"      // as many machines as may be are being powered off
	CutOff           Reason = "ControllerCutOff"   // our own reads of the API server fail, or lately did
	DomainLost       Reason = "DomainLost"         // most nodes of a failure domain fell silent at once: one event
	DevicesCut       Reason = "DevicesUnreachable" // most devices of a failure domain stopped to answer: the way to them is broken
	TooFewHealthy    Reason = "TooFewHealthy"      // the floor of healthy nodes
	Quorum           Reason = "EtcdQuorum"         // etcd would be left without one
	CoolDown         Reason = "StormCoolDown"      // a limit was hit lately
	Announcing       Reason = "PoweringOff"
	SendingOff       Reason = "SendingPowerOff"
	LevelDelay       Reason = "WaitingForLevel" // the level has a delay
	NextLevel        Reason = "LevelGaveWay"    // a level did not bring the machine off: the power-off goes through the next
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
	WouldPowerOff    Reason = "WouldPowerOff"        // mode shadow: what mode fence would do now
	WouldRecover     Reason = "WouldRecover"         // the same
	Shadowed         Reason = "WouldAct"             // the same, and it was said of this life of the node
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
	SettingNotReady  Reason = "SettingPodsNotReady"
	ProofLost        Reason = "ProofLost"    // in the middle, and the device no longer says Off
	Returned         Reason = "NodeReturned" // in the middle, and the node is alive
	Sparing          Reason = "SparingPods"  // the node returned: what is not tombstoned lives
	Retrying         Reason = "RetryingPods" // writes of some pods failed; all others are done
	Stuck            Reason = "PodsStuck"    // an alert: pods that the API server lets nobody end or delete
	WaitingDetach    Reason = "WaitingForDetach"
	ForcingDetach    Reason = "DeletingAttachments" // they are there long after their pods are gone
	OutOfService     Reason = "TakenOutOfService"   // likewise, by the stock controllers
	PolicyEnding     Reason = "PolicyEndingPods"    // without proof, in the name of a policy
	PolicyDeleting   Reason = "PolicyDeletingPods"
	PolicyClearing   Reason = "PolicyClearingVolumes"     // likewise: what ended pods had mounted
	PolicyDetaching  Reason = "PolicyDeletingAttachments" // likewise: volumes of pods that were ended are released for other nodes
	PowerOnDelay     Reason = "WaitingForPowerOn"         // the fence is done: its machine is powered on after a delay
	PowerOnHeldUp    Reason = "PowerOnHeldUp"             // it is not: somebody says so, or it is not known to be the same machine
	PowerOnLimit     Reason = "PowerOnLimit"              // it was powered on too often in a day
	PoweringOn       Reason = "PoweringOn"                // the power-on was announced
	PowerOnRefused   Reason = "PowerOnNotAccepted"        // a device did not take it
	CameUp           Reason = "MachinePoweredOn"          // the machine was on after that
	CameOn           Reason = "MachineTurnedOnByOther"    // it was on before
	NotBack          Reason = "PoweredOnNotBack"          // it was powered on, and its node has shown no life since
	FencedAgain      Reason = "FencedAgainStaysOff"       // too soon after a power-on of ours
	Finished         Reason = "NodeEvicted"
	FinishedReturn   Reason = "NodeReturnedAndCleared"
)

// The Events that are no decisions.
const (
	NeedsPerson    Reason = "FenceNeedsPerson"         // a mark that does not come to its end
	Failing        Reason = "RecoveryStepFails"        // a step of a node's recovery has failed for a minute
	NoHook         Reason = "NoHookOnNode"             // an eviction begins on a node without a hook
	PoweredOff     Reason = "PowerOffAccepted"         // the fence ended, and these devices accepted a power-off of it
	OddLease       Reason = "LeaseDurationOutOfBounds" // the Lease names a duration that is not believed
	NotBelieved    Reason = "MachineNotBelieved"       // what leads a healthy node to its machine is not believed
	Repinned       Reason = "MachineRepinned"          // a healthy node is led to another machine than before
	Answers        Reason = "MachineAnswers"           // a machine that could not be asked can be
	NotAnswering   Reason = "MachineNotAnswering"      // a healthy node's machine cannot be asked
	Fenced         Reason = "NodeFenced"               // on a pod: it was ended
	PolicyYields   Reason = "PolicyStandsAside"        // a setting of the storage's own does what a policy would, or cannot be read
	PolicyWaits    Reason = "PolicyWaits"              // not this node alone looks dead: policies end nothing
	PolicyEnded    Reason = "PolicyEndedPod"           // on a pod: it was ended, without proof
	PolicySkipped  Reason = "PolicySkippedPods"        // pods that a policy leaves alone: they tolerate the mark, or their volumes are not known to be healthy
	PolicyTimedOut Reason = "PolicyTimedOut"           // what a policy wanted to do with a node was refused for too long
	FinalizersKeep Reason = "FinalizersKeepPod"        // on a pod: ended and deleted, and still there
	ConfigRejected Reason = "ConfigurationRejected"    // on the leader's Lease: a changed file is not in force
	WatchesBehind  Reason = "WatchesBehind"            // on the leader's Lease: etcd was restored, and a process' watches bring nothing
	LeftBehind     Reason = "PodLeftBehind"            // on a pod: the fence ended without what it wanted to do with it
)

// The Events about drains.
const (
	DrainHeld           Reason = "DrainHeldUp"         // a cordoned node's drain waits for its data
	DrainAllowed        Reason = "DrainAllowed"        // it waits no more
	EvictionAutomatic   Reason = "EvictionAutomatic"   // on a replica: it is asked to leave a cordoned node
	EvictionCanceled    Reason = "EvictionCanceled"    // on a replica: that was taken back
	DrainPolicySet      Reason = "DrainPolicySet"      // on a storage system's setting
	DrainPolicyConflict Reason = "DrainPolicyConflict" // on the same: somebody else chose another
	DrainNotOurs        Reason = "DrainGuardedByOther" // a PodDisruptionBudget that is not ours selects the storage pod
	DrainNotGuarded     Reason = "DrainNotGuarded"     // a storage pod that no budget of ours can be made for
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
	StateDisabled    State = "disabled"
	StateShadowed    State = "shadowed"
	StateDistrusted  State = "distrusted"
	StateBroken      State = "record_unreadable"
	StateStuck       State = "stuck"
	StateDisagree    State = "devices_disagree"
	StateUnproven    State = "unproven"         // no device of it says whether its machine is off
	StateStillOn     State = "power_off_failed" // its machine did not go off
	StateHeldBack    State = "held_back"        // its machine is not powered off, because of what other nodes look like
	StateProofLost   State = "proof_lost"       // its fence stands still in the middle
)

// Row is what is said of a reason.
type Row struct {
	Reason   Reason
	Severity Severity
	State    State  // the node's, from this reason on
	Text     string // of the Event, with words in braces to be replaced; "" where there is none
	Remedy   string // what a person does about it, in Markdown; "" where nothing is to be done
}

// maxNoteBytes is how many bytes the API server takes as the note of an Event; it refuses a longer one.
const maxNoteBytes = 1024

// EventNote is the Event's text with words in the place of those in braces: {node}, a name, and so on. Much of that may be somebody else's text:
// it ends in dots where it is too long for an Event.
func (r Row) EventNote(words ...string) string {
	text := strings.NewReplacer(words...).Replace(r.Text)
	const dots = "..."
	if len(text) > maxNoteBytes {
		text = strings.ToValidUTF8(text[:maxNoteBytes-len(dots)], "") + dots
	}
	return text
}

// RowOf returns a reason's row. Every reason has one.
func RowOf(r Reason) Row { return rows[r] }

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
	{Excluded, Info, StateExcluded, "The node looks dead, and nothing is begun, because somebody says that it is to be left alone: {detail}.",
		"Nothing, if that is meant. Else take back what the Event names. A pause whose until-time is none does not end by itself."},
	{ModeDisabled, Warning, StateDisabled, "The node looks dead, and its mode is disabled ({detail}): nobody is asked, and nothing is done.",
		"Nothing, if that is meant. Else take the annotation `forcefence.io/mode` off, or correct `mode` or `modes`."},
	{MarkNotTaken, Warning, StateDisabled, "The node is marked as shut down, and its mode is {detail}: nothing is done about the mark.",
		"Another mode takes it up. `kubectl taint node NODE forcefence.io/node-shutdown-` takes it off."},
	{UnknownMode, Warning, StateSuspect, "The node looks dead, and this version does not know the configured {detail}: nothing is done.",
		"Correct `mode`, or run a version that has it."},
	{NoMachine, Warning, StateNoMachine, "The node looks dead, and no provider can tell whether its machine is off: {detail}.",
		"No rule of the configuration claims the node, or two do, or two nodes claim one machine. Correct `nodes:`."},
	{Distrusted, Warning, StateDistrusted, "Device {device} once said Off of a machine that was on. It is not believed until a person runs: forcefence release {detail} --yes.",
		"Do not trust that device. `forcefence release` once it is repaired."},
	{AllStale, Warning, StateHeldBack, "Every node looks dead at once: no node is fenced.",
		"Look at the API server."},
	{MostStale, Warning, StateHeldBack, "The node looks dead ({why}) and its machine is on. Fewer than half of the nodes are heard: no machine is powered off until they are.",
		"Look at the API server and the network."},
	{NoWork, Info, StateSuspect, "The node looks dead ({why}), and there is nothing to evict: {detail}.",
		"Pods that tolerate every taint stay on a dead node, those of StatefulSets too. Narrow their tolerations if they should move."},
	{StaysDead, Debug, StateSuspect, "", ""},
	{PowerOnDelay, Debug, StateSuspect, "", ""},
	{PowerOnHeldUp, Info, StateSuspect, "The fence is done. Its machine, which forcefence powered off, is not powered on: {detail}.",
		"Nothing, if that is meant. Else take back what the Event names, or power the machine on by hand (`forcefence power on`)."},
	{PowerOnLimit, Warning, StateSuspect, "The fence is done. Its machine, which forcefence powered off, stays off: it was powered on {detail}, and maxPowerOnsPerDay allows no more.",
		"Look at why the machine does not stay up. It is powered on once the day is over, or by hand (`forcefence power on`)."},
	{PoweringOn, Warning, StateSuspect, "The fence is done, and the machine is still off, as forcefence powered it off: powering it on ({device}).", ""},
	{PowerOnRefused, Warning, StateSuspect, "A device did not accept the power-on ({detail}). If the machine stays off it is tried again later, as often as maxPowerOnsPerDay allows.",
		"The Event has the cause. Where two outlets feed the machine, look at both. Or power it on by hand (`forcefence power on`)."},
	{CameUp, Info, StateSuspect, "The machine is on after its fence. Waiting until its node is back.", ""},
	{CameOn, Info, StateSuspect, "The machine is on, and it was not forcefence that turned it on: what becomes of it is left to whoever did.", ""},
	{NotBack, Warning, StateSuspect, "The machine was powered on after its fence, and its node has not come back.",
		"Look at the machine's console: it may have booted without its network, or not at all."},
	{FencedAgain, Warning, StateSuspect, "The node needed another fence soon after its machine was powered on: the machine stays off.",
		"Look at why the node does not stay up: its network, for one. Then power it on by hand (`forcefence power on`). `fencedAgainWithin` is how soon."},
	{Asking, Debug, "", "", ""},
	{Unknown, Warning, StateUnproven, "The node looks dead ({why}). Its device {device} does not tell whether the machine is off: {detail}. Unknown is never off.",
		"Look at the device: the Event has the cause, such as `untrusted` (its certificate), `denied` (password, licence), `unreachable`, `not_found` or `permanent`. Or fence by hand."},
	{Disagree, Warning, StateDisagree, "The node looks dead ({why}). Its devices disagree whether the machine is off: {raw}. Nothing is done until they agree.",
		"One of them is wrong, or speaks of another machine: look at each, and correct `nodes:` or the device. Or fence by hand."},
	{Changing, Debug, "", "", ""},
	{PoweredOn, Warning, StateSuspect, "The node looks dead ({why}), but its machine is on: nothing is evicted ({detail}).",
		"The machine is not dead: look at its kubelet and network. Mode `fence` powers such a machine off. If the Event ends in `never pinned`, the node names its machine itself and was not healthy since forcefence began: power it off by hand, or map it by `list`."},
	{ControlPlane, Warning, StateSuspect, "The node looks dead and its machine is on. Control-plane nodes are not powered off.",
		"Power it off by hand if the others are enough for etcd's quorum, or set `stormGuard.controlPlane: quorum`."},
	{VMHost, Warning, StateSuspect, "The node looks dead ({why}) and its machine is on. It is a host of KubeVirt, whose virtual machines may still serve: it is not powered off (stormGuard.kubeVirtHosts: never).",
		"Look at the virtual machines of the node. If they are dead, or may be cut, power it off by hand (`forcefence power off`). `stormGuard.kubeVirtHosts: powerOff` powers such hosts off as any node."},
	{KeptOn, Warning, StateSuspect, "The node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		"If the drain or the shutdown is over: set the condition to False, `kubectl uncordon`, or power it off by hand (`forcefence power`)."},
	{StillBeating, Info, StateSuspect, "The node is NotReady, but its kubelet still renews its Lease: the machine is not powered off.",
		"Nothing: the kubelet can stop its pods itself."},
	{InGrace, Info, StateSuspect, "The node looks dead ({why}) and its machine is on: it is powered off after the grace period.", ""},
	{PowerOffLimit, Info, StateSuspect, "The machine is not powered off yet: others are ({detail}).",
		"Nothing: it goes on by itself. `stormGuard.maxPowerOffs` is how many may be powered off at once."},
	{CutOff, Warning, StateHeldBack, "No machine is powered off: it may be forcefence that is cut off ({detail}).",
		"Look at the network between forcefence and the API server."},
	{DomainLost, Warning, StateHeldBack, "A failure domain is lost: {detail}. None of its machines is powered off. Those that are off are recovered.",
		"Look at the site and at the network to it. If it is gone for good, power its machines off by hand (`forcefence power`), or mark its nodes."},
	{DevicesCut, Warning, StateHeldBack, "The way to a failure domain's devices may be broken: {detail}. None of its machines is powered off.",
		"Look at the network of the devices: a gateway that died, for one. Devices that have not answered for ten minutes count no more."},
	{TooFewHealthy, Warning, StateHeldBack, "The node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		"Look at why so many nodes are not healthy at once. `stormGuard` has the floors."},
	{Quorum, Warning, StateHeldBack, "The control-plane node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		"Power it off by hand if the others are enough for etcd's quorum."},
	{CoolDown, Info, StateSuspect, "The machine is not powered off yet: {detail}.",
		"Nothing: it goes on by itself. `stormGuard.coolDown` is how long."},
	{Announcing, Warning, StatePoweringOff, "The node looks dead ({why}) and its machine is on: powering it off through {device}.", ""},
	{SendingOff, Debug, "", "", ""},
	{LevelDelay, Info, StatePoweringOff, "The power-off waits for the delay of its level.", ""},
	{NextLevel, Warning, StatePoweringOff, "A level gave way ({detail}).",
		"The Event says which device, and why. Look at it: the node has one way less to be powered off. Outlets of it that were switched off stay off."},
	{AwaitingOff, Info, StatePoweringOff, "Sent the power-off. Waiting until {device} says Off.", ""},
	{NotAccepted, Warning, StatePoweringOff, "Device {device} did not accept the power-off ({detail}). It is sent again.",
		"The Event has the cause."},
	{PowerOffRefused, Warning, StateStillOn, "Device {device} refuses the power-off permanently ({detail}): nothing is evicted. It is tried again later.",
		"The device offers no power-off, refuses the credential, or is another machine's: the Event has the cause. It is tried again after five times `powerOffTimeout`."},
	{PowerOffFailed, Warning, StateStillOn, "The machine did not come to Off in time: nothing is evicted. It is tried again later.",
		"The device accepted a power-off, and the machine stayed on. Look at the device."},
	{BackingOff, Warning, StateStillOn, "The last power-off failed. Waiting before the next.",
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
	{ModeObserve, Info, "", "The mode is not fence any more: the power-off is cancelled.", ""},
	{WouldPowerOff, Warning, StateShadowed, "Mode shadow: now the machine would be powered off through {device}. The node looks dead ({why}), and {detail}. Nothing is done.",
		"If that is right, mode `fence` may be trusted with such a node. The machine runs, and its pods stay where they are."},
	{WouldRecover, Warning, StateShadowed, "Mode shadow: now the node would be marked, and {pods} bound to it moved. The node looks dead ({why}), and {detail}. Nothing is done.",
		"If that is right, modes `observe` and `fence` may be trusted with such a node. Its pods wait."},
	{Shadowed, Debug, StateShadowed, "", ""},
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
	{Tombstoning, Warning, StateEvicting, "Ending {pods}.", ""},
	{StockEviction, Info, StateEvicting, "Waiting for Kubernetes' own eviction to reach pods that it is about to delete.", ""},
	{Clearing, Warning, StateEvicting, "Clearing the evicted pods' volumes from the node's volume lists.", ""},
	{Deleting, Warning, StateEvicting, "Deleting {pods}.", ""},
	{SettingNotReady, Info, StateEvicting, "Setting {pods} that stay on the node not Ready: its machine is off.", ""},
	{ProofLost, Warning, StateProofLost, "The machine is no longer proven off ({detail}): no more pods are ended until it is.",
		"Look at the device."},
	{Returned, Warning, StateEvicting, "The machine is back: no more pods are ended. Those that were ended are deleted, then the mark is removed.", ""},
	{Sparing, Warning, StateEvicting, "The machine is back: {pods} not evicted, to resume when the mark is removed.", ""},
	{Retrying, Warning, StateEvicting, "Some pods could not be ended or deleted, and are tried again. All others are done.",
		"Look at the controller's log for the cause."},
	{Stuck, Debug, "", "", ""},
	{WaitingDetach, Info, StateEvicting, "All pods are gone. Waiting until their volumes are detached.", ""},
	{ForcingDetach, Warning, StateEvicting, "Volumes of ended pods are attached for longer than detachTimeout: deleting {attachments}, as onDetachTimeout says.",
		"Look at why the attach/detach controller did not detach them."},
	{OutOfService, Warning, StateEvicting, "Volumes of ended pods are attached for longer than detachTimeout: the node is marked as out of service until they are detached, as onDetachTimeout says.",
		"Look at why the attach/detach controller did not detach them."},
	{PolicyEnding, Warning, "", "Ending {pods} of a node that looks dead ({why}): {detail}. Its machine may run.", ""},
	{PolicyDeleting, Debug, "", "", ""},
	{PolicyClearing, Warning, "", "Taking volumes of ended pods off the list of what is in use on this node, so that they can be used elsewhere: {detail}. Its machine may run.", ""},
	{PolicyDetaching, Warning, "", "Deleting {attachments} of a node that looks dead ({why}), so that their volumes can be used elsewhere: {detail}. Its machine may run.", ""},
	{Finished, Warning, "", "All pods are gone and their volumes are detached: the mark is removed.", ""},
	{FinishedReturn, Warning, "", "The node came back. All ended pods are gone and their volumes are detached: the mark is removed.", ""},
	{NeedsPerson, Warning, "", "The fence cannot end by itself ({detail}). The mark stays. To remove it: forcefence release {node} --yes.",
		"Most often a volume does not detach: look at its CSI driver. `PodsStuck` names pods that the API server lets nobody end or delete, such as one that is as large as etcd allows: all others were moved; make it smaller. Or `forcefence release`."},
	{Failing, Warning, "", "A step of this node's recovery has failed at every attempt for a minute: {detail}. It is tried again.",
		"The Event has the API server's answer. Often a webhook's backend ran on the dead node, an admission policy rejects the write, or forcefence lacks a right. Repair or delete what rejects it: the recovery continues by itself."},
	{NoHook, Warning, "", "This node has no hook that holds its pods: if its machine boots before the mark is removed, they start again beside their replacements. Disable automatic power-on until then (the BMC's power restore policy). For the next time, install the hook.",
		"Disable automatic power-on until the mark is removed (the BMC's power restore policy). Install the hook."},
	{PoweredOff, Warning, "", "Fence {fence} ended ({why}). These devices accepted a power-off, or may have: {detail}. If one is still off, turn it on again, unless afterFence turns it on.",
		"`forcefence power state NODE` shows each device. An outlet that stayed off leaves a running machine on one power supply: turn it on at the device. A machine that is off is turned on by `forcefence power on NODE --yes`."},
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
	{PolicyYields, Warning, "", "Ending no pods of this node by a policy that would: {detail}.",
		"Two that end the same pods hide from each other what happened. Set Longhorn's setting to `do-nothing`, or take the policy out. `Forbidden`: the component `longhorn` of deploy/ grants the right to read it."},
	{PolicyWaits, Warning, "", "Policies end no pods without proof now: {detail}. This is reported once for all nodes that it concerns.",
		"Look at the network between the nodes and the API server, and at the site. Policies go on by themselves once at least half of the nodes are heard and no failure domain is lost. Pods of a machine that is proven off are moved in any case."},
	{PolicyEnded, Warning, "", "Node {node} looks dead: the pod was ended so that it can run elsewhere ({detail}). Its machine may run.", ""},
	{PolicySkipped, Info, "", "A policy leaves pods of this node alone: {detail}.",
		"A pod that tolerates the mark stays on the node: give it the tolerations that it needs, by key. A pod whose volumes are not known to be healthy is looked at again after expiryInterval."},
	{PolicyTimedOut, Warning, "", "Gave up until this node's storage was healthy again, or that has expired: the API server refused what was to be done ({detail}).",
		"The cause is in the log: an admission webhook, or a right that the controller lacks. Until then these pods wait for the proof that their machine is off, as all others."},
	{FinalizersKeep, Warning, "", "The pod was ended and deleted, and can never start again. Its name stays taken until its finalizers are removed: {detail}.",
		"Look at who set the finalizers."},
	{ConfigRejected, Warning, "", "The changed configuration file is rejected, and the one before it stays in force: {detail}.",
		"`forcefence check-config FILE` prints every fault with its line. Correct the file: it is read again by itself."},
	{WatchesBehind, Warning, "", "etcd was restored from an older backup, and watches from before bring nothing: {detail}. This controller ends and starts again with new watches.",
		"Start all API servers again, if nobody did since the restore. Then start what else watches since before it: kube-controller-manager, kube-scheduler, kubelets, operators. Next time, restore with `etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted`: then every watch ends, and everybody lists anew."},
	{DrainHeld, Warning, "", "A drain of this node waits for data that would be lost with it (drain guard {by}): {detail}. How far it is: forcefence drain-status {node}.",
		"Wait, or see with `forcefence drain-status` which volumes hold it up. A policy that evicts replicas moves them by itself; else move them, or make the volumes' other replicas healthy."},
	{DrainAllowed, Info, "", "A drain of this node waits for its data no more (drain guard {by}): {detail}.", ""},
	{EvictionAutomatic, Info, "", "Node {node} is cordoned: the replica of volume {detail} is asked to leave it (drain guard {by}).", ""},
	{EvictionCanceled, Info, "", "The replica of volume {detail} on node {node} need not leave it any more: the request is taken back (drain guard {by}). A copy that was begun goes on.", ""},
	{DrainPolicySet, Info, "", "The storage system's drain policy is {detail} now (drain guard {by}).", ""},
	{DrainPolicyConflict, Warning, "", "The storage system's drain policy is left as it is (drain guard {by}): {detail}. forcefence does not write over what somebody else chose.",
		"Set it to the drain item's policy yourself, or back to what forcefence wrote (the annotation `forcefence.io/drain-policy` tells), or correct the item."},
	{DrainNotOurs, Warning, "", "A PodDisruptionBudget that is not forcefence's selects a pod of the storage system on this node: {detail}. forcefence makes none beside it, since a pod with two can never be evicted: whether a drain waits for the node's data is that budget's matter.",
		"Delete that PodDisruptionBudget, or make it select other pods, if forcefence is to guard the drain."},
	{DrainNotGuarded, Warning, "", "No PodDisruptionBudget can hold up a drain of this node for its storage: {detail}.",
		"Correct `identity` and `pods` of the drain item. A DaemonSet's pods are not evicted by `kubectl drain`: a drain does not wait for them."},
	{LeftBehind, Warning, "", "{detail}",
		"Its node came back, and the pod could not be deleted (it was ended, and never starts again) or marked as spared (it lives). Or its node is off, and the pod, which stays there, could not be set not ready. Look at its size and at admission webhooks."},
}

// LimitReasons are the reasons for which a power-off of ours is refused, or put off, for other nodes' sake.
var LimitReasons = []Reason{
	ControlPlane, AllStale, MostStale, PowerOffLimit, CutOff, DomainLost, DevicesCut, TooFewHealthy, Quorum, CoolDown,
}
