package httpserver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// crowd is a listener without a network, at a time of its own.
type crowd struct {
	*listener
	at time.Time
}

func newCrowd(maxEach int) *crowd {
	c := &crowd{listener: limitConns(nil, maxEach), at: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	c.now = func() time.Time { return c.at }
	return c
}

// open opens a connection from the i-th address.
func (c *crowd) open(i int) (opened, evicted *conn, ok bool) {
	near, far := net.Pipe()
	_ = far.Close()
	opened = &conn{Conn: near, of: c.listener, from: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
	evicted, ok = c.admitConn(opened)
	return opened, evicted, ok
}

// TestRoom: who goes where a connection is one too many.
func TestRoom(t *testing.T) {
	all := func(c *crowd, n int) {
		for i := range n {
			c.at = c.at.Add(time.Microsecond)
			c.open(i)
		}
	}
	for name, fill := range map[string]func(*crowd) (newcomer int, victim *conn, ok bool){
		"an address has few": func(c *crowd) (int, *conn, bool) {
			c.open(1)
			return 1, nil, true
		},
		"an address has as many as it may: its slowest goes": func(c *crowd) (int, *conn, bool) {
			c.open(2)
			c.at = c.at.Add(1)
			slowest, _, _ := c.open(1)
			c.at = c.at.Add(1)
			c.open(1)
			c.open(1)
			c.at = c.at.Add(protectedTime)
			return 1, slowest, true
		},
		"its slowest has begun a request: the next one goes": func(c *crowd) (int, *conn, bool) {
			busy, _, _ := c.open(1)
			slowest, _, _ := c.open(1)
			c.at = c.at.Add(protectedTime)
			c.open(1)
			noteState(busy, http.StateActive)
			return 1, slowest, true
		},
		"its slowest has had its answer: the next one goes": func(c *crowd) (int, *conn, bool) {
			answered, _, _ := c.open(1)
			slowest, _, _ := c.open(1)
			c.at = c.at.Add(protectedTime)
			c.open(1)
			noteState(answered, http.StateIdle)
			return 1, slowest, true
		},
		"all of an address are young: the new one goes": func(c *crowd) (int, *conn, bool) {
			c.open(1)
			c.open(1)
			c.open(1)
			c.at = c.at.Add(protectedTime - 1)
			return 1, nil, false
		},
		"one of an address has gone": func(c *crowd) (int, *conn, bool) {
			gone, _, _ := c.open(1)
			c.open(1)
			c.open(1)
			_ = gone.Close()
			_ = gone.Close()
			return 1, nil, true
		},
		"all are many: the slowest goes, whoever's": func(c *crowd) (int, *conn, bool) {
			slowest, _, _ := c.open(999)
			all(c, maxConns-1)
			c.at = c.at.Add(protectedTime)
			return 2000, slowest, true
		},
		"all are young, and each of another address: the new one goes": func(c *crowd) (int, *conn, bool) {
			all(c, maxConns)
			return 2000, nil, false
		},
		"all are young, and one address has one more than the new one would: the new one goes": func(c *crowd) (int,
			*conn, bool) {
			c.open(0)
			all(c, maxConns-1)
			return 5, nil, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(3)
			newcomer, want, ok := fill(c)
			opened, evicted, got := c.open(newcomer)
			if evicted != want || got != ok {
				t.Errorf("evicted %p, admitted %t, want %p, %t", evicted, got, want, ok)
			}
			if _, counted := c.conns[opened]; counted != ok || len(c.conns) > maxConns {
				t.Errorf("%d connections, the new one among them: %t", len(c.conns), counted)
			}
			sum := 0
			for _, n := range c.from {
				sum += n
			}
			if sum != len(c.conns) {
				t.Errorf("%d connections by address, %d in all", sum, len(c.conns))
			}
		})
	}
}

// TestFlood: addresses that open many connections at once do not starve clients with few.
func TestFlood(t *testing.T) {
	c := newCrowd(16)
	for i := range 1000 {
		c.open(i % 20)
	}
	kubelet, evicted, ok := c.open(500)
	if !ok || evicted == nil || c.from[evicted.from] < 5 {
		t.Fatalf("evicted %v, admitted %t, want one of the crowd's", evicted, ok)
	}
	for i := range 1000 {
		c.open(i % 20)
	}
	if _, there := c.conns[kubelet]; !there || len(c.conns) != maxConns {
		t.Errorf("the kubelet's connection is there: %t; %d in all, want %d", there, len(c.conns), maxConns)
	}
}

// pipes is a listener in memory: synctest's time passes for it.
type pipes struct{ in chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.in
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p.in); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// TestPatience: each way to keep a connection without use ends.
func TestPatience(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n"
	for name, tt := range map[string]struct {
		send  string
		drips time.Duration // between further bytes of a header
		reads bool
		want  time.Duration
	}{
		"nothing is sent":                  {"", 0, true, headerTime},
		"half a header":                    {get, 0, true, headerTime},
		"a header that comes byte by byte": {get + "A: ", time.Second, true, headerTime},
		"a body that does not come": {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", 0,
			true, requestTime},
		"an answer that is not read":                 {get + "\r\n", 0, false, answerTime},
		"no further request":                         {get + "\r\n", 0, true, idleTime},
		"a further request that does not come whole": {get + "\r\n" + get, 0, true, headerTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := pipes{make(chan net.Conn)}
				l := limitConns(in, 16)
				s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						_, _ = w.Write(make([]byte, 1<<20))
					}
				}), slog.New(slog.DiscardHandler))
				done := make(chan error)
				go func() { done <- s.Serve(l) }()
				near, far := net.Pipe()
				in.in <- far
				began := time.Now()
				ended := make(chan time.Duration, 1)
				go func() { // tells when the server hangs up
					_, err := io.WriteString(near, tt.send)
					for tt.drips > 0 && err == nil {
						time.Sleep(tt.drips)
						_, err = io.WriteString(near, "b")
					}
					if tt.reads {
						_, _ = io.Copy(io.Discard, near)
					} else {
						time.Sleep(tt.want + time.Millisecond)
						_, _ = near.Write([]byte("x"))
					}
					ended <- time.Since(began)
				}()
				if got := <-ended; got < tt.want || got > tt.want+2*tt.drips+time.Millisecond {
					t.Errorf("the connection ended after %s, want %s", got, tt.want)
				}
				synctest.Wait()
				if len(l.conns) > 0 {
					t.Errorf("%d connections, want none", len(l.conns))
				}
				_ = near.Close()
				_ = s.Close()
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// TestHeader: a header has 8 KiB, and what net/http lets pass beside.
func TestHeader(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for size, want := range map[int]int{8 << 10: http.StatusOK, 17 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		kit.Must(t, err)
		req.Header.Set("A", strings.Repeat("a", size))
		resp, err := http.DefaultTransport.RoundTrip(req)
		kit.Must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a header of %d bytes: %s, want %d", size, resp.Status, want)
		}
	}
}

// serve serves h at loopback until the test ends.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", 16)
	kit.Must(t, err)
	s := New(h, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestEvictedIsReset: an evicted client gets a reset at once, even while it does not read an answer.
func TestEvictedIsReset(t *testing.T) {
	l, err := Listen("127.0.0.1:0", 1)
	kit.Must(t, err)
	began := make(chan struct{}, 1)
	s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
	}), slog.New(slog.DiscardHandler))
	l.(*listener).now = func() time.Time { return time.Now().Add(time.Duration(len(began)) * protectedTime) }
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	var d net.Dialer
	first, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	kit.Must(t, err)
	defer first.Close()
	_, err = fmt.Fprintf(first, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	kit.Must(t, err)
	kit.Until(t, "the request has begun", func() bool { return len(began) == 1 })
	second, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	kit.Must(t, err)
	defer second.Close()
	kit.Must(t, first.SetReadDeadline(time.Now().Add(30*time.Second))) // for a test that fails
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the evicted connection: %v, want a reset", err)
	}
	kit.Must(t, s.Close())
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
