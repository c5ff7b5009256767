package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// idleAfter is how long a BMC may be unused before its session is deleted: BMCs have few slots
	// (stmcginnis/gofish#75). It is longer than the time between two probes, so that not every probe logs in.
	idleAfter = 11 * time.Minute
	// forgetAfter is how long the places of a BMC's systems, and what it refused, are remembered after that.
	forgetAfter = 4 * time.Hour
	// loginTime is the timeout of the service root and of the session's POST, each. A POST that is cut off may leave
	// its session in the BMC.
	loginTime = 20 * time.Second
	// scanTime is the timeout of a scan of all systems of a BMC.
	scanTime = 30 * time.Second
	// leftSessionFor is how long no credential is sent after a log-in that may have left a session in the BMC.
	leftSessionFor = time.Minute
	// basicFor is how long a BMC that gave no session is not asked for another.
	basicFor = time.Hour
)

// bmc is one BMC.
type bmc struct {
	remote.Account // its Device is the BMC's origin

	p    *Provider
	http *http.Client
	gate chan struct{} // a slot for each request under way

	// Guarded by p.pool.
	login        *login
	pendingLogin *remote.Task[*login]
	pendingScan  *remote.Task[*scan]
	scanned      *scan  // the last one, which only shows where to look
	sessions     string // the path of the collection of sessions, "" if not known
	systems      string // and of systems
	places       map[string]systemPlace
	chassis      map[string][]string  // by the path of a system that was last seen Off: the chassis it links
	pushed       map[string]time.Time // by the path of a system: when its power button was
	ifMatch      bool                 // resets need an ETag
	basic        time.Time            // until when no session is asked for
	noSessionErr error                // why, where sessions exist and none was to be had; nil: basic is the only way
	noBasic      refusedCredential    // the credential that was then refused as basic: it may be right
}

// login is one way to authenticate.
type login struct {
	token        string // of a session; "": basic
	session      string // path to delete at the end; "": basic, or unknown
	user         string
	password     providers.Secret // of basic
	made         remote.LogIn
	noSessionErr error // of basic: bmc.noSessionErr when it was made
	leftSession  bool  // an attempt may have left a session in the BMC that cannot be deleted
	proven       bool  // an authenticated request went through; guarded by the pool
}

// refusedCredential is a credential that is not sent as basic authentication until a given time.
type refusedCredential struct {
	sum   remote.CredentialHash
	until time.Time
}

func (l *login) authorizeRequest(r *http.Request) {
	if l.token != "" {
		r.Header.Set("X-Auth-Token", l.token)
	} else {
		r.SetBasicAuth(l.user, l.password.Reveal())
	}
}

// setTransport sets the transport of all requests. Requests that act ask first whether they may still be sent.
func (p *Provider) setTransport(next http.RoundTripper) {
	next = remote.Permitted{Next: next}
	p.plain, p.sent = next, remote.Limited{Next: next, Bytes: maxAnswer, Values: maxValues}
	p.retried = retryTransport(p.sent)
}

func (p *Provider) newBMC(a remote.Account) *bmc {
	return &bmc{
		Account: a, p: p, http: httpClient(a.Device, p.retried, p.sent), gate: make(chan struct{}, maxRequests),
		places: map[string]systemPlace{}, chassis: map[string][]string{},
	}
}

// expireBMC ends an idle BMC's session. The caller holds the pool's lock.
func (p *Provider) expireBMC(b *bmc) time.Duration {
	b.endLogin(b.login)
	b.login, b.scanned = nil, nil
	return forgetAfter
}

// Close waits for running log-ins, ends all sessions and closes the connections. It blocks until ctx's deadline at
// most. The error names the BMCs that did not answer; their sessions expire.
func (p *Provider) Close(ctx context.Context) error {
	turns := make(chan struct{}, 32)
	defer p.transport.CloseIdleConnections()
	return p.pool.Close(ctx, func(b *bmc) error {
		p.pool.Work.Wait()
		turns <- struct{}{}
		defer func() { <-turns }()
		p.pool.Lock()
		l := b.login
		p.pool.Unlock()
		return classifyError(ctx, b.endSession(ctx, l))
	})
}

// endSession ends the session, if there is one. A session that the BMC does not know has ended.
func (b *bmc) endSession(ctx context.Context, l *login) error {
	if l == nil || l.session == "" {
		return nil
	}
	_, err := b.sendRequest(ctx, request{method: http.MethodDelete, path: l.session, login: l})
	switch httpStatus(err) {
	case http.StatusNotFound, http.StatusUnauthorized:
		return nil
	}
	return err
}

