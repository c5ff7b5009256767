package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// request is what a fault knows of a request of a judged process.
type request struct {
	Slot     *slot
	Method   string
	Resource string // pods, nodes, leases, ...
	Name     string
	Watch    bool
	Write    bool // of the protocol: anything but reads, Leases, Events and reviews
	N        int  // it is the N-th such write since the faults began, of all instances; from 1
}

// verdict is what becomes of a request. The zero value: nothing.
type verdict struct {
	Before func()        // called before it is sent on; the process may be dead then
	Hold   time.Duration // it is sent on only then, even if its sender ended
	Drop   bool          // it never arrives, and the connection dies
	Code   int           // answered so, without the API server; 429 with Retry-After 1
	Lose   bool          // it arrives; the connection dies instead of the answer
	Slow   time.Duration // the answer comes so much later
	After  func()        // called when the API server has answered, before that is passed on
}

// stream is what becomes of a watch.
type stream struct {
	Late     time.Duration // each event comes so much later
	Drop     float64       // the share of events that never come
	Coalesce time.Duration // of the events of one object within that time only the last comes
	EndEvery time.Duration // the watch ends after that
	End      string        // how: eof, reset, gone
}

// proxy is between one instance of the judged binary and an API server. It says by its User-Agent whose request each
// is, and by Audit-ID which. Safe for concurrent use.
type proxy struct {
	slot      *slot
	url       string
	server    *http.Server
	transport *http.Transport
	ctx       context.Context

	mu       sync.Mutex // guards the rest
	upstream *url.URL
	token    string
	conns    map[net.Conn]bool
	sent     map[string]judge.Sent // by Audit-ID
}

// startProxy serves with a certificate of the authority, and believes an API server with one of roots.
func startProxy(ctx context.Context, s *slot, authority *kit.Authority, roots *x509.CertPool,
	upstream string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	p := &proxy{slot: s, url: "https://" + l.Addr().String(), upstream: u, ctx: ctx, token: s.identity.BearerToken,
		conns: map[net.Conn]bool{},
		sent:  map[string]judge.Sent{}}
	identity := &tls.Config{RootCAs: roots}
	if s.identity.CertData != nil {
		pair, err := tls.X509KeyPair(s.identity.CertData, s.identity.KeyData)
		if err != nil {
			return nil, err
		}
		identity.Certificates = []tls.Certificate{pair}
	}
	p.transport = &http.Transport{TLSClientConfig: identity, ForceAttemptHTTP2: true,
		DisableCompression: true}
	p.server = &http.Server{
		Handler: p, TLSConfig: &tls.Config{Certificates: []tls.Certificate{authority.Server("127.0.0.1").TLS()}},
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, s http.ConnState) {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch s {
			case http.StateNew:
				p.conns[c] = true
			case http.StateClosed, http.StateHijacked:
				delete(p.conns, c)
			}
		},
	}
	go func() { _ = p.server.ServeTLS(l, "", "") }() // until Close
	return p, nil
}

// reset breaks all connections at once, by RST.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*tls.Conn); ok {
			if tcp, ok := t.NetConn().(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = t.NetConn().Close()
		}
	}
}

// lead sends what comes from now on to another API server.
func (p *proxy) lead(upstream string) error {
	u, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.upstream = u
	p.mu.Unlock()
	p.reset()
	return nil
}

// cut hands over what was sent since the last time.
func (p *proxy) cut() map[string]judge.Sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.sent
	p.sent = map[string]judge.Sent{}
	return out
}

// parsePath returns what an API path names; nothing for other paths.
func parsePath(path string) (resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return parts[0], append(parts, "")[1]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	life := p.slot.life()
	q := request{Slot: p.slot, Method: r.Method,
		Watch: r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"}
	q.Resource, q.Name = parsePath(r.URL.Path)
	body, err := io.ReadAll(r.Body)
	if err != nil { // the process died in the middle of it
		return
	}
	switch q.Resource {
	case "", "leases", "events", "selfsubjectaccessreviews", "subjectaccessreviews":
	default:
		q.Write = r.Method != http.MethodGet && r.Method != http.MethodHead
	}
	var v verdict
	var st stream
	if f := p.slot.w.faults.Load(); f != nil {
		if q.Watch && f.watch != nil {
			st = f.watch(q)
		}
		v = f.decide(q)
	}
	if v.Before != nil {
		v.Before()
	}
	if v.Drop {
		panic(http.ErrAbortHandler)
	}
	if v.Hold > 0 && !cluster.Sleep(p.ctx, v.Hold) {
		panic(http.ErrAbortHandler)
	}
	if v.Code != 0 {
		refuse(w, v.Code)
		return
	}

	p.mu.Lock()
	target, token := *p.upstream, p.token
	p.mu.Unlock()
	ctx := r.Context()
	if !q.Watch && r.Method != http.MethodGet {
		// A write that has come in reaches the API server even if its sender ends: so it is in a real cluster.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	(&httputil.ReverseProxy{
		Transport: p.transport, FlushInterval: -1, ErrorLog: p.server.ErrorLog,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&target)
			h := pr.Out.Header
			if h.Del("Authorization"); token != "" {
				h.Set("Authorization", "Bearer "+token)
			}
			h.Set("User-Agent", life)
			if st != (stream{}) {
				h.Set("Accept", strings.ReplaceAll(h.Get("Accept"), "application/vnd.kubernetes.protobuf",
					"application/json"))
			}
			if r.Method != http.MethodGet {
				id := rand.Text()
				h.Set("Audit-ID", id)
				p.mu.Lock()
				p.sent[id] = judge.Sent{At: at, Life: life}
				p.mu.Unlock()
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if v.After != nil {
				v.After()
			}
			switch {
			case v.Lose:
				_, _ = io.Copy(io.Discard, resp.Body)
				return errLost
			case v.Slow > 0 && !cluster.Sleep(r.Context(), v.Slow):
				return errLost
			case st != (stream{}) && resp.StatusCode == http.StatusOK:
				resp.Body, resp.ContentLength = p.perturb(r.Context(), resp.Body, st), -1
				resp.Header.Del("Content-Length")
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if v.After != nil && !errors.Is(err, errLost) { // there is no answer
				v.After()
			}
			panic(http.ErrAbortHandler)
		},
	}).ServeHTTP(w, r.WithContext(ctx))
}

