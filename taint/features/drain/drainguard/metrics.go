package drainguard

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Controller's metrics. No label holds a node's name.
type Metrics struct {
	nodes     *prometheus.GaugeVec
	left      *prometheus.GaugeVec
	evictions *prometheus.CounterVec
	delegated *prometheus.GaugeVec
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_nodes",
			Help: "Nodes by drain guard and state: held (a drain waits), auto_evicting (forcefence requested " +
				"evictions), not_guarded.",
		}, []string{"guard", "state"}),
		left: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_replicas_left", Help: "Replicas that hold drains up, by drain guard.",
		}, []string{"guard"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_drain_evictions_total",
			Help: "Requests for a replica's eviction, by drain guard and result: asked, taken_back.",
		}, []string{"guard", "result"}),
		delegated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drain_delegated",
			Help: "1 if the storage system's own setting is the drain guard's policy, 0 if it is not.",
		}, []string{"guard"}),
	}
	reg.MustRegister(m.nodes, m.left, m.evictions, m.delegated)
	return m
}
