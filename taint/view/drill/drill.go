// Package drill says whether a node could be fenced now, from what its devices answered while nothing was wrong, and which node is asked
// when. A drill proves nothing: no answer of it is kept for a fence. What it finds is found before the outage: a password that expired, a
// BMC that is down, a certificate that is another's.
//
// It is pure: it names no client, no clock and no logger. The controller's schedule and `forcefence drill` share it.
//
// It promises: a node is called fenceable only if its devices together said On, Off or Changing just now, and one that
// answered is of use. In a mode that powers machines off, that one would take a power-off. In other modes it knows more
// than whether the machine gets power. At most MaxPerHour nodes are asked in an hour.
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

// Device is one device of a node, and what it answered.
type Device struct {
	Name     string // provider/device
	Target   providers.Target
	NoPower  string           // "" or why the machine's power must not be touched through it
	Feeds    bool             // it only gives the machine its power (providers.Feeder): Off once it is switched off
	FalseOff string           // "" or the node whose record says that it said Off of a machine that was on
	Answer   providers.Answer // of this drill
	Duration time.Duration
}

// Result is the device's answer as a word of a closed set: "ok", "unknown" for a word that nobody knows, "distrusted", or the class of the
// error (providers.ErrorClass).
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

// IdentityResult says what the answer is worth as to who the machine is.
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
	}
	return "confirmed"
}

// cannotPower is why no power-off would be sent through the device; "" if it would.
func (d Device) cannotPower() string {
	if d.NoPower != "" {
		return d.NoPower
	}
	if err := d.Target.VerifyIdentity(d.Answer.Observation); err != nil {
		return providers.ErrorText(err)
	}
	return ""
}

// Facts is what a drill of one node saw.
type Facts struct {
	Devices     []Device
	NoDeviceErr error            // why no device speaks for the node, or the first one is not believed; nil: it is
	NotBelieved bool             // None is that what leads to the machine is not believed
	Verdict     providers.Answer // what the devices say together
	PowerOff    bool             // the node's machine is to be powered off where it is On (mode fence)
	KeptOn      string           // "" or why the configuration does not allow that for this node's machine
	Before      corev1.ConditionStatus
	Disabled    string // "" or what chose that nobody is asked of this node: nobody was
}

// Disabled is the result of a node of which nobody is asked.
const Disabled = "disabled"

// Finding is whether the node could be fenced now. Message holds nothing that changes from one drill to the next while nothing is wrong;
// Detail has the causes, for an Event.
type Finding struct {
	Fenceable corev1.ConditionStatus
	Reason    reason.Reason
	Message   string
	Detail    string
	Warning   string // "" or what is not done about this node, though it can be fenced, and whose Off may not count
	Result    string // a word of a closed set, for the metric of nodes: "ok", or what is wrong first
}

// OK tells that all is as it should be: the node can be fenced, and each of its devices answers; or nobody is to be asked.
func (f Finding) OK() bool { return f.Result == "ok" || f.Result == Disabled }

