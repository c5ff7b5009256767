package remote_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseHTTP(t *testing.T) {
	for _, tt := range []struct {
		address string
		allow   bool
		want    string // "": an error
	}{
		{"https://10.0.0.7", false, "https://10.0.0.7"},
		{"HTTPS://BMC.Example.:0443/x", false, "https://bmc.example/x"},
		{"https://[FD00::7]:08443/", false, "https://[fd00::7]:8443/"},
		{"https://[::ffff:10.0.0.7]", false, "https://10.0.0.7"},
		{"http://127.0.0.1:80", false, "http://127.0.0.1"},
		{"http://localhost:8000", false, "http://localhost:8000"},
		{"http://[::1]", false, "http://[::1]"},
		{"http://10.0.0.7", false, ""},
		{"http://10.0.0.7:80", true, "http://10.0.0.7"},
		{"http://localhost.example", false, ""},
		{"http://127.0.0.1.example", false, ""},
		{"10.0.0.7", false, ""},
		{"https:10.0.0.7", false, ""},
		{"ftp://10.0.0.7", true, ""},
		{"https://", false, ""},
		{"https://root:hunter2@10.0.0.7", false, ""},
		{"https://root:hun ter2@10.0.0.7", false, ""},
		{"https://10.0.0.7?hunter2", false, ""},
		{"https://10.0.0.7?", false, ""},
		{"https://10.0.0.7#hunter2", false, ""},
		{"https://10.0.0.7:0", false, ""},
		{"https://10.0.0.7:70000", false, ""},
		{"https://[fe80::1%25eth0]", false, ""},
		{"https://bmc.example..", false, ""},
		{"https://..", false, ""},
	} {
		u, err := remote.ParseHTTP(tt.address, tt.allow)
		if (err == nil) != (tt.want != "") || err == nil && u.String() != tt.want {
			t.Errorf("%q: got %v, %v; want %q", tt.address, u, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "hun") {
			t.Errorf("%q: the error repeats it: %v", tt.address, err)
		}
	}
}

func FuzzParseHTTP(f *testing.F) {
	for _, s := range []string{
		"https://10.0.0.7", "http://[::1]:80/a", "https://u:p@h", "https://Host.:443/%2e", "http://localhost",
		"https://.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := remote.ParseHTTP(s, false)
		if err != nil {
			return
		}
		if u.User != nil || u.RawQuery != "" ||
			u.Scheme != "https" && !(u.Scheme == "http" && remote.IsLoopback(u.Hostname())) {
			t.Errorf("%q became %s", s, u)
		}
		again, err := remote.ParseHTTP(u.Scheme+"://"+u.Host, false)
		if err != nil || again.Host != u.Host {
			t.Errorf("%q: %q is written in two ways: %v, %v", s, u.Host, again, err)
		}
	})
}

func TestClass(t *testing.T) {
	setting := errors.New("no answer within 5s (timeout)")
	live, late, gone := t.Context(), ended(t, setting), canceled(t)
	boom := errors.New("boom")
	deadline := fmt.Errorf("dialling: %w", context.DeadlineExceeded)
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
		text string
	}{
		{"nil", live, nil, "ok", ""},
		{"nil, late", late, nil, "ok", ""},
		{"no class", live, boom, "unreachable", "boom"},
		{"a socket that may not be opened", live,
			&net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: fs.ErrPermission}}, "denied",
			"dial: connect: permission denied"},
		{"a class", live, providers.WithClass(providers.ErrDenied, boom), "denied", "boom"},
		{"a deadline of the type's own", live, deadline, "unreachable", "dialling: context deadline exceeded"},
		{"canceled by the type itself", live, context.Canceled, "unreachable", "context canceled"},
		{"no class, late", late, boom, "unreachable", setting.Error()},
		{"unreachable, late", late, providers.WithClass(providers.ErrUnreachable, boom), "unreachable",
			setting.Error()},
		{"a refusal, late", late, providers.WithClass(providers.ErrDenied, boom), "denied", "boom"},
		{"no class, given up", gone, boom, "canceled", "context canceled"},
		{"unreachable, given up", gone, providers.WithClass(providers.ErrUnreachable, boom), "canceled",
			"context canceled"},
	} {
		got := remote.EnsureClass(tt.ctx, tt.err)
		if providers.ErrorClass(got) != tt.want || providers.ErrorText(got) != tt.text {
			t.Errorf("%s: got %s: %q, want %s: %q", tt.name, providers.ErrorClass(got), providers.ErrorText(got),
				tt.want, tt.text)
		}
	}
}

