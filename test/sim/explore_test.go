package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

var (
	exploreTime = flag.Duration("sim.explore", 35*time.Second, "how long TestExplore goes on at most")
	updateStory = flag.Bool("sim.story", false, "write the counter-example into testdata")
)

// worlds are what is explored with the hook, or with power that is held off. Each single edit is played, and pairs for
// the rest of the time.
var worlds = []struct {
	name     string
	scenario Scenario
	small    Small
	result   taint.Result // of the plain history's fence; "": there is none
}{
	{"the power goes", Hooked, Small{Mode: fence.Observe, Span: 25 * time.Second}, taint.ResultEvicted},
	{"no hook, and the power is held off", Held, Small{Mode: fence.Observe, Span: 25 * time.Second},
		taint.ResultEvicted},
	{"the power goes, and all is slow", Hooked, Small{Mode: fence.Observe, Slow: true, Span: 40 * time.Second},
		taint.ResultEvicted},
	{"the network goes", Hooked, Small{Mode: fence.Observe, Network: true, Span: 45 * time.Second}, ""},
	{"the network goes, and the machine is powered off", Hooked,
		Small{Mode: fence.Fence, Network: true, Span: 55 * time.Second}, taint.ResultEvicted},
}

// TestExplore checks that everything holds in each history that differs from a plain one in one draw, and in as many
// that differ in two as there is time for.
func TestExplore(t *testing.T) {
	if fewHistories() {
		t.Skip("needs ten thousand histories")
	}
	left := *exploreTime
	for i, w := range worlds {
		if !t.Run(w.name, func(t *testing.T) {
			x := Exploration{Options: Options{Scenario: w.scenario, Small: &w.small},
				Time: max(left/time.Duration(len(worlds)-i), time.Nanosecond)}
			x.Run()
			left = max(left-x.Took, 0)
			t.Logf("%s", &x)
			if x.Violation != nil {
				t.Errorf("%v\n%s", x.Violation, x.story())
			} else if x.Followed < 100 {
				t.Errorf("%d single edits changed what is sent: the edits change nothing", x.Followed)
			}
		}) {
			return // the others find the same
		}
	}
}

// TestPlainHistories checks that the histories which exploration edits are whole fences: one that does not come so far
// explores nothing.
func TestPlainHistories(t *testing.T) {
	for _, w := range worlds {
		r := Run(Options{Scenario: w.scenario, Small: &w.small, Trace: true})
		if r.Violation != nil {
			t.Errorf("%s: %v\n%s", w.name, r.Violation, r.Text())
		}
		before, _, _ := strings.Cut(r.Text(), "--- calm")
		fenced := strings.Contains(before, fmt.Sprintf("writes RemoveMark Done %s: <nil>", w.result))
		off := strings.Contains(before, "power OFF (ordered)")
		if want := w.result != ""; fenced != want || off != (w.small.Mode == fence.Fence) {
			t.Errorf("%s: got a fence to its end %t, a power-off %t, want %t, and a power-off in mode fence only:\n%s",
				w.name, fenced, off, want, r.Text())
		}
	}
}

// TestExplorationSeesUncheckedPowerOffs checks that exploration notices power-offs that skip their last check.
func TestExplorationSeesUncheckedPowerOffs(t *testing.T) {
	if fewHistories() {
		t.Skip("needs thousands of histories")
	}
	w := worlds[len(worlds)-1]
	x := Exploration{Options: Options{Scenario: w.scenario, Small: &w.small, Unchecked: true}, Time: time.Nanosecond}
	x.Run()
	t.Logf("%s", &x)
	if x.Violation == nil || x.Violation.Invariant != "power" && x.Violation.Invariant != "8" {
		t.Errorf("got %v, want a power-off that its last check refuses: exploration is blind", x.Violation)
	}
}

// TestCounterExample checks that, without the hook, a machine that boots between proof and tombstone is found, and that
// testdata/counter-example.txt, which docs/protocol.md explains, has it as it is.
func TestCounterExample(t *testing.T) {
	x := Exploration{Options: Options{Scenario: Bare, Small: &worlds[0].small}}
	x.Run()
	t.Logf("%s", &x)
	if x.Violation == nil || x.Violation.Invariant != "10" {
		t.Fatalf("got %v, want invariant 10 broken: exploration is blind", x.Violation)
	}
	story := x.story()
	t.Logf("with one edit, %s:\n%s", x.Found, story)
	file := filepath.Join("testdata", "counter-example.txt")
	if *updateStory {
		if err := os.WriteFile(file, []byte(story), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != story {
		t.Errorf("%s has another counter-example (%v; -sim.story writes this one):\n%s", file, err, have)
	}
}
