package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// idleAfter is how long a BMC is not asked before its session is given back. BMCs end sessions after 60 s without a word (IPMI 2.0,
	// 6.12.15), and have few of them.
	idleAfter = 20 * time.Second
	// warmFor is how long an old session may be silent: a BMC that restarted does not know it, and says nothing. What is left of the
	// call's time is for a new one.
	warmFor = 1500 * time.Millisecond
	// closeFor bounds the end of a session. A BMC that does not answer ends it by itself.
	closeFor = 1500 * time.Millisecond
	// heldFor is how long no log-in is tried after one that the BMC refused at the end, though it had the same password: it may count
	// that as a failure, and lock the account after some.
	heldFor = time.Minute
	// maxPassword and maxUser are IPMI's longest.
	maxPassword, maxUser = 20, 16
)

// pool holds the BMCs that are asked, with a session each. BMCs that are not asked any more are forgotten.
type pool struct {
	idle, warm time.Duration
	open       func(ctx context.Context, b *bmc) (*session, error)

	ending context.Context // of log-outs; ends when Close's time is up
	end    context.CancelFunc
	work   sync.WaitGroup // log-outs

	mu     sync.Mutex // guards what follows, and bmc's fields marked so
	bmcs   map[account]*bmc
	closed bool
}

// account is a BMC's host:port and whose credentials it is sent, a node's name; "" where all machines share them. No session is for another
// account.
type account struct{ address, owner string }

// String names the account among others'.
func (a account) String() string { return strings.TrimSpace(a.address + " " + a.owner) }

// bmc is one BMC. Its session has one owner: whoever has the turn.
type bmc struct {
	account
	turn    chan struct{}
	session *session // the owner's; nil: none

	users  int         // calls; guarded by pool.mu
	expiry *time.Timer // set while nobody uses it; guarded by pool.mu
}

func (p *pool) init(open func(context.Context, *bmc) (*session, error)) {
	p.idle, p.warm, p.open, p.bmcs = idleAfter, warmFor, open, map[account]*bmc{}
	p.ending, p.end = context.WithCancel(context.Background())
}

// with runs f as the owner of the BMC's session. Where an old session brings no answer f runs once more on a new one.
func (p *pool) with(ctx context.Context, a account, f func(context.Context, *session) error) error {
	b, err := p.acquire(a)
	if err != nil {
		return err
	}
	defer p.release(b)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turn }()
	if b.session != nil {
		err := p.try(ctx, b, p.warm, f)
		if b.session != nil || ctx.Err() != nil || errors.As(err, new(stopError)) {
			return err
		}
	}
	if b.session, err = p.open(ctx, b); err != nil {
		return err
	}
	return p.try(ctx, b, remote.Backstop, f)
}

// try runs f on the session, and gives that up where a question brings no answer for so long, or where the BMC's answer is none. Its
// caller has the turn. After an error that is not the BMC's own word the session is not used again: an answer that comes late would be
// taken for the answer to a later question, as IPMI numbers them from 1 to 63 only.
func (p *pool) try(ctx context.Context, b *bmc, silence time.Duration, f func(context.Context, *session) error) error {
	b.session.patience = silence
	err := f(ctx, b.session)
	if err != nil && code(err) == 0 {
		p.drop(b.session)
		b.session = nil
	}
	return err
}

// acquire returns the BMC for one call. Every acquire that succeeds has its release.
func (p *pool) acquire(a account) (*bmc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("provider is closed"))
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

func (p *pool) release(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.users--
	if b.users == 0 && !p.closed {
		b.expiry = time.AfterFunc(p.idle, func() { p.expire(b) })
	}
}

// expire forgets an idle BMC and gives its session back.
func (p *pool) expire(b *bmc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || b.users > 0 || p.bmcs[b.account] != b {
		return
	}
	delete(p.bmcs, b.account)
	p.drop(b.session)
}

// drop ends a session, nil for none, while its caller goes on.
func (p *pool) drop(s *session) {
	if s != nil {
		p.work.Go(func() { _ = s.close(p.ending) }) // the BMC ends it by itself some time
	}
}

