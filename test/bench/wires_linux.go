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

// kubeletPort has a listener at each machine's address: forcefence's lines go there.
const kubeletPort = "10250"

// The addresses of the machines and of the two ends of the link are of a network for measurements (RFC 2544), which no
// one else uses. All machines are behind one next hop: the kernel's table of neighbours has no more than about a
// thousand places.
const (
	ourAddress  = "198.18.0.1"
	nextHop     = "198.18.0.2"
	wireNetwork = "198.19.0.0/16"
	wireAddress = "198.19.%d.%d"
	mostWires   = 1<<16 - 2
)

// wires are the addresses of machines, in a network namespace of their own, at the far end of a link from ours. All of
// the network is that namespace's own, and one listener is behind it. A machine's address goes with its power, and a
// client that asks there gets no answer at all: a dead kernel refuses nothing. Only this process holds the namespace,
// and the link goes with it, however the process ends.
type wires struct {
	link  string
	tasks chan func()
	wg    sync.WaitGroup
	end   net.Listener

	mu      sync.Mutex // guards the rest
	machine map[string]string
	address map[string]string
	conns   map[string][]net.Conn // by machine, of its last boot
	since   map[string]time.Time  // when the last of them was accepted
}

// newWires needs root and iproute2.
func newWires() (_ *wires, err error) {
	w := &wires{
		link: fmt.Sprintf("ff%d", os.Getpid()), tasks: make(chan func()),
		machine: map[string]string{}, address: map[string]string{}, conns: map[string][]net.Conn{},
		since: map[string]time.Time{},
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
		ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", w.link, tid),
			"addr add "+ourAddress+" peer "+nextHop+" dev "+w.link,
			"link set "+w.link+" up", "route add "+wireNetwork+" via "+nextHop+" dev "+w.link),
		w.inside("link set lo up", "addr add "+nextHop+" peer "+ourAddress+" dev eth0", "link set eth0 up",
			"route add local "+wireNetwork+" dev lo"),
	)
	if err == nil {
		w.do(func() {
			quiet := net.ListenConfig{KeepAlive: -1} // only forcefence probes
			w.end, err = quiet.Listen(context.Background(), "tcp4", ":"+kubeletPort)
		})
	}
	if err != nil {
		w.close()
		return nil, err
	}
	w.wg.Go(w.accept)
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
		return fmt.Errorf("ip, %d commands from %q on: %w: %s", len(lines), lines[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// add gives a machine that has power an address with a listener behind it, which accepts connections and says nothing.
func (w *wires) add(machine string) (address string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.address) + 1
	if n > mostWires {
		return "", fmt.Errorf("there are no more than %d addresses", mostWires)
	}
	address = fmt.Sprintf(wireAddress, n>>8, n&0xff)
	w.machine[address], w.address[machine] = machine, address
	return address, nil
}

func (w *wires) accept() {
	for {
		c, err := w.end.Accept()
		if err != nil {
			return // close
		}
		address, _, _ := net.SplitHostPort(c.LocalAddr().String())
		w.mu.Lock()
		machine, known := w.machine[address]
		if known {
			w.conns[machine], w.since[machine] = append(w.conns[machine], c), time.Now()
		}
		w.mu.Unlock()
		if !known {
			hangUp([]net.Conn{c})
		}
	}
}

// power takes a machine's address, or gives it back. A kernel that boots knows of no connection from before.
func (w *wires) power(on bool, machine string) error {
	verb := "add"
	var before []net.Conn
	w.mu.Lock()
	address := w.address[machine]
	if on {
		verb, before = "del", w.conns[machine]
		delete(w.conns, machine)
	}
	w.mu.Unlock()
	hangUp(before)
	return w.inside(fmt.Sprintf("route %s blackhole %s/32 table local", verb, address))
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
	ctx, cancel := limited(ctx, patience)
	defer cancel()
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
	if w.end != nil {
		_ = w.end.Close()
	}
	_ = ip("link del " + w.link) // it goes with the namespace, a moment later
	close(w.tasks)
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		hangUp(c)
	}
}
