// Package evict decides what the taint manager does next on a marked node: steps 5 (the stale Ready) to 13 of the
// protocol, and the return path. Steps 1 to 5, up to the mark, are in package fence.
//
// It is pure: Step is a function from a View to a Decision (one act). It names no client, no clock and no logger. The
// caller's loop is: look live (Node and Lease, then the pods bound to the node, then the attachments), fold the look
// into Memory, Step, act, and again. So a live look precedes each act.
//
// It promises: no pod is tombstoned or deleted, and no volume list is cleared, without an exact Off (IsProvenOff). That
// Off was requested after the mark was seen and after Ready stopped being True, at most proof.TTL ago. The one
// exception is a person's mark on a node that no device can speak for, and the record says so.
//
// Once the node shows life, nothing more is tombstoned or cleared. Each living pod is spared before the mark goes, so
// that no write still on its way can end it. Pods that stay lose Ready only while the machine is proven off, never on a
// person's word (notready.go).
//
// The mark goes only when nothing was touched, or when every tombstoned pod and every volume that no bound pod uses is
// gone. A pod that the API server does not let us end, delete or spare (trouble.go) delays no other. It is named. It
// keeps the mark of a node that is off, and not that of a live one.
package evict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// Memory is what one process remembers of one marked node. Safety never depends on it after a restart. The zero value
// remembers nothing.
type Memory struct {
	id    string
	looks Looks
	// ProofFrom is when this process first knew that the mark is committed and Ready is not True; zero: not yet.
	ProofFrom  providers.Instant
	ListedAt   providers.Instant // when the attachments were last listed live
	ForcedAt   providers.Instant // when attachments were last force-deleted; zero: never
	emptySince providers.Instant // since when no pod was seen that the out-of-service taint would end; zero: one was
	// Cleared counts how often this process cleared the volume lists: attach/detach may write volumesAttached back
	// (F5).
	Cleared int

	volumes    volumes             // of this fence
	firstPods  map[string]bool     // by UID: the first list under the mark; nil: not listed yet
	sentLate   map[string]bool     // by UID: late pods to which this process sent a tombstone
	troubles   map[attempt]trouble // failed writes of pods
	urgentActs int                 // acts since the urgent pods were ended, or maxUrgentActs
	timer      stepTimer           // of the step that is under way
}

// ApplyLook folds a live look in, and reports whether it shows another mark than the last look.
func (m *Memory) ApplyLook(l taint.Look) (newMark bool) {
	m.looks = m.looks.WithLook(l)
	switch {
	case l.Mark == nil:
		*m = Memory{looks: m.looks}
		return false
	case markOf(l) != m.id:
		*m = Memory{id: markOf(l), looks: m.looks, volumes: newVolumes(l)}
		newMark = true
	}
	switch {
	case l.IsReady():
		m.ProofFrom = providers.Instant{}
	case m.ProofFrom.IsZero():
		m.ProofFrom = l.Got
	}
	return newMark
}

// markOf returns what distinguishes one mark from another: a person may set the same one again, which needs its own
// proof.
func markOf(l taint.Look) string {
	if l.Record.IsOpen() {
		return l.Mark.Value + " " + l.Record.Token()
	}
	return l.Mark.Value
}

// IsProvenOff reports whether the last answer proves, at now, that the machine is off. It must be exactly Off, asked
// after the mark was known and after Ready stopped being True, at most proof.TTL ago (invariant 1).
func (v View) IsProvenOff(now providers.Instant) bool {
	return v.Answers.Answer.State == providers.PowerOff && v.isAskedSinceMark() && v.Twin == "" &&
		v.Answers.Answer.At.Age(now) <= proof.TTL
}

// isAskedSinceMark reports whether the last answer was requested after the mark was known and Ready was not True.
func (v View) isAskedSinceMark() bool {
	return !v.Answers.Answer.Got.IsZero() && !v.Memory.ProofFrom.IsZero() &&
		!v.Answers.Answer.At.Before(v.Memory.ProofFrom)
}

// Settings are the configured choices.
type Settings struct {
	DetachTimeout   time.Duration // how long a mark may stay armed, or an eviction last, before an alert
	TrustPerson     bool          // under a person's mark, evict although the device answers On
	OnDetachTimeout OnDetachTimeout
}

