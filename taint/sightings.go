package taint

import "time"

// Sightings are the times of a record, each with the Instant at which this process first saw it. Another process's wall
// clock may have written them, and may be set or run ahead. So each is compared with our wall clock only once, when it
// is first seen. The zero value has seen nothing.
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

// InstantOf converts a time of the record to the clocks of this process. It takes the Instant at which the time was
// first seen, and subtracts the age that the time had then by our wall clock. A time that was in the future then has no
// age. A time that was not seen before counts as seen now.
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
