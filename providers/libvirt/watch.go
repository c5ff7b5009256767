package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

var _ providers.Watcher = (*Provider)(nil)

// watchTiming holds the times with which a watch keeps its connection; tests have shorter ones.
type watchTiming struct {
	beat  time.Duration // between two questions whether the daemon still answers, and how long each may take
	first time.Duration // until the first attempt after a connection was lost; doubles with each that fails
	last  time.Duration // and stays at this
}

var defaultTiming = watchTiming{beat: 5 * time.Second, first: 250 * time.Millisecond, last: 10 * time.Second}

// Watch subscribes to the lifecycle events of each hypervisor, on a connection of its own. An event about a guest that
// can migrate is about one hypervisor only: the guest stopped there.
//
// A daemon that hangs sends no events and closes no connection, so Watch asks it a cheap question every few seconds. It
// replaces a connection that ended, or on which that question was not answered in time.
func (p *Provider) Watch(ctx context.Context, targets []providers.Target, report providers.ReportFunc) error {
	w := watch{p: p, targets: targets, report: report}
	errs := make([]error, len(p.group))
	p.forEachHypervisor(func(i int, h *hypervisor) { errs[i] = w.watchHypervisor(ctx, h) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch (libvirt %s): %w", p.opts.Name, errors.Join(errs...))
}

type watch struct {
	p       *Provider
	targets []providers.Target
	report  providers.ReportFunc
}

// watchHypervisor watches one hypervisor until ctx ends or its daemon has no events.
func (w *watch) watchHypervisor(ctx context.Context, h *hypervisor) error {
	log := w.p.opts.Log.With("provider", w.p.opts.Name, "device", h.displayName())
	return remote.Resubscribe(ctx, log, w.p.timing.first, w.p.timing.last, providers.ErrPermanent,
		func(ctx context.Context) (bool, error) { return w.watchOnce(ctx, h) })
}

// watchOnce connects, subscribes, reports what was missed, and then reports events, until the connection is lost or ctx
// ends.
func (w *watch) watchOnce(ctx context.Context, h *hypervisor) (subscribed bool, err error) {
	within := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(ctx, w.p.timing.beat, fmt.Errorf("no answer within %s", w.p.timing.beat))
	}
	first, cancel := within()
	defer cancel()
	events := make(chan lifecycle, 64)
	l, err := h.acquireLink(first, watching, events)
	if err != nil {
		return false, err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	defer l.releaseUser()
	defer l.markRetired()
	// The subscription comes first: what happens during the look over the targets is reported twice rather than never.
	if _, err := askDaemon(first, l, func(rpc *golibvirt.Libvirt) (int32, error) {
		return rpc.ConnectDomainEventCallbackRegisterAny(int32(golibvirt.DomainEventIDLifecycle), nil)
	}); err != nil {
		return false, fmt.Errorf("subscribing: %w", err)
	}
	wait.Go(func() { w.reportEvents(ctx, l, events) })
	wait.Go(func() { w.lookOver(ctx, l) })
	beat := time.NewTicker(w.p.timing.beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-l.wire.done:
			return true, l.wire.err
		case <-beat.C:
		}
		answer, cancel := within()
		_, err := askDaemon(answer, l, (*golibvirt.Libvirt).ConnectGetLibVersion)
		if err != nil && answer.Err() != nil {
			err = context.Cause(answer)
		}
		cancel()
		if err != nil {
			return true, fmt.Errorf("checking whether the daemon is alive: %w", err)
		}
	}
}

// lookOver reports the targets that do not run, and looks again at each beat for a while. A daemon that has just
// started reports running for a guest that died meanwhile, until it has tried to reach the guest's QEMU. It sends no
// event when it finds out.
func (w *watch) lookOver(ctx context.Context, l *link) {
	const rounds = 12
	down := make([]bool, len(w.targets))
	for range rounds {
		for i, t := range w.targets {
			was := down[i]
			at := w.p.opts.Now()
			g, uuid, ok := w.askTarget(ctx, l, t)
			down[i] = ok && !g.elsewhere && (g.state != providers.PowerOn || g.saved)
			if down[i] && !was {
				w.report(t, providers.Observation{State: g.state, Raw: g.raw, SystemUUID: providers.FormatUUID(uuid),
					At: providers.InstantOf(at)})
			}
		}
		select {
		case <-time.After(w.p.timing.beat):
		case <-l.wire.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// askTarget asks for one target. It skips one that cannot be found, is ambiguous, or does not answer in time: libvirtd
// does not answer for a domain that it is destroying. Another question checks whether the daemon is alive.
func (w *watch) askTarget(ctx context.Context, l *link, t providers.Target) (g domainAnswer, _ [16]byte, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, w.p.timing.beat)
	defer cancel()
	uuids, err := candidateUUIDs(t)
	if err != nil {
		return g, [16]byte{}, false
	}
	found, err := l.findDomains(ctx, uuids, t.ID)
	if err != nil || len(found) == 0 ||
		slices.ContainsFunc(found, func(d golibvirt.Domain) bool { return d.UUID != found[0].UUID }) {
		return g, [16]byte{}, false
	}
	g, err = l.askDomainState(ctx, found[0].UUID)
	return g, found[0].UUID, err == nil
}

// reportEvents reports events until the connection or ctx has ended.
func (w *watch) reportEvents(ctx context.Context, l *link, events <-chan lifecycle) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			w.reportEvent(e)
		case <-l.wire.done:
			for len(events) > 0 && ctx.Err() == nil { // what arrived before the end
				w.reportEvent(<-events)
			}
			return
		}
	}
}

