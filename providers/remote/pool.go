package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Account is a device and the owner of the credentials that it is sent: a node's name, or "" if all machines share
// them.
type Account struct{ Device, Owner string }

// String returns a name that distinguishes the account from others.
func (a Account) String() string { return strings.TrimSpace(a.Device + " " + a.Owner) }

// ErrClosed is the error of a call after Close.
var ErrClosed = providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))

// Pool keeps devices of type D between calls, by account, with their sessions and what was learnt of them. It forgets
// unused devices, so it does not grow with the fleet's history. It is safe for concurrent use.
type Pool[D any] struct {
	sync.Mutex // guards what follows, and what the owner of the Pool keeps in a D

	Idle    time.Duration   // how long a device may be unused before expire is called
	Work    sync.WaitGroup  // tasks, and log-outs that the owner starts
	Running context.Context // ends when Close begins
	Ending  context.Context // ends when Close has ended or its time is up
	stop    context.CancelFunc
	end     context.CancelFunc
	open    func(Account) D
	expire  func(D) time.Duration
	devices map[Account]*pooled[D]
	closed  bool
}

type pooled[D any] struct {
	device D
	users  int         // calls and tasks
	expiry *time.Timer // set while it is unused
}

// NewPool returns a Pool. open makes a device at its first use. expire ends an unused device's session, and returns for
// how long the device is still remembered. Both are called under the lock and must not block.
func NewPool[D any](idle time.Duration, open func(Account) D, expire func(D) time.Duration) *Pool[D] {
	p := &Pool[D]{Idle: idle, open: open, expire: expire, devices: map[Account]*pooled[D]{}}
	p.Running, p.stop = context.WithCancel(context.Background())
	p.Ending, p.end = context.WithCancel(context.Background())
	return p
}

// Len returns how many devices are kept.
func (p *Pool[D]) Len() int {
	p.Lock()
	defer p.Unlock()
	return len(p.devices)
}

// Acquire returns the device for one call, which calls release at its end. It returns ErrClosed after Close.
func (p *Pool[D]) Acquire(a Account) (device D, release func(), _ error) {
	p.Lock()
	defer p.Unlock()
	if p.closed {
		return device, nil, ErrClosed
	}
	d := p.devices[a]
	if d == nil {
		d = &pooled[D]{device: p.open(a)}
		p.devices[a] = d
	}
	if d.expiry != nil {
		d.expiry.Stop()
		d.expiry = nil
	}
	d.users++
	return d.device, func() { p.release(a, d) }, nil
}

func (p *Pool[D]) release(a Account, d *pooled[D]) {
	p.Lock()
	defer p.Unlock()
	d.users--
	if d.users > 0 || p.closed {
		return
	}
	d.expiry = time.AfterFunc(p.Idle, func() {
		p.whileUnused(a, d, func() {
			forget := func() { delete(p.devices, a) }
			if after := p.expire(d.device); after > 0 {
				d.expiry = time.AfterFunc(after, func() { p.whileUnused(a, d, forget) })
			} else {
				forget()
			}
		})
	})
}

// whileUnused calls f under the lock, unless the device is in use again or the Pool is closed.
func (p *Pool[D]) whileUnused(a Account, d *pooled[D], f func()) {
	p.Lock()
	defer p.Unlock()
	if d.users == 0 && p.devices[a] == d {
		f()
	}
}

// Close refuses further calls, calls end for each device, and waits for Work. It blocks until ctx's deadline at most if
// end does and Work ends with Ending. The error joins those of end.
func (p *Pool[D]) Close(ctx context.Context, end func(D) error) error {
	p.Lock()
	devices := p.devices
	p.closed, p.devices = true, nil
	for _, d := range devices {
		if d.expiry != nil {
			d.expiry.Stop()
		}
	}
	p.Unlock()
	p.stop()
	defer p.end()
	defer context.AfterFunc(ctx, p.end)()
	var mu sync.Mutex // guards errs
	var errs []error
	var wait sync.WaitGroup
	for a, d := range devices {
		wait.Go(func() {
			if err := end(d.device); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close session on %s: %w", a.Device, EnsureClass(ctx, err)))
			}
		})
	}
	wait.Wait()
	p.Work.Wait()
	return errors.Join(errs...)
}

// Task is work that outlives the call that started it, so that a slow device's answer is ready for the next call.
type Task[T any] struct {
	done  chan struct{} // closed at the end; then value and err are set
	value T
	err   error
}

// BeginTask starts f for an account's device, which is in use until f has returned. what names the work in errors. f's
// ctx ends with parent and after the timeout. After Close the task fails with ErrClosed. The caller holds p's lock.
func BeginTask[T, D any](parent context.Context, p *Pool[D], a Account, what string, timeout time.Duration,
	f func(context.Context) (T, error)) *Task[T] {
	t := &Task[T]{done: make(chan struct{})}
	if p.closed {
		t.err = ErrClosed
		close(t.done)
		return t
	}
	d := p.devices[a]
	d.users++
	p.Work.Go(func() {
		defer p.release(a, d)
		defer close(t.done)
		ctx, cancel := context.WithTimeoutCause(parent, timeout,
			fmt.Errorf("no answer to the %s within %s", what, timeout))
		defer cancel()
		defer func() {
			if r := recover(); r != nil { // the limiter protects calls only
				t.err = providers.WithClass(providers.ErrPermanent, fmt.Errorf("%s panicked: %v", what, r))
			}
		}()
		t.value, t.err = f(ctx)
		t.err = EnsureClass(ctx, t.err)
	})
	return t
}

// Done returns a channel that is closed when the task has ended.
func (t *Task[T]) Done() <-chan struct{} { return t.done }

// HasEnded reports whether the task has ended; a nil task has.
func (t *Task[T]) HasEnded() bool {
	if t == nil {
		return true
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the task has ended or ctx ends, and returns the task's result or ctx's error.
func (t *Task[T]) Wait(ctx context.Context) (none T, _ error) {
	select {
	case <-t.done:
		return t.value, t.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
