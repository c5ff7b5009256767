package ipmi_test

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

// world is a BMC, its machine, and an attacker in the network between it and the provider, who knows no password.
type world struct {
	*proxy
	provider *ipmi.Provider
	another  func(t *testing.T) *ipmi.Provider // with no session
	said     *kit.Log
	target   providers.Target
	setPower func(on bool)
}

// inBothSuites runs a test against ipmi_sim, whose sessions have cipher suite 3, and against go-ipmi's server with
// suite 17.
func inBothSuites(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("suite 3", func(t *testing.T) {
		sim := ipmisim.New(t, ipmisim.Options{})
		must(t, sim.SetPower(t.Context(), true))
		w := &world{proxy: newProxy(t, sim.Address()),
			setPower: func(on bool) { must(t, sim.SetPower(t.Context(), on)) }}
		w.provider, w.said = newProvider(t, sim.PasswordFile(), inSuite3)
		w.another = func(t *testing.T) *ipmi.Provider { p, _ := newProvider(t, sim.PasswordFile(), inSuite3); return p }
		w.target = providers.Target{Node: "n1", ID: w.address(), SystemUUID: sim.UUID()}
		test(t, w)
	})
	t.Run("suite 17", func(t *testing.T) {
		s := newSoft(t, "secret", types.CipherSuiteID17)
		w := &world{proxy: newProxy(t, s.address), setPower: func(on bool) { s.edit(func() { s.on = on }) }}
		w.forget = func(session uint32) { _ = s.bmc.Sessions.Close(session) }
		file := passwordFile(t, "secret")
		w.provider, w.said = newProvider(t, file, nil)
		w.another = func(t *testing.T) *ipmi.Provider { p, _ := newProvider(t, file, nil); return p }
		w.target = providers.Target{Node: "n1", ID: w.address(), SystemUUID: machineUUID}
		test(t, w)
	})
}

func checksum(b []byte) (sum byte) {
	for _, x := range b {
		sum -= x
	}
	return sum
}

// off is an IPMI message that the chassis is off, in answer to the question of that number.
func off(number byte) []byte {
	head := []byte{0x81, 0x01 << 2}
	body := []byte{0x20, number << 2, 0x01, 0x00, 0x00, 0x00, 0x00}
	return slices.Concat(head, []byte{checksum(head)}, body, []byte{checksum(body)})
}

// forgeries are answers to any question that is under way.
func forgeries(frame func(message []byte) packet) (all []packet) {
	for number := range byte(64) {
		all = append(all, frame(off(number)))
	}
	return all
}

// plain is IPMI 1.5 without authentication.
func plain(message []byte) packet {
	return append(packet{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(message))}, message...)
}

// frame is RMCP+ with these flags, within a session.
func frame(flags byte, session, message []byte) packet {
	p := packet{6, 0, 0xff, 7, 6, flags, session[0], session[1], session[2], session[3], 0xff, 0xff, 0, 0,
		byte(len(message)), 0}
	return append(p, message...)
}

