package remote

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// A machine is known to have no power from the first answer on, until an answer says otherwise or is missing too long.
func TestOffRuns(t *testing.T) {
	at := func(s float64) providers.Instant {
		return providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)).Add(
			time.Duration(s * float64(time.Second)))
	}
	var runs OffRuns
	for _, step := range []struct {
		name       string
		end        float64 // when the series ends before this; 0: it does not
		asked, got float64
		want       time.Duration
	}{
		{"the first answer", 0, 0, 1, 0},
		{"a later one counts until its question", 0, 4, 5, 3 * time.Second},
		{"one of an older question", 0, 3, 6, 2 * time.Second},
		{"after a minute without one", 0, 67, 68, 0},
		{"again", 0, 70, 71, 2 * time.Second},
		{"on meanwhile", 72, 73, 74, 0},
		{"asked before it was on", 75, 74.5, 76, 0},
		{"that one began no series", 0, 77, 78, 0},
		{"the next does", 0, 80, 81, 2 * time.Second},
	} {
		if step.end > 0 {
			runs.End("m", at(step.end))
		}
		if got := runs.Extend("m", at(step.asked), at(step.got)); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
	runs.End("another", at(300))
	if len(runs.runs) != 1 {
		t.Errorf("machines that are remembered after a gap: got %d, want 1", len(runs.runs))
	}
}

// While the process was suspended, its monotonic clock stood still, and the machine may have had power.
func TestOffRunEndsWithASuspension(t *testing.T) {
	began := providers.Now()
	after := func(mono, suspended time.Duration) providers.Instant {
		at := began.Add(mono)
		at.Wall = at.Wall.Add(suspended)
		return at
	}
	var runs OffRuns
	runs.Extend("m", began, began)
	if got := runs.Extend("m", after(20*time.Second, 0), after(20*time.Second, 0)); got != 20*time.Second {
		t.Errorf("before: got %s, want 20s", got)
	}
	if got := runs.Extend("m", after(30*time.Second, time.Hour), after(30*time.Second, time.Hour)); got != 0 {
		t.Errorf("after a suspension: got %s, want 0", got)
	}
	at := after(40*time.Second, time.Hour-5*time.Second)
	if got := runs.Extend("m", at, at); got != 5*time.Second {
		t.Errorf("after the wall clock was set back: got %s, want 5s", got)
	}
}
