package redfish_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
)

// A BMC whose UUID is its own identifies no machine. With ignoreUUID cable and inventory are trusted, but no kubelet's
// word.
func TestIgnoreUUID(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		r := newRack(t, 1, datacenter.Options{}, func(_ *rack, c *redfish.Config) { c.IgnoreUUID = ignore })
		r.ms[0].SetFault(datacenter.Fault{SystemUUID: anotherUUID})
		claimed := r.target()
		claimed.Claimed = true
		for range 2 { // looked up, and remembered
			if a := r.ask(t, claimed); ignore && (a.SystemUUID != "" || claimed.VerifyIdentity(a.Observation) == nil) {
				t.Errorf("a kubelet's word: got %s of %q", a.State, a.SystemUUID)
			}
			if err := r.powerOff(t, claimed); err == nil || !r.ms[0].Running() {
				t.Errorf("ignored %t: a kubelet's word powered a machine off: %v", ignore, err)
			}
			a := r.ask(t, r.target())
			if known := a.State == providers.PowerOn && a.Err == nil && a.SystemUUID == ""; known != ignore {
				t.Errorf("ignored %t: got %s of %q, %v", ignore, a.State, a.SystemUUID, a.Err)
			}
		}
		if err := r.powerOff(t, r.target()); (err == nil) != ignore || r.ms[0].Running() == ignore {
			t.Errorf("ignored %t: PowerOff: %v", ignore, err)
		}
	}

	// Of several systems none is found by its UUID.
	r := newRack(t, 2, datacenter.Options{},
		func(r *rack, c *redfish.Config) { c.Address, c.IgnoreUUID = r.bmc.URL(), true })
	target := providers.Target{Node: "n1", SystemUUID: r.ms[0].SystemUUID()}
	if a := r.ask(t, target); !errors.Is(a.Err, providers.ErrNotFound) ||
		!strings.Contains(providers.ErrorText(a.Err), "name the system") {
		t.Errorf("no ID: got %s, %v", a.State, a.Err)
	}
	target.ID = "m1"
	r.want(t, target, providers.PowerOn)
}

// A BMC that has named the machine, and then reports its power without the UUID, says nothing of the machine.
func TestUUIDThatVanishes(t *testing.T) {
	for name, fault := range map[string]datacenter.Fault{
		"absent": {NoUUID: true},
		"null":   {Body: `{"PowerState":"Off","UUID":null}`},
		"empty":  {Body: `{"PowerState":"Off","UUID":""}`},
		"zeros":  {SystemUUID: "00000000-0000-0000-0000-000000000000"},
		"ones":   {SystemUUID: "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"},
	} {
		r := newRack(t, 1, datacenter.Options{}, nil)
		limited := limiter.New(r.p, limiter.Options{Name: "rack-a", Type: "redfish"})
		ask := func(p providers.Provider, target providers.Target, want providers.PowerState, class error) {
			t.Helper()
			a := providers.Ask(t.Context(), p, "rack-a", target, providers.Now)
			if a.State != want || !errors.Is(a.Err, class) {
				t.Errorf("%s: got %s (%q), %v; want %s, %v", name, a.State, a.Raw, a.Err, want, class)
			}
		}
		r.ms[0].CutPower()
		identified := r.target()
		identified.Identified = true
		ask(r.p, identified, providers.PowerOff, nil)
		ask(limited, r.target(), providers.PowerOff, nil)
		r.ms[0].SetFault(fault)
		ask(r.p, identified, providers.PowerUnknown, providers.ErrIdentity)     // as the Node's label says
		ask(limited, r.target(), providers.PowerUnknown, providers.ErrIdentity) // as this process remembers
		ask(r.p, r.target(), providers.PowerOff, nil)                           // without either
	}
}

// A vendor's property that reports suspended for something else is named, and can be ignored. What says that the
// machine sleeps still counts.
func TestIgnoreStates(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  datacenter.Fault
		ignore []string
		want   providers.PowerState
		raw    string
	}{
		{"named", datacenter.Fault{UpdateStatus: "Suspended"}, nil, providers.PowerOn,
			"Off, but UpdateStatus Suspended (see ignoreStates)"},
		{"ignored", datacenter.Fault{UpdateStatus: "Suspended"}, []string{"updatestatus"}, providers.PowerOff, "Off"},
		{"another is ignored", datacenter.Fault{UpdateStatus: "Suspended"}, []string{"Status"}, providers.PowerOn,
			"Off, but UpdateStatus Suspended (see ignoreStates)"},
		{"it sleeps", datacenter.Fault{Sleep: "S4"}, []string{"UpdateStatus"}, providers.PowerOn,
			"Off, but AcpiState S4 (see ignoreStates)"},
	} {
		r := newRack(t, 1, datacenter.Options{}, func(_ *rack, c *redfish.Config) { c.IgnoreStates = tt.ignore })
		tt.fault.PowerWord = "Off"
		r.ms[0].SetFault(tt.fault)
		if a := r.ask(t, r.target()); a.State != tt.want || a.Raw != tt.raw || a.Err != nil {
			t.Errorf("%s: got %s (%q), %v; want %s (%q)", tt.name, a.State, a.Raw, a.Err, tt.want, tt.raw)
		}
	}
	c := redfish.NewConfig()
	c.IgnoreStates = []string{"UpdateStatus", "", "a b"}
	var got []string
	for _, p := range c.Validate() {
		got = append(got, p.Path)
	}
	if text := strings.Join(got, " "); !strings.Contains(text, "ignoreStates[1] ignoreStates[2]") ||
		strings.Contains(text, "ignoreStates[0]") {
		t.Errorf("got problems at %q", got)
	}
}

