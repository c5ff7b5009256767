package redfish_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	sessions = "/redfish/v1/SessionService/Sessions"
	systems  = "/redfish/v1/Systems"
)

// rack is a data centre whose machines m0, m1, ... are behind one BMC, and a provider for them.
type rack struct {
	dc   *datacenter.DataCenter
	ms   []*datacenter.Machine
	bmc  *datacenter.BMC
	p    *redfish.Provider
	file string // of the password
}

// renew changes the password, on the BMC and in the file.
func (r *rack) renew(t *testing.T, password string) {
	t.Helper()
	r.dc.SetPassword(password)
	if err := os.WriteFile(r.file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newRack(t *testing.T, machines int, o datacenter.Options, edit func(*rack, *redfish.Config)) *rack {
	t.Helper()
	r := &rack{dc: datacenter.New(o)}
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
	t.Cleanup(func() {
		r.bmc.SetFault(datacenter.Fault{})
		if err := r.p.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := r.dc.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rack) target() providers.Target {
	return providers.Target{Node: "n1", ID: r.bmc.URL(), SystemUUID: r.ms[0].SystemUUID()}
}

// powerOff goes through a limiter, as in production.
func (r *rack) powerOff(t *testing.T, target providers.Target) error {
	t.Helper()
	return limiter.New(r.p, limiter.Options{Name: "rack-a", Type: "redfish"}).
		PowerOff(t.Context(), target, providertest.AllowSend)
}

func (r *rack) ask(t *testing.T, target providers.Target) providers.Answer {
	t.Helper()
	return providers.Ask(t.Context(), r.p, "rack-a", target, providers.Now)
}

func (r *rack) want(t *testing.T, target providers.Target, want providers.PowerState) {
	t.Helper()
	if a := r.ask(t, target); a.State != want || a.Err != nil {
		t.Errorf("state: got %s (%q), %v; want %s", a.State, a.Raw, a.Err, want)
	}
}

func oneBMC(r *rack, c *redfish.Config) { c.Address = r.bmc.URL() }

func auth(how string) func(*rack, *redfish.Config) {
	return func(_ *rack, c *redfish.Config) { c.Auth = how }
}

func TestWords(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	r.ms[0].CutPower()
	for word, want := range map[string]providers.PowerState{
		"On": providers.PowerOn, "Paused": providers.PowerOn, "Off": providers.PowerOff,
		"PoweringOn": providers.PowerChanging, "PoweringOff": providers.PowerChanging,
		// the last begins with a Cyrillic letter
		"off": 0, "OFF": 0, "Off ": 0, " Off": 0, "Off\n": 0, "SoftOff": 0, "PowerOff": 0, "Unknown": 0, "Оff": 0,
	} {
		r.bmc.SetFault(datacenter.Fault{PowerWord: word})
		if a := r.ask(t, r.target()); a.State != want || a.Raw != word || a.Err != nil {
			t.Errorf("%q: got %s (%q), %v; want %s", word, a.State, a.Raw, a.Err, want)
		}
	}
	r.bmc.SetFault(datacenter.Fault{NoPowerWord: true})
	if a := r.ask(t, r.target()); a.State != providers.PowerUnknown || a.Err != nil {
		t.Errorf("null: got %s, %v", a.State, a.Err)
	}
}

// With every fault the answer is never Off, has its class, comes by the deadline and contains no password.
func TestFaults(t *testing.T) {
	off := `{"Id":"m0","PowerState":"Off"`
	tests := []struct {
		name  string
		fault datacenter.Fault
		class error
		text  string // in the error
	}{
		{"503", datacenter.Fault{Status: 503}, providers.ErrUnreachable, "503 Service Unavailable"},
		{"500", datacenter.Fault{Status: 500}, providers.ErrUnreachable, "500 Internal Server Error"},
		{"501", datacenter.Fault{Status: 501}, providers.ErrPermanent, "501 Not Implemented"},
		{"400", datacenter.Fault{Status: 400}, providers.ErrPermanent, "400 Bad Request"},
		{"401", datacenter.Fault{Status: 401}, providers.ErrDenied, "401 Unauthorized"},
		{"403", datacenter.Fault{Status: 403}, providers.ErrDenied, "403 Forbidden"},
		{"404", datacenter.Fault{Status: 404}, providers.ErrNotFound, "404 Not Found"},
		{"429", datacenter.Fault{Status: 429}, providers.ErrUnreachable, "429 Too Many Requests"},
		{"slow", datacenter.Fault{Delay: time.Second}, providers.ErrUnreachable, "test.timeout"},
		{"silent", datacenter.Fault{Silent: true}, providers.ErrUnreachable, "test.timeout"},
		{"hangs in TLS", datacenter.Fault{HangTLS: true}, providers.ErrUnreachable, "test.timeout"},
		{"slow body", datacenter.Fault{SlowBody: true}, providers.ErrUnreachable, "test.timeout"},
		{"drops the connection", datacenter.Fault{Drop: true}, providers.ErrUnreachable, ""}, // EOF, or by time
		{"huge body", datacenter.Fault{HugeBody: true}, providers.ErrUnreachable, ""},        // by size or by time
		{"204 without a body", datacenter.Fault{Empty: true}, providers.ErrUnreachable, ""},
		{"no JSON", datacenter.Fault{Body: "<html>Off</html>"}, providers.ErrUnreachable, ""},
		{"half a document", datacenter.Fault{Body: off}, providers.ErrUnreachable, ""},
		{"a document and more", datacenter.Fault{Body: off + "}{}"}, providers.ErrUnreachable, ""},
		{"a number for a word", datacenter.Fault{Body: `{"Id":"m0","PowerState":0}`}, providers.ErrUnreachable, ""},
		{"redirect to another host", datacenter.Fault{Redirect: "https://127.0.0.2:1" + systems},
			providers.ErrPermanent, "redirect"},
		{"redirect to another resource", datacenter.Fault{Redirect: systems + "/m1"}, providers.ErrPermanent,
			"redirect"},
	}
	for _, tt := range tests {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, warm %t", tt.name, warm), func(t *testing.T) {
				t.Parallel()
				r := newRack(t, 1, datacenter.Options{}, nil)
				r.ms[0].CutPower()
				target := r.target()
				target.ID = r.bmc.SystemURL(r.ms[0])
				if warm {
					r.want(t, target, providers.PowerOff)
				}
				r.ms[0].PowerOn()
				r.bmc.SetFault(tt.fault)
				limit := 20 * time.Second // what a busy machine needs for an answer
				if tt.text == "test.timeout" || tt.text == "" {
					limit = 250 * time.Millisecond
				}
				for act, call := range map[string]func(context.Context) error{
					"ask state of": func(ctx context.Context) error {
						a := providers.Ask(ctx, r.p, "rack-a", target, providers.Now)
						if a.State != providers.PowerUnknown {
							t.Errorf("state: got %s (%q)", a.State, a.Raw)
						}
						return a.Err
					},
					"power off": func(ctx context.Context) error {
						return r.p.PowerOff(ctx, target, providertest.AllowSend)
					},
				} {
					ctx, cancel := context.WithTimeoutCause(t.Context(), limit,
						errors.New("no answer (test.timeout)"))
					err := call(ctx)
					cancel()
					if !errors.Is(err, tt.class) {
						t.Fatalf("%s: got %v, want %v", act, err, tt.class)
					}
					want := fmt.Sprintf("%s node n1 (redfish rack-a %s): ", act, r.bmc.URL())
					if text := err.Error(); !strings.HasPrefix(text, want) || !strings.Contains(text, tt.text) ||
						strings.Contains(text, r.dc.Password()) {
						t.Errorf("%s: got %q, want %s...%s", act, text, want, tt.text)
					}
				}
				if !r.ms[0].Running() {
					t.Error("the machine went off")
				}
				r.bmc.SetFault(datacenter.Fault{})
				if tt.fault.Status == http.StatusUnauthorized {
					r.renew(t, "another")
				}
				r.want(t, target, providers.PowerOn)
			})
		}
	}
}

func TestErrorReads(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	r.bmc.SetFault(datacenter.Fault{Status: 503})
	_, err := r.p.State(t.Context(), r.target())
	if want := "ask state of node n1 (redfish rack-a " + r.bmc.URL() + "): 503 Service Unavailable"; err == nil ||
		err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := r.bmc.Count("GET", "/redfish/v1/"); got != 3 {
		t.Errorf("a GET that is answered with 503 was sent %d times, want 3", got)
	}
	r.bmc.SetFault(datacenter.Fault{})
	r.ms[0].SetFault(datacenter.Fault{NoForceOff: true})
	if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) ||
		!strings.Contains(err.Error(), "offers no ForceOff") {
		t.Errorf("no ForceOff: got %v", err)
	}
	r.ms[0].SetFault(datacenter.Fault{NoAction: true})
	if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) ||
		!strings.Contains(err.Error(), "no reset action") {
		t.Errorf("no action: got %v", err)
	}
}

