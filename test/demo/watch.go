package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// Watch follows what happens: the API server's objects, and forcefence's log. Each thing goes to the round under way,
// with the time at which it was seen; what the log tells, with the time that forcefence wrote.
type Watch struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	factory informers.SharedInformerFactory
	round   atomic.Pointer[Round] // nil between rounds

	mu      sync.Mutex // guards the rest
	touched []string   // what was done to pods since the last call of Touched
	events  []*corev1.Event
}

// newWatch returns once everything was listed.
func newWatch(ctx context.Context, cfg *rest.Config) (*Watch, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	w := &Watch{factory: informers.NewSharedInformerFactory(client, 0)}
	for _, f := range []struct {
		inf cache.SharedIndexInformer
		see func(now time.Time, obj any, deleted bool)
	}{
		{w.factory.Core().V1().Nodes().Informer(), w.node},
		{w.factory.Core().V1().Pods().Informer(), w.pod},
		{w.factory.Storage().V1().VolumeAttachments().Informer(), w.attachment},
		{w.factory.Core().V1().Events().Informer(), w.event},
	} {
		_, err := f.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { f.see(time.Now(), o, false) },
			UpdateFunc: func(_, o any) { f.see(time.Now(), o, false) },
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				f.see(time.Now(), o, true)
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
			w.Stop()
			return nil, fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	return w, nil
}

// Stop ends the watches and waits.
func (w *Watch) Stop() {
	w.stop()
	w.wg.Wait()
	w.factory.Shutdown()
}

// Follow sends everything to the round from now on; nil to none.
func (w *Watch) Follow(r *Round) { w.round.Store(r) }

func (w *Watch) node(now time.Time, o any, deleted bool) {
	if n, ok := o.(*corev1.Node); ok && !deleted {
		if r := w.round.Load(); r != nil {
			r.Node(now, n)
		}
	}
}

func (w *Watch) pod(now time.Time, o any, deleted bool) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Namespace != namespace {
		return
	}
	switch {
	case deleted:
		w.touch("pod %s was deleted", p.Name)
	case p.DeletionTimestamp != nil:
		w.touch("pod %s got a deletionTimestamp", p.Name)
	case taint.IsTerminal(p):
		w.touch("pod %s is %s", p.Name, p.Status.Phase)
	}
	if r := w.round.Load(); r != nil {
		r.Pod(now, p, deleted)
	}
}

func (w *Watch) attachment(now time.Time, o any, deleted bool) {
	va, ok := o.(*storagev1.VolumeAttachment)
	if !ok {
		return
	}
	if deleted || va.DeletionTimestamp != nil {
		w.touch("volume attachment of %s is going", va.Spec.NodeName)
	}
	if r := w.round.Load(); r != nil && deleted {
		r.Attachment(now, va)
	}
}

func (w *Watch) event(now time.Time, o any, deleted bool) {
	e, ok := o.(*corev1.Event)
	if !ok || deleted {
		return
	}
	if e.InvolvedObject.Kind == "Node" {
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
	if e.Reason == "FailedCreatePodSandBox" && strings.Contains(e.Message, "held") {
		if r := w.round.Load(); r != nil {
			r.Held(now, e.InvolvedObject.UID)
		}
	}
}

func (w *Watch) touch(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched = append(w.touched, fmt.Sprintf(format, args...))
}

// Touched returns what was done to any pod or attachment since the last call, the first thing first.
func (w *Watch) Touched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.touched
	w.touched = nil
	return out
}

// NodeEvent returns the text of the newest Event on a node with that reason, and whether there is one.
func (w *Watch) NodeEvent(node, reason string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.events) - 1; i >= 0; i-- {
		if e := w.events[i]; e.InvolvedObject.Name == node && e.Reason == reason {
			return e.Message, true
		}
	}
	return "", false
}

// tailPeriod is how often the log is looked at.
const tailPeriod = 20 * time.Millisecond

// Tail follows a file of JSON lines until Stop. A file that is not there yet is waited for.
func (w *Watch) Tail(file string) {
	ctx, stop := context.WithCancel(context.Background())
	end := w.stop
	w.stop = func() { stop(); end() }
	w.wg.Go(func() { kit.Tail(ctx, file, tailPeriod, w.log) })
}

func (w *Watch) log(line []byte) {
	var l Log
	if json.Unmarshal(line, &l) != nil || l.Node == "" {
		return // other lines, such as a library's, tell nothing of a node
	}
	if r := w.round.Load(); r != nil {
		r.Log(l)
	}
}
