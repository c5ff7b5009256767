package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

// turn is one outage: what was on the machines that lost their power, and when it was seen to go and to come back. Its
// methods that fold in what is seen are called by one watch at a time; all are safe for concurrent use.
type turn struct {
	victims map[string]bool // nodes

	mu        sync.Mutex              // guards the rest
	zero      time.Time               // power cut
	started   time.Time               // floor: when the loop began; else zero
	old       map[types.UID]bool      // the pods that were on the victims -> gone
	lastGone  time.Time               //
	vas       map[types.UID]bool      // their VolumeAttachments -> deletion requested
	lastVA    time.Time               // when the last was requested
	detached  map[types.UID]bool      //
	answers   map[string]time.Time    // first Off in forcefence's log, by node
	proofs    map[string]time.Time    // when the first Off of the node's record was asked for
	notReady  map[string]time.Time    //
	staleAt   time.Time               // of the first Lease of a victim
	marked    map[string]bool         // has the mark now
	unmarked  map[string]bool         // had the mark
	sets      int                     // StatefulSet pods that were on the victims
	back      map[string]types.UID    // StatefulSet pods that run again, by name
	backAt    time.Time               // when all did for the first time
	ran       map[types.UID]bool      // replacements that ran
	killed    map[types.UID]struct{}  // of those, the ones that anything ended
	doneAt    map[string]time.Time    // when the record first said that the fence is over, by node
	results   map[string]taint.Result // and how it ended
	unmarking time.Duration           // floor: how long it took to take all marks off
	ranFirst  time.Time               // when the first replacement ran
	ranLast   time.Time               // when as many ran as there were pods
	lastFree  time.Time               // when the last volume was detached
	calls     calls                   // requests to the API server, where they are counted
	lines     []line
}

func newTurn(victims []string, pods []corev1.Pod, vas []storagev1.VolumeAttachment) *turn {
	t := &turn{
		victims: map[string]bool{}, old: map[types.UID]bool{}, vas: map[types.UID]bool{},
		detached: map[types.UID]bool{},
		answers:  map[string]time.Time{}, proofs: map[string]time.Time{}, notReady: map[string]time.Time{},
		marked:   map[string]bool{},
		unmarked: map[string]bool{}, back: map[string]types.UID{}, ran: map[types.UID]bool{},
		killed: map[types.UID]struct{}{},
		doneAt: map[string]time.Time{}, results: map[string]taint.Result{},
	}
	for _, v := range victims {
		t.victims[v] = true
	}
	for i := range pods {
		p := &pods[i]
		if !t.victims[p.Spec.NodeName] || controlledBy(p, "DaemonSet") {
			continue
		}
		t.old[p.UID] = false
		if controlledBy(p, "StatefulSet") {
			t.sets++
		}
	}
	for i := range vas {
		if t.victims[vas[i].Spec.NodeName] {
			t.vas[vas[i].UID] = false
		}
	}
	return t
}

func (t *turn) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.zero = now
}

func (t *turn) start(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = now
}

