package rest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// device is a device with one outlet, which logs in as its field says.
type device struct {
	mu       sync.Mutex // guards what follows
	login    string
	password string
	token    string // of the session; "" refuses each
	answer   string // the body of a question; "": {"state":"off"}
	asked    []string
	logIns   int
}

func (d *device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.URL.Path == "/login" {
		d.logIns++
		body, _ := io.ReadAll(r.Body)
		var sent struct{ User, Password string }
		_ = json.Unmarshal(body, &sent)
		ok := sent.Password == d.password && sent.User == "fence"
		if d.login == "oauth2" {
			ok = strings.Contains(string(body), "client_secret="+d.password) &&
				strings.Contains(string(body), "client_id=fence")
		}
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"`+d.password+`"}`)
			return
		}
		d.token = fmt.Sprintf("t%d", d.logIns)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Subject-Token", d.token)
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, d.token)
		return
	}
	auth := r.Header.Get("Authorization")
	ok := false
	switch d.login {
	case "none":
		ok = auth == ""
	case "basic":
		user, password, _ := r.BasicAuth()
		ok = user == "fence" && password == d.password
	case "bearer":
		ok = auth == "Bearer "+d.password
	case "header":
		ok = r.Header.Get("X-Key") == "fence:"+d.password+":east"
	case "digest":
		ok = d.digestOK(r)
	case "token":
		ok = d.token != "" && r.Header.Get("Cookie") == "session="+d.token
	case "oauth2":
		ok = d.token != "" && auth == "Bearer "+d.token
	}
	d.asked = append(d.asked, r.URL.EscapedPath())
	if !ok {
		w.Header().Set("WWW-Authenticate", `Digest realm="outlets", qop="auth", algorithm=SHA-256, nonce="n1"`)
		http.Error(w, "no: "+d.password, http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if d.answer == "" {
		d.answer = `{"state":"off"}`
	}
	_, _ = io.WriteString(w, d.answer)
}

var digestField = regexp.MustCompile(`(\w+)="?([^",]*)"?`)

// digestOK computes the proof of RFC 7616 by itself.
func (d *device) digestOK(r *http.Request) bool {
	f := map[string]string{}
	for _, m := range digestField.FindAllStringSubmatch(r.Header.Get("Authorization"), -1) {
		f[m[1]] = m[2]
	}
	hash := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	want := hash(strings.Join([]string{hash("fence:outlets:" + d.password), f["nonce"], f["nc"], f["cnonce"], f["qop"],
		hash(r.Method + ":" + r.URL.RequestURI())}, ":"))
	return f["nonce"] == "n1" && f["response"] == want
}

// newOutlet returns a provider by a description, for a device at that address.
func newOutlet(t *testing.T, address, description string) (
	p providers.Provider, password string, bad []providers.Problem,
) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "description.yaml")
	password = filepath.Join(dir, "password")
	for name, text := range map[string]string{file: description, password: "hunter2"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &rest.Config{Description: file, Settings: rest.Settings{Address: address}}
	if !strings.Contains(description, "kind: none") {
		c.Username, c.PasswordFile = "fence", password
		if strings.Contains(description, "kind: bearer") {
			c.Username = ""
		}
	}
	if bad = c.Validate(); len(bad) > 0 {
		return nil, "", bad
	}
	p, err := c.New(providers.Options{Name: "a", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.(providers.Closer).Close(context.Background()) })
	return p, password, nil
}

var logins = map[string]string{
	"none": "{kind: none}", "basic": "{kind: basic}", "digest": "{kind: digest}", "bearer": "{kind: bearer}",
	"header": `{kind: header, header: X-Key, value: "{user}:{password}:{zone}"}`,
	"token": `
  kind: token
  request: {send: POST /login, json: {user: "{user}", password: "{password}"}}
  token: login.header["x-subject-token"]
  lifetime: 1h
  header: Cookie
  value: session={token}`,
	"oauth2": "{kind: oauth2, style: params, tokenURL: ADDRESS/login}",
}

