package providertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// ProxyOptions describe a Proxy's counterpart. The zero value is a stream of bytes.
type ProxyOptions struct {
	// the stream is TLS, which the counterpart ends; certificates of the proxy's own are shown for faults only
	TLS  bool
	HTTP bool // the counterpart speaks HTTP; the proxy ends TLS with a certificate of CA
}

// Proxy is in front of a counterpart that is reached over TCP, and breaks the network as its fault says. Its faults are
// independent of the Bench's: each has one at a time. It ends with the test, and none of its goroutines outlives its
// connections.
type Proxy struct {
	opts      ProxyOptions
	to        string
	gate      *gate
	authority *kit.Authority
	upstream  *http.Transport
	tooMany   atomic.Int32 // requests that were answered so
	work      sync.WaitGroup
}

// NewProxy starts a proxy on a port of 127.0.0.1. to is the counterpart: host:port, or with HTTP its origin
// ("https://127.0.0.1:8443"), whose certificate is not looked at.
func NewProxy(t testing.TB, to string, o ProxyOptions) *Proxy {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{opts: o, to: to, authority: kit.NewAuthority("proxy"), gate: newGate(inner.(*net.TCPListener))}
	good := issueCertificate(p.authority, time.Now().Add(24*time.Hour))
	shown := map[Fault]tls.Certificate{
		ExpiredCertificate: issueCertificate(p.authority, time.Now().Add(-23*time.Hour)),
		UnknownAuthority:   issueCertificate(kit.NewAuthority("unknown"), time.Now().Add(24*time.Hour)),
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		f, _ := p.gate.currentFault()
		if c, ok := shown[f]; ok {
			return &c, nil
		}
		return &good, nil
	}
	if o.HTTP {
		// A connection for each request: none is left when a bench looks for goroutines.
		p.upstream = &http.Transport{
			DisableKeepAlives:  true,
			DisableCompression: true,
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		}
		server := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
		p.work.Go(func() { _ = server.Serve(tls.NewListener(p.gate, cfg)) })
		t.Cleanup(func() { _ = server.Close() })
	} else {
		p.work.Go(func() {
			for {
				c, err := p.gate.Accept()
				if err != nil {
					return
				}
				p.work.Go(func() { p.serveConn(c, cfg) })
			}
		})
	}
	t.Cleanup(func() {
		_ = p.gate.Close()
		p.work.Wait()
	})
	return p
}

// issueCertificate returns a certificate for this host until that time.
func issueCertificate(a *kit.Authority, until time.Time) tls.Certificate {
	return a.Sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: until, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, nil).TLS()
}

// Addr returns the address at which the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.gate.Addr().String() }

// CA returns the authority, in PEM, of the proxy's own certificates. A provider must trust it, beside the counterpart's
// own with TLS.
func (p *Proxy) CA() []byte { return p.authority.Cert }

// SetFault replaces the fault at once. It releases held answers, and the faults of new connections close open ones.
func (p *Proxy) SetFault(f Fault) { p.gate.setFault(f) }

// NetworkFaults returns the faults that the counterpart's protocol can have.
func (p *Proxy) NetworkFaults() []Fault {
	all := []Fault{HangConnect, HangHandshake, HangAnswer, HalfAnswer, LateAnswer}
	if p.opts.TLS || p.opts.HTTP {
		all = append(all, ExpiredCertificate, UnknownAuthority)
	}
	if p.opts.HTTP {
		all = append(all, NotThere, TooMany, Gibberish)
	}
	return all
}

// DropConnections ends all connections.
func (p *Proxy) DropConnections() { p.gate.dropConnections() }

// TooMany returns how many requests the fault of that name has answered.
func (p *Proxy) TooMany() int { return int(p.tooMany.Load()) }

// serveConn copies the bytes of one connection in both directions.
func (p *Proxy) serveConn(c net.Conn, cfg *tls.Config) {
	defer c.Close()
	switch f, _ := p.gate.currentFault(); f {
	case ExpiredCertificate, UnknownAuthority:
		_ = tls.Server(c, cfg).HandshakeContext(context.Background()) // the gate closes it with the fault
		return
	case floodStream:
		p.floodConn(c, cfg)
		return
	}
	d, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer d.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer c.Close()
		p.relayAnswers(c, d)
	}()
	_, _ = io.Copy(d, c)
	_ = d.Close()
	<-ended
}

