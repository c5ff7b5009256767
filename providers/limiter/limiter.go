// Package limiter wraps every provider. It confirms a machine's identity before a power action, and it adds deadlines,
// rate and concurrency limits per device, batches, metrics, and protection from providers that hang or panic. It
// imports the contract, Prometheus and x/time/rate.
//
// It promises this: No power action reaches a provider unless the machine's own device confirmed its identity at most
// confirmedFor before (providers.ConfirmIdentity). Each confirmation serves one action, and still allows the action
// afterwards. still is not called once the action has returned. A call returns by its deadline, also if the provider
// hangs. A device never has more calls at a time than its limit, including calls that ignored their context. The answer
// is unchanged: Observation.At is the moment when the provider sent the question.
package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forcefence/forcefence/providers"
)

// Options are a limiter's settings. The zero value works.
type Options struct {
	Name string // the provider's name in the configuration, for messages
	Type string // the provider's type: the metrics' label
	// Timeout bounds a call, its wait for a turn included; default 5s. A power action may take it twice: to ask for the
	// machine's identity, and to send the request.
	Timeout time.Duration
	Setting string // how the file calls Timeout, for messages; default "timeout"

	// Per unit of limits: providers.Limiter's answer, else the device. A batch is one call, and so is a power action.
	Rate        rate.Limit // calls per second; default 10
	Burst       int        // calls at once before Rate counts; default 10
	Concurrency int        // calls in flight; default 2: BMCs are small computers

	Metrics *Metrics     // nil: not measured
	Log     *slog.Logger // nil: slog.Default()
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	o.Setting = cmp.Or(o.Setting, "timeout")
	o.Rate, o.Burst = cmp.Or(max(o.Rate, 0), 10), cmp.Or(max(o.Burst, 0), 10)
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 2)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

// Provider is a provider behind the limiter.
type Provider struct {
	inner providers.Provider
	opts  Options
	calls sync.WaitGroup // owns the goroutines in which the inner provider runs

	mu        sync.Mutex // guards what follows
	units     map[string]*limitUnit
	lastSweep time.Time
	closed    bool

	identities identities
}

// limitUnit holds the limits of one unit. A call holds a slot until the inner provider has returned, even if the caller
// has its error before.
type limitUnit struct {
	slots  chan struct{} // capacity is the concurrency limit
	rate   *rate.Limiter
	refs   int // calls that wait or run; guarded by Provider.mu
	inside int // calls inside the inner provider; guarded by Provider.mu
}

var (
	_ providers.Provider    = (*Provider)(nil)
	_ providers.BatchStater = (*Provider)(nil)
	_ providers.Closer      = (*Provider)(nil)
	_ providers.Grouper     = (*Provider)(nil)
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Slow        = (*Provider)(nil)
	_ providers.Placer      = (*Provider)(nil)
	_ providers.Withdrawer  = (*Provider)(nil)
)

// New puts a limiter before p. It starts nothing.
func New(p providers.Provider, o Options) *Provider {
	return &Provider{inner: p, opts: o.withDefaults(), units: map[string]*limitUnit{}, lastSweep: time.Now()}
}

// State asks the inner provider. The limiter's own errors are ErrUnreachable (no turn or no answer by the deadline; it
// names the setting that ran out) and ErrPermanent (a panic, or the limiter is closed).
func (l *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs, err := callTarget(ctx, l, callState, t, func(ctx context.Context) (providers.Observation, error) {
		sent := providers.Now()
		obs, err := l.inner.State(ctx, t)
		return obs, l.identities.learnIdentity(t, sent, obs, err)
	})
	if err != nil {
		obs.State = providers.StateBeside(obs.State, err)
	}
	return obs, err
}

// FindGuest implements providers.Placer if the inner provider does; otherwise it returns ErrPermanent. The limits are
// per target and hypervisor, so a hypervisor that does not answer delays no other.
func (l *Provider) FindGuest(ctx context.Context, hypervisor string, t providers.Target) (providers.Placement, error) {
	unit := func() string { return l.LimitGroup(t) + " on " + hypervisor }
	return callUnit(ctx, l, callPlace, "node "+t.Node, unit, func(ctx context.Context) (providers.Placement, error) {
		if p, ok := l.inner.(providers.Placer); ok {
			return p.FindGuest(ctx, hypervisor, t)
		}
		return providers.Placement{}, providers.WithClass(providers.ErrPermanent,
			errors.New("this provider knows no hypervisors"))
	})
}

// PowerOff confirms the machine's identity, asks still, and passes the request on. After an error the request may have
// reached the device, unless it is an identity error or ErrNotSent.
func (l *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return l.runPowerAction(ctx, callPowerOff, t, still, l.inner.PowerOff)
}

// PowerOn follows the same rules as PowerOff.
func (l *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return l.runPowerAction(ctx, callPowerOn, t, still, l.inner.PowerOn)
}