var errLost = errors.New("the connection dies instead of the answer")

// perturb hands on a watch's events as the fault has it, and ends as it says.
func (p *proxy) perturb(ctx context.Context, from io.ReadCloser, st stream) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(p.copyEvents(ctx, w, from, st)) // always nil
		from.Close()
	}()
	return r
}

// copyEvents returns nil where the watch ends cleanly.
func (p *proxy) copyEvents(ctx context.Context, w io.Writer, from io.Reader, st stream) error {
	type frame struct {
		raw json.RawMessage
		at  time.Time
	}
	frames := make(chan frame, 10000)
	go func() {
		defer close(frames)
		d := json.NewDecoder(from)
		for {
			var raw json.RawMessage
			if d.Decode(&raw) != nil {
				return
			}
			select {
			case frames <- frame{raw, time.Now()}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var end <-chan time.Time
	if st.EndEvery > 0 {
		end = time.After(st.EndEvery)
	}
	write := func(raw json.RawMessage) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	}
	held := map[string]json.RawMessage{} // the last of each object
	var order []string
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			p.slot.w.hits.Add(1)
			switch st.End {
			case "gone":
				return write(json.RawMessage(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":` +
					`{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`))
			case "reset":
				return errLost
			}
			return nil
		case <-due:
			for _, key := range order {
				if err := write(held[key]); err != nil {
					return err
				}
			}
			clear(held)
			order, due = nil, nil
		case fr, ok := <-frames:
			if !ok {
				return nil
			}
			kind, key, initial := describe(fr.raw)
			faulty := !initial && p.slot.w.faults.Load() != nil
			switch {
			case faulty && st.Late > 0:
				p.slot.w.hits.Add(1)
				if !cluster.Sleep(ctx, time.Until(fr.at.Add(st.Late))) {
					return ctx.Err()
				}
			case faulty && kind != "BOOKMARK" && p.slot.w.chance(st.Drop):
				p.slot.w.hits.Add(1)
				continue
			case faulty && st.Coalesce > 0:
				if kind == "BOOKMARK" {
					continue // it would be newer than what is held
				}
				if held[key] == nil {
					order = append(order, key)
				} else {
					p.slot.w.hits.Add(1)
				}
				held[key] = merge(held[key], fr.raw)
				if due == nil {
					due = time.After(st.Coalesce)
				}
				continue
			}
			if err := write(fr.raw); err != nil {
				return err
			}
		}
	}
}

// describe tells an event's type and object, and whether it is the bookmark that ends a list.
func describe(raw json.RawMessage) (kind, key string, initial bool) {
	var e struct {
		Type   string
		Object struct {
			Metadata struct {
				Namespace, Name string
				Annotations     map[string]string
			}
		}
	}
	if json.Unmarshal(raw, &e) != nil {
		return "", "", true
	}
	return e.Type, e.Object.Metadata.Namespace + "/" + e.Object.Metadata.Name,
		e.Object.Metadata.Annotations["k8s.io/initial-events-end"] != ""
}

// merge is what a watcher would see that slept over the first: an object that was added and changed is added.
func merge(first, second json.RawMessage) json.RawMessage {
	const kind = `{"type":"%s",` // how an API server begins an event
	added, modified := fmt.Appendf(nil, kind, "ADDED"), fmt.Appendf(nil, kind, "MODIFIED")
	if rest, ok := bytes.CutPrefix(second, modified); ok && bytes.HasPrefix(first, added) {
		return slices.Concat(added, rest)
	}
	return second
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int) {
	reasons := map[int]string{409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"the referee says so","reason":%q,"code":%d}`, reasons[code], code)
}