// getResource reads a resource; asked is the time just before the GET that carried the answer.
func (b *bmc) getResource(ctx context.Context, path string, into any) (r *reply, asked time.Time, err error) {
	err = b.withLogin(ctx, func(l *login) (err error) {
		asked = b.p.opts.Now()
		// which a BMC shows to anybody
		if r, err = b.fetchJSON(ctx, path, l, into); err == nil && path != schemas.DefaultServiceRoot {
			b.markProven(l)
		}
		return err
	})
	return r, asked, err
}

// withLogin runs f with a login. It replaces an expired session once, and a session whose token never worked by basic
// authentication, if the configuration allows that. Then f runs again.
func (b *bmc) withLogin(ctx context.Context, f func(*login) error) error {
	var err error
	for range 3 { // an expired session, one that never works, basic
		var l *login
		if l, err = b.loggedIn(ctx); err != nil {
			return err
		}
		if err = f(l); httpStatus(err) != http.StatusUnauthorized {
			return err
		}
		var again bool
		if again, err = b.handleUnauthorized(l, err); !again {
			return err
		}
	}
	return err
}

// sendChange sends one request once. It follows a getResource of the same call, so the login works.
func (b *bmc) sendChange(ctx context.Context, q request) (*reply, error) {
	l, err := b.loggedIn(ctx)
	if err != nil {
		return nil, err
	}
	q.login = l
	r, err := b.sendRequest(ctx, q)
	if httpStatus(err) == http.StatusUnauthorized {
		_, err = b.handleUnauthorized(l, err)
	}
	return r, err
}

// loggedIn returns the login, and creates one if there is none. All callers wait for the same log-in, each until its
// own ctx ends. A failed log-in may have started before its cause was repaired, so a caller who only joined it tries
// again. A drill replaces a login that is old or of another credential (remote.LogIn.MustRenew). Unless the BMC refuses
// the credential, a login that cannot be replaced serves on: a BMC may have no slot left.
func (b *bmc) loggedIn(ctx context.Context) (l *login, err error) {
	var sum remote.CredentialHash
	if providers.IsDrill(ctx) {
		user, password, err := b.p.cfg.ReadCredentials(b.Owner)
		if err != nil {
			return nil, err
		}
		sum = b.p.refusals.HashCredential(user, password)
	}
	var old *login
	for range 2 {
		b.p.pool.Lock()
		if old = b.login; old != nil && !old.made.MustRenew(ctx, sum, b.p.opts.Now()) {
			defer b.p.pool.Unlock()
			return old, nil
		}
		joined := !b.pendingLogin.HasEnded()
		if !joined {
			b.pendingLogin = remote.BeginTask(b.p.pool.Ending, b.p.pool, b.Account, "log-in", 2*loginTime,
				func(ctx context.Context) (*login, error) {
					l, err := b.p.openLogin(ctx, b)
					b.p.pool.Lock()
					defer b.p.pool.Unlock()
					b.pendingLogin = nil // which holds the login, and so the password
					if err == nil {
						b.endLogin(b.login)
						b.login = l
					}
					return l, classifyError(ctx, err)
				})
		}
		t := b.pendingLogin
		b.p.pool.Unlock()
		if l, err = t.Wait(ctx); err == nil || !joined || ctx.Err() != nil {
			break
		}
	}
	if err == nil || errors.Is(err, providers.ErrDenied) || ctx.Err() != nil {
		return l, err
	}
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	if old != nil && b.login == old {
		return old, nil
	}
	return nil, err
}

// endLogin ends the session of a login that is not used any more. The caller holds the pool's lock.
func (b *bmc) endLogin(l *login) {
	if l == nil || l.session == "" {
		return
	}
	b.p.pool.Work.Go(func() {
		ctx, cancel := context.WithTimeout(b.p.pool.Ending, loginTime)
		defer cancel()
		_ = b.endSession(ctx, l) // the BMC ends the session by itself some time
	})
}

// markProven records that a login works.
func (b *bmc) markProven(l *login) {
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	l.proven = true
}

// handleUnauthorized drops a login that was answered with 401, and reports whether another attempt makes sense. After
// basic authentication, or a session whose token never worked, the credential is recorded as refused. But if no session
// was available, a BMC may refuse basic altogether: then the credential is not sent that way again, and sessions are
// tried.
func (b *bmc) handleUnauthorized(l *login, cause error) (again bool, _ error) {
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	if b.login == l {
		b.login = nil
	}
	switch {
	case l.token != "" && l.proven:
		return true, cause
	case l.token != "" && b.p.cfg.Auth == authAuto:
		b.basic, b.noSessionErr = b.p.opts.Now().Add(basicFor), nil
		return true, cause
	}
	b.basic = time.Time{} // it is no way in: sessions are tried again first
	if l.token == "" && l.noSessionErr != nil && !l.proven {
		b.noBasic = refusedCredential{l.made.Sum, b.p.opts.Now().Add(remote.RefusedFor)}
		return false, noLoginError(l.noSessionErr)
	}
	return false, b.rememberRefused(l, cause)
}

