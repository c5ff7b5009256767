package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// decision is what a controller decided about a node, and in which phase of the fence.
type decision struct {
	phase  taint.Phase
	reason reason.Reason
	action string
}

// transition is two decisions of one process about one node, one after the other. The first of its life follows the
// zero value.
type transition [2]decision

// cover notes the transition to the worker's next decision.
func (k *worker) cover(d action.Decision) {
	now := decision{reason: d.Reason, action: action.Name(d.Action)}
	if r := k.course.Look().Record; r != nil {
		now.phase = r.Phase
	}
	k.w.transitions[transition{k.decided, now}] = struct{}{}
	k.decided = now
}

// yearly is how many fences make a cluster-year: a cluster in which a node dies every day. The hours between them, in
// which nothing happens, are not simulated.
const yearly = 365

// Tally is what many histories came to.
type Tally struct {
	Stats       map[string]int
	Histories   int
	Events      int
	Span        time.Duration // of simulated time
	Took        time.Duration
	Transitions map[transition]int // how many histories came by each
	Failed      []failure
	Received    []uint64 // of each history
}

// failure is a history in which an invariant broke.
type failure struct {
	Options
	v *Violation
}

// String says how fast the histories were.
func (t *Tally) String() string {
	s := t.Took.Seconds()
	fences := t.Stats["SetMark Armed "]
	return fmt.Sprintf("%d histories, %d events, %.1f s: %.0f histories/s, %.1f days of simulated time and %d fences, "+
		"%.0f cluster-years per day (a year is %d fences), %d transitions between decisions",
		t.Histories, t.Events, s, float64(t.Histories)/s, t.Span.Hours()/24, fences,
		float64(fences)/yearly/s*(24*time.Hour).Seconds(), yearly, len(t.Transitions))
}

// enough failures are no news any more.
const enough = 20

// add counts a history, and reports whether it came by a transition that none before came by.
func (t *Tally) add(o Options, r Result) (found bool) {
	t.Histories++
	t.Events += r.Events
	t.Span += r.Span
	for k, v := range r.Stats {
		t.Stats[k] += v
	}
	for x := range r.transitions {
		found = found || t.Transitions[x] == 0
		t.Transitions[x]++
	}
	t.Received = append(t.Received, r.Received)
	if r.Violation != nil {
		t.Failed = append(t.Failed, failure{o, r.Violation})
	}
	return found
}

func newTally() *Tally { return &Tally{Stats: map[string]int{}, Transitions: map[transition]int{}} }

// Search looks for transitions that no history came by so far. It keeps those that found one, changes what they drew,
// and goes on from there.
type Search struct {
	*Tally
	corpus []Options
	drawn  []int // by each of these
	rng    *rand.Rand

	bySeeds int // transitions of the histories that were not changed
}

// newSearch begins with a seed's worth of randomness.
func newSearch(seed uint64) *Search {
	return &Search{Tally: newTally(), rng: rand.New(rand.NewPCG(seed, 0x636f766572))}
}

// Play plays the first histories as their seeds have it, in each scenario in turn, and then changed ones. It plays in
// rounds, so that the same are played on any machine.
func (s *Search) Play(first, n int, scenarios []Scenario) {
	const round = 64
	for i := 0; i < n && len(s.Failed) < enough; {
		until := n
		if i < first {
			until = first
		}
		batch := make([]Options, min(round, until-i))
		for j := range batch {
			if seed := i + j; seed < first {
				batch[j] = Options{Seed: uint64(seed), Scenario: scenarios[seed%len(scenarios)]}
			} else {
				batch[j] = s.change()
			}
		}
		found, all := s.play(batch)
		if i += len(batch); i <= first {
			s.bySeeds = len(s.Transitions)
		}
		for _, j := range found {
			if all[j].Violation == nil {
				s.corpus, s.drawn = append(s.corpus, batch[j]), append(s.drawn, all[j].Drawn)
			}
		}
	}
}

// change edits a few draws of a history of the corpus, the younger ones more often.
func (s *Search) change() Options {
	i := len(s.corpus) - 1 - int(float64(len(s.corpus))*s.rng.Float64()*s.rng.Float64())
	o, drawn := s.corpus[i], s.drawn[i]
	o.Edits = slices.Clone(o.Edits)
	if len(o.Edits) > 0 && s.rng.IntN(3) == 0 {
		at := s.rng.IntN(len(o.Edits))
		o.Edits = slices.Delete(o.Edits, at, at+1)
	}
	for range 1 + s.rng.IntN(8) {
		at := s.rng.IntN(max(drawn, 1))
		if s.rng.IntN(3) == 0 { // what the cluster is, and which storms it has
			at = s.rng.IntN(min(max(drawn, 1), 100))
		}
		o.Edits = append(o.Edits, Edit{at, 1 + s.rng.IntN(16)})
	}
	slices.SortStableFunc(o.Edits, func(a, b Edit) int { return a.At - b.At })
	o.Edits = slices.CompactFunc(o.Edits, func(a, b Edit) bool { return a.At == b.At })
	return o
}

// playSeeds plays seeds, until enough fail.
func playSeeds(first, n uint64, scenario func(uint64) Scenario) *Tally {
	t := newTally()
	const round = 256
	for i := first; i < first+n && len(t.Failed) < enough; i += round {
		var batch []Options
		for seed := i; seed < min(i+round, first+n); seed++ {
			batch = append(batch, Options{Seed: seed, Scenario: scenario(seed)})
		}
		t.play(batch)
	}
	return t
}

// play plays histories on all processors, counts them in their order, and returns the indexes of those that came by a
// transition that none before came by.
func (t *Tally) play(batch []Options) (found []int, all []Result) {
	began := time.Now()
	defer func() { t.Took += time.Since(began) }()
	all = runAll(batch)
	for i, r := range all {
		if t.add(batch[i], r) {
			found = append(found, i)
		}
	}
	return found, all
}

// runAll plays histories on all processors.
func runAll(all []Options) []Result {
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // a history is small and short-lived
	out := make([]Result, len(all))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				out[i] = Run(all[i])
			}
		})
	}
	wg.Wait()
	return out
}
