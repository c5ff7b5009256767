package providertest

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/conformance"
	"github.com/forcefence/forcefence/providers/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	machineUUID = "38947555-7742-3448-3784-823347823834"
	anotherUUID = "11111111-2222-3333-4444-555555555555"
)

// inMemory is why the devices of this file have no network.
const inMemory = "the device is in this process"

// device is a machine and its device in memory, and at the same time an honest provider.
type device struct {
	tells providers.Addresses // what it tells in the place of a UUID; "": a UUID

	mu    sync.Mutex // guards what follows
	on    bool
	word  string // overrides what on says
	fault Fault

	requests Requests
}

func (d *device) reach(ctx context.Context, t providers.Target) (f Fault, _ error) {
	d.mu.Lock()
	f = d.fault
	d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return f, providers.WithClass(providers.ErrUnreachable, ctx.Err())
	case f == Unreachable:
		return f, providers.ErrUnreachable
	case f == Denied:
		return f, providers.ErrDenied
	case f == Silent:
		<-ctx.Done()
		return f, providers.WithClass(providers.ErrUnreachable, ctx.Err())
	case f == Slow:
		<-time.After(SlowBy)
	}
	if t.ID == "missing" {
		return f, providers.ErrNotFound
	}
	return f, nil
}

func (d *device) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: providers.Now(), SystemUUID: machineUUID}
	if d.tells != "" {
		obs.SystemUUID, obs.Addresses = "", d.tells
	}
	d.requests.Add(false)
	f, err := d.reach(ctx, t)
	if err != nil {
		return providers.Observation{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case f == StrangeWord:
		obs.Raw = "Dozing"
	case d.word != "":
		obs.State, obs.Raw = providers.PowerChanging, d.word
	case d.on:
		obs.State, obs.Raw = providers.PowerOn, "On"
	default:
		obs.State, obs.Raw = providers.PowerOff, "Off"
	}
	switch {
	case f == OtherMachine && d.tells != "":
		obs.Addresses = providers.NewAddresses("10.0.9.9")
	case f == OtherMachine:
		obs.SystemUUID = anotherUUID
	}
	return obs, nil
}

func (d *device) set(ctx context.Context, t providers.Target, still func() error, on bool) error {
	if err := ctx.Err(); err != nil {
		return providers.WithClass(providers.ErrUnreachable, err)
	}
	if err := providers.PermitSends(still)(); err != nil {
		return err
	}
	d.requests.Add(true)
	f, err := d.reach(ctx, t)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case f == StaysOn:
	case f == StaysChanging:
		d.word = "PoweringOff"
	default:
		d.on, d.word = on, ""
	}
	return nil
}

func (d *device) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return d.set(ctx, t, still, false)
}
func (d *device) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return d.set(ctx, t, still, true)
}

func (d *device) bench(p providers.Provider) *Bench {
	return &Bench{
		Provider: p,
		Target:   providers.Target{Node: "n1", ID: "m1", SystemUUID: machineUUID, Addresses: d.tells},
		Missing:  providers.Target{Node: "n2", ID: "missing"},
		Running:  func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.on },
		SetPower: func(on bool) { d.mu.Lock(); defer d.mu.Unlock(); d.on, d.word = on, "" },
		SetFault: func(f Fault) { d.mu.Lock(); defer d.mu.Unlock(); d.fault, d.word = f, "" },
		Requests: d.requests.All,
	}
}

func TestAnHonestProviderPasses(t *testing.T) {
	Suite(t, Options{NoProxy: inMemory, NoLogIns: inMemory, New: func(*testing.T) *Bench {
		d := &device{on: true}
		return d.bench(d)
	}})
}

func TestAnHonestProviderThatReportsAddressesPasses(t *testing.T) {
	Suite(t, Options{NoProxy: inMemory, NoLogIns: inMemory, New: func(*testing.T) *Bench {
		d := &device{on: true, tells: providers.NewAddresses("10.0.7.7", "fd00::7")}
		return d.bench(d)
	}})
}

// region is a device with batches, honest except for what the test makes wrong.
type region struct {
	*device
	states func(ctx context.Context, targets []providers.Target,
		honest func() (map[string]providers.Observation, error)) (map[string]providers.Observation, error)
	whole bool // one target that cannot be asked fails the call, as EC2's do
}

func (*region) MaxStates() int { return 2 }

