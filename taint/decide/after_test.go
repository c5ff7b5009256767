package decide

import (
	"errors"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// fenced is a node whose machine we powered off; its fence was done two minutes ago.
func fenced(t *testing.T) *course {
	c := midst(t, taint.PhaseEvicting)
	rec := c.look.Record.Enter(taint.PhaseDone, taint.ResultEvicted, c.now.Wall)
	rec.PowerOff, rec.OffBy = true, proof.Speakers(c.facts.Devices)
	c.look.Record, c.look.Mark = &rec, nil
	c.facts.Settings.After = fence.AfterFence{PowerOn: true, Delay: time.Minute, PerDay: 2}
	c.node = Node{}
	c.pass(2 * time.Minute)
	return c
}

// wrote puts what the step writes on the Node.
func (c *course) wrote(s Step) {
	rec := s.Record
	c.look.Record, c.look.ResourceVersion = &rec, c.look.ResourceVersion+"0"
}

// announced goes on until the power-on is announced.
func (c *course) announced() {
	c.t.Helper()
	s := c.upTo(Write, off)
	if s.Why != reason.PoweringOn {
		c.t.Fatalf("got %s (%s)", s.Do, s.Why)
	}
	c.wrote(s)
	c.node.Apply(c.now, c.fleet, ActionDone{})
}

// The power-on is written down and sent once. What follows is a question every few seconds, whoever leads.
func TestPowerOnIsSentOnce(t *testing.T) {
	for name, err := range map[string]error{"accepted": nil, "an answer that is lost": errors.New("lost")} {
		c := fenced(t)
		c.announced()
		if s := c.upTo(PowerOn, off); len(s.Devices) != 1 || c.node.Holds(c.now) != Yes || c.node.Holds(c.now.Add(proof.TTL+time.Second)) != No {
			t.Errorf("%s: got %+v, want the device, as long as the look is fresh", name, s)
		}
		c.node.Apply(c.now, c.fleet, ActionDone{Late: true}) // a pause: nothing was sent
		c.upTo(PowerOn, off)
		c.node.Apply(c.now, c.fleet, ActionDone{Sent: c.now, Err: err})
		for end := c.now.Add(time.Minute); c.now.Before(end); {
			switch s := c.next(); s.Do {
			case Ask:
				c.answer(off)
			case Wait:
				c.pass(s.After)
			default:
				t.Fatalf("%s: got %s (%s) after it was sent", name, s.Do, s.Why)
			}
		}
		if s := c.upTo(Write, on); s.Record.After != taint.AfterPoweredOn {
			t.Errorf("%s, then on: got %s (%s), %+v", name, s.Do, s.Why, s.Record)
		}
	}
}

// Whoever finds an announcement that is not his sends nothing on it: a leader that crashed may have. Nor does one whose write failed, since
// it may have arrived.
func TestPowerOnOfACrashedLeader(t *testing.T) {
	for name, forget := range map[string]func(*course){
		"another leader": func(c *course) { c.announced(); c.node = Node{} },
		"a write whose answer is lost": func(c *course) {
			c.wrote(c.upTo(Write, off))
			c.node.Apply(c.now, c.fleet, ActionDone{Err: errors.New("lost")})
		},
	} {
		c := fenced(t)
		forget(c)
		begin := c.now
		again := Step{}
		for again.Do == Leave {
			switch s := c.next(); s.Do {
			case Ask:
				c.answer(off)
			case Wait:
				c.pass(s.After)
			default:
				again = s
			}
		}
		if again.Do != Write || len(again.Record.PowerOns) != 2 || c.now.Sub(begin) < c.facts.Retry-time.Second {
			t.Errorf("%s: got %s (%s) after %s, %v", name, again.Do, again.Why, c.now.Sub(begin), again.Record.PowerOns)
		}
	}
}

// What feeds the machine does not say that it runs: it is not taken for one that somebody turned on.
func TestOutletsDoNotRun(t *testing.T) {
	c := fenced(t)
	c.facts.Devices = append(c.facts.Devices, proof.Device{Name: "strip/n1", Machine: taint.Machine{Provider: "strip", ID: "n1"}, Level: 1, Feeds: true})
	if s := c.next(); s.Do != Ask {
		t.Fatalf("got %s (%s)", s.Do, s.Why)
	}
	both := func(first, second providers.PowerState) {
		var all []providers.Answer
		for _, s := range []providers.PowerState{first, second} {
			all = append(all, providers.Answer{Observation: providers.Observation{State: s, Raw: s.String(), At: c.now}, Got: c.now})
		}
		c.node.Apply(c.now, c.fleet, DevicesAnswered{Answers: all})
		c.now = c.now.Add(time.Millisecond)
	}
	both(providers.PowerUnknown, on)
	s := c.next()
	if s.Do != Wait || s.Why != reason.Unknown {
		t.Errorf("its device is silent and an outlet on: got %s (%s)", s.Do, s.Why)
	}
	c.pass(s.After)
	if s := c.next(); s.Do != Ask {
		t.Fatalf("got %s (%s)", s.Do, s.Why)
	}
	both(off, on)
	if s := c.next(); s.Do != Write || s.Why != reason.PoweringOn {
		t.Errorf("off, and an outlet on: got %s (%s), want the machine powered on", s.Do, s.Why)
	}
}
