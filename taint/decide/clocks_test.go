package decide

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// suspend lets time go by as it does while the process's machine is suspended: for the wall clock alone.
func (c *course) suspend(d time.Duration) { c.now.Wall = c.now.Wall.Add(d) }

// No act holds on a look, a list or an answer of before a suspension, and none because the wall clock was set back.
func TestHoldsByBothClocks(t *testing.T) {
	const long = 10 * time.Minute
	for _, tc := range []struct {
		name  string
		begin func(t *testing.T) *course // it ends with the act
		late  Hold
	}{
		{"power-off", func(t *testing.T) *course {
			c := announced(t)
			c.upTo("PowerOff", on)
			return c
		}, HoldNo},
		{"pods", func(t *testing.T) *course {
			c := midst(t, taint.PhaseEvicting)
			c.pods = []action.Pod{running("a")}
			c.upTo("EndPods", off)
			return c
		}, HoldAskFirst},
		{"volumes", func(t *testing.T) *course {
			c := midst(t, taint.PhaseEvicting)
			c.look.InUse = []corev1.UniqueVolumeName{"v"}
			c.upTo("ClearVolumes", off)
			return c
		}, HoldAskFirst},
		{"a policy's pods", func(t *testing.T) *course {
			c := accepted(t)
			c.look.PoweredOn = true // it says so already
			if s := c.policyStep(); act(s) != "EndPods" {
				t.Fatalf("got %s (%s), want %s", act(s), s.Reason, "EndPods")
			}
			return c
		}, HoldNo},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, then := range []struct {
				name       string
				wall, both time.Duration // goes by
				want       Hold
			}{
				{"at once", 0, 0, HoldYes},
				{"the wall clock was set back", -long, 0, HoldYes},
				{"the wall clock was set back, and minutes went by", -long, long, tc.late},
				{"after a suspension", long, 0, tc.late},
			} {
				c := tc.begin(t)
				c.suspend(then.wall)
				c.now = c.now.Add(then.both)
				if got := c.node.lastActionHolds(c.now); got != then.want {
					t.Errorf("%s: got %d, want %d", then.name, got, then.want)
				}
			}
		})
	}
}

// A list that is kept is as old as the older of both clocks says.
func TestKeptListByBothClocks(t *testing.T) {
	c := midst(t, taint.PhaseEvicting)
	c.look.InUse = []corev1.UniqueVolumeName{"v"}
	c.upTo("ClearVolumes", off)
	c.did(ActionDone{})
	c.node.kept.pods, c.look.InUse = []action.Pod{ended("a")}, nil
	c.suspend(keptHolds + time.Second)
	c.see()
	c.answer(off)
	if s := c.next(); act(s) != "RemoveMark" {
		t.Errorf("got %s (%s) by a list of before a suspension, want %s", act(s), s.Reason, "RemoveMark")
	}
}

// Work that was found before a suspension is looked for again.
func TestWorkByBothClocks(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.pods = []action.Pod{running("a")}
	c.next()
	c.pods = nil
	c.suspend(workHolds + time.Minute)
	c.see()
	if s := c.next(); s.Reason != reason.NoWork {
		t.Errorf("got %s (%s) by work of before a suspension, want %s", act(s), s.Reason, reason.NoWork)
	}
}
