package integration

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/taint"
)

// The shipped process sends a fence to a collector of traces, by OTLP over HTTP: its phases, and what was asked and
// done in them. How spans lie in each other is cmd/internal/trace's to test.
func TestTraces(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.oneEach(h)
	var mu sync.Mutex // guards received
	var received bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&received, r.Body) // what is missing is missed below
	}))
	t.Cleanup(collector.Close)
	has := func(text string) bool {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Contains(received.Bytes(), []byte(text))
	}
	w.start(settings{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=200"}})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	for _, span := range []string{"fence", "Armed", "ask", "mark", "Evicting", "tombstone", "unmark"} {
		w.until("span "+span, func() bool { return has(span) })
	}
	if has(w.dc.Password()) {
		t.Error("the devices' password is in a trace")
	}
}
