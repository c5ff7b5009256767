// Package httpserver makes the controller's HTTP servers: metrics, health and the status page. Any pod may reach their
// ports, so each client counts as hostile until it is served. Connections, headers, time and memory are bounded, for
// each client and for all.
//
// A new connection always finds room while another one is slow. So a kubelet's probe and Prometheus are served beside
// clients that hold as many connections as they may.
package httpserver

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxConns is how many connections a listener has.
	maxConns = 128
	// protectedTime is how long a connection is protected after it was accepted, or began a request. It is as long as a
	// probe or a scrape takes, and no longer. Until then no connection gives way to a new one.
	protectedTime = 100 * time.Millisecond

	headerTime  = 5 * time.Second  // for the TLS handshake, and again for a request's header
	requestTime = 10 * time.Second // for the whole request
	answerTime  = 10 * time.Second // for the answer, from the end of the request's header
	idleTime    = time.Minute      // between two requests
	maxHeader   = 8 << 10          // bytes of a header; net/http lets 4 KiB more pass
	maxKernel   = 64 << 10         // bytes that the kernel keeps of a connection, in each direction; Linux doubles it
)

// New returns a server of h for the connections of Listen. log gets the clients' faults, at level debug.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ConnState: noteState, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader,
		// Limits of an HTTP/2 connection: as many requests as a browser with some tabs has in flight, and the smallest
		// buffers.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 16, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream: 16 << 10, WriteByteTimeout: answerTime,
		},
	}
}

// Listen listens at a TCP address. If a connection exceeds maxConns, or maxEach from one address, the slowest one is
// closed.
func Listen(address string, maxEach int) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return limitConns(l, maxEach), nil
}

func limitConns(l net.Listener, maxEach int) *listener {
	return &listener{
		Listener: l, maxEach: maxEach, now: time.Now, conns: map[*conn]struct{}{}, from: map[netip.Addr]int{},
	}
}

// listener bounds its connections.
type listener struct {
	net.Listener
	maxEach int
	now     func() time.Time

	mu    sync.Mutex // guards what follows, and each connection's since
	conns map[*conn]struct{}
	from  map[netip.Addr]int // how many of conns, by source address
}

// conn is a connection that is counted until it is closed.
type conn struct {
	net.Conn
	of    *listener
	from  netip.Addr
	since time.Time // it was accepted, or began or ended a request
}

// Accept returns the next connection that there is room for.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := inner.(*net.TCPConn); ok { // best effort: a client that does not read costs the kernel less
			_ = tcp.SetReadBuffer(maxKernel)
			_ = tcp.SetWriteBuffer(maxKernel)
		}
		c := &conn{Conn: inner, of: l, from: sourceAddr(inner.RemoteAddr())}
		slowest, ok := l.admitConn(c)
		if slowest != nil {
			slowest.resetConn()
		}
		if ok {
			return c, nil
		}
		c.resetConn()
	}
}

// admitConn counts a connection, if there is room for it. It returns the connection that must close for it, which is no
// longer counted; nil if none must.
func (l *listener) admitConn(c *conn) (evicted *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.since = l.now()
	if each := l.from[c.from] >= l.maxEach; each || len(l.conns) >= maxConns {
		if evicted = l.chooseVictim(c, each); evicted == nil {
			return nil, false
		}
		l.forgetConn(evicted)
	}
	l.conns[c] = struct{}{}
	l.from[c.from]++
	return evicted, true
}

// chooseVictim returns the connection that must close for c; nil means c itself. If sameSource is set, it chooses only
// among those from c's address.
//
// It chooses the connection that has been longest in its state. Such a connection waits for a request that does not
// come, or for a client that does not read. If all are younger than protectedTime, an address with many connections
// gives one up for an address that would still have fewer.
func (l *listener) chooseVictim(c *conn, sameSource bool) *conn {
	var slowest, crowd *conn
	for o := range l.conns {
		if sameSource && o.from != c.from {
			continue
		}
		if slowest == nil || o.since.Before(slowest.since) {
			slowest = o
		}
		if crowd == nil || l.from[o.from] > l.from[crowd.from] {
			crowd = o
		}
	}
	switch {
	case c.since.Sub(slowest.since) >= protectedTime:
		return slowest
	case l.from[crowd.from] > l.from[c.from]+1:
		return crowd
	}
	return nil
}

// forgetConn stops counting a connection. It may be repeated. The caller holds mu.
func (l *listener) forgetConn(c *conn) {
	if _, counted := l.conns[c]; !counted {
		return
	}
	delete(l.conns, c)
	if l.from[c.from]--; l.from[c.from] == 0 {
		delete(l.from, c.from)
	}
}

// Close ends the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.forgetConn(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets a refusal arrive: net/http calls it before it closes a connection whose request it has not read.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// resetConn ends the connection, and makes the kernel drop the data that the client has not read.
func (c *conn) resetConn() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// noteState is called by http.Server when a request begins and ends.
func noteState(c net.Conn, s http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if c, ok := c.(*conn); ok && (s == http.StateActive || s == http.StateIdle) {
		c.of.mu.Lock()
		c.since = c.of.now()
		c.of.mu.Unlock()
	}
}

// sourceAddr returns the address that a connection comes from.
func sourceAddr(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}
