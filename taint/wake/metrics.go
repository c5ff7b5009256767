package wake

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/wake/line"
)

// Metrics count what wakes nodes; no label holds a node's name.
type Metrics struct {
	pushes *prometheus.CounterVec
	lines  *prometheus.GaugeVec
	polls  *prometheus.CounterVec
}

// NewMetrics returns the metrics, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_device_events_total", Help: "Events that devices pushed, by state.",
		}, []string{"state"}),
		lines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_lines",
			Help: "TCP lines to nodes, by state: open, broken, never (never accepted), left_out (not enough file " +
				"descriptors).",
		}, []string{"state"}),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_polls_total",
			Help: "Answers of devices that are polled, by provider and state: On, Off, Changing, Unknown.",
		}, []string{"provider", "state"}),
	}
	// The series of closed sets start with 0: a counter whose first value is 1 has not increased, and an alert would
	// miss it.
	for _, s := range providers.PowerStates() {
		m.pushes.WithLabelValues(s.String())
	}
	for _, s := range []line.State{line.Open, line.Broken, line.Never, line.LeftOut} {
		m.lines.WithLabelValues(string(s))
	}
	reg.MustRegister(m.pushes, m.lines, m.polls)
	return m
}
