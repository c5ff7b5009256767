// Package fence decides what to do next about a node that looks dead and is not marked: steps 1 to 5 of the protocol,
// up to the PATCH that sets the mark. From there package evict decides.
//
// It is pure: Step is a function from a View (what was seen, and what is remembered) to an action.Decision. It names no
// client, no clock and no logger, so production, the simulation and the unit tests run the same code. The caller's loop
// is: look live, fold the look into Memory, Step, act, and again. A live look therefore precedes and follows every
// action.
//
// It promises: the mark is set, and power is cut, only on a node whose life did not change between the first look and
// the last. The mark is set only after an exact Off that was requested in between. Power is cut only in mode fence,
// after a counted silence has lasted for the grace period. The record must be written by then, and the storm guard must
// allow it (guard.go).
package fence

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// PendingWork says whether a fence would have work to do.
type PendingWork uint8

// The values of PendingWork. The zero value is no work.
const (
	WorkNone      PendingWork = iota
	WorkCached                // shown only by cached attachments, which may be behind
	WorkConfirmed             // shown by a live list of pods or attachments
)

// Memory is what one process remembers of one node between two looks. Safety never depends on it after a restart: it is
// rebuilt from new looks and new answers. The zero value remembers nothing.
type Memory struct {
	FirstLook taint.Look      // step 2: the first look at this life of the node
	PowerOffs proof.PowerOffs // sent in this fence
	PowerOns  PowerOns        // to be sent after this fence, or already sent

	announcedID string // the fence of these power-offs; "" if none is announced
	// inherited are the devices that its record already named: this process cannot know which of them accepted.
	inherited []taint.DeviceRef

	Reported []reason.Reason // mode Shadow: what was already reported for this life as would-be actions

	BackSince   providers.Instant // when the node was first seen back, if its machine's run needs an explanation
	backFenceID string            // the fence after which it is back; "" if no explanation is needed
}

// ApplyLook folds a live look in. A heartbeat, another boot or another Node object begins a new life, which it reports.
// Earlier answers then no longer count.
func (m *Memory) ApplyLook(l taint.Look) (newLife bool) {
	if newLife = !m.FirstLook.Exists || !m.FirstLook.SameLife(l); newLife {
		// A node that came back ends the fence, whose record must still name the devices that accepted a power-off.
		*m = Memory{
			FirstLook: l, announcedID: m.announcedID, inherited: m.acceptingDevices(l.Record),
			BackSince: m.BackSince, backFenceID: m.backFenceID,
		}
	}
	switch {
	case !needsExplanation(l):
		m.BackSince, m.backFenceID = providers.Instant{}, ""
	case l.Record.ID != m.backFenceID:
		m.BackSince, m.backFenceID = l.Got, l.Record.ID
	}
	switch rec := l.Record; {
	case rec == nil || rec.Phase != taint.PhasePoweringOff:
		m.PowerOffs, m.announcedID, m.inherited = proof.PowerOffs{}, "", nil
	case rec.ID != m.announcedID: // another process announced it
		m.announcedID, m.inherited = rec.ID, rec.PowerOffTo
	}
	return newLife
}

// acceptingDevices returns the record's devices that accepted a power-off, or may have, as far as this process knows.
func (m *Memory) acceptingDevices(rec *taint.Record) (out []taint.DeviceRef) {
	if rec == nil {
		return nil
	}
	for _, d := range rec.PowerOffTo {
		if m.PowerOffs.MayHaveAccepted(d.Device) || slices.ContainsFunc(m.inherited, d.IsSame) {
			out = append(out, d)
		}
	}
	return out
}

// ApplyAnnouncement folds in that this process wrote the record that announces a power-off. l is the look of that
// decision. From then on this process knows of every power-off of that fence.
func (m *Memory) ApplyAnnouncement(l taint.Look, rec taint.Record) {
	m.announcedID, m.inherited = rec.ID, l.PowerOffDevices()
}

