// Package conformance has the checks that every provider passes, as functions that return what is wrong. It imports the
// contract and the standard library, so a program can run them: `forcefence check-config --description` does.
// providertest runs them as a test.
//
// They check what the rest of forcefence builds on. Off comes only from the machine's own device, asked in that very
// call. No answer, a strange one or another machine's is never Off. An accepted power-off is not an off. Errors have
// their class, heal, and leave nothing behind. A device that answers with as much as it can gets no more memory and
// goroutines than a budget. A Bench connects the checks to a counterpart. Through it they change the world (power,
// faults) and compare the provider's answers with the machine.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Fault is a fault of the counterpart. A Bench switches it on with SetFault.
type Fault string

// The faults the suite asks for. NoFault heals.
const (
	NoFault       Fault = ""
	Unreachable   Fault = "unreachable"    // calls fail in a way that trying again may help: refused, reset, 5xx
	Silent        Fault = "silent"         // no answer ever comes
	Slow          Fault = "slow"           // an answer takes at least SlowBy
	Denied        Fault = "denied"         // credentials are refused
	StaysOn       Fault = "stays on"       // a power-off is accepted, and nothing happens
	StaysChanging Fault = "stays changing" // a power-off is accepted, and the machine is on its way and never there
	StrangeWord   Fault = "strange word"   // the state is a word that no provider knows
	// the device speaks of a machine with another system UUID, or with other addresses
	OtherMachine Fault = "other machine"
)

// SlowBy is the duration of an answer under the fault Slow.
const SlowBy = 100 * time.Millisecond

// Bench is one provider and one machine, fresh for each check. The machine is on.
type Bench struct {
	Provider providers.Provider
	Target   providers.Target // the machine; SystemUUID or Addresses are set if the device can tell them
	Missing  providers.Target // a machine that the device does not know; zero: the family has no such thing
	Running  func() bool      // asks the machine, not its device, whether anything may execute on it
	SetPower func(on bool)    // changes the machine's power at once and behind the provider's back
	SetFault func(Fault)      // replaces the fault at once

	// Proxy is between the provider and its counterpart, if that is reached over TCP: the suite then also simulates the
	// network's faults. If it is nil, Options.NoProxy says why.
	Proxy Network
	// LogIns returns how often the counterpart was sent a credential that can be refused, right or wrong, since its
	// start. If it is nil, Options.NoLogIns says why.
	LogIns func() int
	// Requests returns the requests that the counterpart has received since its start, in order. Each entry reports
	// whether the request acts on the machine's power. Retransmissions count. Reads inside an acting request of the
	// type (an agent's run) are left out. If it is nil, Options.NoRequests says why.
	Requests func() []bool
}

// Requests records what a counterpart receives, for Bench.Requests. The zero value works.
type Requests struct {
	mu  sync.Mutex // guards all
	all []bool
}

// Add records one request before it is served.
func (r *Requests) Add(acts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, acts)
}

// All returns the requests so far.
func (r *Requests) All() []bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Network breaks what is between a provider and its counterpart: providertest.Proxy does.
type Network interface {
	SetFault(Fault)         // replaces the fault at once
	NetworkFaults() []Fault // that the counterpart's protocol can have
	FloodFaults() []Fault   // likewise; Network creates them by itself
	DropConnections()       // ends all connections
	TooMany() int           // how many requests the fault TooMany has answered
}

// Options are the checks' settings.
type Options struct {
	// Without names the faults that the family cannot have, and why. Checks that need them are left out, and the log
	// says so.
	Without map[Fault]string
	// Elsewhere are faults that another run of the suite has, over another transport: their checks are left out, not
	// skipped.
	Elsewhere []Fault
	NoProxy   string // why no Bench has a Proxy: the family is not reached over TCP, another run of the suite has it
	NoLogIns  string // why no Bench counts LogIns: no account can be locked, another run of the suite counts
	// Refusals is the number of refusals in a row after which a credential is not sent again: more than the default 1
	// if nothing proves who refused it.
	Refusals int
	// NoRequests is why no Bench records Requests: its traffic is encrypted, or another run of the suite records them.
	NoRequests string

	Timeout time.Duration // per call; default 5s
	Prompt  time.Duration // from the end of a call's context until it has returned; default 1s
	Settle  time.Duration // from an accepted power-off until the machine is off; default 10s

	// The budget: how many bytes calls to one device may take, and keep, beyond the earlier use, and how many
	// goroutines they may start, those of the counterpart in this process included. Defaults 32 MiB, 4 MiB and 100.
	Memory, Kept, Goroutines int64
}

