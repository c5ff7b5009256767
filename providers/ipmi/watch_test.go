package ipmi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
	"github.com/forcefence/forcefence/test/kit"
)

// newTrapper makes a provider that listens for traps at address.
func newTrapper(t testing.TB, passwordFile, user, address string) providers.Watcher {
	t.Helper()
	c := ipmi.NewConfig()
	c.Username, c.PasswordFile, c.Traps, c.CipherSuites = user, passwordFile, address, []int{ipmisim.CipherSuite}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := c.New(providers.Options{Name: "rack-a", Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_ = p.(providers.Closer).Close(ctx) // of a BMC that is gone
	})
	return p.(providers.Watcher)
}

// petOf is the trap that a BMC sends when its machine's power is off.
var petOf = gosnmp.SnmpTrap{
	Enterprise: "." + ipmisim.PETEnterprise, AgentAddress: "127.0.0.1", GenericTrap: 6,
	SpecificTrap: ipmisim.PETPowerOff, Timestamp: 300,
	Variables: []gosnmp.SnmpPDU{
		{Name: "." + ipmisim.PETEnterprise + ".1", Type: gosnmp.OctetString, Value: []byte(ipmisim.PETEvent)}},
}

// packetOf is a trap as gosnmp writes it.
func packetOf(t testing.TB, version gosnmp.SnmpVersion, trap gosnmp.SnmpTrap) []byte {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer pc.Close()
	sendBy(t, version, trap, pc.LocalAddr().String())
	b := make([]byte, 2000)
	must(t, pc.SetReadDeadline(time.Now().Add(timeout)))
	n, _, err := pc.ReadFrom(b)
	must(t, err)
	return b[:n]
}

func sendBy(t testing.TB, version gosnmp.SnmpVersion, trap gosnmp.SnmpTrap, to string) {
	t.Helper()
	a := netip.MustParseAddrPort(to)
	g := &gosnmp.GoSNMP{Target: a.Addr().String(), Port: a.Port(), Version: version, Community: "public",
		Timeout: time.Second, MaxOids: 10}
	must(t, g.Connect())
	defer g.Conn.Close()
	_, err := g.SendTrap(trap)
	must(t, err)
}

// from returns what sends packets from an address of this machine to another.
func from(t testing.TB, source, to string) func([]byte) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source)},
		net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func(b []byte) { _, _ = conn.Write(b) } // the listener may be closed
}

func questions(s *soft) int { return s.count(types.CommandGetChassisStatus) }

// A trap makes us ask its BMC, whose answer is reported if the machine does not run. Others' packets, and what is no
// trap, do not.
func TestWatch(t *testing.T) {
	const right = "correct horse"
	s, off := newSoft(t, right), newSoft(t, right)
	off.edit(func() { off.on = false })
	address := kit.FreeAddress(t)
	p := newTrapper(t, passwordFile(t, right), "fence", address)
	ipmi.SetName(ipmi.Watched(p), "bmc.test", netip.MustParseAddr("127.0.0.1"))
	reports, stop := providertest.StartWatch(t, p, providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID},
		providers.Target{Node: "n2", ID: "ipmi://bmc.test:" + off.address[strings.LastIndex(off.address, ":")+1:],
			SystemUUID: machineUUID},
		providers.Target{Node: "nothing"}, providers.Target{Node: "no BMC", ID: "127.0.0.3:1"})
	providertest.AwaitReports(t, reports, "n2 Off off") // at the beginning
	kit.Until(t, "the question at the beginning", func() bool { return questions(s) == 1 })

	good := packetOf(t, gosnmp.Version1, petOf)
	stranger, bmc := from(t, "127.0.0.2", address), from(t, "127.0.0.1", address)
	for range 50 {
		stranger(good)
		for _, b := range [][]byte{
			{}, {0x30}, good[:len(good)/2], []byte("GET / HTTP/1.0\r\n\r\n"), make([]byte, 3000)} {
			bmc(b)
		}
	}
	sendBy(t, gosnmp.Version1, petOf, address) // is read after these
	kit.Until(t, "a question after the trap", func() bool { return questions(s) > 1 })
	s.edit(func() { s.on = false }) // after the trap, and after it was asked about
	providertest.AwaitReports(t, reports, "n1 Off after a PET 0x096f00 (power unit): off")
	stop()
	for x := range reports {
		if !strings.Contains(x, " Off ") {
			t.Errorf("reported %q", x)
		}
	}
	sendBy(t, gosnmp.Version1, petOf, address)
	if l, err := net.ListenPacket("udp", address); err != nil {
		t.Errorf("the address is still listened at: %v", err)
	} else {
		_ = l.Close()
	}
}

