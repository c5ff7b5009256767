package providers_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/forcefence/forcefence/providers"
)

// plugs is a device in the example: a power strip with switches, and a cable to each machine.
type plugs map[string]string // by the machine's name: the strip's own word

// strip is a minimal Provider for it.
type strip struct{ plugs plugs }

// State asks the device and translates its word by an exact switch: an unknown word is PowerUnknown, and is
// kept.
func (s strip) State(_ context.Context, t providers.Target) (providers.Observation, error) {
	o := providers.Observation{At: providers.Now()} // before the question is sent
	word, ok := s.plugs[t.ID]
	if !ok {
		return o, fmt.Errorf("asking plug %q: %w", t.ID, providers.ErrNotFound)
	}
	switch o.Raw = word; word {
	case "open":
		o.State = providers.PowerOff
	case "closed":
		o.State = providers.PowerOn
	case "moving":
		o.State = providers.PowerChanging
	}
	return o, nil
}

func (s strip) PowerOff(_ context.Context, t providers.Target, still func() error) error {
	return s.set(t, still, "open")
}

func (s strip) PowerOn(_ context.Context, t providers.Target, still func() error) error {
	return s.set(t, still, "closed")
}

// set refuses before it acts: a strip cannot tell which machine hangs on a plug. Right before it acts it asks still.
func (s strip) set(t providers.Target, still func() error, word string) error {
	permit := providers.PermitSends(still)
	if err := t.VerifyIdentity(providers.Observation{}); err != nil {
		return fmt.Errorf("switching plug %q: %w", t.ID, err)
	}
	if err := permit(); err != nil {
		return fmt.Errorf("switching plug %q: %w", t.ID, err)
	}
	s.plugs[t.ID] = word
	return nil
}

// A minimal Provider, asked in the only way from which a proof comes.
func Example() {
	ctx := context.Background()
	p := strip{plugs{"n1": "closed", "n2": "open", "n3": "ajar"}}
	for _, id := range []string{"n1", "n2", "n3", "n4"} {
		a := providers.Ask(ctx, p, "strip", providers.Target{Node: id, ID: id}, providers.Now)
		fmt.Printf("%s: %s %q %s\n", id, a.State, a.Raw, providers.ErrorClass(a.Err))
	}

	allow, refuse := func() error { return nil }, func() error { return errors.New("no longer the leader") }
	// found by what the node's kubelet wrote
	err := p.PowerOff(ctx, providers.Target{Node: "n1", ID: "n1", Claimed: true}, allow)
	fmt.Println("claimed:", errors.Is(err, providers.ErrIdentity))
	err = p.PowerOff(ctx, providers.Target{Node: "n1", ID: "n1"}, refuse)
	fmt.Println("refused:", errors.Is(err, providers.ErrNotSent), p.plugs["n1"])
	// Output:
	// n1: On "closed" ok
	// n2: Off "open" ok
	// n3: Unknown "ajar" ok
	// n4: Unknown "" not_found
	// claimed: true
	// refused: true closed
}
