package controller

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/wake/line"
)

// watchLines keeps the lines to the nodes (watchDevices says to whom), and wakes a node whose line broke. It blocks until ctx ends and
// they are closed.
func (r *Reconciler) watchLines(ctx context.Context, wake chan<- event.GenericEvent) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.lines.Run(ctx); err != nil {
			r.Log.Warn("There are no lines to nodes", "error", err)
		}
	})
	running.Go(func() { r.forwardBroken(ctx, wake) })
	defer r.Metrics.lines.Reset()
	defer running.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for state, n := range r.lines.Counts() {
				r.Metrics.lines.WithLabelValues(string(state)).Set(float64(n))
			}
		}
	}
}

// forwardBroken wakes the nodes whose lines broke, until ctx ends.
func (r *Reconciler) forwardBroken(ctx context.Context, wake chan<- event.GenericEvent) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.broken:
		}
		r.mu.Lock()
		names := r.broke
		r.broke = nil
		r.mu.Unlock()
		for _, n := range names {
			select {
			case wake <- wakeUp(n):
			case <-ctx.Done():
				return
			}
		}
	}
}

// lineBroke is a hint. It does not block: whoever keeps the lines calls it.
func (r *Reconciler) lineBroke(node string) {
	r.across(func(f *fleet.Fleet) { f.Hint(node, fleet.Line, r.now()) })
	r.mu.Lock()
	r.broke = append(r.broke, node)
	r.mu.Unlock()
	select {
	case r.broken <- struct{}{}:
	default: // it was said before, and not heard yet
	}
}

// addressOf is where a node's line goes: its first InternalIP that can be another machine's. Its kubelet writes that.
func addressOf(n *corev1.Node) netip.Addr {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && line.Usable(ip) {
			return ip
		}
	}
	return netip.Addr{}
}
