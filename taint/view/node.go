package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// State is the state of a node, in one word of a closed set.
type State string

// The states. Meanings explains them.
const (
	StateNeedsPerson State = "needs_a_person" // it stays as it is until a person does something
	StateFencing     State = "fencing"        // its fence is not done, or it is marked
	StateNotReady    State = "not_ready"      // it is not Ready, no fence is open, and that is expected or just began
	StateUnfenceable State = "unfenceable"    // it is Ready, and could not be fenced now, or no drill has run
	StateLeftAlone   State = "left_alone"     // it is Ready, and no fence would begin
	StateFine        State = "fine"
)

// DisplayName returns the state as people read it.
func (s State) DisplayName() string { return strings.ReplaceAll(string(s), "_", " ") }

// DisplayCount returns so many nodes of the state as people read it: "1 needs a person", "2 need a person".
func (s State) DisplayCount(n int) string {
	words := s.DisplayName()
	if s == StateNeedsPerson && n != 1 {
		words = "need a person"
	}
	return strconv.Itoa(n) + " " + words
}

// States returns all of them, in the order of Meanings.
func States() (all []State) {
	for _, m := range Meanings() {
		all = append(all, m.State)
	}
	return all
}

// NodeFacts is what is known of one node.
type NodeFacts struct {
	Node        *corev1.Node
	Key         string  // the mark's
	Events      []Event // about the Node, by any writer; nil: not read. They explain a state, and never decide it
	NeedsPerson string  // why a person should look, by its open fence's Fencing; "": no reason, or not read
	// NeedsPersonSince is since when, by the same Fencing; zero: unknown.
	NeedsPersonSince time.Time
	// Waiting are the VolumeAttachments that its open fence waits for, by the same Fencing.
	Waiting  []api.Attachment
	NoDevice string // why the configuration gives it no device; "": it has one, or the configuration was not read
	Excluded string // why the configuration excludes it from fencing; "": it does not, or it was not read
	Paused   string // what pauses fencing for all nodes; "": nothing, or not read
	// Leaderless reports that no controller leads; false: one does, or there is no Lease, or it was not read.
	Leaderless bool
	// ConfigSince is when the leader's configuration was put in force; zero: unknown. See Cluster.ConfigSince.
	ConfigSince time.Time
	// ReadsConfirmation reports that one of its devices is of a provider of type confirm; false: none, or not read.
	ReadsConfirmation bool
	// HeldBack is what the leader's storm guard holds back; nil: nothing, or not read.
	HeldBack  *HeldBack
	Namespace string // the controller's; "": defaultNamespace
	Now       time.Time
}

// Node is the summary of a node, as JSON has it. Texts may come from any writer: code that shows them on a terminal
// must filter them.
type Node struct {
	Node       string       `json:"node"`
	State      State        `json:"state"`
	Since      *time.Time   `json:"since,omitempty"` // when it came into that state; nil: unknown
	Ready      string       `json:"ready"`           // True, False or Unknown
	ReadySince *time.Time   `json:"readySince,omitempty"`
	Machine    MachinePower `json:"machine"`
	Fenceable  string       `json:"fenceable"`        // True, False or Unknown; "" if no controller reported it
	Partly     bool         `json:"partly,omitempty"` // it is Fenceable, and only some of its devices answer
	// Protection: FailClosed, FailOpen or None; "" if the node's hook never reported
	Protection string     `json:"protection"`
	Mark       string     `json:"mark,omitempty"`
	Fence      *NodeFence `json:"fence,omitempty"`
	Broken     string     `json:"broken,omitempty"`    // why its fence's record is unreadable
	LeftAlone  string     `json:"leftAlone,omitempty"` // why no fence of it begins; "": one may, or a pause of all
	// EndedPause is its own pause, which pauses nothing: its end has passed. "": none.
	EndedPause string   `json:"endedPause,omitempty"`
	Mode       string   `json:"mode,omitempty"`     // what its annotation lowers its mode to
	Policies   []string `json:"policies,omitempty"` // policies that ended pods without proof since it is not Ready
	Draining   bool     `json:"draining,omitempty"` // forcefence holds up its drain
	Event      *Event   `json:"event,omitempty"`
	Next       string   `json:"next,omitempty"` // "" if nothing comes next
	// Runbook is the section of docs/runbook.md that is about the node's state; "" if none is.
	Runbook reason.Section `json:"runbook,omitempty"`
	// Command is what a person runs first. It changes nothing unless it ends in --yes. "": none.
	Command string `json:"command,omitempty"`

	verdict verdict
}

// Command is a command that a person may run for a node. The zero value is none.
type Command struct {
	Purpose string // what it is for, or when to run it, without a full stop
	Line    string
}