// View is all that Step decides on.
type View struct {
	Now      providers.Instant
	Look     taint.Look      // live, read after the last act
	Seen     taint.Sightings // of the Look's record
	Memory   Memory
	Answers  proof.Answers
	Settings Settings

	Pods        []action.Pod        // listed live after Look; all that are bound to the node
	Reads       time.Duration       // how long the Look and what was listed after it took
	Attachments []action.Attachment // those that name the node
	// Live reports that the API server listed the Attachments after Look. Those of a cache may be behind.
	Live bool
	// Claims are the claims that PersistentVolumes are bound to, as namespace/name, as far as read after Look. "" means
	// bound to none; action.UnreadClaim means that it could not be read.
	Claims  map[string]string
	Devices []proof.Device // the devices that speak for the node
	By      string         // this controller's identity
	// Twin is another node that is heard and may be the same machine (fleet.View); "": none. Then no answer is a proof.
	Twin string
}

const (
	pollChanging = 500 * time.Millisecond
	pollUnknown  = time.Second // doubled with every miss
	pollMax      = 30 * time.Second
	pollWait     = time.Second // for waits that a watch usually ends earlier
	pollStock    = 200 * time.Millisecond
	// relistEvery is the time between two live lists of attachments that a fence waits for: the cache may be behind.
	relistEvery = 5 * time.Second
	// maxClearings is how often the lists are cleared at most: a client that keeps writing entries back does not keep
	// the mark (invariant 16).
	maxClearings = 5
)

// Step returns the next act for a node that carries the mark. It may be called repeatedly. Expensive reads precede only
// the decisions that depend on them. These are the volumes of pods that may stay, before the lists are cleared or the
// mark goes. The other is the API server's own list of attachments, before the mark goes.
func Step(v View) action.Decision {
	return v.readFirst(v.decideByPhase())
}

// readFirst replaces a decision by the read that it depends on, if one is missing.
func (v View) readFirst(d action.Decision) action.Decision {
	unmark, _ := d.Action.(action.RemoveMark)
	res := unmark.Record.Result
	ends := res == taint.ResultEvicted || res == taint.ResultReturned || res == taint.ResultNeverPoweredOff
	waits := d.Reason == reason.WaitingDetach
	names := waits && action.Is[action.WriteRecord](d)
	clears := action.Is[action.ClearVolumes](d)
	forces := action.Is[action.DeleteAttachments](d) || action.Is[action.AddOutOfServiceTaint](d)
	pods := v.podsToResolve()
	switch {
	case len(pods) > 0 && (ends || waits || forces || clears):
		return action.Decision{Action: action.ReadVolumes{Pods: pods}}
	case action.Is[action.ReadClaims](d):
		return action.Decision{Action: d.Action, Reason: d.Reason}
	case !v.Live && (ends || forces || names || waits && v.Memory.ListedAt.Age(v.Now) >= relistEvery):
		return action.Decision{Action: action.ListAttachments{Live: true}, Reason: d.Reason}
	}
	return d
}

// podsToResolve returns the unfinished pods whose volumes are unknown.
func (v View) podsToResolve() (pods []action.Pod) {
	for _, p := range v.Pods {
		if p.Claims && !p.Terminal {
			pods = append(pods, p)
		}
	}
	return pods
}

func (v View) decideByPhase() action.Decision {
	l := v.Look
	switch {
	case !l.Exists:
		return action.Decision{Action: action.NoAction{}, Reason: reason.Gone}
	case l.Mark == nil:
		return action.Decision{Action: action.NoAction{}, Reason: reason.NotMarked}
	case l.RecordErr != nil:
		return action.Decision{Action: action.NoAction{}, Reason: reason.BadRecord, Detail: l.RecordErr.Error(),
			Alert: string(reason.BadRecord)}
	case !l.HasOwnMark() || l.Record.Phase == taint.PhasePoweringOff:
		return v.adoptPersonMark()
	case l.Record.Phase == taint.PhaseArmed:
		return v.alertOverdue(v.decideArmed())
	default:
		return v.detailAlert(v.notReadyFirst(v.alertOverdue(v.nameStuckPods(v.decideEviction()))))
	}
}

// LooksAtPods reports whether Step decides on the node's pods and attachments: only once the record says that the
// eviction began. Before that a View may omit them, so the looks between the mark and the first tombstone cost no list.
func LooksAtPods(l taint.Look) bool {
	return l.Exists && l.Mark != nil && l.RecordErr == nil && l.HasOwnMark() && l.Record.Phase == taint.PhaseEvicting
}

// alertOverdue adds an alert to any decision of a step that lasts too long: a wait, a question without a usable answer,
// or an act that fails each time (invariants 11, 13). A fence that goes on after a long wait has a new step, and time.
func (v View) alertOverdue(d action.Decision) action.Decision {
	if !action.Is[action.RemoveMark](d) && d.Alert == "" && v.isOverdue(d) {
		d.Alert = string(v.overdueStep(d))
	}
	return d
}

