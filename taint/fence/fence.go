// Package fence decides what to do next about a node that looks dead and is not marked: steps 1 to 5 of the protocol, up to the
// PATCH that sets the mark. From there package evict decides.
//
// It is pure: Step is a function from a View (what was seen, and what is remembered) to a Decision (one act). It names no client,
// no clock and no logger, so that production, the simulation and the unit tests run the same code. The caller's loop is: look
// live, fold the look into Memory, Step, act, and again. Every act is therefore preceded by a live look, and followed by one.
//
// It promises: the mark is set, and power is cut, only on a node whose life did not change between the first look and the last;
// the mark only after an exact Off that was asked for in between; power only in mode fence, after a silence that counts has lasted
// for the grace, with the record already written, and for at most one machine at a time.
package fence

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fleet"
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
	ReadLive            // list the attachments from the API server and decide again on the same Look: a cache is not believed here
)

// String names the act for logs.
func (a Act) String() string {
	return [...]string{"Leave", "Wait", "Look", "Ask", "Write", "PowerOff", "Arm", "ReadLive"}[a]
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
	MostStale        Why = "MostLeasesStale"  // fewer than half of the nodes are heard: nobody is powered off
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
	NotAccepted      Why = "PowerOffNotAccepted" // the device did not take the power-off: it is sent again
	PowerOffRefused  Why = "PowerOffRefused"     // nor will it: sending it again would not help
	PowerOffFailed   Why = "PowerOffFailed"
	BackingOff       Why = "PowerOffBackOff"
	Recovered        Why = "NodeRecovered"
	Rearming         Why = "MarkBackOff"          // the last fence of this life of the node ended just now
	PostsNotReady    Why = "KubeletPostsNotReady" // a kubelet that itself says NotReady is alive until it misses a renewal
	ProvenOff        Why = "MachineOff"
	LookedTooEarly   Why = "LookOlderThanAnswer"
	UnexpectedAnswer Why = "UnexpectedAnswer"
	Released         Why = "ReleasedByPerson" // a person ended the last fence of this very life of the node
	ModeObserve      Why = "ModeObserve"      // the mode changed before the power-off was sent
)

// Suspicion says why a node looks dead, "" if it does not: by itself, by its silence, or by its device's word. It only makes us ask. A
// stale Lease counts only while most nodes are heard: otherwise it is the API server, or our own watch, that is silent.
func Suspicion(l taint.Look, f fleet.View) string {
	switch {
	case l.Exists && !l.IsReady():
		return "NotReady"
	case f.Stale && f.Heard:
		return "LeaseStale"
	case f.Hinted:
		return "MachineWentOff"
	default:
		return ""
	}
}

// Work is whether a fence would have something to do.
type Work uint8

// What there is to do. The zero value is nothing.
const (
	NoneToDo  Work = iota
	CacheSays      // only attachments of a cache say so, which may be behind
	SomeToDo       // pods of a live list, or attachments of one
)

// Memory is what one process remembers of one node between two looks. It is never needed for safety after a restart: it is
// built again from new looks and new answers. The zero value remembers nothing.
type Memory struct {
	Begin        taint.Look       // step 2: the first look at this life of the node
	Answer       providers.Answer // the last answer since then; zero: none
	Misses       int              // answers in a row that were neither On nor Off
	PowerOffSent time.Time        // when power-off was last sent in this fence; zero: never
	PowerOffErr  error            // why the device did not accept it; nil: it did
	Refusals     int              // power-offs in a row that it did not accept
}

// Saw folds a live look in. A heartbeat, another boot or another Node object begins anew and forgets the answer.
func (m *Memory) Saw(l taint.Look) {
	if !m.Begin.Exists || !m.Begin.SameLife(l) {
		*m = Memory{Begin: l}
	}
	if l.Record == nil || l.Record.Phase != taint.PhasePoweringOff {
		m.PowerOffSent, m.PowerOffErr, m.Refusals = time.Time{}, nil, 0
	}
}

