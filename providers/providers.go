// Package providers is the contract between forcefence and the devices that know whether a machine has power: a BMC, a
// hypervisor, a cloud. It imports the standard library only; each device family lives in a folder of its own below it and
// imports this package, never the other way round.
//
// The contract promises one thing: a PowerOff that comes out of Ask, AskAll or AskEach was said by the machine's own device, about that very
// machine, in answer to a question sent after the call. Everything else (a time-out, a 404, a word nobody knows, an answer from a
// cache, another machine's UUID) is PowerUnknown, and PowerUnknown never becomes PowerOff by waiting. Confirm is the same promise for
// a power action: it goes to the machine that was meant, or nowhere. providers/guard keeps it for every provider.
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

// PowerState is what a device says of a machine's power. The zero value is PowerUnknown.
type PowerState uint8

// The states.
const (
	PowerUnknown  PowerState = iota // not asked, failed, or a word we do not know
	PowerOn                         // suspended and paused count as on: memory may resume
	PowerOff                        // the only state that proves nothing runs
	PowerChanging                   // Redfish PoweringOff, EC2 stopping or shutting-down
)

// String returns the state's name as it stands in Events, records and metrics.
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

// Target names one machine. ID is the provider's own name of it (a BMC's URL, a domain's name, an instance id) and may be
// empty where SystemUUID is enough for the provider to find the machine.
type Target struct {
	Node       string // the Node's name, for messages
	ID         string // the provider's own name of the machine
	SystemUUID string // node.status.nodeInfo.systemUUID, "" if the node never said
	// Addresses are the Node's own, for devices that tell a machine's addresses and no system UUID.
	Addresses Addresses
	// Heard is when this process last saw the node's Lease change, by its own clock; zero: never, which says nothing. A device that tells
	// since when its machine is off says nothing of a machine that was heard long after that.
	Heard time.Time
	// Claimed tells that what leads to the machine (an annotation, a label, the providerID, the system UUID) can be written by the
	// node's own kubelet: Identify then demands that the device tells who the machine is.
	Claimed bool
	// Named tells that the Node's name leads to the machine. Whoever may register a Node chooses its name: where the device tells a system
	// UUID, the node must have told that one.
	Named bool
}

// Key tells a target from others of its provider: its ID, else its system UUID, else its node.
func (t Target) Key() string { return cmp.Or(t.ID, t.SystemUUID, t.Node) }

// Observation is one device's answer about one machine.
type Observation struct {
	State      PowerState
	Raw        string    // the device's own word, kept for the evidence
	SystemUUID string    // the machine the device spoke of; "" if the device cannot tell
	Addresses  Addresses // of the machine the device spoke of; "" if the device cannot tell
	At         Instant   // when the question was sent: caches and events have no say here
	// Run names the machine's run, the present one or, while it is off, the last: it changes with each start and at no other time. It is
	// told only of machines whose boot ids tell no boots apart, because the node reads its host's (a container); "" of all others.
	Run string
	// Doubt is why an Off of the machine may not count later. A type tells it to a drill alone (IsDrill), while the machine is on.
	Doubt string `json:",omitempty"`
}

type drillKey struct{}

// ForDrill returns the context of a question that prepares for an outage: it may take a few requests more.
func ForDrill(ctx context.Context) context.Context { return context.WithValue(ctx, drillKey{}, true) }

// IsDrill reports whether ForDrill made the context.
func IsDrill(ctx context.Context) bool { return ctx.Value(drillKey{}) != nil }

// Provider speaks to one family of devices. It is safe for concurrent use, every call returns by its context's deadline, and
// no call retries on its own beyond transport retries within that deadline: the caller's workqueue retries.
type Provider interface {
	// State asks the device, never a cache. An error means unknown, whatever its class; the observation beside it may still have the
	// SystemUUID or Addresses that the device told in that call, with At, so that a machine whose power cannot be read can be powered off.
	State(ctx context.Context, t Target) (Observation, error)
	// PowerOff asks for a hard off. Nil means accepted, not yet off, or off already. It may be repeated. Who the machine is was
	// confirmed before (Confirm); a type compares again only where what it identifies is what it then acts on.
	//
	// still returns an error if the request must not be sent any more. It is never nil, returns quickly, and is safe
	// for concurrent use. A type wraps it once per call (PermitSends) and calls it right before every request that
	// acts, on every attempt. After an error from still the type sends nothing that acts, and returns that error,
	// wrapped.
	PowerOff(ctx context.Context, t Target, still func() error) error
	// PowerOn asks for power. Nil means accepted, or on already. It may be repeated. still is as for PowerOff.
	PowerOn(ctx context.Context, t Target, still func() error) error
}

// Closer is a Provider that holds something open (sessions, connections) which Close gives back. Close blocks until ctx's
// deadline at most; no other call may be in flight or follow.
type Closer interface {
	Close(ctx context.Context) error
}