// Strangers and what is no trap cause no question at all.
func TestWatchIgnores(t *testing.T) {
	const right = "correct horse"
	s := newSoft(t, right)
	address := kit.FreeAddress(t)
	_, stop := providertest.StartWatch(t, newTrapper(t, passwordFile(t, right), "fence", address),
		providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID})
	kit.Until(t, "the question at the beginning", func() bool { return questions(s) == 1 })
	good := packetOf(t, gosnmp.Version1, petOf)
	stranger, bmc := from(t, "127.0.0.2", address), from(t, "127.0.0.1", address)
	v3 := append([]byte{}, good...)
	v3[4+strings.Index(string(good[2:]), "\x02\x01\x00")] = 3
	for range 20 {
		stranger(good)
		for _, b := range [][]byte{
			{}, {0x30}, good[:len(good)/2], v3, []byte("GET / HTTP/1.0\r\n\r\n"), make([]byte, 3000),
			append([]byte{0x31}, good[1:]...)} {
			bmc(b)
		}
	}
	time.AfterFunc(1500*time.Millisecond, stop) // longer than two questions are apart
	kit.Until(t, "the end", func() bool {
		l, err := net.ListenPacket("udp", address)
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	})
	if n := questions(s); n != 1 {
		t.Errorf("%d questions, want the first one alone", n)
	}
}

// 100,000 traps in a BMC's name cause one question a second, and no work beside.
func TestWatchFlood(t *testing.T) {
	const right = "correct horse"
	s := newSoft(t, right)
	address := kit.FreeAddress(t)
	begun := time.Now()
	reports, stop := providertest.StartWatch(t, newTrapper(t, passwordFile(t, right), "fence", address),
		providers.Target{Node: "n1", ID: s.address, SystemUUID: machineUUID})
	kit.Until(t, "the question at the beginning", func() bool { return questions(s) == 1 })
	good := packetOf(t, gosnmp.Version1, petOf)
	bmc := from(t, "127.0.0.1", address)
	for range 100_000 {
		bmc(good)
	}
	kit.Until(t, "a question", func() bool { return questions(s) > 1 })
	stop()
	for x := range reports {
		t.Errorf("reported %v of a running machine", x)
	}
	if n, most := questions(s), 2+int(time.Since(begun)/time.Second); n > most {
		t.Errorf("%d questions in %s, want at most %d", n, time.Since(begun), most)
	}
	if n := testing.AllocsPerRun(1000,
		ipmi.Packets(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1"), good)); n != 0 {
		t.Errorf("%v allocations for a trap", n)
	}
	if n := testing.AllocsPerRun(1000,
		ipmi.Packets(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), good)); n != 0 {
		t.Errorf("%v allocations for a stranger's trap", n)
	}
}

