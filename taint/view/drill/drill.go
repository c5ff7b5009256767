// Package drill decides whether a node could be fenced now, from its devices' answers while the node is healthy, and
// which node is asked next. A drill proves nothing: a fence uses no answer of it. It finds faults before the outage: an
// expired password, a BMC that is down, a certificate of another machine.
//
// It is pure: it names no client, no clock and no logger. The controller's schedule and `forcefence drill` share it.
//
// It promises: a node is called fenceable only if its devices together answered On, Off or Changing just now, and one
// that answered is of use. In a mode that powers machines off, that device would accept a power-off. In other modes it
// knows more than whether the machine gets power. At most MaxPerHour nodes are asked in an hour.
package drill

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// Device is one device of a node, with its answer.
type Device struct {
	Name     string // provider/device
	Target   providers.Target
	NoPower  string           // "" or why the machine's power must not be touched through it
	Feeds    bool             // it only supplies the machine's power (providers.Feeder): Off once it is switched off
	FalseOff string           // "" or the node whose record says that it answered Off for a machine that was on
	Answer   providers.Answer // its answer in this drill
	SameUUID []string         // the other nodes with a machine that report the same system UUID
	Duration time.Duration
}

// Result returns the device's answer as a word of a closed set: "ok", "unknown" for an unknown power state,
// "distrusted", or the class of the error (providers.ErrorClass).
func (d Device) Result() string {
	switch {
	case d.Answer.Err != nil:
		return providers.ErrorClass(d.Answer.Err)
	case d.Answer.State == providers.PowerUnknown:
		return "unknown"
	case d.FalseOff != "":
		return "distrusted"
	}
	return "ok"
}

// IdentityResult returns how far the answer identifies the machine, as a word of a closed set.
func (d Device) IdentityResult() string {
	_, told := providers.ParseUUID(d.Answer.SystemUUID)
	_, has := providers.ParseUUID(d.Target.SystemUUID)
	switch identity := errors.Is(d.Answer.Err, providers.ErrIdentity); {
	case told && !has && (identity || d.Answer.Err == nil):
		return "node has none"
	case identity:
		return "another machine"
	case d.Answer.Err != nil:
		return "not known"
	case !told:
		return "not told"
	case len(d.SameUUID) > 0:
		return "not unique"
	}
	return "confirmed"
}

// cannotPower returns why no power-off would be sent through the device, or "" if it would.
func (d Device) cannotPower() string {
	if d.NoPower != "" {
		return d.NoPower
	}
	if err := d.Target.VerifyIdentity(d.Answer.Observation); err != nil {
		return providers.ErrorText(err)
	}
	return ""
}

// Facts is the input of FindingOf: what a drill of one node observed.
type Facts struct {
	Devices []Device
	// NoDeviceErr: why the node has no device, or why the first one is not believed; nil: it is believed
	NoDeviceErr error
	NotBelieved bool             // NoDeviceErr is that what leads to the machine is not believed
	Verdict     providers.Answer // the devices' combined answer
	PowerOff    bool             // a fence powers the machine off if it is On (mode fence)
	KeptOn      string           // "" or why the configuration forbids that for this node's machine
	Before      corev1.ConditionStatus
	Disabled    string // "" or which setting disables this node's drills: no device was asked
	Shadow      bool   // the node's mode is shadow: no fence of it begins
}

// Disabled is the result of a node whose devices are not asked.
const Disabled = "disabled"

// Finding says whether the node could be fenced now. Message stays the same from one drill to the next while nothing is
// wrong. Detail has the causes, for an Event.
type Finding struct {
	Fenceable corev1.ConditionStatus
	Reason    reason.Reason
	Message   string
	Detail    string
	Warning   string // "" or what a fence of this node does not do, and which device's Off may not count
	Result    string // a word of a closed set, for the metric of nodes: "ok", or what is wrong first
}

// OK reports whether the node can be fenced and each of its devices answers, or its drills are disabled.
func (f Finding) OK() bool { return f.Result == "ok" || f.Result == Disabled }