func ended(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), cause)
	t.Cleanup(cancel)
	return ctx
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestDo(t *testing.T) {
	n7 := providers.Target{Node: "n7"}
	err := remote.RunCall(t.Context(), "power off", n7, "redfish rack-a ", func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a call without a deadline is not bounded")
		}
		return errors.New("503 Service Unavailable")
	})
	if got := fmt.Sprint(err); got != "power off node n7 (redfish rack-a): 503 Service Unavailable" ||
		!errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if err := remote.RunCall(t.Context(), "power off", n7, "", func(context.Context) error { return nil }); err != nil {
		t.Errorf("got %v", err)
	}
	if err := remote.RunCall(canceled(t), "power off", n7, "",
		func(context.Context) error { t.Error("called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up before it began: got %v", err)
	}
}

func TestHTTPClass(t *testing.T) {
	for want, codes := range map[error][]int{
		providers.ErrDenied:      {401, 403},
		providers.ErrNotFound:    {404, 410},
		providers.ErrUnreachable: {408, 423, 425, 429, 500, 502, 503, 504, 599},
		providers.ErrPermanent:   {200, 302, 400, 405, 409, 412, 501},
	} {
		for _, code := range codes {
			if got := remote.HTTPClass(code); !errors.Is(got, want) {
				t.Errorf("%d: got %v, want %v", code, got, want)
			}
		}
	}
}

// A password is read at each use: the file may be rotated.
func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	c := remote.Credentials{PasswordFile: file}
	if got := fmt.Sprint(paths(c.Validate())); got != "[username passwordFile]" {
		t.Errorf("got problems at %s", got)
	}
	c.Username = "fence"
	if _, err := c.ReadPassword(); !errors.Is(err, providers.ErrDenied) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	for _, want := range []string{"one", "two"} {
		write(t, file, []byte(want+"\n"))
		if got, err := c.ReadPassword(); err != nil || got.Reveal() != want || len(c.Validate()) != 0 {
			t.Errorf("got %q, %v; want %q", got.Reveal(), err, want)
		}
	}
}

func paths(problems []providers.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Path)
	}
	return out
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A refused credential is not sent again for a while, but another one is.
func TestRefusals(t *testing.T) {
	var r remote.Refusals
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, two := r.HashCredential("fence", providers.NewSecret("hunter2")),
		r.HashCredential("fence", providers.NewSecret("hunter3"))
	if one == two || one != r.HashCredential("fence", providers.NewSecret("hunter2")) ||
		one == r.HashCredential("fenceh", providers.NewSecret("unter2")) {
		t.Error("sums do not tell credentials apart")
	}
	if err := r.CheckRefused("a", one, now); err != nil {
		t.Errorf("before: got %v", err)
	}
	said := r.RememberDenied("a", "/etc/bmc/password", one, now, errors.New("401 Unauthorized"))
	var refused *providers.RefusedPassword
	if !errors.Is(said, providers.ErrDenied) || !errors.As(said, &refused) || refused.Place != "/etc/bmc/password" ||
		!strings.HasPrefix(said.Error(), "the device refuses the password in /etc/bmc/password, ") ||
		!strings.HasSuffix(said.Error(), ": 401 Unauthorized") {
		t.Errorf("got %v", said)
	}
	for _, tt := range []struct {
		device string
		sum    remote.CredentialHash
		after  time.Duration
		want   error
	}{
		{"a", one, 0, said}, {"a", one, remote.RefusedFor - 1, said}, {"a", one, remote.RefusedFor, nil},
		{"a", two, 0, nil}, {"b", one, 0, nil},
	} {
		if got := r.CheckRefused(tt.device, tt.sum, now.Add(tt.after)); !errors.Is(got, tt.want) {
			t.Errorf("%s after %s: got %v, want %v", tt.device, tt.after, got, tt.want)
		}
	}
	for i := range 1000 { // devices come and go
		r.HoldCredential(fmt.Sprint(i), one, now.Add(time.Duration(i)*time.Minute), said)
	}
	if !errors.Is(r.CheckRefused("999", one, now), said) || r.CheckRefused("a", one, now) != nil {
		t.Error("the last is not held, or the first is kept")
	}
}

