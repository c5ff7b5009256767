package controller

import (
	"context"
	"sync"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/sharing"
)

// attachedTo lists the VolumeAttachments that name the node, live. The API server cannot select them by node: whoever lists them at the same time
// shares the list of all nodes'. It is sent after it was called for, and errors are everybody's.
func (r *Reconciler) attachedTo(ctx context.Context, node string) ([]action.Attachment, error) {
	list := func(ctx context.Context) (map[string][]action.Attachment, error) {
		return kube.Attachments(ctx, r.Live)
	}
	all, err := r.attached.Ask(ctx, kube.Timeout, list)
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
	by map[client.ObjectKey]*sharing.Call[*corev1.ConfigMap]
}

// Get is a live read: it is sent after it was called for.
func (o oneForAll) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	cm, ok := into.(*corev1.ConfigMap)
	if !ok {
		return o.Reader.Get(ctx, key, into, opts...)
	}
	read, err := o.of(key).Ask(ctx, kube.Timeout, func(ctx context.Context) (*corev1.ConfigMap, error) {
		out := &corev1.ConfigMap{}
		return out, o.Reader.Get(ctx, key, out, opts...)
	})
	if err == nil {
		read.DeepCopyInto(cm) // many have it
	}
	return err
}

func (s *sharedMaps) of(key client.ObjectKey) *sharing.Call[*corev1.ConfigMap] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key] == nil {
		if s.by == nil {
			s.by = map[client.ObjectKey]*sharing.Call[*corev1.ConfigMap]{}
		}
		s.by[key] = &sharing.Call[*corev1.ConfigMap]{}
	}
	return s.by[key]
}
