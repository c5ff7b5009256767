package line

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forcefence/forcefence/test/kit"
)

// lines is a running Lines, and what it told.
type lines struct {
	*Lines
	stop func()

	mu    sync.Mutex // guards broke
	broke []string
}

// run keeps lines until the test ends, in the network namespace of the thread that in runs things on; nil: in our own.
func run(t *testing.T, in func(func())) *lines {
	t.Helper()
	l := &lines{}
	l.Lines = New(Options{Log: slog.New(slog.DiscardHandler), loopback: true, OnBreak: func(node string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.broke = append(l.broke, node)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if in == nil {
		in = func(f func()) { f() }
	}
	go in(func() { done <- l.Run(ctx) })
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

func (l *lines) told() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.broke, " ")
}

// counts is how many lines are open, broken, never made, and left out.
func (l *lines) counts() [4]int {
	c := l.Counts()
	return [4]int{c[Open], c[Broken], c[Never], c[LeftOut]}
}

// kubelet accepts connections at an address, and tells each end of one.
type kubelet struct {
	net.Listener
	mu    sync.Mutex // guards conns and bytes
	conns []net.Conn
	bytes int
	ends  chan error
}

func listen(t *testing.T, address string) *kubelet {
	t.Helper()
	in, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{Listener: in, ends: make(chan error, 100)}
	var wg sync.WaitGroup
	t.Cleanup(func() { k.end(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			k.mu.Lock()
			k.conns = append(k.conns, c)
			k.mu.Unlock()
			wg.Go(func() {
				n, err := c.Read(make([]byte, 100))
				k.mu.Lock()
				k.bytes += n
				k.mu.Unlock()
				k.ends <- err
				c.Close()
			})
		}
	})
	return k
}

func (k *kubelet) accepted() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.conns)
}

// hangUp ends all connections.
func (k *kubelet) hangUp() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		c.Close()
	}
}

func (k *kubelet) end() { k.Close(); k.hangUp() }

func (k *kubelet) port() uint16 { return netip.MustParseAddrPort(k.Addr().String()).Port() }

func at(address string) netip.Addr { return netip.MustParseAddr(address) }

// Kubelets that hang up, restart, are gone or never were there: their machines run, and nobody is told anything else.
func TestMachinesThatRun(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) {
			if at(address).Is6() {
				kit.NeedIPv6(t)
			}
			k := listen(t, net.JoinHostPort(address, "0"))
			l := run(t, nil)
			l.SetNodes(k.port(), []Node{{"n1", at(address)}})
			kit.Until(t, "open", func() bool { return l.counts() == [4]int{1} && k.accepted() == 1 })
			k.hangUp()
			kit.Until(t, "open again", func() bool { return k.accepted() == 2 && l.counts() == [4]int{1} })
			port := k.port()
			k.end()
			kit.Until(t, "broken", func() bool { return l.counts() == [4]int{0, 1} })
			k = listen(t, net.JoinHostPort(address, fmt.Sprint(port)))
			kit.Until(t, "open after a restart", func() bool { return k.accepted() > 0 && l.counts() == [4]int{1} })
			if l.told() != "" {
				t.Errorf("told that %s broke", l.told())
			}
			l.stop()
			kit.Until(t, "closed", func() bool { return len(k.ends) == k.accepted() })
			if k.bytes > 0 {
				t.Errorf("sent %d bytes", k.bytes)
			}
			if c := l.Counts(); c != nil {
				t.Errorf("counts after the end: %v", c)
			}
		})
	}
}

