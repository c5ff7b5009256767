package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// story is what an Asker did, with the second at which it did it.
type story struct {
	began time.Time
	state map[string]providers.PowerState // by node; none: an error
	takes time.Duration                   // each question

	mu   sync.Mutex
	said []string
}

func (s *story) note(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf("%gs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, a...))
}

func (s *story) ask(ctx context.Context, t providers.Target) (providers.Observation, error) {
	s.note("ask %s", t.Node)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return providers.Observation{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.state[t.Node]
	if !ok {
		return providers.Observation{}, errors.New("no answer")
	}
	return providers.Observation{State: state}, nil
}

func (s *story) tell(t providers.Target, o providers.Observation) {
	s.note("tell %s %s", t.Node, o.State)
}

func (s *story) set(node string, state providers.PowerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[node] = state
}

// play runs f beside an Asker for the nodes a and b.
func play(t *testing.T, f func(s *story, a *remote.Asker)) []string {
	t.Helper()
	s := &story{state: map[string]providers.PowerState{"a": providers.PowerOn, "b": providers.PowerOff}}
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		a := remote.NewAsker(ctx, []providers.Target{{Node: "a"}, {Node: "b"}}, s.ask, s.tell)
		f(s, a)
		cancel()
		a.Wait()
	})
	return s.said
}

func TestAsker(t *testing.T) {
	off := providers.Observation{State: providers.PowerOff}
	for _, tt := range []struct {
		name string
		f    func(s *story, a *remote.Asker)
		want []string
	}{
		{"a machine that runs is asked about three times, and nothing is reported", func(_ *story, a *remote.Asker) {
			a.AskSoon(0)
			time.Sleep(time.Minute)
		}, []string{"0s ask a", "2s ask a", "4s ask a"}},
		{"one that does not run is reported", func(_ *story, a *remote.Asker) {
			a.AskSoon(1)
			time.Sleep(time.Minute)
		}, []string{"0s ask b", "0s tell b Off"}},
		{"its answer comes after the event", func(s *story, a *remote.Asker) {
			a.AskSoon(0)
			time.Sleep(time.Second)
			s.set("a", providers.PowerChanging)
			time.Sleep(time.Minute)
		}, []string{"0s ask a", "2s ask a", "2s tell a Changing"}},
		{"no answer is no reason to tell", func(s *story, a *remote.Asker) {
			delete(s.state, "a")
			a.AskSoon(0)
			time.Sleep(time.Minute)
		}, []string{"0s ask a", "2s ask a", "4s ask a"}},
		{"a state is reported at once; if it comes again too soon, the device is asked",
			func(_ *story, a *remote.Asker) {
				a.ReportState(1, off)
				a.ReportState(1, off)
				time.Sleep(time.Minute)
			}, []string{"0s tell b Off", "0s ask b", "0s tell b Off"}},
		{"a machine that was reported off and runs is reported", func(_ *story, a *remote.Asker) {
			a.ReportState(0, off)
			a.AskSoon(0)
			time.Sleep(time.Second)
		}, []string{"0s tell a Off", "0s ask a", "0s tell a On"}},
		{"a chatty device makes one question a second", func(_ *story, a *remote.Asker) {
			for range 290 {
				a.AskSoon(1)
				time.Sleep(10 * time.Millisecond)
			}
		}, []string{"0s ask b", "0s tell b Off", "1s ask b", "1s tell b Off", "2s ask b", "2s tell b Off"}},
		{"a slow answer is waited for", func(s *story, a *remote.Asker) {
			s.takes = 5 * time.Second
			a.AskSoon(1)
			time.Sleep(2 * time.Second)
			a.AskSoon(1)
			time.Sleep(time.Minute)
		}, []string{"0s ask b", "5s tell b Off", "5s ask b", "10s tell b Off"}},
		{"nothing is reported after the end", func(s *story, a *remote.Asker) {
			s.takes = 5 * time.Second
			a.AskSoon(1)
			time.Sleep(time.Second)
		}, []string{"0s ask b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := play(t, tt.f); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// One silent device does not keep the questions to others.
func TestAskerOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets := make([]providers.Target, 2000)
		all := make([]int, len(targets))
		for i := range targets {
			targets[i], all[i] = providers.Target{Node: fmt.Sprint(i)}, i
		}
		var mu sync.Mutex
		told := map[string]int{}
		ctx, cancel := context.WithCancel(t.Context())
		a := remote.NewAsker(ctx, targets,
			func(ctx context.Context, t providers.Target) (providers.Observation, error) {
				if t.Node == "0" {
					<-ctx.Done()
					return providers.Observation{}, ctx.Err()
				}
				time.Sleep(50 * time.Millisecond)
				return providers.Observation{State: providers.PowerOff}, nil
			}, func(t providers.Target, _ providers.Observation) {
				mu.Lock()
				defer mu.Unlock()
				told[t.Node]++
			})
		a.AskSoon(all...)
		time.Sleep(2 * time.Second)
		cancel()
		a.Wait()
		if len(told) != len(targets)-1 {
			t.Errorf("reported %d machines within 2 s, want %d", len(told), len(targets)-1)
		}
	})
}
