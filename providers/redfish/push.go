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

func (p *Push) validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf("push."+path, format, a...)) }
	if _, port, err := net.SplitHostPort(p.Listen); err != nil || port == "" {
		problem("listen", "is %q: write [host]:port", p.Listen)
	}
	if u, err := remote.ParseHTTP(p.Destination, false); err != nil {
		problem("destination", "%v", err)
	} else if u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		problem("destination", "is not https://host[:port], without a path")
	}
	for _, f := range []struct{ setting, file string }{{"certFile", p.CertFile}, {"keyFile", p.KeyFile}} {
		if f.file == "" {
			problem(f.setting, "missing")
		}
	}
	if p.CertFile != "" && p.KeyFile != "" {
		if _, err := p.certificate(nil); err != nil {
			problem("certFile", "%v", err)
		}
	}
	return out
}

// certificate reads the certificate and its key anew.
func (p *Push) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading certificate and key: %w", err)
	}
	return &c, nil
}

const (
	// doorConns is how many connections there may be, and doorConnsEach how many from the address of one BMC.
	doorConns, doorConnsEach = 1024, 4
	// doorTime bounds a handshake, and a request.
	doorTime = 10 * time.Second
	// doorIdle is how long a BMC may keep a connection without a request.
	doorIdle = 2 * time.Minute
)

// door is where BMCs send their events to. It is open while a Watch runs, and so in the process that leads only. It believes nobody: who
// comes from another address than a BMC's is not spoken to, each BMC has a path of its own that nobody can guess, and what is sent there is
// at most a reason to ask that BMC.
type door struct {
	push    Push
	context string // by which our subscriptions are known
	origin  string // of their destinations

	mu     sync.Mutex // guards what follows
	users  int
	server *http.Server
	guests map[string]*guest  // by path
	open   map[netip.Addr]int // connections, by where they come from
	opened int                // all of them
	closed chan struct{}      // closed when the server has ended
	strays int                // connections from other addresses since that was said
	said   time.Time          // when
	log    *slog.Logger       // of the Watch that opened it
}

// guest is a BMC that may send to one path.
type guest struct {
	l     *listener
	path  string
	addrs []netip.Addr // its own; guarded by door.mu
}

func newDoor(p Push, context string) *door {
	d := &door{push: p, context: context, guests: map[string]*guest{}, open: map[netip.Addr]int{}}
	if u, err := remote.ParseHTTP(p.Destination, false); err == nil {
		d.origin = u.Scheme + "://" + u.Host
	}
	return d
}

// enter gives a BMC a path. Nobody may send to it before admit.
func (d *door) enter(l *listener) *guest {
	g := &guest{l: l, path: "/" + rand.Text()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests[g.path] = g
	return g
}

func (d *door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, g.path)
}

// admit takes what comes from these addresses for the BMC's.
func (d *door) admit(g *guest, addrs []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.addrs = addrs
}

// keep has the door open until ctx ends, and closes ready when it is. It is said once that it cannot be opened, and tried again.
func (d *door) keep(ctx context.Context, log *slog.Logger, ready chan<- struct{}) {
	told := false
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := d.use(ctx, log)
		if err == nil {
			break
		}
		if !told {
			log.Warn("Cannot listen for the events of BMCs; they are only asked until then", "listen", d.push.Listen, "err", err)
			told = true
		}
		if !remote.Sleep(ctx, pause) {
			return
		}
	}
	close(ready)
	<-ctx.Done()
	d.unuse()
}

// use opens the door, unless another Watch has it open.
func (d *door) use(ctx context.Context, log *slog.Logger) error {
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
		Handler:   d,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: d.push.certificate, SessionTicketsDisabled: true},
		// The first two bound the handshake as well.
		ReadHeaderTimeout: doorTime, ReadTimeout: doorTime, WriteTimeout: doorTime, IdleTimeout: doorIdle, MaxHeaderBytes: 8 << 10,
		Protocols: only1, ErrorLog: discard,
	}
	d.users, d.closed, d.log = 1, make(chan struct{}), log
	server, closed := d.server, d.closed
	go func() { // its owner is unuse
		defer close(closed)
		_ = server.ServeTLS(&doorway{l, d}, "", "") // ends with Close
	}()
	return nil
}