// MachinePower is the power state of a node's machine as last observed.
type MachinePower struct {
	Power string `json:"power"`        // On, Off, Changing or Unknown
	By    string `json:"by,omitempty"` // the device that reported it, or the answer of each of several
	// Former is the power at At of a node whose Power is Unknown because it is not Ready since a later time; "": none.
	Former string `json:"former,omitempty"`
	// From is "drill" if it was so at that time and in every drill since, "fence" if it was asked at that time.
	From string     `json:"from,omitempty"`
	At   *time.Time `json:"at,omitempty"`
}

// isChanging reports whether a device said at At that the machine is going on or off.
func (m MachinePower) isChanging() bool {
	return m.Power == providers.PowerChanging.String() && m.At != nil
}

// NodeFence is the node's last fence, as its record has it.
type NodeFence struct {
	ID         string    `json:"id"`
	Phase      string    `json:"phase"`
	Result     string    `json:"result,omitempty"`
	Since      time.Time `json:"since"`
	At         time.Time `json:"at"` // when the phase was entered
	By         string    `json:"by"`
	Device     string    `json:"device,omitempty"`
	PowerOff   bool      `json:"powerOff,omitempty"`
	AfterFence string    `json:"afterFence,omitempty"`
	WaitsFor   []string  `json:"waitsFor,omitempty"` // volumes to detach, where nothing else is left to do
	// Attachments are, of a fence that needs a person, the VolumeAttachments that it waits for.
	Attachments []api.Attachment `json:"attachments,omitempty"`
}

// NodeOf summarizes a node. It does not change its input.
func NodeOf(s NodeFacts) Node {
	rec, err := taint.RecordOf(s.Node)
	n := Node{
		Node:      s.Node.Name,
		Machine:   machineOf(s.Node, rec),
		LeftAlone: cmp.Or(fence.ExclusionReason(s.Node, s.Now), s.Excluded),
		Draining:  s.Node.Annotations[taint.DrainAnnotation] != "",

		EndedPause: fence.EndedPause(s.Node, s.Now),
	}
	state := taint.Condition(s.Node, corev1.NodeReady)
	if at := state.LastTransitionTime.UTC(); !at.IsZero() {
		n.ReadySince = &at
	}
	fenceable := taint.Condition(s.Node, taint.FenceableCondition)
	n.Ready, n.Fenceable = cmp.Or(string(state.Status), string(corev1.ConditionUnknown)), string(fenceable.Status)
	on := n.Machine.Power == providers.PowerOn.String() &&
		taint.Condition(s.Node, taint.PoweredOnCondition).Status == corev1.ConditionTrue
	if _, n.Protection = taint.ProtectionOf(s.Node); err != nil {
		n.Broken = err.Error()
	}
	mark, marked := taint.FindMark(s.Node, s.Key, rec.IDOr(""))
	if marked {
		n.Mark = cmp.Or(mark.Value, "-")
	}
	if lowered := (fence.ChosenMode{Mode: fence.Fence}).LoweredBy(s.Node.Annotations); lowered.Mode != fence.Fence {
		n.Mode = lowered.Mode.String()
	}
	if rec != nil {
		n.Fence = &NodeFence{
			ID: rec.ID, Phase: string(rec.Phase), Result: string(rec.Result), Since: rec.Since, At: rec.At,
			By: rec.By, Device: rec.Device, PowerOff: rec.PowerOff, AfterFence: string(rec.AfterFence),
		}
		for _, d := range rec.Detaching {
			n.Fence.WaitsFor = append(n.Fence.WaitsFor, d.PV)
		}
		if s.NeedsPerson != "" {
			n.Fence.Attachments = s.Waiting
		}
	}
	ready := n.Ready == string(corev1.ConditionTrue)
	if !ready {
		for _, u := range taint.NewLook(s.Node, nil, s.Key, taint.Instant{}, taint.Instant{}).Unproven {
			if u.NodeUID == string(s.Node.UID) && n.ReadySince != nil && u.Since.Equal(*n.ReadySince) {
				n.Policies = append(n.Policies, u.Policy)
			}
		}
	}
	answers := drill.AnswersIn(s.Node)
	n.Partly = n.Fenceable == string(corev1.ConditionTrue) && answers.IsPartial()
	why := s.findExplanation(n, rec, marked)
	v := s.assess(n, rec, fenceable, why, marked, ready, on)
	n.verdict = v
	n.State, n.Next, n.Runbook, n.Command = v.state, v.advise(), v.section, v.first.Line
	n.Since = s.stateSince(n, rec, fenceable)
	if n.State != StateFine {
		if n.Event = why; why == nil {
			n.Event = NewestOwnEvent(s.Events)
		}
	}
	return n
}