func (t *turn) pod(now time.Time, p *corev1.Pod, deleted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Namespace != namespace || t.zero.IsZero() {
		return
	}
	if gone, is := t.old[p.UID]; is {
		if deleted && !gone {
			t.old[p.UID], t.lastGone = true, now
		}
		return
	}
	ends := deleted || p.DeletionTimestamp != nil || taint.IsTerminal(p)
	if t.ran[p.UID] && ends {
		t.killed[p.UID] = struct{}{}
	}
	ready := !ends && podReady(p)
	if ready && !t.ran[p.UID] {
		if t.ran[p.UID] = true; len(t.ran) == 1 {
			t.ranFirst = now
		}
		if len(t.ran) == len(t.old) {
			t.ranLast = now
		}
	}
	if !controlledBy(p, "StatefulSet") {
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
	requested, is := t.vas[va.UID]
	if !is || t.zero.IsZero() {
		return
	}
	if !requested && (deleted || va.DeletionTimestamp != nil) {
		t.vas[va.UID], t.lastVA = true, now
	}
	if deleted {
		t.detached[va.UID], t.lastFree = true, now
	}
}

func (t *turn) node(now time.Time, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.victims[n.Name] || t.zero.IsZero() {
		return
	}
	if t.notReady[n.Name].IsZero() && !nodeReady(n) {
		t.notReady[n.Name] = now
	}
	if _, t.marked[n.Name] = taint.FindMark(n, taint.DefaultKey, ""); t.marked[n.Name] {
		t.unmarked[n.Name] = true
	}
	rec, err := taint.RecordOf(n)
	if err != nil || rec == nil || rec.Since.Before(t.zero.Truncate(time.Millisecond)) {
		return
	}
	if t.doneAt[n.Name].IsZero() && rec.Phase == taint.PhaseDone {
		t.doneAt[n.Name], t.results[n.Name] = now, rec.Result
	}
	if !t.proofs[n.Name].IsZero() {
		return
	}
	for _, e := range rec.Evidence {
		if e.State == "Off" {
			t.proofs[n.Name] = e.At
			break
		}
	}
}

func (t *turn) log(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.victims[l.Node] || t.zero.IsZero() || l.Time.Before(t.zero) {
		return
	}
	t.lines = append(t.lines, l)
	if l.Msg == "Machine answered" && l.State == "Off" && t.answers[l.Node].IsZero() {
		t.answers[l.Node] = l.Time
	}
}

// offSeen is when forcefence first had the device's Off of any victim. Its log tells where the answer is news; a node
// that was fenced before may have given the same answer last, and then it is when that first Off was asked for, by the
// record on the Node, a moment earlier.
func (t *turn) offSeen() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for node := range t.victims {
		at := t.answers[node]
		if at.IsZero() {
			at = t.proofs[node]
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// noticedBy is what first made forcefence suspect a victim, by its log; "" if it has not said so.
func (t *turn) noticedBy() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		if l.Msg == "Noticed that a machine is off" {
			return l.By
		}
	}
	return ""
}

// begun is what the eviction is timed from: the first Off, or the bare loop's start.
func (t *turn) begun() time.Time {
	t.mu.Lock()
	started := t.started
	t.mu.Unlock()
	if !started.IsZero() {
		return started
	}
	return t.offSeen()
}

// missing says what has not happened yet, "" if the outage is over: all pods gone, all volumes asked back, all marks
// off again.
func (t *turn) missing(marks bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := 0
	for _, gone := range t.old {
		if !gone {
			left++
		}
	}
	switch {
	case left > 0:
		return fmt.Sprintf("%d of %d pods are not gone", left, len(t.old))
	case len(t.detached) < len(t.vas):
		return fmt.Sprintf("%d of %d volumes are not detached", len(t.vas)-len(t.detached), len(t.vas))
	}
	for node := range t.victims {
		if marks && (t.marked[node] || !t.unmarked[node]) {
			return node + " was not fenced to its end"
		}
	}
	return ""
}

// evicted is from the beginning to the last pod gone, in seconds.
func (t *turn) evicted() float64 {
	begun := t.begun()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastGone.Sub(begun).Seconds()
}

// requested is from the last pod gone to the last deletion request of a VolumeAttachment. It is below zero where that
// came first.
func (t *turn) requested() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastVA.Sub(t.lastGone).Seconds()
}

// replaced is from the beginning to the first replacement that ran, and to as many as there were pods, in seconds.
// Where other pods are restarted meanwhile it would count them, too: nothing here does that.
func (t *turn) replaced() (first, last float64) {
	begun := t.begun()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ranFirst.Sub(begun).Seconds(), t.ranLast.Sub(begun).Seconds()
}

// freed is from the beginning to the last volume that was detached, in seconds.
func (t *turn) freed() float64 {
	begun := t.begun()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastFree.Sub(begun).Seconds()
}

// stale folds in when a victim's Lease became suspicious.
func (t *turn) stale(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.staleAt.IsZero() || at.Before(t.staleAt) {
		t.staleAt = at
	}
}

// firstSign is when the first victim was seen NotReady or its Lease became stale, whichever was earlier.
func (t *turn) firstSign() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.firstNotReady(); t.staleAt.IsZero() || !at.IsZero() && at.Before(t.staleAt) {
		return at
	}
	return t.staleAt
}

func (t *turn) firstNotReady() time.Time { // with mu held
	var first time.Time
	for _, at := range t.notReady {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// back is how long it took until every StatefulSet pod ran again, in seconds.
type back struct{ cut, sign, notReady float64 }

func (t *turn) recovered() back {
	sign := t.firstSign()
	t.mu.Lock()
	defer t.mu.Unlock()
	return back{
		cut: t.backAt.Sub(t.zero).Seconds(), sign: t.backAt.Sub(sign).Seconds(),
		notReady: t.backAt.Sub(t.firstNotReady()).Seconds(),
	}
}

// running counts the StatefulSet pods that run again now.
func (t *turn) running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.back)
}

// throughput is original pods gone a second.
func (t *turn) throughput() float64 { return float64(len(t.old)) / t.evicted() }

// isBack reports whether every StatefulSet pod ran again at some moment.
func (t *turn) isBack() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.backAt.IsZero()
}

// deaths counts the replacements that ran and that anything ended.
func (t *turn) deaths() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.killed)
}

// stages are forcefence's log, in milliseconds from the first Off.
func (t *turn) stages() string {
	from := t.begun()
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.SortedFunc(slices.Values(t.lines), func(a, b line) int { return a.Time.Compare(b.Time) })
	var parts []string
	for _, l := range lines {
		what := l.Msg
		if l.Msg == "Decided" {
			what = l.Why
		}
		if l.Pods > 0 {
			what += fmt.Sprintf("(%d)", l.Pods)
		}
		parts = append(parts, fmt.Sprintf("%+d %s", l.Time.Sub(from).Milliseconds(), what))
	}
	return strings.Join(parts, ", ")
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
