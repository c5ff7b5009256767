package watch_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/features/storage/watch"
)

// source is an API that reports what a test wants.
type source struct {
	mu     sync.Mutex // guards what follows
	health string     // of the node n1
	err    error
	silent bool // no read returns before its ctx ends
	deaf   bool // nor then, until release is closed
	reads  []time.Time

	release chan struct{}
}

func (s *source) Read(ctx context.Context) (storage.Objects, error) {
	s.mu.Lock()
	s.reads = append(s.reads, time.Now())
	health, err, silent, deaf := s.health, s.err, s.silent, s.deaf
	s.mu.Unlock()
	switch {
	case deaf:
		<-s.release
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return storage.Objects{storage.Nodes: []any{map[string]any{"name": "n1", "health": health}}}, err
}

func (s *source) Interval() time.Duration { return 5 * time.Second }

func (s *source) Equals(other storage.Source) bool { return s == other }

func (s *source) set(edit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit()
}

// follow follows a system that a source describes, until the test ends. changed receives its changed nodes.
func follow(t *testing.T, from *source) (s storage.System, changed *[]string) {
	t.Helper()
	a, bad := storage.CompileWithSource("pool", storage.Spec{
		Drivers: []string{"csi.example.net"},
		Node: storage.NodeSpec{
			Resource: "nodes", Name: "object.name",
			Healthy: `{"online": true, "offline": false}[object.health]`, Why: `"health is " + object.health`,
		},
	}, from)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	w, err := watch.New(watch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	changed = &[]string{}
	go w.NotifyChanged(ctx, func(node string) { *changed = append(*changed, node) })
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w.UseAdapters([]*storage.Adapter{a})[0], changed
}

// An API is read every 5 s, and a change is reported by the next read.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &source{health: "online"}
		s, changed := follow(t, from)
		synctest.Wait()
		if h := s.NodeHealth("n1"); !h.Healthy || s.MissingReason() != "" {
			t.Fatalf("at once: got %+v, missing %q; want healthy", h, s.MissingReason())
		}
		from.set(func() { from.health = "offline" })
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		want := action.Health{Known: true, Why: "health is offline"}
		if h := s.NodeHealth("n1"); h != want {
			t.Errorf("after 5 s: got %+v, want %+v", h, want)
		}
		if !slices.Contains(*changed, "n1") {
			t.Errorf("changed: got %q, want n1", *changed)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(from.reads); n != 6 {
			t.Errorf("got %d reads in 25 s, want 6", n)
		}
	})
}

// Nothing is known of a system whose API fails, is silent, or was read too long ago, until it is read again.
func TestPollFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		begin  func(*source)
		within time.Duration // until which the state may still be known
		want   string        // of why it is unknown
	}{
		{"it fails", func(s *source) { s.err = errors.New("503 Service Unavailable") }, 5 * time.Second,
			"its API cannot be read: 503"},
		{"it is silent", func(s *source) { s.silent = true }, 15 * time.Second, "its API cannot be read: context deadline"},
		{"a read never ends", func(s *source) { s.deaf = true }, 15 * time.Second, "its API was last read more than 15s ago"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from := &source{health: "offline", release: make(chan struct{})}
				s, _ := follow(t, from)
				synctest.Wait()
				before := s.Version()
				from.set(func() { tc.begin(from) })
				time.Sleep(tc.within + time.Millisecond)
				synctest.Wait()
				h, missing := s.NodeHealth("n1"), s.MissingReason()
				if h.Known || !strings.Contains(h.Why, tc.want) || !strings.Contains(missing, tc.want) {
					t.Errorf("after %s: got %+v, missing %q; want unknown, %s", tc.within, h, missing, tc.want)
				}
				if s.Version() == before {
					t.Error("the version has not changed")
				}
				close(from.release)
				from.set(func() { from.err, from.silent, from.deaf = nil, false, false })
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if h := s.NodeHealth("n1"); !h.Known {
					t.Errorf("once it can be read again: got %+v, want known", h)
				}
			})
		})
	}
}
