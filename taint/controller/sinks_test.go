package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/reason"
)

// heard is what a test's sinks received.
type heard struct {
	reg    *prometheus.Registry
	reason reason.Reason // the last that was logged
}

// sinksTo returns sinks that send Events to a recorder; nil: they send none.
func sinksTo(to events.EventRecorder) (observe.Sinks, *heard) {
	if to == nil {
		to = &events.FakeRecorder{}
	}
	h := &heard{reg: prometheus.NewRegistry()}
	return observe.Sinks{
		Events: func(time.Time) events.EventRecorder { return to }, Log: slog.New(reasons{slog.DiscardHandler, h}),
		Metrics: observe.NewMetrics(h.reg),
	}, h
}

// reasons is a log that keeps the last reason.
type reasons struct {
	slog.Handler
	to *heard
}

func (reasons) Enabled(context.Context, slog.Level) bool { return true }

func (r reasons) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r reasons) Handle(_ context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		if line.Message == "Decided" && a.Key == "why" {
			r.to.reason = reason.Reason(a.Value.String())
		}
		return true
	})
	return nil
}

// count is the value of the series of a metric that has this label's value; "": of a metric without labels.
func (h *heard) count(t *testing.T, metric, label string) float64 {
	t.Helper()
	families, err := h.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == metric && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
