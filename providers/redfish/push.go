package redfish

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

func (p *Push) checkSettings() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf("push."+path, format, a...)) }
	if _, port, err := net.SplitHostPort(p.Listen); err != nil || port == "" {
		problem("listen", "is %q: write [host]:port", p.Listen)
	}
	if u, err := remote.ParseHTTP(p.Destination, false); err != nil {
		problem("destination", "is no https://host[:port]")
	} else if u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		problem("destination", "is not https://host[:port], without a path")
	}
	for _, f := range []struct{ setting, file string }{{"certFile", p.CertFile}, {"keyFile", p.KeyFile}} {
		if f.file == "" {
			problem(f.setting, "missing")
		}
	}
	if p.CertFile != "" && p.KeyFile != "" {
		if _, err := p.loadCertificate(nil); err != nil {
			problem("certFile", "%v", err)
		}
	}
	return out
}

// loadCertificate reads the certificate and its key, again at each call.
func (p *Push) loadCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading certificate and key: %w", err)
	}
	return &c, nil
}

const (
	// maxConns is the maximum number of connections, and maxConnsEach the maximum from the address of one BMC.
	maxConns, maxConnsEach = 1024, 4
	// serverTime is the timeout of a handshake, and of a request.
	serverTime = 10 * time.Second
	// serverIdle is how long a BMC may keep a connection without a request.
	serverIdle = 2 * time.Minute
)

// eventServer receives the events of BMCs. It listens while a Watch runs, and so only in the leading process. It
// refuses connections from addresses other than a BMC's. Each BMC has a path of its own that cannot be guessed. What is
// sent there is at most a reason to ask that BMC.
type eventServer struct {
	push    Push
	context string // marks this provider's subscriptions
	origin  string // of their destinations

	mu            sync.Mutex // guards what follows
	users         int
	server        *http.Server
	subscriptions map[string]*subscription // by path
	open          map[netip.Addr]int       // connections, by where they come from
	opened        int                      // all of them
	closed        chan struct{}            // closed when the server has ended
	strays        int                      // connections from other addresses since straysLogged
	straysLogged  time.Time                // when they were last logged
	log           *slog.Logger             // of the Watch that opened it
}

// subscription is one BMC's permission to send to one path.
type subscription struct {
	l     *listener
	path  string
	addrs []netip.Addr // its own; guarded by eventServer.mu
}

func newEventServer(p Push, context string) *eventServer {
	d := &eventServer{push: p, context: context, subscriptions: map[string]*subscription{}, open: map[netip.Addr]int{}}
	if u, err := remote.ParseHTTP(p.Destination, false); err == nil {
		d.origin = u.Scheme + "://" + u.Host
	}
	return d
}

// addSubscription creates a path for a BMC. Requests to it are refused until setAddresses.
func (d *eventServer) addSubscription(l *listener) *subscription {
	g := &subscription{l: l, path: "/" + rand.Text()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscriptions[g.path] = g
	return g
}

func (d *eventServer) removeSubscription(g *subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subscriptions, g.path)
}

// setAddresses sets the addresses from which the BMC may send.
func (d *eventServer) setAddresses(g *subscription, addrs []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.addrs = addrs
}

// keepOpen keeps the server open until ctx ends, and closes ready once it listens. Until then it tries again.
func (d *eventServer) keepOpen(ctx context.Context, log *slog.Logger, ready chan<- struct{}) {
	warned := false
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := d.openServer(ctx, log)
		if err == nil {
			break
		}
		if !warned {
			log.Warn("Cannot listen for the events of BMCs; until then they are only polled", "listen", d.push.Listen,
				"err", err)
			warned = true
		}
		if !remote.SleepContext(ctx, pause) {
			return
		}
	}
	close(ready)
	<-ctx.Done()
	d.closeServer()
}

// openServer starts the server, unless another Watch has started it.
func (d *eventServer) openServer(ctx context.Context, log *slog.Logger) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users > 0 {
		d.users++
		return nil
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", d.push.Listen)
	if err != nil {
		return err
	}
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	d.server = &http.Server{
		Handler: d,
		TLSConfig: &tls.Config{
			MinVersion:             tls.VersionTLS12,
			GetCertificate:         d.push.loadCertificate,
			SessionTicketsDisabled: true,
		},
		// The first two bound the handshake as well.
		ReadHeaderTimeout: serverTime,
		ReadTimeout:       serverTime,
		WriteTimeout:      serverTime,
		IdleTimeout:       serverIdle,
		MaxHeaderBytes:    8 << 10,
		Protocols:         only1, ErrorLog: discard,
	}
	d.users, d.closed, d.log = 1, make(chan struct{}), log
	server, closed := d.server, d.closed
	go func() { // its owner is closeServer
		defer close(closed)
		_ = server.ServeTLS(&bmcListener{l, d}, "", "") // ends with Close
	}()
	return nil
}

