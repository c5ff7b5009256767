// Package explore plays every interleaving of a small world, and not many of a large one as test/sim does: the real
// courses (taint/decide, and with it fence, evict, proof and fleet) and the real decision of the hook
// (kubelet-admit/admit), around them a model of one node that fails, another that does not, its StatefulSet, its volume
// and its device. One step is one request that arrives, or one thing that happens to the machine. States that are the
// same are visited once, nearest first: the story of a broken invariant is the shortest there is. Faults are counted,
// so that what may follow few of them is seen whole, or at least far.
//
// Time passes only while a controller waits, or while an answer is late; in between, steps take moments. What this
// cannot see:
//   - ages between two edges (key.go): states that differ only by them count as one, and only the first is followed;
//   - slow API servers, where one read serves two steps; stale caches, except a kubelet's first list; writes of
//     volumesAttached from an old cache (F5);
//   - stock taint eviction (F2): the pods tolerate it; deletions by people, people's marks, Nodes that are deleted;
//   - devices that lie, several devices (each multiplies the states: it may answer, not answer or take a power-off),
//     storms: the second node never fails;
//   - more than one stale leader, and more than two of its writes on their way.
//
// test/sim has histories of all of these.
package explore

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Faults are how many of each kind may happen in one history, and how many in all.
type Faults struct {
	Total      int8 // of all kinds but Boots
	Cuts       int8 // of the machine's power
	Partitions int8 // of the node from the API server
	Crashes    int8 // of a controller
	Seconds    int8 // a controller begins to lead while another goes on
	Late       int8 // an answer comes, but later than an answer of a device proves anything
	Dumb       int8 // the device does not know
	Torn       int8 // of the two reads of a look one is made earlier than the other
	Pauses     int8 // a person pauses the node, and ends the pause
	TimeOuts   int8 // a write is given up by who sent it, and lands later or never
	Boots      int8 // the machine is switched on
}

// Options choose what is explored.
type Options struct {
	Hook        bool
	Held        bool // the power stays off while the node is marked
	Mode        fence.Mode
	Controllers int // one or two
	Pods        int // one or two; the first has the volume
	Faults      Faults

	// begin not at rest, but from every state of the history in which this happens and no other fault; zero: at rest
	Along verb
	// LateTombstone makes more of that history: the tombstone of the second pod is given up by its sender, and is on
	// its way until anybody lets it land, the machine boots, and the node returns.
	LateTombstone bool

	Settle  uint64        // of every so many states it is seen that all comes to rest once faults stop; zero: of none
	Depth   int           // of the deepest state; zero: all
	States  int           // how many to visit at most; zero: all
	Least   int           // how many to visit before Time ends it
	Time    time.Duration // how long to go on; zero: until all is seen
	Memory  uint64        // bytes of heap above which it ends; zero: no limit
	Workers int
}

// Result is what came of an exploration.
type Result struct {
	Violation *Violation // nil: everything held
	Path      []act      // that leads to it
	States    int
	Depth     int
	Whole     bool // nothing was left to visit
	Took      time.Duration
	Heap      uint64 // the highest that was seen
}

// String is one line.
func (r Result) String() string {
	end := "all of them"
	if !r.Whole {
		end = "bounded"
	}
	return fmt.Sprintf("%d states, %s, depth %d, %.1f s, %.0f states/s, %d MiB", r.States, end, r.Depth,
		r.Took.Seconds(),
		float64(r.States)/r.Took.Seconds(), r.Heap>>20)
}

// entry is a state that waits for its turn.
type entry struct {
	state
	at uint32 // its place in the log
}

// step is how a state was reached.
type step struct {
	from uint32
	act  act
}

// shard is a part of what was visited.
type shard struct {
	mu   sync.Mutex // guards seen
	seen map[uint64]struct{}
}

const shards = 64

type explorer struct {
	Options
	visited [shards]shard
	good    [shards]shard // states from which all marks go
	log     []step
}

func newExplorer(o Options) *explorer {
	x := &explorer{Options: o}
	for i := range x.visited {
		x.visited[i].seen, x.good[i].seen = map[uint64]struct{}{}, map[uint64]struct{}{}
	}
	return x
}