// waitingReason returns the reason of a decision. A question whether a machine that is on has gone off again comes
// between two waits, and has the reason of these.
func (v View) waitingReason(d action.Decision) reason.Reason {
	if action.Is[action.AskDevices](d) && d.Reason == reason.Returned {
		if wait := v.decideReturn(); action.Is[action.Wait](wait) {
			return wait.Reason
		}
	}
	return d.Reason
}

// ageOf returns how long ago a time of the record was.
func (v View) ageOf(at time.Time) time.Duration { return v.Now.Sub(v.Seen.InstantOf(at, v.Now)) }

// adoptPersonMark writes the record of a fence that a person began. If the person overwrote our mark during an
// eviction, the fence continues at its phase, with the life it knew. A new record would take the next heartbeat as
// proof that nothing was touched, and lift the mark over the tombstones.
func (v View) adoptPersonMark() action.Decision {
	l := v.Look
	if l.Record.IsOpen() && l.Record.Phase == taint.PhaseEvicting {
		r := *l.Record
		r.ID, r.By = l.Mark.Value, cmp.Or(l.MarkedBy, taint.ByPerson)
		r.Device, _ = proof.RecordedDevice(v.Devices)
		return writeRecord(r.EnterPhase(taint.PhaseEvicting, "", v.Now.Wall), reason.Adopting)
	}
	r := taint.Record{
		ID: l.Mark.Value, NodeUID: l.UID, BootID: l.BootID, LeaseRV: l.LeaseRV,
		Heartbeat: l.Heartbeat,
		Since:     v.Now.Wall.UTC().Truncate(time.Millisecond),
		By:        cmp.Or(l.MarkedBy, taint.ByPerson),
		FalseOffs: l.Record.DistrustedDevices(), PowerOffTo: l.PowerOffDevices(),
	}
	if l.Record != nil {
		r.PowerOns, r.Orders = l.Record.PowerOns, l.Record.Orders
	}
	r.Device, r.Machine = proof.RecordedDevice(v.Devices)
	return writeRecord(r.EnterPhase(taint.PhaseArmed, "", v.Now.Wall), reason.Adopting)
}

// writeRecord returns the decision to write the record; the mark stays.
func writeRecord(rec taint.Record, why reason.Reason) action.Decision {
	return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: why}
}

// requeueAfter returns the decision to look again after that time.
func requeueAfter(why reason.Reason, after time.Duration) action.Decision {
	return action.Decision{Action: action.Wait{}, Reason: why, RequeueAfter: after}
}

// askDevices returns the decision to ask the devices.
func askDevices(why reason.Reason) action.Decision {
	return action.Decision{Action: action.AskDevices{}, Reason: why}
}

// decideArmed decides steps 5 to 7: nothing is evicted yet.
func (v View) decideArmed() action.Decision {
	l, rec := v.Look, v.Look.Record
	person := rec.IsVouchedFor()
	switch {
	case l.IsAliveSince(rec):
		return v.removeMark(v.endRecord(taint.ResultLifted), reason.Alive)
	case v.Twin != "" && person:
		return v.waitForTwin()
	case v.Twin != "":
		d := v.removeMark(v.endRecord(taint.ResultLifted), reason.SharedMachine)
		d.Detail = v.Twin
		return d
	}
	if l.IsReady() {
		// A crashed node reads Ready until a controller notices. With an Off in hand, this controller notices. Without
		// it, a heartbeat lifts the mark, or the node lifecycle controller ends the wait.
		switch {
		case v.Answers.Answer.State == providers.PowerOff && v.Answers.Answer.At.Age(v.Now) <= proof.TTL:
			return action.Decision{Action: action.ExpireReady{}, Reason: reason.Expiring}
		case v.hasNoDevice() && person:
			return requeueAfter(reason.StillReady, pollWait)
		case v.Answers.Answer.Got.IsZero() ||
			v.Answers.Answer.At.Age(v.Now) > proof.TTL &&
				(v.Answers.Answer.State == providers.PowerOff || v.mayAskAgain()):
			return askDevices(reason.Confirming)
		case person:
			d := v.waitToAsk(v.refusedOr(reason.StillReady))
			d.RequeueAfter = max(d.RequeueAfter, proof.TTL-v.Answers.Answer.At.Age(v.Now)) // no question is due before
			return d
		default:
			return v.removeMark(v.endRecord(taint.ResultLifted), reason.NotConfirmed)
		}
	}
	if v.hasNoDevice() && person {
		return v.beginEviction(*rec, reason.Vouched,
			taint.Evidence{At: v.Now.Wall, From: rec.By, State: "None", Raw: "no device speaks for the node"})
	}
	switch {
	case v.IsProvenOff(v.Now):
		begun := *rec
		// The machine may have been started, and stopped, since the mark.
		if run, by := v.Answers.MachineRun(); run != "" {
			if begun.Run != "" && begun.Run != run {
				begun.OffBy = nil // then our power-off is not why it is off
			}
			begun.Run, begun.RunBy = run, by
		}
		return v.beginEviction(begun, reason.Confirmed, v.Answers.Evidence()...)
	case !v.isAskedSinceMark() || v.Answers.Answer.State == providers.PowerOff:
		return askDevices(reason.Confirming)
	case !person:
		lifted := v.endRecord(taint.ResultLifted)
		if v.Answers.Answer.State == providers.PowerOn { // then our power-off is not why it is off
			lifted.OffBy = nil
		}
		return v.removeMark(lifted, reason.NotConfirmed)
	case v.allowsPerson():
		return v.beginEviction(*rec, reason.Vouched, v.Answers.Evidence()...)
	case v.mayAskAgain():
		return askDevices(reason.Confirming)
	default:
		return v.waitToAsk(v.refusedOr(reason.Confirming))
	}
}

