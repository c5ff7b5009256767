// Package trace reports fences to a collector of OpenTelemetry. Each fence is a trace; its spans are the phases and,
// within these, the questions to devices and the actions. It is off unless the environment names a collector
// (OTEL_EXPORTER_OTLP_ENDPOINT).
//
// Callers report what has already happened, and nothing is read back. No context of a trace leads into a fence, and no
// header of one to a device or to the API server. Callers do not wait: spans are dropped if the collector is too slow
// or unreachable. A span holds only the state of a device's answer and the class of an error, so that it cannot contain
// a secret.
//
// The ids of a trace, its root and its phases are computed from the fence's id. So a new leader continues the trace of
// its predecessor.
package trace

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/observe"
)

const (
	maxFences   = 512              // fences that are open at the same time
	maxAsked    = 8                // questions to one node's devices from before its fence
	maxAskedAge = 30 * time.Second // their greatest age when the fence begins
	logInterval = time.Minute      // between two log lines about the collector
)

// Tracer makes spans from reports. A nil Tracer does nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer

	mu     sync.Mutex // guards the rest
	fences map[string]openFence
	asked  map[string][]observe.Part // by node, while it has no fence
}

// openFence is a fence that is not over.
type openFence struct {
	phase      taint.Phase
	since      time.Time // the beginning of phase
	reportedAt time.Time
}

// New makes a Tracer from the environment's settings, or returns nil if they name no collector. instance names this
// process. An invalid setting is an error. New does not block: an unreachable collector is logged later.
func New(instance, version string, log *slog.Logger) (*Tracer, error) {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	const forTraces, forAll = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	name := forTraces
	if os.Getenv(name) == "" {
		name = forAll
	}
	if os.Getenv(name) == "" {
		return nil, nil
	}
	// The error does not repeat the URL, which may hold a password.
	if u, err := url.Parse(os.Getenv(name)); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: not a URL such as http://collector:4318", name)
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		"http/protobuf")
	if protocol != "http/protobuf" {
		return nil, fmt.Errorf(
			"OTEL_EXPORTER_OTLP_PROTOCOL: %q is not supported: use http/protobuf, most often on port 4318", protocol,
		)
	}
	exporter, err := otlptracehttp.New(context.Background()) // the environment's settings; it connects later
	if err != nil {
		return nil, fmt.Errorf("making exporter of traces: %w", err)
	}
	about, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "forcefence"), attribute.String("service.version", version),
		attribute.String("service.instance.id", instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(context.Background()),
		)
	}
	otel.SetErrorHandler(&exporterLog{log: log})
	t := &Tracer{fences: map[string]openFence{}, asked: map[string][]observe.Part{}}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), // drops what does not fit into its queue
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(chosenIDs{}),
		sdktrace.WithResource(about),
	)
	t.tracer = t.provider.Tracer("github.com/forcefence/forcefence")
	return t, nil
}

// Close sends the remaining spans. It blocks until ctx ends at most.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// ReportFence makes spans from one update of a fence. It does not block.
func (t *Tracer) ReportFence(told journal.Update) {
	if t == nil || told.Shadow {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name, r := told.Name(), told.Record
	f, known := t.fences[name]
	if !known {
		if !r.IsOpen() { // it ended before
			return
		}
		t.makeRoom()
		f = openFence{phase: r.Phase, since: r.At}
		for _, p := range t.asked[told.Node] {
			if r.Since.Sub(p.Ended) < maxAskedAge {
				t.addSpan(name, "", p)
			}
		}
		delete(t.asked, told.Node)
	}
	f.reportedAt = told.At
	ended, result := !r.IsOpen(), string(r.Result)
	end := r.At
	if told.Gone && !ended {
		ended, result, end = true, journal.ResultNodeGone, told.At
	}
	if r.Phase != f.phase || ended {
		t.startSpan(
			name, string(f.phase), rootSpanID(name), spanID(name, string(f.phase)), f.since,
		).End(oteltrace.WithTimestamp(end))
		f.phase, f.since = r.Phase, r.At
	}
	if t.fences[name] = f; !ended {
		return
	}
	delete(t.fences, name)
	s := t.startSpan(name, "fence", oteltrace.SpanID{}, rootSpanID(name), r.Since,
		attribute.String("k8s.node.name", told.Node), attribute.String("forcefence.fence.id", r.ID),
		attribute.String("forcefence.fence.by", r.By),
		attribute.String("forcefence.fence.result", result), attribute.String("forcefence.device", r.Device),
		attribute.String("forcefence.fence.why", told.Why),
		attribute.Bool("forcefence.fence.power_off", r.PowerOff))
	if r.Result == taint.ResultPowerOffFailed || r.Result == taint.ResultNeverPoweredOff {
		s.SetStatus(codes.Error, result)
	}
	s.End(oteltrace.WithTimestamp(end))
}

// ObserveSpan makes a span of a part of a fence. It keeps a part from before the fence until the fence begins. It does
// not block.
func (t *Tracer) ObserveSpan(p observe.Part) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Record.IsOpen() {
		t.addSpan(journal.ObjectName(p.Node, *p.Record), p.Record.Phase, p)
		return
	}
	if len(t.asked) >= maxFences && t.asked[p.Node] == nil {
		clear(t.asked) // in a storm only the fences matter
	}
	t.asked[p.Node] = append(t.asked[p.Node], p)
	if all := t.asked[p.Node]; len(all) > maxAsked {
		t.asked[p.Node] = all[1:]
	}
}

