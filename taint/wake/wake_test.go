package wake

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/test/kit"
)

var must = kit.Must

// optionsOf makes the Options of a test, with a memory of their own. What they hear is told to nobody else.
func optionsOf(cache client.Reader, nodes chan<- event.GenericEvent, config func() *Config) Options {
	var mu sync.Mutex // guards memory
	memory := &fleet.Fleet{}
	return Options{
		Cache: cache, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Config: config,
		Key: taint.DefaultKey,
		Now: time.Now, Nodes: nodes, KnownNodes: func() []string { return nil }, OnHeartbeat: func(string) {},
		Moves: &Moves{},
		Fleet: func(f func(*fleet.Fleet)) {
			mu.Lock()
			defer mu.Unlock()
			f(memory)
		},
	}
}

// byLabel is a node's mode by its label; without one it is observed.
func byLabel(n *corev1.Node) fence.ChosenMode {
	m, _ := fence.ParseMode(n.Labels["mode"])
	return fence.ChosenMode{Mode: m}
}

// nodeObjects is a fake of the informer's Nodes.
type nodeObjects struct {
	client.Reader
	items []corev1.Node
}

func (l *nodeObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.NodeList).Items = l.items
	return nil
}

// All nodes are looked up twice after one of them moved, some seconds apart, and each minute.
func TestMoves(t *testing.T) {
	var m Moves
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	looked := now.Add(-time.Hour)
	within := func(d time.Duration) (at []time.Duration) {
		for passed := time.Duration(0); passed < d; passed += time.Second {
			now = now.Add(time.Second)
			if m.ShouldList(looked, now) {
				looked = now
				at = append(at, passed+time.Second)
			}
		}
		return at
	}
	for range 2 {
		looked = now.Add(-time.Hour)
		if at := within(checkAll + 30*time.Second); !slices.Equal(at,
			[]time.Duration{time.Second, time.Second + checkAll}) {
			t.Errorf("nothing moved: looked up after %s", at)
		}
		m.NoteMove(now)
		if at := within(30 * time.Second); !slices.Equal(at, []time.Duration{time.Second, time.Second + checkMoved}) {
			t.Errorf("a node moved: looked up after %s", at)
		}
		now = now.Add(time.Hour)
	}
}

// A node that a source reports is woken. The watch ends with its context, even if no wake-up is received.
func TestChangeWakes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	wake := make(chan event.GenericEvent)
	o := optionsOf(nil, wake, nil)
	changes := func(_ context.Context, tell func(string)) {
		tell("n1")
		tell("n2") // no wake-up is received
	}
	go func() {
		defer close(ended)
		o.watchChanges(ctx, changes)
	}()
	if got := (<-wake).Object.GetName(); got != "n1" {
		t.Errorf("woken: got %q, want n1", got)
	}
	cancel()
	<-ended
}