// hasNoDevice reports whether no device speaks for the node.
func (v View) hasNoDevice() bool { return len(v.Devices) == 0 }

// allowsPerson reports whether the last answer leaves the decision to the person who vouches. Either it proves nothing,
// or it is On and the configuration trusts the person. If devices disagree, one of them answers On.
func (v View) allowsPerson() bool {
	if v.Answers.Answer.State == providers.PowerOn || v.Answers.HasDisagreement() {
		return v.Settings.TrustPerson
	}
	return v.Answers.Answer.State == providers.PowerUnknown
}

func (v View) refusedOr(other reason.Reason) reason.Reason {
	switch {
	case v.Answers.Answer.State == providers.PowerOn:
		return reason.Refused
	case v.Answers.HasDisagreement():
		return reason.MarkDisagree
	}
	return other
}

// beginEviction writes step 7's record, before the first tombstone. The record identifies the claims of the node's
// pods: a later leader cannot learn them from pods that are gone.
func (v View) beginEviction(rec taint.Record, why reason.Reason, e ...taint.Evidence) action.Decision {
	if !v.Memory.volumes.podsListed { // a fence of ours listed them before the mark
		return action.Decision{Action: action.ListPods{}, Reason: why}
	}
	rec = rec.WithEvidence(e...).EnterPhase(taint.PhaseEvicting, "", v.Now.Wall)
	rec.Claims = taint.EncodeClaims(v.Memory.volumes.claims)
	return writeRecord(rec, why)
}

// hasComeBack reports whether the eviction is on its return path. Only tombstoned pods may be deleted there, which
// needs no proof.
func (v View) hasComeBack() bool {
	return LooksAtPods(v.Look) &&
		(v.Look.IsAliveSince(v.Look.Record) || v.Look.IsReady() || v.hasBegunReturn() ||
			v.isAnswerOn() && !v.mayAskAgain())
}

// isAnswerOn reports whether the last answer is On and no trusted person overrides it.
func (v View) isAnswerOn() bool {
	return v.isAskedSinceMark() && v.Answers.Answer.State == providers.PowerOn &&
		(!v.Look.Record.IsVouchedFor() || !v.Settings.TrustPerson)
}

