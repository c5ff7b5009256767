// Package wake finds the nodes to look at: a node whose Lease stopped or came back (leases.go), whose device pushed an
// event or answered a poll with Off (pushes.go, polls.go), whose TCP connection broke (lines.go), or whose storage
// changed.
//
// It adds each hint to the memory across nodes (taint/decide/fleet), which makes devices be asked and moves no pod, and
// sends the node's name to the queue. It reads the nodes' Leases live, and Nodes from the informer's cache; it writes
// nothing. It decides nothing: taint/decide judges the hints. It does not import taint/controller, which adds it to a
// manager with AddTo.
package wake

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// Config is the part of the configuration in force about which nodes are watched. It is immutable: a reload makes
// another. Every field is required.
type Config struct {
	Machines machine.Finder
	Mode     func(*corev1.Node) fence.ChosenMode // what may be done about a node
	Excluded func(*corev1.Node) string           // "" or why the node must be left alone
	LinePort uint16                              // the TCP port of each node to keep a connection to; 0: no connections
}

// Options is what all sources of wake-ups are made of. Every field is required, except where noted.
type Options struct {
	Live    client.Reader // reads from the API server, not from a cache
	Cache   client.Reader // the informer of Nodes
	Log     *slog.Logger
	Metrics *Metrics
	Config  func() *Config
	Key     string // the mark's key
	Now     providers.Clock
	// Nodes receives the nodes to look at.
	Nodes chan<- event.GenericEvent
	// Fleet lends the memory across nodes to a function, which must not block.
	Fleet func(func(*fleet.Fleet))
	// KnownNodes returns the nodes to look at when the configuration changed: one may have been waiting for just that.
	KnownNodes func() []string
	// OnHeartbeat is called at each heartbeat of a node. It must not block.
	OnHeartbeat func(node string)
	Moves       *Moves
	// Changes are sources of nodes about which other objects changed: each calls tell with them until ctx ends.
	Changes []func(ctx context.Context, tell func(node string))
}

// fleetView returns what the fleet's memory knows of a node now.
func (o *Options) fleetView(node string) (v fleet.View) {
	o.Fleet(func(f *fleet.Fleet) { v = f.View(node, o.Now.Instant()) })
	return v
}

// addHint adds the hint of a source, which was not asked for a fence, that a node's machine does not run.
func (o *Options) addHint(node string, by fleet.Source) {
	o.Fleet(func(f *fleet.Fleet) { f.ApplyHint(node, by, o.Now.Instant()) })
}

// wakeNode queues a node for a look. It blocks until the queue accepts it, or ctx ends.
func (o *Options) wakeNode(ctx context.Context, node string) {
	select {
	case o.Nodes <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}}:
	case <-ctx.Done():
	}
}

// wakeAll queues each of some nodes for a look.
func (o *Options) wakeAll(ctx context.Context, nodes []string) {
	for _, n := range nodes {
		if ctx.Err() != nil {
			return
		}
		o.wakeNode(ctx, n)
	}
}

// The intervals at which all nodes are listed again: when some of them moved, and in any case.
const (
	checkMoved = 5 * time.Second
	checkAll   = time.Minute
)

// Moves records when a Node was last created or deleted, or changed in what leads to its devices. The zero value is
// ready.
type Moves struct {
	at atomic.Int64 // in nanoseconds since 1970
}

// NoteMove records that a Node moved now.
func (m *Moves) NoteMove(now time.Time) { m.at.Store(now.UnixNano()) }

// ShouldList reports whether it is time to list all nodes again, which were last listed at looked. That is so after a
// minute, and after 5 s if a Node moved. Each move causes two lists, because the claims of other nodes may be known
// only a second after it.
func (m *Moves) ShouldList(looked, now time.Time) bool {
	since := now.Sub(looked)
	return since >= checkAll || since >= checkMoved && !time.Unix(0, m.at.Load()).Before(looked.Add(-checkMoved))
}
