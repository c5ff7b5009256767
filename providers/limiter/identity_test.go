package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
)

const (
	uuid  = "38947555-7742-3448-3784-823347823834"
	other = "11111111-2222-3333-4444-555555555555"
)

// A type that forgets to look who the machine is powers nothing off, and nothing on: the limiter asks first.
func TestNothingHappensToAnotherMachine(t *testing.T) {
	unreachable := providers.WithClass(providers.ErrUnreachable, errors.New("reading its chassis: 500"))
	for _, tt := range []struct {
		name   string
		target providers.Target
		obs    providers.Observation
		old    time.Duration
		err    error
		want   error // nil: the action is passed on
	}{
		{name: "the machine", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{State: providers.PowerOn, SystemUUID: uuid}},
		{name: "the machine, in an unknown state", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{Raw: "Dozing", SystemUUID: uuid}},
		{name: "the machine, whose power cannot be read", target: providers.Target{SystemUUID: uuid, Claimed: true},
			obs: providers.Observation{SystemUUID: uuid}, err: unreachable},
		{name: "a device that cannot tell, by the operator's word", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{State: providers.PowerOn}},
		{name: "a device that cannot tell, by the kubelet's word",
			target: providers.Target{SystemUUID: uuid, Claimed: true},
			obs:    providers.Observation{State: providers.PowerOn}, want: providers.ErrIdentity},
		{name: "a machine at the node's address, by the kubelet's word",
			target: providers.Target{Addresses: "10.0.7.7 10.0.7.8", Claimed: true},
			obs:    providers.Observation{State: providers.PowerOn, Addresses: "10.0.7.8"}},
		{name: "a machine at another address", target: providers.Target{SystemUUID: uuid, Addresses: "10.0.7.7"},
			obs: providers.Observation{State: providers.PowerOn, Addresses: "10.0.7.70"}, want: providers.ErrIdentity},
		{name: "a machine at an address, and a node that reports none", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{State: providers.PowerOn, Addresses: "10.0.7.7"}, want: providers.ErrIdentity},
		{name: "a machine at the node's address with another UUID",
			target: providers.Target{SystemUUID: uuid, Addresses: "10.0.7.7"},
			obs:    providers.Observation{State: providers.PowerOn, Addresses: "10.0.7.7", SystemUUID: other},
			want:   providers.ErrIdentity},
		{name: "a machine at the node's address, whose power cannot be read",
			target: providers.Target{Addresses: "10.0.7.7", Claimed: true},
			obs:    providers.Observation{Addresses: "10.0.7.7"}, err: unreachable},
		{name: "another machine", target: providers.Target{SystemUUID: uuid},
			obs:  providers.Observation{State: providers.PowerOn, SystemUUID: other},
			want: providers.ErrIdentity},
		{name: "another machine, whose power cannot be read", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{SystemUUID: other}, err: unreachable, want: providers.ErrIdentity},
		{name: "no answer", target: providers.Target{SystemUUID: uuid}, err: unreachable,
			want: providers.ErrUnreachable},
		{name: "an answer from a cache", target: providers.Target{SystemUUID: uuid},
			obs: providers.Observation{State: providers.PowerOn, SystemUUID: uuid},
			old: time.Second, want: providers.ErrStale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked, acted := 0, 0
			g := limiter.New(&fake{
				state: func(context.Context, providers.Target) (providers.Observation, error) {
					asked++
					tt.obs.At = providers.InstantOf(time.Now().Add(-tt.old))
					return tt.obs, tt.err
				},
				power: func(context.Context, providers.Target) error { acted++; return nil },
			}, options(limiter.Options{}))
			tt.target.Node = "n1"
			for name, f := range map[string]func(context.Context, providers.Target, func() error) error{
				"power off": g.PowerOff, "power on": g.PowerOn} {
				asked, acted = 0, 0
				err := f(t.Context(), tt.target, providertest.AllowSend)
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || asked != 1 ||
					acted != map[bool]int{true: 1}[tt.want == nil] {
					t.Errorf("%s: got %v after %d questions, acted %d times; want %v", name, err, asked, acted, tt.want)
				}
				if err != nil && !strings.Contains(err.Error(), name+" node n1 (provider rack-a)") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// The question before a power action has a deadline of its own, and takes the turn of both.
func TestPowerActionOfASlowDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, d time.Duration) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		g := limiter.New(&fake{
			state: func(ctx context.Context, t providers.Target) (providers.Observation, error) {
				at := time.Now()
				return providers.Observation{State: providers.PowerOn, At: providers.InstantOf(at)},
					wait(ctx, 2*time.Second)
			},
			power: func(ctx context.Context, _ providers.Target) error { return wait(ctx, 4*time.Second) },
		}, options(limiter.Options{Rate: 0.1, Burst: 1}))
		for i := range 3 { // a turn comes free every ten seconds
			started := time.Now()
			if err := g.PowerOff(t.Context(), n1, providertest.AllowSend); err != nil {
				t.Errorf("power-off %d: %v", i, err)
			}
			if took := time.Since(started); took != 6*time.Second {
				t.Errorf("power-off %d took %s", i, took)
			}
			time.Sleep(4 * time.Second)
		}
		if _, err := g.State(t.Context(), n1); err != nil {
			t.Errorf("the turn after: %v", err)
		}
		unconfirmed := n1
		unconfirmed.SystemUUID = uuid
		err := g.PowerOff(t.Context(), unconfirmed, providertest.AllowSend)
		if !errors.Is(err, providers.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), "leaves no turn") {
			t.Errorf("without a turn: got %v", err)
		}
	})
}

