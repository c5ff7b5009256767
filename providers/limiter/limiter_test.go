package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
)

// fake is a provider whose calls do what the test says.
type fake struct {
	state  func(ctx context.Context, t providers.Target) (providers.Observation, error)
	power  func(ctx context.Context, t providers.Target) error
	acts   func(ctx context.Context, still func() error) error // in the place of power
	closed atomic.Int32
}

func (f *fake) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	return f.state(ctx, t)
}
func (f *fake) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	if f.acts != nil {
		return f.acts(ctx, still)
	}
	return f.power(ctx, t)
}
func (f *fake) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return f.PowerOff(ctx, t, still)
}
func (f *fake) Close(context.Context) error { f.closed.Add(1); return nil }

// grouped is a fake whose targets are all behind one device.
type grouped struct{ *fake }

func (grouped) DeviceOf(providers.Target) string { return "the BMC" }

// chassis is a fake whose machines are all in one chassis, which limits them; each has a device of its own.
type chassis struct{ *fake }

func (chassis) LimitGroup(providers.Target) string { return "the chassis" }

func off(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{State: providers.PowerOff, Raw: "Off", At: providers.InstantOf(time.Unix(7, 0))}, nil
}

// now is off as of now.
func now(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{State: providers.PowerOff, Raw: "Off", At: providers.Now()}, nil
}

func options(o limiter.Options) limiter.Options {
	o.Name, o.Type, o.Log = "rack-a", "fake", slog.New(slog.DiscardHandler)
	return o
}

var n1 = providers.Target{Node: "n1", ID: "m1"}

func TestAnswersPassUnchanged(t *testing.T) {
	boom := errors.New("boom")
	g := limiter.New(&fake{
		state: func(ctx context.Context, t providers.Target) (providers.Observation, error) {
			if t.Node == "bad" {
				return providers.Observation{State: providers.PowerOff, Raw: "Off"},
					providers.WithClass(providers.ErrDenied, boom)
			}
			if t.Node == "now" {
				return now(ctx, t)
			}
			return off(ctx, t)
		},
		power: func(context.Context, providers.Target) error { return boom },
	}, options(limiter.Options{}))
	obs, err := g.State(t.Context(), n1)
	if want, _ := off(t.Context(), n1); obs != want || err != nil {
		t.Errorf("got %+v, %v", obs, err)
	}
	obs, err = g.State(t.Context(), providers.Target{Node: "bad"})
	if obs.State != providers.PowerUnknown || obs.Raw != "Off" || !errors.Is(err, providers.ErrDenied) ||
		!errors.Is(err, boom) {
		t.Errorf("got %+v, %v", obs, err)
	}
	n := providers.Target{Node: "now"}
	if err := g.PowerOff(t.Context(), n, providertest.AllowSend); !errors.Is(err, boom) {
		t.Errorf("PowerOff: got %v", err)
	}
	if err := g.PowerOn(t.Context(), n, providertest.AllowSend); !errors.Is(err, boom) {
		t.Errorf("PowerOn: got %v", err)
	}
}

// A provider that ignores its context must not hold up the caller, and its stuck calls must not pile up.
func TestStuckProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var inside atomic.Int32
		f := &fake{state: func(context.Context, providers.Target) (providers.Observation, error) {
			inside.Add(1)
			defer inside.Add(-1)
			<-release
			return providers.Observation{State: providers.PowerOff}, nil
		}}
		g := limiter.New(f, options(limiter.Options{Concurrency: 2, Setting: "providers[rack-a].timeout"}))
		started := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				obs, err := g.State(t.Context(), n1)
				if took := time.Since(started); took != 5*time.Second {
					t.Errorf("returned after %s", took)
				}
				if obs.State != providers.PowerUnknown || !errors.Is(err, providers.ErrUnreachable) ||
					!strings.Contains(err.Error(), "5s (providers[rack-a].timeout)") ||
					!strings.Contains(err.Error(), "ask state of node n1") {
					t.Errorf("got %s, %v", obs.State, err)
				}
			})
		}
		callers.Wait()
		if got := inside.Load(); got != 2 {
			t.Errorf("%d calls are stuck in the provider, want 2", got)
		}
		// Another device is not held up by this one: its calls reach the provider.
		go func() { _, _ = g.State(t.Context(), providers.Target{Node: "n2", ID: "m2"}) }()
		synctest.Wait()
		if got := inside.Load(); got != 3 {
			t.Errorf("another device: %d calls in the provider, want 3", got)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || f.closed.Load() != 0 {
			t.Errorf("Close with stuck calls: got %v, closed %d times", err, f.closed.Load())
		}
		close(release)
		synctest.Wait()
		if f.closed.Load() != 1 {
			t.Error("the provider was not closed when its last call came back")
		}
		if _, err := g.State(t.Context(), n1); !errors.Is(err, providers.ErrPermanent) {
			t.Errorf("State after Close: got %v", err)
		}
	})
}

func TestDeadlineNamesTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(&fake{state: func(ctx context.Context, _ providers.Target) (providers.Observation, error) {
			<-ctx.Done()
			return providers.Observation{}, fmt.Errorf("dialling: %w", ctx.Err())
		}}, options(limiter.Options{Timeout: 3 * time.Second}))
		_, err := g.State(t.Context(), n1)
		if !errors.Is(err, providers.ErrUnreachable) ||
			!strings.Contains(err.Error(), "no answer within 3s (timeout)") {
			t.Errorf("own deadline: got %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("shutting down (grace)"))
		defer cancel()
		_, err = g.State(ctx, n1)
		if !errors.Is(err, providers.ErrUnreachable) || !strings.Contains(err.Error(), "shutting down (grace)") {
			t.Errorf("caller's deadline: got %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err = g.State(ctx, n1); !errors.Is(err, context.Canceled) || errors.Is(err, providers.ErrUnreachable) {
			t.Errorf("caller gave up: got %v", err)
		}
	})
}

func plain(f *fake) providers.Provider { return f }

func TestLimitsArePerDevice(t *testing.T) {
	for _, tt := range []struct {
		name    string
		of      func(*fake) providers.Provider
		targets []providers.Target
		want    time.Duration // until all 6 calls of one second each, at most 2 at a time, are through
		devices int
	}{
		{"one target", plain, []providers.Target{{Node: "n1", ID: "a"}}, 3 * time.Second, 1},
		{"two ids", plain, []providers.Target{{Node: "n1", ID: "a"}, {Node: "n1", ID: "b"}}, 2 * time.Second, 2},
		{"two nodes without ids", plain, []providers.Target{{Node: "n1"}, {Node: "n2"}}, 2 * time.Second, 2},
		{"two ids behind one device", func(f *fake) providers.Provider { return grouped{f} },
			[]providers.Target{{Node: "n1", ID: "a"}, {Node: "n2", ID: "b"}}, 3 * time.Second, 1},
		{"two ids in one chassis", func(f *fake) providers.Provider { return chassis{f} },
			[]providers.Target{{Node: "n1", ID: "a"}, {Node: "n2", ID: "b"}}, 3 * time.Second, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{state: now,
					power: func(context.Context, providers.Target) error { time.Sleep(time.Second); return nil }}
				g := limiter.New(tt.of(f), options(limiter.Options{Timeout: time.Minute, Rate: 100, Burst: 100}))
				devices := map[string]bool{}
				for _, of := range tt.targets {
					devices[g.DeviceOf(of)] = true
				}
				if len(devices) != tt.devices { // what records name, and what is not believed after a lie
					t.Errorf("got devices %v, want %d", devices, tt.devices)
				}
				started := time.Now()
				var calls sync.WaitGroup
				for i := range 6 {
					calls.Go(func() {
						if err := g.PowerOff(t.Context(), tt.targets[i%len(tt.targets)],
							providertest.AllowSend); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
				if got := time.Since(started); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(&fake{state: off},
			options(limiter.Options{Rate: 1, Burst: 2, Timeout: 3500 * time.Millisecond}))
		started := time.Now()
		for range 4 {
			if _, err := g.State(t.Context(), n1); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(started); got != 2*time.Second {
			t.Errorf("4 calls at 1 per second, 2 at once: got %s", got)
		}
		var calls sync.WaitGroup
		var refused atomic.Int32
		for range 6 {
			calls.Go(func() {
				if _, err := g.State(t.Context(), n1); errors.Is(err, providers.ErrUnreachable) {
					refused.Add(1)
				}
			})
		}
		calls.Wait()
		if got := refused.Load(); got != 3 {
			t.Errorf("6 calls with turns for 3 within the deadline: %d refused", got)
		}
	})
}

// A call that gets no turn gives its slot back. Else each such call would keep one, and the device could not be asked
// after as many calls as its limit.
func TestCallWithoutTurnReturnsItsSlot(t *testing.T) {
	const limit = 2
	for _, tt := range []struct {
		name  string
		fails func(t *testing.T, g *limiter.Provider) error
		want  error
	}{
		{"the rate leaves no turn", func(t *testing.T, g *limiter.Provider) error {
			_, err := g.State(t.Context(), n1)
			return err
		}, providers.ErrUnreachable},
		{"the caller has gone before", func(t *testing.T, g *limiter.Provider) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := g.State(ctx, n1)
			return err
		}, context.Canceled},
		{"the caller goes while it waits for the rate", func(t *testing.T, g *limiter.Provider) error {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := g.State(ctx, n1)
			return err
		}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timeout := time.Second
				if errors.Is(tt.want, context.Canceled) {
					timeout = time.Minute // the rate would give a turn
				}
				g := limiter.New(&fake{state: off}, options(limiter.Options{
					Rate: 0.1, Burst: 2, Concurrency: limit, Timeout: timeout}))
				for range 2 { // they use all turns of the next 10 s
					if _, err := g.State(t.Context(), n1); err != nil {
						t.Fatal(err)
					}
				}
				for range 20 * limit { // select is fair: a caller who has gone gets a slot every other time
					if err := tt.fails(t, g); !errors.Is(err, tt.want) {
						t.Fatalf("a call without a turn: got %v, want %v", err, tt.want)
					}
				}
				time.Sleep(11 * time.Second) // one turn, and not all: the device is not swept
				if _, err := g.State(t.Context(), n1); err != nil {
					t.Errorf("the next call: got %v", err)
				}
			})
		})
	}
}

