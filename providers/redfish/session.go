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
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// idleAfter is how long a BMC may be unused before its session is deleted: BMCs have few slots
	// (stmcginnis/gofish#75). It is longer than the time between two probes of a healthy machine, so that not every
	// probe logs in and out.
	idleAfter = 11 * time.Minute
	// forgetAfter is how long the places of a BMC's systems, and what it refused, are remembered after that.
	forgetAfter = 4 * time.Hour
	// loginTime is the timeout of the service root and of the session's POST, each. A POST that is cut off may leave
	// its session in the BMC.
	loginTime = 20 * time.Second
	// scanTime is the timeout of a scan of all systems of a BMC.
	scanTime = 30 * time.Second
	// leftSessionFor is how long no credential is sent after a log-in that may have left a session in the BMC, because
	// its slots would fill up.
	leftSessionFor = time.Minute
	// basicFor is how long a BMC that gave no session is not asked for another.
	basicFor = time.Hour
)

// account is a BMC and the owner of the credentials it is sent: a node's name, or "" if all machines share them. A
// login belongs to one account.
type account struct{ origin, owner string }

// String returns a name that distinguishes the account from others.
func (a account) String() string { return strings.TrimSpace(a.origin + " " + a.owner) }

// pool holds what is kept of BMCs between calls: one login each, and the places of their systems. It forgets unused
// BMCs, so it does not grow with the fleet's history.
type pool struct {
	connect       func(ctx context.Context, b *bmc) (*login, error)
	drop          func()            // closes idle connections
	plain         http.RoundTripper // answers of any size, for streams of events
	sent, retried http.RoundTripper // once, and again while the BMC is busy
	idle          time.Duration
	now           func() time.Time
	agent         string
	fallback      bool     // from sessions to basic authentication
	ignoreChassis bool     // Config.IgnoreChassisPower
	ignoreStates  []string // Config.IgnoreStates
	refusals      remote.Refusals

	ctx    context.Context // of look-ups; ends when Close begins
	stop   context.CancelFunc
	ending context.Context // of log-ins and log-outs; ends when Close's time is up
	end    context.CancelFunc
	work   sync.WaitGroup // tasks, and idle timers that fired

	mu     sync.Mutex // guards what follows, and bmc's fields marked so
	bmcs   map[account]*bmc
	closed bool
}

// bmc is one BMC.
type bmc struct {
	account
	pool *pool
	http *http.Client
	gate chan struct{} // a slot for each request under way

	// Guarded by pool.mu.
	users        int // calls and tasks
	login        *login
	pendingLogin *task[*login]
	pendingScan  *task[*scan]
	scanned      *scan  // the last one; says where to look, nothing else
	sessions     string // the path of the collection of sessions, "" if not known
	systems      string // and of systems
	places       map[string]systemPlace
	chassis      map[string][]string  // by the path of a system that was last seen Off: the chassis it links
	pushed       map[string]time.Time // by the path of a system: when its power button was
	ifMatch      bool                 // resets need an ETag
	basic        time.Time            // until when no session is asked for
	noSessionErr error                // why, where sessions exist and none was to be had; nil: basic is the only way
	noBasic      refusedCredential    // the credential that was then refused as basic: it may be right
	expiry       *time.Timer          // set while it is unused
}

