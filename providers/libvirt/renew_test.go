package libvirt_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// A drill connects again once a file changed, and once an hour. So a certificate that the daemon refuses is noticed
// while the old connection works, which stays for a fence.
func TestDrillLogsInAgain(t *testing.T) {
	h := hypervisor.New(t, hypervisor.Options{TLS: true})
	d := h.Guest(t, "n1", hypervisor.Guest{})
	must(t, d.Start(t.Context()))
	x, dir := newPipe(t, h.TLSAddress()), t.TempDir()
	var later time.Duration
	writeFiles := func(signer *kit.Authority) {
		writeCredentials(t, dir, h.Authority(), signer, time.Now().Add(time.Hour))
	}
	p := openProviderAt(t, func() time.Time { return time.Now().Add(later) },
		writeCredentials(t, dir, h.Authority(), h.Authority(), time.Now().Add(time.Hour)),
		"qemu+tls://"+x.address()+"/session")
	defer func() { must(t, p.Close(t.Context())) }()
	drill := func(when string, class error, connections int) {
		t.Helper()
		a := providers.Ask(providers.ForDrill(t.Context()), p, "rack-a", target(d), providers.Now)
		if !errors.Is(a.Err, class) || (a.State == providers.PowerOn) != (class == nil) {
			t.Errorf("%s: got %s, %v; want %v", when, a.State, a.Err, class)
		}
		// The pipe counts a connection a moment after it was made.
		kit.Until(t, when+": the connections", func() bool { return x.accepted() >= connections })
		if got := x.accepted(); got != connections {
			t.Errorf("%s: got %d connections, want %d", when, got, connections)
		}
	}
	drill("first", nil, 1)
	drill("again", nil, 1)
	later += remote.RenewAfter
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() { drill("eight at once, an hour later", nil, 2) })
	}
	wait.Wait()
	drill("again", nil, 2)

	writeFiles(kit.NewAuthority("stranger"))
	expect(t, p, target(d), providers.PowerOn, "running (booted)")
	if got := x.accepted(); got != 2 {
		t.Errorf("a fence uses the old connection: got %d connections, want 2", got)
	}
	drill("a certificate that the daemon refuses", providers.ErrDenied, 3)
	expect(t, p, target(d), providers.PowerOn, "running (booted)")
	must(t, os.Remove(filepath.Join(dir, "key.pem")))
	drill("no key", providers.ErrDenied, 4)
	expect(t, p, target(d), providers.PowerOn, "running (booted)")

	writeFiles(h.Authority())
	drill("a right certificate", nil, 5)
	later += remote.RenewAfter
	must(t, x.listener.Close())
	drill("no new connection to be had", nil, 5)
}
