// Package sim plays the whole protocol in one address space: the real fence.Step, evict.Step, taint codec, admit.Decide
// and providers.Ask over a model of the API server, kubelets with their hook, machines with their BMCs, the stock
// controllers that matter (StatefulSet, scheduler, attach/detach, node lifecycle, taint eviction), and people.
//
// One seed is one history: a single queue of events in virtual time, whose order, delays and faults all come from one
// generator, so a failing seed replays exactly. Nothing here starts a goroutine, reads a clock or sleeps.
//
// It promises to check the invariants of the design (1 to 11, 14, 15, and "the record before the act") at every write,
// every power-off and every start of a container, and that every mark is lifted and every workload runs again once the
// world calms down. Beside these: that the levels of a machine take their turns in a power-off (levels.go), that a node
// in mode shadow or disabled is left as it is, and one that somebody wants to be left alone (rules.go), and that the
// storm guard's limits are kept where several nodes fall silent (storm.go). Volumes of a Node that a cloud deleted are
// detached with a proof alone (cloud.go). Beside the devices' own word lines that break and polls begin fences, rightly
// and falsely (hints.go). Beside other projects' controllers a volume keeps one writer, no permission of an earlier
// outage counts, and no order is carried out that a leader had the time to take back (neighbours.go).
//
// Three searches use this world: seeds, the systematic exploration of a small cluster (explore.go), and changes of the
// histories that came by decisions in a new order (search.go).
//
// Some processes are suspended with their machines, and go on with a monotonic clock that had stopped.
//
// What is left out of the model, so that nobody reads more into it: gateways before many devices, the guard's
// cool-down, device-specific providers, wall clocks that are set or run ahead, and client machinery (informers, work
// queues), which have tests of their own.
package sim

