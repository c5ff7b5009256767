package fleet

import (
	"slices"
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
	if duration != n.duration {
		f.usual = 0
	}
	first := n.rv == ""
	n.rv, n.leaseAt, n.duration = rv, now, duration
	f.applyHeartbeat(n, first, now)
	return true
}

// applyHeartbeat folds in a sign of life that the kubelet sends all the time: a renewed Lease, or a status of its Node.
// The first that this process sees of a kind may be old, so it is no heartbeat; but the silence counts from it.
func (f *Fleet) applyHeartbeat(n *node, first bool, now providers.Instant) {
	if !first {
		f.countNode(n, -1) // after the first heartbeat that this process sees, the node counts as one that sends them
		n.beat = now
		f.countNode(n, 1)
	}
	if n.since = now; n.at.Age(now) > shareOf(n.duration, missedAfter) {
		n.since = n.at // the gap may be an outage that the node did not outlive
	}
	n.at = now
	f.updateFlags(n.name, n, now)
	f.updateHeard(now)
}

// usualDuration returns the longest of the nodes' Lease durations, but at least DefaultDuration. It leaves out the
// longest one and, in a large cluster, 5 %: one kubelet alone must not decide for how long a new leader waits until it
// knows which nodes are silent.
func (f *Fleet) usualDuration() time.Duration {
	if f.usual > 0 {
		return f.usual
	}
	durations := make([]time.Duration, 0, len(f.nodes))
	for _, n := range f.nodes {
		if n.exists && !n.empty {
			durations = append(durations, n.duration)
		}
	}
	slices.Sort(durations)
	f.usual = DefaultDuration
	if i := len(durations) - 1 - max(1, len(durations)/20); i >= 0 {
		f.usual = max(f.usual, durations[i])
	}
	return f.usual
}

// firstMinutes is how long a Node may take until its kubelet's first heartbeat.
const firstMinutes = 2 * time.Minute

// isEmpty reports whether the Node shows no trace of a kubelet after its first minutes.
func (n *node) isEmpty(now providers.Instant) bool {
	return n.rv == "" && n.status.IsZero() && now.Sub(n.added) > firstMinutes
}

// updateFlags compares a node's Lease with the clocks. Its own silence must have lasted while this process ran. That
// others are heard must be recent by both clocks.
func (f *Fleet) updateFlags(name string, n *node, now providers.Instant) {
	stale, missed := now.Sub(n.at) > shareOf(n.duration, staleAfter), n.at.Age(now) > shareOf(n.duration, missedAfter)
	broken := !n.mute.IsZero() && now.Sub(n.mute) > muteTTL
	empty := n.isEmpty(now)
	if stale == n.stale && missed == n.missed && empty == n.empty && !broken {
		f.scheduleFlags(n, now)
		return
	}
	if stale && !n.stale {
		n.noteSuspicion(Lease, now)
	}
	if empty != n.empty {
		f.usual = 0
	}
	f.countNode(n, -1)
	before := n.stale
	if n.stale, n.missed, n.empty = stale, missed, empty; broken {
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
	if n.rv == "" && n.status.IsZero() && !n.empty {
		f.scheduleScan(n.added.Add(firstMinutes))
	}
	if !n.mute.IsZero() {
		f.scheduleScan(n.mute.Add(muteTTL))
	}
}

func shareOf(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }
