package vsphere_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/vsphere"
)

// Off is poweredOff, of a VM and a host that vCenter is in touch with; of any other it shows what it knew last.
func TestWhatIsOff(t *testing.T) {
	const host, own, conn, word = "host", "vm", "runtime.connectionState", "runtime.powerState"
	v := newVCenter(t, 1)
	m := v.vms()[0]
	p := v.provider(t)
	for _, tt := range []struct {
		of, property string
		value        any
		power        types.VirtualMachinePowerState
		state        providers.PowerState
		raw          string
	}{
		{own, conn, types.VirtualMachineConnectionStateConnected, "poweredOff", providers.PowerOff, "poweredOff"},
		{own, conn, types.VirtualMachineConnectionStateConnected, "poweredOn", providers.PowerOn, "poweredOn"},
		{own, conn, types.VirtualMachineConnectionStateConnected, "suspended", providers.PowerOn, "suspended"},
		{own, conn, types.VirtualMachineConnectionStateConnected, "poweredoff", providers.PowerUnknown, "poweredoff"},
		{own, conn, types.VirtualMachineConnectionStateConnected, "poweringOff", providers.PowerUnknown, "poweringOff"},
		{own, conn, types.VirtualMachineConnectionStateDisconnected, "poweredOff", providers.PowerUnknown,
			"poweredOff (disconnected)"},
		{own, conn, types.VirtualMachineConnectionStateDisconnected, "poweredOn", providers.PowerUnknown,
			"poweredOn (disconnected)"},
		{own, conn, types.VirtualMachineConnectionStateOrphaned, "poweredOff", providers.PowerUnknown,
			"poweredOff (orphaned)"},
		{own, conn, types.VirtualMachineConnectionStateInaccessible, "poweredOff", providers.PowerUnknown,
			"poweredOff (inaccessible)"},
		{own, conn, types.VirtualMachineConnectionStateInvalid, "poweredOff", providers.PowerUnknown,
			"poweredOff (invalid)"},
		{own, conn, types.VirtualMachineConnectionState("Connected"), "poweredOff", providers.PowerUnknown,
			"poweredOff (Connected)"},
		{host, conn, types.HostSystemConnectionStateNotResponding, "poweredOff", providers.PowerUnknown,
			"poweredOff (host notResponding)"},
		{host, conn, types.HostSystemConnectionStateDisconnected, "poweredOff", providers.PowerUnknown,
			"poweredOff (host disconnected)"},
		{host, conn, types.HostSystemConnectionStateNotResponding, "poweredOn", providers.PowerUnknown,
			"poweredOn (host notResponding)"},
		{host, word, types.HostSystemPowerStateUnknown, "poweredOff", providers.PowerUnknown,
			"poweredOff (host unknown)"},
		{host, word, types.HostSystemPowerStateStandBy, "poweredOff", providers.PowerUnknown,
			"poweredOff (host standBy)"},
	} {
		m.set(conn, types.VirtualMachineConnectionStateConnected)
		m.setHost(conn, types.HostSystemConnectionStateConnected)
		m.setHost(word, types.HostSystemPowerStatePoweredOn)
		m.power(tt.power)
		if tt.of == host {
			m.setHost(tt.property, tt.value)
		} else {
			m.set(tt.property, tt.value)
		}
		for how, by := range both(p) {
			t.Run(how+" "+tt.raw, func(t *testing.T) { expect(t, by, m.target(), tt.state, tt.raw) })
		}
	}
	m.setHost(word, types.HostSystemPowerStatePoweredOn)
	m.power("poweredOff")
	m.protect(true)
	for _, by := range both(p) {
		expect(t, by, m.target(), providers.PowerChanging, "poweredOff (protected by vSphere HA)")
	}
	m.protect(false)
	for _, by := range both(p) {
		expect(t, by, m.target(), providers.PowerOff, "poweredOff")
	}
	if n := v.count("Login"); n != 1 {
		t.Errorf("%d log-ins", n)
	}
}

