package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/icholy/digest"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	// loginTime is the timeout of a log-in, which outlives the call that began it.
	loginTime = 20 * time.Second
	// renewBefore is how long before its end a token is replaced.
	renewBefore = 30 * time.Second
)

// session is what was learnt of a device by logging in. Its fields are guarded by the pool.
type session struct {
	token     *token
	pending   *remote.Task[*token]
	challenge *digest.Challenge
	count     int // requests with the challenge
}

// token proves who sends a request.
type token struct {
	text    providers.Secret
	sum     remote.CredentialHash // of the credential that it was given for
	expires time.Time
	proven  bool // a request with it was not refused
}

// credential is the operator's user and password.
type credential struct {
	user     string
	password providers.Secret
	sum      remote.CredentialHash
}

// readCredential reads the password again, and refuses one that the device refused.
func (p *Provider) readCredential() (c credential, err error) {
	if c.password, err = p.cfg.ReadPassword(); err != nil {
		return c, err
	}
	c.user = p.cfg.Username
	c.sum = p.refusals.HashCredential(c.user, c.password)
	return c, p.refusals.CheckRefused(p.account.String(), c.sum, p.opts.Now())
}

// refuse records that the device refused a credential, and returns the error of this and of later calls.
func (p *Provider) refuse(sum remote.CredentialHash, cause error) error {
	return p.refusals.RememberDenied(p.account.String(), sum, p.opts.Now(), cause)
}

// errUnauthorized is the cause of an error for a refused credential.
var errUnauthorized = errors.New("401 Unauthorized")

// sendRequest sends one request with the description's login. It sends it once more if a token has expired, or after a
// challenge.
func (p *Provider) sendRequest(ctx context.Context, s *session, r rendered) (answer, error) {
	if p.family.Login.Kind == "none" {
		a, _, err := p.sendOnce(ctx, r, nil)
		if err == nil && a.status == http.StatusUnauthorized {
			err = providers.WithClass(providers.ErrDenied, errUnauthorized)
		}
		return a, err
	}
	c, err := p.readCredential()
	if err != nil {
		return answer{}, err
	}
	switch p.family.Login.Kind {
	case "digest":
		return p.sendDigest(ctx, s, r, c)
	case "token", "oauth2":
		return p.sendWithToken(ctx, s, r, c)
	}
	a, _, err := p.sendOnce(ctx, r, func(h *http.Request) error {
		switch l := p.family.Login; l.Kind {
		case "basic":
			h.SetBasicAuth(c.user, c.password.Reveal())
		case "bearer":
			h.Header.Set("Authorization", "Bearer "+c.password.Reveal())
		case "header":
			vars := p.values()
			vars["user"], vars["password"] = c.user, c.password.Reveal()
			h.Header.Set(l.Header, fillTemplate(l.Value, vars))
		}
		return nil
	})
	if err == nil && a.status == http.StatusUnauthorized {
		err = p.refuse(c.sum, errUnauthorized)
	}
	return a, err
}

// sendOnce sends one request. authorize, unless nil, adds the log-in. Errors repeat neither the address nor a header.
func (p *Provider) sendOnce(ctx context.Context, r rendered, authorize func(*http.Request) error) (answer, http.Header,
	error) {
	select {
	case p.gate <- struct{}{}:
		defer func() { <-p.gate }()
	case <-ctx.Done():
		return answer{}, nil, ctx.Err()
	}
	h, err := http.NewRequestWithContext(ctx, r.method, p.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, nil, providers.Errorf(providers.ErrPermanent, "the request's path is no path")
	}
	h.Header.Set("Accept", "application/json")
	h.Header.Set("User-Agent", p.opts.Agent)
	if r.kind != "" {
		h.Header.Set("Content-Type", r.kind)
	}
	for name, v := range r.header {
		h.Header.Set(name, v)
	}
	if authorize != nil {
		if err := authorize(h); err != nil {
			return answer{}, nil, err
		}
	}
	for _, all := range h.Header {
		for _, v := range all {
			if strings.ContainsAny(v, "\r\n\x00") {
				return answer{}, nil, providers.Errorf(providers.ErrPermanent,
					"a header would have several lines: look at username and passwordFile")
			}
		}
	}
	resp, err := p.http.Do(h)
	if err != nil {
		return answer{}, nil, withoutURL(err)
	}
	a, err := readAnswer(resp)
	return a, resp.Header, err
}