var discard = log.New(io.Discard, "", 0)

// unuse closes the door when its last Watch ends, and waits.
func (d *door) unuse() {
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

// doorway lets only those in who come from a BMC's address, and few at a time.
type doorway struct {
	net.Listener
	door *door
}

func (w *doorway) Accept() (net.Conn, error) {
	for {
		c, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from := sender(c.RemoteAddr().String()); w.door.lets(from, time.Now()) {
			return &visit{Conn: c, end: sync.OnceFunc(func() { w.door.left(from) })}, nil
		}
		_ = c.Close()
	}
}

// lets tells whether a connection from there may stay.
func (d *door) lets(from netip.Addr, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	bmcs := 0
	for _, g := range d.guests {
		if slices.Contains(g.addrs, from) {
			bmcs++
		}
	}
	if bmcs == 0 {
		if d.strays++; now.Sub(d.said) >= time.Minute {
			d.log.Warn("Refused connections from an address that is no BMC's", "address", from.String(), "connections", d.strays)
			d.strays, d.said = 0, now
		}
		return false
	}
	if d.opened >= doorConns || d.open[from] >= bmcs*doorConnsEach {
		return false
	}
	d.opened++
	d.open[from]++
	return true
}

func (d *door) left(from netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened--
	if d.open[from]--; d.open[from] == 0 {
		delete(d.open, from)
	}
}

// visit is a connection that is counted until its end.
type visit struct {
	net.Conn
	end func()
}

func (v *visit) Close() error {
	v.end()
	return v.Conn.Close()
}

// sender is the address in a host:port.
func sender(hostport string) netip.Addr {
	at, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// ServeHTTP takes one event. An answer tells only that it was taken: a path that there is not, and another BMC's, are not told apart.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := sender(r.RemoteAddr)
	d.mu.Lock()
	g := d.guests[r.URL.Path]
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
	if g.l.taken.take(time.Now()) > 0 { // not read, and sent again by few
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNoContent)
		g.l.asker.Heard(g.l.all...)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if r.Header.Get("Content-Encoding") != "" {
		body = nil // nothing is unpacked
	}
	g.l.event(body)
}

// destination is an EventDestination, as far as it is looked at.
type destination struct {
	Destination, Context string
	Status               struct{ State string }
}

// subscribed has the BMC send its events to a guest's path until the BMC has forgotten that, or ctx ends; then the subscription is
// deleted. lasted is how long it was there, 0 if it was not.
func (l *listener) subscribed(ctx context.Context, b *bmc, g *guest) (lasted time.Duration, err error) {
	var path string
	if err := l.turn(ctx, func() (err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, 2*loginTime, errors.New("no subscription in time"))
		defer cancel()
		if err := l.resolve(ctx, g); err != nil {
			return err
		}
		path, err = l.subscribe(ctx, b, g)
		return err
	}); err != nil {
		return 0, err
	}
	began := time.Now()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		l.unsubscribe(ctx, b, path)
	}()
	l.begun()
	for {
		if !remote.Sleep(ctx, jittered(l.p.rhythm.quiet)) {
			return time.Since(began), ctx.Err()
		}
		there, err := l.look(ctx, b, g, path)
		switch {
		case err != nil: // a BMC that restarts
			l.log.Debug("Cannot look at a subscription", "err", providers.Cause(classify(ctx, err)))
		case !there:
			return max(time.Since(began), 1), errors.New("the BMC has forgotten the subscription")
		}
	}
}

// look tells whether the subscription is as it was made, and finds out again where the BMC sends from.
func (l *listener) look(ctx context.Context, b *bmc, g *guest, path string) (there bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	if err := l.resolve(ctx, g); err != nil {
		return false, err
	}
	var d destination
	switch _, _, err := b.get(ctx, path, &d); {
	case status(err) == http.StatusNotFound, status(err) == http.StatusGone:
		return false, nil
	case err != nil:
		return false, err
	}
	at, ours := l.door.ours(d)
	return ours && at == g.path && d.Status.State != "Disabled", nil
}

