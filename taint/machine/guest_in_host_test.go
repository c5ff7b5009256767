package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
)

// lodgings are hypervisors with a guest on one of them, their hosts, and what was asked.
type lodgings struct {
	mu    sync.Mutex // guards what follows
	on    map[string]bool
	holes map[string]bool          // hypervisors whose packets are lost
	slow  map[string]time.Duration // hypervisors that take their time
	guest string                   // the hypervisor that has it; "" none
	takes time.Duration            // a host's device
	asked []string
	then  func(question string) // called with each question that arrives
}

func (l *lodgings) arrives(question string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, question)
	if l.then != nil {
		l.then(question)
	}
}

func (l *lodgings) FindGuest(ctx context.Context, hypervisor string, _ providers.Target) (providers.Placement, error) {
	at := time.Now()
	l.arrives("on " + hypervisor)
	l.mu.Lock()
	hole, slow := l.holes[hypervisor], l.slow[hypervisor]
	l.mu.Unlock()
	if hole {
		<-ctx.Done()
		return providers.Placement{}, providers.WithClass(providers.ErrUnreachable, ctx.Err())
	}
	time.Sleep(slow)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on[hypervisor] {
		return providers.Placement{}, providers.ErrUnreachable
	}
	return providers.Placement{Absent: l.guest != hypervisor, Raw: hypervisor, At: providers.InstantOf(at)}, nil
}

func (l *lodgings) State(_ context.Context, t providers.Target) (providers.Observation, error) {
	at := time.Now()
	l.arrives("host of " + t.ID)
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	obs := providers.Observation{State: providers.PowerOff, At: providers.InstantOf(at)}
	if l.on[t.ID] {
		obs.State = providers.PowerOn
	}
	return obs, nil
}
func (*lodgings) PowerOff(context.Context, providers.Target, func() error) error {
	panic("a host is powered off")
}
func (*lodgings) PowerOn(context.Context, providers.Target, func() error) error {
	panic("a host is powered on")
}

// within makes three hypervisors x, y and z with the guest on x.
func within() (*lodgings, *Within) {
	l := &lodgings{on: map[string]bool{"x": true, "y": true, "z": true}, holes: map[string]bool{},
		slow: map[string]time.Duration{}, guest: "x", takes: 100 * time.Millisecond}
	w := &Within{Guests: l, Now: providers.Now}
	for _, name := range []string{"x", "y", "z"} {
		w.Hosts = append(w.Hosts,
			&Host{Hypervisor: name, Name: "bmcs/" + name,
				Device: providers.Question{Provider: l, By: "bmcs", Target: providers.Target{ID: name}}})
	}
	return l, w
}

func (l *lodgings) dies(hypervisor string) { l.on[hypervisor], l.holes[hypervisor] = false, true }

