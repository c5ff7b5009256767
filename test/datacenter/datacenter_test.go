package datacenter_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
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

// do sends one request with basic auth and returns the status; 0 without an answer.
func (s *site) do(t *testing.T, method, path, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.bmc.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(s.dc.Username(), s.dc.Password())
	resp, err := s.client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // the BMC's log has what it was
	return resp.StatusCode
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
		status := s.do(t, tt.method, tt.path, tt.body)
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
	s.do(t, "GET", system, "")
	if log := s.bmc.Requests(); log[len(log)-1].Word != "Off" {
		t.Errorf("after SetFault: got %+v, want Off", log[len(log)-1])
	}
}
