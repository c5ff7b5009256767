package drills

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of Drills; no label holds a node's name.
type Metrics struct {
	machines *prometheus.GaugeVec
	devices  *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
}

// NewMetrics returns the metrics, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		machines: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_machines",
			Help: "Nodes by the result of their last drill: " +
				"ok, no_machine, or what is wrong.",
		}, []string{"result"}),
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
	reg.MustRegister(m.machines, m.devices, m.seconds)
	return m
}
