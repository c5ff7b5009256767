package drainguard

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/drain"
)

// watchGuard starts to watch a guard's pods and the budgets in their namespace. It does not wait until the cache is
// synced.
func (k *Controller) watchGuard(ctx context.Context, g Guarded) (*watch, error) {
	selector, err := g.PodSelector()
	if err != nil {
		return nil, fmt.Errorf("reading selector: %w", err)
	}
	c, err := cache.New(k.REST, cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Namespaces: map[string]cache.Config{g.Namespace: {LabelSelector: selector}},
				Transform:  dropUnread,
			},
			&policyv1.PodDisruptionBudget{}: {
				Namespaces: map[string]cache.Config{g.Namespace: {}},
				Transform:  dropUnread,
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making cache: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{g: g, cache: c, cancel: cancel}
	w.done.Go(func() {
		if err := c.Start(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("Watch of a drain guard ended", "guard", g.Name, "error", err)
		}
	})
	for _, o := range []client.Object{&corev1.Pod{}, &policyv1.PodDisruptionBudget{}} {
		inf, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { k.wakeUp() }, DeleteFunc: func(any) { k.wakeUp() },
				UpdateFunc: func(before, now any) {
					if !isUnchanged(before, now) {
						k.wakeUp()
					}
				},
			})
		}
		if err != nil {
			w.stop()
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	return w, nil
}

// watchSetting starts to watch the guard's setting. If the watch fails, the full pass still reads the setting
// (fullPassEvery).
func (k *Controller) watchSetting(ctx context.Context, g Guarded) *watch {
	inf := dynamicinformer.NewFilteredDynamicInformer(k.Dynamic, g.Setting.Resource, g.Setting.Namespace, 0,
		toolscache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, g.Setting.Name).String()
		}).Informer()
	// delegatePolicy's own read reports what cannot be read. The two calls below fail only after the start.
	_ = inf.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {})
	_, _ = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.wakeUp() }, UpdateFunc: func(_, _ any) { k.wakeUp() },
		DeleteFunc: func(any) { k.wakeUp() },
	})
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{g: g, cancel: cancel}
	w.done.Go(func() { inf.RunWithContext(ctx) })
	return w
}

// dropUnread removes from a cached object what this package does not read.
func dropUnread(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		ready := slices.DeleteFunc(slices.Clone(o.Status.Conditions), func(c corev1.PodCondition) bool {
			return c.Type != corev1.PodReady
		})
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec, o.Status = corev1.PodSpec{NodeName: o.Spec.NodeName},
			corev1.PodStatus{Phase: o.Status.Phase, Conditions: ready}
	case *policyv1.PodDisruptionBudget:
		o.ManagedFields, o.Status = nil, policyv1.PodDisruptionBudgetStatus{}
	}
	return o, nil
}

// isUnchanged reports whether two states of a pod or a budget lead to the same decision.
func isUnchanged(before, now any) bool {
	switch now := now.(type) {
	case *corev1.Pod:
		before, is := before.(*corev1.Pod)
		return is && drain.SeePod(before).IsSameAs(drain.SeePod(now))
	case *policyv1.PodDisruptionBudget:
		before, is := before.(*policyv1.PodDisruptionBudget)
		return is && drain.SeeBudget(before).IsSameAs(drain.SeeBudget(now))
	}
	return false
}
