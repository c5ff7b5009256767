// Package proof says what the answers of a machine's devices prove: for how long, which of them count, what their
// combined verdict is, and when to ask again. It holds one answer per device and the verdict over all of them. Only
// this package knows what a level is: how its devices' answers combine (several_devices.go), and in which order a
// power-off goes through levels and devices (power_offs.go).
//
// It is pure: it names no client, no clock and no logger.
//
// It promises: only an exact Off of every device of a level is an Off. It must have come in time, from devices that
// were not caught lying, and no other level may contradict it. Nothing else becomes an Off by waiting (invariants 1, 2
// and 4).
package proof

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// TTL is how long an answer is evidence, counted from when the question was sent.
const TTL = 5 * time.Second

// Sending is how long a write may take until it is on its way. Shortest is the minimum time for which a write is tried.
const (
	Sending  = 500 * time.Millisecond
	Shortest = 50 * time.Millisecond
)

// TimeToSend returns how long a write that depends on the answer may take from now until it is on its way. That is
// Sending, or less behind a device whose Off arrived when it was almost too old. Such a write gets the rest of the
// Off's time. The rest must be at least half of what was left when the Off arrived, and not below Shortest. Later
// writes need another answer: the proof does not hold until Sending is over.
func TimeToSend(a providers.Answer, now providers.Instant) time.Duration {
	onArrival, left := TTL-a.At.Age(a.Got), TTL-a.At.Age(now)
	if a.State != providers.PowerOff || left < max(onArrival/2, Shortest) {
		return Sending
	}
	return min(left, Sending)
}

// Device is one device that speaks for the machine.
type Device struct {
	Name    string           // provider/device, as in records
	Machine taint.MachineRef // what the device is asked about, for the record
	// Level groups the devices. Devices of one level must all answer Off; of several levels, each may prove it. Devices
	// are sorted by level.
	Level   int
	Limits  Limits // of its level
	NoPower string // "" or why the machine's power must not be touched through it
	Feeds   bool   // it feeds the machine (providers.Feeder): its On does not mean that the machine runs
	// Orders reports that its power-off is an order that remains until it is taken back (providers.Withdrawer).
	Orders bool `json:",omitempty"`
}

// RecordedDevice returns the first device's name and machine, for a record; "" and nil if there is no device.
func RecordedDevice(devices []Device) (string, *taint.MachineRef) {
	if len(devices) == 0 {
		return "", nil
	}
	return devices[0].Name, devices[0].Machine.OrNil()
}

// SpeakersOf returns the devices as a record names them.
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

// Answers are the last answers of a machine's devices. The zero value has no device.
type Answers struct {
	Answer      providers.Answer // the combined verdict of all devices; zero: they were not asked
	Misses      int              // verdicts in a row that were neither On nor Off
	lastAnswers []deviceAnswer   // in the order of SetDevices
}

type deviceAnswer struct {
	device Device
	answer providers.Answer // the last; zero: not asked
	off    providers.Answer // its last Off in this fence, or in this life of the node before it; zero: none
}

// SetDevices sets the devices that speak for the machine, in their order. The answers of other devices are forgotten.
// If the devices changed, all must be asked again.
func (a *Answers) SetDevices(devices ...Device) {
	if slices.EqualFunc(a.lastAnswers, devices, func(s deviceAnswer, d Device) bool { return s.device == d }) {
		return
	}
	of := make([]deviceAnswer, len(devices)) // a copy of Answers keeps its own
	for i, d := range devices {
		of[i].device = d
		if j := slices.IndexFunc(a.lastAnswers, func(s deviceAnswer) bool { return s.device.Name == d.Name }); j >= 0 {
			of[i].off = a.lastAnswers[j].off
		}
	}
	a.lastAnswers, a.Answer = of, providers.Answer{}
}

// ApplyAnswers folds in the devices' answers to one question, one of each in the order of SetDevices. A device without
// an answer counts as not answering.
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

// ResetHistory forgets the count of misses, and which devices answered Off. Another fence, or another life of the node,
// begins.
func (a *Answers) ResetHistory() {
	a.Misses, a.lastAnswers = 0, slices.Clone(a.lastAnswers)
	for i := range a.lastAnswers {
		a.lastAnswers[i].off = providers.Answer{}
	}
}

// HasDisagreement reports whether the devices contradict each other: one answers Off, another On.
func (a Answers) HasDisagreement() bool { return errors.Is(a.Answer.Err, ErrDisagree) }

// IsRunning reports whether the machine runs, as far as its devices can tell. A device that feeds it counts only if no
// other kind of device speaks for it.
func (a Answers) IsRunning() bool {
	runs := func(s deviceAnswer) bool { return !s.device.Feeds && s.answer.State == providers.PowerOn }
	other := func(s deviceAnswer) bool { return !s.device.Feeds }
	return a.Answer.State == providers.PowerOn &&
		(slices.ContainsFunc(a.lastAnswers, runs) || !slices.ContainsFunc(a.lastAnswers, other))
}

