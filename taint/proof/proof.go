// Package proof says what the answers of a machine's devices are worth: for how long, which of them count, what they say together, and
// when to ask again. It holds one answer per device and the verdict over all of them.
//
// It is pure: it names no client, no clock and no logger.
//
// It promises: only an exact Off of every device of a level is an Off, one that came in time, from devices that nobody has caught lying,
// and that no other device gainsays; nothing else becomes one by waiting (invariants 1, 2 and 4).
package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// TTL is how long an answer proves anything, counted from when the question was sent.
const TTL = 5 * time.Second

// Device is one that speaks for the machine.
type Device struct {
	Name    string        // provider/device, as it stands in records
	Machine taint.Machine // for the record: what it is asked about
	Level   int           // devices of one level must all say Off; of several levels, each may prove it
	NoPower string        // "" or why the machine's power must not be touched through it
	Feeds   bool          // it gives the machine power (providers.Feeder): its On does not say that the machine runs
}

// Recorded names the first device, and what it is asked about, for a record; "" and nil where there is none.
func Recorded(devices []Device) (string, *taint.Machine) {
	if len(devices) == 0 {
		return "", nil
	}
	return devices[0].Name, devices[0].Machine.Recorded()
}

// Liars are the devices as a record names those that lied.
func Liars(devices []Device) []taint.Liar {
	var out []taint.Liar
	for _, d := range devices {
		out = append(out, taint.Liar{Device: d.Name, Machine: d.Machine.Recorded()})
	}
	return out
}

// Answers are the last ones of a machine's devices. The zero value has no device.
type Answers struct {
	Answer providers.Answer // the verdict: what all devices say together; zero: they were not asked
	Misses int              // verdicts in a row that were neither On nor Off
	of     []said           // in the order of Expect
}

type said struct {
	device Device
	answer providers.Answer // the last; zero: not asked
	off    providers.Answer // its last Off in this fence, or in this life of the node before it; zero: none
}

// Expect names the devices that speak for the machine, in their order. What others said is forgotten, and with other devices they are
// all to be asked again.
func (a *Answers) Expect(devices ...Device) {
	if slices.EqualFunc(a.of, devices, func(s said, d Device) bool { return s.device == d }) {
		return
	}
	of := make([]said, len(devices)) // an Answers that was copied keeps its own
	for i, d := range devices {
		of[i].device = d
		if j := slices.IndexFunc(a.of, func(s said) bool { return s.device.Name == d.Name }); j >= 0 {
			of[i].off = a.of[j].off
		}
	}
	a.of, a.Answer = of, providers.Answer{}
}

// Answered folds in what the devices said when they were asked, all at once: one answer of each, in the order of Expect. A device
// without an answer has said nothing.
func (a *Answers) Answered(answers ...providers.Answer) {
	of := slices.Clone(a.of)
	for i := range of {
		of[i].answer = providers.Answer{}
		if i < len(answers) {
			of[i].answer = Counted(answers[i])
		}
		if of[i].answer.State == providers.PowerOff {
			of[i].off = of[i].answer
		}
	}
	a.of = of
	a.Answer = verdict(of)
	switch a.Answer.State {
	case providers.PowerOn, providers.PowerOff:
		a.Misses = 0
	default:
		a.Misses++
	}
}

// Anew forgets how often nothing was learned, and who said Off: another fence, or another life of the node, begins.
func (a *Answers) Anew() {
	a.Misses, a.of = 0, slices.Clone(a.of)
	for i := range a.of {
		a.of[i].off = providers.Answer{}
	}
}

// Disagree reports that the devices contradict each other: one says Off, another On.
func (a Answers) Disagree() bool { return errors.Is(a.Answer.Err, ErrDisagree) }

// State is what the device at that place said last; PowerUnknown if it has not answered.
func (a Answers) State(device int) providers.PowerState {
	if device >= len(a.of) {
		return providers.PowerUnknown
	}
	return a.of[device].answer.State
}