// Devices come and go (nodes of an autoscaler); what the limiter keeps of them must not grow.
func TestStateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(&fake{state: off}, options(limiter.Options{}))
		for i := range 1000 {
			if _, err := g.State(t.Context(), providers.Target{Node: fmt.Sprint("n", i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := limiter.Devices(g); got > 30 {
			t.Errorf("the limiter remembers %d devices", got)
		}
	})
}

// A device with a call inside keeps its limits, however long the call takes: a second set would let more calls in than
// the device can take.
func TestDeviceInUseIsNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var inside atomic.Int32
		g := limiter.New(&fake{state: func(_ context.Context, t providers.Target) (providers.Observation, error) {
			if t == n1 {
				inside.Add(1)
				defer inside.Add(-1)
				<-release
			}
			return providers.Observation{}, nil
		}}, options(limiter.Options{Concurrency: 1}))
		_, _ = g.State(t.Context(), n1) // stuck
		time.Sleep(time.Minute)         // the rate has recovered
		if _, err := g.State(t.Context(), providers.Target{Node: "n2", ID: "m2"}); err != nil {
			t.Fatal(err) // it sweeps
		}
		if _, err := g.State(t.Context(), n1); !errors.Is(err, providers.ErrUnreachable) || inside.Load() != 1 {
			t.Errorf("behind a stuck call: got %v, %d calls inside", err, inside.Load())
		}
		close(release)
		synctest.Wait()
	})
}