// TestForgedAnswers: the machine is on, and an attacker reports that it is off. The library alone believes all of
// these.
func TestForgedAnswers(t *testing.T) {
	attacks := []struct {
		name     string
		asked    func(session []byte) []packet
		answered func(packet) []packet
	}{
		{name: "IPMI 1.5, not authenticated", asked: func([]byte) []packet { return forgeries(plain) }},
		{name: "RMCP+, not signed", asked: func(session []byte) []packet {
			return forgeries(func(m []byte) packet { return frame(0, session, m) })
		}},
		{name: "RMCP+, outside of a session", asked: func(session []byte) []packet {
			return forgeries(func(m []byte) packet { p := frame(0, session, m); clear(p[6:14]); return p })
		}},
		{name: "RMCP+, not encrypted, with a signature of zeros", asked: func(session []byte) []packet {
			return forgeries(func(m []byte) packet {
				return append(frame(0x40, session, m), 0xff, 0xff, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			})
		}},
		// The power is the eighth byte of the message: to flip a bit of it is to flip it in the vector that encryption
		// began with.
		{name: "a bit of the BMC's own encrypted answer is turned", answered: func(p packet) []packet {
			flipped := bytes.Clone(p)
			if p.inSession() {
				flipped[16+7] ^= 1
			}
			return []packet{flipped, p}
		}},
		{name: "the same, and the signature is cut off", answered: func(p packet) []packet {
			if !p.inSession() {
				return []packet{p}
			}
			flipped := bytes.Clone(p[:16+int(p[14])])
			flipped[16+7] ^= 1
			return []packet{flipped, p}
		}},
		{name: "the same, and it says that it is not signed", answered: func(p packet) []packet {
			if !p.inSession() {
				return []packet{p}
			}
			flipped := bytes.Clone(p)
			flipped[16+7] ^= 1
			flipped[5] = 0x80
			return []packet{flipped, p}
		}},
	}
	inBothSuites(t, func(t *testing.T, w *world) {
		for _, a := range attacks {
			t.Run(a.name, func(t *testing.T) {
				expect(t, w.provider, w.target, providers.PowerOn, "on")
				said := len(w.said.String())
				w.edit(func() {
					w.answered = a.answered
					if a.asked != nil {
						w.asked = func(packet) []packet { return a.asked(w.seen()) }
					}
				})
				defer w.edit(func() { w.asked, w.answered = nil, nil })
				for range 3 {
					expect(t, w.provider, w.target, providers.PowerOn, "on")
				}
				w.restart()
				expect(t, w.provider, w.target, providers.PowerOn, "on") // with the log-in
				if !strings.Contains(w.said.String()[said:], "an attacker may be forging") {
					t.Errorf("the log does not report it")
				}
			})
		}
	})
}

// TestForgedRefusals: an attacker who cannot see our packets refuses the log-in in the BMC's name, at each of its
// messages, and has guessed the tag. Nor can one end it who saw another message. Neither has an effect.
func TestForgedRefusals(t *testing.T) {
	const name, none = 0x0d, 0x00           // the user's name is not authorised; no error
	known := []byte{0xa3, 0xa2, 0xa1, 0xa0} // what go-ipmi calls its sessions
	attacks := map[string]func(kind byte, asked packet, session []byte) []packet{
		"of 18 bytes": func(kind byte, asked packet, _ []byte) []packet {
			return []packet{refusal(kind, asked[16], name, nil), refusal(kind, 0, name, nil)}
		},
		"of no session": func(kind byte, asked packet, _ []byte) []packet {
			return []packet{refusal(kind, asked[16], name, make([]byte, 4))}
		},
		"of a publicly known session": func(kind byte, asked packet, _ []byte) []packet {
			return []packet{refusal(kind, asked[16], name, known)}
		},
		"a wrong proof": func(kind byte, asked packet, _ []byte) []packet {
			return []packet{padded(refusal(kind, asked[16], none, known))}
		},
		"of the BMC's session": func(kind byte, asked packet, _ []byte) []packet {
			if kind == 0x11 {
				return nil // it has none yet
			}
			return []packet{refusal(kind, asked[16], name, asked[20:24])}
		},
		"with another tag": func(kind byte, asked packet, session []byte) (all []packet) {
			for _, away := range []byte{1, 2, 0x80, 0xff} {
				all = append(all, refusal(kind, asked[16]+away, name, session))
			}
			return all
		},
		"of another message": func(kind byte, asked packet, session []byte) (all []packet) {
			for _, other := range []byte{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x20, 0x00} {
				if other != kind {
					all = append(all, refusal(other, asked[16], name, session))
				}
			}
			return all
		},
		"a proof that is cut off": func(kind byte, asked packet, session []byte) []packet {
			return []packet{refusal(kind, asked[16], none, session)}
		},
	}
	inBothSuites(t, func(t *testing.T, w *world) {
		for what, attack := range attacks {
			t.Run(what, func(t *testing.T) {
				w.edit(func() {
					w.asked = func(p packet) []packet {
						if !p.plus() || p.inSession() {
							return nil
						}
						return attack(p.kind()+1, p, w.seen())
					}
				})
				defer w.edit(func() { w.asked = nil })
				before := w.logins()
				p := w.another(t)
				ipmi.SetUnhurried(p)
				expect(t, p, w.target, providers.PowerOn, "on")
				if n := w.logins() - before; n != 1 {
					t.Errorf("got %d log-ins, want 1", n)
				}
			})
		}
	})
}

// padded is a packet with as many bytes as any answer of the log-in has.
func padded(p packet) packet {
	p[14] += 64
	return append(p, make([]byte, 64)...)
}

// TestReplayedAnswers: the BMC signed a true answer that the machine was off, and an attacker repeats it once the
// machine is on. IPMI numbers questions from 1 to 63, so each answer fits a later question.
func TestReplayedAnswers(t *testing.T) {
	inBothSuites(t, func(t *testing.T, w *world) {
		ipmi.SetUnhurried(w.provider)
		var mu sync.Mutex // guards recorded
		var recorded []packet
		w.edit(func() {
			w.answered = func(p packet) []packet {
				if p.inSession() {
					mu.Lock()
					defer mu.Unlock()
					recorded = append(recorded, p)
				}
				return []packet{p}
			}
		})
		w.setPower(false)
		for range 64 {
			if a := ask(t, w.provider, w.target); a.State != providers.PowerOff {
				t.Fatalf("got %s (%q), %v; want Off", a.State, a.Raw, a.Err)
			}
		}
		w.setPower(true)
		w.edit(func() {
			w.answered = nil
			w.asked = func(packet) []packet {
				mu.Lock()
				defer mu.Unlock()
				return recorded
			}
		})
		for range 8 {
			expect(t, w.provider, w.target, providers.PowerOn, "on")
		}
		if n := w.logins(); n != 1 {
			t.Errorf("got %d log-ins, want 1", n)
		}
	})
}

// TestLateAnswer: an answer that comes after its call has ended is no answer to a later question.
func TestLateAnswer(t *testing.T) {
	s := newSoft(t, "secret")
	x := newProxy(t, s.address)
	p, _ := newProvider(t, passwordFile(t, "secret"), nil)
	of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	s.edit(func() { s.on = false })
	expect(t, p, of, providers.PowerOff, "off")
	var mu sync.Mutex // guards late
	var late []packet
	x.edit(func() {
		x.answered = func(p packet) []packet {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, p)
			return nil
		}
	})
	for range 4 {
		expectSoon(t, p, of)
	}
	s.edit(func() { s.on = true })
	x.edit(func() {
		x.answered = nil
		x.asked = func(packet) []packet {
			mu.Lock()
			defer mu.Unlock()
			return late
		}
	})
	for range 70 {
		if a := ask(t, p, of); a.State == providers.PowerOff {
			t.Fatal("an answer of another call counts")
		}
	}
	x.edit(func() { x.asked = nil })
	expect(t, p, of, providers.PowerOn, "on")
}

