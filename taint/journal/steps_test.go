package journal

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
)

// toldStep reports a step while the fence evicts.
func toldStep(s *api.Step) Update {
	t := told(record().EnterPhase(taint.PhaseEvicting, "", after(second)), after(second))
	t.Step = s
	return t
}

// someSteps are steps of one process, one after the other.
func someSteps(r *rand.Rand, from time.Duration) (all []Update, last time.Duration) {
	last = from
	for range 1 + r.IntN(12) {
		last += time.Duration(1+r.IntN(1000)) * time.Millisecond
		name := []string{api.StepAskDevices, api.StepEndPods, api.StepDeletePods}[r.IntN(3)]
		s := step(name, last, last+time.Duration(r.IntN(500))*time.Millisecond, int32(r.IntN(9)))
		s.Error = []string{"", "", "conflict", "timeout"}[r.IntN(4)]
		last += 500 * time.Millisecond
		all = append(all, toldStep(s))
	}
	return all, last
}

// count is how often each kind of step was taken, about how many objects.
func count(all []Update) map[string][2]int32 {
	out := map[string][2]int32{}
	for _, t := range all {
		c := out[t.Step.Step]
		out[t.Step.Step] = [2]int32{c[0] + 1, c[1] + t.Step.Objects}
	}
	return out
}

func counted(steps []api.Step) map[string][2]int32 {
	out := map[string][2]int32{}
	for _, s := range steps {
		out[s.Step] = [2]int32{timesOf(s), s.Objects}
	}
	return out
}

// TestStepsCountOnce: in any order, and however often a process reports its steps, each counts once.
func TestStepsCountOnce(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, _ := someSteps(r, second)
		want := tell(Entry{}, all...).Object.Status.Steps
		if diff := cmp.Diff(count(all), counted(want)); diff != "" {
			t.Fatalf("seed %d: -reported +counted:\n%s", seed, diff)
		}
		again := append(slices.Clone(all), all...)
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if diff := cmp.Diff(want, tell(Entry{}, again...).Object.Status.Steps); diff != "" {
			t.Fatalf("seed %d, shuffled and reported twice: -want +got:\n%s", seed, diff)
		}
	}
}

// TestStepsOfProcesses: another process continues where the first wrote down what it had done. A process also finds
// what it wrote itself, if it never got the answer to the write.
func TestStepsOfProcesses(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		first, last := someSteps(r, second)
		second, _ := someSteps(r, last+time.Millisecond)
		want := tell(Entry{}, append(slices.Clone(first), second...)...).Object.Status.Steps
		written := tell(Entry{}, first...).BoundedObject(&api.Fencing{})
		untouched := written.DeepCopy()

		one := tell(Entry{}, second...).MergeObject(written)
		i := r.IntN(len(second) + 1)
		for how, e := range map[string]Entry{
			"joined in the end":    one,
			"joined in the middle": tell(tell(Entry{}, second[:i]...).MergeObject(written), second[i:]...),
			"taken over":           tell(EntryOf(written), second...),
			"joined twice":         one.MergeObject(written),
			"joined half, then whole": tell(Entry{}, second...).
				MergeObject(tell(Entry{}, first[:1+len(first)/2]...).BoundedObject(&api.Fencing{})).MergeObject(written),
			"joined with itself": one.MergeObject(one.BoundedObject(&api.Fencing{})),
			"half written, rewritten": tell(Entry{}, second...).
				MergeObject(tell(EntryOf(written), second[:i]...).BoundedObject(&api.Fencing{})),
		} {
			if diff := cmp.Diff(want, e.Object.Status.Steps); diff != "" {
				t.Errorf("seed %d, %s: -want +got:\n%s", seed, how, diff)
			}
		}
		if diff := cmp.Diff(untouched, written); diff != "" {
			t.Fatalf("seed %d: what was joined changed:\n%s", seed, diff)
		}
	}
}

