package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// Exploration is another search over the same world, by the same rules. It plays a plain history, in which one node
// fails and messages are quick. Then it plays each history that differs from it in one draw, then those that differ in
// two, nearest first. Where a seed draws a delay, a lost message, a wrong answer or a configuration, the edit of a draw
// takes another value. Each moment at which something arrived, was written or was started is a draw as well: of what
// may happen right there (World.explored).
//
// The second of two edits is a message or a moment. A history whose first edit changes nothing that is sent, or the
// same as another's, is not followed. What needs three changes of the plain history is left to seeds and to Search.

// Small is the small world of an exploration: three nodes, of which n1 fails, two StatefulSet pods with volumes and one
// without, two controllers.
type Small struct {
	Mode    fence.Mode
	Network bool          // n1 loses its network, not its power
	Slow    bool          // messages take a while, and caches are behind
	Span    time.Duration // until the calm; what happens then is not edited
}

// staleFor is how long a leader goes on that was replaced and did not notice.
const staleFor = 5 * time.Second

// messages are the delays that a message may have: the plain one, longer than a proof lasts, longer than its sender
// waits.
func (s *Small) messages() [3]time.Duration {
	if s.Slow {
		return [3]time.Duration{400 * time.Millisecond, 7 * time.Second, 26 * time.Second}
	}
	return [3]time.Duration{7 * time.Millisecond, 7 * time.Second, 26 * time.Second}
}

// build replaces what seeds choose.
func (s *Small) build(w *World) {
	w.limits = limits{leaseGrace: w.limits.leaseGrace, tolerate: 300, staleHook: true, events: true, jolt: 1}
	w.storm = storm{nodes: 3, limits: fleet.Limits{MaxPowerOffs: fleet.Amount{Number: 1}}}
	w.hints.lines, w.hints.poll, w.skew = false, 0, 0
}

// begin is the failure.
func (s *Small) begin(w *World) func() {
	return func() {
		w.failed = true
		if m := w.machines[0]; s.Network {
			w.logf("%s: cut off from the API server", m.name)
			m.cut = true
		} else {
			m.cutPower("explored")
		}
	}
}

// explored lets one thing happen to n1 or to the leader, if the draw says so and something happened since the last
// time.
func (w *World) explored() {
	if w.steps == w.seen {
		return
	}
	w.seen = w.steps
	m := w.machines[0]
	var faults []func()
	may := func(ok bool, do func()) {
		if ok {
			faults = append(faults, do)
		}
	}
	may(m.power, func() { m.cutPower("explored") })
	may(!m.power, func() { m.powerOn("explored") })
	may(m.power && !m.cut, func() { w.logf("%s: cut off from the API server", m.name); m.cut = true })
	may(m.cut, func() { w.heal(m) })
	beat := func() {
		w.logf("%s: a heartbeat of before arrives", m.name)
		_ = w.api.renew(m.name, "")
	}
	may(!m.power || m.cut, beat)
	if w.leader >= 0 {
		p := w.procs[w.leader]
		may(!m.power || m.cut, func() { beat(); p.deaf = w.now.Add(5 * time.Second) })
		may(!m.power || m.cut, func() { // the next request is slow, and meanwhile the node is back
			p.heldUp = w.between(0, 9*time.Second)
			w.heal(m)
			m.powerOn("explored")
		})
		faults = append(faults, p.crash, func() { p.pause(12 * time.Second) },
			func() { w.logf("%s: loses the lease unnoticed", p.name); w.elect(p) })
	}
	faults = append(faults, func() { w.say(m) }, func() {
		_ = w.api.patchNode("someone", m.name, "", func(n *corev1.Node) { label(n, "touched", w.id("t")) })
	})
	if i := w.rng.step(1 + len(faults)); i > 0 {
		faults[i-1]()
	}
}

// Exploration is how far to explore one world, and what came of it.
type Exploration struct {
	Options
	Time time.Duration // how long to go on with pairs; zero: until all are played

	Histories int
	Singles   int // that differ in one draw
	Followed  int // of these, the ones that sent something else than any before
	Apart     int // each pair was played between which fewer steps lie
	Whole     bool
	Violation *Violation
	Found     Edits // that lead to it
	Took      time.Duration
}

// String is one line.
func (x *Exploration) String() string {
	return fmt.Sprintf("%d histories, %d with one edit, %d of them followed, pairs less than %d steps apart (all: "+
		"%t), "+
		"%.1f s, %.0f histories/s", x.Histories, x.Singles, x.Followed, x.Apart, x.Whole, x.Took.Seconds(),
		float64(x.Histories)/x.Took.Seconds())
}

// followed is a history with one edit, and the draws after it that a second edit may change.
type followed struct {
	first Edit
	steps []Edit // their places, and how many values each has
}

// Run explores until it meets a violation, or a bound, or has seen all.
func (x *Exploration) Run() {
	began := time.Now()
	defer func() { x.Took = time.Since(began) }()
	base := Run(x.Options)
	if x.Histories++; base.Violation != nil {
		x.Violation = base.Violation
		return
	}
	var singles []Edits
	for at, d := range base.draws {
		for to := 1; to < d.values; to++ {
			singles = append(singles, Edits{{at, to}})
		}
	}
	x.Singles = len(singles)
	known := map[[2]uint64]bool{{base.Received, uint64(base.Events)}: true}
	var follow []followed
	if !x.playAll(singles, func(e Edits, r Result) {
		key := [2]uint64{r.Received, uint64(r.Events)}
		if known[key] {
			return
		}
		known[key] = true
		f := followed{first: e[0]}
		for at := e[0].At + 1; at < len(r.draws); at++ {
			if d := r.draws[at]; d.step {
				f.steps = append(f.steps, Edit{at, d.values})
			}
		}
		follow = append(follow, f)
	}) {
		return
	}
	x.Followed = len(follow)
	for ; ; x.Apart++ {
		var pairs []Edits
		for _, f := range follow {
			if x.Apart >= len(f.steps) {
				continue
			}
			for to := 1; to < f.steps[x.Apart].To; to++ {
				pairs = append(pairs, Edits{f.first, {f.steps[x.Apart].At, to}})
			}
		}
		if x.Whole = len(pairs) == 0; x.Whole {
			return
		}
		for part := range slices.Chunk(pairs, 64) {
			if x.Time > 0 && time.Since(began) > x.Time || !x.playAll(part, nil) {
				return
			}
		}
	}
}

// playAll plays histories, then hands their results over in order. It reports whether all held.
func (x *Exploration) playAll(all []Edits, done func(Edits, Result)) bool {
	const chunk = 512
	for part := range slices.Chunk(all, chunk) {
		batch := make([]Options, len(part))
		for i, e := range part {
			batch[i] = x.Options
			batch[i].Edits = e
		}
		x.Histories += len(part)
		for i, r := range runAll(batch) {
			if r.Violation != nil {
				x.Violation, x.Found = r.Violation, part[i]
				return false
			}
			if done != nil {
				done(part[i], r)
			}
		}
	}
	return true
}

// uid is a pod's in a line of a history.
var uid = regexp.MustCompile(` \(pod-[0-9]+\)`)

// story is the history of the violation, from its failure on.
func (x *Exploration) story() string {
	o := x.Options
	o.Edits, o.Trace = x.Found, true
	lines := Run(o).History
	from := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "    2.000s") })
	var out strings.Builder
	for _, l := range lines[max(from, 0):] {
		fmt.Fprintln(&out, uid.ReplaceAllString(strings.TrimSpace(l), ""))
	}
	return out.String()
}
