// Package drill says whether a node could be fenced now, from what its devices answered while nothing was wrong, and which node is asked
// when. A drill proves nothing: no answer of it is kept for a fence. What it finds is found before the outage: a password that expired, a
// BMC that is down, a certificate that is another's.
//
// It is pure: it names no client, no clock and no logger. The controller's schedule and `forcefence drill` share it.
//
// It promises: a node is called fenceable only if its devices together said On, Off or Changing just now, and one that
// answered is of use. In a mode that powers machines off, that one would take a power-off. In other modes it knows more
// than whether the machine gets power. At most Hourly nodes are asked in an hour.
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
	Name    string // provider/device
	Target  providers.Target
	NoPower string           // "" or why the machine's power must not be touched through it
	Feeds   bool             // it only gives the machine its power (providers.Feeder): Off once it is switched off
	Liar    string           // "" or the node whose record says that it said Off of a machine that was on
	Answer  providers.Answer // of this drill
	Took    time.Duration
}

// Result is the device's answer as a word of a closed set: "ok", "unknown" for a word that nobody knows, "distrusted", or the class of the
// error (providers.Class).
func (d Device) Result() string {
	switch {
	case d.Answer.Err != nil:
		return providers.Class(d.Answer.Err)
	case d.Answer.State == providers.PowerUnknown:
		return "unknown"
	case d.Liar != "":
		return "distrusted"
	}
	return "ok"
}

// Identity says what the answer is worth as to who the machine is.
func (d Device) Identity() string {
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
	if err := d.Target.Identify(d.Answer.Observation); err != nil {
		return providers.Text(err)
	}
	return ""
}

// Seen is what a drill of one node saw.
type Seen struct {
	Devices     []Device
	None        error            // why no device speaks for the node, or the first one is not believed; nil: it is
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

// Judge is the finding. A device that is not reached for once may be restarting: that is Unknown, and False when it was so before.
func Judge(s Seen) Finding {
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
		if s.None != nil {
			text = providers.Text(s.None)
		}
		detail := fmt.Sprintf("No provider can say whether this node's machine is off: %v. "+
			"This node will not be fenced.", s.None)
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
		broken = append(broken, fmt.Sprintf("Device %s %s.", d.Name, d.why()))
		short = append(short, fmt.Sprintf("%s: %s", d.Name, word))
	}
	unable, warning := "", ""
	if s.PowerOff && s.KeptOn != "" {
		warning = fmt.Sprintf("If it dies while its machine is on, it is not powered off: %s.", s.KeptOn)
	} else if s.PowerOff {
		unable = powerless(s.Devices)
	}
	f := Finding{Fenceable: corev1.ConditionTrue, Reason: reason.Answers, Message: s.power(), Result: result}
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
		var said []string
		for _, d := range s.Devices {
			said = append(said, fmt.Sprintf("Device %s answers: %s.", d.Name, d.Answer.State))
		}
		f.Detail = strings.Join(said, " ")
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

// power is what the devices said of the machine, together and each.
func (s Seen) power() string {
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

// Power reads from a Finding's message what the devices together said of the machine, On, Off or Changing, and what each of them said;
// "" where it does not tell.
func Power(message string) (state, each string) {
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

// why is what is wrong with a device that is not ok.
func (d Device) why() string {
	switch {
	case d.Answer.Err != nil:
		return "cannot say whether the machine is on (" + providers.Cause(d.Answer.Err) + ")"
	case d.Answer.State == providers.PowerUnknown:
		return fmt.Sprintf("answers with an unknown word (%q)", d.Answer.Raw)
	}
	return "is not believed, since it said Off of a machine that was on (record of node " + d.Liar + ")"
}

// powerless is why none of the devices that answered would take a power-off; "" if one would.
func powerless(all []Device) (why string) {
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

// Hourly is how many nodes are drilled in an hour at most.
const Hourly = 5000

// AtOnce is how many may be drilled before the pace counts, and at the same time.
const AtOnce = 8

// pace is how long one drill takes of the hour, but for those at once.
const pace = time.Hour / (Hourly - AtOnce)

// Plan is whose turn it is. All nodes are asked as soon as the pace allows; from then on each has moments of its own, Every apart, which
// its name spreads over that time. It is not safe for concurrent use.
type Plan struct {
	Every time.Duration // from one drill of a node to the next, as far as the pace allows
	Again time.Duration // the same after a drill that did not end well

	all   []string
	nodes map[string]turn
	due   []string  // whose turn it was when it was looked for last, the longest due last
	under int       // how many are under way
	paid  time.Time // what was begun is paid for until then
}

type turn struct {
	due   time.Time // zero: never asked
	under bool      // under way
}

// Nodes tells the names of all nodes: others are forgotten.
func (p *Plan) Nodes(all []string) {
	p.all, p.due = all, nil
	known := p.nodes
	p.nodes, p.under = make(map[string]turn, len(all)), 0
	for _, name := range all {
		t := known[name]
		p.nodes[name] = t
		if t.under {
			p.under++
		}
	}
}

// Next returns the node to ask at now, which is under way from then on, or "" and how long to wait before the next call.
func (p *Plan) Next(now time.Time) (node string, wait time.Duration) {
	if p.paid.Before(now.Add(-AtOnce * pace)) {
		p.paid = now.Add(-AtOnce * pace)
	}
	if early := p.paid.Add(pace).Sub(now); early > 0 {
		return "", min(early, tick)
	}
	if p.under >= AtOnce {
		return "", tick
	}
	if len(p.due) == 0 {
		if wait := p.look(now); len(p.due) == 0 {
			return "", wait
		}
	}
	last := len(p.due) - 1
	node, p.due = p.due[last], p.due[:last]
	p.paid = p.paid.Add(pace)
	p.nodes[node] = turn{due: p.nodes[node].due, under: true}
	p.under++
	return node, 0
}

// look finds whose turn it is. If it is nobody's it returns how long to wait.
func (p *Plan) look(now time.Time) (wait time.Duration) {
	wait = tick
	for _, name := range p.all {
		switch t := p.nodes[name]; {
		case t.under:
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

// Done tells how the drill of a node ended.
func (p *Plan) Done(node string, ok bool, now time.Time) {
	t, known := p.nodes[node]
	if !known {
		return
	}
	if t.under {
		p.under--
	}
	after := p.Every
	switch {
	case !ok:
		after = p.Again
	case t.due.IsZero():
		after = p.phase(node)
	}
	p.nodes[node] = turn{due: now.Add(after)}
}

// phase is a part of Every that is the node's own.
func (p *Plan) phase(node string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return time.Duration(float64(p.Every) * float64(h.Sum32()) / (1 << 32))
}