// TestStepsGoOn: a step that is reported while it goes on is one step.
func TestStepsGoOn(t *testing.T) {
	early, later := step(api.StepEndPods, second, 2*second, 3), step(api.StepEndPods, second, 5*second, 8)
	early.Error = "conflict"
	want := []api.Step{*later}
	for _, all := range [][]Update{{toldStep(early), toldStep(later)}, {toldStep(later), toldStep(early)}} {
		if diff := cmp.Diff(want, tell(Entry{}, all...).Object.Status.Steps); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestStepsAreBounded: a fence of days asks its devices very often. The count is exact, and what is kept is not much.
func TestStepsAreBounded(t *testing.T) {
	var e Entry
	const asked = 3000
	for i := range asked {
		e = e.AddUpdate(
			toldStep(step(api.StepAskDevices, time.Duration(i)*second, time.Duration(i)*second+second/2, 0)))
	}
	if len(e.steps.own) > maxOwnSteps {
		t.Errorf("kept %d steps, want at most %d", len(e.steps.own), maxOwnSteps)
	}
	want := *step(api.StepAskDevices, 0, (asked-1)*second+second/2, 0)
	want.Times = asked
	if diff := cmp.Diff([]api.Step{want}, e.Object.Status.Steps); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	long := step(strings.Repeat("S", 999), 2*second, second, -1)
	long.Error = strings.Repeat("é", 300) + "\xff"
	got := tell(Entry{}, toldStep(long)).Object.Status.Steps[0]
	if len(got.Step) > api.MaxError || len(got.Error) > api.MaxError || !utf8.ValidString(got.Error) ||
		got.Error == "" ||
		got.Objects != 0 || got.Ended.Before(&got.Began) {
		t.Errorf("got %+v, want texts that are cut, and nothing below zero", got)
	}
	for i := range 2 * api.MaxSteps {
		e = e.AddUpdate(toldStep(step(strings.Repeat("s", i+1), 0, second, 0)))
	}
	if n := len(e.BoundedObject(&api.Fencing{}).Status.Steps); n != api.MaxSteps {
		t.Errorf("got %d kinds of steps, want %d", n, api.MaxSteps)
	}
}

// TestStepsOfShadow: a shadow decision takes none.
func TestStepsOfShadow(t *testing.T) {
	s := shadow(false)
	s.Step = step(api.StepAskDevices, 0, second, 0)
	if got := tell(Entry{}, s).Object.Status.Steps; got != nil {
		t.Errorf("got %+v, want none", got)
	}
}

// Of steps that are summed, the last failure is kept.
func TestSumSteps(t *testing.T) {
	for _, tt := range []struct{ first, last, want string }{
		{"", "", ""},
		{"conflict", "", "conflict"},
		{"", "timeout", "timeout"},
		{"conflict", "timeout", "timeout"},
	} {
		a, b := step(api.StepEndPods, 0, second, 2), step(api.StepEndPods, 2*second, 3*second, 1)
		a.Error, b.Error = tt.first, tt.last
		want := *step(api.StepEndPods, 0, 3*second, 3)
		want.Error, want.Times = tt.want, a.Times+b.Times
		if diff := cmp.Diff(want, sumSteps(*a, *b)); diff != "" {
			t.Errorf("%q, then %q (-want +got):\n%s", tt.first, tt.last, diff)
		}
	}
}

// A written entry covers the steps that began in its time, the first and the last moment of it included.
func TestIsOutside(t *testing.T) {
	w := *step(api.StepEndPods, 2*second, 4*second, 1)
	for _, tt := range []struct {
		began time.Duration
		want  bool
	}{
		{2*second - time.Millisecond, true}, {2 * second, false}, {3 * second, false}, {4 * second, false},
		{4*second + time.Millisecond, true},
	} {
		if got := isOutside(w, *step(api.StepEndPods, tt.began, 5*second, 1)); got != tt.want {
			t.Errorf("begun at %s: got %t, want %t", tt.began, got, tt.want)
		}
	}
}
