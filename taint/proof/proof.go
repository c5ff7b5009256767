// Package proof says what the answers of a machine's devices are worth: for how long, which of them count, what they say together, and
// when to ask again. It holds one answer per device and the verdict over all of them, so that a machine may have several.
//
// It is pure: it names no client, no clock and no logger.
//
// It promises: only an exact Off of every device is an Off, one that came in time, from devices that nobody has caught lying; nothing
// else becomes one by waiting (invariants 1, 2 and 4).
package proof

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// TTL is how long an answer proves anything, counted from when the question was sent.
const TTL = 5 * time.Second

// Answers are the last ones of a machine's devices. The zero value has one device, which was not asked.
type Answers struct {
	Answer providers.Answer // the verdict: what all devices say together; zero: not all of them were asked
	Misses int              // verdicts in a row that were neither On nor Off
	of     []said           // in the order of Expect
}

type said struct {
	device string
	answer providers.Answer
}

// Expect names the devices that speak for the machine, in their order. What others said is forgotten, and with other devices the verdict
// is made anew.
func (a *Answers) Expect(devices ...string) {
	if slices.EqualFunc(a.of, devices, func(s said, d string) bool { return s.device == d }) {
		return
	}
	of := make([]said, len(devices)) // an Answers that was copied keeps its own
	for i, d := range devices {
		of[i].device = d
		if j := slices.IndexFunc(a.of, func(s said) bool { return s.device == d }); j >= 0 {
			of[i] = a.of[j]
		}
	}
	a.of = of
	a.Answer = verdict(of)
}

// Answered folds in what a device said. One that is not expected is the only one.
func (a *Answers) Answered(device string, answer providers.Answer) {
	answer = Counted(answer)
	of := slices.Clone(a.of)
	i := slices.IndexFunc(of, func(s said) bool { return s.device == device })
	if i < 0 {
		of, i = []said{{device: device}}, 0
	}
	of[i].answer = answer
	a.of = of
	a.Answer = verdict(of)
	switch a.Answer.State {
	case providers.PowerOn, providers.PowerOff:
		a.Misses = 0
	default:
		a.Misses++
	}
}

// Anew forgets how often nothing was learned: another fence, or another life of the node, begins.
func (a *Answers) Anew() { a.Misses = 0 }

// Evidence are the answers as a record's evidence, one of each device.
func (a Answers) Evidence() []taint.Evidence {
	var out []taint.Evidence
	for _, s := range a.of {
		out = append(out, Evidence(s.answer))
	}
	return out
}

// Backoff is how long to wait after an answer from which nothing was learned: one second, doubled with every miss, 30 s at most.
func (a Answers) Backoff() time.Duration {
	return min(time.Second<<min(max(a.Misses-1, 0), 6), 30*time.Second)
}

// verdict is what the answers say together. It was asked for when the first question was sent, and was there with the last answer. It
// is zero until every device has answered. Off takes all of them; On beside Off is a disagreement, which proves nothing.
func verdict(of []said) providers.Answer {
	if len(of) == 0 {
		return providers.Answer{}
	}
	if len(of) == 1 {
		return of[0].answer
	}
	out := of[0].answer
	count := map[providers.PowerState]int{}
	var raw, by []string
	for _, s := range of {
		if s.answer.Got.IsZero() {
			return providers.Answer{}
		}
		count[s.answer.State]++
		raw, by = append(raw, s.device+": "+s.answer.Raw), append(by, s.answer.By)
		if s.answer.At.Before(out.At) {
			out.At = s.answer.At
		}
		if s.answer.Got.After(out.Got) {
			out.Got = s.answer.Got
		}
		if out.Err == nil {
			out.Err = s.answer.Err
		}
	}
	out.Raw, out.By = strings.Join(raw, ", "), strings.Join(slices.Compact(by), ", ")
	out.State = providers.PowerUnknown
	switch {
	case count[providers.PowerOff] == len(of):
		out.State = providers.PowerOff
	case count[providers.PowerOff] > 0 && count[providers.PowerOn] > 0:
		out.Err = fmt.Errorf("%w: its devices disagree: %s", providers.ErrPermanent, out.Raw)
	case count[providers.PowerOn] > 0:
		out.State = providers.PowerOn
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
// under the boot id that it had. A person's fence has no device to blame.
func NeverOff(l taint.Look, r *taint.Record) bool {
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
