package ipmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// idleAfter is how long a BMC may be unused before its session is closed. BMCs end sessions after 60 s of silence
	// (IPMI 2.0, 6.12.15), and have few of them.
	idleAfter = 20 * time.Second
	// forgetAfter is how long a BMC's cipher suite is remembered after that.
	forgetAfter = 4 * time.Hour
	// warmFor is how long an old session may be silent: a BMC that restarted does not know the session, and does not
	// answer. The rest of the call's time is for a new session.
	warmFor = 1500 * time.Millisecond
	// loginFor is the timeout of a log-in, which continues when the call that started it has no time left.
	loginFor = 30 * time.Second
	// openMore is how much longer an answer to the log-in may take each time that it starts again: the BMC may be slow.
	openMore = 500 * time.Millisecond
	// reportAhead is how much time a call keeps to report why there is no session.
	reportAhead = 100 * time.Millisecond
	// closeFor is the timeout of closing a session. A BMC that does not answer ends it by itself.
	closeFor = 1500 * time.Millisecond
	// heldFor is how long no log-in is tried after one that the BMC refused at the end though it had the same password.
	// It may count that as a failure, and lock the account after some.
	heldFor = time.Minute
	// maxPassword, maxUser and maxKg are IPMI's maximum lengths.
	maxPassword, maxUser, maxKg = 20, 16, 20
)

// pool holds the BMCs in use, with a session each. It forgets BMCs that are no longer used.
type pool struct {
	idle, forget, warm time.Duration
	timing             sendTiming
	open               func(ctx context.Context, b *bmc, tell func(error)) (*session, error)

	logins context.Context // of log-ins; ends when Close begins
	stop   context.CancelFunc
	ending context.Context // of log-outs; ends when Close's time is up
	end    context.CancelFunc
	work   sync.WaitGroup // log-ins and log-outs

	mu     sync.Mutex // guards what follows, and bmc's fields marked so
	bmcs   map[account]*bmc
	closed bool
}

// account is a BMC's host:port and the owner of the credentials it is sent: a node's name, or "" if all machines share
// them. A session belongs to one account.
type account struct{ address, owner string }

// String returns a name that distinguishes the account from others.
func (a account) String() string { return strings.TrimSpace(a.address + " " + a.owner) }

// bmc is one BMC. The caller that has the turn owns its session.
type bmc struct {
	account
	turn    chan struct{}
	session *session // the owner's; nil: none
	login   *login   // the owner's; nil: none
	// that worked; 0: the first of the configuration. The log-in's while one is under way, else the owner's
	suite int

	users  int         // calls and log-ins; guarded by pool.mu
	expiry *time.Timer // set while it is unused; guarded by pool.mu
}

// login is a log-in in progress, or its result. It outlives the call that started it, so that its session is ready for
// the next.
type login struct {
	lastErr atomic.Pointer[error] // why there is no session so far; nil: nothing to tell
	done    chan struct{}         // closed at the end; then session and err are set

	session *session
	err     error
}

func (p *pool) initPool(open func(context.Context, *bmc, func(error)) (*session, error)) {
	p.idle, p.forget, p.warm, p.timing, p.open, p.bmcs = idleAfter, forgetAfter, warmFor,
		defaultTiming, open, map[account]*bmc{}
	p.logins, p.stop = context.WithCancel(context.Background())
	p.ending, p.end = context.WithCancel(context.Background())
}

// withSession runs f as the owner of the BMC's session. If an old session brings no answer, f runs once more on a new
// one.
func (p *pool) withSession(ctx context.Context, a account, f func(context.Context, *session) error) error {
	b, err := p.acquireBMC(a)
	if err != nil {
		return err
	}
	defer p.releaseBMC(b)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turn }()
	if b.session != nil {
		err := p.trySession(ctx, b, p.warm, f)
		if b.session != nil || ctx.Err() != nil || errors.As(err, new(stopError)) {
			return err
		}
	}
	if b.session, err = p.loggedIn(ctx, b); err != nil {
		return err
	}
	return p.trySession(ctx, b, remote.Backstop, f)
}

// trySession runs f on the session. It drops the session if a question has no answer for that long, or if the BMC's
// answer is invalid. If the call ran out of time but the BMC answered recently, it keeps the session, because the BMC
// is only slow. The caller has the turn.
func (p *pool) trySession(
	ctx context.Context,
	b *bmc,
	silence time.Duration,
	f func(context.Context, *session) error,
) error {
	s := b.session
	s.patience = silence
	err := f(ctx, s)
	switch {
	case err == nil || completionCode(err) != 0:
	case ctx.Err() != nil && time.Since(s.lastHeard) < s.extendPatience(p.warm):
	default:
		p.dropSession(s)
		b.session = nil
	}
	return err
}

