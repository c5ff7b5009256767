package integration

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/forcefence/forcefence/taint"
)

// collector receives traces by OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu      sync.Mutex // guards the rest
	raw     bytes.Buffer
	names   map[string]string // by a span's id
	parents map[string]string // the id of the span above it
}

func newCollector(t *testing.T) *collector {
	c := &collector{names: map[string]string{}, parents: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req coltrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, rs := range req.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					c.names[string(s.GetSpanId())], c.parents[string(s.GetSpanId())] = s.GetName(),
						string(s.GetParentSpanId())
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// has reports that there are spans of these names, each below the one before.
func (c *collector) has(names ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, name := range c.names {
		at, i := id, len(names)-1
		for ; i >= 0 && name == names[i]; i-- {
			at = c.parents[at]
			name = c.names[at]
		}
		if i < 0 {
			return true
		}
	}
	return false
}

// A fence is a trace of the shipped process: its phases, and what was asked and done in them.
func TestTraces(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.oneEach(h)
	to := newCollector(t)
	w.start(settings{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.URL, "OTEL_BSP_SCHEDULE_DELAY=200"}})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	for _, path := range [][]string{
		{"fence", "Armed", "ask"}, {"fence", "Evicting", "tombstone"}, {"fence", "Evicting", "unmark"},
		{"fence", "Armed", "mark"}, {"fence", "ask"},
	} {
		w.until("spans "+strings.Join(path, " > "), func() bool { return to.has(path...) })
	}
	to.mu.Lock()
	if bytes.Contains(to.raw.Bytes(), []byte(w.dc.Password())) {
		t.Error("the devices' password is in a trace")
	}
	to.mu.Unlock()
}
