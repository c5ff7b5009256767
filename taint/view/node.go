package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// State is the state of a node, in one word of a closed set.
type State string

// The states, in the order in which a person wants to see them.
const (
	StateStuck       State = "stuck"       // its fence, or the result of one, needs a person
	StateFencing     State = "fencing"     // its fence is not done, or it is marked
	StateNotReady    State = "not_ready"   // it is not Ready, and no fence is open
	StateUnfenceable State = "unfenceable" // it is Ready, and could not be fenced now, or no drill has run
	StateLeftAlone   State = "left_alone"  // it is Ready, and no fence would begin
	StateFine        State = "fine"
)

// DisplayName returns the state as people read it.
func (s State) DisplayName() string { return strings.ReplaceAll(string(s), "_", " ") }

// States returns all of them, in their order.
func States() []State {
	return []State{StateStuck, StateFencing, StateNotReady, StateUnfenceable, StateLeftAlone, StateFine}
}

// NodeFacts is what is known of one node.
type NodeFacts struct {
	Node        *corev1.Node
	Key         string // the mark's
	Event       *Event // forcefence's newest Event about the Node; nil: none, or not read
	NeedsPerson string // why a person should look, by its open fence's Fencing; "": no reason, or not read
	Now         time.Time
}

// Node is the summary of a node, as JSON has it. Texts may come from any writer: code that shows them on a terminal
// must filter them.
type Node struct {
	Node       string       `json:"node"`
	State      State        `json:"state"`
	Ready      string       `json:"ready"` // True, False or Unknown
	ReadySince *time.Time   `json:"readySince,omitempty"`
	Machine    MachinePower `json:"machine"`
	Fenceable  string       `json:"fenceable"`        // True, False or Unknown; "" if no controller reported it
	Partly     bool         `json:"partly,omitempty"` // it is Fenceable, and only some of its devices answer
	// Protection: FailClosed, FailOpen or None; "" if the node's hook never reported
	Protection string     `json:"guard"`
	Mark       string     `json:"mark,omitempty"`
	Fence      *NodeFence `json:"fence,omitempty"`
	Broken     string     `json:"broken,omitempty"`    // why its fence's record is unreadable
	LeftAlone  string     `json:"leftAlone,omitempty"` // why no fence begins, as far as the Node says
	Mode       string     `json:"mode,omitempty"`      // what its annotation lowers its mode to
	Policies   []string   `json:"policies,omitempty"`  // policies that ended pods without proof since it is not Ready
	Draining   bool       `json:"draining,omitempty"`  // forcefence holds up its drain
	Event      *Event     `json:"event,omitempty"`
	Next       string     `json:"next,omitempty"` // "" if nothing comes next
}

// MachinePower is the power state of a node's machine as last observed.
type MachinePower struct {
	Power string `json:"power"`        // On, Off, Changing or Unknown
	By    string `json:"by,omitempty"` // the device that reported it, or the answer of each of several
	// From is "drill" if it was so at that time and in every drill since, "fence" if it was asked at that time.
	From string     `json:"from,omitempty"`
	At   *time.Time `json:"at,omitempty"`
}

// NodeFence is the node's last fence, as its record has it.
type NodeFence struct {
	ID        string    `json:"id"`
	Phase     string    `json:"phase"`
	Result    string    `json:"result,omitempty"`
	Since     time.Time `json:"since"`
	At        time.Time `json:"at"` // when the phase was entered
	By        string    `json:"by"`
	Device    string    `json:"device,omitempty"`
	PowerOff  bool      `json:"powerOff,omitempty"`
	PostFence string    `json:"after,omitempty"`
	Waits     []string  `json:"waitsFor,omitempty"` // volumes to detach, where nothing else is left to do
}

