package app

import (
	"context"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
)

// storing is a provider whose power-offs others carry out.
type storing struct{ providers.Provider }

func (storing) Withdraw(context.Context, providers.Target) error { return nil }

// The kernel has to know whose power-offs are orders, although the limiter before each provider can withdraw.
func TestOrdersOfMachines(t *testing.T) {
	for want, inner := range map[bool]providers.Provider{true: storing{}, false: struct{ providers.Provider }{}} {
		f := machineFinder{open: map[string]openProvider{
			"p": {inner: inner, limited: limiter.New(inner, limiter.Options{})},
		}}
		m := f.deviceMachine("p", providers.Target{ID: "m"})
		if m.Orders != want || m.ProofDevices()[0].Orders != want {
			t.Errorf("%T: got %+v, want orders %v", inner, m, want)
		}
	}
}