// Each kind of login works, renews itself, and sends a refused password once. No error repeats a secret.
func TestLogins(t *testing.T) {
	for kind, login := range logins {
		t.Run(kind, func(t *testing.T) {
			d := &device{login: kind, password: "hunter2"}
			server := httptest.NewServer(d)
			defer server.Close()
			text := strings.Replace(outlets, "login: {kind: basic}",
				"values: {zone: {what: the zone, default: east}}\nlogin: "+
					strings.ReplaceAll(login, "ADDRESS", server.URL), 1)
			p, password, bad := newOutlet(t, server.URL, text)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			target := providers.Target{Node: "n1", ID: "1"}
			ask := func() providers.Answer { return providers.Ask(t.Context(), p, "a", target, providers.Now) }
			for range 3 {
				if a := ask(); a.State != providers.PowerOff || a.Err != nil {
					t.Fatalf("got %s, %v", a.State, a.Err)
				}
			}
			if kind == "token" || kind == "oauth2" {
				if d.logIns != 1 {
					t.Errorf("got %d log-ins for three questions, want 1", d.logIns)
				}
				d.mu.Lock()
				d.token = "" // the session has ended
				d.mu.Unlock()
				if a := ask(); a.State != providers.PowerOff || d.logIns != 2 {
					t.Errorf("after the session's end: got %s, %v, %d log-ins", a.State, a.Err, d.logIns)
				}
			}
			if kind == "none" {
				return
			}
			if kind == "token" || kind == "oauth2" { // a token belongs to the password that it was given for
				d.mu.Lock()
				d.password = "hunter4"
				d.mu.Unlock()
				if err := os.WriteFile(password, []byte("hunter4"), 0o600); err != nil {
					t.Fatal(err)
				}
				if a := ask(); a.State != providers.PowerOff || d.logIns != 3 {
					t.Errorf("with another password: got %s, %v, %d log-ins, want 3", a.State, a.Err, d.logIns)
				}
			}
			d.mu.Lock()
			d.password, d.token = "hunter3", ""
			d.asked, d.logIns = nil, 0
			d.mu.Unlock()
			for range 3 {
				a := ask()
				if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrDenied) {
					t.Errorf("refused: got %s, %v", a.State, a.Err)
				}
				if text := fmt.Sprint(a.Err); strings.Contains(text, "hunter") ||
					regexp.MustCompile(`\bt2\b`).MatchString(text) { // the path of a file may have these two
					t.Errorf("the error repeats a secret: %s", text)
				}
			}
			sent := len(d.asked)
			if kind == "token" || kind == "oauth2" {
				sent = d.logIns
			}
			if sent != 1 {
				t.Errorf("the refused password was sent %d times, want 1", sent)
			}
			if err := os.WriteFile(password, []byte("hunter3\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if a := ask(); a.State != providers.PowerOff {
				t.Errorf("with the new password: got %s, %v", a.State, a.Err)
			}
		})
	}
}

