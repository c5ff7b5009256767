package ipmi_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// expectSoon asks with little time, and wants that nothing is known.
func expectSoon(t testing.TB, p providers.Provider, of providers.Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if a := providers.Ask(ctx, p, "test", of, providers.Now); a.State != providers.PowerUnknown ||
		!errors.Is(a.Err, providers.ErrUnreachable) {
		t.Errorf("got %s (%q), %v; want %v", a.State, a.Raw, a.Err, providers.ErrUnreachable)
	}
}

// TestSleepIsNotOff: a chassis that is off counts unless ACPI reports that memory is kept.
func TestSleepIsNotOff(t *testing.T) {
	s := newSoft(t, "secret")
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	blind, _ := newProvider(t, passwordFile(t, "secret"), func(c *ipmi.Config) { c.IgnoreACPIState = true })
	of := providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID}
	off := []byte{0x00, 0x05, 0x06, 0x07, 0x0a, 0x20, 0x21, 0x2a}
	sleeping := []byte{0x01, 0x02, 0x03, 0x04, 0x08, 0x09}
	for state := range byte(0x80) {
		want := providers.PowerUnknown
		switch {
		case slices.Contains(off, state):
			want = providers.PowerOff
		case slices.Contains(sleeping, state):
			want = providers.PowerOn
		}
		s.edit(func() { s.on, s.acpi = false, []byte{state | 0x80, 0x00} }) // the highest bit is reserved
		if a := ask(t, p, of); a.State != want || a.Err != nil || !strings.HasPrefix(a.Raw, "off, ACPI ") {
			t.Errorf("%#02x: got %s (%q), %v; want %s", state, a.State, a.Raw, a.Err, want)
		}
		expect(t, blind, of, providers.PowerOff, "off")
		s.edit(func() { s.on = true })
		if state == 0x04 {
			expect(t, p, of, providers.PowerOn, "on") // it is what software said before
		}
	}
	s.edit(func() { s.on, s.acpi = false, []byte{} })
	expectClass(t, p, of, providers.ErrUnreachable) // half an answer
	for code, class := range map[types.CompletionCode]error{
		types.CodeNodeBusy:              providers.ErrUnreachable,
		types.CodeInsufficientPrivilege: providers.ErrDenied,
		types.CodeNotSupported:          providers.ErrPermanent,
	} {
		s.edit(func() { s.codes[types.CommandGetACPIPowerState.ID] = code })
		expectClass(t, p, of, class)
	}
	s.edit(func() { s.codes[types.CommandGetACPIPowerState.ID] = types.CodeInvalidCommandForLUN })
	expect(t, p, of, providers.PowerOff, "off")
}

// A BMC that has named the machine, and then reports its power without the GUID, says nothing of the machine.
func TestGUIDThatVanishes(t *testing.T) {
	s := newSoft(t, "secret")
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	identified := providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID, Identified: true}
	for name, guid := range map[string][]byte{
		"none": nil, "zeros": make([]byte, 16), "ones": bytes.Repeat([]byte{0xff}, 16),
	} {
		for _, named := range []bool{true, false} {
			s.edit(func() {
				if s.on, s.guid = false, guid; named {
					s.guid = unhex(t, "33221100554477668899aabbccddeeff")
				}
			})
			want, class := providers.PowerOff, error(nil)
			if !named {
				want, class = providers.PowerUnknown, providers.ErrIdentity
			}
			if a := ask(t, p, identified); a.State != want || !errors.Is(a.Err, class) {
				t.Errorf("%s, named %t: got %s, %v; want %s, %v", name, named, a.State, a.Err, want, class)
			}
		}
	}
}

