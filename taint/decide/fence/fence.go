// Package fence decides what to do next about a node that looks dead and is not marked: steps 1 to 5 of the protocol, up to the
// PATCH that sets the mark. From there package evict decides.
//
// It is pure: Step is a function from a View (what was seen, and what is remembered) to an action.Decision. It names no
// client, no clock and no logger, so that production, the simulation and the unit tests run the same code. The caller's
// loop is: look live, fold the look into Memory, Step, act, and again. Every action is therefore preceded by a live
// look, and followed by one.
//
// It promises: the mark is set, and power is cut, only on a node whose life did not change between the first look and the last;
// the mark only after an exact Off that was asked for in between; power only in mode fence, after a silence that counts has lasted
// for the grace, with the record already written, and only where the storm guard allows it (guard.go).
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

// PendingWork is whether a fence would have something to do.
type PendingWork uint8

// What there is to do. The zero value is nothing.
const (
	WorkNone      PendingWork = iota
	WorkCached                // only attachments of a cache say so, which may be behind
	WorkConfirmed             // pods of a live list, or attachments of one
)

// Memory is what one process remembers of one node between two looks. It is never needed for safety after a restart: it is
// built again from new looks and new answers. The zero value remembers nothing.
type Memory struct {
	FirstLook taint.Look      // step 2: the first look at this life of the node
	PowerOffs proof.PowerOffs // that were sent in this fence
	PowerOns  PowerOns        // that are to be sent after it, or were

	announcedID string            // the fence whose power-offs these are; "" if no power-off is announced
	inherited   []taint.DeviceRef // devices that its record named before: this process cannot know which of them accepted

	Reported []reason.Reason // mode Shadow: what was said of this life that would have been done

	BackSince   providers.Instant // when the node was first seen back, if its machine's run is to be explained
	backFenceID string            // the fence after which it is back; "" if nothing is to be explained
}