// NodeOf summarizes a node. It does not change its input.
func NodeOf(s NodeFacts) Node {
	rec, err := taint.RecordOf(s.Node)
	n := Node{
		Node:      s.Node.Name,
		Machine:   machineOf(s.Node, rec),
		LeftAlone: fence.ExclusionReason(s.Node, s.Now),
		Draining:  s.Node.Annotations[taint.DrainAnnotation] != "",
	}
	state := taint.Condition(s.Node, corev1.NodeReady)
	if at := state.LastTransitionTime.UTC(); !at.IsZero() {
		n.ReadySince = &at
	}
	fenceable := taint.Condition(s.Node, taint.FenceableCondition)
	n.Ready, n.Fenceable = cmp.Or(string(state.Status), string(corev1.ConditionUnknown)), string(fenceable.Status)
	on := taint.Condition(s.Node, taint.PoweredOnCondition).Status == corev1.ConditionTrue
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
			By: rec.By, Device: rec.Device, PowerOff: rec.PowerOff, PostFence: string(rec.PostFence),
		}
		for _, d := range rec.Detaching {
			n.Fence.Waits = append(n.Fence.Waits, d.PV)
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
	n.Partly = n.Fenceable == string(corev1.ConditionTrue) && strings.Contains(n.Machine.By, ",") &&
		fenceable.Message != "" && someDisagree(n.Machine)
	n.State, n.Next = s.nextOf(n, rec, fenceable, marked, ready, on)
	if e := s.Event; e != nil && n.State != StateFine {
		n.Event = e
	}
	return n
}

// nextOf returns the node's state, and what comes next.
func (s NodeFacts) nextOf(
	n Node,
	rec *taint.Record,
	fenceable corev1.NodeCondition,
	marked, ready, on bool,
) (State, string) {
	release := "forcefence release " + n.Node + " --yes"
	lied := rec != nil && len(rec.DistrustedDevices()) > 0
	switch {
	case n.Broken != "":
		return StateStuck,
			fmt.Sprintf("The record of its fence cannot be read (%s): a newer version wrote it, or it was edited. "+
				"If no newer controller leads: %s", n.Broken, release)
	case s.NeedsPerson != "":
		return StateStuck, "A person should look: " + s.NeedsPerson
	case rec.IsOpen() || marked:
		return s.nextOfFence(n, rec)
	case rec != nil && rec.Result == taint.ResultNeverPoweredOff || lied:
		return StateStuck,
			"A device said Off while the machine was on, and is not trusted. Once it is repaired: " + release
	case !ready && rec != nil && rec.PostFence == taint.PostFenceFencedAgain:
		return StateStuck, withAdvice(reason.FencedAgain,
			"Its machine stays off: it was powered on, and needed another fence soon after.")
	case !ready && rec != nil && rec.PostFence == taint.PostFencePowerOn:
		return StateNotReady, "Its machine is being powered on; then its node comes back."
	case !ready && n.LeftAlone != "":
		return StateNotReady, "No fence begins, because of its " + n.LeftAlone + "."
	case !ready:
		return StateNotReady, s.nextOfNotReady(n, rec, on)
	case n.Fenceable == "":
		return StateUnfenceable, "No controller has asked its devices yet."
	case n.Fenceable != string(corev1.ConditionTrue):
		return StateUnfenceable, withAdvice(reason.Reason(fenceable.Reason), fenceable.Message)
	case n.LeftAlone != "":
		return StateLeftAlone, "No fence begins, because of its " + n.LeftAlone + "."
	case n.Mode != "":
		return StateLeftAlone, fmt.Sprintf("An annotation keeps its mode at %s.", n.Mode)
	case n.Partly:
		return StateFine, "Not all of its devices answer: " + n.Machine.By + "."
	default:
		return StateFine, ""
	}
}

// nextOfFence returns the state of a node with an unfinished fence or a mark, and what comes next.
func (s NodeFacts) nextOfFence(n Node, rec *taint.Record) (State, string) {
	since := n.ReadySince
	if rec.IsOpen() {
		since = &rec.At
	}
	if e := s.Event; e != nil && (since == nil || !e.At.Before(since.Truncate(time.Second))) {
		row := reason.RowOf(reason.Reason(e.Reason))
		switch {
		case e.Reason == string(reason.NeedsPerson):
			return StateStuck, withAdvice(reason.NeedsPerson, e.Text)
		case row.Remedy != "":
			return StateFencing, withAdvice(row.Reason, e.Text)
		}
	}
	device := "its device"
	if rec != nil && rec.Device != "" {
		device = rec.Device
	}
	switch {
	case !rec.IsOpen():
		return StateFencing, "A person marked it; a controller continues from there."
	case len(n.Fence.Waits) > 0:
		return StateFencing, fmt.Sprintf("It waits for %s to detach: %s.",
			decide.FormatCount(len(n.Fence.Waits), "volume"), strings.Join(n.Fence.Waits, ", "))
	case rec.Phase == taint.PhasePoweringOff:
		return StateFencing, fmt.Sprintf("A power-off is sent; it waits until %s says Off.", device)
	case rec.Phase == taint.PhaseArmed:
		return StateFencing, fmt.Sprintf("%s is asked once more; if it says Off, its pods are ended.", device)
	default:
		return StateFencing, "Its pods are ended and deleted, its volumes detached; then the mark is removed."
	}
}