// What the account may not read, or vCenter leaves out, is an error.
func TestHalfAnAnswer(t *testing.T) {
	v := newVCenter(t, 1)
	m := v.vms()[0]
	m.power("poweredOff")
	p := v.provider(t)
	// missing takes a property out of the answer, and says why.
	missing := func(object, property, fault string) func([]byte) []byte {
		return func(answer []byte) []byte {
			of := bytes.Index(answer, []byte(`<obj type="`+object+`"`))
			from := of + bytes.Index(answer[of:], []byte(`<propSet><name>`+property+`</name>`))
			if of < 0 || from < of {
				t.Errorf("no %s of %s in %s", property, object, answer)
				return answer
			}
			to := from + bytes.Index(answer[from:], []byte(`</propSet>`)) + len(`</propSet>`)
			end := to + bytes.Index(answer[to:], []byte(`</objects>`))
			why := ""
			if fault != "" {
				why = `<missingSet><path>` + property + `</path><fault><fault xsi:type="` + fault +
					`"><object type="X">x</object>` +
					`<privilegeId>System.Read</privilegeId></fault>` +
					`<localizedMessage>no</localizedMessage></fault></missingSet>`
			}
			return slices.Concat(answer[:from], answer[to:end], []byte(why), answer[end:])
		}
	}
	for _, tt := range []struct {
		name string
		edit func([]byte) []byte
		want error // nil: unknown without an error
	}{
		{"no right to read the power", missing("VirtualMachine", "runtime.powerState", "NoPermission"),
			providers.ErrDenied},
		{"no right to read the connection", missing("VirtualMachine", "runtime.connectionState", "NoPermission"),
			providers.ErrDenied},
		{"no right to read the host's connection", missing("HostSystem", "runtime.connectionState", "NoPermission"),
			providers.ErrDenied},
		{"no right to read the host's power", missing("HostSystem", "runtime.powerState", "NoPermission"),
			providers.ErrDenied},
		{"no right to read the UUID", missing("VirtualMachine", "config.uuid", "NoPermission"), providers.ErrNotFound},
		{"no power", missing("VirtualMachine", "runtime.powerState", ""), nil},
		{"no connection", missing("VirtualMachine", "runtime.connectionState", ""), nil},
		{"no host", missing("VirtualMachine", "runtime.host", ""), nil},
		{"no connection of the host", missing("HostSystem", "runtime.connectionState", ""), nil},
		{"the host is not there", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`<obj type="HostSystem">`), []byte(`<obj type="HostSystem">other-`))
		}, providers.ErrDenied},
		{"cut off", func(b []byte) []byte { return b[:len(b)-20] }, providers.ErrUnreachable},
		{"empty", func([]byte) []byte { return nil }, providers.ErrUnreachable},
		{"another answer", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("RetrievePropertiesExResponse"), []byte("LogoutResponse"))
		}, providers.ErrUnreachable},
		{"not XML", func([]byte) []byte { return []byte("<html><body>It works!<br></html>") },
			providers.ErrUnreachable},
		{"endless", func([]byte) []byte {
			return append([]byte(`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/">`),
				bytes.Repeat([]byte("<!-- off -->"), 1<<20)...)
		}, providers.ErrUnreachable},
		{"deep", func([]byte) []byte {
			return bytes.Repeat([]byte("<a>"), 1<<20)
		}, providers.ErrUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v.change(func(method string, answer []byte) []byte {
				if method != "RetrievePropertiesEx" {
					return answer
				}
				return tt.edit(answer)
			}, nil)
			for how, by := range both(p) {
				a := ask(t, by, m.target())
				if a.State != providers.PowerUnknown || !errors.Is(a.Err, tt.want) {
					t.Errorf("%s: got %s (%q), %v; want %v", how, a.State, a.Raw, a.Err, tt.want)
				}
				if tt.name == "endless" && !strings.Contains(fmt.Sprint(a.Err), "too large") {
					t.Errorf("%s: it was read to its end: %v", how, a.Err)
				}
			}
		})
	}
	v.change(nil, nil)
	expect(t, p, m.target(), providers.PowerOff, "poweredOff")
}