// An answer that the expressions cannot read exactly is unknown.
func TestStrangeAnswers(t *testing.T) {
	many := `{"state":"off","list":[` + strings.Repeat("1,", 20_000) + `1]}`
	uuid := `{"state":"off","uuid":"` + guestUUID + `"}`
	for _, tc := range []struct {
		name, answer, old, new string
		want                   providers.PowerState
		class                  string
	}{
		{"off", `{"state":"off"}`, "", "", providers.PowerOff, "ok"},
		{"another word", `{"state":"Off"}`, "", "", providers.PowerUnknown, "ok"},
		{"no state", `{}`, "", "", providers.PowerUnknown, "unreachable"},
		{"an empty word", `{"state":""}`, "", "", providers.PowerUnknown, "unreachable"},
		{"half a document", `{"state":"off"`, "", "", providers.PowerUnknown, "unreachable"},
		{"half a document, of which no expression reads anything", `{"state":"off"`, `got.body.state == "off"`,
			`got.status == 200`, providers.PowerUnknown, "unreachable"},
		{"two documents", `{"state":"off"}{"state":"on"}`, "", "", providers.PowerUnknown, "unreachable"},
		{"no document", " ", "", "", providers.PowerUnknown, "unreachable"},
		{"a state that the contract does not have", `{"state":"off"}`, `"state": "Off"`, `"state": "off"`,
			providers.PowerUnknown, "permanent"},
		{"an expression that costs too much", many, "got.body.state ==",
			`got.body.list.exists(a, got.body.list.exists(b, a + b > 2.0)) ? ` +
				`{"state": "Off", "word": "off"} : got.body.state ==`, providers.PowerUnknown, "unreachable"},
		{"an identity", uuid, "  power:", "  uuid: got.body.uuid\n  power:", providers.PowerOff, "ok"},
		{"no identity", `{"state":"off"}`, "  power:", "  uuid: got.body.uuid\n  power:", providers.PowerUnknown,
			"unreachable"},
		{"an identity that is none", `{"state":"off","uuid":"00000000-0000-0000-0000-000000000000"}`, "  power:",
			"  uuid: got.body.uuid\n  power:", providers.PowerUnknown, "unreachable"},
		{"the device reports that it knows none", `{"state":"off"}`, "  power:", "  uuid: " +
			"got.body.?uuid.orValue(\"\")\n  power:",
			providers.PowerOff, "ok"},
		{"another machine's identity", strings.Replace(uuid, guestUUID, otherUUID, 1), "  power:",
			"  uuid: got.body.uuid\n  power:", providers.PowerUnknown, "identity"},
		{"addresses", `{"state":"off","ips":["192.0.2.7"]}`, "  power:", "  addresses: got.body.ips\n  power:",
			providers.PowerOff, "ok"},
		{"no address", `{"state":"off","ips":[]}`, "  power:", "  addresses: got.body.ips\n  power:",
			providers.PowerUnknown, "unreachable"},
		{"an address that every machine has", `{"state":"off","ips":["127.0.0.1"]}`, "  power:",
			"  addresses: got.body.ips\n  power:", providers.PowerUnknown, "unreachable"},
		{"a text that is no address", `{"state":"off","ips":["192.0.2.7","n1"]}`, "  power:",
			"  addresses: got.body.ips\n  power:", providers.PowerUnknown, "unreachable"},
		{"another machine's addresses", `{"state":"off","ips":["192.0.2.8"]}`, "  power:",
			"  addresses: got.body.ips\n  power:", providers.PowerUnknown, "identity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &device{login: "basic", password: "hunter2", answer: tc.answer}
			server := httptest.NewServer(d)
			defer server.Close()
			f, bad := rest.Parse([]byte(strings.Replace(outlets, tc.old, tc.new, 1)))
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			t.Setenv("OUTLET_PASSWORD", "hunter2")
			c := f.NewConfig()
			c.Address, c.Username, c.PasswordEnv = server.URL, "fence", "OUTLET_PASSWORD"
			p, err := c.New(providers.Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			target := providers.Target{Node: "n1", ID: "1", SystemUUID: guestUUID,
				Addresses: providers.NewAddresses("192.0.2.7")}
			a := providers.Ask(t.Context(), p, "a", target, providers.Now)
			if a.State != tc.want || providers.ErrorClass(a.Err) != tc.class {
				t.Errorf("got %s, %s (%v); want %s, %s", a.State, providers.ErrorClass(a.Err), a.Err, tc.want, tc.class)
			}
		})
	}
}

// A variable stays within its segment of the path, or nothing is sent.
func TestVariablesInPaths(t *testing.T) {
	for id, want := range map[string]string{
		"1": "/outlets/1", "a b": "/outlets/a%20b", "1/../2": "/outlets/1%2F..%2F2", "1?x=2#y": "/outlets/1%3Fx=2%23y",
		"%2e%2e": "/outlets/%252e%252e", "..": "", ".": "", "1\r\nHost: evil": "",
		"@evil.example.net": "/outlets/@evil.example.net",
	} {
		d := &device{login: "none"}
		server := httptest.NewServer(d)
		text := strings.Replace(strings.Replace(outlets, "[0-9]+", "(?s:.+)", 1), "kind: basic", "kind: none", 1)
		p, _, bad := newOutlet(t, server.URL, text)
		if len(bad) > 0 {
			t.Fatal(bad)
		}
		_, err := p.State(t.Context(), providers.Target{Node: "n1", ID: id})
		if got := strings.Join(d.asked, " "); got != want || (err != nil) != (want == "") {
			t.Errorf("ID %q: got %q, %v; want %q", id, got, err, want)
		}
		server.Close()
	}
}

