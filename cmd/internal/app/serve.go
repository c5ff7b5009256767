package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/cmd/internal/httpserver"
)

// maxEach is how many connections metrics and health accept from one address: a kubelet needs one for each probe, and a
// Prometheus one.
const maxEach = 16

// addServer makes every replica serve h at an address from its start on. name is for errors and the log. With address
// "" it does nothing.
func addServer(mgr manager.Manager, name, address string, h http.Handler, log *slog.Logger) error {
	if address == "" {
		return nil
	}
	ln, err := httpserver.Listen(address, maxEach)
	if err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	return mgr.Add(&manager.Server{
		Name: name, Server: httpserver.New(h, log), Listener: ln, ShutdownTimeout: new(time.Second),
	})
}

// probeHandler answers at /healthz while the process runs, and at /readyz while ready returns no error.
func probeHandler(ready healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, check := range map[string]healthz.Checker{"/healthz": healthz.Ping, "/readyz": ready} {
		mux.Handle("GET "+path, healthz.CheckHandler{Checker: check})
	}
	return mux
}

// metricsHandler serves the gathered metrics at /metrics.
func metricsHandler(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &exposition{from: from, now: time.Now})
	return mux
}

// maxTextAge is how long one rendered exposition is sent to all clients.
const maxTextAge = time.Second

// exposition serves metrics as text. It renders them at most once in maxTextAge, and sends all clients the same bytes.
// So many clients that do not read hold few renderings.
type exposition struct {
	from prometheus.Gatherer
	now  func() time.Time

	mu   sync.Mutex // guards the rest
	text []byte     // never changed once it is set
	at   time.Time
}

var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

func (e *exposition) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := e.renderText()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(textFormat))
	_, _ = w.Write(text) // the client went away
}

func (e *exposition) renderText() ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if age := now.Sub(e.at); e.text != nil && age >= 0 && age < maxTextAge {
		return e.text, nil
	}
	families, err := e.from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	var text bytes.Buffer
	to := expfmt.NewEncoder(&text, textFormat)
	for _, f := range families {
		if err := to.Encode(f); err != nil {
			return nil, fmt.Errorf("writing metrics: %w", err)
		}
	}
	e.text, e.at = text.Bytes(), now
	return e.text, nil
}

// onEveryReplica is a Runnable that runs on every replica, leader or not.
type onEveryReplica func(context.Context) error

func (f onEveryReplica) Start(ctx context.Context) error { return f(ctx) }
func (onEveryReplica) NeedLeaderElection() bool          { return false }
