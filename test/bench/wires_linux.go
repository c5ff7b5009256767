package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forcefence/forcefence/test/cluster"
)

// kubeletPort is what somebody listens on at each machine's address: forcefence's lines go there.
const kubeletPort = "10250"

// The addresses of the machines, and of us beside them: of a network for measurements (RFC 2544), which nobody else uses.
const (
	ourAddress  = "198.18.0.1"
	wireNetwork = "198.18.0.0/24"
	wireAddress = "198.18.0.%d"
	mostWires   = 250
)

// wires are the addresses of machines, in a network namespace of their own, at the far end of a link from ours. A machine's goes with its
// power, and whoever asks there gets no answer at all: a kernel that is dead refuses nothing. Nothing but this process holds the namespace, and
// the link goes with it, however the process ends.
type wires struct {
	link  string
	tasks chan func()
	wg    sync.WaitGroup

	mu      sync.Mutex // guards the rest
	ends    []net.Listener
	conns   map[string][]net.Conn // by machine, of its last boot
	since   map[string]time.Time  // when the last of them was accepted
	address map[string]string
}

// newWires needs root and iproute2.
func newWires() (_ *wires, err error) {
	w := &wires{
		link: fmt.Sprintf("ff%d", os.Getpid()), tasks: make(chan func()),
		conns: map[string][]net.Conn{}, since: map[string]time.Time{}, address: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a network of machines (it needs root and iproute2): %w", err)
		}
	}()
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, err
	}
	entered := make(chan error)
	tid := 0
	w.wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and nothing else ever runs on it
		tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		entered <- err
		if err != nil {
			return
		}
		for task := range w.tasks {
			task()
		}
	})
	if err := <-entered; err != nil {
		return nil, err
	}
	err = errors.Join(
		ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", w.link, tid), "addr add "+ourAddress+"/32 dev "+w.link, "link set "+w.link+" up",
			"route add "+wireNetwork+" dev "+w.link),
		// What comes for an address that is gone vanishes; a kernel that forwards would answer that there is no way to it.
		w.inside("link set lo up", "link set eth0 up", "route add "+ourAddress+" dev eth0", "route add blackhole default"),
	)
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// do runs f in the machines' namespace.
func (w *wires) do(f func()) {
	done := make(chan struct{})
	w.tasks <- func() { defer close(done); f() }
	<-done
}

func (w *wires) inside(lines ...string) (err error) {
	w.do(func() { err = ip(lines...) })
	return err
}

// ip runs ip's commands in the namespace of the calling thread.
func ip(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", lines, err, bytes.TrimSpace(out))
	}
	return nil
}

// add gives a machine that has power an address with somebody behind it, who accepts connections and says nothing.
func (w *wires) add(machine string) (address string, err error) {
	w.mu.Lock()
	n := len(w.address)
	w.mu.Unlock()
	if n == mostWires {
		return "", fmt.Errorf("there are no more than %d addresses", mostWires)
	}
	address = fmt.Sprintf(wireAddress, n+2)
	var end net.Listener
	w.do(func() {
		if err = ip("addr add " + address + "/32 dev eth0"); err == nil {
			end, err = net.Listen("tcp", net.JoinHostPort(address, kubeletPort))
		}
	})
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.address[machine], w.ends = address, append(w.ends, end)
	w.wg.Go(func() { w.accept(machine, end) })
	return address, nil
}

func (w *wires) accept(machine string, end net.Listener) {
	for {
		c, err := end.Accept()
		if err != nil {
			return // close
		}
		w.mu.Lock()
		w.conns[machine], w.since[machine] = append(w.conns[machine], c), time.Now()
		w.mu.Unlock()
	}
}

// power takes a machine's address, or gives it back. A kernel that boots knows of no connection from before.
func (w *wires) power(machine string, on bool) error {
	w.mu.Lock()
	address, before := w.address[machine], w.conns[machine]
	if on {
		w.conns[machine] = nil
	}
	w.mu.Unlock()
	if !on {
		return w.inside("addr del " + address + "/32 dev eth0")
	}
	hangUp(before)
	return w.inside("addr add " + address + "/32 dev eth0")
}

// hangUp ends connections without waiting for who has gone.
func hangUp(conns []net.Conn) {
	for _, c := range conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

// open waits until each machine has had a line for that long.
func (w *wires) open(ctx context.Context, machines []string, stable time.Duration) error {
	missing := ""
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		missing = ""
		for _, m := range machines {
			if len(w.conns[m]) == 0 || time.Since(w.since[m]) < stable {
				missing = m
			}
		}
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for a line to %s: %w", missing, err)
	}
	return nil
}

// close ends all connections and takes the link and the namespace away.
func (w *wires) close() {
	w.mu.Lock()
	ends, conns := w.ends, w.conns
	w.mu.Unlock()
	for _, end := range ends {
		_ = end.Close()
	}
	for _, c := range conns {
		hangUp(c)
	}
	_ = ip("link del " + w.link) // it goes with the namespace, a moment later
	close(w.tasks)
	w.wg.Wait()
}
