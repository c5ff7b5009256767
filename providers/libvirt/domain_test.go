package libvirt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/test/hypervisor"
)

// TestDomain changes one guest's power in every way, and compares the answers.
func TestDomain(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	d := h.Guest(t, "n1", hypervisor.Guest{})
	p, n1, ctx := newProvider(t, nil, h.URI()), target(d), t.Context()

	expect(t, p, n1, providers.PowerOn, "running (booted)")
	must(t, d.Pause(ctx))
	expect(t, p, n1, providers.PowerOn, "paused (user)")
	must(t, d.Resume(ctx))

	must(t, power(t, p.PowerOff, n1))
	if d.Running() {
		t.Error("QEMU runs after PowerOff")
	}
	expect(t, p, n1, providers.PowerOff, "shut off (destroyed)")
	must(t, power(t, p.PowerOff, n1))
	must(t, power(t, p.PowerOn, n1))
	expect(t, p, n1, providers.PowerOn, "running (booted)")
	must(t, power(t, p.PowerOn, n1))

	must(t, d.Kill())
	must(t, d.Await(ctx, "shut off (crashed)"))
	expect(t, p, n1, providers.PowerOff, "shut off (crashed)")

	// Its memory is in a file: it resumes where it was.
	must(t, d.Start(ctx))
	must(t, d.Save(ctx))
	expect(t, p, n1, providers.PowerOn, "shut off (saved), managed save image")
	for name, f := range map[string]func() error{
		"PowerOff": func() error { return power(t, p.PowerOff, n1) },
		"PowerOn":  func() error { return power(t, p.PowerOn, n1) },
	} {
		if err := f(); !errors.Is(err, providers.ErrPermanent) || !strings.Contains(err.Error(), "managedsave-remove") {
			t.Errorf("%s of a saved domain: got %v", name, err)
		}
	}
	// A restart hides why it is off, on the connection that is replaced then.
	h.StopDaemon()
	must(t, h.StartDaemon(ctx))
	expect(t, p, n1, providers.PowerOn, "shut off (unknown), managed save image")
	must(t, d.RemoveSave(ctx))
	expect(t, p, n1, providers.PowerOff, "shut off (unknown)")

	must(t, d.Undefine(ctx))
	expectClass(t, p, n1, providers.ErrNotFound)
}
