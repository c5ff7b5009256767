package providers_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// An Instant of a time with a monotonic reading keeps its distance to others by both clocks; of one without, both
// clocks agree.
func TestInstantOf(t *testing.T) {
	date := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	if got := providers.InstantOf(date); got.Mono != time.Duration(date.UnixNano()) || !got.Wall.Equal(date) {
		t.Errorf("got %+v for %s, want both clocks to agree", got, date)
	}
	now := time.Now()
	a, b := providers.InstantOf(now), providers.InstantOf(now.Add(time.Minute))
	if got := b.Sub(a); got != time.Minute || !b.After(a) || !a.Before(b) {
		t.Errorf("got %s between two instants, want 1m0s", got)
	}
	same := a
	if a.Compare(b) != -1 || a.Compare(same) != 0 || b.Compare(a) != 1 {
		t.Errorf("got %d, %d and %d, want -1, 0 and 1", a.Compare(b), a.Compare(same), b.Compare(a))
	}
	if got := a.Add(time.Minute); got != b {
		t.Errorf("got %+v, want %+v", got, b)
	}
	if a.Wall != now.Round(0) {
		t.Errorf("got %s, want the wall clock alone", a.Wall)
	}
	none := providers.InstantOf(time.Time{})
	if none != (providers.Instant{}) || !none.IsZero() || a.IsZero() ||
		!none.Before(a) || a.Sub(none) < 20*365*24*time.Hour {
		t.Errorf("got %+v for the zero time, want the zero Instant, long before all others", none)
	}
}

// The older of both clocks' ages counts, and none is negative.
func TestInstantAge(t *testing.T) {
	at := providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for _, tt := range []struct {
		name             string
		at               providers.Instant
		wall, mono, want time.Duration // since then
	}{
		{"both clocks agree", at, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		{"the machine was suspended", at, 10 * time.Minute, time.Second, 10 * time.Minute},
		{"the wall clock was set forward", at, time.Hour, time.Second, time.Hour},
		{"the wall clock was set back", at, -time.Hour, 7 * time.Second, 7 * time.Second},
		{"read after now", at, -time.Millisecond, -time.Millisecond, 0},
		{"never", providers.Instant{}, math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		now := providers.Instant{Wall: at.Wall.Add(tt.wall), Mono: at.Mono + tt.mono}
		if tt.at.IsZero() {
			now = at
		}
		if got := tt.at.Age(now); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A recording keeps both clocks, and one of an older version has one.
func TestInstantJSON(t *testing.T) {
	date := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	agreed := providers.InstantOf(date)
	for _, tt := range []struct {
		at   providers.Instant
		want string
	}{
		{agreed, `"2026-03-01T12:00:00Z"`},
		{providers.Instant{}, `"0001-01-01T00:00:00Z"`},
		{providers.Instant{Wall: date, Mono: agreed.Mono - 10*time.Minute}, `"2026-03-01T12:00:00Z -10m0s"`},
		{providers.Instant{Wall: date, Mono: agreed.Mono + 1500}, `"2026-03-01T12:00:00Z 1.5µs"`},
	} {
		text, err := json.Marshal(tt.at)
		if string(text) != tt.want || err != nil {
			t.Errorf("got %s, %v; want %s", text, err, tt.want)
		}
		var back providers.Instant
		if err := json.Unmarshal(text, &back); err != nil || back != tt.at {
			t.Errorf("%s: read back %+v, %v; want %+v", text, back, err, tt.at)
		}
	}
	for _, bad := range []string{`1`, `"noon"`, `"2026-03-01T12:00:00Z soon"`} {
		if err := json.Unmarshal([]byte(bad), new(providers.Instant)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if _, err := json.Marshal(providers.InstantOf(date.AddDate(9000, 0, 0))); err == nil {
		t.Error("a year that no other program reads was written")
	}
}
