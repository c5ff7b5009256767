package remote

import (
	"context"
	"sync"
	"time"
)

// Throttle calls a function for each of n things when somebody wants it, at most once in a while for each: what devices push is somebody's
// word, and whoever floods us with it must get no more than a question now and then. A want is never lost: the function is called after
// the last one, if only when the while is over. It is safe for concurrent use.
type Throttle struct {
	ctx   context.Context
	every time.Duration
	slots chan struct{} // as many as functions may run at once
	f     func(context.Context, int)
	work  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	things []throttled
	closed bool
}

// throttled is one thing. While it is busy one goroutine cares for it.
type throttled struct {
	busy, wanted bool
	last         time.Time // when f was begun
}

// NewThrottle makes a Throttle for the things 0 to n-1, whose f is begun at most once in every for each of them, and runs for atOnce of them at the
// same time, for none of them twice. f returns by ctx's end; from then on it is not called any more.
func NewThrottle(ctx context.Context, n, atOnce int, every time.Duration, f func(ctx context.Context, i int)) *Throttle {
	return &Throttle{ctx: ctx, every: every, slots: make(chan struct{}, atOnce), f: f, things: make([]throttled, n)}
}

// RunSoon has f called for thing i soon. It does not block.
func (p *Throttle) RunSoon(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ctx.Err() != nil {
		return
	}
	t := &p.things[i]
	t.wanted = true
	if !t.busy {
		t.busy = true
		p.work.Go(func() { p.runWanted(i) }) // its owner is Wait
	}
}

// Wait returns once no f runs any more, after ctx has ended.
func (p *Throttle) Wait() {
	<-p.ctx.Done()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

// runWanted calls f for one thing until nobody wants it any more.
func (p *Throttle) runWanted(i int) {
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

// SleepContext reports whether that time went by before ctx ended. It blocks until either.
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
