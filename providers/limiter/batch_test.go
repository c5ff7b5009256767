package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

// cloud is a fake with batches: a region that answers for all its machines, or fails as a whole.
type cloud struct {
	*fake
	most   int
	states func(ctx context.Context, ids []string) (map[string]providers.Observation, error)

	mu    sync.Mutex // guards calls
	calls [][]string
}

func (c *cloud) MaxStates() int                     { return c.most }
func (*cloud) LimitGroup(t providers.Target) string { return t.ID[:1] } // the region
func (c *cloud) asked() [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}
func (c *cloud) limit(o limiter.Options) *limiter.Provider { return limiter.New(c, options(o)) }

func (c *cloud) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	var ids []string
	for _, t := range targets {
		ids = append(ids, t.ID)
	}
	c.mu.Lock()
	c.calls = append(c.calls, ids)
	c.mu.Unlock()
	return c.states(ctx, ids)
}

func all(_ context.Context, ids []string) (map[string]providers.Observation, error) {
	out := map[string]providers.Observation{}
	for _, id := range ids {
		out[id] = providers.Observation{State: providers.PowerOff, Raw: "stopped", At: providers.Now()}
	}
	return out, nil
}

func machines(region string, n int) (out []providers.Target) {
	for i := range n {
		out = append(out, providers.Target{Node: fmt.Sprint("n", i), ID: fmt.Sprintf("%s%04d", region, i)})
	}
	return out
}

// wantAll asks for all and compares the errors of those that have one, by ID.
func wantAll(t *testing.T, p providers.Provider, targets []providers.Target, wrong map[string]error) {
	t.Helper()
	for i, a := range providers.AskAll(t.Context(), p, "rack-a", targets, providers.Now) {
		want := wrong[targets[i].ID]
		if (a.State == providers.PowerOff) != (want == nil) || !errors.Is(a.Err, want) ||
			(a.Err == nil) != (want == nil) {
			t.Errorf("%s: got %s, %v; want %v", targets[i].ID, a.State, a.Err, want)
		}
	}
}

func TestBatchesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{most: 1000, states: all}
		targets := append(machines("a", 2500), machines("b", 3)...)
		targets = append(targets, targets[0], targets[7]) // two nodes that are led to one machine
		wantAll(t, c.limit(limiter.Options{}), targets, nil)
		got, seen := []string{}, map[string]bool{}
		for _, ids := range c.asked() {
			got = append(got, fmt.Sprintf("%s %d", ids[0][:1], len(ids)))
			for _, id := range ids {
				if seen[id] || id[:1] != ids[0][:1] {
					t.Errorf("%s was asked for twice, or among another region's", id)
				}
				seen[id] = true
			}
		}
		if slices.Sort(got); fmt.Sprint(got) != "[a 1000 a 1000 a 500 b 3]" {
			t.Errorf("got calls %v", got)
		}
	})
}

// One target costs the others nothing: not where the device leaves it out, not where it fails the whole call.
func TestOneTargetFailsNoOther(t *testing.T) {
	notFound := providers.WithClass(providers.ErrNotFound, errors.New("InvalidInstanceID.NotFound"))
	zone := providers.WithClass(providers.ErrUnreachable, errors.New("the zone is impaired"))
	for _, tt := range []struct {
		name   string
		states func(ctx context.Context, ids []string) (map[string]providers.Observation, error)
		wrong  map[string]error
		calls  int // at most
	}{
		{"left out", func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
			out, err := all(ctx, ids)
			delete(out, "a0500")
			return out, err
		}, map[string]error{"a0500": providers.ErrNotFound}, 1},
		{"fails the call", func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
			if slices.Contains(ids, "a0500") || slices.Contains(ids, "a0007") {
				return nil, notFound
			}
			return all(ctx, ids)
		}, map[string]error{"a0500": notFound, "a0007": notFound}, 40},
		{"fails without a class", func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
			if slices.Contains(ids, "a0500") {
				return nil, errNone
			}
			return all(ctx, ids)
		}, map[string]error{"a0500": errNone}, 21},
		{"has an error of its own", func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
			out, _ := all(ctx, ids)
			delete(out, "a0500")
			delete(out, "a0007")
			return out, fmt.Errorf("describing: %w", providers.Unanswered{"a0500": zone})
		}, map[string]error{"a0500": zone, "a0007": providers.ErrNotFound}, 1},
		{"the rest has the call's error",
			func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
				out, _ := all(ctx, ids)
				delete(out, "a0500")
				return out, zone
			}, map[string]error{"a0500": zone}, 1},
		{"answers for others", func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
			out, err := all(ctx, ids)
			out["a9999"] = out["a0500"]
			delete(out, "a0500")
			return out, err
		}, map[string]error{"a0500": providers.ErrNotFound}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cloud{most: 1000, states: tt.states}
				wantAll(t, c.limit(limiter.Options{}), append(machines("a", 1000), machines("b", 1)...), tt.wrong)
				if got := len(c.asked()) - 1; got > tt.calls {
					t.Errorf("%d calls, want at most %d", got, tt.calls)
				}
			})
		})
	}
}

var errNone = errors.New("no class")