// findExplanation returns forcefence's newest Event that explains the node's fence or outage; nil: there is none. An
// Event of a drill explains neither. Nor does one from before the fence's phase, or before the kubelet's last status.
// Nor does one by which no device knew the power, if a device has said it since.
func (s NodeFacts) findExplanation(n Node, rec *taint.Record, marked bool) *Event {
	var since time.Time
	switch {
	case rec.IsOpen():
		since = rec.At.Truncate(time.Second)
	case n.ReadySince != nil:
		// forcefence notices the silence by the Lease, before the node becomes not Ready.
		since = *n.ReadySince
		ready := taint.Condition(s.Node, corev1.NodeReady)
		if beat := ready.LastHeartbeatTime.Time; ready.Status != corev1.ConditionTrue && !beat.IsZero() &&
			beat.Before(since) {
			since = beat
		}
		if ended := rec; ended != nil && !marked && ended.At.Add(-time.Second).After(since) {
			since = ended.At.Add(-time.Second)
		}
	}
	return NewestOwnEvent(slices.DeleteFunc(slices.Clone(s.Events), func(e Event) bool {
		why := reason.Reason(e.Reason)
		state := reason.RowOf(why).State
		known := n.Machine.Power != providers.PowerUnknown.String() && n.Machine.At != nil
		return e.At.Before(since) || state == "" && reason.PersonSection(why) == "" ||
			state == reason.StateUnproven && known && e.At.Before(*n.Machine.At)
	}))
}

// stateSince returns when the node came into its state; nil if no fact says so.
func (s NodeFacts) stateSince(n Node, rec *taint.Record, fenceable corev1.NodeCondition) *time.Time {
	var since time.Time
	latest := func(at time.Time) {
		if at.After(since) {
			since = at.UTC()
		}
	}
	if n.ReadySince != nil {
		latest(*n.ReadySince)
	}
	switch n.State {
	case StateFencing:
		if since = (time.Time{}); rec.IsOpen() {
			latest(rec.At)
		}
	case StateNotReady:
		if rec != nil {
			latest(rec.At)
		}
	case StateUnfenceable, StateFine:
		latest(fenceable.LastTransitionTime.Time)
		if rec != nil {
			latest(rec.At)
		}
	case StateNeedsPerson:
		if since = n.verdict.since; since.IsZero() {
			return nil
		}
	default:
		return nil
	}
	if since.IsZero() {
		return nil
	}
	return &since
}

// verdict is a node's state, and what comes next.
type verdict struct {
	state   State
	section reason.Section // "": no section of the runbook is about it
	next    string
	first   Command   // what a person begins with
	then    Command   // what ends the matter, once its purpose holds
	since   time.Time // when the node began to need a person; zero: unknown, or it needs none
}

// advise says what comes next. It does not name the command that a person begins with.
func (v verdict) advise() string {
	if v.then.Line == "" {
		return v.next
	}
	return v.next + " " + v.then.Purpose + ": " + v.then.Line
}

// begin returns a verdict with the command with which a person begins in that section.
func (s NodeFacts) begin(state State, section reason.Section, next string) verdict {
	v := verdict{state: state, next: next, section: section}
	switch section {
	case reason.SectionMarkStuck, reason.SectionNoLeader:
		v.first = Command{"What its fence has done", "forcefence timeline " + s.Node.Name}
	case reason.SectionProofLost, reason.SectionDistrusted:
		v.first = Command{"What each device says", s.inController("drill " + s.Node.Name)}
	case reason.SectionUnproven, reason.SectionStorm, reason.SectionLeftOn, reason.SectionDrillFailing,
		reason.SectionNothing:
		v.first = Command{"What its devices answer now", s.inController("explain " + s.Node.Name)}
	}
	return v
}

// offerMark adds to a verdict how a person says that the machine is off. It offers nothing if a device says that the
// machine is on, or if a mark would not be taken up. Where a provider of type confirm reads the person's word, it is
// evidence like a device's: a mark would go round the other devices.
func (s NodeFacts) offerMark(n Node, failed reason.Reason, why *Event, v verdict) verdict {
	if why == nil && n.Machine.Power == providers.PowerOn.String() || drill.AnswersIn(s.Node).Shadow {
		return v // without an Event since, the drill's On is the last word
	}
	says := []reason.State{reason.RowOf(failed).State}
	if why != nil {
		says = append(says, reason.RowOf(reason.Reason(why.Reason)).State)
	}
	on := slices.Contains(says, reason.StateDisagree) || slices.Contains(says, reason.StateStillOn)
	if v.section == reason.SectionUnproven && !on {
		v.then = Command{"If you see that the machine is off, say so",
			"kubectl taint node " + s.Node.Name + " " + s.Key + "=manual:NoSchedule"}
		if s.ReadsConfirmation {
			v.then.Line = "forcefence confirm-off " + s.Node.Name + " --reason TEXT"
		}
	}
	return v
}

// inController returns a command that runs forcefence in the controller's pod.
func (s NodeFacts) inController(args string) string { return inController(s.Namespace, args) }

