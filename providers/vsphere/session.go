package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// loginTime is the timeout of a log-in: two calls.
	loginTime = 20 * time.Second
	// maxAnswer and maxTags are the limits of one answer; a page of 500 VMs has some 600 KB.
	maxAnswer, maxTags = 4 << 20, 100_000
)

// session is one log-in. It is safe for concurrent use.
type session struct {
	soap    *soap.Client // with cookies of its own
	content types.ServiceContent
	page    int32 // pageSize
	made    remote.LogIn
	view    atomic.Pointer[ref] // of all VMs; nil: not made yet
}

// logIn is a log-in in progress. It outlives the call that started it, so that a slow vCenter's answer is ready for the
// next call.
type logIn struct {
	done chan struct{} // closed at the end; then session or err is set
	*session
	err error
}

// errSession means that vCenter does not know the session, or no longer.
var errSession = errors.New("the session has ended")

var errClosed = providers.Errorf(providers.ErrPermanent, "provider is closed")

// loggedIn returns the session, and creates one if there is none. All callers wait for the same log-in, each until its
// own ctx ends. A failed log-in may have started before its cause was repaired, so a caller who only joined it tries
// again. The error is that of the last attempt, since a refused password is not the network's fault. A drill replaces a
// session that is old or of another password (remote.LogIn.MustRenew). Unless vCenter refuses the password, a session
// that cannot be replaced serves on.
func (p *Provider) loggedIn(ctx context.Context) (s *session, err error) {
	var sum remote.CredentialHash
	if providers.IsDrill(ctx) {
		password, err := p.cfg.ReadPassword()
		if err != nil {
			return nil, err
		}
		sum = p.refusals.HashCredential(p.cfg.Username, password)
	}
	var old *session
	for range 2 {
		p.mu.Lock()
		old = p.session
		if p.closed || old != nil && !old.made.MustRenew(ctx, sum, p.opts.Now()) {
			defer p.mu.Unlock()
			if p.closed {
				return nil, errClosed
			}
			return old, nil
		}
		l, joined := p.pendingLogIn, true
		if l == nil {
			l, joined = &logIn{done: make(chan struct{})}, false
			p.pendingLogIn = l
			p.work.Go(func() { p.logIn(l) })
		}
		p.mu.Unlock()
		select {
		case <-l.done:
			s, err = l.session, l.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err == nil || !joined {
			break
		}
	}
	if err != nil && old != nil && !errors.Is(err, providers.ErrDenied) {
		return old, nil
	}
	return s, err
}

func (p *Provider) logIn(l *logIn) {
	ctx, cancel := context.WithTimeoutCause(p.ending, loginTime,
		fmt.Errorf("no answer to the log-in within %s", loginTime))
	defer cancel()
	s, err := p.openSession(ctx)
	p.mu.Lock()
	old := p.session
	if p.pendingLogIn = nil; err == nil {
		p.session = s
	}
	l.session, l.err = s, remote.EnsureClass(ctx, err)
	close(l.done)
	p.mu.Unlock()
	if err == nil && old != nil {
		_ = old.logOut(ctx) // vCenter ends an unused session by itself
	}
}

// forgetSession drops a session that vCenter has ended.
func (p *Provider) forgetSession(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == s {
		p.session = nil
	}
}

// openSession logs in. It reads the password again each time, and sends it only to a server that answers as a vCenter
// does. It does not send a refused password a second time.
func (p *Provider) openSession(ctx context.Context) (*session, error) {
	password, err := p.cfg.ReadPassword()
	if err != nil {
		return nil, err
	}
	sum := p.refusals.HashCredential(p.cfg.Username, password)
	if err := p.refusals.CheckRefused(p.origin, sum, p.opts.Now()); err != nil {
		return nil, err
	}
	s := &session{soap: soap.NewClient(p.sdk, false), page: p.page, made: remote.LogIn{Sum: sum, At: p.opts.Now()}}
	// what soap.NewClient has set follows the environment's proxies
	s.soap.Transport, s.soap.Timeout = p.http, remote.Backstop
	s.soap.Namespace, s.soap.Version, s.soap.UserAgent = "urn:"+vim25.Namespace, vim25.Version, p.opts.Agent
	service, err := callMethod(ctx, s, methods.RetrieveServiceContent,
		&types.RetrieveServiceContent{This: vim25.ServiceInstance})
	if err != nil {
		return nil, err
	}
	s.content = service.Returnval
	if s.content.SessionManager == nil || s.content.SearchIndex == nil || s.content.ViewManager == nil {
		return nil, providers.Errorf(providers.ErrPermanent, "the server is not a vCenter")
	}
	_, err = callMethod(ctx, s, methods.Login,
		&types.Login{This: *s.content.SessionManager, UserName: p.cfg.Username, Password: password.Reveal()})
	if errors.Is(err, providers.ErrDenied) {
		return nil, p.refusals.RememberDenied(p.origin, p.cfg.PasswordPlace(), sum, p.opts.Now(), err)
	}
	return s, err
}

// Close waits for a running log-in, logs out and closes the connections. It blocks until ctx's deadline at most.
// vCenter must end a session that could not log out; it is the error.
func (p *Provider) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	undo := context.AfterFunc(ctx, p.end)
	defer undo()
	defer p.end()
	defer p.drop()
	p.work.Wait()
	p.mu.Lock()
	s := p.session
	p.session = nil
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := s.logOut(ctx); err != nil {
		return fmt.Errorf("log out (%s): %w", p.deviceName(), remote.EnsureClass(ctx, err))
	}
	return nil
}

