// Package providers is the contract between forcefence and the devices that know whether a machine has power: a BMC, a
// hypervisor, a cloud. It imports the standard library only. Each device family has a folder of its own below it and
// imports this package, never the other way round.
//
// The contract promises one thing. A PowerOff that Ask, AskAll or AskEach returns came from the machine's own device,
// is about that very machine, and answers a question that was sent after the call. Everything else is PowerUnknown: a
// timeout, a 404, an unknown word, an answer from a cache, another machine's UUID. PowerUnknown never becomes PowerOff
// by waiting. ConfirmIdentity makes the same promise for a power action: it reaches the intended machine, or none.
// providers/limiter keeps that promise for every provider.
package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// PowerState is the power of a machine, as its device reports it. The zero value is PowerUnknown.
type PowerState uint8

// The states.
const (
	PowerUnknown  PowerState = iota // not asked, failed, or an unknown word
	PowerOn                         // suspended and paused count as on: memory may resume
	PowerOff                        // the only state that proves nothing runs
	PowerChanging                   // Redfish PoweringOff, EC2 stopping or shutting-down
)

// String returns the state's name as Events, records and metrics write it.
func (s PowerState) String() string {
	switch s {
	case PowerOn:
		return "On"
	case PowerOff:
		return "Off"
	case PowerChanging:
		return "Changing"
	default:
		return "Unknown"
	}
}

// PowerStates returns all states.
func PowerStates() []PowerState {
	return []PowerState{PowerUnknown, PowerOn, PowerOff, PowerChanging}
}

// ParsePowerState returns the state that String names so; false if there is none.
func ParsePowerState(word string) (PowerState, bool) {
	for _, s := range PowerStates() {
		if s.String() == word {
			return s, true
		}
	}
	return PowerUnknown, false
}

// Target names one machine. ID is the provider's own name of it: a BMC's URL, a domain's name, an instance id. ID may
// be empty if SystemUUID is enough for the provider to find the machine.
type Target struct {
	Node       string // the Node's name, for messages
	ID         string // the provider's own name of the machine
	SystemUUID string // node.status.nodeInfo.systemUUID, "" if the node never reported it
	// Addresses are the Node's own, for devices that report a machine's addresses and no system UUID.
	Addresses Addresses
	// Heard is when this process last saw the node's Lease change, by its own clock; zero means never, and is no
	// evidence. A device's answer that a machine has been off since a time long before Heard is void.
	Heard time.Time
	// Claimed reports that the node's own kubelet can write what leads to the machine: an annotation, a label, the
	// providerID, the system UUID. VerifyIdentity then requires that the device reports the machine's identity.
	Claimed bool
	// Life is what a power action is about. Only a Withdrawer needs it.
	Life Life `json:",omitzero"`
	// Named reports that the Node's name leads to the machine. A client that may register a Node chooses its name. So
	// if the device reports a system UUID, the node must have reported the same one.
	Named bool
	// Identified reports that the device has named this machine before: it reported the node's system UUID. An answer
	// that does not name the machine is then about another one (NamedLabel).
	Identified bool
}

// Life names the life of a node, and the fence in it, that a stored power-off is about.
type Life struct {
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID,omitempty"`
	Fence   string `json:"fence,omitempty"` // "" if a person sent it
}

// Key returns what distinguishes a target from others of its provider: its ID, else its system UUID, else its node.
func (t Target) Key() string { return cmp.Or(t.ID, t.SystemUUID, t.Node) }

// Observation is one device's answer about one machine.
type Observation struct {
	State      PowerState
	Raw        string    // the device's own word, kept for the evidence
	SystemUUID string    // of the machine, as the device reports it; "" if it reports none
	Addresses  Addresses // likewise
	At         Instant   // when the question was sent; no time of a cache or an event
	// Run names the machine's current run, or its last run while it is off. It changes with each start and at no other
	// time. Only devices whose machines report their host's boot id (a container) set it.
	Run string
	// Doubt is why a later Off of the machine may not count. Only a drill (IsDrill) of a machine that is on sets it.
	Doubt string `json:",omitempty"`
}

type drillKey struct{}