// batchAsker puts each question in a batch, beside a machine that the device does not know, if that is possible. States
// must pass the checks of State, and the missing machine must not affect the other.
type batchAsker struct {
	providers.Provider
	batch   providers.BatchStater
	missing providers.Target
}

func (a batchAsker) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	targets := []providers.Target{t}
	if a.missing.Key() != "" && a.missing.Key() != t.Key() {
		targets = append(targets, a.missing)
	}
	all, err := a.batch.States(ctx, targets)
	if _, there := all[a.missing.Key()]; there && len(targets) > 1 {
		return providers.Observation{}, errors.New("the batch answers for a machine that the device does not know")
	}
	if obs, answered := all[t.Key()]; answered {
		return obs, nil
	}
	var each providers.Unanswered
	if errors.As(err, &each) {
		err = each[t.Key()]
	}
	return providers.Observation{}, cmp.Or(err, providers.ErrNotFound)
}

// WithDefaults returns o with the defaults of what is zero.
func (o Options) WithDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Prompt <= 0 {
		o.Prompt = time.Second
	}
	if o.Settle <= 0 {
		o.Settle = 10 * time.Second
	}
	o.Memory, o.Kept, o.Goroutines = cmp.Or(o.Memory, 32<<20), cmp.Or(o.Kept, 4<<20), cmp.Or(o.Goroutines, 100)
	return o
}

// Check is one requirement.
type Check struct {
	Name  string
	Needs []Fault // that a Bench must be able to set
	run   func(ctx context.Context, b *Bench, o Options) error
}

// Run makes the check, and returns what is wrong. A check that could not be made, and whose Options say why, is an
// ErrLeftOut.
func (c Check) Run(ctx context.Context, b *Bench, o Options) error {
	return c.run(ctx, b, o.WithDefaults())
}

// Applies reports whether the family can have the faults that the check needs, and why not.
func (c Check) Applies(o Options) (ok bool, why string) {
	for _, f := range c.Needs {
		switch {
		case slices.Contains(o.Elsewhere, f):
			return false, ""
		case o.Without[f] != "":
			return false, fmt.Sprintf("without %s: %s", f, o.Without[f])
		}
	}
	return true, ""
}

// Checks returns all checks.
func Checks() []Check { return slices.Clone(checks) }

// InBatches returns the bench with a provider that puts each question into a batch. It returns false if the provider
// has no batches.
func InBatches(b *Bench) (*Bench, bool) {
	batch, ok := b.Provider.(providers.BatchStater)
	if !ok || batch.MaxStates() <= 1 {
		return nil, false
	}
	other := *b
	other.Provider = batchAsker{b.Provider, batch, b.Missing}
	return &other, true
}

var checks = []Check{
	{"follows the machine", nil, followsTheMachine},
	{"powers off", nil, powersOff},
	{"off and on are repeatable", nil, actionsRepeat},
	{"accepted is not off", []Fault{StaysOn}, acceptedIsNotOff},
	{"changing is not off", []Fault{StaysChanging}, changingIsNotOff},
	{"strange word is unknown", []Fault{StrangeWord}, strangeWord},
	{"unreachable heals", []Fault{Unreachable}, func(ctx context.Context, b *Bench, o Options) error {
		return failsAndHeals(ctx, b, o, Unreachable, providers.ErrUnreachable)
	}},
	{"denied heals", []Fault{Denied}, func(ctx context.Context, b *Bench, o Options) error {
		return failsAndHeals(ctx, b, o, Denied, providers.ErrDenied)
	}},
	{"missing machine", nil, missingMachine},
	{"identity", []Fault{OtherMachine}, rejectsOtherMachine},
	{"addresses", nil, comparesAddresses},
	{"named in every state", nil, namesInEveryState},
	{"both byte orders", nil, byteOrders},
	{"time of the question", []Fault{Slow}, timeOfQuestion},
	{"deadline", []Fault{Silent}, keepsDeadline},
	{"cancelled", []Fault{Silent}, obeysCancel},
	{"asks right before it acts", nil, asksBeforeActing},
	{"refused, it sends nothing", nil, refusedSendsNothing},
	{"refused at the retry, it sends nothing more", nil, refusedAtRetry},
	{"concurrent calls", nil, allowsConcurrentCalls},
	{"a refused credential is sent once", []Fault{Denied}, refusedIsSentOnce},
	{"broken network is never off", nil, brokenNetwork},
	{"two hundred calls at once", nil, survivesCrowd},
	{"stays within its budget", nil, withinBudget},
}

