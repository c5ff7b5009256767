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
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/wake/line"
)

// The intervals at which the devices to be watched are looked up again: where the configuration changed, where nodes did, and anyway.
const (
	checkConfig  = time.Second
	checkTargets = 5 * time.Second
	checkAll     = time.Minute
	watchAgain   = 30 * time.Second // after a device that cannot be watched
)

// watchDevices keeps one Watch running for each provider whose devices push, over the machines of all nodes, and wakes a node when
// its machine is told not to run; it says to whom lines are kept (watchLines), and keeps the pollers. It wakes all nodes when the
// configuration changed: one may have been waiting for just that. It blocks until ctx ends and all of its Watches and pollers have returned.
func (r *Reconciler) watchDevices(ctx context.Context, wake chan<- event.GenericEvent) {
	running := map[providers.Watcher]*deviceWatch{}
	polls := map[providers.Provider]*poller{}
	defer func() {
		for _, w := range running {
			w.stop()
		}
		for _, p := range polls {
			p.stop()
		}
	}()
	tick := time.NewTicker(checkConfig)
	defer tick.Stop()
	var config *Config
	var looked time.Time
	again := false
	for {
		if p, now := r.Config(), r.Now(); p != config || r.movedSince(looked, now) || again && now.Sub(looked) >= checkTargets {
			if config != nil && p != config {
				r.wakeAll(ctx, wake)
			}
			config, looked, again = p, now, true
			if want, err := r.watched(ctx, config); err != nil {
				r.Log.Warn("Cannot list nodes", "error", err) // what is watched stays watched
			} else {
				r.rewatch(ctx, running, want.pushes, wake)
				r.repoll(ctx, polls, want.polls, wake)
				r.lines.Want(config.Lines, want.lines)
				again = len(want.polls) > 0 // one that was silent for a while is polled again, though its Node did not change
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// movedSince reports that it is time to look all nodes up again, which were looked up at some time before now: a minute ago, or some seconds if a
// Node moved since. It does so twice: what other nodes claim may be known a second after they moved.
func (r *Reconciler) movedSince(looked, now time.Time) bool {
	since := now.Sub(looked)
	return since >= checkAll || since >= checkTargets && !time.Unix(0, r.moved.Load()).Before(looked.Add(-checkTargets))
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

// watched is who is to be watched, and how.
type watched struct {
	pushes map[providers.Watcher][]providers.Target // machines whose devices push, in the order of the nodes' names
	polls  map[providers.Provider]*polled
	lines  []line.Node
}

// watched finds who is to be watched. A node in mode disabled is neither polled nor has it a line, nor has one without a machine.
func (r *Reconciler) watched(ctx context.Context, config *Config) (watched, error) {
	nodes, err := kube.CachedNodes(ctx, r.Cache)
	if err != nil {
		return watched{}, err
	}
	out := watched{pushes: map[providers.Watcher][]providers.Target{}, polls: map[providers.Provider]*polled{}}
	for _, n := range nodes {
		rec, _ := taint.RecordOf(n)
		m, _ := config.Machines.Find(n, rec)
		asks := len(m.Devices()) > 0 && config.mode(n, m.Mode).Mode != fence.Disabled
		if a := addressOf(n); asks && a.IsValid() {
			out.lines = append(out.lines, line.Node{Name: n.Name, Address: a})
		}
		for _, d := range m.Devices() {
			if d.Watcher != nil {
				out.pushes[d.Watcher] = append(out.pushes[d.Watcher], d.Target)
			}
			if asks && d.Poll.Every > 0 && r.well(config, n) {
				p := out.polls[d.Provider]
				if p == nil {
					p = &polled{provider: d.Provider, name: d.Name, Polling: d.Poll}
					out.polls[d.Provider] = p
				}
				p.machines = append(p.machines, d)
			}
		}
	}
	for _, targets := range out.pushes {
		slices.SortFunc(targets, func(a, b providers.Target) int { return cmp.Compare(a.Node, b.Node) })
	}
	for _, p := range out.polls {
		slices.SortFunc(p.machines, func(a, b machine.Machine) int { return cmp.Compare(a.Target.Node, b.Target.Node) })
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
				r.across(func(f *fleet.Fleet) { f.HeardOn(t.Node, r.now()) })
				return
			}
			r.across(func(f *fleet.Fleet) { f.Hint(t.Node, fleet.Push, r.now()) })
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
