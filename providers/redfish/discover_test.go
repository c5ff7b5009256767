package redfish_test

import (
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
)

// The service root is read without a log-in, with any certificate.
func TestReadService(t *testing.T) {
	dc := datacenter.New(datacenter.Options{})
	defer dc.Close()
	b := dc.AddBMC(dc.AddMachine("m1"))
	got, err := redfish.ReadService(t.Context(), b.URL())
	if err != nil || got.Version == "" || hex.EncodeToString(got.Certificate[:]) != b.Fingerprint() {
		t.Errorf("got %+v, %v, want the certificate %s", got, err, b.Fingerprint())
	}
	b.SetFault(datacenter.Fault{Status: http.StatusUnauthorized})
	if got, err := redfish.ReadService(t.Context(), b.URL()); err != nil || got.Certificate == (remote.SHA256{}) {
		t.Errorf("a closed root: got %+v, %v, want a service", got, err)
	}
	for name, f := range map[string]datacenter.Fault{
		"not found": {Status: http.StatusNotFound}, "another document": {Body: `{"kind":"Status"}`},
		"no JSON": {Body: "<html>"}, "huge": {HugeBody: true},
		"a redirect": {Redirect: "https://127.0.0.1:1/redfish/v1/"},
	} {
		b.SetFault(f)
		if got, err := redfish.ReadService(t.Context(), b.URL()); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
	for _, r := range b.Requests() {
		if r.Auth != "none" || r.Password || r.Method != http.MethodGet {
			t.Errorf("got request %+v, want none with a credential", r)
		}
	}
	for _, address := range []string{"http://127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1", "https://u:p@127.0.0.1"} {
		if _, err := redfish.ReadService(t.Context(), address); !errors.Is(err, providers.ErrPermanent) {
			t.Errorf("%s: got %v, want %v", address, err, providers.ErrPermanent)
		}
	}
}

func TestListSystems(t *testing.T) {
	dc := datacenter.New(datacenter.Options{PageSize: 2})
	defer dc.Close()
	var ms []*datacenter.Machine
	for _, name := range []string{"m1", "m2", "m3"} {
		ms = append(ms, dc.AddMachine(name))
	}
	b := dc.AddBMC(ms...)
	p := newProvider(t, dc, nil)
	defer p.Close(t.Context())
	all, err := p.ListSystems(t.Context(), b.URL())
	if err != nil || len(all) != len(ms) {
		t.Fatalf("got %v, %v", all, err)
	}
	for i, m := range ms {
		if got := all[i]; got.UUID != m.SystemUUID() || b.URL()+got.Path != b.SystemURL(m) || got.Serial != m.Serial() {
			t.Errorf("got %+v, want %s at %s", got, m.SystemUUID(), b.SystemURL(m))
		}
	}
	for _, r := range b.Requests() {
		if r.Method == http.MethodPost && !strings.HasSuffix(r.Path, "/Sessions") {
			t.Errorf("got request %+v, want reads alone", r)
		}
	}
	b.SetFault(datacenter.Fault{Status: http.StatusServiceUnavailable})
	all, err = newProvider(t, dc, nil).ListSystems(t.Context(), b.URL())
	if !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v, %v, want %v", all, err, providers.ErrUnreachable)
	}
}

// A device whose certificate no authority signed gets no request, and so no credential.
func TestListSystemsOfUntrusted(t *testing.T) {
	asked := 0
	fake := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer fake.Close()
	dc := datacenter.New(datacenter.Options{})
	defer dc.Close()
	p := newProvider(t, dc, nil)
	defer p.Close(t.Context())
	all, err := p.ListSystems(t.Context(), fake.URL)
	if !errors.Is(err, providers.ErrUntrusted) || len(all) > 0 || asked > 0 {
		t.Errorf("got %v, %v and %d requests, want %v", all, err, asked, providers.ErrUntrusted)
	}
}
