package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
)

// idleAfter is how long a BMC is not asked before its session is given back: they have few slots (stmcginnis/gofish#75), and
// a fence asks often for some seconds and then for months not at all.
const idleAfter = time.Minute

// pool holds what is kept of BMCs between calls: one login each, and where their systems are. BMCs that are not asked any more
// are forgotten, so it does not grow with the fleet's history.
type pool struct {
	connect  func(ctx context.Context, b *bmc) (*login, error)
	drop     func() // closes idle connections
	idle     time.Duration
	now      func() time.Time
	fallback bool // from sessions to basic authentication

	ctx     context.Context // of logouts; ends when Close's time is up
	cancel  context.CancelFunc
	logouts sync.WaitGroup // idle timers that fired

	mu     sync.Mutex // guards what follows, and bmc's fields marked so
	bmcs   map[string]*bmc
	closed bool
}

// bmc is one BMC.
type bmc struct {
	pool   *pool
	origin string
	turn   chan struct{} // one slot: who logs in

	// Guarded by pool.mu.
	users  int
	login  *login // nil: none
	basic  bool   // sessions do not work here
	paths  map[string]string
	expiry *time.Timer // set while nobody uses it
}

// login is an authenticated client.
type login struct {
	client  *gofish.APIClient
	session string // path to delete at the end; "": basic
	proven  bool   // an authenticated request went through; guarded by pool.mu
}

func (p *pool) init(connect func(context.Context, *bmc) (*login, error), drop func()) {
	p.connect, p.drop, p.idle, p.bmcs = connect, drop, idleAfter, map[string]*bmc{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
}

// acquire returns the BMC for one call. Every acquire that succeeds has its release.
func (p *pool) acquire(origin string) (*bmc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))
	}
	b := p.bmcs[origin]
	if b == nil {
		b = &bmc{pool: p, origin: origin, turn: make(chan struct{}, 1), paths: map[string]string{}}
		p.bmcs[origin] = b
	}
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
	b.users++
	return b, nil
}

func (p *pool) release(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.users--
	if b.users == 0 && !p.closed {
		b.expiry = time.AfterFunc(p.idle, func() { p.expire(b) })
	}
}

// expire forgets a BMC and gives its session back.
func (p *pool) expire(b *bmc) {
	p.mu.Lock()
	if p.closed || b.users > 0 || p.bmcs[b.origin] != b {
		p.mu.Unlock()
		return
	}
	delete(p.bmcs, b.origin)
	p.logouts.Add(1)
	p.mu.Unlock()
	defer p.logouts.Done()
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	_ = b.logout(ctx) // the BMC ends the session by itself some time
}

// Close gives all sessions back and closes the connections. It blocks until ctx's deadline at most; sessions of BMCs that did
// not answer are left for the BMCs to end, and are the error.
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

	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	defer p.cancel()
	var mu sync.Mutex // guards errs
	var errs []error
	var wait sync.WaitGroup
	turns := make(chan struct{}, 32)
	for _, b := range bmcs {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := b.logout(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close session on %s: %w", b.origin, classify(ctx, err)))
			}
		})
	}
	wait.Wait()
	p.logouts.Wait()
	p.drop()
	return errors.Join(errs...)
}

// logout ends the session, if there is one. A session that the BMC does not know any more is ended too.
func (b *bmc) logout(ctx context.Context) error {
	b.pool.mu.Lock()
	l := b.login
	b.login = nil
	b.pool.mu.Unlock()
	if l == nil || l.session == "" {
		return nil
	}
	resp, err := l.api(ctx).Delete(l.session)
	if err == nil {
		return resp.Body.Close()
	}
	switch status(err) {
	case http.StatusNotFound, http.StatusUnauthorized:
		return nil
	}
	return err
}

func (l *login) api(ctx context.Context) api { return l.client.WithContext(ctx) }

// get reads a resource; asked is the time just before the GET that carried the answer. A session that has expired is replaced
// once, and one whose token never worked makes way for basic authentication where the configuration allows it.
func (b *bmc) get(ctx context.Context, path string, into any) (asked time.Time, err error) {
	for range 3 { // an expired session, one that never works, basic
		var l *login
		if l, err = b.loggedIn(ctx); err != nil {
			return asked, err
		}
		asked = b.pool.now()
		err = fetch(l.api(ctx), path, into)
		if status(err) != http.StatusUnauthorized {
			if err == nil && path != schemas.DefaultServiceRoot { // which a BMC shows to anybody
				b.proved(l)
			}
			return asked, err
		}
		if !b.refused(l) {
			return asked, err
		}
	}
	return asked, err
}

