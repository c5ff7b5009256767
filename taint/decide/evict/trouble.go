package evict

import (
	"maps"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/reason"
)

// attempt identifies a kind of write to one pod.
type attempt struct {
	uid   string
	write action.PodWrite
}

// trouble is what is known of an attempt that failed, or that must be repeated.
type trouble struct {
	why   action.WriteResult
	times int               // failures in a row
	at    providers.Instant // when the last attempt was
	small bool              // the pod cannot grow: write its small form
	// before is for SparePods: the pod is spared once its resourceVersion differs from this; "": it is not.
	before  string
	written int // how often it was accepted; DeletePods: not counted
}

const (
	maxConflicts = 3 // this many conflicts in a row are no trouble
	// maxFailures is how many failures are hopeless: they take longer than a request that has reached an API server may
	// (a minute).
	maxFailures = 7
	maxUndone   = 3           // how often a write is made that another client undoes each time
	backoffMin  = time.Second // after the first failure; doubled with each
	backoffMax  = time.Minute
	troubleTTL  = 10 * time.Minute // how long a trouble without repetition is remembered
)

// backoffLeft returns how much backoff the attempt has left.
func (t trouble) backoffLeft(now providers.Instant) time.Duration {
	n := t.times
	if t.why == action.Changed {
		n -= maxConflicts
	}
	if t.written >= maxUndone {
		n = max(n, t.written-maxUndone+1)
	}
	if n <= 0 {
		return 0
	}
	return min(backoffMin<<min(n-1, 6), backoffMax) - now.Sub(t.at)
}

// isHopeless reports whether another try is not expected to help.
func (t trouble) isHopeless() bool {
	if t.written >= maxUndone {
		return true
	}
	switch t.why {
	case action.Accepted:
		return false
	case action.TooLarge:
		return t.times > 0
	case action.Changed:
		return t.times >= maxConflicts+maxFailures
	default:
		return t.times >= maxFailures
	}
}

// ApplyPodWrites folds in the results of an act's writes, by the pods' UIDs; pods that are missing in how were not
// tried. A pod whose SetPodsNotReady was not tried counts as failed, because the fence must not wait for it.
func (m *Memory) ApplyPodWrites(
	write action.PodWrite, pods []action.Pod, how map[string]action.WriteResult, at providers.Instant,
) {
	// A View holds the previous map, which must not change.
	m.troubles = maps.Clone(m.troubles)
	if m.troubles == nil {
		m.troubles = map[attempt]trouble{}
	}
	maps.DeleteFunc(m.troubles, func(_ attempt, t trouble) bool { return at.Sub(t.at) > troubleTTL })
	for _, p := range pods {
		why, tried := how[p.UID]
		if !tried && write == action.WritesNotReady {
			why, tried = action.Failed, true
		}
		a := attempt{p.UID, write}
		t := m.troubles[a]
		switch {
		case !tried:
		// If the write is needed again, another client undid it.
		case why == action.Accepted && write != action.WritesDelete:
			m.troubles[a] = trouble{why: action.Undone, at: at, written: t.written + 1, small: p.Small}
			if write == action.WritesSpare && p.Small {
				m.troubles[a] = trouble{at: at, small: true, written: t.written + 1, before: p.ResourceVersion}
			}
		case why == action.Accepted:
			delete(m.troubles, a)
		case why == action.TooLarge && (write == action.WritesEnd || write == action.WritesSpare) && !p.Small:
			m.troubles[a] = trouble{at: at, small: true} // at once
		default:
			t = trouble{why: why, times: t.times + 1, at: at, small: t.small, written: t.written}
			// The pod is safe from all that was decided on the earlier list.
			if write == action.WritesSpare && why == action.Changed {
				t.before = p.ResourceVersion
			}
			m.troubles[a] = t
		}
	}
}

// backoffLeft returns how much backoff the pod's write has left; zero or less: it may be tried.
func (v View) backoffLeft(w action.PodWrite, p action.Pod) time.Duration {
	return v.Memory.troubles[attempt{p.UID, w}].backoffLeft(v.Now)
}

func (v View) isHopeless(w action.PodWrite, p action.Pod) bool {
	return v.Memory.troubles[attempt{p.UID, w}].isHopeless()
}

// podToWrite returns the pod in the form to write.
func (v View) podToWrite(w action.PodWrite, p action.Pod) action.Pod {
	p.Small = v.Memory.troubles[attempt{p.UID, w}].small
	return p
}

// waitForRetry waits until the first of the pods may be tried again: one to be deleted for its deletion, another for
// write.
func (v View) waitForRetry(pods []action.Pod, write action.PodWrite) action.Decision {
	after := backoffMax
	for _, p := range pods {
		if needsProvenDelete(p) {
			after = min(after, v.backoffLeft(action.WritesDelete, p))
		} else {
			after = min(after, v.backoffLeft(write, p))
		}
	}
	if len(v.unusedAttachments()) > 0 {
		after = min(after, pollWait)
	}
	return requeueAfter(reason.Retrying, after)
}

// nameStuckPods adds the stuck pods to a decision. If the node is off they keep the mark, which is an alert.
func (v View) nameStuckPods(d action.Decision) action.Decision {
	lives := v.hasComeBack() || action.Is[action.RemoveMark](d)
	for _, p := range v.Pods {
		var write action.PodWrite
		switch {
		case p.NeedsDelete(), p.HasUnfinishedDeletion() && !lives:
			write = action.WritesDelete
		case !p.ShouldMove() || v.isSpared(p):
			continue
		case lives:
			write = action.WritesSpare
		default:
			write = action.WritesEnd
		}
		if t := v.Memory.troubles[attempt{p.UID, write}]; t.isHopeless() {
			d.Stuck = append(d.Stuck, action.StuckPod{Pod: p, Write: write, Why: t.why})
		}
	}
	if len(d.Stuck) > 0 && !lives && d.Alert == "" {
		d.Alert = string(reason.Stuck)
	}
	return d
}