// relayAnswers copies the counterpart's answers until the fault stops them.
func (p *Proxy) relayAnswers(c, d net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := d.Read(b)
		if err != nil {
			return
		}
		f, over := p.gate.currentFault()
		switch f {
		case HalfAnswer, HangAnswer:
			_, _ = c.Write(b[:n/2])
			if f == HangAnswer {
				p.holdAnswer(c, over)
			}
			return
		case LateAnswer:
			p.holdAnswer(c, over)
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// holdAnswer waits until the fault is over or the connection's client has disconnected, which the gate notices when
// serveConn closes it.
func (p *Proxy) holdAnswer(c net.Conn, over <-chan struct{}) {
	gone := p.gate.clientGone(c)
	select {
	case <-over:
	case <-gone:
	}
}

// ServeHTTP passes one request on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, over := p.gate.currentFault()
	if isFlood(f) {
		floodHTTP(w, r, f)
		return
	}
	switch f {
	case NotThere:
		http.Error(w, "not found", http.StatusNotFound)
		return
	case TooMany:
		p.tooMany.Add(1)
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "slow down", http.StatusTooManyRequests)
		return
	case Gibberish:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"state":"Frobnicating","PowerState":"Frobnicating","power_state":"Frobnicating"}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// Not by r's context: a request still reaches a device after its client has disconnected.
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.to+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	resp, err := p.upstream.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if f == LateAnswer && !waitFaultOver(r.Context(), over) {
		panic(http.ErrAbortHandler) // said to one who is just going, it would still be heard
	}
	for key, values := range resp.Header {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(resp.StatusCode)
	if f != HalfAnswer && f != HangAnswer {
		_, _ = w.Write(answer)
		return
	}
	_, _ = w.Write(answer[:len(answer)/2])
	_ = http.NewResponseController(w).Flush()
	if f == HangAnswer {
		waitFaultOver(r.Context(), over)
	}
	panic(http.ErrAbortHandler)
}

// waitFaultOver waits until the fault is over, and reports whether the client is still connected.
func waitFaultOver(ctx context.Context, over <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-over:
		return ctx.Err() == nil
	}
}

// gate accepts connections as the fault allows.
type gate struct {
	*net.TCPListener

	mu       sync.Mutex // guards what follows
	fault    Fault
	over     chan struct{} // closed when the fault is replaced
	conns    map[*gated]struct{}
	accepted int
	full     []net.Conn // ours, never accepted: they fill the queue under HangConnect
	closed   bool
}

// gated is a connection of a client.
type gated struct {
	net.Conn
	gate *gate
	once sync.Once
	gone chan struct{} // closed with the connection
}

func newGate(l *net.TCPListener) *gate {
	return &gate{TCPListener: l, over: make(chan struct{}), conns: map[*gated]struct{}{}}
}

func (g *gate) currentFault() (Fault, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fault, g.over
}

func (g *gate) clientGone(c net.Conn) <-chan struct{} {
	if c, ok := c.(*gated); ok {
		return c.gone
	}
	return nil
}

// isConnectFault reports whether a fault affects new connections: open ones end when it begins.
func isConnectFault(f Fault) bool {
	return f == HangConnect || f == HangHandshake || f == ExpiredCertificate || f == UnknownAuthority || isFlood(f)
}

func (g *gate) setFault(f Fault) {
	g.mu.Lock()
	before := g.fault
	g.fault = f
	close(g.over)
	g.over = make(chan struct{})
	full := g.full
	g.full = nil
	g.mu.Unlock()
	if isConnectFault(f) || isConnectFault(before) {
		g.dropConnections()
	}
	for _, c := range full {
		_ = c.Close()
	}
	switch {
	case f == HangConnect:
		g.fillBacklog()
	case before == HangConnect:
		g.setBacklog(128)
		_ = g.SetDeadline(time.Time{})
	}
}

// dropConnections ends all connections.
func (g *gate) dropConnections() {
	g.mu.Lock()
	var all []*gated
	for c := range g.conns {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// fillBacklog makes the kernel answer no further connection: the queue of unaccepted connections is as short as
// possible, and full.
func (g *gate) fillBacklog() {
	_ = g.SetDeadline(time.Now()) // ends an Accept
	g.setBacklog(0)
	for range 8 {
		c, err := net.DialTimeout("tcp", g.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.full = append(g.full, c)
		g.mu.Unlock()
	}
}

// setBacklog sets the length of the queue of a listener that already listens.
func (g *gate) setBacklog(n int) {
	raw, err := g.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), n) })
	}
}

// Accept waits for the next connection that may be served.
func (g *gate) Accept() (net.Conn, error) {
	for {
		f, over := g.currentFault()
		if f == HangConnect {
			<-over
			continue
		}
		c, err := g.TCPListener.Accept()
		g.mu.Lock()
		switch {
		case g.closed:
			g.mu.Unlock()
			if err == nil {
				_ = c.Close()
			}
			return nil, net.ErrClosed
		case err != nil:
			g.mu.Unlock()
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				continue
			}
			return nil, err
		}
		conn := &gated{Conn: c, gate: g, gone: make(chan struct{})}
		g.conns[conn] = struct{}{}
		g.accepted++
		f = g.fault
		g.mu.Unlock()
		if f == HangConnect || f == HangHandshake {
			continue // it stays open until the fault is over, and is not read
		}
		return conn, nil
	}
}

// Close ends all connections and the faults.
func (g *gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.setFault(HangHandshake) // drops what is open, and lets a waiting Accept go on
	return g.TCPListener.Close()
}

// Close closes the connection.
func (c *gated) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.Conn.Close()
}
