package ipmi_test

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers/providertest"
)

// packet is a datagram; its methods are false or empty for what is too short.
type packet []byte

func (p packet) plus() bool        { return len(p) >= 16 && p[4] == 6 }
func (p packet) kind() byte        { return p[5] & 0x3f }
func (p packet) session() uint32   { return binary.LittleEndian.Uint32(p[6:]) }
func (p packet) inSession() bool   { return p.plus() && p.session() != 0 }
func (p packet) is(kind byte) bool { return p.plus() && !p.inSession() && p.kind() == kind }

// proxy is between a provider and a BMC, and applies a fault.
type proxy struct {
	front *net.UDPConn
	backs []*net.UDPConn
	wait  sync.WaitGroup

	forget func(session uint32) // has the BMC end it; nil: only the proxy does

	mu       sync.Mutex // guards what follows
	fault    providertest.Fault
	sessions map[uint32]bool // the BMC's names of those that it opened and did not forget
	clients  []*net.UDPAddr  // of each socket towards the BMC
	clock    int             // counts them round
	named    map[uint32]bool // sessions whose log-in came as far as the user's name, by what the BMC calls them
	console  []byte          // of seen

	asked    func(packet) []packet // what an attacker sends at a request, before the BMC can; nil: nothing
	answered func(packet) []packet // what he makes of an answer; nil: leaves it
	ended    bool
}

// backs is more sockets than clients that a BMC has at a time. All are there from the start: the suite looks for what a
// call leaves behind.
const backs = 16

func newProxy(t testing.TB, bmc string) *proxy {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	to, err := net.ResolveUDPAddr("udp", bmc)
	must(t, err)
	x := &proxy{front: front, sessions: map[uint32]bool{}, named: map[uint32]bool{},
		clients: make([]*net.UDPAddr, backs)}
	for range backs {
		back, err := net.DialUDP("udp", nil, to)
		must(t, err)
		x.backs = append(x.backs, back)
	}
	for i := range backs {
		x.wait.Go(func() { x.answers(i) })
	}
	x.wait.Go(x.serve)
	t.Cleanup(func() {
		x.edit(func() { x.ended = true })
		_ = front.Close()
		for _, back := range x.backs {
			_ = back.Close()
		}
		x.wait.Wait()
	})
	return x
}

func (x *proxy) address() string { return x.front.LocalAddr().String() }

func (x *proxy) edit(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

func (x *proxy) set(f providertest.Fault) {
	x.edit(func() { x.fault = f })
	if f == providertest.Denied || f == providertest.Unreachable {
		x.restart()
	}
}

// restart has the BMC forget its sessions.
func (x *proxy) restart() {
	x.mu.Lock()
	had := x.sessions
	x.sessions = map[uint32]bool{}
	x.mu.Unlock()
	for id := range had {
		if x.forget != nil {
			x.forget(id)
		}
	}
}

// seen is what the provider calls the session that it asked for last.
func (x *proxy) seen() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.console
}

func (x *proxy) logins() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.named)
}

// serve hands on requests; each client has a socket of its own towards the BMC.
func (x *proxy) serve() {
	for {
		b := make([]byte, 4096)
		n, client, err := x.front.ReadFromUDP(b)
		if err != nil {
			return
		}
		p := packet(b[:n])
		x.mu.Lock()
		fault, known, asked := x.fault, !p.inSession() || x.sessions[p.session()], x.asked
		switch {
		case p.is(0x10):
			x.console = p[20:24]
		case p.is(0x12):
			x.named[binary.LittleEndian.Uint32(p[20:])] = true
		}
		i := slices.IndexFunc(x.clients, func(c *net.UDPAddr) bool { return c != nil && c.Port == client.Port })
		if i < 0 {
			i = x.clock % backs
			x.clock++
			x.clients[i] = client
		}
		x.mu.Unlock()
		switch {
		case fault == providertest.Silent, !known:
			continue
		case fault == providertest.Unreachable:
			if p.is(0x10) { // no session is free
				x.reply(client, refusal(0x11, p[16], 1, p[20:24]))
			}
			continue
		}
		if asked != nil {
			x.reply(client, asked(p)...)
		}
		_, _ = x.backs[i].Write(p)
	}
}

// refusal is what a BMC answers in the log-in that refuses; a session without bytes is OpenIPMI's.
func refusal(kind, tag, status byte, session []byte) packet {
	out := packet{6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, tag, status, 0, 0}
	if len(session) == 0 {
		out[14] = 2
		return out[:18]
	}
	return append(out, session...)
}

func (x *proxy) answers(i int) {
	for {
		b := make([]byte, 4096)
		n, err := x.backs[i].Read(b)
		x.mu.Lock()
		fault, answered, client, ended := x.fault, x.answered, x.clients[i], x.ended
		p := packet(b[:n])
		if p.is(0x11) && len(p) >= 28 && p[17] == 0 {
			x.sessions[binary.LittleEndian.Uint32(p[24:])] = true
		}
		x.mu.Unlock()
		switch {
		case ended:
			return
		// an error: the BMC is not there
		case err != nil, fault == providertest.Silent, fault == providertest.Unreachable:
			continue
		case fault == providertest.Slow:
			time.Sleep(providertest.SlowBy) // the fault takes as long
		}
		if answered != nil {
			x.reply(client, answered(p)...)
			continue
		}
		x.reply(client, p)
	}
}

func (x *proxy) reply(client *net.UDPAddr, packets ...packet) {
	for _, p := range packets {
		_, _ = x.front.WriteToUDP(p, client)
	}
}
