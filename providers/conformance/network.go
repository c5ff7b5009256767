package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// ErrLeftOut is the result of a check that was not made and says why.
var ErrLeftOut = errors.New("left out")

// leftOut is the result of a check for which the Bench lacks something. A type that does not say why fails.
func leftOut(what, why string) error {
	if why == "" {
		return fmt.Errorf("the Bench has no %s: set it, or explain in Options.No%s (providers/README.md)", what,
			what)
	}
	return fmt.Errorf("%w, without Bench.%s: %s", ErrLeftOut, what, why)
}

// refusedIsSentOnce checks that a refused credential is not sent again, by any call: many devices lock an account after
// some failures.
func refusedIsSentOnce(ctx context.Context, b *Bench, o Options) error {
	if b.LogIns == nil {
		return leftOut("LogIns", o.NoLogIns)
	}
	if err := expectState(ctx, b, o, providers.PowerOn); err != nil {
		return err
	}
	if b.LogIns() == 0 {
		return errors.New("LogIns counts none, after a question that was answered")
	}
	b.SetFault(Denied)
	before := b.LogIns()
	for i := range 5 {
		if a := askState(ctx, b, o, b.Target); a.State != providers.PowerUnknown ||
			!errors.Is(a.Err, providers.ErrDenied) {
			return fmt.Errorf("question number %d: got %s, %v; want Unknown, %v", i+1, a.State, a.Err,
				providers.ErrDenied)
		}
		for name, call := range map[string]action{"PowerOff": b.Provider.PowerOff, "PowerOn": b.Provider.PowerOn} {
			if err := runPower(ctx, o, call, b.Target); !errors.Is(err, providers.ErrDenied) {
				return fmt.Errorf("%s: got %v, want %v", name, err, providers.ErrDenied)
			}
		}
	}
	if n, want := b.LogIns()-before, max(1, o.Refusals); n != want {
		return fmt.Errorf("the credential that was refused was sent %d times in 15 calls, want %d", n, want)
	}
	b.SetFault(NoFault)
	return expectState(ctx, b, o, providers.PowerOn)
}

// faultClasses are the classes that a call may return for a network's fault; none means the fault's own.
var faultClasses = map[Fault][]error{
	ExpiredCertificate: {providers.ErrUntrusted},
	UnknownAuthority:   {providers.ErrUntrusted},
	NotThere:           {providers.ErrNotFound, providers.ErrPermanent, providers.ErrUnreachable},
	TooMany:            {providers.ErrUnreachable},
	Gibberish:          {providers.ErrNotFound, providers.ErrPermanent, providers.ErrUnreachable},
}

// shortDeadline is the deadline of calls that have no answer to wait for. However slow the machine, they fail.
const shortDeadline = 100 * time.Millisecond

// brokenNetwork checks that no fault of the network makes an answer Off, even if the machine was seen off before. Each
// call ends by its deadline, and a request that did not get through has no effect. Once the network is repaired, the
// next answers are current, and none was in transit before.
func brokenNetwork(ctx context.Context, b *Bench, o Options) error {
	if b.Proxy == nil {
		return leftOut("Proxy", o.NoProxy)
	}
	for _, f := range b.Proxy.NetworkFaults() {
		for _, warm := range []bool{false, true} {
			if err := checkBroken(ctx, b, o, f, warm); err != nil {
				return fmt.Errorf("%s, connected before %t: %w", f, warm, err)
			}
		}
	}
	return nil
}

