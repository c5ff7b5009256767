package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/test/kit"
)

// gatedDevice is a device with one outlet that knows its clients by their certificates.
type gatedDevice struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	trusted []byte     // DER
	shown   int        // certificates that clients showed
	asked   int
}

func newGatedDevice(t *testing.T) *gatedDevice {
	t.Helper()
	d := &gatedDevice{}
	d.Server = httptest.NewUnstartedServer(d)
	d.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, VerifyConnection: func(s tls.ConnectionState) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.shown += len(s.PeerCertificates)
		return nil
	}}
	d.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	d.StartTLS()
	t.Cleanup(d.Close)
	return d
}

func (d *gatedDevice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	w.Header().Set("Content-Type", "application/json")
	if len(r.TLS.PeerCertificates) == 0 || !bytes.Equal(r.TLS.PeerCertificates[0].Raw, d.trusted) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":"not authorized"}`)
		return
	}
	_, _ = io.WriteString(w, `{"state":"off"}`)
}

// trust makes the device accept this certificate, and no other.
func (d *gatedDevice) trust(c kit.Credentials) {
	block, _ := pem.Decode(c.Cert)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trusted = block.Bytes
}

// certificateConfig is a configuration of type rest whose description logs in with a certificate.
func certificateConfig(t *testing.T, address string, c kit.Credentials) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	out := &rest.Config{Description: filepath.Join(dir, "description.yaml"), Settings: rest.Settings{
		Address: address, CertFile: filepath.Join(dir, "client.pem"), KeyFile: filepath.Join(dir, "client-key.pem"),
	}}
	description := strings.Replace(outlets, "kind: basic", "kind: certificate", 1)
	kit.Must(t, os.WriteFile(out.Description, []byte(description), 0o600))
	kit.Must(t, c.Write(out.CertFile, out.KeyFile))
	return out
}

// A device knows its client by the certificate in the files, which are read again for each connection.
func TestCertificateLogin(t *testing.T) {
	clients := kit.NewAuthority("clients")
	until := time.Now().Add(time.Hour)
	first, second := clients.Client(until), clients.Client(until)
	d := newGatedDevice(t)
	d.trust(first)
	c := certificateConfig(t, d.URL, first)
	c.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	kit.Must(t, os.WriteFile(c.CAFile,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw}), 0o600))
	p := openRest(t, c)
	ask := func() string {
		a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n1", ID: "1"}, providers.Now)
		if text := fmt.Sprint(a.Err); strings.Contains(text, "PRIVATE") {
			t.Errorf("the error repeats a key: %s", text)
		}
		if a.Err != nil {
			return providers.ErrorClass(a.Err)
		}
		return a.State.String()
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a trusted certificate", func() {}, "Off"},
		{"the device trusts another", func() { d.trust(second) }, "denied"},
		{"the files have the other", func() { kit.Must(t, second.Write(c.CertFile, c.KeyFile)) }, "Off"},
		{"the other's key is missing", func() {
			kit.Must(t, os.Remove(c.KeyFile))
			d.CloseClientConnections()
		}, "denied"},
		{"another's key", func() { kit.Must(t, os.WriteFile(c.KeyFile, first.Key, 0o600)) }, "denied"},
		{"an expired certificate", func() {
			kit.Must(t, clients.Client(time.Now().Add(-time.Hour)).Write(c.CertFile, c.KeyFile))
		}, "denied"},
		{"the files are repaired", func() { kit.Must(t, second.Write(c.CertFile, c.KeyFile)) }, "Off"},
	} {
		step.do()
		if got := ask(); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
}

