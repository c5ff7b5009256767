package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fleet"
)

// The intervals at which the devices to be watched are looked up again: where the configuration changed, and where nodes may have.
const (
	checkConfig  = time.Second
	checkTargets = 5 * time.Second
	watchAgain   = 30 * time.Second // after a device that cannot be watched
)

// watchDevices keeps one Watch running for each provider whose devices push, over the machines of all nodes, and wakes a node when
// its machine is told not to run. It wakes them all when the configuration changed: one may have been waiting for just that. It
// blocks until ctx ends and all of its Watches have returned.
func (r *Reconciler) watchDevices(ctx context.Context, wake chan<- event.GenericEvent) {
	running := map[providers.Watcher]*deviceWatch{}
	defer func() {
		for _, w := range running {
			w.stop()
		}
	}()
	tick := time.NewTicker(checkConfig)
	defer tick.Stop()
	var config *Config
	var looked time.Time
	for {
		if p, now := r.Config(), r.Now(); p != config || now.Sub(looked) >= checkTargets {
			if config != nil && p != config {
				r.wakeAll(ctx, wake)
			}
			config, looked = p, now
			if want, err := r.watched(ctx, config); err != nil {
				r.Log.Warn("Cannot list nodes", "error", err) // what is watched stays watched
			} else {
				r.rewatch(ctx, running, want, wake)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// wakeAll has every known node looked at.
func (r *Reconciler) wakeAll(ctx context.Context, wake chan<- event.GenericEvent) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.nodes))
	r.mu.Unlock()
	for _, n := range names {
		select {
		case wake <- wakeUp(n):
		case <-ctx.Done():
			return
		}
	}
}

// wakeUp is what the wake channel carries.
func wakeUp(node string) event.GenericEvent {
	return event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}}
}

// watched returns the machines whose devices push, by provider, in the order of the nodes' names.
func (r *Reconciler) watched(ctx context.Context, config *Config) (map[providers.Watcher][]providers.Target, error) {
	var nodes corev1.NodeList
	if err := r.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing cached nodes: %w", err)
	}
	out := map[providers.Watcher][]providers.Target{}
	for i := range nodes.Items {
		rec, _ := taint.RecordOf(&nodes.Items[i])
		m, _ := config.Believed(&nodes.Items[i], rec)
		for _, d := range m.Devices() {
			if d.Watcher != nil {
				out[d.Watcher] = append(out[d.Watcher], d.Target)
			}
		}
	}
	for _, targets := range out {
		slices.SortFunc(targets, func(a, b providers.Target) int { return cmp.Compare(a.Node, b.Node) })
	}
	return out, nil
}

// rewatch ends the Watches whose targets changed, and begins those that are missing.
func (r *Reconciler) rewatch(ctx context.Context, running map[providers.Watcher]*deviceWatch, want map[providers.Watcher][]providers.Target, wake chan<- event.GenericEvent) {
	for w, old := range running {
		if !slices.Equal(old.targets, want[w]) {
			old.stop()
			delete(running, w)
		}
	}
	for w, targets := range want {
		if running[w] != nil {
			continue
		}
		wctx, cancel := context.WithCancel(ctx)
		d := &deviceWatch{targets: targets, cancel: cancel, done: make(chan struct{})}
		running[w] = d
		go func() { // its owner is watchDevices, which calls stop
			defer close(d.done)
			r.watchDevice(wctx, w, targets, wake)
		}()
	}
}

// deviceWatch is one Watch under way.
type deviceWatch struct {
	targets []providers.Target
	cancel  context.CancelFunc
	done    chan struct{}
}

func (d *deviceWatch) stop() {
	d.cancel()
	<-d.done
}

// watchDevice runs one Watch until ctx ends, again after a while if the provider gives up.
func (r *Reconciler) watchDevice(ctx context.Context, w providers.Watcher, targets []providers.Target, wake chan<- event.GenericEvent) {
	for {
		err := watchOnce(ctx, w, targets, func(t providers.Target, o providers.Observation) {
			r.Metrics.pushes.WithLabelValues(o.State.String()).Inc()
			if o.State == providers.PowerOn {
				return
			}
			r.across(func(f *fleet.Fleet) { f.Hint(t.Node, fleet.Push, r.Now()) })
			r.Log.Info("Device reports that the machine does not run", "node", t.Node, "state", o.State.String(), "raw", o.Raw)
			select {
			case wake <- wakeUp(t.Node):
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("Cannot watch devices; polling only", "machines", len(targets), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchAgain):
		}
	}
}

// watchOnce turns a provider's panic into an error.
func watchOnce(ctx context.Context, w providers.Watcher, targets []providers.Target, f func(providers.Target, providers.Observation)) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("watching devices: panic: %v\n%s", v, debug.Stack())
		}
	}()
	if err := w.Watch(ctx, targets, f); err != nil {
		return fmt.Errorf("watching devices: %w", err)
	}
	return errors.New("watching devices: ended by itself")
}