// login is one way to authenticate.
type login struct {
	token        string // of a session; "": basic
	session      string // path to delete at the end; "": basic, or the BMC did not say
	user         string
	password     providers.Secret // of basic
	sum          remote.CredentialHash
	noSessionErr error // of basic: bmc.noSessionErr when it was made
	leftSession  bool  // an attempt may have left a session in the BMC that cannot be deleted
	proven       bool  // an authenticated request went through; guarded by pool.mu
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

func (p *pool) initPool(connect func(context.Context, *bmc) (*login, error), next http.RoundTripper, drop func()) {
	p.connect, p.drop, p.idle, p.bmcs = connect, drop, idleAfter, map[account]*bmc{}
	p.setTransport(next)
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.ending, p.end = context.WithCancel(context.Background())
}

// setTransport sets the transport of all requests. Requests that act ask first whether they may still be sent.
func (p *pool) setTransport(next http.RoundTripper) {
	next = remote.Permitted{Next: next}
	p.plain, p.sent = next, remote.Limited{Next: next, Bytes: maxAnswer, Values: maxValues}
	p.retried = retryTransport(p.sent)
}

// acquireBMC returns the BMC for one call. Every acquireBMC that succeeds needs a releaseBMC.
func (p *pool) acquireBMC(a account) (*bmc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	b := p.bmcs[a]
	if b == nil {
		b = &bmc{
			account: a, pool: p, http: httpClient(a.origin, p.retried, p.sent), gate: make(chan struct{}, maxRequests),
			places: map[string]systemPlace{}, chassis: map[string][]string{},
		}
		p.bmcs[a] = b
	}
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
	b.users++
	return b, nil
}

var errClosed = providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))

func (p *pool) releaseBMC(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.users--
	if b.users == 0 && !p.closed {
		b.expiry = time.AfterFunc(p.idle, func() { p.expireBMC(b) })
	}
}

// expireBMC ends an idle BMC's session, and forgets the BMC later.
func (p *pool) expireBMC(b *bmc) {
	p.mu.Lock()
	if p.closed || b.users > 0 || p.bmcs[b.account] != b {
		p.mu.Unlock()
		return
	}
	l := b.login
	b.login, b.scanned = nil, nil
	b.expiry = time.AfterFunc(forgetAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed && b.users == 0 && p.bmcs[b.account] == b {
			delete(p.bmcs, b.account)
		}
	})
	p.work.Add(1)
	p.mu.Unlock()
	defer p.work.Done()
	ctx, cancel := context.WithTimeout(p.ending, loginTime)
	defer cancel()
	_ = b.endSession(ctx, l) // the BMC ends the session by itself some time
}

// Close waits for running log-ins, ends all sessions and closes the connections. It blocks until ctx's deadline at
// most. BMCs that did not answer must end their sessions themselves; they are the error.
func (p *pool) Close(ctx context.Context) error {
	p.mu.Lock()
	bmcs := p.bmcs
	p.closed, p.bmcs = true, nil
	for _, b := range bmcs {
		if b.expiry != nil {
			b.expiry.Stop()
		}
	}
	p.mu.Unlock()
	p.stop()
	undo := context.AfterFunc(ctx, p.end)
	defer undo()
	defer p.end()
	p.work.Wait()

	var mu sync.Mutex // guards errs
	var errs []error
	var wait sync.WaitGroup
	turns := make(chan struct{}, 32)
	for _, b := range bmcs {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := b.endSession(ctx, b.currentLogin()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close session on %s: %w", b.origin, classifyError(ctx, err)))
			}
		})
	}
	wait.Wait()
	p.drop()
	return errors.Join(errs...)
}

// endSession ends the session, if there is one. A session that the BMC no longer knows counts as ended.
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

// task is work that outlives the call that started it, so that a slow BMC's answer is ready for the next call.
type task[T any] struct {
	done chan struct{} // closed at the end; then v and err are set
	v    T
	err  error
}

// beginTask starts a task, which the pool owns. The caller holds pool.mu, and has checked that the pool is not closed.
func beginTask[T any](
	ctx context.Context,
	b *bmc,
	what string,
	timeout time.Duration,
	f func(context.Context) (T, error),
) *task[T] {
	t := &task[T]{done: make(chan struct{})}
	b.users++
	b.pool.work.Add(1)
	go func() {
		defer b.pool.work.Done()
		defer b.pool.releaseBMC(b)
		defer close(t.done)
		ctx, cancel := context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("no answer to the %s within %s", what, timeout))
		defer cancel()
		defer func() {
			if r := recover(); r != nil { // the guard protects calls, and this is none
				t.err = providers.WithClass(providers.ErrPermanent, fmt.Errorf("%s panicked: %v", what, r))
			}
		}()
		if t.v, t.err = f(ctx); t.err != nil {
			t.err = classifyError(ctx, t.err)
		}
	}()
	return t
}