// Two VMs with one UUID, in one byte order or both, are an error: a copy that is off proves nothing.
func TestTwoWithOneUUID(t *testing.T) {
	v := newVCenter(t, 3)
	vms := v.vms()
	a, b, c := vms[0], vms[1], vms[2]
	u, _ := providers.ParseUUID(a.Config.Uuid)
	u = providers.SwapUUID(u)
	swapped := fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	own := b.Config.Uuid
	a.power("poweredOff")
	p := v.provider(t)
	for _, uuid := range []string{a.Config.Uuid, swapped} {
		b.set("config.uuid", uuid)
		for how, by := range both(p) {
			if got := ask(t, by, a.target()); got.State != providers.PowerUnknown ||
				!errors.Is(got.Err, providers.ErrNotFound) ||
				!strings.Contains(got.Err.Error(), "2 VMs have the BIOS UUID") {
				t.Errorf("%s: got %s, %v", how, got.State, got.Err)
			}
			if err := power(t, p.PowerOff, a.target()); !errors.Is(err, providers.ErrNotFound) {
				t.Errorf("%s: PowerOff: got %v", how, err)
			}
		}
		if b.word() != "poweredOn" {
			t.Error("the copy was powered off")
		}
	}
	b.set("config.uuid", own)
	for _, by := range both(p) {
		expect(t, by, a.target(), providers.PowerOff, "poweredOff")
		expect(t, by, providers.Target{Node: "n1", ID: swapped}, providers.PowerOff, "poweredOff")
		expect(t, by, providers.Target{Node: "n1", ID: "vsphere://" + strings.ToUpper(a.Config.Uuid)},
			providers.PowerOff, "poweredOff")
		for _, of := range []providers.Target{
			{Node: "n1"}, {Node: "n1", ID: a.Name}, {Node: "n1", SystemUUID: "00000000-0000-0000-0000-000000000000"},
			{Node: "n1", ID: anotherUUID, SystemUUID: a.Config.Uuid},
		} {
			if got := ask(t, by, of); got.State != providers.PowerUnknown ||
				!errors.Is(got.Err, providers.ErrNotFound) {
				t.Errorf("%+v: got %s, %v", of, got.State, got.Err)
			}
		}
	}
	// An ID that leads to another node's VM: nothing is sent.
	wrong := providers.Target{Node: "n1", ID: c.Config.Uuid, SystemUUID: a.Config.Uuid}
	if err := power(t, p.PowerOff, wrong); !errors.Is(err, providers.ErrIdentity) || v.count("PowerOffVM_Task") != 0 {
		t.Errorf("PowerOff of another: got %v", err)
	}
}

// A VM that is unregistered is not found, and is found once it is registered again.
func TestRegisteredAgain(t *testing.T) {
	v := newVCenter(t, 2)
	m := v.vms()[0]
	m.power("poweredOff")
	p := v.provider(t)
	for _, by := range both(p) {
		expect(t, by, m.target(), providers.PowerOff, "poweredOff")
	}
	ctx := v.model.Service.Context
	ctx.WithLock(m.VirtualMachine, func() { m.UnregisterVM(ctx, &types.UnregisterVM{This: m.Self}) })
	for how, by := range both(p) {
		if got := ask(t, by, m.target()); got.State != providers.PowerUnknown ||
			!errors.Is(got.Err, providers.ErrNotFound) {
			t.Errorf("%s: got %s, %v", how, got.State, got.Err)
		}
	}
	if err := power(t, p.PowerOff, m.target()); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("PowerOff: got %v", err)
	}
}

