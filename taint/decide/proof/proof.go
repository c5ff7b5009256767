// Package proof says what the answers of a machine's devices are worth: for how long, which of them count, what they say together, and
// when to ask again. It holds one answer per device and the verdict over all of them. It is the one place that knows what a level is
// (levels.go): what its devices say together, and in which order a power-off goes through levels and devices.
//
// It is pure: it names no client, no clock and no logger.
//
// It promises: only an exact Off of every device of a level is an Off, one that came in time, from devices that nobody has caught lying,
// and that no other level gainsays; nothing else becomes one by waiting (invariants 1, 2 and 4).
package proof

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// TTL is how long an answer proves anything, counted from when the question was sent.
const TTL = 5 * time.Second

// Sending is how long a write may take until it is on its way. Shortest is the least time for which a write is tried.
const (
	Sending  = 500 * time.Millisecond
	Shortest = 50 * time.Millisecond
)

// TimeToSend returns how long a write that rests on the answer may take from now until it is on its way: Sending, or
// less behind a device whose Off arrived when it was almost too old. Such a write gets all that is left of the Off, as
// long as that is half of what was left when the Off arrived, and not below Shortest. Later writes take another answer:
// the proof does not hold until Sending is over.
func TimeToSend(a providers.Answer, now providers.Instant) time.Duration {
	onArrival, left := TTL-a.At.Age(a.Got), TTL-a.At.Age(now)
	if a.State != providers.PowerOff || left < max(onArrival/2, Shortest) {
		return Sending
	}
	return min(left, Sending)
}

// Device is one that speaks for the machine.
type Device struct {
	Name    string        // provider/device, as it stands in records
	Machine taint.Machine // for the record: what it is asked about
	Level   int           // devices of one level must all say Off; of several levels, each may prove it. They stand in the levels' order
	Limits  Limits        // of its level
	NoPower string        // "" or why the machine's power must not be touched through it
	Feeds   bool          // it gives the machine power (providers.Feeder): its On does not say that the machine runs
}

// RecordedDevice names the first device, and what it is asked about, for a record; "" and nil where there is none.
func RecordedDevice(devices []Device) (string, *taint.Machine) {
	if len(devices) == 0 {
		return "", nil
	}
	return devices[0].Name, devices[0].Machine.OrNil()
}

// SpeakersOf are the devices as a record names them.
func SpeakersOf(devices []Device) []taint.DeviceRef {
	var out []taint.DeviceRef
	for _, d := range devices {
		out = append(out, d.toSpeaker())
	}
	return out
}

func (d Device) toSpeaker() taint.DeviceRef {
	return taint.DeviceRef{Device: d.Name, Machine: d.Machine.OrNil()}
}

// Answers are the last ones of a machine's devices. The zero value has no device.
type Answers struct {
	Answer      providers.Answer // the verdict: what all devices say together; zero: they were not asked
	Misses      int              // verdicts in a row that were neither On nor Off
	lastAnswers []deviceAnswer   // in the order of SetDevices
}

type deviceAnswer struct {
	device Device
	answer providers.Answer // the last; zero: not asked
	off    providers.Answer // its last Off in this fence, or in this life of the node before it; zero: none
}

// SetDevices names the devices that speak for the machine, in their order. What others said is forgotten, and with other devices they are
// all to be asked again.
func (a *Answers) SetDevices(devices ...Device) {
	if slices.EqualFunc(a.lastAnswers, devices, func(s deviceAnswer, d Device) bool { return s.device == d }) {
		return
	}
	of := make([]deviceAnswer, len(devices)) // an Answers that was copied keeps its own
	for i, d := range devices {
		of[i].device = d
		if j := slices.IndexFunc(a.lastAnswers, func(s deviceAnswer) bool { return s.device.Name == d.Name }); j >= 0 {
			of[i].off = a.lastAnswers[j].off
		}
	}
	a.lastAnswers, a.Answer = of, providers.Answer{}
}

// ApplyAnswers folds in what the devices said when they were asked, all at once: one answer of each, in the order of SetDevices. A device
// without an answer has said nothing.
func (a *Answers) ApplyAnswers(answers ...providers.Answer) {
	of := slices.Clone(a.lastAnswers)
	for i := range of {
		of[i].answer = providers.Answer{}
		if i < len(answers) {
			of[i].answer = withoutStaleOff(answers[i])
		}
		if of[i].answer.State == providers.PowerOff {
			of[i].off = of[i].answer
		}
	}
	a.lastAnswers = of
	a.Answer = verdictOf(of)
	switch a.Answer.State {
	case providers.PowerOn, providers.PowerOff:
		a.Misses = 0
	default:
		a.Misses++
	}
}

// ResetHistory forgets how often nothing was learned, and who said Off: another fence, or another life of the node, begins.
func (a *Answers) ResetHistory() {
	a.Misses, a.lastAnswers = 0, slices.Clone(a.lastAnswers)
	for i := range a.lastAnswers {
		a.lastAnswers[i].off = providers.Answer{}
	}
}

// HasDisagreement reports that the devices contradict each other: one says Off, another On.
func (a Answers) HasDisagreement() bool { return errors.Is(a.Answer.Err, ErrDisagree) }