// A device that is down, or does not let us in, is not asked twenty times more.
func TestFailedBatchIsNotSplit(t *testing.T) {
	for _, class := range []error{providers.ErrUnreachable, providers.ErrDenied, providers.ErrUntrusted} {
		c := &cloud{most: 10,
			states: func(context.Context, []string) (map[string]providers.Observation, error) { return nil, class }}
		wrong := map[string]error{}
		for _, m := range machines("a", 10) {
			wrong[m.ID] = class
		}
		wantAll(t, c.limit(limiter.Options{}), machines("a", 10), wrong)
		if got := len(c.asked()); got != 1 {
			t.Errorf("%v: %d calls", class, got)
		}
	}
}

// A batch is one call: it has one turn, one place and one deadline, with its halves.
func TestBatchIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		c := &cloud{most: 10,
			states: func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				time.Sleep(time.Second)
				return all(ctx, ids)
			}}
		started := time.Now()
		wantAll(t, c.limit(limiter.Options{Concurrency: 2, Timeout: time.Minute}), machines("a", 60), nil)
		if took := time.Since(started); took != 3*time.Second || most.Load() != 2 {
			t.Errorf("6 calls of a second, 2 at a time: took %s, %d at a time", took, most.Load())
		}

		c = &cloud{most: 10, states: all}
		started = time.Now()
		wantAll(t, c.limit(limiter.Options{Rate: 1, Burst: 2}), machines("a", 50), nil)
		if took := time.Since(started); took != 3*time.Second {
			t.Errorf("5 calls at 1 per second, 2 at once: took %s", took)
		}

		c = &cloud{most: 1000,
			states: func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
				select {
				case <-time.After(time.Second):
					return nil, providers.ErrNotFound
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}
		started = time.Now()
		for _, a := range providers.AskAll(t.Context(), c.limit(limiter.Options{}), "p", machines("a", 1000),
			providers.Now) {
			if a.State != providers.PowerUnknown || a.Err == nil {
				t.Fatalf("got %+v", a)
			}
		}
		if took := time.Since(started); took != 5*time.Second {
			t.Errorf("all missing: took %s", took)
		}

		stuck := make(chan struct{})
		c = &cloud{most: 1000,
			states: func(context.Context, []string) (map[string]providers.Observation, error) {
				<-stuck
				return nil, nil
			}}
		g := c.limit(limiter.Options{})
		started = time.Now()
		for _, a := range providers.AskAll(t.Context(), g, "p", machines("a", 3), providers.Now) {
			if !errors.Is(a.Err, providers.ErrUnreachable) ||
				!strings.Contains(a.Err.Error(), "ask states of 3 machines (provider rack-a): no answer within 5s "+
					"(timeout)") {
				t.Errorf("stuck: got %v", a.Err)
			}
		}
		if took := time.Since(started); took != 5*time.Second {
			t.Errorf("stuck: took %s", took)
		}
		close(stuck)
		_ = g.Close(t.Context())
		if _, err := g.States(t.Context(), machines("a", 1)); !errors.Is(err, providers.ErrPermanent) {
			t.Errorf("closed: got %v", err)
		}
	})
}

// A provider without batches is asked target by target, each under its device's limits; what panics answers nothing.
func TestStatesWithoutBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(&fake{state: func(_ context.Context, t providers.Target) (providers.Observation, error) {
			at := time.Now()
			time.Sleep(time.Second)
			switch t.ID {
			case "a0003":
				return providers.Observation{}, providers.ErrDenied
			case "a0004":
				panic("nil map")
			}
			return providers.Observation{State: providers.PowerOff, At: providers.InstantOf(at)}, nil
		}}, options(limiter.Options{}))
		started := time.Now()
		wantAll(t, g, machines("a", 100),
			map[string]error{"a0003": providers.ErrDenied, "a0004": providers.ErrPermanent})
		if took := time.Since(started); took != 2*time.Second {
			t.Errorf("100 devices, 64 at a time: took %s", took)
		}
	})
	panics := &cloud{most: 10,
		states: func(context.Context, []string) (map[string]providers.Observation, error) { panic("nil map") }}
	wantAll(t, panics.limit(limiter.Options{}), machines("a", 1), map[string]error{"a0000": providers.ErrPermanent})
	nilCloud := limiter.New((*cloud)(nil), options(limiter.Options{}))
	wantAll(t, nilCloud, machines("a", 1), map[string]error{"a0000": providers.ErrPermanent})
	if got, err := nilCloud.States(t.Context(), nil); len(got) != 0 {
		t.Errorf("no targets: got %v, %v", got, err)
	}
}

func TestBatchMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := limiter.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{most: 10, states: func(ctx context.Context, ids []string) (map[string]providers.Observation, error) {
		if slices.Contains(ids, "a0011") {
			return nil, providers.ErrDenied
		}
		return all(ctx, ids)
	}}
	_, _ = c.limit(limiter.Options{Metrics: m}).States(t.Context(), machines("a", 30))
	want := callsHelp + `
# TYPE forcefence_provider_calls_total counter
forcefence_provider_calls_total{call="states",result="denied",type="fake"} 1
forcefence_provider_calls_total{call="states",result="ok",type="fake"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "forcefence_provider_calls_total"); err != nil {
		t.Error(err)
	}
}
