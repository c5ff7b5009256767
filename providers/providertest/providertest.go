// Package providertest runs the checks of providers/conformance as a test, which every provider passes: against its
// real counterpart, or one that behaves like it. It imports the contract, the checks, goleak and test/kit.
//
// A provider's own test connects the suite to its counterpart with a Bench. A provider with batches passes every check
// twice, the second time with each question in a batch. Proxy breaks the network between the two.
package providertest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/conformance"
)

// Bench is conformance's.
type Bench = conformance.Bench

// Fault is conformance's.
type Fault = conformance.Fault

// Requests is conformance's.
type Requests = conformance.Requests

// The faults of conformance.
const (
	NoFault            = conformance.NoFault
	Unreachable        = conformance.Unreachable
	Silent             = conformance.Silent
	Slow               = conformance.Slow
	Denied             = conformance.Denied
	StaysOn            = conformance.StaysOn
	StaysChanging      = conformance.StaysChanging
	StrangeWord        = conformance.StrangeWord
	OtherMachine       = conformance.OtherMachine
	HangConnect        = conformance.HangConnect
	HangHandshake      = conformance.HangHandshake
	HangAnswer         = conformance.HangAnswer
	HalfAnswer         = conformance.HalfAnswer
	LateAnswer         = conformance.LateAnswer
	ExpiredCertificate = conformance.ExpiredCertificate
	UnknownAuthority   = conformance.UnknownAuthority
	NotThere           = conformance.NotThere
	TooMany            = conformance.TooMany
	Gibberish          = conformance.Gibberish
	Flood              = conformance.Flood
	SlowBy             = conformance.SlowBy
)

// PlayFault plays a fault of the network in the handler of a fake: it breaks the connection, keeps silent until changed
// is closed, or takes its time. It reports whether the request gets no answer.
func PlayFault(r *http.Request, f Fault, changed <-chan struct{}) (silent bool) {
	switch f {
	case Unreachable:
		panic(http.ErrAbortHandler)
	case Silent:
		select {
		case <-r.Context().Done():
		case <-changed:
		}
		return true
	case Slow:
		<-time.After(SlowBy)
	}
	return false
}

// AllowSend is a still that refuses nothing.
func AllowSend() error { return conformance.AllowSend() }

// Options are a suite's settings: a way to create benches, and the fields of conformance.Options.
type Options struct {
	// New creates a bench, and ends it with t.Cleanup. The suite closes the provider. The bench's side of a connection
	// must end with the connection: the suite looks for leaked goroutines.
	New func(t *testing.T) *Bench

	Without                  map[Fault]string
	Elsewhere                []Fault
	NoProxy, NoLogIns        string
	Refusals                 int
	NoRequests               string
	Timeout, Prompt, Settle  time.Duration
	Memory, Kept, Goroutines int64
}

// checked returns what the checks need of o.
func (o Options) checked() conformance.Options {
	return conformance.Options{
		Without: o.Without, Elsewhere: o.Elsewhere, NoProxy: o.NoProxy, NoLogIns: o.NoLogIns, Refusals: o.Refusals,
		NoRequests: o.NoRequests, Timeout: o.Timeout, Prompt: o.Prompt, Settle: o.Settle, Memory: o.Memory,
		Kept: o.Kept, Goroutines: o.Goroutines,
	}.WithDefaults()
}

// Suite runs every check as a subtest with a bench of its own, and once more in batches where the provider has them. It
// must not run beside parallel tests of the same process: it looks for leaked goroutines.
func Suite(t *testing.T, o Options) {
	for _, c := range conformance.Checks() {
		if ok, why := c.Applies(o.checked()); !ok {
			if why != "" {
				t.Logf("%s does not apply, %s", c.Name, why)
			}
			continue
		}
		batches := false
		t.Run(c.Name, func(t *testing.T) { batches = runOn(t, c, o, false) })
		if batches {
			t.Run(c.Name+", in a batch", func(t *testing.T) { runOn(t, c, o, true) })
		}
	}
}

// runOn runs the check on a new bench, and reports whether its provider has batches.
func runOn(t *testing.T, c conformance.Check, o Options, inBatches bool) bool {
	b := o.New(t)
	if p, ok := b.Proxy.(*Proxy); ok && p == nil { // a Bench of a run without one
		b.Proxy = nil
	}
	before := goleak.IgnoreCurrent()
	asked := b
	batched, batches := conformance.InBatches(b)
	if inBatches {
		asked = batched
	}
	switch err := c.Run(t.Context(), asked, o.checked()); {
	case errors.Is(err, conformance.ErrLeftOut):
		t.Log(err)
	case err != nil:
		t.Error(err)
	}
	b.SetFault(NoFault)
	if c, ok := b.Provider.(providers.Closer); ok {
		ctx, cancel := context.WithTimeout(t.Context(), o.checked().Timeout)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after Close: %v", err)
	}
	return batches
}
