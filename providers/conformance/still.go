package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forcefence/forcefence/providers"
)

var errRefused = errors.New("the suite refuses")

// runActions runs f for PowerOff of a machine that is on and for PowerOn of one that is off, each after an answered
// question. So a provider that keeps a session has one.
func runActions(ctx context.Context, b *Bench, o Options, f func(call action) error) error {
	if b.Requests == nil {
		return leftOut("Requests", o.NoRequests)
	}
	for _, c := range []struct {
		name string
		call action
		on   bool
		now  providers.PowerState
	}{
		{"PowerOff", b.Provider.PowerOff, true, providers.PowerOn},
		{"PowerOn", b.Provider.PowerOn, false, providers.PowerOff},
	} {
		b.SetFault(NoFault)
		b.SetPower(c.on)
		if err := waitForState(ctx, b, o, c.now); err != nil {
			return fmt.Errorf("before %s: %w", c.name, err)
		}
		if err := f(c.call); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// asksBeforeActing checks that each request that acts has its own call of still. Between the two the device may receive
// only other requests that act. A type that asks before its last read fails.
func asksBeforeActing(ctx context.Context, b *Bench, o Options) error {
	return runActions(ctx, b, o, func(call action) error {
		var mu sync.Mutex
		var asked []int // how many requests there were at each call of still
		before := len(b.Requests())
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		err := call(ctx, b.Target, func() error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, len(b.Requests()))
			return nil
		})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all := b.Requests()
		for i, first := before, before; i < len(all); i++ { // first begins the row of requests that act, up to i
			if !all[i] {
				first = i + 1
				continue
			}
			permits := 0
			for _, n := range asked {
				if first <= n && n <= i {
					permits++
				}
			}
			if permits <= i-first {
				return fmt.Errorf("request %d of %v acts, and still was not called right before it, but at %v", i, all,
					asked)
			}
		}
		if countActs(all[before:]) == 0 {
			return errors.New("Requests has none that acts, after a power action that was accepted")
		}
		return nil
	})
}

func countActs(acts []bool) (n int) {
	for _, a := range acts {
		if a {
			n++
		}
	}
	return n
}

// refusedSendsNothing checks a refusal by still: the device receives nothing that acts, the error says so, and the next
// allowed call works.
func refusedSendsNothing(ctx context.Context, b *Bench, o Options) error {
	return runActions(ctx, b, o, func(call action) error {
		before, running := len(b.Requests()), b.Running()
		err := refuseAfter(ctx, b, o, call, 0)
		switch {
		case !errors.Is(err, providers.ErrNotSent):
			return fmt.Errorf("refused: got %v, want %v", err, providers.ErrNotSent)
		case !errors.Is(err, errRefused):
			return fmt.Errorf("refused: got %v, which does not wrap the error of still", err)
		case countActs(b.Requests()[before:]) > 0:
			return errors.New("refused: a request that acts was sent")
		case b.Running() != running:
			return errors.New("refused: the machine's power changed")
		}
		if err := runPower(ctx, o, call, b.Target); err != nil {
			return fmt.Errorf("allowed afterwards: %w", err)
		}
		if countActs(b.Requests()[before:]) == 0 {
			return errors.New("allowed afterwards: no request that acts was sent")
		}
		return nil
	})
}

// refusedAtRetry checks a still that allows one request: the device receives at most one that acts, even if it fails in
// a way that the type retries. If it received one, the error must not say that nothing was sent.
func refusedAtRetry(ctx context.Context, b *Bench, o Options) error {
	for _, f := range []Fault{NoFault, Unreachable} {
		if f != NoFault && o.Without[f] != "" {
			continue
		}
		if err := runActions(ctx, b, o, func(call action) error {
			b.SetFault(f)
			before := len(b.Requests())
			err := refuseAfter(ctx, b, o, call, 1)
			switch n := countActs(b.Requests()[before:]); {
			case n > 1:
				return fmt.Errorf("fault %q: %d requests that act were sent, and one was allowed", f, n)
			case n > 0 && errors.Is(err, providers.ErrNotSent):
				return fmt.Errorf("fault %q: the error says that nothing was sent: %w", f, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	b.SetFault(NoFault)
	return nil
}

// refuseAfter makes a call whose still allows that many requests.
func refuseAfter(ctx context.Context, b *Bench, o Options, call action, allowed int) error {
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return call(ctx, b.Target, func() error {
		mu.Lock()
		defer mu.Unlock()
		if allowed--; allowed < 0 {
			return errRefused
		}
		return nil
	})
}
