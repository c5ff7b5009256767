package libvirt_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) {
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

// timeout is far more than any call here takes that is not meant to run out of time: other packages' tests share the
// machine.
const timeout = 20 * time.Second

var must = kit.Must

// newProvider makes a provider for these hypervisors' URIs; edit changes its configuration first. It ends with the
// test.
func newProvider(t testing.TB, edit func(*libvirt.Config), uris ...string) *libvirt.Provider {
	t.Helper()
	p := openProvider(t, edit, uris...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// openProvider is newProvider for a caller who closes it.
func openProvider(t testing.TB, edit func(*libvirt.Config), uris ...string) *libvirt.Provider {
	t.Helper()
	return openProviderAt(t, nil, edit, uris...)
}

// openProviderAt is openProvider with a clock; nil is the real one.
func openProviderAt(t testing.TB, now func() time.Time, edit func(*libvirt.Config), uris ...string) *libvirt.Provider {
	t.Helper()
	c := &libvirt.Config{}
	if len(uris) == 1 {
		c.URI = uris[0]
	} else {
		c.URIs = uris
	}
	if edit != nil {
		edit(c)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := libvirt.New(*c, providers.Options{Name: "rack-a", Now: now, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return p
}

// target is a guest as its node reports itself, found by its system UUID.
func target(d *hypervisor.Domain) providers.Target {
	return providers.Target{Node: "n1", SystemUUID: d.UUID()}
}

func ask(t testing.TB, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return providers.Ask(ctx, p, "test", of, providers.Now)
}

// expect asks, and wants this state in libvirt's words and no error.
func expect(t testing.TB, p providers.Provider, of providers.Target, state providers.PowerState, raw string) {
	t.Helper()
	if a := ask(t, p, of); a.State != state || a.Raw != raw || a.Err != nil {
		t.Errorf("got %s (%q), %v; want %s (%q)", a.State, a.Raw, a.Err, state, raw)
	}
}

// expectClass asks, and wants an error of that class.
func expectClass(t testing.TB, p providers.Provider, of providers.Target, class error) {
	t.Helper()
	if a := ask(t, p, of); a.State != providers.PowerUnknown || !errors.Is(a.Err, class) {
		t.Errorf("got %s (%q), %v; want %v", a.State, a.Raw, a.Err, class)
	}
}

func power(t testing.TB, f func(context.Context, providers.Target, func() error) error, of providers.Target) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return f(ctx, of, providertest.AllowSend)
}
