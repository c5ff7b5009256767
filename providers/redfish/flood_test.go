package redfish_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
)

// A scan of all systems keeps only their identities, whatever else they answer.
func TestScanKeepsIdentities(t *testing.T) {
	const members = 40
	r := newRack(t, 1, datacenter.Options{}, nil)
	r.bmc.SetFault(datacenter.Fault{Flood: members})
	if a := r.ask(t, r.target()); a.State != providers.PowerUnknown || a.Err == nil {
		t.Errorf("got %s, %v; want Unknown and an error", a.State, a.Err)
	}
	n, more := redfish.Kept(r.p, r.bmc.URL())
	if n == 0 || n > members*1<<10 || more {
		t.Errorf("kept %d bytes of %d systems, and more than identities: %t", n, members, more)
	}
}

// A list of systems that is longer than any is refused before one of them is read.
func TestMembersAreCapped(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	r.bmc.SetFault(datacenter.Fault{Flood: 12_000})
	if a := r.ask(t, r.target()); a.State != providers.PowerUnknown ||
		!strings.Contains(fmt.Sprint(a.Err), "does not end") {
		t.Errorf("got %s, %v", a.State, a.Err)
	}
	for _, q := range r.bmc.Requests() {
		if strings.HasPrefix(q.Path, systems+"/") {
			t.Fatalf("a member was read: %s", q.Path)
		}
	}
}

// Links of chassis beyond those that are looked at may lead to one that is On.
func TestManyChassisLinksAreNoProof(t *testing.T) {
	var others string
	for i := range 9 {
		others += fmt.Sprintf("/redfish/v1/Chassis/gone-%d ", i)
	}
	for name, before := range map[string]string{
		"the same many times": strings.Repeat("/redfish/v1/Chassis/gone ", 2000), "many others": others,
		"one that is very long": "/redfish/v1/Chassis/" + strings.Repeat("long", 500),
	} {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.ms[0].SetFault(datacenter.Fault{PowerWord: "Off", Chassis: "On", ChassisLinks: before})
		for range 3 {
			if a := r.ask(t, r.target()); a.State != providers.PowerUnknown ||
				!strings.Contains(providers.ErrorText(a.Err), "reading its chassis") {
				t.Errorf("%s: got %s (%q), %v", name, a.State, a.Raw, a.Err)
			}
		}
	}
}

// Of a report with more events than are read at once none is believed to be known.
func TestManyEventsInOneReport(t *testing.T) {
	for n, want := range map[int]int{1: 1, 50: 50, 51: 0, 5000: 0} {
		report := `{"Events":[{"MessageId":"ResourceEvent.1.0.ResourcePoweredOff"}` +
			strings.Repeat(`,{"MessageId":"ResourceEvent.1.0.ResourcePoweredOff"}`, n-1) + `]}`
		if got := redfish.Events([]byte(report)); got != want {
			t.Errorf("of %d events %d are looked at, want %d", n, got, want)
		}
	}
}