// Settings are the configured limits. All must be positive.
type Settings struct {
	PowerOffAfter   time.Duration // fence mode: how long a node must look dead while its machine is on
	PowerOffTimeout time.Duration // how long to ask for Off after the power-off was announced
	Retry           time.Duration // how long to leave a node alone after a power-off that failed
	Cordoned        bool          // a cordoned node's machine is not powered off
	Quorum          bool          // control-plane nodes may be powered off if etcd keeps its quorum; else never
	VMHosts         bool          // hosts of KubeVirt may be powered off; else they never are
	// what to do with a machine that we turned off
	AfterFence AfterFence
}

// Facts are what the configuration, and the objects that it names, say about a node at the time of a look. An executor
// collects them, and decides nothing by them. The zero value is a node in mode observe.
type Facts struct {
	Settings
	Mode        Mode
	ModeBy      string         // what chose the mode, for a person; may be empty
	RequestedBy string         // the request that permits a power-off in mode OnRequest; "": none counts
	Excluded    string         // "" or why no action may be taken on the node
	KeptOn      string         // "" or why the machine must not be powered off while it is on
	NoDeviceErr error          // why no device speaks for the node; nil: one does
	Devices     []proof.Device // the devices that speak for the node, in their order
	NewID       string         // the id of a fence that would begin now
	By          string         // this controller's identity
}

// NoPower returns "" or why the machine's power must not be touched through any of its devices. The mode is Observe
// then.
func (f Facts) NoPower() string {
	if proof.CanPowerOff(f.Devices) || len(f.Devices) == 0 {
		return ""
	}
	return f.Devices[0].NoPower
}

// View is all that Step decides on.
type View struct {
	Facts  Facts
	Now    providers.Instant
	Look   taint.Look      // live, read after the last action
	Seen   taint.Sightings // of the Look's record
	Memory Memory
	// Answers that were requested before the first look at this life, or before Memory.BackSince, do not count.
	Answers proof.Answers

	Fleet           fleet.View
	DistrustingNode string // the node whose record distrusts all of the devices; "": at least one is trusted
	ControlPlane    bool
	VMHost          bool // a host of KubeVirt: its virtual machines may serve while its kubelet is dead
	// EtcdPods are the nodes on which an etcd pod is bound, and whether it is Ready; nil: not read after this look.
	EtcdPods    map[string]bool
	PendingWork PendingWork
}

// Intervals between two questions. An Off or a new suspicion is followed by a question at once.
const (
	pollOn       = 5 * time.Second
	pollChanging = 500 * time.Millisecond
	pollUnknown  = time.Second
	pollMax      = 30 * time.Second
	pollOff      = 250 * time.Millisecond // while a power-off of ours is in progress
	recheckEvery = 30 * time.Second       // gates that no watch opens
	recheckTwin  = 5 * time.Second        // the twin's silence wakes no other node
	rearmDelay   = 5 * time.Second        // between the end of a fence and the next of the same life; doubled with each
	rearmMax     = 5 * time.Minute
	armWithin    = 30 * time.Second // maximum age of an Off when the mark is set: another Off is requested afterwards
	// identityHolds is how long before the look of a power-off a device may have been asked. The look itself may be
	// proof.TTL old when the power-off is sent. Together these are the 15 s for which a guard remembers which machine a
	// device named.
	identityHolds = 10 * time.Second
)

// Step returns the next action for a node. It may be called repeatedly.
func Step(v View) action.Decision {
	if rec := v.Look.Record; v.Facts.Mode != Shadow || rec.IsOpen() {
		return v.decideByRecord()
	}
	v.Facts.Mode, v.Facts.AfterFence = Fence, AfterFence{}
	return v.shadowDecision(v.decideByRecord())
}

