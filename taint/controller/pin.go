package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
)

// since adds to an error how long it has stood, which a person needs to find what changed.
func (st *nodeState) since(err error, now time.Time) error {
	switch {
	case !errors.Is(err, machine.ErrNotBelieved):
		st.unbelieved = time.Time{}
		return err
	case st.unbelieved.IsZero():
		st.unbelieved = now
	}
	return fmt.Errorf("%w (since %s)", err, st.unbelieved.UTC().Format(time.RFC3339))
}

// pinRetry is how long a pin waits that the API server refused, or that another node's stands against.
const pinRetry = time.Minute

// pin writes the pin of a healthy node that has none, or whose machine has changed, by what the informer brought: a node that changed
// since is a conflict. It is all that a healthy node costs, once. It returns when to try again; zero: a change will wake us.
func (r *Reconciler) pin(ctx context.Context, node *corev1.Node, l taint.Look, st *nodeState) (after time.Duration) {
	_, b, err := r.Config().Machines.Believe(node, l.Record, true)
	if err = st.since(err, r.Now()); errors.Is(err, machine.ErrNotBelieved) {
		if st.refused != b.Refused {
			st.refused = b.Refused
			r.Log.Warn("Machine is not believed", "node", l.Name, "why", err)
			r.event(node, reason.NotBelieved, "Pin", "{detail}", err.Error())
		}
		return pinRetry // the node that has its machine may go
	}
	st.refused = ""
	now := r.Now()
	switch {
	case err != nil || b.Pin == "":
		return 0
	case now.Before(st.pinAgain):
		return st.pinAgain.Sub(now)
	}
	err = r.writer.Pin(ctx, l, b.Pin)
	switch {
	case errors.Is(err, kube.ErrAgain):
		return time.Second
	case err != nil:
		st.pinAgain = now.Add(pinRetry)
		r.Log.Warn("Could not pin the node's machine", "node", l.Name, "error", err)
		return pinRetry
	}
	r.Log.Debug("Pinned the node's machine", "node", l.Name, "machine", b.Machine.String())
	if b.Repin {
		r.Log.Info("Pinned the node to another machine", "node", l.Name, "machine", b.Machine.String())
		r.event(node, reason.Repinned, "Pin", "{detail}", b.Machine.String())
	}
	return 0
}
