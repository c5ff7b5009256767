// Package evict decides what the taint manager does next on a marked node: steps 5 (the stale Ready) to 13 of the protocol, and
// the return path. Steps 1 to 5, up to the mark, are package fence's.
//
// It is pure: Step is a function from a View to a Decision (one act). It names no client, no clock and no logger. The caller's
// loop is: look live (Node and Lease, then the pods bound to the node, then the attachments), fold the look into Memory, Step,
// act, and again; so each act is preceded by a live look.
//
// It promises: no pod is tombstoned or deleted, no volume list is cleared, without an exact Off that was asked for after the mark
// was seen and after Ready stopped being True, at most ProofTTL ago (Proven); a person's mark on a node that no device can speak
// for is the one exception, and the record says so. Once the node shows life nothing more is tombstoned or cleared, and each pod
// that lives is spared before the mark goes, so that no write still on its way can end it. Pods that stay lose Ready
// only while the machine is proven off, never on a person's word (notready.go). The mark goes only when nothing was
// touched, or when every tombstoned pod and every volume that no bound pod uses is gone. A pod that the API server lets
// nobody end, delete or spare (trouble.go) holds up no other: it is named, it keeps the mark of a node that is off, and
// not that of one that lives.
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

// Memory is what one process remembers of one marked node. It is never needed for safety after a restart. The zero value
// remembers nothing.
type Memory struct {
	id            string
	ProofFrom     providers.Instant // when this process first knew the mark committed and Ready not True; zero: not yet
	ListedAt      providers.Instant // when the attachments were last listed live
	Resumed       providers.Instant // when looks came again after none had for a while; zero: they always did
	lastLook      providers.Instant // the last look
	lastBeforeGap providers.Instant // the last look before Resumed
	ForcedAt      providers.Instant // when attachments were last deleted because they did not go; zero: never
	taintTimes    TaintTimes
	emptySince    providers.Instant // since when no pod was seen that being out of service would end; zero: one was
	// Cleared is how often this process cleared the volume lists: attach/detach may write volumesAttached back (F5).
	Cleared int

	troubles map[attempt]trouble // writes of pods that failed
}

