package ipmi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/limiter"
)

// network carries datagrams between a provider and one BMC, in memory and so in a synctest bubble. It loses some, and
// takes its time.
type network struct {
	bmc   chan datagram
	ended chan struct{}
	work  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	rand     *rand.Rand
	delay    time.Duration                // one way
	loss     float64                      // of each datagram, 0 to 1
	lose     func(p packet) bool          // others that are lost; nil: none
	hold     func(p packet) time.Duration // how much longer it is on its way; nil: no longer
	change   func(p packet) packet        // what the BMC sends instead; nil: that
	openings map[byte]int                 // requests for a session, by the number of the authentication algorithm
	named    int                          // log-ins that came as far as the user's name
}

// datagram is one on its way to the BMC.
type datagram struct {
	packet
	from line
}

// line is one end of a client's connection, the network's.
type line struct{ net.Conn }

func (line) Network() string { return "memory" }
func (line) String() string  { return "client" }

func newNetwork(t *testing.T, seed uint64) *network {
	n := &network{
		bmc: make(chan datagram, 1024), ended: make(chan struct{}),
		rand: rand.New(rand.NewPCG(seed, seed)), openings: map[byte]int{},
	}
	t.Cleanup(n.work.Wait)
	return n
}

// Dial is a provider's way to the BMC.
func (n *network) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	n.work.Go(func() {
		for {
			b := make([]byte, 4096)
			size, err := theirs.Read(b)
			if err != nil {
				return
			}
			p := packet(b[:size])
			n.mu.Lock()
			switch {
			case p.is(0x10):
				n.openings[p[16+12]]++
			case p.is(0x12):
				n.named++
			}
			n.mu.Unlock()
			n.carry(p, func() { n.bmc <- datagram{p, line{theirs}} })
		}
	})
	return ours, nil
}

func (n *network) carry(p packet, deliver func()) {
	n.mu.Lock()
	lost, delay := n.rand.Float64() < n.loss || n.lose != nil && n.lose(p), n.delay
	if n.hold != nil {
		delay += n.hold(p)
	}
	n.mu.Unlock()
	if !lost {
		n.work.Go(func() {
			time.Sleep(delay)
			deliver()
		})
	}
}

func (n *network) edit(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// tried is how often a session was asked for with that authentication algorithm.
func (n *network) tried(algorithm byte) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.openings[algorithm]
}

func (n *network) logins() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.named
}

// ReadFrom, WriteTo and Close are the BMC's transport.
func (n *network) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-n.bmc:
		return copy(b, d.packet), d.from, nil
	case <-n.ended:
		return 0, nil, net.ErrClosed
	}
}

func (n *network) WriteTo(b []byte, to net.Addr) (int, error) {
	p := packet(bytes.Clone(b))
	n.mu.Lock()
	if n.change != nil {
		p = n.change(p)
	}
	n.mu.Unlock()
	n.carry(p, func() { _, _ = to.(line).Write(p) }) // to a connection that is closed nothing comes
	return len(b), nil
}

func (n *network) Close() error {
	close(n.ended)
	return nil
}

// remote is a BMC with both suites behind a network, and a provider that reaches it. It ends with the test, which is
// in a bubble.
func newRemote(t *testing.T, seed uint64, edit func(*ipmi.Config)) (*network, *soft, *ipmi.Provider, providers.Target) {
	n := newNetwork(t, seed)
	s := newSoftOn(t, n, "secret", types.CipherSuiteID3, types.CipherSuiteID17)
	p, _ := newProvider(t, passwordFile(t, "secret"), edit)
	ipmi.SetDial(p, n.Dial)
	ipmi.SetWarm(p, 1500*time.Millisecond)
	return n, s, p, providers.Target{Node: "n1", ID: "bmc", SystemUUID: machineUUID}
}

// within asks as the limiter does, with little time.
func within(t *testing.T, p providers.Provider, of providers.Target, limit time.Duration) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	a := providers.Ask(ctx, p, "test", of, providers.Now)
	if a.State == providers.PowerOff || a.Err != nil && !errors.Is(a.Err, providers.ErrUnreachable) {
		t.Errorf("got %s (%q), %v", a.State, a.Raw, a.Err)
	}
	return a
}

const call = 5 * time.Second // the longest that the configuration allows

// TestLoss: where a fifth of all datagrams are lost, nearly every call has its answer, with a session and without.
func TestLoss(t *testing.T) {
	for name, pause := range map[string]time.Duration{
		"with a session": time.Second, "with a log-in each": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls, seed = 100, 1
				n, _, p, of := newRemote(t, seed, nil)
				n.edit(func() { n.loss = 0.2 })
				answers := 0
				for range calls {
					if a := within(t, p, of, call); a.Err == nil {
						answers++
					}
					time.Sleep(pause)
				}
				if t.Logf("%d answers", answers); answers < calls*9/10 {
					t.Errorf("seed %d: got %d answers in %d calls", seed, answers, calls)
				}
				n.edit(func() { n.loss = 0 }) // for what is given back
			})
		})
	}
}

