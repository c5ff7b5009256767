package libvirt_test

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// TestWatch: a Watch reports events by UUID and by name, those of no other domain, and what it missed.
func TestWatch(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	ctx := t.Context()
	n1, n2 := h.Guest(t, "g1", hypervisor.Guest{}), h.Guest(t, "g2", hypervisor.Guest{})
	off := h.Guest(t, "g3", hypervisor.Guest{Stopped: true})
	other := h.Guest(t, "g4", hypervisor.Guest{})
	p := newProvider(t, nil, h.URI())
	libvirt.SetRhythm(p, time.Second, 50*time.Millisecond, 200*time.Millisecond)
	reports, stop := providertest.StartWatch(t, p,
		providers.Target{Node: "n1", SystemUUID: n1.UUID()},
		providers.Target{Node: "n2", ID: "g2", SystemUUID: n2.UUID()},
		providers.Target{Node: "n3", ID: off.UUID()},
		providers.Target{Node: "unknown", ID: "no such domain"},
		providers.Target{Node: "nothing"},
	)
	providertest.AwaitReports(t, reports, "n3 Off shut off (unknown)")
	must(t, other.Destroy(ctx))
	must(t, n1.Kill())
	providertest.AwaitReports(t, reports, "n1 Off event: stopped (failed)")
	must(t, n2.Destroy(ctx))
	providertest.AwaitReports(t, reports, "n2 Off event: stopped (destroyed)")
	must(t, n2.Start(ctx))
	providertest.AwaitReports(t, reports, "n2 On event: started (booted)")
	must(t, n2.Save(ctx))
	providertest.AwaitReports(t, reports, "n2 On event: stopped (saved)")
	must(t, n2.Start(ctx))
	providertest.AwaitReports(t, reports, "n2 On event: started (restored)")

	// The daemon dies, and the guest dies before the daemon is back.
	h.KillDaemon()
	must(t, n2.Kill())
	must(t, h.StartDaemon(ctx))
	providertest.AwaitReports(t, reports, "n2 Off shut off (crashed)")
	must(t, n2.Start(ctx))
	providertest.AwaitReports(t, reports, "n2 On event: started (booted)")

	// It hangs: the connection stays. It is asked, given up, and listened to again when it is back. (No guest is killed
	// meanwhile: libvirtd 9.0 was once seen to answer nothing about such a guest for half a minute after it went on.)
	h.FreezeDaemon()
	select {
	case <-time.After(3 * time.Second): // three beats
	case <-ctx.Done():
	}
	h.ThawDaemon()
	must(t, n2.Destroy(ctx))
	providertest.AwaitReports(t, reports, "n2 Off ") // by an event, or by the look after the connection
	must(t, n2.Start(ctx))
	providertest.AwaitReports(t, reports, "n2 On event: started (booted)")

	stop()
	must(t, n2.Destroy(ctx)) // which must not be reported
}

// TestWatchIsRefused: a daemon without events is an error at once, the provider's other calls go on.
func TestWatchIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t, nil, newPeer(t, scripted(func(call frame) []frame {
		return []frame{call.fail(3, "this function is not supported by the connection driver")}
	})).uri())
	err := p.Watch(t.Context(), []providers.Target{{Node: "n1", SystemUUID: anyUUID}},
		func(providers.Target, providers.Observation) {
			t.Error("got a report")
		})
	if !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("got %v, want %v", err, providers.ErrPermanent)
	}
}

// TestWatchGarbage: a peer that sends anything is connected to again and again, with pauses, until ctx ends.
func TestWatchGarbage(t *testing.T) {
	t.Parallel()
	x := newPeer(t, func(c net.Conn) { _, _ = c.Write(xdr(3, 1, 2, 3)); _, _ = readFrame(c) })
	p := newProvider(t, nil, x.uri())
	libvirt.SetRhythm(p, time.Second, 10*time.Millisecond, 20*time.Millisecond)
	_, stop := providertest.StartWatch(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID})
	kit.Until(t, "five connections", func() bool { return x.accepted() >= 5 })
	stop()
}

// BenchmarkEvent measures how long after a guest's end its event is reported: after QEMU was killed, and after the
// reply to a destroy (what may be negative: the event can come first).
func BenchmarkEvent(b *testing.B) {
	h := hypervisor.New(b, hypervisor.Options{})
	d := h.Guest(b, "n1", hypervisor.Guest{})
	p := newProvider(b, nil, h.URI())
	reports, _ := providertest.StartWatch(b, p, target(d))
	ctx := b.Context()
	end := map[string]func() time.Time{
		"killed":    func() time.Time { now := time.Now(); must(b, d.Kill()); return now },
		"destroyed": func() time.Time { must(b, d.Destroy(ctx)); return time.Now() },
	}
	for name, f := range end {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				must(b, d.Start(ctx))
				for drained := false; !drained; {
					select {
					case <-reports:
					default:
						drained = true
					}
				}
				b.StartTimer()
				from := f()
				raw := map[string]string{"killed": "event: stopped (failed)",
					"destroyed": "event: stopped (destroyed)"}[name]
				providertest.AwaitReports(b, reports, "n1 Off "+raw)
				b.ReportMetric(float64(time.Since(from).Milliseconds()), "ms-last")
				must(b, d.Await(ctx,
					map[string]string{"killed": "shut off (crashed)", "destroyed": "shut off (destroyed)"}[name]))
			}
		})
	}
}

// BenchmarkState is one question about one guest, and about one of a group.
func BenchmarkState(b *testing.B) {
	h, other := hypervisor.New(b, hypervisor.Options{}), hypervisor.New(b, hypervisor.Options{})
	d := h.Guest(b, "n1", hypervisor.Guest{Stopped: true})
	for n, p := range []*libvirt.Provider{newProvider(b, nil, h.URI()), newProvider(b, nil, h.URI(), other.URI())} {
		b.Run(fmt.Sprintf("%d hypervisors", n+1), func(b *testing.B) {
			for b.Loop() {
				if a := ask(b, p, target(d)); a.State != providers.PowerOff {
					b.Fatalf("got %s, %v", a.State, a.Err)
				}
			}
		})
	}
}

// TestWatchLateTruth: a daemon that says running at first, and then off, without an event.
func TestWatchLateTruth(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	var asked atomic.Int32
	p := newProvider(t, nil, newPeer(t, scripted(func(call frame) []frame {
		switch {
		case call.procedure() == procRegister || call.procedure() == 157:
			return []frame{call.reply(make([]uint32, map[uint32]int{procRegister: 1, 157: 2}[call.procedure()])...)}
		case call.procedure() == procGetState && asked.Add(1) == 1:
			return []frame{call.reply(1, 1)}
		default:
			return peerDomain(uuid, 5, 3, 0)(call)
		}
	})).uri())
	libvirt.SetRhythm(p, 100*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond)
	reports, _ := providertest.StartWatch(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID})
	providertest.AwaitReports(t, reports, "n1 Off shut off (crashed)")
}

// TestWatchNoticesSilence: a daemon that hangs keeps its connection open; the watch makes another.
func TestWatchNoticesSilence(t *testing.T) {
	t.Parallel()
	x := newPeer(t, scripted(func(call frame) []frame {
		if call.procedure() == procRegister {
			return []frame{call.reply(0)}
		}
		return nil
	}))
	p := newProvider(t, nil, x.uri())
	libvirt.SetRhythm(p, 50*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond)
	_, stop := providertest.StartWatch(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID})
	kit.Until(t, "three connections", func() bool { return x.accepted() >= 3 })
	stop()
}
