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
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// State is how a node is, in one word of a closed set.
type State string

// The states, in the order in which a person wants to see them.
const (
	StateStuck       State = "stuck"       // its fence, or what came of it, needs a person
	StateFencing     State = "fencing"     // its fence is not done, or it is marked
	StateNotReady    State = "not_ready"   // it is not Ready, and no fence is under way
	StateUnfenceable State = "unfenceable" // it is Ready, and could not be fenced now, or nobody tried
	StateLeftAlone   State = "left_alone"  // it is Ready, and nothing would be begun
	StateFine        State = "fine"
)

// DisplayName is the state as people read it.
func (s State) DisplayName() string { return strings.ReplaceAll(string(s), "_", " ") }

// States returns all of them, in their order.
func States() []State {
	return []State{StateStuck, StateFencing, StateNotReady, StateUnfenceable, StateLeftAlone, StateFine}
}

// NodeFacts is what is known of one node.
type NodeFacts struct {
	Node        *corev1.Node
	Key         string    // the mark's
	Event       *OwnEvent // forcefence's newest Event about the Node; nil: none, or not read
	NeedsPerson string    // why its open fence's Fencing says that a person should look; "": it does not, or was not read
	Now         time.Time
}

// OwnEvent is an Event that forcefence wrote.
type OwnEvent struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Text   string    `json:"text"`
}

// Node is what stands about a node, as JSON has it. Texts may be anybody's: whoever shows them on a terminal takes care of that.
type Node struct {
	Node       string     `json:"node"`
	State      State      `json:"state"`
	Ready      string     `json:"ready"` // True, False or Unknown
	ReadySince *time.Time `json:"readySince,omitempty"`
	Machine    Machine    `json:"machine"`
	Fenceable  string     `json:"fenceable"`        // True, False or Unknown; "" if no controller told
	Partly     bool       `json:"partly,omitempty"` // it is Fenceable, and not all of its devices answer
	Protection string     `json:"guard"`            // FailClosed, FailOpen, None; "" if the node's side never said
	Mark       string     `json:"mark,omitempty"`
	Fence      *NodeFence `json:"fence,omitempty"`
	Broken     string     `json:"broken,omitempty"`    // why the record of its fence cannot be read
	LeftAlone  string     `json:"leftAlone,omitempty"` // why nothing new is begun, as far as the Node says
	Mode       string     `json:"mode,omitempty"`      // what its annotation lowers its mode to
	Policies   []string   `json:"policies,omitempty"`  // in whose name pods were ended without proof since it is not Ready
	Draining   bool       `json:"draining,omitempty"`  // something of forcefence's holds its drain up
	Event      *OwnEvent  `json:"event,omitempty"`
	Next       string     `json:"next,omitempty"` // "" where nothing is to come
}

// Machine is a node's machine as it was seen last.
type Machine struct {
	Power string     `json:"power"`          // On, Off, Changing or Unknown
	By    string     `json:"by,omitempty"`   // the device that said so, or what each of several said
	From  string     `json:"from,omitempty"` // "drill": it was so at that time and in every drill since; "fence": it was asked at that time
	At    *time.Time `json:"at,omitempty"`
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
	Waits     []string  `json:"waitsFor,omitempty"` // volumes, where nothing else is left to do
}

// NodeOf is what stands about a node. It changes nothing that it is given.
func NodeOf(s NodeFacts) Node {
	rec, err := taint.RecordOf(s.Node)
	n := Node{Node: s.Node.Name, Ready: string(corev1.ConditionUnknown), Machine: machineOf(s.Node, rec), LeftAlone: fence.ExclusionReason(s.Node, s.Now), Draining: s.Node.Annotations[taint.DrainAnnotation] != ""}
	var fenceable corev1.NodeCondition
	on := false
	for _, c := range s.Node.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			n.Ready = string(c.Status)
			if at := c.LastTransitionTime.UTC(); !at.IsZero() {
				n.ReadySince = &at
			}
		case taint.FenceableCondition:
			fenceable, n.Fenceable = c, string(c.Status)
		case taint.PoweredOnCondition:
			on = c.Status == corev1.ConditionTrue
		}
	}
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
		n.Fence = &NodeFence{ID: rec.ID, Phase: string(rec.Phase), Result: string(rec.Result), Since: rec.Since, At: rec.At, By: rec.By, Device: rec.Device, PowerOff: rec.PowerOff, PostFence: string(rec.PostFence)}
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
	n.Partly = n.Fenceable == string(corev1.ConditionTrue) && strings.Contains(n.Machine.By, ",") && fenceable.Message != "" && someDisagree(n.Machine)
	n.State, n.Next = s.nextOf(n, rec, fenceable, marked, ready, on)
	if e := s.Event; e != nil && n.State != StateFine {
		n.Event = e
	}
	return n
}