// Grouper tells which device speaks for a target, where that is not the target itself: several systems behind one BMC. It is the unit
// of trust: a device that lied is not believed, and its name stands in records.
type Grouper interface {
	DeviceOf(t Target) string
}

// Feeder is a Provider whose devices give machines their power (the outlets of a PDU) and know nothing else of them. Its Off is as good as
// any: a machine without power is off. Its On says that the machine may run: beside another device's Off it is no contradiction, since a
// machine that was shut down keeps its outlets.
type Feeder interface {
	// Feeds does nothing: having it is what is asked about.
	Feeds()
}

// Quiet is a Provider that has nothing to say of a machine that runs: PowerUnknown without an error is no fault of it then.
type Quiet interface {
	// Quiet does nothing: having it is what is asked about.
	Quiet()
}

// Slow is a Provider that takes its time before it says Off, because its devices' first word proves nothing yet. A Config that is Slow as
// well has its timeout checked: it must be a second longer.
type Slow interface {
	// TimeToOff is how long that is; it does not change. Zero is no time.
	TimeToOff() time.Duration
}

// Limiter tells what a target shares its limits with, where that is more than its device: a cloud's account and region, a chassis of
// many machines. It is the unit of limits (calls per second, calls in flight) and of nothing else; "" is the device.
type Limiter interface {
	LimitGroup(t Target) string
}

// BatchStater is a Provider whose devices answer for many machines in one call.
type BatchStater interface {
	// States asks for all targets, which have different Keys and one unit of limits, by one call of the device where that is possible.
	// The answers are by Key, each as State would give it. A target that is left out has no answer: its error is the one in Unanswered,
	// else the call's, else ErrNotFound. An error without any answer may be of one target alone: guard asks again, in halves.
	States(ctx context.Context, targets []Target) (map[string]Observation, error)
	// MaxStates is the most targets that one call takes, at least 1. It does not change.
	MaxStates() int
}

// Unanswered are the errors of a batch, by Key, where they are not one for all.
type Unanswered map[string]error

// Error returns how many there are, and one of them.
func (u Unanswered) Error() string {
	if len(u) == 0 {
		return "no target is without an answer"
	}
	first := slices.Min(slices.Collect(maps.Keys(u)))
	return fmt.Sprintf("%d targets are without an answer, the first: %v", len(u), u[first])
}

// Unwrap lets errors.Is find the classes.
func (u Unanswered) Unwrap() []error { return slices.Collect(maps.Values(u)) }

// Watcher is a Provider whose devices tell by themselves that a machine's power changed (libvirt's events). What they tell
// proves nothing and never takes the place of State: it only says when to ask.
type Watcher interface {
	// Watch calls f with what the devices tell of the targets, until ctx ends. It blocks; it connects and subscribes again by
	// itself for as long as that may help. After each connection it also tells of every target that does not run then: what
	// happened in between was told to nobody. A target that the device does not know, or that cannot be watched, is passed
	// over. The error is ctx's own when that has ended, and ErrPermanent where nothing can be watched. f returns at once and may
	// be called by several goroutines, after Watch has returned never. Several Watches may run.
	Watch(ctx context.Context, targets []Target, f func(Target, Observation)) error
}

// The classes of a device's errors. None of them ever means off.
var (
	ErrNotFound    = errors.New("machine not found")  // the device knows no such machine, or more than one
	ErrDenied      = errors.New("access denied")      // credentials or rights
	ErrUnreachable = errors.New("device unreachable") // time-out, refused, reset, 5xx: trying again may help
	ErrUntrusted   = errors.New("device untrusted")   // its certificate or key is not the expected one: nothing was said to it
	ErrPermanent   = errors.New("permanent failure")  // trying again will not help until somebody changes something
	ErrIdentity    = errors.New("identity mismatch")  // the device spoke of another machine
	ErrStale       = errors.New("stale answer")       // the question was not sent after Ask was called
	// ErrNotSent: still refused the power action, and the device received no part of it.
	ErrNotSent = errors.New("not sent")
)

// WithClass returns err in that class: errors.Is finds both, the text stays err's own. Nil stays nil.
func WithClass(class, err error) error {
	if err == nil {
		return nil
	}
	return &classedError{class, err}
}

type classedError struct{ class, err error }

func (c *classedError) Error() string   { return c.err.Error() }
func (c *classedError) Unwrap() []error { return []error{c.class, c.err} }

// ErrorClass names the class of err for metrics and logs: "ok" for nil, "canceled" where the caller gave up, "error" for an error of
// no class.
func ErrorClass(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotSent):
		return "not_sent"
	case errors.Is(err, ErrIdentity):
		return "identity"
	case errors.Is(err, ErrStale):
		return "stale"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrDenied):
		return "denied"
	case errors.Is(err, ErrUntrusted):
		return "untrusted"
	case errors.Is(err, ErrPermanent):
		return "permanent"
	case errors.Is(err, ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return "unreachable"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "error"
	}
}