func TestValidate(t *testing.T) {
	server := httptest.NewServer(&device{})
	defer server.Close()
	withoutCases, _, _ := strings.Cut(outlets, "cases:")
	for _, tc := range []struct{ name, address, description, want string }{
		{"a fault in the description", server.URL, strings.Replace(outlets, "kind: basic", "kind: ntlm", 1),
			"description"},
		{"a case with another result", server.URL, strings.Replace(outlets, `word: "on"}`, `word: "up"}`, 2),
			"description"},
		{"no cases", server.URL, withoutCases, "description"},
		{"a value is missing", server.URL, strings.Replace(outlets, "login:", "values: {zone: {what: the "+
			"zone}}\nlogin:", 1),
			"values.zone"},
		{"clear text", "http://192.0.2.7", outlets, "address"},
		{"no address", "", outlets, "address"},
	} {
		_, _, bad := newOutlet(t, tc.address, tc.description)
		var got []string
		for _, p := range bad {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got problems at %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A value that the description does not have is a fault, which names those that it has.
func TestUnknownValue(t *testing.T) {
	for values, want := range map[string]string{
		"": "values.zoen: unknown key: this type has no values",
		"values: {zone: {what: the zone, default: a}, area: {what: the area, default: b}}\n": "values.zoen: unknown " +
			"key: known are area, zone",
	} {
		f, bad := rest.Parse([]byte(strings.Replace(outlets, "login:", values+"login:", 1)))
		if len(bad) > 0 {
			t.Fatal(bad)
		}
		t.Setenv("OUTLET_PASSWORD", "hunter2")
		c := f.NewConfig()
		c.Address, c.Username, c.PasswordEnv = "https://192.0.2.7", "fence", "OUTLET_PASSWORD"
		c.Values = map[string]string{"zoen": "b"}
		got := ""
		for _, p := range c.Validate() {
			got += p.Path + ": " + p.Text
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A redirect is no answer: the credentials would go where the device says.
func TestRedirects(t *testing.T) {
	asked := 0
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"state":"off"}`)
	}))
	defer thief.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(thief.URL, status))
		p, _, bad := newOutlet(t, server.URL, outlets)
		if len(bad) > 0 {
			t.Fatal(bad)
		}
		target := providers.Target{Node: "n1", ID: "1"}
		a := providers.Ask(t.Context(), p, "a", target, providers.Now)
		err := p.PowerOff(t.Context(), target, func() error { return nil })
		if a.State != providers.PowerUnknown || a.Err == nil || err == nil || asked != 0 {
			t.Errorf("%d: got %s, %v; PowerOff %v; the other host was asked %d times", status,
				a.State, a.Err, err, asked)
		}
		server.Close()
	}
}

// Each setting that removes a check is shown as a risk.
func TestCautions(t *testing.T) {
	c := rest.PresetConfig{}
	if got := c.Cautions(); len(got) > 0 {
		t.Errorf("without one: got %v", got)
	}
	c.InsecureSkipVerify, c.AllowHTTP = true, true
	if got := c.Cautions(); len(got) != 2 || got[0].Path != "insecureSkipVerify" || got[1].Path != "allowHTTP" {
		t.Errorf("got %v", got)
	}
}

// A device that refuses each token that it gave gets one log-in: each more could lock the account.
func TestTokenThatNeverWorks(t *testing.T) {
	d := &device{login: "refuses", password: "hunter2"}
	server := httptest.NewServer(d)
	defer server.Close()
	p, _, bad := newOutlet(t, server.URL, strings.Replace(outlets, "login: {kind: basic}",
		"login: "+logins["token"], 1))
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for range 3 {
		a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n1", ID: "1"}, providers.Now)
		if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrDenied) {
			t.Errorf("got %s, %v", a.State, a.Err)
		}
	}
	if d.logIns != 1 {
		t.Errorf("got %d log-ins, want 1", d.logIns)
	}
}
