package controller

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fleet"
	"github.com/forcefence/forcefence/taint/kube"
)

// across lends the memory across nodes to f, which must not block.
func (r *Reconciler) across(f func(*fleet.Fleet)) {
	r.fleetMu.Lock()
	defer r.fleetMu.Unlock()
	f(&r.fleet)
}

// fleetView says what is known of a node now.
func (r *Reconciler) fleetView(name string) (v fleet.View) {
	r.across(func(f *fleet.Fleet) { v = f.View(name, r.Now()) })
	return v
}

// renewed folds a Lease in, and reports whether it changed.
func (r *Reconciler) renewed(l *coordinationv1.Lease) (changed bool) {
	r.across(func(f *fleet.Fleet) { changed = f.Lease(l.Name, l.ResourceVersion, taint.LeaseDuration(l), r.Now()) })
	return changed
}

// relist is how often the Leases are listed live while none is fresh.
const relist = 2 * time.Second

// watchLeases scans for Leases that stopped or began to change, and wakes their nodes. While none is fresh it lists them live: after
// an outage of the API server the informer's back-off would keep us blind for half a minute, and a node that dies then would be seen
// late. It blocks until ctx ends.
func (r *Reconciler) watchLeases(ctx context.Context, wake chan<- event.GenericEvent) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var listed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var changed []string
		var silent bool
		r.across(func(f *fleet.Fleet) { changed, silent = f.Tick(r.Now()), f.Silent() })
		if silent && r.Now().Sub(listed) >= relist {
			listed = r.Now()
			r.listLeases(ctx)
		}
		for _, n := range changed {
			select {
			case wake <- wakeUp(n):
			case <-ctx.Done():
				return
			}
		}
	}
}

// listLeases folds a live list in. An error is the outage that it looks for the end of.
func (r *Reconciler) listLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var list coordinationv1.LeaseList
	if err := r.Live.List(ctx, &list, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		r.Log.Debug("Cannot list leases", "error", err)
		return
	}
	for i := range list.Items {
		r.renewed(&list.Items[i])
	}
}
