package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/test/kit"
)

// adding is a manager that only takes what is added to it.
type adding struct {
	manager.Manager
	added []manager.Runnable
}

func (a *adding) Add(r manager.Runnable) error {
	a.added = append(a.added, r)
	return nil
}

// start serves h as Run does, until the test ends.
func start(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	var m adding
	kit.Must(t, addServer(&m, "test", "127.0.0.1:0", h, slog.New(slog.DiscardHandler)))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- m.added[0].Start(ctx) }()
	t.Cleanup(func() {
		stop()
		kit.Must(t, <-done)
	})
	return m.added[0].(*manager.Server).Listener.Addr().String()
}

// hostile opens a connection from the i-th address of loopback, sends a text, and reads at most one byte of the answer.
func hostile(t *testing.T, i int, address, text string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return // one too many of its address in a moment
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, err = io.WriteString(c, text)
	if err == nil && strings.HasSuffix(text, "\r\n\r\n") {
		_, _ = c.Read(make([]byte, 1)) // it is being answered, or was closed
	}
}

// countClients returns 1,000, or as many as this process may open files for: five for two clients, with both ends.
func countClients(t *testing.T) int {
	t.Helper()
	const others, enough = 300, 260 // each of two servers, which hold 128 connections, gets half of them or more
	var limit syscall.Rlimit
	kit.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	n := (int(min(limit.Cur, 1<<20)) - others) * 2 / 5
	if n < enough {
		t.Skipf("SKIPPED: %d open files allow %d clients, want %d: ulimit -n", limit.Cur, n, enough)
	}
	return min(n, 1000)
}

// TestHostileClients: beside 1,000 connections that are held without use, more than may be, a probe and a scrape are
// answered, and little memory is held.
func TestHostileClients(t *testing.T) {
	reg, gathered := prometheus.NewRegistry(), new(atomic.Int32)
	many := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "forcefence_test", Help: "Many."}, []string{"label"})
	for i := range 10_000 {
		many.WithLabelValues(fmt.Sprintf("%0100d", i)).Set(1)
	}
	reg.MustRegister(many)
	now := time.Now()
	scrapes := start(t, &exposition{now: func() time.Time { return now }, from: prometheus.GathererFunc(
		func() ([]*dto.MetricFamily, error) {
			gathered.Add(1)
			return reg.Gather()
		})})
	health := start(t, probeHandler(func(*http.Request) error { return errors.New("not yet") }))

	before := heap()
	const get = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
	for i := range countClients(t) {
		from := i / 25 // of few addresses, or a probe at the same moment would find no slow client
		switch i % 4 {
		case 0:
			hostile(t, from, scrapes, "")
		case 1:
			hostile(t, from, health, get) // half a header
		default:
			hostile(t, from, scrapes, get+"\r\n")
		}
		if i%4 == 0 {
			hostile(t, from, health, "")
		}
	}
	held := heap() - before

	for path, want := range map[string]struct{ code, size, header int }{
		health + "/healthz": {200, 2, 1}, health + "/readyz": {500, 1, 1}, scrapes + "/metrics": {200, 1_000_000, 1},
		scrapes + "/none": {431, 1, 17 << 10},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+path, nil)
		kit.Must(t, err)
		req.Header.Set("A", strings.Repeat("a", want.header))
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want.code || len(text) < want.size {
			t.Errorf("%s: %s, %d bytes, %v, want %+v", path, resp.Status, len(text), err, want)
		}
	}
	t.Logf("hostile connections hold %d KiB, with their own ends", held>>10)
	if held > 16<<20 {
		t.Errorf("hostile connections hold %d MiB, want 16 at most", held>>20)
	}
	if n := gathered.Load(); n != 1 {
		t.Errorf("metrics were rendered %d times within a second, want once", n)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestExposition: what is sent is at most a second old, and an error is not kept.
func TestExposition(t *testing.T) {
	reg, now := prometheus.NewRegistry(), time.Now()
	fails := errors.New("a collector fails")
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "forcefence_test", Help: "One."})
	reg.MustRegister(g)
	gather := func() ([]*dto.MetricFamily, error) {
		if fails != nil {
			return nil, fails
		}
		return reg.Gather()
	}
	e := &exposition{now: func() time.Time { return now }, from: prometheus.GathererFunc(gather)}
	for _, step := range []struct {
		after time.Duration
		fails error
		value float64
		want  string
	}{
		{0, fails, 1, "500 gathering metrics: a collector fails"},
		{0, nil, 2, "200 # HELP forcefence_test One.\n# TYPE forcefence_test gauge\nforcefence_test 2"},
		{maxTextAge - 1, nil, 3, "200 # HELP forcefence_test One.\n# TYPE forcefence_test gauge\nforcefence_test 2"},
		{1, nil, 4, "200 # HELP forcefence_test One.\n# TYPE forcefence_test gauge\nforcefence_test 4"},
		{-time.Hour, nil, 5, "200 # HELP forcefence_test One.\n# TYPE forcefence_test gauge\nforcefence_test 5"},
		{maxTextAge, fails, 6, "500 gathering metrics: a collector fails"},
	} {
		now, fails = now.Add(step.after), step.fails
		g.Set(step.value)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if got := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); got != step.want {
			t.Errorf("after %s: got %q, want %q", step.after, got, step.want)
		}
	}
}