// FindingOf returns the finding of a drill. A device that fails to answer once may be restarting: that is Unknown, and
// False if it was so before.
func FindingOf(s Facts) Finding {
	if s.Disabled != "" {
		text := fmt.Sprintf("Its mode is disabled (%s): no device is asked, and this node is not fenced.", s.Disabled)
		return Finding{Fenceable: corev1.ConditionFalse, Reason: reason.ModeDisabled, Message: text, Detail: text,
			Result: Disabled}
	}
	if len(s.Devices) == 0 {
		why := reason.NoMachine
		if s.NotBelieved {
			why = reason.NotBelieved
		}
		text := "The machine has no device"
		if s.NoDeviceErr != nil {
			text = providers.ErrorText(s.NoDeviceErr)
		}
		detail := fmt.Sprintf("No provider can say whether this node's machine is off: %v. "+
			"This node will not be fenced.", s.NoDeviceErr)
		return Finding{Fenceable: corev1.ConditionFalse, Reason: why, Message: text + ".", Detail: detail,
			Result: "no_machine"}
	}
	result, broken := "ok", []string{}
	var short []string // for the message: classes only, because a cause contains ports and times
	passing := true    // every fault may pass by itself
	for _, d := range s.Devices {
		word := d.Result()
		if word == "ok" {
			continue
		}
		if result == "ok" {
			result = word
		}
		passing = passing && (word == "unreachable" || word == "canceled" || word == "error")
		broken = append(broken, fmt.Sprintf("Device %s %s.", d.Name, d.describeProblem()))
		short = append(short, d.summarize().describe())
	}
	unable, warning := "", ""
	if s.PowerOff && s.KeptOn != "" {
		warning = fmt.Sprintf("If it dies while its machine is on, it is not powered off: %s.", s.KeptOn)
	} else if s.PowerOff {
		unable = whyNoPowerOff(s.Devices)
	}
	f := Finding{Fenceable: corev1.ConditionTrue, Reason: reason.Answers, Message: s.describePower(), Result: result}
	not := corev1.ConditionFalse
	if passing && result != "ok" && (s.Before == corev1.ConditionTrue || s.Before == "") {
		not = corev1.ConditionUnknown
	}
	const cannot = "This node could not be fenced at present."
	switch {
	case errors.Is(s.Verdict.Err, proof.ErrDisagree):
		detail := fmt.Sprintf("The devices of this node contradict each other (%s). %s", s.Verdict.Raw, cannot)
		f = Finding{
			Fenceable: corev1.ConditionFalse, Reason: reason.Disagree, Message: "The devices contradict each other.",
			Detail: detail, Result: "disagree",
		}
	case s.Verdict.State == providers.PowerUnknown:
		f.Fenceable, f.Reason = not, reason.NotAnswering
		f.Message = "No answer that counts: " + strings.Join(short, ", ") + "."
		switch result {
		case "ok": // each answered, and together they prove nothing: an Off that arrived too late
			f.Result, f.Message = "unknown", "The devices' answers prove nothing."
		case "distrusted":
			f.Reason = reason.Distrusted
		}
		f.Detail = strings.Join(append(broken, cannot), " ")
	case !slices.ContainsFunc(s.Devices, func(d Device) bool { return d.Result() == "ok" }):
		// Each that answers once said a false Off. Its On counts, and its Off would not.
		f.Fenceable, f.Reason, f.Result = corev1.ConditionFalse, reason.Distrusted, "distrusted"
		f.Message += " No device that is trusted answers."
		f.Detail = strings.Join(append(broken, cannot), " ")
	case !s.PowerOff && s.Verdict.State != providers.PowerOff && fedOnly(s.Devices):
		text := "Only outlets answer. They stay On when the machine dies, and mode observe does not switch them off."
		f.Fenceable, f.Reason, f.Message, f.Result = not, reason.NotAnswering, f.Message+" "+text, "only_outlets"
		f.Detail = strings.Join(append(broken, text, cannot), " ")
	case unable != "":
		text := "The machine could not be powered off: " + unable + "."
		f.Fenceable, f.Reason, f.Message, f.Result = corev1.ConditionFalse, reason.NoPowerOff, f.Message+" "+text,
			"no_power"
		f.Detail = text + " " + cannot
	case result != "ok":
		f.Detail = strings.Join(append(broken, "Another device of this node answers."), " ")
	default:
		var answers []string
		for _, d := range s.Devices {
			answers = append(answers, fmt.Sprintf("Device %s answers: %s.", d.Name, d.Answer.State))
		}
		f.Detail = strings.Join(answers, " ")
	}
	if same := s.sameUUID(); len(same) > 0 {
		warning = strings.TrimSpace(fmt.Sprintf("%s It reports the same system UUID as node %s: the UUID does not "+
			"tell these machines apart, so a wrong cable would not be found, and while one is heard the other is not "+
			"recovered. Give each machine its own.", warning, strings.Join(same, ", ")))
	}
	for _, d := range s.Devices {
		if d.Answer.Doubt != "" {
			warning = strings.TrimSpace(warning + fmt.Sprintf(" Device %s: %s.", d.Name, d.Answer.Doubt))
		}
	}
	if f.Warning = warning; warning != "" {
		f.Message += " " + warning
	}
	return f
}

