//go:build linux

package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Addresses in the lab. They exist in its network namespaces only, and can clash with nothing.
const (
	relayAddress = "10.250.0.1:6443"
	serviceHost  = "10.0.0.1" // of the Service kubernetes, which a service proxy would lead to the API server
	nodeAddress  = "10.250.0.%d"
	podSubnet    = "10.251.%d.0/24"
	bridge       = "lan"
)

// lan is the switch that the nodes are plugged into: a network namespace with a bridge. It is held by one thread and no
// file, so it ends with this process. Relays in it, on the bridge's own addresses, are the nodes' way to the API server
// on the machine's loopback, and the pods' way as well, where they look for the Service.
type lan struct {
	tasks chan func()
	wg    sync.WaitGroup
	ctx   context.Context // ends with close, and with it relays and connections
	end   context.CancelFunc
}

func newLAN(target string) (*lan, error) {
	l := &lan{tasks: make(chan func())}
	l.ctx, l.end = context.WithCancel(context.Background())
	entered := make(chan error)
	l.wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and nothing else ever runs on it
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		entered <- err
		if err != nil {
			return
		}
		for task := range l.tasks {
			task()
		}
	})
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("making a network: %w", err)
	}
	err := l.ip("link set lo up", "link add "+bridge+" type bridge", "addr add 10.250.0.1/24 dev "+bridge,
		"addr add "+serviceHost+"/32 dev "+bridge,
		"link set "+bridge+" up")
	if err == nil {
		err = errors.Join(l.relay(relayAddress, target), l.relay(serviceHost+":443", target))
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("making a network: %w", err)
	}
	return l, nil
}

// relay hands on connections to an address of the bridge's to one outside the lab's network.
func (l *lan) relay(address, target string) (err error) {
	var r net.Listener
	l.do(func() { r, err = net.Listen("tcp", address) })
	if err != nil {
		return err
	}
	context.AfterFunc(l.ctx, func() { r.Close() })
	l.wg.Go(func() { l.accept(r, target) })
	return nil
}

// dial connects to an address in the lab's network, from anywhere.
func (l *lan) dial(address string) (c net.Conn, err error) {
	l.do(func() { c, err = net.DialTimeout("tcp", address, 5*time.Second) })
	return c, err
}

// do runs f on the network's thread: processes and sockets that f makes are in its namespace.
func (l *lan) do(f func()) {
	done := make(chan struct{})
	l.tasks <- func() { defer close(done); f() }
	<-done
}

// ip runs ip's commands in the lab's network.
func (l *lan) ip(lines ...string) (err error) {
	l.do(func() { err = batch(exec.Command("ip", "-batch", "-"), lines) })
	return err
}

func batch(cmd *exec.Cmd, lines []string) error {
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", lines, err, bytes.TrimSpace(out))
	}
	return nil
}

// plug gives the machine with that init an eth0 on the bridge, whose far end is called port, and leads to the machine's
// pods.
func (l *lan) plug(port string, pid int, address, pods string, up bool) error {
	if err := l.ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, pid),
		"link set "+port+" master "+bridge); err != nil {
		return err
	}
	if up {
		if err := l.cable(port, true); err != nil {
			return err
		}
	}
	inside := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "ip", "-batch", "-")
	if err := batch(inside, []string{
		"link set lo up", "addr add " + address + "/24 dev eth0", "link set eth0 up",
		"route add default via 10.250.0.1",
	}); err != nil {
		return err
	}
	return l.ip("route replace " + pods + " via " + address)
}

// cable takes a port of the bridge down or up: packets of both directions vanish, and connections hang.
func (l *lan) cable(port string, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return l.ip("link set " + port + " " + state)
}

// unplug removes what is left of a machine's link; its own end went with its power, and the kernel may already have
// taken ours.
func (l *lan) unplug(port string) {
	_ = l.ip("link del " + port)
}

func (l *lan) accept(relay net.Listener, target string) {
	for {
		in, err := relay.Accept() // until close
		if err != nil {
			return
		}
		l.wg.Go(func() { l.forward(in, target) })
	}
}

// forward copies both ways until one side ends. It dials from a thread outside the lab's network.
func (l *lan) forward(in net.Conn, target string) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return // the client sees its connection end
	}
	defer out.Close()
	defer context.AfterFunc(l.ctx, func() { in.Close(); out.Close() })()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out) // its end is the connection's
		in.Close()
	})
	_, _ = io.Copy(out, in)
	out.Close()
	back.Wait()
}

// close ends the relays, their connections, and the network.
func (l *lan) close() {
	l.end()
	close(l.tasks)
	l.wg.Wait()
}