// Withdraw implements providers.Withdrawer if the inner provider does; otherwise there is nothing to take back.
func (l *Provider) Withdraw(ctx context.Context, t providers.Target) error {
	w, ok := l.inner.(providers.Withdrawer)
	if !ok {
		return nil
	}
	_, err := callTarget(ctx, l, callWithdraw, t, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.Withdraw(ctx, t)
	})
	return err
}

// runPowerAction is the only way to the inner provider's power actions. It confirms the identity, then waits for a
// slot, and then asks still, because nothing slow may happen between still and the act. The identity question has a
// deadline of its own: with a shared one, a BMC that takes two seconds per request could not be powered off.
func (l *Provider) runPowerAction(ctx context.Context, c call, t providers.Target, still func() error,
	f func(context.Context, providers.Target, func() error) error) error {
	if !l.identities.useConfirmation(t, providers.Now()) {
		if err := providers.ConfirmIdentity(ctx, l, t, providers.Now); err != nil {
			l.opts.Metrics.countCall(l.opts.Type, c.label, providers.ErrorClass(err))
			return l.wrapError(c, "node "+t.Node, fmt.Errorf("confirming the machine's identity: %w", err))
		}
		l.identities.useConfirmation(t, providers.Now())
	}
	p := permit{still: still}
	_, err := callTarget(ctx, l, c, t, func(ctx context.Context) (struct{}, error) {
		if err := providers.PermitSends(p.askStill)(); err != nil {
			return struct{}{}, l.wrapError(c, "node "+t.Node, err)
		}
		p.given = false // that was the limiter's own question
		return struct{}{}, p.dropNotSent(f(ctx, t, p.askStill))
	})
	p.endAction()
	return err
}

// DeviceOf returns the device that answers for t.
func (l *Provider) DeviceOf(t providers.Target) string {
	if by, ok := l.inner.(providers.Grouper); ok {
		if d := by.DeviceOf(t); d != "" {
			return d
		}
	}
	return t.Key()
}

// LimitGroup implements providers.Limiter. It is never "" for a target that has a name.
func (l *Provider) LimitGroup(t providers.Target) string {
	if by, ok := l.inner.(providers.Limiter); ok {
		if l := by.LimitGroup(t); l != "" {
			return l
		}
	}
	return l.DeviceOf(t)
}

// TimeToOff implements providers.Slow: the limiter adds no time.
func (l *Provider) TimeToOff() time.Duration {
	if s, ok := l.inner.(providers.Slow); ok {
		return s.TimeToOff()
	}
	return 0
}

// Close refuses further calls, waits for those in flight, and closes the inner provider if it is a Closer. It blocks
// until ctx's deadline at most. A provider that is stuck then is closed when it returns, if ever.
func (l *Provider) Close(ctx context.Context) error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.mu.Unlock()
	if again {
		return nil
	}
	done := make(chan error, 1)
	go func() { // its owner is the process once ctx has ended: nothing else can wait for a provider that never returns
		l.calls.Wait()
		c, ok := l.inner.(providers.Closer)
		if !ok {
			done <- nil
			return
		}
		_, err := catchPanic(l, "close", func() (struct{}, error) { return struct{}{}, c.Close(ctx) })
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("closing provider %s: calls are still running: %w", l.opts.Name, context.Cause(ctx))
	}
}

// call names a method of the contract: the metrics' label and the message's verb. A call with skipsRate needs no turn
// of the rate. The question before it used one for both, so that a slow rate cannot block a power-off forever.
type call struct {
	label, verb string
	skipsRate   bool
}

var (
	callState    = call{label: "state", verb: "ask state of"}
	callStates   = call{label: "states", verb: "ask states of"}
	callPlace    = call{label: "place", verb: "look on a hypervisor for"}
	callPowerOff = call{label: "power_off", verb: "power off", skipsRate: true}
	callPowerOn  = call{label: "power_on", verb: "power on", skipsRate: true}
	callWithdraw = call{label: "withdraw", verb: "withdraw the power-off of"}
)

// wrapError returns an error of the limiter's own.
func (l *Provider) wrapError(c call, what string, err error) error {
	return fmt.Errorf("%s %s (provider %s): %w", c.verb, what, l.opts.Name, err)
}

type callFunc[T any] func(context.Context) (T, error)

// callTarget runs one call for a target under its limits. It returns by the deadline even if f does not.
func callTarget[T any](ctx context.Context, l *Provider, c call, t providers.Target, f callFunc[T]) (T, error) {
	return callUnit(ctx, l, c, "node "+t.Node, func() string { return l.LimitGroup(t) }, f)
}

