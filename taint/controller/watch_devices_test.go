package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// nodeList stands for the informers' Nodes.
type nodeList struct {
	client.Reader
	mu    sync.Mutex
	names []string
}

func (l *nodeList) set(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = names
}

func (l *nodeList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes := list.(*corev1.NodeList)
	for _, n := range l.names {
		nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	return nil
}

// nodeObjects stands for them, too, with all that they say.
type nodeObjects struct {
	client.Reader
	items []corev1.Node
}

func (l *nodeObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.NodeList).Items = l.items
	return nil
}

// pusher is a provider's push: it notes who is watched, and can be told to break.
type pusher struct {
	mu      sync.Mutex // guards all below
	watched []string
	begun   int
	f       func(providers.Target, providers.Observation)
	broken  func() error
}

func (p *pusher) Watch(ctx context.Context, targets []providers.Target, f func(providers.Target, providers.Observation)) error {
	p.mu.Lock()
	p.begun++
	p.f, p.watched = f, nil
	for _, t := range targets {
		p.watched = append(p.watched, t.Node)
	}
	broken := p.broken
	p.mu.Unlock()
	if broken != nil {
		return broken()
	}
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched = nil
	return ctx.Err()
}

func (p *pusher) state() (watched []string, begun int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.watched), p.begun
}

// All nodes are looked up twice after one of them came, changed or went, some seconds apart, and each minute.
func TestMovedSince(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r := New(Options{Now: c.Now, Key: taint.DefaultKey})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	looked := c.now.Add(-time.Hour)
	within := func(d time.Duration) (at []time.Duration) {
		for passed := time.Duration(0); passed < d; passed += time.Second {
			c.now = c.now.Add(time.Second)
			if r.movedSince(looked, c.now) {
				looked = c.now
				at = append(at, passed+time.Second)
			}
		}
		return at
	}
	for what, move := range map[string]func(){
		"came": func() { r.nodeCame(event.TypedCreateEvent[*corev1.Node]{Object: n}) },
		"went": func() { r.nodeWent(event.TypedDeleteEvent[*corev1.Node]{Object: n}) },
		"changed": func() {
			r.nodeChanged(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: n, ObjectNew: noted("https://bmc1", uuid1)})
		},
	} {
		looked = c.now.Add(-time.Hour)
		if at := within(checkAll + 30*time.Second); !slices.Equal(at, []time.Duration{time.Second, time.Second + checkAll}) {
			t.Errorf("nothing moved: looked up after %s", at)
		}
		move()
		if at := within(30 * time.Second); !slices.Equal(at, []time.Duration{time.Second, time.Second + checkTargets}) {
			t.Errorf("a node %s: looked up after %s", what, at)
		}
		c.now = c.now.Add(time.Hour)
	}
}

func TestWatchDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, other := &pusher{}, &pusher{broken: func() error { panic("of the SDK") }}
		configOf := func(w providers.Watcher) *Config {
			return &Config{Machines: machine.Finder{Led: func(n *corev1.Node) (machine.Machine, error) {
				switch n.Name {
				case "silent":
					return machine.Machine{}, nil
				case "nobody's":
					return machine.Machine{}, errors.New("no provider")
				}
				return machine.Machine{Provider: broken{}, Watcher: w, Target: providers.Target{Node: n.Name}}, nil
			}}}
		}
		var config atomic.Pointer[Config]
		config.Store(configOf(p))
		nodes := &nodeList{}
		nodes.set("b", "a", "silent", "nobody's")
		r := New(Options{
			Now: time.Now, Cache: nodes, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(prometheus.NewRegistry()), Config: config.Load,
		})
		wake := make(chan event.GenericEvent, 10)
		var done sync.WaitGroup
		done.Go(func() { r.watchDevices(ctx, wake) })
		synctest.Wait()
		if got, begun := p.state(); !slices.Equal(got, []string{"a", "b"}) || begun != 1 {
			t.Fatalf("watched: got %q after %d Watches, want a and b after one", got, begun)
		}

		r.across(func(f *fleet.Fleet) { f.Know("a", r.now()) })
		p.f(providers.Target{Node: "a"}, providers.Observation{State: providers.PowerOn})
		if at := r.fleetView("a").OnAt; !at.Equal(r.now()) {
			t.Errorf("a says On: got On at %s, want now", at.Wall)
		}
		p.f(providers.Target{Node: "b"}, providers.Observation{State: providers.PowerOff})
		if len(wake) != 1 {
			t.Fatalf("woken: got %d nodes, want one", len(wake))
		}
		if e := <-wake; e.Object.GetName() != "b" || r.fleetView("b").Hint != fleet.Push || r.fleetView("a").Hint != "" {
			t.Errorf("woken: got %s, hints a %q b %q, want b alone", e.Object.GetName(), r.fleetView("a").Hint, r.fleetView("b").Hint)
		}

		time.Sleep(time.Minute)
		if _, begun := p.state(); begun != 1 {
			t.Errorf("Watches while nothing changed: got %d, want 1", begun)
		}
		nodes.set("b", "a", "c")
		r.nodeCame(event.TypedCreateEvent[*corev1.Node]{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}}})
		time.Sleep(checkTargets + checkConfig)
		if got, begun := p.state(); !slices.Equal(got, []string{"a", "b", "c"}) || begun != 2 {
			t.Errorf("watched with another node: got %q after %d Watches, want a, b, c after two", got, begun)
		}

		// A reload: the old provider is let go before it is closed, and one that panics is tried again now and then.
		r.state("waiting")
		config.Store(configOf(other))
		time.Sleep(2 * checkConfig)
		if len(wake) != 1 {
			t.Errorf("woken by the reload: got %d nodes, want the one that is known", len(wake))
		} else if e := <-wake; e.Object.GetName() != "waiting" {
			t.Errorf("woken by the reload: got %s", e.Object.GetName())
		}
		if got, _ := p.state(); got != nil {
			t.Errorf("watched through the replaced provider: got %q, want none", got)
		}
		time.Sleep(3 * watchAgain)
		if _, begun := other.state(); begun < 3 || begun > 4 {
			t.Errorf("Watches of a provider that panics, in 90 s: got %d, want about one in 30 s", begun)
		}
		cancel()
		done.Wait()
	})
}