func TestPower(t *testing.T) {
	v := newVCenter(t, 1)
	m := v.vms()[0]
	of := m.target()
	p := v.provider(t)
	already := func(existing types.VirtualMachinePowerState) types.BaseMethodFault {
		return &types.InvalidPowerState{ExistingState: existing}
	}
	noRight := &types.NoPermission{PrivilegeId: "VirtualMachine.Interact.PowerOff"}
	const (
		on        = types.VirtualMachinePowerStatePoweredOn
		off       = types.VirtualMachinePowerStatePoweredOff
		suspended = types.VirtualMachinePowerStateSuspended
	)
	for _, tt := range []struct {
		name   string
		power  types.VirtualMachinePowerState // before
		off    bool                           // PowerOff, else PowerOn
		fault  types.BaseMethodFault
		want   error
		sent   int
		after  types.VirtualMachinePowerState
		before func()
	}{
		{name: "on is powered off", power: on, off: true, sent: 1, after: off},
		{name: "off is powered on", power: off, sent: 1, after: on},
		{name: "off is off already", power: off, off: true, after: off},
		{name: "on is on already", power: on, after: on},
		{name: "suspended is powered off", power: suspended, off: true, sent: 1, after: off},
		{name: "suspended is not resumed", power: suspended, want: providers.ErrPermanent, after: suspended},
		{name: "it went off meanwhile", power: on, off: true, fault: already(off), sent: 1, after: on},
		{name: "it came on meanwhile", power: off, fault: already(on), sent: 1, after: off},
		{name: "it was suspended meanwhile", power: on, off: true, fault: already(suspended),
			want: providers.ErrPermanent, sent: 1, after: on},
		{name: "no right", power: on, off: true, fault: noRight, want: providers.ErrDenied, sent: 1, after: on},
		{name: "another task", power: on, off: true, fault: &types.TaskInProgress{}, want: providers.ErrUnreachable,
			sent: 1, after: on},
		{name: "a licence without it", power: on, off: true, fault: &types.RestrictedVersion{},
			want: providers.ErrPermanent, sent: 1, after: on},
		{name: "its host is gone", power: on, off: true, fault: &types.HostNotConnected{},
			want: providers.ErrUnreachable, sent: 1, after: on},
		{name: "it is gone", power: on, off: true, fault: &types.ManagedObjectNotFound{}, want: providers.ErrNotFound,
			sent: 1, after: on},
		{name: "its power is unknown", power: on, off: true, sent: 1, after: off, before: func() {
			m.set("runtime.connectionState", types.VirtualMachineConnectionStateDisconnected)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.power(tt.power)
			m.set("runtime.connectionState", types.VirtualMachineConnectionStateConnected)
			if tt.before != nil {
				tt.before()
			}
			f, method := p.PowerOn, "PowerOnVM_Task"
			if tt.off {
				f, method = p.PowerOff, "PowerOffVM_Task"
			}
			v.answer(method, tt.fault)
			defer v.answer(method, nil)
			v.count(method)
			err := power(t, f, of)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if n := v.count(method); n != tt.sent {
				t.Errorf("%s was sent %d times, want %d", method, n, tt.sent)
			}
			m.until(t, tt.after)
		})
	}
}

// One session for all calls; an ended one is replaced, once; Close gives it back (v.provider looks).
func TestSession(t *testing.T) {
	v := newVCenter(t, 2)
	vms := v.vms()
	p := v.provider(t)
	for round := range 3 {
		var wait sync.WaitGroup
		for i := range 200 {
			wait.Go(func() {
				by := both(p)[[]string{"one", "many"}[i/2%2]]
				expect(t, by, vms[i%2].target(), providers.PowerOn, "poweredOn")
			})
		}
		wait.Wait()
		if n := v.count("Login"); n != 1 {
			t.Errorf("round %d: %d log-ins, want 1", round, n)
		}
		v.endSessions()
	}
	// A power action finds the session ended, too, at any of its calls.
	before := []string{"FindAllByUuid", "FindAllByUuid", "RetrievePropertiesEx", "PowerOffVM_Task"}
	for at := range before {
		vms[0].power("poweredOn")
		expect(t, p, vms[0].target(), providers.PowerOn, "poweredOn")
		var answered atomic.Int64
		v.change(func(_ string, answer []byte) []byte {
			if answered.Add(1) == int64(at) {
				v.endSessions()
			}
			return answer
		}, nil)
		if at == 0 {
			v.endSessions()
		}
		v.count("Login")
		if err := power(t, p.PowerOff, vms[0].target()); err != nil || v.count("Login") != 1 {
			t.Errorf("ended before %s (%d): got %v", before[at], at, err)
		}
		vms[0].until(t, "poweredOff")
		v.change(nil, nil)
	}
	// One that ends again and again is an error.
	v.change(func(_ string, answer []byte) []byte {
		v.endSessions()
		return answer
	}, nil)
	v.count("Login")
	for _, by := range both(p) {
		if a := ask(t, by, vms[0].target()); a.State != providers.PowerUnknown || a.Err == nil {
			t.Errorf("got %s, %v", a.State, a.Err)
		}
	}
	if n := v.count("Login"); n > 4 {
		t.Errorf("%d log-ins", n)
	}
}

