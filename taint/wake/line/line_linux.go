package line

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Run keeps the lines that are wanted until ctx ends, then closes all of them. An error means that the kernel lets us
// have none. It must not run twice at the same time.
func (l *Lines) Run(ctx context.Context) error {
	w, err := newWorker(l)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.wake, l.fresh = w.wakeUp, true
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.wake != nil {
			l.wake()
		}
	})
	defer func() {
		stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake, l.counts = nil, nil
		w.close() // under the lock, so that wake never writes to a closed descriptor
	}()
	for ctx.Err() == nil {
		if err := w.runOnce(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// worker is the state of Run. Only Run's goroutine uses it, except for wakeUp.
type worker struct {
	l       *Lines
	epollFD int // epoll
	wakeFD  int // eventfd: written to wake us
	events  [256]unix.EpollEvent
	port    uint16
	lines   map[string]*conn
	by      map[int]*conn // by descriptor
	queue   queue
	began   int // attempts under way for lines that never were open
	leftOut int
	counted bool // the counts are up to date
}

func newWorker(l *Lines) (*worker, error) {
	w := &worker{l: l, epollFD: -1, wakeFD: -1, lines: map[string]*conn{}, by: map[int]*conn{}}
	var err error
	if w.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		w.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = unix.EpollCtl(w.epollFD, unix.EPOLL_CTL_ADD, w.wakeFD,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(w.wakeFD)})
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("keeping lines to nodes: %w", err)
	}
	return w, nil
}

func (w *worker) close() {
	for _, c := range w.lines {
		w.closeConn(c)
	}
	for _, fd := range []int{w.epollFD, w.wakeFD} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// wakeUp ends the sleep of runOnce. A wake-up that was sent before and not received yet is enough.
func (w *worker) wakeUp() { _, _ = unix.Write(w.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// runOnce does what is due, and sleeps until something happens.
func (w *worker) runOnce(now time.Time) error {
	if port, want, ok := w.l.takeWanted(); ok {
		w.applyWanted(port, want, now)
	}
	for len(w.queue) > 0 && !w.queue[0].due.After(now) {
		c := w.queue[0]
		switch {
		case c.state == attempting:
			w.finishAttempt(c, unix.ETIMEDOUT, now)
		case !c.wasOpen && w.began >= maxAttempts:
			w.scheduleConn(c, now.Add(100*time.Millisecond))
		default:
			w.startConnect(c, now)
		}
	}
	w.updateCounts()
	sleep := -1
	if len(w.queue) > 0 {
		sleep = max(0, int((w.queue[0].due.Sub(now)+time.Millisecond-1)/time.Millisecond))
	}
	n, err := unix.EpollWait(w.epollFD, w.events[:], sleep)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for lines to nodes: %w", err)
	}
	now = time.Now()
	for _, e := range w.events[:max(n, 0)] {
		if int(e.Fd) == w.wakeFD {
			var b [8]byte
			_, _ = unix.Read(w.wakeFD, b[:])
			continue
		}
		c := w.by[int(e.Fd)]
		if c == nil {
			continue
		}
		errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			errno = int(unix.EBADF)
		}
		switch {
		case c.state == attempting:
			w.finishAttempt(c, unix.Errno(errno), now)
		default:
			w.handleBreak(c, now)
		}
	}
	return nil
}

// applyWanted opens and closes lines to match the wanted ones.
func (w *worker) applyWanted(port uint16, want map[string]netip.Addr, now time.Time) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		want, w.leftOut = w.l.limitLines(int(min(limit.Cur, 1<<30))-spareFDs, want)
	}
	for name, c := range w.lines {
		if a, ok := want[name]; !ok || a != c.address || port != w.port {
			w.closeConn(c)
			if c.place >= 0 {
				heap.Remove(&w.queue, c.place)
			}
			if c.state == attempting && !c.wasOpen {
				w.began--
			}
			delete(w.lines, name)
		}
	}
	w.port, w.counted = port, false
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if w.lines[name] == nil {
			c := &conn{node: name, address: want[name], fd: -1, place: -1, due: now}
			w.lines[name] = c
			heap.Push(&w.queue, c)
		}
	}
}

