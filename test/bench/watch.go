package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/test/kit"
)

// watch follows the API server's objects and forcefence's log. Each thing goes to the turn under way with the time at
// which it was seen; what the log tells, with the time that forcefence wrote.
type watch struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	factory informers.SharedInformerFactory

	mu     sync.Mutex           // guards the rest
	turn   *turn                // nil between turns
	leases map[string]time.Time // when each node's Lease was last seen to change
}

// newWatch returns once everything was listed.
func newWatch(ctx context.Context, client kubernetes.Interface) (*watch, error) {
	w := &watch{factory: informers.NewSharedInformerFactory(client, 0), leases: map[string]time.Time{}}
	for _, inf := range []cache.SharedIndexInformer{
		w.factory.Core().V1().Nodes().Informer(),
		w.factory.Core().V1().Pods().Informer(),
		w.factory.Storage().V1().VolumeAttachments().Informer(),
		w.factory.Coordination().V1().Leases().Informer(),
	} {
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { w.see(time.Now(), o, false) },
			UpdateFunc: func(_, o any) { w.see(time.Now(), o, false) },
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				w.see(time.Now(), o, true)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	run, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.factory.Start(run.Done())
	for kind, ok := range w.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			w.end()
			return nil, fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	return w, nil
}

// end ends the watches and waits.
func (w *watch) end() {
	w.stop()
	w.wg.Wait()
	w.factory.Shutdown()
}

func (w *watch) see(now time.Time, o any, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := o.(*coordinationv1.Lease); ok {
		if l.Namespace == corev1.NamespaceNodeLease {
			w.leases[l.Name] = now
		}
		return
	}
	if w.turn == nil {
		return
	}
	switch o := o.(type) {
	case *corev1.Pod:
		w.turn.pod(now, o, deleted)
	case *corev1.Node:
		w.turn.node(now, o)
	case *storagev1.VolumeAttachment:
		w.turn.attachment(now, o, deleted)
	}
}

// follow sends everything to the turn from now on; nil to none.
func (w *watch) follow(t *turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn = t
}

// staleAt is when the node's Lease is, or will be, as old as forcefence finds suspicious.
func (w *watch) staleAt(node string, lease time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[node].Add(time.Duration(float64(lease) * staleAfter))
}

// staleAfter is taint/decide/fleet's: two missed renewals, which are four in a Lease's duration, and half of a third.
const staleAfter = 2.5 / 4

// nodeGrace is until a silent node is NotReady, and the duration of its Lease: the shortest that is believed.
const nodeGrace = fleet.MinDuration

// line is what is read of a line of forcefence's JSON log.
type line struct {
	Time  time.Time `json:"time"`
	Msg   string    `json:"msg"`
	Node  string    `json:"node"`
	Why   string    `json:"why"`
	State string    `json:"state"`
	By    string    `json:"by"`
	Pods  int       `json:"pods"`
}

// tailPeriod is how often the log is looked at. The lines carry their own time.
const tailPeriod = 50 * time.Millisecond

// tail follows a file of JSON lines until the end. A file that is not there yet is waited for.
func (w *watch) tail(file string) {
	ctx, stop := context.WithCancel(context.Background())
	end := w.stop
	w.stop = func() { stop(); end() }
	w.wg.Go(func() { kit.Tail(ctx, file, tailPeriod, w.log) })
}

func (w *watch) log(raw []byte) {
	var l line
	if json.Unmarshal(raw, &l) != nil || l.Node == "" {
		return // a library's line tells nothing of a node
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn != nil {
		w.turn.log(l)
	}
}

func controlledBy(o metav1.Object, kind string) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && ref.Kind == kind
}