// A wrong password is sent once for each content it has, or every 15 minutes, however many calls ask at once; all of
// them get the error.
func TestWrongPasswordIsSentOnce(t *testing.T) {
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	var later atomic.Int64
	p := open(t, v.config(), func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	t.Cleanup(func() { shut(t, p) })
	v.setPassword("another")
	v.count("Login")
	ask := func(when string, want int) {
		t.Helper()
		var wait sync.WaitGroup
		for i := range 50 {
			wait.Go(func() {
				var err error
				switch ctx := t.Context(); i % 4 {
				case 0:
					_, err = p.State(ctx, of)
				case 1:
					_, err = p.States(ctx, many{p}.with([]providers.Target{of}))
				case 2:
					err = p.PowerOff(ctx, of, providertest.AllowSend)
				default:
					err = p.PowerOn(ctx, of, providertest.AllowSend)
				}
				if text := fmt.Sprint(err); !errors.Is(err, providers.ErrDenied) || strings.Contains(text, "hunter2") ||
					!strings.Contains(text, ": the device refuses the password in ") ||
					!strings.HasSuffix(text, ": InvalidLogin") {
					t.Errorf("%s: got %s: %v", when, providers.ErrorClass(err), err)
				}
			})
		}
		wait.Wait()
		if n := v.count("Login"); n != want {
			t.Errorf("%s: %d log-ins, want %d", when, n, want)
		}
	}
	ask("at first", 1)
	later.Store(int64(remote.RefusedFor - 2*time.Minute))
	ask("again", 0)
	later.Store(int64(remote.RefusedFor + time.Minute))
	ask("after 15 minutes", 1)
	v.write(t, "password", []byte("wrong hunter2 as well"))
	ask("another content", 1)
	v.write(t, "password", []byte("another"))
	expect(t, p, of, providers.PowerOn, "poweredOn")

	// Other answers to a log-in. An unknown fault may be a refusal.
	for _, tt := range []struct {
		fault types.BaseMethodFault
		want  error
		sent  int
	}{
		{&types.PasswordExpired{}, providers.ErrDenied, 1},
		{&types.NoPermission{}, providers.ErrDenied, 1},
		{&unheardOf{}, providers.ErrDenied, 1},
		{&types.HostConnectFault{}, providers.ErrUnreachable, 3},
		{&types.SystemError{}, providers.ErrUnreachable, 3},
	} {
		v.endSessions()
		later.Add(int64(time.Hour))
		v.count("Login")
		v.answer("Login", tt.fault)
		for range 3 {
			if _, err := p.State(t.Context(), of); !errors.Is(err, tt.want) {
				t.Errorf("%T: got %v, want %v", tt.fault, err, tt.want)
			}
		}
		if n := v.count("Login"); n != tt.sent {
			t.Errorf("%T: %d log-ins, want %d", tt.fault, n, tt.sent)
		}
	}
	v.answer("Login", nil)
}

// unheardOf is a fault that govmomi has no type for.
type unheardOf struct{ types.VimFault }

// Callers that joined a refused log-in get that error, not that the vCenter is unreachable.
func TestJoinedLoginIsRefused(t *testing.T) {
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	p := v.provider(t)
	t.Cleanup(func() {
		if n := v.count("Login"); n != 2 {
			t.Errorf("%d log-ins, want 2", n)
		}
	})
	v.setPassword("another")
	const callers = 8
	there, on := make(chan string, callers), make(chan struct{})
	v.change(nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("<Login ")) {
			there <- string(body)
			<-on
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		v.model.Service.ServeMux.ServeHTTP(w, r)
	})
	errs := make(chan error, callers)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for range callers {
		go func() {
			_, err := p.State(ctx, of)
			errs <- err
		}()
	}
	<-there
	v.write(t, "password", []byte("wrong as well")) // a caller that only joined tries it
	close(on)
	for range callers {
		if err := <-errs; !errors.Is(err, providers.ErrDenied) {
			t.Errorf("got %s: %v", providers.ErrorClass(err), err)
		}
	}
}

