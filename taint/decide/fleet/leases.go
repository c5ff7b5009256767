package fleet

import (
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// A kubelet renews its Lease every quarter of its duration (10 s of 40). A Lease is stale after two missed renewals and
// half of a third. It has missed one after half of the second. A renewal that comes after a missed one may have been
// sent at any time since the one before.
const (
	DefaultDuration = 40 * time.Second // of a Lease without a duration, or with one out of bounds
	MinDuration     = 10 * time.Second
	MaxDuration     = 5 * time.Minute

	staleAfter  = 2.5 / 4
	missedAfter = 1.5 / 4
)

// ApplyLease folds in a Lease from a watch, a list or a look, in any order. It reports whether the Lease was renewed
// since. An empty rv means no Lease. duration is the Lease's own; zero: it has none.
func (f *Fleet) ApplyLease(name, rv string, duration time.Duration, now providers.Instant) bool {
	if rv == "" {
		return false
	}
	f.scanIfDue(now)
	_, before := f.nodes[name]
	n := f.ensureNode(name, now)
	if before && (n.rv == rv || taint.IsOlder(rv, n.rv) && now.Sub(n.at) < catchUp) {
		return false
	}
	if odd := duration != 0 && (duration < MinDuration || duration > MaxDuration); odd != n.odd {
		n.odd = odd
		f.changed = append(f.changed, name)
	}
	if duration == 0 || n.odd {
		duration = DefaultDuration
	}
	if n.rv != "" {
		f.countNode(n, -1) // after the first renewal that this process sees, the node counts as one that renews
		n.beat = now
		f.countNode(n, 1)
	}
	if n.since = now; n.at.Age(now) > shareOf(duration, missedAfter) {
		n.since = n.at // the gap may be an outage that the node did not outlive
	}
	n.rv, n.at, n.duration = rv, now, duration
	f.longest = max(f.longest, duration)
	f.updateFlags(name, n, now)
	f.updateHeard(now)
	return true
}

// updateFlags compares a node's Lease with the clocks. Its own silence must have lasted while this process ran. That
// others are heard must be recent by both clocks.
func (f *Fleet) updateFlags(name string, n *node, now providers.Instant) {
	stale, missed := now.Sub(n.at) > shareOf(n.duration, staleAfter), n.at.Age(now) > shareOf(n.duration, missedAfter)
	broken := !n.mute.IsZero() && now.Sub(n.mute) > muteTTL
	if stale == n.stale && missed == n.missed && !broken {
		f.scheduleFlags(n, now)
		return
	}
	if stale && !n.stale {
		n.noteSuspicion(Lease, now)
	}
	f.countNode(n, -1)
	before := n.stale
	if n.stale, n.missed = stale, missed; broken {
		n.spoke, n.mute = false, providers.Instant{}
	}
	f.countNode(n, 1)
	f.scheduleFlags(n, now)
	if n.stale != before && n.exists {
		f.changed = append(f.changed, name)
	}
}

// scheduleFlags notes when the clock alone next changes a node's flags.
func (f *Fleet) scheduleFlags(n *node, now providers.Instant) {
	if !n.missed {
		f.scheduleScan(now.Add(shareOf(n.duration, missedAfter) - n.at.Age(now)))
	}
	if !n.stale {
		f.scheduleScan(n.at.Add(shareOf(n.duration, staleAfter)))
	}
	if !n.mute.IsZero() {
		f.scheduleScan(n.mute.Add(muteTTL))
	}
}

func shareOf(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }
