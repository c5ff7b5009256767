package limiter

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forcefence/forcefence/providers"
)

// Metrics are the collectors of all limiters of a process, without labels for nodes and devices. Nil measures nothing.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewMetrics registers the collectors with reg, or shares those that are registered already. A nil reg registers
// nothing.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	calls, err1 := registerOrReuse(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forcefence_provider_calls_total",
		Help: "Calls to providers. The result is the power state of an answered question, " +
			"ok for an accepted request or a batch, or the error's class.",
	}, []string{"type", "call", "result"}))
	seconds, err2 := registerOrReuse(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "forcefence_provider_call_seconds",
		Help:    "Duration of calls to providers, waiting for a turn included.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"type", "call"}))
	return &Metrics{calls: calls, seconds: seconds}, errors.Join(err1, err2)
}

func registerOrReuse[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}

func (m *Metrics) countCall(typ, call, result string) {
	if m != nil {
		m.calls.WithLabelValues(typ, call, result).Inc()
	}
}

func (m *Metrics) observeDuration(typ, call string, took time.Duration) {
	if m != nil {
		m.seconds.WithLabelValues(typ, call).Observe(took.Seconds())
	}
}

// resultLabel returns on, off, changing or unknown for an answered question, else providers.ErrorClass.
func resultLabel(v any, err error) string {
	if obs, ok := v.(providers.Observation); ok && err == nil {
		return strings.ToLower(obs.State.String())
	}
	return providers.ErrorClass(err)
}