// ForDrill returns a context that marks a question as preparation for an outage: it may take a few more requests.
func ForDrill(ctx context.Context) context.Context { return context.WithValue(ctx, drillKey{}, true) }

// IsDrill reports whether ForDrill made the context.
func IsDrill(ctx context.Context) bool { return ctx.Value(drillKey{}) != nil }

// Provider controls one family of devices. It is safe for concurrent use, and every call returns by its context's
// deadline. No call repeats anything but transport errors within that deadline: the caller's workqueue retries.
type Provider interface {
	// State asks the device, never a cache. An error of any class means unknown, as far as StateBeside says no more.
	// The observation beside an error may still have At and the identity that the device reported in that call, so that
	// the machine can be powered off.
	State(ctx context.Context, t Target) (Observation, error)
	// PowerOff requests a hard power-off. Nil means accepted but not yet off, or off already. It may be repeated. The
	// caller has confirmed the machine's identity (ConfirmIdentity).
	//
	// still returns an error if the request must not be sent any more. It is never nil, returns quickly, and is safe
	// for concurrent use. A type wraps it once per call (PermitSends) and calls it right before every request that
	// acts. After an error the type sends nothing that acts, and returns that error, wrapped.
	PowerOff(ctx context.Context, t Target, still func() error) error
	// PowerOn requests power. Nil means accepted, or on already. It may be repeated. still is as for PowerOff.
	PowerOn(ctx context.Context, t Target, still func() error) error
}

// Closer is a Provider that holds something open, such as sessions or connections. Close releases it and blocks until
// ctx's deadline at most. No other call may be in flight or follow.
type Closer interface {
	Close(ctx context.Context) error
}

// Grouper is a Provider with several machines behind one device, such as several systems behind one BMC. DeviceOf
// returns the device that answers for a target. The device is the unit of trust: one that reported a false Off is not
// believed again, and records name it.
type Grouper interface{ DeviceOf(t Target) string }

// Feeder marks a Provider whose devices only supply power (the outlets of a PDU). Its Off counts like any other: a
// machine without power is off. Its On only means that the machine may run. It does not contradict another device's
// Off, because a machine that was shut down keeps its outlets.
type Feeder interface{ Feeds() }

// Quiet marks a Provider that has no answer for a running machine. There, PowerUnknown without an error is not a fault.
type Quiet interface{ Quiet() }

// Slow is a Provider that needs time before it reports Off, because its devices' first answer proves nothing yet. If
// the Config is Slow as well, its timeout must be at least one second longer.
type Slow interface {
	// TimeToOff returns that time; it does not change. Zero means no delay.
	TimeToOff() time.Duration
}

// Withdrawer is a Provider whose PowerOff leaves an order behind that others may carry out later, without asking again.
// Its order names the target's Life.
type Withdrawer interface {
	// Withdraw takes back each order to power off t, except those that name another Node. It needs no answer of the
	// machine's own device, and no identity: only orders of this provider end by it. Nil means that none is left. It
	// may be repeated.
	Withdraw(ctx context.Context, t Target) error
}

// Limiter is a Provider whose targets share limits beyond one device: a cloud's account and region, a chassis of many
// machines. LimitGroup returns the unit of limits (calls per second, calls in flight); "" means the device.
type Limiter interface{ LimitGroup(t Target) string }

// BatchStater is a Provider whose devices answer for many machines in one call.
type BatchStater interface {
	// States asks for all targets, in one call to the device where possible. The targets have different Keys and one
	// unit of limits. The answers are by Key, each as State would return it. The error of a missing target is the one
	// in Unanswered, else the call's, else ErrNotFound. After an error without any answer limiter asks again, in
	// halves.
	States(ctx context.Context, targets []Target) (map[string]Observation, error)
	// MaxStates returns the maximum number of targets of one call, at least 1. It does not change.
	MaxStates() int
}

// Unanswered holds the errors of a batch, by Key, where they differ between targets.
type Unanswered map[string]error

// Error returns the number of errors and one of them.
func (u Unanswered) Error() string {
	if len(u) == 0 {
		return "no target is without an answer"
	}
	first := slices.Min(slices.Collect(maps.Keys(u)))
	return fmt.Sprintf("targets without an answer: %d, the first: %v", len(u), u[first])
}

