package evict

import (
	"maps"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/reason"
)

// Refusal is how the write of a pod ended.
type Refusal uint8

// The refusals. The zero value is none.
const (
	Accepted Refusal = iota // written, or the pod is gone
	Changed                 // somebody else wrote first
	Failed                  // a time-out, or a fault of the API server: the same write may succeed later
	Denied                  // the API server does not want it: an admission policy or webhook, a missing right, an invalid object
	TooLarge                // the pod is at a limit of the API server or of etcd, and may not grow by what the write adds
	Undone                  // written, and somebody wrote the opposite
)

// String is for people.
func (r Refusal) String() string {
	return [...]string{"accepted", "it keeps changing", "the API server fails", "the API server refuses it", "too large for the API server",
		"somebody undoes it"}[r]
}

// StuckPod is a pod, what could not be done with it, and why.
type StuckPod struct {
	Pod
	Act Act // Tombstone, Delete, Spare, SetNotReady
	Why Refusal
}

// attempt is what is tried with one pod.
type attempt struct {
	uid string
	act Act
}

// trouble is what is known of an attempt that failed, or that is to be made again.
type trouble struct {
	why     Refusal
	times   int               // in a row
	at      providers.Instant // of the last
	small   bool              // the pod cannot grow: its small form is written
	before  string            // Spare: the pod is spared once its resourceVersion is another than this; "": it is not
	written int               // SetNotReady: how often it was accepted
}

const (
	changes  = 3           // so many conflicts in a row are no trouble
	tries    = 7           // so many failures are: they take longer than a request that has reached an API server may (a minute)
	undone   = 3           // so often a write is made that somebody undoes each time
	restMin  = time.Second // after the first failure; doubled with each
	restMax  = time.Minute
	troubled = 10 * time.Minute // how long a trouble that does not repeat itself is remembered
)

// rest is how long the attempt is still to rest.
func (t trouble) rest(now providers.Instant) time.Duration {
	n := t.times
	if t.why == Changed {
		n -= changes
	}
	if n <= 0 {
		return 0
	}
	return min(restMin<<min(n-1, 6), restMax) - now.Sub(t.at)
}

// hopeless reports that trying again is not expected to help.
func (t trouble) hopeless() bool {
	if t.written >= undone {
		return true
	}
	switch t.why {
	case Accepted:
		return false
	case TooLarge:
		return t.times > 0
	case Changed:
		return t.times >= changes+tries
	default:
		return t.times >= tries
	}
}

// Wrote folds in how writes of an act ended, by the pods' UIDs; pods that are not in how were not tried. A SetNotReady
// that was not tried counts as failed, because the fence must not wait for it.
func (m *Memory) Wrote(act Act, pods []Pod, how map[string]Refusal, at providers.Instant) {
	// A View holds the map that was there: it stays as it is.
	m.troubles = maps.Clone(m.troubles)
	if m.troubles == nil {
		m.troubles = map[attempt]trouble{}
	}
	maps.DeleteFunc(m.troubles, func(_ attempt, t trouble) bool { return at.Sub(t.at) > troubled })
	for _, p := range pods {
		why, tried := how[p.UID]
		if !tried && act == SetNotReady {
			why, tried = Failed, true
		}
		a := attempt{p.UID, act}
		t := m.troubles[a]
		switch {
		case !tried:
		case why == Accepted && act == Spare && p.Small:
			m.troubles[a] = trouble{at: at, small: true, before: p.ResourceVersion}
		case why == Accepted && act == SetNotReady: // if the pod reads Ready again, somebody set it so
			m.troubles[a] = trouble{why: Undone, at: at, written: t.written + 1}
		case why == Accepted:
			delete(m.troubles, a)
		case why == TooLarge && (act == Tombstone || act == Spare) && !p.Small:
			m.troubles[a] = trouble{at: at, small: true} // at once
		default:
			t = trouble{why: why, times: t.times + 1, at: at, small: t.small, written: t.written}
			if act == Spare && why == Changed { // safe from all that was decided on what was listed before
				t.before = p.ResourceVersion
			}
			m.troubles[a] = t
		}
	}
}

// rest is how long the pod's act is to rest; not above zero: it may be tried.
func (v View) rest(act Act, p Pod) time.Duration { return v.troubles[attempt{p.UID, act}].rest(v.Now) }

func (v View) hopeless(act Act, p Pod) bool { return v.troubles[attempt{p.UID, act}].hopeless() }

// fit returns the pod as it is to be written.
func (v View) fit(act Act, p Pod) Pod {
	p.Small = v.troubles[attempt{p.UID, act}].small
	return p
}

// retry waits until the first of the pods may be tried again: the tombstoned to be deleted, the others with the act.
func (v View) retry(pods []Pod, act Act) Decision {
	after := restMax
	for _, p := range pods {
		if p.Tombstone {
			after = min(after, v.rest(Delete, p))
		} else {
			after = min(after, v.rest(act, p))
		}
	}
	if len(v.leftover()) > 0 {
		after = min(after, pollWait)
	}
	return Decision{Act: Wait, Why: reason.Retrying, After: after}
}

// named adds the pods that are stuck to a decision. Where the node is off they keep the mark, which is an alert.
func (v View) named(d Decision) Decision {
	for _, p := range v.Pods {
		var act Act
		switch {
		case p.buried():
			act = Delete
		case !p.goes() || v.spared(p):
			continue
		case d.Returned || d.Act == Unmark:
			act = Spare
		default:
			act = Tombstone
		}
		if t := v.troubles[attempt{p.UID, act}]; t.hopeless() {
			d.Stuck = append(d.Stuck, StuckPod{Pod: p, Act: act, Why: t.why})
		}
	}
	if len(d.Stuck) > 0 && !d.Returned && d.Act != Unmark && d.Alert == "" {
		d.Alert = string(reason.Stuck)
	}
	return d
}
