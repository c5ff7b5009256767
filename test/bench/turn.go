package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// turn is one outage: what was on the machine that lost its power, and when it was seen to go and to come back. Its
// methods that fold in what is seen are called by one watch at a time; all are safe for concurrent use.
type turn struct {
	victim string // the node
	sets   int    // StatefulSet pods that were on it

	mu       sync.Mutex             // guards the rest
	zero     time.Time              // power cut
	started  time.Time              // when something was begun by hand; else zero
	old      map[types.UID]bool     // the pods that were on the victim -> gone
	firstEnd time.Time              // when the first of them was seen to end, be deleted or be gone
	lastGone time.Time              //
	vas      map[types.UID]bool     // their VolumeAttachments -> gone
	answer   time.Time              // first Off in forcefence's log
	proof    time.Time              // when the first Off of the node's record was asked for, or a peer had its own
	notReady time.Time              //
	marked   bool                   // has the mark now
	unmarked bool                   // had the mark
	back     map[string]types.UID   // StatefulSet pods that run again, by name
	backAt   time.Time              // when all did for the first time
	ran      map[types.UID]bool     // replacements that ran
	killed   map[types.UID]struct{} // of those, the ones that anything ended
	notedBy  string                 // what first made forcefence suspect the victim, by its log
	phases   *phases
}

// line is what is read of a line of forcefence's JSON log.
type line struct {
	Time  time.Time `json:"time"`
	Msg   string    `json:"msg"`
	Node  string    `json:"node"`
	State string    `json:"state"`
	By    string    `json:"by"`
	Why   string    `json:"why"`
	Act   string    `json:"act"`
}

func newTurn(victim string, pods []corev1.Pod, vas []storagev1.VolumeAttachment) *turn {
	t := &turn{
		victim: victim, phases: newPhases(victim, pods), old: map[types.UID]bool{}, vas: map[types.UID]bool{},
		back: map[string]types.UID{}, ran: map[types.UID]bool{}, killed: map[types.UID]struct{}{},
	}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName != victim || world.IsControlledBy(p, "DaemonSet") {
			continue
		}
		t.old[p.UID] = false
		if world.IsControlledBy(p, "StatefulSet") {
			t.sets++
		}
	}
	for i := range vas {
		if vas[i].Spec.NodeName == victim {
			t.vas[vas[i].UID] = false
		}
	}
	return t
}

// note sets one of the turn's own times.
func (t *turn) note(what *time.Time, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*what = now
}

func (t *turn) pod(now time.Time, p *corev1.Pod, deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Namespace != namespace || t.zero.IsZero() {
		return
	}
	t.phases.pod(now, p, deleted)
	ends := deleted || p.DeletionTimestamp != nil || taint.IsTerminal(p)
	if gone, is := t.old[p.UID]; is {
		if ends && t.firstEnd.IsZero() {
			t.firstEnd = now
		}
		if deleted && !gone {
			t.old[p.UID], t.lastGone = true, now
		}
		return
	}
	if t.ran[p.UID] && ends {
		t.killed[p.UID] = struct{}{}
	}
	ready := !ends && cluster.IsPodReady(p)
	if ready {
		t.ran[p.UID] = true
	}
	if !world.IsControlledBy(p, "StatefulSet") {
		return
	}
	switch {
	case ready:
		t.back[p.Name] = p.UID
		if len(t.back) == t.sets && t.backAt.IsZero() {
			t.backAt = now
		}
	case t.back[p.Name] == p.UID:
		delete(t.back, p.Name)
	}
}

func (t *turn) attachment(now time.Time, va *storagev1.VolumeAttachment, deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.zero.IsZero() {
		return
	}
	t.phases.attachment(now, va, deleted)
	if _, is := t.vas[va.UID]; is && deleted {
		t.vas[va.UID] = true
	}
}

func (t *turn) node(now time.Time, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.victim != n.Name || t.zero.IsZero() {
		return
	}
	t.phases.seeNode(now, n)
	if t.notReady.IsZero() && !cluster.IsReady(n) {
		t.notReady = now
	}
	if _, t.marked = taint.FindMark(n, taint.DefaultKey, ""); t.marked {
		t.unmarked = true
	}
	rec, err := taint.RecordOf(n)
	if err != nil || rec == nil || rec.Since.Before(t.zero.Truncate(time.Millisecond)) || !t.proof.IsZero() {
		return
	}
	for _, e := range rec.Evidence {
		if e.State == "Off" {
			t.proof = e.At
			return
		}
	}
}

