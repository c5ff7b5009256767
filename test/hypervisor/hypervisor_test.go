package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

func expect(t *testing.T, d *hypervisor.Domain, state string, running bool) {
	t.Helper()
	kit.Must(t, d.Await(t.Context(), state))
	if d.Running() != running {
		t.Errorf("%s (%s): got QEMU %d, want running %t", d.Name(), state, d.PID(), running)
	}
}

// TestGuests: what each method does to the world, which is also what libvirt says of it.
func TestGuests(t *testing.T) {
	h := hypervisor.New(t, hypervisor.Options{TCP: true, TLS: true})
	ctx := t.Context()
	must := func(err error) { t.Helper(); kit.Must(t, err) }

	d := h.Guest(t, "n1", hypervisor.Guest{})
	expect(t, d, "running (booted)", true)
	must(d.Pause(ctx))
	expect(t, d, "paused (user)", true)
	must(d.Resume(ctx))
	must(d.Kill())
	expect(t, d, "shut off (crashed)", false)
	must(d.Start(ctx))
	must(d.Save(ctx))
	expect(t, d, "shut off (saved)", false)
	must(d.Start(ctx))
	expect(t, d, "running (restored)", true)
	must(d.Destroy(ctx))
	expect(t, d, "shut off (destroyed)", false)
	must(d.Rename(ctx, "n1-new"))
	must(d.Start(ctx))
	pid := d.PID()

	h.KillDaemon()
	must(h.StartDaemon(ctx))
	expect(t, d, "running (booted)", true)
	if d.PID() != pid {
		t.Errorf("got QEMU %d after the daemon's restart, want %d", d.PID(), pid)
	}
	must(d.Destroy(ctx))
	h.StopDaemon()
	must(h.StartDaemon(ctx))
	expect(t, d, "shut off (unknown)", false)

	expect(t, h.Guest(t, "n2", hypervisor.Guest{Panics: true}), "crashed (panicked)", true)
	n3 := h.Guest(t, "n3", hypervisor.Guest{Transient: true})
	must(n3.Destroy(ctx))
	if n3.Running() {
		t.Error("a transient guest runs after Destroy")
	}
}

// TestNothingIsLeft: the guests and the files go when a process that started a hypervisor is killed.
func TestNothingIsLeft(t *testing.T) {
	hypervisor.Need(t)
	words := kit.KillTest(t, func() []string {
		h := hypervisor.New(t, hypervisor.Options{})
		return []string{h.Socket(), h.Guest(t, "n1", hypervisor.Guest{}).UUID()}
	}, func([]string) {})
	kit.WaitGone(t, words[1], strings.TrimSuffix(words[0], "/run/libvirt/libvirt-sock"))
}
