// Package page is the status page: it shows people over HTTP what the controller knows about the fleet. It only reads.
// What it shows comes from the informers' caches, and from a look at the leader's Lease and the pause every few
// seconds. For a request it asks the API server only for the user of a token, and whether that user may see the page
// (TokenReview, SubjectAccessReview). It runs in its own goroutines, and no fence waits for it. A failure is logged and
// retried.
//
// A user presents a token in the header Authorization or in the form. The form sets a cookie that only this process
// accepts. Package view makes the content of each page; this package renders it as HTML and escapes all texts.
package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"

	"github.com/forcefence/forcefence/cmd/internal/httpserver"
	"github.com/forcefence/forcefence/taint/view"
)

//go:embed assets
var assets embed.FS

// Options is what a page is made of. All but the certificate and the cluster's name are required.
type Options struct {
	Address           string // host:port
	CertFile, KeyFile string // "": plain HTTP, for loopback
	Fleet             func() (*view.Fleet, error)
	Review            Reviewer
	About             string // which process this is
	Cluster           string // its name; "": it has none
	Namespace         string // the controller's own, which has the ServiceAccount forcefence-status
	Log               *slog.Logger
	Now               func() time.Time
}

const (
	maxStreams     = 32
	maxEach        = 2 * maxStreams   // connections from one address, which may be a proxy's
	streamInterval = 2 * time.Second  // between two checks whether a followed page changed
	keepAlive      = 20 * time.Second // an unchanged stream sends a sign of life
	writeTimeout   = 5 * time.Second  // of one write to a reader
	listenRetry    = 10 * time.Second // after the address could not be listened at
	cookieName     = "forcefence-status"
)

// Serve serves the page until ctx ends. If it cannot listen at the address it tries again, and logs the error once.
func Serve(ctx context.Context, o Options) error {
	logged := ""
	for {
		err := serveOnce(ctx, o)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			o.Log.Error("The status page is not served; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listenRetry):
		}
	}
}

func serveOnce(ctx context.Context, o Options) error {
	ln, err := httpserver.Listen(o.Address, maxEach)
	if err != nil {
		return fmt.Errorf("serving status page (listen.status): %w", err)
	}
	defer ln.Close()
	s := newServer(o)
	srv := httpserver.New(s.newHandler(), o.Log)
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	if o.CertFile != "" {
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.cert.getPair}
		ln = tls.NewListener(ln, withHTTP2(srv.TLSConfig))
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(wait) != nil {
			_ = srv.Close()
		}
	})
	o.Log.Info("Serving the status page", "address", ln.Addr().String(), "tls", o.CertFile != "")
	err = srv.Serve(ln)
	if !end() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving status page: %w", err)
}

func withHTTP2(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"h2", "http/1.1"}
	return c
}

// certificate reads the certificate from its files, at most every 10 s, because they are rewritten on renewal. While
// the files hold none, for example during a renewal, it keeps the previous one and logs why.
type certificate struct {
	cert, key string
	now       func() time.Time
	log       *slog.Logger

	mu        sync.Mutex // guards the rest
	held      *tls.Certificate
	at        time.Time
	loggedErr string
}

func (c *certificate) getPair(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.held == nil || now.Sub(c.at) >= 10*time.Second {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		switch {
		case err == nil:
			c.held, c.loggedErr = &pair, ""
		case c.held == nil:
			return nil, fmt.Errorf("reading certificate: %w", err)
		case err.Error() != c.loggedErr:
			c.loggedErr = err.Error()
			c.log.Error("Could not read a new certificate; the status page keeps its certificate", "error", err)
		}
		c.at = now
	}
	return c.held, nil
}

// coversHost reports whether the certificate is valid for the host.
func (c *certificate) coversHost(host string) bool {
	held, err := c.getPair(nil)
	if err != nil {
		return false
	}
	leaf := held.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(held.Certificate[0]); err != nil {
			return false
		}
	}
	return leaf.VerifyHostname(host) == nil
}

type server struct {
	Options
	gate    *gate
	cert    *certificate
	streams chan struct{}
}

func newServer(o Options) *server {
	o.Cluster = view.OneLine(o.Cluster, maxName)
	return &server{
		Options: o,
		gate:    newGate(o.Review, o.Now),
		cert:    &certificate{cert: o.CertFile, key: o.KeyFile, now: o.Now, log: o.Log},
		streams: make(chan struct{}, maxStreams),
	}
}

