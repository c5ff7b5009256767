// Package page is the status page: what the controller knows of the fleet, for people, over HTTP. It only reads: what it shows comes out of the
// informers' caches, and all that it asks of the API server is whose a token is and whether they may look (TokenReview, SubjectAccessReview).
// It runs in goroutines of its own; no fence waits for it, and one that fails is told in the log and tried again.
//
// Who sees a page has shown a token: in the header Authorization, or in the form, which gives a cookie that means something to this process
// alone. What each page says is made by package status; here it becomes HTML, whose texts are all escaped.
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

// Options is what a page is made of. All but the certificate are required.
type Options struct {
	Address           string // host:port
	CertFile, KeyFile string // "": plain HTTP, for loopback
	Fleet             func() (*view.Fleet, error)
	Review            Reviewer
	About             string // which process this is
	Log               *slog.Logger
	Now               func() time.Time
}

const (
	maxStreams     = 32
	maxEach        = 2 * maxStreams   // connections from one address, which may be a proxy's
	streamInterval = 2 * time.Second  // a stream looks whether its page changed
	keepAlive      = 20 * time.Second // a stream that had nothing to say says that it is there
	writeTimeout   = 5 * time.Second  // with a reader
	listenRetry    = 10 * time.Second // after the address could not be listened at
	cookieName     = "forcefence-status"
)

// Serve serves the page until ctx ends. An address that cannot be listened at is tried again, and told in the log once.
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

// certificate is that of the files, read at most once in a while: whoever renews it writes them anew. While they hold none, as in the middle of that,
// the one before is held, and the log says why.
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
			c.log.Error("The status page keeps its certificate: there is no other in its files", "error", err)
		}
		c.at = now
	}
	return c.held, nil
}

// coversHost reports that the certificate is that of the host.
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
	return &server{Options: o, gate: newGate(o.Review, o.Now), cert: &certificate{cert: o.CertFile, key: o.KeyFile, now: o.Now, log: o.Log}, streams: make(chan struct{}, maxStreams)}
}

// newHandler is the whole of it. A request of another site's, or that names a host which this is not, ends before anything is looked at.
func (s *server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("POST /login", s.handleLogin)
	mux.HandleFunc("POST /logout", s.handleLogout)
	mux.Handle("GET /{$}", s.pageHandler("Fleet", "/", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		q := r.URL.Query()
		return "Fleet", fleetPage(f, view.NodeQuery{
			Text: q.Get("name"), State: view.State(q.Get("state")), Answer: view.DrillAnswer(q.Get("fenceable")), Protection: q.Get("hook"), Provider: q.Get("provider"),
		}, pageNumber(q.Get("page")))
	}))
	mux.Handle("GET /fences", s.pageHandler("Fences", "/fences", func(f *view.Fleet, r *http.Request) (string, g.Node) {
		return "Fences", fencesPage(f, pageNumber(r.URL.Query().Get("page")))
	}))
	mux.Handle("GET /devices", s.pageHandler("Devices", "/devices", func(f *view.Fleet, _ *http.Request) (string, g.Node) { return "Devices", devicesPage(f) }))
	mux.Handle("GET /hook", s.pageHandler("Hook", "/hook", func(f *view.Fleet, _ *http.Request) (string, g.Node) { return "Hook", hookPage(f) }))
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
		return "Fence " + v.Name, renderFence(f, v)
	}))
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !s.isOwnHost(r.Host) {
			http.Error(w, "This is not the host that the request names. Use localhost, or a name of the certificate's.", http.StatusMisdirectedRequest)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// headers are on each answer: nothing runs but our own script, nobody frames the page, and nobody keeps a copy.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Permissions-Policy": "browsing-topics=()",
}

// isOwnHost reports that a request means this server. A site that has its own name lead here is refused: browsers take its pages for its own.
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

// pageNumber is a page's.
func pageNumber(text string) int {
	n, _ := strconv.Atoi(text) // what is none is the first
	return min(max(n, 1), 1_000_000)
}