func (w *watch) reportEvent(e lifecycle) {
	state, raw, power := mapEvent(e)
	if !power {
		return
	}
	for _, t := range w.targets {
		if e.isOf(t) {
			w.report(t, providers.Observation{State: state, Raw: raw, SystemUUID: providers.FormatUUID(e.uuid),
				At: providers.InstantOf(w.p.opts.Now())})
		}
	}
}

// isOf reports whether the event's domain is the target's: by name or UUID if the target has an ID, else by the
// system's UUID.
func (e lifecycle) isOf(t providers.Target) bool {
	if t.ID != "" && t.ID == e.name {
		return true
	}
	uuids, err := candidateUUIDs(t)
	return err == nil && slices.Contains(uuids, golibvirt.UUID(e.uuid))
}

// mapEvent maps an event (virDomainEventType and the details of each); power is false for events that are not about
// power.
func mapEvent(e lifecycle) (state providers.PowerState, raw string, power bool) {
	detail := func(of ...string) string {
		if int64(e.detail) < int64(len(of)) {
			return " (" + of[e.detail] + ")"
		}
		return fmt.Sprintf(" (detail %d)", e.detail)
	}
	switch golibvirt.DomainEventType(e.event) {
	case golibvirt.DomainEventStarted:
		return providers.PowerOn, "event: started" + detail("booted", "migrated", "restored", "from snapshot",
			"wakeup", "recreated"), true
	case golibvirt.DomainEventShutdown:
		return providers.PowerChanging, "event: shutdown" + detail("finished", "by the guest", "by the host"), true
	case golibvirt.DomainEventCrashed:
		return providers.PowerUnknown, "event: crashed" + detail("panicked", "crash-loaded"), true
	case golibvirt.DomainEventStopped:
	default:
		return providers.PowerUnknown, "", false
	}
	raw = "event: stopped" + detail("shutdown", "destroyed", "crashed", "migrated", "saved", "failed",
		"from snapshot", "recreated")
	switch golibvirt.DomainEventStoppedDetailType(e.detail) {
	case golibvirt.DomainEventStoppedShutdown, golibvirt.DomainEventStoppedDestroyed,
		golibvirt.DomainEventStoppedCrashed, golibvirt.DomainEventStoppedFailed,
		golibvirt.DomainEventStoppedFromSnapshot:
		return providers.PowerOff, raw, true
	case golibvirt.DomainEventStoppedSaved:
		return providers.PowerOn, raw, true // its memory may resume
	}
	return providers.PowerUnknown, raw, true
}
