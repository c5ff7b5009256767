package controller

import (
	"context"
	"sync"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/kube"
)

// sharing is a question that many put at the same time, when what they hang on dies. Whoever comes while it is being put shares the next one,
// which is sent after all of them came. The zero value is ready.
type sharing[A any] struct {
	mu   sync.Mutex // guards what follows
	next *joint[A]  // the question that is to be put next; nil: nobody waits for one
	busy bool       // it is being put
}

// joint is one question that several wait for.
type joint[A any] struct {
	done   chan struct{}
	answer A     // once done is closed
	err    error // the same
}

// joined is the error of a question that another put as well: that one counts it.
type joined struct{ error }

func (j joined) Unwrap() error { return j.error }

// ask waits for an answer to a question that is sent from now on: for twice within at most, as one may be under way. An error is everybody's, or that
// ctx ended. Everybody's put must be the same question. It belongs to none of them alone: its context ends after within.
func (s *sharing[A]) ask(ctx context.Context, within time.Duration, put func(context.Context) (A, error)) (answer A, err error) {
	s.mu.Lock()
	q := s.next
	first := q == nil
	if first {
		q = &joint[A]{done: make(chan struct{})}
		s.next = q
	}
	if !s.busy {
		s.busy = true
		go s.run(context.WithoutCancel(ctx), within, put) // its owner is within
	}
	s.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	if q.err != nil && !first {
		return q.answer, joined{q.err}
	}
	return q.answer, q.err
}

// run puts the question until nobody waits.
func (s *sharing[A]) run(ctx context.Context, within time.Duration, put func(context.Context) (A, error)) {
	for {
		s.mu.Lock()
		q := s.next
		s.next, s.busy = nil, q != nil
		s.mu.Unlock()
		if q == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		q.answer, q.err = put(ctx)
		cancel()
		close(q.done)
	}
}

// attachedTo lists the VolumeAttachments that name the node, live. The API server cannot select them by node: whoever lists them at the same time
// shares the list of all nodes'. It is sent after it was called for, and errors are everybody's.
func (r *Reconciler) attachedTo(ctx context.Context, node string) ([]action.Attachment, error) {
	list := func(ctx context.Context) (map[string][]action.Attachment, error) {
		return kube.Attachments(ctx, r.Live)
	}
	all, err := r.attached.ask(ctx, kube.Timeout, list)
	return all[node], err
}

// oneForAll reads ConfigMaps, which are one for all nodes, together with whoever else reads them, and everything else by itself.
type oneForAll struct {
	client.Reader
	*sharedMaps
}

// sharedMaps are the ConfigMaps that were read together.
type sharedMaps struct {
	mu sync.Mutex // guards what follows
	by map[client.ObjectKey]*sharing[*corev1.ConfigMap]
}

// Get is a live read: it is sent after it was called for.
func (o oneForAll) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	cm, ok := into.(*corev1.ConfigMap)
	if !ok {
		return o.Reader.Get(ctx, key, into, opts...)
	}
	read, err := o.of(key).ask(ctx, kube.Timeout, func(ctx context.Context) (*corev1.ConfigMap, error) {
		out := &corev1.ConfigMap{}
		return out, o.Reader.Get(ctx, key, out, opts...)
	})
	if err == nil {
		read.DeepCopyInto(cm) // many have it
	}
	return err
}

func (s *sharedMaps) of(key client.ObjectKey) *sharing[*corev1.ConfigMap] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key] == nil {
		if s.by == nil {
			s.by = map[client.ObjectKey]*sharing[*corev1.ConfigMap]{}
		}
		s.by[key] = &sharing[*corev1.ConfigMap]{}
	}
	return s.by[key]
}