// needPerson returns the verdict on a node that needs a person since then. An Event that explains why has the text and
// the section of the runbook. Without one, both are the given ones.
func (s NodeFacts) needPerson(since time.Time, why *Event, section reason.Section, text string) verdict {
	if why != nil {
		section = cmp.Or(reason.PersonSection(reason.Reason(why.Reason)), reason.SectionNothing)
		if text = s.withAdvice(reason.Reason(why.Reason), why.Text); strings.HasPrefix(
			PlainRemedy(reason.Reason(why.Reason)), "No action:") { // "No action if intended" does not go on
			text = why.Text + " It should have gone on by itself: look at its machine."
		}
	}
	v := s.begin(StateNeedsPerson, section, text)
	v.since = since
	return v
}

// assess returns the node's state, what comes next, and where a person begins.
func (s NodeFacts) assess(
	n Node,
	rec *taint.Record,
	fenceable corev1.NodeCondition,
	why *Event,
	marked, ready, on bool,
) verdict {
	release := "forcefence release " + n.Node + " --yes"
	lied := rec != nil && len(rec.DistrustedDevices()) > 0
	failed := reason.Reason(fenceable.Reason)
	switch {
	case n.Broken != "":
		v := s.begin(StateNeedsPerson, reason.SectionMarkStuck,
			fmt.Sprintf("The record of its fence cannot be read (%s): a newer version wrote it, or it was edited.",
				n.Broken))
		v.then = Command{"Only if you know that no newer controller leads", release}
		return v
	case s.alertReason() != "":
		alert := s.alertReason()
		text := strings.ReplaceAll(reason.RowOf(alert).Text, " ({detail})", "")
		if strings.Contains(text, "{") {
			text = "A person should look: " + string(alert) + "."
		}
		section := cmp.Or(reason.PersonSection(alert), reason.SectionMarkStuck)
		return s.needPerson(s.NeedsPersonSince, s.findOwnEvent(alert, rec), section, s.withAdvice(alert, text))
	case s.NeedsPerson != "":
		v := s.begin(StateNeedsPerson, reason.SectionMarkStuck, "A person should look: "+withoutReason(s.NeedsPerson))
		v.since = s.NeedsPersonSince
		if len(s.Waiting) > 0 {
			if look := s.Waiting[0].LookCommand(); look != "" {
				v.first = Command{"Why its volume stays attached", look}
			}
		}
		return v
	case rec.IsOpen() || marked:
		return s.assessFence(n, rec, why, ready)
	case rec != nil && rec.Result == taint.ResultNeverPoweredOff || lied:
		v := s.begin(StateNeedsPerson, reason.SectionDistrusted,
			"A device said Off while the machine was on, and is not trusted.")
		if rec.Result == taint.ResultNeverPoweredOff {
			v.since = rec.At
		}
		v.then = Command{"Once it is repaired", release}
		return v
	case !ready && rec != nil && rec.AfterFence == taint.AfterFenceFencedAgain:
		return s.needPerson(rec.At, nil, reason.SectionNothing, s.withAdvice(reason.FencedAgain,
			"Its machine stays off: it was powered on, and needed another fence soon after."))
	case !ready && s.failsToReturn(rec):
		return s.needPerson(rec.LastPowerOn().Add(returnsWithin), why, reason.SectionNothing,
			s.withAdvice(reason.NotBack, reason.RowOf(reason.NotBack).Text))
	case !ready && rec != nil && rec.AfterFence == taint.AfterFencePowerOn:
		if s.Leaderless {
			return verdict{state: StateNotReady, next: "Its machine may stay off, because no controller leads."}
		}
		return verdict{state: StateNotReady, next: "Its machine is being powered on; then its node comes back."}
	case !ready && n.LeftAlone != "":
		return s.begin(StateNotReady, reason.SectionLeftAlone, "No fence begins: "+n.LeftAlone+".")
	case !ready && why != nil && reason.Reason(why.Reason) == reason.Excluded && s.Paused == "":
		return s.begin(StateNotReady, reason.SectionLeftAlone, s.withAdvice(reason.Excluded, why.Text))
	case !ready:
		return s.offerMark(n, failed, why, s.assessNotReady(n, rec, fenceable, why, on))
	case n.LeftAlone != "":
		return verdict{state: StateLeftAlone, next: "No fence begins: " + n.LeftAlone + "."}
	case s.isOutdated(fenceable) && n.Mode == "" && s.whyNoneBegins() == "":
		state := StateUnfenceable
		if n.Fenceable == string(corev1.ConditionTrue) {
			state = StateFine
		}
		return verdict{state: state, next: DrilledBefore + " They are asked again within minutes."}
	case failed == reason.ModeDisabled:
		return verdict{state: StateLeftAlone, next: fenceable.Message}
	case n.Fenceable == "" && s.NoDevice == "":
		return verdict{state: StateUnfenceable, next: "No controller has asked its devices yet."}
	case n.Fenceable == "" || failed == reason.NoMachine:
		return s.begin(StateUnfenceable, reason.SectionDrillFailing, s.adviseDevice(fenceable))
	case n.Fenceable != string(corev1.ConditionTrue):
		return s.begin(StateUnfenceable, reason.SectionDrillFailing, s.adviseDrill(fenceable))
	case drill.AnswersIn(s.Node).Shadow:
		return verdict{state: StateLeftAlone, next: describeShadow}
	case n.Mode != "":
		return verdict{state: StateLeftAlone, next: describeMode(n.Mode)}
	case s.whyNoneBegins() != "":
		return verdict{state: StateLeftAlone, next: s.whyNoneBegins()}
	case n.Partly:
		return s.begin(StateFine, reason.SectionDrillFailing, s.addRemedy(
			"Some of its devices give no answer that counts: "+s.describeAnswers()+".",
			DrillRemedy(s.Node, reason.NotAnswering)))
	case n.EndedPause != "":
		return verdict{state: StateFine, next: "Its pause pauses nothing any more: " + n.EndedPause +
			". To remove it: forcefence resume " + n.Node}
	default:
		return verdict{state: StateFine}
	}
}