// nextOfNotReady returns what comes next for a node that is not Ready and has no open fence.
func (s NodeFacts) nextOfNotReady(n Node, rec *taint.Record, on bool) string {
	e := s.Event
	if e != nil && (n.ReadySince != nil && e.At.Before(*n.ReadySince) ||
		rec != nil && e.At.Add(time.Second).Before(rec.At)) {
		e = nil // it is about an earlier outage, or from before its fence ended
	}
	switch {
	case e != nil && reason.RowOf(reason.Reason(e.Reason)).Remedy != "":
		return withAdvice(reason.Reason(e.Reason), e.Text)
	case rec != nil && rec.Result == taint.ResultEvicted && n.ReadySince != nil && !rec.At.Before(*n.ReadySince):
		return "Its pods run elsewhere. Look at its machine."
	case rec != nil && rec.Result == taint.ResultReleased && n.ReadySince != nil && !rec.At.Before(*n.ReadySince):
		return "A person released it: it is left alone until it comes back."
	case rec != nil && rec.Result == taint.ResultPowerOffFailed && n.ReadySince != nil && !rec.At.Before(*n.ReadySince):
		return withAdvice(reason.PowerOffFailed, reason.RowOf(reason.PowerOffFailed).Text)
	case on:
		return "It does not answer, but its machine is on: look at its kubelet and network."
	case n.Fenceable != "" && n.Fenceable != string(corev1.ConditionTrue):
		return "Its last drill failed: `forcefence explain` shows why."
	case e != nil:
		return e.Text
	default:
		return "A controller asks its devices."
	}
}

// PlainRemedy returns what a person does about the reason, as plain text; "": nothing.
func PlainRemedy(why reason.Reason) string {
	return strings.ReplaceAll(reason.RowOf(why).Remedy, "`", "")
}

// withAdvice appends what a person does about the reason to the text, as plain text.
func withAdvice(why reason.Reason, text string) string {
	do := PlainRemedy(why)
	if text = strings.TrimSpace(text); text != "" && do != "" {
		text += " "
	}
	return text + do
}

// machineOf returns the newest state of the node's machine from a drill, a look at a silent node, and its fence. It is
// unknown if the node has been Ready since the machine was last seen off.
func machineOf(node *corev1.Node, rec *taint.Record) MachinePower {
	var all []MachinePower
	for _, c := range node.Status.Conditions {
		at := c.LastHeartbeatTime.UTC()
		switch {
		case c.Type == taint.FenceableCondition:
			m := MachinePower{From: "drill", At: &at}
			if m.Power, m.By = drill.ParsePower(c.Message); !strings.Contains(m.By, ", ") {
				m.By, _, _ = strings.Cut(m.By, ": ")
			}
			all = append(all, m)
		case c.Type == taint.PoweredOnCondition && c.Status == corev1.ConditionTrue:
			all = append(all, MachinePower{Power: providers.PowerOn.String(), From: "fence", At: &at})
		}
	}
	if rec != nil {
		for _, e := range rec.Evidence {
			if e.State != "None" {
				all = append(all, MachinePower{Power: e.State, By: e.From, From: "fence", At: &e.At})
			}
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
	since := ready.LastTransitionTime.Add(time.Second) // which has no fractions
	if ready.Status == corev1.ConditionTrue && last.At.Before(since) &&
		(last.Power == providers.PowerOff.String() || last.Power == providers.PowerChanging.String()) {
		return MachinePower{Power: providers.PowerUnknown.String()} // it has come on since
	}
	last.Power = cmp.Or(last.Power, providers.PowerUnknown.String())
	return last
}

// someDisagree reports whether a device of the machine answered with another word than On, Off or Changing.
func someDisagree(m MachinePower) bool {
	return slices.ContainsFunc(strings.Split(m.By, ", "), func(answer string) bool {
		_, word, _ := strings.Cut(answer, ": ")
		return !slices.Contains([]string{
			providers.PowerOn.String(), providers.PowerOff.String(), providers.PowerChanging.String(),
		}, word)
	})
}
