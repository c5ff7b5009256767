package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// lag is how far the second API server is behind: all that etcd tells it comes so much later, live reads included.
const lag = 1500 * time.Millisecond

// lagging switches both instances to the second API server once the node is marked, and back after ten seconds.
func lagging(*world, int, *rand.Rand) *faults {
	return &faults{during: func(ctx context.Context, r *run) {
		w := r.w
		second, err := w.secondServer()
		if err != nil {
			w.log("second API server: %v", err)
			return
		}
		if until(ctx, runLimit, "the node is marked", func() (bool, error) {
			n := w.hub.node(r.victim.name)
			return n != nil && marked(n), nil
		}) != nil {
			return
		}
		w.lag.Store(int64(lag))
		defer w.lag.Store(0)
		for _, to := range []string{second, w.control.url} {
			for _, s := range w.slots {
				if err := s.proxy.lead(to); err != nil {
					w.log("switching API servers: %v", err)
				}
				w.hit()
			}
			if to == second {
				// Not ctx: the fence may end before.
				pause(w.ctx, 10*time.Second)
			}
		}
	}}
}

// secondServer starts it once, behind a proxy to etcd that delays what etcd says while w.lag is set: a start asks etcd
// hundreds of things.
func (w *world) secondServer() (string, error) {
	if w.second != "" {
		return w.second, nil
	}
	u, err := url.Parse(w.control.etcd)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.wg.Go(func() {
		<-w.ctx.Done()
		l.Close()
	})
	go delay(l, u.Host, &w.lag)
	var port int
	if err := kit.FreePorts(&port); err != nil {
		return "", err
	}
	if err := w.control.apiServer(w.ctx, "lagging", "https://"+l.Addr().String(), port); err != nil {
		return "", err
	}
	w.second = fmt.Sprintf("https://127.0.0.1:%d", port)
	return w.second, nil
}

// delay passes connections on, and what comes back late. It ends with the listener.
func delay(l net.Listener, to string, by *atomic.Int64) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				out.Close()
			}()
			type chunk struct {
				b  []byte
				at time.Time
			}
			chunks := make(chan chunk, 100000)
			go func() {
				defer close(chunks)
				for {
					b := make([]byte, 1<<15)
					n, err := out.Read(b)
					if n > 0 {
						chunks <- chunk{b[:n], time.Now()}
					}
					if err != nil {
						return
					}
				}
			}()
			for c := range chunks {
				time.Sleep(time.Until(c.at.Add(time.Duration(by.Load()))))
				if _, err := in.Write(c.b); err != nil {
					return
				}
			}
		}()
	}
}
