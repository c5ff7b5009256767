package rest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// metadataAddress is where Google's and Azure's virtual machines find the metadata server. No description and no
// setting changes it.
const metadataAddress = "http://169.254.169.254"

// usesMetadata reports whether tokens come from the cloud's metadata server: the description knows nothing else, or the
// operator gave no credentials.
func (s *Settings) usesMetadata() bool {
	l := s.family.Login
	return l.Kind == "metadata" || l.Metadata != nil && s.Credentials == remote.Credentials{}
}

// fetchMetadata gets a token of the identity that the cloud gave to the machine on which forcefence runs.
func (d *device) fetchMetadata(ctx context.Context) (*oauth2.Token, error) {
	r, err := d.family.metadata.render(d.values())
	if err != nil {
		return nil, providers.Errorf(providers.ErrPermanent, "the request to the metadata server cannot be written")
	}
	r.base = d.metadata
	a, _, err := d.sendOnce(ctx, r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking the metadata server: %w", err)
	case a.status/100 == 4 && a.status != http.StatusTooManyRequests:
		return nil, providers.Errorf(providers.ErrDenied, "the metadata server gave no token (%v): has this machine "+
			"an identity of the cloud? Give it one, or set a password", statusError(a.status))
	case a.status != http.StatusOK:
		return nil, fmt.Errorf("asking the metadata server: %w", statusError(a.status))
	}
	body, _ := a.body.(map[string]any)
	text, _ := body["access_token"].(string)
	seconds, ok := body["expires_in"].(float64) // Google's
	if word, isText := body["expires_in"].(string); isText {
		n, err := strconv.Atoi(word) // Azure's
		seconds, ok = float64(n), err == nil
	}
	if text == "" || !ok || seconds > maxTokenLife.Seconds() {
		return nil, providers.Errorf(providers.ErrUnreachable, "the metadata server's answer is no token")
	}
	return &oauth2.Token{
		AccessToken: text, Expiry: d.opts.Now().Add(time.Duration(seconds) * time.Second),
	}, nil
}

// maxTokenLife is the longest life that the metadata server's token may have: Azure's live for 24 hours.
const maxTokenLife = 48 * time.Hour

// serviceAccountKey is the JSON file in which Google hands out a service account's key.
type serviceAccountKey struct {
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	TokenURI     string `json:"token_uri"`
}

// readServiceAccount reads a key. It refuses one that belongs to another host than the token endpoint's. No error
// repeats a part of the file.
func readServiceAccount(file providers.Secret, tokenURL string) (key serviceAccountKey, _ error) {
	const wants = "the password is no key of a service account: the file must be the JSON file of a key that Google " +
		"made"
	if json.Unmarshal([]byte(file.Reveal()), &key) != nil || key.Type != "service_account" || key.ClientEmail == "" {
		return key, providers.Errorf(providers.ErrDenied, wants)
	}
	block, _ := pem.Decode([]byte(key.PrivateKey))
	if block == nil {
		return key, providers.Errorf(providers.ErrDenied, wants)
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if _, isRSA := private.(*rsa.PrivateKey); err != nil || !isRSA {
		return key, providers.Errorf(providers.ErrDenied, wants)
	}
	own, err := url.Parse(key.TokenURI)
	allowed, err2 := url.Parse(tokenURL)
	if err != nil || err2 != nil || originOf(own) != originOf(allowed) {
		return key, providers.Errorf(providers.ErrDenied, "the key's token_uri has another host than %s, which is the "+
			"only one that this type asks for tokens: use a key of that cloud", tokenURL)
	}
	return key, nil
}

// fetchByKey gets a token for a service account: it signs a short-lived JWT with the account's key.
func (d *device) fetchByKey(ctx context.Context, c credential, tokenURL string) (*oauth2.Token, error) {
	key, err := readServiceAccount(c.password, tokenURL)
	if err != nil {
		return nil, err
	}
	cfg := jwt.Config{
		Email: key.ClientEmail, PrivateKey: []byte(key.PrivateKey), PrivateKeyID: key.PrivateKeyID,
		Scopes: d.family.Login.Scopes, TokenURL: tokenURL,
	}
	client := *d.http
	sent := &inContext{ctx: ctx, next: client.Transport} // the library forgets ctx, and the class of an error
	client.Transport = sent
	got, err := cfg.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &client)).Token()
	if sent.err != nil {
		return nil, sent.err
	}
	return got, err
}

// inContext sends all requests of one log-in in one context, and keeps the last error.
type inContext struct {
	ctx  context.Context
	next http.RoundTripper
	err  error
}

// RoundTrip implements http.RoundTripper.
func (t *inContext) RoundTrip(r *http.Request) (a *http.Response, err error) {
	a, t.err = t.next.RoundTrip(r.WithContext(t.ctx))
	return a, t.err
}

// refusesKey reports whether a token endpoint's error means that the credentials are wrong: invalid_client (RFC 6749,
// 5.2), or for a signed JWT invalid_grant (RFC 7523, 3.1).
func refusesKey(e *oauth2.RetrieveError, kind string) bool {
	code := e.ErrorCode
	if kind == "serviceAccount" { // whose library does not read the body
		var body struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(e.Body, &body) // what is no JSON refuses nothing
		code = body.Error
	}
	return e.Response.StatusCode == http.StatusUnauthorized || code == "invalid_client" ||
		kind == "serviceAccount" && code == "invalid_grant"
}

var errNoIdentity = errors.New("401 Unauthorized: the device refused the token of the metadata server")

// signOAuth1 adds an OAuth 1 signature by the method PLAINTEXT (RFC 5849, 3.4.4), which is safe over TLS alone. The key
// is written as MAAS does it: consumer key, token key and token secret, with colons between.
func signOAuth1(h *http.Request, key providers.Secret, now time.Time) error {
	parts := strings.Split(key.Reveal(), ":")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return providers.Errorf(providers.ErrDenied, "the password is no API key: write its three parts with colons "+
			"between, as the device shows them")
	}
	for i, p := range parts {
		parts[i] = url.QueryEscape(p)
	}
	h.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", `+
		`oauth_consumer_key="%s", oauth_token="%s", oauth_signature="%%26%s", oauth_nonce="%s", oauth_timestamp="%d"`,
		parts[0], parts[1], parts[2], rand.Text(), now.Unix()))
	return nil
}
