package pdu_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/pdu"
	"github.com/forcefence/forcefence/test/kit"
)

// Require, set in the environment, forbids to skip where snmpd is missing.
const require = "FORCEFENCE_REQUIRE_SNMPD"

// outletsEnv makes the test binary the program that snmpd asks for outlets: the value is the folder that holds them.
const outletsEnv = "FORCEFENCE_TEST_OUTLETS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(outletsEnv); dir != "" {
		serveOutlets(dir)
		return
	}
	code := m.Run()
	for _, s := range started {
		s.stop()
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll")); err != nil &&
		code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// timeout is far more than any call takes that is not meant to run out of time: other packages' tests share the
// machine.
const timeout = 20 * time.Second

var must = kit.Must

// outletFile is an outlet as snmpd's program has it on disk: its columns, and what a command does to them.
type outletFile struct {
	Values map[string]int                       // by OID
	Sets   map[string]map[string]map[string]int // by OID and value; a value that is not there is refused
}

// serveOutlets is net-snmp's pass_persist protocol: the outlet of an OID is its last number, a file of that name.
func serveOutlets(dir string) {
	lines := bufio.NewScanner(os.Stdin)
	next := func() string { lines.Scan(); return lines.Text() }
	for lines.Scan() {
		switch lines.Text() {
		case "PING":
			fmt.Println("PONG")
		case "get":
			oid := strings.TrimPrefix(next(), ".")
			if n, ok := readOutlet(dir, oid).Values[oid]; ok {
				fmt.Printf(".%s\ninteger\n%d\n", oid, n)
			} else {
				fmt.Println("NONE")
			}
		case "getnext":
			if oid, n := nextValue(dir, strings.TrimPrefix(next(), ".")); oid != "" {
				fmt.Printf(".%s\ninteger\n%d\n", oid, n)
			} else {
				fmt.Println("NONE")
			}
		case "set":
			oid := strings.TrimPrefix(next(), ".")
			o, value := readOutlet(dir, oid), strings.TrimPrefix(next(), "integer ")
			if _, ok := o.Sets[oid]; !ok {
				fmt.Println("not-writable")
			} else if then, ok := o.Sets[oid][value]; !ok {
				fmt.Println("wrong-value")
			} else {
				for column, n := range then {
					o.Values[column] = n
				}
				writeOutlet(dir, oid, o)
				fmt.Println("DONE")
			}
		}
	}
}

// nextValue is the first value behind an OID, of the same maker; "" if there is none.
func nextValue(dir, oid string) (next string, value int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", 0
	}
	for _, entry := range entries {
		for at, n := range readOutlet(dir, "."+entry.Name()).Values {
			if sameMaker(at, oid) && compareOIDs(at, oid) > 0 && (next == "" || compareOIDs(at, next) < 0) {
				next, value = at, n
			}
		}
	}
	return next, value
}

// sameMaker reports whether two OIDs are of one enterprise, whose subtree snmpd asks for by itself.
func sameMaker(a, b string) bool {
	const numbers = 7 // 1.3.6.1.4.1.318
	one, other := strings.Split(a, "."), strings.Split(b, ".")
	return len(one) >= numbers && len(other) >= numbers && slices.Equal(one[:numbers], other[:numbers])
}