// A drill reports a chassis that may always report On, while the machine is on; other calls do not pay for it.
func TestDrillDoubtsChassis(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  datacenter.Fault
		ignore bool
		want   string // in the doubt; "" for none
	}{
		{"none", datacenter.Fault{}, false, ""},
		{"a server's", datacenter.Fault{Chassis: "true"}, false, ""},
		{"a module's", datacenter.Fault{Chassis: "true", ChassisType: "Module"}, false,
			"of type Module that reports On"},
		{"a module's, ignored", datacenter.Fault{Chassis: "true", ChassisType: "Module"}, true, ""},
		{"a module's without a word", datacenter.Fault{Chassis: "none", ChassisType: "Module"}, false, ""},
		{"a module's, shared", datacenter.Fault{Chassis: "true", ChassisType: "Module", ChassisShared: true}, false,
			""},
		{"cannot be read", datacenter.Fault{Chassis: "true", ChassisStatus: http.StatusForbidden}, false,
			"cannot be read"},
	} {
		r := newRack(t, 1, datacenter.Options{}, func(_ *rack, c *redfish.Config) { c.IgnoreChassisPower = tt.ignore })
		r.ms[0].SetFault(tt.fault)
		if a := r.ask(t, r.target()); a.State != providers.PowerOn || a.Doubt != "" ||
			r.bmc.Count("GET", "/redfish/v1/Chassis/m0") > 0 {
			t.Errorf("%s: no drill: got %s, doubt %q", tt.name, a.State, a.Doubt)
		}
		a := providers.Ask(providers.ForDrill(t.Context()), r.p, "rack-a", r.target(), providers.Now)
		if a.State != providers.PowerOn || a.Raw != "On" || a.Err != nil || (a.Doubt == "") != (tt.want == "") ||
			!strings.Contains(a.Doubt, tt.want) {
			t.Errorf("%s: drill: got %s (%q), %v, doubt %q; want %q", tt.name, a.State, a.Raw, a.Err, a.Doubt, tt.want)
		}
	}
}

// A BMC that can only push the power button pushes it of a machine that is exactly off, and once: a machine that runs
// would shut down.
func TestPushPowerButton(t *testing.T) {
	push := datacenter.Fault{PushButton: true}
	pushes := func(r *rack) int { return r.bmc.Count("POST", system(r.ms[0])+"/Actions/ComputerSystem.Reset") }
	bubble(t, 1, nil, func(t *testing.T, r *rack, g *limiter.Provider) {
		on := func() error { return g.PowerOn(t.Context(), r.target(), providertest.AllowSend) }
		r.ms[0].SetFault(push)
		if err := on(); err != nil || pushes(r) != 0 || !r.ms[0].Running() {
			t.Errorf("On: %v, %d pushes", err, pushes(r))
		}
		for word, fault := range map[string]datacenter.Fault{
			"PoweringOff": {PowerWord: "PoweringOff"}, "a strange word": {PowerWord: "off"},
			"no word": {NoPowerWord: true},
			"asleep":  {PowerWord: "Off", Sleep: "S3"}, "Off, chassis On": {PowerWord: "Off", Chassis: "On"},
			"chassis cannot be read": {PowerWord: "Off", Chassis: "On", ChassisStatus: 500},
		} {
			fault.PushButton = true
			r.ms[0].SetFault(fault)
			if err := on(); err == nil || pushes(r) != 0 || !r.ms[0].Running() {
				t.Errorf("%s: %v, %d pushes", word, err, pushes(r))
			}
		}
		r.ms[0].CutPower()
		r.ms[0].SetFault(push)
		refuse := func() error { return errors.New("another leads") }
		if err := r.p.PowerOn(t.Context(), r.target(), refuse); !errors.Is(err, providers.ErrNotSent) ||
			pushes(r) != 0 {
			t.Errorf("refused: %v, %d pushes", err, pushes(r))
		}
		if err := on(); err != nil || pushes(r) != 1 || !r.ms[0].Running() {
			t.Errorf("Off: %v, %d pushes", err, pushes(r))
		}
		// The BMC reports Off for a while longer.
		r.ms[0].SetFault(datacenter.Fault{PushButton: true, PowerWord: "Off"})
		if err := on(); !errors.Is(err, providers.ErrUnreachable) || pushes(r) != 1 || !r.ms[0].Running() {
			t.Errorf("pushed just now: %v, %d pushes", err, pushes(r))
		}
		time.Sleep(time.Minute)
		if err := on(); !errors.Is(err, providers.ErrUnreachable) || pushes(r) != 1 || !r.ms[0].Running() {
			t.Errorf("pushed a minute ago: %v, %d pushes", err, pushes(r))
		}
		r.ms[0].CutPower()
		time.Sleep(time.Minute)
		if err := on(); err != nil || pushes(r) != 2 {
			t.Errorf("two minutes later: %v, %d pushes", err, pushes(r))
		}
	})

	// It goes on between the first look and the push.
	bubble(t, 1, nil, func(t *testing.T, r *rack, _ *limiter.Provider) {
		path := system(r.ms[0])
		redfish.SetTransport(r.p, &before{inMemory: inMemory{r.bmc}, f: func(q *http.Request, n int) {
			if q.URL.Path == path && n == 1 {
				r.ms[0].PowerOn()
			}
		}})
		r.ms[0].SetFault(push)
		r.ms[0].CutPower()
		if err := r.p.PowerOn(t.Context(), r.target(), providertest.AllowSend); err == nil || pushes(r) != 0 ||
			!r.ms[0].Running() {
			t.Errorf("on by itself: %v, %d pushes", err, pushes(r))
		}
	})
}
