package ipmi_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
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

// newProvider makes a provider with this password; edit changes its configuration first. It ends with the test.
func newProvider(t testing.TB, passwordFile string, edit func(*ipmi.Config)) (*ipmi.Provider, *kit.Log) {
	t.Helper()
	p, said := openProvider(t, passwordFile, edit)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_ = p.Close(ctx) // of a BMC that is gone
	})
	return p, said
}

// newUnhurried is newProvider for a test that counts log-ins.
func newUnhurried(t testing.TB, passwordFile string, edit func(*ipmi.Config)) (*ipmi.Provider, *kit.Log) {
	t.Helper()
	p, said := newProvider(t, passwordFile, edit)
	ipmi.SetUnhurried(p)
	return p, said
}

// openProvider is newProvider for a caller who closes it.
func openProvider(t testing.TB, passwordFile string, edit func(*ipmi.Config)) (*ipmi.Provider, *kit.Log) {
	t.Helper()
	c := ipmi.NewConfig()
	c.Username, c.PasswordFile = "fence", passwordFile
	if edit != nil {
		edit(c)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	said := &kit.Log{}
	p, err := ipmi.New(*c, providers.Options{Name: "rack-a", Log: slog.New(slog.NewTextHandler(said, nil))})
	must(t, err)
	ipmi.SetWarm(p, 300*time.Millisecond)
	return p, said
}

// inSuite3 is for ipmi_sim.
func inSuite3(c *ipmi.Config) { c.CipherSuites = []int{ipmisim.CipherSuite} }

func passwordFile(t testing.TB, password string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(file, []byte(password), 0o600))
	return file
}

func ask(t testing.TB, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return providers.Ask(ctx, p, "test", of, providers.Now)
}

// expect asks, and wants this state in these words and no error.
func expect(t testing.TB, p providers.Provider, of providers.Target, state providers.PowerState, raw string) {
	t.Helper()
	if a := ask(t, p, of); a.State != state || a.Raw != raw || a.Err != nil {
		t.Errorf("got %s (%q), %v; want %s (%q)", a.State, a.Raw, a.Err, state, raw)
	}
}

// expectClass asks, and wants an error of that class.
func expectClass(t testing.TB, p providers.Provider, of providers.Target, class error) error {
	t.Helper()
	a := ask(t, p, of)
	if a.State != providers.PowerUnknown || !errors.Is(a.Err, class) {
		t.Errorf("got %s (%q), %v; want %v", a.State, a.Raw, a.Err, class)
	}
	return a.Err
}

func power(t testing.TB, f func(context.Context, providers.Target, func() error) error, of providers.Target) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return f(ctx, of, providertest.AllowSend)
}