// TestSystemGUID: the GUID is the node's UUID as SMBIOS writes it, or in reverse as IPMI does. ipmitool 1.8.19 prints
// the first under "mc guid smbios" and the second under "mc guid ipmi".
func TestSystemGUID(t *testing.T) {
	const swapped = "33221100-5544-7766-8899-aabbccddeeff"
	cases := []struct {
		name, guid, node string
		reported         string // "": nothing
		class            error
	}{
		{"as SMBIOS writes it", "33221100554477668899aabbccddeeff", machineUUID, machineUUID, nil},
		{"as RFC 4122 writes it", "00112233445566778899aabbccddeeff", machineUUID, swapped, nil},
		{"in reverse, as IPMI writes it", "ffeeddccbbaa99887766554433221100", machineUUID, machineUUID, nil},
		{"in reverse, of a node with old firmware", "ffeeddccbbaa99887766554433221100", swapped, machineUUID, nil},
		{"another machine's", "33221100554477668899aabbccddeefe", machineUUID, "", providers.ErrIdentity},
		{"another machine's, in reverse", "feeeddccbbaa99887766554433221100", machineUUID, "", providers.ErrIdentity},
		{"the node's is unknown", "33221100554477668899aabbccddeeff", "", machineUUID, nil},
		{"zeros", strings.Repeat("00", 16), machineUUID, "", nil},
		{"ones", strings.Repeat("ff", 16), machineUUID, "", nil},
		{"what boards ship with, in reverse", "09000800070006000005000400020003", machineUUID, "", nil},
		{"none", "", machineUUID, "", nil},
	}
	s := newSoft(t, "secret")
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.edit(func() {
				if s.guid = unhex(t, c.guid); c.guid == "" {
					s.guid = nil
				}
			})
			a := ask(t, p, providers.Target{Node: "n1", ID: s.address, SystemUUID: c.node})
			if c.class != nil {
				if a.State != providers.PowerUnknown || !errors.Is(a.Err, c.class) {
					t.Errorf("got %s, %v; want %v", a.State, a.Err, c.class)
				}
				return
			}
			if a.State != providers.PowerOn || a.SystemUUID != c.reported || a.Err != nil {
				t.Errorf("got %s of %q, %v; want On of %q", a.State, a.SystemUUID, a.Err, c.reported)
			}
		})
	}
	s.edit(func() { s.guid = unhex(t, strings.Repeat("42", 16)) })
	ignoring, _ := newProvider(t, passwordFile(t, "secret"), func(c *ipmi.Config) { c.IgnoreGUID = true })
	if a := ask(t, ignoring,
		providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID}); a.State != providers.PowerOn ||
		a.SystemUUID != "" || a.Err != nil {
		t.Errorf("got %s of %q, %v; want On without a UUID", a.State, a.SystemUUID, a.Err)
	}
	// A machine whose power cannot be read is identified nevertheless: it can be powered off.
	s.edit(func() {
		s.guid = unhex(t, machineUUID)
		s.codes[types.CommandGetChassisStatus.ID] = types.CodeNodeBusy
	})
	if err := providers.ConfirmIdentity(t.Context(), p,
		providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID, Claimed: true},
		providers.Now); err != nil {
		t.Error(err)
	}
}