// Run is the machine's run, and the device that tells it: the first that tells one. "" where boot ids tell boots apart.
func (a Answers) Run() (run, by string) {
	for _, s := range a.of {
		if s.answer.Run != "" {
			return s.answer.Run, s.device.Name
		}
	}
	return "", ""
}

// RunNow is the machine's run as the device tells it that told the record's: the runs of two devices cannot be compared. It is "" where
// that does not answer. What it says is its own word: a device that invents a start is not caught.
func (a Answers) RunNow(r *taint.Record) string {
	for _, s := range a.of {
		if s.device.Name == r.RunBy || r.RunBy == "" && len(a.of) == 1 { // a record of an older version had one device
			return s.answer.Run
		}
	}
	return ""
}

// Evidence are the answers as a record's evidence, one of each device.
func (a Answers) Evidence() []taint.Evidence {
	var out []taint.Evidence
	for _, s := range a.of {
		out = append(out, a.evidence(s, s.answer))
	}
	return out
}

// Offs are the devices' last Offs, as a record's evidence, of those that the record does not have saying Off: what proves in the middle
// of an eviction need not be what proved its beginning. Only where there are several devices: one alone is the record's.
func (a Answers) Offs(r *taint.Record) []taint.Evidence {
	var out []taint.Evidence
	for _, s := range a.of {
		e := a.evidence(s, s.off)
		if len(a.of) > 1 && !s.off.Got.IsZero() && !r.HasOff(e.From) {
			out = append(out, e)
		}
	}
	return out
}

// evidence names the device where there are several; one alone stands in the record already.
func (a Answers) evidence(s said, answer providers.Answer) taint.Evidence {
	e := Evidence(answer)
	if len(a.of) > 1 {
		e.From = s.device.Name
	}
	return e
}

// Backoff is how long to wait after an answer from which nothing was learned: one second, doubled with every miss, 30 s at most.
func (a Answers) Backoff() time.Duration {
	return min(time.Second<<min(max(a.Misses-1, 0), 6), 30*time.Second)
}

// ErrDisagree is a verdict of devices that contradict each other. It proves nothing, however long it stands.
var ErrDisagree = fmt.Errorf("%w: its devices disagree", providers.ErrPermanent)

// verdict is what the answers say together: of one device its answer, of one level what all of them say, of several levels what the
// first says that says anything, unless another gainsays it.
func verdict(of []said) providers.Answer {
	if len(of) == 0 {
		return providers.Answer{}
	}
	if len(of) == 1 {
		return of[0].answer
	}
	var levels []said
	for _, s := range of {
		if n := len(levels); n > 0 && levels[n-1].device.Level == s.device.Level {
			continue // told with the first of its level
		}
		same := slices.DeleteFunc(slices.Clone(of), func(o said) bool { return o.device.Level != s.device.Level })
		levels = append(levels, said{
			device: Device{Feeds: !slices.ContainsFunc(same, func(o said) bool { return !o.device.Feeds })},
			answer: together(same),
		})
	}
	out := first(levels)
	var raw []string
	for _, s := range of {
		raw = append(raw, s.device.Name+": "+word(s.answer))
		if s.answer.Got.After(out.Got) {
			out.Got = s.answer.Got
		}
	}
	out.Raw = strings.Join(raw, ", ")
	if errors.Is(out.Err, ErrDisagree) {
		out.Err = fmt.Errorf("%w: %s", ErrDisagree, out.Raw)
	}
	return out
}

// word is what a device said, for a person.
func word(a providers.Answer) string {
	switch {
	case a.Err != nil:
		return providers.Class(a.Err)
	case a.Raw != "":
		return a.Raw
	default:
		return a.State.String()
	}
}

