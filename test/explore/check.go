package explore

import (
	"fmt"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// proofTTL is the design's bound, on purpose not proof.TTL.
const proofTTL = 5 * time.Second

// Violation is a broken invariant.
type Violation struct {
	Invariant string // its number in the design, or a word where it has none
	Text      string
}

// Error says which invariant broke, and how.
func (v *Violation) Error() string { return "invariant " + v.Invariant + " is broken: " + v.Text }

func fail(invariant, format string, args ...any) {
	panic(&Violation{invariant, fmt.Sprintf(format, args...)})
}

// started is invariant 10 for an identity.
func (s *state) started(i int) {
	a, b := s.m[bad].run[i], s.m[good].run[i]
	if a.stage == running && b.stage == running {
		fail("10", "%s runs on both nodes", names[i])
	}
	s.writers()
}

// writers is invariant 10 for the volume: a machine writes to it if its container runs, or if it is mounted and still
// attached there.
func (s *state) writers() {
	for i := range s.m {
		if m := &s.m[i]; m.run[0].stage != running && (!m.mounted || !s.att[i]) {
			return
		}
	}
	fail("10", "the volume has writers on both nodes")
}

// proven is invariant 1 for one destructive act, or its announcement, when it is sent.
func (s *state) proven(c *ctl, what string) {
	a, l := c.course.Answer(), c.course.Look()
	switch {
	case a.State != providers.PowerOff:
		fail("1", "%s, and the last answer is %s", what, a.State)
	case !c.said.off:
		fail("2", "%s, and the machine was not off when it was asked", what)
	case s.now().Sub(a.At) > proofTTL:
		fail("1", "%s with a proof of %s ago", what, s.now().Sub(a.At))
	case c.said.mark == 0 || c.said.mark != idOf(l.Record.IDOr("")):
		fail("1", "%s with a proof older than the mark", what)
	case !c.said.unready:
		fail("1", "%s with a proof asked for while Ready was True", what)
	}
}

// sends is invariants 1 and 9 for the write of a pod.
func (s *state) sends(c *ctl, p action.Pod) {
	w, l := c.write, c.course.Look()
	switch {
	case w.daemonPod:
		fail("9", "%s of an exempt pod", w.do)
	case w.do == tombstones:
		if !l.Record.IsOpen() || l.Record.Phase != taint.PhaseEvicting {
			fail("record", "tombstone before the record says Evicting")
		}
		s.proven(c, "tombstone")
	case w.do == deletes && !p.Tombstone:
		fail("1", "deletion of a pod that has no tombstone")
	case w.do == deletes && !c.back:
		s.proven(c, "deletion")
	}
}

// pausedBefore reports that the last look was sent after the node was paused.
func (c *ctl) pausedBefore(s *state) bool { return c.course.Look().Sent.After(s.pausedAt) }

// begins is what must be true when a fence's first write is sent.
func (s *state) begins(c *ctl) {
	if s.node.paused && c.pausedBefore(s) {
		fail("8", "a fence begins of a node that was paused before it was looked at")
	}
}

// announces is what must be true when a record is sent.
func (s *state) announces(c *ctl, rec taint.Record) {
	l := c.course.Look()
	switch {
	case rec.Phase == taint.PhasePoweringOff:
		s.begins(c)
	case rec.Phase != taint.PhaseEvicting:
	case l.Record.IsOpen() && l.Record.Phase == taint.PhaseEvicting:
		if !l.IsAliveSince(l.Record) {
			fail("11", "the record names volumes, and the node shows no life")
		}
	default:
		s.proven(c, "beginning of the eviction")
	}
}

// arms is what must be true when the mark is sent.
func (s *state) arms(c *ctl) {
	a, l := c.course.Answer(), c.course.Look()
	if !l.Record.IsOpen() {
		s.begins(c)
	}
	switch {
	case a.State != providers.PowerOff || !c.said.off:
		fail("2", "the mark, and the machine was not off when it was asked")
	case c.said.boot.name() != l.BootID || c.said.lease.rv() != l.LeaseRV:
		fail("1", "the mark on an answer older than the last sign of life")
	}
}

// expires is step 5: a stale Ready is ended with an Off in hand and under a mark.
func (s *state) expires(c *ctl) {
	a, l := c.course.Answer(), c.course.Look()
	if l.Mark == nil || a.State != providers.PowerOff || !c.said.off || s.now().Sub(a.At) > proofTTL {
		fail("1", "Ready is ended without mark or proof")
	}
}

// powersOff is step 3: the record is written, and the look shows no life since.
func (s *state) powersOff(c *ctl) {
	l := c.course.Look()
	if s.observe {
		fail("mode", "power-off in mode observe")
	}
	if l.Record == nil || l.Record.Phase != taint.PhasePoweringOff {
		fail("record", "power-off before the record says so")
	}
	if l.IsAliveSince(l.Record) {
		fail("6", "power-off of a node that shows life")
	}
	if s.node.paused && c.pausedBefore(s) {
		fail("8", "power-off of a node that was paused before it was looked at")
	}
}

// names is that moment for the pods that use no volume that the record names.
func (s *state) names() {
	for i := range s.pods {
		if p := &s.pods[i]; p.tomb && p.on == bad {
			fail("11", "the record names volumes, and the ended %s is still there", names[i])
		}
	}
}

// unmarks is invariant 11, at the moment the mark goes: no tombstoned pod and no attachment is left that no bound pod
// needs, unless nothing was touched.
func (s *state) unmarks(w *write) {
	used := false
	for i := range s.pods {
		p := &s.pods[i]
		if p.tomb && p.on == bad && (s.node.rec.Phase != taint.PhaseArmed || s.ended[i] == w.fence) {
			fail("11", "the mark goes (%s), and the ended %s is still there", w.rec.Result, names[i])
		}
		used = used || i == 0 && p.uid != 0 && p.on == bad && !p.tomb
	}
	if s.node.rec.Phase == taint.PhaseEvicting && s.att[bad] && !used {
		fail("11", "the mark goes (%s), and the volume is still attached", w.rec.Result)
	}
}
