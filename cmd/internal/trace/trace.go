// Package trace tells a collector of OpenTelemetry of fences: one trace for each, its phases and, in these, the questions to devices and the
// acts. It is off unless the environment names a collector (OTEL_EXPORTER_OTLP_ENDPOINT).
//
// It is told what happened once it has, and nobody asks it anything: no context of its leads into a fence, no header of its to a device or to
// the API server. Whoever tells it does not wait: what a collector is too slow for, or is not there for, is dropped. No span holds what a device said
// but its state, nor an error but its class, so that no secret can be in one.
//
// The ids of a trace, its root and its phases come from the fence's own, so that a new leader goes on with the trace of the one before.
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
	mostFences  = 512              // that are known at the same time
	mostAsked   = 8                // questions of one node from before its fence
	askedBefore = 30 * time.Second // how old they may be as it begins
	complain    = time.Minute      // between two lines of the log about a collector
)

// Tracer makes spans of what it is told. A nil one does nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer

	mu     sync.Mutex // guards the rest
	fences map[string]open
	asked  map[string][]observe.Part // by node, while it has no fence
}

// open is a fence that is not over.
type open struct {
	phase taint.Phase
	since time.Time // when it was entered
	told  time.Time
}

// New makes a Tracer as the environment says, nil where it names no collector. instance names this process. A setting that makes no sense is an
// error. It does not block: whether the collector is there shows later, in the log.
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
	if u, err := url.Parse(os.Getenv(name)); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" { // not told: it may hold a password
		return nil, fmt.Errorf("%s: not a URL such as http://collector:4318", name)
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not spoken: use http/protobuf, most often on port 4318", protocol)
	}
	exporter, err := otlptracehttp.New(context.Background()) // the environment's settings; it connects later
	if err != nil {
		return nil, fmt.Errorf("making exporter of traces: %w", err)
	}
	about, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "forcefence"), attribute.String("service.version", version), attribute.String("service.instance.id", instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(context.Background()))
	}
	otel.SetErrorHandler(&complaints{log: log})
	t := &Tracer{fences: map[string]open{}, asked: map[string][]observe.Part{}}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), // drops what does not fit into its queue
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(ids{}), sdktrace.WithResource(about),
	)
	t.tracer = t.provider.Tracer("github.com/forcefence/forcefence")
	return t, nil
}

// Close sends what is left, for as long as ctx lasts.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Tell makes spans of what one moment told of a fence. It does not block.
func (t *Tracer) Tell(told journal.Told) {
	if t == nil || told.Shadow {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name, r := told.Name(), told.Record
	f, known := t.fences[name]
	if !known {
		if !r.Open() { // it ended before
			return
		}
		t.room()
		f = open{phase: r.Phase, since: r.At}
		for _, p := range t.asked[told.Node] {
			if r.Since.Sub(p.Ended) < askedBefore {
				t.part(name, "", p)
			}
		}
		delete(t.asked, told.Node)
	}
	f.told = told.At
	ended, result := !r.Open(), string(r.Result)
	end := r.At
	if told.Gone && !ended {
		ended, result, end = true, journal.ResultNodeGone, told.At
	}
	if r.Phase != f.phase || ended {
		t.span(name, string(f.phase), root(name), spanID(name, string(f.phase)), f.since).End(oteltrace.WithTimestamp(end))
		f.phase, f.since = r.Phase, r.At
	}
	if t.fences[name] = f; !ended {
		return
	}
	delete(t.fences, name)
	s := t.span(name, "fence", oteltrace.SpanID{}, root(name), r.Since,
		attribute.String("k8s.node.name", told.Node), attribute.String("forcefence.fence.id", r.ID), attribute.String("forcefence.fence.by", r.By),
		attribute.String("forcefence.fence.result", result), attribute.String("forcefence.device", r.Device), attribute.String("forcefence.fence.why", told.Why),
		attribute.Bool("forcefence.fence.power_off", r.PowerOff))
	if r.Result == taint.ResultPowerOffFailed || r.Result == taint.ResultNeverPoweredOff {
		s.SetStatus(codes.Error, result)
	}
	s.End(oteltrace.WithTimestamp(end))
}

// Took makes a span of a part of a fence. One from before there is a fence is kept until there is. It does not block.
func (t *Tracer) Took(p observe.Part) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Record.Open() {
		t.part(journal.Name(p.Node, *p.Record), p.Record.Phase, p)
		return
	}
	if len(t.asked) >= mostFences && t.asked[p.Node] == nil {
		clear(t.asked) // of a storm only the fences matter
	}
	t.asked[p.Node] = append(t.asked[p.Node], p)
	if all := t.asked[p.Node]; len(all) > mostAsked {
		t.asked[p.Node] = all[1:]
	}
}

// room forgets the fence that was told of longest ago, where there are too many. The caller holds mu.
func (t *Tracer) room() {
	if len(t.fences) < mostFences {
		return
	}
	oldest := ""
	for name, f := range t.fences {
		if oldest == "" || f.told.Before(t.fences[oldest].told) {
			oldest = name
		}
	}
	delete(t.fences, oldest)
}

// part makes the span of a part, below a phase, or the whole fence if that is "".
func (t *Tracer) part(name string, phase taint.Phase, p observe.Part) {
	parent := root(name)
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
	s := t.span(name, p.Name, parent, random(), p.Begun, attrs...)
	if p.Err != nil {
		s.SetStatus(codes.Error, providers.Class(p.Err))
	}
	s.End(oteltrace.WithTimestamp(p.Ended))
}

// span begins a span of a fence's trace, in the past.
func (t *Tracer) span(name, what string, parent, own oteltrace.SpanID, begun time.Time, attrs ...attribute.KeyValue) oteltrace.Span {
	ctx := context.WithValue(context.Background(), chosen{}, own)
	opts := []oteltrace.SpanStartOption{oteltrace.WithTimestamp(begun), oteltrace.WithAttributes(attrs...)}
	if parent.IsValid() {
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: traceID(name), SpanID: parent, TraceFlags: oteltrace.FlagsSampled, Remote: true,
		}))
	} else {
		ctx = context.WithValue(ctx, whole{}, traceID(name))
	}
	_, s := t.tracer.Start(ctx, what, opts...)
	return s
}

// chosen and whole are the keys of a new span's id and, of a root, its trace's.
type (
	chosen struct{}
	whole  struct{}
)

// ids takes the ids that span chose.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	of, _ := ctx.Value(whole{}).(oteltrace.TraceID)
	return of, ids{}.NewSpanID(ctx, of)
}

func (ids) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	id, _ := ctx.Value(chosen{}).(oteltrace.SpanID)
	return id
}

func traceID(name string) oteltrace.TraceID {
	sum := sha256.Sum256([]byte(name))
	return oteltrace.TraceID(sum[:16])
}

func root(name string) oteltrace.SpanID { return spanID(name, "fence") }

func spanID(name, what string) oteltrace.SpanID {
	sum := sha256.Sum256([]byte(what + "\n" + name))
	return oteltrace.SpanID(sum[:8])
}

func random() (id oteltrace.SpanID) {
	_, _ = rand.Read(id[:]) // never fails: crypto/rand
	return id
}

// complaints are what OpenTelemetry's library could not do, in our log, now and then.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex // guards last
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= complain {
		c.last = now
		c.log.Warn("Traces do not reach their collector; nothing else changes", "error", strings.TrimSpace(err.Error()))
	}
}
