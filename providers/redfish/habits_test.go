package redfish_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
)

// inMemory asks a BMC without a network, so that its time can be synctest's. What a client gives up the BMC does all
// the same.
type inMemory struct{ bmc *datacenter.BMC }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	answered := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		defer func() {
			if recover() != nil { // http.ErrAbortHandler
				answered <- nil
			}
		}()
		m.bmc.ServeHTTP(w, r.Clone(context.WithoutCancel(r.Context())))
		answered <- w.Result()
	}()
	select {
	case resp := <-answered:
		if resp == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// bubble plays f in synctest with a rack whose BMC is asked without a network, through a limiter as in production.
func bubble(t *testing.T, machines int, edit func(*rack, *redfish.Config),
	f func(t *testing.T, r *rack, g *limiter.Provider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rack{dc: datacenter.New(datacenter.Options{Offline: true})}
		defer func() { _ = r.dc.Close() }()
		for i := range machines {
			r.ms = append(r.ms, r.dc.AddMachine(fmt.Sprint("m", i)))
		}
		r.bmc = r.dc.AddBMC(r.ms...)
		r.p = newProvider(t, r.dc, func(c *redfish.Config) {
			r.file = c.PasswordFile
			if edit != nil {
				edit(r, c)
			}
		})
		redfish.SetTransport(r.p, inMemory{r.bmc})
		g := limiter.New(r.p, limiter.Options{Name: "rack-a", Type: "redfish"})
		defer func() {
			if err := g.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if n := r.bmc.Sessions(); n != 0 {
				t.Errorf("Close left %d sessions", n)
			}
			synctest.Wait()
		}()
		f(t, r, g)
	})
}

// A BMC that takes its time with each request gives right answers all the same: what one call's deadline cuts off, the
// next finds done; and however often it is asked, there is one session.
func TestSlowBMC(t *testing.T) {
	for _, tt := range []struct {
		name     string
		slow     time.Duration
		machines int
		auth     string
		id       func(*rack) string
		chassis  string
		calls    int // until the first answer, a second apart
	}{
		{name: "sole", slow: 2 * time.Second, machines: 1, calls: 2},
		{name: "sole, with a chassis", slow: 2 * time.Second, machines: 1, chassis: "true", calls: 2},
		{name: "sole, very slow", slow: 4500 * time.Millisecond, machines: 1, calls: 4},
		{name: "the system's path", slow: 2 * time.Second, machines: 1,
			id: func(r *rack) string { return r.bmc.SystemURL(r.ms[0]) }, calls: 2},
		{name: "the system's path, basic", slow: 2 * time.Second, machines: 1, auth: "basic",
			id: func(r *rack) string { return r.bmc.SystemURL(r.ms[0]) }, calls: 1},
		{name: "basic", slow: 2 * time.Second, machines: 1, auth: "basic", calls: 2},
		{name: "one of 16, by Id", slow: 2 * time.Second, machines: 16, id: func(*rack) string { return "m0" },
			calls: 2},
		{name: "one of 16, by serial number", slow: 2 * time.Second, machines: 16,
			id: func(r *rack) string { return r.ms[0].Serial() }, calls: 5},
		{name: "one of 16, by UUID", slow: 2 * time.Second, machines: 16, id: func(*rack) string { return "" },
			calls: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			edit := func(r *rack, c *redfish.Config) {
				if tt.auth != "" {
					c.Auth = tt.auth
				}
				if tt.machines > 1 {
					c.Address = r.bmc.URL()
				}
			}
			bubble(t, tt.machines, edit, func(t *testing.T, r *rack, g *limiter.Provider) {
				r.bmc.SetFault(datacenter.Fault{Slow: tt.slow, Chassis: tt.chassis})
				r.ms[0].CutPower()
				target := r.target()
				if tt.id != nil {
					target.ID = tt.id(r)
				}
				n := 0
				for a := (providers.Answer{}); a.State != providers.PowerOff; {
					if n++; n > 10 {
						t.Fatalf("no answer in 10 calls: %v", a.Err)
					}
					a = providers.Ask(t.Context(), g, "rack-a", target, providers.Now)
					if a.Err != nil && !strings.Contains(providers.ErrorText(a.Err), "within 5s (timeout)") {
						t.Errorf("call %d: got %v", n, a.Err)
					}
					time.Sleep(time.Second)
				}
				if n > tt.calls {
					t.Errorf("the first answer came by call %d, want %d", n, tt.calls)
				}
				for i := range 24 { // two hours of probes, and machines that go on and off
					time.Sleep(5 * time.Minute)
					want := providers.PowerOff
					if i%3 == 0 {
						r.ms[0].PowerOn()
						want = providers.PowerOn
					} else {
						r.ms[0].CutPower()
					}
					if a := providers.Ask(t.Context(), g, "rack-a", target, providers.Now); a.State != want ||
						a.Err != nil {
						t.Fatalf("probe %d: got %s, %v; want %s", i, a.State, a.Err, want)
					}
					if open := r.bmc.Sessions(); open > 1 {
						t.Fatalf("%d sessions are open", open)
					}
				}
				if made := r.bmc.Count("POST", sessions); made > 1 {
					t.Errorf("%d sessions were made", made)
				}
				if roots := r.bmc.Count("GET", "/redfish/v1/"); roots > 1 {
					t.Errorf("the service root was read %d times", roots)
				}
				if open := r.bmc.Sessions(); open > 0 {
					time.Sleep(12 * time.Minute)
					if r.bmc.Sessions() != 0 {
						t.Error("an idle session was not given back")
					}
				}
				if redfish.BMCs(r.p) != 1 {
					t.Error("the BMC is forgotten too early")
				}
				time.Sleep(5 * time.Hour)
				if redfish.BMCs(r.p) != 0 {
					t.Error("the BMC is never forgotten")
				}
			})
		})
	}
}

