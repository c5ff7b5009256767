package wake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// pollsAtOnce is how many questions of one provider's poller are under way at the same time, to different devices.
const pollsAtOnce = 128

// pollAgain is the largest factor by which a device that does not answer is asked less often.
const pollAgain = 8

// poller asks one provider's devices in turn. Machines that share limits (a BMC, a chassis, a cloud's account) are one
// unit. The queue ensures that a unit has one question of ours under way at most; the units' turns are spread over the
// period.
type poller struct {
	Options
	by    string
	queue workqueue.TypedDelayingInterface[string] // units, by key
	end   context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	units map[string]*unit
	slow  time.Duration // the longest period, as reported, of a unit that exceeds its configured period; 0: none does
}

// unit is a set of machines that share limits. Its fields are replaced, except for the last two, which hold whose turn
// it is.
type unit struct {
	provider providers.Provider
	batch    bool
	machines []machine.Machine
	pace     time.Duration // between two questions
	next     int           // the place of the machine that is asked next
	slower   int           // the factor by which it is asked less often, since it does not answer
}

// newPoller starts a poller that runs until ctx ends or stop is called. It asks no device until setTargets.
func newPoller(ctx context.Context, o Options, name string) *poller {
	p := &poller{Options: o, by: name, queue: workqueue.NewTypedDelayingQueue[string](), units: map[string]*unit{}}
	ctx, p.end = context.WithCancel(ctx)
	for range pollsAtOnce {
		p.done.Go(func() {
			for key, over := p.queue.Get(); !over; key, over = p.queue.Get() {
				if after := p.askUnit(ctx, key); after >= 0 {
					p.queue.AddAfter(key, after)
				}
				p.queue.Done(key)
			}
		})
	}
	return p
}

// stop ends the poller and waits for its questions.
func (p *poller) stop() {
	p.end()
	p.queue.ShutDown()
	p.done.Wait()
}

// setTargets sets which machines to ask from now on. Known units keep their turns; new ones are spread over the period.
func (p *poller) setTargets(w *polled) {
	limiter, _ := w.provider.(providers.Limiter)
	by := map[string][]machine.Machine{}
	for _, m := range w.machines {
		key := m.Device
		if limiter != nil {
			key = cmp.Or(limiter.LimitGroup(m.Target), key)
		}
		by[key] = append(by[key], m)
	}
	b, ok := w.provider.(providers.BatchStater)
	batch := ok && b.MaxStates() > 1
	longest, of := time.Duration(0), 0
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.units, func(key string, _ *unit) bool { return by[key] == nil })
	for i, key := range slices.Sorted(maps.Keys(by)) {
		u := p.units[key]
		if u == nil {
			u = &unit{slower: 1}
			p.units[key] = u
			p.queue.AddAfter(key, w.Every*time.Duration(i)/time.Duration(len(by)))
		}
		u.provider, u.batch, u.machines = w.provider, batch, by[key]
		questions := time.Duration(len(u.machines))
		if batch {
			questions = 1
		}
		u.pace = w.Every / questions
		if w.PerSecond > 0 {
			u.pace = max(u.pace, time.Duration(2*float64(time.Second)/w.PerSecond))
		}
		if takes := u.pace * questions; takes > max(longest, w.Every) {
			longest, of = takes, len(u.machines)
		}
	}
	if longest > p.slow {
		p.Log.Warn("Polling takes longer than configured, because of the provider's limits",
			"provider", p.by, "poll", w.Every.String(), "takes", longest.String(), "machines", of, "ratePerSecond",
			w.PerSecond)
	}
	p.slow = longest
}

// askUnit asks one question of a unit, and adds the hints that the answer gives. It returns after how long the next is
// due; less than 0 is never.
func (p *poller) askUnit(ctx context.Context, key string) time.Duration {
	p.mu.Lock()
	u := p.units[key]
	if u == nil || ctx.Err() != nil {
		p.mu.Unlock()
		return -1
	}
	ms, provider, batch, begun := u.machines, u.provider, u.batch, p.Now()
	if !batch {
		u.next %= len(ms)
		ms = ms[u.next : u.next+1]
		u.next++
	}
	p.mu.Unlock()
	targets := make([]providers.Target, len(ms))
	for i, m := range ms {
		targets[i] = m.Target
		targets[i].Heard = p.fleetView(m.Target.Node).Alive.Wall
	}
	answers := providers.AskAll(ctx, provider, p.by, targets, p.Now.Instant)
	if ctx.Err() != nil {
		return -1
	}
	off, known := findOff(answers)
	for i, a := range answers {
		if a.State == providers.PowerOn && !ms[i].Feeds {
			p.Fleet(func(f *fleet.Fleet) { f.ApplyOnAnswer(ms[i].Target.Node, a.Got) })
		}
		p.Metrics.polls.WithLabelValues(p.by, a.State.String()).Inc()
	}
	if batch && len(off) > 1 && 2*len(off) > len(answers) {
		p.Log.Warn("One answer says Off for most machines: it is not used as a hint",
			"provider", p.by, "off", len(off), "machines", len(answers))
		off = nil
	}
	for _, i := range off {
		if machine.DistrustedBy(p.Fleet)(ms[i]) == "" {
			p.reportOff(ctx, ms[i].Target.Node, answers[i])
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.slower = min(2*u.slower, pollAgain); known {
		u.slower = 1
	}
	return max(0, u.pace*time.Duration(u.slower)-p.Now().Sub(begun))
}

// findOff returns the places of the answers that are exactly Off, and whether any device knew anything. Unknown is no
// hint, no matter why.
func findOff(answers []providers.Answer) (off []int, known bool) {
	for i, a := range answers {
		switch a.State {
		case providers.PowerOff:
			off, known = append(off, i), true
		case providers.PowerOn, providers.PowerChanging:
			known = true
		case providers.PowerUnknown:
		}
	}
	return off, known
}

// reportOff wakes the node, whose look asks all of its devices again.
func (p *poller) reportOff(ctx context.Context, node string, a providers.Answer) {
	var before fleet.Source
	p.Fleet(func(f *fleet.Fleet) {
		before = f.View(node, p.Now.Instant()).Hint
		f.ApplyHint(node, fleet.Poll, p.Now.Instant())
	})
	if before == "" {
		p.Log.Info("A polled device says that the machine is off", "node", node, "provider", p.by, "raw", a.Raw)
	}
	p.wakeNode(ctx, node)
}