// newHandler returns the handler of all pages. It refuses a request from another site, or for another host, before it
// reads anything else of it.
func (s *server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("POST /login", s.handleLogin)
	mux.HandleFunc("POST /logout", s.handleLogout)
	mux.Handle("GET /{$}", s.pageHandler("Fleet", "/", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		q := r.URL.Query()
		return "Fleet", fleetPage(f, view.NodeQuery{
			Text:       q.Get("name"),
			State:      view.State(q.Get("state")),
			Answer:     view.DrillAnswer(q.Get("fenceable")),
			Protection: q.Get("hook"),
			Provider:   q.Get("provider"),
		}, pageNumber(q.Get("page")))
	}))
	mux.Handle("GET /fences", s.pageHandler("Fences", "/fences", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		return "Fences", fencesPage(f, pageNumber(r.URL.Query().Get("page")))
	}))
	mux.Handle("GET /devices", s.pageHandler(
		"Devices", "/devices",
		func(f *view.Fleet, _ *http.Request) (string, g.Node) { return "Devices", devicesPage(f) },
	))
	mux.Handle("GET /hook", s.pageHandler(
		"Hook", "/hook", func(f *view.Fleet, _ *http.Request) (string, g.Node) { return "Hook", hookPage(f) },
	))
	mux.Handle("GET /nodes/{name}", s.pageHandler("Node", "", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		n, ok := f.Node(r.PathValue("name"))
		if !ok {
			return "", nil
		}
		return "Node " + n.Name, nodePage(f, n)
	}))
	mux.Handle("GET /fences/{name}", s.pageHandler("Fence", "", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		v, ok := f.Fence(r.PathValue("name"))
		if !ok {
			return "", nil
		}
		return "Fence " + v.Name, renderFence(f, v, false)
	}))
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !s.isOwnHost(r.Host) {
			http.Error(w, "The request names another host. Use localhost, or a name in the certificate.",
				http.StatusMisdirectedRequest)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// headers are set on each answer: only our own script runs, no site may frame the page, and no cache may store it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Frame-Options":              "DENY",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "browsing-topics=()",
}

// isOwnHost reports whether a request names this server. Another site may point its own name here, and browsers would
// treat the pages as that site's; such a request is refused.
func (s *server) isOwnHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if s.CertFile != "" {
		return s.cert.coversHost(name)
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// pageNumber parses the number of a page.
func pageNumber(text string) int {
	n, _ := strconv.Atoi(text) // not a number: the first page
	return min(max(n, 1), 1_000_000)
}

// identifyUser returns the user of a request. If ok is false the user may not see the page, and the request is
// answered.
func (s *server) identifyUser(w http.ResponseWriter, r *http.Request) (who string, ok bool) {
	var err error
	if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		who, err = s.gate.reviewBearer(r.Context(), sourceOf(r), token)
	} else if c, none := r.Cookie(cookieName); none == nil {
		who, err = s.gate.reviewCookie(r.Context(), c.Value)
		if errors.Is(err, errUnknownToken) {
			s.askForToken(w, r, http.StatusUnauthorized, "Your login has expired: log in again.")
			return "", false
		}
	} else {
		s.askForToken(w, r, http.StatusUnauthorized, "")
		return "", false
	}
	if err != nil {
		s.refuseUser(w, r, who, err)
	}
	return who, err == nil
}

// sourceOf returns the address that a request comes from: a proxy's, if one is between.
func sourceOf(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap().WithZone("")
}

// refuseUser answers why the user may not see the page.
func (s *server) refuseUser(w http.ResponseWriter, r *http.Request, who string, err error) {
	switch {
	case errors.Is(err, errUnknownToken):
		s.askForToken(w, r, http.StatusUnauthorized, "The API server does not know this token, or it has expired.")
	case errors.Is(err, errNoRight):
		s.askForToken(
			w, r, http.StatusForbidden,
			view.OneLine(who, 200)+" may not see this page. The user needs the right to get the nonResourceURL "+
				accessPath+
				", which the ClusterRole forcefence-status grants.",
		)
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "2")
		s.askForToken(w, r, http.StatusTooManyRequests,
			"Too many unknown tokens at the same time. Try again in a moment.")
	default:
		s.Log.Warn("Could not review the token of a user of the status page", "error", err)
		s.askForToken(w, r, http.StatusServiceUnavailable,
			"The API server does not say whose this token is. Try again in a moment.")
	}
}