var discard = log.New(io.Discard, "", 0)

// closeServer stops the server when its last Watch ends, and waits until it has stopped.
func (d *eventServer) closeServer() {
	d.mu.Lock()
	d.users--
	server, closed := d.server, d.closed
	if d.users > 0 {
		d.mu.Unlock()
		return
	}
	d.server = nil
	d.mu.Unlock()
	_ = server.Close()
	<-closed
}

// bmcListener accepts connections only from the addresses of BMCs, and a limited number of them.
type bmcListener struct {
	net.Listener
	eventServer *eventServer
}

func (w *bmcListener) Accept() (net.Conn, error) {
	for {
		c, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from := senderAddress(c.RemoteAddr().String()); w.eventServer.admitConn(from, time.Now()) {
			return &countedConn{Conn: c, end: sync.OnceFunc(func() { w.eventServer.releaseConn(from) })}, nil
		}
		_ = c.Close()
	}
}

// admitConn reports whether a connection from this address may stay, and counts it if so.
func (d *eventServer) admitConn(from netip.Addr, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	bmcs := 0
	for _, g := range d.subscriptions {
		if slices.Contains(g.addrs, from) {
			bmcs++
		}
	}
	if bmcs == 0 {
		if d.strays++; now.Sub(d.straysLogged) >= time.Minute {
			d.log.Warn("Refused connections from an address that belongs to no BMC", "address", from.String(),
				"connections", d.strays)
			d.strays, d.straysLogged = 0, now
		}
		return false
	}
	if d.opened >= maxConns || d.open[from] >= bmcs*maxConnsEach {
		return false
	}
	d.opened++
	d.open[from]++
	return true
}

func (d *eventServer) releaseConn(from netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened--
	if d.open[from]--; d.open[from] == 0 {
		delete(d.open, from)
	}
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	end func()
}

func (v *countedConn) Close() error {
	v.end()
	return v.Conn.Close()
}

// senderAddress returns the address in a host:port, the zero Addr if there is none.
func senderAddress(hostport string) netip.Addr {
	at, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// ServeHTTP receives one event. The answers for an unknown path and for another BMC's path are the same.
func (d *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := senderAddress(r.RemoteAddr)
	d.mu.Lock()
	g := d.subscriptions[r.URL.Path]
	known := g != nil && slices.Contains(g.addrs, from)
	d.mu.Unlock()
	switch {
	case !known:
		w.Header().Set("Connection", "close")
		http.NotFound(w, r)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if g.l.limiter.takeOne(time.Now()) > 0 { // not read; few BMCs send it again
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNoContent)
		g.l.asker.AskSoon(g.l.all...)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, remote.MaxEvent))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if r.Header.Get("Content-Encoding") != "" {
		body = nil // nothing is unpacked
	}
	g.l.handleEvent(body)
}

// destination is the part of an EventDestination that is read.
type destination struct {
	Destination, Context string
	Status               struct{ State string }
}

// runSubscription subscribes g's path to the BMC's events. It blocks until the BMC has forgotten the subscription, or
// until ctx ends and it has deleted the subscription. lasted is 0 if there never was one.
func (l *listener) runSubscription(ctx context.Context, b *bmc, g *subscription) (lasted time.Duration, err error) {
	var path string
	if err := l.withSlot(ctx, func() (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, 2*loginTime, fmt.Errorf("no subscription within %s", 2*loginTime))
		defer cancel()
		if err := l.resolveAddresses(ctx, g); err != nil {
			return err
		}
		path, err = l.createSubscription(ctx, b, g)
		return err
	}); err != nil {
		return 0, err
	}
	began := time.Now()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unsubscribeTime)
		defer cancel()
		l.deleteSubscription(ctx, b, path)
	}()
	l.reportBegun()
	for {
		if !remote.SleepContext(ctx, jitterDelay(l.p.timing.quiet)) {
			return time.Since(began), ctx.Err()
		}
		there, err := l.checkSubscription(ctx, b, g, path)
		switch {
		case err != nil: // a BMC that restarts
			l.log.Debug("Cannot read a subscription", "err", providers.ErrorCause(classifyError(ctx, err)))
		case !there:
			return max(time.Since(began), 1), errors.New("the BMC has forgotten the subscription")
		}
	}
}