// A drill shows the certificate again once a file changed, and once an hour. So one that the device refuses is noticed
// while the connections of the old one work, which stay for a fence.
func TestDrillShowsTheCertificateAgain(t *testing.T) {
	clients := kit.NewAuthority("clients")
	first, second := clients.Client(time.Now().Add(time.Hour)), clients.Client(time.Now().Add(time.Hour))
	d := newGatedDevice(t)
	d.trust(first)
	c := certificateConfig(t, d.URL, first)
	c.InsecureSkipVerify = true
	var later time.Duration
	p, err := c.New(providers.Options{Name: "a", Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(later) }})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, p.(providers.Closer).Close(context.Background())) })
	askDevice := func(ctx context.Context, when, want string, shown int) {
		t.Helper()
		a := providers.Ask(ctx, p, "a", providers.Target{Node: "n1", ID: "1"}, providers.Now)
		got := a.State.String()
		if a.Err != nil {
			got = providers.ErrorClass(a.Err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if got != want || d.shown != shown {
			t.Errorf("%s: got %s (%v), %d certificates shown; want %s, %d", when, got, a.Err, d.shown, want, shown)
		}
	}
	fence, drill := t.Context(), providers.ForDrill(t.Context())
	askDevice(fence, "a question", "Off", 1)
	askDevice(drill, "the first drill", "Off", 2)
	askDevice(fence, "on a new connection", "Off", 3)
	askDevice(drill, "the second drill", "Off", 3)
	later += remote.RenewAfter
	askDevice(drill, "an hour later", "Off", 4)
	askDevice(fence, "on a new connection", "Off", 5)
	kit.Must(t, second.Write(c.CertFile, c.KeyFile))
	askDevice(fence, "on the open connection", "Off", 5)
	askDevice(drill, "a certificate that the device refuses", "denied", 6)
	askDevice(fence, "still on the open connection", "Off", 6)
	kit.Must(t, os.Remove(c.KeyFile))
	askDevice(drill, "no key", "denied", 6)
	askDevice(fence, "still on the open connection", "Off", 6)
	kit.Must(t, first.Write(c.CertFile, c.KeyFile))
	askDevice(drill, "the right files", "Off", 6)
}

// A device that is not trusted sees no certificate, and gets no question.
func TestCertificateIsNotShownToStrangers(t *testing.T) {
	d := newGatedDevice(t)
	client := kit.NewAuthority("clients").Client(time.Now().Add(time.Hour))
	d.trust(client)
	p := openRest(t, certificateConfig(t, d.URL, client))
	a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n1", ID: "1"}, providers.Now)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(a.Err, providers.ErrUntrusted) || d.shown != 0 || d.asked != 0 {
		t.Errorf("got %v, %d certificates shown, %d questions; want %v, 0, 0", a.Err, d.shown, d.asked,
			providers.ErrUntrusted)
	}
}

func TestCertificateSettings(t *testing.T) {
	clients := kit.NewAuthority("clients")
	for _, tc := range []struct {
		name, want string
		edit       func(*rest.Config)
	}{
		{"both files", "", func(*rest.Config) {}},
		{"no key", "certFile", func(c *rest.Config) { c.KeyFile = "" }},
		{"no certificate", "certFile", func(c *rest.Config) { c.CertFile = "" }},
		{"no such file", "certFile", func(c *rest.Config) { c.KeyFile += "x" }},
		{"an expired certificate", "certFile", func(c *rest.Config) {
			kit.Must(t, clients.Client(time.Now().Add(-time.Hour)).Write(c.CertFile, c.KeyFile))
		}},
		{"a password, too", "username", func(c *rest.Config) { c.PasswordFile = c.KeyFile }},
		{"a type without certificates", "certFile", func(c *rest.Config) {
			description := strings.Replace(outlets, "kind: basic", "kind: none", 1)
			kit.Must(t, os.WriteFile(c.Description, []byte(description), 0o600))
		}},
	} {
		c := certificateConfig(t, "https://192.0.2.7", clients.Client(time.Now().Add(time.Hour)))
		tc.edit(c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got problems at %q, want %q", tc.name, got, tc.want)
		}
	}
}

// openRest returns a provider that is closed with the test.
func openRest(t *testing.T, c *rest.Config) providers.Provider {
	t.Helper()
	if bad := c.Validate(); len(bad) > 0 {
		t.Fatal(bad)
	}
	p, err := c.New(providers.Options{Name: "a", Log: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, p.(providers.Closer).Close(context.Background())) })
	return p
}