// nextOf is the node's state, and what comes next.
func (s NodeFacts) nextOf(n Node, rec *taint.Record, fenceable corev1.NodeCondition, marked, ready, on bool) (State, string) {
	release := "forcefence release " + n.Node + " --yes"
	lied := rec != nil && len(rec.DistrustedDevices()) > 0
	switch {
	case n.Broken != "":
		return StateStuck, fmt.Sprintf("The record of its fence cannot be read (%s): a newer version wrote it, or somebody edited it. If no newer controller leads: %s", n.Broken, release)
	case s.NeedsPerson != "":
		return StateStuck, "A person should look: " + s.NeedsPerson
	case rec.IsOpen() || marked:
		state, text := s.nextOfFence(n, rec)
		return state, text
	case rec != nil && rec.Result == taint.ResultNeverPoweredOff || lied:
		return StateStuck, "A device said Off of its machine while it was on, and is not believed. Once it is repaired: " + release
	case !ready && rec != nil && rec.PostFence == taint.PostFenceFencedAgain:
		return StateStuck, withAdvice(reason.FencedAgain, "Its machine stays off: it was powered on, and needed another fence soon after.")
	case !ready && rec != nil && rec.PostFence == taint.PostFencePowerOn:
		return StateNotReady, "Its machine is being powered on; then its node comes back."
	case !ready && n.LeftAlone != "":
		return StateNotReady, "Nothing is begun, because of its " + n.LeftAlone + "."
	case !ready:
		return StateNotReady, s.nextOfNotReady(n, rec, on)
	case n.Fenceable == "":
		return StateUnfenceable, "No controller has asked its devices yet."
	case n.Fenceable != string(corev1.ConditionTrue):
		return StateUnfenceable, withAdvice(reason.Reason(fenceable.Reason), fenceable.Message)
	case n.LeftAlone != "":
		return StateLeftAlone, "Nothing is begun, because of its " + n.LeftAlone + "."
	case n.Mode != "":
		return StateLeftAlone, fmt.Sprintf("An annotation keeps its mode at %s.", n.Mode)
	case n.Partly:
		return StateFine, "Not all of its devices answer: " + n.Machine.By + "."
	default:
		return StateFine, ""
	}
}

// nextOfFence is what comes next of a fence that is not done.
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
		return StateFencing, "Somebody marked it; a controller takes that up."
	case len(n.Fence.Waits) > 0:
		return StateFencing, "It waits until these volumes are detached: " + strings.Join(n.Fence.Waits, ", ") + "."
	case rec.Phase == taint.PhasePoweringOff:
		return StateFencing, fmt.Sprintf("A power-off is sent; it waits until %s says Off.", device)
	case rec.Phase == taint.PhaseArmed:
		return StateFencing, fmt.Sprintf("%s is asked once more; if it says Off, its pods are ended.", device)
	default:
		return StateFencing, "Its pods are ended and deleted, its volumes detached; then the mark is taken off."
	}
}

// nextOfNotReady is what comes next of a node that is not Ready while no fence of it is under way.
func (s NodeFacts) nextOfNotReady(n Node, rec *taint.Record, on bool) string {
	e := s.Event
	if e != nil && (n.ReadySince != nil && e.At.Before(*n.ReadySince) || rec != nil && e.At.Add(time.Second).Before(rec.At)) {
		e = nil // of an earlier silence, or of before its fence ended
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
		return "It could not be fenced when that was tried last: `forcefence explain` tells more."
	case e != nil:
		return e.Text
	default:
		return "A controller asks its devices."
	}
}

// withAdvice is what was told with what a person does about it, in plain text.
func withAdvice(why reason.Reason, text string) string {
	do := strings.ReplaceAll(reason.RowOf(why).Remedy, "`", "")
	if text = strings.TrimSpace(text); text != "" && do != "" {
		text += " "
	}
	return text + do
}

// machineOf is the newest of what a drill, a look at a silent node and its fence told of its machine.
func machineOf(node *corev1.Node, rec *taint.Record) Machine {
	var all []Machine
	for _, c := range node.Status.Conditions {
		at := c.LastHeartbeatTime.UTC()
		switch {
		case c.Type == taint.FenceableCondition:
			m := Machine{From: "drill", At: &at}
			if m.Power, m.By = drill.ParsePower(c.Message); !strings.Contains(m.By, ", ") {
				m.By, _, _ = strings.Cut(m.By, ": ")
			}
			all = append(all, m)
		case c.Type == taint.PoweredOnCondition && c.Status == corev1.ConditionTrue:
			all = append(all, Machine{Power: providers.PowerOn.String(), From: "fence", At: &at})
		}
	}
	if rec != nil {
		for _, e := range rec.Evidence {
			if e.State != "None" {
				all = append(all, Machine{Power: e.State, By: e.From, From: "fence", At: &e.At})
			}
		}
	}
	if len(all) == 0 {
		return Machine{Power: providers.PowerUnknown.String()}
	}
	last := all[0]
	for _, m := range all[1:] {
		if !m.At.Before(*last.At) {
			last = m
		}
	}
	last.Power = cmp.Or(last.Power, providers.PowerUnknown.String())
	return last
}

// someDisagree reports that not every device of the machine said what they say together.
func someDisagree(m Machine) bool {
	return slices.ContainsFunc(strings.Split(m.By, ", "), func(answer string) bool {
		_, word, _ := strings.Cut(answer, ": ")
		return !slices.Contains([]string{providers.PowerOn.String(), providers.PowerOff.String(), providers.PowerChanging.String()}, word)
	})
}
