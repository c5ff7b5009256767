// Package reason holds the one table of what forcefence reports: every reason of a decision and every Event, with its
// severity, its text, and what a person does about it. It imports nothing of the project, and decides nothing.
package reason

import (
	"slices"
	"strings"
)

// Reason is why something was decided or is reported, from a closed set. It is an Event's reason, and the log's why.
type Reason string

// The reasons of decisions.
const (
	Gone             Reason = "NodeGone"                  // the Node object does not exist
	Marked           Reason = "NodeMarked"                // marked already: package evict decides
	NotMarked        Reason = "NotMarked"                 // package fence decides
	BadRecord        Reason = "RecordUnreadable"          // it is unknown what the record announced
	MarkVanished     Reason = "MarkRemovedByOther"        // the mark is gone, in phase Armed or Evicting
	Healthy          Reason = "NodeHealthy"               // nothing points at a dead node
	NeverOff         Reason = "FencedNodeNeverPoweredOff" // it has the boot id that it had when a device said Off
	Explaining       Reason = "AskingWhichRun"            // the same, where boot ids prove nothing: ask the device
	StartedAgain     Reason = "MachineStartedAgain"       // the device reports another run than the one that was over
	Excluded         Reason = "NodeExcluded"              // maintenance, pause, opt-out
	ModeDisabled     Reason = "ModeDisabled"              // no device is asked, and nothing is begun
	MarkNotTaken     Reason = "MarkNotTakenUp"            // a person's mark, in a mode that begins nothing
	UnknownMode      Reason = "UnknownMode"               // this version does not know the mode
	NoMachine        Reason = "NoMachine"                 // no provider knows the node, or two claim it
	Distrusted       Reason = "DeviceDistrusted"          // its device said Off of a machine that was on
	AllStale         Reason = "AllLeasesStale"            // the API server is at fault, or this process
	MostStale        Reason = "MostLeasesStale"           // fewer than half of the nodes are heard: no power-off
	NoWork           Reason = "NothingToEvict"            // no pod to move, no volume to detach
	StaysDead        Reason = "NodeStaysDead"             // nothing is left to do since its fence ended
	Asking           Reason = "AskingMachine"             // no answer since the look
	Unknown          Reason = "PowerUnknown"              // no usable answer: waiting never makes it Off
	Disagree         Reason = "DevicesDisagree"           // one says Off, another On: that proves nothing
	Changing         Reason = "PowerChanging"             // in a fence, or after one
	Unsettled        Reason = "PowerNotSettled"           // the same of a node that no fence has begun for
	PoweredOn        Reason = "PoweredOnNotReady"         // observe mode
	ControlPlane     Reason = "ControlPlaneNode"          // not powered off: the configuration does not allow it
	VMHost           Reason = "KubeVirtHost"              // not powered off: its virtual machines may still serve
	KeptOn           Reason = "PowerOffHeldUp"            // not powered off: drained, shut down or cordoned
	StillBeating     Reason = "KubeletHeartbeats"         // NotReady, but its kubelet renews its Lease
	SharedMachine    Reason = "MachineShared"             // another node that is heard may be the same machine
	OnlyLeaseMissing Reason = "OnlyLeaseMissing"          // its kubelet writes its status, and renews no Lease
	InGrace          Reason = "WaitingForGrace"
	PowerOffLimit    Reason = "PowerOffLimit"      // as many machines as may be are being powered off
	CutOff           Reason = "ControllerCutOff"   // reads of the API server fail, or lately did
	DomainLost       Reason = "DomainLost"         // most nodes of a failure domain fell silent at once
	DevicesCut       Reason = "DevicesUnreachable" // most devices of a failure domain stopped answering
	TooFewHealthy    Reason = "TooFewHealthy"      // the floor of healthy nodes
	Quorum           Reason = "EtcdQuorum"         // etcd would lose its quorum
	CoolDown         Reason = "StormCoolDown"      // a limit was hit lately
	Announcing       Reason = "PoweringOff"
	SendingOff       Reason = "SendingPowerOff"
	LevelDelay       Reason = "WaitingForLevel" // the level has a delay
	NextLevel        Reason = "LevelGaveWay"    // a level failed: the power-off goes through the next
	AwaitingOff      Reason = "AwaitingOff"
	NotAccepted      Reason = "PowerOffNotAccepted" // the device did not take the power-off: it is sent again
	PowerOffRefused  Reason = "PowerOffRefused"     // it refuses for good: sending it again would not help
	PowerOffFailed   Reason = "PowerOffFailed"
	BackingOff       Reason = "PowerOffBackOff"
	Recovered        Reason = "NodeRecovered"
	Rearming         Reason = "MarkBackOff"          // the last fence of this life of the node ended just now
	PostsNotReady    Reason = "KubeletPostsNotReady" // this kubelet is alive until it misses a renewal
	ProvenOff        Reason = "MachineOff"
	LookedTooEarly   Reason = "LookOlderThanAnswer"
	UnexpectedAnswer Reason = "UnexpectedAnswer"
	Released         Reason = "ReleasedByPerson"     // a person ended the last fence of this life of the node
	ModeObserve      Reason = "ModeObserve"          // the mode changed before the power-off was sent
	RequestGone      Reason = "RequestGone"          // mode onRequest: no request counts any more
	WouldPowerOff    Reason = "WouldPowerOff"        // mode shadow: what mode fence would do now
	WouldRecover     Reason = "WouldRecover"         // the same
	Shadowed         Reason = "WouldAct"             // the same, already reported in this life of the node
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
	ProofLost        Reason = "ProofLost"    // in the middle, the device no longer says Off
	Returned         Reason = "NodeReturned" // in the middle, the node is alive
	Sparing          Reason = "SparingPods"  // the node returned: pods without a tombstone live
	Retrying         Reason = "RetryingPods" // writes of some pods failed; all others are done
	Stuck            Reason = "PodsStuck"    // an alert: the API server refuses to end or delete pods
	WaitingDetach    Reason = "WaitingForDetach"
	ForcingDetach    Reason = "DeletingAttachments" // they are still there long after their pods are gone
	OutOfService     Reason = "TakenOutOfService"   // the same, by the stock controllers
	PolicyEnding     Reason = "PolicyEndingPods"    // without proof, by a policy
	PolicyDeleting   Reason = "PolicyDeletingPods"
	PolicyClearing   Reason = "PolicyClearingVolumes"     // the same: volumes that ended pods had mounted
	PolicyDetaching  Reason = "PolicyDeletingAttachments" // the same: volumes of ended pods
	PolicyFencing    Reason = "PolicyFencingStorage"      // the same: the storage cuts the node off before that
	PowerOnDelay     Reason = "WaitingForPowerOn"         // the fence is done: the power-on waits for its delay
	PowerOnHeldUp    Reason = "PowerOnHeldUp"             // a person forbids it, or the machine may be another
	PowerOnLimit     Reason = "PowerOnLimit"              // powered on too often in a day
	PoweringOn       Reason = "PoweringOn"                // the power-on is announced
	PowerOnRefused   Reason = "PowerOnNotAccepted"        // a device did not accept it
	CameUp           Reason = "MachinePoweredOn"          // the machine was on after that
	CameOn           Reason = "MachineTurnedOnByOther"    // it was on before
	OrderWithdrawn   Reason = "PowerOffWithdrawn"         // an order that others may still have carried out
	NotBack          Reason = "PoweredOnNotBack"          // powered on, but its node has shown no life since
	FencedAgain      Reason = "FencedAgainStaysOff"       // too soon after a power-on of ours
	Finished         Reason = "NodeEvicted"
	FinishedReturn   Reason = "NodeReturnedAndCleared"
)