// A log-in that takes longer than any caller waits leaves at most one session behind in a minute (auth session), or one
// in an hour (auto).
func TestLoginThatIsCutOff(t *testing.T) {
	for how, most := range map[string]int{"auto": 1, "session": 4} {
		bubble(t, 1, auth(how), func(t *testing.T, r *rack, g *limiter.Provider) {
			r.bmc.SetFault(datacenter.Fault{Slow: 15 * time.Second})
			// the root is read by and by
			if _, err := g.State(t.Context(), r.target()); !errors.Is(err, providers.ErrUnreachable) {
				t.Errorf("%s: got %v", how, err)
			}
			time.Sleep(11 * time.Second)
			r.bmc.SetFault(datacenter.Fault{Slow: 25 * time.Second})
			for range 30 {
				if _, err := g.State(t.Context(), r.target()); !errors.Is(err, providers.ErrUnreachable) {
					t.Errorf("%s: got %v", how, err)
				}
				time.Sleep(time.Second)
			}
			if made := r.bmc.Count("POST", sessions); made > most {
				t.Errorf("%s: %d log-ins in three minutes, want at most %d", how, made, most)
			}
			r.bmc.SetFault(datacenter.Fault{})
			r.bmc.ExpireSessions()
			time.Sleep(time.Minute)
			if a := providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now); a.State != providers.PowerOn {
				t.Errorf("%s: healed: got %v", how, a.Err)
			}
		})
	}
}

// Callers that joined a log-in which was refused, and then another that was refused as well, get that error: it is not
// the network.
func TestJoinedLoginIsRefused(t *testing.T) {
	bubble(t, 1, auth("session"), func(t *testing.T, r *rack, _ *limiter.Provider) {
		r.dc.SetPassword("another")
		r.bmc.SetFault(datacenter.Fault{Slow: 2 * time.Second})
		errs, of := make(chan error, 8), r.target()
		of.ID = r.bmc.SystemURL(r.ms[0]) // nothing to look for: each caller logs in itself
		for range cap(errs) {
			go func() { errs <- providers.Ask(t.Context(), r.p, "rack-a", of, providers.Now).Err }()
		}
		time.Sleep(3 * time.Second) // the first password is on its way
		r.renew(t, "wrong as well")
		r.dc.SetPassword("another")
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, providers.ErrDenied) ||
				!strings.Contains(providers.ErrorText(err), "not sent again") {
				t.Errorf("got %s: %v", providers.ErrorClass(err), err)
			}
		}
	})
}

// A wrong password is sent once for each content it has, or every 15 minutes, for all calls together and after any idle
// time: accounts get locked.
func TestWrongPasswordIsSentOnce(t *testing.T) {
	for _, tt := range []struct {
		name, auth string
		fault      datacenter.Fault
	}{
		{"session", "session", datacenter.Fault{}},
		{"auto", "auto", datacenter.Fault{}},
		{"basic", "basic", datacenter.Fault{}},
		{"no sessions", "auto", datacenter.Fault{NoSessions: true}},
		{"closed root", "auto", datacenter.Fault{ClosedRoot: true}},
		{"400 for 401", "auto",
			datacenter.Fault{SessionStatus: 400, Message: "Base.1.12.InvalidAuthenticationCredentials"}},
		{"dead tokens", "session", datacenter.Fault{DeadTokens: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 1, auth(tt.auth), func(t *testing.T, r *rack, g *limiter.Provider) {
				if !tt.fault.DeadTokens {
					r.dc.SetPassword("another")
				}
				r.bmc.SetFault(tt.fault)
				sent := func() (n int) {
					for _, q := range r.bmc.Requests() {
						if q.Password && (q.Status >= 400 || q.Method == http.MethodPost) {
							n++
						}
					}
					return n
				}
				ask := func(rounds int, pause time.Duration) {
					t.Helper()
					for range rounds {
						for _, err := range []error{
							providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now).Err,
							g.PowerOff(t.Context(), r.target(), providertest.AllowSend),
						} {
							if !errors.Is(err, providers.ErrDenied) ||
								!strings.Contains(providers.ErrorText(err), "not sent again") {
								t.Fatalf("got %v", err)
							}
						}
						time.Sleep(pause)
					}
				}
				want := 1
				check := func(when string) {
					t.Helper()
					if got := sent(); got != want {
						t.Errorf("%s: the password was sent %d times, want %d", when, got, want)
					}
				}
				ask(100, time.Second)
				check("asked each second")
				ask(1, 14*time.Minute) // longer than a session is kept
				want++
				ask(10, time.Second)
				ask(1, 5*time.Minute)
				check("after 15 minutes")
				r.renew(t, "a third")
				r.dc.SetPassword("another")
				want++
				if !tt.fault.DeadTokens {
					ask(10, time.Second)
					check("another wrong content")
				}
				r.bmc.ExpireSessions()
				r.bmc.SetFault(datacenter.Fault{NoSessions: tt.fault.NoSessions, ClosedRoot: tt.fault.ClosedRoot})
				r.renew(t, "a fourth")
				if a := providers.Ask(t.Context(), g, "rack-a", r.target(),
					providers.Now); a.State != providers.PowerOn || a.Err != nil {
					t.Errorf("the right password: got %s, %v", a.State, a.Err)
				}
			})
		})
	}
}