// alertReason returns the reason of which NeedsPerson consists alone; "": it says more.
func (s NodeFacts) alertReason() reason.Reason {
	return reason.RowOf(reason.Reason(s.NeedsPerson)).Reason
}

// withoutReason returns an alert without the reason's name before its detail, which says more.
func withoutReason(alert string) string {
	name, detail, found := strings.Cut(alert, ": ")
	if found && reason.RowOf(reason.Reason(name)).Reason != "" {
		return detail
	}
	return alert
}

// findOwnEvent returns forcefence's newest Event of that reason in the phase of the fence; nil: there is none.
func (s NodeFacts) findOwnEvent(why reason.Reason, rec *taint.Record) *Event {
	return NewestOwnEvent(slices.DeleteFunc(slices.Clone(s.Events), func(e Event) bool {
		return e.Reason != string(why) || rec.IsOpen() && e.At.Before(rec.At.Truncate(time.Second))
	}))
}

// describeShadow is what is next for a node in mode shadow.
const describeShadow = "Its mode is shadow: forcefence says what it would do, and does nothing."

// describeMode is what is next for a node with that mode by its annotation.
func describeMode(mode string) string { return "An annotation keeps its mode at " + mode + "." }

// describeLeaderless is what is next for a fence or a mark without a leader.
const describeLeaderless = "Its fence waits, because no controller leads."

// whyNoneBegins says why no fence of any node begins now; "": one may.
func (s NodeFacts) whyNoneBegins() string {
	switch {
	case s.Leaderless:
		return "No fence begins, because no controller leads."
	case s.Paused != "":
		return "No fence begins, because fencing is paused for all nodes."
	default:
		return ""
	}
}

// DrilledBefore says that a node's last drill is of the configuration before.
const DrilledBefore = "Its devices were last asked before the configuration changed."

// isOutdated reports whether the node's last drill is older than the configuration in force.
func (s NodeFacts) isOutdated(fenceable corev1.NodeCondition) bool {
	return drill.IsOlder(fenceable, s.ConfigSince)
}

// isShadow reports whether the node's mode is shadow, as far as it is known.
func (s NodeFacts) isShadow(n Node, fenceable corev1.NodeCondition) bool {
	return n.Mode == fence.Shadow.String() || drill.AnswersIn(s.Node).Shadow && !s.isOutdated(fenceable)
}

// describeAnswers returns what each of the node's devices answered in its last drill.
func (s NodeFacts) describeAnswers() string { return drill.AnswersIn(s.Node).Describe() }

// DrillRemedy returns what to do about a drill that ended for that reason, without Markdown.
func DrillRemedy(n *corev1.Node, why reason.Reason) string {
	if do := drill.AnswersIn(n).Remedy(); do != "" && why == reason.NotAnswering {
		return do
	}
	return PlainRemedy(why)
}

// adviseDrill returns the message of a drill that failed, and what to do about it.
func (s NodeFacts) adviseDrill(fenceable corev1.NodeCondition) string {
	why := reason.Reason(fenceable.Reason)
	return s.addRemedy(fenceable.Message, DrillRemedy(s.Node, why))
}

// adviseDevice says why the node has no device, and what to do about it.
func (s NodeFacts) adviseDevice(fenceable corev1.NodeCondition) string {
	why := strings.TrimPrefix(strings.TrimSuffix(cmp.Or(fenceable.Message, s.NoDevice), "."),
		"finding the machine of node "+s.Node.Name+": ")
	return "No device: " + why + ". " + NoDeviceRemedy
}

// NoDeviceRemedy is what to do about a node without a device, or with two.
const NoDeviceRemedy = "Add or correct its rule under nodes in the configuration: forcefence discover writes one " +
	"from what it finds."