// The Events that are no decisions.
const (
	NeedsPerson Reason = "FenceNeedsPerson"         // a mark that does not end by itself
	Failing     Reason = "RecoveryStepFails"        // a step of a node's recovery has failed for a minute
	NoHook      Reason = "NoHookOnNode"             // an eviction begins on a node without a hook
	PoweredOff  Reason = "PowerOffAccepted"         // after a fence: the devices that accepted a power-off
	OddLease    Reason = "LeaseDurationOutOfBounds" // the Lease names a duration out of bounds
	LongLease   Reason = "LeaseDurationUnusual"     // the Lease names a longer duration than those of other nodes
	// MachineOfSilent is on a node that is heard: a silent node may be the same machine.
	MachineOfSilent Reason = "MachineSharedWithSilentNode"
	NoPowerOff      Reason = "PowerOffNotPossible" // no device of the healthy node would accept a power-off
	NotBelieved     Reason = "MachineNotBelieved"  // the node's machine is not believed
	Repinned        Reason = "MachineRepinned"     // a healthy node leads to another machine than before
	OutByOther      Reason = "OutOfServiceByOther" // another client's out-of-service taint, and no proof of Off
	Answers         Reason = "MachineAnswers"      // a machine that could not be asked answers again
	NotAnswering    Reason = "MachineNotAnswering" // a healthy node's machine cannot be asked
	Fenced          Reason = "NodeFenced"          // on a pod: it was ended
	PolicyYields    Reason = "PolicyStandsAside"   // the storage system's own setting does the same
	PolicyWaits     Reason = "PolicyWaits"         // more nodes than this one look dead
	PolicyEnded     Reason = "PolicyEndedPod"      // on a pod: it was ended, without proof
	// The storage has not cut the node off, so a policy waits; it has let the node in again; it may not do so yet.
	StorageNotFenced Reason = "StorageNotFenced"
	StorageUnfenced  Reason = "StorageUnfenced"
	StorageFenceKept Reason = "StorageFenceKept"
	HandedOver       Reason = "NodeHandedOver"
	PolicySkipped    Reason = "PolicySkippedPods"     // they tolerate the mark, or their volumes may be bad
	PolicyTimedOut   Reason = "PolicyTimedOut"        // the API server refused its writes for too long
	FinalizersKeep   Reason = "FinalizersKeepPod"     // on a pod: it was ended and deleted, but remains
	ConfigRejected   Reason = "ConfigurationRejected" // on the leader's Lease
	WatchesBehind    Reason = "WatchesBehind"         // on the leader's Lease: etcd was restored
	LeftBehind       Reason = "PodLeftBehind"         // on a pod: the fence ended before it was done with it
	AttachmentLeft   Reason = "AttachmentLeftBehind"  // no pod of the fence used its volume
	GoneAttached     Reason = "DeletedNodeAttached"   // on a Node that was deleted: it has volumes
	GoneDetached     Reason = "DeletedNodeDetached"   // on the same: it has none any more
)

// The Events about drains.
const (
	DrainHeld           Reason = "DrainHeldUp"         // a cordoned node's drain waits for its data
	DrainAllowed        Reason = "DrainAllowed"        // it no longer waits
	EvictionAutomatic   Reason = "EvictionAutomatic"   // on a replica: it is asked to leave a cordoned node
	EvictionCanceled    Reason = "EvictionCanceled"    // on a replica: that was taken back
	DrainPolicySet      Reason = "DrainPolicySet"      // on a storage system's setting
	DrainPolicyConflict Reason = "DrainPolicyConflict" // on the same: another client chose another value
	DrainNotOurs        Reason = "DrainGuardedByOther" // the PodDisruptionBudget of another client selects the pod
	DrainNotGuarded     Reason = "DrainNotGuarded"     // no budget of ours can select the storage pod
)

// Severity is how much a reason matters.
type Severity uint8

// The severities.
const (
	Debug   Severity = iota // a debug line in the log, no Event
	Info                    // an info line in the log, and a normal Event
	Warning                 // both as a warning
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
	StateChanging    State = "changing"         // its device says neither On nor Off: a person is needed if that lasts
	StateUnproven    State = "unproven"         // no device says whether its machine is off
	StateStillOn     State = "power_off_failed" // its machine did not go off
	StateHeldBack    State = "held_back"        // its machine is not powered off, because of other nodes
	StateLeftOn      State = "left_on"          // its machine is on, and is not powered off by its mode or role
	StateProofLost   State = "proof_lost"       // its fence is interrupted in the middle
)