// checkSubscription reports whether the subscription is unchanged, and resolves the BMC's addresses again.
func (l *listener) checkSubscription(ctx context.Context, b *bmc, g *subscription, path string) (there bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	if err := l.resolveAddresses(ctx, g); err != nil {
		return false, err
	}
	var d destination
	switch _, _, err := b.getResource(ctx, path, &d); {
	case httpStatus(err) == http.StatusNotFound, httpStatus(err) == http.StatusGone:
		return false, nil
	case err != nil:
		return false, err
	}
	at, ours := l.eventServer.ownPath(d)
	return ours && at == g.path && d.Status.State != "Disabled", nil
}

// resolveAddresses looks up the addresses from which the BMC sends.
func (l *listener) resolveAddresses(ctx context.Context, g *subscription) error {
	u, err := url.Parse(l.Device)
	if err != nil {
		return providers.WithClass(providers.ErrPermanent, errors.New("the BMC's address is invalid"))
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap().WithZone("")
	}
	l.eventServer.setAddresses(g, addrs)
	return nil
}

// ownPath reports whether a subscription belongs to this provider, also of an earlier process: it has this server's
// context and origin. path is the path to which it sends.
func (d *eventServer) ownPath(s destination) (path string, ok bool) {
	u, err := url.Parse(s.Destination)
	if err != nil || s.Context != d.context {
		return "", false
	}
	host, err := remote.CanonicalHost(u)
	return u.Path, err == nil && u.Scheme+"://"+host == d.origin
}

// hasSubscription reports whether a Watch of this process has that path.
func (d *eventServer) hasSubscription(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.subscriptions[path] != nil
}

// maxSubscriptions is more than BMCs have: OpenBMC has 20.
const maxSubscriptions = 64

// createSubscription creates a subscription and returns its path. It first deletes those that earlier processes of this
// provider left, and no others.
func (l *listener) createSubscription(ctx context.Context, b *bmc, g *subscription) (path string, _ error) {
	s, err := b.readEventService(ctx)
	if err != nil {
		return "", err
	}
	at, ok := b.localPath(s.Subscriptions.ID)
	if !ok {
		return "", providers.WithClass(providers.ErrPermanent, errors.New("the event service links no subscriptions"))
	}
	var all struct{ Members links }
	if _, _, err := b.getResource(ctx, at, &all); err != nil {
		return "", err
	}
	for _, m := range all.Members[:min(len(all.Members), maxSubscriptions)] {
		var d destination
		member, ok := b.localPath(m)
		if !ok {
			continue
		}
		if _, _, err := b.getResource(ctx, member, &d); err != nil {
			continue // gone, or of a kind that cannot be read
		}
		if left, ours := l.eventServer.ownPath(d); ours && (left == g.path || !l.eventServer.hasSubscription(left)) {
			l.deleteSubscription(ctx, b, member)
		}
	}
	body := map[string]any{
		"Destination": l.eventServer.origin + g.path,
		"Context":     l.eventServer.context,
		"Protocol":    "Redfish",
	}
	r, err := b.sendChange(ctx, request{method: http.MethodPost, path: at, body: s.subscriptionBody(body, false)})
	if httpStatus(err) == http.StatusBadRequest {
		r, err = b.sendChange(ctx, request{method: http.MethodPost, path: at, body: s.subscriptionBody(body, true)})
	}
	if err != nil {
		return "", err
	}
	if path = memberPath(at, r); path == "" {
		return "", providers.WithClass(providers.ErrPermanent,
			errors.New("the BMC does not return the path of the new subscription"))
	}
	return path, nil
}

// subscriptionBody adds which events are wanted. Services before version 1.3 know types of events. Some later ones
// accept only one way, so the caller tries the other after a refusal.
func (s *eventService) subscriptionBody(body map[string]any, other bool) map[string]any {
	old := len(s.RegistryPrefixes) == 0 && len(s.EventFormatTypes) == 0
	delete(body, "EventTypes")
	delete(body, "EventFormatType")
	delete(body, "SubscriptionType")
	if old != other {
		types := slices.DeleteFunc(slices.Clone(s.EventTypesForSubscription),
			func(t string) bool { return t == "MetricReport" })
		if len(types) == 0 {
			types = []string{"Alert", "StatusChange"}
		}
		body["EventTypes"] = types
		return body
	}
	body["EventFormatType"], body["SubscriptionType"] = "Event", "RedfishEvent"
	return body
}

// deleteSubscription deletes a subscription. If that fails, the next process does, or it expires.
func (l *listener) deleteSubscription(ctx context.Context, b *bmc, path string) {
	if _, err := b.sendChange(ctx, request{method: http.MethodDelete, path: path}); err != nil &&
		httpStatus(err) != http.StatusNotFound {
		l.log.Debug("Cannot delete a subscription", "err", providers.ErrorCause(classifyError(ctx, err)))
	}
}
