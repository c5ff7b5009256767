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
	// warmFor is how long an old session may be silent: a BMC that restarted does not answer in it. The rest of the
	// call's time is for a new session.
	warmFor = 1500 * time.Millisecond
	// loginFor is the timeout of a log-in, which continues when the call that started it has no time left.
	loginFor = 30 * time.Second
	// openMore is how much longer an answer to the log-in may take at each new start, because BMCs are slow.
	openMore = 500 * time.Millisecond
	// reportAhead is how much time a call keeps to report why there is no session.
	reportAhead = 100 * time.Millisecond
	// closeFor is the timeout of closing a session. A BMC that does not answer ends it by itself.
	closeFor = 1500 * time.Millisecond
	// heldFor is how long no log-in is tried after one that the BMC refused at the end: it may count that as a failed
	// log-in, and lock the account after some.
	heldFor = time.Minute
	// maxPassword, maxUser and maxKg are IPMI's maximum lengths.
	maxPassword, maxUser, maxKg = 20, 16, 20
)

// bmc is one BMC. The caller that has the turn owns its session.
type bmc struct {
	remote.Account // its Device is the BMC's host:port

	turn    chan struct{}
	session *session // the owner's; nil: none
	login   *login   // the owner's; nil: none
	// that worked; 0: the first of the configuration. The log-in's while one is under way, else the owner's
	suite int
}

// login is a log-in in progress, or its result.
type login struct {
	*remote.Task[*session]
	lastErr atomic.Pointer[error] // why there is no session so far; nil: nothing to report
}

// sessionFunc is one call's part that needs the BMC's session.
type sessionFunc func(context.Context, *session) error

// withSession runs f as the owner of the BMC's session. If an old session brings no answer, f runs again on a new one.
func (p *Provider) withSession(ctx context.Context, a remote.Account, f sessionFunc) error {
	b, release, err := p.pool.Acquire(a)
	if err != nil {
		return err
	}
	defer release()
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

// trySession runs f on the session. It drops the session if a question has no answer for that long, or an invalid one.
// If the call ran out of time but the BMC answered recently, it keeps the session. The caller has the turn.
func (p *Provider) trySession(ctx context.Context, b *bmc, silence time.Duration, f sessionFunc) error {
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

// loggedIn waits for a session until ctx ends. The caller has the turn. A log-in that an earlier call started is tried
// again after a failure, whose cause may be repaired.
func (p *Provider) loggedIn(ctx context.Context, b *bmc) (*session, error) {
	for {
		earlier := b.login != nil
		if !earlier {
			p.beginLogin(b)
		}
		l := b.login
		if err := l.waitEnded(ctx); err != nil {
			return nil, err
		}
		b.login = nil
		if s, err := l.Wait(ctx); err == nil || !earlier {
			return s, err
		}
	}
}

// beginLogin starts a log-in. The caller has the turn.
func (p *Provider) beginLogin(b *bmc) {
	p.pool.Lock()
	defer p.pool.Unlock()
	l := &login{}
	l.Task = remote.BeginTask(p.pool.Running, p.pool, b.Account, "log-in", loginFor,
		func(ctx context.Context) (*session, error) {
			return p.openSession(ctx, b, func(err error) { l.lastErr.Store(&err) })
		})
	b.login = l
}

// waitEnded waits for the end of the log-in. If ctx ends before, the error is the log-in's last one.
func (l *login) waitEnded(ctx context.Context) error {
	ahead := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ahead, cancel = context.WithDeadline(ctx, deadline.Add(-reportAhead))
		defer cancel()
	}
	select {
	case <-l.Done():
		return nil
	case <-ahead.Done():
	}
	if so := l.lastErr.Load(); so != nil && ctx.Err() == nil {
		return *so
	}
	select {
	case <-l.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expireBMC closes an idle BMC's sessions. It returns how long the BMC's cipher suite is remembered. The caller holds
// the pool's lock.
func (p *Provider) expireBMC(b *bmc) time.Duration {
	for _, s := range b.openSessions() {
		p.dropSession(s)
	}
	b.session, b.login = nil, nil
	if b.suite == 0 {
		return 0
	}
	return p.forget
}

// openSessions returns the open sessions; one of them may still be unused. It waits for a log-in in progress.
func (b *bmc) openSessions() (open []*session) {
	if b.session != nil {
		open = append(open, b.session)
	}
	if b.login != nil {
		if s, _ := b.login.Wait(context.Background()); s != nil {
			open = append(open, s)
		}
	}
	return open
}

// dropSession closes a session, nil for none, while its caller continues.
func (p *Provider) dropSession(s *session) {
	if s != nil {
		p.pool.Work.Go(func() { _ = s.closeSession(p.pool.Ending) }) // the BMC ends it by itself some time
	}
}

// Close ends log-ins and closes all sessions. It blocks until ctx's deadline at most. The error names the BMCs that did
// not answer; their sessions expire.
func (p *Provider) Close(ctx context.Context) error {
	return p.pool.Close(ctx, func(b *bmc) error {
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err() // a call is still running
		}
		var errs []error
		for _, s := range b.openSessions() {
			errs = append(errs, s.closeSession(p.pool.Ending))
		}
		return errors.Join(errs...)
	})
}

// openSession opens a session with the first of the cipher suites that the BMC has; one that worked before is tried
// first. A BMC may not answer to a suite that it does not have: then reportTrouble receives the error, and the log-in
// continues. Password and key are read again each time, and what the BMC refused is not tried again.
func (p *Provider) openSession(ctx context.Context, b *bmc, reportTrouble func(error)) (*session, error) {
	user, password, err := p.cfg.ReadCredentials(b.Owner)
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
					return nil, p.refusals.RememberDenied(b.String(), p.cfg.PasswordPlace(), sum, p.opts.Now(), err)
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

// suitesFor returns the cipher suites in the order in which they are tried: first the one that worked.
func (p *Provider) suitesFor(b *bmc) []int {
	ids := slices.Clone(p.cfg.CipherSuites)
	if i := slices.Index(ids, b.suite); i > 0 {
		ids = slices.Insert(slices.Delete(ids, i, i+1), 0, b.suite)
	}
	return ids
}

var (
	errLongUser     = fmt.Errorf("has more than %d bytes, IPMI's maximum", maxUser)
	errLongPassword = fmt.Errorf("the password has more than %d bytes, IPMI's maximum", maxPassword)
)

// tryHandshake opens one session with the privilege. The caller closes a session that it returns beside an error. has
// reports whether the BMC accepted the cipher suite.
func (p *Provider) tryHandshake(ctx context.Context, b *bmc, c suite, who credentials,
	patience time.Duration) (_ *session, has bool, _ error) {
	conn, err := p.dial(ctx, "udp", b.Device)
	if err != nil {
		return nil, false, err
	}
	var once sync.Once
	s := &session{conn: conn, suite: c, timing: p.timing, console: newID(), patience: patience,
		rejected: func(why string) {
			once.Do(func() {
				p.opts.Log.Warn("Dropped packets that the BMC did not sign in this session; an attacker may be "+
					"forging its answers",
					"provider", p.opts.Name, "bmc", b.Device, "reason", why)
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