// TestSlowNetwork: a log-in takes four round trips, and a question of State three. Where each takes more
// than a second the log-in takes a call, and is there for those that follow.
func TestSlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p, of := newRemote(t, 1, nil)
		n.edit(func() { n.delay = 600 * time.Millisecond })
		s.edit(func() { s.acpi = []byte{0, 0} })
		if a := within(t, p, of, call); a.Err == nil {
			t.Errorf("got %s at the first call", a.State)
		}
		for range 20 {
			if a := within(t, p, of, call); a.Err != nil {
				t.Error(a.Err)
			}
		}
		if n.logins() != 1 || n.tried(sha256) != 2 || n.tried(sha1) != 0 {
			t.Errorf("got %d log-ins, asked for %d sessions of suite 17 and %d of 3; want 1, 2, 0",
				n.logins(), n.tried(sha256), n.tried(sha1))
		}
	})
}

// TestLoginGoesOn: a log-in that takes longer than a call is not begun again by each, and its session is given back if
// no call asks for it.
func TestLoginGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p, of := newRemote(t, 1, nil)
		n.edit(func() { n.delay = 100 * time.Millisecond })
		const short = 300 * time.Millisecond
		for range 3 {
			if a := within(t, p, of, short); a.Err == nil {
				t.Errorf("got %s, with %s for a log-in of 800ms", a.State, short)
			}
		}
		if a := within(t, p, of, call); a.Err != nil {
			t.Error(a.Err)
		}
		if n.logins() != 1 || s.bmc.Sessions.Count() != 1 {
			t.Errorf("got %d log-ins, %d sessions, want 1 of each", n.logins(), s.bmc.Sessions.Count())
		}
		time.Sleep(time.Minute)
		within(t, p, of, short)
		time.Sleep(time.Minute)
		if n.logins() != 2 || s.bmc.Sessions.Count() != 0 || ipmi.BMCs(p) != 0 {
			t.Errorf("got %d log-ins, %d sessions, %d BMCs; want 2, and nothing left",
				n.logins(), s.bmc.Sessions.Count(), ipmi.BMCs(p))
		}
	})
}

// TestCloseEndsLogins: Close waits for no log-in, and leaves nothing behind, nor an unused session.
func TestCloseEndsLogins(t *testing.T) {
	for name, loss := range map[string]float64{"under way": 1, "ended": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s, p, of := newRemote(t, 1, nil)
				n.edit(func() { n.loss = loss })
				n.edit(func() { n.delay = 50 * time.Millisecond })
				within(t, p, of, 150*time.Millisecond)
				time.Sleep(time.Second)
				begun := time.Now()
				must(t, p.Close(t.Context()))
				if took := time.Since(begun); took > time.Second || s.bmc.Sessions.Count() != 0 {
					t.Errorf("took %s, %d sessions are left", took, s.bmc.Sessions.Count())
				}
			})
		})
	}
}

// TestFailedLogin: an error of a log-in that an earlier call began is not the error of a later one, which begins its
// own.
func TestFailedLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		newSoftOn(t, n, "secret")
		n.edit(func() { n.delay = 100 * time.Millisecond })
		file := passwordFile(t, "wrong")
		p, _ := newProvider(t, file, nil)
		ipmi.SetDial(p, n.Dial)
		of := providers.Target{Node: "n1", ID: "bmc", SystemUUID: machineUUID}
		within(t, p, of, 300*time.Millisecond)
		must(t, os.WriteFile(file, []byte("secret"), 0o600))
		if a := within(t, p, of, call); a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// silentAt has the network lose requests for sessions of the cipher suite with this authentication algorithm.
func (n *network) silentAt(algorithm byte) {
	n.edit(func() { n.lose = func(p packet) bool { return p.is(0x10) && p[16+12] == algorithm } })
}

const sha1, sha256 = 1, 3 // algorithms of suites 3 and 17

// TestSilentSuite: a BMC that does not answer to suite 17 is asked for 3 in the same call, and the next log-in begins
// with that.
func TestSilentSuite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		n.silentAt(sha256)
		answered := func() {
			t.Helper()
			if a := within(t, p, of, call); a.Err != nil {
				t.Error(a.Err)
			}
			time.Sleep(time.Minute) // the session is given back
		}
		answered()
		before := n.tried(sha256)
		answered()
		if n.tried(sha256) != before || before == 0 {
			t.Errorf("suite 17 was tried %d times, and %d times more once 3 was known", before, n.tried(sha256)-before)
		}
		n.silentAt(sha1) // it has learned 17, and forgotten 3
		answered()
		n.silentAt(sha256)
		answered()
		n.edit(func() { n.lose = nil })
		time.Sleep(5 * time.Hour)
		if ipmi.BMCs(p) != 0 {
			t.Error("the BMC is remembered for ever")
		}
		answered()
		if n.tried(sha256) == before {
			t.Error("suite 17 is not tried again")
		}
	})
}