// identifyUser says who asks, or answers that nobody may: then ok is false.
func (s *server) identifyUser(w http.ResponseWriter, r *http.Request) (who string, ok bool) {
	var err error
	if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		who, err = s.gate.reviewBearer(r.Context(), token)
	} else if c, none := r.Cookie(cookieName); none == nil {
		who, err = s.gate.reviewCookie(r.Context(), c.Value)
		if errors.Is(err, errUnknownToken) {
			s.askForToken(w, r, http.StatusUnauthorized, "Your login is over: log in again.")
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

// refuseUser says why nobody may see the page.
func (s *server) refuseUser(w http.ResponseWriter, r *http.Request, who string, err error) {
	switch {
	case errors.Is(err, errUnknownToken):
		s.askForToken(w, r, http.StatusUnauthorized, "The API server does not know this token, or it has expired.")
	case errors.Is(err, errNoRight):
		s.askForToken(w, r, http.StatusForbidden, view.OneLine(who, 200)+" may not see this page: it takes the right to get the nonResourceURL "+accessPath+", which the ClusterRole forcefence-status has.")
	case errors.Is(err, errTooMany):
		w.Header().Set("Retry-After", "2")
		s.askForToken(w, r, http.StatusTooManyRequests, "Too many unknown tokens at the same time. Try again in a moment.")
	default:
		s.Log.Warn("Cannot review who asks for the status page", "error", err)
		s.askForToken(w, r, http.StatusServiceUnavailable, "The API server does not say whose this token is. Try again in a moment.")
	}
}

// askForToken answers with the form.
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
	s.writePage(w, code, frame{title: "Log in", about: s.About}, loginPage(next, problem))
}

// isLocalPath reports that an address leads to a page of ours.
func isLocalPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n\t")
}

func (s *server) writePage(w http.ResponseWriter, code int, f frame, main g.Node) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = f.wrapMain(main).Render(w) // a reader that went away
}

func (s *server) handleLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4*maxTokenBytes)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	shown, who, err := s.gate.openLogin(r.Context(), strings.TrimSpace(r.PostFormValue("token")))
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
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: s.CertFile != "", SameSite: http.SameSiteStrictMode}
}

func (s *server) handleLogout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.gate.endLogin(c.Value)
	}
	http.SetCookie(w, s.newCookie("", -1))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// pageFunc makes the title and the content of a page; a nil content: there is no such thing.
type pageFunc func(f *view.Fleet, r *http.Request) (title string, main g.Node)

// pageHandler serves a page to those who may see it, as it is or, where a browser asks for that, as it changes.
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
		around := frame{title: name, path: path, who: view.OneLine(who, 120), about: s.About}
		f, err := s.Fleet()
		if err != nil {
			s.writePage(w, http.StatusServiceUnavailable, around, plainPage("This process has not read the cluster yet. Try again in a moment."))
			return
		}
		title, main := v(f, r)
		if main == nil {
			s.writePage(w, http.StatusNotFound, around, plainPage("There is no such "+strings.ToLower(name)+"."))
			return
		}
		around.title, around.live = title, true
		s.writePage(w, http.StatusOK, around, main)
	})
}

// streamPage sends the content of a page each time it has changed, for as long as the reader may see it. A reader that takes too long is left.
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
			_ = main.Render(&b) // into memory
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

// mayStillSee reports that who asked may see the page now, too.
func (s *server) mayStillSee(r *http.Request) bool {
	err := errUnknownToken
	if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		_, err = s.gate.reviewBearer(r.Context(), token)
	} else if c, none := r.Cookie(cookieName); none == nil {
		_, err = s.gate.reviewCookie(r.Context(), c.Value)
	}
	return err == nil
}

// dataLines keep a text within its field of a stream.
var dataLines = strings.NewReplacer("\r\n", "\ndata: ", "\n", "\ndata: ", "\r", "\ndata: ")