// The password is said to the vCenter alone: redirects are not followed, certificates are looked at, and who is no
// vCenter gets none.
func TestPasswordGoesNowhereElse(t *testing.T) {
	var seen atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	defer other.Close()
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	p := v.provider(t)
	sends := func(method string, status int) {
		v.change(nil, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte("<"+method+" ")) {
				w.Header().Set("Location", other.URL+"/sdk")
				w.Header().Add("Set-Cookie", "vmware_soap_session=x; Domain=127.0.0.1")
				w.WriteHeader(status)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			v.model.Service.ServeMux.ServeHTTP(w, r)
		})
	}
	for _, method := range []string{"RetrieveServiceContent", "Login"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			sends(method, status)
			if _, err := p.State(t.Context(), of); !errors.Is(err, providers.ErrPermanent) ||
				strings.Contains(err.Error(), other.URL) {
				t.Errorf("%s, %d: got %v", method, status, err)
			}
		}
	}
	for status, want := range map[int]error{
		404: providers.ErrNotFound, 429: providers.ErrUnreachable, 503: providers.ErrUnreachable,
		403: providers.ErrDenied,
	} {
		sends("RetrieveServiceContent", status)
		if _, err := p.State(t.Context(), of); !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", status, err, want)
		}
	}
	v.count("Login")
	v.change(func(string, []byte) []byte {
		return []byte(`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>` +
			`<RetrieveServiceContentResponse xmlns="urn:vim25"/></Body></Envelope>`)
	}, nil)
	if _, err := p.State(t.Context(), of); !errors.Is(err, providers.ErrPermanent) || v.count("Login") != 0 {
		t.Errorf("no vCenter: got %v", err)
	}
	v.change(nil, nil)
	sends("Login", 401) // by a proxy in front of it: not sent again either
	for range 3 {
		if _, err := p.State(t.Context(), of); !errors.Is(err, providers.ErrDenied) {
			t.Errorf("401: got %v", err)
		}
	}
	if n := v.count("Login"); n != 1 {
		t.Errorf("401: %d log-ins", n)
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("another host got %d requests", n)
	}

	c := v.config()
	c.CAFile = "" // the system's authorities
	stranger := open(t, c, nil)
	defer shut(t, stranger)
	v.count("RetrieveServiceContent")
	if _, err := stranger.State(t.Context(), of); !errors.Is(err, providers.ErrUntrusted) ||
		v.count("RetrieveServiceContent") != 0 {
		t.Errorf("a certificate of an unknown authority: got %v", err)
	}
}