// decideEviction decides steps 8 to 13 and the return path.
func (v View) decideEviction() action.Decision {
	l := v.Look
	switch {
	case v.hasComeBack():
		return v.decideReturn()
	case v.isAnswerOn():
		return askDevices(reason.Returned) // it may have gone off again without a notification
	case v.Twin != "":
		return v.waitForTwin()
	}
	var ready, waiting, tombs, resting []action.Pod
	for _, p := range v.Pods {
		switch {
		case p.ShouldMove() && v.Memory.StockEviction(l).IsAboutToDelete(p, v.Now):
			waiting = append(waiting, p)
		case p.ShouldMove() && v.backoffLeft(action.WritesEnd, p) > 0,
			needsProvenDelete(p) && v.backoffLeft(action.WritesDelete, p) > 0:
			resting = append(resting, p)
		case p.ShouldMove():
			p = v.podToWrite(action.WritesEnd, p)
			p.AtOnce = !hasVolumes(p) && p.OtherVolume == ""
			ready = append(ready, p)
		case needsProvenDelete(p):
			tombs = append(tombs, p)
		}
	}
	sortForEviction(ready)
	sortForEviction(tombs)
	inUse, attached := v.volumesToKeep()
	left, unread := v.HoldingAttachments(v.unusedAttachments())
	// While something is to be detached, attach/detach writes its list back, and removes the entry again at the detach.
	// If its cache is old by then, the entry stays; it can go when nothing is left to detach (F5).
	again := len(left) == 0 && v.Memory.Cleared < maxClearings
	clear := len(inUse) < len(l.InUse) && v.Memory.Cleared < maxClearings ||
		len(attached) < len(l.Attached) && (v.Memory.Cleared == 0 || again)
	switch {
	case len(ready)+len(waiting)+len(tombs)+len(resting)+len(left) == 0 && !(clear && v.MayEndPods(v.Now)):
		// Nothing is left that needs a proof: a device that died with its rack does not keep the mark.
		ended := v.endRecord(taint.ResultEvicted)
		ended.Staying = findLeft(v.Pods)
		return v.removeMark(ended, reason.Finished)
	case v.mustRecordOn():
		return v.recordOn(reason.ProofLost)
	case len(ready)+len(waiting)+len(tombs) == 0 && !clear && len(resting) > 0:
		return v.waitForRetry(resting, action.WritesEnd)
	case len(ready)+len(waiting)+len(tombs) == 0 && !clear && len(unread) > 0 && v.ageOf(l.Record.At) > relistEvery:
		// Most volumes are detached by now. Whose volumes are left costs one read each, once.
		return action.Decision{Action: action.ReadClaims{PVs: unread}, Reason: reason.WaitingDetach}
	case len(ready)+len(waiting)+len(tombs) == 0 && !clear:
		return v.waitForDetach(left)
	case v.MayEndPods(v.Now):
	case l.Record.IsVouchedFor() && v.hasNoDevice():
		return v.waitToAsk(reason.ProofLost) // no device to ask: look again
	case !v.isAskedSinceMark(), v.Answers.Answer.State == providers.PowerOff, v.mayAskAgain():
		return askDevices(reason.Confirming)
	default:
		d := v.waitToAsk(reason.ProofLost)
		if v.Answers.HasDisagreement() {
			d.Alert = string(reason.Disagree)
		}
		return d
	}
	ready, lateReady := v.splitLate(ready)
	tombs, lateTombs := v.splitLate(tombs)
	urgent := v.urgentPods(ready)
	switch {
	case len(urgent) > 0:
		return action.Decision{Action: action.EndPods{Pods: urgent, Urgent: true}, Reason: reason.Tombstoning}
	case len(ready) > 0 && !(v.Memory.movesUrgentPods() && (clear || len(tombs) > 0)):
		return action.Decision{Action: action.EndPods{Pods: ready}, Reason: reason.Tombstoning}
	case clear:
		return action.Decision{Action: action.ClearVolumes{InUse: inUse, Attached: attached}, Reason: reason.Clearing}
	case len(tombs) > 0:
		return action.Decision{Action: action.DeletePods{Pods: tombs}, Reason: reason.Deleting}
	case len(lateTombs) > 0:
		return action.Decision{Action: action.DeletePods{Pods: lateTombs}, Reason: reason.Deleting}
	case len(lateReady) > 0:
		return action.Decision{Action: action.EndPods{Pods: lateReady}, Reason: reason.Tombstoning}
	default:
		return requeueAfter(reason.StockEviction, pollStock)
	}
}

// waitForTwin waits until no other node that may be the same machine is heard.
func (v View) waitForTwin() action.Decision {
	d := requeueAfter(reason.SharedMachine, pollUnknown)
	d.Detail = v.Twin
	return d
}

// needsProvenDelete reports whether the fence of a machine that is off deletes the pod: it ended the pod, or another
// client's deletion waits for the dead kubelet.
func needsProvenDelete(p action.Pod) bool { return p.NeedsDelete() || p.HasUnfinishedDeletion() }

// MayEndPods reports whether pods may be ended and volumes cleared at now. Either the machine is proven off, or a
// person vouches for it and no device contradicts. No device contradicts if there is none, or if its last answer, not
// yet due to be repeated, proves nothing. That answer may be On where the configuration trusts the person. A person's
// confirmation is no newer than the last look: it holds as long as an answer would, once all was read. Workers call
// this before each write.
func (v View) MayEndPods(now providers.Instant) bool {
	switch {
	case v.IsProvenOff(now):
		return true
	case v.Look.Record == nil || !v.Look.Record.IsVouchedFor() || v.Look.Got.Age(now) > proof.TTL+v.Reads:
		return false
	case v.hasNoDevice():
		return true
	case !v.isAskedSinceMark() || v.Answers.Answer.Got.Age(now) >= v.askEvery():
		return false
	default:
		return v.allowsPerson()
	}
}

