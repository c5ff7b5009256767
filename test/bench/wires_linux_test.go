package main

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forcefence/forcefence/test/cluster"
)

// A machine's address answers only while it has power: then what was open stays open, and no attempt is refused. A
// machine that has booted refuses what was open before. A machine that keeps its power is as before.
func TestWires(t *testing.T) {
	// Never unlocked: our own end of the link is in a namespace of this test's, which goes with the thread.
	runtime.LockOSThread()
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNET), ip("link set lo up")); err != nil {
		t.Skipf("making a network namespace (it needs root and iproute2): %v", err)
	}
	w, err := newWires()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	address := map[string]string{}
	dead := []string{}
	for i := range 600 {
		n := nodeName(i)
		if address[n], err = w.add(n); err != nil {
			t.Fatal(err)
		}
		if i >= 2 {
			dead = append(dead, n)
		}
	}
	open := func(n string) *net.TCPConn {
		t.Helper()
		c, err := net.DialTimeout("tcp4", net.JoinHostPort(address[n], kubeletPort), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	// silent reports whether a byte that is sent is acknowledged: no kernel does that for an address which it does not
	// have.
	silent := func(c *net.TCPConn, want bool) {
		t.Helper()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		acknowledged := func(context.Context) (bool, error) {
			waits := 0
			var asking error
			err := raw.Control(func(fd uintptr) { waits, asking = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
			return waits == 0, errors.Join(err, asking)
		}
		long := time.Minute
		if want {
			long = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		if err := cluster.Until(ctx, acknowledged); errors.Is(err, context.DeadlineExceeded) != want {
			t.Errorf("acknowledged: %v, want silence: %t", err, want)
		}
	}
	one, two, last := open(nodeName(0)), open(nodeName(1)), open(nodeName(599))
	defer one.Close()
	defer two.Close()
	defer last.Close()
	silent(one, false)
	silent(two, false)
	if err := w.power(false, append(dead, nodeName(1))...); err != nil {
		t.Fatal(err)
	}
	silent(one, false)
	silent(two, true)
	silent(last, true)
	c, err := net.DialTimeout("tcp4", net.JoinHostPort(address[nodeName(599)], kubeletPort), 500*time.Millisecond)
	// not context.DeadlineExceeded: the socket's own deadline may come first, and is another error
	var silence net.Error
	if !errors.As(err, &silence) || !silence.Timeout() {
		t.Errorf("got %v, %v, want no answer", c, err)
	}
	if err := w.power(true, nodeName(1)); err != nil {
		t.Fatal(err)
	}
	again := open(nodeName(1))
	defer again.Close()
	silent(again, false)
	_ = two.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := two.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v of a connection from before the boot, want that it is reset", err)
	}
}