// A batch is one RetrievePropertiesEx, of as many pages as it takes. A page that does not come costs all: it may hold a
// second VM of a UUID.
func TestBatch(t *testing.T) {
	v := newVCenter(t, 40)
	vms := v.vms()
	p := v.provider(t)
	var targets []providers.Target
	for i, m := range vms {
		targets = append(targets, m.target())
		if i%2 == 0 {
			m.power("poweredOff")
		}
	}
	targets = append(targets, providers.Target{Node: "none", SystemUUID: anotherUUID})
	g := limiter.New(p, limiter.Options{Name: "vc", Type: "vsphere"})
	check := func(pages int) {
		t.Helper()
		answers := providers.AskAll(t.Context(), g, "vc", targets, providers.Now)
		for i, a := range answers {
			want := []providers.PowerState{providers.PowerOff, providers.PowerOn}[i%2]
			if i == len(vms) {
				if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrNotFound) ||
					!strings.HasPrefix(a.Err.Error(), "ask state of node none (") {
					t.Errorf("none: got %s, %v", a.State, a.Err)
				}
			} else if a.State != want || a.Err != nil || a.SystemUUID != targets[i].SystemUUID {
				t.Errorf("%s: got %s, %v", targets[i].Node, a.State, a.Err)
			}
		}
		if n := v.count("RetrievePropertiesEx"); n != 1 {
			t.Errorf("%d calls for a batch", n)
		}
		if n := v.count("ContinueRetrievePropertiesEx"); n != pages-1 {
			t.Errorf("%d more pages, want %d", n, pages-1)
		}
		if n := v.count("FindAllByUuid"); n != 0 {
			t.Errorf("%d look-ups", n)
		}
	}
	check(1)
	check(1)
	if n := v.count("CreateContainerView"); n != 1 {
		t.Errorf("%d views", n)
	}
	v.endSessions()
	vsphere.SetPage(p, 10)
	expect(t, p, targets[1], providers.PowerOn, "poweredOn") // in a new session
	v.count("RetrievePropertiesEx")
	v.count("FindAllByUuid")
	check(5) // 40 VMs, 2 hosts
	v.count("RetrievePropertiesEx")
	v.answer("ContinueRetrievePropertiesEx", &types.SystemError{})
	if all, err := p.States(t.Context(), targets); len(all) != 0 || !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("half the pages: got %d answers, %v", len(all), err)
	}
	v.answer("ContinueRetrievePropertiesEx", nil)
	if all, err := p.States(t.Context(), nil); len(all) != 0 || err != nil {
		t.Errorf("nothing: got %d answers, %v", len(all), err)
	}
	if got := p.LimitGroup(targets[0]); got != v.server.URL {
		t.Errorf("limits are of %q", got)
	}
}

// A slow log-in is there for the next call: it does not end with the call that began it.
func TestLoginOutlivesItsCaller(t *testing.T) {
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	p := v.provider(t)
	reached, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	v.change(func(method string, answer []byte) []byte {
		if method == "Login" {
			once.Do(func() { close(reached); <-on })
		}
		return answer
	}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := p.State(ctx, of)
		got <- err
	}()
	<-reached
	cancel(errors.New("the caller went away"))
	if err := <-got; err == nil || !strings.Contains(err.Error(), "the caller went away") {
		t.Errorf("got %v", err)
	}
	close(on)
	expect(t, p, of, providers.PowerOn, "poweredOn")
	if n := v.count("Login"); n != 1 {
		t.Errorf("%d log-ins, want 1", n)
	}
}

func TestClose(t *testing.T) {
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	p := open(t, v.config(), nil)
	shut(t, p) // nothing was opened
	if a := ask(t, p, of); !errors.Is(a.Err, providers.ErrPermanent) {
		t.Errorf("after Close: got %v", a.Err)
	}
	p = open(t, v.config(), nil)
	expect(t, p, of, providers.PowerOn, "poweredOn")
	v.setFault(providertest.Silent)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("Close of a vCenter that hangs: got %v", err)
	}
	p = open(t, v.config(), nil)
	v.setFault(providertest.NoFault)
	expect(t, p, of, providers.PowerOn, "poweredOn")
	v.endSessions()
	shut(t, p) // nothing is left to give back
}

// An ESXi host that answers for itself is asked like a vCenter.
func TestESXi(t *testing.T) {
	v := start(t, simulator.ESX())
	m := v.vms()[0]
	p := v.provider(t)
	for _, by := range both(p) {
		m.power("poweredOn")
		expect(t, by, m.target(), providers.PowerOn, "poweredOn")
		if err := power(t, by.PowerOff, m.target()); err != nil {
			t.Error(err)
		}
		m.until(t, "poweredOff")
		expect(t, by, m.target(), providers.PowerOff, "poweredOff")
	}
}

