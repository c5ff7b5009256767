package observe

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// states is where a node is counted in the metrics of nodes.
type states struct {
	*subject

	state      reason.State // of the last decision
	shown      reason.State // as counted in the metric of nodes by state
	mode       string
	protection string

	failing failing
}

// setState moves the node from one state to another in the metric of nodes by state; "" is none. A node whose steps
// fail is shown as stuck until one succeeds.
func (n *states) setState(state reason.State) {
	if n.state = state; state != reason.StateHeldBack {
		n.endHeldBack(n.name)
	}
	if n.failing.stuck {
		state = reason.StateStuck
	}
	moveGauge(n.Metrics.nodes, string(n.shown), string(state))
	n.shown = state
}

// setMode moves the node from one mode to another; "" is none.
func (n *states) setMode(mode string) {
	moveGauge(n.Metrics.modes, n.mode, mode)
	n.mode = mode
}

// setProtection moves the node from one protection by its hook to another; "" is none.
func (n *states) setProtection(protection string) {
	moveGauge(n.Metrics.protections, n.protection, protection)
	n.protection = protection
}

// moveGauge counts a node under another label; "" is none.
func moveGauge(v *prometheus.GaugeVec, from, to string) {
	if from == to {
		return
	}
	if from != "" {
		v.WithLabelValues(from).Dec()
	}
	if to != "" {
		v.WithLabelValues(to).Inc()
	}
}

// stuckAfter is how long a node's steps must have failed before an Event reports it.
const stuckAfter = time.Minute

// failing describes a node's failing steps. The zero value: the last one succeeded.
type failing struct {
	since time.Time // of the first of the current failures; zero: none, or the API server did not answer since
	stuck bool      // it was reported, and no step has succeeded since
}

// stepFailed reports once that the node's recovery fails for longer than stuckAfter. An outage is not the node's fault:
// if the API server does not answer the live look, or is overloaded, the time starts again.
func (n *states) stepFailed(ctx context.Context, d action.Decision, err error) {
	look := action.Is[action.ReadNode](d)
	now := n.Now()
	switch {
	case ctx.Err() != nil, errors.Is(err, kube.ErrAgain), errors.Is(err, kube.ErrLate), n.Leading() != nil:
		return // the node is looked at again, or this process ends
	case !kube.IsRefusal(err) && (look || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown):
		n.failing.since = time.Time{}
		return
	case n.failing.since.IsZero():
		n.failing.since = now
	}
	if n.failing.stuck || now.Sub(n.failing.since) < stuckAfter {
		return
	}
	n.failing.stuck = true
	n.setState(n.state)
	n.Log.Error("A recovery step keeps failing", "node", n.name, "fence", n.course.Look().Record.IDOr(""),
		"act", action.Name(d.Action), "since", n.failing.since, "error", err)
	node := cmp.Or(n.node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}})
	n.sendEvent(n.at, node, nil, reason.Failing, "Alert", "{detail}", providers.ErrorText(err))
}

// stepSucceeded ends what stepFailed counts.
func (n *states) stepSucceeded() {
	stuck := n.failing.stuck
	n.failing = failing{}
	if stuck {
		n.Log.Info("Recovery continues", "node", n.name)
		n.setState(n.state)
	}
}