// askForToken answers with the login form.
func (s *server) askForToken(w http.ResponseWriter, r *http.Request, code int, problem string) {
	next := "/"
	if r.Method == http.MethodGet {
		next = r.URL.RequestURI()
	} else if posted := r.PostFormValue("next"); isLocalPath(posted) {
		next = posted
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="forcefence"`)
	}
	s.writePage(w, code, frame{title: "Log in", about: s.About, cluster: s.Cluster},
		loginPage(s.Namespace, next, problem))
}

// isLocalPath reports whether an address leads to one of our pages.
func isLocalPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n\t")
}

func (s *server) writePage(w http.ResponseWriter, code int, f frame, main g.Node) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = f.wrapMain(main).Render(w) // the reader went away
}

func (s *server) handleLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4*maxTokenBytes)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	shown, who, err := s.gate.openLogin(r.Context(), sourceOf(r), strings.TrimSpace(r.PostFormValue("token")))
	if err != nil {
		s.refuseUser(w, r, who, err)
		return
	}
	http.SetCookie(w, s.newCookie(shown, int(maxLoginTime/time.Second)))
	next := r.PostFormValue("next")
	if !isLocalPath(next) {
		next = "/"
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *server) newCookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name:     cookieName,
		Value:    value,
		Path:     "/",
		MaxAge:   seconds,
		HttpOnly: true,
		Secure:   s.CertFile != "",
		SameSite: http.SameSiteStrictMode,
	}
}

func (s *server) handleLogout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.gate.endLogin(c.Value)
	}
	http.SetCookie(w, s.newCookie("", -1))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// pageFunc returns the title and the content of a page; nil content means that the object does not exist.
type pageFunc func(f *view.Fleet, r *http.Request) (title string, main g.Node)

// pageHandler serves a page to users who may see it. It serves it once, or as a stream if the browser asks for one.
func (s *server) pageHandler(name, path string, v pageFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := s.identifyUser(w, r)
		if !ok {
			return
		}
		if r.Header.Get("Accept") == "text/event-stream" {
			s.streamPage(w, r, v)
			return
		}
		around := frame{title: name, path: path, who: view.OneLine(who, 120), about: s.About,
			cluster: s.Cluster}
		f, err := s.Fleet()
		if err != nil {
			s.writePage(w, http.StatusServiceUnavailable, around,
				plainPage("This process has not read the cluster yet. Try again in a moment."))
			return
		}
		title, main := v(f, r)
		if main == nil {
			s.writePage(w, http.StatusNotFound, around, plainPage("There is no such "+strings.ToLower(name)+"."))
			return
		}
		around.title, around.live = title, true
		s.writePage(w, http.StatusOK, around, g.Group{renderBanners(f), main})
	})
}

// streamPage sends the content of a page each time it has changed, as long as the reader may see it. It drops a reader
// that is too slow.
func (s *server) streamPage(w http.ResponseWriter, r *http.Request, v pageFunc) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "Too many pages are followed at the same time.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // HTTP/2 has none
	send := func(text string) bool {
		if out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return false
		}
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 5000\n\n") {
		return
	}
	tick := time.NewTicker(streamInterval)
	defer tick.Stop()
	before, spoke := "", s.Now()
	for {
		if f, err := s.Fleet(); err == nil {
			_, main := v(f, r)
			if main == nil {
				return
			}
			var b strings.Builder
			_ = g.Group{renderBanners(f), main}.Render(&b) // into memory
			switch now := b.String(); {
			case now != before:
				before, spoke = now, s.Now()
				if !send("data: " + dataLines.Replace(now) + "\n\n") {
					return
				}
			case s.Now().Sub(spoke) >= keepAlive:
				spoke = s.Now()
				if !send(": still here\n\n") {
					return
				}
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		if !s.mayStillSee(r) {
			return
		}
	}
}

// mayStillSee reports whether the user of the request may see the page now, too.
func (s *server) mayStillSee(r *http.Request) bool {
	err := errUnknownToken
	if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		_, err = s.gate.reviewBearer(r.Context(), sourceOf(r), token)
	} else if c, none := r.Cookie(cookieName); none == nil {
		_, err = s.gate.reviewCookie(r.Context(), c.Value)
	}
	return err == nil
}

// dataLines keeps a text within its field of a stream.
var dataLines = strings.NewReplacer("\r\n", "\ndata: ", "\n", "\ndata: ", "\r", "\ndata: ")