func TestPanics(t *testing.T) {
	g := limiter.New(&fake{}, options(limiter.Options{Concurrency: 1})) // nil functions
	for range 3 {
		if _, err := g.State(t.Context(), n1); !errors.Is(err, providers.ErrPermanent) ||
			!strings.Contains(err.Error(), "panicked") {
			t.Errorf("State: got %v", err)
		}
		if err := g.PowerOff(t.Context(), n1, providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) {
			t.Errorf("PowerOff: got %v", err)
		}
	}
	var nilGroup *grouped
	g = limiter.New(nilGroup, options(limiter.Options{}))
	if _, err := g.State(t.Context(), n1); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("a Grouper that panics: got %v", err)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 { // a reload of the configuration makes a new limiter
		m, err := limiter.NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		g := limiter.New(
			&fake{state: now, power: func(context.Context, providers.Target) error { return providers.ErrDenied }},
			options(limiter.Options{Metrics: m}))
		_, _ = g.State(t.Context(), n1)
		_ = g.PowerOff(t.Context(), n1, providertest.AllowSend)
		_ = g.PowerOn(t.Context(), n1, providertest.AllowSend)
		_ = g.PowerOn(t.Context(), providers.Target{Node: "n1", Claimed: true}, providertest.AllowSend)
		_ = g.Close(t.Context())
		_, _ = g.State(t.Context(), n1)
	}
	want := callsHelp + `
# TYPE forcefence_provider_calls_total counter
forcefence_provider_calls_total{call="power_off",result="denied",type="fake"} 2
forcefence_provider_calls_total{call="power_on",result="denied",type="fake"} 2
forcefence_provider_calls_total{call="power_on",result="identity",type="fake"} 2
forcefence_provider_calls_total{call="state",result="off",type="fake"} 6
forcefence_provider_calls_total{call="state",result="permanent",type="fake"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "forcefence_provider_calls_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "forcefence_provider_call_seconds"); n != 3 || err != nil {
		t.Errorf("histograms: got %d, %v", n, err)
	}
	if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
		t.Errorf("lint: %v, %v", problems, err)
	}
	clash := prometheus.NewRegistry()
	clash.MustRegister(
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "forcefence_provider_calls_total", Help: "someone else's"}))
	if _, err := limiter.NewMetrics(clash); err == nil {
		t.Error("a name that is taken by another collector was not reported")
	}
	if m, err := limiter.NewMetrics(nil); m == nil || err != nil {
		t.Errorf("without a Registerer: got %v, %v", m, err)
	}
}

func TestClose(t *testing.T) {
	f := &fake{}
	g := limiter.New(f, options(limiter.Options{}))
	for range 2 {
		if err := g.Close(t.Context()); err != nil || f.closed.Load() != 1 {
			t.Errorf("got %v, closed %d times", err, f.closed.Load())
		}
	}
}

// placing hangs on the hypervisor "dead".
type placing struct{ providers.Provider }

func (placing) FindGuest(ctx context.Context, hypervisor string, _ providers.Target) (providers.Placement, error) {
	if hypervisor == "dead" {
		<-ctx.Done()
		return providers.Placement{}, ctx.Err()
	}
	return providers.Placement{Absent: true, At: providers.Now()}, nil
}

// TestPlace: one hypervisor that does not answer delays no other, and a provider that knows none returns an error.
func TestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(placing{}, limiter.Options{Name: "group", Concurrency: 1})
		target := providers.Target{Node: "n1", ID: "n1"}
		dead := make(chan providers.PlaceAnswer)
		go func() { dead <- providers.AskPlace(t.Context(), g, "dead", target, providers.Now) }()
		synctest.Wait()
		if p := providers.AskPlace(t.Context(), g, "alive", target, providers.Now); !p.Absent || p.Got != p.At {
			t.Errorf("got %+v, want an answer at once", p)
		}
		if p := <-dead; p.Absent || !errors.Is(p.Err, providers.ErrUnreachable) {
			t.Errorf("got %+v, want no answer", p)
		}
		none := limiter.New(struct{ providers.Provider }{}, limiter.Options{Name: "racks"})
		if p := providers.AskPlace(t.Context(), none, "alive", target, providers.Now); p.Absent ||
			!errors.Is(p.Err, providers.ErrPermanent) {
			t.Errorf("got %+v, want a refusal", p)
		}
	})
}

const callsHelp = "# HELP forcefence_provider_calls_total Calls to providers. The result is the power state of an " +
	"answered question, ok for an accepted request or a batch, or the error's class."

// storing is a provider whose power-offs others carry out.
type storing struct {
	fake
	withdrawn func(context.Context) error
}

func (s *storing) Withdraw(ctx context.Context, _ providers.Target) error { return s.withdrawn(ctx) }

// A withdrawal asks no identity, ends by the deadline, and survives a panic. Other types have nothing to take back.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			withdrawn func(context.Context) error
			want      error
		}{
			"done":   {func(context.Context) error { return nil }, nil},
			"fails":  {func(context.Context) error { return providers.ErrDenied }, providers.ErrDenied},
			"hangs":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, providers.ErrUnreachable},
			"panics": {func(context.Context) error { panic("oops") }, providers.ErrPermanent},
		} {
			g := limiter.New(&storing{withdrawn: tt.withdrawn}, options(limiter.Options{}))
			if err := g.Withdraw(t.Context(), n1); !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		}
		if err := limiter.New(&fake{}, options(limiter.Options{})).Withdraw(t.Context(), n1); err != nil {
			t.Errorf("a type without orders: got %v", err)
		}
	})
}