// A BMC that has no session left and refuses basic authentication proves nothing about the password: as soon as it has
// one, it gets it.
func TestNoSessionLeftAndNoBasic(t *testing.T) {
	for name, full := range map[string]datacenter.Fault{
		"409": {SessionStatus: 409}, "429": {SessionStatus: 429}, "503": {SessionStatus: 503},
		"no token": {NoToken: true},
	} {
		for _, wrong := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, wrong password %t", name, wrong), func(t *testing.T) {
				bubble(t, 1, nil, func(t *testing.T, r *rack, g *limiter.Provider) {
					if wrong && !full.NoToken { // which a right password makes
						r.dc.SetPassword("another")
					}
					full.NoBasic = true
					r.bmc.SetFault(full)
					for range 10 {
						a := providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now)
						if !errors.Is(a.Err, providers.ErrUnreachable) ||
							!strings.Contains(providers.ErrorText(a.Err), "refuses basic authentication") {
							t.Fatalf("got %v", a.Err)
						}
						time.Sleep(time.Second)
					}
					basic := 0
					for _, q := range r.bmc.Requests() {
						if q.Password && q.Method == http.MethodGet {
							basic++
						}
					}
					if basic != 1 {
						t.Errorf("the password was sent %d times as basic authentication, want once", basic)
					}
					r.bmc.SetFault(datacenter.Fault{NoBasic: true})
					if full.NoToken { // each attempt leaves a session behind
						r.bmc.ExpireSessions()
						time.Sleep(time.Minute)
					}
					a := providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now)
					switch {
					case wrong && !full.NoToken &&
						(!errors.Is(a.Err, providers.ErrDenied) || !errors.As(a.Err, new(*providers.RefusedPassword))):
						t.Errorf("a session is free, wrong password: got %v", a.Err)
					case (!wrong || full.NoToken) && (a.State != providers.PowerOn || a.Err != nil):
						t.Errorf("a session is free: got %s, %v", a.State, a.Err)
					}
				})
			})
		}
	}
}

// A status that a wrong password may have as well, and then 401 to basic authentication: the account may be locked by a
// third attempt.
func TestBothWaysAreRefused(t *testing.T) {
	for _, status := range []int{400, 403, 404, 405, 501} {
		bubble(t, 1, nil, func(t *testing.T, r *rack, g *limiter.Provider) {
			r.dc.SetPassword("another")
			r.bmc.SetFault(datacenter.Fault{SessionStatus: status})
			for range 10 {
				if a := providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now); !errors.Is(a.Err,
					providers.ErrDenied) {
					t.Fatalf("%d: got %v", status, a.Err)
				}
				time.Sleep(time.Second)
			}
			if n := r.bmc.Count("POST", sessions); n != 1 {
				t.Errorf("%d: %d sessions were tried, want 1", status, n)
			}
		})
	}
}

// Where a BMC gives no session, auth auto takes basic authentication.
func TestAutoWithoutSessions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault datacenter.Fault
		posts int
	}{
		{"no link", datacenter.Fault{NoSessions: true}, 0},
		{"the root needs a log-in", datacenter.Fault{ClosedRoot: true}, 0},
		{"slots are full: 400", datacenter.Fault{SessionStatus: 400}, 1},
		{"slots are full: 403", datacenter.Fault{SessionStatus: 403}, 1},
		{"slots are full: 409", datacenter.Fault{SessionStatus: 409}, 1},
		{"slots are full: 429", datacenter.Fault{SessionStatus: 429}, 1},
		{"slots are full: 503", datacenter.Fault{SessionStatus: 503}, 1},
	} {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.bmc.SetFault(tt.fault)
		for range 3 {
			r.want(t, r.target(), providers.PowerOn)
		}
		if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil || r.ms[0].Running() {
			t.Errorf("%s: PowerOff: %v", tt.name, err)
		}
		r.want(t, r.target(), providers.PowerOff)
		if got := r.bmc.Count("POST", sessions); got != tt.posts {
			t.Errorf("%s: %d sessions were tried, want %d", tt.name, got, tt.posts)
		}
	}

	r := newRack(t, 1, datacenter.Options{}, auth("session"))
	r.bmc.SetFault(datacenter.Fault{NoSessions: true})
	if a := r.ask(t, r.target()); !errors.Is(a.Err, providers.ErrPermanent) ||
		!strings.Contains(providers.ErrorText(a.Err), "links no collection of sessions (see auth)") {
		t.Errorf("auth session, no link: got %v", a.Err)
	}
	r = newRack(t, 1, datacenter.Options{}, auth("session"))
	r.bmc.SetFault(datacenter.Fault{ClosedRoot: true})
	r.want(t, r.target(), providers.PowerOn)
}