// decideByRecord is Step in all modes but Shadow. A fence that began before the mode was Shadow continues as in any
// mode without power-offs.
func (v View) decideByRecord() action.Decision {
	explains, since := v.Facts.Mode != Disabled && needsExplanation(v.Look), v.Memory.FirstLook.Got
	if explains { // a slow device never answers between two heartbeats, which change nothing
		since = v.Memory.BackSince
	}
	if v.Answers.Answer.At.Before(since) {
		v.Answers = proof.Answers{}
	}
	if v.Facts.NoPower() != "" {
		v.Facts.Mode = SaferMode(v.Facts.Mode, Observe)
	}
	l, rec := v.Look, v.Look.Record
	powering := rec != nil && rec.Phase == taint.PhasePoweringOff
	switch {
	case !l.Exists:
		return action.Decision{Action: action.NoAction{}, Reason: reason.Gone}
	case l.Mark != nil:
		return action.Decision{Action: action.NoAction{}, Reason: reason.Marked}
	case l.RecordErr != nil:
		return action.Decision{Action: action.NoAction{}, Reason: reason.BadRecord, Detail: l.RecordErr.Error()}
	case rec.IsOpen() && !powering:
		return v.closeFence(taint.ResultMarkRemoved, reason.MarkVanished)
	case v.wasNeverOff():
		return v.closeNeverOff()
	case explains:
		return v.explainReturn()
	}
	why, detail, requeueAfter := v.checkGate()
	announced := powering && v.Memory.PowerOffs.LastSent.IsZero()
	revocable := announced || powering && v.isOrderPending()
	switch {
	case why == reason.StaysDead && !powering:
		return v.decideAfterFence()
	case why != "" && !powering && requeueAfter == 0:
		return action.Decision{Action: action.NoAction{}, Reason: why, Detail: detail}
	case why != "" && !powering:
		return action.Decision{Action: action.Wait{}, Reason: why, Detail: detail, RequeueAfter: requeueAfter}
	case why != "" && revocable:
		// Until the power-off itself is sent, every gate wins over it (invariant 8). An order that others carry out is
		// not sent before they do.
		d := v.closeFence(taint.ResultCancelled, why)
		d.Detail = detail
		return d
	case why == reason.Healthy, why == reason.NoWork, why == reason.StaysDead, why == reason.NoMachine,
		why == reason.Distrusted, why == reason.SharedMachine:
		// Sent or not: there is no work, or no device whose Off would prove anything
		return v.closeFence(taint.ResultCancelled, why)
	case revocable && v.Facts.NoPower() != "":
		d := v.closeFence(taint.ResultCancelled, reason.PoweredOn)
		d.Detail = v.Facts.NoPower()
		return d
	case revocable && v.Facts.EffectiveMode() != Fence:
		d := v.closeFence(taint.ResultCancelled, reason.ModeObserve)
		if v.Facts.Mode == OnRequest {
			d.Reason = reason.RequestGone
		}
		return d
	case announced && !v.Fleet.Heard:
		return v.closeFence(taint.ResultCancelled, reason.MostStale)
	case powering && l.IsAliveSince(rec):
		return v.closeFence(taint.ResultCancelled, reason.Recovered)
	case (announced || v.Facts.EffectiveMode() == Fence && v.powerState() == providers.PowerOn) && v.needsEtcdPods():
		return action.Decision{Action: action.ListEtcdPods{}, Reason: reason.Asking}
	}
	if announced {
		if no := v.checkPowerOffLimits(); no.why != "" {
			d := v.closeFence(taint.ResultCancelled, no.why)
			d.Detail, d.ReportOnceKey = no.detail, no.once
			return d
		}
	}
	if powering && v.powerState() != providers.PowerOff {
		switch {
		case v.Memory.PowerOffs.IsExhausted(v.Facts.Devices):
			d := v.closeFence(taint.ResultPowerOffFailed, reason.PowerOffRefused)
			d.Detail = providers.ErrorCause(v.Memory.PowerOffs.LastErr)
			return d
		// A new leader asks first: the machine may have gone off while there was no leader.
		case v.ageOf(rec.At) > v.Facts.PowerOffTimeout && !v.Answers.Answer.Got.IsZero():
			return v.closeFence(taint.ResultPowerOffFailed, reason.PowerOffFailed)
		}
	}
	return v.decideByAnswer(powering)
}

