package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// lag is how far the second API server is behind: all that etcd tells it comes so much later, live reads included.
const lag = 1500 * time.Millisecond

// lagging is the second API server, behind a proxy to etcd. server is nil until it is needed.
type lagging struct {
	server *cluster.Part
	url    string
	by     atomic.Int64 // what etcd says comes so many nanoseconds late
}

// lagsBehind switches both instances to the second API server once the node is marked, and back after ten seconds.
func lagsBehind(*world, int, *rand.Rand) *faults {
	return &faults{during: func(ctx context.Context, r *run) {
		w := r.w
		if err := w.startLagging(); err != nil {
			w.say("second API server: %v", err)
			return
		}
		if until(ctx, "the node is marked", func() (bool, error) {
			return judge.IsMarked(w.history.node(r.victim)), nil
		}) != nil {
			return
		}
		w.lagging.by.Store(int64(lag))
		defer w.lagging.by.Store(0)
		for _, to := range []string{w.lagging.url, w.URL()} {
			for _, s := range w.slots {
				if err := s.proxy.lead(to); err != nil {
					w.say("switching API servers: %v", err)
				}
				w.hits.Add(1)
			}
			if to == w.lagging.url {
				// Not ctx: the fence may end before.
				cluster.Sleep(w.ctx, 10*time.Second)
			}
		}
	}}
}

// startLagging starts it once. It does not lag before a fence: a start asks etcd hundreds of things.
func (w *world) startLagging() error {
	if w.lagging.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.wg.Go(func() {
		<-w.ctx.Done()
		l.Close()
	})
	go delay(l, strings.TrimPrefix(w.EtcdURL(), "https://"), &w.lagging.by)
	p, url, err := w.AnotherAPIServer("https://"+l.Addr().String(), "--audit-log-path="+w.audits[1].File)
	if err != nil {
		return err
	}
	if err := p.Start(w.ctx); err != nil {
		p.Stop()
		return err
	}
	w.lagging.server, w.lagging.url = p, url
	return nil
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