// The property that shows it may be anywhere in the resource.
func TestAsleep(t *testing.T) {
	for resource, want := range map[string]string{
		`{"PowerState": "Off"}`:                                       "",
		`{"Oem": {"Acme": {"AcpiState": "S4"}}}`:                      "AcpiState S4",
		`{"Oem": {"Acme": [{"Id": 1}, {"HostStatus": "Suspended"}]}}`: "HostStatus Suspended",
		`{"KnownState": ["Off", "Suspended"]}`:                        "",
		`{"Oem": {"Acme": {"Sleep": "Suspended"}}}`:                   "",
		`no JSON`: "",
	} {
		if got := redfish.Asleep([]byte(resource)); got != want {
			t.Errorf("%s: got %q, want %q", resource, got, want)
		}
	}
}

// An Off that the chassis or the system's own resource contradicts is none.
func TestOffIsContradicted(t *testing.T) {
	type fault = datacenter.Fault
	for _, tt := range []struct {
		name   string
		fault  fault
		ignore bool
		want   providers.PowerState
		raw    string
		class  error
	}{
		{name: "chassis Off", fault: fault{Chassis: "Off"}, want: providers.PowerOff, raw: "Off"},
		{name: "chassis On", fault: fault{Chassis: "On"}, want: providers.PowerOn,
			raw: "Off, but its chassis On (see ignoreChassisPower)"},
		{name: "chassis PoweringOff", fault: fault{Chassis: "PoweringOff"}, want: providers.PowerChanging,
			raw: "Off, but its chassis PoweringOff (see ignoreChassisPower)"},
		{name: "chassis PoweringOn", fault: fault{Chassis: "PoweringOn"}, want: providers.PowerChanging,
			raw: "Off, but its chassis PoweringOn (see ignoreChassisPower)"},
		{name: "chassis with a strange word", fault: fault{Chassis: "off"}, want: providers.PowerUnknown,
			raw: "Off, but its chassis off (see ignoreChassisPower)"},
		{name: "chassis without a word", fault: fault{Chassis: "none"}, want: providers.PowerOff, raw: "Off"},
		{name: "chassis of another host",
			fault: fault{Chassis: "Off", ChassisLinks: "https://other.example.net/redfish/v1/Chassis/m0"},
			class: providers.ErrUnreachable},
		{name: "chassis of two systems", fault: fault{Chassis: "On", ChassisShared: true}, want: providers.PowerOff,
			raw: "Off"},
		{name: "chassis On, links are strings", fault: fault{Chassis: "On", SystemReset: true}, want: providers.PowerOn,
			raw: "Off, but its chassis On (see ignoreChassisPower)"},
		{name: "chassis On, ignored", fault: fault{Chassis: "On"}, ignore: true, want: providers.PowerOff, raw: "Off"},
		{name: "broken link", fault: fault{Chassis: "On", ChassisStatus: 404}, want: providers.PowerOff, raw: "Off"},
		{name: "unreadable chassis: 500", fault: fault{Chassis: "Off", ChassisStatus: 500},
			class: providers.ErrUnreachable},
		{name: "unreadable chassis: 400", fault: fault{Chassis: "Off", ChassisStatus: 400},
			class: providers.ErrPermanent},
		{name: "unreadable chassis: 403", fault: fault{Chassis: "Off", ChassisStatus: 403}, class: providers.ErrDenied},
		{name: "ACPI S4", fault: fault{Sleep: "S4"}, want: providers.PowerOn,
			raw: "Off, but AcpiState S4 (see ignoreStates)"},
		{name: "hibernated", fault: fault{Sleep: "Hibernated"}, want: providers.PowerOn,
			raw: "Off, but AcpiState Hibernated (see ignoreStates)"},
		{name: "managed save", fault: fault{Sleep: "managed-save"}, ignore: true, want: providers.PowerOn,
			raw: "Off, but AcpiState managed-save (see ignoreStates)"},
		{name: "ACPI S5", fault: fault{Sleep: "S5"}, want: providers.PowerOff, raw: "Off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRack(t, 1, datacenter.Options{},
				func(_ *rack, c *redfish.Config) { c.IgnoreChassisPower = tt.ignore })
			tt.fault.PowerWord = "Off" // while the machine runs
			r.ms[0].SetFault(tt.fault)
			for range 3 { // the chassis is read after the system, and then beside it
				a := r.ask(t, r.target())
				if a.State != tt.want || a.Raw != tt.raw || !errors.Is(a.Err, tt.class) {
					t.Errorf("got %s (%q), %v; want %s (%q), %v", a.State, a.Raw, a.Err, tt.want, tt.raw, tt.class)
				}
				if tt.class != nil && !strings.Contains(providers.ErrorText(a.Err), "reading its chassis: ") {
					t.Errorf("got %q", providers.ErrorText(a.Err))
				}
			}
			// What is not proven off is powered off.
			if err := r.powerOff(t, r.target()); err != nil || r.ms[0].Running() != (tt.want == providers.PowerOff) {
				t.Errorf("PowerOff: %v, running %t", err, r.ms[0].Running())
			}
		})
	}

	r := newRack(t, 1, datacenter.Options{}, nil)
	r.bmc.SetFault(datacenter.Fault{Chassis: "true"})
	for range 3 {
		r.ms[0].CutPower()
		for range 3 {
			r.want(t, r.target(), providers.PowerOff)
		}
		r.ms[0].PowerOn()
		r.want(t, r.target(), providers.PowerOn)
		r.ms[0].SetFault(datacenter.Fault{PowerWord: "Off", Chassis: "On"})
		r.want(t, r.target(), providers.PowerOn)
		r.ms[0].SetFault(datacenter.Fault{})
	}
	// The time of the answer is that of the first question.
	r.ms[0].CutPower()
	r.want(t, r.target(), providers.PowerOff)
	r.bmc.SetFault(datacenter.Fault{Chassis: "true", Slow: 50 * time.Millisecond})
	for range 3 {
		obs, err := r.p.State(t.Context(), r.target())
		if took := providers.Now().Sub(obs.At); err != nil || took < 50*time.Millisecond {
			t.Errorf("asked %s ago, %v", took, err)
		}
	}
}

