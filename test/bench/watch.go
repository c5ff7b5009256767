package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/test/kit"
)

// watch follows the API server's objects and forcefence's log. Each thing goes to the turn under way with the time at
// which it was seen; what the log says, with the time that forcefence wrote.
type watch struct {
	run     context.Context // ends with end
	stop    context.CancelFunc
	wg      sync.WaitGroup
	factory informers.SharedInformerFactory

	mu   sync.Mutex // guards turn
	turn *turn      // nil between turns
}

// newWatch returns once everything was listed.
func newWatch(ctx context.Context, client kubernetes.Interface) (*watch, error) {
	w := &watch{factory: informers.NewSharedInformerFactory(client, 0)}
	for _, inf := range []cache.SharedIndexInformer{
		w.factory.Core().V1().Nodes().Informer(),
		w.factory.Core().V1().Pods().Informer(),
		w.factory.Storage().V1().VolumeAttachments().Informer(),
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
	w.run, w.stop = context.WithCancel(context.Background())
	w.factory.Start(w.run.Done())
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

// tail follows a file of JSON lines, which carry their own time, until the end. It waits for one that is not there yet.
func (w *watch) tail(file string) {
	w.wg.Go(func() { kit.Tail(w.run, file, 50*time.Millisecond, w.log) })
}

func (w *watch) log(raw []byte) {
	var l line
	if json.Unmarshal(raw, &l) != nil || l.Node == "" {
		return // a library's line, not about a node
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn != nil {
		w.turn.log(l)
	}
}