// Row is what is reported of a reason.
type Row struct {
	Reason   Reason
	Severity Severity
	State    State  // the node's, from this reason on; "": it does not change
	Text     string // of the Event, with words in braces to replace; "": there is no Event
	Remedy   string // what a person does about it, in Markdown; "": nothing
}

// maxNoteBytes is the longest note of an Event that the API server accepts.
const maxNoteBytes = 1024

// EventNote returns the Event's text with its words in braces replaced: words alternate between {name} and value. A
// value may be another client's text of any length, so the note is cut, and ends in dots then.
func (r Row) EventNote(words ...string) string {
	const dots = "..."
	// A word that was cut ends in dots. The sentence's own full stop would be a fourth one.
	replacer := strings.NewReplacer(slices.Concat(words, oneDevice)...) // of two pairs with one name the first counts
	text := strings.ReplaceAll(replacer.Replace(r.Text), dots+".", dots)
	if len(text) > maxNoteBytes {
		text = strings.TrimRight(strings.ToValidUTF8(text[:maxNoteBytes-len(dots)], ""), ". ") + dots
	}
	return text
}

// oneDevice and severalDevices are the words of a text that follow the number of devices.
var (
	oneDevice      = []string{"{s}", "", "{says}", "says", "{refuses}", "refuses", "{is}", "is"}
	severalDevices = []string{"{s}", "s", "{says}", "say", "{refuses}", "refuse", "{is}", "are"}
)

// DeviceWords returns the replacements for {device} and for the words that follow the number of devices, as EventNote
// takes them: "Device a says", "Devices a, b and c say".
func DeviceWords(names []string) []string {
	last := len(names) - 1
	switch {
	case last < 0:
		return []string{"{device}", "(none)"}
	case last == 0:
		return []string{"{device}", names[0]}
	}
	return append([]string{"{device}", strings.Join(names[:last], ", ") + " and " + names[last]}, severalDevices...)
}

// RowOf returns a reason's row. Every reason has one.
func RowOf(r Reason) Row { return rows[r] }

// Table returns all rows: those of decisions, then the others.
func Table() []Row { return append([]Row(nil), table...) }

var rows = func() map[Reason]Row {
	m := map[Reason]Row{}
	for _, r := range table {
		m[r.Reason] = r
	}
	return m
}()

