package taint

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// A time that another clock wrote counts from its first sight: it is as old as the wall clock said then, and never in
// the future.
func TestSightings(t *testing.T) {
	first := providers.InstantOf(noon)
	later := func(wall, mono time.Duration) providers.Instant {
		return providers.Instant{Wall: first.Wall.Add(wall), Mono: first.Mono + mono}
	}
	const long = 20 * 365 * 24 * time.Hour
	for _, tt := range []struct {
		name       string
		ago        time.Duration // when it was written, before its first sight by the wall clock
		wall, mono time.Duration // since its first sight
		want       time.Duration // how long ago it was
	}{
		{"at its first sight", 3 * time.Second, 0, 0, 3 * time.Second},
		{"later", 3 * time.Second, time.Minute, time.Minute, 63 * time.Second},
		{"the wall clock was set forward since", 3 * time.Second, time.Hour, time.Second, 4 * time.Second},
		{"the wall clock was set back since", 3 * time.Second, -time.Hour, time.Second, 4 * time.Second},
		{"the machine was suspended since", 3 * time.Second, 10 * time.Minute, time.Second, 4 * time.Second},
		{"by a clock that runs ahead, at its first sight", -time.Hour, 0, 0, 0},
		{"by a clock that runs ahead, later", -time.Hour, time.Minute, time.Minute, time.Minute},
		{"by a clock that runs ahead, much later", -time.Hour, 2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		at := first.Wall.Add(-tt.ago)
		s := Sightings(nil).WithRecord(&Record{At: at}, first)
		now := later(tt.wall, tt.mono)
		if got := now.Sub(s.InstantOf(at, now)); got != tt.want {
			t.Errorf("%s: got %s ago, want %s", tt.name, got, tt.want)
		}
		if got := now.Sub(s.WithRecord(&Record{At: at, Since: noon}, now).InstantOf(at, now)); got != tt.want {
			t.Errorf("%s: seen once more, got %s ago, want %s", tt.name, got, tt.want)
		}
	}
	now := later(time.Hour, time.Hour)
	ahead := noon.Add(2 * time.Hour)
	var none Sightings
	if got := none.InstantOf(ahead, now); got != now {
		t.Errorf("a time from the future that was not seen yet: got %+v, want now", got)
	}
	for _, at := range []time.Time{{}, time.Unix(0, 0).AddDate(-1900, 0, 0), time.Unix(0, 0).AddDate(-60, 0, 0)} {
		if got := now.Sub(none.InstantOf(at, now)); got < long {
			t.Errorf("%s: got %s ago, want decades", at, got)
		}
	}
	if got := now.Sub(none.InstantOf(time.Unix(0, 0).AddDate(8000, 0, 0), now)); got != 0 {
		t.Errorf("the year 9970: got %s ago, want 0", got)
	}
}

// Each of a record's times has its own first sight, which lasts for as long as the record has the time.
func TestSightingsOfARecord(t *testing.T) {
	first := providers.InstantOf(noon)
	at := func(d time.Duration) time.Time { return noon.Add(time.Hour + d) }
	r := &Record{Since: at(0), At: at(1), PowerOns: []time.Time{noon, at(2)}}
	s := Sightings(nil).WithRecord(r, first)
	entered := &Record{Since: at(0), At: at(time.Second), PowerOns: r.PowerOns}
	second := first.Add(time.Minute)
	s = s.WithRecord(entered, second)
	for name, tt := range map[string]struct {
		at   time.Time
		want providers.Instant
	}{
		"since": {at(0), first}, "the last power-on": {at(2), first},
		"the new phase": {at(time.Second), second}, "the phase before": {at(1), second},
	} {
		if got := s.InstantOf(tt.at, second); got != tt.want {
			t.Errorf("%s: got %s after the first look, want %s", name, got.Sub(first), tt.want.Sub(first))
		}
	}
	if s = s.WithRecord(nil, second); s != nil {
		t.Errorf("without a record: got %v", s)
	}
}

// A time of the year 1 is old for as long as this process runs: its age does not run over.
func TestWhenOfLongAgo(t *testing.T) {
	now := providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	at := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	r := &Record{At: at}
	s := Sightings(nil).WithRecord(r, now)
	if later := now.Add(time.Hour); later.Sub(s.InstantOf(at, later)) < time.Hour {
		t.Errorf("an hour later it is %s old", later.Sub(s.InstantOf(at, later)))
	}
}
