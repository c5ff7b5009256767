package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// The connections to a hypervisor: libvirtd works on five questions of one connection at a time and reads no sixth, and a destroy may
// take a minute, so what changes power has a connection of its own.
const (
	asking = iota
	acting
	purposes
)

// hypervisor holds the connections to one daemon. It is safe for concurrent use.
//
// go-libvirt knows no deadlines: a question to a daemon that hangs is over only when its connection is closed. So each question
// waits in a goroutine of its own, and a caller whose context ends goes away without its answer. The connection is retired then: the
// next caller gets a new one, those who still wait for answers on the old one may get them, and it is closed when the last of them
// has gone. So neither a time-out nor a caller who gives up harms its neighbours, and no daemon that hangs keeps anything of ours.
type hypervisor struct {
	address
	cfg *Config

	mu     sync.Mutex // guards what follows and what link says so of
	links  [purposes]*link
	closed bool
	all    map[*link]struct{} // not yet ended
	work   sync.WaitGroup     // goroutines of links and of questions; Add happens with mu held and closed false
}

func newHypervisor(a address, cfg *Config) *hypervisor {
	return &hypervisor{address: a, cfg: cfg, all: map[*link]struct{}{}}
}

// link is one connection. It is made by the first caller and belongs to all who use it.
type link struct {
	h      *hypervisor
	cancel context.CancelFunc // ends it, and its making
	ready  chan struct{}      // closed when connecting is over: err, or wire and rpc
	err    error
	wire   *wire
	rpc    *golibvirt.Libvirt

	users   int  // guarded by hypervisor.mu
	retired bool // guarded by hypervisor.mu
}

var errClosed = providers.WithClass(providers.ErrPermanent, errors.New("the provider is closed"))

// acquireLink returns a connection for one caller, who releases it. It waits until it is made or ctx ends.
func (h *hypervisor) acquireLink(ctx context.Context, purpose int) (*link, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	l := h.links[purpose]
	if l == nil || l.retired || l.isBroken() {
		l = h.startLink(nil)
		h.links[purpose] = l
	}
	l.users++
	h.mu.Unlock()
	return l, l.waitReady(ctx)
}

// waitReady waits until l is connected. Where it fails, l is released.
func (l *link) waitReady(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		select {
		case <-l.ready:
			err = l.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		l.markRetired()
		l.releaseUser()
	}
	return err
}

// isBroken tells whether l is connected no more.
func (l *link) isBroken() bool {
	select {
	case <-l.ready:
		return l.err != nil || l.wire.isDead()
	default:
		return false
	}
}

// startLink begins a connection, with mu held.
func (h *hypervisor) startLink(events chan<- lifecycle) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{h: h, cancel: cancel, ready: make(chan struct{})}
	h.all[l] = struct{}{}
	h.work.Go(func() {
		defer h.forgetLink(l)
		defer cancel()
		opening, opened := context.WithTimeout(ctx, remote.Backstop)
		l.wire, l.rpc, l.err = h.openWire(opening, events)
		opened()
		close(l.ready)
		if l.err != nil {
			return
		}
		select {
		case <-l.wire.done:
		case <-ctx.Done(): // by end
			l.wire.killConnection(net.ErrClosed)
		}
		<-l.wire.ended
	})
	return l
}

func (h *hypervisor) forgetLink(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, l)
}

// openWire dials and opens the hypervisor's driver.
func (h *hypervisor) openWire(ctx context.Context, events chan<- lifecycle) (*wire, *golibvirt.Libvirt, error) {
	conn, raw, err := h.dialDaemon(ctx, h.cfg)
	if err != nil {
		return nil, nil, err
	}
	w := newWire(conn, raw, events)
	stop := context.AfterFunc(ctx, func() { w.killConnection(ctx.Err()) })
	rpc := golibvirt.NewWithDialer(dialer{w})
	err = rpc.ConnectToURI(golibvirt.ConnectURI(h.address.connect))
	w.releaseReader()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.killConnection(err)
		<-w.ended
		return nil, nil, w.explainError(fmt.Errorf("opening the connection: %w", err))
	}
	return w, rpc, nil
}

// dialer hands go-libvirt a connection that is there.
type dialer struct{ w *wire }

func (d dialer) Dial() (net.Conn, error) { return d.w, nil }

// explainError gives the error of a question the reason for which its connection ended, where it did, and the class.
func (w *wire) explainError(err error) error {
	var daemonErr golibvirt.Error
	if errors.As(err, &daemonErr) {
		return providers.WithClass(errorClass(daemonErr.Code), fmt.Errorf("the daemon says: %w", errorText(daemonErr)))
	}
	if w.isDead() {
		return providers.WithClass(providers.ErrUnreachable, fmt.Errorf("the connection ended: %w", w.err))
	}
	return providers.WithClass(providers.ErrUnreachable, err)
}

func (l *link) markRetired() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.retired = true
}

// releaseUser gives l back. The last user of a retired one ends it.
func (l *link) releaseUser() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.users--
	if l.retired && l.users == 0 {
		l.closeLink()
	}
}

// closeLink closes l, connected or not, with mu held. It does not wait.
func (l *link) closeLink() {
	l.retired = true
	l.cancel()
}

// askDaemon puts one question to a connection that the caller holds. It returns by ctx's end.
func askDaemon[T any](ctx context.Context, l *link, question func(*golibvirt.Libvirt) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	got := make(chan answer, 1)
	l.h.work.Go(func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a = answer{err: providers.WithClass(providers.ErrPermanent, fmt.Errorf("go-libvirt panicked: %v", r))}
			}
			got <- a
		}()
		a.value, a.err = question(l.rpc)
	})
	select {
	case a := <-got:
		if a.err != nil {
			if class := providers.ErrorClass(a.err); class == "permanent" || class == "not_sent" {
				return none, a.err
			}
			return none, l.wire.explainError(a.err)
		}
		return a.value, nil
	case <-ctx.Done():
		l.markRetired()
		return none, ctx.Err()
	}
}

// callDaemon is ask for a question without an answer.
func callDaemon(ctx context.Context, l *link, question func(*golibvirt.Libvirt) error) error {
	_, err := askDaemon(ctx, l, func(rpc *golibvirt.Libvirt) (struct{}, error) { return struct{}{}, question(rpc) })
	return err
}

// closeLinks says good-bye on connections that nobody uses, ends all, and waits until nothing is left or ctx ends.
func (h *hypervisor) closeLinks(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	var idle []*link
	for l := range h.all {
		if !l.isBroken() && l.users == 0 {
			select {
			case <-l.ready:
				idle = append(idle, l)
			default:
			}
		}
	}
	h.mu.Unlock()
	polite, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, l := range idle {
		_ = callDaemon(polite, l, (*golibvirt.Libvirt).ConnectClose) // a daemon that logs no broken connection is all that is won
	}
	h.mu.Lock()
	for l := range h.all {
		l.closeLink()
	}
	h.mu.Unlock()
	over := make(chan struct{})
	go func() {
		h.work.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close connections to %s: %w", h.uri, ctx.Err())
	}
}