// withoutURL removes method and URL from a client's error.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// sendDigest answers the device's challenge. A challenge is used again until the device replaces it.
func (p *Provider) sendDigest(ctx context.Context, s *session, r rendered, c credential) (answer, error) {
	for {
		p.pool.Lock()
		challenge := s.challenge
		s.count++
		count := s.count
		p.pool.Unlock()
		var authorize func(*http.Request) error
		if challenge != nil {
			authorize = func(h *http.Request) error {
				proof, err := digest.Digest(challenge, digest.Options{
					Method: r.method, URI: h.URL.RequestURI(), GetBody: h.GetBody, Count: count,
					Username: c.user, Password: c.password.Reveal(),
				})
				if err != nil {
					return providers.Errorf(providers.ErrPermanent, "the device's challenge is of no known kind")
				}
				h.Header.Set("Authorization", proof.String())
				return nil
			}
		}
		a, header, err := p.sendOnce(ctx, r, authorize)
		if err != nil || a.status != http.StatusUnauthorized {
			return a, err
		}
		next, err := digest.FindChallenge(header)
		if err != nil {
			return a, providers.Errorf(providers.ErrPermanent, "the device offers no digest authentication")
		}
		p.pool.Lock()
		s.challenge, s.count = next, 0
		p.pool.Unlock()
		// A proof of the credential was refused, unless it was for a nonce that has expired.
		if challenge != nil && !next.Stale {
			return a, p.refuse(c.sum, errUnauthorized)
		}
		if challenge != nil && challenge.Nonce == next.Nonce {
			return a, providers.Errorf(providers.ErrUnreachable, "the device repeats an expired challenge")
		}
	}
}

// sendWithToken logs in first if there is no token. It replaces a token that worked before and is refused, once.
func (p *Provider) sendWithToken(ctx context.Context, s *session, r rendered, c credential) (answer, error) {
	for tried := false; ; tried = true {
		t, err := p.loggedIn(ctx, s, c)
		if err != nil {
			return answer{}, err
		}
		a, _, err := p.sendOnce(ctx, r, func(h *http.Request) error {
			name, value := "Authorization", "Bearer {token}"
			if p.family.Login.Kind == "token" {
				name, value = p.family.Login.Header, p.family.Login.Value
			}
			h.Header.Set(name, strings.ReplaceAll(value, "{token}", t.text.Reveal()))
			return nil
		})
		if err != nil {
			return a, err
		}
		p.pool.Lock()
		proven := t.proven
		if a.status != http.StatusUnauthorized {
			t.proven = true
		} else if s.token == t {
			s.token = nil
		}
		p.pool.Unlock()
		switch {
		case a.status != http.StatusUnauthorized:
			return a, nil
		case !proven || tried:
			return a, p.refuse(t.sum, errUnauthorized)
		}
	}
}

// loggedIn returns a token for the credential, and logs in if there is none. All callers wait for the same log-in, each
// until its own ctx ends. A caller who only joined a log-in that failed tries again.
func (p *Provider) loggedIn(ctx context.Context, s *session, c credential) (t *token, err error) {
	for range 2 {
		p.pool.Lock()
		if t := s.token; t != nil && t.sum == c.sum && p.opts.Now().Before(t.expires) {
			p.pool.Unlock()
			return t, nil
		}
		joined := !s.pending.HasEnded()
		if !joined {
			s.pending = remote.BeginTask(p.pool.Ending, p.pool, p.account, "log-in", loginTime,
				func(ctx context.Context) (*token, error) {
					t, err := p.logIn(ctx, c)
					p.pool.Lock()
					defer p.pool.Unlock()
					s.pending = nil // which holds the token
					if err == nil {
						s.token = t
					}
					return t, err
				})
		}
		task := s.pending
		p.pool.Unlock()
		if t, err = task.Wait(ctx); err == nil || !joined || ctx.Err() != nil {
			break
		}
	}
	return t, err
}