// first is the verdict over levels: the first that says anything, unless one says Off and another On, which is a disagreement. Where one
// says Off and another that the machine is changing, it is changing. On of what feeds the machine counts only while nothing else says
// anything: a machine that was shut down has power.
func first(levels []said) providers.Answer {
	if i := slices.IndexFunc(levels, func(s said) bool { return errors.Is(s.answer.Err, ErrDisagree) }); i >= 0 {
		return levels[i].answer
	}
	known := slices.DeleteFunc(slices.Clone(levels), func(s said) bool { return s.answer.State == providers.PowerUnknown })
	if len(known) == 0 {
		return levels[0].answer
	}
	runs := slices.DeleteFunc(slices.Clone(known), func(s said) bool { return s.device.Feeds && s.answer.State == providers.PowerOn })
	if len(runs) == 0 {
		return known[0].answer
	}
	off, on, changing := says(runs, providers.PowerOff), says(runs, providers.PowerOn), says(runs, providers.PowerChanging)
	switch {
	case off >= 0 && on >= 0:
		out := runs[off].answer
		out.State, out.Err = providers.PowerUnknown, ErrDisagree
		return out
	case off >= 0 && changing >= 0:
		return runs[changing].answer
	default:
		return runs[0].answer
	}
}

// says is the place of the first that says so; negative: none does.
func says(all []said, what providers.PowerState) int {
	return slices.IndexFunc(all, func(s said) bool { return s.answer.State == what })
}

// together is the verdict over one level. It was asked for when the first question was sent. It proves nothing until every device has
// answered. Off takes all of them; On beside Off is a disagreement.
func together(of []said) providers.Answer {
	out := of[0].answer
	if len(of) == 1 {
		return out
	}
	count := map[providers.PowerState]int{}
	for _, s := range of {
		count[s.answer.State]++
		if s.answer.At.Before(out.At) {
			out.At = s.answer.At
		}
		if out.Err == nil {
			out.Err = s.answer.Err
		}
	}
	out.State = providers.PowerUnknown
	switch {
	case count[providers.PowerOff] == len(of):
		out.State = providers.PowerOff
	case count[providers.PowerOff] > 0 && count[providers.PowerOn] > 0:
		out.Err = ErrDisagree
	case count[providers.PowerOn] > 0:
		out.State, out.Err = providers.PowerOn, nil
	case count[providers.PowerUnknown] == 0:
		out.State = providers.PowerChanging
	}
	return out
}

// Counted returns the answer as it counts: an Off that was on its way for longer than TTL proves nothing when it arrives, so it is a
// miss. Taken for an Off it would be asked for again at once and for ever.
func Counted(a providers.Answer) providers.Answer {
	if took := a.Got.Sub(a.At); a.State == providers.PowerOff && took > TTL {
		a.State, a.Err = providers.PowerUnknown, fmt.Errorf("%w: Off after %s", providers.ErrStale, took)
	}
	return a
}

// ErrDistrusted takes an Off from a device that lied once.
var ErrDistrusted = fmt.Errorf("%w: the device said Off of a machine that was on", providers.ErrPermanent)

// Distrusted returns the answer of a device that is not to be believed: its Off is none.
func Distrusted(a providers.Answer) providers.Answer {
	if a.State == providers.PowerOff {
		a.State, a.Err = providers.PowerUnknown, ErrDistrusted
	}
	return a
}

// NeverOff reports that the machine of the record's fence, which its device called Off, never was: its node is Ready, with a heartbeat,
// under the boot id that it had, and boot ids tell its boots apart. A person's fence has no device to blame.
func NeverOff(l taint.Look, r *taint.Record) bool { return sameBoot(l, r) && r.Run == "" }

// Unexplained reports a node that is back under the boot id that it had, where that alone proves nothing: it is its host's. Its device
// told which run of the machine ended, so it is asked which one goes on: Answers.RunNow.
func Unexplained(l taint.Look, r *taint.Record) bool {
	return sameBoot(l, r) && r.Run != "" && r.Restart == ""
}

func sameBoot(l taint.Look, r *taint.Record) bool {
	return !r.Vouched() && l.IsReady() && r.NodeUID == l.UID && r.BootID != "" && r.BootID == l.BootID && r.LeaseRV != l.LeaseRV
}

// Evidence writes an answer as a record's evidence.
func Evidence(a providers.Answer) taint.Evidence {
	raw := a.Raw
	if a.Err != nil {
		raw = providers.Class(a.Err) // never the error's text: it may hold what a log must not
	}
	return taint.Evidence{At: a.At, From: a.By, State: a.State.String(), Raw: raw}
}