func TestBMCIsNotThere(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	gone := datacenter.New(datacenter.Options{})
	url := gone.AddBMC().URL()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.State(t.Context(), providers.Target{Node: "n1", ID: url}); !errors.Is(err,
		providers.ErrUnreachable) {
		t.Errorf("refused: got %v", err)
	}
	foreign := datacenter.New(datacenter.Options{}) // signed by another authority
	defer foreign.Close()
	m := foreign.AddMachine("m0")
	m.CutPower()
	bmc := foreign.AddBMC(m)
	a := r.ask(t, providers.Target{Node: "n1", ID: bmc.URL()})
	if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrUntrusted) || len(bmc.Requests()) != 0 {
		t.Errorf("foreign certificate: got %s, %v, %d requests", a.State, a.Err, len(bmc.Requests()))
	}
}

func swap(uuid string) string {
	u, _ := providers.ParseUUID(uuid)
	u = providers.SwapUUID(u)
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func TestSeveralSystems(t *testing.T) {
	type fault = datacenter.Fault
	notFound := providers.ErrNotFound
	tests := []struct {
		name   string
		alone  bool             // without an address in the configuration: the ID is the BMC
		faults map[string]fault // by machine
		target func(r *rack) (id, uuid string)
		class  error  // nil: machine m1 is found
		text   string // in the error
	}{
		{name: "Id", target: func(r *rack) (string, string) { return "m1", "" }},
		{name: "UUID", target: func(r *rack) (string, string) { return r.ms[1].SystemUUID(), "" }},
		{name: "UUID in the other byte order",
			target: func(r *rack) (string, string) { return swap(r.ms[1].SystemUUID()), "" }},
		{name: "serial number", target: func(r *rack) (string, string) { return r.ms[1].Serial(), "" }},
		{name: "the node's UUID", target: func(r *rack) (string, string) { return "", r.ms[1].SystemUUID() }},
		{name: "the node's UUID in the other byte order",
			target: func(r *rack) (string, string) { return "", swap(r.ms[1].SystemUUID()) }},
		{name: "the BMC's address", alone: true,
			target: func(r *rack) (string, string) { return r.bmc.URL(), r.ms[1].SystemUUID() }},
		{name: "the system's address", alone: true,
			target: func(r *rack) (string, string) { return r.bmc.SystemURL(r.ms[1]) + "/", r.ms[1].SystemUUID() }},

		{name: "none has it", target: func(r *rack) (string, string) { return "m9", "" }, class: notFound,
			text: "none of the BMC's 3 systems"},
		{name: "none has the node's UUID", target: func(r *rack) (string, string) { return "", anotherUUID },
			class: notFound, text: anotherUUID},
		{name: "nothing is known", target: func(r *rack) (string, string) { return "", "" }, class: notFound,
			text: "name the system"},
		{name: "a placeholder is known",
			target: func(r *rack) (string, string) { return "", "03000200-0400-0500-0006-000700080009" },
			class:  notFound},
		{name: "the BMC's address, nothing is known", alone: true,
			target: func(r *rack) (string, string) { return r.bmc.URL(), "" }, class: notFound},
		{name: "Id of one, UUID of another",
			target: func(r *rack) (string, string) { return "m1", r.ms[0].SystemUUID() }, class: providers.ErrIdentity},
		{name: "one serial number on two", faults: map[string]fault{"m0": {Serial: "S"}, "m2": {Serial: "S"}},
			target: func(r *rack) (string, string) { return "S", "" }, class: notFound,
			text: "2 systems match (m0, m2)"},
		{name: "serial number of one, Id of another", faults: map[string]fault{"m2": {Serial: "m1"}},
			target: func(r *rack) (string, string) { return "m1", "" }},
		{name: "one UUID on two",
			faults: map[string]fault{"m0": {SystemUUID: anotherUUID}, "m2": {SystemUUID: swap(anotherUUID)}},
			target: func(r *rack) (string, string) { return "", anotherUUID }, class: notFound,
			text: "2 systems match"},
		{name: "no serial numbers, nothing is known", faults: map[string]fault{"m0": {NoSerial: true, NoUUID: true}},
			target: func(r *rack) (string, string) { return "", "" }, class: notFound},
		{name: "a placeholder on the systems",
			faults: map[string]fault{"m0": {SystemUUID: "00000000-0000-0000-0000-000000000000"}},
			target: func(r *rack) (string, string) { return "00000000-0000-0000-0000-000000000000", "" },
			class:  notFound},

		{name: "Id beside a dead blade", faults: map[string]fault{"m0": {Status: 500}},
			target: func(r *rack) (string, string) { return "m1", "" }},
		{name: "UUID beside a dead blade", faults: map[string]fault{"m0": {Status: 500}},
			target: func(r *rack) (string, string) { return "", r.ms[1].SystemUUID() }},
		{name: "serial number beside a dead blade", faults: map[string]fault{"m0": {Status: 500}},
			target: func(r *rack) (string, string) { return r.ms[1].Serial(), "" }, class: providers.ErrUnreachable},
		{name: "none, beside a dead blade", faults: map[string]fault{"m0": {Status: 500}},
			target: func(r *rack) (string, string) { return "", r.ms[0].SystemUUID() }, class: providers.ErrUnreachable,
			text: "500"},
	}
	for _, tt := range tests {
		for _, pages := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, page size %d", tt.name, pages), func(t *testing.T) {
				edit := oneBMC
				if tt.alone {
					edit = nil
				}
				r := newRack(t, 3, datacenter.Options{PageSize: pages}, edit)
				for _, m := range r.ms {
					m.SetFault(tt.faults[m.Name()])
				}
				r.ms[1].CutPower() // m1 alone is off
				id, uuid := tt.target(r)
				target := providers.Target{Node: "n1", ID: id, SystemUUID: uuid}
				for range 2 { // looked up, and remembered
					if tt.class == nil {
						r.want(t, target, providers.PowerOff)
						continue
					}
					a := r.ask(t, target)
					if a.State != providers.PowerUnknown || !errors.Is(a.Err, tt.class) ||
						!strings.Contains(a.Err.Error(), tt.text) {
						t.Errorf("got %s, %v; want %v %q", a.State, a.Err, tt.class, tt.text)
					}
					if err := r.powerOff(t, target); !errors.Is(err, tt.class) {
						t.Errorf("PowerOff: got %v, want %v", err, tt.class)
					}
				}
				if !r.ms[0].Running() || !r.ms[2].Running() {
					t.Error("another machine went off")
				}
			})
		}
	}
}