// waitDone blocks until the task is done or ctx ends.
func (t *task[T]) waitDone(ctx context.Context) (none T, _ error) {
	select {
	case <-t.done:
		return t.v, t.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// isDone reports whether the task is done; a nil task is.
func (t *task[T]) isDone() bool {
	if t == nil {
		return true
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// getResource reads a resource; asked is the time just before the GET that carried the answer.
func (b *bmc) getResource(ctx context.Context, path string, into any) (r *reply, asked time.Time, err error) {
	err = b.withLogin(ctx, func(l *login) (err error) {
		asked = b.pool.now()
		// which a BMC shows to anybody
		if r, err = b.fetchJSON(ctx, path, l, into); err == nil && path != schemas.DefaultServiceRoot {
			b.markProven(l)
		}
		return err
	})
	return r, asked, err
}

// withLogin runs f with a login. An expired session is replaced once. A session whose token never worked is replaced by
// basic authentication, if the configuration allows that. In both cases f runs again.
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

// sendChange sends one request once. It follows a getResource of the same call, so the login works. If the login has
// expired in between, the caller tries again later.
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
// again. The error is that of the last attempt, since a refused password is not the network's fault.
func (b *bmc) loggedIn(ctx context.Context) (l *login, err error) {
	for range 2 {
		b.pool.mu.Lock()
		if b.login != nil || b.pool.closed {
			defer b.pool.mu.Unlock()
			if b.login == nil {
				return nil, errClosed
			}
			return b.login, nil
		}
		joined := !b.pendingLogin.isDone()
		if !joined {
			b.pendingLogin = beginTask(b.pool.ending, b, "log-in", 2*loginTime,
				func(ctx context.Context) (*login, error) {
					l, err := b.pool.connect(ctx, b)
					b.pool.mu.Lock()
					defer b.pool.mu.Unlock()
					b.pendingLogin = nil // which holds the login, and so the password
					if err == nil {
						b.login = l
					}
					return l, err
				})
		}
		t := b.pendingLogin
		b.pool.mu.Unlock()
		if l, err = t.waitDone(ctx); err == nil || !joined || ctx.Err() != nil {
			break
		}
	}
	return l, err
}

func (b *bmc) currentLogin() *login {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.login
}

// markProven records that a login works.
func (b *bmc) markProven(l *login) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	l.proven = true
}

// handleUnauthorized drops a login that was answered with 401, and reports whether another attempt makes sense. It does
// not after basic authentication, nor after a session whose token never worked if basic is not allowed: then the
// credential is recorded as refused. But if no session was available, a BMC may refuse basic altogether. Then the
// credential is not sent that way again, and sessions are tried.
func (b *bmc) handleUnauthorized(l *login, cause error) (again bool, _ error) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.login == l {
		b.login = nil
	}
	switch {
	case l.token != "" && l.proven:
		return true, cause
	case l.token != "" && b.pool.fallback:
		b.basic, b.noSessionErr = b.pool.now().Add(basicFor), nil
		return true, cause
	}
	b.basic = time.Time{} // it is no way in: sessions are tried again first
	if l.token == "" && l.noSessionErr != nil && !l.proven {
		b.noBasic = refusedCredential{l.sum, b.pool.now().Add(remote.RefusedFor)}
		return false, noLoginError(l.noSessionErr)
	}
	return false, b.rememberRefused(l, cause)
}

// noLoginError returns the error of a BMC that gives no session and refuses basic authentication. That says nothing
// about the password.
func noLoginError(noSession error) error {
	return providers.WithClass(providers.ErrUnreachable,
		fmt.Errorf("the BMC refuses basic authentication, and gives no session: %s",
			providers.ErrorText(classifyError(context.Background(), noSession))))
}

// rememberRefused records that the BMC refused a login's credential. It returns the error of this and of later calls.
func (b *bmc) rememberRefused(l *login, cause error) error {
	return b.pool.refusals.RememberDenied(b.String(), l.sum, b.pool.now(), classifyError(context.Background(), cause))
}

// localPath returns the path of a link from a BMC, which is a path or starts with the BMC's own origin. It returns ""
// and false for any other link, and for one that is too long to keep.
func (b *bmc) localPath(link string) (path string, ok bool) {
	if path = strings.TrimPrefix(link, b.origin); !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
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
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.sessions, b.systems = sessions, systems
	return sessions, systems, nil
}

// openLogin logs in: by a session, or by basic authentication if the configuration requires it. With auth auto it also
// uses basic if the BMC cannot give a session: no such service, an error, no free slot, no token. It reads the password
// again each time. It does not send a credential that the BMC refused a second time.
func (p *Provider) openLogin(ctx context.Context, b *bmc) (*login, error) {
	user, password, err := p.cfg.ReadCredentials(b.owner)
	if err != nil {
		return nil, err
	}
	l := &login{user: user, password: password, sum: p.refusals.HashCredential(user, password)}
	if err := p.refusals.CheckRefused(b.String(), l.sum, p.now()); err != nil {
		return nil, err
	}
	p.mu.Lock()
	basic := p.cfg.Auth == authBasic || p.cfg.Auth == authAuto && p.now().Before(b.basic)
	noBasic := b.noBasic.sum == l.sum && p.now().Before(b.noBasic.until)
	l.noSessionErr = b.noSessionErr
	p.mu.Unlock()
	if basic {
		return l, nil
	}
	mayUseBasic, err := b.openSession(ctx, l, p.cfg.Auth == authSession)
	switch {
	case err == nil:
		l.password = providers.Secret{}
		return l, nil
	case badCredential(err):
		return nil, b.rememberRefused(l, err)
	case p.cfg.Auth == authSession || !mayUseBasic || noBasic || p.ending.Err() != nil:
		if noBasic {
			err = noLoginError(err)
		}
		if l.leftSession {
			p.refusals.HoldCredential(b.String(), l.sum, p.now().Add(leftSessionFor), err)
		}
		return nil, err
	}
	p.opts.Log.Info("BMC gives no session, using basic authentication", "provider", p.opts.Name, "bmc", b.origin,
		"reason", providers.ErrorText(classifyError(ctx, err)))
	p.mu.Lock()
	defer p.mu.Unlock()
	b.basic, b.noSessionErr = p.now().Add(basicFor), nil
	if l.leftSession || hasNoSlot(httpStatus(err)) {
		b.noSessionErr = err
	}
	l.token, l.session, l.noSessionErr = "", "", b.noSessionErr
	return l, nil
}

// hasNoSlot reports whether a status means that sessions exist, but none is available now. 400 and 403 may also be the
// answer to a wrong password.
func hasNoSlot(code int) bool {
	return code == http.StatusConflict || code == http.StatusTooManyRequests ||
		code >= 500 && code != http.StatusNotImplemented
}

// openSession creates a session for l. After an error mayUseBasic reports whether the BMC may still accept basic
// authentication.
func (b *bmc) openSession(ctx context.Context, l *login, insist bool) (mayUseBasic bool, _ error) {
	b.pool.mu.Lock()
	sessions := b.sessions
	b.pool.mu.Unlock()
	if sessions == "" {
		// Unlike the POST below this leaves nothing behind, so Close does not wait for it.
		ctx, cancel := context.WithTimeoutCause(b.pool.ctx, loginTime,
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
			b.pool.mu.Lock()
			b.sessions = ""
			b.pool.mu.Unlock()
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

// memberPath returns the path of a collection's new member, such as a session. It reads the header Location, with any
// host name that the BMC puts before it, or the answer. It returns "" if the BMC does not name the path.
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

// badCredential reports whether a BMC refused user or password: with 401, or with another status and a message that
// says so.
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