// logIn gets a token. No error repeats what was sent or received.
func (p *Provider) logIn(ctx context.Context, c credential) (*token, error) {
	t := &token{sum: c.sum}
	if p.family.Login.Kind == "oauth2" {
		got, err := p.fetchOAuth(ctx, c)
		if err != nil {
			return nil, err
		}
		if t.text = providers.NewSecret(got.AccessToken); got.Expiry.IsZero() {
			got.Expiry = p.opts.Now().Add(time.Hour)
		}
		t.expires = got.Expiry.Add(-renewBefore)
		return t, nil
	}
	texts := p.values()
	texts["user"], texts["password"] = c.user, c.password.Reveal()
	r, err := p.family.login.render(texts)
	if err != nil {
		return nil, providers.Errorf(providers.ErrPermanent, "the log-in cannot be written")
	}
	a, _, err := p.sendOnce(ctx, r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("logging in: %w", err)
	case a.status == http.StatusUnauthorized:
		return nil, p.refuse(c.sum, errUnauthorized)
	}
	if err := p.family.login.check(a); err != nil {
		return nil, fmt.Errorf("logging in: %w", err)
	}
	e := p.family.newEvaluation(p.values(), nil)
	e.vars["login"] = map[string]any{"status": int64(a.status), "header": a.header, "body": a.body}
	v, err := e.evaluate(ctx, "login.token", p.family.token)
	if err != nil { // CEL's error may repeat a part of the answer
		return nil, providers.Errorf(providers.ErrUnreachable, "the answer to the log-in has no token")
	}
	text, _ := v.Value().(string)
	if text == "" {
		return nil, providers.Errorf(providers.ErrUnreachable, "the answer to the log-in has no token")
	}
	t.text, t.expires = providers.NewSecret(text), p.opts.Now().Add(p.family.Login.Lifetime-renewBefore)
	return t, nil
}

// fetchOAuth gets a token by OAuth 2 client credentials.
func (p *Provider) fetchOAuth(ctx context.Context, c credential) (*oauth2.Token, error) {
	values := p.values()
	for name, v := range values {
		values[name] = url.PathEscape(v)
	}
	cfg := clientcredentials.Config{
		ClientID: c.user, ClientSecret: c.password.Reveal(), Scopes: p.family.Login.Scopes,
		TokenURL: fillTemplate(p.family.Login.TokenURL, values), AuthStyle: oauth2.AuthStyleInParams,
	}
	if p.family.Login.Style == "header" {
		cfg.AuthStyle = oauth2.AuthStyleInHeader
	}
	got, err := cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, p.http))
	var refused *oauth2.RetrieveError
	switch {
	case err == nil:
		return got, nil
	case errors.As(err, &refused) && refused.Response != nil:
		code := refused.Response.StatusCode
		// RFC 6749, 5.2: invalid_client is 400 or 401
		if code == http.StatusUnauthorized || refused.ErrorCode == "invalid_client" {
			return nil, p.refuse(c.sum, fmt.Errorf("%d %s", code, http.StatusText(code)))
		}
		return nil, fmt.Errorf("logging in: %w", statusError(code))
	case errors.Is(err, providers.ErrUntrusted), ctx.Err() != nil:
		return nil, fmt.Errorf("logging in: %w", withoutURL(err))
	}
	return nil, providers.Errorf(providers.ErrUnreachable, "logging in: the token endpoint gave no token")
}