// assessFence assesses a node with an unfinished fence or a mark.
func (s NodeFacts) assessFence(n Node, rec *taint.Record, why *Event, ready bool) verdict {
	device := "its device"
	if rec != nil && rec.Device != "" {
		device = rec.Device
	}
	fencing := func(text string, words ...any) verdict {
		if s.Leaderless {
			return verdict{state: StateFencing, next: describeLeaderless}
		}
		v := verdict{state: StateFencing, next: fmt.Sprintf(text, words...)}
		if why != nil {
			if row := reason.RowOf(reason.Reason(why.Reason)); row.Remedy != "" {
				v.next = s.withAdvice(row.Reason, why.Text)
			}
		}
		return v
	}
	switch {
	case !rec.IsOpen() && ready:
		v := s.begin(StateNeedsPerson, reason.SectionNothing,
			"It is marked as shut down, but it is Ready, and no fence has begun. If its machine runs, take the mark "+
				"off.")
		mark, _ := taint.FindMark(s.Node, s.Key, "")
		v.first, v.since = Command{"What taking it off would do", "forcefence release " + n.Node}, mark.TimeAdded.UTC()
		return v
	case !rec.IsOpen() && s.beginsNothing(n):
		return s.needPerson(time.Time{}, nil, reason.SectionNothing, s.withAdvice(reason.MarkNotTaken,
			"It is marked as shut down, but its mode begins nothing."))
	case !rec.IsOpen():
		return fencing("A person marked it; a controller continues from there.")
	case rec.Phase == taint.PhaseArmed && rec.IsVouchedFor() && n.Machine.Power == providers.PowerOn.String():
		return s.needPerson(rec.At, why, reason.SectionNothing, s.withAdvice(reason.Refused,
			"It is marked as shut down, but "+cmp.Or(n.Machine.By, "its device")+" says that its machine is on."))
	case rec.Phase == taint.PhaseEvicting && saysOn(rec):
		return s.needPerson(rec.At, why, reason.SectionProofLost, s.withAdvice(reason.ProofLost,
			"Its machine is no longer proven off: a device says On."))
	case s.Leaderless && s.Now.Sub(rec.At) >= personAfter:
		return s.needPerson(rec.At.Add(personAfter), nil, reason.SectionNoLeader, describeLeaderless)
	case rec.Phase != taint.PhaseEvicting && s.Now.Sub(rec.At) >= personAfter:
		return s.needPerson(rec.At.Add(personAfter), why, reason.SectionUnproven, fmt.Sprintf(
			"Its fence has been in phase %s for more than %s. Find out what %s says. If the device is mute, repair "+
				"it: the fence continues by itself.", rec.Phase,
			decide.FormatCount(int(personAfter/time.Minute), "minute"), device))
	case len(n.Fence.WaitsFor) > 0:
		return fencing("It waits for %s to detach: %s.",
			decide.FormatCount(len(n.Fence.WaitsFor), "volume"), strings.Join(n.Fence.WaitsFor, ", "))
	case rec.Phase == taint.PhasePoweringOff:
		return fencing("Its machine is being powered off; the fence waits until %s says Off.", device)
	case rec.Phase == taint.PhaseArmed:
		return fencing("%s is asked once more; if it says Off, its pods are ended.", device)
	default:
		return fencing("Its pods are ended and deleted, its volumes detached; then the mark is removed.")
	}
}

// beginsNothing reports whether the node's mode begins no fence, so that no controller takes up a mark: by its
// annotation, or as its last drill found it.
func (s NodeFacts) beginsNothing(n Node) bool {
	return n.Mode == fence.Disabled.String() || n.Mode == fence.Shadow.String() || drill.AnswersIn(s.Node).Shadow ||
		reason.Reason(taint.Condition(s.Node, taint.FenceableCondition).Reason) == reason.ModeDisabled
}

// saysOn reports whether the newest answer of a device in the record contradicts the Off that the fence began with.
func saysOn(rec *taint.Record) bool {
	last := map[string]taint.Evidence{}
	for _, e := range rec.Evidence {
		last[e.From] = e
	}
	for _, e := range last {
		if e.ContradictsOff() && !rec.IsVouchedFor() {
			return true
		}
	}
	return false
}

// personAfter is how long a node may be not Ready without a proof until a person is needed, as in the alert
// ForcefenceNodeUnproven.
const personAfter = 5 * time.Minute

// returnsWithin is how long a machine may boot after forcefence powered it on until a person is needed.
const returnsWithin = 2 * personAfter

// failsToReturn reports whether forcefence powered the machine on after the fence, and its node has not come back.
func (s NodeFacts) failsToReturn(rec *taint.Record) bool {
	return rec != nil && !rec.LastPowerOn().IsZero() &&
		(rec.AfterFence == taint.AfterFencePowerOn || rec.AfterFence == taint.AfterFencePoweredOn) &&
		s.Now.Sub(rec.LastPowerOn()) >= returnsWithin
}