// makeRoom forgets the fence with the oldest report, if there are maxFences. The caller holds mu.
func (t *Tracer) makeRoom() {
	if len(t.fences) < maxFences {
		return
	}
	oldest := ""
	for name, f := range t.fences {
		if oldest == "" || f.reportedAt.Before(t.fences[oldest].reportedAt) {
			oldest = name
		}
	}
	delete(t.fences, oldest)
}

// addSpan adds the span of a part below a phase, or below the whole fence if phase is "".
func (t *Tracer) addSpan(name string, phase taint.Phase, p observe.Part) {
	parent := rootSpanID(name)
	if phase != "" {
		parent = spanID(name, string(phase))
	}
	attrs := []attribute.KeyValue{attribute.String("k8s.node.name", p.Node)}
	if p.Device != "" {
		attrs = append(attrs, attribute.String("forcefence.device", p.Device))
	}
	if p.State != providers.PowerUnknown {
		attrs = append(attrs, attribute.String("forcefence.power", p.State.String()))
	}
	if p.Pods > 0 {
		attrs = append(attrs, attribute.Int("forcefence.pods", p.Pods))
	}
	s := t.startSpan(name, p.Name, parent, randomSpanID(), p.Begun, attrs...)
	if p.Err != nil {
		s.SetStatus(codes.Error, providers.ErrorClass(p.Err))
	}
	s.End(oteltrace.WithTimestamp(p.Ended))
}

// startSpan starts a span of a fence's trace, at a time in the past.
func (t *Tracer) startSpan(
	name, what string,
	parent, own oteltrace.SpanID,
	begun time.Time,
	attrs ...attribute.KeyValue,
) oteltrace.Span {
	ctx := context.WithValue(context.Background(), spanIDKey{}, own)
	opts := []oteltrace.SpanStartOption{oteltrace.WithTimestamp(begun), oteltrace.WithAttributes(attrs...)}
	if parent.IsValid() {
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: traceID(name), SpanID: parent, TraceFlags: oteltrace.FlagsSampled, Remote: true,
		}))
	} else {
		ctx = context.WithValue(ctx, traceIDKey{}, traceID(name))
	}
	_, s := t.tracer.Start(ctx, what, opts...)
	return s
}

// spanIDKey and traceIDKey are the context keys of a new span's id and, for a root, of its trace's id.
type (
	spanIDKey  struct{}
	traceIDKey struct{}
)

// chosenIDs generates the ids that startSpan put into the context.
type chosenIDs struct{}

func (chosenIDs) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	of, _ := ctx.Value(traceIDKey{}).(oteltrace.TraceID)
	return of, chosenIDs{}.NewSpanID(ctx, of)
}

func (chosenIDs) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	id, _ := ctx.Value(spanIDKey{}).(oteltrace.SpanID)
	return id
}

func traceID(name string) oteltrace.TraceID {
	sum := sha256.Sum256([]byte(name))
	return oteltrace.TraceID(sum[:16])
}

func rootSpanID(name string) oteltrace.SpanID { return spanID(name, "fence") }

func spanID(name, what string) oteltrace.SpanID {
	sum := sha256.Sum256([]byte(what + "\n" + name))
	return oteltrace.SpanID(sum[:8])
}

func randomSpanID() (id oteltrace.SpanID) {
	_, _ = rand.Read(id[:]) // crypto/rand never fails
	return id
}

// exporterLog logs errors of OpenTelemetry's library, at most once in logInterval.
type exporterLog struct {
	log *slog.Logger

	mu   sync.Mutex // guards last
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *exporterLog) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= logInterval {
		c.last = now
		c.log.Warn("Could not send traces; fencing continues", "error", strings.TrimSpace(err.Error()))
	}
}