// A system that was moved into another chassis has that chassis' power, and not the one's that was read beside it.
func TestChassisOfAMovedSystem(t *testing.T) {
	r := newRack(t, 3, datacenter.Options{}, nil)
	const off, on = "/redfish/v1/Chassis/m1", "/redfish/v1/Chassis/m2"
	r.bmc.SetFault(datacenter.Fault{Chassis: "true"})
	r.ms[0].CutPower()
	r.ms[1].CutPower()
	for range 2 {
		r.ms[0].SetFault(datacenter.Fault{Chassis: "true", ChassisLinks: off})
		for range 2 { // the second question reads the chassis beside the system
			r.want(t, r.target(), providers.PowerOff)
		}
		r.ms[0].SetFault(datacenter.Fault{Chassis: "true", ChassisLinks: on})
		for range 2 {
			r.want(t, r.target(), providers.PowerOn)
		}
	}
}

// While a slow machine goes off, the chassis' GET costs no time but once.
func TestChassisIsReadBeside(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, r *rack, g *limiter.Provider) {
		r.bmc.SetFault(datacenter.Fault{Chassis: "true"})
		_ = providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now)
		r.bmc.SetFault(datacenter.Fault{Chassis: "true", Slow: 2 * time.Second})
		for i, want := range []time.Duration{2, 4, 2, 2, 2} {
			if i == 1 {
				r.ms[0].CutPower()
			}
			if i == 4 {
				r.ms[0].PowerOn()
			}
			began := time.Now()
			a := providers.Ask(t.Context(), g, "rack-a", r.target(), providers.Now)
			if took := time.Since(began); took != want*time.Second || a.Err != nil {
				t.Errorf("question %d took %s, %v; want %ds", i, took, a.Err, want)
			}
		}
	})
}

// sum reads a fingerprint.
func sum(text string) (s remote.SHA256) {
	if err := s.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return s
}

