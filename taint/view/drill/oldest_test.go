package drill

import (
	"testing"
	"time"
)

// The oldest drill counts, and none while a node was not asked.
func TestOldest(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := Plan{Every: 5 * time.Minute, RetryEvery: time.Minute}
	expect := func(when string, want time.Time) {
		t.Helper()
		if got := p.Oldest(); !got.Equal(want) {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
	}
	expect("no node", time.Time{})
	p.SetNodes([]string{"a", "b"})
	p.FinishDrill("a", true, start)
	expect("b was not asked", time.Time{})
	p.FinishDrill("b", true, start.Add(time.Minute))
	expect("a was asked first", start)
	p.FinishDrill("a", false, start.Add(2*time.Minute))
	expect("a was asked again", start.Add(time.Minute))
	p.SetNodes([]string{"a", "b", "c"})
	expect("a new node", time.Time{})
	p.SetNodes([]string{"a"})
	expect("only a is left", start.Add(2*time.Minute))
}