// isOrderPending reports whether an order may still be carried out: the machine is not proven off.
func (v View) isOrderPending() bool {
	return v.powerState() != providers.PowerOff && len(v.Look.Record.Orders) > 0
}

// checkGate is step 1. It returns the first reason to leave the node alone; "" if there is none. after zero means that
// a change will wake the node.
func (v View) checkGate() (why reason.Reason, detail string, requeueAfter time.Duration) {
	switch {
	case v.Fleet.Suspicion(v.Look) == "":
		return reason.Healthy, "", 0
	case v.Facts.Mode == Disabled:
		return reason.ModeDisabled, v.Facts.ModeBy, recheckEvery
	case v.Facts.Excluded != "":
		return reason.Excluded, v.Facts.Excluded, recheckEvery
	case !slices.Contains(modesBySafety, v.Facts.Mode):
		return reason.UnknownMode, v.Facts.Mode.String(), recheckEvery
	case v.Facts.NoDeviceErr != nil:
		return reason.NoMachine, v.Facts.NoDeviceErr.Error(), recheckEvery
	case v.DistrustingNode != "":
		return reason.Distrusted, v.DistrustingNode, recheckEvery
	case v.Fleet.Twin != "":
		return reason.SharedMachine, v.Fleet.Twin, recheckTwin
	case v.Look.IsReleased():
		return reason.Released, "", recheckEvery
	case v.Fleet.AllSilent():
		return reason.AllStale, "", time.Second
	case v.isEvicted() && (v.PendingWork == WorkNone || v.bootTimeLeft() > 0):
		return reason.StaysDead, "", recheckEvery
	case v.PendingWork == WorkNone:
		return reason.NoWork, "", recheckEvery
	}
	return "", "", 0
}

// powerState returns what the answer since the first look at this life proves now; PowerUnknown if there is none.
func (v View) powerState() providers.PowerState {
	if v.Answers.Answer.At.Before(v.Memory.FirstLook.Got) {
		return providers.PowerUnknown
	}
	return v.Answers.Answer.State
}

// decideByAnswer decides steps 3 to 5.
func (v View) decideByAnswer(powering bool) action.Decision {
	if v.Answers.Answer.Got.IsZero() {
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
	}
	switch v.powerState() {
	case providers.PowerOff:
		switch {
		case v.rearmDelayLeft() > 0:
			return action.Decision{Action: action.Wait{}, Reason: reason.Rearming, RequeueAfter: v.rearmDelayLeft()}
		case v.mayBeAlive():
			return v.askEvery(pollUnknown, reason.PostsNotReady)
		case v.isOffTooOld():
			return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
		case !v.Look.Sent.After(v.Answers.Answer.Got):
			return v.lookAgain() // step 4: snapshot again, after Off was seen
		case !v.Memory.FirstLook.SameLife(v.Look):
			return action.Decision{Action: action.ReadNode{}, Reason: reason.Recovered}
		case v.PendingWork == WorkCached:
			return action.Decision{Action: action.ListAttachments{Live: true}, Reason: reason.Asking}
		}
		rec := v.newRecord(powering).WithEvidence(v.Answers.Evidence()...)
		if powering {
			rec.OffBy = v.Memory.PowerOffs.AcceptedBy(v.Facts.Devices)
			rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)
		}
		rec = rec.EnterPhase(taint.PhaseArmed, "", v.Now.Wall)
		return action.Decision{Action: action.SetMark{Record: rec}, Reason: reason.ProvenOff}
	case providers.PowerOn:
		return v.decidePoweredOn(powering)
	case providers.PowerChanging:
		if powering && v.isLevelOverdue() {
			return v.decidePoweredOn(powering)
		}
		if powering {
			return v.askEvery(pollChanging, reason.Changing)
		}
		return v.askEvery(pollChanging, reason.Unsettled)
	case providers.PowerUnknown:
		switch {
		case powering && v.isLevelOverdue():
			return v.decidePoweredOn(powering)
		// One may be behind the other for a moment
		case v.Answers.HasDisagreement() && !v.Memory.PowerOffs.LastSent.IsZero():
			return v.askEvery(pollUnknown, reason.AwaitingOff)
		case v.Answers.HasDisagreement():
			return v.askEvery(pollOn, reason.Disagree)
		case v.Fleet.HintAt.After(v.Answers.Answer.Got): // a hint came since
			return action.Decision{Action: action.AskDevices{}, Reason: reason.Unknown}
		}
		return v.askEvery(v.Answers.Backoff(), reason.Unknown)
	default:
		return action.Decision{Action: action.Wait{}, Reason: reason.UnexpectedAnswer, RequeueAfter: pollMax}
	}
}

