package wake

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
)

// observeLease applies a Lease to the fleet, and reports whether it changed.
func (w *Options) observeLease(l *coordinationv1.Lease) (changed bool) {
	w.Fleet(func(f *fleet.Fleet) {
		changed = f.ApplyLease(l.Name, l.ResourceVersion, taint.LeaseDuration(l), w.Now.Instant())
	})
	return changed
}

// heartbeats watches the node Leases and stores none. Of 5,000 nodes 500 Leases are renewed each second. An informer,
// which stores objects for readers that we do not have, would hand each on three times more.
type heartbeats struct {
	Options
	all    toolscache.ListerWatcher
	listed chan struct{} // closed once all were listed
	first  sync.Once
}

// newHeartbeats makes all replicas of a manager watch the Leases, so that a new leader knows which are stale.
func newHeartbeats(mgr manager.Manager, o Options) (*heartbeats, error) {
	gvk := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	c, err := apiutil.RESTClientForGVK(gvk, false, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	all := toolscache.NewListWatchFromClient(c, "leases", corev1.NamespaceNodeLease, fields.Everything())
	return &heartbeats{Options: o, all: all, listed: make(chan struct{})}, nil
}

// Start blocks until ctx ends.
func (h *heartbeats) Start(ctx context.Context) error {
	toolscache.NewReflectorWithOptions(h.all, &coordinationv1.Lease{}, h,
		toolscache.ReflectorOptions{Name: "leases"}).RunWithContext(ctx)
	return nil
}

// GetCache makes it one of the manager's caches: before all Leases were listed, nothing that reads them is started, and
// no replica leads.
func (h *heartbeats) GetCache() cache.Cache { return listed{by: h.listed} }

// listed is a cache without objects.
type listed struct {
	cache.Cache
	by <-chan struct{}
}

func (l listed) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-l.by:
		return true
	case <-ctx.Done():
		return false
	}
}

// checkReady returns an error until all Leases were listed.
func (h *heartbeats) checkReady(*http.Request) error {
	select {
	case <-h.listed:
		return nil
	default:
		return errors.New("the nodes' Leases have not been listed")
	}
}

// Add observes a Lease that is new to the watch.
func (h *heartbeats) Add(o any) error { return h.Update(o) }

// Update observes a Lease that may have changed.
func (h *heartbeats) Update(o any) error {
	if l, ok := o.(*coordinationv1.Lease); ok && h.observeLease(l) {
		h.OnHeartbeat(l.Name)
	}
	return nil
}

// Delete ignores the deletion of a Lease: it says nothing about a machine. The Lease is silent from now on.
func (h *heartbeats) Delete(any) error { return nil }

// Replace observes all Leases, at the start and after the watch broke.
func (h *heartbeats) Replace(all []any, _ string) error {
	for _, o := range all {
		_ = h.Update(o) // never fails
	}
	h.first.Do(func() { close(h.listed) })
	return nil
}

// Resync does nothing: there is nothing to repeat.
func (h *heartbeats) Resync() error { return nil }

// relist is how often the Leases are listed live while none is fresh.
const relist = 2 * time.Second

// scanLeases looks for Leases that stopped or began to change, and wakes their nodes. While none is fresh it lists them
// live. After an outage of the API server the watch's back-off would leave us blind for half a minute, and a node that
// dies then would be noticed late. It blocks until ctx ends.
func (w *Options) scanLeases(ctx context.Context) {
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
		w.Fleet(func(f *fleet.Fleet) { changed, silent = f.Tick(w.Now.Instant()), f.IsSilent() })
		if silent && w.Now().Sub(listed) >= relist {
			listed = w.Now()
			w.listLeases(ctx)
		}
		w.wakeAll(ctx, changed)
	}
}

// listLeases applies a live list to the fleet. An error is the outage whose end it waits for.
func (w *Options) listLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var list coordinationv1.LeaseList
	if err := w.Live.List(ctx, &list, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		w.Log.Debug("Cannot list leases", "error", err)
		return
	}
	for i := range list.Items {
		w.observeLease(&list.Items[i])
	}
}