// assessNotReady assesses a node that is not Ready and has no open fence. Without a leader, or under a pause of all
// nodes, it says so first. Neither makes the outage one that a person may leave as it is.
func (s NodeFacts) assessNotReady(
	n Node,
	rec *taint.Record,
	fenceable corev1.NodeCondition,
	why *Event,
	on bool,
) verdict {
	none := s.whyNoneBegins()
	if n.endedFence(rec) != "" || none == "" {
		return s.assessOutage(n, rec, fenceable, why, on)
	}
	if why != nil && reason.Reason(why.Reason) == reason.Excluded {
		why = nil // the Event is of the pause, which is said without it
	}
	v := s.assessOutage(n, rec, fenceable, why, on)
	if v.next = none + " " + v.next; v.state == StateNotReady && why == nil {
		v.next = none
	}
	return v
}

// endedFence returns the result of the node's fence that ended in this outage; "": none did.
func (n Node) endedFence(rec *taint.Record) taint.Result {
	if rec == nil || n.ReadySince == nil || rec.At.Before(*n.ReadySince) {
		return ""
	}
	return rec.Result
}

// assessOutage is assessNotReady while a leader may begin fences.
func (s NodeFacts) assessOutage(
	n Node,
	rec *taint.Record,
	fenceable corev1.NodeCondition,
	why *Event,
	on bool,
) verdict {
	var began time.Time // of the outage
	if n.ReadySince != nil {
		began = *n.ReadySince
	}
	ended := n.endedFence(rec)
	waits := n.ReadySince != nil && s.Now.Sub(began) >= personAfter
	off := n.Machine.Power == providers.PowerOff.String() && n.Machine.At != nil && !n.Machine.At.Before(began)
	failed := began // when the drill began to fail in this outage
	if at := fenceable.LastTransitionTime.UTC(); at.After(began) {
		failed = at
	}
	drill := reason.Reason(fenceable.Reason)
	switch {
	case ended == taint.ResultEvicted && isLeftOff(n, rec):
		v := s.begin(StateNotReady, reason.SectionNothing, describeMoved(rec)+" forcefence powered its machine off, "+
			"and left it off. Once it is repaired, power it on.")
		v.first = Command{"To power it on", s.powerOn()}
		return v
	case ended == taint.ResultEvicted:
		return verdict{state: StateNotReady, next: describeMoved(rec) + " Look at its machine."}
	case ended == taint.ResultReleased:
		return verdict{state: StateNotReady, next: "A person released it: it is left alone until it comes back."}
	case ended == taint.ResultPowerOffFailed:
		return s.needPerson(rec.At, why, reason.SectionUnproven,
			s.withAdvice(reason.PowerOffFailed, reason.RowOf(reason.PowerOffFailed).Text))
	case ended == "" && s.HeldBack.holds(n.Node):
		since := s.HeldBack.Since
		if began.After(since) {
			since = began
		}
		return s.needPerson(since, nil, reason.SectionStorm,
			s.withAdvice(s.HeldBack.Rule, s.HeldBack.describeNode()))
	case on:
		return s.needPerson(taint.Condition(s.Node, taint.PoweredOnCondition).LastTransitionTime.UTC(), why,
			reason.SectionLeftOn, describeOn)
	case n.Machine.isChanging() && (why == nil || why.At.Before(*n.Machine.At)): // the Event is of the answer before
		text := fmt.Sprintf("Its machine is going on or off (by %s).", n.Machine.By)
		if !waits {
			return verdict{state: StateNotReady, next: text + " Its devices are asked again."}
		}
		return s.needPerson(began.Add(personAfter), nil, reason.SectionUnproven, text+" If that lasts, reset the BMC, "+
			"or end the task of the hypervisor or cloud that hangs.")
	case n.Mode == fence.Disabled.String():
		return verdict{state: StateNotReady, next: describeMode(n.Mode)}
	case drill == reason.ModeDisabled && !s.isOutdated(fenceable):
		return verdict{state: StateNotReady, next: fenceable.Message}
	case drill == reason.NoMachine || n.Fenceable == "" && s.NoDevice != "":
		v := s.needPerson(began, nil, reason.SectionUnproven, s.adviseDevice(fenceable))
		v.first.Purpose = "Why it has no device"
		return v
	case n.Fenceable == string(corev1.ConditionFalse) && drill != reason.ModeDisabled: // a former mode is no cause
		return s.needPerson(failed, why, reason.SectionUnproven, s.adviseDrill(fenceable))
	case waits && !off && n.Fenceable == string(corev1.ConditionUnknown):
		return s.needPerson(began.Add(personAfter), why, reason.SectionUnproven, s.adviseDrill(fenceable))
	case waits && n.Machine.Power == providers.PowerOn.String():
		return s.needPerson(began.Add(personAfter), why, reason.SectionLeftOn, describeOn)
	case waits && s.isShadow(n, fenceable):
		return s.needPerson(began.Add(personAfter), why, reason.SectionNothing,
			"Its mode is shadow: forcefence does nothing, and its pods wait. Look at its machine.")
	case waits && !off:
		return s.needPerson(began.Add(personAfter), why, reason.SectionUnproven,
			"Nothing proves that its machine is off, so its pods wait. Find out why, or look at the machine.")
	case why != nil:
		return verdict{state: StateNotReady, next: s.withAdvice(reason.Reason(why.Reason), why.Text)}
	default:
		return verdict{state: StateNotReady, next: "A controller asks its devices."}
	}
}