// ErrorOfClass is an error of the class that ErrorClass names, with a text of its own: nil for "ok", an error of no class for a name that ErrorClass never gives.
func ErrorOfClass(class, text string) error {
	if class == "ok" {
		return nil
	}
	for _, of := range []error{ErrNotSent, ErrIdentity, ErrStale, ErrNotFound, ErrDenied, ErrUntrusted,
		ErrPermanent, ErrUnreachable, context.Canceled} {
		if ErrorClass(of) == class {
			return WithClass(of, errors.New(text))
		}
	}
	return errors.New(text)
}

// Answer is what Ask brings back: the observation with its state reduced to PowerUnknown wherever it proves nothing.
type Answer struct {
	Observation
	By  string  // the provider's name in the configuration
	Got Instant // when the answer was there
	Err error   // why the state is unknown; nil for a word the provider does not know
}

// Ask puts the question to p, and is with AskAll and AskEach the only way from a Provider's State to a proof. It checks, once for all providers,
// that the device was asked during this call (ErrStale) and that the machine it spoke of is t (ErrIdentity): a mismatch of system
// UUIDs refuses, and so do addresses none of which is the node's. A device without a usable UUID cannot be checked and passes, and so does
// a node without one, but where its name alone led to the machine (Named). It blocks until p answers or ctx ends.
// A provider that panics has answered nothing. The device's word is clipped, since it ends in a record on the Node.
func Ask(ctx context.Context, p Provider, by string, t Target, now func() Instant) Answer {
	sent := now()
	obs, err := recoverPanic(by, func() (Observation, error) { return p.State(ctx, t) })
	return checkAnswer(by, t, sent, now(), obs, err)
}

// AskAll puts the question for all targets at once where p is a BatchStater (as providers/guard is for every type), else one after the
// other. The answers are in the targets' order, each under the rules of Ask; none fails because of another's error.
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

// Question is one that is put to one of several devices which speak for the same machine.
type Question struct {
	Provider Provider
	By       string // the provider's name in the configuration
	Target   Target
}

// Patience is how long a device that has not answered keeps the answers of others waiting, from when the last of all was asked: most of
// what an answer is worth, in which it is to be acted on, must be left.
const Patience = 2 * time.Second

// AskEach puts all questions, each under the rules of Ask, and returns the answers in their order. It puts them at the
// same time, but where a provider is Slow: then the others are asked when it is about to answer, or has, so that no
// answer is old when all are there. It returns when all are answered, or once Patience is over and the answers so far
// are enough. The others then get ErrUnreachable. enough receives one answer per question, the zero Answer where there
// is none yet; it must not keep or change them. A question runs on until its own deadline or ctx ends, so that a slow
// log-in is not cut off each time. It blocks for at most the longest deadline.
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
	results := make(chan numbered, len(qs)) // nobody may be there any more
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

// missingAnswerError is why a batch that ended with err has no answer for t.
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

// checkAnswer is what an observation is worth as the answer to a question about t: the rules of Ask.
func checkAnswer(by string, t Target, sent, got Instant, obs Observation, err error) Answer {
	a := Answer{By: by, Observation: Observation{At: sent}, Got: got}
	if err != nil {
		a.Raw, a.Err = clipWord(obs.Raw), err
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
		a.State, a.Err = PowerUnknown, err
	}
	if a.State > PowerChanging {
		a.State = PowerUnknown
	}
	if a.Run = clipWord(obs.Run); a.Err != nil {
		a.Run = ""
	}
	return a
}

func staleError(sent, at Instant) error {
	return fmt.Errorf("%w: asked at %s, the answer is of %s", ErrStale, sent.Wall.Format(time.RFC3339Nano),
		at.Wall.Format(time.RFC3339Nano))
}

// ConfirmIdentity asks p now who t's machine is. Nil means that a power action which follows at once goes to the machine that was meant:
// Identify has nothing against what the device told in this call. It is enough that the device tells who it is, though not its power.
// Else the error is the device's, ErrStale or ErrIdentity, and nothing may be sent. It blocks until p answers or ctx ends.
func ConfirmIdentity(ctx context.Context, p Provider, t Target, now func() Instant) error {
	sent := now()
	obs, err := p.State(ctx, t)
	return CheckIdentity(t, sent, obs, err)
}

// CheckIdentity is ConfirmIdentity's verdict on what State returned for t, to a question that was put at sent: nil or an error.
func CheckIdentity(t Target, sent Instant, obs Observation, err error) error {
	_, identified := ParseUUID(obs.SystemUUID)
	if identified = identified || obs.Addresses != ""; err != nil && !identified {
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

// clipWord bounds a device's word, and what several say together: a broken device must not fill the record.
func clipWord(word string) string {
	const longest = 240
	if len(word) > longest {
		word = word[:longest]
	}
	return strings.ToValidUTF8(word, "?")
}