func (r *region) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	honest := func() (map[string]providers.Observation, error) {
		answers, errs := map[string]providers.Observation{}, providers.Unanswered{}
		if len(targets) > r.MaxStates() {
			return nil, providers.ErrPermanent
		}
		for _, t := range targets {
			obs, err := r.device.State(ctx, t)
			switch {
			case err == nil:
				answers[t.Key()] = obs
			case r.whole:
				return nil, err
			case !errors.Is(err, providers.ErrNotFound):
				errs[t.Key()] = err
			}
		}
		if len(errs) > 0 {
			return answers, errs
		}
		return answers, nil
	}
	if r.states == nil {
		return honest()
	}
	return r.states(ctx, targets, honest)
}

// Suite's checks in batches find nothing wrong with an honest provider, nor with one whose calls fail as a whole behind
// the limiter.
func TestAnHonestProviderWithBatchesPasses(t *testing.T) {
	Suite(t, Options{NoProxy: inMemory, NoLogIns: inMemory, New: func(*testing.T) *Bench {
		r := &region{device: &device{on: true}}
		return r.bench(r)
	}})
}

func TestBatchesThatFailAsAWholePassBehindTheLimiter(t *testing.T) {
	Suite(t, Options{NoProxy: inMemory, NoLogIns: inMemory, New: func(*testing.T) *Bench {
		r := &region{device: &device{on: true}, whole: true}
		return r.bench(
			limiter.New(r,
				limiter.Options{Name: "region", Rate: 1000, Burst: 1000, Log: slog.New(slog.DiscardHandler)}))
	}})
}

// Each mistake that States could make, and State does not, is caught by the check that is there for it.
func TestLiarsInBatchesAreCaught(t *testing.T) {
	type answers = map[string]providers.Observation
	type honest = func() (answers, error)
	change := func(h honest, f func(key string, o *providers.Observation)) (answers, error) {
		all, err := h()
		for key, o := range all {
			f(key, &o)
			all[key] = o
		}
		return all, err
	}
	for _, tt := range []struct {
		name     string
		caughtBy string
		whole    bool
		states   func(ctx context.Context, targets []providers.Target, h honest) (answers, error)
	}{
		{name: "a missing machine fails the call", caughtBy: "follows the machine", whole: true},
		{name: "says Off of a machine that is missing", caughtBy: "missing machine",
			states: func(_ context.Context, targets []providers.Target, h honest) (answers, error) {
				all, err := h()
				for _, t := range targets {
					if _, there := all[t.Key()]; !there {
						all[t.Key()] = providers.Observation{State: providers.PowerOff, At: providers.Now()}
					}
				}
				return all, err
			}},
		{name: "stamps the answers' arrival", caughtBy: "time of the question",
			states: func(_ context.Context, _ []providers.Target, h honest) (answers, error) {
				all, err := h()
				for key, o := range all {
					o.At = providers.Now()
					all[key] = o
				}
				return all, err
			}},
		{name: "hides the machines' identity", caughtBy: "identity",
			states: func(_ context.Context, _ []providers.Target, h honest) (answers, error) {
				return change(h, func(_ string, o *providers.Observation) { o.SystemUUID = "" })
			}},
		{name: "reads stopping as off", caughtBy: "changing is not off",
			states: func(_ context.Context, _ []providers.Target, h honest) (answers, error) {
				return change(h, func(_ string, o *providers.Observation) {
					if o.State == providers.PowerChanging {
						o.State = providers.PowerOff
					}
				})
			}},
		{name: "keeps the answers for the next call", caughtBy: "unreachable heals",
			states: func() func(context.Context, []providers.Target, honest) (answers, error) {
				kept := answers{}
				return func(_ context.Context, targets []providers.Target, h honest) (answers, error) {
					all, err := h()
					for _, t := range targets {
						if o, now := all[t.Key()]; now {
							kept[t.Key()] = o
						} else if o, before := kept[t.Key()]; before && err != nil {
							o.At = providers.Now()
							all[t.Key()] = o
						}
					}
					return all, nil
				}
			}()},
		{name: "gives errors no class", caughtBy: "denied heals",
			states: func(_ context.Context, _ []providers.Target, h honest) (answers, error) {
				all, err := h()
				if err != nil {
					err = errors.New("it did not work")
				}
				return all, err
			}},
		{name: "ignores its context", caughtBy: "deadline",
			states: func(_ context.Context, _ []providers.Target, h honest) (answers, error) {
				<-time.After(200 * time.Millisecond)
				return nil, providers.ErrUnreachable
			}},
		{name: "keys answers by node", caughtBy: "follows the machine",
			states: func(_ context.Context, targets []providers.Target, h honest) (answers, error) {
				all, err := h()
				out := answers{}
				for _, t := range targets {
					if o, there := all[t.Key()]; there {
						out[t.Node] = o
					}
				}
				return out, err
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := checkNamed(t, tt.caughtBy)
			r := &region{device: &device{on: true}, states: tt.states, whole: tt.whole}
			o := Options{Timeout: time.Second, Prompt: 100 * time.Millisecond, Settle: 100 * time.Millisecond}
			b := r.bench(r)
			if err := check.Run(t.Context(), b, o.checked()); err != nil {
				t.Fatalf("caught without a batch: %v", err)
			}
			b.SetFault(NoFault)
			b.SetPower(true)
			if batched, ok := conformance.InBatches(b); !ok {
				t.Error("has no batches")
			} else if err := check.Run(t.Context(), batched, o.checked()); err == nil {
				t.Error("not caught")
			} else {
				t.Log(err)
			}
		})
	}
}

