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
	"github.com/forcefence/forcefence/test/kit"
)

// collector receives traces by OTLP over HTTP, until it hangs.
type collector struct {
	*httptest.Server
	hang chan struct{} // closed when those that hang are let go

	mu      sync.Mutex // guards the rest
	hanging bool
	hung    int
	raw     bytes.Buffer
	names   map[string]string // by a span's id
	parents map[string]string // the id of the span above it
}

func newCollector(t *testing.T) *collector {
	c := &collector{hang: make(chan struct{}), names: map[string]string{}, parents: map[string]string{}}
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
		if c.hanging {
			c.hung++
			c.mu.Unlock()
			<-c.hang
			return
		}
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
	t.Cleanup(func() {
		close(c.hang)
		c.Close()
	})
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

// A fence is a trace of the shipped process: its phases, and what was asked and done in them. A collector that hangs
// delays no fence, and not the end of the process either.
func TestTraces(t *testing.T) {
	w := newWorld(t, plan{nodes: 4})
	a, b := w.hosts[0], w.hosts[1]
	w.oneEach(a, b)
	to := newCollector(t)
	c := w.start(settings{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.URL, "OTEL_BSP_SCHEDULE_DELAY=200"}})
	a.cut()
	w.untilDone(a, taint.ResultEvicted)
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
	to.hanging = true
	to.mu.Unlock()

	b.cut()
	w.untilDone(b, taint.ResultEvicted)
	w.until("the collector hangs", func() bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		return to.hung > 0
	})
	c.end() // within a minute, with status 0
	if !c.log.has("Could not send the last traces") {
		t.Error("nothing in the log says that traces were lost")
	}
	kit.Must(t, w.ctx.Err())
}