// loggedIn waits for a session until ctx ends. The caller has the turn. A failed log-in may have started before its
// cause was repaired, so one that an earlier call started is tried again.
func (p *pool) loggedIn(ctx context.Context, b *bmc) (*session, error) {
	for {
		earlier := b.login != nil
		if !earlier {
			if err := p.beginLogin(b); err != nil {
				return nil, err
			}
		}
		l := b.login
		if err := l.waitDone(ctx); err != nil {
			return nil, err
		}
		b.login = nil
		if l.err == nil || !earlier {
			return l.session, l.err
		}
	}
}

// beginLogin starts a log-in, which the pool owns. The caller has the turn.
func (p *pool) beginLogin(b *bmc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	l := &login{done: make(chan struct{})}
	b.login = l
	b.users++
	p.work.Go(func() {
		defer p.releaseBMC(b)
		defer close(l.done)
		ctx, cancel := context.WithTimeoutCause(p.logins, loginFor, fmt.Errorf("no session within %s", loginFor))
		defer cancel()
		defer func() {
			if r := recover(); r != nil { // the guard protects calls, and this is none
				l.err = providers.WithClass(providers.ErrPermanent, fmt.Errorf("log-in panicked: %v", r))
			}
		}()
		l.session, l.err = p.open(ctx, b, func(err error) { l.lastErr.Store(&err) })
		l.err = remote.EnsureClass(ctx, l.err)
	})
	return nil
}

// waitDone waits for the end of the log-in. If ctx ends before, the error reports the trouble of the log-in so far.
func (l *login) waitDone(ctx context.Context) error {
	ahead := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ahead, cancel = context.WithDeadline(ctx, deadline.Add(-reportAhead))
		defer cancel()
	}
	select {
	case <-l.done:
		return nil
	case <-ahead.Done():
	}
	if so := l.lastErr.Load(); so != nil && ctx.Err() == nil {
		return *so
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClosed = providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))

// acquireBMC returns the BMC for one call. Every acquireBMC that succeeds needs a releaseBMC.
func (p *pool) acquireBMC(a account) (*bmc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	b := p.bmcs[a]
	if b == nil {
		b = &bmc{account: a, turn: make(chan struct{}, 1)}
		p.bmcs[a] = b
	}
	if b.expiry != nil {
		b.expiry.Stop()
		b.expiry = nil
	}
	b.users++
	return b, nil
}

func (p *pool) releaseBMC(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.users--
	if b.users == 0 && !p.closed {
		b.expiry = time.AfterFunc(p.idle, func() { p.expireBMC(b) })
	}
}

// expireBMC closes an idle BMC's session and forgets the BMC: at once, or later if there is something to remember.
func (p *pool) expireBMC(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || b.users > 0 || p.bmcs[b.account] != b {
		return
	}
	for _, s := range b.openSessions() {
		p.dropSession(s)
	}
	b.session, b.login = nil, nil
	if b.suite == 0 {
		delete(p.bmcs, b.account)
		return
	}
	b.expiry = time.AfterFunc(p.forget, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed && b.users == 0 && p.bmcs[b.account] == b {
			delete(p.bmcs, b.account)
		}
	})
}

// openSessions returns the open sessions; one of them may still be unused. The caller makes sure that no log-in is in
// progress.
func (b *bmc) openSessions() (open []*session) {
	if b.session != nil {
		open = append(open, b.session)
	}
	if b.login != nil && b.login.session != nil {
		open = append(open, b.login.session)
	}
	return open
}

// dropSession closes a session, nil for none, while its caller continues.
func (p *pool) dropSession(s *session) {
	if s != nil {
		p.work.Go(func() { _ = s.closeSession(p.ending) }) // the BMC ends it by itself some time
	}
}

// Close ends log-ins and closes all sessions. It blocks until ctx's deadline at most. BMCs that did not answer must end
// their sessions themselves; they are the error.
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
	defer p.end()
	undo := context.AfterFunc(ctx, p.end)
	defer undo()

	var mu sync.Mutex // guards errs
	var errs []error
	failed := func(b *bmc, err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, fmt.Errorf("close session on %s: %w", b.address, remote.EnsureClass(ctx, err)))
	}
	var wait sync.WaitGroup
	for _, b := range bmcs {
		wait.Go(func() {
			select {
			case b.turn <- struct{}{}:
			case <-ctx.Done():
				failed(b, ctx.Err()) // a call is still running
				return
			}
			if b.login != nil {
				<-b.login.done
			}
			for _, s := range b.openSessions() {
				if err := s.closeSession(p.ending); err != nil {
					failed(b, err)
				}
			}
		})
	}
	wait.Wait()
	p.work.Wait()
	return errors.Join(errs...)
}