// Unwrap lets errors.Is find the classes.
func (u Unanswered) Unwrap() []error { return slices.Collect(maps.Values(u)) }

// Watcher is a Provider whose devices report changes of a machine's power by themselves (libvirt's events). Such
// reports prove nothing and never replace State: they only decide when to ask.
type Watcher interface {
	// Watch calls report with what the devices report of the targets, until ctx ends. It blocks, and reconnects by
	// itself for as long as that may help. After each connection it also reports every target that does not run,
	// because it missed events. It skips a target that cannot be watched. It returns ctx's error once ctx has ended,
	// and ErrPermanent if nothing can be watched. Watch does not call report after it has returned. Several Watches may
	// run.
	Watch(ctx context.Context, targets []Target, report ReportFunc) error
}

// ReportFunc receives what a device reported of a target. It returns at once, and several goroutines may call it.
type ReportFunc = func(Target, Observation)

// The classes of a device's errors. None of them ever means off.
var (
	ErrNotFound    = errors.New("machine not found")  // the device knows no such machine, or more than one
	ErrDenied      = errors.New("access denied")      // credentials or rights
	ErrUnreachable = errors.New("device unreachable") // time-out, refused, reset, 5xx: trying again may help
	// its certificate or key is not the expected one: nothing was sent to it
	ErrUntrusted = errors.New("device untrusted")
	ErrPermanent = errors.New("permanent failure") // trying again will not help until something is changed
	ErrIdentity  = errors.New("identity mismatch") // the device reported another machine
	ErrStale     = errors.New("stale answer")      // the question was not sent after Ask was called
	// ErrNotSent: still refused the power action, and the device received no part of it.
	ErrNotSent = errors.New("not sent")
)

// WithClass adds a class to err: errors.Is finds both, and the text remains err's own. It returns nil for nil.
func WithClass(class, err error) error {
	if err == nil {
		return nil
	}
	return &classedError{class, err}
}

// Errorf returns a new error of a class. Format and arguments are those of fmt.Errorf.
func Errorf(class error, format string, a ...any) error {
	return WithClass(class, fmt.Errorf(format, a...))
}

// RefusedPassword is the cause of an ErrDenied: the device refused user and password. errors.As finds it.
type RefusedPassword struct {
	Place string // SecretRef.Place of the password; "": no configuration has it
	Text  string // the error's own
}

// Error implements error.
func (r *RefusedPassword) Error() string { return r.Text }

type classedError struct{ class, err error }

func (c *classedError) Error() string   { return c.err.Error() }
func (c *classedError) Unwrap() []error { return []error{c.class, c.err} }

// classNames are the names of the classes. The first class that an error has names it.
var classNames = []struct {
	class error
	name  string
}{
	{ErrNotSent, "not_sent"}, {ErrIdentity, "identity"}, {ErrStale, "stale"}, {ErrNotFound, "not_found"},
	{ErrDenied, "denied"}, {ErrUntrusted, "untrusted"}, {ErrPermanent, "permanent"}, {ErrUnreachable, "unreachable"},
	{context.DeadlineExceeded, "unreachable"}, {context.Canceled, "canceled"},
}

// ErrorClass returns the name of err's class for metrics and logs: "ok" for nil, "canceled" if the caller gave up,
// "error" for an error without a class.
func ErrorClass(err error) string {
	if err == nil {
		return "ok"
	}
	for _, c := range classNames {
		if errors.Is(err, c.class) {
			return c.name
		}
	}
	return "error"
}