// BMCs have certificates that no authority vouches for, with names in the wrong place, and old ways to agree on a key.
func TestTrust(t *testing.T) {
	colons := func(s string) string {
		var pairs []string
		for p := range slices.Chunk([]byte(strings.ToUpper(s)), 2) {
			pairs = append(pairs, string(p))
		}
		return strings.Join(pairs, ":")
	}
	wrong := strings.Repeat("ab", 32)
	type fingerprint = remote.Fingerprint
	for _, tt := range []struct {
		name  string
		opts  datacenter.Options
		edit  func(r *rack, c *redfish.Config)
		trust bool
		text  []string // of the error
	}{
		{name: "caFile", edit: func(*rack, *redfish.Config) {}, trust: true},
		{name: "no caFile", edit: func(_ *rack, c *redfish.Config) { c.CAFile = "" },
			text: []string{"caFile", "fingerprints", "x509"}},
		{name: "CN only", opts: datacenter.Options{CommonNameOnly: true}, edit: func(*rack, *redfish.Config) {},
			text: []string{"x509", "fingerprints", "Common"}},
		{name: "CN only, fingerprint", opts: datacenter.Options{CommonNameOnly: true}, trust: true,
			edit: func(r *rack, c *redfish.Config) {
				c.Fingerprints = []fingerprint{{SHA256: sum(r.bmc.Fingerprint())}}
			}},
		{name: "CN only, fingerprint of the host", opts: datacenter.Options{CommonNameOnly: true}, trust: true,
			edit: func(r *rack, c *redfish.Config) {
				c.CAFile, c.Fingerprints = "",
					[]fingerprint{{Host: "127.0.0.1", SHA256: sum(wrong)},
						{Host: "127.0.0.1", SHA256: sum(colons(r.bmc.Fingerprint()))}}
			}},
		{name: "fingerprint of host and port", trust: true,
			edit: func(r *rack, c *redfish.Config) {
				c.CAFile, c.Fingerprints = "",
					[]fingerprint{{Host: strings.TrimPrefix(r.bmc.URL(), "https://"), SHA256: sum(r.bmc.Fingerprint())}}
			}},
		{name: "another's fingerprint, caFile", trust: true,
			edit: func(_ *rack, c *redfish.Config) { c.Fingerprints = []fingerprint{{SHA256: sum(wrong)}} }},
		{name: "another's fingerprint, no caFile", text: []string{"fingerprints", "x509"},
			edit: func(_ *rack, c *redfish.Config) {
				c.CAFile, c.Fingerprints = "", []fingerprint{{SHA256: sum(wrong)}}
			}},
		{name: "the host has another certificate, which the authority signed",
			text: []string{"not the one in fingerprints"},
			edit: func(_ *rack, c *redfish.Config) {
				c.Fingerprints = []fingerprint{{Host: "127.0.0.1", SHA256: sum(wrong)}}
			}},
		{name: "the host has a certificate that another may have", text: []string{"not the one in fingerprints"},
			edit: func(r *rack, c *redfish.Config) {
				c.Fingerprints = []fingerprint{{Host: "127.0.0.1", SHA256: sum(wrong)},
					{SHA256: sum(r.bmc.Fingerprint())}}
			}},
		{name: "the fingerprint is another host's", text: []string{"x509"},
			edit: func(r *rack, c *redfish.Config) {
				c.CAFile, c.Fingerprints = "", []fingerprint{{Host: "127.0.0.2", SHA256: sum(r.bmc.Fingerprint())}}
			}},
		{name: "CN only, caFile, another's fingerprint", opts: datacenter.Options{CommonNameOnly: true},
			text: []string{"x509", "Common"},
			edit: func(_ *rack, c *redfish.Config) { c.Fingerprints = []fingerprint{{SHA256: sum(wrong)}} }},
		{name: "RSA key exchange", opts: datacenter.Options{RSAKeyExchangeOnly: true},
			edit: func(*rack, *redfish.Config) {}, text: []string{"allowRSAKeyExchange", "handshake failure"}},
		{name: "RSA key exchange, allowed", opts: datacenter.Options{RSAKeyExchangeOnly: true}, trust: true,
			edit: func(_ *rack, c *redfish.Config) { c.AllowRSAKeyExchange = true }},
		{name: "allowed and not needed", trust: true,
			edit: func(_ *rack, c *redfish.Config) { c.AllowRSAKeyExchange, c.AllowOldTLS = true, true }},
		{name: "DHE only", opts: datacenter.Options{OtherCiphersOnly: true}, edit: func(*rack, *redfish.Config) {},
			text: []string{"allowRSAKeyExchange"}},
		{name: "DHE only, all is allowed", opts: datacenter.Options{OtherCiphersOnly: true},
			text: []string{"DHE", "TLS proxy"},
			edit: func(_ *rack, c *redfish.Config) { c.AllowRSAKeyExchange, c.AllowOldTLS = true, true }},
		{name: "old TLS", opts: datacenter.Options{OldTLSOnly: true}, edit: func(*rack, *redfish.Config) {},
			text: []string{"allowOldTLS", "no TLS 1.2"}},
		{name: "old TLS, RSA allowed", opts: datacenter.Options{OldTLSOnly: true}, text: []string{"allowOldTLS"},
			edit: func(_ *rack, c *redfish.Config) { c.AllowRSAKeyExchange = true }},
		{name: "old TLS, allowed", opts: datacenter.Options{OldTLSOnly: true}, trust: true,
			edit: func(_ *rack, c *redfish.Config) { c.AllowOldTLS = true }},
		{name: "old TLS, allowed, of another authority", opts: datacenter.Options{OldTLSOnly: true},
			text: []string{"caFile"},
			edit: func(_ *rack, c *redfish.Config) { c.AllowOldTLS, c.CAFile = true, "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRack(t, 1, tt.opts, tt.edit)
			if tt.trust {
				r.want(t, r.target(), providers.PowerOn)
				return
			}
			a := r.ask(t, r.target())
			if !errors.Is(a.Err, providers.ErrUntrusted) || a.State != providers.PowerUnknown ||
				len(r.bmc.Requests()) != 0 {
				t.Errorf("got %s, %v, %d requests", a.State, a.Err, len(r.bmc.Requests()))
			}
			for _, word := range tt.text {
				if text := providers.ErrorText(a.Err); !strings.Contains(text, word) {
					t.Errorf("got %q, want %q in it", text, word)
				}
			}
		})
	}
}