// hasBegunReturn reports whether this fence has begun its return path. It stays on it even if the machine goes off once
// more: the mark will go, and the next fence moves what is left.
func (v View) hasBegunReturn() bool {
	return slices.ContainsFunc(v.Pods, func(p action.Pod) bool { return p.ShouldMove() && v.isSpared(p) })
}

// isSpared reports whether this fence lets the pod live. A pod that was too large for the annotation does not show it;
// another process spares it again.
func (v View) isSpared(p action.Pod) bool {
	before := v.Memory.troubles[attempt{p.UID, action.WritesSpare}].before
	return p.Spared == v.Look.Record.Token() || before != "" && before != p.ResourceVersion
}

// decideReturn decides the return path with tombstones: no more tombstones, no more clearing. Tombstoned pods are
// deleted. The node's hook holds the rest, which start when the mark goes. Before that they are spared: a tombstone
// that was sent with a good proof may still be on its way (a slow request, a paused leader). It must not land on a pod
// that runs again.
//
// A pod whose write is hopeless is let go: it would delay all others. A pod that is too large to be spared is too large
// for a tombstone: both have a small form, and sparing grows a pod less. If the pod shrinks, its resourceVersion
// changes. A pod that is refused for another reason is refused for so long that no tombstone is left on its way.
func (v View) decideReturn() action.Decision {
	var tombs, spare, resting []action.Pod
	for _, p := range v.Pods {
		switch {
		case p.ShouldMove() && (v.isSpared(p) || !v.mayBeTombstoned(p)):
		case p.ShouldMove() && v.isHopeless(action.WritesSpare, p),
			p.NeedsDelete() && v.isHopeless(action.WritesDelete, p):
		case p.ShouldMove() && v.backoffLeft(action.WritesSpare, p) > 0,
			p.NeedsDelete() && v.backoffLeft(action.WritesDelete, p) > 0:
			resting = append(resting, p)
		case p.ShouldMove():
			spare = append(spare, v.podToWrite(action.WritesSpare, p))
		case p.NeedsDelete():
			tombs = append(tombs, p)
		}
	}
	sortForEviction(tombs)
	sortForEviction(spare)
	pending, unread := v.pendingDetachments()
	switch {
	case taint.IsOutOfService(v.Look.Taints): // stock controllers would end pods of a machine that runs
		return action.Decision{Action: action.RemoveOutOfServiceTaint{}, Reason: reason.Returned}
	case len(spare) > 0:
		return action.Decision{Action: action.SparePods{Pods: spare}, Reason: reason.Sparing}
	case len(tombs) > 0:
		return action.Decision{Action: action.DeletePods{Pods: tombs, Returned: true}, Reason: reason.Returned}
	case len(resting)+len(pending) > 0 && v.mustRecordOn():
		return v.recordOn(reason.WaitingDetach)
	case len(resting) > 0:
		d := v.waitForRetry(resting, action.WritesSpare)
		d.Action = action.Wait{Returned: true}
		return d
	case len(unread) > 0:
		return action.Decision{Action: action.ReadClaims{PVs: unread}, Reason: reason.WaitingDetach}
	case len(pending) > 0:
		return v.waitForReturnDetach(pending)
	// Where boot ids do not tell boots apart, package fence asks which run this is, once the mark is gone.
	case proof.WasNeverOff(v.Look, v.Look.Record):
		d := v.removeMark(
			v.endRecord(taint.ResultNeverPoweredOff).WithFalseOffs(proof.SpeakersOf(v.Devices)), reason.NeverOff)
		d.Alert = string(reason.NeverOff)
		return d
	default:
		return v.removeMark(v.endRecord(taint.ResultReturned), reason.FinishedReturn)
	}
}

// mustRecordOn reports whether a device said On in this phase and the record has no such answer. What else trusts the
// record's proof, such as the proof guard, must learn that it is no proof any more.
func (v View) mustRecordOn() bool {
	isOn := func(e taint.Evidence) bool {
		return e.ContradictsOff() && !e.At.Before(v.Look.Record.At)
	}
	return v.isAskedSinceMark() && !(v.Settings.TrustPerson && v.Look.Record.IsVouchedFor()) &&
		slices.ContainsFunc(v.Answers.Evidence(), isOn) && !slices.ContainsFunc(v.Look.Record.Evidence, isOn)
}

