package libvirt_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/kit"
)

// TestValidate: each fault is found, where it is, and nothing else is.
func TestValidate(t *testing.T) {
	t.Parallel()
	ca := kit.NewAuthority("ours")
	good, expired, broken := t.TempDir(), t.TempDir(), t.TempDir()
	valid := writeCredentials(t, good, ca, ca, time.Now().Add(time.Hour))
	old := writeCredentials(t, expired, ca, ca, time.Now().Add(-time.Hour))
	bad := writeCredentials(t, broken, ca, ca, time.Now().Add(time.Hour))
	must(t, os.WriteFile(filepath.Join(broken, "ca.pem"), []byte("no certificate"), 0o600))
	must(t, os.WriteFile(filepath.Join(broken, "key.pem"), []byte("no key"), 0o600))
	uri := func(uris ...string) libvirt.Config {
		if len(uris) == 1 {
			return libvirt.Config{URI: uris[0]}
		}
		return libvirt.Config{URIs: uris}
	}
	with := func(c libvirt.Config, edit func(*libvirt.Config)) libvirt.Config { edit(&c); return c }
	for _, tt := range []struct {
		name string
		cfg  libvirt.Config
		want []string // "path: part of the text"
	}{
		{"the system's socket", uri("qemu:///system"), nil},
		{"the user's socket", uri("qemu:///session"), nil},
		{"a socket", uri("qemu+unix:///system?socket=/run/x"), nil},
		{"the test driver", uri("test+unix:///default?socket=/run/x"), nil},
		{"TCP to this host", uri("qemu+tcp://127.0.0.1:16509/system"), nil},
		{"TCP to this host, IPv6", uri("qemu+tcp://[::1]/system"), nil},
		{"TCP to another, allowed", libvirt.Config{URI: "qemu+tcp://hv1/system", AllowTCP: true}, nil},
		{"TLS", with(uri("qemu+tls://hv1/system"), valid), nil},
		{"TLS as libvirt's clients guess it", with(uri("qemu://hv1/system"), valid), nil},
		{"a group", with(uri("qemu+tls://hv1/system", "qemu+tls://hv2:17000/system"), valid), nil},

		{"nothing", libvirt.Config{}, []string{"uri: missing"}},
		{"both", libvirt.Config{URI: "qemu:///system", URIs: []string{"qemu:///session"}},
			[]string{"uris: both uri and uris"}},
		{"ssh", uri("qemu+ssh://root@hv1/system"), []string{
			"uri: has the transport ssh, which is not supported: use qemu+tls://host/system"}},
		{"xen", uri("xen:///system"), []string{`uri: has the driver "xen"`}},
		{"lxc", uri("lxc:///system"), []string{`uri: has the driver "lxc"`}},
		{"esx", uri("esx+tcp://host/"), []string{`uri: has the driver "esx"`}},
		{"no URI", uri("hv1.example.net"), []string{"uri: is not a URI"}},
		{"no URI at all", uri("%zz"), []string{"uri: is not a URI"}},
		{"opaque", uri("qemu:system"), []string{"uri: is not a URI"}},
		{"TCP to another", uri("qemu+tcp://hv1/system"), []string{"uri: is plain TCP"}},
		{"a password", uri("qemu+tls://me:hunter2@hv1/system"), []string{"uri: holds a user"}},
		{"no host", uri("qemu+tls:///system"), []string{"uri: has no host"}},
		{"a host for a socket", uri("qemu+unix://hv1/system"), []string{"uri: has a host"}},
		{"a relative socket", uri("qemu+unix:///system?socket=run/x"),
			[]string{"uri: has a socket that is not an absolute path"}},
		{"a socket for TCP", uri("qemu+tcp://localhost/system?socket=/run/x"), []string{"uri: has a socket, but"}},
		{"another path", uri("qemu:///embed"), []string{`uri: has the path "/embed"`}},
		{"no verification", uri("qemu:///system?no_verify=1"), []string{`uri: has the parameter "no_verify"`}},
		{"a fragment", uri("qemu:///system#x"), []string{"uri: has a fragment"}},
		{"TLS without a certificate", uri("qemu+tls://hv1/system"), []string{"certFile: missing"}},
		{"an expired certificate", with(uri("qemu+tls://hv1/system"), old),
			[]string{"certFile: the client certificate in " + expired + "/cert.pem expired at "}},
		{"broken files", with(uri("qemu+tls://hv1/system"), bad),
			[]string{"caFile: reading CA: no certificate", "certFile: reading client certificate"}},
		{"a CA that is not there",
			libvirt.Config{URI: "qemu+tls://hv1/system", Trust: remote.Trust{CAFile: "/nonexistent"},
				CertFile: good + "/cert.pem", KeyFile: good + "/key.pem"}, []string{"caFile: reading CA"}},
		{"not verified, and a CA", func() libvirt.Config {
			c := with(uri("qemu+tls://hv1/system"), valid)
			c.InsecureSkipVerify = true
			return c
		}(), []string{"insecureSkipVerify: turns verification off"}},
		{"certificates for a socket", with(uri("qemu:///system"), valid), []string{"certFile: no URI is qemu+tls"}},
		{"a group with faults", uri("qemu:///system", "xen:///", "qemu:///system"),
			[]string{"uris[1]: has the driver", "uris[2]: names a hypervisor twice"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.cfg.Validate()
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %q", got, tt.want)
			}
			for i, p := range got {
				if !strings.HasPrefix(p.Path+": "+p.Text, tt.want[i]) {
					t.Errorf("got %s: %s, want %q", p.Path, p.Text, tt.want[i])
				}
				if strings.Contains(p.Text, "hunter2") {
					t.Errorf("the text holds a password: %s", p.Text)
				}
			}
			p, err := tt.cfg.New(providers.Options{})
			if err == nil {
				must(t, p.(providers.Closer).Close(context.Background()))
			}
			if len(tt.want) == 0 && err != nil {
				t.Errorf("New: %v", err)
			}
		})
	}
}

// TestRegistered: the type makes its own configuration each time.
func TestRegistered(t *testing.T) {
	t.Parallel()
	ty := libvirt.Type()
	if ty.Name != "libvirt" || ty.NewConfig() == ty.NewConfig() {
		t.Errorf("got %q", ty.Name)
	}
	if got := providers.Registry([]providers.Type{ty}).TypeNames(); !slices.Equal(got, []string{"libvirt"}) {
		t.Errorf("got %v", got)
	}
}
