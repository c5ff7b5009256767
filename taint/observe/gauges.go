package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/taint/reason"
)

// gauges is where a node is counted in the metrics of nodes.
type gauges struct {
	state      reason.State // of the last decision
	shown      reason.State // in the metric of nodes by state
	mode       string
	protection string
}

// setState moves the node from one state to another in the metric of nodes by state; "" is none. A node whose steps
// fail is shown as stuck until one succeeds.
func (n *Node) setState(state reason.State) {
	g := &n.gauges
	g.state = state
	if n.failing.stuck {
		state = reason.StateStuck
	}
	move(n.Metrics.nodes, string(g.shown), string(state))
	g.shown = state
}

// setMode moves the node from one mode to another; "" is none.
func (g *gauges) setMode(m *Metrics, mode string) {
	move(m.modes, g.mode, mode)
	g.mode = mode
}

// setProtection moves the node from one protection by its hook to another; "" is none.
func (g *gauges) setProtection(m *Metrics, protection string) {
	move(m.protections, g.protection, protection)
	g.protection = protection
}

// move counts a node under another label; "" is none.
func move(v *prometheus.GaugeVec, from, to string) {
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