// What else BMCs do that no specification says.
func TestHabits(t *testing.T) {
	type fault = datacenter.Fault
	resets := func(r *rack, part string) int { return r.bmc.Count("POST", systems+"/m0/Actions/"+part) }
	t.Run("System.Reset", func(t *testing.T) {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.ms[0].SetFault(fault{SystemReset: true})
		if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil || r.ms[0].Running() ||
			resets(r, "System.Reset") != 1 {
			t.Errorf("PowerOff: %v, running %t", err, r.ms[0].Running())
		}
		if err := r.p.PowerOn(t.Context(), r.target(), providertest.AllowSend); err != nil || !r.ms[0].Running() {
			t.Errorf("PowerOn: %v", err)
		}
	})
	t.Run("If-Match", func(t *testing.T) {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.ms[0].SetFault(fault{NeedsIfMatch: true})
		for n := 2; n <= 4; n++ { // the first one learns
			r.ms[0].PowerOn()
			if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil || r.ms[0].Running() ||
				resets(r, "ComputerSystem.Reset") != n {
				t.Errorf("PowerOff: %v, running %t, %d resets, want %d", err, r.ms[0].Running(),
					resets(r, "ComputerSystem.Reset"), n)
			}
		}
	})
	t.Run("If-Match, refused at the second request", func(t *testing.T) {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.ms[0].SetFault(fault{NeedsIfMatch: true})
		asked := 0
		err := r.p.PowerOff(t.Context(), r.target(), func() error {
			if asked++; asked > 1 {
				return errors.New("no longer the leader")
			}
			return nil
		})
		if n := resets(r, "ComputerSystem.Reset"); n != 1 || asked != 2 || !r.ms[0].Running() {
			t.Errorf("%d resets, asked %d times, running %t; want 1, 2, true", n, asked, r.ms[0].Running())
		}
		if err == nil || errors.Is(err, providers.ErrNotSent) {
			t.Errorf("got %v, want an error other than ErrNotSent", err)
		}
	})
	t.Run("no Location", func(t *testing.T) {
		for _, how := range []string{"session", "auto"} {
			r := newRack(t, 1, datacenter.Options{}, auth(how))
			r.bmc.SetFault(fault{NoLocation: true})
			for range 3 {
				r.want(t, r.target(), providers.PowerOn)
			}
			if log := r.bmc.Requests(); r.bmc.Count("POST", sessions) != 1 || log[len(log)-1].Auth != "session" {
				t.Errorf("%s: %d log-ins, the last request with %s", how, r.bmc.Count("POST", sessions),
					log[len(log)-1].Auth)
			}
		}
	})
	t.Run("padded serial numbers", func(t *testing.T) {
		r := newRack(t, 3, datacenter.Options{}, oneBMC)
		r.ms[1].SetFault(fault{Serial: "  ABC123     "})
		r.ms[2].SetFault(fault{Serial: "      "})
		r.ms[1].CutPower()
		for _, id := range []string{"ABC123", " ABC123 "} {
			r.want(t, providers.Target{Node: "n1", ID: id}, providers.PowerOff)
		}
		if a := r.ask(t, providers.Target{Node: "n1", ID: "      "}); !errors.Is(a.Err, providers.ErrNotFound) {
			t.Errorf("blanks: got %s, %v", a.State, a.Err)
		}
	})
	t.Run("none reports a UUID", func(t *testing.T) {
		r := newRack(t, 2, datacenter.Options{}, oneBMC)
		r.bmc.SetFault(fault{NoUUID: true})
		a := r.ask(t, providers.Target{Node: "n1", SystemUUID: r.ms[0].SystemUUID()})
		if !errors.Is(a.Err, providers.ErrNotFound) ||
			!strings.Contains(a.Err.Error(), "none of the BMC's 2 systems reports a usable UUID") {
			t.Errorf("got %v", a.Err)
		}
	})
	t.Run("a sole system that reports none is asked directly", func(t *testing.T) {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.bmc.SetFault(fault{NoUUID: true})
		for range 5 {
			r.want(t, r.target(), providers.PowerOn)
		}
		if got := r.bmc.Count("GET", systems); got != 1 {
			t.Errorf("the systems were listed %d times", got)
		}
	})
	t.Run("by Id without a list", func(t *testing.T) {
		r := newRack(t, 3, datacenter.Options{}, oneBMC)
		r.want(t, providers.Target{Node: "n1", ID: "m1"}, providers.PowerOn)
		if got := r.bmc.Count("GET", systems); got != 0 {
			t.Errorf("the systems were listed %d times", got)
		}
	})
}

// The error contains the cause, in words that fit into an Event.
func TestErrorContainsTheCause(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault datacenter.Fault
		want  string
	}{
		{"licence", datacenter.Fault{Status: 403, Message: "SMC.v1_0_0.OemLicenseNotPassed"},
			"403 Forbidden (SMC.v1_0_0.OemLicenseNotPassed)"},
		{"vendor's message", datacenter.Fault{Status: 500, Message: "IDRAC.2.1.RAC0218"},
			"500 Internal Server Error (IDRAC.2.1.RAC0218)"},
		{"version with a patch", datacenter.Fault{Status: 400, Message: "Base.1.18.1.GeneralThing"},
			"400 Bad Request (Base.1.18.1.GeneralThing)"},
		{"not a message", datacenter.Fault{Status: 400, Message: "token=hunter2"}, "400 Bad Request"},
		{"nothing to tell", datacenter.Fault{Status: 400, Message: "Base.1.8.GeneralError"}, "400 Bad Request"},
	} {
		r := newRack(t, 1, datacenter.Options{}, auth("basic"))
		r.bmc.SetFault(tt.fault)
		if a := r.ask(t, r.target()); providers.ErrorText(a.Err) != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, providers.ErrorText(a.Err), tt.want)
		}
	}
}

// A machine on its way off by itself may take for ever: it is powered off.
func TestPoweringOffIsNotDone(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	r.ms[0].SetFault(datacenter.Fault{PowerWord: "PoweringOff"})
	if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil || r.ms[0].Running() {
		t.Errorf("PowerOff: %v, running %t", err, r.ms[0].Running())
	}
}

// drillRack asks as a drill does.
func drillRack(t *testing.T, r *rack, g *limiter.Provider) error {
	t.Helper()
	return providers.Ask(providers.ForDrill(t.Context()), g, "rack-a", r.target(), providers.Now).Err
}

// wantRefused checks that a drill reports which password the BMC refuses.
func wantRefused(t *testing.T, when string, err error, file string) {
	t.Helper()
	var refused *providers.RefusedPassword
	if !errors.As(err, &refused) || refused.Place != file ||
		!strings.Contains(providers.ErrorText(err), "the device refuses the password in "+file) {
		t.Errorf("%s: got %v, want that the device refuses the password in %s", when, err, file)
	}
}