// askState asks one question with the suite's timeout.
func askState(ctx context.Context, b *Bench, o Options, t providers.Target) providers.Answer {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return providers.Ask(ctx, b.Provider, "suite", t, providers.Now)
}

func expectState(ctx context.Context, b *Bench, o Options, want providers.PowerState) error {
	if a := askState(ctx, b, o, b.Target); a.State != want || a.Err != nil {
		return fmt.Errorf("state: got %s (%q), %v; want %s", a.State, a.Raw, a.Err, want)
	}
	return nil
}

// action is PowerOff or PowerOn of a provider.
type action = func(context.Context, providers.Target, func() error) error

// AllowSend is a still that refuses nothing.
func AllowSend() error { return nil }

func runPower(ctx context.Context, o Options, f action, t providers.Target) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return f(ctx, t, AllowSend)
}

// waitForState asks until the answer is that state.
func waitForState(ctx context.Context, b *Bench, o Options, want providers.PowerState) error {
	ctx, cancel := context.WithTimeout(ctx, o.Settle)
	defer cancel()
	for {
		a := askState(ctx, b, o, b.Target)
		if a.State == providers.PowerOff && b.Running() {
			return errors.New("the provider says Off while the machine runs")
		}
		if a.State == want {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond): // between two questions to a device that needs its time
		case <-ctx.Done():
			return fmt.Errorf("state: still %s (%q), %v after %s; want %s", a.State, a.Raw, a.Err, o.Settle, want)
		}
	}
}

// followsTheMachine checks that each answer is current, so a cache shows.
func followsTheMachine(ctx context.Context, b *Bench, o Options) error {
	for range 3 {
		b.SetPower(false)
		if err := expectState(ctx, b, o, providers.PowerOff); err != nil {
			return fmt.Errorf("power was cut: %w", err)
		}
		b.SetPower(true)
		if err := expectState(ctx, b, o, providers.PowerOn); err != nil {
			return fmt.Errorf("power came back: %w", err)
		}
	}
	return nil
}

func powersOff(ctx context.Context, b *Bench, o Options) error {
	if err := runPower(ctx, o, b.Provider.PowerOff, b.Target); err != nil {
		return fmt.Errorf("PowerOff: %w", err)
	}
	if err := waitForState(ctx, b, o, providers.PowerOff); err != nil {
		return fmt.Errorf("after PowerOff: %w", err)
	}
	if err := runPower(ctx, o, b.Provider.PowerOn, b.Target); err != nil {
		return fmt.Errorf("PowerOn: %w", err)
	}
	if err := waitForState(ctx, b, o, providers.PowerOn); err != nil {
		return fmt.Errorf("after PowerOn: %w", err)
	}
	// a device says On when it has begun, and the machine comes up behind it
	for end := time.Now().Add(o.Settle); !b.Running(); {
		if time.Now().After(end) {
			return fmt.Errorf("after PowerOn: the machine does not run, %s later", o.Settle)
		}
		<-time.After(10 * time.Millisecond)
	}
	return nil
}

func actionsRepeat(ctx context.Context, b *Bench, o Options) error {
	for i := range 6 {
		call, want := b.Provider.PowerOn, providers.PowerOn
		if i >= 3 {
			call, want = b.Provider.PowerOff, providers.PowerOff
		}
		if err := runPower(ctx, o, call, b.Target); err != nil {
			return fmt.Errorf("power action %d (%s): %w", i+1, want, err)
		}
		if err := waitForState(ctx, b, o, want); err != nil {
			return err
		}
	}
	return nil
}

func acceptedIsNotOff(ctx context.Context, b *Bench, o Options) error {
	b.SetFault(StaysOn)
	if err := runPower(ctx, o, b.Provider.PowerOff, b.Target); err != nil {
		return fmt.Errorf("PowerOff was accepted: got %w", err)
	}
	return expectState(ctx, b, o, providers.PowerOn)
}

