package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/test/kit"
)

// busy is an API server that refuses everything for the moment, as priority and fairness does, or another status, and counts.
func busy(t *testing.T, status int) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":%d,"details":{"retryAfterSeconds":1}}`, status)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// onceClient is made as app makes the protocol's.
func onceClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	Once(cfg)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.New(cfg, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	kit.Must(t, err)
	return c
}

// A proof is worth five seconds. client-go would wait for as long as the API server likes, and send the old write again.
func TestWriteIsSentOnce(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		for name, write := range podWrites {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				url, asked := busy(t, status)
				w := late{}.writer(onceClient(t, &rest.Config{Host: url}))
				ctx, cancel := context.WithTimeout(t.Context(), Timeout)
				defer cancel()
				err := write(ctx, w, evict.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"})
				if n := asked.Load(); err == nil || n != 1 {
					t.Errorf("%d requests, %v; want 1 and an error", n, err)
				}
				if seconds, told := apierrors.SuggestsClientDelay(err); status == http.StatusTooManyRequests && (!told || seconds != 1) {
					t.Errorf("the server asked for a second of patience; got %d, %t", seconds, told)
				}
			})
		}
	}
}

func TestReadIsSentAgain(t *testing.T) {
	url, asked := busy(t, http.StatusTooManyRequests)
	c := onceClient(t, &rest.Config{Host: url})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // as soon as it came twice
		defer cancel()
		for asked.Load() < 2 && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: "n1"}, &n); err == nil || asked.Load() < 2 {
		t.Errorf("%d requests, %v; want more than one, and an error", asked.Load(), err)
	}
}

// A write that waits for a connection until its proof is too old is not sent.
func TestWriteIsNotSentLate(t *testing.T) {
	url, asked := busy(t, http.StatusConflict)
	for name, tc := range map[string]struct {
		dial   func(ctx context.Context, network, addr string) (net.Conn, error)
		within time.Duration
		want   int32
	}{
		"in time":         {nil, time.Minute, 1},
		"no time":         {nil, -1, 1},
		"too late before": {nil, 0, 0},
		"too late to connect": {func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 20 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			w := late{}.writer(onceClient(t, &rest.Config{Host: url, Dial: tc.dial}))
			err := w.Tombstone(SendWithin(t.Context(), tc.within), evict.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"}, "m")
			if asked.Load() != tc.want || errors.Is(err, ErrLate) != (tc.want == 0) {
				t.Errorf("%d requests, %v; want %d", asked.Load(), err, tc.want)
			}
		})
	}
}

// What has begun to be sent comes to its end, however long the API server takes.
func TestSentWriteIsNotCutOff(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(3 * time.Second)
		w.WriteHeader(http.StatusConflict)
	}))
	defer s.Close()
	w := late{}.writer(onceClient(t, &rest.Config{Host: s.URL}))
	err := w.Delete(SendWithin(t.Context(), 2*time.Second), evict.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want the server's answer", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A write whose time is over does not get as far as the transport, which may have a connection at hand.
func TestOnceIsTooLate(t *testing.T) {
	asked := 0
	o := once{transport(func(*http.Request) (*http.Response, error) {
		asked++
		return &http.Response{Header: http.Header{}, Body: http.NoBody}, nil
	})}
	for _, tc := range []struct {
		method string
		within time.Duration
		want   int
	}{{http.MethodPatch, 0, 0}, {http.MethodPatch, time.Minute, 1}, {http.MethodGet, 0, 1}} {
		asked = 0
		req, err := http.NewRequestWithContext(SendWithin(t.Context(), tc.within), tc.method, "https://api.example.net", http.NoBody)
		kit.Must(t, err)
		resp, err := o.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if asked != tc.want || errors.Is(err, ErrLate) != (tc.want == 0) {
			t.Errorf("%s within %s: asked %d times, %v", tc.method, tc.within, asked, err)
		}
	}
}

// net/http sends a request again by itself where the server refused its stream, or is going away: a write must not have a second body to send.
func TestWriteHasOneBody(t *testing.T) {
	for _, method := range []string{http.MethodPatch, http.MethodDelete, http.MethodPut, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.net", strings.NewReader("{}"))
		kit.Must(t, err)
		resp, err := once{transport(func(r *http.Request) (*http.Response, error) {
			if r.GetBody != nil || r.Body == nil {
				t.Errorf("%s: its body can be sent twice, or not at all", method)
			}
			return nil, errors.New("refused")
		})}.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || req.GetBody == nil {
			t.Errorf("%s: error %v, or the caller's request changed", method, err)
		}
	}
}
