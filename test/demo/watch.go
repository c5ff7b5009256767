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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// Watch follows what happens: the cluster's objects, and forcefence's log. Each thing goes to the round under way, with
// the time at which it was seen; what the log tells, with the time that forcefence wrote.
type Watch struct {
	unwatch func()
	endTail context.CancelFunc
	tail    sync.WaitGroup
	round   atomic.Pointer[Round] // nil between rounds

	mu      sync.Mutex // guards the rest
	touched []string   // what was done to pods since the last call of Touched
	events  []*corev1.Event
}

func newWatch(c *cluster.Cluster) *Watch {
	w := &Watch{endTail: func() {}}
	w.unwatch = c.Watch(w.see)
	return w
}

// Stop ends the watch and waits.
func (w *Watch) Stop() {
	w.unwatch()
	w.endTail()
	w.tail.Wait()
}

func (w *Watch) see(o metav1.Object, deleted bool) {
	switch now := time.Now(); o := o.(type) {
	case *corev1.Node:
		if r := w.round.Load(); r != nil && !deleted {
			r.Node(now, o)
		}
	case *corev1.Pod:
		w.pod(now, o, deleted)
	case *storagev1.VolumeAttachment:
		w.attachment(now, o, deleted)
	case *corev1.Event:
		w.event(now, o, deleted)
	}
}

// Follow sends everything to the round from now on; nil to none.
func (w *Watch) Follow(r *Round) { w.round.Store(r) }

func (w *Watch) pod(now time.Time, p *corev1.Pod, deleted bool) {
	if p.Namespace != namespace {
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

func (w *Watch) attachment(now time.Time, va *storagev1.VolumeAttachment, deleted bool) {
	if deleted || va.DeletionTimestamp != nil {
		w.touch("volume attachment of %s is going", va.Spec.NodeName)
	}
	if r := w.round.Load(); r != nil && deleted {
		r.Attachment(now, va)
	}
}

func (w *Watch) event(now time.Time, e *corev1.Event, deleted bool) {
	if deleted {
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
	w.endTail = stop
	w.tail.Go(func() { kit.Tail(ctx, file, tailPeriod, w.log) })
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