func changingIsNotOff(ctx context.Context, b *Bench, o Options) error {
	b.SetFault(StaysChanging)
	for range 2 { // the second finds the machine on its way
		if err := runPower(ctx, o, b.Provider.PowerOff, b.Target); err != nil {
			return fmt.Errorf("PowerOff was accepted: got %w", err)
		}
		if err := expectState(ctx, b, o, providers.PowerChanging); err != nil {
			return err
		}
	}
	return nil
}

func strangeWord(ctx context.Context, b *Bench, o Options) error {
	b.SetPower(false)
	b.SetFault(StrangeWord)
	if a := askState(ctx, b, o, b.Target); a.State != providers.PowerUnknown || a.Raw == "" || a.Err != nil {
		return fmt.Errorf("got %s (%q), %v; want Unknown with the raw word and no error", a.State, a.Raw, a.Err)
	}
	b.SetFault(NoFault)
	return expectState(ctx, b, o, providers.PowerOff)
}

// failsAndHeals checks that the fault has its class on every call, and that no call comes through. That includes calls
// after the machine was seen off, where an earlier answer would do harm. The first call after the fault must succeed as
// usual.
func failsAndHeals(ctx context.Context, b *Bench, o Options, f Fault, class error) error {
	for _, seenBefore := range []bool{false, true} {
		b.SetPower(false)
		if seenBefore {
			if err := expectState(ctx, b, o, providers.PowerOff); err != nil {
				return err
			}
		}
		b.SetFault(f)
		b.SetPower(true)
		if a := askState(ctx, b, o, b.Target); a.State != providers.PowerUnknown || !errors.Is(a.Err, class) {
			return fmt.Errorf("State, seen before %t: got %s (%q), %v; want Unknown, %v", seenBefore, a.State, a.Raw,
				a.Err, class)
		}
		obs, err := b.Provider.State(ctx, b.Target)
		if obs.State != providers.PowerUnknown || err == nil {
			return fmt.Errorf("State with an error: got %s, %v", obs.State, err)
		}
		for name, call := range map[string]action{"PowerOff": b.Provider.PowerOff, "PowerOn": b.Provider.PowerOn} {
			if err := runPower(ctx, o, call, b.Target); !errors.Is(err, class) {
				return fmt.Errorf("%s, seen before %t: got %v, want %v", name, seenBefore, err, class)
			}
		}
		if !b.Running() {
			return errors.New("the machine went off through a call that failed")
		}
		b.SetFault(NoFault)
		if err := expectState(ctx, b, o, providers.PowerOn); err != nil {
			return fmt.Errorf("healed: %w", err)
		}
	}
	return nil
}

func missingMachine(ctx context.Context, b *Bench, o Options) error {
	if b.Missing == (providers.Target{}) {
		return nil
	}
	if a := askState(ctx, b, o, b.Missing); a.State != providers.PowerUnknown ||
		!errors.Is(a.Err, providers.ErrNotFound) {
		return fmt.Errorf("State: got %s, %v; want Unknown, %v", a.State, a.Err, providers.ErrNotFound)
	}
	if err := runPower(ctx, o, b.Provider.PowerOff, b.Missing); !errors.Is(err, providers.ErrNotFound) {
		return fmt.Errorf("PowerOff: got %v, want %v", err, providers.ErrNotFound)
	}
	if !b.Running() {
		return errors.New("another machine went off")
	}
	return expectState(ctx, b, o, providers.PowerOn)
}

