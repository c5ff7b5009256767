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
	for _, run := range []func(context.Context){
		beats.scanLeases, newDevices(o, l).runWatches, l.runLines, o.watchStorage,
	} {
		source := manager.RunnableFunc(func(ctx context.Context) error { run(ctx); return nil })
		if err := mgr.Add(source); err != nil {
			return fmt.Errorf("adding a source of wake-ups: %w", err)
		}
	}
	return nil
}

// watchStorage wakes the nodes whose storage changed, until ctx ends.
func (o *Options) watchStorage(ctx context.Context) {
	if o.Storage != nil {
		o.Storage(ctx, func(node string) { o.wakeNode(ctx, node) })
	}
}
