package drainguard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/kube"
)

// readView reads pods and budgets from c, and reduces them and the nodes to a View without Storage. The nodes have the
// operators' policies of this pass.
func (k *Controller) readView(
	ctx context.Context,
	c client.Reader,
	g Guarded,
	nodes *corev1.NodeList,
) (drain.View, error) {
	v := drain.View{Guard: g.Guard, Nodes: map[string]drain.Node{}}
	for i := range nodes.Items {
		n := k.reduceNode(&nodes.Items[i])
		if _, o, ok := k.overrides.Find(nodes.Items[i].Name, k.Now()); ok && !g.removed {
			n.Policy = o.Policy
		}
		v.Nodes[nodes.Items[i].Name] = n
	}
	selector, err := g.PodSelector()
	if err != nil {
		return v, fmt.Errorf("reading selector: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods,
		client.InNamespace(g.Namespace), client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy,
	); err != nil {
		return v, fmt.Errorf("listing storage pods: %w", err)
	}
	for i := range pods.Items {
		v.Pods = append(v.Pods, drain.SeePod(&pods.Items[i]))
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &budgets, client.InNamespace(g.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return v, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range budgets.Items {
		v.Budgets = append(v.Budgets, drain.SeeBudget(&budgets.Items[i]))
	}
	return v, nil
}

// readLive reads everything that a guard's decision depends on from the API server. It blocks for at most kube.Timeout.
func (k *Controller) readLive(ctx context.Context, g Guarded) (drain.View, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	// The replicas first: a node that is cordoned afterwards is still seen as cordoned.
	system, err := readSystem(ctx, k.Dynamic, g.Adapter)
	if err != nil && g.Policy != drain.AlwaysAllow { // AlwaysAllow needs no replicas
		return drain.View{}, err
	}
	var nodes corev1.NodeList
	if err := k.Live.List(ctx, &nodes); err != nil {
		return drain.View{}, fmt.Errorf("listing nodes live: %w", err)
	}
	v, err := k.readView(ctx, k.Live, g, &nodes)
	v.Storage = system
	return v, err
}

// readSystem reads all kinds of a storage system live, except volumes.
func readSystem(ctx context.Context, c dynamic.Interface, a *storage.Adapter) (storage.System, error) {
	s := storage.NewState(a)
	for _, kind := range storage.Kinds {
		res, has := a.ResourceOf(kind)
		if !has || kind == storage.Volumes { // no drain needs the health of volumes
			continue
		}
		list, err := c.Resource(res).Namespace(a.Spec.Namespace).List(ctx, metav1.ListOptions{})
		if a.Spec.Namespace != "" && apierrors.IsNotFound(err) { // the resource is not namespaced
			list, err = c.Resource(res).List(ctx, metav1.ListOptions{})
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s live: %w", res.Resource, err)
		}
		objects := make([]*unstructured.Unstructured, len(list.Items))
		for i := range list.Items {
			objects[i] = &list.Items[i]
		}
		s.Replace(kind, objects)
	}
	if _, has := a.ResourceOf(storage.Volumes); has {
		s.Replace(storage.Volumes, nil)
	}
	return s, nil
}

func resourceClient(c dynamic.Interface, p storage.Patch) dynamic.ResourceInterface {
	if p.Namespace == "" {
		return c.Resource(p.Resource)
	}
	return c.Resource(p.Resource).Namespace(p.Namespace)
}
