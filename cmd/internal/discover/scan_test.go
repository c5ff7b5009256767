package discover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

func TestParseRanges(t *testing.T) {
	for _, tc := range []struct {
		ranges string
		want   string // the first, the last and how many; or a part of the error
	}{
		{"10.0.0.0/28", "10.0.0.1 10.0.0.14 14"},
		{"10.0.0.7/28", "10.0.0.1 10.0.0.14 14"},
		{"10.0.0.0/31", "10.0.0.0 10.0.0.1 2"},
		{"10.0.0.7", "10.0.0.7 10.0.0.7 1"},
		{"10.0.0.7,10.0.0.7/32,10.0.0.8", "10.0.0.7 10.0.0.8 2"},
		{"10.0.0.0/22", "10.0.0.1 10.0.3.254 1022"},
		{"fd00::/126", "fd00:: fd00::3 4"},
		{"10.0.0.0/21", "at most 1024"},
		{"0.0.0.0/0", "no range of BMCs"},
		{"fd00::/64", "at most 1024"},
		{"10.0.0.0/22,10.1.0.0/28", "at most 1024"},
		{"224.0.0.0/28", "no range of BMCs"},
		{"::ffff:10.0.0.1", "neither an address nor a range"},
		{"bmc.example.net", "neither an address nor a range"},
		{"10.0.0.0/33", "neither an address nor a range"},
		{"", "neither an address nor a range"},
	} {
		all, err := ParseRanges(strings.Split(tc.ranges, ","))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s %s %d", all[0], all[len(all)-1], len(all))
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: got %q, want %q", tc.ranges, got, tc.want)
		}
	}
	if all, err := ParseRanges(nil); err != nil || len(all) != 0 {
		t.Errorf("none: got %v, %v", all, err)
	}
}

// newRack starts a data centre, and returns it with a scanner that has its credentials.
func newRack(t *testing.T) (*datacenter.DataCenter, Scanner) {
	t.Helper()
	dc := datacenter.New(datacenter.Options{})
	t.Cleanup(func() { _ = dc.Close() })
	dir := t.TempDir()
	s := Scanner{
		Credentials: remote.Credentials{Username: dc.Username(), PasswordFile: filepath.Join(dir, "password")},
		CAFile:      filepath.Join(dir, "ca.pem"),
	}
	kit.Must(t, os.WriteFile(s.Credentials.PasswordFile, []byte(dc.Password()), 0o600))
	kit.Must(t, dc.WriteCA(s.CAFile))
	return dc, s
}

var loopback = netip.MustParseAddr("127.0.0.1")

// scanOne scans the address of a server.
func (s Scanner) scanOne(t *testing.T, server string) []BMC {
	t.Helper()
	u, err := url.Parse(server)
	kit.Must(t, err)
	s.RedfishPort, err = strconv.Atoi(u.Port())
	kit.Must(t, err)
	s.IPMIPort = s.RedfishPort // nothing answers there
	found, err := s.Scan(t.Context(), []netip.Addr{loopback})
	kit.Must(t, err)
	return found
}

// A trusted BMC is asked for its systems, and gets its session back. Nothing but sessions is posted.
func TestScanTrusted(t *testing.T) {
	dc, s := newRack(t)
	m1, m2 := dc.AddMachine("m1"), dc.AddMachine("m2")
	b := dc.AddBMC(m1, m2)
	found := s.scanOne(t, b.URL())
	if len(found) != 1 || found[0].Protocol != Redfish || found[0].Trouble != "" || len(found[0].Systems) != 2 ||
		found[0].Systems[0].UUID != m1.SystemUUID() || found[0].Fingerprint != "" || found[0].ID != b.URL() {
		t.Errorf("got %+v, want both systems", found)
	}
	if n := b.Sessions(); n != 0 {
		t.Errorf("got %d sessions left open, want none", n)
	}
	for _, r := range b.Requests() {
		if r.Method == http.MethodPost && !strings.HasSuffix(r.Path, "/Sessions") {
			t.Errorf("got request %+v, want reads alone", r)
		}
	}
	s.Credentials = remote.Credentials{}
	if found := s.scanOne(t, b.URL()); len(found) != 1 || !strings.Contains(found[0].Trouble, "--username") {
		t.Errorf("without credentials: got %+v", found)
	}
	b.SetFault(datacenter.Fault{Status: http.StatusServiceUnavailable})
	if found := s.scanOne(t, b.URL()); len(found) != 1 {
		t.Errorf("a busy BMC: got %+v", found)
	}
}

// A BMC that refuses the password gets it once, also if its certificate is trusted and the user named it: BMCs lock an
// account after a few refusals.
func TestScanRefusedOnce(t *testing.T) {
	dc, s := newRack(t)
	kit.Must(t, os.WriteFile(s.Credentials.PasswordFile, []byte("wrong"), 0o600))
	b := dc.AddBMC(dc.AddMachine("m1"))
	logIns := func() (n int) {
		before := len(b.Requests())
		s.scanOne(t, b.URL())
		for _, r := range b.Requests()[before:] {
			if r.Method == http.MethodPost {
				n++
			}
		}
		return n
	}
	once := logIns()
	s.Named = []netip.Addr{loopback}
	if got := logIns(); got != once || once == 0 {
		t.Errorf("named: got %d log-ins, want %d, as without the name", got, once)
	}
}

