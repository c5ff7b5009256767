package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// hints are what a history has of lines to nodes and of polls. They have a generator of their own: what it draws
// changes no other draw, and a history that has neither is what it was.
type hints struct {
	dice
	lines bool
	poll  time.Duration     // between two questions to one device; 0: none is polled
	apart map[*machine]bool // whom the leader does not reach, though the API server is reached by both
	flaps bool              // a device that lies does so now and then
	alone bool              // it lies of a node that looks alive: nothing but a poll finds it
}

// lineGone is how long a line needs to tell that nobody answers, at least and at most.
const lineGone, lineGoneMost = 2 * time.Second, 3250 * time.Millisecond

func drawHints(s *script, seed uint64, scenario Scenario) hints {
	r := newDice(s, seed, 0x68696e7473)
	h := hints{dice: r, lines: r.IntN(3) == 0, apart: map[*machine]bool{}}
	if r.IntN(3) == 0 {
		h.poll = []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second}[r.IntN(3)]
	}
	if scenario == Lying && h.poll > 0 {
		h.flaps, h.alone = r.IntN(2) == 0, r.IntN(2) == 0
	}
	return h
}

// partitions break lines while all that they go to is well: of one node, of some, or of all; for longer than a line
// needs, or not.
func (w *World) partitions(end time.Time) {
	h := &w.hints
	if !h.lines {
		return
	}
	for range h.IntN(4) {
		var cut []*machine
		share := []float64{0.3, 0.7, 1}[h.IntN(3)]
		for _, m := range w.machines {
			if h.chance(share) {
				cut = append(cut, m)
			}
		}
		at, lasts := h.between(time.Second, end.Sub(w.now)), h.between(time.Second, 20*time.Second)
		w.after(at, func() {
			if w.calm || len(cut) == 0 {
				return
			}
			w.logf("the leader does not reach %d nodes for %s", len(cut), lasts)
			for _, m := range cut {
				h.apart[m] = true
			}
			w.after(lasts, func() {
				for _, m := range cut {
					delete(h.apart, m)
				}
			})
		})
	}
}

// answers reports that a kernel at the machine's address answers the leader. That of a hung kubelet does.
func (m *machine) answers() bool { return m.power && m.k != nil && !m.cut && !m.w.hints.apart[m] }

// follow is a leader's line to the node: it is told as broken once, and not again before somebody answered.
func (k *worker) follow() {
	w, m := k.w, k.m
	switch {
	case !w.hints.lines:
	case m.answers():
		k.line, k.lineEnds = true, time.Time{}
	case !k.line: // nobody accepted it yet, or it was told
	case k.lineEnds.IsZero():
		k.lineEnds = w.now.Add(w.hints.between(lineGone, lineGoneMost))
	case !w.now.Before(k.lineEnds):
		k.line = false
		w.logf("%s: the line to %s broke", k.name, m.name)
		if w.count("line broke"); m.power {
			w.count("line broke, and the machine runs")
		}
		k.fleet.ApplyHint(m.name, fleet.Line, k.now())
	}
}

// poll asks one of the devices of a node that looks alive, if it is time. Its Off is a hint.
func (k *worker) poll(n *corev1.Node, l taint.Look) {
	w, name := k.w, k.m.name
	if w.hints.poll == 0 || k.polling || w.now.Before(k.pollDue) || fence.ExclusionReason(n, w.now) != "" {
		return
	}
	by := k.ledBy(n, l)
	if len(by.to) == 0 || by.mode == fence.Disabled {
		return
	}
	d := by.to[w.hints.IntN(len(by.to))]
	k.polling, k.pollDue = true, w.now.Add(w.hints.poll)
	life := k.life
	w.askOne(k.m, d, k.now, func(a providers.Answer, _, _ bool) {
		k.within(life, 0, func() {
			k.polling = false
			if a.State != providers.PowerOff || k.fleet.DistrustingNode(d.Machine, d.Name, name) != "" {
				return
			}
			w.logf("%s: %s, which is polled, is Off", k.name, d.Name)
			if w.count("poll says Off"); k.m.power {
				w.count("poll says Off, and the machine runs")
			}
			k.fleet.ApplyHint(name, fleet.Poll, k.now())
		})
	})
}

// flap has a lying device say the truth for a while, again and again.
func (w *World) flap(m *machine) {
	w.after(w.hints.between(500*time.Millisecond, 8*time.Second), func() {
		if w.calm {
			return
		}
		m.lies = !m.lies
		w.flap(m)
	})
}

// begun counts a fence's mark by what alone made its node suspect, and the histories with such fences.
func (w *World) begun(suspicion string) {
	switch suspicion {
	case "LineBroke", "MachineFoundOff":
		w.count("marked: " + suspicion)
		w.stats["histories with a fence begun by "+suspicion] = 1
	}
}
