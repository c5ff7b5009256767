package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// Metrics are the observer's metrics. No label holds a node's name.
type Metrics struct {
	phases        *prometheus.HistogramVec
	fences        *prometheus.CounterVec
	nodes         *prometheus.GaugeVec
	nudges        *prometheus.CounterVec
	protections   *prometheus.GaugeVec
	refusals      *prometheus.CounterVec
	modes         *prometheus.GaugeVec
	shadowed      *prometheus.CounterVec
	noticed       *prometheus.CounterVec
	noticedAfter  prometheus.Histogram
	fencingWrites *prometheus.CounterVec
	gone          prometheus.Gauge
}

// NewMetrics returns the metrics, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, label, help string) *prometheus.CounterVec {
		return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	gauge := func(name, label, help string) *prometheus.GaugeVec {
		return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
	}
	m := &Metrics{
		phases: promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
			Name: "forcefence_phase_seconds", Help: "How long each part of a fence took.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"phase"}),
		fences: counter("forcefence_fences_total", "result", "Fences that ended, by result."),
		nodes:  gauge("forcefence_nodes", "state", "Nodes by state, as this process sees them."),
		nudges: counter("forcefence_nudges_total", "result",
			"Nudges of held pods' kubelets, by result: sent, changed (the pod, since it was listed), failed."),
		refusals: counter("forcefence_guard_refusals_total", "rule",
			"Power-offs that were refused or delayed because of other nodes, by rule, which is the Event's reason."),
		protections: gauge("forcefence_node_protection", "protection",
			"Nodes by the protection that their hook gives: fail-closed, fail-open, not-at-boot, none, unknown."),
		modes: gauge("forcefence_node_mode", "mode",
			"Nodes by the mode that holds for them: fence, onRequest, observe, shadow, disabled."),
		shadowed: counter("forcefence_shadow_decisions_total", "decision",
			"What mode fence would have done to nodes in mode shadow, once in a node's life: power_off, recover."),
		noticed: counter("forcefence_noticed_total", "by",
			"Nodes whose machine was found off, by the first signal: "+
				"ready, lease, push, line, poll, taint, confirmation."),
		noticedAfter: promauto.With(reg).NewHistogram(prometheus.HistogramOpts{
			Name:    "forcefence_noticed_seconds",
			Help:    "How long after a node's last heartbeat its machine was found off.",
			Buckets: []float64{1, 2.5, 5, 7.5, 10, 15, 20, 25, 30, 40, 60, 120, 300},
		}),
		gone: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "forcefence_deleted_nodes_attached",
			Help: "Deleted Nodes to which volumes were still attached 10 seconds later, and are.",
		}),
		fencingWrites: counter("forcefence_records_total", "result",
			"Writes of Fencing objects, by result: written, failed (tried again), dropped (too many waited)."),
	}
	m.beginSeries()
	return m
}

// beginSeries starts the series of closed sets with 0: a counter whose first value is 1 has not increased, and an alert
// would miss it.
func (m *Metrics) beginSeries() {
	begin := func(v *prometheus.MetricVec, words ...string) {
		for _, w := range words {
			_, _ = v.GetMetricWithLabelValues(w) // one label, one word
		}
	}
	begin(m.nodes.MetricVec, string(reason.StateStuck)) // no reason has this state
	for _, row := range reason.Table() {
		if row.State != "" {
			begin(m.nodes.MetricVec, string(row.State))
		}
	}
	for _, rule := range reason.LimitReasons {
		begin(m.refusals.MetricVec, string(rule))
	}
	for _, r := range []taint.Result{
		taint.ResultEvicted, taint.ResultReturned, taint.ResultLifted, taint.ResultCancelled,
		taint.ResultPowerOffFailed, taint.ResultMarkRemoved, taint.ResultReleased, taint.ResultNeverPoweredOff,
		resultGone,
	} {
		begin(m.fences.MetricVec, string(r))
	}
	for _, s := range []fleet.Source{
		fleet.Ready, fleet.Lease, fleet.Push, fleet.Line, fleet.Poll, fleet.ShutdownTaint, fleet.Confirmation,
	} {
		begin(m.noticed.MetricVec, string(s))
	}
	for _, phase := range phases {
		begin(m.phases.MetricVec, phase)
	}
	begin(m.phases.MetricVec, "confirm", "evict")
	for _, mode := range fence.Modes() {
		begin(m.modes.MetricVec, mode.String())
	}
	begin(m.protections.MetricVec, "fail-closed", "fail-open", "not-at-boot", "none", "unknown")
	begin(m.nudges.MetricVec, NudgeSent, NudgeChanged, NudgeFailed)
	begin(m.fencingWrites.MetricVec, "written", "failed", "dropped")
	for _, d := range shadowed {
		begin(m.shadowed.MetricVec, d)
	}
}

// phases are the names of actions in the metric of phases.
var phases = map[string]string{
	"SetMark": "mark", "EndPods": "tombstone", "ClearVolumes": "clear", "DeletePods": "delete",
}

// shadowed are the names of what shadow mode would do, in its metric.
var shadowed = map[string]string{"WriteRecord": "power_off", "SetMark": "recover"}

// The results of the metric forcefence_nudges_total.
const (
	NudgeSent    = "sent"
	NudgeChanged = "changed" // the pod changed or was deleted since it was listed: most often it moves
	NudgeFailed  = "failed"
)

// resultGone is the result, in the metric alone, of a fence whose Node was deleted.
const resultGone taint.Result = "NodeGone"

func (m *Metrics) observePhase(name string, d time.Duration) {
	m.phases.WithLabelValues(name).Observe(d.Seconds())
}