// post sends one request once. It follows a get of the same call, so the login works; if it expired just now, the caller
// comes again.
func (b *bmc) post(ctx context.Context, path string, body any) error {
	l, err := b.loggedIn(ctx)
	if err != nil {
		return err
	}
	resp, err := l.api(ctx).Post(path, body)
	if err != nil {
		if status(err) == http.StatusUnauthorized {
			b.refused(l)
		}
		return err
	}
	return resp.Body.Close()
}

// loggedIn returns the login, and makes one if there is none: one caller does, the others wait for it.
func (b *bmc) loggedIn(ctx context.Context) (*login, error) {
	if l := b.current(); l != nil {
		return l, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := b.current(); l != nil {
		return l, nil
	}
	l, err := b.pool.connect(ctx, b)
	if err != nil {
		return nil, err
	}
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.login, b.basic = l, l.session == ""
	return l, nil
}

func (b *bmc) current() *login {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.login
}

// proved remembers that a login works.
func (b *bmc) proved(l *login) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	l.proven = true
}

// refused forgets a login that was answered with 401 and tells whether another attempt makes sense. After basic it does not: a
// wrong password must not be sent twice, accounts get locked.
func (b *bmc) refused(l *login) bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if b.login == l {
		b.login = nil
	}
	if l.session == "" {
		return false
	}
	if !l.proven {
		b.basic = b.pool.fallback
		return b.basic
	}
	return true
}

func (b *bmc) remembered(key string) string {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.paths[key]
}

// remember keeps where a system is; "" forgets it.
func (b *bmc) remember(key, path string) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	if path == "" {
		delete(b.paths, key)
	} else {
		b.paths[key] = path
	}
}

// local returns the path of a link that a BMC gave, which is a path or starts with the BMC's own origin.
func (b *bmc) local(link string) (path string, ok bool) {
	path = strings.TrimPrefix(link, b.origin)
	return path, strings.HasPrefix(path, "/")
}

// connect logs in: a session, or basic authentication where the configuration says so or, with auth auto, where the BMC has no
// session to give: no such service, an error, no slot left, no token. The password is read anew each time. A BMC that refuses
// the password is not asked a second time with it.
func (p *Provider) connect(ctx context.Context, b *bmc) (*login, error) {
	password, err := p.cfg.password().Read()
	if err != nil {
		return nil, providers.WithClass(providers.ErrDenied, err)
	}
	client, posted := httpClient(b.origin, p.http)
	config := gofish.ClientConfig{
		Endpoint: b.origin, Username: p.cfg.Username, Password: password.Reveal(),
		HTTPClient: client, NoModifyTransport: true, ReuseConnections: true, MaxConcurrentRequests: maxRequests,
	}
	p.mu.Lock()
	basic := b.basic && p.cfg.Auth == authAuto || p.cfg.Auth == authBasic
	p.mu.Unlock()
	var noSession error
	if !basic {
		c, err := gofish.ConnectContext(ctx, config)
		if err == nil {
			session, _ := c.GetSession()
			if path, ok := sessionPath(b, session); ok {
				return &login{client: c, session: path}, nil
			}
			err = providers.WithClass(providers.ErrPermanent, errors.New("the BMC made a session and gave no token for it"))
		}
		// Without a POST it was the service root that failed, and it would again.
		if p.cfg.Auth == authSession || ctx.Err() != nil || !posted() && !isGofish(err) || !worthBasic(err) {
			return nil, err
		}
		noSession = err
	}
	config.BasicAuth = true
	c, err := gofish.ConnectContext(ctx, config)
	if err != nil {
		return nil, err
	}
	if noSession != nil {
		p.opts.Log.Info("BMC gives no session, using basic authentication", "provider", p.opts.Name, "bmc", b.origin, "reason", classify(ctx, noSession))
	}
	return &login{client: c}, nil
}

func sessionPath(b *bmc, s *gofish.Session) (string, bool) {
	if s == nil || s.Token == "" {
		return "", false
	}
	return b.local(s.ID)
}

// worthBasic tells whether a BMC that gave no session may take basic authentication.
func worthBasic(err error) bool {
	switch code := status(err); code {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case 0:
		// gofish's own error: the service root names no collection of sessions.
		return errors.Is(err, providers.ErrPermanent) || isGofish(err)
	default:
		return code >= 500
	}
}

// isGofish tells whether gofish itself refused, without asking the BMC.
func isGofish(err error) bool {
	var e *schemas.Error
	return errors.As(err, &e) && e.HTTPReturnedStatusCode == 0
}