// isLevelOverdue reports whether the current level has used up its time and another would accept the power-off. Then
// that level has its turn, even if no device answers On any more.
func (v View) isLevelOverdue() bool {
	return v.Memory.PowerOffs.IsOverdue(v.Now, v.Facts.Devices, v.Answers)
}

// isOffTooOld reports whether Off must be requested again before the mark: it was already old when the look after it
// was sent, or is very old. The answer of a slow API server to that look must not make it so. Off is requested once
// more after the mark (step 6).
func (v View) isOffTooOld() bool {
	if !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.Answers.Answer.At.Age(v.Now) > proof.TTL
	}
	return v.Answers.Answer.At.Age(v.Look.Sent) > proof.TTL || v.Answers.Answer.At.Age(v.Now) > armWithin
}

// mayBeAlive reports whether the node's own kubelet reports not ready, so it was alive then, and has missed no renewal
// of its Lease since. Its device's Off is not enough then, however often it is requested. A hint of another kind makes
// the fence as fast as usual.
func (v View) mayBeAlive() bool {
	l := v.Look
	return !l.IsReady() && l.Ready != corev1.ConditionUnknown && !v.Fleet.Missed && !v.Fleet.HasOutsideHint()
}

// decidePoweredOn decides step 3 for a machine that is on.
func (v View) decidePoweredOn(powering bool) action.Decision {
	if v.Facts.EffectiveMode() != Fence && !powering {
		d := v.askEvery(pollOn, reason.PoweredOn)
		d.Detail = cmp.Or(v.Facts.NoPower(), v.Facts.whyObserved())
		return d
	}
	if !powering {
		grace := v.Facts.PowerOffAfter - v.Now.Sub(v.Fleet.SilentSince)
		no := v.checkPowerOffLimits()
		switch {
		case no.why == reason.ControlPlane:
			return v.refusePowerOff(no)
		case !v.Fleet.Stale && v.Fleet.LeaseMissing:
			return v.askEvery(pollOn, reason.OnlyLeaseMissing)
		case !v.Fleet.Stale:
			return v.askEvery(pollOn, reason.StillBeating)
		case !v.Fleet.Heard, v.Fleet.SilentSince.IsZero():
			return v.askEvery(pollOn, reason.MostStale)
		case no.why != "" && no.why != reason.PowerOffLimit:
			return v.refusePowerOff(no)
		case grace > 0:
			return v.askEvery(min(grace, pollOn), reason.InGrace)
		case no.why != "":
			return v.refusePowerOff(no)
		case v.retryDelayLeft() > 0:
			return v.askEvery(min(v.retryDelayLeft(), pollOn), reason.BackingOff)
		}
	}
	// An On answer is not evidence, so its age counts from its arrival, and only until the look that followed it was
	// sent.
	if read := v.Look.Sent; v.Answers.Answer.Got.Age(v.Now) > proof.TTL &&
		!(read.After(v.Answers.Answer.Got) && v.Answers.Answer.Got.Age(read) <= proof.TTL) {
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
	}
	if !powering && v.PendingWork == WorkCached {
		return action.Decision{Action: action.ListAttachments{Live: true}, Reason: reason.Asking}
	}
	if !powering {
		rec := v.newRecord(false).WithEvidence(v.Answers.Evidence()...)
		rec.PowerOff, rec.OffBy, rec.AfterFence = true, nil, ""
		if m := v.Memory.PowerOffs.NextMove(v.Now, v.Now, v.Facts.Devices, v.Answers); m.Wait == 0 {
			rec = v.nameDevices(rec, m.Device)
		}
		rec = rec.EnterPhase(taint.PhasePoweringOff, "", v.Now.Wall)
		return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: reason.Announcing}
	}
	next := v.Memory.PowerOffs.NextMove(v.Now, v.instantOf(v.Look.Record.At), v.Facts.Devices, v.Answers)
	switch {
	// A process that becomes leader in the middle sends nothing until it has observed the silence itself, and which
	// others are heard.
	case !v.Fleet.Stale, v.Fleet.SilentSince.IsZero(), v.Now.Before(v.Fleet.SilentSince):
		if v.Memory.PowerOffs.LastSent.IsZero() {
			return v.askEvery(pollOn, reason.InGrace)
		}
		return v.askEvery(pollOff, reason.AwaitingOff)
	case !v.Memory.PowerOffs.LastSent.IsZero() && !v.maySendAgain():
		return v.askEvery(pollOff, reason.AwaitingOff)
	case next.Wait > 0 && next.Err != nil:
		d := v.askEvery(pollOff, reason.NotAccepted)
		d.Detail = providers.ErrorCause(next.Err)
		return d
	case next.Wait > 0 && v.Memory.PowerOffs.LastSent.IsZero():
		return v.askEvery(min(next.Wait, pollOn), reason.LevelDelay)
	case next.Wait > 0:
		return v.askEvery(pollOff, reason.AwaitingOff)
	}
	if !v.isIdentityFresh() {
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Asking}
	}
	// The look shows the record, so it was made after the record was committed, and it shows no life since. A stale
	// leader, or one whose question was slow, cannot power off a node that recovered.
	if v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.lookAgain()
	}
	d := action.Decision{Action: action.PowerOff{Move: next}, Reason: reason.SendingOff}
	if next.Why != "" {
		d.Reason, d.Detail = reason.NextLevel,
			fmt.Sprintf("%s; now through %s", next.Why, v.Facts.Devices[next.Device].Name)
	}
	// The record names the device first: a leader that dies right after the power-off must not leave the machine off
	// unnamed.
	if rec := *v.Look.Record; !v.namesDevices(rec, next.Device) {
		d.Action = action.WriteRecord{Record: v.nameDevices(rec, next.Device)}
	}
	return d
}

