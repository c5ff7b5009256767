package remote

import (
	"context"
	"sync"
	"time"
)

// throttle calls a function for each of n things on request, at most once per interval for each. Requests come from
// what devices push, which anybody may forge. No request is lost: the function is called after the last one, if
// necessary once the interval is over. throttle is safe for concurrent use.
type throttle struct {
	ctx   context.Context
	every time.Duration
	slots chan struct{} // as many as functions may run at once
	f     func(context.Context, int)
	work  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	things []throttled
	closed bool
}

// throttled is the state of one thing. While it is busy, one goroutine runs runWanted for it.
type throttled struct {
	busy, wanted bool
	last         time.Time // when f was begun
}

// newThrottle returns a throttle for the things 0 to n-1. f starts at most once per every for each thing, runs for at
// most atOnce things at a time, and never twice at once for the same thing. f must return when ctx ends.
func newThrottle(ctx context.Context, n, atOnce int, every time.Duration, f func(context.Context, int)) *throttle {
	return &throttle{ctx: ctx, every: every, slots: make(chan struct{}, atOnce), f: f, things: make([]throttled, n)}
}

// runSoon requests a call of f for thing i. It does not block.
func (p *throttle) runSoon(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ctx.Err() != nil {
		return
	}
	t := &p.things[i]
	t.wanted = true
	if !t.busy {
		t.busy = true
		p.work.Go(func() { p.runWanted(i) }) // its owner is wait
	}
}

// wait blocks until ctx has ended and no f runs any more.
func (p *throttle) wait() {
	<-p.ctx.Done()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

// runWanted calls f for one thing until no request is left.
func (p *throttle) runWanted(i int) {
	for {
		p.mu.Lock()
		t := &p.things[i]
		if !t.wanted || p.ctx.Err() != nil {
			t.busy = false
			p.mu.Unlock()
			return
		}
		rest := p.every - time.Since(t.last)
		if t.last.IsZero() {
			rest = 0
		}
		p.mu.Unlock()
		if rest > 0 && !SleepContext(p.ctx, rest) {
			continue
		}
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			continue
		}
		p.mu.Lock()
		t.wanted, t.last = false, time.Now() // what is wanted from here on is after f has begun
		p.mu.Unlock()
		if p.ctx.Err() == nil {
			p.f(p.ctx, i)
		}
		<-p.slots
	}
}

// SleepContext waits for d and reports whether d passed before ctx ended. It blocks until either.
func SleepContext(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
