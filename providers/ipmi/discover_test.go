package ipmi_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers/ipmi"
)

// A BMC is found without a credential. Any other answer is none.
func TestPing(t *testing.T) {
	s := newSoft(t, "password")
	if err := ipmi.Ping(t.Context(), s.address); err != nil {
		t.Errorf("a BMC: got %v", err)
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("got %d commands, want none", n)
	}
	pong := []byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 0, 0, 16,
		0, 0, 0x11, 0xbe, 0, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0, 0}
	for name, change := range map[string]func([]byte) []byte{
		"another tag":      func(b []byte) []byte { b[9] ^= 1; return b },
		"no IPMI":          func(b []byte) []byte { b[20] = 1; return b },
		"no data":          func(b []byte) []byte { b[11] = 0; return b[:12] },
		"cut":              func(b []byte) []byte { return b[:20] },
		"a ping":           func(b []byte) []byte { b[8] = 0x80; return b },
		"IPMI's class":     func(b []byte) []byte { b[3] = 7; return b },
		"nothing to parse": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(t, err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				ping := make([]byte, 64)
				for {
					n, from, err := front.ReadFrom(ping)
					if err != nil {
						return
					}
					answer := append([]byte(nil), pong...)
					if n > 9 {
						answer[9] = ping[9]
					}
					_, _ = front.WriteTo(change(answer), from)
				}
			}()
			defer func() {
				_ = front.Close()
				<-ended
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := ipmi.Ping(ctx, front.LocalAddr().String()); err == nil {
				t.Error("got a BMC")
			}
		})
	}
	for _, address := range []string{"", "https://127.0.0.1", "u:p@127.0.0.1"} {
		if err := ipmi.Ping(t.Context(), address); err == nil {
			t.Errorf("%q: got a BMC", address)
		}
	}
}