// State returns the last answer of the device at that index; PowerUnknown if it has not answered.
func (a Answers) State(device int) providers.PowerState {
	if device >= len(a.lastAnswers) {
		return providers.PowerUnknown
	}
	return a.lastAnswers[device].answer.State
}

// MachineRun returns the machine's run and the first device that reports one. Both are "" where boot ids tell boots
// apart.
func (a Answers) MachineRun() (run, by string) {
	for _, s := range a.lastAnswers {
		if s.answer.Run != "" {
			return s.answer.Run, s.device.Name
		}
	}
	return "", ""
}

// RunNow returns the machine's run as reported by the device that reported the record's: runs of two devices cannot be
// compared. It is "" if that device does not answer. The device's report is trusted: one that invents a start is not
// caught.
func (a Answers) RunNow(r *taint.Record) string {
	for _, s := range a.lastAnswers {
		if s.device.Name == r.RunBy || r.RunBy == "" && len(a.lastAnswers) == 1 {
			// A record of an older version had one device.
			return s.answer.Run
		}
	}
	return ""
}

// Evidence returns the answers as a record's evidence, one of each device.
func (a Answers) Evidence() []taint.Evidence {
	knows := slices.ContainsFunc(a.lastAnswers, deviceAnswer.knowsMachine)
	var out []taint.Evidence
	for _, s := range a.lastAnswers {
		e := a.deviceEvidence(s, s.answer)
		e.Fed = knows && s.device.Feeds
		out = append(out, e)
	}
	return out
}

// knowsMachine reports whether the device knows the state of the machine itself, and not only whether it has power.
func (s deviceAnswer) knowsMachine() bool {
	return !s.device.Feeds && s.answer.State != providers.PowerUnknown
}

// OffEvidence returns the devices' last Off answers as a record's evidence, without devices whose Off the record
// already has. The proof in the middle of an eviction may differ from that at its beginning. It returns nil for a
// single device, which the record has already.
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

// deviceEvidence names the device if there are several; a single device is in the record already.
func (a Answers) deviceEvidence(s deviceAnswer, answer providers.Answer) taint.Evidence {
	e := evidenceOf(answer)
	if len(a.lastAnswers) > 1 {
		e.From = s.device.Name
	}
	return e
}

// Backoff returns how long to wait after an answer without information: one second, doubled with every miss, at most 30
// s.
func (a Answers) Backoff() time.Duration {
	return min(time.Second<<min(max(a.Misses-1, 0), 6), 30*time.Second)
}

// withoutStaleOff returns the answer as it counts. An Off that was in transit for longer than TTL proves nothing on
// arrival, so it is a miss. If it counted as Off, it would be requested again at once and for ever.
func withoutStaleOff(a providers.Answer) providers.Answer {
	if took := a.At.Age(a.Got); a.State == providers.PowerOff && took > TTL {
		a.State, a.Err = providers.PowerUnknown, fmt.Errorf("%w: Off after %s", providers.ErrStale, took)
	}
	return a
}

// ErrDistrusted replaces an Off of a device that lied once.
var ErrDistrusted = fmt.Errorf("%w: the device said Off of a machine that was on", providers.ErrPermanent)

// WithoutOff returns the answer of a distrusted device: its Off becomes PowerUnknown.
func WithoutOff(a providers.Answer) providers.Answer {
	if a.State == providers.PowerOff {
		a.State, a.Err = providers.PowerUnknown, ErrDistrusted
	}
	return a
}

// WasNeverOff reports whether the machine of the record's fence was never off, although its device answered Off. Its
// node is Ready, with a heartbeat, under the same boot id, and boot ids tell its boots apart. A person's fence has no
// device to blame.
func WasNeverOff(l taint.Look, r *taint.Record) bool { return isSameBoot(l, r) && r.Run == "" }

// NeedsExplanation reports whether a node is back under its old boot id where that alone proves nothing, because it is
// its host's. Its device reported which run of the machine ended, so it is asked for the current one: Answers.RunNow.
func NeedsExplanation(l taint.Look, r *taint.Record) bool {
	return isSameBoot(l, r) && r.Run != "" && r.Restart == ""
}

func isSameBoot(l taint.Look, r *taint.Record) bool {
	return !r.IsVouchedFor() && l.IsReady() && r.NodeUID == l.UID && r.BootID != "" && r.BootID == l.BootID &&
		l.IsAliveSince(r)
}

// evidenceOf returns an answer as a record's evidence.
func evidenceOf(a providers.Answer) taint.Evidence {
	raw := a.Raw
	if a.Err != nil {
		raw = providers.ErrorClass(a.Err) // never the error's text: it may hold what a log must not
	}
	return taint.Evidence{At: a.At.Wall, From: a.By, State: a.State.String(), Raw: raw, SystemUUID: a.SystemUUID}
}