// nameDevices returns the record with the devices of the level of that place named, to which a power-off is about to be
// sent, and the orders that it will be.
func (v View) nameDevices(rec taint.Record, place int) taint.Record {
	rec.PowerOffTo = withDevices(rec.PowerOffTo, proof.SameLevel(v.Facts.Devices, place))
	return rec.WithOrders(v.ordersOf(place)...)
}

// namesDevices reports whether the record names what nameDevices would add.
func (v View) namesDevices(rec taint.Record, place int) bool {
	unnamed := func(d taint.DeviceRef) bool { return !slices.ContainsFunc(rec.PowerOffTo, d.IsSame) }
	unordered := func(d taint.DeviceRef) bool { return !slices.ContainsFunc(rec.Orders, d.IsSame) }
	return !slices.ContainsFunc(proof.SameLevel(v.Facts.Devices, place), unnamed) &&
		!slices.ContainsFunc(v.ordersOf(place), unordered)
}

// ordersOf returns the devices of the level of that place whose power-off is an order.
func (v View) ordersOf(place int) []taint.DeviceRef {
	level := v.Facts.Devices[place].Level
	return proof.SpeakersOf(slices.DeleteFunc(slices.Clone(v.Facts.Devices), func(d proof.Device) bool {
		return d.Level != level || !d.Orders
	}))
}

