package vsphere

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Watch listens to a property collector of its own for the power of all VMs that the account may see, in the session
// that all calls share. It includes VMs that are created or registered later.
//
// vCenter answers at least every 15 s, even if nothing happened. If it does not, or the session has ended, Watch starts
// again.
func (p *Provider) Watch(
	ctx context.Context,
	targets []providers.Target,
	f func(providers.Target, providers.Observation),
) error {
	log := p.opts.Log.With("provider", p.opts.Name, "vcenter", p.origin)
	w := watch{p: p, f: f, targets: map[[16]byte][]providers.Target{}}
	for _, t := range targets {
		if u, err := targetUUID(t); err == nil {
			w.targets[canonicalOrder(u)] = append(w.targets[canonicalOrder(u)], t)
		}
	}
	for pause := p.timing.first; ; pause = min(2*pause, p.timing.last) {
		subscribed, err := w.watchOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errClosed):
			return fmt.Errorf("watch (%s): %w", p.deviceName(), err)
		case subscribed:
			log.Warn("Lost the events of a vCenter", "err", providers.ErrorCause(err))
			pause = p.timing.first
		default:
			log.Debug("Cannot get the events of a vCenter", "err", providers.ErrorCause(err), "again", pause)
		}
		if !remote.SleepContext(ctx, pause) {
			return ctx.Err()
		}
	}
}

type watch struct {
	p       *Provider
	targets map[[16]byte][]providers.Target // by UUID, in the lesser byte order
	f       func(providers.Target, providers.Observation)
}

// watchOnce listens until something fails or ctx ends.
func (w *watch) watchOnce(ctx context.Context) (subscribed bool, err error) {
	s, err := w.p.loggedIn(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		if errors.Is(err, errSession) {
			w.p.forgetSession(s)
		}
	}()
	view, err := w.askWithTimeout(ctx, s.allVMs)
	if err != nil {
		return false, err
	}
	collector, err := w.askWithTimeout(ctx, func(ctx context.Context) (ref, error) {
		res, err := callMethod(ctx, s, methods.CreatePropertyCollector,
			&types.CreatePropertyCollector{This: s.content.PropertyCollector})
		if err != nil {
			return ref{}, err
		}
		return res.Returnval, nil
	})
	if err != nil {
		return false, err
	}
	defer func() { // also ends a wait that vCenter is still in
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		// else it ends with the session
		_, _ = callMethod(ctx, s, methods.DestroyPropertyCollector, &types.DestroyPropertyCollector{This: collector})
	}()
	if _, err := w.askWithTimeout(ctx, func(ctx context.Context) (ref, error) {
		_, err := callMethod(ctx, s, methods.CreateFilter,
			&types.CreateFilter{This: collector, Spec: types.PropertyFilterSpec{
				ObjectSet: []types.ObjectSpec{throughView(view)},
				PropSet: []types.PropertySpec{{
					Type:    "VirtualMachine",
					PathSet: []string{propUUID, propPower, propConnection},
				}},
			}})
		return ref{}, asSessionError(err)
	}); err != nil {
		return false, err
	}
	seen := map[ref]*object{} // all VMs: one may be given a target's UUID
	version, first := "", true
	wait := max(1, int32(w.p.timing.wait/time.Second))
	for {
		res, err := w.waitForUpdates(ctx, s, &types.WaitForUpdatesEx{
			This:    collector,
			Version: version,
			Options: &types.WaitOptions{MaxWaitSeconds: &wait, MaxObjectUpdates: s.page},
		})
		if err != nil {
			return true, asSessionError(err)
		}
		if res.Returnval == nil {
			continue // nothing happened
		}
		version = res.Returnval.Version
		for _, set := range res.Returnval.FilterSet {
			for _, u := range set.ObjectSet {
				w.handleChange(seen, u, first)
			}
		}
		first = first && res.Returnval.Truncated != nil && *res.Returnval.Truncated
	}
}

// askWithTimeout sends a request that is answered at once.
func (w *watch) askWithTimeout(ctx context.Context, f func(context.Context) (ref, error)) (ref, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	return f(ctx)
}

// waitForUpdates waits for the next events. A vCenter that does not even answer that there are none has lost this
// client.
func (w *watch) waitForUpdates(
	ctx context.Context,
	s *session,
	q *types.WaitForUpdatesEx,
) (*types.WaitForUpdatesExResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, w.p.timing.wait+loginTime)
	defer cancel()
	return callMethod(ctx, s, methods.WaitForUpdatesEx, q)
}

// handleChange evaluates a change of one VM, and reports its power if that changed. Initially it reports only VMs that
// do not run.
func (w *watch) handleChange(seen map[ref]*object, u types.ObjectUpdate, first bool) {
	if u.Kind == types.ObjectUpdateKindLeave {
		delete(seen, u.Obj)
		return
	}
	o := seen[u.Obj]
	if o == nil {
		o = &object{}
		seen[u.Obj] = o
	}
	before := *o
	for _, c := range u.ChangeSet {
		o.setProperty(c.Name, c.Val)
	}
	id, ok := providers.ParseUUID(o.uuid)
	state := powerState(o.power)
	switch {
	case !ok, o.connection != string(types.VirtualMachineConnectionStateConnected):
		return
	case o.power == before.power && o.connection == before.connection && o.uuid == before.uuid:
		return
	case first && o.power == string(types.VirtualMachinePowerStatePoweredOn):
		return
	}
	for _, t := range w.targets[canonicalOrder(id)] {
		w.f(t, providers.Observation{State: state, Raw: "event: " + o.power, SystemUUID: o.uuid,
			At: providers.InstantOf(w.p.opts.Now())})
	}
}
