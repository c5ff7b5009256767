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

// The connections to a hypervisor. libvirtd handles five questions of one connection at a time and reads no sixth, and
// a destroy may take a minute. So power changes have a connection of their own.
const (
	asking = iota
	acting
	watching // each Watch has a connection of its own
	purposes
)

// hypervisor holds the connections to one daemon. It is safe for concurrent use.
//
// go-libvirt has no deadlines: a question to a daemon that hangs ends only when its connection is closed. So each
// question waits in a goroutine of its own, and a caller whose context ends leaves without its answer. Then the
// connection is retired. The next caller gets a new one. Callers that still wait on the old one may get their answers,
// and it is closed when the last of them has left. So a timeout or a cancelled caller affects no other caller, and a
// daemon that hangs keeps no resources.
type hypervisor struct {
	address
	cfg *Config
	now func() time.Time

	mu      sync.Mutex // guards what follows, and the fields of link that name it
	links   [purposes]*link
	renewal *link // for asking: opened by a drill, and not yet in its place
	closed  bool
	all     map[*link]struct{} // not yet ended
	work    sync.WaitGroup     // goroutines of links and of questions; Add happens with mu held and closed false
}

// link is one connection. The first caller opens it, and all callers share it.
type link struct {
	h      *hypervisor
	cancel context.CancelFunc // ends it, and its making
	ready  chan struct{}      // closed when connecting is over: made, and err, or wire and rpc
	made   remote.LogIn       // with which files, and when
	err    error
	wire   *wire
	rpc    *golibvirt.Libvirt

	users   int  // guarded by hypervisor.mu
	retired bool // guarded by hypervisor.mu
}

var errClosed = providers.Errorf(providers.ErrPermanent, "the provider is closed")

// acquireLink returns a connection for one caller, who must release it. It blocks until the connection is open or ctx
// ends. Events of a connection for watching are sent to events. A drill's questions renew the connection first.
func (h *hypervisor) acquireLink(ctx context.Context, purpose int, events chan<- lifecycle) (*link, error) {
	if purpose == asking && providers.IsDrill(ctx) {
		if err := h.renewLink(ctx); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	l := h.links[purpose]
	if purpose == watching || l == nil || l.retired || l.isBroken() {
		l = h.startLink(events)
		h.links[purpose] = l
	}
	l.users++
	h.mu.Unlock()
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
	return l, err
}

// renewLink replaces an open connection for questions that is old or of other files (remote.LogIn.MustRenew). All
// callers wait for the same new connection. The error says that it was refused, or that its daemon is not trusted. The
// old connection stays if there is no new one, and serves on unless that is the reason.
func (h *hypervisor) renewLink(ctx context.Context) error {
	files := h.cfg.hashFiles()
	h.mu.Lock()
	old := h.links[asking]
	if h.closed || old == nil || old.retired || !old.isOpen() || !old.made.MustRenew(ctx, files, h.now()) {
		h.mu.Unlock()
		return nil
	}
	l := h.renewal
	if l == nil {
		l = h.startLink(nil)
		h.renewal = l
	}
	l.users++
	h.mu.Unlock()
	select {
	case <-l.ready:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.users--
	select {
	case <-l.ready:
	default:
		if l.users == 0 {
			h.renewal = nil
			l.closeLink()
		}
		return ctx.Err()
	}
	if h.renewal == l {
		if h.renewal = nil; l.err == nil {
			h.replaceLink(l)
		}
	}
	if errors.Is(l.err, providers.ErrDenied) || errors.Is(l.err, providers.ErrUntrusted) {
		return l.err
	}
	return nil
}

// replaceLink puts an open connection for questions into the place of another. The caller holds mu.
func (h *hypervisor) replaceLink(l *link) {
	old := h.links[asking]
	h.links[asking] = l
	if old.retired = true; old.users == 0 {
		old.closeLink()
	}
}

// isOpen reports whether l is connected.
func (l *link) isOpen() bool {
	select {
	case <-l.ready:
		return l.err == nil && !l.wire.isDead()
	default:
		return false
	}
}

// isBroken reports whether l is no longer connected.
func (l *link) isBroken() bool {
	select {
	case <-l.ready:
		return l.err != nil || l.wire.isDead()
	default:
		return false
	}
}

// startLink starts a connection. The caller holds mu.
func (h *hypervisor) startLink(events chan<- lifecycle) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{h: h, cancel: cancel, ready: make(chan struct{})}
	h.all[l] = struct{}{}
	h.work.Go(func() {
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.all, l)
		}()
		defer cancel()
		l.made = remote.LogIn{Sum: h.cfg.hashFiles(), At: h.now()} // before the files are read for the handshake
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

// dialer gives go-libvirt an open connection.
type dialer struct{ w *wire }

func (d dialer) Dial() (net.Conn, error) { return d.w, nil }

// explainError adds a class to the error of a question, and the reason for which its connection ended, if it did.
func (w *wire) explainError(err error) error {
	var daemonErr golibvirt.Error
	if errors.As(err, &daemonErr) {
		return providers.Errorf(errorClass(daemonErr.Code), "the daemon reports: %w", errorText(daemonErr))
	}
	if w.isDead() {
		return providers.Errorf(providers.ErrUnreachable, "the connection ended: %w", w.err)
	}
	return providers.WithClass(providers.ErrUnreachable, err)
}

func (l *link) markRetired() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.retired = true
}

// releaseUser releases l. The last user of a retired link closes it.
func (l *link) releaseUser() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.users--
	if l.retired && l.users == 0 {
		l.closeLink()
	}
}

// closeLink closes l, connected or not. The caller holds mu. It does not wait.
func (l *link) closeLink() {
	l.retired = true
	l.cancel()
}

// askDaemon sends one question on a connection that the caller holds. It returns when ctx ends at the latest.
func askDaemon[T any](ctx context.Context, l *link, question func(*golibvirt.Libvirt) (T, error)) (none T, _ error) {
	type answer struct {
		value T
		err   error
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	got := make(chan answer, 1)
	l.h.work.Go(func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a = answer{err: providers.Errorf(providers.ErrPermanent, "go-libvirt panicked: %v", r)}
			}
			got <- a
		}()
		a.value, a.err = question(l.rpc)
	})
	select {
	case a := <-got:
		switch providers.ErrorClass(a.err) {
		case "ok":
			return a.value, nil
		case "permanent", "not_sent":
			return none, a.err
		}
		return none, l.wire.explainError(a.err)
	case <-ctx.Done():
		l.markRetired()
		return none, ctx.Err()
	}
}

// callDaemon is askDaemon for a question without an answer.
func callDaemon(ctx context.Context, l *link, question func(*golibvirt.Libvirt) error) error {
	_, err := askDaemon(ctx, l, func(rpc *golibvirt.Libvirt) (struct{}, error) { return struct{}{}, question(rpc) })
	return err
}

// closeLinks disconnects unused connections properly, ends all, and waits until none is left or ctx ends.
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
		// the only benefit is that the daemon logs no broken connection
		_ = callDaemon(polite, l, (*golibvirt.Libvirt).ConnectClose)
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