// sameUUID returns the other nodes that report the node's system UUID, at most five.
func (s Facts) sameUUID() (same []string) {
	for _, d := range s.Devices {
		for _, n := range d.SameUUID {
			if !slices.Contains(same, n) && len(same) < 5 {
				same = append(same, n)
			}
		}
	}
	return same
}

// describePower describes the devices' combined answer, and each device's own. Nothing reads the text back: Answers has
// the same as data.
func (s Facts) describePower() string {
	var each []string
	for _, d := range s.Devices {
		each = append(each, d.summarize().describe())
	}
	return fmt.Sprintf("The machine is %s (%s).", s.Verdict.State, strings.Join(each, ", "))
}

// IsOlder reports whether a node's condition was written before the configuration was put in force at that time. Then
// it speaks of the former configuration's devices. Conditions have whole seconds. A condition that is missing is not
// older, and none is older than the zero time.
func IsOlder(c corev1.NodeCondition, configured time.Time) bool {
	return c.Status != "" && c.LastHeartbeatTime.Time.Before(configured.Truncate(time.Second))
}

// describeProblem describes what is wrong with a device whose Result is not "ok".
func (d Device) describeProblem() string {
	switch {
	case d.Answer.Err != nil:
		return "cannot say whether the machine is on (" + providers.ErrorCause(d.Answer.Err) + ")"
	case d.Answer.State == providers.PowerUnknown:
		return fmt.Sprintf("answers with an unknown word (%q)", d.Answer.Raw)
	}
	return "is not trusted, since it said Off for a machine that was on (record of node " + d.FalseOff + ")"
}

// whyNoPowerOff returns why none of the devices that answered would accept a power-off, or "" if one would.
func whyNoPowerOff(all []Device) (why string) {
	for _, d := range all {
		if d.Result() != "ok" {
			continue
		}
		no := d.cannotPower()
		if no == "" {
			return ""
		}
		why = cmp.Or(why, no)
	}
	return why
}

// fedOnly reports whether all devices that answered only supply the machine's power.
func fedOnly(all []Device) bool {
	return !slices.ContainsFunc(all, func(d Device) bool { return d.Result() == "ok" && !d.Feeds })
}

// MaxPerHour is how many nodes are drilled in an hour at most.
const MaxPerHour = 5000

// MaxAtOnce is how many drills may start before the pace applies, and how many may run at the same time.
const MaxAtOnce = 8

// pace is the time between two drills, except for the first MaxAtOnce.
const pace = time.Hour / (MaxPerHour - MaxAtOnce)

// Plan decides which node to drill next. It asks all nodes as soon as the pace allows. After that each node has its own
// moments, Every apart, which its name spreads over that time. It is not safe for concurrent use.
type Plan struct {
	Every      time.Duration // from one drill of a node to the next, as far as the pace allows
	RetryEvery time.Duration // the same after a drill that did not end well

	all       []string
	nodes     map[string]turn
	due       []string  // the nodes that were due at the last search, in reverse order
	urgent    int       // how many nodes are drilled before the others, and are not due yet or not begun
	inFlight  int       // how many drills are running
	paidUntil time.Time // the drills that were started use up the pace until then
}

type turn struct {
	due      time.Time // zero: never asked
	first    bool      // it is drilled before all others that are due
	ended    time.Time // when its last drill ended; zero: none has
	inFlight bool      // its drill is running
	again    bool      // BringForward was called while it ran
	spread   bool      // it has its own moments
}