func compareOIDs(a, b string) int {
	number := func(oid string) (out []int) {
		for part := range strings.SplitSeq(oid, ".") {
			n, _ := strconv.Atoi(part)
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(number(a), number(b))
}

func name(oid string) string { return oid[strings.LastIndex(oid, ".")+1:] }

func readOutlet(dir, oid string) (o outletFile) {
	b, err := os.ReadFile(filepath.Join(dir, name(oid)))
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return outletFile{}
	}
	return o
}

func writeOutlet(dir, oid string, o outletFile) {
	b, err := json.Marshal(o)
	if err == nil {
		file := filepath.Join(dir, name(oid))
		if err = os.WriteFile(file+"~", b, 0o600); err == nil {
			err = os.Rename(file+"~", file)
		}
	}
	if err != nil {
		panic(err)
	}
}

// passwords of all users of all strips: only the engine distinguishes two strips.
const password, privacy, community = "correct-horse", "battery-staple", "not-so-public"

// strip is a power strip: net-snmp's agent, which strips run themselves, in front of outlets on disk.
type strip struct {
	dir, address string
	cmd          *exec.Cmd
	outlets      atomic.Int64
}

var (
	started []*strip
	stripA  = sync.OnceValues(startStrip)
	stripB  = sync.OnceValues(startStrip)
)

// strips are two power strips that live as long as the test binary.
func strips(t testing.TB) (a, b *strip) {
	t.Helper()
	if _, err := exec.LookPath(snmpd()); err != nil {
		if os.Getenv(require) != "" {
			t.Fatal(err)
		}
		t.Skipf("needs Debian's snmpd: %v", err)
	}
	a, err := stripA()
	must(t, err)
	b, err = stripB()
	must(t, err)
	return a, b
}

func snmpd() string {
	if path, err := exec.LookPath("snmpd"); err == nil {
		return path
	}
	return "/usr/sbin/snmpd"
}

func startStrip() (*strip, error) {
	dir, err := os.MkdirTemp("", "forcefence-pdu")
	if err != nil {
		return nil, err
	}
	s := &strip{dir: dir}
	started = append(started, s)
	return s, s.start()
}

// start starts the agent, again after stop: its engine stays, and counts one boot more.
func (s *strip) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var last error
	for range 5 { // another process may have taken the port
		if s.address == "" || last != nil {
			var port int
			if err := kit.FreePorts(&port); err != nil {
				return err
			}
			s.address = fmt.Sprintf("127.0.0.1:%d", port)
		}
		conf := fmt.Sprintf("agentaddress udp:%s\nrwcommunity %s 127.0.0.1\nexactEngineID 0x80001f8804%x\n", s.address,
			community, filepath.Base(s.dir))
		for user, protocols := range map[string][2]string{
			"fence": {"SHA-256", "AES"}, "strong": {"SHA-512", "AES-256"}, "middle": {"SHA-384", "AES-192"},
			"sha": {"SHA", "AES"}, "old": {"MD5", "DES"}, "reader": {"SHA-256", "AES"}} {
			conf += fmt.Sprintf("createUser %s %s %s %s %s\n", user, protocols[0], password, protocols[1], privacy)
			conf += map[bool]string{true: "rouser ", false: "rwuser "}[user == "reader"] + user + " priv\n"
		}
		for _, maker := range []int{318, 476, 534, 1718, 3808, 13742, 21239} {
			conf += fmt.Sprintf("pass_persist .1.3.6.1.4.1.%d %s\n", maker, program)
		}
		file := filepath.Join(s.dir, "agent.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			return err
		}
		s.cmd = exec.Command(snmpd(), "-f", "-C", "-c", file, "-Lf", filepath.Join(s.dir, "log"), "-I",
			"-system_mib,-hr_system")
		s.cmd.Env = append(os.Environ(), "MIBS=", "SNMP_PERSISTENT_DIR="+filepath.Join(s.dir, "state"),
			outletsEnv+"="+s.dir)
		if err := kit.StartChild(s.cmd); err != nil {
			return err
		}
		if last = s.answers(); last == nil {
			return nil
		}
		s.end()
	}
	return fmt.Errorf("snmpd does not answer: %w", last)
}

// discovery is what SNMPv3 begins with: the question which engine it is.
const discovery = "\x30\x3a\x02\x01\x03\x30\x0f\x02\x02\x12\x34\x02\x03\x00\xff\xe3\x04\x01\x04" +
	"\x02\x01\x03\x04\x10\x30\x0e\x04\x00\x02\x01\x00\x02\x01\x00" +
	"\x04\x00\x04\x00\x04\x00\x30\x12\x04\x00\x04\x00\xa0\x0c\x02\x02\x12\x34\x02\x01\x00\x02\x01\x00\x30\x00"

