package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
)

// resyncPeriod is how often the nodes are looked at anew while they are followed: an Event changes no Node.
const resyncPeriod = 10 * time.Second

// followNodes tells of each node that is another than before, until ctx ends. What was told last is f. An API server that is away for a while is
// asked again; a right that is missing ends it.
func (o *statusReader) followNodes(ctx context.Context, c client.WithWatch, f *fleet, report func(view.Node) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	selector := func(raw metav1.ListOptions) *client.ListOptions {
		raw.LabelSelector = o.selector
		return &client.ListOptions{Raw: &raw, Limit: raw.Limit, Continue: raw.Continue}
	}
	nodes := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			l := &corev1.NodeList{}
			return l, c.List(ctx, l, selector(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &corev1.NodeList{}, selector(raw))
		},
	}
	var events map[string][]view.OwnEvent
	var read time.Time
	printed := map[string]string{}
	for _, n := range f.Nodes {
		printed[n.Node] = nodeFingerprint(n)
	}
	reportChange := func(obj any) { // one after the other
		node := obj.(*corev1.Node)
		if len(o.nodes) > 0 && !slices.Contains(o.nodes, node.Name) {
			return
		}
		s := view.NodeFacts{Node: node, Key: o.key, Now: o.now().UTC()}
		if one := view.NodeOf(s); one.State != view.StateFine {
			if s.Now.Sub(read) > resyncPeriod/2 {
				events, _ = eventsOf(ctx, c, "")
				read = s.Now
			}
			s.Event = newestEvent(events[node.Name])
			if rec, _ := taint.RecordOf(node); rec.IsOpen() {
				s.NeedsPerson, _ = readNeedsPerson(ctx, c, node.Name, rec) // what cannot be read was told with the table
			}
		}
		one := view.NodeOf(s)
		before, known := printed[node.Name]
		now := nodeFingerprint(one)
		printed[node.Name] = now
		if before == now || !known && f.Unlisted > 0 && one.State == view.StateFine {
			return // one of those that were not listed is as it was
		}
		if err := report(one); err != nil {
			stop(err)
		}
	}
	informer := toolscache.NewSharedInformer(nodes, &corev1.Node{}, resyncPeriod)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
		if missingRight(err) != "" {
			stop(fmt.Errorf("watching nodes: %w", err))
		}
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: reportChange, UpdateFunc: func(_, obj any) { reportChange(obj) },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	informer.RunWithContext(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// nodeFingerprint is what is told of a node without what passes by itself.
func nodeFingerprint(n view.Node) string {
	n.Machine.At, n.ReadySince, n.Event = nil, nil, nil
	fence := ""
	if n.Fence != nil {
		fence = fmt.Sprintf("%+v", *n.Fence)
	}
	n.Fence = nil
	return fmt.Sprintf("%+v %s", n, fence)
}