// checkNamed returns the check of that name.
func checkNamed(t *testing.T, name string) conformance.Check {
	t.Helper()
	all := conformance.Checks()
	i := slices.IndexFunc(all, func(c conformance.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}
	return all[i]
}

// A type that leaves its network or its log-ins out must say why.
func TestOmissionsNeedAReason(t *testing.T) {
	for name, check := range map[string]string{
		"NoProxy": "broken network is never off", "NoLogIns": "a refused credential is sent once",
		"NoRequests": "asks right before it acts",
	} {
		run := checkNamed(t, check).Run
		d := &device{on: true}
		b := d.bench(d)
		b.Requests = nil
		err := run(t.Context(), b, conformance.Options{})
		if err == nil || errors.Is(err, conformance.ErrLeftOut) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that names %s", err, name)
		}
		err = run(t.Context(), b, conformance.Options{NoProxy: "x", NoLogIns: "x", NoRequests: "x"})
		if !errors.Is(err, conformance.ErrLeftOut) {
			t.Errorf("with a reason: got %v", err)
		}
	}
}

// liar is an honest device behind a provider with one thing wrong.
type liar struct {
	*device
	state func(ctx context.Context, t providers.Target,
		honest func() (providers.Observation, error)) (providers.Observation, error)
	off  func(ctx context.Context, t providers.Target, honest func() error) error
	acts func(ctx context.Context, t providers.Target, still func() error) error // in the place of off
}

func (l *liar) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	honest := func() (providers.Observation, error) { return l.device.State(ctx, t) }
	if l.state == nil {
		return honest()
	}
	return l.state(ctx, t, honest)
}

func (l *liar) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	if l.acts != nil {
		return l.acts(ctx, t, still)
	}
	honest := func() error { return l.device.PowerOff(ctx, t, still) }
	if l.off == nil {
		return honest()
	}
	return l.off(ctx, t, honest)
}

// lookTime is long enough for the suite to look many times at what is in use.
const lookTime = 50 * time.Millisecond