// noLoginError returns the error of a BMC that gives no session and refuses basic authentication, whatever the
// password.
func noLoginError(noSession error) error {
	return providers.WithClass(providers.ErrUnreachable,
		fmt.Errorf("the BMC refuses basic authentication, and gives no session: %s",
			providers.ErrorText(classifyError(context.Background(), noSession))))
}

// rememberRefused records that the BMC refused a login's credential. It returns the error of this and of later calls.
func (b *bmc) rememberRefused(l *login, cause error) error {
	return b.p.refusals.RememberDenied(b.String(), b.p.cfg.PasswordPlace(), l.made.Sum, b.p.opts.Now(),
		classifyError(context.Background(), cause))
}

// localPath returns the path of a link from a BMC, which is a path or starts with the BMC's own origin. ok is false for
// any other link, and for one that is too long to keep.
func (b *bmc) localPath(link string) (path string, ok bool) {
	if path = strings.TrimPrefix(link, b.Device); !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
		len(path) > maxPath {
		return "", false
	}
	return path, true
}

// link is a reference to another resource.
type link struct {
	ID string `json:"@odata.id"`
}

// readRoot reads the service root, once for all that is read from it.
func (b *bmc) readRoot(get func(path string, into any) error) (sessions, systems string, err error) {
	var doc struct {
		Systems link
		Links   struct{ Sessions link }
	}
	if err := get(schemas.DefaultServiceRoot, &doc); err != nil {
		return "", "", err
	}
	sessions, _ = b.localPath(doc.Links.Sessions.ID)
	systems, _ = b.localPath(doc.Systems.ID)
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	b.sessions, b.systems = sessions, systems
	return sessions, systems, nil
}

// openLogin logs in: by a session, or by basic authentication if the configuration requires it or, with auth auto, if
// the BMC cannot give a session. It reads the password again each time, and sends no credential that the BMC refused.
func (p *Provider) openLogin(ctx context.Context, b *bmc) (*login, error) {
	user, password, err := p.cfg.ReadCredentials(b.Owner)
	if err != nil {
		return nil, err
	}
	l := &login{user: user, password: password, made: remote.LogIn{
		Sum: p.refusals.HashCredential(user, password), At: p.opts.Now(),
	}}
	if err := p.refusals.CheckRefused(b.String(), l.made.Sum, p.opts.Now()); err != nil {
		return nil, err
	}
	p.pool.Lock()
	basic := p.cfg.Auth == authBasic || p.cfg.Auth == authAuto && p.opts.Now().Before(b.basic)
	noBasic := b.noBasic.sum == l.made.Sum && p.opts.Now().Before(b.noBasic.until)
	l.noSessionErr = b.noSessionErr
	p.pool.Unlock()
	if basic {
		return l, nil
	}
	mayUseBasic, err := b.openSession(ctx, l, p.cfg.Auth == authSession)
	if isFull(httpStatus(err)) && b.releaseSlot(ctx, l.made) {
		mayUseBasic, err = b.openSession(ctx, l, p.cfg.Auth == authSession)
	}
	switch {
	case err == nil:
		l.password = providers.Secret{}
		return l, nil
	case badCredential(err):
		return nil, b.rememberRefused(l, err)
	case p.cfg.Auth == authSession || !mayUseBasic || noBasic || p.pool.Ending.Err() != nil || b.hasSession():
		if noBasic {
			err = noLoginError(err)
		}
		if l.leftSession {
			p.refusals.HoldCredential(b.String(), l.made.Sum, p.opts.Now().Add(leftSessionFor), err)
		}
		return nil, err
	}
	p.opts.Log.Info("BMC gives no session, using basic authentication", "provider", p.opts.Name, "bmc", b.Device,
		"reason", providers.ErrorText(classifyError(ctx, err)))
	p.pool.Lock()
	defer p.pool.Unlock()
	b.basic, b.noSessionErr = p.opts.Now().Add(basicFor), nil
	if l.leftSession || hasNoSlot(httpStatus(err)) {
		b.noSessionErr = err
	}
	l.token, l.session, l.noSessionErr = "", "", b.noSessionErr
	return l, nil
}