func (t *turn) log(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.victim != l.Node || t.zero.IsZero() || l.Time.Before(t.zero) {
		return
	}
	t.phases.log(l)
	switch {
	case l.Msg == "Machine answered" && l.State == "Off" && t.answer.IsZero():
		t.answer = l.Time
	case l.Msg == "Noticed that a machine is off" && t.notedBy == "":
		t.notedBy = l.By
	}
}

// offSeen is when forcefence first had the device's Off. Its log says so if the answer is new. If the device's last
// answer, in an earlier fence, was the same, it is when that first Off was asked for, by the record on the Node: a
// moment earlier. The caller holds mu.
func (t *turn) offSeen() time.Time {
	if t.answer.IsZero() {
		return t.proof
	}
	return t.answer
}

// begun is what the eviction is timed from: the first Off, or the start of what is done by hand. The caller holds mu.
func (t *turn) begun() time.Time {
	if t.started.IsZero() {
		return t.offSeen()
	}
	return t.started
}

// left counts those that are not gone.
func left(of map[types.UID]bool) (n int) {
	for _, gone := range of {
		if !gone {
			n++
		}
	}
	return n
}

// missing says what has not happened yet, "" if the outage is over: all pods gone, all volumes detached, all of the
// StatefulSets' pods back, the mark off again.
func (t *turn) missing(mark bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case left(t.old) > 0:
		return fmt.Sprintf("%d of %d pods are not gone", left(t.old), len(t.old))
	case left(t.vas) > 0:
		return fmt.Sprintf("%d of %d volumes are not detached", left(t.vas), len(t.vas))
	case t.backAt.IsZero() && t.sets > 0:
		return fmt.Sprintf("%d of %d StatefulSet pods run again", len(t.back), t.sets)
	case mark && (t.marked || !t.unmarked):
		return "it was not fenced to its end"
	}
	return ""
}

// outcome is what came of a turn. Times are in seconds; NaN: one of the two moments was not seen.
type outcome struct {
	noticedBy string // what first made forcefence suspect the victim, by its log; "": it has not said so

	// from the power cut, and from the first sign of death (NotReady seen, or the Lease stale), until forcefence had
	// the first Off
	cutToOff, signToOff float64

	// from the power cut and from NotReady until every StatefulSet pod ran again; how many of them run now
	cutToBack, notReadyToBack float64
	running                   int

	begun time.Time // the beginning of the eviction
	gone  float64   // from there until the last pod was gone
	back  float64   // from there until every StatefulSet pod ran again

	deaths  int      // replacements that ran and that anything ended
	sure    bool     // forcefence, or a peer's agent, had an Off before any pod on the victim ended
	volumes int      // that were not detached
	marks   []string // taints that the system left on the node
}

// outcome returns what came of the turn so far. The Lease became stale at that time; zero: not known.
func (t *turn) outcome(stale time.Time) outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun, sign, off := t.begun(), stale, t.offSeen()
	if sign.IsZero() || !t.notReady.IsZero() && t.notReady.Before(sign) {
		sign = t.notReady
	}
	return outcome{
		noticedBy: t.notedBy, cutToOff: between(t.zero, off), signToOff: between(sign, off),
		cutToBack: between(t.zero, t.backAt), notReadyToBack: between(t.notReady, t.backAt), running: len(t.back),
		begun: begun, gone: between(begun, t.lastGone), back: between(begun, t.backAt), deaths: len(t.killed),
		sure:    !off.IsZero() && !t.firstEnd.IsZero() && !off.After(t.firstEnd),
		volumes: left(t.vas),
	}
}

// between is the seconds from one moment to another, NaN if one of them was not seen.
func between(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return math.NaN()
	}
	return to.Sub(from).Seconds()
}

// isBack reports whether the node was NotReady and every StatefulSet pod ran again at some moment.
func (o outcome) isBack() bool { return !math.IsNaN(o.notReadyToBack) }
