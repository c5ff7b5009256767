package libvirt_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/test/hypervisor"
)

// TestPlace: a guest is absent from a hypervisor only if that knows it by none of its names, in no state at all, and
// says so.
func TestPlace(t *testing.T) {
	t.Parallel()
	a, b := hypervisor.New(t, hypervisor.Options{}), hypervisor.New(t, hypervisor.Options{})
	p, ctx := limiter.New(newProvider(t, nil, a.URI(), b.URI()), limiter.Options{Name: "rack-a", Type: "libvirt"}),
		t.Context()
	look := func(h *hypervisor.Hypervisor, of providers.Target) providers.PlaceAnswer {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return providers.AskPlace(ctx, p, h.URI(), of, providers.Now)
	}
	onA := a.Guest(t, "n1", hypervisor.Guest{})
	n1 := providers.Target{Node: "n1", ID: "n1", SystemUUID: onA.UUID()}
	absent := func(what string, h *hypervisor.Hypervisor, of providers.Target) {
		t.Helper()
		if got := look(h, of); !got.Absent || got.Err != nil || !strings.HasPrefix(got.Raw, "not on uris[") ||
			got.At.IsZero() || got.At.After(got.Got) {
			t.Errorf("%s: got %+v, want absent", what, got)
		}
	}
	there := func(what string, h *hypervisor.Hypervisor, of providers.Target) {
		t.Helper()
		if got := look(h, of); !got.HasAnswer() || got.Absent || !strings.HasPrefix(got.Raw, "on uris[") {
			t.Errorf("%s: got %+v, want there", what, got)
		}
	}
	unknown := func(what string, h *hypervisor.Hypervisor, of providers.Target, class error) {
		t.Helper()
		if got := look(h, of); got.HasAnswer() || got.Absent || !errors.Is(got.Err, class) {
			t.Errorf("%s: got %+v, want %v", what, got, class)
		}
	}

	there("runs", a, n1)
	absent("never there", b, n1)
	for _, id := range []string{"", "no-such-name", onA.UUID()} {
		there("found by its UUID, not by "+id, a, providers.Target{ID: id, SystemUUID: onA.UUID()})
	}
	u, _ := providers.ParseUUID(onA.UUID())
	swapped := providers.SwapUUID(u)
	there("in the other byte order", a,
		providers.Target{
			SystemUUID: fmt.Sprintf("%x-%x-%x-%x-%x", swapped[:4], swapped[4:6], swapped[6:8], swapped[8:10],
				swapped[10:])})
	there("found by its name alone", a, providers.Target{ID: "n1", SystemUUID: anyUUID})
	unknown("who it is is not known", b, providers.Target{ID: "n1"}, providers.ErrNotFound)
	unknown("zeros", b, providers.Target{ID: "n1", SystemUUID: "00000000-0000-0000-0000-000000000000"},
		providers.ErrNotFound)
	unknown("two UUIDs", b, providers.Target{ID: anyUUID, SystemUUID: onA.UUID()}, providers.ErrIdentity)

	must(t, onA.Pause(ctx)) // as one that arrives is
	there("paused", a, n1)
	must(t, onA.Resume(ctx))
	must(t, onA.Save(ctx))
	there("saved", a, n1)
	must(t, onA.RemoveSave(ctx))
	there("shut off", a, n1)
	must(t, onA.Undefine(ctx))
	absent("undefined", a, n1)

	transient := b.Guest(t, "n2", hypervisor.Guest{Transient: true})
	n2 := providers.Target{ID: "n2", SystemUUID: transient.UUID()}
	there("transient", b, n2)
	b.FreezeDaemon()
	hung, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	if got := providers.AskPlace(hung, p, b.URI(), n1, providers.Now); got.Absent ||
		!errors.Is(got.Err, providers.ErrUnreachable) {
		t.Errorf("a daemon that hangs: got %+v", got)
	}
	cancel()
	b.ThawDaemon()
	b.KillDaemon()
	unknown("no daemon", b, n1, providers.ErrUnreachable)
	absent("the other one answers", a, n2)
	must(t, b.StartDaemon(ctx))
	there("it outlived its daemon", b, n2)

	if got := providers.AskPlace(ctx, p, "qemu:///system", n1, providers.Now); got.Absent ||
		!errors.Is(got.Err, providers.ErrPermanent) {
		t.Errorf("a hypervisor that is none of the group's: got %+v", got)
	}
	c := libvirt.Config{URI: "qemu:///system"}
	if got := c.Hypervisors(); !slices.Equal(got, []string{"qemu:///system"}) {
		t.Errorf("hypervisors: got %q", got)
	}
	c = libvirt.Config{URIs: []string{a.URI(), b.URI()}}
	if got := c.Hypervisors(); !slices.Equal(got, c.URIs) {
		t.Errorf("hypervisors: got %q", got)
	}
}