var table = []Row{
	{Reason: Gone, Severity: Debug},
	{Reason: Marked, Severity: Debug},
	{Reason: NotMarked, Severity: Debug},
	{
		Reason: BadRecord, Severity: Warning, State: StateBroken,
		Text: "The fence's record cannot be read. Nothing is done, and a mark stays. To reset the node: " +
			"forcefence release {node} --yes.",
		Remedy: "The annotation was edited. Run `forcefence release NODE`.",
	},
	{
		Reason: MarkVanished, Severity: Warning,
		Text: "The mark was removed in the middle of the fence. To end a fence, use: forcefence release {node} " +
			"--yes.",
		Remedy: "Use `forcefence release NODE` to end a fence.",
	},
	{Reason: Healthy, Severity: Debug, State: StateHealthy},
	{
		Reason: NeverOff, Severity: Warning, State: StateDistrusted,
		Text: "The node is back on the same boot as when its device{s} {device} said Off: the machine was never " +
			"off. The device{s} {is} not trusted until a person runs: forcefence release {node} --yes.",
		Remedy: "Repair the device, then run `forcefence release NODE`.",
	},
	{Reason: Explaining, Severity: Debug, State: StateHealthy},
	{Reason: StartedAgain, Severity: Debug, State: StateHealthy},
	{
		Reason: Excluded, Severity: Info, State: StateExcluded,
		Text: "The node looks dead, but it is excluded from fencing: {detail}. No fence begins.",
		Remedy: "No action if intended. Otherwise remove the exclusion that the Event names. A pause without an " +
			"end time never expires.",
	},
	{
		Reason: ModeDisabled, Severity: Warning, State: StateDisabled,
		Text: "The node looks dead, but its mode is disabled ({detail}): no device is asked, and nothing is done.",
		Remedy: "No action if intended. Otherwise remove the annotation `forcefence.io/mode`, or correct `mode` or " +
			"`modes`.",
	},
	{
		Reason: MarkNotTaken, Severity: Warning, State: StateDisabled,
		Text:   "The node is marked as shut down, but its mode is {detail}: nothing is done about the mark.",
		Remedy: "Use a mode that acts, or remove the mark: `kubectl taint node NODE forcefence.io/node-shutdown-`.",
	},
	{
		Reason: UnknownMode, Severity: Warning, State: StateSuspect,
		Text:   "The node looks dead, but this version does not know the configured {detail}: nothing is done.",
		Remedy: "Correct `mode`, or run a version that knows it.",
	},
	{
		Reason: NoMachine, Severity: Warning, State: StateNoMachine,
		Text: "The node looks dead, and no provider can say whether its machine is off: {detail}.",
		Remedy: "No rule of the configuration claims the node, two rules do, or two nodes claim one machine: " +
			"correct `nodes:`. If its machine is not believed, find out why the node reports another.",
	},
	{
		Reason: Distrusted, Severity: Warning, State: StateDistrusted,
		Text: "Device{s} {device} once said Off for a machine that was on. The device{s} {is} not trusted until " +
			"a person runs: forcefence release {detail} --yes.",
		Remedy: "Repair the device, then run `forcefence release NODE`.",
	},
	{
		Reason: AllStale, Severity: Warning, State: StateHeldBack,
		Text:   "All nodes look dead at once: no node is fenced.",
		Remedy: "Look at the API server.",
	},
	{
		Reason: MostStale, Severity: Warning, State: StateHeldBack,
		Text: "The node looks dead ({why}) and its machine is on. Fewer than half of the nodes renew their " +
			"Leases: no machine is powered off until they do.",
		Remedy: "Look at the API server and the network.",
	},
	{
		Reason: NoWork, Severity: Info, State: StateSuspect,
		Text: "The node looks dead ({why}), but there is nothing to evict: {detail}.",
		Remedy: "Pods that tolerate every taint stay on a dead node, even those of StatefulSets. Narrow their " +
			"tolerations if they should move.",
	},
	{Reason: StaysDead, Severity: Debug, State: StateSuspect},
	{Reason: PowerOnDelay, Severity: Debug, State: StateSuspect},
	{
		Reason: PowerOnHeldUp, Severity: Info, State: StateSuspect,
		Text: "The fence is done. Its machine, which forcefence powered off, is not powered on: {detail}.",
		Remedy: "No action if intended. Otherwise remove what the Event names, or run `forcefence power on NODE " +
			"--yes`.",
	},
	{
		Reason: PowerOnLimit, Severity: Warning, State: StateSuspect,
		Text: "The fence is done. Its machine, which forcefence powered off, stays off: it was powered on " +
			"{detail}, and maxPowerOnsPerDay allows no more.",
		Remedy: "Find out why the machine does not stay up. It is powered on when the day is over, or by " +
			"`forcefence power on NODE --yes`.",
	},
	{
		Reason: PoweringOn, Severity: Warning, State: StateSuspect,
		Text: "The fence is done, and the machine that forcefence powered off is still off: powering it on " +
			"({device}).",
	},
	{
		Reason: PowerOnRefused, Severity: Warning, State: StateSuspect,
		Text: "A device did not accept the power-on ({detail}). If the machine stays off, it is retried, at most " +
			"maxPowerOnsPerDay times a day.",
		Remedy: "The Event has the cause. If two outlets feed the machine, look at both. Or run `forcefence power " +
			"on NODE --yes`.",
	},
	{
		Reason: CameUp, Severity: Info, State: StateSuspect,
		Text: "The machine is on after its fence. Waiting until its node is back.",
	},
	{
		Reason: CameOn, Severity: Info, State: StateSuspect,
		Text: "The machine is on, and forcefence did not turn it on: forcefence leaves it as it is.",
	},
	{
		Reason: OrderWithdrawn, Severity: Info,
		Text: "The order to power the machine off is taken back ({detail}): its fence has ended, or the node " +
			"shows life.",
	},
	{
		Reason: NotBack, Severity: Warning, State: StateSuspect,
		Text:   "The machine was powered on after its fence, but its node has not come back.",
		Remedy: "Look at the machine's console: it may have booted without network, or not at all.",
	},
	{
		Reason: FencedAgain, Severity: Warning, State: StateSuspect,
		Text: "The node needed another fence soon after its machine was powered on: the machine stays off.",
		Remedy: "Find out why the node does not stay up: its network may be broken. Then run `forcefence power on " +
			"NODE --yes`. `fencedAgainWithin` defines soon.",
	},
	{Reason: Asking, Severity: Debug},
	{
		Reason: Unknown, Severity: Warning, State: StateUnproven,
		Text: "The node looks dead ({why}). Its device{s} {device} cannot say whether the machine is off: " +
			"{detail}. Unknown is never off.",
		Remedy: "Look at the device, and at the network to it. `untrusted` is about its certificate, `denied` " +
			"about the password or a licence, `not_found` about the machine's name.",
	},
	{
		Reason: Disagree, Severity: Warning, State: StateDisagree,
		Text: "The node looks dead ({why}). Its devices disagree whether the machine is off: {raw}. Nothing is " +
			"done until they agree.",
		Remedy: "One device is wrong, or answers for another machine. Look at each, and correct `nodes:` or the " +
			"device. Or fence by hand.",
	},
	{Reason: Changing, Severity: Debug},
	{Reason: Unsettled, Severity: Debug, State: StateChanging},
	{
		Reason: PoweredOn, Severity: Warning, State: StateLeftOn,
		Text: "The node looks dead ({why}), but its machine is on: nothing is evicted ({detail}).",
		Remedy: "The machine is not dead: look at its kubelet and network. Mode `fence` powers such a machine off. " +
			"If the Event ends in `never pinned`, the node names its machine itself, and was not healthy since " +
			"forcefence began. Then power it off by hand, or map it by `list`.",
	},
	{
		Reason: ControlPlane, Severity: Warning, State: StateLeftOn,
		Text: "The node looks dead and its machine is on. Control-plane nodes are not powered off.",
		Remedy: "If etcd keeps its quorum without it, power it off by hand, or set `stormGuard.controlPlane: " +
			"quorum`.",
	},
	{
		Reason: VMHost, Severity: Warning, State: StateLeftOn,
		Text: "The node looks dead ({why}) and its machine is on. It is a KubeVirt host whose virtual machines " +
			"may still serve: it is not powered off (stormGuard.kubeVirtHosts: never).",
		Remedy: "Look at the node's virtual machines. If they are dead, or may stop, run `forcefence power off " +
			"NODE --yes`. `stormGuard.kubeVirtHosts: powerOff` powers such hosts off like any node.",
	},
	{
		Reason: KeptOn, Severity: Warning, State: StateExcluded,
		Text: "The node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		Remedy: "When the drain, the maintenance or the shutdown is over, set the condition to False, or run " +
			"`kubectl uncordon`. Or run `forcefence power off NODE --yes`.",
	},
	{
		Reason: StillBeating, Severity: Info, State: StateSuspect,
		Text:   "The node is NotReady, but its kubelet still renews its Lease: the machine is not powered off.",
		Remedy: "Look at its kubelet, its runtime and its network plugin: the machine runs, and nothing is evicted.",
	},
	{
		Reason: SharedMachine, Severity: Warning, State: StateSuspect,
		Text: "The node looks dead, but node {detail} is heard and may be the same machine: both report one " +
			"system UUID, or lead to one machine. The machine is left on, and what its device says proves nothing " +
			"about this node.",
		Remedy: "If the host was renamed, delete the Node of the old name, and name the new one in the list or " +
			"template. If two machines report one system UUID, give each its own: guests were cloned.",
	},
	{
		Reason: OnlyLeaseMissing, Severity: Warning, State: StateSuspect,
		Text: "Only the node's Lease is missing: its kubelet does not renew it, but still writes the Node's " +
			"status. The machine is not powered off.",
		Remedy: "Look at the kubelet's log, and at what may refuse or delete the Lease in namespace " +
			"`kube-node-lease`: an admission policy, a quota, a right. Without renewals Kubernetes declares the node " +
			"NotReady again and again.",
	},
	{
		Reason: InGrace, Severity: Info, State: StateSuspect,
		Text: "The node looks dead ({why}) and its machine is on: it is powered off after the grace period.",
	},
	{
		Reason: PowerOffLimit, Severity: Info, State: StateSuspect,
		Text: "The machine is not powered off yet: others are being powered off ({detail}).",
		Remedy: "No action: it continues by itself. `stormGuard.maxPowerOffs` limits how many machines are powered " +
			"off at once.",
	},
	{
		Reason: CutOff, Severity: Warning, State: StateHeldBack,
		Text:   "No machine is powered off: forcefence itself may be cut off ({detail}).",
		Remedy: "Look at the network between forcefence and the API server.",
	},
	{
		Reason: DomainLost, Severity: Warning, State: StateHeldBack,
		Text: "A failure domain is lost: {detail}. None of its machines is powered off. Those that are off are " +
			"recovered.",
		Remedy: "Look at the site and at the network to it. If it is gone for good, power its machines off by hand " +
			"(`forcefence power off NODE --yes`), or mark its nodes.",
	},
	{
		Reason: DevicesCut, Severity: Warning, State: StateHeldBack,
		Text: "The network to a failure domain's devices may be broken: {detail}. None of its machines is " +
			"powered off.",
		Remedy: "Look at the network of the devices, for example its gateway. Devices that have not answered for " +
			"ten minutes no longer count.",
	},
	{
		Reason: TooFewHealthy, Severity: Warning, State: StateHeldBack,
		Text:   "The node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		Remedy: "Find out why so many nodes are unhealthy at once. `stormGuard` has the floors.",
	},
	{
		Reason: Quorum, Severity: Warning, State: StateHeldBack,
		Text:   "The control-plane node looks dead ({why}) and its machine is on. It is not powered off: {detail}.",
		Remedy: "If etcd keeps its quorum without it, power it off by hand.",
	},
	{
		Reason: CoolDown, Severity: Info, State: StateSuspect,
		Text:   "The machine is not powered off yet: {detail}.",
		Remedy: "No action: it continues by itself, a minute after the last limit was hit.",
	},
	{
		Reason: Announcing, Severity: Warning, State: StatePoweringOff,
		Text: "The node looks dead ({why}) and its machine is on: powering it off through {device}.",
	},
	{Reason: SendingOff, Severity: Debug},
	{
		Reason: LevelDelay, Severity: Info, State: StatePoweringOff,
		Text: "The power-off waits for the delay of its level.",
	},
	{
		Reason: NextLevel, Severity: Warning, State: StatePoweringOff,
		Text: "The power-off goes on through the next level of devices ({detail}).",
		Remedy: "The Event names the device and the cause. Look at the device: the node has one way less to be " +
			"powered off. Its outlets that were switched off stay off.",
	},
	{
		Reason: AwaitingOff, Severity: Info, State: StatePoweringOff,
		Text: "Sent the power-off. Waiting until {device} {says} Off.",
	},
	{
		Reason: NotAccepted, Severity: Warning, State: StatePoweringOff,
		Text:   "Device{s} {device} did not accept the power-off ({detail}). It is sent again.",
		Remedy: "The Event has the cause.",
	},
	{
		Reason: PowerOffRefused, Severity: Warning, State: StateStillOn,
		Text: "Device{s} {device} {refuses} the power-off permanently ({detail}): nothing is evicted. It is " +
			"tried again later.",
		Remedy: "The device offers no power-off, rejects the credential, or belongs to another machine: the Event " +
			"has the cause. It is retried after five times `powerOffTimeout`.",
	},
	{
		Reason: PowerOffFailed, Severity: Warning, State: StateStillOn,
		Text:   "The machine did not turn off in time ({detail}): nothing is evicted. It is tried again later.",
		Remedy: "The device accepted a power-off, but the machine stayed on. Look at the device.",
	},
	{
		Reason: BackingOff, Severity: Warning, State: StateStillOn,
		Text:   "The last power-off failed. Waiting before the next.",
		Remedy: "Look at the device.",
	},
	{Reason: Recovered, Severity: Info, Text: "The node shows life: the power-off is cancelled."},
	{
		Reason: Rearming, Severity: Warning, State: StateSuspect,
		Text: "The last fence has just ended, and the node has shown no life since. Waiting before the next: " +
			"{detail}.",
		Remedy: "No action: it continues by itself. The wait doubles each time. If the Event names pods that " +
			"tolerate a taint of a dead node, the scheduler puts them back: let them tolerate it with the effect " +
			"`NoExecute` alone.",
	},
	{
		Reason: PostsNotReady, Severity: Info, State: StateSuspect,
		Text: "The machine's device says Off ({raw}), but the node's kubelet reports NotReady and has not missed " +
			"a heartbeat. Waiting until it misses one.",
		Remedy: "No action: it continues by itself. If no heartbeat is missed, the device is wrong.",
	},
	{
		Reason: ProvenOff, Severity: Warning, State: StateArmed,
		Text: "Device{s} {device} {says} that the machine is off ({raw}): marking the node.",
	},
	{Reason: LookedTooEarly, Severity: Debug},
	{Reason: UnexpectedAnswer, Severity: Debug},
	{
		Reason: Released, Severity: Info, State: StateSuspect,
		Text: "A person released this node. It is left alone until it comes back.",
	},
	{Reason: ModeObserve, Severity: Info, Text: "The mode is no longer fence: the power-off is cancelled."},
	{
		Reason: RequestGone, Severity: Info,
		Text: "No request for the node counts any more (mode onRequest): the power-off is cancelled.",
	},
	{
		Reason: WouldPowerOff, Severity: Warning, State: StateShadowed,
		Text: "Mode shadow: the machine would now be powered off through {device}. The node looks dead ({why}), " +
			"and {detail}. Nothing is done.",
		Remedy: "If that is right, mode `fence` suits this node. Its machine runs, and its pods stay where they " +
			"are.",
	},
	{
		Reason: WouldRecover, Severity: Warning, State: StateShadowed,
		Text: "Mode shadow: the node would now be marked, and {pods} bound to it moved. The node looks dead " +
			"({why}), and {detail}. Nothing is done.",
		Remedy: "If that is right, the modes `observe` and `fence` suit this node. Its pods wait.",
	},
	{Reason: Shadowed, Severity: Debug, State: StateShadowed},
	{Reason: Adopting, Severity: Warning, State: StateArmed, Text: "{by} marked the node as shut down."},
	{
		Reason: Refused, Severity: Warning, State: StateArmed,
		Text: "The node is marked as shut down, but device{s} {device} {says} that its machine is on: nothing is " +
			"evicted.",
		Remedy: "Power the machine off, or take the mark off with `forcefence release NODE`. `manualMarks: trust` " +
			"believes the person.",
	},
	{
		Reason: MarkDisagree, Severity: Warning, State: StateDisagree,
		Text: "The node is marked as shut down, but its devices disagree: {raw}. Nothing is evicted.",
		Remedy: "One of them says On: look at each. Take the mark off with `forcefence release NODE`, or power the " +
			"machine off. `manualMarks: trust` believes the person.",
	},
	{
		Reason: StillReady, Severity: Warning, State: StateArmed,
		Text: "The node is marked as shut down, but still reads Ready. Waiting for NotReady, or for a heartbeat, " +
			"which removes the mark.",
	},
	{Reason: Confirming, Severity: Debug},
	{Reason: Expiring, Severity: Debug},
	{
		Reason: Confirmed, Severity: Warning, State: StateEvicting,
		Text: "The machine is off ({raw}, asked after the mark), and the node has shown no life: evicting its " +
			"pods.",
	},
	{
		Reason: Vouched, Severity: Warning, State: StateEvicting,
		Text: "Evicting without proof: a person vouches that the machine is off ({detail}).",
	},
	{
		Reason: NotConfirmed, Severity: Warning,
		Text: "The machine was not confirmed off after the mark ({detail}): nothing was evicted, and the mark is " +
			"removed.",
	},
	{Reason: Alive, Severity: Warning, Text: "The node is alive: nothing was evicted, and the mark is removed."},
	{Reason: Tombstoning, Severity: Warning, State: StateEvicting, Text: "Ending {pods}."},
	{
		Reason: StockEviction, Severity: Info, State: StateEvicting,
		Text: "Waiting for Kubernetes' own eviction to reach pods that it is about to delete.",
	},
	{
		Reason: Clearing, Severity: Warning, State: StateEvicting,
		Text: "Clearing the evicted pods' volumes from the node's volume lists.",
	},
	{Reason: Deleting, Severity: Warning, State: StateEvicting, Text: "Deleting {pods}."},
	{
		Reason: SettingNotReady, Severity: Info, State: StateEvicting,
		Text: "Its machine is off: setting {pods} not Ready that the fence leaves on the node.",
	},
	{
		Reason: ProofLost, Severity: Warning, State: StateProofLost,
		Text:   "The machine is no longer proven off ({detail}): no more pods are ended until it is.",
		Remedy: "Look at the device.",
	},
	{
		Reason: Returned, Severity: Warning, State: StateEvicting,
		Text: "The machine is back: no more pods are ended. Those that were ended are deleted, then the mark is " +
			"removed.",
	},
	{
		Reason: Sparing, Severity: Warning, State: StateEvicting,
		Text: "The machine is back: sparing {pods}, to resume when the mark is removed.",
	},
	{
		Reason: Retrying, Severity: Warning, State: StateEvicting,
		Text:   "Some pods could not be ended or deleted, and are tried again. All others are done.",
		Remedy: "The controller's log has the cause.",
	},
	{Reason: Stuck, Severity: Debug},
	{
		Reason: WaitingDetach, Severity: Info, State: StateEvicting,
		Text: "The moved pods are gone. Waiting until their volumes are detached.",
	},
	{
		Reason: ForcingDetach, Severity: Warning, State: StateEvicting,
		Text: "Volumes of ended pods are still attached after detachTimeout: deleting {attachments} " +
			"(onDetachTimeout).",
		Remedy: "Find out why the attach/detach controller did not detach them.",
	},
	{
		Reason: OutOfService, Severity: Warning, State: StateEvicting,
		Text: "Volumes of ended pods are still attached after detachTimeout: the node has the out-of-service " +
			"taint until they are detached (onDetachTimeout).",
		Remedy: "Find out why the attach/detach controller did not detach them.",
	},
	{
		Reason: PolicyEnding, Severity: Warning,
		Text: "Ending {pods} of a node that looks dead ({why}): {detail}. Its machine may still run.",
	},
	{Reason: PolicyDeleting, Severity: Debug},
	{
		Reason: PolicyClearing, Severity: Warning,
		Text: "Removing volumes of ended pods from this node's list of volumes in use, so that other nodes can " +
			"use them: {detail}. Its machine may still run.",
	},
	{
		Reason: PolicyDetaching, Severity: Warning,
		Text: "Deleting {attachments} of a node that looks dead ({why}), so that other nodes can use the " +
			"volumes: {detail}. Its machine may still run.",
	},
	{
		Reason: PolicyFencing, Severity: Warning,
		Text: "The storage is asked to cut off this node, which looks dead ({why}): {detail}. Its machine may " +
			"still run. Then {pods} are ended.",
		Remedy: "The node's volumes of that storage fail until its machine has booted. If an address is another " +
			"machine's, set `fenceState: Unfenced` in the NetworkFence at once.",
	},
	{
		Reason: Finished, Severity: Warning,
		Text: "The moved pods are gone and their volumes are detached: the mark is removed{staying}.",
	},
	{
		Reason: FinishedReturn, Severity: Warning,
		Text: "The node came back. All ended pods are gone and their volumes are detached: the mark is removed.",
	},
	{
		Reason: NeedsPerson, Severity: Warning,
		Text: "The fence cannot end by itself. Run first: {first} (runbook: ForcefenceMarkStuck). The mark stays " +
			"({detail}).",
		Remedy: "Most often a volume does not detach: the Event names it, its driver and its VolumeAttachment. " +
			"Look at the driver's controller. `PodsStuck` names pods that the API server refuses to end or delete, " +
			"such as one as large as etcd allows: make it smaller. All others were moved. Or run `forcefence release " +
			"NODE`.",
	},
	{
		Reason: Failing, Severity: Warning,
		Text: "A step of this node's recovery has failed at every attempt for a minute: {detail}. It is retried.",
		Remedy: "The Event has the API server's answer. Often a webhook's backend ran on the dead node, an " +
			"admission policy rejects the write, or forcefence lacks a right. Repair or delete what rejects it: the " +
			"recovery continues by itself.",
	},
	{
		Reason: NoHook, Severity: Warning,
		Text: "This node has no hook that holds its pods at a boot: if its machine boots before the mark is " +
			"removed, they start again beside their replacements. Disable automatic power-on until then (the BMC's " +
			"power restore policy). For the next time, install the hook.",
		Remedy: "Disable automatic power-on until the mark is removed (the BMC's power restore policy). Install " +
			"the hook.",
	},
	{
		Reason: PoweredOff, Severity: Warning,
		Text: "Fence {fence} ended ({why}). These devices accepted a power-off, or may have: {detail}. If one is " +
			"still off, turn it on again, unless afterFence turns it on.",
		Remedy: "`forcefence drill NODE` shows each device, and `forcefence power on NODE --yes` turns the machine " +
			"on. Only for power strips: an outlet that stays off leaves a running machine on one power supply, so " +
			"turn the outlet on, too.",
	},
	{
		Reason: OddLease, Severity: Warning,
		Text: "The node's Lease names a duration that is not between {min} and {max}: {default} is used instead " +
			"(nodeLeaseDurationSeconds of its kubelet).",
		Remedy: "Correct `nodeLeaseDurationSeconds` of its kubelet.",
	},
	{
		Reason: LongLease, Severity: Warning,
		Text: "The node's Lease names a duration of {detail}, longer than those of other nodes: the silence of " +
			"this node is noticed as late (nodeLeaseDurationSeconds of its kubelet).",
		Remedy: "If you did not want that, correct `nodeLeaseDurationSeconds` of its kubelet.",
	},
	{
		Reason: MachineOfSilent, Severity: Warning,
		Text: "Node {detail} is silent and may be the same machine: both report one system UUID, or lead to one " +
			"machine. While this node is heard, node {detail} is not recovered.",
		Remedy: "If the host was renamed, delete the Node of the old name, and name the new one in the list or " +
			"template. If two machines report one system UUID, give each its own. If neither is so, this node's " +
			"kubelet reports another machine's UUID.",
	},
	{
		Reason: NotBelieved, Severity: Warning,
		Text: "The node could not be fenced now: {detail}.",
		Remedy: "The node's machine, or its system UUID, changed while the node looked dead, or another node has " +
			"that machine. If the change is right, run `kubectl label node NODE " +
			"forcefence.node-restriction.kubernetes.io/machine-` once the node is healthy.",
	},
	{
		Reason: NoPowerOff, Severity: Warning,
		Text: "The node's machine could not be powered off now: {detail}.",
		Remedy: "The text has the reason. A node that names its machine itself is pinned while it is healthy. Or " +
			"map it by `list`.",
	},
	{
		Reason: Repinned, Severity: Warning,
		Text: "The node now leads to another machine, {detail}, and is healthy: forcefence believes the new " +
			"machine from now on.",
		Remedy: "If this was not changed on purpose, look at the node.",
	},
	{
		Reason: OutByOther, Severity: Warning,
		Text: "The node has the taint node.kubernetes.io/out-of-service: {detail}. Stock controllers delete its " +
			"pods and detach its volumes as if its machine were off.",
		Remedy: "If the machine runs, take the taint off (`kubectl taint node NODE " +
			"node.kubernetes.io/out-of-service-`), and keep that client from setting it: Harvester by its setting " +
			"`vm-force-reset-policy`. The chart's `admissionPolicies.outOfServiceGuard` refuses such a taint.",
	},
	{Reason: Answers, Severity: Info, Text: "{detail}"},
	{
		Reason: NotAnswering, Severity: Warning,
		Text:   "{detail}",
		Remedy: "Look at the device, and at the network to it.",
	},
	{
		Reason: Fenced, Severity: Warning,
		Text: "The machine of node {node} is off ({detail}): the pod was ended so that it can run elsewhere " +
			"(fence {fence}).",
	},
	{
		Reason: StorageNotFenced, Severity: Warning,
		Text: "A policy ends pods of this node once its storage has cut the node off: {detail}.",
		Remedy: "`kubectl describe networkfences` has the driver's answer. `forcefence explain NODE` names the " +
			"addresses that would be cut off, or why there are none.",
	},
	{
		Reason: StorageUnfenced, Severity: Info,
		Text: "The storage lets this node in again ({detail}): its machine has booted since it was cut off, or " +
			"it never was.",
	},
	{
		Reason: StorageFenceKept, Severity: Warning,
		Text: "The storage keeps this node cut off ({detail}).",
		Remedy: "Reboot the machine: what it had mounted cannot be used any more. If another NetworkFence is " +
			"named, end that one first. If the machine is gone for good, set `fenceState: Unfenced` in the " +
			"NetworkFence, and delete it when its message is `unfencing operation successful`.",
	},
	{
		Reason: HandedOver, Severity: Warning,
		Text: "Karpenter is told to replace the machine of this node ({detail}): its fence has ended, and the " +
			"node has shown no life since.",
	},
	{
		Reason: PolicyYields, Severity: Warning,
		Text: "A policy would end pods of this node, but ends none: {detail}.",
		Remedy: "Two that end the same pods hide from each other what happened. Set Longhorn's setting to " +
			"`do-nothing`, or remove the policy. `Forbidden`: the chart grants the right to read the setting for a " +
			"policy with `preset: longhorn`.",
	},
	{
		Reason: PolicyWaits, Severity: Warning,
		Text: "Policies end no pods without proof now: {detail}. This is reported once for all nodes that it " +
			"concerns.",
		Remedy: "Look at the network between the nodes and the API server, and at the site. Policies continue by " +
			"themselves once at least half of the nodes are heard and no failure domain is lost. Pods of a machine " +
			"that is proven off are moved in any case.",
	},
	{
		Reason: PolicyEnded, Severity: Warning,
		Text: "Node {node} looks dead: the pod was ended so that it can run elsewhere ({detail}). Its machine " +
			"may still run.",
	},
	{
		Reason: PolicySkipped, Severity: Info,
		Text: "A policy leaves pods of this node alone: {detail}.",
		Remedy: "A pod that tolerates the mark stays on the node: give it only the tolerations that it needs, by " +
			"key. A pod whose volumes are not known to be healthy is checked again after expiryInterval.",
	},
	{
		Reason: PolicyTimedOut, Severity: Warning,
		Text: "The API server refused what a policy wanted to do ({detail}). The policy tries again once this " +
			"node's storage was healthy, or after expiryInterval.",
		Remedy: "The log has the cause: an admission webhook, or a right that the controller lacks. Until then " +
			"these pods wait for proof that their machine is off, like all others.",
	},
	{
		Reason: FinalizersKeep, Severity: Warning,
		Text: "The pod was ended and deleted, and can never start again. Its name stays taken until its " +
			"finalizers are removed: {detail}.",
		Remedy: "Find out who set the finalizers.",
	},
	{
		Reason: ConfigRejected, Severity: Warning,
		Text: "The changed configuration file is rejected, and the previous one stays in force: {detail}.",
		Remedy: "`forcefence check-config --skip-files FILE` prints every fault with its line. Correct the file: " +
			"forcefence reads it again by itself.",
	},
	{
		Reason: WatchesBehind, Severity: Warning,
		Text: "etcd was restored from an older backup, and watches from before receive nothing: {detail}. This " +
			"controller ends and starts again with new watches.",
		Remedy: "Restart all API servers, unless that was done since the restore. Then restart what has watched " +
			"since before it: kube-controller-manager, kube-scheduler, kubelets, operators. Next time, restore with " +
			"`etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted`: then every watch ends, and all " +
			"clients list again.",
	},
	{
		Reason: DrainHeld, Severity: Warning,
		Text: "A drain of this node waits for data that would be lost with it (drain guard {by}): {detail}. To " +
			"see its progress: forcefence drain status {node}.",
		Remedy: "Wait, or see with `forcefence drain status` which volumes hold it up. A policy that evicts " +
			"replicas moves them by itself. Otherwise move them, or make the volumes' other replicas healthy.",
	},
	{
		Reason: DrainAllowed, Severity: Info,
		Text: "A drain of this node no longer waits for its data (drain guard {by}): {detail}.",
	},
	{
		Reason: EvictionAutomatic, Severity: Info,
		Text: "Node {node} is cordoned: the replica of volume {detail} is asked to leave it (drain guard {by}).",
	},
	{
		Reason: EvictionCanceled, Severity: Info,
		Text: "The replica of volume {detail} on node {node} no longer has to leave it: the request is canceled " +
			"(drain guard {by}). A copy that was begun goes on.",
	},
	{
		Reason: DrainPolicySet, Severity: Info,
		Text: "The storage system's drain policy is now {detail} (drain guard {by}).",
	},
	{
		Reason: DrainPolicyConflict, Severity: Warning,
		Text: "The storage system's drain policy is not changed (drain guard {by}): {detail}. forcefence does " +
			"not overwrite what another client chose.",
		Remedy: "Set it to the drain item's policy yourself, or back to what forcefence wrote (annotation " +
			"`forcefence.io/drain-policy`), or correct the item.",
	},
	{
		Reason: DrainNotOurs, Severity: Warning,
		Text: "A PodDisruptionBudget that is not forcefence's selects a storage pod on this node: {detail}. " +
			"forcefence creates none beside it, because a pod with two can never be evicted. That budget alone " +
			"decides whether a drain waits for the node's data.",
		Remedy: "To let forcefence guard the drain, delete that PodDisruptionBudget, or make it select other pods.",
	},
	{
		Reason: DrainNotGuarded, Severity: Warning,
		Text: "No PodDisruptionBudget can hold up a drain of this node for its storage: {detail}.",
		Remedy: "Correct `identity` and `pods` of the drain item. `kubectl drain` does not evict a DaemonSet's " +
			"pods, so it does not wait for them.",
	},
	{
		Reason: LeftBehind, Severity: Warning,
		Text: "{detail}",
		Remedy: "Its node came back, but the pod could not be deleted (it was ended, and never starts again) or " +
			"marked as spared (it lives). Or its node is off, and the pod, which stays there, could not be set not " +
			"ready. Look at its size and at admission webhooks.",
	},
	{
		Reason: AttachmentLeft, Severity: Warning,
		Text: "{detail}",
		Remedy: "No pod of the fence used that volume, so the fence did not wait for it. If its CSI driver is " +
			"still installed, look at the driver's controller. If the driver is gone, remove the attachment's " +
			"finalizers and delete it.",
	},
	{
		Reason: GoneAttached, Severity: Warning,
		Text: "The Node was deleted, and volumes are still attached to it: {detail}. Kubernetes detaches a " +
			"volume six minutes after its pod is gone.",
		Remedy: "Wait. Or, if the machine is off, delete the VolumeAttachments that name the Node once its pods " +
			"are gone. `onDetachTimeout: delete-attachments` does so by itself, with a proof. Next time, let the " +
			"fence end before the Node is deleted.",
	},
	{Reason: GoneDetached, Severity: Info, Text: "No volume is attached to this deleted Node any more: {detail}."},
}

// LimitReasons are the reasons why a power-off of ours is refused or delayed because of other nodes.
var LimitReasons = []Reason{
	ControlPlane, AllStale, MostStale, PowerOffLimit, CutOff, DomainLost, DevicesCut, TooFewHealthy, Quorum, CoolDown,
}