// SetNodes sets the names of all nodes. It forgets all others.
func (p *Plan) SetNodes(all []string) {
	p.all, p.due = all, nil
	known := p.nodes
	p.nodes, p.inFlight, p.urgent = make(map[string]turn, len(all)), 0, 0
	for _, name := range all {
		t := known[name]
		p.nodes[name] = t
		if t.first {
			p.urgent++
		}
		if t.inFlight {
			p.inFlight++
		}
	}
}

// Next returns the node to drill now, which counts as running from then on. Otherwise it returns "" and how long to
// wait before the next call.
func (p *Plan) Next(now time.Time) (node string, wait time.Duration) {
	if p.paidUntil.Before(now.Add(-MaxAtOnce * pace)) {
		p.paidUntil = now.Add(-MaxAtOnce * pace)
	}
	if early := p.paidUntil.Add(pace).Sub(now); early > 0 {
		return "", min(early, tick)
	}
	if p.inFlight >= MaxAtOnce {
		return "", tick
	}
	if len(p.due) == 0 || p.urgent > 0 {
		if wait := p.findDue(now); len(p.due) == 0 {
			return "", wait
		}
	}
	last := len(p.due) - 1
	node, p.due = p.due[last], p.due[:last]
	p.paidUntil = p.paidUntil.Add(pace)
	t := p.nodes[node]
	if t.first {
		p.urgent--
	}
	t.inFlight, t.first = true, false
	p.nodes[node] = t
	p.inFlight++
	return node, 0
}

// BringForward makes a node due now, because something about its machine changed. Two drills of a node are still
// RetryEvery apart: a node that changes all the time takes no other node's turn.
func (p *Plan) BringForward(node string, now time.Time) {
	t, known := p.nodes[node]
	if !known {
		return
	}
	t.again = t.inFlight
	if early := later(now, t.ended.Add(p.RetryEvery)); early.Before(t.due) {
		t.due = early
	}
	p.nodes[node] = t
}

// BringFirst is BringForward for a node that has another machine now: it is drilled before all others that are due. The
// pace holds, and RetryEvery lies between two drills of the node.
func (p *Plan) BringFirst(node string, now time.Time) {
	p.BringForward(node, now)
	if t, known := p.nodes[node]; known && !t.first && !t.inFlight {
		t.first = true
		p.nodes[node] = t
		p.urgent++
	}
}

// BringAllForward makes every node due now, as BringForward does. The pace still holds, and afterwards each node gets
// its own moments again.
func (p *Plan) BringAllForward(now time.Time) {
	for _, name := range p.all {
		p.BringForward(name, now)
		t := p.nodes[name]
		t.spread = false
		p.nodes[name] = t
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// findDue finds the nodes that are due. If there are none it returns how long to wait.
func (p *Plan) findDue(now time.Time) (wait time.Duration) {
	wait, p.due = tick, p.due[:0]
	for _, name := range p.all {
		switch t := p.nodes[name]; {
		case t.inFlight:
		case t.due.After(now):
			wait = min(wait, t.due.Sub(now))
		default:
			p.due = append(p.due, name)
		}
	}
	slices.SortStableFunc(p.due, func(a, b string) int {
		x, y := p.nodes[a], p.nodes[b]
		if x.first != y.first {
			return map[bool]int{true: 1, false: -1}[x.first]
		}
		return y.due.Compare(x.due)
	})
	return wait
}

// tick limits a wait: running drills end meanwhile, and nodes are added.
const tick = time.Second

// FinishDrill records the end of a node's drill, and when the next is due. ok is false if the drill did not end well.
func (p *Plan) FinishDrill(node string, ok bool, now time.Time) {
	t, known := p.nodes[node]
	if !known {
		return
	}
	if t.inFlight {
		p.inFlight--
	}
	after := p.Every
	switch {
	case !ok, t.again:
		after = p.RetryEvery
	case !t.spread:
		after = p.spreadDelay(node)
	}
	p.nodes[node] = turn{due: now.Add(after), ended: now, spread: t.spread || !t.again}
}

// spreadDelay returns a part of Every that depends on the node's name.
func (p *Plan) spreadDelay(node string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return time.Duration(float64(p.Every) * float64(h.Sum32()) / (1 << 32))
}
