package controller

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fence"
)

// A kubelet renews its Lease every quarter of its duration (10 s of 40). A Lease is stale after two missed renewals and half of a
// third.
const (
	defaultLeaseDuration = 40 * time.Second
	staleAfter           = 2.5 / 4
)

// leaseTracker notes when this process saw each node's Lease change. It compares by its own clock, never by the renewTime that the
// node wrote with another one, as the stock node lifecycle controller does.
type leaseTracker struct {
	now func() time.Time

	mu    sync.Mutex // guards seen
	seen  map[string]leaseSeen
	stale map[string]bool // as of the last scan
}

type leaseSeen struct {
	rv       string
	at       time.Time
	duration time.Duration
}

func newLeaseTracker(now func() time.Time) *leaseTracker {
	return &leaseTracker{now: now, seen: map[string]leaseSeen{}, stale: map[string]bool{}}
}

// know begins to watch a node that may have no Lease at all.
func (t *leaseTracker) know(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.seen[name]; !ok {
		t.seen[name] = leaseSeen{at: t.now(), duration: defaultLeaseDuration}
	}
}

// renewed folds a Lease of the informer in, and reports whether it changed.
func (t *leaseTracker) renewed(l *coordinationv1.Lease) bool {
	d := defaultLeaseDuration
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		d = time.Duration(*s) * time.Second
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, old := t.now(), t.seen[l.Name]
	if old.rv == l.ResourceVersion || isOlder(l.ResourceVersion, old.rv) && now.Sub(old.at) < catchUp {
		return false
	}
	t.seen[l.Name] = leaseSeen{rv: l.ResourceVersion, at: now, duration: d}
	return true
}

// catchUp is how long an informer may bring what a live list was ahead of. Later than that an older resourceVersion is a cluster
// restored from a backup.
const catchUp = time.Minute

// isOlder reports whether a resourceVersion is known to come before another.
func isOlder(rv, than string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && c < 0
}

func (t *leaseTracker) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, name)
	delete(t.stale, name)
}

// others returns whether the node's own Lease is stale, and how many other nodes there are and how many of them are fresh.
func (t *leaseTracker) others(name string) (stale bool, others, fresh int) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, s := range t.seen {
		old := s.isStale(now)
		switch {
		case n == name:
			stale = old
		case old:
			others++
		default:
			others++
			fresh++
		}
	}
	return stale, others, fresh
}

func (s leaseSeen) isStale(now time.Time) bool {
	return now.Sub(s.at) > time.Duration(float64(s.duration)*staleAfter)
}

// turned returns the nodes whose Lease became stale or fresh since the last call.
func (t *leaseTracker) turned() []string {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for n, s := range t.seen {
		if old := s.isStale(now); old != t.stale[n] {
			t.stale[n] = old
			names = append(names, n)
		}
	}
	return names
}

// suspicion says why a node looks dead: by itself, by its silence, or by its device's word. A stale Lease counts only while most other Leases are fresh: otherwise it is the API
// server, or our own watch, that is silent.
func (r *Reconciler) suspicion(l taint.Look, before fence.Suspicion) fence.Suspicion {
	stale, others, fresh := r.leases.others(l.Name)
	s := fence.Suspicion{LeaseStale: stale, Since: before.Since}
	switch {
	case l.Exists && !l.IsReady():
		s.Why = "NotReady"
	case stale && 2*fresh > others:
		s.Why = "LeaseStale"
	case r.hints.stands(l.Name):
		s.Why = "MachineWentOff"
	default:
		return fence.Suspicion{LeaseStale: stale}
	}
	if before.Why == "" {
		s.Since = r.Now()
	}
	return s
}

// allStale reports that no other node is alive: nobody is fenced then (invariant 7).
func (r *Reconciler) allStale(name string) bool {
	_, _, fresh := r.leases.others(name)
	return fresh == 0
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
		if _, others, fresh := r.leases.others(""); others > 0 && fresh == 0 && r.Now().Sub(listed) >= relist {
			listed = r.Now()
			r.listLeases(ctx)
		}
		for _, n := range r.leases.turned() {
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
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var list coordinationv1.LeaseList
	if err := r.Live.List(ctx, &list, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		r.Log.Debug("Cannot list leases", "error", err)
		return
	}
	for i := range list.Items {
		r.leases.renewed(&list.Items[i])
	}
}