// recordOn writes what the devices answered into the record.
func (v View) recordOn(why reason.Reason) action.Decision {
	return writeRecord(v.Look.Record.WithEvidence(v.Answers.Evidence()...), why)
}

// endRecord returns the record of the fence as ended now.
func (v View) endRecord(res taint.Result) taint.Record {
	return v.Look.Record.WithEvidence(v.Answers.OffEvidence(v.Look.Record)...).
		EnterPhase(taint.PhaseDone, res, v.Now.Wall)
}

// removeMark ends the fence. The mark and the record change in one write, so a mark without an open record is always a
// person's.
func (v View) removeMark(rec taint.Record, why reason.Reason) action.Decision {
	a := action.RemoveMark{Record: rec}
	if LooksAtPods(v.Look) {
		a.LeftAttachments = v.leftAttachments()
	}
	back := rec.Result == taint.ResultReturned || rec.Result == taint.ResultNeverPoweredOff
	for _, p := range v.Pods {
		switch {
		case p.IsTombstoneHeld(),
			rec.Result == taint.ResultEvicted && p.IsHeldByFinalizers() && !p.ShouldMove() && !belongsToNode(p):
			a.HeldPods = append(a.HeldPods, p)
		case back && p.ShouldMove():
			a.Spared = append(a.Spared, p)
		}
	}
	return action.Decision{Action: a, Reason: why}
}

// waitToAsk waits until the next question is due.
func (v View) waitToAsk(why reason.Reason) action.Decision {
	return requeueAfter(why, max(v.askEvery()-v.Answers.Answer.Got.Age(v.Now), 100*time.Millisecond))
}

// mayAskAgain reports whether the last answer is old enough to ask again.
func (v View) mayAskAgain() bool { return v.Answers.Answer.Got.Age(v.Now) >= v.askEvery() }

func (v View) askEvery() time.Duration {
	switch v.Answers.Answer.State {
	case providers.PowerChanging:
		return pollChanging
	case providers.PowerOn:
		return pollUnknown
	default:
		return v.Answers.Backoff()
	}
}

// volumesToKeep returns the node's volume lists without the entries of pods that are gone (step 10). The entry of a pod
// that stays, or may stay because it is not tombstoned, must remain. After the machine's return that pod would hang on
// "not attached according to node status" (F5). The name of an in-tree volume there depends on the cluster: its entry
// with a CSI driver's name remains, and so do all in-tree entries. A volume that could not be read may be any entry, so
// all entries remain with its pod.
func (v View) volumesToKeep() (inUse []corev1.UniqueVolumeName, attached []corev1.AttachedVolume) {
	keep := map[corev1.UniqueVolumeName]bool{}
	keepOther := false
	for _, p := range v.Pods {
		if p.Terminal || p.HasUnfinishedDeletion() {
			continue
		}
		for _, vol := range p.Volumes {
			if vol.Unread {
				return v.Look.InUse, v.Look.Attached
			}
			keep[vol.Unique], keep[vol.Migrated] = true, true
			keepOther = keepOther || vol.Unique == ""
		}
	}
	stays := func(n corev1.UniqueVolumeName) bool {
		return keep[n] || keepOther && !strings.HasPrefix(string(n), "kubernetes.io/csi/")
	}
	for _, n := range v.Look.InUse {
		if stays(n) {
			inUse = append(inUse, n)
		}
	}
	for _, a := range v.Look.Attached {
		if stays(a.Name) {
			attached = append(attached, a)
		}
	}
	return inUse, attached
}

// unusedAttachments returns the attachments that must still go: all whose volume no bound, unfinished pod uses (step
// 12).
func (v View) unusedAttachments() []action.Attachment {
	return UnusedAttachments(v.Pods, v.Attachments, false)
}

// UnusedAttachments returns the attachments whose volume no unfinished pod of the list uses. With movable, a pod that
// would be moved does not count as a user.
func UnusedAttachments(pods []action.Pod, atts []action.Attachment, movable bool) []action.Attachment {
	used := map[string]bool{}
	for _, p := range pods {
		if p.Terminal || movable && p.ShouldMove() {
			continue
		}
		for _, vol := range p.Volumes {
			used[vol.PV] = true
		}
	}
	var out []action.Attachment
	for _, a := range atts {
		if a.PV == "" || !used[a.PV] {
			out = append(out, a)
		}
	}
	return out
}

