package wake

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// watchAgain is how long to wait before watching again after a provider's devices could not be watched.
const watchAgain = 30 * time.Second

// push is one Watch of a provider whose devices push.
type push struct {
	Options
	watcher providers.Watcher
	targets []providers.Target
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// newPush begins to watch the devices of targets, until ctx ends or stop is called.
func newPush(ctx context.Context, o Options, w providers.Watcher, targets []providers.Target) *push {
	p := &push{Options: o, watcher: w, targets: targets}
	ctx, p.cancel = context.WithCancel(ctx)
	p.done.Go(func() { p.runWatch(ctx) })
	return p
}

// stop ends the Watch and waits until it has returned.
func (p *push) stop() {
	p.cancel()
	p.done.Wait()
}

// runWatch watches until ctx ends, again after a while if the provider gives up.
func (p *push) runWatch(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.watchOnce(ctx); ctx.Err() == nil {
			p.Log.Warn("Cannot watch devices; polling only", "machines", len(p.targets), "error", err)
		}
	}, watchAgain)
}

// watchOnce watches until the provider gives up, and turns its panic into an error.
func (p *push) watchOnce(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("watching devices: panic: %v\n%s", v, debug.Stack())
		}
	}()
	heard := func(t providers.Target, o providers.Observation) { p.handlePush(ctx, t, o) }
	if err := p.watcher.Watch(ctx, p.targets, heard); err != nil {
		return fmt.Errorf("watching devices: %w", err)
	}
	return errors.New("watching devices: ended by itself")
}

// handlePush handles what a device pushed. On proves nothing and wakes no node; everything else is a hint.
func (p *push) handlePush(ctx context.Context, t providers.Target, o providers.Observation) {
	p.Metrics.pushes.WithLabelValues(o.State.String()).Inc()
	if o.State == providers.PowerOn {
		p.Fleet(func(f *fleet.Fleet) { f.ApplyOnAnswer(t.Node, p.Now.Instant()) })
		return
	}
	p.addHint(t.Node, fleet.Push)
	p.Log.Info("Device reports that the machine does not run", "node", t.Node, "state", o.State.String(), "raw", o.Raw)
	p.wakeNode(ctx, t.Node)
}