// A blade moved to another slot: the remembered place has another machine now, and must not speak for it.
func TestSystemsTradePlaces(t *testing.T) {
	r := newRack(t, 2, datacenter.Options{}, oneBMC)
	target := providers.Target{Node: "n1", SystemUUID: r.ms[0].SystemUUID()}
	r.want(t, target, providers.PowerOn)
	r.ms[0].SetFault(datacenter.Fault{SystemUUID: r.ms[1].SystemUUID()})
	r.ms[1].SetFault(datacenter.Fault{SystemUUID: r.ms[0].SystemUUID()})
	r.ms[0].CutPower()
	r.want(t, target, providers.PowerOn)
	if err := r.p.PowerOff(t.Context(), target, providertest.AllowSend); err != nil || r.ms[1].Running() {
		t.Errorf("PowerOff at the new place: got %v, running %t", err, r.ms[1].Running())
	}
	r.want(t, target, providers.PowerOff)
}

func TestSessionIsSharedAndGivenBack(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{SessionSlots: 1}, auth("session"))
	storm := func() {
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				for range 4 {
					r.want(t, r.target(), providers.PowerOn)
				}
			})
		}
		calls.Wait()
	}
	storm()
	if made, open := r.bmc.Count("POST", sessions), r.bmc.Sessions(); made != 1 || open != 1 {
		t.Errorf("32 calls made %d sessions, %d are open; want 1, 1", made, open)
	}
	for _, q := range r.bmc.Requests() {
		if q.Auth == "basic" {
			t.Fatalf("%s %s went with basic authentication", q.Method, q.Path)
		}
	}
	for n := 2; n <= 3; n++ {
		r.bmc.ExpireSessions()
		storm()
		if made, open := r.bmc.Count("POST", sessions), r.bmc.Sessions(); made != n || open != 1 {
			t.Errorf("after the session expired: %d made, %d open; want %d, 1", made, open, n)
		}
	}
	r.bmc.DropConnections() // a BMC that restarts its web server and keeps its sessions
	r.want(t, r.target(), providers.PowerOn)
	if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil {
		t.Errorf("PowerOff: %v", err)
	}
	if err := r.p.Close(t.Context()); err != nil || r.bmc.Sessions() != 0 {
		t.Errorf("Close: %v, %d sessions are open", err, r.bmc.Sessions())
	}
	if _, err := r.p.State(t.Context(), r.target()); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("State after Close: got %v", err)
	}
}

