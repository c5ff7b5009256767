package proofguard

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	path   = "/review/0123456789abcdef"
	review = `{"request":{"name":"n","resource":{"resource":"nodes"}}}`
)

// slowAPI is an API server that gives no answer.
type slowAPI struct{ client.Reader }

func (slowAPI) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// newSlow returns a guard's handler that reads from a slowAPI.
func newSlow() http.Handler {
	hash := sha256.Sum256([]byte(path))
	return newHandler(Options{
		Live: slowAPI{}, Log: slog.New(slog.DiscardHandler), Now: time.Now, PathHash: hash[:],
	})
}

// counted counts the bytes that are read of it.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// post sends a body to a handler. It returns the answer's status, and counts the bytes that are read.
func post(h http.Handler, path, body string, read *atomic.Int64) int {
	req := httptest.NewRequest(http.MethodPost, path, counted{strings.NewReader(body), read})
	req.ContentLength = int64(len(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// TestForgedReviews: no byte is read at another path, or of a body without bounds. What is read is not kept.
func TestForgedReviews(t *testing.T) {
	pod := `{"request":{"name":"n","resource":{"resource":"x"},"oldObject":{"spec":{"containers":[` +
		strings.Repeat("{},", 1<<20) + `{}]}}}}`
	for name, tt := range map[string]struct {
		path, body string
		want       int
		read       bool
	}{
		"no path":              {"/", review, http.StatusNotFound, false},
		"the former path":      {"/review", review, http.StatusNotFound, false},
		"a path that is near":  {path[:len(path)-1], review, http.StatusNotFound, false},
		"more than the path":   {path + "/", review, http.StatusNotFound, false},
		"the probes' path":     {"/healthz", review, http.StatusNotFound, false},
		"a body of no bytes":   {path, "", http.StatusRequestEntityTooLarge, false},
		"a body that is large": {path, strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge, false},
		"no review":            {path, "{}", http.StatusBadRequest, true},
		"a long name": {path, strings.ReplaceAll(review, `"n"`, `"`+strings.Repeat("n", maxNames)+`"`),
			http.StatusBadRequest, true},
		"a million containers": {path, pod, http.StatusInternalServerError, true},
	} {
		var read atomic.Int64
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := post(newSlow(), tt.path, tt.body, &read)
		runtime.ReadMemStats(&after)
		if got != tt.want || read.Load() > 0 != tt.read {
			t.Errorf("%s: got status %d and %d bytes read, want %d, and some read: %t", name, got, read.Load(), tt.want,
				tt.read)
		}
		if took, most := after.TotalAlloc-before.TotalAlloc, uint64(2*len(tt.body)+1<<20); took > most {
			t.Errorf("%s: took %d bytes of memory, want %d at most", name, took, most)
		}
	}
}

// TestManyReviews: of large reviews at once the guard reads as many as fit into maxBody. The others fail before the API
// server's patience ends, and hold no room after that.
func TestManyReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := newSlow(), time.Now()
		large := review + strings.Repeat(" ", maxBody/3)
		var read atomic.Int64
		codes := make(chan int, 20)
		send := func() { codes <- post(h, path, large, &read) }
		for round := range 2 {
			for range cap(codes) {
				go send()
			}
			synctest.Wait()
			if got, want := read.Load(), int64(2*len(large)); got != want {
				t.Errorf("round %d: read %d bytes at once, want %d", round, got, want)
			}
			count := map[int]int{}
			for range cap(codes) {
				count[<-codes]++
			}
			if count[http.StatusInternalServerError] < 2 || count[http.StatusServiceUnavailable] == 0 ||
				len(count) > 2 {
				t.Errorf("round %d: got statuses %v, want 500 where one was read, and 503", round, count)
			}
			read.Store(0)
		}
		if took := time.Since(began); took != 2*readTime {
			t.Errorf("two rounds took %s, want %s", took, 2*readTime)
		}
	})
}