// scheduleConn puts a line into the queue, or moves it there.
func (w *worker) scheduleConn(c *conn, due time.Time) {
	c.due = due
	if c.place < 0 {
		heap.Push(&w.queue, c)
		return
	}
	heap.Fix(&w.queue, c.place)
}

// startConnect begins to connect.
func (w *worker) startConnect(c *conn, now time.Time) {
	fd, err := newSocket(c.address)
	if err != nil {
		w.finishAttempt(c, err, now)
		return
	}
	c.fd, w.by[fd] = fd, c
	c.state = attempting
	if !c.wasOpen {
		w.began++
	}
	err = unix.Connect(fd, toSockaddr(c.address, w.port))
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		if add := unix.EpollCtl(w.epollFD, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
			Events: unix.EPOLLOUT | unix.EPOLLRDHUP,
			Fd:     int32(fd),
		}); add != nil {
			err = errLocal
		}
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		w.finishAttempt(c, err, now)
		return
	}
	wait := firstConnectTimeout
	if c.wasOpen {
		wait = connectTimeout
	}
	w.scheduleConn(c, now.Add(wait))
}

var errLocal = errors.New("the kernel watches no more connections")

// finishAttempt handles the result of an attempt: nil or 0 means that the node accepted.
func (w *worker) finishAttempt(c *conn, err error, now time.Time) {
	if c.state == attempting && !c.wasOpen {
		w.began--
	}
	o := outcomeOf(err)
	if o == accepted {
		if mod := unix.EpollCtl(w.epollFD, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{
			Events: unix.EPOLLRDHUP,
			Fd:     int32(c.fd),
		}); mod != nil {
			o, err = failedLocally, errLocal
		}
	}
	w.counted = false
	again := c.reported
	report, rest := c.applyOutcome(o, now)
	if o == accepted {
		heap.Remove(&w.queue, c.place)
		if again {
			w.l.Log.Info("Line to a node is open again", "node", c.node)
		}
		return
	}
	w.closeConn(c)
	c.state = resting
	w.scheduleConn(c, now.Add(rest+rand.N(rest/4+1)))
	switch {
	case report:
		w.l.Log.Info("Line to a node broke, and cannot be reopened",
			"node", c.node, "address", c.address.String(), "error", err)
		w.l.OnBreak(c.node)
	case !c.wasOpen && !c.neverLogged:
		c.neverLogged = true
		w.l.Log.Info("A node does not accept a line",
			"node", c.node, "address", netip.AddrPortFrom(c.address, w.port).String(), "error", err)
	}
}

// handleBreak handles the end of an open line, for any cause: whether it can be made again decides.
func (w *worker) handleBreak(c *conn, now time.Time) {
	w.closeConn(c)
	c.state, w.counted = resting, false
	if wait := c.noteEnd(now); wait > 0 {
		w.scheduleConn(c, now.Add(wait))
		return
	}
	c.due = now
	heap.Push(&w.queue, c)
	w.startConnect(c, now)
}

func (w *worker) closeConn(c *conn) {
	if c.fd >= 0 {
		delete(w.by, c.fd)
		_ = unix.Close(c.fd) // which removes it from epoll
		c.fd = -1
	}
}

// updateCounts updates the counts.
func (w *worker) updateCounts() {
	if w.counted {
		return
	}
	counts := map[State]int{Open: 0, Broken: 0, Never: 0, LeftOut: w.leftOut}
	for _, c := range w.lines {
		counts[c.stateOf()]++
	}
	w.counted = true
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.counts = counts
}

// outcomeOf returns the outcome that an error of connect means.
func outcomeOf(err error) outcome {
	var errno unix.Errno
	switch {
	case err == nil:
		return accepted
	case !errors.As(err, &errno):
		return failedLocally
	}
	switch errno {
	case 0:
		return accepted
	case unix.ECONNREFUSED, unix.ECONNRESET:
		return refused
	case unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENETUNREACH:
		return silent
	default:
		return failedLocally
	}
}

// newSocket returns a socket whose kernel probes the other side, and which buffers little of what that sends.
func newSocket(a netip.Addr) (int, error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", errLocal, err)
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, probeEvery},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, probeEvery},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(giveUp / time.Millisecond)},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 1}, // the kernel uses its minimum
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("%w: %w", errLocal, err)
		}
	}
	return fd, nil
}

func toSockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}