// Once a device has named the machine, this process takes no Off without the name, alone or in a batch, and sends
// nothing to that device. An On without the name remains, because it may contradict another device's Off. When the
// Node's label remembers the name as well, a person who removes the label is believed.
func TestDeviceThatNamedTheMachine(t *testing.T) {
	const zeros, ones = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	for i, nameless := range []string{"", "null", zeros, ones, "", zeros} {
		reports, acted, state, address := nameless, 0, providers.PowerOff, providers.Addresses("")
		if i > 3 {
			state, address = providers.PowerOn, "10.0.0.1"
		}
		report := func() providers.Observation {
			return providers.Observation{
				State: state, SystemUUID: reports, Addresses: address, At: providers.Now(),
			}
		}
		inner := &cloud{most: 10,
			fake: &fake{
				state: func(context.Context, providers.Target) (providers.Observation, error) { return report(), nil },
				power: func(context.Context, providers.Target) error { acted++; return nil },
			},
			states: func(_ context.Context, ids []string) (map[string]providers.Observation, error) {
				out := map[string]providers.Observation{}
				for _, id := range ids {
					out[id] = report()
				}
				return out, nil
			},
		}
		g := inner.limit(limiter.Options{})
		machine := providers.Target{Node: "n1", ID: "m1", SystemUUID: uuid, Addresses: "10.0.0.1"}
		expect := func(when string, want bool) {
			t.Helper()
			alone := providers.Ask(t.Context(), g, "rack-a", machine, providers.Now)
			batch := providers.AskAll(t.Context(), g, "rack-a", []providers.Target{machine,
				{Node: "n2", ID: "m2", SystemUUID: other, Addresses: "10.0.0.1"}}, providers.Now)
			acted = 0
			err := g.PowerOff(t.Context(), machine, providertest.AllowSend)
			for _, a := range []providers.Answer{alone, batch[0]} {
				taken := want || state == providers.PowerOn
				if (a.State == state) != taken || !taken && a.State != providers.PowerUnknown ||
					(a == alone || !taken) && errors.Is(a.Err, providers.ErrIdentity) == want {
					t.Errorf("%q, %s: got %s, %v; want %s: %t", nameless, when, a.State, a.Err, state, taken)
				}
			}
			if (err == nil) != want || (acted == 1) != want {
				t.Errorf("%q, %s: power-off: got %v, acted %d times; want one: %t", nameless, when, err, acted, want)
			}
			if b := batch[1]; reports != uuid && (b.State != state || b.Err != nil) {
				t.Errorf("%q, %s: another machine of the batch: got %s, %v", nameless, when, b.State, b.Err)
			}
		}
		expect("never named", true)
		reports = uuid
		expect("named", true)
		reports = nameless
		expect("named before", false)
		machine.Claimed = true
		expect("named before, claimed", false)
		machine.Claimed, machine.Identified = false, true
		expect("the label has it", false)
		machine.Identified = false
		expect("a person removed the label", true)
	}
}
