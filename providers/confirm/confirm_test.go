package confirm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/confirm"
	"github.com/forcefence/forcefence/providers/providertest"
)

// A person's word is an Off while it is young, where it is bound to what it is asked about; nothing else is, and
// nothing is an On.
func TestState(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	said := func(ago time.Duration) providers.Confirmed {
		return providers.Confirmed{By: "ann", Reason: "it is dark", At: now.Add(-ago)}
	}
	refused := said(0)
	refused.Refused = "the machine has booted since"
	for _, tc := range []struct {
		name string
		node providers.Node
		err  error
		want providers.PowerState
		raw  string
	}{
		{"no statement", providers.Node{UID: "u", BootID: "b", Ready: "Unknown"}, nil, providers.PowerUnknown,
			"not confirmed"},
		{"just now", providers.Node{Confirmed: said(0)}, nil, providers.PowerOff, "ann: it is dark"},
		{"a quarter of an hour ago", providers.Node{Confirmed: said(15 * time.Minute)}, nil, providers.PowerOff,
			"ann: it is dark"},
		{"longer ago", providers.Node{Confirmed: said(15*time.Minute + 1)}, nil, providers.PowerUnknown,
			"the confirmation has expired"},
		{"by a clock that is ahead a little", providers.Node{Confirmed: said(-time.Minute)}, nil, providers.PowerOff,
			"ann: it is dark"},
		{"by a clock that is ahead", providers.Node{Confirmed: said(-time.Minute - 1)}, nil, providers.PowerUnknown,
			"confirmed in the future: check the clocks"},
		{"of something else", providers.Node{Confirmed: refused}, nil, providers.PowerUnknown,
			"the machine has booted since"},
		{"at no time", providers.Node{Confirmed: providers.Confirmed{By: "ann"}}, nil, providers.PowerUnknown,
			"the confirmation has expired"},
		{"unreachable", providers.Node{Confirmed: said(0)}, providers.ErrUnreachable, providers.PowerUnknown, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := confirm.Type().NewConfig().New(providers.Options{
				Now:  func() time.Time { return now },
				Node: func(context.Context, string) (providers.Node, error) { return tc.node, tc.err },
			})
			if err != nil {
				t.Fatal(err)
			}
			a := providers.Ask(t.Context(), p, "people", providers.Target{Node: "n1", ID: "n1"},
				func() providers.Instant { return providers.InstantOf(now) })
			if a.State != tc.want || a.Raw != tc.raw || !errors.Is(a.Err, tc.err) {
				t.Errorf("got %s (%q), %v, want %s (%q), %v", a.State, a.Raw, a.Err, tc.want, tc.raw, tc.err)
			}
			for _, err := range []error{
				p.PowerOff(t.Context(), providers.Target{}, providertest.AllowSend),
				p.PowerOn(t.Context(), providers.Target{}, providertest.AllowSend)} {
				if !errors.Is(err, providers.ErrPermanent) {
					t.Errorf("a power action: got %v", err)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for d, faults := range map[time.Duration]int{
		0: 1, time.Minute - 1: 1, time.Minute: 0, 15 * time.Minute: 0, 24 * time.Hour: 0, 24*time.Hour + 1: 1} {
		if got := (&confirm.Config{ValidFor: d}).Validate(); len(got) != faults ||
			faults > 0 && !strings.Contains(got[0].Text, "1m to 24h") {
			t.Errorf("%s: got %v", d, got)
		}
	}
	p, err := confirm.Type().NewConfig().New(providers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.State(t.Context(), providers.Target{Node: "n1"}); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("without an API server: got %v", err)
	}
}
