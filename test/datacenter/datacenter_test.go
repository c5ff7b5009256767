package datacenter_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/test/datacenter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const system = "/redfish/v1/Systems/m1"

// newSite returns a data centre with one machine behind one BMC, without a network.
func newSite(o datacenter.Options) (*datacenter.DataCenter, *datacenter.Machine, *datacenter.BMC) {
	o.Offline = true
	dc := datacenter.New(o)
	m := dc.AddMachine("m1")
	return dc, m, dc.AddBMC(m)
}

// do sends one request with basic auth and returns the status; 0 where the connection closes without an answer.
func do(dc *datacenter.DataCenter, b *datacenter.BMC, method, path, body string) (status int) {
	defer func() { _ = recover() }() // http.ErrAbortHandler
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.SetBasicAuth(dc.Username(), dc.Password())
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w.Code
}

func TestPowerOffDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dc, m, b := newSite(datacenter.Options{PowerOffDelay: 2 * time.Second})
		powerOff := func() int {
			return do(dc, b, "POST", system+"/Actions/ComputerSystem.Reset", `{"ResetType": "ForceOff"}`)
		}
		if powerOff() != http.StatusNoContent || m.State() != datacenter.PoweringOff || !m.Running() {
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
		powerOff()
		m.CutPower()
		m.PowerOn()
		time.Sleep(time.Minute)
		if m.State() != datacenter.On {
			t.Errorf("overtaken: got %s", m.State())
		}
		powerOff()
		if err := dc.Close(); err != nil { // does not wait two seconds, and leaves nothing behind
			t.Error(err)
		}
	})
}

// TestFaultOfEachRequest holds the log of requests with a fault each against what they were answered.
func TestFaultOfEachRequest(t *testing.T) {
	dc, m, b := newSite(datacenter.Options{})
	defer dc.Close()
	type answer struct {
		machine, word string
		status        int
		answered      bool
	}
	var fault datacenter.Fault
	m.SetFaults(func() datacenter.Fault { return fault })
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
		{"POST", system + "/Actions/ComputerSystem.Reset", `{"ResetType": "On"}`, datacenter.Fault{Drop: true},
			answer{"m1", "", 0, false}},
		{"GET", system, "", datacenter.Fault{}, answer{"m1", "Off", 200, true}},
		{"GET", "/redfish/v1/Systems", "", datacenter.Fault{Status: 503}, answer{"", "", 200, true}},
	} {
		fault = tt.fault
		before := time.Now()
		status := do(dc, b, tt.method, tt.path, tt.body)
		if status != tt.want.status {
			t.Errorf("%s %s: got status %d, want %d", tt.method, tt.path, status, tt.want.status)
		}
		log := b.Requests()
		last := log[len(log)-1]
		if got := (answer{last.Machine, last.Word, last.Status, !last.Answered.IsZero()}); got != tt.want ||
			last.At.Before(before) || got.answered && last.Answered.Before(last.At) {
			t.Errorf("%s %s: got %+v, want %+v", tt.method, tt.path, last, tt.want)
		}
	}
	m.SetFault(datacenter.Fault{})
	fault = datacenter.Fault{PowerWord: "Unknown"}
	do(dc, b, "GET", system, "")
	if log := b.Requests(); log[len(log)-1].Word != "Off" {
		t.Errorf("after SetFault: got %+v, want Off", log[len(log)-1])
	}
}
