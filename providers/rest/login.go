package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// session is what was learnt of a device by logging in. The pool guards what follows the gate.
type session struct {
	gate      chan struct{} // a slot for each request under way
	token     *token
	pending   *remote.Task[*token]
	challenge *digest.Challenge
	count     int          // requests with the challenge
	made      remote.LogIn // by certificate, in a drill
}

// token proves who sends a request.
type token struct {
	text    providers.Secret
	made    remote.LogIn
	expires time.Time
	proven  bool // a request with it was not refused
}

// needsNoUser reports whether nothing is sent but the password.
func (l Login) needsNoUser() bool {
	return slices.Contains([]string{"bearer", "serviceAccount", "oauth1"}, l.Kind) ||
		l.Kind == "header" && !strings.Contains(l.Value, "{user}")
}

// credential is the operator's user and password.
type credential struct {
	user     string
	password providers.Secret
	sum      remote.CredentialHash
}

// readCredential reads the password again, and refuses one that the device refused.
func (d *device) readCredential() (c credential, err error) {
	if c.user, c.password, err = d.cfg.ReadCredentials(d.node); err != nil {
		return c, err
	}
	c.sum = d.refusals.HashCredential(c.user, c.password)
	return c, d.refusals.CheckRefused(d.account.String(), c.sum, d.opts.Now())
}

// refuse records that the device refused a credential, and returns the error of this and of later calls.
func (d *device) refuse(sum remote.CredentialHash, cause error) error {
	return d.refusals.RememberDenied(d.account.String(), d.cfg.PasswordPlace(), sum, d.opts.Now(), cause)
}

// errUnauthorized is the cause of an error for a refused credential.
var errUnauthorized = errors.New("401 Unauthorized")

// sendRequest sends one request with the description's login. It sends it once more if a token has expired, or after a
// challenge.
func (d *device) sendRequest(ctx context.Context, r rendered) (answer, error) {
	if kind := d.family.Login.Kind; kind == "none" || kind == "certificate" {
		if a, done, err := d.logInByCertificate(ctx, r); done {
			return a, err
		}
		a, _, err := d.sendOnce(ctx, r, nil)
		if kind == "certificate" && (a.status == http.StatusUnauthorized || a.status == http.StatusForbidden) {
			d.transport.CloseIdleConnections() // the files may have another certificate by now
		}
		if err == nil && a.status == http.StatusUnauthorized {
			err = providers.WithClass(providers.ErrDenied, errUnauthorized)
		}
		return a, err
	}
	if d.cfg.usesMetadata() {
		return d.sendWithToken(ctx, r, credential{})
	}
	c, err := d.readCredential()
	if err != nil {
		return answer{}, err
	}
	switch d.family.Login.Kind {
	case "digest":
		return d.sendDigest(ctx, r, c)
	case "token", "oauth2", "serviceAccount":
		return d.sendWithToken(ctx, r, c)
	}
	a, _, err := d.sendOnce(ctx, r, func(h *http.Request) error {
		switch l := d.family.Login; l.Kind {
		case "basic":
			h.SetBasicAuth(c.user, c.password.Reveal())
		case "bearer":
			h.Header.Set("Authorization", "Bearer "+c.password.Reveal())
		case "header":
			vars := d.values()
			vars["user"], vars["password"] = c.user, c.password.Reveal()
			h.Header.Set(l.Header, fillTemplate(l.Value, vars))
		case "oauth1":
			return signOAuth1(h, c.password, d.opts.Now())
		}
		return nil
	})
	if err == nil && a.status == http.StatusUnauthorized {
		err = d.refuse(c.sum, errUnauthorized)
	}
	return a, err
}

// logInByCertificate sends a drill's request on a new connection, once the files changed and once an hour
// (remote.LogIn.MustRenew), since an open connection outlives its certificate. done is false if there was no need, or
// no new connection: then the open ones serve on. They end once a new one served.
func (d *device) logInByCertificate(ctx context.Context, r rendered) (a answer, done bool, err error) {
	if d.once == nil || r.take != nil {
		return a, false, nil
	}
	now := remote.LogIn{Sum: remote.HashFiles(d.cfg.CAFile, d.cfg.CertFile, d.cfg.KeyFile), At: d.opts.Now()}
	d.pool.Lock()
	renew := d.session.made.MustRenew(ctx, now.Sum, now.At)
	d.pool.Unlock()
	if !renew {
		return a, false, nil
	}
	r.once = true
	a, _, err = d.sendOnce(ctx, r, nil)
	switch {
	case errors.Is(err, providers.ErrDenied), errors.Is(err, providers.ErrUntrusted), ctx.Err() != nil:
		return a, true, err
	case err != nil:
		return a, false, nil
	case a.status == http.StatusUnauthorized:
		return a, true, providers.WithClass(providers.ErrDenied, errUnauthorized)
	case a.status == http.StatusForbidden:
		return a, true, nil
	}
	d.pool.Lock()
	d.session.made = now
	d.pool.Unlock()
	d.transport.CloseIdleConnections()
	return a, true, nil
}

