package rest_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// cloud is the fake of an API with its token endpoint and its metadata server, all on one address.
type cloud struct {
	mu     sync.Mutex // guards what follows
	key    *rsa.PublicKey
	logIns int
	token  string   // that the API accepts
	asked  []string // with their Authorization
	life   any      // of a token, in seconds
	// status and body of the endpoint instead of a token; 0: a token
	status int
	body   string
	moved  string // redirects log-ins to this address
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/outlets/1" {
		c.asked = append(c.asked, r.Header.Get("Authorization"))
		if c.token == "" || r.Header.Get("Authorization") != "Bearer "+c.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"state":"off"}`)
		return
	}
	c.logIns++
	switch ok := r.URL.Path == "/token" && c.signed(r) || r.URL.Path == "/metadata" && r.Method == http.MethodGet &&
		r.Header.Get("Metadata-Flavor") == "Google" && r.Header.Get("Authorization") == ""; {
	case c.moved != "":
		http.Redirect(w, r, c.moved, http.StatusTemporaryRedirect)
	case c.status != 0:
		w.WriteHeader(c.status)
		_, _ = io.WriteString(w, c.body)
	case !ok:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
	default:
		c.token = fmt.Sprintf("t%d", c.logIns)
		_ = json.NewEncoder(w).Encode(object{"access_token": c.token, "token_type": "Bearer", "expires_in": c.life})
	}
}

// signed reports whether a request has a JWT of the key for this endpoint.
func (c *cloud) signed(r *http.Request) bool {
	parts := strings.Split(r.FormValue("assertion"), ".")
	if r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || len(parts) != 3 {
		return false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	signature, err2 := base64.RawURLEncoding.DecodeString(parts[2])
	var claim struct {
		Issuer   string `json:"iss"`
		Scope    string `json:"scope"`
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return err == nil && err2 == nil && json.Unmarshal(claims, &claim) == nil &&
		claim.Issuer == "fence@example.iam.gserviceaccount.com" && claim.Scope == "compute" &&
		claim.Audience == "http://"+r.Host+"/token" && time.Until(time.Unix(claim.Expires, 0)) < 2*time.Hour &&
		rsa.VerifyPKCS1v15(c.key, crypto.SHA256, sum[:], signature) == nil
}

// edit changes the cloud.
func (c *cloud) edit(change func(*cloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// newKey returns a key's file for the token endpoint at an address.
func newKey(t testing.TB, address string) (file string, public *rsa.PublicKey) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "fence@example.iam.gserviceaccount.com", "private_key_id": "k1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   address + "/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text), &key.PublicKey
}

const byMetadata = `metadata: {send: GET /metadata, header: {Metadata-Flavor: Google}}`

// openCloud returns a provider whose description has a login. file is the password's content; "" sets none.
func openCloud(t *testing.T, c *cloud, login, file string, now providers.Clock) (
	p providers.Provider, ask func() providers.Answer,
) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	f, bad := rest.Parse([]byte(strings.Replace(outlets, "{kind: basic}",
		strings.ReplaceAll(login, "ADDRESS", server.URL), 1)))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	cfg := f.NewConfig()
	cfg.Address = server.URL
	if file != "" {
		password := filepath.Join(t.TempDir(), "key.json")
		if err := os.WriteFile(password, []byte(strings.ReplaceAll(file, "ADDRESS", server.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.PasswordFile = password
	}
	if problems := cfg.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := cfg.New(providers.Options{Name: "a", Now: now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.(providers.Closer).Close(t.Context()) })
	if got := rest.Metadata(p); got != "http://169.254.169.254" {
		t.Errorf("the metadata server is %s", got)
	}
	rest.SetMetadata(p, server.URL)
	target := providers.Target{Node: "n1", ID: "1"}
	if now == nil {
		now = time.Now
	}
	clock := func() providers.Instant { return providers.InstantOf(now()) }
	return p, func() providers.Answer { return providers.Ask(t.Context(), p, "a", target, clock) }
}

// A token of a cloud serves several questions, is renewed before its end, and once if the API refuses it.
func TestCloudLogins(t *testing.T) {
	file, public := newKey(t, "ADDRESS")
	for _, tc := range []struct {
		name, login, file string
		life              any
	}{
		{"a service account", "{kind: serviceAccount, tokenURL: ADDRESS/token, scopes: [compute]}", file, 3600},
		{"a service account beside a metadata server",
			"{kind: serviceAccount, tokenURL: ADDRESS/token, scopes: [compute], " + byMetadata + "}", file, 3600},
		{"Google's metadata server", "{kind: metadata, " + byMetadata + "}", "", 3600},
		{"Azure's metadata server", "{kind: metadata, " + byMetadata + "}", "", "3600"},
		{"the metadata server without a service account",
			"{kind: serviceAccount, tokenURL: ADDRESS/token, scopes: [compute], " + byMetadata + "}", "", 3600},
		{"the metadata server without a client",
			"{kind: oauth2, tokenURL: ADDRESS/token, style: params, " + byMetadata + "}", "", 3600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cloud{key: public, life: tc.life}
			now := time.Now()
			_, ask := openCloud(t, c, tc.login, tc.file, func() time.Time { return now })
			for _, step := range []struct {
				name   string
				edit   func()
				logIns int
			}{
				{"the first question", func() {}, 1},
				{"the second", func() {}, 1},
				{"a minute before the token's end", func() { now = now.Add(59 * time.Minute) }, 1},
				{"twenty seconds before its end", func() { now = now.Add(40 * time.Second) }, 2},
				{"the API has forgotten it", func() { c.edit(func(c *cloud) { c.token = "" }) }, 3},
			} {
				step.edit()
				if a := ask(); a.State != providers.PowerOff || c.logIns != step.logIns {
					t.Errorf("%s: got %s, %v after %d log-ins, want Off after %d", step.name, a.State, a.Err, c.logIns,
						step.logIns)
				}
			}
		})
	}
}

// What a cloud refuses is an error of the right class, which repeats no secret. A refused key is sent once.
func TestCloudLoginFails(t *testing.T) {
	file, public := newKey(t, "ADDRESS")
	other, _ := newKey(t, "ADDRESS")
	elsewhere, _ := newKey(t, "https://thief.example.net")
	const byKey = "{kind: serviceAccount, tokenURL: ADDRESS/token, scopes: [compute]}"
	const meta = "{kind: metadata, " + byMetadata + "}"
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host got %s %s", r.Method, r.URL)
	}))
	defer thief.Close()
	for _, tc := range []struct {
		name, login, file string
		edit              func(*cloud)
		class, text       string
		logIns            int // of three questions
	}{
		{"another key", byKey, other, nil, "denied", "refuses the password", 1},
		{"invalid_client", byKey, file, func(c *cloud) { c.status, c.body = 400, `{"error":"invalid_client"}` },
			"denied", "refuses the password", 1},
		{"401", byKey, file, func(c *cloud) { c.status = 401 }, "denied", "refuses the password", 1},
		{"a fault of the endpoint", byKey, file, func(c *cloud) { c.status, c.body = 503, `{"error":"invalid` },
			"unreachable", "503", 3},
		{"no token", byKey, file, func(c *cloud) { c.status, c.body = 200, `{"token_type":"Bearer"}` }, "unreachable",
			"no token", 3},
		{"no JSON", byKey, file, func(c *cloud) { c.status, c.body = 200, `<html>` }, "unreachable", "no token", 3},
		{"a redirect", byKey, file, func(c *cloud) { c.moved = thief.URL }, "permanent", "307", 3},
		{"a key for another host", byKey, elsewhere, nil, "denied", "token_uri", 0},
		{"a password", byKey, "hunter2", nil, "denied", "JSON file of a key", 0},
		{"a client's file", byKey, strings.Replace(file, "service_account", "authorized_user", 1), nil, "denied",
			"JSON file of a key", 0},
		{"a key that is cut off", byKey, strings.Replace(file, `PRIVATE KEY-----\n`, `PRIVATE KEY-----\nx`, 1), nil,
			"denied", "JSON file of a key", 0},
		{"no identity", meta, "", func(c *cloud) { c.status = 404 }, "denied", "has this machine an identity", 3},
		{"the metadata server is busy", meta, "", func(c *cloud) { c.status = 429 }, "unreachable", "429", 3},
		{"a fault of the metadata server", meta, "", func(c *cloud) { c.status = 500 }, "unreachable", "500", 3},
		{"no token of the metadata server", meta, "", func(c *cloud) { c.status, c.body = 200, `{"expires_in":5}` },
			"unreachable", "is no token", 3},
		{"no end of its token", meta, "", func(c *cloud) { c.status, c.body = 200, `{"access_token":"opaque-4711"}` },
			"unreachable", "is no token", 3},
		{"an end that is no number", meta, "",
			func(c *cloud) { c.status, c.body = 200, `{"access_token":"opaque-4711","expires_in":"soon"}` }, "unreachable",
			"is no token", 3},
		{"an end in a hundred years", meta, "",
			func(c *cloud) { c.status, c.body = 200, `{"access_token":"opaque-4711","expires_in":3155760000}` }, "unreachable",
			"is no token", 3},
		{"a redirect of the metadata server", meta, "", func(c *cloud) { c.moved = thief.URL }, "permanent", "307", 3},
		{"a token that the API refuses", meta, "",
			func(c *cloud) { c.status, c.body = 200, `{"access_token":"opaque-4711","expires_in":3600}` }, "denied",
			"refused the token of the metadata server", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cloud{key: public, life: 3600}
			if tc.edit != nil {
				tc.edit(c)
			}
			_, ask := openCloud(t, c, tc.login, tc.file, nil)
			for range 3 {
				a := ask()
				got := fmt.Sprint(a.Err)
				if a.State != providers.PowerUnknown || providers.ErrorClass(a.Err) != tc.class ||
					!strings.Contains(got, tc.text) {
					t.Errorf("got %s, %v; want %s with %q", a.State, a.Err, tc.class, tc.text)
				}
				for _, secret := range []string{"hunter2", "PRIVATE", "opaque-4711", "Invalid JWT", "thief", "fence@"} {
					if strings.Contains(got, secret) {
						t.Errorf("the error repeats %q: %s", secret, got)
					}
				}
			}
			if c.logIns != tc.logIns {
				t.Errorf("got %d log-ins for three questions, want %d", c.logIns, tc.logIns)
			}
			if sent := slices.Contains(c.asked, ""); sent {
				t.Error("a question was sent without a token")
			}
		})
	}
}

