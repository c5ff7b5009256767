// Package observe reports what the kernel did: in the log, Events, metrics and Fencing objects. The loop passes each
// step to it once the step is over. No decision reads what it writes.
package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Sinks is where an Observer reports to. None of them may block.
type Sinks struct {
	Events  func(at time.Time) events.EventRecorder // of Events that happened at that time
	Log     *slog.Logger
	Metrics *Metrics
	Fences  func(journal.Update) // receives updates of fences: FencingWriter.AddUpdate; nil: not reported
}

// Options is what an Observer is made of. All fields are required, except where noted.
type Options struct {
	Sinks

	Leading func() error // nil while this process is sure to be the leader
	// RefusedDetach returns why a node's volumes of a CSI driver are surely kept from being detached, by the
	// resourceVersion of the node's Lease; nil if they are not. nil: nothing keeps them.
	RefusedDetach func(node *corev1.Node, driver, leaseRV string) error
	Writing       func() bool              // whether pods of any node are being written
	Fleet         func(func(*fleet.Fleet)) // lends the memory across nodes
	Now           providers.Clock
}

// Observer reports on all nodes. Its methods may be called at the same time.
type Observer struct {
	Options
	queue eventQueue

	mu   sync.Mutex           // guards what follows
	once map[string]time.Time // when each thing that is the same for many nodes was reported
	held map[string]refused   // nodes that the storm guard holds back, by name

	heldSince time.Time // when the first of held was added; zero: there is none
}

// New returns an Observer.
func New(o Options) *Observer {
	return &Observer{
		Options: o,
		queue:   eventQueue{now: o.Now, writing: o.Writing, waiting: map[string][]queuedEvent{}},
		once:    map[string]time.Time{},
	}
}

// Start sends the Events that waited, until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	tick := time.NewTicker(queueEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			o.queue.sendDue()
		}
	}
}

// sendEvent sends the Event of a reason about an object, as of what happened at a time.
func (o *Observer) sendEvent(
	at time.Time, about, related runtime.Object, why reason.Reason, action string, words ...string,
) {
	kube.Events{To: o.Events(at), Leading: o.Leading}.Send(about, related, why, action, words...)
}

// onceFor is how long something that is the same for many nodes is not reported again.
const onceFor = 10 * time.Minute

// isFirst reports whether something that is the same for many nodes was not reported for onceFor, and records that it
// is reported now.
func (o *Observer) isFirst(why reason.Reason, once string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	key, now := string(why)+" "+once, o.Now()
	if at, before := o.once[key]; before && now.Sub(at) < onceFor {
		return false
	}
	for k, at := range o.once {
		if now.Sub(at) >= onceFor {
			delete(o.once, k)
		}
	}
	o.once[key] = now
	return true
}