// ApplyLook folds a live look in, and reports whether it shows another mark than the last.
func (m *Memory) ApplyLook(l taint.Look) (newMark bool) {
	if !m.lastLook.IsZero() && m.lastLook.Age(l.Sent) > Blind {
		m.Resumed, m.lastBeforeGap = l.Got, m.lastLook
	}
	m.lastLook, m.taintTimes = l.Got, m.taintTimes.WithLook(l)
	switch {
	case l.Mark == nil:
		*m = Memory{Resumed: m.Resumed, lastBeforeGap: m.lastBeforeGap, lastLook: m.lastLook, taintTimes: m.taintTimes}
		return false
	case markOf(l) != m.id:
		*m = Memory{id: markOf(l), Resumed: m.Resumed, lastBeforeGap: m.lastBeforeGap, lastLook: m.lastLook, taintTimes: m.taintTimes}
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

// markOf tells one mark from another: a person may set the same one again, which asks for a proof of its own.
func markOf(l taint.Look) string {
	if l.Record.IsOpen() {
		return l.Mark.Value + " " + l.Record.Token()
	}
	return l.Mark.Value
}

// IsProvenOff reports whether the last answer proves, at now, that the machine is off: exactly Off, asked after the mark was known
// and after Ready stopped being True, at most proof.TTL ago (invariant 1).
func (v View) IsProvenOff(now providers.Instant) bool {
	return v.Answers.Answer.State == providers.PowerOff && v.isAskedSinceMark() && v.Answers.Answer.At.Age(now) <= proof.TTL
}

// isAskedSinceMark reports whether the last answer was asked for after the mark.
func (v View) isAskedSinceMark() bool {
	return !v.Answers.Answer.Got.IsZero() && !v.Memory.ProofFrom.IsZero() &&
		!v.Answers.Answer.At.Before(v.Memory.ProofFrom)
}

// Settings are the configured choices.
type Settings struct {
	DetachTimeout   time.Duration // how long a mark may stand armed, and an eviction take, before it is alerted
	TrustPerson     bool          // under a person's mark evict even though the device says On
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
	// Live reports that the Attachments were listed from the API server after Look. A cache's may be behind.
	Live bool
	// Claims are the claims that PersistentVolumes are bound to, as namespace/name, as far as they were read after
	// Look; "": bound to none; UnreadClaim: could not be read.
	Claims  map[string]string
	Devices []proof.Device // those that speak for the node
	By      string         // this controller's identity
}

const (
	pollChanging = 500 * time.Millisecond
	pollUnknown  = time.Second // doubled with every miss
	pollMax      = 30 * time.Second
	pollWait     = time.Second // waits that a watch usually ends earlier
	pollStock    = 200 * time.Millisecond
	relistEvery  = 5 * time.Second // between two live lists of attachments that a fence waits for: the cache may be behind
	// The stock eviction controller deletes by name, and would hit a replacement (F2): a pod that it is about to delete is
	// tombstoned only after that. The last two keep a fence from hanging on a controller that is not there.
	maxClearings = 5 // of volumesAttached, at most: who writes entries back again and again does not keep the mark (invariant 16)
)

// Step returns the next act for a node that carries the mark. It may be called as often as one likes. Reads that are dear are asked
// for only by the decisions that hang on them: the volumes of pods that may yet stay before the lists are cleared or the mark goes,
// and the API server's own list of attachments before the mark goes.
func Step(v View) action.Decision {
	return v.readFirst(v.decideByPhase())
}

// readFirst puts the reads that a decision hangs on before it.
func (v View) readFirst(d action.Decision) action.Decision {
	unmark, _ := d.Action.(action.Unmark)
	res := unmark.Record.Result
	ends := res == taint.ResultEvicted || res == taint.ResultReturned || res == taint.ResultNeverPoweredOff
	waits := d.Reason == reason.WaitingDetach
	names := waits && action.Is[action.Write](d)
	clears := action.Is[action.ClearVolumes](d)
	forces := action.Is[action.DeleteAttachments](d) || action.Is[action.OutOfService](d)
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

// podsToResolve returns the unfinished pods whose volumes are not known.
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
		return action.Decision{Action: action.Leave{}, Reason: reason.Gone}
	case l.Mark == nil:
		return action.Decision{Action: action.Leave{}, Reason: reason.NotMarked}
	case l.RecordErr != nil:
		return action.Decision{Action: action.Leave{}, Reason: reason.BadRecord, Detail: l.RecordErr.Error(),
			Alert: string(reason.BadRecord)}
	case !l.HasOwnMark() || l.Record.Phase == taint.PhasePoweringOff:
		return v.adoptPersonMark()
	case l.Record.Phase == taint.PhaseArmed:
		return v.alertOverdue(v.decideArmed())
	default:
		return v.notReadyFirst(v.alertOverdue(v.nameStuckPods(v.decideEviction())))
	}
}

// LooksAtPods reports whether Step decides on the node's pods and attachments: not before the record says that the eviction began.
// Until then a View may come without them, and the looks between the mark and the first tombstone cost no list.
func LooksAtPods(l taint.Look) bool {
	return l.Exists && l.Mark != nil && l.RecordErr == nil && l.HasOwnMark() && l.Record.Phase == taint.PhaseEvicting
}

// alertOverdue alerts whatever keeps a phase from its end for too long: a wait, a question without an answer that counts, an act that
// fails each time (invariants 11, 13).
func (v View) alertOverdue(d action.Decision) action.Decision {
	if !action.Is[action.Unmark](d) && d.Alert == "" && v.ageOf(v.Look.Record.At) > v.Settings.DetachTimeout {
		d.Alert = string(d.Reason)
	}
	return d
}

// ageOf is how long ago a time of the record was.
func (v View) ageOf(at time.Time) time.Duration { return v.Now.Sub(v.Seen.InstantOf(at, v.Now)) }

// adoptPersonMark writes the record of a fence that a person began. Where the person wrote over our mark in the middle of an eviction, the
// fence goes on where it stands, with the life it knew: begun anew it would hold the next heartbeat for proof that nothing was
// touched, and lift the mark over the tombstones.
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
		Since: v.Now.Wall.UTC().Truncate(time.Millisecond),
		By:    cmp.Or(l.MarkedBy, taint.ByPerson), FalseOffs: l.Record.DistrustedDevices(), PowerOffTo: l.PowerOffDevices(),
	}
	if l.Record != nil {
		r.PowerOns = l.Record.PowerOns
	}
	r.Device, r.Machine = proof.RecordedDevice(v.Devices)
	return writeRecord(r.EnterPhase(taint.PhaseArmed, "", v.Now.Wall), reason.Adopting)
}

