package rest_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// plugs is the description outlets of devices with one machine each.
var plugs = strings.Replace(outlets, "login:", "addressIDs: true\nfeeds: true\nlogin:", 1)

// newPlugs returns the configuration of plugs.
func newPlugs(t *testing.T, edit func(*rest.Config)) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	c := &rest.Config{Description: filepath.Join(dir, "description.yaml")}
	if err := os.WriteFile(c.Description, []byte(plugs), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"password": "hunter2", "n1": "hunter2", "n2": "hunter3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Username, c.PasswordFile = "fence", filepath.Join(dir, "password")
	if edit != nil {
		edit(c)
	}
	return c
}

// An ID that begins with an address has one spelling, and names the host that gets the password.
func TestAddressIDs(t *testing.T) {
	for _, tc := range []struct {
		name, id   string
		allowHTTP  bool
		want, host string
		fault      string
	}{
		{name: "a host", id: "Plug-A.example.net/7", want: "https://plug-a.example.net/7", host: "plug-a.example.net"},
		{name: "a port", id: "10.0.0.7:8443/7", want: "https://10.0.0.7:8443/7", host: "10.0.0.7"},
		{name: "the default port", id: "https://10.0.0.7:443/7", want: "https://10.0.0.7/7", host: "10.0.0.7"},
		{name: "an IPv6 address", id: "[2001:DB8::7]/7", want: "https://[2001:db8::7]/7", host: "2001:db8::7"},
		{name: "clear text", id: "http://10.0.0.7/7", fault: "is not https://"},
		{name: "clear text, if it is allowed", id: "http://10.0.0.7:80/7", allowHTTP: true,
			want: "http://10.0.0.7/7", host: "10.0.0.7"},
		{name: "credentials", id: "root:secret@10.0.0.7/7", fault: "holds credentials"},
		{name: "another scheme", id: "ftp://10.0.0.7/7", fault: "is not https://"},
		{name: "a second address", id: "10.0.0.7/7://10.0.0.8/7", fault: "is no address"},
		{name: "a query before the path", id: "10.0.0.7?x=/7", fault: "has a query"},
		{name: "a fragment", id: "10.0.0.7#x/7", fault: "has a query or fragment"},
		{name: "no outlet", id: "10.0.0.7", fault: "is no ID of this type"},
		{name: "two segments", id: "10.0.0.7/7/8", fault: "is no ID of this type"},
		{name: "no host", id: "/7", fault: "is no address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newPlugs(t, func(c *rest.Config) { c.AllowHTTP = tc.allowHTTP })
			if !c.HasAddressIDs() {
				t.Fatal("the IDs are no addresses")
			}
			got, hosts, err := c.CanonicalID(tc.id)
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fault) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %q, %v, want %q", got, err, tc.fault)
				}
				return
			}
			if err != nil || got != tc.want || len(hosts) != 1 || hosts[0] != tc.host {
				t.Fatalf("got %q, %q, %v, want %q, %q", got, hosts, err, tc.want, tc.host)
			}
			if again, _, err := c.CanonicalID(got); err != nil || again != got {
				t.Errorf("the canonical ID becomes %q, %v", again, err)
			}
		})
	}
}

// With addresses in IDs, an address in the configuration is a fault, and each machine may have its own password.
func TestAddressIDSettings(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*rest.Config)
		want string
	}{
		{"no fault", func(*rest.Config) {}, ""},
		{"an address", func(c *rest.Config) { c.Address = "https://10.0.0.7" }, "address: has no effect"},
		{"a password of each machine",
			func(c *rest.Config) { c.PasswordFile = filepath.Join(filepath.Dir(c.PasswordFile), "{name}") }, ""},
		{"no user", func(c *rest.Config) { c.Username = "" }, "username: missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			for _, p := range newPlugs(t, tc.edit).Validate() {
				got += p.Path + ": " + p.Text
			}
			if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Each machine is asked at its own device, with its own password. A password that one device refused is still sent to
// another.
func TestAddressIDDevices(t *testing.T) {
	var ids, urls []string
	var devices []*device
	for _, password := range []string{"hunter2", "hunter3"} {
		d := &device{login: "basic", password: password}
		server := httptest.NewServer(d)
		defer server.Close()
		devices, ids, urls = append(devices, d), append(ids, server.URL+"/7"), append(urls, server.URL)
	}
	own := func(c *rest.Config) { c.PasswordFile = filepath.Join(filepath.Dir(c.PasswordFile), "{name}") }
	for _, tc := range []struct {
		name string
		edit func(*rest.Config)
		want [2]string // state, or the class of the error
	}{
		{"one password for all, which the first device refuses", func(c *rest.Config) {
			c.PasswordFile = filepath.Join(filepath.Dir(c.PasswordFile), "n2")
		}, [2]string{"denied", "Off"}},
		{"a password of each machine", own, [2]string{"Off", "Off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := newPlugs(t, tc.edit).New(providers.Options{Name: "a", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.(providers.Closer).Close(context.Background()) }()
			if _, ok := p.(providers.Feeder); !ok {
				t.Error("the outlets are no Feeder")
			}
			for i, node := range []string{"n1", "n2"} {
				target := providers.Target{Node: node, ID: ids[i]}
				a := providers.Ask(t.Context(), p, "a", target, providers.Now)
				got := a.State.String()
				if a.Err != nil {
					got = providers.ErrorClass(a.Err)
				}
				if got != tc.want[i] {
					t.Errorf("%s: got %s (%v), want %s", node, got, a.Err, tc.want[i])
				}
				if got := p.(providers.Grouper).DeviceOf(target); got != urls[i] {
					t.Errorf("%s: got device %q, want %q", node, got, urls[i])
				}
				if got := p.(providers.Limiter).LimitGroup(target); got != urls[i] {
					t.Errorf("%s: got unit %q, want %q", node, got, urls[i])
				}
			}
		})
	}
	for i, d := range devices {
		for _, path := range d.asked {
			if path != "/outlets/7" {
				t.Errorf("device %d: got a question for %s, want /outlets/7", i, path)
			}
		}
	}
}

// A device that does not answer holds up no question to another.
func TestAddressIDSilentDevice(t *testing.T) {
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	defer silent.Close()
	defer close(ended)
	d := httptest.NewServer(&device{login: "basic", password: "hunter2"})
	defer d.Close()
	p, err := newPlugs(t, nil).New(providers.Options{Name: "a", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	const crowd = 20 // more than the requests that one device gets at a time
	for range crowd {
		go func() {
			_, _ = p.State(ctx, providers.Target{Node: "n1", ID: silent.URL + "/7"})
			done <- struct{}{}
		}()
	}
	a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n2", ID: d.URL + "/7"}, providers.Now)
	if a.State != providers.PowerOff || a.Err != nil {
		t.Errorf("got %s, %v, want Off", a.State, a.Err)
	}
	cancel()
	for range crowd {
		<-done
	}
}