// Two providers, and two watches of one, share a port; an address that another program has is an error at once.
func TestWatchesShareAPort(t *testing.T) {
	const right = "correct horse"
	s, other := newSoft(t, right), newSoft(t, right)
	s.edit(func() { s.on = false })
	other.edit(func() { other.on = false })
	address := kit.FreeAddress(t)
	file := passwordFile(t, right)
	p := newTrapper(t, file, "fence", address)
	a, stop := providertest.StartWatch(t, p, providers.Target{Node: "a", ID: s.address, SystemUUID: machineUUID})
	b, _ := providertest.StartWatch(t, p, providers.Target{Node: "b", ID: s.address, SystemUUID: machineUUID})
	c, stopC := providertest.StartWatch(t, newTrapper(t, file, "fence", address),
		providers.Target{Node: "c", ID: other.address, SystemUUID: machineUUID})
	for node, reports := range map[string]<-chan string{"a": a, "b": b, "c": c} {
		providertest.AwaitReports(t, reports, node+" Off off")
	}
	const trapped = "after a PET 0x096f00 (power unit): off"
	sendBy(t, gosnmp.Version1, petOf, address)
	for node, reports := range map[string]<-chan string{"a": a, "b": b, "c": c} {
		providertest.AwaitReports(t, reports, node+" Off "+trapped)
	}
	stop()
	stopC()
	sendBy(t, gosnmp.Version2c,
		gosnmp.SnmpTrap{
			Variables: []gosnmp.SnmpPDU{
				{Name: ".1.3.6.1.6.3.1.1.4.1.0", Type: gosnmp.ObjectIdentifier, Value: ".1.3.6.1.4.1.674.1"}}}, address)
	providertest.AwaitReports(t, b, "b Off after a trap: off")

	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	err = newTrapper(t, file, "fence", taken.LocalAddr().String()).
		Watch(t.Context(), []providers.Target{{Node: "n1", ID: s.address}},
			func(providers.Target, providers.Observation) {
				t.Error("reported something")
			})
	if !errors.Is(err, providers.ErrPermanent) ||
		!strings.Contains(err.Error(), "listening for traps at "+taken.LocalAddr().String()+" (traps)") ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

// OpenIPMI's simulator in front of a QEMU, and Net-SNMP's snmptrap: the machine's power is cut, and a trap that others
// wrote reports it.
func TestWatchSimulator(t *testing.T) {
	ipmisim.NeedTrap(t)
	sim := ipmisim.New(t, ipmisim.Options{})
	must(t, sim.SetPower(t.Context(), true))
	address := kit.FreeAddress(t)
	reports, _ := providertest.StartWatch(t, newTrapper(t, sim.PasswordFile(), ipmisim.Operator, address),
		providers.Target{Node: "n1", ID: sim.Address(), SystemUUID: sim.UUID()})
	must(t, sim.SetPower(t.Context(), false))
	cut := time.Now()
	ipmisim.SendTrap(t, "127.0.0.1", address)
	providertest.AwaitReports(t, reports, "n1 Off after a PET 0x096f00 (power unit): off")
	t.Logf("reported %s after the power cut, which includes snmptrap's time", time.Since(cut).Round(time.Millisecond))
}

// Without an address it is no Watcher.
func TestNoTraps(t *testing.T) {
	c := ipmi.NewConfig()
	c.Username, c.PasswordFile = "fence", passwordFile(t, "x")
	p, err := c.New(providers.Options{Name: "rack-a"})
	must(t, err)
	if _, is := p.(providers.Watcher); is {
		t.Error("it is a Watcher")
	}
	for address, good := range map[string]bool{
		":162": true, "10.0.0.5:162": true, "[2001:db8::1]:162": true, "0.0.0.0:1162": true,
		"162": false, "10.0.0.5": false, "10.0.0.5:0": false, "10.0.0.5:70000": false, "bmc.example.net:162": false,
		"10.0.0.5:snmptrap": false,
	} {
		c.Traps = address
		if got := len(c.Validate()) == 0; got != good {
			t.Errorf("%q: got %t, want %t", address, got, good)
		}
	}
}

// FuzzTrap compares with what gosnmp reads: what it can read as a PET is one, with the same number.
func FuzzTrap(f *testing.F) {
	f.Add(packetOf(f, gosnmp.Version1, petOf))
	f.Add(packetOf(f, gosnmp.Version2c,
		gosnmp.SnmpTrap{
			Variables: []gosnmp.SnmpPDU{
				{Name: ".1.3.6.1.6.3.1.1.4.1.0", Type: gosnmp.ObjectIdentifier, Value: ".1.3.6.1.4.1.674.1"}}}))
	f.Add([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		isPET, specific, ok := ipmi.ParseTrap(b)
		theirs, err := readByOthers(b)
		if err != nil || theirs == nil || theirs.PDUType != gosnmp.Trap || theirs.Version != gosnmp.Version1 {
			return // what they refuse may still make us ask
		}
		if !ok || theirs.Enterprise != petOf.Enterprise || theirs.GenericTrap != 6 || theirs.SpecificTrap < 0 ||
			theirs.SpecificTrap > 0xffffff {
			return
		}
		if !isPET || int(specific) != theirs.SpecificTrap {
			t.Errorf("got %t %#x, they read %#x, of %x", isPET, specific, theirs.SpecificTrap, b)
		}
	})
}

// readByOthers is gosnmp's reading, which may panic.
func readByOthers(b []byte) (p *gosnmp.SnmpPacket, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("panic")
		}
	}()
	return (&gosnmp.GoSNMP{Version: gosnmp.Version1}).UnmarshalTrap(append([]byte{}, b...), false)
}