// ApplyLook folds a live look in. A heartbeat, another boot or another Node object begins anew, which is what it reports: what was answered
// before is not asked any more.
func (m *Memory) ApplyLook(l taint.Look) (newLife bool) {
	if newLife = !m.FirstLook.Exists || !m.FirstLook.SameLife(l); newLife {
		// A node that came back ends the fence, whose record must still name what accepted a power-off.
		*m = Memory{FirstLook: l, announcedID: m.announcedID, inherited: m.acceptingDevices(l.Record), BackSince: m.BackSince, backFenceID: m.backFenceID}
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

// acceptingDevices returns the devices of the record that accepted a power-off, or may have, as far as this process knows.
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

// ApplyAnnouncement folds in that this process wrote the record that announces a power-off; l is the look that it was
// decided on. From then on this process knows of every power-off of that fence.
func (m *Memory) ApplyAnnouncement(l taint.Look, rec taint.Record) {
	m.announcedID, m.inherited = rec.ID, l.PowerOffDevices()
}

// Settings are the configured limits. All must be positive.
type Settings struct {
	PowerOffAfter   time.Duration // fence mode: how long a node must look dead while its machine is on
	PowerOffTimeout time.Duration // how long to ask for Off after the power-off was announced
	Retry           time.Duration // how long to leave a node alone after a power-off that failed
	Cordoned        bool          // a cordoned node's machine is not powered off
	Quorum          bool          // control-plane nodes may be powered off, if etcd keeps its quorum; else they never are
	VMHosts         bool          // hosts of KubeVirt may be powered off; else they never are
	After           PostFence     // what becomes of a machine that we turned off
}

// Facts are what the configuration, and the objects that it names, say of a node when it is looked at: an executor finds them out, and
// decides nothing by them. The zero value is a node in mode observe.
type Facts struct {
	Settings
	Mode        Mode
	ModeBy      string         // what chose the mode, for a person; may be empty
	Excluded    string         // "" or why the node must be left alone
	KeptOn      string         // "" or why the machine must not be powered off while it is on
	NoDeviceErr error          // why no device speaks for the node; nil: one does
	Devices     []proof.Device // those that do, in their order
	NewID       string         // the id of a fence that would begin now
	By          string         // this controller's identity
}

// NoPower is "" or why the machine's power must not be touched, through none of its devices: the mode is Observe then.
func (f Facts) NoPower() string {
	if proof.CanPowerOff(f.Devices) || len(f.Devices) == 0 {
		return ""
	}
	return f.Devices[0].NoPower
}

// View is all that Step decides on.
type View struct {
	Facts   Facts
	Now     providers.Instant
	Look    taint.Look      // live, read after the last action
	Seen    taint.Sightings // of the Look's record
	Memory  Memory
	Answers proof.Answers // those asked for before the first look at this life, or before Memory.BackSince, do not count

	Fleet           fleet.View
	DistrustingNode string // the node whose record says that none of the devices is to be believed; "": one is
	ControlPlane    bool
	VMHost          bool            // a host of KubeVirt: its virtual machines may serve while its kubelet is dead
	Members         map[string]bool // the nodes on which a pod of etcd is bound, and whether it is Ready; nil: not read after this look
	PendingWork     PendingWork
}

// Intervals between two questions. An Off or a new suspicion is asked about at once.
const (
	pollOn       = 5 * time.Second
	pollChanging = 500 * time.Millisecond
	pollUnknown  = time.Second
	pollMax      = 30 * time.Second
	pollOff      = 250 * time.Millisecond // while a power-off of ours is under way
	recheckEvery = 30 * time.Second       // gates that no watch opens
	rearmDelay   = 5 * time.Second        // between a fence that ended and the next of the same life; doubled with every one
	rearmMax     = 5 * time.Minute
	armWithin    = 30 * time.Second // how old an Off may be when the mark is set: it is asked for once more afterwards
	// identityHolds is how long before the look of a power-off a device may have been asked. The look itself may be
	// proof.TTL old when the power-off is sent. Together these are the 15 s for which a guard remembers which machine a
	// device named.
	identityHolds = 10 * time.Second
)

// Step returns the next action for a node. It may be called as often as one likes.
func Step(v View) action.Decision {
	if rec := v.Look.Record; v.Facts.Mode != Shadow || rec.IsOpen() {
		return v.decideByRecord()
	}
	v.Facts.Mode, v.Facts.After = Fence, PostFence{}
	return v.shadowDecision(v.decideByRecord())
}

// decideByRecord is Step, in all modes but Shadow. A fence that was begun before the mode was Shadow goes on as in any mode that powers nothing off.
func (v View) decideByRecord() action.Decision {
	explains, since := v.Facts.Mode != Disabled && needsExplanation(v.Look), v.Memory.FirstLook.Got
	if explains { // a slow device never answers between two heartbeats, and they change nothing
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
		return action.Decision{Action: action.Leave{}, Reason: reason.Gone}
	case l.Mark != nil:
		return action.Decision{Action: action.Leave{}, Reason: reason.Marked}
	case l.RecordErr != nil:
		return action.Decision{Action: action.Leave{}, Reason: reason.BadRecord, Detail: l.RecordErr.Error()}
	case rec.IsOpen() && !powering:
		return v.closeFence(taint.ResultMarkRemoved, reason.MarkVanished)
	case v.wasNeverOff():
		return v.closeNeverOff()
	case explains:
		return v.explainReturn()
	}
	why, detail, after := v.checkGate()
	announced := powering && v.Memory.PowerOffs.LastSent.IsZero()
	switch {
	case why == reason.StaysDead && !powering:
		return v.decideAfterFence()
	case why != "" && !powering && after == 0:
		return action.Decision{Action: action.Leave{}, Reason: why, Detail: detail}
	case why != "" && !powering:
		return action.Decision{Action: action.Wait{}, Reason: why, Detail: detail, RequeueAfter: after}
	case why != "" && announced:
		d := v.closeFence(taint.ResultCancelled, why) // until the power-off itself is sent, every gate wins over it (invariant 8)
		d.Detail = detail
		return d
	case why == reason.Healthy, why == reason.NoWork, why == reason.StaysDead, why == reason.NoMachine, why == reason.Distrusted:
		return v.closeFence(taint.ResultCancelled, why) // sent or not: nothing to do, or nobody whose Off would prove anything
	case announced && v.Facts.NoPower() != "":
		d := v.closeFence(taint.ResultCancelled, reason.PoweredOn)
		d.Detail = v.Facts.NoPower()
		return d
	case announced && v.Facts.Mode != Fence:
		return v.closeFence(taint.ResultCancelled, reason.ModeObserve)
	case announced && !v.Fleet.Heard:
		return v.closeFence(taint.ResultCancelled, reason.MostStale)
	case powering && l.IsAliveSince(rec):
		return v.closeFence(taint.ResultCancelled, reason.Recovered)
	case (announced || v.Facts.Mode == Fence && v.powerState() == providers.PowerOn) && v.needsEtcdPods():
		return action.Decision{Action: action.ReadMembers{}, Reason: reason.Asking}
	}
	if announced {
		if no := v.checkPowerOffLimits(); no.why != "" {
			d := v.closeFence(taint.ResultCancelled, no.why)
			d.Detail, d.ReportOnceKey = no.detail, no.once
			return d
		}
	}
	if powering && v.powerState() != providers.PowerOff && v.Memory.PowerOffs.IsExhausted(v.Facts.Devices) {
		d := v.closeFence(taint.ResultPowerOffFailed, reason.PowerOffRefused)
		d.Detail = providers.ErrorCause(v.Memory.PowerOffs.LastErr)
		return d
	}
	// A new leader asks first: the machine may have gone off while nobody led.
	if powering && v.ageOf(rec.At) > v.Facts.PowerOffTimeout && !v.Answers.Answer.Got.IsZero() &&
		v.powerState() != providers.PowerOff {
		return v.closeFence(taint.ResultPowerOffFailed, reason.PowerOffFailed)
	}
	return v.decideByAnswer(powering)
}

// checkGate is step 1: the first reason to leave the node alone, "" if there is none. after zero means that a change will wake us.
func (v View) checkGate() (why reason.Reason, detail string, after time.Duration) {
	switch {
	case v.Fleet.Suspicion(v.Look) == "":
		return reason.Healthy, "", 0
	case v.Facts.Mode == Disabled:
		return reason.ModeDisabled, v.Facts.ModeBy, recheckEvery
	case v.Facts.Excluded != "":
		return reason.Excluded, v.Facts.Excluded, recheckEvery
	case v.Facts.Mode > Disabled:
		return reason.UnknownMode, v.Facts.Mode.String(), recheckEvery
	case v.Facts.NoDeviceErr != nil:
		return reason.NoMachine, v.Facts.NoDeviceErr.Error(), recheckEvery
	case v.DistrustingNode != "":
		return reason.Distrusted, v.DistrustingNode, recheckEvery
	case v.isReleased():
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

// powerState is what the answer since the first look at this life proves now; PowerUnknown if there is none.
func (v View) powerState() providers.PowerState {
	if v.Answers.Answer.At.Before(v.Memory.FirstLook.Got) {
		return providers.PowerUnknown
	}
	return v.Answers.Answer.State
}

// decideByAnswer is steps 3 to 5.
func (v View) decideByAnswer(powering bool) action.Decision {
	if v.Answers.Answer.Got.IsZero() {
		return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
	}
	switch v.powerState() {
	case providers.PowerOff:
		switch {
		case v.rearmDelayLeft() > 0:
			return action.Decision{Action: action.Wait{}, Reason: reason.Rearming, RequeueAfter: v.rearmDelayLeft()}
		case v.mayBeAlive():
			return v.askEvery(pollUnknown, reason.PostsNotReady)
		case v.isOffTooOld():
			return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
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
		return action.Decision{Action: action.Arm{Record: rec}, Reason: reason.ProvenOff}
	case providers.PowerOn:
		return v.decidePoweredOn(powering)
	case providers.PowerChanging:
		if powering && v.isLevelOverdue() {
			return v.decidePoweredOn(powering)
		}
		return v.askEvery(pollChanging, reason.Changing)
	case providers.PowerUnknown:
		switch {
		case powering && v.isLevelOverdue():
			return v.decidePoweredOn(powering)
		case v.Answers.HasDisagreement() && !v.Memory.PowerOffs.LastSent.IsZero(): // one may be behind the other for a moment
			return v.askEvery(pollUnknown, reason.AwaitingOff)
		case v.Answers.HasDisagreement():
			return v.askEvery(pollOn, reason.Disagree)
		case v.Fleet.HintAt.After(v.Answers.Answer.Got): // told since
			return action.Decision{Action: action.Ask{}, Reason: reason.Unknown}
		}
		return v.askEvery(v.Answers.Backoff(), reason.Unknown)
	default:
		return action.Decision{Action: action.Wait{}, Reason: reason.UnexpectedAnswer, RequeueAfter: pollMax}
	}
}

// isLevelOverdue reports that the level whose turn it is has had its time, and another would take the power-off: then that has its turn, also
// while nobody says On any more.
func (v View) isLevelOverdue() bool {
	return v.Memory.PowerOffs.IsOverdue(v.Now, v.Facts.Devices, v.Answers)
}

// isOffTooOld reports that the Off must be asked for again before the mark: it was old already when the look after it was sent, or is very
// old. A slow API server's answer to that look must not make it so: Off is asked for once more after the mark (step 6).
func (v View) isOffTooOld() bool {
	if !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.Answers.Answer.At.Age(v.Now) > proof.TTL
	}
	return v.Answers.Answer.At.Age(v.Look.Sent) > proof.TTL || v.Answers.Answer.At.Age(v.Now) > armWithin
}

// mayBeAlive reports a node whose own kubelet says that it is not ready, and so was alive when it said so, and has missed no renewal
// of its Lease since: its device's Off is not enough, however often it is asked. With a hint of another kind it is as fast as ever.
func (v View) mayBeAlive() bool {
	l := v.Look
	return !l.IsReady() && l.Ready != corev1.ConditionUnknown && !v.Fleet.Missed && !v.Fleet.HasOutsideHint()
}

// decidePoweredOn is step 3 for a machine that is on.
func (v View) decidePoweredOn(powering bool) action.Decision {
	if v.Facts.Mode != Fence && !powering {
		d := v.askEvery(pollOn, reason.PoweredOn)
		d.Detail = cmp.Or(v.Facts.NoPower(), "mode observe")
		return d
	}
	if !powering {
		grace := v.Facts.PowerOffAfter - v.Now.Sub(v.Fleet.SilentSince)
		no := v.checkPowerOffLimits()
		switch {
		case no.why == reason.ControlPlane:
			return v.refusePowerOff(no)
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
	// On proves nothing: a slow device's counts from when it was there, and until the look that followed it was sent.
	if read := v.Look.Sent; v.Answers.Answer.Got.Age(v.Now) > proof.TTL &&
		!(read.After(v.Answers.Answer.Got) && v.Answers.Answer.Got.Age(read) <= proof.TTL) {
		return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
	}
	if !powering && v.PendingWork == WorkCached {
		return action.Decision{Action: action.ListAttachments{Live: true}, Reason: reason.Asking}
	}
	if !powering {
		rec := v.newRecord(false).WithEvidence(v.Answers.Evidence()...)
		rec.PowerOff, rec.OffBy, rec.PostFence = true, nil, ""
		if m := v.Memory.PowerOffs.NextMove(v.Now, v.Now, v.Facts.Devices, v.Answers); m.Wait == 0 {
			rec.PowerOffTo = withDevices(rec.PowerOffTo, proof.SameLevel(v.Facts.Devices, m.Device))
		}
		rec = rec.EnterPhase(taint.PhasePoweringOff, "", v.Now.Wall)
		return action.Decision{Action: action.Write{Record: rec}, Reason: reason.Announcing}
	}
	next := v.Memory.PowerOffs.NextMove(v.Now, v.instantOf(v.Look.Record.At), v.Facts.Devices, v.Answers)
	switch {
	// A process that begins to lead in the middle sends nothing before it has heard the silence itself, and who else is heard.
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
		return action.Decision{Action: action.Ask{}, Reason: reason.Asking}
	}
	// The Look was made after the record was committed (it shows it), and shows no life since: a stale leader, or one whose
	// question took long, cannot power off a node that recovered.
	if v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got) {
		return v.lookAgain()
	}
	d := action.Decision{Action: action.PowerOff{Move: next}, Reason: reason.SendingOff}
	if next.Why != "" {
		d.Reason, d.Detail = reason.NextLevel,
			fmt.Sprintf("%s; now through %s", next.Why, v.Facts.Devices[next.Device].Name)
	}
	// The record names the device first: a leader that dies right after the power-off must not leave it off unnamed.
	rec, level := *v.Look.Record, proof.SameLevel(v.Facts.Devices, next.Device)
	unnamed := func(d taint.DeviceRef) bool { return !slices.ContainsFunc(rec.PowerOffTo, d.IsSame) }
	if slices.ContainsFunc(level, unnamed) {
		rec.PowerOffTo = withDevices(rec.PowerOffTo, level)
		d.Action = action.Write{Record: rec}
	}
	return d
}

// isIdentityFresh reports whether the look was sent at most identityHolds after the question to the devices. Then the
// devices' guards need not ask again which machine it is, and nothing slow happens between the look and the power
// action. Before that look is taken, its time is now.
func (v View) isIdentityFresh() bool {
	at := v.Now
	if v.Look.Sent.After(v.Answers.Answer.Got) {
		at = v.Look.Sent
	}
	return v.Answers.Answer.At.Age(at) <= identityHolds
}

// withDevices returns the list with those devices that it does not have yet; the newest stay when there are too many.
func withDevices(list, more []taint.DeviceRef) []taint.DeviceRef {
	list = slices.Clone(list)
	for _, d := range more {
		if !slices.ContainsFunc(list, d.IsSame) {
			list = append(list, d)
		}
	}
	return list[max(len(list)-taint.MaxPowerOffTo, 0):]
}

// maySendAgain reports whether a power-off that was sent may be sent once more. What came too late for the first, a maintenance or
// another mode, is in time for the second: somebody may have switched the machine on again on purpose.
func (v View) maySendAgain() bool {
	why, _, _ := v.checkGate()
	return why == "" && v.Facts.Mode == Fence && v.Fleet.Heard && v.checkPowerOffLimits().why == ""
}

// askEvery asks once the last answer is older than every, and waits until then.
func (v View) askEvery(every time.Duration, why reason.Reason) action.Decision {
	if left := every - v.Answers.Answer.Got.Age(v.Now); left > 0 {
		return action.Decision{Action: action.Wait{}, Reason: why, RequeueAfter: left}
	}
	return action.Decision{Action: action.Ask{}, Reason: why}
}

// newRecord is the record of a fence at this look: the announced one goes on under its id.
func (v View) newRecord(powering bool) taint.Record {
	r := taint.Record{ID: v.Facts.NewID, Since: v.Now.Wall.UTC().Truncate(time.Millisecond), By: v.Facts.By}
	switch old := v.Look.Record; {
	case powering:
		r = *old
	case old != nil && !v.Look.IsAliveSince(old):
		r.PowerOffTo = v.Look.PowerOffDevices()
		if r.Repeats = old.Repeats; wasMarked(old) {
			r.Repeats++
		}
		if !v.Memory.PowerOns.LastOn.After(v.instantOf(old.At)) { // it is off since that fence
			r.OffBy, r.PostFence = old.OffBy, old.PostFence
		}
	}
	r.NodeUID, r.BootID, r.LeaseRV = v.Look.UID, v.Look.BootID, v.Look.LeaseRV
	r.Device, r.Machine = proof.RecordedDevice(v.Facts.Devices)
	if old := v.Look.Record; !powering && old != nil {
		r.FalseOffs, r.PowerOns = old.DistrustedDevices(), old.PowerOns
	}
	r.Run, r.RunBy = v.Answers.MachineRun()
	return r
}

// closeFence ends the fence that the record tells of.
func (v View) closeFence(res taint.Result, why reason.Reason) action.Decision {
	return action.Decision{Action: action.Write{Record: v.endRecord(res)}, Reason: why}
}

// endRecord returns the record of the fence as it ends now.
func (v View) endRecord(res taint.Result) taint.Record {
	rec := *v.Look.Record
	if rec.Phase == taint.PhasePoweringOff {
		rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)
	}
	return rec.EnterPhase(taint.PhaseDone, res, v.Now.Wall)
}

// wasNeverOff reports a node that came back under the boot id it had when its machine was said to be off: it never was.
func (v View) wasNeverOff() bool {
	return movedPods(v.Look.Record) && proof.WasNeverOff(v.Look, v.Look.Record)
}

// closeNeverOff names those who said Off in the record.
func (v View) closeNeverOff() action.Decision {
	rec := v.endRecord(taint.ResultNeverPoweredOff).WithFalseOffs(proof.SpeakersOf(v.Facts.Devices))
	return action.Decision{Action: action.Write{Record: rec}, Reason: reason.NeverOff}
}

// needsExplanation is the same for a machine whose boot ids do not tell.
func needsExplanation(l taint.Look) bool {
	return movedPods(l.Record) && proof.NeedsExplanation(l, l.Record)
}

// explainReturn asks the device of a node that is back which run of its machine this is, until it tells: the one that it said was over, or
// another, which is written down so that it is asked once.
func (v View) explainReturn() action.Decision {
	switch now := v.Answers.RunNow(v.Look.Record); {
	case now == v.Look.Record.Run: // the device contradicts itself
		return v.closeNeverOff()
	case now != "":
		rec := *v.Look.Record
		rec.Restart = now
		return action.Decision{Action: action.Write{Record: rec}, Reason: reason.StartedAgain}
	case v.Answers.Answer.Got.IsZero():
		return action.Decision{Action: action.Ask{}, Reason: reason.Explaining}
	case v.powerState() != providers.PowerUnknown: // of another device
		return v.askEvery(pollMax, reason.Explaining)
	default:
		return v.askEvery(v.Answers.Backoff(), reason.Explaining)
	}
}

// movedPods reports a fence that ended, and moved pods.
func movedPods(r *taint.Record) bool {
	return r != nil && r.Phase == taint.PhaseDone && (r.Result == taint.ResultEvicted || r.Result == taint.ResultReturned)
}

// isReleased reports that a person ended the fence of this life of the node. A heartbeat or a boot begins another.
func (v View) isReleased() bool {
	r := v.Look.Record
	return r != nil && r.Result == taint.ResultReleased && !v.Look.IsAliveSince(r)
}

// rearmDelayLeft is how long to wait before the mark is set again on a node whose last fence ended without a sign of life since: its
// device says Off and then does not confirm it, somebody takes the mark off, or what the fence finds to do does not go. Each would go
// on for ever, at the speed of the device.
func (v View) rearmDelayLeft() time.Duration {
	r := v.Look.Record
	if r == nil || !wasMarked(r) || v.Look.IsAliveSince(r) {
		return 0
	}
	return min(rearmDelay<<min(r.Repeats, 8), rearmMax) - v.ageOf(r.At)
}

// isEvicted reports that the last fence of this life of the node came to its end.
func (v View) isEvicted() bool {
	r := v.Look.Record
	return r != nil && r.Result == taint.ResultEvicted && !v.Look.IsAliveSince(r)
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
func (v View) lookAgain() action.Decision {
	if !v.Now.After(v.Answers.Answer.Got) {
		return action.Decision{Action: action.Wait{}, Reason: reason.LookedTooEarly, RequeueAfter: time.Millisecond}
	}
	return action.Decision{Action: action.ReadNode{}, Reason: reason.LookedTooEarly}
}

// instantOf is when a time of the record was, by this process's clocks.
func (v View) instantOf(at time.Time) providers.Instant { return v.Seen.InstantOf(at, v.Now) }

// ageOf is how long ago a time of the record was.
func (v View) ageOf(at time.Time) time.Duration { return v.Now.Sub(v.instantOf(at)) }

// retryDelayLeft is how long to wait before power-off is tried again.
func (v View) retryDelayLeft() time.Duration {
	r := v.Look.Record
	if r == nil || r.Result != taint.ResultPowerOffFailed {
		return 0
	}
	return v.Facts.Retry - v.ageOf(r.At)
}