// resolve finds the addresses of the BMC, from which it sends.
func (l *listener) resolve(ctx context.Context, g *guest) error {
	u, err := url.Parse(l.origin)
	if err != nil {
		return providers.WithClass(providers.ErrPermanent, errors.New("the BMC's address is none"))
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap().WithZone("")
	}
	l.door.admit(g, addrs)
	return nil
}

// ours tells whether a subscription is of this provider, in this process or in one before it: it has our context, and leads to our
// door. path is the one that it leads to.
func (d *door) ours(s destination) (path string, ok bool) {
	u, err := url.Parse(s.Destination)
	if err != nil || s.Context != d.context {
		return "", false
	}
	host, err := remote.Host(u)
	return u.Path, err == nil && u.Scheme+"://"+host == d.origin
}

// live tells whether a Watch of this process has that path.
func (d *door) live(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guests[path] != nil
}

// maxSubscriptions is more than BMCs have: OpenBMC has 20.
const maxSubscriptions = 64

// subscribe makes a subscription and returns its path, after those were deleted that processes before this one left. No other is touched.
func (l *listener) subscribe(ctx context.Context, b *bmc, g *guest) (path string, _ error) {
	s, err := b.service(ctx)
	if err != nil {
		return "", err
	}
	at, ok := b.local(s.Subscriptions.ID)
	if !ok {
		return "", providers.WithClass(providers.ErrPermanent, errors.New("the event service links no subscriptions"))
	}
	var all struct{ Members links }
	if _, _, err := b.get(ctx, at, &all); err != nil {
		return "", err
	}
	for _, m := range all.Members[:min(len(all.Members), maxSubscriptions)] {
		var d destination
		member, ok := b.local(m)
		if !ok {
			continue
		}
		if _, _, err := b.get(ctx, member, &d); err != nil {
			continue // gone, or of a kind that cannot be read
		}
		if left, ours := l.door.ours(d); ours && (left == g.path || !l.door.live(left)) {
			l.unsubscribe(ctx, b, member)
		}
	}
	body := map[string]any{"Destination": l.door.origin + g.path, "Context": l.door.context, "Protocol": "Redfish"}
	r, err := b.change(ctx, request{method: http.MethodPost, path: at, body: s.asked(body, false)})
	if status(err) == http.StatusBadRequest {
		r, err = b.change(ctx, request{method: http.MethodPost, path: at, body: s.asked(body, true)})
	}
	if err != nil {
		return "", err
	}
	if path = made(at, r); path == "" {
		return "", providers.WithClass(providers.ErrPermanent, errors.New("the BMC does not say where the new subscription is"))
	}
	return path, nil
}

// asked adds what events are wanted. Services before version 1.3 know types of events, and later ones nearly all take both; some take
// one way only, so the other is tried where the first is refused.
func (s *service) asked(body map[string]any, other bool) map[string]any {
	old := len(s.RegistryPrefixes) == 0 && len(s.EventFormatTypes) == 0
	delete(body, "EventTypes")
	delete(body, "EventFormatType")
	delete(body, "SubscriptionType")
	if old != other {
		types := slices.DeleteFunc(slices.Clone(s.EventTypesForSubscription), func(t string) bool { return t == "MetricReport" })
		if len(types) == 0 {
			types = []string{"Alert", "StatusChange"}
		}
		body["EventTypes"] = types
		return body
	}
	body["EventFormatType"], body["SubscriptionType"] = "Event", "RedfishEvent"
	return body
}

// unsubscribe deletes a subscription. One that cannot be deleted is left to the next process, or to the BMC's own patience.
func (l *listener) unsubscribe(ctx context.Context, b *bmc, path string) {
	if _, err := b.change(ctx, request{method: http.MethodDelete, path: path}); err != nil && status(err) != http.StatusNotFound {
		l.log.Debug("Cannot delete a subscription", "err", providers.Cause(classify(ctx, err)))
	}
}