// TestRefusedLogin: what the BMC refuses twice in a row is denied, and is not tried again before it changes.
func TestRefusedLogin(t *testing.T) {
	startSim := func(t *testing.T) (*ipmisim.BMC, *proxy, providers.Target) { // skips only what needs ipmi_sim
		t.Helper()
		sim := ipmisim.New(t, ipmisim.Options{})
		x := newProxy(t, sim.Address())
		return sim, x, providers.Target{Node: "n1", ID: x.address(), SystemUUID: sim.UUID()}
	}
	for name, edit := range map[string]func(*ipmi.Config){
		"password": func(c *ipmi.Config) { must(t, os.WriteFile(c.PasswordFile, []byte("wrong"), 0o600)) },
		"user":     func(c *ipmi.Config) { c.Username = "no-such-user" },
	} {
		t.Run(name, func(t *testing.T) {
			sim, x, of := startSim(t)
			right, err := os.ReadFile(sim.PasswordFile())
			must(t, err)
			file := passwordFile(t, string(right))
			p, _ := newUnhurried(t, file,
				func(c *ipmi.Config) { c.PasswordFile = file; edit(c); c.CipherSuites = []int{3} })
			before := x.logins()
			expectClass(t, p, of, providers.ErrDenied)
			for range 5 {
				expectClass(t, p, of, providers.ErrDenied)
				if err := power(t, p.PowerOff, of); !errors.Is(err, providers.ErrDenied) {
					t.Errorf("got %v", err)
				}
			}
			if n := x.logins() - before; n != refusals {
				t.Errorf("got %d log-ins, want %d", n, refusals)
			}
			if name == "password" {
				must(t, os.WriteFile(file, right, 0o600))
				expect(t, p, of, providers.PowerOff, "off")
			}
		})
	}
	t.Run("an account that may only ask", func(t *testing.T) {
		sim, _, of := startSim(t)
		must(t, sim.SetPower(t.Context(), true))
		p, _ := newUnhurried(t, sim.PasswordFile(), func(c *ipmi.Config) {
			inSuite3(c)
			c.Username, c.Privilege = ipmisim.Reader, "user"
		})
		expect(t, p, of, providers.PowerOn, "on")
		if err := power(t, p.PowerOff, of); !errors.Is(err, providers.ErrDenied) || !sim.Running() {
			t.Errorf("got %v, running %t", err, sim.Running())
		}
		expect(t, p, of, providers.PowerOn, "on")
	})
	t.Run("a privilege that the account has not", func(t *testing.T) { // ipmi_sim does not mind
		s := newSoft(t, "secret")
		x := newProxy(t, s.address)
		p, _ := newUnhurried(t, passwordFile(t, "secret"), func(c *ipmi.Config) { c.Privilege = "administrator" })
		for range 3 {
			expectClass(t, p, providers.Target{Node: "n1", ID: x.address()}, providers.ErrDenied)
		}
		if n := x.logins(); n != refusals {
			t.Errorf("got %d log-ins, want %d", n, refusals)
		}
	})
	t.Run("a suite that the BMC has not", func(t *testing.T) {
		s := newSoft(t, "secret", types.CipherSuiteID3)
		p, _ := newUnhurried(t, passwordFile(t, "secret"), func(c *ipmi.Config) { c.CipherSuites = []int{17} })
		if err := expectClass(t, p, providers.Target{Node: "n1", ID: s.address},
			providers.ErrUnreachable); err == nil || !strings.Contains(err.Error(), "cipherSuites") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("once", func(t *testing.T) { // by an attacker who sees the packets
		for kind, attempts := range map[byte]int{0x11: 1, 0x13: 2, 0x15: 2} {
			s := newSoft(t, "secret")
			x := newProxy(t, s.address)
			left := 1
			x.edit(func() {
				x.asked = func(p packet) (all []packet) {
					x.edit(func() {
						if left > 0 && p.is(kind-1) {
							left--
							all = []packet{
								padded(refusal(kind, p[16], map[byte]byte{0x11: 0x0d, 0x13: 0x0d, 0x15: 0x00}[kind],
									x.console))}
						}
					})
					return all
				}
			})
			p, _ := newUnhurried(t, passwordFile(t, "secret"), nil)
			expect(t, p, providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}, providers.PowerOn,
				"on")
			if n := x.logins(); n != attempts {
				t.Errorf("message %#02x: got %d log-ins, want %d", kind, n, attempts)
			}
		}
	})
	t.Run("without a word of the credential", func(t *testing.T) {
		for _, kind := range []byte{0x11, 0x13} {
			s := newSoft(t, "secret")
			x := newProxy(t, s.address)
			x.edit(func() {
				x.asked = func(p packet) []packet {
					if p.is(kind - 1) {
						return []packet{refusal(kind, p[16], 0x12, x.seen())} // an illegal parameter
					}
					return nil
				}
			})
			p, _ := newUnhurried(t, passwordFile(t, "secret"), nil)
			of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
			for range 3 {
				expectClass(t, p, of, providers.ErrUnreachable)
			}
			x.edit(func() { x.asked = nil })
			expect(t, p, of, providers.PowerOn, "on")
		}
	})
	// the password is right, and the BMC may count it as a wrong one
	t.Run("a log-in refused at the end", func(t *testing.T) {
		s := newSoft(t, "secret")
		x := newProxy(t, s.address)
		x.edit(func() {
			x.answered = func(p packet) []packet {
				if p.is(0x15) {
					p = append(slices.Clone(p[:14]), 8, 0, p[16], 0x0f, 0, 0, p[20], p[21], p[22], p[23])
				}
				return []packet{p}
			}
		})
		p, _ := newUnhurried(t, passwordFile(t, "secret"), nil)
		for range 3 {
			expectClass(t, p, providers.Target{Node: "n1", ID: x.address()}, providers.ErrUnreachable)
		}
		if n := x.logins(); n != 1 {
			t.Errorf("got %d log-ins, want 1", n)
		}
	})
}

// TestKg: a BMC that has a key of its own opens a session only for clients with that key; one that has none
// opens none for who has one. The file is read again for each log-in.
func TestKg(t *testing.T) {
	const text = "BMC-key-of-19-bytes"
	binary := "\xff\x00 \x01\n" + text[:15] // of 20 bytes, which no text can be
	digits := hex.EncodeToString([]byte(text))
	worlds := map[string]func(t *testing.T, key string) (address, uuid, password string, suite int){
		"ipmi_sim": func(t *testing.T, key string) (string, string, string, int) {
			sim := ipmisim.New(t, ipmisim.Options{Kg: key})
			must(t, sim.SetPower(t.Context(), true))
			return sim.Address(), sim.UUID(), sim.PasswordFile(), ipmisim.CipherSuite
		},
		"suite 17": func(t *testing.T, key string) (string, string, string, int) {
			s := newSoft(t, "secret")
			if key != "" {
				bmc.WithKG([]byte(key))(s.bmc)
			}
			return s.address, machineUUID, passwordFile(t, "secret"), 17
		},
	}
	for world, start := range worlds {
		for _, c := range []struct {
			name, key, file string // file "": none
			refused         string // in the error; "": it is taken
		}{
			{"text", text, text + "\n", ""},
			{"hexadecimal", text, "0x" + digits, ""},
			{"hexadecimal, in full length", text, digits + "00\n", ""},
			{"bytes", binary, "0X" + hex.EncodeToString([]byte(binary)), ""},
			{"another", text, "BMC-key-of-20-bytes", "another BMC key"},
			{"as the password is", text, "secret", "another BMC key"},
			{"digits are text without 0x", text, digits[:20], "another BMC key"},
			{"none", text, "", "a BMC key of its own (Kg): set kgFile"},
			{"that the BMC has not", "", text, "another BMC key"},
		} {
			t.Run(world+", "+c.name, func(t *testing.T) {
				if c.key == binary && world == "ipmi_sim" {
					return // its configuration takes no such key
				}
				address, uuid, password, suite := start(t, c.key)
				x := newProxy(t, address)
				of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: uuid}
				p, _ := newUnhurried(t, password, func(cfg *ipmi.Config) {
					cfg.CipherSuites = []int{suite}
					if c.file != "" {
						cfg.KgFile = passwordFile(t, c.file)
					}
				})
				if c.refused == "" {
					expect(t, p, of, providers.PowerOn, "on")
					return
				}
				for range 3 {
					if err := expectClass(t, p, of, providers.ErrDenied); err == nil ||
						!strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "kgFile") {
						t.Errorf("got %v", err)
					}
				}
				if n := x.logins(); n != refusals {
					t.Errorf("got %d log-ins, want %d", n, refusals)
				}
			})
		}
	}
	t.Run("changed", func(t *testing.T) {
		s := newSoft(t, "secret")
		bmc.WithKG([]byte(text))(s.bmc)
		file := passwordFile(t, "wrong")
		p, _ := newUnhurried(t, passwordFile(t, "secret"), func(c *ipmi.Config) { c.KgFile = file })
		of := providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID}
		expectClass(t, p, of, providers.ErrDenied)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		expect(t, p, of, providers.PowerOn, "on")
		q, _ := newUnhurried(t, passwordFile(t, "secret"),
			func(c *ipmi.Config) { c.KgEnv = "IPMI_TEST_KG_THAT_IS_NOT_SET" })
		expectClass(t, q, of, providers.ErrDenied)
	})
}