import (
	"container/heap"
	"fmt"
	"hash"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Scenario says which protection a history has, and so what it may promise.
type Scenario uint8

// The scenarios.
const (
	Hooked Scenario = iota // every node has the hook; machines boot at any moment
	Held                   // no hook; a machine that is off stays off while its node carries a mark
	Lying                  // hooked, but one BMC says Off of a machine that is on: found out afterwards, or never
	Bare                   // no hook, boots at any moment: unsafe, and the checker must say so
	// hooked, with policies that end pods without proof: duplicates that one accepts are counted, all else holds
	Accepting
	Cut // hooked, in mode fence, with power-ons after it: nodes are cut off again and again, and some boot so
	// hooked, beside other projects' controllers (neighbours.go), with a policy that has storage shut nodes out
	Neighbours
)

// String names the scenario in a history.
func (s Scenario) String() string { return scenarioNames[s] }

var scenarioNames = []string{"hooked", "held", "lying", "bare", "accepting", "cut", "neighbours"}

// ScenarioOf spreads the seeds over the scenarios that must hold.
func ScenarioOf(seed uint64) Scenario {
	if seed%20 == 6 {
		return Neighbours
	}
	switch seed % 10 {
	case 7, 8:
		return Held
	case 9:
		return Lying
	default:
		return Hooked
	}
}

// Violation is a broken invariant.
type Violation struct {
	Invariant string // its number in the design, or a word where it has none
	Text      string
	At        time.Duration
}

// Error says which invariant broke, when and how.
func (v *Violation) Error() string {
	return fmt.Sprintf("invariant %s broken at %s: %s", v.Invariant, v.At, v.Text)
}

// Options choose a history.
type Options struct {
	Seed     uint64
	Scenario Scenario
	Trace    bool // keep the history's lines; slow
	// Unchecked leaves out the last check of power actions: unsafe, and the checker must say so.
	Unchecked bool
	// Small replaces what the seed draws by a small world without faults; nil: the seed's.
	Small *Small
	Edits Edits
	// Tape takes each line of the recording that the process of that name writes; nil: none does.
	Tape func(process string, line []byte)
}

// Result is what came of a history.
type Result struct {
	Violation *Violation // nil if everything held
	Events    int
	Stats     map[string]int // how often each path was taken
	History   []string       // with Trace
	Received  uint64         // hash of what controllers sent to the API server and to devices
	Drawn     int            // how many draws may be edited
	Span      time.Duration  // how long it took, by its own clocks
	draws     []draw         // in a small world

	transitions map[transition]struct{}
}

// World is one history in progress.
type World struct {
	Options
	rng dice
	now time.Time

	received hash.Hash64 // nil: nothing yet

	queue  queue
	events int
	steps  int  // what arrived, was written and was started
	seen   int  // of these, when the last moment was explored
	failed bool // the failure of a small world happened

	api        *server
	machines   []*machine
	procs      []*Process
	leader     int       // index of the process that holds the leader's lease; -1 none
	deposed    time.Time // when the last one lost it
	noneUntil  time.Time // until when no process runs
	stock      []*controller
	detach     *controller
	ids        []identity
	limits     limits
	user       *namespaceUser          // nil: none
	twin       *twin                   // nil: each machine has one Node
	overlooked map[types.UID]time.Time // attachments -> until when attach/detach overlooks them
	unwanted   map[string]time.Time    // attachments -> since when attach/detach wants to detach them
	storm      storm
	hints      hints
	wires      wires
	cloud      cloud
	skew       time.Duration // of the controller-manager's clock against ours; positive: it is ahead
	rules      rules
	mode       fence.Mode          // what the configuration says of most nodes
	words      []*word             // all that was said of who is to be left alone
	saying     map[[2]string]*word // by node and means: what stands
	pool       *pool               // the storage system that policies ask; nil: none
	near       *neighbours         // nil: none
	truth      map[proofKey]bool   // every Off that a device said: was the machine off then
	check      checker

	calm   bool // the faults are over
	down   bool // nobody reaches the API server
	booted int  // names boots
	made   int  // names UIDs and fences
	stats  map[string]int
	lines  []string

	transitions map[transition]struct{}
}

// limits are the settings that one history draws for itself.
type limits struct {
	slow       float64       // share of slow messages
	bmcTrouble float64       // share of answers that are wrong, late or missing
	jolt       float64       // chance of a fault right at an act of ours
	leaseGrace time.Duration // the stock controller's
	tolerate   int64         // tolerationSeconds of ordinary pods; negative: they have no toleration
	staleHook  bool          // kubelets begin with an old list
	events     bool          // devices tell when a machine goes off
	api        time.Duration // how long every request of ours takes, in the calm, too
	device     time.Duration // what every answer of a device takes at least, in the calm, too; not a host's
	lostEvents bool          // caches of attachments miss events
	overtime   bool          // attach/detach overlooks attachments, and a fence does something about that
	large      string        // a pod that its owner made as large as the API server takes
}

// instant is now by clocks that agree.
func (w *World) instant() providers.Instant { return providers.InstantOf(w.now) }

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// maxEvents ends a history that does not come to rest.
const maxEvents = 150_000

// Run plays one history to its end.
func Run(o Options) (res Result) {
	s := &script{plain: o.Small != nil, edits: o.Edits}
	w := &World{
		Options: o, rng: newDice(s, o.Seed, 0x666f726365), now: epoch, leader: -1, stats: map[string]int{},
		truth: map[proofKey]bool{}, saying: map[[2]string]*word{}, transitions: map[transition]struct{}{},
		unwanted: map[string]time.Time{},
	}
	w.check.w = w
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *Violation:
			w.logf("VIOLATION %s", v.Error())
			res.Violation = v
		default:
			panic(v)
		}
		res.Events, res.Stats, res.History = w.events, w.stats, w.lines
		res.Drawn, res.draws = s.made, s.draws
		res.Span, res.transitions = w.now.Sub(epoch), w.transitions
		if w.received != nil {
			res.Received = w.received.Sum64()
		}
	}()
	w.build()
	w.play()
	return res
}

// play runs the troubled part of the history and then the calm one.
func (w *World) play() {
	end := w.now.Add(w.between(60*time.Second, 200*time.Second))
	if w.storm.many {
		end = w.now.Add(w.between(150*time.Second, 240*time.Second))
	}
	if w.Scenario == Cut || w.near != nil {
		end = end.Add(6 * time.Minute)
	}
	if w.Small != nil {
		end = w.now.Add(w.Small.Span)
		w.after(2*time.Second, w.Small.begin(w))
	} else {
		w.scheduleFaults(end)
	}
	w.until(end)
	w.logf("--- calm")
	w.rng.over = true
	w.calmDown()
	for deadline := w.now.Add(20 * time.Minute); ; {
		w.until(w.now.Add(10 * time.Second))
		why := w.unrest()
		if why == "" {
			break
		}
		if w.now.After(deadline) {
			w.fail("11", "20 minutes after the last fault: %s", why)
		}
	}
	w.check.atEnd()
}

