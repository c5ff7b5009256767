package explore

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

var (
	update = flag.Bool("update", false, "write the counter-example into docs/design.md")
	span   = flag.Duration("explore.time", 40*time.Second, "how long TestExplore goes on at most")
	memory = flag.Uint64("explore.memory", 1<<30, "bytes of heap that it takes at most")
)

// least is how many states of a world are visited on a slow machine, too.
const least = 30_000

// worlds are what is explored with the hook, or with power that is held off, the small ones first: what they leave of
// the time goes to those after them. Each is seen whole, or as deep as its least states reach.
var worlds = []struct {
	name  string
	depth int // 0: the whole world is seen
	Options
}{
	{"the power goes", 0, Options{Hook: true, Controllers: 1, Pods: 2, Settle: 1, Faults: Faults{Total: 1, Cuts: 1}}},
	{"the network goes", 0,
		Options{Hook: true, Along: partition, Controllers: 1, Pods: 1, Settle: 1,
			Faults: Faults{Total: 1, Partitions: 1}}},
	{"the power goes and comes back", 8,
		Options{Hook: true, Along: powerCut, Controllers: 1, Pods: 1, Settle: 64,
			Faults: Faults{Total: 1, Cuts: 1, Boots: 1}}},
	{"no hook, and the power is held off", 18,
		Options{Held: true, Along: powerCut, Controllers: 1, Pods: 1, Settle: 64,
			Faults: Faults{Total: 1, Cuts: 1, Boots: 1}}},
	{"and something else happens", 4,
		Options{Hook: true, Along: powerCut, Controllers: 1, Pods: 1, Settle: 64, Faults: Faults{
			Total: 2, Cuts: 2, Boots: 1, Partitions: 1, Crashes: 1, Late: 1, Dumb: 1, Torn: 1, TimeOuts: 1}}},
	{"two lead, one after the other or both", 5,
		Options{Hook: true, Along: powerCut, Controllers: 2, Pods: 1, Settle: 64, Faults: Faults{
			Total: 2, Cuts: 1, Boots: 1, Seconds: 1}}},
	{"the node returns, and a tombstone is still on its way", 6,
		Options{Hook: true, Along: powerCut, LateTombstone: true, Controllers: 1, Pods: 2, Settle: 64,
			Faults: Faults{Total: 2, Cuts: 1, Boots: 1, TimeOuts: 1}}},
	{"the network goes, and a person pauses", 16,
		Options{Hook: true, Mode: fence.Fence, Along: partition, Controllers: 1, Pods: 1, Settle: 64, Faults: Faults{
			Total: 2, Partitions: 1, Pauses: 1}}},
	{"the network goes, and the machine is powered off", 5,
		Options{Hook: true, Mode: fence.Fence, Along: partition, Controllers: 1, Pods: 1, Settle: 64, Faults: Faults{
			Total: 2, Partitions: 1, Boots: 1, Crashes: 1, Late: 1, Dumb: 1, Torn: 1, TimeOuts: 1}}},
}

// TestExplore checks that everything that the checks look for holds in every state, and that all comes to rest from
// there.
func TestExplore(t *testing.T) {
	if testing.Short() || race {
		t.Skip("needs hundreds of thousands of states")
	}
	left := *span
	for i, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			o := w.Options
			o.Workers, o.Memory = runtime.GOMAXPROCS(0), *memory
			o.Least, o.Time = least, max(left/time.Duration(len(worlds)-i), time.Millisecond)
			r := Explore(o)
			left -= r.Took
			t.Logf("%s", r)
			if r.Violation == nil && (w.depth == 0 && !r.Whole || r.Depth < w.depth) {
				t.Errorf("visited %s, want depth %d (0: all states)", r, w.depth)
			}
			if r.Violation != nil {
				t.Errorf("%v\n%s", r.Violation, Story(o, r.Path))
			}
		})
	}
}

// TestHistoriesWithoutFaults checks that the histories along which the large worlds begin are whole fences: a world
// that does not come so far explores nothing.
func TestHistoriesWithoutFaults(t *testing.T) {
	for _, w := range worlds {
		if w.Along == nothing || w.Along == partition && w.Mode == fence.Observe {
			continue // there is no fence
		}
		x := newExplorer(w.Options)
		all := x.roots()
		rec := all[len(all)-1].node.rec
		t.Logf("%s: %d states", w.name, len(all))
		want := taint.ResultEvicted
		if w.LateTombstone {
			want = taint.ResultReturned
		}
		if rec == nil || rec.Result != want || rec.PowerOff != (w.Mode == fence.Fence) {
			var path []act
			for _, s := range x.log[1:] {
				path = append(path, s.act)
			}
			t.Errorf("%s: it ends with the record %+v, want %s, and a power-off in mode fence only:\n%s", w.name, rec,
				want, Story(w.Options, path))
		}
	}
}

// The place of the counter-example in docs/design.md.
const (
	begin = "<!-- go test ./test/explore -update writes what follows -->\n```text\n"
	end   = "```\n"
)

// TestCounterExample checks that, without the hook, a machine that boots between proof and tombstone is found, and that
// docs/design.md describes it as it is.
func TestCounterExample(t *testing.T) {
	o := Options{Controllers: 1, Pods: 1, Workers: 1, Faults: Faults{Total: 1, Cuts: 1, Boots: 1}}
	r := Explore(o)
	t.Logf("%s", r)
	if r.Violation == nil || r.Violation.Invariant != "10" {
		t.Fatalf("got %v, want invariant 10 broken: the explorer is blind", r.Violation)
	}
	story := Story(o, r.Path)
	t.Logf("the shortest way to it:\n%s", story)
	file := filepath.Join("..", "..", "docs", "design.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	now, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no place for the counter-example:\n%s", file, begin+end)
	case now == story:
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+story+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/design.md tells another counter-example (-update writes this one):\n%s", now)
	}
}

// TestTransitionsLeaveTheirStateAlone checks that no transition changes what states share: a state and its copy stay
// equal.
func TestTransitionsLeaveTheirStateAlone(t *testing.T) {
	o := Options{Hook: true, Controllers: 2, Pods: 2, Faults: Faults{9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}
	x := newExplorer(o)
	var k key
	for level, depth := []state{start(o)}, 0; depth < 25; depth++ {
		var next []state
		for _, s := range level {
			before := k.of(&s, &o)
			for _, a := range s.turns(&o, s.enabled(&o, nil)) {
				n := s
				if v := n.apply(&o, a); v != nil {
					t.Fatal(v)
				}
				if after := k.of(&s, &o); after != before {
					t.Fatalf("%s changes the state that it comes from", a.verb)
				}
				if x.new(k.of(&n, &o)) && len(next) < 200 {
					next = append(next, n)
				}
			}
		}
		level = next
	}
}