// TestRestart: a BMC that was restarted does not answer in an old session, and the same call goes on with a new one.
func TestRestart(t *testing.T) {
	sim := ipmisim.New(t, ipmisim.Options{})
	p, _ := newProvider(t, sim.PasswordFile(), inSuite3)
	of := providers.Target{Node: "n1", ID: sim.Address(), SystemUUID: sim.UUID()}
	must(t, sim.SetPower(t.Context(), true))
	expect(t, p, of, providers.PowerOn, "on")
	must(t, sim.Restart(t.Context()))
	expect(t, p, of, providers.PowerOn, "on")
	must(t, sim.Restart(t.Context()))
	must(t, power(t, p.PowerOff, of))
	expect(t, p, of, providers.PowerOff, "off")
}

// TestSimulatorWithoutSuite17: any sender could have made the simulator's refusal of suite 17. It counts as silence,
// and suite 3 is tried.
func TestSimulatorWithoutSuite17(t *testing.T) {
	sim := ipmisim.New(t, ipmisim.Options{})
	p, _ := newProvider(t, sim.PasswordFile(), nil)
	expect(t, p, providers.Target{Node: "n1", ID: sim.Address(), SystemUUID: sim.UUID()}, providers.PowerOff, "off")
}

// TestSilentSession: a call has no more than five seconds. One quick call of a few shows that an old session is not
// waited for so long, however slow the machine.
func TestSilentSession(t *testing.T) {
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	x.forget = func(session uint32) { _ = s.bmc.Sessions.Close(session) }
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	expect(t, p, of, providers.PowerOn, "on")
	for range 5 {
		x.restart()
		begun := time.Now()
		expect(t, p, of, providers.PowerOn, "on")
		if time.Since(begun) < 4*time.Second {
			return
		}
	}
	t.Error("an old session is waited for too long")
}

