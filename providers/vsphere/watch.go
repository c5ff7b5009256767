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

// Watch listens to a property collector of its own for the power of all VMs that the account may see, in the session that all calls
// share. VMs that come later, or were registered anew, are among them.
//
// vCenter answers at least every 15 s, if only to say that nothing happened. Where it does not, or the session has ended, Watch begins
// anew.
func (p *Provider) Watch(ctx context.Context, targets []providers.Target, f func(providers.Target, providers.Observation)) error {
	log := p.opts.Log.With("provider", p.opts.Name, "vcenter", p.origin)
	w := watch{p: p, f: f, targets: map[[16]byte][]providers.Target{}}
	for _, t := range targets {
		if u, err := key(t); err == nil {
			w.targets[either(u)] = append(w.targets[either(u)], t)
		}
	}
	for pause := p.rhythm.first; ; pause = min(2*pause, p.rhythm.last) {
		subscribed, err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errClosed):
			return fmt.Errorf("watch (%s): %w", p.device(), err)
		case subscribed:
			log.Warn("Lost the events of a vCenter", "err", providers.Cause(err))
			pause = p.rhythm.first
		default:
			log.Debug("Cannot get the events of a vCenter", "err", providers.Cause(err), "again", pause)
		}
		if !remote.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

type watch struct {
	p       *Provider
	targets map[[16]byte][]providers.Target // by UUID, in the lesser byte order
	f       func(providers.Target, providers.Observation)
}

// once listens until something fails or ctx ends.
func (w *watch) once(ctx context.Context) (subscribed bool, err error) {
	s, err := w.p.loggedIn(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		if errors.Is(err, errSession) {
			w.p.forget(s)
		}
	}()
	view, err := w.ask(ctx, s.allVMs)
	if err != nil {
		return false, err
	}
	collector, err := w.ask(ctx, func(ctx context.Context) (ref, error) {
		res, err := call(ctx, s, methods.CreatePropertyCollector, &types.CreatePropertyCollector{This: s.content.PropertyCollector})
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
		_, _ = call(ctx, s, methods.DestroyPropertyCollector, &types.DestroyPropertyCollector{This: collector}) // else it ends with the session
	}()
	if _, err := w.ask(ctx, func(ctx context.Context) (ref, error) {
		_, err := call(ctx, s, methods.CreateFilter, &types.CreateFilter{This: collector, Spec: types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{throughView(view)},
			PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{propUUID, propPower, propConnection}}},
		}})
		return ref{}, withSession(err)
	}); err != nil {
		return false, err
	}
	seen := map[ref]*object{} // all VMs: one may be given a target's UUID
	version, first := "", true
	wait := max(1, int32(w.p.rhythm.wait/time.Second))
	for {
		res, err := w.updates(ctx, s, &types.WaitForUpdatesEx{
			This: collector, Version: version, Options: &types.WaitOptions{MaxWaitSeconds: &wait, MaxObjectUpdates: s.page},
		})
		if err != nil {
			return true, withSession(err)
		}
		if res.Returnval == nil {
			continue // nothing happened
		}
		version = res.Returnval.Version
		for _, set := range res.Returnval.FilterSet {
			for _, u := range set.ObjectSet {
				w.changed(seen, u, first)
			}
		}
		first = first && res.Returnval.Truncated != nil && *res.Returnval.Truncated
	}
}

// ask puts a question that is answered at once.
func (w *watch) ask(ctx context.Context, f func(context.Context) (ref, error)) (ref, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	return f(ctx)
}

// updates waits for the next events. A vCenter that does not even say that there are none has lost us.
func (w *watch) updates(ctx context.Context, s *session, q *types.WaitForUpdatesEx) (*types.WaitForUpdatesExResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, w.p.rhythm.wait+loginTime)
	defer cancel()
	return call(ctx, s, methods.WaitForUpdatesEx, q)
}

// changed takes what happened to one VM, and tells of its power where that changed. What is there at the beginning is told only of a VM
// that does not run.
func (w *watch) changed(seen map[ref]*object, u types.ObjectUpdate, first bool) {
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
		o.set(c.Name, c.Val)
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
	for _, t := range w.targets[either(id)] {
		w.f(t, providers.Observation{State: state, Raw: "event: " + o.power, SystemUUID: o.uuid,
			At: providers.InstantOf(w.p.opts.Now())})
	}
}