// IsRunning reports that the machine runs, as far as its devices can tell: what feeds it says so only where nothing else speaks for it.
func (a Answers) IsRunning() bool {
	runs := func(s deviceAnswer) bool { return !s.device.Feeds && s.answer.State == providers.PowerOn }
	other := func(s deviceAnswer) bool { return !s.device.Feeds }
	return a.Answer.State == providers.PowerOn && (slices.ContainsFunc(a.lastAnswers, runs) || !slices.ContainsFunc(a.lastAnswers, other))
}

// State is what the device at that place said last; PowerUnknown if it has not answered.
func (a Answers) State(device int) providers.PowerState {
	if device >= len(a.lastAnswers) {
		return providers.PowerUnknown
	}
	return a.lastAnswers[device].answer.State
}

// MachineRun is the machine's run, and the device that tells it: the first that tells one. "" where boot ids tell boots apart.
func (a Answers) MachineRun() (run, by string) {
	for _, s := range a.lastAnswers {
		if s.answer.Run != "" {
			return s.answer.Run, s.device.Name
		}
	}
	return "", ""
}

// RunNow is the machine's run as the device tells it that told the record's: the runs of two devices cannot be compared. It is "" where
// that does not answer. What it says is its own word: a device that invents a start is not caught.
func (a Answers) RunNow(r *taint.Record) string {
	for _, s := range a.lastAnswers {
		if s.device.Name == r.RunBy || r.RunBy == "" && len(a.lastAnswers) == 1 { // a record of an older version had one device
			return s.answer.Run
		}
	}
	return ""
}

// Evidence are the answers as a record's evidence, one of each device.
func (a Answers) Evidence() []taint.Evidence {
	var out []taint.Evidence
	for _, s := range a.lastAnswers {
		out = append(out, a.deviceEvidence(s, s.answer))
	}
	return out
}

// OffEvidence are the devices' last OffEvidence, as a record's evidence, of those that the record does not have saying Off: what proves in the middle
// of an eviction need not be what proved its beginning. Only where there are several devices: one alone is the record's.
func (a Answers) OffEvidence(r *taint.Record) []taint.Evidence {
	var out []taint.Evidence
	for _, s := range a.lastAnswers {
		e := a.deviceEvidence(s, s.off)
		if len(a.lastAnswers) > 1 && !s.off.Got.IsZero() && !r.HasOff(e.From) {
			out = append(out, e)
		}
	}
	return out
}

// deviceEvidence names the device where there are several; one alone stands in the record already.
func (a Answers) deviceEvidence(s deviceAnswer, answer providers.Answer) taint.Evidence {
	e := evidenceOf(answer)
	if len(a.lastAnswers) > 1 {
		e.From = s.device.Name
	}
	return e
}

// Backoff is how long to wait after an answer from which nothing was learned: one second, doubled with every miss, 30 s at most.
func (a Answers) Backoff() time.Duration {
	return min(time.Second<<min(max(a.Misses-1, 0), 6), 30*time.Second)
}

// withoutStaleOff returns the answer as it counts: an Off that was on its way for longer than TTL proves nothing when it arrives, so it is a
// miss. Taken for an Off it would be asked for again at once and for ever.
func withoutStaleOff(a providers.Answer) providers.Answer {
	if took := a.At.Age(a.Got); a.State == providers.PowerOff && took > TTL {
		a.State, a.Err = providers.PowerUnknown, fmt.Errorf("%w: Off after %s", providers.ErrStale, took)
	}
	return a
}

// ErrDistrusted takes an Off from a device that lied once.
var ErrDistrusted = fmt.Errorf("%w: the device said Off of a machine that was on", providers.ErrPermanent)

// WithoutOff returns the answer of a device that is not to be believed: its Off is none.
func WithoutOff(a providers.Answer) providers.Answer {
	if a.State == providers.PowerOff {
		a.State, a.Err = providers.PowerUnknown, ErrDistrusted
	}
	return a
}

// WasNeverOff reports that the machine of the record's fence, which its device called Off, never was: its node is Ready, with a heartbeat,
// under the boot id that it had, and boot ids tell its boots apart. A person's fence has no device to blame.
func WasNeverOff(l taint.Look, r *taint.Record) bool { return isSameBoot(l, r) && r.Run == "" }

// NeedsExplanation reports a node that is back under the boot id that it had, where that alone proves nothing: it is its host's. Its device
// told which run of the machine ended, so it is asked which one goes on: Answers.RunNow.
func NeedsExplanation(l taint.Look, r *taint.Record) bool {
	return isSameBoot(l, r) && r.Run != "" && r.Restart == ""
}

func isSameBoot(l taint.Look, r *taint.Record) bool {
	return !r.IsVouchedFor() && l.IsReady() && r.NodeUID == l.UID && r.BootID != "" && r.BootID == l.BootID && r.LeaseRV != l.LeaseRV
}

// evidenceOf writes an answer as a record's evidence.
func evidenceOf(a providers.Answer) taint.Evidence {
	raw := a.Raw
	if a.Err != nil {
		raw = providers.ErrorClass(a.Err) // never the error's text: it may hold what a log must not
	}
	return taint.Evidence{At: a.At.Wall, From: a.By, State: a.State.String(), Raw: raw, SystemUUID: a.SystemUUID}
}