// TestOneSession: calls that come together share one session, which is closed when no call uses it any more, and by
// Close.
func TestOneSession(t *testing.T) {
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := openProvider(t, passwordFile(t, "secret"), nil)
	ipmi.SetUnhurried(p)
	of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	await := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("still not: %s", what)
			}
		}
	}
	together := func(n int) {
		var wait sync.WaitGroup
		for range n {
			wait.Go(func() { expect(t, p, of, providers.PowerOn, "on") })
		}
		wait.Wait()
	}
	together(200)
	if t.Failed() {
		t.FailNow() // what follows would take its time
	}
	if n, open := x.logins(), s.bmc.Sessions.Count(); n != 1 || open != 1 {
		t.Errorf("got %d log-ins, %d sessions; want 1 of each", n, open)
	}
	ipmi.SetIdle(p, 10*time.Millisecond)
	expect(t, p, of, providers.PowerOn, "on")
	await("the session is given back, the BMC forgotten",
		func() bool { return s.bmc.Sessions.Count() == 0 && ipmi.BMCs(p) == 0 })
	ipmi.SetIdle(p, time.Hour)
	together(8)
	if n := s.bmc.Sessions.Count(); n != 1 {
		t.Errorf("got %d sessions, want 1", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	must(t, p.Close(ctx))
	if n := s.bmc.Sessions.Count(); n != 0 {
		t.Errorf("got %d sessions after Close", n)
	}
	must(t, p.Close(ctx))
	expectClass(t, p, of, providers.ErrPermanent)
}

// TestOneRequestPerCall: a call that runs out of time has sent its request once. Each may take one of the BMC's
// sessions.
func TestOneRequestPerCall(t *testing.T) {
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	requests := 0
	x.edit(func() {
		x.asked = func(p packet) []packet {
			if p.is(0x10) {
				x.edit(func() { requests++ })
			}
			return nil
		}
		x.answered = func(packet) []packet { return nil }
	})
	expectSoon(t, p, providers.Target{Node: "n1", ID: x.address()})
	x.edit(func() {
		if requests != 1 {
			t.Errorf("got %d requests, want 1", requests)
		}
	})
}

// TestCloseOfASilentBMC returns by its deadline, and names what is left.
func TestCloseOfASilentBMC(t *testing.T) {
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := openProvider(t, passwordFile(t, "secret"), nil)
	expect(t, p, providers.Target{Node: "n1", ID: x.address()}, providers.PowerOn, "on")
	x.set(providertest.Silent)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Close(ctx); err == nil || !strings.Contains(err.Error(), x.address()) ||
		!errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > timeout {
		t.Errorf("took %s", took)
	}
}

// TestClosedPort: a closed port is an answer in itself.
func TestClosedPort(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	must(t, c.Close())
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	began := time.Now()
	expectClass(t, p, providers.Target{Node: "n1", ID: c.LocalAddr().String()}, providers.ErrUnreachable)
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("took %s", took)
	}
}