// The questions come in the order that proves: a host that is off was heard before the other hypervisors are asked for
// the last time.
func TestWithinAsksInOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		world func(*lodgings)
		want  providers.PowerState
		err   error
		took  time.Duration
		asked []string // sorted
	}{
		{
			"it is where it was", func(l *lodgings) {}, providers.PowerUnknown, nil, 100 * time.Millisecond,
			[]string{"host of x", "on x", "on y", "on z"},
		},
		{
			"its host lost its power", func(l *lodgings) { l.dies("x") }, providers.PowerOff, nil,
			hostAskDelay + 100*time.Millisecond,
			[]string{"host of x", "on x", "on y", "on y", "on z", "on z"},
		},
		{
			"the host refuses connections", func(l *lodgings) { l.on["x"] = false }, providers.PowerOff, nil,
			100 * time.Millisecond,
			[]string{"host of x", "on x", "on y", "on y", "on z", "on z"},
		},
		{
			"two hosts lost their power", func(l *lodgings) { l.dies("x"); l.dies("z") }, providers.PowerOff, nil,
			hostAskDelay + 100*time.Millisecond,
			[]string{"host of x", "host of z", "on x", "on y", "on y", "on z"},
		},
		{
			"only its hypervisor hangs", func(l *lodgings) { l.holes["x"] = true }, providers.PowerUnknown,
			providers.ErrUnreachable, 5 * time.Second,
			[]string{"host of x", "on x", "on y", "on z"},
		},
		{
			"another hypervisor is slow", func(l *lodgings) { l.dies("x"); l.slow["y"] = time.Second },
			providers.PowerOff, nil, 2 * time.Second,
			[]string{"host of x", "host of y", "on x", "on y", "on y", "on z", "on z"},
		},
		{
			"it has left before its host died", func(l *lodgings) { l.dies("x"); l.guest = "y" },
			providers.PowerUnknown, nil, hostAskDelay + 100*time.Millisecond,
			[]string{"host of x", "host of y", "on x", "on y", "on z"},
		},
		{
			"it leaves while it is asked about", func(l *lodgings) {
				l.then = func(q string) { // y was asked by then
					if q == "host of x" && !l.holes["x"] {
						l.guest = "y"
						l.dies("x")
					}
				}
				l.slow["x"] = hostAskDelay + 50*time.Millisecond
			}, providers.PowerUnknown, nil, hostAskDelay + 100*time.Millisecond,
			[]string{"host of x", "on x", "on y", "on y", "on z", "on z"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, w := within()
				tt.world(l)
				begun := time.Now()
				a := providers.Ask(t.Context(), w, "guests", providers.Target{Node: "n1", ID: "n1"}, providers.Now)
				if took := time.Since(begun); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				if a.State != tt.want || !errors.Is(a.Err, tt.err) {
					t.Errorf("got %s %q, %v; want %s, %v", a.State, a.Raw, a.Err, tt.want, tt.err)
				}
				if a.State == providers.PowerOff &&
					(a.At.Before(providers.InstantOf(begun)) || a.Got.Sub(a.At) > tt.took) {
					t.Errorf("asked at %s, and it is of %s", begun, a.At)
				}
				if slices.Sort(l.asked); !slices.Equal(l.asked, tt.asked) {
					t.Errorf("asked %q, want %q", l.asked, tt.asked)
				}
			})
		})
	}
}

// A hypervisor that answers, though the device of its host says Off: that is another host's device.
func TestWithinMisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := within()
		l.slow["x"] = hostAskDelay + 50*time.Millisecond // it answers when its host's device is under way
		w.Hosts[0].Device.Target.ID = "spare"            // a machine that is off
		a := providers.Ask(t.Context(), w, "guests", providers.Target{Node: "n1"}, providers.Now)
		if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrPermanent) ||
			!strings.Contains(a.Err.Error(), "bmcs/x") {
			t.Errorf("got %s %q, %v; want which host", a.State, a.Raw, a.Err)
		}
	})
}

// The guests of a host that died ask together, and its BMC is asked twice: once for the first, and once for all who
// came meanwhile.
func TestGuestsShareAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := within()
		l.dies("x")
		var wait sync.WaitGroup
		for range 40 {
			wait.Go(func() {
				begun := time.Now()
				if a := providers.Ask(t.Context(), w, "guests", providers.Target{Node: "n1"},
					providers.Now); a.State != providers.PowerOff || a.At.Before(providers.InstantOf(begun)) {
					t.Errorf("got %s, %v, of %s", a.State, a.Err, a.At)
				}
			})
		}
		wait.Wait()
		asked := 0
		for _, q := range l.asked {
			if q == "host of x" {
				asked++
			}
		}
		if asked > 2 {
			t.Errorf("the host's device was asked %d times", asked)
		}
	})
}

// A host is never powered off because one of its guests is silent.
func TestWithinHasNoPower(t *testing.T) {
	_, w := within()
	for _, act := range []func(context.Context, providers.Target, func() error) error{w.PowerOff, w.PowerOn} {
		if err := act(t.Context(), providers.Target{Node: "n1"}, providertest.AllowSend); !errors.Is(err,
			providers.ErrPermanent) {
			t.Errorf("got %v, want a refusal", err)
		}
	}
}