// TestOtherAlgorithms: an attacker answers the log-in's first message in the BMC's place and chooses no algorithms at
// all, which the library would go along with. Nothing follows.
func TestOtherAlgorithms(t *testing.T) {
	for name, edit := range map[string]func(p packet){
		"no authentication": func(p packet) { p[16+16] = 0 },
		"no integrity":      func(p packet) { p[16+24] = 0 },
		"no encryption":     func(p packet) { p[16+32] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSoft(t, "secret")
			x := newProxy(t, s.address)
			p, _ := newProvider(t, passwordFile(t, "secret"), nil)
			var after int
			x.edit(func() {
				x.answered = func(p packet) []packet {
					if p.is(0x11) {
						p = bytes.Clone(p)
						edit(p)
					} else {
						after++
					}
					return []packet{p}
				}
			})
			err := expectClass(t, p, providers.Target{Node: "n1", ID: x.address()}, providers.ErrUntrusted)
			if err == nil || !strings.Contains(err.Error(), "other algorithms") {
				t.Errorf("got %v", err)
			}
			x.edit(func() {
				if after != 0 {
					t.Errorf("the log-in went on: %d answers", after)
				}
			})
		})
	}
}

// TestHalfAnAnswer: a truncated packet is no answer, in the log-in and after it.
func TestHalfAnAnswer(t *testing.T) {
	for _, keep := range []int{0, 1, 4, 5, 15, 16, 17, 24, 31, 32, 40} {
		t.Run(strconv.Itoa(keep), func(t *testing.T) {
			t.Parallel()
			s := newSoft(t, "secret")
			x := newProxy(t, s.address)
			p, _ := newProvider(t, passwordFile(t, "secret"), nil)
			of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
			for _, warm := range []bool{false, true} {
				if warm {
					expect(t, p, of, providers.PowerOn, "on")
				}
				x.edit(func() { x.answered = func(p packet) []packet { return []packet{p[:min(keep, len(p))]} } })
				expectSoon(t, p, of)
				x.edit(func() { x.answered = nil })
			}
			expect(t, p, of, providers.PowerOn, "on")
		})
	}
}

// TestSecretsStaySecret: in no failure does the log or an error contain the password or the BMC's key.
func TestSecretsStaySecret(t *testing.T) {
	const secret, key = "tr0ub4dor&3", "0x4b65797321"
	s := newSoft(t, secret)
	bmc.WithKG([]byte("Keys!"))(s.bmc)
	x := newProxy(t, s.address)
	file, keyFile := passwordFile(t, secret), passwordFile(t, key)
	p, said := newProvider(t, file, func(c *ipmi.Config) { c.KgFile = keyFile })
	of := providers.Target{Node: "n1", ID: x.address(), SystemUUID: machineUUID}
	var texts []string
	try := func() {
		if a := ask(t, p, of); a.Err != nil {
			texts = append(texts, a.Err.Error())
		}
	}
	try()
	x.set(providertest.Unreachable)
	try()
	x.set(providertest.NoFault)
	must(t, os.WriteFile(file, []byte("not "+secret), 0o600))
	x.restart()
	try()
	must(t, os.WriteFile(file, []byte(secret+strings.Repeat("x", 20)), 0o600))
	x.restart()
	try()
	must(t, os.WriteFile(file, []byte(secret), 0o600))
	for _, wrong := range []string{key + "00ff", key + "x", key + strings.Repeat("00", 20)} {
		must(t, os.WriteFile(keyFile, []byte(wrong), 0o600))
		x.restart()
		try()
	}
	of.ID = "fence:" + secret + "@" + x.address()
	try()
	if len(texts) != 7 {
		t.Errorf("got errors %q", texts)
	}
	for _, hidden := range []string{secret, key, key[2:], "Keys!"} {
		if all := strings.Join(texts, "\n") + said.String(); strings.Contains(all, hidden) {
			t.Errorf("%q is in: %s", hidden, all)
		}
	}
}