// TestRefusedCommand: a BMC refuses what is done already, and what it will not do; only the first is well.
func TestRefusedCommand(t *testing.T) {
	s := newSoft(t, "secret")
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	of := providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID}
	for _, c := range []struct {
		code  types.CompletionCode
		on    bool
		class error
	}{
		{types.CodeNotSupported, false, nil},
		{types.CodeNotSupported, true, providers.ErrPermanent},
		{types.CodeInsufficientPrivilege, true, providers.ErrDenied},
		{types.CodeCannotProvideResponseBMCInitialize, true, providers.ErrUnreachable},
	} {
		s.edit(func() { s.on, s.codes[types.CommandChassisControl.ID] = c.on, c.code })
		if err := power(t, p.PowerOff, of); !errors.Is(err, c.class) {
			t.Errorf("%#02x, on %t: got %v, want %v", uint8(c.code), c.on, err, c.class)
		}
	}
	if n := s.count(types.CommandChassisControl); n != 4 {
		t.Errorf("got %d commands, want 4: each is sent once", n)
	}
}

func TestValidate(t *testing.T) {
	long := passwordFile(t, strings.Repeat("x", 21))
	kg := func(key string) func(*ipmi.Config) {
		return func(c *ipmi.Config) { c.KgFile = passwordFile(t, key) }
	}
	for _, c := range []struct {
		name string
		edit func(*ipmi.Config)
		want string
	}{
		{"good", func(*ipmi.Config) {}, ""},
		{"nothing", func(c *ipmi.Config) { *c = *ipmi.NewConfig() }, "username passwordFile"},
		{"user", func(c *ipmi.Config) { c.Username = strings.Repeat("x", 17) }, "username"},
		{"password", func(c *ipmi.Config) { c.PasswordFile = long }, "passwordFile"},
		{"a BMC key", kg("0x00ff"), ""},
		{"a BMC key of 20 bytes", kg(strings.Repeat("x", 20)), ""},
		{"a BMC key in two places", func(c *ipmi.Config) { kg("x")(c); c.KgEnv = "KG" }, "kgFile"},
		{"a BMC key that is not there", func(c *ipmi.Config) { c.KgFile = "/nowhere" }, "kgFile"},
		{"a long BMC key", kg(strings.Repeat("x", 21)), "kgFile"},
		{"40 letters", kg(strings.Repeat("x", 40)), "kgFile"},
		{"a long BMC key in hexadecimal", kg("0x" + strings.Repeat("01", 21)), "kgFile"},
		{"half a byte", kg("0x123"), "kgFile"},
		{"no hexadecimal", kg("0xgg"), "kgFile"},
		{"no bytes", kg("0x"), "kgFile"},
		{"zeros, which are no key", kg("0x0000"), "kgFile"},
		{"privilege", func(c *ipmi.Config) { c.Privilege = "root" }, "privilege"},
		{"no suites", func(c *ipmi.Config) { c.CipherSuites = nil }, "cipherSuites"},
		{"suites that prove nothing", func(c *ipmi.Config) { c.CipherSuites = []int{17, 0, 1, 15} },
			"cipherSuites[1] cipherSuites[2] cipherSuites[3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := ipmi.NewConfig()
			cfg.Username, cfg.PasswordFile = "fence", passwordFile(t, strings.Repeat("x", 20))
			c.edit(cfg)
			var got []string
			for _, p := range cfg.Validate() {
				got = append(got, p.Path)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got problems at %q, want %q", got, c.want)
			}
		})
	}
}

