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
	runs := []func(context.Context){beats.scanLeases, newDevices(o, l).runWatches, l.runLines}
	for _, changes := range o.Changes {
		runs = append(runs, func(ctx context.Context) { o.watchChanges(ctx, changes) })
	}
	for _, run := range runs {
		source := manager.RunnableFunc(func(ctx context.Context) error { run(ctx); return nil })
		if err := mgr.Add(source); err != nil {
			return fmt.Errorf("adding a source of wake-ups: %w", err)
		}
	}
	return nil
}

// watchChanges wakes the nodes of a source, until ctx ends.
func (o *Options) watchChanges(ctx context.Context, changes func(context.Context, func(string))) {
	changes(ctx, func(node string) { o.wakeNode(ctx, node) })
}
