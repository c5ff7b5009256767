// Package follow has what controllers share that follow objects of other projects: the wait until an API server serves
// them, and the nodes about which they changed.
//
// It decides nothing, and writes nothing.
package follow

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
)

// ChangedNodes are nodes about which another object changed. It is safe for concurrent use.
type ChangedNodes struct {
	queue workqueue.TypedInterface[string]
}

// NewChangedNodes returns none.
func NewChangedNodes() ChangedNodes { return ChangedNodes{workqueue.NewTyped[string]()} }

// Add adds a node. It does not block.
func (c ChangedNodes) Add(node string) { c.queue.Add(node) }

// NotifyChanged calls notify with each node that was added, until ctx ends. Several changes of a node while notify
// blocks give one call. Changes from before the call are reported first. It may be called once.
func (c ChangedNodes) NotifyChanged(ctx context.Context, notify func(node string)) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	for {
		node, over := c.queue.Get()
		if over || ctx.Err() != nil {
			return
		}
		notify(node)
		c.queue.Done(node)
	}
}

// AwaitServed asks once per interval, and returns true once the API server serves the resource, or false once ctx ends.
// It calls report once with why it waits.
func AwaitServed(ctx context.Context, server discovery.DiscoveryInterface, resource schema.GroupVersionResource,
	interval time.Duration, report func(error)) bool {
	for reported := false; ; reported = true {
		list, err := server.ServerResourcesForGroupVersion(resource.GroupVersion().String())
		if err == nil {
			for _, r := range list.APIResources {
				if r.Name == resource.Resource {
					return true
				}
			}
			err = fmt.Errorf("the API server does not serve %s", resource.GroupResource())
		}
		if !reported {
			report(err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(interval):
		}
	}
}
