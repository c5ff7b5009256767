package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
)

// pins binds healthy nodes to their machines.
type pins struct{ *work }

// pinRetry is how long to wait after the API server refused a pin, or another node's pin conflicts with it.
const pinRetry = time.Minute

// pinNode writes the pin of a healthy node that has none, or whose machine has changed, from the informer's Node. If
// the Node changed since, the write is a conflict. It is the whole cost of a healthy node, once. It returns when to try
// again; zero: a change will wake us.
func (w pins) pinNode(
	ctx context.Context, node *corev1.Node, l taint.Look,
) (done observe.PinDone, after time.Duration) {
	_, b, err := w.Config().Machines.FindBelieved(node, l.Record, true)
	now := w.Now()
	switch err = w.st.withSince(err, now); {
	case errors.Is(err, machine.ErrNotBelieved):
		// the node that has its machine may be deleted
		return observe.PinDone{Refused: b.Refused, NotBelieved: err}, pinRetry
	case err != nil || b.Pin == "":
		return done, 0
	case now.Before(w.st.pinAgain):
		return done, w.st.pinAgain.Sub(now)
	}
	switch err := w.writer.PinMachine(ctx, l, b.Pin); {
	case errors.Is(err, kube.ErrAgain):
		return done, time.Second
	case err != nil:
		w.st.pinAgain = now.Add(pinRetry)
		return observe.PinDone{Err: err}, pinRetry
	}
	return observe.PinDone{Machine: b.Machine.String(), Repinned: b.Repin}, 0
}