func (x *explorer) new(h uint64) bool {
	s := &x.visited[h%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[h]; ok {
		return false
	}
	s.seen[h] = struct{}{}
	return true
}

// Explore visits states until it meets a violation, or a bound, or has seen all.
func Explore(o Options) (r Result) {
	defer debug.SetGCPercent(debug.SetGCPercent(60))
	runtime.GC() // what the world before left does not count against this one's memory
	x := newExplorer(o)
	began := time.Now()
	defer func() { r.Took, r.States = time.Since(began), len(x.log) }()
	level := x.roots()
	for ; len(level) > 0; r.Depth++ {
		if o.Depth > 0 && r.Depth >= o.Depth {
			return r
		}
		var next []entry
		const chunk = 1 << 12
		for len(level) > 0 {
			n := min(chunk, len(level))
			found, v := x.expand(level[:n])
			clear(level[:n])
			level = level[n:]
			if v != nil {
				r.Violation, r.Path = v.v, x.path(v.from, v.act)
				return r
			}
			for _, f := range found {
				f.e.at = uint32(len(x.log))
				x.log = append(x.log, f.step)
				next = append(next, *f.e)
			}
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			r.Heap = max(r.Heap, mem.HeapAlloc)
			late := o.Time > 0 && time.Since(began) > o.Time && len(x.log) >= o.Least
			if o.States > 0 && len(x.log) >= o.States || late || o.Memory > 0 && mem.HeapAlloc > o.Memory {
				return r
			}
		}
		level = next
	}
	r.Whole = true
	return r
}

// after is what comes next in the history that the roots are of.
func (x *explorer) after(s *state, acts *[]act) (act, bool) {
	if !x.LateTombstone {
		return s.quiet(&x.Options, acts)
	}
	late, c := s.orphans[0], s.ctl[0]
	switch {
	case late == nil && c != nil && c.write != nil && c.write.do == tombstones && c.write.uid == s.pods[1].uid:
		return act{timeOut, 0}, true
	case late != nil && !s.m[bad].power:
		return act{boot, bad}, true
	}
	s.orphans[0] = nil
	a, ok := s.quiet(&x.Options, acts)
	s.orphans[0] = late
	return a, ok
}

// fenced reports that a fence has come to its end, and all is at rest.
func (s *state) fenced(o *Options) bool {
	return s.node.rec != nil &&
		(s.node.rec.Result == taint.ResultEvicted || s.node.rec.Result == taint.ResultReturned) && s.unrest(o) == ""
}

// along is how many states a history without further faults may have.
const along = 250

// roots are the states that all others are reached from.
func (x *explorer) roots() (out []entry) {
	s := start(x.Options)
	x.log = []step{{}}
	out = append(out, entry{state: s})
	var k key
	x.new(k.of(&s, &x.Options))
	var acts []act
	for a, ok := (act{x.Along, bad}), x.Along != nothing; ok && len(out) < along &&
		!s.fenced(&x.Options); a, ok = x.after(&s, &acts) {
		if v := s.apply(&x.Options, a); v != nil {
			return out // it is found again
		}
		x.log = append(x.log, step{uint32(len(x.log) - 1), a})
		out = append(out, entry{s, uint32(len(x.log) - 1)})
		x.new(k.of(&s, &x.Options))
	}
	return out
}

type child struct {
	e    *entry
	step step
}

type broken struct {
	step
	v *Violation
}

// expand visits what follows the states of a chunk.
func (x *explorer) expand(level []entry) (out []child, first *broken) {
	workers := max(1, x.Workers)
	found := make([][]child, workers)
	bad := make([]*broken, workers)
	var wg sync.WaitGroup
	for w := range workers {
		part := level[w*len(level)/workers : (w+1)*len(level)/workers]
		wg.Go(func() {
			var k key
			var acts []act
			for i := range part {
				e := &part[i]
				acts = e.turns(&x.Options, e.enabled(&x.Options, acts[:0]))
				for _, a := range acts {
					n := &entry{state: e.state}
					if v := n.apply(&x.Options, a); v != nil {
						bad[w] = &broken{step{e.at, a}, v}
						return
					}
					h := k.of(&n.state, &x.Options)
					if !x.new(h) {
						continue
					}
					if x.Settle > 0 && h/shards%x.Settle == 0 {
						if why := x.settles(n.state, &k); why != "" {
							bad[w] = &broken{step{e.at, a}, &Violation{"11", why}}
							return
						}
					}
					found[w] = append(found[w], child{n, step{e.at, a}})
				}
			}
		})
	}
	wg.Wait()
	for w := range workers {
		out = append(out, found[w]...)
		if bad[w] != nil {
			return out, bad[w]
		}
	}
	return out, nil
}

// apply makes a transition.
func (s *state) apply(o *Options, a act) (v *Violation) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Violation:
			v = r
		default:
			panic(r)
		}
	}()
	s.tick()
	switch a.verb {
	case crash, second, late, dumb, timeOut, first, last, deliver, wake, timer, begins:
		s.acts(o, a)
	default:
		s.does(a)
	}
	return nil
}

func (x *explorer) path(at uint32, a act) []act {
	var out []act
	for out = append(out, a); at != 0; at = x.log[at].from {
		out = append([]act{x.log[at].act}, out...)
	}
	return out
}