// rejectsOtherMachine simulates a wrong cable, inventory or BMC: the device is another machine's, which is even off. A
// power action goes through ConfirmIdentity, as it does behind the limiter. The provider only has to report whose
// machine it is.
func rejectsOtherMachine(ctx context.Context, b *Bench, o Options) error {
	if b.Target.SystemUUID == "" && b.Target.Addresses == "" {
		return nil
	}
	refused := func(err error) bool { // where a machine is looked up by its UUID, another one's is not found
		return errors.Is(err, providers.ErrIdentity) || errors.Is(err, providers.ErrNotFound)
	}
	for _, seenBefore := range []bool{false, true} {
		b.SetPower(true)
		b.SetFault(OtherMachine)
		for name, call := range map[string]action{"PowerOff": b.Provider.PowerOff, "PowerOn": b.Provider.PowerOn} {
			confirmed := func(ctx context.Context, t providers.Target, still func() error) error {
				if err := providers.ConfirmIdentity(ctx, b.Provider, t, providers.Now); err != nil {
					return err
				}
				return call(ctx, t, still)
			}
			if err := runPower(ctx, o, confirmed, b.Target); !refused(err) {
				return fmt.Errorf("%s, seen before %t: got %v, want %v", name, seenBefore, err, providers.ErrIdentity)
			}
		}
		if !b.Running() {
			return errors.New("another machine was powered off")
		}
		b.SetPower(false)
		if a := askState(ctx, b, o, b.Target); a.State != providers.PowerUnknown || !refused(a.Err) {
			return fmt.Errorf("State, seen before %t: got %s, %v; want Unknown, %v", seenBefore, a.State, a.Err,
				providers.ErrIdentity)
		}
		b.SetFault(NoFault)
		if err := expectState(ctx, b, o, providers.PowerOff); err != nil {
			return fmt.Errorf("healed: %w", err)
		}
	}
	return nil
}

// comparesAddresses checks that a device which reports a machine's addresses matches the node that has one of them, and
// no other. That must be enough even if the node's own kubelet wrote what leads there.
func comparesAddresses(ctx context.Context, b *Bench, o Options) error {
	if b.Target.Addresses == "" {
		return nil
	}
	t := b.Target
	t.Claimed = true
	for _, other := range []providers.Addresses{b.Target.Addresses, "", providers.NewAddresses("203.0.113.9",
		"2001:db8::9")} {
		var want error
		if t.Addresses = other; other != b.Target.Addresses {
			want = providers.ErrIdentity
		}
		if a := askState(ctx, b, o, t); !errors.Is(a.Err, want) || (a.State == providers.PowerOn) != (want == nil) {
			return fmt.Errorf("State for a node with addresses %q: got %s, %v; want %v", other, a.State, a.Err, want)
		}
		confirmed := func(ctx context.Context, t providers.Target, _ func() error) error {
			return providers.ConfirmIdentity(ctx, b.Provider, t, providers.Now)
		}
		if err := runPower(ctx, o, confirmed, t); !errors.Is(err, want) {
			return fmt.Errorf("confirming a node with addresses %q: got %v, want %v", other, err, want)
		}
	}
	return nil
}

// namesInEveryState checks that a device which names the machine while it is on does so while it is off, too: otherwise
// its Off would count for nothing (providers.Target.Identified).
func namesInEveryState(ctx context.Context, b *Bench, o Options) error {
	t := b.Target
	if a := askState(ctx, b, o, t); a.Err != nil || !t.IsNamedBy(a.Observation) {
		return a.Err
	}
	t.Identified = true
	for _, on := range []bool{true, false} {
		want := map[bool]providers.PowerState{true: providers.PowerOn, false: providers.PowerOff}[on]
		b.SetPower(on)
		if a := askState(ctx, b, o, t); a.State != want || a.Err != nil {
			return fmt.Errorf("State: got %s, %v; want %s of a named machine", a.State, a.Err, want)
		}
	}
	return nil
}

func byteOrders(ctx context.Context, b *Bench, o Options) error {
	u, ok := providers.ParseUUID(b.Target.SystemUUID)
	if !ok {
		return nil
	}
	t := b.Target
	t.SystemUUID = providers.FormatUUID(providers.SwapUUID(u))
	if a := askState(ctx, b, o, t); a.State != providers.PowerOn || a.Err != nil {
		return fmt.Errorf("State: got %s, %v", a.State, a.Err)
	}
	if err := runPower(ctx, o, b.Provider.PowerOff, t); err != nil {
		return fmt.Errorf("PowerOff: %w", err)
	}
	return nil
}