// Each machine's password goes to that machine's BMC, and its session is for no other.
func TestEachMachineItsPassword(t *testing.T) {
	folder := t.TempDir()
	write := func(node, password string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(folder, node), []byte(password), 0o600))
	}
	s1, s2 := newSoft(t, "password of n1"), newSoft(t, "password of n2")
	write("n1", "password of n1")
	write("n2", "password of n2")
	p, _ := newProvider(t, folder+"/{name}", nil)
	n1 := providers.Target{Node: "n1", ID: s1.address, SystemUUID: machineUUID}
	n2 := providers.Target{Node: "n2", ID: s2.address, SystemUUID: machineUUID}
	stray, missing, long := n1, n1, n1
	stray.Node, missing.Node, long.Node = "n2", "n3", "n4"
	write("n4", strings.Repeat("x", 21))
	expect(t, p, n1, providers.PowerOn, "on")
	expect(t, p, n2, providers.PowerOn, "on")
	for range 2 {
		for _, of := range []providers.Target{stray, missing, long} { // n1's session is open
			if err := expectClass(t, p, of, providers.ErrDenied); strings.Contains(fmt.Sprint(err), "password of") {
				t.Errorf("the error has a password: %v", err)
			}
		}
		expect(t, p, n1, providers.PowerOn, "on")
	}
	write("n3", "password of n1")
	expect(t, p, missing, providers.PowerOn, "on")
	// Users, too, are each machine's; one that is longer than IPMI's is not cut.
	named, _ := newProvider(t, folder+"/{name}", func(c *ipmi.Config) { c.Username = "{name}-of-fence" })
	expectClass(t, named, n1, providers.ErrDenied)
	of := n1
	of.Node = "a-node-of-a-longer-name"
	write(of.Node, "password of n1")
	if err := expectClass(t, named, of, providers.ErrDenied); !strings.Contains(fmt.Sprint(err), "more than 16 bytes") {
		t.Errorf("a long user: got %v", err)
	}
}

// TestLongPassword: one that was rotated to a longer one than IPMI's is not cut.
func TestLongPassword(t *testing.T) {
	s := newSoft(t, strings.Repeat("x", 20))
	file := passwordFile(t, strings.Repeat("x", 20))
	p, _ := newProvider(t, file, nil)
	must(t, os.WriteFile(file, []byte(strings.Repeat("x", 21)), 0o600))
	expectClass(t, p, providers.Target{Node: "n1", ID: s.address}, providers.ErrDenied)
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ id, canonical, host string }{
		{"10.0.0.7", "ipmi://10.0.0.7", "10.0.0.7"},
		{"10.0.0.7:623", "ipmi://10.0.0.7", "10.0.0.7"},
		{"ipmi://10.0.0.7:6230/", "ipmi://10.0.0.7:6230", "10.0.0.7"},
		{"IPMI://BMC7.Example.net.:0623", "ipmi://bmc7.example.net", "bmc7.example.net"},
		{"2001:DB8::7", "ipmi://[2001:db8::7]", "2001:db8::7"},
		{"[2001:db8::7]:624", "ipmi://[2001:db8::7]:624", "2001:db8::7"},
		{"::ffff:10.0.0.7", "ipmi://10.0.0.7", "10.0.0.7"},
		{"", "", ""},
		{"https://10.0.0.7", "", ""},
		{"ipmi:10.0.0.7", "", ""},
		{"fence:hunter2@10.0.0.7", "", ""},
		{"ipmi://fence@10.0.0.7", "", ""},
		{"10.0.0.7/1", "", ""},
		{"10.0.0.7?x", "", ""},
		{"10.0.0.7:0", "", ""},
		{"10.0.0.7:99999", "", ""},
		{"bmc 7", "", ""},
		{"bmc..net", "", ""},
	} {
		canonical, hosts, err := ipmi.NewConfig().CanonicalID(c.id)
		host := strings.Join(hosts, " ")
		if canonical != c.canonical || host != c.host || (err == nil) != (c.host != "") {
			t.Errorf("%q: got %q at %q, %v; want %q at %q", c.id, canonical, host, err, c.canonical, c.host)
		}
		if err != nil && c.id != "" && strings.Contains(err.Error(), c.id) {
			t.Errorf("%q is repeated: %v", c.id, err)
		}
	}
	if !ipmi.NewConfig().HasAddressIDs() {
		t.Error("an ID is no address")
	}
}
