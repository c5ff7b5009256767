package ipmi

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers/remote"
)

// longestTrap is the maximum length of a packet that is read, several times that of a PET.
const longestTrap = 1500

// trap is the content of an SNMP trap. The zero value is a trap without a known content.
type trap struct {
	pet bool
	// of a PET: 8 bits each of nothing, sensor type, event type, and the event's offset with its direction
	specific uint32
}

// pet is the enterprise of platform event traps (PET 1.0), 1.3.6.1.4.1.3183.1.1.
var pet = []byte{0x2b, 6, 1, 4, 1, 0x98, 0x6f, 1, 1}

// sensors are the sensor types (IPMI 2.0, table 42-3) that users may want to see in the log.
var sensors = map[byte]string{
	0x01: "temperature",
	0x02: "voltage",
	0x08: "power supply",
	0x09: "power unit",
	0x12: "system event",
	0x14: "button",
	0x1d: "boot",
	0x20: "operating system", 0x22: "ACPI power state", 0x23: "watchdog",
}

// String returns the trap as a log line writes it.
func (t trap) String() string {
	if !t.pet {
		return "trap"
	}
	sensor := byte(t.specific >> 16)
	name := sensors[sensor]
	if name == "" {
		name = fmt.Sprintf("sensor type %#02x", sensor)
	}
	return fmt.Sprintf("PET %#06x (%s)", t.specific, name)
}

// parseTrap parses the relevant part of a trap of SNMPv1 or v2c, and allocates nothing. Anybody can send one: whatever
// its content, it only causes a question.
func parseTrap(b []byte) (t trap, ok bool) {
	packet := remote.BER{Rest: b}
	message := packet.Enter(remote.BERSequence)
	version := message.TakeInteger()
	message.Take(remote.BEROctets) // the community is no secret, and proves nothing
	switch version {
	case 1: // v2c
		message.Take(0xa7)
		return t, !message.Bad
	case 0:
	default:
		return t, false
	}
	pdu := message.Enter(0xa4)
	enterprise := pdu.Take(remote.BEROID)
	pdu.Take(0x40) // the agent's address: the packet's own sender counts
	generic, specific := pdu.TakeInteger(), pdu.TakeInteger()
	pdu.Take(0x43) // the time
	if bytes.Equal(enterprise, pet) && generic == 6 && !pdu.Bad {
		t = trap{pet: true, specific: uint32(specific)} // #nosec G115 -- at most 32 bits
	}
	return t, !pdu.Bad
}

// ports are this process' sockets for traps, by their addresses. Several providers may share one.
var (
	portsMu sync.Mutex // guards ports, and the list of each port's listeners
	ports   = map[string]*port{}
)

// port is a socket. It is closed with its last listener.
type port struct {
	conn      *net.UDPConn
	done      chan struct{}           // closed when its reader has ended
	listeners map[*trapWatch]struct{} // guarded by portsMu
}

// listenForTraps passes traps for address to w until leave is called. leave waits until w has handled the current one.
func listenForTraps(address string, w *trapWatch) (leave func(), _ error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	p := ports[address]
	if p == nil {
		at, err := net.ResolveUDPAddr("udp", address) // no name: see Validate
		if err != nil {
			return nil, err
		}
		conn, err := net.ListenUDP("udp", at)
		if err != nil {
			return nil, err
		}
		_ = conn.SetReadBuffer(1 << 20) // as much as is allowed: a rack that loses its power sends all at once
		p = &port{conn, make(chan struct{}), map[*trapWatch]struct{}{}}
		ports[address] = p
		go p.readTraps() // its owner is the last listener's leave
	}
	p.listeners[w] = struct{}{}
	return func() {
		portsMu.Lock()
		delete(p.listeners, w)
		last := len(p.listeners) == 0
		if last {
			delete(ports, address)
			_ = p.conn.Close()
		}
		portsMu.Unlock()
		if last {
			<-p.done
		}
	}, nil
}

// readTraps dispatches packets until the socket is closed.
func (p *port) readTraps() {
	defer close(p.done)
	b := make([]byte, longestTrap)
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(10 * time.Millisecond) // an error that lasts must not keep a processor busy
		default:
			p.dispatchTrap(from.Addr().Unmap().WithZone(""), b[:n])
		}
	}
}

func (p *port) dispatchTrap(from netip.Addr, b []byte) {
	portsMu.Lock()
	defer portsMu.Unlock()
	for w := range p.listeners {
		w.handlePacket(from, b)
	}
}
