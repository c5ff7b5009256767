package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/test/kit"
)

// busy is an API server that refuses everything for the moment, as priority and fairness does, or another status, and
// counts.
func busy(t *testing.T, status int) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests",
			"code":%d,"details":{"retryAfterSeconds":1}}`, status)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// onceClient is made as app makes the protocol's.
func onceClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	SendWritesOnce(cfg)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.New(cfg, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	kit.Must(t, err)
	return c
}

// A proof is worth five seconds. client-go would wait for as long as the API server likes, and send the old write
// again.
func TestWriteIsSentOnce(t *testing.T) {
	for _, status := range []int{
		http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		for name, write := range podWrites {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				url, asked := busy(t, status)
				w := late{}.writer(onceClient(t, &rest.Config{Host: url}))
				ctx, cancel := context.WithTimeout(t.Context(), Timeout)
				defer cancel()
				err := write(ctx, w, action.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"})
				if n := asked.Load(); err == nil || n != 1 {
					t.Errorf("%d requests, %v; want 1 and an error", n, err)
				}
				if seconds, told := apierrors.SuggestsClientDelay(err); status == http.StatusTooManyRequests &&
					(!told || seconds != 1) {
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
		passed time.Duration // of the wall clock, and not of the monotonic one: the machine was suspended
		want   int32
	}{
		"in time":         {nil, time.Minute, 0, 1},
		"too late before": {nil, 0, 0, 0},
		"too late to connect": {func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 20 * time.Millisecond, 0, 0},
		"suspended before":            {nil, time.Minute, 2 * time.Minute, 0},
		"the wall clock was set back": {nil, time.Minute, -time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			w := late{}.writer(onceClient(t, &rest.Config{Host: url, Dial: tc.dial}))
			by := providers.Now().Add(tc.within)
			by.Wall = by.Wall.Add(-tc.passed)
			_, err := w.EndPod(SendBy(t.Context(), by),
				action.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"}, "m")
			if asked.Load() != tc.want || errors.Is(err, ErrLate) != (tc.want == 0) {
				t.Errorf("%d requests, %v; want %d", asked.Load(), err, tc.want)
			}
		})
	}
}

// A machine that is suspended while a write waits for a connection stops the monotonic clock: the write goes by the
// wall clock then, and the API server gets nothing that it could carry out. HTTP/1 may have sent the headers.
func TestWriteIsNotSentAfterSuspension(t *testing.T) {
	for _, tc := range []struct {
		http2     bool
		suspended bool
	}{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("http2 %t, suspended %t", tc.http2, tc.suspended), func(t *testing.T) {
			var began, whole, proto atomic.Int32
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began.Add(1)
				proto.Store(int32(r.ProtoMajor))
				if _, err := io.ReadAll(r.Body); err == nil {
					whole.Add(1)
				}
				w.WriteHeader(http.StatusConflict)
			}))
			s.EnableHTTP2 = tc.http2
			s.StartTLS()
			defer s.Close()
			by := providers.Now().Add(time.Minute)
			slow := func(ctx context.Context, network, addr string) (net.Conn, error) {
				time.Sleep(50 * time.Millisecond)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			if tc.suspended {
				by.Wall = by.Wall.Add(20*time.Millisecond - time.Minute)
			}
			protos := []string{"http/1.1"}
			if tc.http2 {
				protos = []string{"h2"}
			}
			w := late{}.writer(onceClient(t, &rest.Config{
				Host: s.URL, Dial: slow, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: protos},
			}))
			err := w.DeletePod(SendBy(t.Context(), by),
				action.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"})
			s.Close() // so that what was sent has come
			switch {
			case tc.suspended && (whole.Load() != 0 || tc.http2 && began.Load() != 0 || !errors.Is(err, ErrLate)):
				t.Errorf("%d requests, %d whole, %v; want none, and ErrLate", began.Load(), whole.Load(), err)
			case !tc.suspended && (whole.Load() != 1 || proto.Load() == 2 != tc.http2):
				t.Errorf("%d whole requests of HTTP/%d, %v; want one", whole.Load(), proto.Load(), err)
			}
		})
	}
}

// A transport that comes to its connection late finds its context at an end. One that goes on all the same, as HTTP/1
// does for a moment, gets no body. One that has begun to read it gets the whole.
func TestLateWriteHasNoBody(t *testing.T) {
	const late = 2 * time.Second
	for _, tc := range []struct {
		name          string
		before, after time.Duration // how long it waits before the first byte, and after it
		want          string
	}{{"in time", 0, 0, "{}"}, {"late", late, 0, ""}, {"late to end", 0, late, "{}"}} {
		synctest.Test(t, func(t *testing.T) {
			var sent []byte
			o := onceTransport{transport(func(r *http.Request) (*http.Response, error) {
				time.Sleep(tc.before)
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				if cause := context.Cause(r.Context()); errors.Is(cause, ErrLate) != (tc.want == "") {
					t.Errorf("%s: with a connection its context ends with %v", tc.name, cause)
				}
				one := make([]byte, 1)
				n, err := r.Body.Read(one)
				sent = append(sent, one[:n]...)
				if err != nil {
					return nil, err
				}
				time.Sleep(tc.after)
				rest, err := io.ReadAll(r.Body)
				sent = append(sent, rest...)
				return nil, cmp.Or(err, io.ErrUnexpectedEOF)
			})}
			by := providers.Now().Add(time.Hour)
			by.Wall = by.Wall.Add(late/2 - time.Hour)
			req, err := http.NewRequestWithContext(SendBy(t.Context(), by), http.MethodPatch, "https://api.example.net",
				strings.NewReader("{}"))
			kit.Must(t, err)
			resp, err := o.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			if string(sent) != tc.want || errors.Is(err, ErrLate) != (tc.want == "") {
				t.Errorf("%s: sent %q, %v; want %q", tc.name, sent, err, tc.want)
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
	err := w.DeletePod(SendBy(t.Context(), providers.Now().Add(2*time.Second)),
		action.Pod{Namespace: "shop", Name: "db-0", UID: "u", ResourceVersion: "1"})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want the server's answer", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A write whose time is over does not get as far as the transport, which may have a connection at hand.
func TestOnceIsTooLate(t *testing.T) {
	asked := 0
	o := onceTransport{transport(func(*http.Request) (*http.Response, error) {
		asked++
		return &http.Response{Header: http.Header{}, Body: http.NoBody}, nil
	})}
	for _, tc := range []struct {
		method       string
		within, wall time.Duration // by the monotonic clock, and by the wall clock
		want         int
	}{
		{http.MethodPatch, 0, time.Minute, 0}, {http.MethodPatch, time.Minute, time.Minute, 1},
		{http.MethodGet, 0, 0, 1},
		{http.MethodPatch, time.Minute, 0, 0}, {http.MethodPatch, time.Minute, time.Hour, 1},
	} {
		asked = 0
		by := providers.Now().Add(tc.within)
		by.Wall = by.Wall.Add(tc.wall - tc.within)
		req, err := http.NewRequestWithContext(SendBy(t.Context(), by), tc.method, "https://api.example.net",
			http.NoBody)
		kit.Must(t, err)
		resp, err := o.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if asked != tc.want || errors.Is(err, ErrLate) != (tc.want == 0) {
			t.Errorf("%s within %s and %s: asked %d times, %v", tc.method, tc.within, tc.wall, asked, err)
		}
	}
}

// net/http sends a request again by itself where the server refused its stream, or is going away: a write must not have
// a second body to send.
func TestWriteHasOneBody(t *testing.T) {
	for _, method := range []string{http.MethodPatch, http.MethodDelete, http.MethodPut, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.net", strings.NewReader("{}"))
		kit.Must(t, err)
		resp, err := onceTransport{transport(func(r *http.Request) (*http.Response, error) {
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

// What a read comes to in the end, how often it was sent, and after how long. Each answer is one time that it is sent;
// the last repeats.
func TestFailedReadIsRepeated(t *testing.T) {
	type answer struct {
		status int // 0: the connection dies
		retry  string
		took   time.Duration
	}
	slow := readWithin + time.Millisecond
	for name, tc := range map[string]struct {
		method, query string
		answers       []answer
		sent, status  int
		took          time.Duration
		retry         string
	}{
		"answered": {answers: []answer{{status: 200}}, sent: 1, status: 200},
		"5xx once": {answers: []answer{{status: 500}, {status: 200}}, sent: 2, status: 200},
		"cut once": {answers: []answer{{}, {status: 200}}, sent: 2, status: 200},
		"one of each": {answers: []answer{{}, {status: 503}, {status: 200}}, sent: 3, status: 200,
			took: readRest},
		"5xx for good": {answers: []answer{{status: 504}}, sent: 3, status: 504, took: readRest},
		"cut for good": {answers: []answer{{}}, sent: 3, took: readRest},
		"not found":    {answers: []answer{{status: 404}}, sent: 1, status: 404},
		"failed slowly": {answers: []answer{{status: 504, took: slow}, {status: 200}}, sent: 1, status: 504,
			took: slow},
		"failed slowly, then": {
			answers: []answer{{took: readWithin - readRest}, {took: time.Millisecond}, {status: 200}}, sent: 2,
			took: readWithin - readRest + time.Millisecond},
		"no room":          {answers: []answer{{status: 429, retry: "30"}}, sent: 1, status: 429, retry: "1"},
		"no room, at once": {answers: []answer{{status: 429, retry: "0"}}, sent: 1, status: 429, retry: "0"},
		"going down":       {answers: []answer{{status: 503, retry: "5"}}, sent: 1, status: 503, retry: "1"},
		"a watch": {query: "?watch=true", answers: []answer{{status: 500, retry: "30"}}, sent: 1,
			status: 500, retry: "30"},
		"a write":               {method: http.MethodPatch, answers: []answer{{status: 500}}, sent: 1, status: 500},
		"a write, cut":          {method: http.MethodDelete, answers: []answer{{}}, sent: 1},
		"a head is a read, too": {method: http.MethodHead, answers: []answer{{}, {status: 200}}, sent: 2, status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent, open := 0, 0
				o := onceTransport{transport(func(*http.Request) (*http.Response, error) {
					a := tc.answers[min(sent, len(tc.answers)-1)]
					sent++
					time.Sleep(a.took)
					if a.status == 0 {
						return nil, io.ErrUnexpectedEOF
					}
					h := http.Header{}
					if a.retry != "" {
						h.Set("Retry-After", a.retry)
					}
					open++
					return &http.Response{StatusCode: a.status, Header: h, Body: body{strings.NewReader("{}"), &open}},
						nil
				})}
				req, err := http.NewRequestWithContext(t.Context(), cmp.Or(tc.method, http.MethodGet),
					"https://api.example.net/"+tc.query, http.NoBody)
				kit.Must(t, err)
				began := time.Now()
				resp, err := o.RoundTrip(req)
				took, status, retry := time.Since(began), 0, ""
				if err == nil {
					status, retry = resp.StatusCode, resp.Header.Get("Retry-After")
					resp.Body.Close()
				}
				if sent != tc.sent || status != tc.status || took != tc.took || retry != tc.retry ||
					(err != nil) != (tc.status == 0) {
					t.Errorf("sent %d times, %d, Retry-After %q after %s, %v; want %d, %d, %q after %s", sent, status,
						retry, took, err, tc.sent, tc.status, tc.retry, tc.took)
				}
				if open != 0 {
					t.Errorf("%d answers were not closed", open)
				}
			})
		})
	}
}

// body counts those that are not closed.
type body struct {
	io.Reader
	open *int
}

func (b body) Close() error {
	*b.open--
	return nil
}

// A look that ends is not waited for.
func TestRepeatEndsWithItsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), readRest/2)
		defer cancel()
		sent := 0
		o := onceTransport{transport(func(*http.Request) (*http.Response, error) {
			sent++
			return nil, io.ErrUnexpectedEOF
		})}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.net", http.NoBody)
		kit.Must(t, err)
		began := time.Now()
		resp, err := o.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if sent != 2 || time.Since(began) != readRest/2 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("sent %d times, %v after %s; want 2, and an end with its context", sent, err, time.Since(began))
		}
	})
}

// client-go takes what an API server that has no room says of its patience; a look has none for half a minute.
func TestReadIsNotPatient(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`)
	}))
	defer s.Close()
	var n corev1.Node
	if err := onceClient(t, &rest.Config{Host: s.URL}).Get(t.Context(), client.ObjectKey{Name: "n1"}, &n); err != nil ||
		n.Name != "n1" || asked.Load() != 2 {
		t.Errorf("%d requests, %q, %v; want the Node by the second", asked.Load(), n.Name, err)
	}
}