// describeOn is what is next for a silent node whose machine is on.
const describeOn = "It does not answer, but its machine is on: look at its kubelet and network."

// describeMoved says what became of the pods of a node whose fence is over. Whether they run elsewhere is no fact of
// the node: see WaitingPods.
func describeMoved(rec *taint.Record) string {
	if staying := rec.Staying.Advice(); staying != "" {
		return "Its other pods were freed. " + staying
	}
	return "Its pods were freed."
}

// isLeftOff reports whether the node's last fence powered its machine off, and nothing powered it on since.
func isLeftOff(n Node, rec *taint.Record) bool {
	return rec != nil && !rec.IsOpen() && len(rec.PowerOffTo) > 0 && rec.AfterFence == "" &&
		n.Ready != string(corev1.ConditionTrue) && n.Machine.Power != providers.PowerOn.String()
}

// powerOn returns the command that powers the node's machine on.
func (s NodeFacts) powerOn() string { return s.inController("power on " + s.Node.Name + " --yes") }

// PlainRemedy returns what a person does about the reason, as plain text; "": nothing.
func PlainRemedy(why reason.Reason) string {
	return strings.ReplaceAll(reason.RowOf(why).Remedy, "`", "")
}

// withAdvice appends what a person does about the reason and this node to the text, as plain text.
func (s NodeFacts) withAdvice(why reason.Reason, text string) string {
	return s.addRemedy(text, PlainRemedy(why))
}

// addRemedy returns the text with the remedy, which names the node and the mark's key.
func (s NodeFacts) addRemedy(text, remedy string) string {
	do := strings.NewReplacer(" NODE", " "+s.Node.Name, taint.DefaultKey, s.Key).Replace(remedy)
	if text = strings.TrimSpace(text); text != "" && do != "" {
		text += " "
	}
	return text + do
}

// machineOf returns the newest state of the node's machine from a drill, a look at a silent node, and its fence. It is
// unknown if the node has been Ready since the machine was last seen off. It is also unknown if the node has become not
// Ready since a drill, or since the machine was last seen on: then it says nothing about the outage.
func machineOf(node *corev1.Node, rec *taint.Record) MachinePower {
	var all []MachinePower
	for _, c := range node.Status.Conditions {
		at := c.LastHeartbeatTime.UTC()
		switch {
		case c.Type == taint.FenceableCondition:
			answers := drill.AnswersIn(node)
			m := MachinePower{Power: answers.Power.String(), From: "drill", At: &at}
			if answers.Power != providers.PowerUnknown {
				m.By = answers.Describe()
			}
			all = append(all, m)
		case c.Type == taint.PoweredOnCondition && c.Status == corev1.ConditionTrue:
			all = append(all, MachinePower{Power: providers.PowerOn.String(), From: "fence", At: &at})
		}
	}
	if rec != nil {
		for _, e := range informative(rec.Evidence) {
			all = append(all, MachinePower{Power: e.State, By: e.From, From: "fence", At: &e.At})
		}
	}
	if len(all) == 0 {
		return MachinePower{Power: providers.PowerUnknown.String()}
	}
	last := all[0]
	for _, m := range all[1:] {
		if !m.At.Before(*last.At) {
			last = m
		}
	}
	ready := taint.Condition(node, corev1.NodeReady)
	since := ready.LastTransitionTime.Time // which has no fractions
	switch on := last.Power == providers.PowerOn.String(); {
	case ready.Status == corev1.ConditionTrue && last.At.Before(since.Add(time.Second)) &&
		(last.Power == providers.PowerOff.String() || last.Power == providers.PowerChanging.String()):
		return MachinePower{Power: providers.PowerUnknown.String()} // it has come on since
	case ready.Status != corev1.ConditionTrue && last.At.Before(since) && (on || last.From == "drill"):
		if on { // a fence's Off stays: its mark made the node not Ready
			last.Former = last.Power
		}
		last.Power = providers.PowerUnknown.String()
	}
	return last
}

// informative returns the evidence of the machine's power. Unknown of one device, such as a person who was not asked,
// is left out if the last word of another one is not Unknown.
func informative(evidence []taint.Evidence) (out []taint.Evidence) {
	last := map[string]string{} // state by device
	for _, e := range evidence {
		if e.State != "None" {
			last[e.From] = e.State
		}
	}
	known := false
	for _, state := range last {
		known = known || state != providers.PowerUnknown.String()
	}
	for _, e := range evidence {
		if e.State != "None" && !(known && last[e.From] == providers.PowerUnknown.String()) {
			out = append(out, e)
		}
	}
	return out
}