func TestSHA256(t *testing.T) {
	for text, ok := range map[string]bool{
		strings.Repeat("5F:", 31) + "a1": true, " " + strings.Repeat("0b", 32) + "\n": true,
		"": false, strings.Repeat("0b", 31): false, strings.Repeat("0b", 33): false, strings.Repeat("zz", 32): false,
	} {
		var s remote.SHA256
		if err := s.UnmarshalText([]byte(text)); (err == nil) != ok || (s == remote.SHA256{}) == ok {
			t.Errorf("%q: got %x, %v", text, s, err)
		}
	}
}

// Only a certificate that was vouched for is spoken to. The caFile is read for each connection.
func TestTrust(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	addr := server.Listener.Addr().String()
	host, _, _ := net.SplitHostPort(addr)
	sum, wrong := remote.SHA256(sha256.Sum256(server.Certificate().Raw)), remote.SHA256{1}
	dir := t.TempDir()
	ca, none := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "none.pem")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	of := func(f ...remote.Fingerprint) []remote.Fingerprint { return f }
	for _, tt := range []struct {
		name  string
		trust remote.Trust
		want  bool
	}{
		{"the system's authorities", remote.Trust{}, false},
		{"caFile", remote.Trust{CAFile: ca}, true},
		{"no such caFile", remote.Trust{CAFile: none}, false},
		{"fingerprint", remote.Trust{Fingerprints: of(remote.Fingerprint{SHA256: sum})}, true},
		{"fingerprint of the host", remote.Trust{Fingerprints: of(remote.Fingerprint{Host: host, SHA256: sum})}, true},
		{"fingerprint of host and port", remote.Trust{Fingerprints: of(remote.Fingerprint{Host: addr, SHA256: sum})},
			true},
		{"another's fingerprint", remote.Trust{Fingerprints: of(remote.Fingerprint{SHA256: wrong})}, false},
		{"another's fingerprint, caFile", remote.Trust{CAFile: ca, Fingerprints: of(remote.Fingerprint{SHA256: wrong})},
			true},
		{"another host's fingerprint",
			remote.Trust{Fingerprints: of(remote.Fingerprint{Host: "192.0.2.1", SHA256: sum})}, false},
		{"the host has another",
			remote.Trust{CAFile: ca, Fingerprints: of(remote.Fingerprint{Host: host, SHA256: wrong})}, false},
		{"the host has another, which any may have",
			remote.Trust{
				Fingerprints: of(remote.Fingerprint{Host: host, SHA256: wrong}, remote.Fingerprint{SHA256: sum})},
			false},
		{"not verified", remote.Trust{InsecureSkipVerify: true}, true},
	} {
		cfg, err := tt.trust.ClientConfig(addr)
		if err == nil {
			var conn *tls.Conn
			if conn, err = tls.Dial("tcp", addr, cfg); err == nil {
				_ = conn.Close()
			}
			err = remote.ExplainHandshake(err)
		}
		if (err == nil) != tt.want || err != nil && !errors.Is(err, providers.ErrUntrusted) {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	rotated := remote.Trust{CAFile: none}
	if got := fmt.Sprint(paths(rotated.Validate())); got != "[caFile]" {
		t.Errorf("got problems at %s", got)
	}
	write(t, none, []byte("x"))
	if _, err := rotated.ClientConfig(addr); !errors.Is(err, providers.ErrUntrusted) {
		t.Errorf("no certificate in the file: got %v", err)
	}
	write(t, none, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if cfg, err := rotated.ClientConfig(addr); err != nil || cfg.RootCAs == nil || cfg.MinVersion != tls.VersionTLS12 {
		t.Errorf("a file that is there now: got %+v, %v", cfg, err)
	}
	one, _ := rotated.ClientConfig(addr)
	if two, err := rotated.ClientConfig(host); err != nil || one.RootCAs != two.RootCAs {
		t.Errorf("two connections do not share the authorities of an unchanged file: %v", err)
	}
	write(t, none, kit.NewAuthority("another").Cert)
	if cfg, err := rotated.ClientConfig(addr); err != nil || cfg.RootCAs.Equal(one.RootCAs) {
		t.Errorf("a changed file: got the authorities of before, %v", err)
	}
	write(t, none, []byte("x"))
	if _, err := rotated.ClientConfig(addr); !errors.Is(err, providers.ErrUntrusted) {
		t.Errorf("a file that lost its certificates: got %v", err)
	}
	faulty := remote.Trust{CAFile: ca, InsecureSkipVerify: true,
		Fingerprints: of(remote.Fingerprint{Host: "https://x"})}
	if got := fmt.Sprint(paths(faulty.Validate())); got != "[fingerprints[0].sha256 fingerprints[0].host "+
		"insecureSkipVerify]" || !faulty.HasTrustSettings() || (&remote.Trust{}).HasTrustSettings() {
		t.Errorf("got problems at %s", got)
	}
	if err := remote.ExplainHandshake(net.ErrClosed); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a connection that broke: got %v", err)
	}
}

// Each machine may have a user and a password of its own: both come from its Node's name alone.
func TestCredentialsOfAMachine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "n1"), []byte("one"))
	write(t, filepath.Join(dir, "n2"), []byte("two"))
	n1, n2 := providers.Target{Node: "n1", ID: "a"}, providers.Target{Node: "n2", ID: "a"}
	shared := remote.Credentials{Username: "fence", PasswordFile: filepath.Join(dir, "n1")}
	if shared.OwnerOf(n1) != "" || shared.OwnerOf(n2) != "" {
		t.Error("machines that share credentials have owners")
	}
	for _, c := range []remote.Credentials{
		{Username: "fence", PasswordFile: dir + "/{name}"},
		{Username: "fence-{name}", PasswordFile: dir + "/{name}"},
	} {
		if problems := c.Validate(); len(problems) > 0 {
			t.Errorf("%+v: got %v", c, problems)
		}
		if got := fmt.Sprint(paths(c.ValidateShared())); !strings.Contains(got, "passwordFile") {
			t.Errorf("%+v, one device for all machines: got problems at %s", c, got)
		}
		for target, password := range map[providers.Target]string{n1: "one", n2: "two"} {
			user, got, err := c.ReadCredentials(c.OwnerOf(target))
			if err != nil || got.Reveal() != password ||
				user != strings.ReplaceAll(c.Username, "{name}", target.Node) {
				t.Errorf("%s of %+v: got %q, %q, %v", target.Node, c, user, got.Reveal(), err)
			}
		}
		if _, _, err := c.ReadCredentials("n3"); !errors.Is(err, providers.ErrDenied) ||
			!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir+"/n3") {
			t.Errorf("no file: got %v", err)
		}
	}
	users := remote.Credentials{Username: "{name}", PasswordFile: filepath.Join(dir, "n1")}
	if user, _, err := users.ReadCredentials(users.OwnerOf(n2)); user != "n2" || err != nil {
		t.Errorf("a user of its own: got %q, %v", user, err)
	}
	users.Username = "{label:user}"
	if got := fmt.Sprint(paths(users.Validate())); got != "[username]" {
		t.Errorf("a label: got problems at %s", got)
	}
}
