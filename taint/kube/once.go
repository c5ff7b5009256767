package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/providers"
)

// ErrLate is the ErrAgain of a write that was not sent in time: what it was decided on may not hold any more.
var ErrLate = fmt.Errorf("%w: too late for what was decided", ErrAgain)

// SendBy allows the writes made with the context to be sent until that time, by a client that SendWritesOnce made so. The time is
// by the transport's clocks (providers.Now), not by those of the protocol. It is over once either clock has passed
// it: the monotonic one stands still while the machine is suspended. A write whose body has begun to be sent comes to
// its end: cut off, it could land all the same.
func SendBy(ctx context.Context, by providers.Instant) context.Context {
	return context.WithValue(ctx, sendBy{}, by)
}

type sendBy struct{}

// isOver reports whether the time has passed by either clock.
func isOver(by providers.Instant) bool {
	now := providers.Now()
	return !now.Before(by) || !now.Wall.Before(by.Wall)
}

// timelyBody is the body of a write that must be sent by a time. It looks at the clocks when the transport begins to
// read it, because HTTP/1 goes on for a moment after its context was cancelled. The API server carries out no request
// whose body is shorter than its Content-Length.
type timelyBody struct {
	io.ReadCloser
	by    providers.Instant
	begun bool
}

func (b *timelyBody) Read(p []byte) (int, error) {
	if !b.begun && isOver(b.by) {
		return 0, ErrLate
	}
	b.begun = true
	return b.ReadCloser.Read(p)
}

// SendWritesOnce has clients of cfg send each request that changes something once, and not later than SendBy allows. By itself
// client-go sends one that was answered 429, or 5xx, with Retry-After again, up to ten times: seconds after the proof
// that it was decided on. Whoever decided it decides again. What is left of a time limit goes by for a connection,
// too. A read is sent again where it failed (repeat).
func SendWritesOnce(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return onceTransport{next} })
}

type onceTransport struct{ next http.RoundTripper }

func (o onceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return o.retryRead(req)
	}
	req = req.WithContext(req.Context()) // a copy
	req.GetBody = nil                    // HTTP/2 sends again what a server that is going away refused, after up to a minute, if it can
	if by, limited := req.Context().Value(sendBy{}).(providers.Instant); limited {
		if isOver(by) {
			return nil, ErrLate
		}
		ctx, cancel := context.WithCancelCause(req.Context())
		var sent atomic.Bool
		timer := time.AfterFunc(by.Sub(providers.Now()), func() {
			if !sent.Load() {
				cancel(ErrLate)
			}
		})
		defer timer.Stop()
		// The context is the answer's body's, too: it ends with the request's own, which whoever made the request cancels.
		req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) {
				if isOver(by) { // the machine was suspended: the timer's clock stood still
					cancel(ErrLate)
				}
			},
			WroteHeaders: func() { sent.Store(true) },
		}))
		if req.Body != nil && req.Body != http.NoBody {
			req.Body = &timelyBody{ReadCloser: req.Body, by: by}
		}
	}
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); errors.Is(cause, ErrLate) {
			err = errors.Join(cause, err)
		}
		return nil, err
	}
	resp.Header.Del("Retry-After") // the answer's body has it as well: apierrors.SuggestsClientDelay
	return resp, nil
}

// WrappedRoundTripper is for client-go, which looks for the transport beneath.
func (o onceTransport) WrappedRoundTripper() http.RoundTripper { return o.next }

// How often a read is sent at most, how long it rests before the third time, and how long after the first it is not sent again.
const (
	readTries  = 3
	readRest   = 200 * time.Millisecond
	readWithin = time.Second
)

// retryRead sends a read that got no answer, or a 5xx, again: at once, and then after a rest. A decision needs up to seven reads in a row, and
// one that fails would have all of them begin anew. What took long to fail is not sent again: what was read beside it grows old. Where the
// API server asks for patience client-go has it, but no longer than a second each time. A watch that fails its owner begins anew.
func (o onceTransport) retryRead(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Has("watch") {
		return o.next.RoundTrip(req)
	}
	first := time.Now()
	for tries := 1; ; tries++ {
		resp, err := o.next.RoundTrip(req)
		if err == nil {
			if s, _ := strconv.Atoi(resp.Header.Get("Retry-After")); s > 1 {
				resp.Header.Set("Retry-After", "1")
			}
			if resp.StatusCode < http.StatusInternalServerError || resp.Header.Get("Retry-After") != "" {
				return resp, nil
			}
		}
		rest := time.Duration(tries-1) * readRest
		if tries == readTries || time.Since(first)+rest > readWithin {
			return resp, err
		}
		select {
		case <-req.Context().Done():
			return resp, err
		case <-time.After(rest):
		}
		if err == nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that its connection serves again
			resp.Body.Close()
		}
	}
}