// answers waits until the agent does.
func (s *strip) answers() error {
	conn, err := net.Dial("udp", s.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 300 {
		if _, err = conn.Write([]byte(discovery)); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err = conn.Read(make([]byte, 1500)); err == nil {
				return nil
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
		}
		time.Sleep(50 * time.Millisecond) // the server does not listen yet
	}
	return err
}

func (s *strip) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // its boots are written at its end
	_ = s.cmd.Wait()
}

func (s *strip) stop() {
	if s.cmd != nil {
		s.end()
	}
	_ = os.RemoveAll(s.dir)
}

// socket is an outlet of a strip with what is plugged in.
type socket struct {
	s      *strip
	d      pdu.Dialect
	number int64
}

// outlet returns a new one, which is on.
func (s *strip) outlet(mib string) socket {
	o := socket{s, pdu.Dialects[mib], s.outlets.Add(1)}
	o.reset(true)
	return o
}

// at is the outlet's OID in a column.
func (o socket) at(column string) string { return fmt.Sprintf("%s.%s%d", column, o.d.Front, o.number) }

func (o socket) id(address string) string {
	return fmt.Sprintf("%s/%s%d", cmp.Or(address, o.s.address), o.d.Front, o.number)
}

// columns are those of an outlet that is on or off, with nothing under way.
func (o socket) columns(on bool) map[string]int {
	values := map[string]int{o.at(o.d.SetOn.OID): o.d.SetOn.Value} // snmpd sets only what can be read
	if !on || o.d.SetOff.OID != o.d.SetOn.OID {
		values[o.at(o.d.SetOff.OID)] = o.d.SetOff.Value
	}
	for i, c := range o.d.Columns {
		switch {
		case !on:
			values[o.at(c.OID)] = c.Off[0]
		case i == 0:
			values[o.at(c.OID)] = c.On[0]
		default:
			values[o.at(c.OID)] = c.WhileOn
		}
	}
	return values
}

// busy are those of an outlet that is off and will not stay so; nil if the MIB has no word for it.
func (o socket) busy() map[string]int {
	for _, c := range slices.Backward(o.d.Columns) {
		if len(c.Changing) > 0 {
			values := o.columns(false)
			values[o.at(c.OID)] = c.Changing[0]
			return values
		}
	}
	return nil
}

// reset makes it an outlet that obeys.
func (o socket) reset(on bool) {
	sets := map[string]map[string]map[string]int{}
	for _, set := range []struct {
		pdu.Setting
		on bool
	}{{o.d.SetOn, true}, {o.d.SetOff, false}} {
		if sets[o.at(set.OID)] == nil {
			sets[o.at(set.OID)] = map[string]map[string]int{}
		}
		sets[o.at(set.OID)][fmt.Sprint(set.Value)] = o.columns(set.on)
	}
	writeOutlet(o.s.dir, o.at(o.state()), outletFile{o.columns(on), sets})
}

// state is the column of the outlet's state.
func (o socket) state() string { return o.d.Columns[0].OID }

// edit changes it without an SNMP command.
func (o socket) edit(f func(*outletFile)) {
	file := readOutlet(o.s.dir, o.at(o.state()))
	f(&file)
	writeOutlet(o.s.dir, o.at(o.state()), file)
}

func (o socket) set(column string, n int) {
	o.edit(func(f *outletFile) { f.Values[o.at(column)] = n })
}

// on reports whether what is plugged in has power.
func (o socket) on() bool {
	return readOutlet(o.s.dir, o.at(o.state())).Values[o.at(o.state())] == o.d.Columns[0].On[0]
}