func TestConfig(t *testing.T) {
	v := newVCenter(t, 1)
	for _, tt := range []struct {
		name string
		edit func(*vsphere.Config)
		want string // paths of the problems
	}{
		{"good", func(*vsphere.Config) {}, ""},
		{"the API's path", func(c *vsphere.Config) { c.Address += "/sdk/" }, ""},
		{"no address", func(c *vsphere.Config) { c.Address = "" }, "address"},
		{"http", func(c *vsphere.Config) { c.Address = "http://vc.example.net" }, "address"},
		{"another path", func(c *vsphere.Config) { c.Address += "/ui" }, "address"},
		{"a password", func(c *vsphere.Config) { c.Address = "https://root:hunter2@vc.example.net" }, "address"},
		{"nothing", func(c *vsphere.Config) { *c = vsphere.Config{} }, "address username passwordFile"},
		{"no authorities", func(c *vsphere.Config) { c.CAFile += ".none" }, "caFile"},
	} {
		c := v.config()
		tt.edit(c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
			if strings.Contains(p.Text, "hunter2") {
				t.Errorf("%s: %s", tt.name, p.Text)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got problems at %q, want %q", tt.name, got, tt.want)
		}
	}
	c := v.config()
	const lesser = "1fec0d42-7d11-4bf0-8a5e-0123456789ab"
	for _, id := range []string{
		lesser, "vsphere://" + strings.ToUpper(lesser), "420dec1f-117d-f04b-8a5e-0123456789ab"} {
		if got, hosts, err := c.CanonicalID(id); got != lesser || len(hosts) != 0 || err != nil || c.HasAddressIDs() {
			t.Errorf("%s: got %q, %q, %v", id, got, hosts, err)
		}
	}
	for _, id := range []string{
		"worker-1", "vsphere://", "00000000-0000-0000-0000-000000000000", "aws:///" + lesser} {
		if got, _, err := c.CanonicalID(id); err == nil {
			t.Errorf("%q: got %q", id, got)
		}
	}
	if got, _, err := c.CanonicalID(""); got != "" || err != nil {
		t.Errorf("no ID, for the system UUID: got %q, %v", got, err)
	}
}

// A drill logs in again if the password's file changed, and once an hour; the old session ends, unless vCenter refuses
// the new log-in.
func TestDrillLogsInAgain(t *testing.T) {
	v := newVCenter(t, 1)
	of := v.vms()[0].target()
	var later atomic.Int64
	p := open(t, v.config(), func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	drill := func() error {
		_, err := p.State(providers.ForDrill(t.Context()), of)
		return err
	}
	steps := []struct {
		name    string
		change  func()
		refused bool
		logIns  int
	}{
		{"at first", func() {}, false, 1},
		{"within the hour", func() { later.Store(int64(59 * time.Minute)) }, false, 0},
		{"an hour later", func() { later.Store(int64(61 * time.Minute)) }, false, 1},
		{"a wrong content", func() { v.write(t, "password", []byte("wrong")) }, true, 1},
		{"the same", func() {}, true, 0},
		{"rotated on both sides", func() {
			v.setPassword("rotated")
			v.write(t, "password", []byte("rotated"))
		}, false, 1},
		{"changed at vCenter alone", func() { v.setPassword("another") }, false, 0},
		{"an hour after that", func() { later.Store(int64(125 * time.Minute)) }, true, 1},
	}
	for _, tt := range steps {
		v.count("Login")
		tt.change()
		err := drill()
		var refused *providers.RefusedPassword
		if errors.As(err, &refused) != tt.refused || (err != nil) != tt.refused {
			t.Errorf("%s: got %v, want a refused password: %t", tt.name, err, tt.refused)
		}
		if n := v.count("Login"); n != tt.logIns {
			t.Errorf("%s: got %d log-ins, want %d", tt.name, n, tt.logIns)
		}
		expect(t, p, of, providers.PowerOn, "poweredOn") // a fence has a session all the time
	}
	shut(t, p)
	if n := v.count("Logout"); n != 3 {
		t.Errorf("got %d log-outs, want one for each session", n)
	}
}
