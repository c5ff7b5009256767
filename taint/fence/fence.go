// Package fence decides what to do next about a node that looks dead and is not marked: steps 1 to 5 of the protocol, up to the
// PATCH that sets the mark. From there package evict decides.
//
// It is pure: Step is a function from a View (what was seen, and what is remembered) to a Decision (one act). It names no client,
// no clock and no logger, so that production, the simulation and the unit tests run the same code. The caller's loop is: look
// live, fold the look into Memory, Step, act, and again. Every act is therefore preceded by a live look, and followed by one.
//
// It promises: the mark is set, and power is cut, only on a node whose life did not change between the first look and the last;
// the mark only after an exact Off that was asked for in between; power only in mode fence, after the grace, with the record
// already written, and for at most one machine at a time.
package fence

import (
	"fmt"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// ProofTTL is how long an answer proves anything, counted from when the question was sent.
const ProofTTL = 5 * time.Second

// Mode says what to do about a node that does not answer while its machine is on. The zero value observes.
type Mode uint8

// The modes.
const (
	Observe Mode = iota // say so, and keep watching
	Fence               // power it off after the grace
)

// String returns the mode's name in the configuration.
func (m Mode) String() string {
	if m == Fence {
		return "fence"
	}
	return "observe"
}

// Act is what the caller does next.
type Act uint8

// The acts.
const (
	Leave    Act = iota // nothing, until something changes
	Wait                // nothing; look again after Decision.After
	Look                // look live again at once
	Ask                 // put the question to the machine's device
	Write               // PATCH Decision.Record with the Look's resourceVersion; no mark
	PowerOff            // power the machine off
	Arm                 // PATCH the mark and Decision.Record in one write with the Look's resourceVersion
)

// String names the act for logs.
func (a Act) String() string {
	return [...]string{"Leave", "Wait", "Look", "Ask", "Write", "PowerOff", "Arm"}[a]
}

// Why is the reason of a decision, from a closed set: it is an Event's reason, a metric's label and a log's key.
type Why string

// The reasons.
const (
	Gone             Why = "NodeGone"           // the Node object does not exist
	Marked           Why = "NodeMarked"         // marked already: package evict decides
	BadRecord        Why = "RecordUnreadable"   // nobody knows what the record announced: a person must release
	MarkVanished     Why = "MarkRemovedByOther" // the record stands at Armed or Evicting, and the mark is gone
	Healthy          Why = "NodeHealthy"        // nothing points at a dead node
	NeverOff         Why = "FencedNodeNeverPoweredOff"
	Excluded         Why = "NodeExcluded"     // maintenance, pause, opt-out
	NoMachine        Why = "NoMachine"        // no provider knows the node, or two claim it
	Distrusted       Why = "DeviceDistrusted" // its device said Off of a machine that was on
	AllStale         Why = "AllLeasesStale"   // every node looks dead at once: it is the API server's fault, or ours
	NoWork           Why = "NothingToEvict"   // no pod to move, no volume to detach
	Asking           Why = "AskingMachine"    // no answer since the node was looked at
	Unknown          Why = "PowerUnknown"     // no usable answer: never off by waiting
	Changing         Why = "PowerChanging"
	PoweredOn        Why = "PoweredOnNotReady" // observe mode
	ControlPlane     Why = "ControlPlaneNode"  // a control-plane node is not powered off without a quorum guard
	StillBeating     Why = "KubeletHeartbeats" // NotReady, but its kubelet renews its Lease: it can stop its pods itself
	InGrace          Why = "WaitingForGrace"
	OneAtATime       Why = "AnotherPowerOff"
	Announcing       Why = "PoweringOff"
	SendingOff       Why = "SendingPowerOff"
	AwaitingOff      Why = "AwaitingOff"
	PowerOffFailed   Why = "PowerOffFailed"
	BackingOff       Why = "PowerOffBackOff"
	Recovered        Why = "NodeRecovered"
	Rearming         Why = "MarkBackOff" // the last mark was lifted unconfirmed, or removed by somebody, just now
	ProvenOff        Why = "MachineOff"
	LookedTooEarly   Why = "LookOlderThanAnswer"
	UnexpectedAnswer Why = "UnexpectedAnswer"
	Released         Why = "ReleasedByPerson" // a person ended the last fence of this very life of the node
	ModeObserve      Why = "ModeObserve"      // the mode changed before the power-off was sent
)

// Suspicion says why a node looks dead. It only makes us ask.
type Suspicion struct {
	Why        string    // "" if the node looks alive
	Since      time.Time // when this process first saw it; zero counts as now
	LeaseStale bool      // its Lease missed two renewals, by this process's own watch
}

// Memory is what one process remembers of one node between two looks. It is never needed for safety after a restart: it is
// built again from new looks and new answers. The zero value remembers nothing.
type Memory struct {
	Begin        taint.Look       // step 2: the first look at this life of the node
	Answer       providers.Answer // the last answer since then; zero: none
	Misses       int              // answers in a row that were neither On nor Off
	PowerOffSent time.Time        // when power-off was last sent in this fence; zero: never
	PowerOffErr  bool             // the device did not accept it
}

// Saw folds a live look in. A heartbeat, another boot or another Node object begins anew and forgets the answer.
func (m *Memory) Saw(l taint.Look) {
	if !m.Begin.Exists || !m.Begin.SameLife(l) {
		*m = Memory{Begin: l}
	}
	if l.Record == nil || l.Record.Phase != taint.PhasePoweringOff {
		m.PowerOffSent, m.PowerOffErr = time.Time{}, false
	}
}

// Answered folds an answer in. An answer that was asked for before the first look at this life is dropped.
func (m *Memory) Answered(a providers.Answer) {
	if a.At.Before(m.Begin.Got) {
		return
	}
	a = Counted(a)
	m.Answer = a
	switch a.State {
	case providers.PowerOn, providers.PowerOff:
		m.Misses = 0
	default:
		m.Misses++
	}
}

// Counted returns the answer as it counts: an Off that was on its way for longer than ProofTTL proves nothing when it arrives,
// so it is a miss. Taken for an Off it would be asked for again at once and for ever.
func Counted(a providers.Answer) providers.Answer {
	if took := a.Got.Sub(a.At); a.State == providers.PowerOff && took > ProofTTL {
		a.State, a.Err = providers.PowerUnknown, fmt.Errorf("%w: Off after %s", providers.ErrStale, took)
	}
	return a
}

// Settings are the configured limits. All must be positive.
type Settings struct {
	PowerOffAfter   time.Duration // fence mode: how long a node must look dead while its machine is on
	PowerOffTimeout time.Duration // how long to ask for Off after the power-off was announced
	Retry           time.Duration // how long to leave a node alone after a power-off that failed
}

// View is all that Step decides on.
type View struct {
	Now  time.Time
	Look taint.Look // live, read after the last act
	Memory
	Settings

	Mode         Mode
	Suspect      Suspicion
	Machine      string // "" if exactly one provider speaks for the node; else why none does
	Device       string // the device's name for the record
	Excluded     string // "" or why the node must be left alone
	Distrusted   bool   // the device is not to be believed
	ControlPlane bool
	AllStale     bool   // no other node's Lease is fresh
	Busy         string // another node that is being powered off; "" if none
	Work         bool   // evict.Work, from a live list

	NewID string // the id of a fence that begins now
	By    string // this controller's identity
}

// Decision is one act and its reason.
type Decision struct {
	Act    Act
	Why    Why
	Detail string        // a person's text beside Why; may be empty
	After  time.Duration // Wait: when to look again
	Record taint.Record  // Write, Arm
}

// Intervals between two questions. An Off or a new suspicion is asked about at once.
const (
	pollOn       = 5 * time.Second
	pollChanging = 500 * time.Millisecond
	pollUnknown  = time.Second // doubled with every miss
	pollMax      = 30 * time.Second
	pollOff      = 250 * time.Millisecond // while a power-off of ours is under way
	resendOff    = 10 * time.Second       // some BMCs accept a power-off and do nothing
	recheck      = 30 * time.Second       // gates that no watch opens
	rearm        = 5 * time.Second        // between a mark that was taken off and the next
)

// Step returns the next act for a node. It may be called as often as one likes.
func Step(v View) Decision {
	l, rec := v.Look, v.Look.Record
	powering := rec != nil && rec.Phase == taint.PhasePoweringOff
	switch {
	case !l.Exists:
		return Decision{Act: Leave, Why: Gone}
	case l.Mark != nil:
		return Decision{Act: Leave, Why: Marked}
	case l.RecordErr != nil:
		return Decision{Act: Leave, Why: BadRecord, Detail: l.RecordErr.Error()}
	case rec.Open() && !powering:
		return v.close(taint.ResultMarkRemoved, MarkVanished)
	case v.neverOff():
		return v.close(taint.ResultNeverPoweredOff, NeverOff)
	}
	why, detail, after := v.gate()
	announced := powering && v.PowerOffSent.IsZero()
	switch {
	case why != "" && !powering && after == 0:
		return Decision{Act: Leave, Why: why, Detail: detail}
	case why != "" && !powering:
		return Decision{Act: Wait, Why: why, Detail: detail, After: after}
	case why != "" && announced:
		return v.close(taint.ResultCancelled, why) // until the power-off itself is sent, every gate wins over it (invariant 8)
	case why == Healthy, why == NoWork, why == NoMachine, why == Distrusted:
		return v.close(taint.ResultCancelled, why) // sent or not: nothing to do, or nobody whose Off would prove anything
	case announced && v.Mode != Fence:
		return v.close(taint.ResultCancelled, ModeObserve)
	case announced && v.ControlPlane:
		return v.close(taint.ResultCancelled, ControlPlane)
	case powering && l.Alive(rec):
		return v.close(taint.ResultCancelled, Recovered)
	}
	// A new leader asks first: the machine may have gone off while nobody led.
	if powering && v.Now.Sub(rec.At) > v.PowerOffTimeout && !v.Answer.Got.IsZero() && v.State() != providers.PowerOff {
		return v.close(taint.ResultPowerOffFailed, PowerOffFailed)
	}
	return v.byAnswer(powering)
}

// gate is step 1: the first reason to leave the node alone, "" if there is none. after zero means that a change will wake us.
func (v View) gate() (why Why, detail string, after time.Duration) {
	switch {
	case v.Suspect.Why == "":
		return Healthy, "", 0
	case v.Excluded != "":
		return Excluded, v.Excluded, recheck
	case v.Machine != "":
		return NoMachine, v.Machine, recheck
	case v.Distrusted:
		return Distrusted, "", recheck
	case v.released():
		return Released, "", recheck
	case v.AllStale:
		return AllStale, "", time.Second
	case !v.Work:
		return NoWork, "", recheck
	}
	return "", "", 0
}

// State is what the answer since the first look at this life proves now; PowerUnknown if there is none.
func (v View) State() providers.PowerState {
	if v.Answer.Got.IsZero() || v.Answer.At.Before(v.Begin.Got) {
		return providers.PowerUnknown
	}
	return v.Answer.State
}

// byAnswer is steps 3 to 5.
func (v View) byAnswer(powering bool) Decision {
	if v.Answer.Got.IsZero() {
		return Decision{Act: Ask, Why: Asking}
	}
	switch v.State() {
	case providers.PowerOff:
		switch {
		case v.endedLately() > 0:
			return Decision{Act: Wait, Why: Rearming, After: v.endedLately()}
		case v.Now.Sub(v.Answer.At) > ProofTTL:
			return Decision{Act: Ask, Why: Asking}
		case !v.Look.Sent.After(v.Answer.Got):
			return v.lookAgain() // step 4: snapshot again, after Off was seen
		case !v.Begin.SameLife(v.Look):
			return Decision{Act: Look, Why: Recovered}
		}
		rec := v.begin(powering).WithEvidence(EvidenceOf(v.Answer))
		return Decision{Act: Arm, Why: ProvenOff, Record: rec.Enter(taint.PhaseArmed, "", v.Now)}
	case providers.PowerOn:
		return v.on(powering)
	case providers.PowerChanging:
		return v.askEvery(pollChanging, Changing)
	case providers.PowerUnknown:
		every := pollUnknown << min(max(v.Misses-1, 0), 6)
		return v.askEvery(min(every, pollMax), Unknown)
	default:
		return Decision{Act: Wait, Why: UnexpectedAnswer, After: pollMax}
	}
}

// on is step 3 for a machine that is on.
func (v View) on(powering bool) Decision {
	if v.Mode != Fence && !powering {
		return v.askEvery(pollOn, PoweredOn)
	}
	if !powering {
		grace := v.PowerOffAfter
		if !v.Suspect.Since.IsZero() {
			grace -= v.Now.Sub(v.Suspect.Since)
		}
		switch {
		case v.ControlPlane:
			return v.askEvery(pollOn, ControlPlane)
		case !v.Suspect.LeaseStale:
			return v.askEvery(pollOn, StillBeating)
		case grace > 0:
			return v.askEvery(min(grace, pollOn), InGrace)
		case v.Busy != "":
			d := v.askEvery(time.Second, OneAtATime)
			d.Detail = v.Busy
			return d
		case v.failedLately() > 0:
			return v.askEvery(min(v.failedLately(), pollOn), BackingOff)
		}
	}
	if v.Now.Sub(v.Answer.Got) > ProofTTL { // On proves nothing: a slow device's counts from when it was there
		return Decision{Act: Ask, Why: Asking}
	}
	if !powering {
		rec := v.begin(false).WithEvidence(EvidenceOf(v.Answer))
		return Decision{Act: Write, Why: Announcing, Record: rec.Enter(taint.PhasePoweringOff, "", v.Now)}
	}
	sent := v.Now.Sub(v.PowerOffSent)
	switch {
	case !v.PowerOffSent.IsZero() && !v.maySendAgain():
		return v.askEvery(pollOff, AwaitingOff)
	case v.PowerOffSent.IsZero(), v.PowerOffErr && sent >= time.Second, sent >= resendOff:
		// The Look was made after the record was committed (it shows it), and shows no life since: a stale leader, or one whose
		// question took long, cannot power off a node that recovered.
		if v.Now.Sub(v.Look.Got) > ProofTTL || !v.Look.Sent.After(v.Answer.Got) {
			return v.lookAgain()
		}
		return Decision{Act: PowerOff, Why: SendingOff}
	default:
		return v.askEvery(pollOff, AwaitingOff)
	}
}

// maySendAgain reports whether a power-off that was sent may be sent once more. What came too late for the first, a maintenance or
// another mode, is in time for the second: somebody may have switched the machine on again on purpose.
func (v View) maySendAgain() bool {
	why, _, _ := v.gate()
	return why == "" && v.Mode == Fence && !v.ControlPlane
}

// askEvery asks once the last answer is older than every, and waits until then.
func (v View) askEvery(every time.Duration, why Why) Decision {
	if left := every - v.Now.Sub(v.Answer.Got); left > 0 {
		return Decision{Act: Wait, Why: why, After: left}
	}
	return Decision{Act: Ask, Why: why}
}

// begin is the record of a fence at this look: the announced one goes on under its id.
func (v View) begin(powering bool) taint.Record {
	r := taint.Record{ID: v.NewID, Since: v.Now.UTC().Truncate(time.Millisecond), By: v.By}
	if powering {
		r = *v.Look.Record
	}
	r.NodeUID, r.BootID, r.LeaseRV, r.Device = v.Look.UID, v.Look.BootID, v.Look.LeaseRV, v.Device
	return r
}

// close ends the fence that the record tells of.
func (v View) close(res taint.Result, why Why) Decision {
	return Decision{Act: Write, Why: why, Record: v.Look.Record.Enter(taint.PhaseDone, res, v.Now)}
}

// neverOff reports a node that came back, Ready and with a heartbeat, under the boot id it had when its machine was said to be
// off: it never was. A person's fence has no device to blame.
func (v View) neverOff() bool {
	r := v.Look.Record
	return r != nil && r.Phase == taint.PhaseDone && (r.Result == taint.ResultEvicted || r.Result == taint.ResultReturned) &&
		r.By != taint.ByPerson && v.Look.IsReady() && r.NodeUID == v.Look.UID && r.BootID != "" && r.BootID == v.Look.BootID &&
		r.LeaseRV != v.Look.LeaseRV
}

// released reports that a person ended the fence of this life of the node. A heartbeat or a boot begins another.
func (v View) released() bool {
	r := v.Look.Record
	return r != nil && r.Result == taint.ResultReleased && !v.Look.Alive(r)
}

// endedLately is how long to wait before the mark is set again on a node whose last fence ended without an eviction and without a
// sign of life: its device says Off and then does not confirm it, or somebody takes the mark off. Either would go on for ever, at
// the speed of the device. A record from the future is another clock's.
func (v View) endedLately() time.Duration {
	r := v.Look.Record
	if r == nil || (r.Result != taint.ResultLifted && r.Result != taint.ResultMarkRemoved) || v.Look.Alive(r) {
		return 0
	}
	if age := v.Now.Sub(r.At); age >= 0 {
		return rearm - age
	}
	return 0
}

// lookAgain asks for a look that was sent after the answer was there. Where a clock is too coarse to tell the two apart it lets it
// move on first.
func (v View) lookAgain() Decision {
	if v.Look.Sent.Equal(v.Answer.Got) {
		return Decision{Act: Wait, Why: LookedTooEarly, After: time.Millisecond}
	}
	return Decision{Act: Look, Why: LookedTooEarly}
}

// failedLately is how long to wait before power-off is tried again.
func (v View) failedLately() time.Duration {
	r := v.Look.Record
	if r == nil || r.Result != taint.ResultPowerOffFailed {
		return 0
	}
	return v.Retry - v.Now.Sub(r.At)
}

// EvidenceOf writes an answer as a record's evidence.
func EvidenceOf(a providers.Answer) taint.Evidence {
	raw := a.Raw
	if a.Err != nil {
		raw = providers.Class(a.Err) // never the error's text: it may hold what a log must not
	}
	return taint.Evidence{At: a.At, From: a.By, State: a.State.String(), Raw: raw}
}