func TestIdleSessionIsGivenBack(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	redfish.SetIdle(r.p, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for range 3 {
		r.want(t, r.target(), providers.PowerOn)
		if err := r.bmc.Await(ctx, func() bool { return r.bmc.Sessions() == 0 }); err != nil {
			t.Fatalf("%v: %d sessions", err, r.bmc.Sessions())
		}
	}
}

func TestCloseReportsAndReturns(t *testing.T) {
	dc := datacenter.New(datacenter.Options{})
	defer dc.Close()
	m := dc.AddMachine("m0")
	bmc := dc.AddBMC(m)
	p := newProvider(t, dc, nil)
	if _, err := p.State(t.Context(), providers.Target{Node: "n1", ID: bmc.URL()}); err != nil {
		t.Fatal(err)
	}
	bmc.SetFault(datacenter.Fault{Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, providers.ErrUnreachable) ||
		!strings.Contains(err.Error(), "close session on "+bmc.URL()) {
		t.Errorf("got %v", err)
	}
}

func TestFallbackToBasic(t *testing.T) {
	tests := []struct {
		name  string
		fault datacenter.Fault
		class error // with auth: session
	}{
		{"404", datacenter.Fault{SessionStatus: 404}, providers.ErrNotFound},
		{"405", datacenter.Fault{SessionStatus: 405}, providers.ErrPermanent},
		{"500", datacenter.Fault{SessionStatus: 500}, providers.ErrUnreachable},
		{"501", datacenter.Fault{SessionStatus: 501}, providers.ErrPermanent},
		{"no slot left", datacenter.Fault{SessionStatus: 503}, providers.ErrUnreachable},
		{"no token", datacenter.Fault{NoToken: true}, providers.ErrPermanent},
		{"dead tokens", datacenter.Fault{DeadTokens: true}, providers.ErrDenied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRack(t, 1, datacenter.Options{}, auth("auto"))
			r.bmc.SetFault(tt.fault)
			for range 3 {
				r.want(t, r.target(), providers.PowerOn)
			}
			if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil {
				t.Errorf("PowerOff: %v", err)
			}
			log := r.bmc.Requests()
			if made := r.bmc.Count("POST", sessions); made != 1 || log[len(log)-1].Auth != "basic" {
				t.Errorf("%d sessions were tried, the last request went with %s", made, log[len(log)-1].Auth)
			}

			r = newRack(t, 1, datacenter.Options{}, auth("session"))
			r.bmc.SetFault(tt.fault)
			if a := r.ask(t, r.target()); a.State != providers.PowerUnknown || !errors.Is(a.Err, tt.class) {
				t.Errorf("auth session: got %s, %v; want %v", a.State, a.Err, tt.class)
			}
			if slices.ContainsFunc(r.bmc.Requests(), func(q datacenter.Request) bool { return q.Auth == "basic" }) {
				t.Error("auth session: basic authentication was used")
			}
		})
	}
}

func TestPassword(t *testing.T) {
	for _, how := range []string{"auto", "session", "basic"} {
		t.Run(how, func(t *testing.T) {
			var file string
			r := newRack(t, 1, datacenter.Options{},
				func(_ *rack, c *redfish.Config) { c.Auth, file = how, c.PasswordFile })
			r.want(t, r.target(), providers.PowerOn)
			r.dc.SetPassword("rotated-word")
			r.bmc.ExpireSessions()
			before := len(r.bmc.Requests())
			if a := r.ask(t, r.target()); !errors.Is(a.Err, providers.ErrDenied) {
				t.Errorf("old password: got %v", a.Err)
			}
			// The wrong password goes out once: the account must not get locked.
			refused := 0
			for _, q := range r.bmc.Requests()[before:] {
				if q.Status == http.StatusUnauthorized && (q.Method == http.MethodPost || how == "basic") {
					refused++
				}
			}
			if refused != 1 {
				t.Errorf("the old password was sent %d times", refused)
			}
			if err := os.WriteFile(file, []byte("rotated-word\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.want(t, r.target(), providers.PowerOn)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			r.want(t, r.target(), providers.PowerOn) // the login lives on
		})
	}
}

// A reset is sent once, however it fails; what it did is seen on the next look.
func TestResetIsSentOnce(t *testing.T) {
	action := systems + "/m0/Actions/ComputerSystem.Reset"
	tests := []struct {
		name  string
		fault datacenter.Fault
		class error
		off   bool
	}{
		{"the answer is lost", datacenter.Fault{ActionLost: true}, providers.ErrUnreachable, true},
		{"503", datacenter.Fault{ActionStatus: 503}, providers.ErrUnreachable, false},
		{"401", datacenter.Fault{ActionStatus: 401}, providers.ErrDenied, false},
		{"409 and still on", datacenter.Fault{ActionStatus: 409}, providers.ErrPermanent, false},
		{"412", datacenter.Fault{ActionStatus: 412}, providers.ErrPermanent, false},
	}
	for _, tt := range tests {
		r := newRack(t, 1, datacenter.Options{}, nil)
		r.ms[0].SetFault(tt.fault)
		if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); !errors.Is(err, tt.class) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.class)
		}
		if got := r.bmc.Count("POST", action); got != 1 || r.ms[0].Running() == tt.off {
			t.Errorf("%s: %d resets were sent, running %t", tt.name, got, r.ms[0].Running())
		}
		r.ms[0].SetFault(datacenter.Fault{})
		if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); err != nil {
			t.Errorf("%s: again: %v", tt.name, err)
		}
		r.want(t, r.target(), providers.PowerOff)
	}
}