// until runs events up to t.
func (w *World) until(t time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(t) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.events++
		if w.events > maxEvents {
			w.fail("livelock", "more than %d events", maxEvents)
		}
		if e.do(); w.failed && !w.calm {
			w.explored()
		}
	}
	w.now = t
}

// unrest says what has not come to its end yet, "" if nothing.
func (w *World) unrest() string {
	for _, n := range w.api.nodes {
		r, err := taint.RecordOf(n)
		if err != nil {
			return "the record of " + n.Name + " is still broken"
		}
		if w.Small != nil && r.IsOpen() { // seeds would go on for longer than they did
			return "the record of " + n.Name + " is still open (" + string(r.Phase) + ")"
		}
		if w.check.unnoticed(n) {
			return n.Name + " was never off, and nobody noticed"
		}
		if m, ok := taint.FindMark(n, taint.DefaultKey, ""); ok {
			return fmt.Sprintf("%s still carries the mark %q (%s)", n.Name, m.Value,
				n.Annotations[taint.RecordAnnotation])
		}
	}
	if why := w.near.unrest(); why != "" {
		return why
	}
	for _, id := range w.ids {
		if w.runningOf(id.name) == 0 {
			return fmt.Sprintf("%s runs nowhere", id.name)
		}
	}
	for _, m := range w.machines {
		for _, p := range w.api.podsOn(m.name) {
			if !m.power && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
				return fmt.Sprintf("the deletion of %s waits for the kubelet of %s, which is off", p.Name, m.name)
			}
			if m.runs(string(p.UID)) && setNotReady(p) && !taint.IsTerminal(p) {
				return fmt.Sprintf("%s runs on %s, and still reads not Ready", p.Name, m.name)
			}
		}
	}
	return ""
}

// after runs do once d has passed.
func (w *World) after(d time.Duration, do func()) {
	w.made++
	heap.Push(&w.queue, event{at: w.now.Add(max(d, 0)), seq: w.made, do: do})
}

// id makes a name that no other thing has.
func (w *World) id(prefix string) string {
	w.made++
	return fmt.Sprintf("%s%d", prefix, w.made)
}

func (w *World) chance(p float64) bool { return w.rng.chance(p) }

func (w *World) between(lo, hi time.Duration) time.Duration { return w.rng.between(lo, hi) }

// latency is how long one message takes: mostly short, now and then long enough to outlive a proof.
func (w *World) latency() time.Duration {
	switch {
	case w.failed && !w.calm:
		return w.Small.messages()[w.rng.step(3)]
	case !w.calm && w.chance(w.limits.slow/8):
		return w.between(2*time.Second, 25*time.Second)
	case !w.calm && w.chance(w.limits.slow):
		return w.between(50*time.Millisecond, 3*time.Second)
	default:
		return w.between(time.Millisecond, 25*time.Millisecond)
	}
}

// lag is how far a cache is behind.
func (w *World) lag() time.Duration {
	switch {
	case w.failed && w.Small.Slow && !w.calm:
		return 2 * time.Second
	case !w.calm && w.chance(0.04):
		return w.between(time.Second, 6*time.Second)
	case !w.calm && w.chance(0.15):
		return w.between(20*time.Millisecond, time.Second)
	default:
		return w.between(0, 20*time.Millisecond)
	}
}

func (w *World) count(what string) { w.stats[what]++ }

// stormy reports whether the scenario's histories have storms; ruled, whether they have modes and pauses.
func (s Scenario) stormy() bool { return s == Hooked || s == Held }
func (s Scenario) ruled() bool  { return s != Lying && s != Bare }

func (w *World) logf(format string, args ...any) {
	if w.Trace {
		w.lines = append(w.lines, fmt.Sprintf("%9.3fs %s", w.now.Sub(epoch).Seconds(), fmt.Sprintf(format, args...)))
	}
}

// fail ends the history.
func (w *World) fail(invariant, format string, args ...any) {
	panic(&Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...), At: w.now.Sub(epoch)})
}

// Text joins the lines of a traced result.
func (r Result) Text() string { return strings.Join(r.History, "\n") }

// event is something that happens at a time; equal times keep the order in which they were scheduled.
type event struct {
	at  time.Time
	seq int
	do  func()
}

// queue is a heap of events.
type queue []event

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }

func (q queue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].seq < q[j].seq
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return e
}