// Close gives all sessions back. It blocks until ctx's deadline at most; sessions of BMCs that did not answer are left for the BMCs to
// end, and are the error.
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
	defer p.end()
	undo := context.AfterFunc(ctx, p.end)
	defer undo()

	var mu sync.Mutex // guards errs
	var errs []error
	var wait sync.WaitGroup
	for _, b := range bmcs {
		if b.session == nil {
			continue
		}
		wait.Go(func() {
			if err := b.session.close(p.ending); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("close session on %s: %w", b.address, remote.Class(ctx, err)))
			}
		})
	}
	wait.Wait()
	p.work.Wait()
	return errors.Join(errs...)
}

// login opens a session with the first of the cipher suites that the BMC has. The password is read anew each time, and one that the BMC
// refused is not tried again.
func (p *Provider) login(ctx context.Context, b *bmc) (*session, error) {
	user, password, err := p.cfg.Of(b.owner)
	switch {
	case err != nil:
		return nil, err
	case len(user) > maxUser:
		return nil, providers.WithClass(providers.ErrDenied, fmt.Errorf("the user %w", errLongUser))
	case len(password.Reveal()) > maxPassword:
		return nil, providers.WithClass(providers.ErrDenied, errLongPassword)
	}
	sum := p.refusals.Sum(user, password)
	if err := p.refusals.Check(b.String(), sum, p.opts.Now()); err != nil {
		return nil, err
	}
	var none error // why there is no suite
	for _, id := range p.cfg.CipherSuites {
		s, err := p.handshake(ctx, b, suites[id], user, password)
		if errors.Is(err, errRefused) { // which nothing proves: it counts if it comes twice
			if s, err = p.handshake(ctx, b, suites[id], user, password); errors.Is(err, errRefused) {
				return nil, p.refusals.Denied(b.String(), sum, p.opts.Now(), err)
			}
		}
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, errNoSuite), errors.Is(err, errOtherSuite):
			none = err
			continue
		case errors.Is(err, errLate):
			p.refusals.Hold(b.String(), sum, p.opts.Now().Add(heldFor), err)
		}
		p.drop(s) // it is open, and of no use
		return nil, err
	}
	return nil, none
}

var (
	errLongUser     = fmt.Errorf("has more than %d bytes, which is IPMI's longest", maxUser)
	errLongPassword = fmt.Errorf("the password has more than %d bytes, which is IPMI's longest", maxPassword)
)

// handshake opens one session with the privilege. One that is returned beside an error is open, and of no use.
func (p *Provider) handshake(ctx context.Context, b *bmc, c suite, user string, password providers.Secret) (*session, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", b.address)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	s := &session{conn: conn, suite: c, console: newID(), patience: remote.Backstop, rejected: func(why string) {
		once.Do(func() {
			p.opts.Log.Warn("Dropped what the BMC did not say in this session; somebody may be forging its answers",
				"provider", p.opts.Name, "bmc", b.address, "reason", why)
		})
	}}
	level := privileges[p.cfg.Privilege]
	if err := s.logIn(ctx, credentials{user, password, level}, remote.Backstop); err != nil {
		_ = conn.Close()
		return nil, err
	}
	err = s.query(ctx, &app.SetSessionPrivilegeLevelRequest{PrivilegeLevel: level}, &app.SetSessionPrivilegeLevelResponse{})
	return s, unprivileged(err)
}

// unprivileged explains why a session has not the privilege that was asked for.
func unprivileged(err error) error {
	switch code(err) {
	case types.CodeOK:
		return err
	case types.CodeSetSessionPrivilegeLevelLevelNotAvailable, types.CodeSetSessionPrivilegeLevelExceedsLimit,
		types.CodeSetSessionPrivilegeLevelCannotDisableAuth:
		err = providers.WithClass(providers.ErrDenied, err)
	}
	return fmt.Errorf("asking for the privilege: %w", classify(err))
}