// FindingOf is the finding. A device that is not reached for once may be restarting: that is Unknown, and False when it was so before.
func FindingOf(s Facts) Finding {
	if s.Disabled != "" {
		text := fmt.Sprintf("Its mode is disabled (%s): nobody is asked, and this node is not fenced.", s.Disabled)
		return Finding{Fenceable: corev1.ConditionFalse, Reason: reason.ModeDisabled, Message: text, Detail: text,
			Result: Disabled}
	}
	if len(s.Devices) == 0 {
		why := reason.NoMachine
		if s.NotBelieved {
			why = reason.NotBelieved
		}
		text := "No device speaks for the machine"
		if s.NoDeviceErr != nil {
			text = providers.ErrorText(s.NoDeviceErr)
		}
		detail := fmt.Sprintf("No provider can say whether this node's machine is off: %v. "+
			"This node will not be fenced.", s.NoDeviceErr)
		return Finding{Fenceable: corev1.ConditionFalse, Reason: why, Message: text + ".", Detail: detail,
			Result: "no_machine"}
	}
	result, broken := "ok", []string{}
	var short []string // for the message: classes alone, since a cause has ports and times in it
	passing := true    // what is wrong may pass by itself
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
		short = append(short, fmt.Sprintf("%s: %s", d.Name, word))
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
		f.Fenceable, f.Reason, f.Message = not, reason.NotAnswering, "Not answered: "+strings.Join(short, ", ")+"."
		switch result {
		case "ok": // each answered, and together they say nothing: an Off that took too long
			f.Result, f.Message = "unknown", "The devices' answers prove nothing."
		case "distrusted":
			f.Reason = reason.Distrusted
		}
		f.Detail = strings.Join(append(broken, cannot), " ")
	case !s.PowerOff && s.Verdict.State != providers.PowerOff && fedOnly(s.Devices):
		text := "Only outlets answer. They stay On when the machine dies, and mode observe does not switch them off."
		f.Fenceable, f.Reason, f.Message, f.Result = not, reason.NotAnswering, f.Message+" "+text, "only_outlets"
		f.Detail = strings.Join(append(broken, text, cannot), " ")
	case unable != "":
		text := "The machine could not be powered off: " + unable + "."
		f.Fenceable, f.Reason, f.Message, f.Result = corev1.ConditionFalse, reason.NotBelieved, f.Message+" "+text, "no_power"
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

// The message of a node whose devices together said On, Off or Changing begins so.
const powerIs = "The machine is "

// describePower is what the devices said of the machine, together and each.
func (s Facts) describePower() string {
	var each []string
	for _, d := range s.Devices {
		word := d.Result()
		if word == "ok" {
			word = d.Answer.State.String()
		}
		each = append(each, d.Name+": "+word)
	}
	return fmt.Sprintf("%s%s (%s).", powerIs, s.Verdict.State, strings.Join(each, ", "))
}

// ParsePower reads from a Finding's message what the devices together said of the machine, On, Off or Changing, and what each of them said;
// "" where it does not tell.
func ParsePower(message string) (state, each string) {
	text, ok := strings.CutPrefix(message, powerIs)
	state, rest, _ := strings.Cut(text, " (")
	each, _, _ = strings.Cut(rest, ").")
	for _, known := range []providers.PowerState{providers.PowerOn, providers.PowerOff, providers.PowerChanging} {
		if ok && state == known.String() {
			return state, each
		}
	}
	return "", ""
}

// describeProblem is what is wrong with a device that is not ok.
func (d Device) describeProblem() string {
	switch {
	case d.Answer.Err != nil:
		return "cannot say whether the machine is on (" + providers.ErrorCause(d.Answer.Err) + ")"
	case d.Answer.State == providers.PowerUnknown:
		return fmt.Sprintf("answers with an unknown word (%q)", d.Answer.Raw)
	}
	return "is not believed, since it said Off of a machine that was on (record of node " + d.FalseOff + ")"
}

// whyNoPowerOff is why none of the devices that answered would take a power-off; "" if one would.
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

// fedOnly reports that all devices that answered only give the machine its power.
func fedOnly(all []Device) bool {
	return !slices.ContainsFunc(all, func(d Device) bool { return d.Result() == "ok" && !d.Feeds })
}

// MaxPerHour is how many nodes are drilled in an hour at most.
const MaxPerHour = 5000

// MaxAtOnce is how many may be drilled before the pace counts, and at the same time.
const MaxAtOnce = 8

// pace is how long one drill takes of the hour, but for those at once.
const pace = time.Hour / (MaxPerHour - MaxAtOnce)

// Plan is whose turn it is. All nodes are asked as soon as the pace allows; from then on each has moments of its own, Every apart, which
// its name spreads over that time. It is not safe for concurrent use.
type Plan struct {
	Every      time.Duration // from one drill of a node to the next, as far as the pace allows
	RetryEvery time.Duration // the same after a drill that did not end well

	all       []string
	nodes     map[string]turn
	due       []string  // whose turn it was when it was looked for last, the longest due last
	inFlight  int       // how many are under way
	paidUntil time.Time // what was begun is paid for until then
}

type turn struct {
	due      time.Time // zero: never asked
	inFlight bool      // inFlight way
}

// SetNodes tells the names of all nodes: others are forgotten.
func (p *Plan) SetNodes(all []string) {
	p.all, p.due = all, nil
	known := p.nodes
	p.nodes, p.inFlight = make(map[string]turn, len(all)), 0
	for _, name := range all {
		t := known[name]
		p.nodes[name] = t
		if t.inFlight {
			p.inFlight++
		}
	}
}

// Next returns the node to ask at now, which is under way from then on, or "" and how long to wait before the next call.
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
	if len(p.due) == 0 {
		if wait := p.findDue(now); len(p.due) == 0 {
			return "", wait
		}
	}
	last := len(p.due) - 1
	node, p.due = p.due[last], p.due[:last]
	p.paidUntil = p.paidUntil.Add(pace)
	p.nodes[node] = turn{due: p.nodes[node].due, inFlight: true}
	p.inFlight++
	return node, 0
}

// findDue finds whose turn it is. If it is nobody's it returns how long to wait.
func (p *Plan) findDue(now time.Time) (wait time.Duration) {
	wait = tick
	for _, name := range p.all {
		switch t := p.nodes[name]; {
		case t.inFlight:
		case t.due.After(now):
			wait = min(wait, t.due.Sub(now))
		default:
			p.due = append(p.due, name)
		}
	}
	slices.SortStableFunc(p.due, func(a, b string) int { return p.nodes[b].due.Compare(p.nodes[a].due) })
	return wait
}

// tick bounds a wait: drills that are under way end meanwhile, and nodes come.
const tick = time.Second

// FinishDrill tells how the drill of a node ended.
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
	case !ok:
		after = p.RetryEvery
	case t.due.IsZero():
		after = p.spreadDelay(node)
	}
	p.nodes[node] = turn{due: now.Add(after)}
}

// spreadDelay is a part of Every that is the node's own.
func (p *Plan) spreadDelay(node string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return time.Duration(float64(p.Every) * float64(h.Sum32()) / (1 << 32))
}
