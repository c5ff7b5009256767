package datacenter_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/test/datacenter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a data centre with one machine behind one BMC, and a client that trusts it.
type site struct {
	dc     *datacenter.DataCenter
	m      *datacenter.Machine
	bmc    *datacenter.BMC
	client *http.Client
}

func newSite(t *testing.T, o datacenter.Options) *site {
	t.Helper()
	s := &site{dc: datacenter.New(o)}
	s.m = s.dc.AddMachine("m1")
	s.bmc = s.dc.AddBMC(s.m)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.dc.CA()) {
		t.Fatal("the CA is no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	s.client = &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.dc.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// do sends one request with basic auth and returns status and body.
func (s *site) do(ctx context.Context, method, path, body string, header ...string) (int, map[string]any, http.Header,
	error) {
	r, err := http.NewRequestWithContext(ctx, method, s.bmc.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.SetBasicAuth(s.dc.Username(), s.dc.Password())
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Del("Authorization")
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var o map[string]any
	_ = json.Unmarshal(b, &o)
	return resp.StatusCode, o, resp.Header, err
}

func (s *site) reset(t *testing.T, word string) int {
	t.Helper()
	status, _, _, err := s.do(t.Context(), "POST", "/redfish/v1/Systems/m1/Actions/ComputerSystem.Reset",
		fmt.Sprintf(`{"ResetType":%q}`, word))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func (s *site) word(t *testing.T) any {
	t.Helper()
	_, o, _, err := s.do(t.Context(), "GET", "/redfish/v1/Systems/m1", "")
	if err != nil {
		t.Fatal(err)
	}
	return o["PowerState"]
}

func TestMachine(t *testing.T) {
	dc := datacenter.New(datacenter.Options{})
	defer dc.Close()
	m := dc.AddMachine("m1")
	var seen []string
	m.OnChange(func(m *datacenter.Machine, on bool) { seen = append(seen, fmt.Sprintf("%t %s", on, m.State())) })
	first := m.BootID()
	m.PowerOn()
	m.CutPower()
	m.CutPower()
	if m.BootID() != first || m.Running() {
		t.Errorf("off: boot id %s, want %s; running %t", m.BootID(), first, m.Running())
	}
	m.PowerOn()
	if m.BootID() == first {
		t.Error("a new boot has the old boot id")
	}
	if got, want := strings.Join(seen, ", "), "false Off, true On"; got != want {
		t.Errorf("callbacks: got %s, want %s", got, want)
	}
	if other := dc.AddMachine("m2"); other.SystemUUID() == m.SystemUUID() || other.Serial() == m.Serial() {
		t.Error("two machines share an identity")
	}
}

func TestPowerThroughTheBMC(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	off := make(chan bool, 4)
	s.m.OnChange(func(_ *datacenter.Machine, on bool) { off <- !on })
	if got := s.reset(t, "ForceOff"); got != http.StatusNoContent || !<-off || s.word(t) != "Off" {
		t.Errorf("ForceOff: got %d, word %v", got, s.word(t))
	}
	if got := s.reset(t, "ForceOff"); got != http.StatusConflict {
		t.Errorf("ForceOff of a machine that is off: got %d", got)
	}
	if got := s.reset(t, "On"); got != http.StatusNoContent || <-off || s.word(t) != "On" {
		t.Errorf("On: got %d, word %v", got, s.word(t))
	}
	if got := s.reset(t, "Sideways"); got != http.StatusBadRequest {
		t.Errorf("unknown reset type: got %d", got)
	}
}

func TestPowerOffDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dc := datacenter.New(datacenter.Options{PowerOffDelay: 2 * time.Second, PowerOnDelay: 3 * time.Second})
		m := dc.AddMachine("m1")
		request := datacenter.RequestReset
		if !request(m, datacenter.Off) || m.State() != datacenter.PoweringOff || !m.Running() {
			t.Fatalf("accepted: got %s", m.State())
		}
		time.Sleep(1999 * time.Millisecond)
		synctest.Wait()
		if m.State() != datacenter.PoweringOff {
			t.Errorf("before the delay: got %s", m.State())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if m.State() != datacenter.Off {
			t.Errorf("after the delay: got %s", m.State())
		}
		// A plug that is pulled and put back overtakes a power-off on its way.
		m.PowerOn()
		request(m, datacenter.Off)
		m.CutPower()
		m.PowerOn()
		time.Sleep(time.Minute)
		if m.State() != datacenter.On {
			t.Errorf("overtaken: got %s", m.State())
		}
		request(m, datacenter.Off)
		if err := dc.Close(); err != nil { // does not wait two seconds, and leaves nothing behind
			t.Error(err)
		}
	})
}

func TestSessions(t *testing.T) {
	s := newSite(t, datacenter.Options{SessionSlots: 2})
	login := func() (int, string, string) {
		body := fmt.Sprintf(`{"UserName":%q,"Password":%q}`, s.dc.Username(), s.dc.Password())
		status, _, h, err := s.do(t.Context(), "POST", "/redfish/v1/SessionService/Sessions", body)
		if err != nil {
			t.Fatal(err)
		}
		return status, h.Get("X-Auth-Token"), strings.TrimPrefix(h.Get("Location"), s.bmc.URL())
	}
	get := func(token string) int {
		status, _, _, err := s.do(t.Context(), "GET", "/redfish/v1/Systems", "", "X-Auth-Token", token)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	status, token, location := login()
	if status != http.StatusCreated || get(token) != http.StatusOK || get("guess") != http.StatusUnauthorized {
		t.Errorf("session: got %d", status)
	}
	login()
	if status, _, _ := login(); status != http.StatusServiceUnavailable || s.bmc.Sessions() != 2 {
		t.Errorf("no slot left: got %d, %d sessions", status, s.bmc.Sessions())
	}
	if status, _, _, err := s.do(t.Context(), "DELETE", location, ""); status != http.StatusNoContent || err != nil ||
		s.bmc.Sessions() != 1 {
		t.Errorf("logout: got %d, %v, %d sessions", status, err, s.bmc.Sessions())
	}
	_, token, _ = login()
	s.bmc.ExpireSessions()
	if got := get(token); got != http.StatusUnauthorized {
		t.Errorf("expired: got %d", got)
	}
	s.dc.SetPassword("other")
	if status, _, _, _ := s.do(t.Context(), "GET", "/redfish/v1/Systems", "", "Authorization",
		"Basic eDp5"); status != http.StatusUnauthorized {
		t.Errorf("wrong password: got %d", status)
	}
}

func TestFaults(t *testing.T) {
	const system = "/redfish/v1/Systems/m1"
	tests := []struct {
		name  string
		fault datacenter.Fault
		want  func(status int, o map[string]any, err error) bool
	}{
		{"503", datacenter.Fault{Status: 503}, func(s int, _ map[string]any, _ error) bool { return s == 503 }},
		{"drop", datacenter.Fault{Drop: true}, func(_ int, _ map[string]any, err error) bool { return err != nil }},
		{"silent", datacenter.Fault{Silent: true}, func(_ int, _ map[string]any, err error) bool { return err != nil }},
		{"slow", datacenter.Fault{Delay: time.Hour},
			func(_ int, _ map[string]any, err error) bool { return err != nil }},
		{"slow body", datacenter.Fault{SlowBody: true},
			func(_ int, _ map[string]any, err error) bool { return err != nil }},
		{"huge body", datacenter.Fault{HugeBody: true},
			func(s int, o map[string]any, _ error) bool { return s == 200 && o == nil }},
		{"empty", datacenter.Fault{Empty: true},
			func(s int, o map[string]any, _ error) bool { return s == 204 && o == nil }},
		{"redirect", datacenter.Fault{Redirect: "https://127.0.0.2/"},
			func(s int, _ map[string]any, _ error) bool { return s == 307 }},
		{"TLS hangs", datacenter.Fault{HangTLS: true},
			func(_ int, _ map[string]any, err error) bool { return err != nil }},
		{"unknown word", datacenter.Fault{PowerWord: "Dozing"},
			func(_ int, o map[string]any, _ error) bool { return o["PowerState"] == "Dozing" }},
		{"no word", datacenter.Fault{NoPowerWord: true},
			func(_ int, o map[string]any, _ error) bool { return o["Id"] == "m1" && o["PowerState"] == nil }},
		{"another UUID", datacenter.Fault{SystemUUID: "x"},
			func(_ int, o map[string]any, _ error) bool { return o["UUID"] == "x" }},
		{"shared serial", datacenter.Fault{Serial: "x"},
			func(_ int, o map[string]any, _ error) bool { return o["SerialNumber"] == "x" }},
		{"no serial", datacenter.Fault{NoSerial: true},
			func(_ int, o map[string]any, _ error) bool { return o["SerialNumber"] == "" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, datacenter.Options{})
			s.bmc.SetFault(tt.fault)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if status, o, _, err := s.do(ctx, "GET", system, ""); !tt.want(status, o, err) {
				t.Errorf("on the BMC: got %d, %v, %v", status, o, err)
			}
			s.bmc.SetFault(datacenter.Fault{})
			if got := s.word(t); got != "On" {
				t.Errorf("healed: got %v", got)
			}
			if tt.fault.HangTLS {
				return
			}
			s.m.SetFault(tt.fault)
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if status, o, _, err := s.do(ctx, "GET", system, ""); !tt.want(status, o, err) {
				t.Errorf("on the machine: got %d, %v, %v", status, o, err)
			}
			if status, _, _, err := s.do(t.Context(), "GET", "/redfish/v1/Systems", ""); status != 200 || err != nil {
				t.Errorf("a machine's fault reached the collection: got %d, %v", status, err)
			}
		})
	}
}

func TestAcceptedIsNotOff(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	s.m.SetFault(datacenter.Fault{StaysOn: true})
	if got := s.reset(t, "ForceOff"); got != http.StatusNoContent || s.word(t) != "On" || !s.m.Running() {
		t.Errorf("stays on: got %d, %v", got, s.word(t))
	}
	s.m.SetFault(datacenter.Fault{StaysPoweringOff: true})
	if got := s.reset(t, "ForceOff"); got != http.StatusNoContent || s.word(t) != "PoweringOff" || !s.m.Running() {
		t.Errorf("stays powering off: got %d, %v", got, s.word(t))
	}
	s.m.SetFault(datacenter.Fault{})
	if got := s.reset(t, "ForceOff"); got != http.StatusNoContent || s.word(t) != "Off" || s.m.Running() {
		t.Errorf("healed: got %d, %v", got, s.word(t))
	}
}

func TestRequestLog(t *testing.T) {
	s := newSite(t, datacenter.Options{RequestLog: 4})
	s.bmc.SetFault(datacenter.Fault{Silent: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() { _, _, _, _ = s.do(ctx, "GET", "/redfish/v1/Systems", "") })
	if err := s.bmc.Await(t.Context(),
		func() bool { return s.bmc.Count("GET", "/redfish/v1/Systems") == 1 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	calls.Wait()
	s.bmc.SetFault(datacenter.Fault{})
	for range 20 {
		s.word(t)
	}
	log := s.bmc.Requests()
	if last := log[len(log)-1]; len(log) > 4 || last.Auth != "basic" || last.Path != "/redfish/v1/Systems/m1" {
		t.Errorf("got %d requests, the last %+v", len(log), last)
	}
	if err := s.bmc.Await(ctx, func() bool { return false }); err == nil {
		t.Error("Await ignored its context")
	}
}

// TestFaultOfEachRequest holds the log of requests with a fault each against what they were answered.
func TestFaultOfEachRequest(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	const system = "/redfish/v1/Systems/m1"
	type answer struct {
		machine, word string
		status        int
		answered      bool
	}
	var fault datacenter.Fault
	s.m.SetFaults(func() datacenter.Fault { return fault })
	for _, tt := range []struct {
		method, path, body string
		fault              datacenter.Fault
		want               answer
	}{
		{"GET", system, "", datacenter.Fault{}, answer{"m1", "On", 200, true}},
		{"GET", system, "", datacenter.Fault{PowerWord: "Unknown"}, answer{"m1", "Unknown", 200, true}},
		{"GET", system, "", datacenter.Fault{Status: 503}, answer{"m1", "", 503, true}},
		{"POST", system + "/Actions/ComputerSystem.Reset", `{"ResetType": "ForceOff"}`, datacenter.Fault{},
			answer{"m1", "ForceOff", 204, true}},
		// a GET would be sent again
		{"POST", system + "/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`, datacenter.Fault{Drop: true},
			answer{"m1", "", 0, false}},
		{"GET", system, "", datacenter.Fault{}, answer{"m1", "Off", 200, true}},
		{"GET", "/redfish/v1/Systems", "", datacenter.Fault{Status: 503}, answer{"", "", 200, true}},
	} {
		fault = tt.fault
		before := time.Now()
		status, _, _, _ := s.do(t.Context(), tt.method, tt.path, tt.body) // the log has the error
		if status != tt.want.status {
			t.Errorf("%s %s: got status %d, want %d", tt.method, tt.path, status, tt.want.status)
		}
		log := s.bmc.Requests()
		last := log[len(log)-1]
		if err := s.bmc.Await(t.Context(), func() bool {
			last = s.bmc.Requests()[len(log)-1]
			return last.Answered.IsZero() != tt.want.answered
		}); err != nil {
			t.Fatal(err)
		}
		if got := (answer{last.Machine, last.Word, last.Status, !last.Answered.IsZero()}); got != tt.want ||
			last.At.Before(before) || got.answered && last.Answered.Before(last.At) {
			t.Errorf("%s %s: got %+v, want %+v", tt.method, tt.path, last, tt.want)
		}
	}
	s.m.SetFault(datacenter.Fault{})
	fault = datacenter.Fault{PowerWord: "Unknown"}
	if got := s.word(t); got != "Off" {
		t.Errorf("after SetFault: got %q, want Off", got)
	}
}

func TestWriteCA(t *testing.T) {
	s := newSite(t, datacenter.Options{})
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := s.dc.WriteCA(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), "-----BEGIN CERTIFICATE-----") {
		t.Errorf("got %q, %v", b, err)
	}
	if err := s.dc.WriteCA(filepath.Join(path, "no")); err == nil {
		t.Error("writing into a file's folder succeeded")
	}
}