// TestOnlySuiteIsSilent: the error names the setting, also behind the limiter, and the other suite is not tried.
func TestOnlySuiteIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, func(c *ipmi.Config) { c.CipherSuites = []int{17} })
		n.silentAt(sha256)
		g := limiter.New(p, limiter.Options{Name: "rack-a", Timeout: call, Log: slog.New(slog.DiscardHandler)})
		_, err := g.State(t.Context(), of)
		if !errors.Is(err, providers.ErrUnreachable) ||
			!strings.Contains(err.Error(), "cipher suite 17 (see cipherSuites)") {
			t.Errorf("got %v", err)
		}
		if n.tried(sha1) != 0 {
			t.Error("suite 3 was tried")
		}
		must(t, g.Close(t.Context()))
	})
}

// TestLostSessionsAreEnded: a session that is silent is not used again, and is given back nevertheless.
func TestLostSessionsAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p, of := newRemote(t, 1, nil)
		for range 3 {
			if a := within(t, p, of, call); a.Err != nil {
				t.Error(a.Err)
			}
			n.edit(func() { n.loss = 1 })
			if a := within(t, p, of, 2*time.Second); a.Err == nil {
				t.Errorf("got %s of a BMC that is silent", a.State)
			}
			n.edit(func() { n.loss = 0 })
			time.Sleep(3 * time.Second)
			if open := s.bmc.Sessions.Count(); open != 1 {
				t.Errorf("got %d sessions, want that of the new log-in", open)
			}
		}
	})
}

// TestShortCalls: calls that are each too short to wait for an answer find out together that a BMC has forgotten its
// session.
func TestShortCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		old, learning := map[uint32]bool{}, true // what both sides call the session
		n.edit(func() {
			n.lose = func(p packet) bool {
				if p.inSession() && learning {
					old[p.session()] = true
				}
				return p.inSession() && !learning && old[p.session()]
			}
		})
		if a := within(t, p, of, call); a.Err != nil {
			t.Fatal(a.Err)
		}
		n.edit(func() { learning = false })
		for range 3 {
			within(t, p, of, time.Second)
		}
		if a := within(t, p, of, time.Second); a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// TestLateProof: a BMC made two random numbers, because its answers were late. The first has become worthless.
func TestLateProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		n.edit(func() {
			n.hold = func(p packet) time.Duration {
				if p.is(0x13) {
					return 700 * time.Millisecond
				}
				return 0
			}
		})
		if a := within(t, p, of, call); a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// TestStalledLogin: a stalled log-in begins again, with the suite that the BMC has.
func TestStalledLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		n.edit(func() { n.lose = func(p packet) bool { return p.is(0x13) && n.openings[sha256] == 1 } })
		if a := within(t, p, of, call); a.Err != nil {
			t.Error(a.Err)
		}
		if n.tried(sha1) != 0 || n.tried(sha256) != 2 {
			t.Errorf("suite 17 was tried %d times, 3 %d times; want twice, never", n.tried(sha256), n.tried(sha1))
		}
	})
}

// TestRefusedTwin: a BMC that has opened the session refuses the message that came twice. That is no refusal of the
// session.
func TestRefusedTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		answers := 0
		n.edit(func() {
			n.change = func(p packet) packet {
				if p.is(0x15) {
					if answers++; answers > 1 {
						return refusal(0x15, p[16], 0x08, p[20:24])
					}
				}
				return p
			}
			n.lose = func(p packet) bool { return p.is(0x15) && answers == 1 }
		})
		if a := within(t, p, of, call); a.Err != nil || n.logins() != 1 || answers < 2 {
			t.Errorf("got %v, %d log-ins, %d answers at the end", a.Err, n.logins(), answers)
		}
	})
}

// TestNumbersRunOut: a question was sent twice, so its number is not used again: there is another session before.
func TestNumbersRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, p, of := newRemote(t, 1, nil)
		lost := false
		n.edit(func() {
			n.lose = func(p packet) bool {
				first := p.inSession() && !lost
				lost = lost || first
				return first
			}
		})
		for range 100 {
			if a := within(t, p, of, call); a.Err != nil {
				t.Error(a.Err)
			}
			time.Sleep(time.Second)
		}
		if n.logins() != 2 {
			t.Errorf("got %d log-ins, want 2", n.logins())
		}
	})
}

// TestLostProof: many BMCs do not repeat that a session is open. The first question shows that it is.
func TestLostProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p, of := newRemote(t, 1, nil)
		n.edit(func() { n.lose = func(p packet) bool { return p.is(0x15) } })
		if a := within(t, p, of, call); a.Err != nil || n.logins() != 1 || s.bmc.Sessions.Count() != 1 {
			t.Errorf("got %v, %d log-ins, %d sessions", a.Err, n.logins(), s.bmc.Sessions.Count())
		}
	})
}
