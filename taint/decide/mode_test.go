package decide

import (
	"errors"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/reason"
)

// In mode shadow each action is reported once in a node's life, with the pods that it would move. No node gets a turn
// for it, nothing is written, and a policy ends no pod.
func TestShadow(t *testing.T) {
	f := &fleet.Fleet{}
	c := begin(t, f, "n1")
	c.facts.Mode, c.pods = fence.Shadow,
		[]action.Pod{running("a"), running("b"), {Namespace: "x", Name: "ds", UID: "ds", Exempt: taint.ExemptDaemon}}
	c.facts.Policies = []policy.Policy{{Name: "p", When: policy.NotReady, WithoutProof: policy.AcceptDuplicates}}
	would := map[string]int{}
	course := func(says func(i int) (wanted bool)) {
		for i := range 40 {
			s := c.next()
			switch act(s) {
			case "AskDevices":
				if says(i) {
					c.answer(off)
				} else {
					c.answer(on)
				}
			case "Wait":
				if s.Would.Action != nil {
					would[action.Name(s.Would.Action)]++
					if len(s.Would.Pods) != 2 {
						t.Errorf("%s: would move %d pods, want the two that are not exempt", s.Reason,
							len(s.Would.Pods))
					}
				}
				c.pass(s.RequeueAfter)
			case "NoAction":
			default:
				t.Fatalf("got %s (%s) in mode shadow", act(s), s.Reason)
			}
		}
	}
	course(func(int) bool { return false })
	if would["WriteRecord"] != 1 || would["SetMark"] != 0 || f.View("n2", c.now).Busy != "" {
		t.Errorf("on: got %v, busy %q, want one power-off reported, and no node's turn", would,
			f.View("n2", c.now).Busy)
	}
	course(func(int) bool { return true })
	if would["WriteRecord"] != 1 || would["SetMark"] != 1 {
		t.Errorf("then off: got %v, want each said once", would)
	}
	c.look.LeaseRV, c.look.ResourceVersion = "2", "2" // a heartbeat: another life
	c.pass(70 * time.Second)
	course(func(int) bool { return true })
	if would["SetMark"] != 2 {
		t.Errorf("in its next life: got %v, want it said again", would)
	}
}

// A mode that begins nothing leaves a person's mark alone, and ends a fence that was begun.
func TestMarksInModesThatBeginNothing(t *testing.T) {
	for _, m := range []fence.Mode{fence.Shadow, fence.Disabled} {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.facts.Mode, c.look.Mark = m, &taint.Mark{Value: "kim", Effect: corev1.TaintEffectNoSchedule}
		if s := c.next(); act(s) != "Wait" || s.Reason != reason.MarkNotTaken || s.Detail != m.String() {
			t.Errorf("%s, a person's mark: got %s (%s, %s)", m, act(s), s.Reason, s.Detail)
		}
		done := taint.Record{ID: "f-1"}.EnterPhase(taint.PhaseDone, taint.ResultEvicted, c.now.Wall)
		c.look.Record = &done
		if s := c.next(); act(s) != "Wait" || s.Reason != reason.MarkNotTaken {
			t.Errorf("%s, a person's mark after a fence: got %s (%s)", m, act(s), s.Reason)
		}
		c.look.Record, c.look.RecordErr = nil, errors.New("no JSON") // it may be of a fence that was begun
		if s := c.next(); act(s) != "NoAction" || s.Reason != reason.BadRecord {
			t.Errorf("%s, a mark and a record that cannot be read: got %s (%s)", m, act(s), s.Reason)
		}
		c = midst(t, taint.PhaseEvicting)
		c.facts.Mode, c.pods = m, []action.Pod{running("a")}
		if s := c.upTo("EndPods", off); len(action.PodsOf(s.Action)) != 1 {
			t.Errorf("%s, our mark: got %s (%s), want the fence to go on", m, act(s), s.Reason)
		}
	}
}

// In mode disabled nothing is read of a dead node but itself.
func TestDisabledReadsNothing(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode, c.pods = fence.Disabled, []action.Pod{running("a")}
	s := c.next()
	if act(s) != "Wait" || s.Reason != reason.ModeDisabled || len(c.reads) != 1 || c.reads[0] != "ReadNode" {
		t.Errorf("got %s (%s) after %v", act(s), s.Reason, c.reads)
	}
}

// The condition that a powered-on node carries from mode observe goes once the node is back, in any mode, and comes in
// none that begins nothing.
func TestConditionInShadow(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode, c.facts.Devices[0].NoPower, c.pods = fence.Shadow, "never pinned", []action.Pod{running("a")}
	if s := c.next(); act(s) != "AskDevices" {
		t.Fatalf("got %s (%s)", act(s), s.Reason)
	}
	c.answer(on)
	if s := c.next(); act(s) != "Wait" || s.Reason != reason.PoweredOn {
		t.Errorf("got %s (%s)", act(s), s.Reason)
	}
	c.look.PoweredOn, c.look.Ready, c.look.LeaseRV = true, corev1.ConditionTrue, "2"
	c.fleet.ApplyLease("n1", "2", 0, c.now)
	if s := c.next(); s.Action != (action.SetPoweredOnCondition{}) {
		t.Errorf("back: got %+v (%s)", s.Action, s.Reason)
	}
}