// SentPowerOff folds in that a power-off was sent then, and how the device took it.
func (m *Memory) SentPowerOff(at time.Time, err error) {
	m.PowerOffSent, m.PowerOffErr = at, err
	if m.Refusals++; err == nil {
		m.Refusals = 0
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

// Keeps reports whether the next decision may be made on a look once more, after a question to the device, though another look is the
// rule. Where the API server is slow, an answer would be too old by the time that another look is there, for ever. reads is how long
// this look, and what was listed after it, took. Every write is still refused if its object changed.
func Keeps(l taint.Look, reads time.Duration, now time.Time) bool {
	return reads > time.Second && now.Sub(l.Sent) <= 2*reads+ProofTTL
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
	Fleet        fleet.View
	Machine      string        // "" if exactly one provider speaks for the node; else why none does
	Device       string        // the device's name for the record
	Identity     taint.Machine // for the record; zero if no provider speaks for the node
	Excluded     string        // "" or why the node must be left alone
	Distrusted   bool          // the device is not to be believed
	ControlPlane bool
	Work         Work

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
	rearm        = 5 * time.Second        // between a fence that ended and the next of the same life; doubled with every one
	rearmMax     = 5 * time.Minute
	armWithin    = 30 * time.Second // how old an Off may be when the mark is set: it is asked for once more afterwards
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
	case announced && !v.Fleet.Heard:
		return v.close(taint.ResultCancelled, MostStale)
	case powering && l.Alive(rec):
		return v.close(taint.ResultCancelled, Recovered)
	}
	if powering && v.State() != providers.PowerOff && refusedForGood(v.PowerOffErr) {
		d := v.close(taint.ResultPowerOffFailed, PowerOffRefused)
		d.Detail = providers.Cause(v.PowerOffErr)
		return d
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
	case Suspicion(v.Look, v.Fleet) == "":
		return Healthy, "", 0
	case v.Excluded != "":
		return Excluded, v.Excluded, recheck
	case v.Machine != "":
		return NoMachine, v.Machine, recheck
	case v.Distrusted:
		return Distrusted, "", recheck
	case v.released():
		return Released, "", recheck
	case v.Fleet.AllSilent():
		return AllStale, "", time.Second
	case v.Work == NoneToDo:
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
		case v.mayBeAlive():
			return v.askEvery(pollUnknown, PostsNotReady)
		case v.tooOld():
			return Decision{Act: Ask, Why: Asking}
		case !v.Look.Sent.After(v.Answer.Got):
			return v.lookAgain() // step 4: snapshot again, after Off was seen
		case !v.Begin.SameLife(v.Look):
			return Decision{Act: Look, Why: Recovered}
		case v.Work == CacheSays:
			return Decision{Act: ReadLive, Why: Asking}
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

// tooOld reports that the Off must be asked for again before the mark: it was old already when the look after it was sent, or is very
// old. A slow API server's answer to that look must not make it so: Off is asked for once more after the mark (step 6).
func (v View) tooOld() bool {
	if !v.Look.Sent.After(v.Answer.Got) {
		return v.Now.Sub(v.Answer.At) > ProofTTL
	}
	return v.Look.Sent.Sub(v.Answer.At) > ProofTTL || v.Now.Sub(v.Answer.At) > armWithin
}

// mayBeAlive reports a node whose own kubelet says that it is not ready, and so was alive when it said so, and has missed no renewal
// of its Lease since: its device's Off is not enough. A device that told by itself that the machine went off is as fast as ever.
func (v View) mayBeAlive() bool {
	l := v.Look
	return !l.IsReady() && l.Ready != corev1.ConditionUnknown && !v.Fleet.Missed && !v.Fleet.Hinted
}

// on is step 3 for a machine that is on.
func (v View) on(powering bool) Decision {
	if v.Mode != Fence && !powering {
		return v.askEvery(pollOn, PoweredOn)
	}
	if !powering {
		grace := v.PowerOffAfter - v.Now.Sub(v.Fleet.SilentSince)
		switch {
		case v.ControlPlane:
			return v.askEvery(pollOn, ControlPlane)
		case !v.Fleet.Stale:
			return v.askEvery(pollOn, StillBeating)
		case !v.Fleet.Heard, v.Fleet.SilentSince.IsZero():
			return v.askEvery(pollOn, MostStale)
		case grace > 0:
			return v.askEvery(min(grace, pollOn), InGrace)
		case v.Fleet.Busy != "":
			d := v.askEvery(time.Second, OneAtATime)
			d.Detail = v.Fleet.Busy
			return d
		case v.failedLately() > 0:
			return v.askEvery(min(v.failedLately(), pollOn), BackingOff)
		}
	}
	// On proves nothing: a slow device's counts from when it was there, and until the look that followed it was sent.
	if read := v.Look.Sent; v.Now.Sub(v.Answer.Got) > ProofTTL && !(read.After(v.Answer.Got) && read.Sub(v.Answer.Got) <= ProofTTL) {
		return Decision{Act: Ask, Why: Asking}
	}
	if !powering && v.Work == CacheSays {
		return Decision{Act: ReadLive, Why: Asking}
	}
	if !powering {
		rec := v.begin(false).WithEvidence(EvidenceOf(v.Answer))
		rec.PowerOff = true
		return Decision{Act: Write, Why: Announcing, Record: rec.Enter(taint.PhasePoweringOff, "", v.Now)}
	}
	sent := v.Now.Sub(v.PowerOffSent)
	switch {
	// A process that begins to lead in the middle sends nothing before it has heard the silence itself, and who else is heard.
	case !v.Fleet.Stale, v.Fleet.SilentSince.IsZero(), v.Now.Before(v.Fleet.SilentSince):
		if v.PowerOffSent.IsZero() {
			return v.askEvery(pollOn, InGrace)
		}
		return v.askEvery(pollOff, AwaitingOff)
	case !v.PowerOffSent.IsZero() && !v.maySendAgain():
		return v.askEvery(pollOff, AwaitingOff)
	case v.PowerOffErr != nil && sent < min(time.Second<<min(max(v.Refusals-1, 0), 6), resendOff):
		d := v.askEvery(pollOff, NotAccepted)
		d.Detail = providers.Cause(v.PowerOffErr)
		return d
	case v.PowerOffSent.IsZero(), v.PowerOffErr != nil, sent >= resendOff:
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
	return why == "" && v.Mode == Fence && !v.ControlPlane && v.Fleet.Heard
}

// refusedForGood reports a power-off that sending again does not cure: the device has none, or not for us, or is another machine's.
func refusedForGood(err error) bool {
	for _, class := range []error{providers.ErrPermanent, providers.ErrDenied, providers.ErrNotFound, providers.ErrIdentity, providers.ErrUntrusted} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
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
	switch old := v.Look.Record; {
	case powering:
		r = *old
	case old != nil && !v.Look.Alive(old):
		if r.Repeats = old.Repeats; wasMarked(old) {
			r.Repeats++
		}
	}
	r.NodeUID, r.BootID, r.LeaseRV, r.Device = v.Look.UID, v.Look.BootID, v.Look.LeaseRV, v.Device
	r.Machine = v.Identity.Recorded()
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

// endedLately is how long to wait before the mark is set again on a node whose last fence ended without a sign of life since: its
// device says Off and then does not confirm it, somebody takes the mark off, or what the fence finds to do does not go. Each would go
// on for ever, at the speed of the device. A record from the future is another clock's.
func (v View) endedLately() time.Duration {
	r := v.Look.Record
	if r == nil || !wasMarked(r) || v.Look.Alive(r) {
		return 0
	}
	if age := v.Now.Sub(r.At); age >= 0 {
		return min(rearm<<min(r.Repeats, 8), rearmMax) - age
	}
	return 0
}

// wasMarked reports a fence that ended after its mark was set.
func wasMarked(r *taint.Record) bool {
	switch r.Result {
	case taint.ResultLifted, taint.ResultMarkRemoved, taint.ResultEvicted, taint.ResultReturned:
		return true
	default:
		return false
	}
}

// lookAgain asks for a look that was sent after the answer was there. Where a clock is too coarse to tell the two apart it lets it
// move on first.
func (v View) lookAgain() Decision {
	if !v.Now.After(v.Answer.Got) {
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
