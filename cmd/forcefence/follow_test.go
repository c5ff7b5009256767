package main

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/view"
)

// A followed node is printed again once its text changes, and not because time passes.
func TestNodeFingerprint(t *testing.T) {
	seen := func(next string, at time.Time) view.Node {
		return view.Node{Node: "n1", State: view.StateNeedsPerson, Next: next, Since: &at, ReadySince: &at,
			Machine: view.MachinePower{Power: "On", At: &at}, Event: &view.Event{At: at, Text: "It is silent."},
			Fence: &view.NodeFence{ID: "f1"}}
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first := nodeFingerprint(seen("Look.", at))
	if again := nodeFingerprint(seen("Look.", at.Add(time.Minute))); again != first {
		t.Errorf("a minute later: got %q, want %q", again, first)
	}
	if other := nodeFingerprint(seen("Wait.", at)); other == first {
		t.Errorf("another next step: got the same, %q", other)
	}
}