func checkBroken(ctx context.Context, b *Bench, o Options, f Fault, warm bool) error {
	within, want := shortDeadline, faultClasses[f]
	if want == nil {
		want = []error{providers.ErrUnreachable}
	} else {
		within = o.Timeout
	}
	// A connection that was open when a fault of new ones began may end under the next call: that is the network's
	// fault, too.
	limited := func(call func(context.Context) error, want ...error) error {
		err, late := callPromptly(within+o.Prompt, func() error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			return call(ctx)
		})
		if late != nil {
			return late
		}
		for _, class := range want {
			if errors.Is(err, class) {
				return nil
			}
		}
		return fmt.Errorf("got %w, want one of %v", err, want)
	}
	unknown := func(ctx context.Context) error {
		a := providers.Ask(ctx, b.Provider, "suite", b.Target, providers.Now)
		switch {
		case a.State != providers.PowerUnknown:
			return fmt.Errorf("got %s (%q)", a.State, a.Raw)
		case a.Err == nil && f == Gibberish:
			return providers.ErrPermanent // an unknown word is an answer
		}
		return a.Err
	}
	tooMany := b.Proxy.TooMany()
	b.SetPower(false)
	if !warm {
		b.Proxy.DropConnections()
	} else if err := waitForState(ctx, b, o, providers.PowerOff); err != nil {
		return err
	}
	b.Proxy.SetFault(f)
	early := append([]error{providers.ErrUnreachable}, want...)
	if err := limited(unknown, early...); err != nil {
		return fmt.Errorf("State of a machine that is off: %w", err)
	}
	b.SetPower(true)
	b.Proxy.SetFault(NoFault) // what was held back says Off
	if err := waitForState(ctx, b, o, providers.PowerOn); err != nil {
		return fmt.Errorf("mended: %w", err)
	}
	b.Proxy.SetFault(f)
	for name, call := range map[string]action{"PowerOff": b.Provider.PowerOff, "PowerOn": b.Provider.PowerOn} {
		if err := limited(func(ctx context.Context) error {
			err := call(ctx, b.Target, AllowSend)
			if err == nil && f == Gibberish {
				return providers.ErrPermanent // its status says accepted, and accepted is not off
			}
			return err
		}, early...); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if !b.Running() && (f == HangConnect || f == HangHandshake || faultClasses[f] != nil) {
		return errors.New("the machine went off through a call that did not get through")
	}
	if err := limited(unknown, want...); err != nil {
		return fmt.Errorf("State after power actions: %w", err)
	}
	if n, calls := b.Proxy.TooMany()-tooMany, 4; n > 5*calls {
		return fmt.Errorf("a device that asked to be left alone for an hour got %d requests in %d calls", n, calls)
	}
	b.Proxy.SetFault(NoFault)
	b.SetPower(true)
	err := waitForState(ctx, b, o, providers.PowerOn)
	if err != nil && !b.Running() { // a power-off that was held back reached the machine only now
		b.SetPower(true)
		err = waitForState(ctx, b, o, providers.PowerOn)
	}
	if err != nil {
		return fmt.Errorf("mended after power actions: %w", err)
	}
	return nil
}

// survivesCrowd makes two hundred calls at once, the first of them without a connection. A device may be too slow for
// all of them, but none may get an invented answer. Then the device refuses them all, and the machine that was seen off
// is on.
func survivesCrowd(ctx context.Context, b *Bench, o Options) error {
	b.SetPower(false)
	for answered, round := 0, 1; answered == 0; round++ { // this machine may be too slow for a while
		off, err := askInParallel(ctx, b, o, providers.PowerOff)
		if answered = off; err == nil && off == 0 && round == 3 {
			err = errors.New("not one was answered")
		}
		if err != nil {
			return fmt.Errorf("the machine is off: %w", err)
		}
	}
	b.SetPower(true)
	if _, err := askInParallel(ctx, b, o, providers.PowerOn); err != nil {
		return fmt.Errorf("the machine is on: %w", err)
	}
	return waitForState(ctx, b, o, providers.PowerOn)
}

// askInParallel returns how many calls were answered. Each answer must be that one.
func askInParallel(ctx context.Context, b *Bench, o Options, want providers.PowerState) (int, error) {
	var wait sync.WaitGroup
	var answered atomic.Int32
	errs := make(chan error, 200)
	for range cap(errs) {
		wait.Go(func() {
			switch a := askState(ctx, b, o, b.Target); {
			case a.Err == nil && a.State == want:
				answered.Add(1)
			case a.State != providers.PowerUnknown, !errors.Is(a.Err, providers.ErrUnreachable):
				errs <- fmt.Errorf("got %s (%q), %v; want %s, or %v", a.State, a.Raw, a.Err, want,
					providers.ErrUnreachable)
			}
		})
	}
	wait.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return int(answered.Load()), nil
	}
}