// Links in answers lead nowhere but to the BMC itself: another host would get the password or a token.
func TestHostileLinks(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, auth("session"))
	other := r.dc.AddBMC(r.ms[0])
	host := strings.TrimPrefix(other.URL(), "https://")
	for _, where := range []string{"@" + host + sessions, other.URL() + sessions, "//" + host + sessions} {
		r.bmc.SetFault(
			datacenter.Fault{
				Body: fmt.Sprintf(`{"Links":{"Sessions":{"@odata.id":%q}},"Systems":{"@odata.id":%q}}`, where, where)})
		if a := r.ask(t, r.target()); a.State != providers.PowerUnknown || a.Err == nil ||
			strings.Contains(a.Err.Error(), r.dc.Password()) {
			t.Errorf("sessions at %s: got %s, %v", where, a.State, a.Err)
		}
	}
	r.bmc.SetFault(datacenter.Fault{})
	r.want(t, r.target(), providers.PowerOn)
	for _, where := range []string{"@" + host + systems, other.URL() + systems, "", "systems"} {
		r.ms[0].SetFault(
			datacenter.Fault{
				Body: fmt.Sprintf(`{"PowerState":"On","UUID":%q,"Actions":{"#ComputerSystem.Reset":{"target":%q}}}`,
					r.ms[0].SystemUUID(), where)})
		if err := r.p.PowerOff(t.Context(), r.target(), providertest.AllowSend); !errors.Is(err,
			providers.ErrPermanent) {
			t.Errorf("reset at %q: got %v", where, err)
		}
	}
	r.ms[0].SetFault(datacenter.Fault{Redirect: other.SystemURL(r.ms[0])})
	if a := r.ask(t, r.target()); !errors.Is(a.Err, providers.ErrPermanent) {
		t.Errorf("redirect: got %v", a.Err)
	}
	if got := other.Requests(); len(got) != 0 {
		t.Errorf("the other host was asked: %+v", got)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	password, empty := filepath.Join(dir, "password"), filepath.Join(dir, "empty")
	for path, content := range map[string]string{password: "x", empty: ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := redfish.Config{Credentials: remote.Credentials{Username: "u", PasswordFile: password}, Auth: "auto"}
	tests := []struct {
		name string
		edit func(*redfish.Config)
		want string // the paths of the problems
	}{
		{"good", func(*redfish.Config) {}, ""},
		{"nothing", func(c *redfish.Config) { *c = *redfish.NewConfig() }, "username passwordFile"},
		{"zero value", func(c *redfish.Config) { *c = redfish.Config{} }, "username passwordFile auth"},
		{"address", func(c *redfish.Config) { c.Address = "https://10.0.0.7:8443/" }, ""},
		{"IPv6", func(c *redfish.Config) { c.Address = "https://[fd00::7]" }, ""},
		{"no scheme", func(c *redfish.Config) { c.Address = "10.0.0.7" }, "address"},
		{"other scheme", func(c *redfish.Config) { c.Address = "ftp://10.0.0.7" }, "address"},
		{"plain", func(c *redfish.Config) { c.Address = "http://10.0.0.7" }, "address"},
		{"plain, allowed", func(c *redfish.Config) { c.Address, c.AllowHTTP = "http://10.0.0.7", true }, ""},
		{"plain, this host", func(c *redfish.Config) { c.Address = "http://127.0.0.1:8000" }, ""},
		{"plain, a name like this host's", func(c *redfish.Config) { c.Address = "http://localhost.example" },
			"address"},
		{"path", func(c *redfish.Config) { c.Address = "https://10.0.0.7/redfish/v1/Systems/1" }, "address"},
		{"query", func(c *redfish.Config) { c.Address = "https://10.0.0.7?a=b" }, "address"},
		{"credentials", func(c *redfish.Config) { c.Address = "https://u:geheim@10.0.0.7" }, "address"},
		{"two passwords", func(c *redfish.Config) { c.PasswordEnv = "X" }, "passwordFile"},
		{"empty password", func(c *redfish.Config) { c.PasswordFile = empty }, "passwordFile"},
		{"auth", func(c *redfish.Config) { c.Auth = "Basic" }, "auth"},
		{"no CA", func(c *redfish.Config) { c.CAFile = filepath.Join(dir, "none") }, "caFile"},
		{"CA without a certificate", func(c *redfish.Config) { c.CAFile = password }, "caFile"},
		{"fingerprints", func(c *redfish.Config) {
			c.Fingerprints = []remote.Fingerprint{{SHA256: sum(strings.Repeat("5F:", 31) + "a1")},
				{Host: "BMC.example:8443", SHA256: sum(strings.Repeat("0b", 32))}}
		}, ""},
		{"bad fingerprints", func(c *redfish.Config) {
			c.Fingerprints = []remote.Fingerprint{{},
				{Host: "https://bmc.example", SHA256: sum(strings.Repeat("0b", 32))}}
		}, "fingerprints[0].sha256 fingerprints[1].host"},
		{"fingerprints without effect", func(c *redfish.Config) {
			c.Fingerprints, c.InsecureSkipVerify = []remote.Fingerprint{{SHA256: sum(strings.Repeat("0b", 32))}}, true
		}, "insecureSkipVerify"},
		{"CA without effect", func(c *redfish.Config) { c.CAFile, c.InsecureSkipVerify = password, true },
			"caFile insecureSkipVerify"},
	}
	for _, tt := range tests {
		c := good
		tt.edit(&c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
			if strings.Contains(p.Text, "geheim") || p.Text == "" {
				t.Errorf("%s: got text %q", tt.name, p.Text)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTargetIDs(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, nil)
	for id, class := range map[string]error{
		"":                                     providers.ErrNotFound,
		"m0":                                   providers.ErrPermanent,
		"http://10.0.0.7":                      providers.ErrPermanent,
		"https://u:geheim@127.0.0.1":           providers.ErrPermanent,
		"https://u:gehe im@127.0.0.1":          providers.ErrPermanent,
		r.bmc.URL() + "/redfish/v1":            providers.ErrPermanent,
		r.bmc.URL() + "/redfish/v1/":           providers.ErrPermanent,
		r.bmc.URL() + systems + "/m0/Bios":     providers.ErrPermanent,
		r.bmc.URL() + systems + "/..":          providers.ErrPermanent,
		r.bmc.URL() + "/redfish/v1/Chassis/m0": providers.ErrPermanent,
		r.bmc.URL() + "#x":                     providers.ErrPermanent,
		r.bmc.URL() + "/":                      nil,
	} {
		target := providers.Target{Node: "n1", ID: id}
		_, err := r.p.State(t.Context(), target)
		if !errors.Is(err, class) || err != nil && strings.Contains(err.Error(), "gehe") {
			t.Errorf("%q: got %v, want %v", id, err, class)
		}
		if got := r.p.DeviceOf(target); (got != "") != (class == nil) {
			t.Errorf("%q: device is %q", id, got)
		}
	}
	for _, id := range []string{"https://BMC.example:443", "https://bmc.example/redfish/v1/Systems/2"} {
		if got := r.p.DeviceOf(providers.Target{ID: id}); got != "https://bmc.example" {
			t.Errorf("%q: device is %q", id, got)
		}
	}
}

func TestInsecureIsOnlyWhatItSays(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{},
		func(_ *rack, c *redfish.Config) { c.CAFile, c.InsecureSkipVerify = "", true })
	r.want(t, r.target(), providers.PowerOn)
	// gofish v0.23 to v0.25 would switch off verification for the whole process.
	if resp, err := http.Get(r.bmc.URL()); err == nil {
		resp.Body.Close()
		t.Error("the process' default client trusts the BMC now")
	}
}

// Each machine's password goes to that machine's BMC, and opens a session for no other: one node's missing or wrong
// password is its own matter.
func TestEachMachineItsPassword(t *testing.T) {
	for _, auth := range []string{"auto", "basic"} {
		t.Run(auth, func(t *testing.T) {
			folder := t.TempDir()
			write := func(node, password string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(folder, node), []byte(password+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			racks := map[string]*rack{}
			var targets []providers.Target
			for _, node := range []string{"n1", "n2"} {
				r := newRack(t, 1, datacenter.Options{Password: "password of " + node}, nil)
				racks[node] = r
				write(node, "password of "+node)
				targets = append(targets,
					providers.Target{Node: node, ID: r.bmc.URL(), SystemUUID: r.ms[0].SystemUUID()})
			}
			n1, n2 := targets[0], targets[1]
			p := newProvider(t, racks["n1"].dc, func(c *redfish.Config) {
				c.Auth, c.PasswordFile, c.CAFile, c.InsecureSkipVerify = auth, folder+"/{name}", "", true
				if problems := c.Validate(); len(problems) > 0 {
					t.Fatal(problems)
				}
			})
			defer func() {
				if err := p.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			ask := func(target providers.Target, want error) {
				t.Helper()
				a := providers.Ask(t.Context(), p, "rack-a", target, providers.Now)
				if want == nil && (a.Err != nil || a.State != providers.PowerOn) ||
					want != nil && !errors.Is(a.Err, want) {
					t.Errorf("%s at %s: got %s, %v; want %v", target.Node, target.ID, a.State, a.Err, want)
				}
				if a.Err != nil && strings.Contains(a.Err.Error(), "password of") {
					t.Errorf("the error has a password: %v", a.Err)
				}
			}
			ask(n1, nil)
			ask(n2, nil)
			// A node that came to another's BMC sends its own password there, once, and does not use the session of the
			// other.
			stray := providers.Target{Node: "n2", ID: n1.ID, SystemUUID: n1.SystemUUID}
			ask(stray, providers.ErrDenied)
			sent := len(racks["n1"].bmc.Requests())
			ask(stray, providers.ErrDenied)
			if auth == "basic" && len(racks["n1"].bmc.Requests()) != sent {
				t.Error("a refused password was sent again")
			}
			ask(n1, nil)
			missing := providers.Target{Node: "n3", ID: n1.ID, SystemUUID: n1.SystemUUID}
			ask(missing, providers.ErrDenied)
			ask(missing, fs.ErrNotExist)
			ask(n1, nil)
			ask(n2, nil)
			// A rotated password is taken at the next log-in.
			racks["n1"].dc.SetPassword("password of n1, new")
			racks["n1"].bmc.ExpireSessions()
			write("n1", "password of n1, new")
			if auth == "basic" { // the old one is sent once more, which shows that it is old
				ask(n1, providers.ErrDenied)
			}
			ask(n1, nil)
			ask(n2, nil)
		})
	}
}