// releaseSlot ends the session of another credential that is about to be replaced, since it may have the BMC's last
// slot. It reports whether there was one. A session of the same credential stays, because another client may take its
// slot at once, and then a fence would have none. The next drill that tries to replace it is an hour later.
func (b *bmc) releaseSlot(ctx context.Context, next remote.LogIn) bool {
	b.p.pool.Lock()
	old := b.login
	switch {
	case old == nil || old.session == "":
		old = nil
	case old.made.Sum == next.Sum:
		old.made.At = next.At
		old = nil
	default:
		b.login = nil
	}
	b.p.pool.Unlock()
	return old != nil && b.endSession(ctx, old) == nil
}

// hasSession reports whether there is a session, which is a better way in than an untried basic authentication.
func (b *bmc) hasSession() bool {
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	return b.login != nil && b.login.token != ""
}

// isFull reports whether a status means that all of a BMC's sessions are in use, where no fault would answer so.
func isFull(code int) bool {
	return code == http.StatusConflict || code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
}

// hasNoSlot reports whether a status means that sessions exist, but none is available now. 400 and 403 may also be the
// answer to a wrong password.
func hasNoSlot(code int) bool {
	return code == http.StatusConflict || code == http.StatusTooManyRequests ||
		code >= 500 && code != http.StatusNotImplemented
}

// openSession creates a session for l. After an error mayUseBasic reports whether the BMC may accept basic
// authentication.
func (b *bmc) openSession(ctx context.Context, l *login, insist bool) (mayUseBasic bool, _ error) {
	b.p.pool.Lock()
	sessions := b.sessions
	b.p.pool.Unlock()
	if sessions == "" {
		// Unlike the POST below this leaves nothing behind, so Close does not wait for it.
		ctx, cancel := context.WithTimeoutCause(b.p.pool.Running, loginTime,
			fmt.Errorf("no answer to the service root within %s", loginTime))
		defer cancel()
		found, _, err := b.readRoot(func(path string, into any) error {
			_, err := b.fetchJSON(ctx, path, nil, into)
			return err
		})
		code := httpStatus(err)
		closed := code == http.StatusUnauthorized || code == http.StatusForbidden
		switch {
		case closed && insist:
			found = "/redfish/v1/SessionService/Sessions" // where nearly all have it
		case closed:
			return true, providers.WithClass(providers.ErrPermanent, errors.New("the service root needs a log-in"))
		case err != nil:
			return false, classifyError(ctx, err)
		case found == "":
			return true, providers.WithClass(providers.ErrPermanent,
				errors.New("the service root links no collection of sessions (see auth)"))
		}
		sessions = found
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("no answer to the log-in within %s", loginTime))
	defer cancel()
	r, err := b.sendRequest(ctx, request{
		method: http.MethodPost,
		path:   sessions,
		body:   map[string]string{"UserName": l.user, "Password": l.password.Reveal()},
	})
	if err != nil {
		code := httpStatus(err)
		if code == http.StatusNotFound || code == http.StatusGone {
			b.p.pool.Lock()
			b.sessions = ""
			b.p.pool.Unlock()
		}
		if code == 0 {
			l.leftSession = ctx.Err() != nil
			err = classifyError(ctx, err)
		}
		return code >= 400 || l.leftSession, err
	}
	l.token = r.header.Get("X-Auth-Token")
	if l.token == "" {
		l.leftSession = true
		return true, providers.WithClass(providers.ErrPermanent,
			errors.New("the BMC made a session and gave no token for it"))
	}
	l.session = memberPath(sessions, r)
	return false, nil
}

// memberPath returns the path of a collection's new member from the header Location, with or without a host name, or
// from the answer. It returns "" if the BMC does not name the path.
func memberPath(collection string, r *reply) string {
	if u, err := url.Parse(r.header.Get("Location")); err == nil && strings.HasPrefix(u.EscapedPath(), "/redfish/") {
		return u.EscapedPath()
	}
	var body struct {
		link
		Name string `json:"Id"`
	}
	_ = json.Unmarshal(r.body, &body) // there may be none
	switch {
	case strings.HasPrefix(body.ID, "/redfish/"):
		return body.ID
	case body.Name != "":
		return strings.TrimSuffix(collection, "/") + "/" + url.PathEscape(body.Name)
	}
	return ""
}

// badCredential reports whether a BMC refused user or password: with 401, or with a message that says so.
func badCredential(err error) bool {
	switch httpStatus(err) {
	case http.StatusUnauthorized:
		return true
	case http.StatusBadRequest, http.StatusForbidden:
		return aboutCredentials.MatchString(errorMessageID(err))
	}
	return false
}

var aboutCredentials = regexp.MustCompile(`(?i)unauthorized|credential|authentication|login(failed|denied)`)
