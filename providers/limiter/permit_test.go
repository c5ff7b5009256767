package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
)

var errDeposed = errors.New("no longer the leader")

// TestPermitIsCheckedLast: the identity is confirmed first, then a slot is waited for, then still is asked, then the
// provider acts.
func TestPermitIsCheckedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		began := time.Now()
		note := func(what string) { order = append(order, fmt.Sprint(what, " ", time.Since(began).Round(time.Second))) }
		g := limiter.New(&fake{
			state: func(ctx context.Context, of providers.Target) (providers.Observation, error) {
				note("identity")
				defer time.Sleep(4 * time.Second)
				return now(ctx, of)
			},
			acts: func(_ context.Context, still func() error) error {
				note("act")
				return providers.PermitSends(still)()
			},
		}, options(limiter.Options{}))
		err := g.PowerOff(t.Context(), n1, func() error { note("still"); return nil })
		if got := strings.Join(order, ", "); err != nil || got != "identity 0s, still 4s, act 4s, still 4s" {
			t.Errorf("got %s, %v", got, err)
		}
		// Deposed while the device answers the identity question: the provider is not called.
		order, began = nil, time.Now()
		err = g.PowerOff(t.Context(), n1, func() error {
			if time.Since(began) > 3*time.Second {
				return errDeposed
			}
			return nil
		})
		if !errors.Is(err, providers.ErrNotSent) || !errors.Is(err, errDeposed) ||
			strings.Join(order, ", ") != "identity 0s" {
			t.Errorf("deposed: got %v after %s", err, order)
		}
	})
}

// TestConfirmedLately: an answer that is at most 15 s old and confirmed the identity spares one power action the
// question.
func TestConfirmedLately(t *testing.T) {
	machine := providers.Target{Node: "n1", ID: "m1", SystemUUID: uuid}
	moved := machine
	moved.SystemUUID = other
	claimed := machine
	claimed.Claimed = true
	heard := machine
	heard.Heard = time.Unix(7, 0)
	tells := func(uuid string, err error) func() (providers.Observation, error) {
		return func() (providers.Observation, error) {
			return providers.Observation{State: providers.PowerOn, SystemUUID: uuid, At: providers.Now()}, err
		}
	}
	right, wrong := tells(uuid, nil), tells(other, nil)
	for _, tt := range []struct {
		name    string
		answers []func() (providers.Observation, error) // to a State each, a second apart
		wait    time.Duration                           // after the last
		of      providers.Target
		before  int // power actions that came first
		asks    int // questions of the power action's own
	}{
		{name: "never asked", of: machine, asks: 1},
		{name: "asked just now", answers: list(right), of: machine, asks: 0},
		{name: "asked just now, and heard since", answers: list(right), of: heard, asks: 0},
		{name: "asked 15 s ago", answers: list(right), wait: 14 * time.Second, of: machine, asks: 0},
		{name: "asked 16 s ago", answers: list(right), wait: 15 * time.Second, of: machine, asks: 1},
		{name: "used up", answers: list(right), of: machine, before: 1, asks: 1},
		{name: "its power cannot be read", answers: list(tells(uuid, providers.ErrUnreachable)), of: machine,
			asks: 0},
		{name: "did not answer", answers: list(tells("", providers.ErrUnreachable)), of: machine, asks: 1},
		{name: "did not answer later", answers: list(right, tells("", providers.ErrUnreachable)), of: machine, asks: 0},
		{name: "another machine", answers: list(wrong), of: machine, asks: 1},
		{name: "another machine since", answers: list(right, wrong), of: machine, asks: 1},
		{name: "another machine, whose power cannot be read, since",
			answers: list(right, tells(other, providers.ErrUnreachable)), of: machine, asks: 1},
		{name: "another machine once", answers: list(wrong, right), of: machine, asks: 0},
		{name: "the node has another UUID since", answers: list(right), of: moved, asks: 1},
		{name: "the kubelet's word since", answers: list(right), of: claimed, asks: 1},
	} {
		for _, batch := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				answer, asked := right, 0
				inner := &fake{
					state: func(_ context.Context, of providers.Target) (providers.Observation, error) {
						asked++
						return answer()
					},
					power: func(context.Context, providers.Target) error { return nil },
				}
				g := limiter.New(inner, options(limiter.Options{}))
				if batch {
					g = limiter.New(
						&cloud{fake: inner, most: 9,
							states: func(_ context.Context, ids []string) (map[string]providers.Observation, error) {
								obs, err := answer()
								if err != nil && obs.SystemUUID == "" {
									return nil, err
								}
								return map[string]providers.Observation{ids[0]: obs}, nil
							}}, options(limiter.Options{}))
				}
				for _, a := range tt.answers {
					answer = a
					if batch {
						_, _ = g.States(t.Context(), []providers.Target{machine})
					} else {
						_, _ = g.State(t.Context(), machine)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(tt.wait)
				answer = tells(tt.of.SystemUUID, nil)
				for range tt.before {
					if err := g.PowerOff(t.Context(), tt.of, providertest.AllowSend); err != nil {
						t.Fatal(err)
					}
				}
				asked = 0
				if err := g.PowerOn(t.Context(), tt.of, providertest.AllowSend); err != nil || asked != tt.asks {
					t.Errorf("%s, batch %t: asked %d times, want %d (%v)", tt.name, batch, asked, tt.asks, err)
				}
			})
		}
	}
}