// callUnit runs one call under the limits of a unit, and measures it. what names the target in errors.
func callUnit[T any](ctx context.Context, l *Provider, c call, what string, unit func() string,
	f callFunc[T]) (v T, err error) {
	started := time.Now()
	defer func() {
		l.opts.Metrics.countCall(l.opts.Type, c.label, resultLabel(v, err))
		l.opts.Metrics.observeDuration(l.opts.Type, c.label, time.Since(started))
	}()
	ctx, cancel := l.withDeadline(ctx)
	defer cancel()
	var none T
	fail := func(err error) error { return l.wrapError(c, what, err) }
	name, err := catchPanic(l, c.verb, func() (string, error) { return unit(), nil })
	if err != nil {
		return none, fail(err)
	}
	d, err := l.enterUnit(name)
	if err != nil {
		return none, fail(err)
	}
	if err := l.waitTurn(ctx, d, c.skipsRate); err != nil {
		l.leaveUnit(d, false)
		return none, fail(err)
	}

	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer l.leaveUnit(d, true)
		v, err := catchPanic(l, c.verb, func() (T, error) { return f(ctx) })
		answered <- answer{v, err}
	}()
	select {
	case a := <-answered:
		return a.v, l.explainTimeout(ctx, a.err)
	case <-ctx.Done():
	}
	// A provider that honours its context returns about now, and its error is more precise, so it wins.
	select {
	case a := <-answered:
		return a.v, l.explainTimeout(ctx, a.err)
	default:
		return none, fail(contextError(ctx))
	}
}

// withDeadline bounds a call by the timeout. The context's cause names the setting that ran out.
func (l *Provider) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.opts.Timeout,
		fmt.Errorf("no answer within %s (%s)", l.opts.Timeout, l.opts.Setting))
}

// enterUnit finds or creates the unit and counts the call. Every enterUnit needs a leaveUnit.
func (l *Provider) enterUnit(key string) (*limitUnit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))
	}
	l.forgetIdleUnits()
	d := l.units[key]
	if d == nil {
		d = &limitUnit{slots: make(chan struct{}, l.opts.Concurrency), rate: rate.NewLimiter(l.opts.Rate, l.opts.Burst)}
		l.units[key] = d
	}
	d.refs++
	l.calls.Add(1)
	return d, nil
}

// leaveUnit ends what enterUnit began; slot reports whether the call got its turn.
func (l *Provider) leaveUnit(d *limitUnit, slot bool) {
	l.mu.Lock()
	d.refs--
	if slot {
		d.inside--
	}
	l.mu.Unlock()
	if slot {
		<-d.slots
	}
	l.calls.Done()
}

// waitTurn waits for a slot, then for the rate, so that a call without a slot uses up no turn. It blocks until ctx
// ends.
func (l *Provider) waitTurn(ctx context.Context, d *limitUnit, skipsRate bool) error {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		l.mu.Lock()
		inside := d.inside
		l.mu.Unlock()
		return providers.WithClass(contextClass(ctx),
			fmt.Errorf("waiting for the device, calls ahead: %d: %w", inside, context.Cause(ctx)))
	}
	if err := ctx.Err(); err != nil { // select is fair: a caller who has gone must not reach the device
		<-d.slots
		return contextError(ctx)
	}
	if !skipsRate {
		if err := d.rate.Wait(ctx); err != nil {
			<-d.slots
			if ctx.Err() != nil {
				return contextError(ctx)
			}
			return providers.WithClass(providers.ErrUnreachable,
				fmt.Errorf("limit of %g calls per second leaves no turn within %s (%s)",
					float64(l.opts.Rate), l.opts.Timeout, l.opts.Setting))
		}
	}
	l.mu.Lock()
	d.inside++
	l.mu.Unlock()
	return nil
}

// forgetIdleUnits removes units that are not in use and whose rate limit has recovered, so that a new unit equals the
// old one. The caller holds mu. It checks all units, once per recovery time.
func (l *Provider) forgetIdleUnits() {
	now := time.Now()
	recovery := time.Duration(float64(l.opts.Burst) / float64(l.opts.Rate) * float64(time.Second))
	if now.Sub(l.lastSweep) < max(recovery, time.Second) {
		return
	}
	l.lastSweep = now
	for key, d := range l.units {
		if d.refs == 0 && d.rate.TokensAt(now) >= float64(l.opts.Burst) {
			delete(l.units, key)
		}
	}
}

// explainTimeout adds the setting that ran out to a provider's error about the end of its context.
func (l *Provider) explainTimeout(ctx context.Context, err error) error {
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil ||
		errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return providers.WithClass(contextClass(ctx), fmt.Errorf("%w: %w", err, context.Cause(ctx)))
}

// contextError returns ErrUnreachable after a deadline, and the caller's own reason after a cancellation.
func contextError(ctx context.Context) error {
	return providers.WithClass(contextClass(ctx), context.Cause(ctx))
}

func contextClass(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return providers.ErrUnreachable
	}
	return ctx.Err()
}

// catchPanic turns a panic into an error. The stack goes to the log only.
func catchPanic[T any](l *Provider, act string, f func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.opts.Log.Error("Provider panicked", "provider", l.opts.Name, "type", l.opts.Type, "act", act, "panic",
				r, "stack", string(debug.Stack()))
			var none T
			v, err = none, providers.WithClass(providers.ErrPermanent,
				fmt.Errorf("provider %s panicked: %v", l.opts.Name, r))
		}
	}()
	return f()
}