// hostile is a BMC that records every credential, and gives the answers that lead to more of them.
type hostile struct {
	mu          sync.Mutex // guards what follows
	requests    int
	credentials []string
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	body := make([]byte, 1<<16)
	n, _ := r.Body.Read(body)
	for _, name := range []string{"Authorization", "X-Auth-Token", "Cookie", "Proxy-Authorization"} {
		if value := r.Header.Get(name); value != "" {
			h.credentials = append(h.credentials, r.URL.Path+": "+name+" "+value)
		}
	}
	if n > 0 {
		h.credentials = append(h.credentials, r.URL.Path+": body "+string(body[:n]))
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="BMC"`)
	_, _ = w.Write([]byte(`{"RedfishVersion": "1.15.0", "Vendor": "Evil\u001b[2J\nmode: fence", "Product": "x",
		"Systems": {"@odata.id": "/redfish/v1/Systems"},
		"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}}`))
}

// A BMC whose certificate is not trusted gets no credential of any kind, unless the user named it; over plain HTTP none
// gets one at all.
func TestScanSendsNoPasswordToUntrusted(t *testing.T) {
	_, s := newRack(t)
	for _, tc := range []struct {
		name    string
		plain   bool
		edit    func(*Scanner)
		sends   bool
		trouble string
	}{
		{name: "no authority, not named", edit: func(s *Scanner) { s.CAFile = "" }, trouble: "not trusted"},
		{name: "another authority's certificate", edit: func(*Scanner) {}, trouble: "--trust-host 127.0.0.1"},
		{name: "another address is named", edit: func(s *Scanner) {
			s.Named = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		}, trouble: "not trusted"},
		{name: "named", edit: func(s *Scanner) { s.Named = []netip.Addr{loopback} }, sends: true,
			trouble: "could not be listed"},
		{name: "named, without an authority", edit: func(s *Scanner) {
			s.CAFile, s.Named = "", []netip.Addr{loopback}
		}, sends: true, trouble: "could not be listed"},
		{name: "plain HTTP, and named", plain: true, edit: func(s *Scanner) { s.Named = []netip.Addr{loopback} },
			trouble: "no Redfish service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &hostile{}
			start := httptest.NewTLSServer
			if tc.plain {
				start = httptest.NewServer
			}
			server := start(h)
			defer server.Close()
			own := s
			tc.edit(&own)
			found := own.scanOne(t, server.URL)
			if len(found) != 1 || !strings.Contains(found[0].Trouble, tc.trouble) || len(found[0].Systems) > 0 {
				t.Errorf("got %+v, want trouble %q", found, tc.trouble)
			}
			if strings.ContainsAny(found[0].Product+found[0].Trouble, "\x1b\n") {
				t.Errorf("got text of the device that a terminal obeys: %+v", found)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if got := len(h.credentials) > 0; got != tc.sends {
				t.Errorf("got credentials %q, want any: %t", h.credentials, tc.sends)
			}
			if h.requests == 0 && !tc.plain {
				t.Error("got no request: the test shows nothing")
			}
		})
	}
}

// A certificate that the system's authorities signed is not enough: anyone can have one. The test runs again in a
// process of its own, because a process reads the system's authorities once.
func TestScanTrustsNoSystemAuthority(t *testing.T) {
	const marker = "FORCEFENCE_TEST_SYSTEM_AUTHORITY"
	if os.Getenv(marker) == "" {
		self, err := os.Executable()
		kit.Must(t, err)
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), marker+"=1", "SSL_CERT_FILE="+filepath.Join(t.TempDir(), "ca.pem"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dc, s := newRack(t)
	kit.Must(t, dc.WriteCA(os.Getenv("SSL_CERT_FILE")))
	b := dc.AddBMC(dc.AddMachine("m1"))
	s.CAFile = ""
	found := s.scanOne(t, b.URL())
	if len(found) != 1 || !strings.Contains(found[0].Trouble, "not trusted") || len(found[0].Systems) > 0 {
		t.Errorf("got %+v, want it not to be trusted", found)
	}
	for _, r := range b.Requests() {
		if r.Method == http.MethodPost {
			t.Errorf("got request %+v, want no log-in", r)
		}
	}
	resp, err := http.Get(b.URL() + "/redfish/v1/")
	if err != nil {
		t.Fatalf("the system does not trust the BMC, so the test shows nothing: %v", err)
	}
	resp.Body.Close()
}

// A named BMC that shows another certificate at the log-in gets nothing: what it showed first is what was named.
func TestScanPinsNamed(t *testing.T) {
	_, s := newRack(t)
	s.CAFile, s.Named = "", []netip.Addr{loopback}
	another := kit.NewAuthority("another")
	pair, err := tls.X509KeyPair(another.Cert, another.Key)
	kit.Must(t, err)
	h := &hostile{}
	var shown atomic.Int32
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if shown.Add(1) > 1 {
			return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
		}
		return nil, nil
	}}
	server.StartTLS()
	defer server.Close()
	found := s.scanOne(t, server.URL)
	if len(found) != 1 || !strings.Contains(found[0].Trouble, "not trusted") || len(h.credentials) > 0 ||
		shown.Load() < 2 {
		t.Errorf("got %+v, credentials %q, %d connections, want no credential", found, h.credentials, shown.Load())
	}
}

// Addresses where nothing listens are silent, and the scan ends with its context.
func TestScanEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer l.Close() // accepts nothing
	_, s := newRack(t)
	s.RedfishPort = l.Addr().(*net.TCPAddr).Port
	s.IPMIPort = s.RedfishPort
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("--timeout is over"))
	defer cancel()
	addresses, err := ParseRanges([]string{"127.0.0.0/24"})
	kit.Must(t, err)
	found, err := s.Scan(ctx, addresses)
	if len(found) > 0 || err == nil || !strings.Contains(err.Error(), "--timeout is over") {
		t.Errorf("got %+v, %v, want an error that names the timeout", found, err)
	}
	_ = l.Close()
	found, err = s.Scan(t.Context(), []netip.Addr{loopback})
	if err != nil || len(found) > 0 {
		t.Errorf("where nothing listens: got %+v, %v", found, err)
	}
}
