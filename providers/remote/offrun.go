package remote

import (
	"maps"
	"sync"
	"time"
)

// OffRuns remembers, for devices that only supply power, since when each machine has been without it: power supplies
// hold out for a while. The zero value remembers nothing. It is safe for concurrent use.
type OffRuns struct {
	mu   sync.Mutex // guards runs
	runs map[string]offRun
}

// offRun is a series of answers in which a machine had no power.
type offRun struct {
	since, last time.Time // when the first answer was there, and the last; zero: there is none
	broken      time.Time // when something else was seen last: an answer to an older question starts no series
}

// maxApart is the maximum time between two answers of a series: the machine may have had power in a longer gap.
const maxApart = time.Minute

// Extend records that a machine had no power in an answer that arrived at got, to a question sent at asked. It returns
// for how long it is known to have none.
func (o *OffRuns) Extend(id string, asked, got time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.runs[id]
	if r.broken.After(asked) {
		return 0
	}
	if r.since.IsZero() || asked.Sub(r.last) > maxApart {
		r.since = got
	}
	if got.After(r.last) {
		r.last = got
	}
	if o.runs == nil {
		o.runs = map[string]offRun{}
	}
	o.runs[id] = r
	return max(asked.Sub(r.since), 0)
}

// End ends a series at now: the machine has power, cannot be asked, or is about to get power.
func (o *OffRuns) End(id string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.runs, func(_ string, r offRun) bool { // machines come and go
		return now.Sub(r.last) > maxApart && now.Sub(r.broken) > maxApart
	})
	if o.runs == nil {
		o.runs = map[string]offRun{}
	}
	o.runs[id] = offRun{broken: now}
}