// isIdentityFresh reports whether the look was sent at most identityHolds after the question to the devices. Then the
// devices' guards need not ask again which machine it is, and nothing slow happens between the look and the power
// action. Before that look, its time counts as now.
func (v View) isIdentityFresh() bool {
	at := v.Now
	if v.Look.Sent.After(v.Answers.Answer.Got) {
		at = v.Look.Sent
	}
	return v.Answers.Answer.At.Age(at) <= identityHolds
}

// withDevices returns the list with the missing devices added. If there are too many, the newest remain.
func withDevices(list, more []taint.DeviceRef) []taint.DeviceRef {
	list = slices.Clone(list)
	for _, d := range more {
		if !slices.ContainsFunc(list, d.IsSame) {
			list = append(list, d)
		}
	}
	return list[max(len(list)-taint.MaxPowerOffTo, 0):]
}

// maySendAgain reports whether a power-off that was sent may be sent once more. A maintenance or a mode change that
// came too late for the first is in time for the second: a person may have switched the machine on again on purpose.
func (v View) maySendAgain() bool {
	why, _, _ := v.checkGate()
	return why == "" && v.Facts.EffectiveMode() == Fence && v.Fleet.Heard && v.checkPowerOffLimits().why == ""
}

// askEvery asks once the last answer is older than every. Until then it waits.
func (v View) askEvery(every time.Duration, why reason.Reason) action.Decision {
	if left := every - v.Answers.Answer.Got.Age(v.Now); left > 0 {
		return action.Decision{Action: action.Wait{}, Reason: why, RequeueAfter: left}
	}
	return action.Decision{Action: action.AskDevices{}, Reason: why}
}

// newRecord returns the record of a fence at this look. An announced fence continues under its id.
func (v View) newRecord(powering bool) taint.Record {
	r := taint.Record{ID: v.Facts.NewID, Since: v.Now.Wall.UTC().Truncate(time.Millisecond), By: v.Facts.By}
	old := v.Look.Record
	switch {
	case powering:
		r = *old
	case old != nil && !v.Look.IsAliveSince(old):
		r.PowerOffTo = v.Look.PowerOffDevices()
		if r.Repeats = old.Repeats; wasMarked(old) {
			r.Repeats++
		}
		if !v.Memory.PowerOns.LastOn.After(v.instantOf(old.At)) { // it has been off since that fence
			r.OffBy, r.AfterFence = old.OffBy, old.AfterFence
		}
	}
	r.NodeUID, r.BootID, r.LeaseRV, r.Heartbeat = v.Look.UID, v.Look.BootID, v.Look.LeaseRV, v.Look.Heartbeat
	r.Device, r.Machine = proof.RecordedDevice(v.Facts.Devices)
	if old != nil {
		r.FalseOffs, r.PowerOns, r.Orders = old.DistrustedDevices(), old.PowerOns, old.Orders
	}
	r.Run, r.RunBy = v.Answers.MachineRun()
	return r
}

// closeFence returns the decision that ends the fence of the record.
func (v View) closeFence(res taint.Result, why reason.Reason) action.Decision {
	return action.Decision{Action: action.WriteRecord{Record: v.endRecord(res)}, Reason: why}
}

// endRecord returns the record of the fence as ended now.
func (v View) endRecord(res taint.Result) taint.Record {
	rec := *v.Look.Record
	if rec.Phase == taint.PhasePoweringOff {
		rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)
	}
	return rec.EnterPhase(taint.PhaseDone, res, v.Now.Wall)
}

// wasNeverOff reports whether a node came back under the boot id that it had when its device answered Off: the machine
// was never off.
func (v View) wasNeverOff() bool {
	return movedPods(v.Look.Record) && proof.WasNeverOff(v.Look, v.Look.Record)
}

// closeNeverOff ends the fence, and names in the record the devices that answered Off.
func (v View) closeNeverOff() action.Decision {
	rec := v.endRecord(taint.ResultNeverPoweredOff).WithFalseOffs(proof.SpeakersOf(v.Facts.Devices))
	return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: reason.NeverOff}
}

// needsExplanation reports the same for a machine whose boot ids do not tell boots apart.
func needsExplanation(l taint.Look) bool {
	return movedPods(l.Record) && proof.NeedsExplanation(l, l.Record)
}

// explainReturn asks the device of a returned node for the current run of its machine, until it answers. The run is the
// one that it called over, or another, which is written down so that the question ends.
func (v View) explainReturn() action.Decision {
	switch now := v.Answers.RunNow(v.Look.Record); {
	case now == v.Look.Record.Run: // the device contradicts itself
		return v.closeNeverOff()
	case now != "":
		rec := *v.Look.Record
		rec.Restart = now
		return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: reason.StartedAgain}
	case v.Answers.Answer.Got.IsZero():
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Explaining}
	case v.powerState() != providers.PowerUnknown: // from another device
		return v.askEvery(pollMax, reason.Explaining)
	default:
		return v.askEvery(v.Answers.Backoff(), reason.Explaining)
	}
}

// movedPods reports whether the record's fence ended, and moved pods.
func movedPods(r *taint.Record) bool {
	return r != nil && r.Phase == taint.PhaseDone &&
		(r.Result == taint.ResultEvicted || r.Result == taint.ResultReturned)
}

// rearmDelayLeft returns how long to wait before the mark is set again on a node whose last fence ended without a sign
// of life since. The device may answer Off and then not confirm it, a person may remove the mark, or the work may not
// go away. Without the delay each would repeat for ever, at the speed of the device.
func (v View) rearmDelayLeft() time.Duration {
	r := v.Look.Record
	if r == nil || !wasMarked(r) || v.Look.IsAliveSince(r) {
		return 0
	}
	return min(rearmDelay<<min(r.Repeats, 8), rearmMax) - v.ageOf(r.At)
}

// isEvicted reports whether the last fence of this life of the node was completed.
func (v View) isEvicted() bool {
	r := v.Look.Record
	return r != nil && r.Result == taint.ResultEvicted && !v.Look.IsAliveSince(r)
}

// wasMarked reports whether the fence ended after its mark was set.
func wasMarked(r *taint.Record) bool {
	switch r.Result {
	case taint.ResultLifted, taint.ResultMarkRemoved, taint.ResultEvicted, taint.ResultReturned:
		return true
	default:
		return false
	}
}

// lookAgain requests a look that is sent after the answer arrived. If the clock is too coarse to tell the two apart, it
// waits for the clock first.
func (v View) lookAgain() action.Decision {
	if !v.Now.After(v.Answers.Answer.Got) {
		return action.Decision{Action: action.Wait{}, Reason: reason.LookedTooEarly, RequeueAfter: time.Millisecond}
	}
	return action.Decision{Action: action.ReadNode{}, Reason: reason.LookedTooEarly}
}

// instantOf returns when a time of the record was, by this process's clocks.
func (v View) instantOf(at time.Time) providers.Instant { return v.Seen.InstantOf(at, v.Now) }

// ageOf returns how long ago a time of the record was.
func (v View) ageOf(at time.Time) time.Duration { return v.Now.Sub(v.instantOf(at)) }

// retryDelayLeft returns how long to wait before the next power-off attempt.
func (v View) retryDelayLeft() time.Duration {
	r := v.Look.Record
	if r == nil || r.Result != taint.ResultPowerOffFailed {
		return 0
	}
	return v.Facts.Retry - v.ageOf(r.At)
}