// Exactly the wanted nodes have lines: other nodes, another address, another port, none.
func TestWant(t *testing.T) {
	k := listen(t, "127.0.0.1:0")
	other := listen(t, fmt.Sprintf("127.0.0.2:%d", k.port()))
	l := run(t, nil)
	l.SetNodes(k.port(),
		[]Node{{"a", at("127.0.0.1")}, {"b", at("127.0.0.1")}, {"none", netip.Addr{}}, {"cloud", at("169.254.169.254")},
			{"us", at("0.0.0.0")}})
	kit.Until(t, "two", func() bool { return l.counts() == [4]int{2} && k.accepted() == 2 })
	l.SetNodes(k.port(), []Node{{"a", at("127.0.0.2")}, {"b", at("127.0.0.1")}})
	kit.Until(t, "one moved",
		func() bool { return l.counts() == [4]int{2} && other.accepted() == 1 && len(k.ends) == 1 })
	l.SetNodes(k.port(), []Node{{"a", at("127.0.0.2")}})
	kit.Until(t, "one gone", func() bool { return l.counts() == [4]int{1} && len(k.ends) == 2 })
	l.SetNodes(k.port(), []Node{{"a", at("127.0.0.2")}, {"c", at("127.0.0.3")}})
	kit.Until(t, "one never accepted", func() bool { return l.counts() == [4]int{1, 0, 1} })
	l.SetNodes(0, []Node{{"a", at("127.0.0.2")}})
	kit.Until(t, "none", func() bool { return l.counts() == [4]int{} && len(other.ends) == 1 })
	if k.accepted() != 2 || other.accepted() != 1 || l.told() != "" {
		t.Errorf("accepted %d and %d connections, told %q", k.accepted(), other.accepted(), l.told())
	}
}

