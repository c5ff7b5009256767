package decide

import (
	"errors"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// fenced is a node whose machine we powered off; its fence was done two minutes ago.
func fenced(t *testing.T) *course {
	c := midst(t, taint.PhaseEvicting)
	rec := c.look.Record.EnterPhase(taint.PhaseDone, taint.ResultEvicted, c.now.Wall)
	rec.PowerOff, rec.OffBy = true, proof.SpeakersOf(c.facts.Devices)
	c.look.Record, c.look.Mark = &rec, nil
	c.facts.Settings.AfterFence = fence.AfterFence{PowerOn: true, Delay: time.Minute, PerDay: 2}
	c.node = Node{}
	c.pass(2 * time.Minute)
	return c
}

// wrote puts what the step writes on the Node.
func (c *course) wrote(s action.Decision) {
	rec := action.RecordOf(s.Action)
	c.look.Record, c.look.ResourceVersion = &rec, c.look.ResourceVersion+"0"
}

// announced goes on until the power-on is announced.
func (c *course) announced() {
	c.t.Helper()
	s := c.upTo("WriteRecord", off)
	if s.Reason != reason.PoweringOn {
		c.t.Fatalf("got %s (%s)", act(s), s.Reason)
	}
	c.wrote(s)
	c.node.Apply(c.now, c.fleet, ActionDone{})
}

// The power-on is recorded and sent once. After that, the leader asks the device every few seconds, even if the leader
// changed.
func TestPowerOnIsSentOnce(t *testing.T) {
	for name, err := range map[string]error{"accepted": nil, "an answer that is lost": errors.New("lost")} {
		c := fenced(t)
		c.announced()
		if a := c.upTo("PowerOn", off).Action.(action.PowerOn); len(a.Devices) != 1 ||
			c.node.lastActionHolds(c.now) != HoldYes ||
			c.node.lastActionHolds(c.now.Add(proof.TTL+time.Second)) != HoldNo {
			t.Errorf("%s: got %+v, want the device, as long as the look is fresh", name, a)
		}
		c.node.Apply(c.now, c.fleet, ActionDone{Withheld: true}) // a pause: nothing was sent
		c.upTo("PowerOn", off)
		c.node.Apply(c.now, c.fleet, ActionDone{SentAt: c.now, Err: err})
		for end := c.now.Add(time.Minute); c.now.Before(end); {
			switch s := c.next(); act(s) {
			case "AskDevices":
				c.answer(off)
			case "Wait":
				c.pass(s.RequeueAfter)
			default:
				t.Fatalf("%s: got %s (%s) after it was sent", name, act(s), s.Reason)
			}
		}
		if s := c.upTo("WriteRecord", on); action.RecordOf(s.Action).AfterFence != taint.AfterFencePoweredOn {
			t.Errorf("%s, then on: got %s (%s), %+v", name, act(s), s.Reason, action.RecordOf(s.Action))
		}
	}
}

// A leader that finds an announcement by another process sends nothing: that leader may have sent the power-on and
// crashed. A leader whose write failed sends nothing either, since the write may have arrived.
func TestPowerOnOfACrashedLeader(t *testing.T) {
	for name, forget := range map[string]func(*course){
		"another leader": func(c *course) { c.announced(); c.node = Node{} },
		"a write whose answer is lost": func(c *course) {
			c.wrote(c.upTo("WriteRecord", off))
			c.node.Apply(c.now, c.fleet, ActionDone{Err: errors.New("lost")})
		},
	} {
		c := fenced(t)
		forget(c)
		begin := c.now
		again := action.Decision{}
		for again.Action == nil {
			switch s := c.next(); act(s) {
			case "AskDevices":
				c.answer(off)
			case "Wait":
				c.pass(s.RequeueAfter)
			default:
				again = s
			}
		}
		if act(again) != "WriteRecord" || len(action.RecordOf(again.Action).PowerOns) != 2 ||
			c.now.Sub(begin) < c.facts.Retry-time.Second {
			t.Errorf("%s: got %s (%s) after %s, %v", name, act(again), again.Reason, c.now.Sub(begin),
				action.RecordOf(again.Action).PowerOns)
		}
	}
}

// A device that feeds the machine does not say that it runs. An On of such a device is not taken for a power-on by a
// person.
func TestOnOfAFeedIsNotPersonsPowerOn(t *testing.T) {
	c := fenced(t)
	c.facts.Devices = append(c.facts.Devices,
		proof.Device{Name: "strip/n1", Machine: taint.MachineRef{Provider: "strip", ID: "n1"}, Level: 1, Feeds: true})
	if s := c.next(); act(s) != "AskDevices" {
		t.Fatalf("got %s (%s)", act(s), s.Reason)
	}
	both := func(first, second providers.PowerState) {
		var all []providers.Answer
		for _, s := range []providers.PowerState{first, second} {
			all = append(all,
				providers.Answer{Observation: providers.Observation{State: s, Raw: s.String(), At: c.now}, Got: c.now})
		}
		c.node.Apply(c.now, c.fleet, DevicesAnswered{Answers: all})
		c.now = c.now.Add(time.Millisecond)
	}
	both(providers.PowerUnknown, on)
	s := c.next()
	if act(s) != "Wait" || s.Reason != reason.Unknown {
		t.Errorf("its device is silent and an outlet on: got %s (%s)", act(s), s.Reason)
	}
	c.pass(s.RequeueAfter)
	if s := c.next(); act(s) != "AskDevices" {
		t.Fatalf("got %s (%s)", act(s), s.Reason)
	}
	both(off, on)
	if s := c.next(); act(s) != "WriteRecord" || s.Reason != reason.PoweringOn {
		t.Errorf("off, and an outlet on: got %s (%s), want the machine powered on", act(s), s.Reason)
	}
}