// A drill notices a password that the BMC refuses although the session of the old one still works. The session stays,
// so that a fence can use it. Log-ins are rare: one for each content of the file, and one an hour.
func TestDrillLogsInAgain(t *testing.T) {
	const every = 5 * time.Minute
	for _, how := range []string{"session", "auto"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, auth(how), func(t *testing.T, r *rack, g *limiter.Provider) {
				drill := func(when string) {
					t.Helper()
					if err := drillRack(t, r, g); err != nil {
						t.Fatalf("%s: got %v", when, err)
					}
					time.Sleep(every)
				}
				wantLogins := func(when string, want int) {
					t.Helper()
					synctest.Wait()
					if got, open := r.bmc.Count("POST", sessions), r.bmc.Sessions(); got != want || open != 1 {
						t.Errorf("%s: got %d log-ins, %d open sessions; want %d, 1", when, got, open, want)
					}
				}
				for range 12 {
					drill("in the first hour")
				}
				wantLogins("in the first hour", 1)
				drill("an hour later")
				wantLogins("an hour later", 2)

				right := r.dc.Password()
				writePassword(t, r, "not the BMC's")
				for range 3 {
					wantRefused(t, "a wrong content", drillRack(t, r, g), r.file)
				}
				wantLogins("a wrong content", 3)
				if a := r.ask(t, r.target()); a.State != providers.PowerOn || a.Err != nil {
					t.Errorf("the old session serves a fence: got %s, %v", a.State, a.Err)
				}
				writePassword(t, r, right)
				drill("the right content again")
				wantLogins("the right content again", 3) // the session's own content

				r.renew(t, "rotated on both sides")
				drill("rotated on both sides")
				wantLogins("rotated on both sides", 4)

				r.dc.SetPassword("changed on the BMC alone")
				for range 11 {
					drill("changed on the BMC alone, within the hour")
				}
				wantRefused(t, "changed on the BMC alone", drillRack(t, r, g), r.file)
				wantLogins("changed on the BMC alone", 5)
				time.Sleep(every)
				wantRefused(t, "five minutes later", drillRack(t, r, g), r.file)
				wantLogins("five minutes later: the account is not locked", 5)
			})
		})
	}
}

// A drill's log-in replaces the session where the BMC has no slot for a second one, and where a BMC gives no session
// for another reason, the old one serves on.
func TestDrillLogsInAgainWithoutSlots(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{SessionSlots: 1}, auth("session"))
	r.want(t, r.target(), providers.PowerOn)
	drill := func() providers.Answer {
		return providers.Ask(providers.ForDrill(t.Context()), r.p, "rack-a", r.target(), providers.Now)
	}
	r.renew(t, "rotated")
	if a := drill(); a.Err != nil || r.bmc.Sessions() != 1 {
		t.Errorf("one slot: got %v, %d sessions", a.Err, r.bmc.Sessions())
	}
	made := r.bmc.Count("POST", sessions)
	if a := drill(); a.Err != nil || r.bmc.Count("POST", sessions) != made {
		t.Errorf("one slot: got %v, and another log-in with the same password", a.Err)
	}
	r.renew(t, "rotated again")
	r.bmc.SetFault(datacenter.Fault{SessionStatus: 500})
	if a := drill(); a.Err != nil || a.State != providers.PowerOn {
		t.Errorf("no session: got %s, %v, want the old session's answer", a.State, a.Err)
	}
	r.bmc.SetFault(datacenter.Fault{})
	if a := drill(); a.Err != nil || r.bmc.Sessions() != 1 {
		t.Errorf("repaired: got %v, %d sessions", a.Err, r.bmc.Sessions())
	}
}

// A drill keeps a working session where the BMC gives no second one: neither the freed slot, which another client may
// take at once, nor basic authentication is sure to serve a fence. A full BMC is asked once an hour.
func TestDrillKeepsTheLastSession(t *testing.T) {
	for _, how := range []string{"session", "auto"} {
		for _, status := range []int{http.StatusConflict, http.StatusServiceUnavailable,
			http.StatusInternalServerError} {
			t.Run(fmt.Sprint(how, " ", status), func(t *testing.T) {
				bubble(t, 1, auth(how), func(t *testing.T, r *rack, g *limiter.Provider) {
					drillHour := func(when string) {
						t.Helper()
						for range 12 {
							if err := drillRack(t, r, g); err != nil {
								t.Fatalf("%s: got %v", when, err)
							}
							time.Sleep(5 * time.Minute)
							if open := r.bmc.Sessions(); open != 1 {
								t.Fatalf("%s: got %d open sessions, want 1", when, open)
							}
						}
					}
					drillHour("the first hour")
					r.bmc.SetFault(datacenter.Fault{SessionStatus: status})
					drillHour("the second hour")
					made := r.bmc.Count("POST", sessions)
					if full := status != http.StatusInternalServerError; full && made != 2 {
						t.Errorf("all sessions in use: got %d log-ins in two hours, want 2", made)
					}
					if a := r.ask(t, r.target()); a.State != providers.PowerOn || a.Err != nil {
						t.Errorf("the session serves a fence: got %s, %v", a.State, a.Err)
					}
					r.bmc.SetFault(datacenter.Fault{})
					drillHour("repaired")
					if got := r.bmc.Count("POST", sessions); got != made+1 {
						t.Errorf("repaired: got %d log-ins, want 1", got-made)
					}
				})
			})
		}
	}
}

// writePassword changes the password in the file alone.
func writePassword(t *testing.T, r *rack, password string) {
	t.Helper()
	if err := os.WriteFile(r.file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