// timeOfQuestion checks that At is before the time that the device took for its answer, and not before the call.
func timeOfQuestion(ctx context.Context, b *Bench, o Options) error {
	b.SetFault(Slow)
	for range 2 { // the second finds what the provider keeps between calls
		called := time.Now()
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		obs, err := b.Provider.State(ctx, b.Target)
		cancel()
		got := time.Now()
		if err != nil {
			return err
		}
		if obs.At.Before(providers.InstantOf(called)) || obs.At.After(providers.InstantOf(got.Add(-SlowBy))) {
			return fmt.Errorf("the call took %s, At is %s after its start; want 0 to %s", got.Sub(called),
				obs.At.Sub(providers.InstantOf(called)), got.Sub(called)-SlowBy)
		}
	}
	return nil
}

func keepsDeadline(ctx context.Context, b *Bench, o Options) error {
	b.SetFault(Silent)
	return returnsPromptly(ctx, b, o, func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 50*time.Millisecond)
	}, func(err error) bool { return errors.Is(err, providers.ErrUnreachable) })
}

func obeysCancel(ctx context.Context, b *Bench, o Options) error {
	any := func(err error) bool { return err != nil }
	before := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	if err := returnsPromptly(ctx, b, o, before, any); err != nil {
		return fmt.Errorf("cancelled before the call: %w", err)
	}
	if !b.Running() {
		return errors.New("a call that was cancelled before it began reached the machine")
	}
	b.SetFault(Silent)
	during := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		return ctx, cancel
	}
	if err := returnsPromptly(ctx, b, o, during, any); err != nil {
		return fmt.Errorf("cancelled during the call: %w", err)
	}
	return nil
}

// callPromptly makes a call that may take that long at most, and repeats it if it took longer. A single late call may
// be due to other load on the machine; three late calls are the provider's fault.
func callPromptly(within time.Duration, call func() error) (err, late error) {
	for tries := 1; ; tries++ {
		started := time.Now()
		err = call()
		switch took := time.Since(started); {
		case took <= within:
			return err, nil
		case tries == 3:
			return err, fmt.Errorf("returned after %s, and as late %d times before", took, tries-1)
		}
	}
}

type endingContext = func(context.Context) (context.Context, context.CancelFunc)

// returnsPromptly makes each call under a context that ends early, and then one that must succeed as usual.
func returnsPromptly(ctx context.Context, b *Bench, o Options, ending endingContext, want func(error) bool) error {
	state := func(ctx context.Context, t providers.Target, _ func() error) error {
		obs, err := b.Provider.State(ctx, t)
		if obs.State != providers.PowerUnknown {
			return nil
		}
		return err
	}
	for i, call := range []action{state, b.Provider.PowerOff, b.Provider.PowerOn} {
		name := []string{"State", "PowerOff", "PowerOn"}[i]
		err, late := callPromptly(50*time.Millisecond+o.Prompt, func() error {
			ctx, cancel := ending(ctx)
			defer cancel()
			return call(ctx, b.Target, AllowSend)
		})
		if late != nil {
			return fmt.Errorf("%s %w", name, late)
		}
		if !want(err) {
			return fmt.Errorf("%s: got %v", name, err)
		}
	}
	b.SetFault(NoFault)
	if err := waitForState(ctx, b, o, providers.PowerOn); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	return nil
}

func allowsConcurrentCalls(ctx context.Context, b *Bench, o Options) error {
	const callers, rounds = 8, 5
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	each := func(f func(i int) error) error {
		for i := range callers {
			wait.Go(func() {
				for range rounds {
					if err := f(i); err != nil {
						mu.Lock()
						errs = append(errs, err)
						mu.Unlock()
					}
				}
			})
		}
		wait.Wait()
		if len(errs) > 0 {
			return fmt.Errorf("%d of %d calls failed, the first: %w", len(errs), callers*rounds, errs[0])
		}
		return nil
	}
	if err := each(func(int) error { return expectState(ctx, b, o, providers.PowerOn) }); err != nil {
		return fmt.Errorf("State: %w", err)
	}
	allowed := []providers.PowerState{providers.PowerOn, providers.PowerChanging, providers.PowerOff}
	if err := each(func(i int) error {
		if i%2 == 0 {
			return runPower(ctx, o, b.Provider.PowerOff, b.Target)
		}
		if a := askState(ctx, b, o, b.Target); a.Err != nil || !slices.Contains(allowed, a.State) {
			return fmt.Errorf("got %s (%q), %v", a.State, a.Raw, a.Err)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("PowerOff and State: %w", err)
	}
	return waitForState(ctx, b, o, providers.PowerOff)
}