// wire is the network in front of strips: it hands questions to a handler. It ends with the test.
type wire struct {
	t       testing.TB
	address string

	mu   sync.Mutex // guards what follows
	conn *net.UDPConn
	f    func(asker, []byte)

	conns chan *net.UDPConn
	wait  sync.WaitGroup
}

// asker is the sender of a question.
type asker struct {
	addr *net.UDPAddr
	conn *net.UDPConn
}

func (a asker) answer(b []byte) { _, _ = a.conn.WriteToUDP(b, a.addr) }

func newWire(t testing.TB, f func(asker, []byte)) *wire {
	t.Helper()
	w := &wire{t: t, f: f, conns: make(chan *net.UDPConn, 1)}
	w.wait.Go(func() {
		for conn := range w.conns {
			w.read(conn)
		}
	})
	w.open()
	t.Cleanup(func() {
		w.close()
		close(w.conns)
		w.wait.Wait()
	})
	return w
}

// open listens, again on the port of before.
func (w *wire) open() {
	w.t.Helper()
	addr := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	for tries := 0; ; tries++ {
		if w.address != "" {
			addr, _ = net.ResolveUDPAddr("udp", w.address)
		} else {
			must(w.t, kit.FreePorts(&addr.Port))
		}
		conn, err := net.ListenUDP("udp", addr)
		if err == nil {
			w.conn, w.address = conn, conn.LocalAddr().String()
			break
		}
		if tries == 50 {
			w.t.Fatal(err)
		}
	}
	w.conns <- w.conn
}

// read hands on the questions that come through conn until that is closed.
func (w *wire) read(conn *net.UDPConn) {
	for b := make([]byte, 65536); ; {
		n, addr, err := conn.ReadFromUDP(b)
		if err != nil {
			return
		}
		question := append([]byte(nil), b[:n]...)
		w.mu.Lock()
		f := w.f
		w.mu.Unlock()
		w.wait.Go(func() { f(asker{addr, conn}, question) })
	}
}

func (w *wire) close() { _ = w.conn.Close() }

func (w *wire) handle(f func(asker, []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.f = f
}

// line lets one question at a time to a strip: what an agent's socket cannot hold is lost without an error.
var line sync.Map

// pass asks the strip, and returns its answer; nil for none.
func pass(address string, question []byte) []byte {
	mu, _ := line.LoadOrStore(address, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	conn, err := net.Dial("udp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(question); err != nil {
		return nil
	}
	b := make([]byte, 65536)
	n, err := conn.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

// through is a wire that only passes on.
func through(address string) func(asker, []byte) {
	return func(a asker, question []byte) {
		if answer := pass(address, question); answer != nil {
			a.answer(answer)
		}
	}
}

// settings are a configuration for the user fence without a delay, and the file of his password.
func settings(t testing.TB, mib string) *pdu.Config {
	t.Helper()
	dir := t.TempDir()
	c := pdu.NewConfig()
	c.MIB, c.Username, c.PasswordFile, c.PrivacyPasswordFile, c.OffDelay = mib, "fence", filepath.Join(dir, "password"),
		filepath.Join(dir, "privacy"), 0
	must(t, os.WriteFile(c.PasswordFile, []byte(password+"\n"), 0o600))
	must(t, os.WriteFile(c.PrivacyPasswordFile, []byte(privacy), 0o600))
	return c
}

// open makes a provider.
func open(t testing.TB, c *pdu.Config, now func() time.Time) *pdu.Provider {
	t.Helper()
	patient := *c
	if c.OffDelay == 0 {
		patient.OffDelay = 15 * time.Second // what a file must say; the tests have no such time
	}
	if problems := patient.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := pdu.New(*c, providers.Options{Name: "racks", Log: slog.New(slog.DiscardHandler), Now: now})
	must(t, err)
	return p
}

// ask asks once.
func ask(t testing.TB, p providers.Provider, id string) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return providers.Ask(ctx, p, "racks", providers.Target{Node: "n1", ID: id}, providers.Now)
}
