package wake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// nodeList is a fake of the informers' Nodes.
type nodeList struct {
	client.Reader
	mu    sync.Mutex
	names []string
	lists int
}

func (l *nodeList) set(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = names
}

func (l *nodeList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	nodes := list.(*corev1.NodeList)
	for _, n := range l.names {
		nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
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

func (p *pusher) Watch(ctx context.Context, targets []providers.Target,
	f func(providers.Target, providers.Observation)) error {
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

func TestWatchDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, other := &pusher{}, &pusher{broken: func() error { panic("of the SDK") }}
		configOf := func(w providers.Watcher) *Config {
			return &Config{Mode: byLabel, Machines: machine.Finder{Led: func(n *corev1.Node) (machine.Machine, error) {
				switch n.Name {
				case "silent":
					return machine.Machine{}, nil
				case "nobody's":
					return machine.Machine{}, errors.New("no provider")
				}
				return machine.Machine{Provider: struct{ providers.Provider }{}, Watcher: w,
					Target: providers.Target{Node: n.Name}}, nil
			}}}
		}
		var config atomic.Pointer[Config]
		config.Store(configOf(p))
		nodes := &nodeList{}
		nodes.set("b", "a", "silent", "nobody's")
		wake := make(chan event.GenericEvent, 10)
		o := optionsOf(nodes, wake, config.Load)
		o.KnownNodes = func() []string { return []string{"waiting"} }
		var done sync.WaitGroup
		done.Go(func() { newDevices(o, newLines(o)).runWatches(ctx) })
		synctest.Wait()
		if got, begun := p.state(); !slices.Equal(got, []string{"a", "b"}) || begun != 1 {
			t.Fatalf("watched: got %q after %d Watches, want a and b after one", got, begun)
		}

		o.Fleet(func(f *fleet.Fleet) { f.AddNode("a", o.Now.Instant()) })
		p.f(providers.Target{Node: "a"}, providers.Observation{State: providers.PowerOn})
		if at := o.fleetView("a").OnAt; !at.Equal(o.Now.Instant()) {
			t.Errorf("a says On: got On at %s, want now", at.Wall)
		}
		// A machine that the device does not call On may be off: its node is looked at.
		for node, state := range map[string]providers.PowerState{
			"changing": providers.PowerChanging, "unknown": providers.PowerUnknown,
		} {
			o.Fleet(func(f *fleet.Fleet) { f.AddNode(node, o.Now.Instant()) })
			p.f(providers.Target{Node: node}, providers.Observation{State: state})
			if v := o.fleetView(node); len(wake) != 1 || v.Hint != fleet.Push || !v.OnAt.IsZero() {
				t.Fatalf("%s: got %d nodes woken, hint %q, On at %s; want it woken by a push", node, len(wake), v.Hint,
					v.OnAt.Wall)
			}
			if e := <-wake; e.Object.GetName() != node {
				t.Errorf("woken: got %s, want %s", e.Object.GetName(), node)
			}
		}
		p.f(providers.Target{Node: "b"}, providers.Observation{State: providers.PowerOff})
		if len(wake) != 1 {
			t.Fatalf("woken: got %d nodes, want one", len(wake))
		}
		if e := <-wake; e.Object.GetName() != "b" || o.fleetView("b").Hint != fleet.Push ||
			o.fleetView("a").Hint != "" {
			t.Errorf("woken: got %s, hints a %q b %q, want b alone", e.Object.GetName(), o.fleetView("a").Hint,
				o.fleetView("b").Hint)
		}

		time.Sleep(time.Minute)
		if _, begun := p.state(); begun != 1 {
			t.Errorf("Watches while nothing changed: got %d, want 1", begun)
		}
		synctest.Wait()
		if nodes.lists > 2 { // at the start, and after a minute
			t.Errorf("lists of nodes in a minute without change: got %d, want at most 2", nodes.lists)
		}
		nodes.set("b", "a", "c")
		o.Moves.NoteMove(time.Now())
		time.Sleep(checkMoved + checkConfig)
		if got, begun := p.state(); !slices.Equal(got, []string{"a", "b", "c"}) || begun != 2 {
			t.Errorf("watched with another node: got %q after %d Watches, want a, b, c after two", got, begun)
		}

		// A reload: the old provider is let go before it is closed, and one that panics is tried again now and then.
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
