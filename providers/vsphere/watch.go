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
func (p *Provider) Watch(ctx context.Context, targets []providers.Target, report providers.ReportFunc) error {
	w := watch{p: p, report: report, targets: map[[16]byte][]providers.Target{}}
	for _, t := range targets {
		if u, err := targetUUID(t); err == nil {
			w.targets[canonicalOrder(u)] = append(w.targets[canonicalOrder(u)], t)
		}
	}
	log := p.opts.Log.With("provider", p.opts.Name, "device", p.origin)
	err := remote.Resubscribe(ctx, log, p.timing.first, p.timing.last, errClosed, w.watchOnce)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch (%s): %w", p.deviceName(), err)
}

type watch struct {
	p       *Provider
	targets map[[16]byte][]providers.Target // by UUID, in the lesser byte order
	report  providers.ReportFunc
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
	viewing, cancel := context.WithTimeout(ctx, loginTime)
	view, err := s.allVMs(viewing)
	cancel()
	if err != nil {
		return false, err
	}
	collector, err := callWithin(ctx, loginTime, s, methods.CreatePropertyCollector,
		&types.CreatePropertyCollector{This: s.content.PropertyCollector})
	if err != nil {
		return false, err
	}
	defer func() { // also ends a wait that vCenter is still in; else the collector ends with the session
		_, _ = callWithin(context.WithoutCancel(ctx), 2*time.Second, s, methods.DestroyPropertyCollector,
			&types.DestroyPropertyCollector{This: collector.Returnval})
	}()
	if _, err := callWithin(ctx, loginTime, s, methods.CreateFilter,
		&types.CreateFilter{This: collector.Returnval, Spec: types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{throughView(view)},
			PropSet: []types.PropertySpec{{
				Type:    "VirtualMachine",
				PathSet: []string{propUUID, propPower, propConnection},
			}},
		}}); err != nil {
		return false, asSessionError(err)
	}
	seen := map[ref]*object{} // all VMs: one may be given a target's UUID
	version, first := "", true
	wait := max(1, int32(w.p.timing.wait/time.Second))
	for {
		// A vCenter that does not even answer that there are no events has lost this client.
		res, err := callWithin(ctx, w.p.timing.wait+loginTime, s, methods.WaitForUpdatesEx, &types.WaitForUpdatesEx{
			This:    collector.Returnval,
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

// callWithin is callMethod with a timeout.
func callWithin[Q, R any](ctx context.Context, within time.Duration, s *session, m method[Q, R], q *Q) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return callMethod(ctx, s, m, q)
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
	switch {
	case !ok, o.connection != string(types.VirtualMachineConnectionStateConnected):
		return
	case o.power == before.power && o.connection == before.connection && o.uuid == before.uuid:
		return
	case first && o.power == string(types.VirtualMachinePowerStatePoweredOn):
		return
	}
	for _, t := range w.targets[canonicalOrder(id)] {
		w.report(t, providers.Observation{State: powerState(o.power), Raw: "event: " + o.power, SystemUUID: o.uuid,
			At: providers.InstantOf(w.p.opts.Now())})
	}
}
