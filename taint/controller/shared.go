package controller

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/sharing"
)

// sharedReader shares reads of ConfigMaps, which are the same for all nodes, among concurrent callers. It reads
// everything else by itself.
type sharedReader struct {
	client.Reader
	calls *sync.Map // a *sharing.Call[*corev1.ConfigMap] by each client.ObjectKey
}

// Get reads live: the read is sent after Get was called.
func (o sharedReader) Get(
	ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption,
) error {
	cm, ok := into.(*corev1.ConfigMap)
	if !ok {
		return o.Reader.Get(ctx, key, into, opts...)
	}
	call, _ := o.calls.LoadOrStore(key, &sharing.Call[*corev1.ConfigMap]{})
	ask := call.(*sharing.Call[*corev1.ConfigMap]).Ask
	read, err := ask(ctx, kube.Timeout, func(ctx context.Context) (*corev1.ConfigMap, error) {
		out := &corev1.ConfigMap{}
		return out, o.Reader.Get(ctx, key, out, opts...)
	})
	if err == nil {
		read.DeepCopyInto(cm) // other callers share it
	}
	return err
}