// logOut ends the session. One that vCenter does not know has ended.
func (s *session) logOut(ctx context.Context) error {
	_, err := callMethod(ctx, s, methods.Logout, &types.Logout{This: *s.content.SessionManager})
	if errors.Is(err, errSession) {
		return nil
	}
	return err
}

// allVMs returns the session's view of all VMs that the account may see. vCenter updates it, and ends it with the
// session.
func (s *session) allVMs(ctx context.Context) (ref, error) {
	if view := s.view.Load(); view != nil {
		return *view, nil
	}
	res, err := callMethod(ctx, s, methods.CreateContainerView, &types.CreateContainerView{
		This:      *s.content.ViewManager,
		Container: s.content.RootFolder,
		Type:      []string{"VirtualMachine"},
		Recursive: true,
	})
	if err != nil {
		return ref{}, err
	}
	s.view.Store(&res.Returnval) // of two that were made at once, one stays unused
	return res.Returnval, nil
}

// method is a method of the API, as govmomi declares it.
type method[Q, R any] = func(context.Context, soap.RoundTripper, *Q) (*R, error)

// callMethod sends one request, once. Its error has the class of the fault that vCenter returned; network errors have
// no class. An answer without the requested result is an error.
func callMethod[Q, R any](ctx context.Context, s *session, m method[Q, R], q *Q) (res *R, err error) {
	defer func() {
		if r := recover(); r != nil {
			res, err = nil, providers.Errorf(providers.ErrPermanent, "govmomi panicked: %v", r)
		}
	}()
	res, err = m(ctx, s.soap, q)
	switch {
	case err != nil && soap.IsSoapFault(err):
		f := soap.ToSoapFault(err)
		return nil, explainFault(f.Detail.Fault, f.String)
	case err != nil:
		return nil, withoutURL(err)
	case res == nil:
		return nil, errors.New("the answer lacks the requested result")
	}
	return res, nil
}

// callAction is callMethod for a request that changes a VM's power. Every request of SOAP is a POST, so the transport
// cannot distinguish them.
func callAction[Q, R any](ctx context.Context, s *session, m method[Q, R], q *Q) error {
	if err := remote.MaySend(ctx); err != nil {
		return err
	}
	_, err := callMethod(ctx, s, m, q)
	return err
}

// withoutURL removes method and URL from a client's error, because the message names the vCenter.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// faultError is a fault that vCenter returned.
type faultError struct {
	fault   types.BaseMethodFault // nil: one that govmomi does not know
	message string
}

func (f *faultError) Error() string {
	name := "fault"
	if f.fault != nil {
		name = reflect.TypeOf(f.fault).Elem().Name()
	}
	switch fault := f.fault.(type) {
	case *types.NoPermission:
		return fmt.Sprintf("%s (%s)", name, fault.PrivilegeId)
	case *types.InvalidLogin, *types.PasswordExpired:
		return name // nothing that a log-in was answered with is repeated
	}
	if f.message == "" {
		return name
	}
	return name + ": " + f.message
}

// asFault returns a fault of exactly that type.
func asFault[F types.BaseMethodFault](err error, into *F) (ok bool) {
	if f := (*faultError)(nil); errors.As(err, &f) {
		*into, ok = f.fault.(F)
	}
	return ok
}

// explainFault adds a class to a fault, by its exact type: a fault's family says little (NotAuthenticated is a
// NoPermission). A fault that govmomi does not know is access denied, so that an odd answer to a log-in does not cause
// the password to be sent again.
func explainFault(detail types.AnyType, message string) error {
	f := &faultError{fault: faultPointer(detail), message: message}
	switch f.fault.(type) {
	case *types.NotAuthenticated:
		return providers.Errorf(providers.ErrDenied, "%w (%w)", errSession, f)
	case nil, *types.InvalidLogin, *types.PasswordExpired, *types.NoPermission:
		return providers.WithClass(providers.ErrDenied, f)
	case *types.ManagedObjectNotFound:
		return providers.WithClass(providers.ErrNotFound, f)
	case *types.NotSupported, *types.RestrictedVersion, *types.MethodNotFound, *types.MethodDisabled,
		*types.InvalidPowerState, *types.InvalidArgument, *types.InvalidProperty, *types.InvalidRequest,
		*types.InvalidLocale:
		return providers.WithClass(providers.ErrPermanent, f)
	}
	return providers.WithClass(providers.ErrUnreachable, f)
}

// faultPointer returns a fault as the interface that a pointer to it has.
func faultPointer(detail types.AnyType) types.BaseMethodFault {
	if f, ok := detail.(types.BaseMethodFault); ok {
		return f
	}
	v := reflect.ValueOf(detail)
	if !v.IsValid() {
		return nil
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	f, _ := p.Interface().(types.BaseMethodFault)
	return f
}

// checkedAnswers accepts the statuses that a vCenter answers with: 200 and, with a fault, 500. Any other status is an
// error with its class. That includes redirects: none is followed.
type checkedAnswers struct{ next http.RoundTripper }

func (a checkedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError {
		_ = resp.Body.Close()
		return nil, providers.Errorf(remote.HTTPClass(resp.StatusCode), "%d %s", resp.StatusCode,
			http.StatusText(resp.StatusCode))
	}
	return resp, nil
}
