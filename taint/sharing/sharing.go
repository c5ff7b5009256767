// Package sharing lets callers that ask the same question at the same time share one call. When a rack dies, many nodes
// need the same list, and many guests the same host's BMC, within a second.
//
// It guarantees that a caller gets the result of a call that began after it asked, never of one that was under way
// already: an answer counts from when its question was sent. It imports no cluster client and no device.
package sharing

import (
	"context"
	"sync"
	"time"
)

// Call is one question that many callers ask. Callers that arrive while it is being asked share the next call, which
// begins after all of them arrived. The zero value is ready.
type Call[A any] struct {
	mu   sync.Mutex      // guards what follows
	next *pendingCall[A] // the question to ask next; nil: no caller waits for one
	busy bool            // a call is under way
}

// pendingCall is one question that several callers wait for.
type pendingCall[A any] struct {
	done   chan struct{}
	answer A     // valid once done is closed
	err    error // valid once done is closed
}

// Shared is the error of a call that several callers waited for. The first of them gets the error without this type, so
// that a failure can be counted once.
type Shared struct{ error }

// Unwrap returns the call's error.
func (s Shared) Unwrap() error { return s.error }

// Ask returns the result of a call of put that begins after Ask was called. It blocks for at most twice within, because
// another call may be under way. Concurrent callers share that call and its error, so all of them must pass the same
// question. The call's context ends after within, and not with the ctx of any one caller.
func (c *Call[A]) Ask(
	ctx context.Context, within time.Duration, put func(context.Context) (A, error),
) (answer A, err error) {
	c.mu.Lock()
	q := c.next
	first := q == nil
	if first {
		q = &pendingCall[A]{done: make(chan struct{})}
		c.next = q
	}
	if !c.busy {
		c.busy = true
		go c.runCalls(context.WithoutCancel(ctx), within, put) // its owner is within
	}
	c.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	if q.err != nil && !first {
		return q.answer, Shared{q.err}
	}
	return q.answer, q.err
}

// runCalls asks the question until no caller waits.
func (c *Call[A]) runCalls(ctx context.Context, within time.Duration, put func(context.Context) (A, error)) {
	for {
		c.mu.Lock()
		q := c.next
		c.next, c.busy = nil, q != nil
		c.mu.Unlock()
		if q == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		q.answer, q.err = put(ctx)
		cancel()
		close(q.done)
	}
}
