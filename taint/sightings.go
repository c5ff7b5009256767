package taint

import "time"

// Sightings are a record's times, each with when this process first saw it. Another wall clock may have written the
// record, and that clock may be set, or run ahead. So our wall clock is compared with it once, at the first sight. The
// zero value has seen nothing.
type Sightings []sighting

type sighting struct {
	at   time.Time // as the record has it
	seen Instant
}

// WithRecord returns the sightings of the record that a look shows; nil is no record. A time that was seen before keeps
// its sighting.
func (s Sightings) WithRecord(r *Record, now Instant) Sightings {
	if r == nil {
		return nil
	}
	var out Sightings
	for _, at := range []time.Time{r.At, r.Since, r.LastPowerOn()} {
		out = append(out, sighting{at, s.firstSeen(at, now)})
	}
	return out
}

// InstantOf returns a time of the record by the clocks of this process. It is as long before its first sight as the
// wall clock had it then. A time that was in the future then counts from its first sight. A time that was not seen
// before counts as seen now.
func (s Sightings) InstantOf(at time.Time, now Instant) Instant {
	if at.IsZero() {
		return Instant{}
	}
	seen := s.firstSeen(at, now)
	return seen.Add(-min(max(seen.Wall.Sub(at), 0), seen.Mono))
}

func (s Sightings) firstSeen(at time.Time, now Instant) Instant {
	for _, o := range s {
		if o.at.Equal(at) {
			return o.seen
		}
	}
	return now
}
