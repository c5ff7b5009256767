package drills

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/providers"
)

// Metrics are the metrics of Drills; no label holds a node's name.
type Metrics struct {
	machines  *prometheus.GaugeVec
	fenceable *prometheus.GaugeVec
	devices   *prometheus.GaugeVec
	seconds   *prometheus.HistogramVec
}

// NewMetrics returns the metrics, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		machines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_machines",
			Help: "Nodes by the result of their last drill: ok, disabled, no_machine, disagree, no_power, " +
				"only_outlets, unknown, distrusted, or the class of the first error: " +
				strings.Join(providers.ErrorClasses(), ", ") + ".",
		}, []string{"result"}),
		fenceable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_node_fenceable",
			Help: "Nodes by whether their last drill shows that they could be proven off: " +
				"yes, no, unknown (a device did not answer once), disabled.",
		}, []string{"fenceable"}),
		devices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_drill_devices",
			Help: "Devices of nodes by provider and by the result of their last drill: " +
				"ok, unknown, distrusted, or the class of the error.",
		}, []string{"provider", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forcefence_drill_seconds",
			Help: "How long devices took to answer in drills, log-in included, " +
				"by provider.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"provider"}),
	}
	reg.MustRegister(m.machines, m.fenceable, m.devices, m.seconds)
	for _, word := range []string{"yes", "no", "unknown", "disabled"} { // an alert compares them
		m.fenceable.WithLabelValues(word)
	}
	return m
}
