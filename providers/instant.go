package providers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Instant is a moment by both clocks of this process, because neither alone shows how old something is: the monotonic
// clock stops while a virtual machine is suspended, and the wall clock can be set. The zero value is before all others.
//
// Before, After, Compare and Sub use the monotonic clock, so compare only instants of one process or of one recording.
type Instant struct {
	Wall time.Time // the wall clock, without Go's monotonic reading
	// Mono is the monotonic clock, counted from 1970. It differs from Wall after a suspension, or once the clock is
	// set.
	Mono time.Duration
}

// processStart is where Instant.Mono is counted from. It has a monotonic reading.
var processStart = time.Now()

// Now reads both clocks.
func Now() Instant { return InstantOf(time.Now()) }

// InstantOf returns the instant of a time that time.Now returned in this process. For a time without a monotonic
// reading both clocks agree. The zero time is the zero Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return Instant{}
	}
	return Instant{Wall: t.Round(0), Mono: time.Duration(processStart.UnixNano()) + t.Sub(processStart)}
}

// Clock returns the current time, as time.Now does.
type Clock func() time.Time

// Instant returns this moment by both clocks of the process.
func (c Clock) Instant() Instant { return InstantOf(c()) }

// IsZero reports whether i is the zero Instant, which is no moment.
func (i Instant) IsZero() bool { return i.Wall.IsZero() }

// Add returns the instant d later by both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{Wall: i.Wall.Add(d), Mono: i.Mono + d} }

// Sub returns the time from o to i by the monotonic clock. From the zero Instant it is decades.
func (i Instant) Sub(o Instant) time.Duration { return i.Mono - o.Mono }

// Age returns how old i is at now: the larger age of the two clocks, never negative. Use it for what must be fresh.
// After a suspension, or once a clock was set, a thing then counts as too old rather than too new.
func (i Instant) Age(now Instant) time.Duration { return max(now.Sub(i), now.Wall.Sub(i.Wall), 0) }

// Lasted returns for how long something has lasted at now that began at i. It takes the clock that shows less, and is
// never negative. Use it for what must have lasted. A suspension of the process, or a clock that was set, adds nothing.
func (i Instant) Lasted(now Instant) time.Duration {
	return max(min(now.Sub(i), now.Wall.Sub(i.Wall)), 0)
}

// Before reports whether i was before o.
func (i Instant) Before(o Instant) bool { return i.Mono < o.Mono }

// After reports whether i was after o.
func (i Instant) After(o Instant) bool { return i.Mono > o.Mono }

// Equal reports whether both are the same moment of the monotonic clock.
func (i Instant) Equal(o Instant) bool { return i.Mono == o.Mono }

// Compare returns -1 if i was before o, +1 if it was after o, and 0 otherwise.
func (i Instant) Compare(o Instant) int { return cmp.Compare(i.Mono, o.Mono) }

// MarshalJSON writes the wall clock's time, and the monotonic clock's difference if any: "2026-03-01T12:00:00Z -10m0s".
func (i Instant) MarshalJSON() ([]byte, error) {
	text, err := i.Wall.MarshalText()
	if err != nil {
		return nil, err
	}
	if ahead := i.Mono - time.Duration(i.Wall.UnixNano()); ahead != 0 && !i.IsZero() {
		text = append(append(text, ' '), ahead.String()...)
	}
	return json.Marshal(string(text))
}

// UnmarshalJSON reads what MarshalJSON wrote. In a time alone both clocks agree.
func (i *Instant) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	wall, ahead, differs := strings.Cut(word, " ")
	at, err := time.Parse(time.RFC3339Nano, wall)
	if err != nil {
		return err
	}
	var d time.Duration
	if differs {
		if d, err = time.ParseDuration(ahead); err != nil {
			return fmt.Errorf("difference of the clocks: %w", err)
		}
	}
	if *i = (Instant{}); !at.IsZero() {
		*i = Instant{Wall: at, Mono: time.Duration(at.UnixNano()) + d}
	}
	return nil
}
