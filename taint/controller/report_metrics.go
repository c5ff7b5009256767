package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the controller's own; no label holds a node's name.
type Metrics struct {
	phases      *prometheus.HistogramVec
	fences      *prometheus.CounterVec
	nodes       *prometheus.GaugeVec
	machines    *prometheus.GaugeVec
	pushes      *prometheus.CounterVec
	nudges      *prometheus.CounterVec
	protections *prometheus.GaugeVec
}

// NewMetrics registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forcefence_phase_seconds", Help: "How long each part of a fence took.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"phase"}),
		fences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_fences_total", Help: "Fences that ended, by result.",
		}, []string{"result"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_nodes", Help: "Nodes by state, as this process sees them.",
		}, []string{"state"}),
	}
	m.machines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "forcefence_machines", Help: "Machines by what their device said when it was last asked without need: ok, no_machine, disagree, or the class of the error; of several devices the first that has one.",
	}, []string{"result"})
	m.pushes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forcefence_device_events_total", Help: "What devices told by themselves, by the state they spoke of.",
	}, []string{"state"})
	m.nudges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forcefence_nudges_total", Help: "Held pods whose kubelets were asked to try again, by result: sent, changed (since it was listed), failed.",
	}, []string{"result"})
	m.protections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "forcefence_node_protection", Help: "Nodes by the protection that their hook gives: fail-closed, fail-open, none, unknown.",
	}, []string{"protection"})
	reg.MustRegister(m.phases, m.fences, m.nodes, m.machines, m.pushes, m.nudges, m.protections)
	return m
}

func (m *Metrics) phase(name string, d time.Duration) {
	m.phases.WithLabelValues(name).Observe(d.Seconds())
}
