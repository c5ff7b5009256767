package rest_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/test/kit"
)

// fake is the server of a preset's device, with one machine. What differs between families is in answer.
type fake struct {
	login   string // basic, bearer, certificate, cookie, digest, header, oauth1 or token
	user    string
	refuses int // the status for wrong credentials
	// of token: whether a log-in has the credentials; ok is false for other requests
	logsIn func(f *fake, r *http.Request) (proven, ok bool)
	header string                       // of token: where a request has it, after this prefix; of header: the prefix
	file   func(password string) string // the password's file; nil: the password alone
	url    string                       // of the fake, for the token endpoint

	mu       sync.Mutex // guards what follows
	on       bool       // the machine runs
	changing bool       // a power-off is under way, and never ends
	word     string     // overrides the device's own word
	password string
	fault    providertest.Fault
	changed  chan struct{} // closed when the fault changes
	logIns   int
	asked    []string // method and path with query

	requests providertest.Requests
	// answer returns status and body. Its caller holds the lock. acts reports whether a request acts.
	answer func(f *fake, r *http.Request) (status int, body any)
	acts   func(r *http.Request) bool
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault, changed := f.fault, f.changed
	proven, sent := f.checkLogin(r)
	if sent {
		f.logIns++
	}
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	f.requests.Add(f.acts(r) && (sent || f.login != "digest")) // without proof it gets a challenge, and does nothing
	if providertest.PlayFault(r, fault, changed) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !proven {
		status := f.refuses
		if !sent {
			status = http.StatusUnauthorized
		}
		w.Header().Set("WWW-Authenticate", `Digest realm="`+digestRealm+`", qop="auth", algorithm=SHA-256, nonce="n1"`)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ok":false}`))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	status, body := f.answer(f, r)
	if strings.HasSuffix(r.URL.Path, "/auth/tokens") { // Keystone's answer has the token in a header
		w.Header().Set("X-Subject-Token", "token-"+f.password)
	}
	if strings.HasPrefix(r.URL.Path, "/api/vmm/") {
		w.Header().Set("ETag", "v1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

const digestRealm = "shellypro4pm-f008d1d8b8b8"

// checkLogin reports whether a request proves the credentials, and whether it has any. The caller holds the lock.
func (f *fake) checkLogin(r *http.Request) (proven, sent bool) {
	auth := r.Header.Get("Authorization")
	switch f.login {
	case "basic":
		user, password, _ := r.BasicAuth()
		return user == f.user && password == f.password, auth != ""
	case "bearer":
		return auth == "Bearer "+f.password, auth != ""
	case "header":
		return auth == f.header+f.password, auth != ""
	case "cookie":
		cookie := r.Header.Get("Cookie")
		return cookie == "authenticationToken="+f.password, cookie != ""
	case "oauth1":
		want := url.QueryEscape("&" + f.password)
		return strings.HasPrefix(auth, "OAuth ") && strings.Contains(auth, `oauth_consumer_key="consumer", `) &&
			strings.Contains(auth, `oauth_token="token", oauth_signature="`+want+`", `), auth != ""
	case "token":
		if proven, ok := f.logsIn(f, r); ok {
			return proven, true
		}
		name, prefix, _ := strings.Cut(f.header, " ")
		return r.Header.Get(name) == prefix+"token-"+f.password, false
	}
	if f.login == "certificate" { // which the proxy in front has not asked for
		return f.fault != providertest.Denied, true
	}
	field := map[string]string{}
	for _, m := range digestField.FindAllStringSubmatch(auth, -1) {
		field[m[1]] = m[2]
	}
	hash := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	want := hash(strings.Join([]string{hash(f.user + ":" + digestRealm + ":" + f.password), field["nonce"], field["nc"],
		field["cnonce"], field["qop"], hash(r.Method + ":" + r.URL.RequestURI())}, ":"))
	return field["nonce"] == "n1" && field["response"] == want, auth != ""
}

// setPower is what a power action does. The caller holds the lock.
func (f *fake) setPower(on bool) {
	switch {
	case on:
		f.on, f.changing = true, false
	case f.fault == providertest.StaysOn:
	case f.fault == providertest.StaysChanging:
		f.on, f.changing = false, true
	default:
		f.on = false
	}
}

// edit changes the fake.
func (f *fake) edit(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// preset is a preset with its fake.
type preset struct {
	name   string
	target providers.Target // its ID without an address
	// the address begins IDs
	addressIDs bool
	strange    string // a word of no state
	offDelay   time.Duration
	values     map[string]string
	new        func() *fake
	missing    string // the ID of no machine; "": each machine has a device of its own
	// changes the settings for a fake at an address
	setup func(c *rest.Settings, f *fake, address string)
}

// open returns a provider for a fake at an address, and what writes its password.
func (s preset) open(t testing.TB, f *fake, address string, ca []byte) (providers.Provider, providers.Target,
	func(string)) {
	t.Helper()
	dir, target := t.TempDir(), s.target
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Error(err)
		}
		return file
	}
	file := func(password string) string {
		if f.file != nil {
			password = f.file(password)
		}
		return write("password", password)
	}
	cfg := presetAt(t, s.name, f.url)
	edit := func(c *rest.Settings) {
		c.Username, c.PasswordFile, c.Values = f.user, file(f.password), s.values
		c.OffDelay = s.offDelay
		if ca != nil {
			c.CAFile = write("ca.pem", string(ca))
		}
		if s.addressIDs {
			target.ID = strings.TrimSuffix(address+"/"+target.ID, "/")
		} else {
			c.Address = address
		}
		if f.login == "certificate" {
			c.PasswordFile = ""
			c.CertFile, c.KeyFile = write("client.pem", string(clientCertificate().Cert)),
				write("client-key.pem", string(clientCertificate().Key))
		}
		if s.setup != nil {
			s.setup(c, f, address)
		}
	}
	p := newOf(t, cfg, nil, edit)
	return p, target, func(password string) { file(password) }
}

// suite runs the conformance suite.
func (s preset) suite(t *testing.T, o providertest.Options) {
	o.Timeout = 20 * time.Second // the suite asks two hundred at once
	o.New = func(t *testing.T) *providertest.Bench {
		f := s.new()
		f.on, f.password, f.changed = true, "hunter2", make(chan struct{})
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		f.url = server.URL
		network := providertest.NewProxy(t, server.URL, providertest.ProxyOptions{HTTP: true})
		p, target, writePassword := s.open(t, f, "https://"+network.Addr(), network.CA())
		b := &providertest.Bench{
			Provider: p, Target: target, Proxy: network, Requests: f.requests.All,
			Running:  func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.on },
			LogIns:   func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.logIns },
			SetPower: func(on bool) { f.edit(func(f *fake) { f.on, f.changing = on, false }) },
			SetFault: func(fault providertest.Fault) {
				f.edit(func(f *fake) {
					f.fault, f.word = fault, ""
					close(f.changed)
					f.changed = make(chan struct{})
					switch fault {
					case providertest.StrangeWord:
						f.word = s.strange
					case providertest.Denied:
						f.password += "!"
					case providertest.NoFault:
						writePassword(f.password)
					}
				})
			},
		}
		if f.login == "certificate" {
			b.LogIns = nil
		}
		if !s.addressIDs {
			b.Missing = providers.Target{Node: "n9", ID: s.missing}
		}
		return b
	}
	providertest.Suite(t, o)
}

// ask asks once for the machine of a fake that edit has changed. It returns state and word, or the error's class.
func (s preset) ask(t *testing.T, edit func(*fake)) string {
	t.Helper()
	f := s.new()
	f.on, f.password, f.changed = true, "hunter2", make(chan struct{})
	edit(f)
	server := httptest.NewServer(f)
	defer server.Close()
	f.url = server.URL
	p, target, _ := s.open(t, f, server.URL, nil)
	defer func() { _ = p.(providers.Closer).Close(t.Context()) }()
	a := providers.Ask(t.Context(), p, "a", target, providers.Now)
	if a.Err != nil {
		return providers.ErrorClass(a.Err)
	}
	return fmt.Sprintf("%s %q", a.State, a.Raw)
}

// clientCertificate is one that a device may trust.
var clientCertificate = sync.OnceValue(func() kit.Credentials {
	return kit.NewAuthority("clients").Client(time.Now().Add(time.Hour))
})

// presetAt returns the empty configuration of a preset whose token endpoint is at an address.
func presetAt(t testing.TB, name, address string) *rest.PresetConfig {
	t.Helper()
	endpoint := []byte("tokenURL: " + address + "/token\n")
	f, bad := rest.Parse(tokenEndpoint.ReplaceAll(rest.Presets()[name+".yaml"], endpoint))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	return f.NewConfig()
}

var tokenEndpoint = regexp.MustCompile(`tokenURL: .*\n`)

// isPost reports whether a request is a POST.
func isPost(r *http.Request) bool { return r.Method == http.MethodPost }

// noOther is why a plug cannot be another machine's.
const noOther = "the device reports no identity"