// writeRecord changes the record; the mark stays.
func writeRecord(rec taint.Record, why reason.Reason) action.Decision {
	return action.Decision{Action: action.Write{Record: rec}, Reason: why}
}

// requeueAfter looks again after a while.
func requeueAfter(why reason.Reason, after time.Duration) action.Decision {
	return action.Decision{Action: action.Wait{}, Reason: why, RequeueAfter: after}
}

// askDevices puts the question.
func askDevices(why reason.Reason) action.Decision {
	return action.Decision{Action: action.Ask{}, Reason: why}
}

// decideArmed is steps 5 to 7: nothing is evicted yet.
func (v View) decideArmed() action.Decision {
	l, rec := v.Look, v.Look.Record
	person := rec.IsVouchedFor()
	if l.IsAliveSince(rec) {
		return v.removeMark(v.endRecord(taint.ResultLifted), reason.Alive)
	}
	if l.IsReady() {
		// A crashed node reads Ready until somebody notices. With an Off in hand it is we who notice; without, a heartbeat lifts
		// the mark or the node lifecycle controller ends the wait.
		switch {
		case v.Answers.Answer.State == providers.PowerOff && v.Answers.Answer.At.Age(v.Now) <= proof.TTL:
			return action.Decision{Action: action.ExpireReady{}, Reason: reason.Expiring}
		case v.hasNoDevice() && person:
			return requeueAfter(reason.StillReady, pollWait)
		case v.Answers.Answer.Got.IsZero() ||
			v.Answers.Answer.At.Age(v.Now) > proof.TTL && (v.Answers.Answer.State == providers.PowerOff || v.mayAskAgain()):
			return askDevices(reason.Confirming)
		case person:
			d := v.waitToAsk(v.refusedOr(reason.StillReady))
			d.RequeueAfter = max(d.RequeueAfter, proof.TTL-v.Answers.Answer.At.Age(v.Now)) // nothing is asked before
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
		if run, by := v.Answers.MachineRun(); run != "" { // the machine may have been started, and ended, since the mark
			if begun.Run != "" && begun.Run != run {
				begun.OffBy = nil // then it is not off by our power-off
			}
			begun.Run, begun.RunBy = run, by
		}
		return v.beginEviction(begun, reason.Confirmed, v.Answers.Evidence()...)
	case !v.isAskedSinceMark() || v.Answers.Answer.State == providers.PowerOff:
		return askDevices(reason.Confirming)
	case !person:
		lifted := v.endRecord(taint.ResultLifted)
		if v.Answers.Answer.State == providers.PowerOn { // then it is not off by our power-off
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

// hasNoDevice reports that no device speaks for the node.
func (v View) hasNoDevice() bool { return len(v.Devices) == 0 }

// allowsPerson reports that the last answer leaves the matter to a person who vouches: it proves nothing, or is On where the configuration
// trusts the person. Devices that disagree are one that says On.
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

// beginEviction is step 7's record: it is written before the first tombstone.
func (v View) beginEviction(rec taint.Record, why reason.Reason, e ...taint.Evidence) action.Decision {
	return writeRecord(rec.WithEvidence(e...).EnterPhase(taint.PhaseEvicting, "", v.Now.Wall), why)
}

// hasComeBack reports whether the eviction is on its return path. Only what is tombstoned may be deleted there, and that
// needs no proof.
func (v View) hasComeBack() bool {
	return LooksAtPods(v.Look) &&
		(v.Look.IsAliveSince(v.Look.Record) || v.Look.IsReady() || v.hasBegunReturn() || v.isAnswerOn() && !v.mayAskAgain())
}

// isAnswerOn reports whether the last answer is On, and no person's word beats it.
func (v View) isAnswerOn() bool {
	return v.isAskedSinceMark() && v.Answers.Answer.State == providers.PowerOn &&
		(!v.Look.Record.IsVouchedFor() || !v.Settings.TrustPerson)
}

// decideEviction is steps 8 to 13 and the return path.
func (v View) decideEviction() action.Decision {
	l := v.Look
	switch {
	case v.hasComeBack():
		return v.decideReturn()
	case v.isAnswerOn():
		return askDevices(reason.Returned) // it may have gone off again, with nobody to say so
	}
	var ready, waiting, tombs, resting []action.Pod
	for _, p := range v.Pods {
		switch {
		case p.ShouldMove() && v.Memory.StockEviction(l).IsAboutToDelete(p, v.Now):
			waiting = append(waiting, p)
		case p.ShouldMove() && v.backoffLeft(action.Ends, p) > 0, p.NeedsDelete() && v.backoffLeft(action.Deletes, p) > 0:
			resting = append(resting, p)
		case p.ShouldMove():
			ready = append(ready, v.podToWrite(action.Ends, p))
		case p.NeedsDelete():
			tombs = append(tombs, p)
		}
	}
	sortForEviction(ready)
	sortForEviction(tombs)
	inUse, attached := v.volumesToKeep()
	left := v.unusedAttachments()
	// While something is to be detached, attach/detach writes its list back, and takes the entry out again at the detach. If its cache is
	// old by then the entry stays: it goes when nothing is left to detach (F5).
	again := len(left) == 0 && v.Memory.Cleared < maxClearings
	clear := len(inUse) < len(l.InUse) || len(attached) < len(l.Attached) && (v.Memory.Cleared == 0 || again)
	switch {
	case len(ready)+len(waiting)+len(tombs)+len(resting)+len(left) == 0 && !(clear && v.MayEndPods(v.Now)):
		// Nothing is left that a proof would be needed for: a device that died with its rack does not keep the mark.
		return v.removeMark(v.endRecord(taint.ResultEvicted), reason.Finished)
	case len(ready)+len(waiting)+len(tombs) == 0 && !clear && len(resting) > 0:
		return v.waitForRetry(resting, action.Ends)
	case len(ready)+len(waiting)+len(tombs) == 0 && !clear:
		return v.waitForDetach(left)
	case v.MayEndPods(v.Now):
	case l.Record.IsVouchedFor() && v.hasNoDevice():
		return v.waitToAsk(reason.ProofLost) // nobody to ask: look again
	case !v.isAskedSinceMark(), v.Answers.Answer.State == providers.PowerOff, v.mayAskAgain():
		return askDevices(reason.Confirming)
	default:
		d := v.waitToAsk(reason.ProofLost)
		if v.Answers.HasDisagreement() {
			d.Alert = string(reason.Disagree)
		}
		return d
	}
	switch {
	case len(ready) > 0:
		return action.Decision{Action: action.Tombstone{Pods: ready}, Reason: reason.Tombstoning}
	case clear:
		return action.Decision{Action: action.ClearVolumes{InUse: inUse, Attached: attached}, Reason: reason.Clearing}
	case len(tombs) > 0:
		return action.Decision{Action: action.Delete{Pods: tombs}, Reason: reason.Deleting}
	default:
		return requeueAfter(reason.StockEviction, pollStock)
	}
}

// MayEndPods reports whether pods may be ended and volumes cleared at now: the machine is proven off, or a person vouches for it and no
// device gainsays: there is none, or its last answer, not yet due to be repeated, proves nothing (or is On, where the configuration
// trusts the person). What a person says is not newer than the last look: it holds as long as an answer would, once all was read.
// Workers ask it before each write.
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

// hasBegunReturn reports whether this fence has begun its return path. It stays on it, even if the machine goes off once more: the mark
// will go, and the next fence moves what is left.
func (v View) hasBegunReturn() bool {
	return slices.ContainsFunc(v.Pods, func(p action.Pod) bool { return p.ShouldMove() && v.isSpared(p) })
}

// isSpared reports whether this fence lets the pod live. One that could not take the annotation does not tell; another process spares it
// again.
func (v View) isSpared(p action.Pod) bool {
	before := v.Memory.troubles[attempt{p.UID, action.Spares}].before
	return p.Spared == v.Look.Record.Token() || before != "" && before != p.ResourceVersion
}

// decideReturn is the return path with tombstones: no more tombstones, no more clearing; what is tombstoned is deleted, the rest is
// held by the node's hook and starts when the mark goes. Before that the rest is spared: a tombstone that was sent with a good
// proof may still be on its way (a slow request, a paused leader), and must not land on a pod that runs again.
//
// A pod whose write is hopeless is let go: it would hold all others. One that is too large to be spared is too large for a tombstone:
// of both there is a small form, and sparing grows a pod less. If it shrinks it has another resourceVersion. One that is refused for
// another reason again and again is refused for so long that no tombstone is left on its way.
func (v View) decideReturn() action.Decision {
	var tombs, spare, resting []action.Pod
	for _, p := range v.Pods {
		switch {
		case p.ShouldMove() && v.isSpared(p):
		case p.ShouldMove() && v.isHopeless(action.Spares, p), p.NeedsDelete() && v.isHopeless(action.Deletes, p):
		case p.ShouldMove() && v.backoffLeft(action.Spares, p) > 0, p.NeedsDelete() && v.backoffLeft(action.Deletes, p) > 0:
			resting = append(resting, p)
		case p.ShouldMove():
			spare = append(spare, v.podToWrite(action.Spares, p))
		case p.NeedsDelete():
			tombs = append(tombs, p)
		}
	}
	sortForEviction(tombs)
	sortForEviction(spare)
	switch {
	case taint.IsOutOfService(v.Look.Taints): // stock controllers would end pods of a machine that runs
		return action.Decision{Action: action.InService{}, Reason: reason.Returned}
	case len(spare) > 0:
		return action.Decision{Action: action.Spare{Pods: spare}, Reason: reason.Sparing}
	case len(tombs) > 0:
		return action.Decision{Action: action.Delete{Pods: tombs, Returned: true}, Reason: reason.Returned}
	case len(resting) > 0:
		d := v.waitForRetry(resting, action.Spares)
		d.Action = action.Wait{Returned: true}
		return d
	case len(v.pendingDetachments()) > 0:
		return v.waitForReturnDetach(v.pendingDetachments())
	case proof.WasNeverOff(v.Look, v.Look.Record): // where boot ids do not tell, package fence asks which run this is once the mark is gone
		d := v.removeMark(v.endRecord(taint.ResultNeverPoweredOff).WithFalseOffs(proof.SpeakersOf(v.Devices)), reason.NeverOff)
		d.Alert = string(reason.NeverOff)
		return d
	default:
		return v.removeMark(v.endRecord(taint.ResultReturned), reason.FinishedReturn)
	}
}

// endRecord returns the record of the fence, which ends now.
func (v View) endRecord(res taint.Result) taint.Record {
	return v.Look.Record.WithEvidence(v.Answers.OffEvidence(v.Look.Record)...).EnterPhase(taint.PhaseDone, res, v.Now.Wall)
}

// removeMark ends the fence: the mark and the record change in one write, so that a mark without an open record is always a person's.
func (v View) removeMark(rec taint.Record, why reason.Reason) action.Decision {
	var kept []action.Pod
	for _, p := range v.Pods {
		if p.IsTombstoneHeld() {
			kept = append(kept, p)
		}
	}
	return action.Decision{Action: action.Unmark{Record: rec, Kept: kept}, Reason: why}
}

// waitToAsk looks again when the next question is due.
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

// volumesToKeep returns the node's volume lists without the entries of pods that went (step 10). An entry of a pod that stays, or may yet
// stay because it is not tombstoned, must stay: after the machine's return that pod would hang on "not attached according to node
// status" (F5). Which name an in-tree volume has there depends on the cluster: its entry with a CSI driver's name
// stays, and so do all in-tree entries. A volume that could not be read may be any entry, so all entries stay with its
// pod.
func (v View) volumesToKeep() (inUse []corev1.UniqueVolumeName, attached []corev1.AttachedVolume) {
	keep := map[corev1.UniqueVolumeName]bool{}
	keepOther := false
	for _, p := range v.Pods {
		if p.Terminal {
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

// unusedAttachments returns the attachments that must still go: all but those whose volume a bound, unfinished pod uses (step 12).
func (v View) unusedAttachments() []action.Attachment {
	return UnusedAttachments(v.Pods, v.Attachments, false)
}

// UnusedAttachments returns the attachments whose volume no unfinished pod of the list uses. With movable, a pod that would be moved does
// not count as a user.
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

// pendingDetachments returns the attachments that must still go before the mark of a node that is back: beside those that no pod needs, those that
// are being deleted. A pod there that uses such a volume was bound after its detaching began, and must not start before that has ended.
func (v View) pendingDetachments() []action.Attachment {
	left := v.unusedAttachments()
	for _, a := range v.Attachments {
		if a.Deleting && !slices.Contains(left, a) {
			left = append(left, a)
		}
	}
	return left
}

// waitForReturnDetach waits for volumes on the return path, once nothing else is waited for, and has the record name them: for every pod that uses none of
// them that is what the end of the mark is, so it is written when the mark could go but for them. A heartbeat is asked for because it is
// never taken back: from then on no pod of this fence is ended, whatever the device says. If one volume cannot be named, none is, and the
// hook holds all pods. Their claims are read with each live list, which has its pace: a volume may be given to another claim.
func (v View) waitForReturnDetach(left []action.Attachment) action.Decision {
	rec := v.Look.Record
	later := requeueAfter(reason.WaitingDetach, pollWait)
	later.Action = action.Wait{Returned: true}
	if !v.Look.IsAliveSince(rec) {
		return later
	}
	if len(left) > taint.MaxDetaching || slices.ContainsFunc(left, func(a action.Attachment) bool { return a.PV == "" }) {
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

// recordDetaching has the record name these volumes, if it does not yet.
func (v View) recordDetaching(wait action.Decision, names []taint.Detaching) action.Decision {
	rec := *v.Look.Record
	slices.SortFunc(names, func(a, b taint.Detaching) int { return cmp.Compare(a.PV, b.PV) })
	if slices.Equal(rec.Detaching, names) {
		return wait
	}
	rec.Detaching = names
	return writeRecord(rec, wait.Reason)
}

// HasWork reports whether a fence would have something to do on a node: a pod to move, a tombstoned one that a fence left behind when
// its mark was taken off, or a volume to detach (step 1).
func HasWork(pods []action.Pod, atts []action.Attachment) bool {
	return slices.ContainsFunc(pods, action.Pod.ShouldMove) || slices.ContainsFunc(pods, action.Pod.NeedsDelete) || len(UnusedAttachments(pods, atts, true)) > 0
}

// sortForEviction sorts pods for eviction (step 8): the configured ones first, then by priority, then those whose volumes must move, which takes
// longest, then by name.
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
	volumes := func(p action.Pod) bool { return p.Claims || len(p.Volumes) > 0 }
	slices.SortStableFunc(pods, func(a, b action.Pod) int {
		return cmp.Or(first(a.First, b.First), cmp.Compare(b.Priority, a.Priority), first(volumes(a), volumes(b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// StockEviction is what the stock eviction controller knows of the node, by a look.
func (m Memory) StockEviction(l taint.Look) StockEviction {
	return StockEviction{Taints: l.Taints, Seen: m.taintTimes, From: m.ProofFrom, Resumed: m.Resumed, Lost: m.lastBeforeGap}
}
