package remote

import (
	"maps"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// OffRuns remembers, for devices that only supply power, since when each machine has been without it: power supplies
// hold out for a while. The zero value remembers nothing. It is safe for concurrent use.
type OffRuns struct {
	mu   sync.Mutex // guards runs
	runs map[string]offRun
}

// offRun is a series of answers in which a machine had no power.
type offRun struct {
	since, last providers.Instant // when the first answer was there, and the last; zero: there is none
	broken      providers.Instant // when something else was seen last: an answer to an older question starts no series
}

// maxApart is the maximum time between two answers of a series: the machine may have had power in a longer gap.
const maxApart = time.Minute

// Extend records that a machine had no power in an answer that arrived at got, to a question sent at asked. It returns
// for how long it is known to have none: while this process was suspended, the machine may have had power.
func (o *OffRuns) Extend(id string, asked, got providers.Instant) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.runs[id]
	if r.broken.After(asked) {
		return 0
	}
	if r.since.IsZero() || r.last.Age(asked) > maxApart {
		r.since = got
	}
	if got.After(r.last) {
		r.last = got
	}
	if o.runs == nil {
		o.runs = map[string]offRun{}
	}
	o.runs[id] = r
	return r.since.Lasted(asked)
}

// End ends a series at now: the machine has power, cannot be asked, or is about to get power.
func (o *OffRuns) End(id string, now providers.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.runs, func(_ string, r offRun) bool { // machines come and go
		return r.last.Age(now) > maxApart && r.broken.Age(now) > maxApart
	})
	if o.runs == nil {
		o.runs = map[string]offRun{}
	}
	o.runs[id] = offRun{broken: now}
}