// openSession opens a session with the first of the cipher suites that the BMC has; one that worked before is tried
// first. A BMC may not answer to a suite that it does not have. The log-in then continues, and reportTrouble receives
// the error. Password and key are read again each time, and what the BMC refused is not tried again.
func (p *Provider) openSession(ctx context.Context, b *bmc, reportTrouble func(error)) (*session, error) {
	user, password, err := p.cfg.ReadCredentials(b.owner)
	switch {
	case err != nil:
		return nil, err
	case len(user) > maxUser:
		return nil, providers.WithClass(providers.ErrDenied, fmt.Errorf("the user %w", errLongUser))
	case len(password.Reveal()) > maxPassword:
		return nil, providers.WithClass(providers.ErrDenied, errLongPassword)
	}
	kg, err := p.cfg.readKg()
	if err != nil {
		return nil, err
	}
	who := credentials{user, password, kg, privileges[p.cfg.Privilege]}
	sum := p.refusals.HashCredential(user, providers.NewSecret(password.Reveal()+"\x00"+string(kg)))
	if err := p.refusals.CheckRefused(b.String(), sum, p.opts.Now()); err != nil {
		return nil, err
	}
	ids := p.suitesFor(b)
	var silent []string
	for patience := p.timing.open; ; patience += openMore {
		var none error // why the BMC has no suite
		again := false
		for _, id := range ids {
			s, has, err := p.tryHandshake(ctx, b, suites[id], who, patience)
			if errors.Is(err, errRefused) { // which nothing proves: it counts if it comes twice
				p.dropSession(s)
				if s, has, err = p.tryHandshake(ctx, b, suites[id], who, patience); errors.Is(err, errRefused) {
					p.dropSession(s)
					return nil, p.refusals.RememberDenied(b.String(), sum, p.opts.Now(), err)
				}
			}
			if err == nil {
				if b.suite = id; id == p.cfg.CipherSuites[0] {
					b.suite = 0
				}
				return s, nil
			}
			p.dropSession(s)
			switch {
			case errors.Is(err, errSilent) && has:
				ids, again = []int{id}, true
				reportTrouble(err)
			case errors.Is(err, errSilent):
				again = true
				if name := strconv.Itoa(id); !slices.Contains(silent, name) {
					silent = append(silent, name)
				}
				reportTrouble(fmt.Errorf("opening a session: %w to cipher suite %s (see cipherSuites)",
					errSilent, strings.Join(silent, ", ")))
			case errors.Is(err, errNoSuite), errors.Is(err, errOtherSuite):
				none = err
			default:
				if errors.Is(err, errLate) {
					p.refusals.HoldCredential(b.String(), sum, p.opts.Now().Add(heldFor), err)
				}
				return nil, err
			}
			if has {
				break
			}
		}
		if !again {
			return nil, none
		}
	}
}

// suitesFor returns the cipher suites in the order in which they are tried: the one that worked, then those of the
// configuration.
func (p *Provider) suitesFor(b *bmc) []int {
	ids := slices.Clone(p.cfg.CipherSuites)
	if i := slices.Index(ids, b.suite); i > 0 {
		ids = slices.Insert(slices.Delete(ids, i, i+1), 0, b.suite)
	}
	return ids
}

var (
	errLongUser     = fmt.Errorf("has more than %d bytes, which is IPMI's longest", maxUser)
	errLongPassword = fmt.Errorf("the password has more than %d bytes, which is IPMI's longest", maxPassword)
)

// tryHandshake opens one session with the privilege. The caller must close a session that it returns beside an error.
// has reports whether the BMC accepted the cipher suite.
func (p *Provider) tryHandshake(ctx context.Context, b *bmc, c suite, who credentials,
	patience time.Duration) (_ *session, has bool, _ error) {
	conn, err := p.dial(ctx, "udp", b.address)
	if err != nil {
		return nil, false, err
	}
	var once sync.Once
	s := &session{conn: conn, suite: c, timing: p.timing, console: newID(), patience: patience, rejected: func(why string) {
		once.Do(func() {
			p.opts.Log.Warn("Dropped what the BMC did not say in this session; somebody may be forging its answers",
				"provider", p.opts.Name, "bmc", b.address, "reason", why)
		})
	}}
	if err := s.logIn(ctx, who, patience); err != nil {
		return s, s.bmc != 0, err
	}
	err = s.sendQuery(ctx, &app.SetSessionPrivilegeLevelRequest{PrivilegeLevel: who.level},
		&app.SetSessionPrivilegeLevelResponse{})
	return s, true, explainPrivilege(err)
}

// explainPrivilege returns why a session does not have the requested privilege.
func explainPrivilege(err error) error {
	switch completionCode(err) {
	case types.CodeOK:
		return err
	case types.CodeSetSessionPrivilegeLevelLevelNotAvailable, types.CodeSetSessionPrivilegeLevelExceedsLimit,
		types.CodeSetSessionPrivilegeLevelCannotDisableAuth:
		err = providers.WithClass(providers.ErrDenied, err)
	}
	return fmt.Errorf("asking for the privilege: %w", classifyRefusal(err))
}
