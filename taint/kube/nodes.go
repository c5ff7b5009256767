package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informed is a reader that can return the informer that it reads from.
type informed interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// CachedNodes returns all Nodes that c holds, in any order; the caller must not change them. It blocks until c has all
// of them. A list of them would copy each Node, some 6 MB at 5,000 nodes. If c has an informer, these are the
// informer's own objects.
func CachedNodes(ctx context.Context, c client.Reader) ([]*corev1.Node, error) {
	if c, ok := c.(informed); ok {
		informer, err := c.GetInformer(ctx, &corev1.Node{})
		if err != nil {
			return nil, fmt.Errorf("listing cached nodes: %w", err)
		}
		// Before the cache runs, an informer is empty and returns no error; List does.
		if shared, ok := informer.(toolscache.SharedInformer); ok && informer.HasSynced() {
			held := shared.GetStore().List()
			nodes := make([]*corev1.Node, len(held))
			for i := range held {
				nodes[i] = held[i].(*corev1.Node)
			}
			return nodes, nil
		}
	}
	var list corev1.NodeList
	if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing cached nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes, nil
}