// pendingDetachments returns the attachments that must go before the mark of a returned node: those that no pod needs,
// and those being deleted. A pod that uses such a volume was bound after the detach began, and must not start before it
// ended.
//
// Attachments that hold no mark are left out. unread are the PersistentVolumes whose claims tell whether more are.
func (v View) pendingDetachments() (pending []action.Attachment, unread []string) {
	left := v.unusedAttachments()
	pending, unread = v.HoldingAttachments(left)
	for _, a := range v.Attachments {
		if a.Deleting && !slices.Contains(left, a) {
			pending = append(pending, a)
		}
	}
	return pending, unread
}

// waitForReturnDetach waits for volumes on the return path, once nothing else is pending, and records their names. For
// every pod that uses none of them, that record has the effect of the mark's end. So it is written when only these
// volumes keep the mark.
//
// It requires a heartbeat because a heartbeat is never undone: from then on no pod of this fence is ended, whatever the
// device answers. If one volume cannot be named, none is, and the hook holds all pods. Their claims are read with each
// live list, at its pace: a volume may be given to another claim.
func (v View) waitForReturnDetach(left []action.Attachment) action.Decision {
	rec := v.Look.Record
	later := requeueAfter(reason.WaitingDetach, pollWait)
	later.Action = action.Wait{Returned: true}
	if !v.Look.IsAliveSince(rec) {
		return later
	}
	if len(left) > taint.MaxDetaching ||
		slices.ContainsFunc(left, func(a action.Attachment) bool { return a.PV == "" }) {
		return v.recordDetaching(later, nil)
	}
	claims := v.Claims
	if !v.Live {
		claims = map[string]string{}
		for _, d := range rec.Detaching {
			claims[d.PV] = d.Claim
		}
	}
	var names []taint.Detaching
	var pvs []string
	read := true
	for _, a := range left {
		claim, known := claims[a.PV]
		if !known && !v.Live {
			return later
		}
		read = read && known
		names, pvs = append(names, taint.Detaching{PV: a.PV, Claim: claim}), append(pvs, a.PV)
	}
	switch {
	case !read:
		return action.Decision{Action: action.ReadClaims{PVs: pvs}, Reason: later.Reason}
	case slices.ContainsFunc(names, func(d taint.Detaching) bool { return d.Claim == action.UnreadClaim }):
		return v.recordDetaching(later, nil)
	}
	return v.recordDetaching(later, names)
}

// recordDetaching writes these volumes into the record, unless it names them already.
func (v View) recordDetaching(wait action.Decision, names []taint.Detaching) action.Decision {
	rec := *v.Look.Record
	slices.SortFunc(names, func(a, b taint.Detaching) int { return cmp.Compare(a.PV, b.PV) })
	if slices.Equal(rec.Detaching, names) {
		return wait
	}
	rec.Detaching = names
	return writeRecord(rec, wait.Reason)
}

// HasWork reports whether a fence would have work on a node (step 1). That is a pod to move, a pod whose deletion waits
// for the kubelet, a tombstoned pod that a fence left behind when its mark was removed, or a volume to detach.
//
// An attachment alone is work only if the node reports a volume of its driver as mounted: then attach/detach waits for
// the entry in volumesInUse, which a fence clears.
func HasWork(pods []action.Pod, atts []action.Attachment, inUse []corev1.UniqueVolumeName) bool {
	if slices.ContainsFunc(pods, action.Pod.ShouldMove) || slices.ContainsFunc(pods, needsProvenDelete) {
		return true
	}
	v := View{Pods: pods, Look: taint.Look{InUse: inUse}}
	keep, _ := v.volumesToKeep()
	cleared := slices.DeleteFunc(slices.Clone(inUse),
		func(n corev1.UniqueVolumeName) bool { return slices.Contains(keep, n) })
	return slices.ContainsFunc(UnusedAttachments(pods, atts, true), func(a action.Attachment) bool {
		return !a.NeverAttached && reportsDriver(cleared, a.Attacher)
	})
}

// sortForEviction sorts pods for eviction (step 8): the configured ones first, then by priority. Then come those whose
// volumes must move, which takes longest, then by name.
func sortForEviction(pods []action.Pod) {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		default:
			return 1
		}
	}
	slices.SortStableFunc(pods, func(a, b action.Pod) int {
		return cmp.Or(first(a.First, b.First), cmp.Compare(b.Priority, a.Priority), first(hasVolumes(a), hasVolumes(b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// StockEviction returns what the stock eviction controller knows of the node, given a look.
func (m Memory) StockEviction(l taint.Look) StockEviction {
	return StockEviction{Taints: l.Taints, Looks: m.looks, From: m.ProofFrom}
}
