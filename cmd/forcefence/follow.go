package main

import (
	"context"
	"encoding/json"
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

// resyncPeriod is how often followed nodes are compared again. Some changes, such as a new Event, do not change the
// Node.
const resyncPeriod = 10 * time.Second

// followNodes reports each node that changed, until ctx ends. f holds what was already reported. It retries while the
// API server is unavailable; a missing right ends it with an error.
func (o *statusReader) followNodes(
	ctx context.Context,
	c client.WithWatch,
	f *fleet,
	report func(view.Node) error,
) error {
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
	var events map[string][]view.Event
	var read time.Time
	printed := map[string]string{}
	for _, n := range f.Nodes {
		printed[n.Node] = nodeFingerprint(n)
	}
	reportChange := func(obj any) { // calls run one after the other
		node := obj.(*corev1.Node)
		if len(o.nodes) > 0 && !slices.Contains(o.nodes, node.Name) {
			return
		}
		at := o.now().UTC()
		if at.Sub(read) > resyncPeriod/2 {
			o.readCluster(ctx, at, func(error) {}) // what cannot be read stays as it was
			if newest, err := eventsOf(ctx, c, ""); err == nil {
				events = newest
			}
			read = at
		}
		s := view.NodeFacts{Node: node, Key: o.key, Excluded: o.describeExcluded(node), Paused: o.cluster.Paused,
			Leaderless: o.cluster.LostLeader(), Namespace: o.home, ReadsConfirmation: o.readsConfirmation(node),
			ConfigSince: o.cluster.ConfigSince(), Now: at}
		if one := view.NodeOf(s); one.State != view.StateFine {
			s.Events, s.HeldBack = events[node.Name], o.cluster.HeldBack()
			if rec, _ := taint.RecordOf(node); rec.IsOpen() {
				// A failed read was already reported with the table.
				_ = readNeedsPerson(ctx, c, &s, rec)
			}
		}
		one := view.NodeOf(s)
		if o.hooked {
			one.NoteMissingHook()
		}
		before, known := printed[node.Name]
		now := nodeFingerprint(one)
		printed[node.Name] = now
		if before == now || !known && f.Unlisted > 0 && one.State == view.StateFine {
			return // this node was not listed, and did not change
		}
		if err := report(one); err != nil {
			stop(err)
		}
	}
	informer := toolscache.NewSharedInformer(nodes, &corev1.Node{}, resyncPeriod)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
		if denialOf(err) != nil {
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

// nodeFingerprint returns what is shown of a node, without values that change only because time passes.
func nodeFingerprint(n view.Node) string {
	n.Machine.At, n.Since, n.ReadySince, n.Event = nil, nil, nil, nil
	text, _ := json.Marshal(n) // it has no value that JSON refuses
	return string(text)
}
