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

// ErrLate is the ErrAgain of a write that was not sent in time: the decision behind it may no longer hold.
var ErrLate = fmt.Errorf("%w: too late for what was decided", ErrAgain)

// SendBy returns a context whose writes may be sent only until the given time. It takes effect in clients on which
// SendWritesOnce was called. The time is by the transport's clocks (providers.Now), not by those of the protocol. It
// has passed once either clock has passed it: the monotonic clock stops while the machine is suspended. A write whose
// body has begun to be sent is finished: if it were cut off, it could still take effect.
func SendBy(ctx context.Context, by providers.Instant) context.Context {
	return context.WithValue(ctx, sendBy{}, by)
}

type sendBy struct{}

// isOver reports whether the time has passed by either clock.
func isOver(by providers.Instant) bool {
	now := providers.Now()
	return !now.Before(by) || !now.Wall.Before(by.Wall)
}

// timelyBody is the body of a write that must be sent by a time. It checks the clocks when the transport begins to read
// it, because HTTP/1 goes on for a moment after its context was cancelled. The API server carries out no request whose
// body is shorter than its Content-Length.
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

// SendWritesOnce makes clients of cfg send each request that changes something once, and not later than SendBy allows.
// By default client-go resends a request that was answered 429, or 5xx, with Retry-After, up to ten times: seconds
// after the proof that it was decided on. The caller must decide again. A time limit also covers the wait for a
// connection. A failed read is sent again (retryRead).
func SendWritesOnce(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return onceTransport{next} })
}

type onceTransport struct{ next http.RoundTripper }

func (o onceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return o.retryRead(req)
	}
	req = req.WithContext(req.Context()) // a copy
	req.GetBody = nil                    // else HTTP/2 resends, after up to a minute, what a closing server refused
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
		// The context also serves the answer's body. It ends with the request's own context, which the caller cancels.
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

// WrappedRoundTripper returns the transport beneath, which client-go looks for.
func (o onceTransport) WrappedRoundTripper() http.RoundTripper { return o.next }

// Limits of retries: how often a read is sent at most, the pause before the third try, and how long after the first try
// it is still sent again.
const (
	readTries  = 3
	readRest   = 200 * time.Millisecond
	readWithin = time.Second
)

// retryRead sends a read that got no answer, or a 5xx, again: at once, and then after a pause. A decision needs up to
// seven reads in a row, and one failure would make all of them start over. A read that failed slowly is not sent again,
// because the reads beside it grow stale. If the API server sends Retry-After, client-go waits, but at most a second
// each time. A failed watch is restarted by its owner.
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
