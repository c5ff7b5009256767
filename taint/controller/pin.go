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
	"github.com/forcefence/forcefence/taint/observe"
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
func (r *Reconciler) pin(ctx context.Context, node *corev1.Node, l taint.Look, st *nodeState) (done observe.PinDone, after time.Duration) {
	_, b, err := r.Config().Machines.Believe(node, l.Record, true)
	now := r.Now()
	switch err = st.since(err, now); {
	case errors.Is(err, machine.ErrNotBelieved):
		return observe.PinDone{Refused: b.Refused, NotBelieved: err}, pinRetry // the node that has its machine may go
	case err != nil || b.Pin == "":
		return done, 0
	case now.Before(st.pinAgain):
		return done, st.pinAgain.Sub(now)
	}
	switch err := r.writer.Pin(ctx, l, b.Pin); {
	case errors.Is(err, kube.ErrAgain):
		return done, time.Second
	case err != nil:
		st.pinAgain = now.Add(pinRetry)
		return observe.PinDone{Err: err}, pinRetry
	}
	return observe.PinDone{Machine: b.Machine.String(), Repinned: b.Repin}, 0
}
