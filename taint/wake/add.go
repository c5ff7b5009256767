package wake

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// AddTo adds all sources to a manager. Every replica watches the Leases, so that a new leader knows which are stale.
// The other sources run on the leader, where the controller reads Options.Nodes. They return only after everything that
// they started has stopped.
func AddTo(mgr manager.Manager, o Options) error {
	beats, err := newHeartbeats(mgr, o)
	if err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	if err := errors.Join(mgr.Add(beats), mgr.AddReadyzCheck("leases", beats.checkReady)); err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	l := newLines(o)
	sources := []struct {
		name string
		run  func(context.Context)
	}{
		{"watching leases", beats.scanLeases},
		{"watching devices", newDevices(o, l).runWatches},
		{"keeping lines to nodes", l.runLines},
	}
	if o.Storage != nil {
		sources = append(sources, struct {
			name string
			run  func(context.Context)
		}{"watching storage systems", o.watchStorage})
	}
	for _, s := range sources {
		run := manager.RunnableFunc(func(ctx context.Context) error { s.run(ctx); return nil })
		if err := mgr.Add(run); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// watchStorage wakes the nodes whose storage changed, until ctx ends.
func (o *Options) watchStorage(ctx context.Context) {
	o.Storage(ctx, func(node string) { o.wakeNode(ctx, node) })
}