func list[T any](of ...T) []T { return of }

// TestOlderQuestionConfirmsNothing: an answer that comes after a power action, to a question from before it, serves no
// other action.
func TestOlderQuestionConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		g := limiter.New(&fake{
			state: func(context.Context, providers.Target) (providers.Observation, error) {
				first := asked.Add(1) == 1
				at := providers.Now()
				if first {
					time.Sleep(3 * time.Second)
				}
				return providers.Observation{State: providers.PowerOn, At: at}, nil
			},
			power: func(context.Context, providers.Target) error { return nil },
		}, options(limiter.Options{}))
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = g.State(t.Context(), n1)
		}()
		time.Sleep(time.Second)
		for range 2 {
			if err := g.PowerOff(t.Context(), n1, providertest.AllowSend); err != nil {
				t.Fatal(err)
			}
			<-answered
		}
		if asked.Load() != 3 {
			t.Errorf("asked %d times, want one question before each power action", asked.Load()-1)
		}
	})
}

// TestIdentitiesAreForgotten: what is too old to count takes no memory.
func TestIdentitiesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limiter.New(&fake{state: now, power: func(context.Context, providers.Target) error { return nil }},
			options(limiter.Options{Rate: 1e6, Burst: 1e6}))
		for i := range 100 {
			of := providers.Target{Node: "n", ID: fmt.Sprint(i)}
			if _, err := g.State(t.Context(), of); err != nil {
				t.Fatal(err)
			}
			if err := g.PowerOff(t.Context(), of, providertest.AllowSend); err != nil {
				t.Fatal(err)
			}
		}
		if n := limiter.Identities(g); n != 100 {
			t.Errorf("%d identities are remembered, want 100", n)
		}
		time.Sleep(31 * time.Second)
		if _, err := g.State(t.Context(), n1); err != nil || limiter.Identities(g) != 1 {
			t.Errorf("%d identities are remembered, want 1 (%v)", limiter.Identities(g), err)
		}
	})
}

// TestConfirmedByBothClocks: a suspension, or a clock that is set, makes no confirmation younger.
func TestConfirmedByBothClocks(t *testing.T) {
	sent := providers.InstantOf(time.Unix(1000, 0))
	for _, tt := range []struct {
		wall, mono time.Duration
		want       bool
	}{
		{15 * time.Second, 15 * time.Second, true},
		{10 * time.Minute, time.Second, false}, // suspended
		{-10 * time.Minute, 16 * time.Second, false},
		{-10 * time.Minute, 15 * time.Second, true},
	} {
		now := providers.Instant{Wall: sent.Wall.Add(tt.wall), Mono: sent.Mono + tt.mono}
		if got := limiter.ConfirmedAt(sent, now); got != tt.want {
			t.Errorf("wall clock %s, monotonic clock %s: got %t", tt.wall, tt.mono, got)
		}
	}
}

// TestLateProviderMaySendNothing: a provider that ignores its context asks still after the limiter's call has returned.
func TestLateProviderMaySendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, asked := make(chan error, 1), 0
		g := limiter.New(&fake{state: now, acts: func(_ context.Context, still func() error) error {
			time.Sleep(time.Minute)
			err := providers.PermitSends(still)()
			late <- err
			return err
		}}, options(limiter.Options{}))
		err := g.PowerOff(t.Context(), n1, func() error { asked++; return nil })
		if !errors.Is(err, providers.ErrUnreachable) || errors.Is(err, providers.ErrNotSent) {
			t.Errorf("the call: got %v, want the deadline", err)
		}
		if err := <-late; err == nil || asked != 1 {
			t.Errorf("still after the call: got %v, asked %d times; want a refusal without a question", err, asked)
		}
	})
}

// TestNotSentIsTrue: the limiter lets no provider claim that nothing was sent which was allowed to send.
func TestNotSentIsTrue(t *testing.T) {
	for _, tt := range []struct {
		name  string
		acts  func(_ context.Context, still func() error) error
		still func() error
		want  string
	}{
		{"claims it after it was allowed", func(_ context.Context, still func() error) error {
			return errors.Join(still(), providers.ErrNotSent)
		}, providertest.AllowSend, "unreachable"},
		{"claims it, and never asked", func(context.Context, func() error) error { return providers.ErrNotSent },
			providertest.AllowSend, "not_sent"},
		{"still panics", func(context.Context, func() error) error { t.Error("the provider was called"); return nil },
			func() error { panic("a bug") }, "not_sent"},
		{"no still", func(context.Context, func() error) error { t.Error("the provider was called"); return nil }, nil,
			"not_sent"},
	} {
		g := limiter.New(&fake{state: now, acts: tt.acts}, options(limiter.Options{}))
		if err := g.PowerOff(t.Context(), n1, tt.still); providers.ErrorClass(err) != tt.want {
			t.Errorf("%s: got %v (%s), want %s", tt.name, err, providers.ErrorClass(err), tt.want)
		}
	}
}
