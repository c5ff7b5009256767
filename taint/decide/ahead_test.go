package decide

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// A power-off that was announced by a clock that runs ahead has its time-out from when it was first seen, over all
// looks that follow.
func TestPowerOffOfAClockThatRunsAhead(t *testing.T) {
	c := announced(t)
	rec := *c.look.Record
	rec.At, rec.Since = rec.At.Add(time.Hour), rec.At.Add(time.Hour)
	c.look.Record = &rec
	begun := c.now
	c.upTo("PowerOff", on)
	if got := c.node.FenceBegan(); got.Before(begun) || got.After(c.now) {
		t.Errorf("the fence began %s after its first sight, want then", got.Sub(begun))
	}
	c.did(ActionDone{SentAt: c.now})
	for range 500 {
		switch s := c.next(); {
		case act(s) == "AskDevices":
			c.answer(on)
		case act(s) == "Wait":
			c.pass(s.RequeueAfter)
		case act(s) == "PowerOff":
			c.did(ActionDone{SentAt: c.now})
		case act(s) == "WriteRecord" && s.Reason == reason.PowerOffFailed:
			if took := c.now.Sub(begun); took < time.Minute || took > 2*time.Minute {
				t.Errorf("it timed out after %s, want a minute", took)
			}
			return
		default:
			t.Fatalf("got %s (%s)", act(s), s.Reason)
		}
	}
	t.Fatalf("it did not time out within %s", c.now.Sub(begun))
}

// Without an open record a node's writes queue from when it was looked at.
func TestBegan(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.see()
	if got, want := c.node.FenceBegan(), c.node.Look().Sent; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	rec := taint.Record{ID: "f-1", NodeUID: "u", Since: c.now.Wall.Add(-time.Minute)}
	rec = rec.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
	c.look.Record = &rec
	want := c.now.Add(-time.Minute)
	c.see()
	if got := c.node.FenceBegan(); got.Sub(want).Abs() > time.Millisecond {
		t.Errorf("got %s ago, want a minute", c.now.Sub(got))
	}
}