// A node that goes while its first line is attempted gives its place back, so that a new node still gets a line.
func TestNodeThatGoesGivesItsPlaceBack(t *testing.T) {
	w, err := newWorker(New(Options{Log: slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	now, wanted := time.Now(), map[string]netip.Addr{"n1": at("127.0.0.1")}
	for range 2 * maxAttempts {
		w.applyWanted(1, wanted, now)
		w.lines["n1"].state = attempting
		w.began++
		w.applyWanted(1, nil, now)
		if w.began != 0 || len(w.queue) != 0 || len(w.lines) != 0 {
			t.Fatalf("an attempt: got %d places taken, %d in the queue, %d lines, want none", w.began, len(w.queue),
				len(w.lines))
		}
	}
	for name, change := range map[string]func(*conn){
		"a line that was open":  func(c *conn) { c.state, c.wasOpen = attempting, true },
		"a line that waits":     func(c *conn) { c.state = resting },
		"an attempt that stays": nil,
	} {
		w.applyWanted(1, wanted, now)
		w.began = 1
		if change != nil {
			change(w.lines["n1"])
			w.applyWanted(1, nil, now)
		} else {
			w.lines["n1"].state = attempting
			w.applyWanted(1, wanted, now)
		}
		if w.began != 1 {
			t.Errorf("%s: got %d places taken, want the one of another line", name, w.began)
		}
		w.lines = map[string]*conn{}
		w.queue = nil
	}
}

// There is no line to an address of this machine, unless a test asks.
func TestNoLineToOurselves(t *testing.T) {
	k := listen(t, "127.0.0.1:0")
	l := run(t, nil)
	l.loopback = false
	l.SetNodes(k.port(), []Node{{"n1", at("127.0.0.1")}})
	l.loopback = true
	l.SetNodes(k.port(), []Node{{"n2", at("127.0.0.1")}}) // the one after it is made
	kit.Until(t, "the second", func() bool { return l.counts() == [4]int{1} })
	if k.accepted() != 1 {
		t.Errorf("accepted %d connections, want 1", k.accepted())
	}
}

// The kernel probes an idle line, gives up in time, and keeps little of what is sent.
func TestSocket(t *testing.T) {
	fd, err := newSocket(at("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, o := range []struct{ level, name, least, most int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1, 1},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 2001, 2999},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, 1 << 13},
	} {
		if got, err := unix.GetsockoptInt(fd, o.level, o.name); err != nil || got < o.least || got > o.most {
			t.Errorf("option %d of level %d: got %d (%v), want %d to %d", o.name, o.level, got, err, o.least, o.most)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	for err, want := range map[error]outcome{
		unix.Errno(0): accepted, unix.ECONNREFUSED: refused, unix.ECONNRESET: refused,
		unix.ETIMEDOUT: silent, unix.EHOSTUNREACH: silent, unix.ENETUNREACH: silent,
		unix.EMFILE: failedLocally, unix.EADDRNOTAVAIL: failedLocally, unix.EPERM: failedLocally,
		unix.ENOBUFS: failedLocally, unix.ENETDOWN: failedLocally, errLocal: failedLocally,
		fmt.Errorf("%w: %w", errLocal, unix.ENFILE): failedLocally,
	} {
		if got := outcomeOf(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
	if outcomeOf(nil) != accepted {
		t.Error("no error is no success")
	}
}

// requireNodes fails a test instead of skipping it: FORCEFENCE_REQUIRE_NODES promises that namespaces can be made.
const requireNodes = "FORCEFENCE_REQUIRE_NODES"

// network is a network namespace, held by a thread.
type network struct {
	tasks chan func()
	tid   int
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{tasks: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		n.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		entered <- err
		for task := range n.tasks {
			task()
		}
	}()
	t.Cleanup(func() { close(n.tasks) })
	err := <-entered
	if err == nil {
		_, err = exec.LookPath("ip")
	}
	if err != nil {
		kit.Need(t, fmt.Sprintf("needs root, network namespaces and iproute2 (%v)", err), requireNodes)
	}
	n.setUp(t, "link set lo up")
	return n
}

// do runs f in the namespace.
func (n *network) do(f func()) {
	done := make(chan struct{})
	n.tasks <- func() { defer close(done); f() }
	<-done
}

// setUp is ip for what a machine may lack: a kernel without veth or bridges.
func (n *network) setUp(t *testing.T, lines ...string) {
	t.Helper()
	if err := n.tryIP(lines...); err != nil {
		kit.Need(t, err.Error(), requireNodes)
	}
}

func (n *network) ip(t *testing.T, lines ...string) {
	t.Helper()
	kit.Must(t, n.tryIP(lines...))
}

func (n *network) tryIP(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	var out []byte
	var err error
	n.do(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		return fmt.Errorf("ip %q: %w: %s", lines, err, out)
	}
	return nil
}

// A machine that falls silent, by its power or its cable, is told, once; one whose kubelet alone dies is not. A power
// cut sends nothing: here the machine's kernel loses its address, or its link.
func TestMachineFallsSilent(t *testing.T) {
	for _, tt := range []struct {
		name         string
		cut, mend    string
		kubeletFirst bool
	}{
		{name: "power", cut: "addr del 10.0.0.2/24 dev eth0", mend: "addr add 10.0.0.2/24 dev eth0"},
		{name: "cable", cut: "link set eth0 down", mend: "link set eth0 up"},
		{name: "its kubelet, and then its power", cut: "addr del 10.0.0.2/24 dev eth0",
			mend: "addr add 10.0.0.2/24 dev eth0", kubeletFirst: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			us, machine := newNetwork(t), newNetwork(t)
			runsLines := newNetwork(t) // whose thread Run takes for itself
			us.setUp(t, "link add eth0 type veth peer name eth0 netns "+fmt.Sprint(machine.tid),
				"link add eth1 type veth peer name eth1 netns "+fmt.Sprint(runsLines.tid),
				"link add lan type bridge", "link set lan up", "link set eth0 master lan", "link set eth1 master lan",
				"link set eth0 up", "link set eth1 up")
			machine.ip(t, "addr add 10.0.0.2/24 dev eth0", "link set eth0 up")
			runsLines.ip(t, "addr add 10.0.0.1/24 dev eth1", "link set eth1 up")
			var k *kubelet
			machine.do(func() { k = listen(t, "10.0.0.2:10250") })
			l := run(t, runsLines.do)
			l.SetNodes(10250, []Node{{"n1", at("10.0.0.2")}})
			kit.Until(t, "open", func() bool { return l.counts() == [4]int{1} })
			if tt.kubeletFirst {
				k.end()
				kit.Until(t, "broken", func() bool { return l.counts() == [4]int{0, 1} })
				if l.told() != "" {
					t.Error("a kubelet that is gone was reported as the end of its machine")
				}
			}
			machine.ip(t, tt.cut)
			begun := time.Now()
			kit.Until(t, "told", func() bool { return l.told() == "n1" })
			t.Logf("told %s after the cut", time.Since(begun).Round(time.Millisecond))
			if got := l.counts(); got != [4]int{0, 1} {
				t.Errorf("counts: got %v, want one broken", got)
			}
			machine.ip(t, tt.mend)
			if tt.kubeletFirst {
				machine.do(func() { k = listen(t, "10.0.0.2:10250") })
			}
			kit.Until(t, "open again", func() bool { return l.counts() == [4]int{1} })
			if l.told() != "n1" {
				t.Errorf("told %q", l.told())
			}
			machine.ip(t, tt.cut)
			kit.Until(t, "told again", func() bool { return l.told() == "n1 n1" })
		})
	}
}
