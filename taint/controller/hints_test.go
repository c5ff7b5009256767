package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// hint gives a hint, and wakes the node.
func (w *world) hint(node string, by fleet.Source) {
	w.r.WithFleet(func(f *fleet.Fleet) { f.ApplyHint(node, by, providers.InstantOf(w.Now())) })
	w.due[node] = w.Now()
}

// Whose hint, or what silence, was the first to make a node suspect whose machine is off is counted, once.
func TestNoticedOnce(t *testing.T) {
	w := newWorld(t)
	w.run(30 * time.Second)
	heard := w.beats["n1"]
	w.cut("n1")
	w.cut("n3")
	w.run(3 * time.Second)
	w.hint("n1", fleet.Line)
	w.run(time.Second)
	w.hint("n1", fleet.Push)
	w.untilDone("n1", taint.ResultEvicted)
	if d := w.Now().Sub(heard); d > 24*time.Second {
		t.Errorf("with a hint the fence was done %s after the last heartbeat", d)
	}
	w.untilDone("n3", taint.ResultEvicted)
	w.run(time.Minute)
	want := map[fleet.Source]float64{fleet.Line: 1, fleet.Lease: 1}
	counted := func(want map[fleet.Source]float64) {
		t.Helper()
		for _, by := range []fleet.Source{
			fleet.Ready, fleet.Lease, fleet.Push, fleet.Line, fleet.Poll, fleet.ShutdownTaint, fleet.Confirmation} {
			if got := w.heard.count(t, "forcefence_noticed_total", string(by)); got != want[by] {
				t.Errorf("noticed by %s: got %v, want %v", by, got, want[by])
			}
		}
	}
	counted(want)

	w.lead() // another process, which finds both as they are
	w.pod("n1", "late-n1", nil, nil, nil)
	w.pod("n3", "late-n3", nil, nil, nil)
	if !w.until(2*time.Minute, func() bool {
		return !slices.Contains(w.pods("n1"), "late-n1") && !slices.Contains(w.pods("n3"), "late-n3")
	}) {
		t.Fatalf("what came late is not evicted: %v, %v; told %q", w.pods("n1"), w.pods("n3"), w.told.said)
	}
	counted(nil)
}

// A partition breaks every line. All devices are asked, and that is all: their machines run.
func TestBrokenLinesOfMachinesThatRun(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.run(30 * time.Second)
	for name, m := range w.machines {
		m.heard = time.Time{}
		w.hint(name, fleet.Line)
	}
	w.run(2 * time.Minute)
	for name, m := range w.machines {
		if m.heard.IsZero() && name != "n5" { // nothing there goes
			t.Errorf("%s: its device was not asked", name)
		}
		if m.offs() > 0 || w.marked(name) || w.record(name).ID != "" || w.poweredOn(name) {
			t.Errorf("%s: power-offs %d, marked %v, record %+v, condition %v", name, m.offs(), w.marked(name),
				w.record(name), w.poweredOn(name))
		}
	}
	if want := []string{"NothingToEvict n5"}; !slices.Equal(w.told.said, want) {
		t.Errorf("told: got %q, want %q", w.told.said, want)
	}
}