// sendOnce sends one request. authorize, unless nil, adds the log-in. Errors repeat neither the address nor a header.
func (d *device) sendOnce(ctx context.Context, r rendered, authorize func(*http.Request) error) (answer, http.Header,
	error) {
	select {
	case d.session.gate <- struct{}{}:
		defer func() { <-d.session.gate }()
	case <-ctx.Done():
		return answer{}, nil, ctx.Err()
	}
	h, err := http.NewRequestWithContext(ctx, r.method, cmp.Or(r.base, d.base)+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, nil, providers.Errorf(providers.ErrPermanent, "the request's path is no path")
	}
	h.Header.Set("Accept", "application/json")
	h.Header.Set("User-Agent", d.opts.Agent)
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
	client := d.http
	switch {
	case r.take != nil:
		client = d.streams
	case r.once:
		client = d.once
	}
	resp, err := client.Do(h)
	if err != nil {
		return answer{}, nil, withoutURL(err)
	}
	if r.take != nil {
		if r.take(resp) {
			return answer{status: resp.StatusCode}, resp.Header, nil
		}
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	a, err := readAnswer(resp)
	if slices.Contains(d.family.Login.Refused, a.status) {
		a.status = http.StatusUnauthorized
	}
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
func (d *device) sendDigest(ctx context.Context, r rendered, c credential) (answer, error) {
	for {
		d.pool.Lock()
		challenge := d.session.challenge
		d.session.count++
		count := d.session.count
		d.pool.Unlock()
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
		a, header, err := d.sendOnce(ctx, r, authorize)
		if err != nil || a.status != http.StatusUnauthorized {
			return a, err
		}
		next, err := digest.FindChallenge(header)
		if err != nil {
			return a, providers.Errorf(providers.ErrPermanent, "the device offers no digest authentication")
		}
		d.pool.Lock()
		d.session.challenge, d.session.count = next, 0
		d.pool.Unlock()
		// A proof of the credential was refused, unless it was for a nonce that has expired.
		if challenge != nil && !next.Stale {
			return a, d.refuse(c.sum, errUnauthorized)
		}
		if challenge != nil && challenge.Nonce == next.Nonce {
			return a, providers.Errorf(providers.ErrUnreachable, "the device repeats an expired challenge")
		}
	}
}

// sendWithToken logs in first if there is no token. It replaces a token that worked before and is refused, once.
func (d *device) sendWithToken(ctx context.Context, r rendered, c credential) (answer, error) {
	for tried := false; ; tried = true {
		t, err := d.loggedIn(ctx, c)
		if err != nil {
			return answer{}, err
		}
		a, _, err := d.sendOnce(ctx, r, func(h *http.Request) error {
			name, value := "Authorization", "Bearer {token}"
			if d.family.Login.Kind == "token" {
				name, value = d.family.Login.Header, d.family.Login.Value
			}
			h.Header.Set(name, strings.ReplaceAll(value, "{token}", t.text.Reveal()))
			return nil
		})
		if err != nil {
			return a, err
		}
		d.pool.Lock()
		proven := t.proven
		if a.status != http.StatusUnauthorized {
			t.proven = true
		} else if d.session.token == t {
			d.session.token = nil
		}
		d.pool.Unlock()
		switch {
		case a.status != http.StatusUnauthorized:
			return a, nil
		case (!proven || tried) && d.cfg.usesMetadata():
			return a, providers.WithClass(providers.ErrDenied, errNoIdentity)
		case !proven || tried:
			return a, d.refuse(t.made.Sum, errUnauthorized)
		}
	}
}

// loggedIn returns a token for the credential, and logs in if there is none. All callers wait for the same log-in, each
// until its own ctx ends. A caller who only joined a log-in that failed tries again. A drill replaces a token that is
// old (remote.LogIn.MustRenew); if that fails, other calls use the token on.
func (d *device) loggedIn(ctx context.Context, c credential) (t *token, err error) {
	for range 2 {
		d.pool.Lock()
		if t := d.session.token; t != nil && t.made.Sum == c.sum && d.opts.Now().Before(t.expires) &&
			!t.made.MustRenew(ctx, c.sum, d.opts.Now()) {
			d.pool.Unlock()
			return t, nil
		}
		joined := !d.session.pending.HasEnded()
		if !joined {
			d.session.pending = remote.BeginTask(d.pool.Ending, d.pool, d.account, "log-in", loginTime,
				func(ctx context.Context) (*token, error) {
					t, err := d.logIn(ctx, c)
					d.pool.Lock()
					defer d.pool.Unlock()
					d.session.pending = nil // which holds the token
					if err == nil {
						d.session.token = t
					}
					return t, err
				})
		}
		task := d.session.pending
		d.pool.Unlock()
		if t, err = task.Wait(ctx); err == nil || !joined || ctx.Err() != nil {
			break
		}
	}
	return t, err
}

// logIn gets a token. No error repeats what was sent or received.
func (d *device) logIn(ctx context.Context, c credential) (*token, error) {
	t := &token{made: remote.LogIn{Sum: c.sum, At: d.opts.Now()}}
	if d.family.Login.Kind != "token" {
		fetch := d.fetchOAuth
		if d.cfg.usesMetadata() {
			fetch = func(ctx context.Context, _ credential) (*oauth2.Token, error) { return d.fetchMetadata(ctx) }
		}
		got, err := fetch(ctx, c)
		if err != nil {
			return nil, err
		}
		if t.text = providers.NewSecret(got.AccessToken); got.Expiry.IsZero() {
			got.Expiry = d.opts.Now().Add(time.Hour)
		}
		t.expires = got.Expiry.Add(-renewBefore)
		return t, nil
	}
	texts := d.values()
	texts["user"], texts["password"] = c.user, c.password.Reveal()
	r, err := d.family.login.render(texts)
	if err != nil {
		return nil, providers.Errorf(providers.ErrPermanent, "the log-in cannot be written")
	}
	if r.base, err = d.cfg.loginBase(); err != nil {
		return nil, err
	}
	a, _, err := d.sendOnce(ctx, r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("logging in: %w", err)
	case a.status == http.StatusUnauthorized:
		return nil, d.refuse(c.sum, errUnauthorized)
	}
	if err := d.family.login.check(a); err != nil {
		return nil, fmt.Errorf("logging in: %w", err)
	}
	e := d.family.newEvaluation(d.values(), nil)
	e.vars["login"] = map[string]any{"status": int64(a.status), "header": a.header, "body": a.body}
	v, err := e.evaluate(ctx, "login.token", d.family.token)
	if err != nil { // CEL's error may repeat a part of the answer
		return nil, providers.Errorf(providers.ErrUnreachable, "the answer to the log-in has no token")
	}
	text, _ := v.Value().(string)
	if text == "" {
		return nil, providers.Errorf(providers.ErrUnreachable, "the answer to the log-in has no token")
	}
	t.text, t.expires = providers.NewSecret(text), d.opts.Now().Add(d.family.Login.Lifetime-renewBefore)
	return t, nil
}

// loginBase returns the address to which the log-in is sent, before its path; "" is the device's own.
func (s *Settings) loginBase() (string, error) {
	name := s.family.Login.Address
	if name == "" {
		return "", nil
	}
	u, err := remote.ParseHTTP(s.valueOf(name), s.AllowHTTP)
	if err != nil {
		return "", providers.Errorf(providers.ErrPermanent, "values.%s %w", name, err)
	}
	return originOf(u) + strings.TrimRight(u.EscapedPath(), "/"), nil
}

// fetchOAuth gets a token by OAuth 2: by client credentials, or by a service account's key.
func (d *device) fetchOAuth(ctx context.Context, c credential) (*oauth2.Token, error) {
	values := d.values()
	for name, v := range values {
		values[name] = url.PathEscape(v)
	}
	l := d.family.Login
	tokenURL := fillTemplate(l.TokenURL, values)
	var got *oauth2.Token
	var err error
	if l.Kind == "serviceAccount" {
		got, err = d.fetchByKey(ctx, c, tokenURL)
	} else {
		style := oauth2.AuthStyleInParams
		if l.Style == "header" {
			style = oauth2.AuthStyleInHeader
		}
		got, err = (&clientcredentials.Config{
			ClientID: c.user, ClientSecret: c.password.Reveal(), Scopes: l.Scopes, TokenURL: tokenURL, AuthStyle: style,
		}).Token(context.WithValue(ctx, oauth2.HTTPClient, d.http))
	}
	var refused *oauth2.RetrieveError
	switch {
	case err == nil && got.AccessToken != "":
		return got, nil
	case errors.As(err, &refused) && refused.Response != nil:
		code := refused.Response.StatusCode
		if refusesKey(refused, l.Kind) {
			return nil, d.refuse(c.sum, fmt.Errorf("%d %s", code, http.StatusText(code)))
		}
		return nil, fmt.Errorf("logging in: %w", statusError(code))
	case errors.Is(err, providers.ErrUntrusted), errors.Is(err, providers.ErrDenied), ctx.Err() != nil:
		return nil, fmt.Errorf("logging in: %w", withoutURL(err))
	}
	return nil, providers.Errorf(providers.ErrUnreachable, "logging in: the token endpoint gave no token")
}