// ErrorClasses returns the names that ErrorClass gives errors, in order.
func ErrorClasses() []string {
	names := []string{"error"}
	for _, c := range classNames {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ErrorOfClass returns an error with the given text and the class that ErrorClass names so. It returns nil for "ok",
// and an error without a class for a name that ErrorClass never returns.
func ErrorOfClass(class, text string) error {
	if class == "ok" {
		return nil
	}
	for _, c := range classNames {
		if c.name == class {
			return WithClass(c.class, errors.New(text))
		}
	}
	return errors.New(text)
}

// Answer is the result of Ask: the observation, with PowerUnknown wherever the device's answer proves nothing.
type Answer struct {
	Observation
	By  string  // the provider's name in the configuration
	Got Instant // when the answer was there
	// Err is why the state is unknown, or what the device left out (ErrUnnamed). It is nil for a word that the provider
	// does not know.
	Err error
}

// Ask asks p for t's power. Only Ask, AskAll and AskEach turn a Provider's State into a proof. Ask checks that the
// device was asked during this call (ErrStale) and that its answer is about t (ErrIdentity): different system UUIDs
// refuse the answer, and so do addresses none of which is the node's. An answer that lacks the name refuses its Off
// alone (ErrUnnamed). A device without a usable UUID cannot be checked and passes. So does a node without one, unless
// only its name led to the machine (Named). Ask blocks until p answers or ctx ends. A panic is no answer. The device's
// word is clipped, because a record on the Node stores it.
func Ask(ctx context.Context, p Provider, by string, t Target, now func() Instant) Answer {
	sent := now()
	obs, err := recoverPanic(by, func() (Observation, error) { return p.State(ctx, t) })
	return checkAnswer(by, t, sent, now(), obs, err)
}

// AskAll asks for all targets at once if p is a BatchStater, else one after the other. The answers are in the targets'
// order, each under the rules of Ask. No target fails because of another's error.
func AskAll(ctx context.Context, p Provider, by string, targets []Target, now func() Instant) []Answer {
	answers := make([]Answer, len(targets))
	batch, ok := p.(BatchStater)
	if !ok || len(targets) == 0 {
		for i, t := range targets {
			answers[i] = Ask(ctx, p, by, t, now)
		}
		return answers
	}
	sent := now()
	all, err := recoverPanic(by, func() (map[string]Observation, error) { return batch.States(ctx, targets) })
	got := now()
	for i, t := range targets {
		obs, answered := all[t.Key()]
		cause := error(nil)
		if !answered {
			cause = missingAnswerError(err, t)
		}
		answers[i] = checkAnswer(by, t, sent, got, obs, cause)
	}
	return answers
}

// Question is a question for one of several devices of the same machine.
type Question struct {
	Provider Provider
	By       string // the provider's name in the configuration
	Target   Target
}

// Patience is how long answers wait for a device that has not answered, from when the last device was asked. It is
// short because an answer must be acted on while it is fresh.
const Patience = 2 * time.Second

// AskEach asks all questions, each under the rules of Ask, and returns the answers in their order. It asks all at the
// same time, unless a provider is Slow. Then it asks the others when the slow one is about to answer, or has answered,
// so that no answer is old when all have arrived. It returns when all are answered, or once Patience is over and the
// answers so far are enough. The others then get ErrUnreachable. enough receives one answer per question, the zero
// Answer where none has arrived; it must not keep or change them. A question continues until its own deadline or ctx
// ends, so that a slow log-in is not cut off each time. AskEach blocks for at most the longest deadline.
func AskEach(ctx context.Context, qs []Question, enough func([]Answer) bool, now func() Instant) []Answer {
	if len(qs) == 1 {
		return []Answer{Ask(ctx, qs[0].Provider, qs[0].By, qs[0].Target, now)}
	}
	type numbered struct {
		i int
		a Answer
	}
	sent := now()
	out := make([]Answer, len(qs))
	results := make(chan numbered, len(qs)) // buffered: AskEach may have returned by then
	var first, then []int                   // the slow ones, and the others
	lead := time.Duration(0)                // of the slowest
	for i, q := range qs {
		d := time.Duration(0)
		if s, ok := q.Provider.(Slow); ok {
			d = s.TimeToOff()
		}
		if lead = max(lead, d); d > 0 {
			first = append(first, i)
		} else {
			then = append(then, i)
		}
	}
	ask := func(of []int) {
		for _, i := range of {
			go func() { // its owner is ctx, and the provider's deadline
				results <- numbered{i, Ask(ctx, qs[i].Provider, qs[i].By, qs[i].Target, now)}
			}()
		}
	}
	ask(first)
	timer := time.NewTimer(lead)
	defer timer.Stop()
	all, over := false, false
	for left := len(qs); left > 0 && !(over && enough(out)); {
		if !all && (lead == 0 || left == len(then)) { // no slow one is waited for any more
			ask(then)
			all = true
			timer.Reset(Patience)
		}
		select {
		case n := <-results:
			out[n.i] = n.a
			left--
		case <-timer.C:
			lead, over = 0, all
		}
	}
	for i, q := range qs {
		if out[i].Got.IsZero() {
			late := WithClass(ErrUnreachable,
				fmt.Errorf("no answer within %s, and the other devices' answers are enough", Patience))
			out[i] = Answer{By: q.By, Observation: Observation{At: sent}, Got: now(), Err: late}
		}
	}
	return out
}

// missingAnswerError returns why a batch that ended with err has no answer for t.
func missingAnswerError(err error, t Target) error {
	var each Unanswered
	switch {
	case errors.As(err, &each) && each[t.Key()] != nil:
		return each[t.Key()]
	case err != nil && each == nil:
		return err
	}
	return WithClass(ErrNotFound, errors.New("the device left the machine out of its answer"))
}

// checkAnswer applies the rules of Ask to an observation about t.
func checkAnswer(by string, t Target, sent, got Instant, obs Observation, err error) Answer {
	a := Answer{By: by, Observation: Observation{At: sent}, Got: got}
	if err != nil {
		a.Raw, a.State, a.Err = clipWord(obs.Raw), StateBeside(obs.State, err), err
		return a
	}
	a.Observation = obs
	a.Raw, a.Doubt = clipWord(obs.Raw), clipWord(obs.Doubt)
	switch {
	case obs.At.Before(sent):
		a.State, a.Err = PowerUnknown, staleError(sent, obs.At)
		a.At = sent
	case obs.At.After(got):
		a.At = sent
	}
	if err := t.checkMachine(obs); err != nil && a.Err == nil {
		a.State, a.Err = StateBeside(a.State, err), err
	}
	if a.State > PowerChanging {
		a.State = PowerUnknown
	}
	if a.Run = clipWord(obs.Run); a.Err != nil {
		a.Run = ""
	}
	return a
}

// StateBeside returns the state that counts beside an error: PowerUnknown, or beside ErrUnnamed the device's PowerOn or
// PowerChanging. Neither proves anything, and the machine may be this one. So both still contradict another device's
// Off.
func StateBeside(state PowerState, err error) PowerState {
	if errors.Is(err, ErrUnnamed) && (state == PowerOn || state == PowerChanging) {
		return state
	}
	return PowerUnknown
}

func staleError(sent, at Instant) error {
	return fmt.Errorf("%w: asked at %s, but the answer is from %s", ErrStale, sent.Wall.Format(time.RFC3339Nano),
		at.Wall.Format(time.RFC3339Nano))
}

// ConfirmIdentity asks p now for the identity of t's machine. Nil means that a power action that follows at once
// reaches the intended machine. The device must report the identity, but not the power. Otherwise the error is the
// device's, ErrStale or ErrIdentity, and nothing may be sent. It blocks until p answers or ctx ends.
func ConfirmIdentity(ctx context.Context, p Provider, t Target, now func() Instant) error {
	sent := now()
	obs, err := p.State(ctx, t)
	return CheckIdentity(t, sent, obs, err)
}

// CheckIdentity applies the rules of ConfirmIdentity to what State returned for t. sent is when the question was sent.
// Nil means that the device is the intended machine's.
func CheckIdentity(t Target, sent Instant, obs Observation, err error) error {
	_, identified := ParseUUID(obs.SystemUUID)
	if identified = identified || obs.Addresses != ""; err != nil && !identified || errors.Is(err, ErrUnnamed) {
		return err
	}
	if obs.At.Before(sent) {
		return staleError(sent, obs.At)
	}
	return t.VerifyIdentity(obs)
}

// recoverPanic turns a provider's panic into an error.
func recoverPanic[T any](by string, f func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			var none T
			v, err = none, fmt.Errorf("%w: provider %s panicked: %v", ErrPermanent, by, r)
		}
	}()
	return f()
}

// clipWord bounds the length of a device's words: a broken device must not fill the record.
func clipWord(word string) string {
	const longest = 240
	if len(word) > longest {
		word = word[:longest]
	}
	return strings.ToValidUTF8(word, "?")
}