// A log-in of a service account ends with its provider, although the library's own request has no context.
func TestServiceAccountEnds(t *testing.T) {
	waits := make(chan struct{})
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(waits)
		<-r.Context().Done()
		close(ended)
	}))
	defer silent.Close()
	file, _ := newKey(t, silent.URL)
	p, ask := openCloud(t, &cloud{}, "{kind: serviceAccount, tokenURL: "+silent.URL+"/token, scopes: [compute]}", file,
		nil)
	got := make(chan error)
	go func() { got <- ask().Err }()
	<-waits
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = p.(providers.Closer).Close(soon)
	if err := <-got; err == nil || errors.Is(err, providers.ErrDenied) {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	case <-time.After(15 * time.Second): // less than a log-in may take
		t.Error("the request goes on after Close")
	}
}

// A log-in goes to the address that the operator's value names, and no credentials go to the device itself.
func TestLoginAddress(t *testing.T) {
	identity := &device{login: "token", password: "hunter2"}
	login := httptest.NewServer(identity)
	defer login.Close()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Cookie"))
		_, _ = io.WriteString(w, `{"state":"off"}`)
	}))
	defer server.Close()
	text := strings.Replace(outlets, "login: {kind: basic}", "values: {identity: {what: where to log in}}\nlogin:"+
		logins["token"]+"\n  address: identity", 1)
	for _, tc := range []struct{ name, value, want string }{
		{"the log-in's own server", login.URL, ""},
		{"no address", "", "values.identity"},
		{"clear text to another machine", "http://192.0.2.7", "values.identity"},
		{"no HTTP", "file:///etc/passwd", "values.identity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked, identity.logIns = nil, 0
			f, bad := rest.Parse([]byte(text))
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			t.Setenv("OUTLET_PASSWORD", "hunter2")
			c := f.NewConfig()
			c.Address, c.Username, c.PasswordEnv = server.URL, "fence", "OUTLET_PASSWORD"
			c.Values = map[string]string{"identity": tc.value}
			got := ""
			for _, p := range c.Validate() {
				got += p.Path
			}
			if got != tc.want {
				t.Errorf("got problems at %q, want %q", got, tc.want)
			}
			p, err := c.New(providers.Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n1", ID: "1"}, providers.Now)
			if tc.want != "" {
				if a.State != providers.PowerUnknown || len(asked) > 0 || identity.logIns > 0 {
					t.Errorf("got %s, %v after %q and %d log-ins, want Unknown", a.State, a.Err, asked, identity.logIns)
				}
				return
			}
			if a.State != providers.PowerOff || !slices.Equal(asked, []string{"GET /outlets/1 session=t1"}) {
				t.Errorf("got %s, %v after %q", a.State, a.Err, asked)
			}
		})
	}
}

// A drill gets a new token once an hour, so it notices a key that was withdrawn while the old token still works.
func TestDrillLogsInAgain(t *testing.T) {
	file, public := newKey(t, "ADDRESS")
	now := time.Now()
	c := &cloud{key: public, life: 7200}
	p, _ := openCloud(t, c, "{kind: serviceAccount, tokenURL: ADDRESS/token, scopes: [compute]}", file,
		func() time.Time { return now })
	drill := func() error {
		_, err := p.State(providers.ForDrill(t.Context()), providers.Target{Node: "n1", ID: "1"})
		return err
	}
	if err := drill(); err != nil {
		t.Fatal(err)
	}
	c.edit(func(c *cloud) { c.status = 401 })
	now = now.Add(59 * time.Minute)
	if err := drill(); err != nil {
		t.Errorf("within the hour: got %v", err)
	}
	now = now.Add(2 * time.Minute)
	var refused *providers.RefusedPassword
	if err := drill(); !errors.As(err, &refused) {
		t.Errorf("an hour later: got %v, want a refused password", err)
	}
}
