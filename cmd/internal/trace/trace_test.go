package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/test/kit"
)

// collector receives traces as any collector of OTLP over HTTP does.
type collector struct {
	*httptest.Server
	mu    sync.Mutex // guards the rest
	raw   bytes.Buffer
	spans []*otlp.Span
	about map[string]string // the resource
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{about: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req coltrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, "not OTLP", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, rs := range req.GetResourceSpans() {
			for _, a := range rs.GetResource().GetAttributes() {
				c.about[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	kit.DropEnv(t, "OTEL_")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

func tracer(t *testing.T, instance string) *Tracer {
	t.Helper()
	tr, err := New(instance, "v1", slog.New(slog.DiscardHandler))
	kit.Must(t, err)
	if tr == nil {
		t.Fatal("no tracer, although the environment names a collector")
	}
	return tr
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// record is a fence's at a phase, which was entered at so many seconds.
func record(phase taint.Phase, result taint.Result, entered int) taint.Record {
	return taint.Record{ID: "f-0123456789ab", Phase: phase, Result: result, NodeUID: "u", Since: at(1), At: at(entered),
		By: "x", Device: "racks/7", PowerOff: true}
}

func (t *Tracer) told(r taint.Record, now int) {
	t.ReportFence(journal.Update{Node: "n7", At: at(now), Record: r, Why: "NotReady"})
}

func (t *Tracer) took(r *taint.Record, name string, begun, ended int, more ...func(*observe.Part)) {
	p := observe.Part{Node: "n7", Record: r, Name: name, Begun: at(begun), Ended: at(ended)}
	for _, m := range more {
		m(&p)
	}
	t.ObserveSpan(p)
}

func said(state providers.PowerState, err error) func(*observe.Part) {
	return func(p *observe.Part) { p.Device, p.State, p.Err = "racks/7", state, err }
}

// tree is the trace in words: each span below its parent, in the order of their beginnings.
func (c *collector) tree() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.spans,
		func(a, b *otlp.Span) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) })
	var b strings.Builder
	var below func(parent []byte, depth int)
	below = func(parent []byte, depth int) {
		for _, s := range c.spans {
			if !bytes.Equal(s.GetParentSpanId(), parent) {
				continue
			}
			from := time.Unix(0, int64(s.GetStartTimeUnixNano())).Sub(start).Seconds()
			to := time.Unix(0, int64(s.GetEndTimeUnixNano())).Sub(start).Seconds()
			fmt.Fprintf(&b, "%s%s %v-%v", strings.Repeat(" ", depth), s.GetName(), from, to)
			for _, a := range s.GetAttributes() {
				if k := a.GetKey(); k == "forcefence.power" || k == "forcefence.fence.result" {
					b.WriteString(" " + a.GetValue().GetStringValue())
				}
				if a.GetKey() == "forcefence.pods" {
					fmt.Fprintf(&b, " %d pods", a.GetValue().GetIntValue())
				}
			}
			if s.GetStatus().GetMessage() != "" {
				b.WriteString(" " + s.GetStatus().GetMessage())
			}
			b.WriteString("\n")
			below(s.GetSpanId(), depth+1)
		}
	}
	below(nil, 0)
	return b.String()
}

// A fence that one leader begins and another ends is one trace: its phases, and in them what took its time. What led to
// it is below it, too.
func TestFence(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
	secret := errors.New("asking https://10.0.0.7 with password hunter2: 401")
	a, b := tracer(t, "a"), tracer(t, "b")
	off := record(taint.PhasePoweringOff, "", 1)
	armed := record(taint.PhaseArmed, "", 4)
	evicting := record(taint.PhaseEvicting, "", 5)
	done := record(taint.PhaseDone, taint.ResultEvicted, 9)
	before := record(taint.PhaseDone, taint.ResultEvicted, -500) // an earlier fence of the node

	a.took(nil, "ask", -600, -599, said(providers.PowerOff, nil)) // too long ago
	a.took(&before, "ask", 0, 1, said(providers.PowerOn, nil))
	a.told(off, 1)
	a.took(&off, "power_off", 1, 2, said(providers.PowerUnknown, providers.WithClass(providers.ErrDenied, secret)))
	a.took(&off, "ask", 2, 3, said(providers.PowerOff, nil))
	a.took(&armed, "mark", 3, 4)
	a.told(armed, 4)
	a.told(evicting, 5)
	a.took(&evicting, "tombstone", 5, 6, func(p *observe.Part) { p.Pods = 11 })
	b.told(evicting, 6) // it goes on
	b.took(&evicting, "delete", 7, 8, func(p *observe.Part) { p.Pods = 11 })
	b.told(done, 9)
	b.told(done, 9) // no news
	kit.Must(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))

	want := `fence 1-9 Evicted
 ask 0-1 On
 PoweringOff 1-4
  power_off 1-2 denied
  ask 2-3 Off
 Armed 4-5
  mark 3-4
 Evicting 5-9
  tombstone 5-6 11 pods
  delete 7-8 11 pods
`
	if got := c.tree(); got != want {
		t.Errorf("got the trace\n%s\nwant\n%s", got, want)
	}
	for _, s := range c.spans {
		if !bytes.Equal(s.GetTraceId(), c.spans[0].GetTraceId()) {
			t.Errorf("span %s is of another trace", s.GetName())
		}
	}
	if bytes.Contains(c.raw.Bytes(), []byte("hunter2")) {
		t.Error("an error's text, with a password in it, was sent")
	}
	if c.about["service.name"] != "forcefence" || c.about["service.version"] != "v1" ||
		c.about["k8s.cluster.name"] != "blue" {
		t.Errorf("resource: got %v", c.about)
	}
}

// Other ends, and what is no fence.
func TestEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*Tracer)
		want string
	}{
		{"its Node was deleted", func(tr *Tracer) {
			tr.told(record(taint.PhaseArmed, "", 2), 2)
			tr.ReportFence(journal.Update{Node: "n7", At: at(7), Record: record(taint.PhaseArmed, "", 2), Gone: true})
		}, "fence 1-7 NodeGone\n Armed 2-7\n"},
		{"the machine does not go off", func(tr *Tracer) {
			tr.told(record(taint.PhasePoweringOff, "", 2), 2)
			tr.told(record(taint.PhaseDone, taint.ResultPowerOffFailed, 3), 3)
		}, "fence 1-3 PowerOffFailed PowerOffFailed\n PoweringOff 2-3\n"},
		{"the node is alive", func(tr *Tracer) {
			tr.told(record(taint.PhaseArmed, "", 2), 2)
			tr.told(record(taint.PhaseDone, taint.ResultLifted, 3), 3)
		}, "fence 1-3 Lifted\n Armed 2-3\n"},
		{"one that ended before", func(tr *Tracer) { tr.told(record(taint.PhaseDone, taint.ResultEvicted, 2), 2) }, ""},
		{"a shadow decision", func(tr *Tracer) {
			tr.ReportFence(journal.Update{Node: "n7", At: at(2), Record: record(taint.PhaseArmed, "", 2), Shadow: true})
		}, ""},
		{"questions without a fence", func(tr *Tracer) { tr.took(nil, "ask", 1, 2, said(providers.PowerOn, nil)) }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCollector(t)
			tr := tracer(t, "a")
			test.do(tr)
			kit.Must(t, tr.Close(t.Context()))
			if got := c.tree(); got != test.want {
				t.Errorf("got the trace\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// A collector that takes requests and never answers delays nobody who tells: this test would not end. Memory is bounded
// meanwhile.
func TestCollectorThatHangs(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer s.Close()
	defer close(hang)
	kit.DropEnv(t, "OTEL_")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	tr := tracer(t, "a")
	r := record(taint.PhaseEvicting, "", 1)
	for i := range 50_000 {
		node := fmt.Sprintf("n%d", i)
		tr.ReportFence(journal.Update{Node: node, At: at(i), Record: r})
		tr.ObserveSpan(observe.Part{Node: node, Record: &r, Name: "delete", Begun: at(i), Ended: at(i + 1)})
		tr.ObserveSpan(observe.Part{Node: node, Name: "ask", Begun: at(i), Ended: at(i + 1)})
	}
	if len(tr.fences) > maxFences || len(tr.asked) > maxFences {
		t.Errorf("kept %d fences and questions of %d nodes, want %d at most", len(tr.fences), len(tr.asked), maxFences)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tr.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing: got %v, want that it ends with its context", err)
	}
}

func TestOffAndFaults(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, test := range []struct {
		name string
		env  map[string]string
		want string // in the error
	}{
		{"nothing is said", nil, ""},
		{"disabled", map[string]string{endpoint: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, ""},
		{"no traces", map[string]string{endpoint: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""},
		{"no scheme", map[string]string{endpoint: "collector:4318"},
			endpoint + ": not a URL such as http://collector:4318"},
		{"a password in what cannot be read", map[string]string{endpoint: "http://u:hunter2@[::"},
			endpoint + ": not a URL"},
		{"gRPC", map[string]string{endpoint: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			`OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not supported`},
		{"a resource that is none", map[string]string{endpoint: "http://c:4318", "OTEL_RESOURCE_ATTRIBUTES": "blue"},
			"OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kit.DropEnv(t, "OTEL_")
			for _, name := range []string{
				endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_EXPORTER",
				"OTEL_SDK_DISABLED"} {
				t.Setenv(name, test.env[name])
			}
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", test.env["OTEL_RESOURCE_ATTRIBUTES"])
			tr, err := New("a", "v1", slog.New(slog.DiscardHandler))
			if tr != nil || (err == nil) != (test.want == "") ||
				err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("got %v and %v, want none and %q", tr, err, test.want)
			}
			tr.ReportFence(journal.Update{})
			tr.ObserveSpan(observe.Part{})
			kit.Must(t, tr.Close(t.Context()))
		})
	}
}

// The log reports a collector that does not answer once in a while, not for each batch.
func TestComplaints(t *testing.T) {
	var log kit.Log
	h := &exporterLog{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		otel.ErrorHandlerFunc(h.Handle).Handle(errors.New("connection refused"))
	}
	if n := strings.Count(log.String(), "connection refused"); n != 1 {
		t.Errorf("got %d lines, want 1", n)
	}
}

// The programs that are shipped are built without golang.org/x/net/trace, which links html/template, and with it every
// method of every type.
func TestSmall(t *testing.T) {
	const tag = "grpcnotrace"
	for file, want := range map[string]string{
		"../../../test/cluster/binaries/recipes.go": `tags: "` + tag, "../../../.ci/image/image.go": "-tags=" + tag} {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s builds forcefence without %s", file, want)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tag, "../../forcefence").
		CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	if slices.Contains(strings.Fields(string(out)), "golang.org/x/net/trace") {
		t.Errorf("forcefence links golang.org/x/net/trace, although it is built with %s", tag)
	}
}