// Each mistake that a provider could make is caught by the check that is there for it.
func TestLiarsAreCaught(t *testing.T) {
	type obs = providers.Observation
	tests := []struct {
		name     string
		caughtBy string
		liar     func(*liar)
	}{
		{"answers from a cache", "follows the machine", func(l *liar) {
			var kept *obs
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				if kept == nil {
					o, err := honest()
					if err != nil {
						return o, err
					}
					kept = &o
				}
				o := *kept
				o.At = providers.Now()
				return o, nil
			}
		}},
		{"answers from before when unreachable", "unreachable heals", func(l *liar) {
			var last obs
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if err != nil && last.State == providers.PowerOff {
					last.At = providers.Now()
					return last, nil
				}
				last = o
				return o, err
			}
		}},
		{"takes an accepted power-off for an off", "accepted is not off", func(l *liar) {
			asked := false
			l.off = func(_ context.Context, _ providers.Target, honest func() error) error {
				asked = true
				return honest()
			}
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if asked && err == nil {
					o.State = providers.PowerOff
				}
				return o, err
			}
		}},
		{"reads PoweringOff as off", "changing is not off", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if o.State == providers.PowerChanging {
					o.State = providers.PowerOff
				}
				return o, err
			}
		}},
		{"reads a strange word as off", "strange word is unknown", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if o.State == providers.PowerUnknown {
					o.State = providers.PowerOff
				}
				return o, err
			}
		}},
		{"takes a missing machine for off", "missing machine", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if errors.Is(err, providers.ErrNotFound) {
					return obs{State: providers.PowerOff, At: providers.Now()}, nil
				}
				return o, err
			}
		}},
		{"gives errors no class", "denied heals", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if err != nil {
					err = errors.New("it did not work")
				}
				return o, err
			}
		}},
		{"hides the machine's identity", "identity", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				o.SystemUUID = ""
				return o, err
			}
		}},
		{"hides the identity of a machine that is off", "named in every state", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if o.State == providers.PowerOff && o.SystemUUID == machineUUID {
					o.SystemUUID = ""
				}
				return o, err
			}
		}},
		{"hides the machine's addresses", "addresses", func(l *liar) {
			l.tells = providers.NewAddresses("10.0.7.7")
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				o.Addresses = ""
				return o, err
			}
		}},
		{"tells the addresses that it was given", "addresses", func(l *liar) {
			l.tells = providers.NewAddresses("10.0.7.7")
			l.state = func(_ context.Context, t providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				o.Addresses = t.Addresses
				return o, err
			}
		}},
		{"stamps the answer's arrival", "time of the question", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				o.At = providers.Now()
				return o, err
			}
		}},
		{"refuses to power off twice", "off and on are repeatable", func(l *liar) {
			l.off = func(_ context.Context, _ providers.Target, honest func() error) error {
				l.mu.Lock()
				on := l.on
				l.mu.Unlock()
				if !on {
					return errors.New("409 Conflict")
				}
				return honest()
			}
		}},
		{"ignores its context", "deadline", func(l *liar) {
			l.off = func(context.Context, providers.Target, func() error) error {
				<-time.After(200 * time.Millisecond)
				return providers.ErrUnreachable
			}
		}},
		{"sends after it was cancelled", "cancelled", func(l *liar) {
			l.off = func(ctx context.Context, t providers.Target, _ func() error) error {
				return errors.Join(l.device.PowerOff(context.WithoutCancel(ctx), t, AllowSend), ctx.Err())
			}
		}},
		{"ignores still", "refused, it sends nothing", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, _ func() error) error {
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"never asks still", "asks right before it acts", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, _ func() error) error {
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"asks still before it reads", "asks right before it acts", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, still func() error) error {
				if err := providers.PermitSends(still)(); err != nil {
					return err
				}
				if _, err := l.device.State(ctx, t); err != nil {
					return err
				}
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"hides that still refused", "refused, it sends nothing", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, still func() error) error {
				if still() != nil {
					return nil
				}
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"does not say that nothing was sent", "refused, it sends nothing", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, still func() error) error {
				if err := still(); err != nil {
					return providers.WithClass(providers.ErrUnreachable, err)
				}
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"asks once and sends twice", "refused at the retry, it sends nothing more", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, still func() error) error {
				if err := l.device.PowerOff(ctx, t, still); err == nil || errors.Is(err, providers.ErrNotSent) {
					return err
				}
				return l.device.PowerOff(ctx, t, AllowSend)
			}
		}},
		{"asks for the second on its own", "refused at the retry, it sends nothing more", func(l *liar) {
			l.acts = func(ctx context.Context, t providers.Target, still func() error) error {
				if err := l.device.PowerOff(ctx, t, still); err == nil || errors.Is(err, providers.ErrNotSent) {
					return err
				}
				return l.device.PowerOff(ctx, t, still) // says that nothing was sent
			}
		}},
		{"breaks for good after an error", "unreachable heals", func(l *liar) {
			broken := false
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				if broken = broken || err != nil; broken {
					return obs{}, providers.ErrUnreachable
				}
				return o, err
			}
		}},
		{"takes as much memory as a device says", "stays within its budget", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				all := make([]byte, 40<<20)
				<-time.After(lookTime)
				runtime.KeepAlive(all)
				return honest()
			}
		}},
		{"keeps what a device says", "stays within its budget", func(l *liar) {
			var kept [][]byte
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				kept = append(kept, make([]byte, 3<<20))
				return honest()
			}
		}},
		{"starts a goroutine for each member", "stays within its budget", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				var wait sync.WaitGroup
				for range 1000 {
					wait.Go(func() { <-time.After(lookTime) })
				}
				wait.Wait()
				return honest()
			}
		}},
		{"takes a flood for off", "stays within its budget", func(l *liar) {
			l.state = func(_ context.Context, _ providers.Target, honest func() (obs, error)) (obs, error) {
				o, err := honest()
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.fault == Flood {
					o.State = providers.PowerOff
				}
				return o, err
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := checkNamed(t, tt.caughtBy)
			l := &liar{device: &device{on: true}}
			tt.liar(l)
			o := Options{Timeout: time.Second, Prompt: 100 * time.Millisecond, Settle: 100 * time.Millisecond}
			if err := check.Run(t.Context(), l.bench(l), o.checked()); err == nil {
				t.Error("not caught")
			} else {
				t.Log(err)
			}
		})
	}
}
