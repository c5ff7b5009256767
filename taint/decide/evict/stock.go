package evict

import (
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// StockEviction is what the stock eviction controller knows of a node that is not Ready. It queues pods by name and
// deletes them without a UID (F2). So a pod that is ended just before that costs its replacement its life.
type StockEviction struct {
	Taints []corev1.Taint
	Looks
	From taint.Instant // when this process first knew that Ready is not True; zero: it is True, or there was no look
}

// The stock eviction controller deletes by name, and would hit a replacement (F2). A pod that it is about to delete is
// tombstoned only after that. stockTaint and stockPatience keep a fence from hanging on a controller that is not there.
const (
	stockSoon     = 30 * time.Second // due within this time: wait for its deletionTimestamp
	stockTaint    = 15 * time.Second // how long the unreachable taint may take to land after Ready left True
	stockPatience = 60 * time.Second // how long a due deletion may take
	// Blind is how long a gap between looks may be before the process counts as blind. After an outage of the API
	// server the stock controller may start again. It then counts from when it sees the taint, not from when the taint
	// was added.
	Blind = 20 * time.Second
)

// TaintTimes are when this process first saw each NoExecute taint of a node. TimeAdded is by the controller-manager's
// clock, which may be wrong.
type TaintTimes []TaintTime

// TaintTime is when this process first saw one taint. A taint that was removed and added again has another Added.
type TaintTime struct {
	Key   string        `json:"key"`
	Added time.Time     `json:"added,omitzero"` // the taint's TimeAdded; zero: it has none
	Seen  taint.Instant `json:"seen"`
}

// WithLook returns the times after a look. It does not change the slice, which a View may hold.
func (ts TaintTimes) WithLook(l taint.Look) TaintTimes {
	var out TaintTimes
	for _, t := range l.Taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		seen, known := ts.firstSeen(t)
		if !known {
			seen = l.Got
		}
		out = append(out, TaintTime{Key: t.Key, Added: timeAdded(t), Seen: seen})
	}
	return out
}

// Looks are what one process keeps of its looks at a node: when it first saw each taint, and the last gap between them.
type Looks struct {
	TaintTimes    TaintTimes
	Last          taint.Instant // the last look; zero: there was none
	Resumed       taint.Instant // when looks resumed after a gap of Blind; zero: there was no gap
	LastBeforeGap taint.Instant // the last look before that gap
}

// WithLook returns them after one more look. It does not change what a View may hold.
func (ls Looks) WithLook(l taint.Look) Looks {
	if !ls.Last.IsZero() && ls.Last.Age(l.Sent) > Blind {
		ls.Resumed, ls.LastBeforeGap = l.Got, ls.Last
	}
	ls.Last, ls.TaintTimes = l.Got, ls.TaintTimes.WithLook(l)
	return ls
}

func (ts TaintTimes) firstSeen(t corev1.Taint) (at taint.Instant, known bool) {
	i := slices.IndexFunc(ts, func(o TaintTime) bool { return o.Key == t.Key && o.Added.Equal(timeAdded(t)) })
	if i < 0 {
		return taint.Instant{}, false
	}
	return ts[i].Seen, true
}

func timeAdded(t corev1.Taint) time.Time {
	if t.TimeAdded == nil {
		return time.Time{}
	}
	return t.TimeAdded.Time
}

// IsAboutToDelete reports whether the stock eviction controller is about to delete the pod by name (step 8).
func (s StockEviction) IsAboutToDelete(p action.Pod, now taint.Instant) bool {
	if p.Deleting || s.From.IsZero() {
		return false
	}
	landed := false // either taint; after not-ready, which is for Ready False, unreachable does not land
	for _, t := range s.Taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		landed = landed || t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		for _, since := range s.possibleStarts(t, now) {
			first, ends := StockEnds(p.Tolerations, t, since.first)
			last, _ := StockEnds(p.Tolerations, t, since.last)
			if ends && s.isDeletionNear(first, last, now) {
				return true
			}
		}
	}
	seen := s.Last // the last look; a process that was stopped since does not know what landed meanwhile
	if seen.IsZero() {
		seen = now
	}
	if landed || seen.Sub(s.From) > stockTaint {
		return false
	}
	// Ready=Unknown makes this taint land within moments. Where it has landed, the loop has found all that this does.
	coming := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	from := asOf(now, seen)
	if seen.Wall.Before(from) { // the process was suspended: its monotonic clock stood still
		from = seen.Wall
	}
	first, ends := StockEnds(p.Tolerations, coming, from)
	last, _ := StockEnds(p.Tolerations, coming, now.Wall)
	return ends && s.isDeletionNear(first, last, now)
}

// window is the time in which something happened unseen.
type window struct{ first, last time.Time }

func windowAt(at time.Time) window { return window{at, at} }

// possibleStarts returns the times from which the stock controller may count the taint. They are when this process
// first saw it, its TimeAdded, and when the API server was back after that. The first sight counts by either clock of
// the process: the wall clock may be set meanwhile, and the monotonic one stops during a suspension.
func (s StockEviction) possibleStarts(t corev1.Taint, now taint.Instant) []window {
	seen, known := s.TaintTimes.firstSeen(t)
	if !known {
		seen = s.From
	}
	out := []window{windowAt(asOf(now, seen)), windowAt(seen.Wall)}
	if t.TimeAdded != nil {
		out = append(out, windowAt(t.TimeAdded.Time))
	}
	switch {
	case s.Resumed.After(seen):
		out = append(out, windowAt(asOf(now, s.Resumed)))
	case known && s.Resumed.Equal(seen) && !s.From.After(s.LastBeforeGap): // it landed while this process was blind
		out = append(out, window{asOf(now, s.LastBeforeGap), asOf(now, seen)})
	}
	return out
}

// asOf returns what the wall clock, as it is set at now, would have read at the instant.
func asOf(now, at taint.Instant) time.Time { return now.Wall.Add(-now.Sub(at)) }

// isDeletionNear reports whether to wait for a deletion that is due between first and last. It must be near. Neither it
// nor the node's death may be so long ago that it will not come any more. The patience begins at last: after a long
// fence it would be over before the deletion began.
func (s StockEviction) isDeletionNear(first, last time.Time, now taint.Instant) bool {
	from := last
	if known := asOf(now, s.From); known.After(last) {
		from = known
	}
	return first.Sub(now.Wall) <= stockSoon && now.Wall.Sub(from) <= stockPatience
}

// StockEnds returns when a taint that landed at since makes the stock controller delete a pod, and whether it ever
// does.
func StockEnds(ts []corev1.Toleration, t corev1.Taint, since time.Time) (due time.Time, ends bool) {
	tolerated, shortest := false, time.Duration(-1)
	for _, tol := range ts {
		if !StockTolerates(tol, t) {
			continue
		}
		tolerated = true
		if tol.TolerationSeconds == nil {
			continue
		}
		if d := time.Duration(max(*tol.TolerationSeconds, 0)) * time.Second; shortest < 0 || d < shortest {
			shortest = d
		}
	}
	switch {
	case !tolerated:
		return since, true
	case shortest < 0:
		return time.Time{}, false
	default:
		return since.Add(shortest), true
	}
}

// StockTolerates reports whether one toleration tolerates one taint by the stock rule, without the comparison operators
// (alpha, off by default).
func StockTolerates(tol corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	default:
		return false
	}
}
