package remediation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
)

// Reconcile finds the node of a request, wakes it if the request is new to it, and writes the request's conditions and
// finalizer. It blocks for the API server, and may be repeated.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var r api.ForcefenceRemediation
	switch err := c.cached.Get(ctx, req.NamespacedName, &r); {
	case apierrors.IsNotFound(err):
		c.setTarget(req.NamespacedName, target{})
		c.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading cached request: %w", err)
	}
	if cut := taint.CutParts(&r); cut != "" { // a write would drop what was not read
		c.Log.Warn("A request is too large, so it permits nothing", "request", req.String(), "part", cut)
		c.setTarget(req.NamespacedName, target{})
		return reconcile.Result{}, nil
	}
	machine, err := readMachine(ctx, c.live, &r)
	if err != nil { // the last answer about its Machine counts no longer
		c.setTarget(req.NamespacedName, target{})
		return reconcile.Result{}, err
	}
	name, unnamed := request.NodeNameOf(&r, machine.Machine)
	node, err := c.readNode(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen := c.watch(req.NamespacedName, &r, node)
	refusal := request.Refusal(seen, machine.Machine, node)
	c.setTarget(req.NamespacedName, target{node: name, permits: refusal == ""})
	out := request.OutcomeOf(seen, refusal, c.observe(node), c.Now())
	if err := c.Leading(); err != nil {
		return reconcile.Result{}, fmt.Errorf("not writing request %s: %w", req, err)
	}
	if err := c.write(ctx, &r, out); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.writeMachine(ctx, machine, out); err != nil {
		return reconcile.Result{}, err
	}
	if unnamed != nil || machine.Name != "" && refusal != "" { // no watch shows a change of the Machine
		return reconcile.Result{RequeueAfter: retryMachine}, nil
	}
	return reconcile.Result{}, nil
}

// readNode returns the cached Node of that name; nil: there is none.
func (c *Controller) readNode(ctx context.Context, name string) (*corev1.Node, error) {
	if name == "" {
		return nil, nil
	}
	var node corev1.Node
	switch err := c.Nodes.Get(ctx, client.ObjectKey{Name: name}, &node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading cached node: %w", err)
	}
	return &node, nil
}

func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watched, key)
}

// watch notes what the Node of a request shows, and returns the request with that.
func (c *Controller) watch(
	key types.NamespacedName, r *api.ForcefenceRemediation, node *corev1.Node,
) *api.ForcefenceRemediation {
	if node == nil {
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[key] = c.watched[key].Next(r, c.lookAt(node))
	return c.watched[key].Note(r)
}

// observe returns what is known of a node; nil: it does not exist.
func (c *Controller) observe(node *corev1.Node) *request.Node {
	if node == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.waits[node.Name]
	return &request.Node{Look: c.lookAt(node), Mode: c.Mode(node), Waits: last.why, Detail: last.detail}
}

// setTarget notes which node a request is for, and wakes the nodes for which that is new.
func (c *Controller) setTarget(key types.NamespacedName, now target) {
	c.mu.Lock()
	was := c.targets[key]
	if c.targets[key] = now; now.node == "" {
		delete(c.targets, key)
	}
	if len(c.keysOf(was.node)) == 0 {
		delete(c.waits, was.node)
	}
	c.mu.Unlock()
	if was == now {
		return
	}
	for _, node := range []string{was.node, now.node} {
		if node != "" {
			c.Add(node)
		}
	}
}

// write writes the request's finalizer and conditions, if they differ.
func (c *Controller) write(ctx context.Context, r *api.ForcefenceRemediation, out request.Outcome) error {
	rv := r.ResourceVersion
	if has := request.HasFinalizer(r); has != out.Finalizer && (has || r.DeletionTimestamp == nil) {
		list := slices.DeleteFunc(slices.Clone(r.Finalizers), func(f string) bool { return f == api.Finalizer })
		if out.Finalizer {
			list = append(list, api.Finalizer)
		}
		written, err := c.patch(ctx, r, rv, map[string]any{"metadata": map[string]any{"finalizers": list}}, false)
		if err != nil || written == nil || len(written.Finalizers) == 0 && r.DeletionTimestamp != nil {
			return err
		}
		rv = written.ResourceVersion
	}
	status := r.DeepCopy().Status
	status.Node = out.Node
	if status.NodeUID == "" {
		status.NodeUID, status.BootID = out.NodeUID, out.BootID
	}
	if out.ReadySince != nil {
		status.ReadySince = out.ReadySince
	}
	setCondition(&status.Conditions, out.Processing)
	setCondition(&status.Conditions, out.Succeeded)
	if equality.Semantic.DeepEqual(status, r.Status) {
		return nil
	}
	_, err := c.patch(ctx, r, rv, map[string]any{"status": status}, true)
	return err
}

// setCondition replaces the condition of that type, or adds it.
func setCondition(all *[]metav1.Condition, c metav1.Condition) {
	i := slices.IndexFunc(*all, func(o metav1.Condition) bool { return o.Type == c.Type })
	if i < 0 {
		*all = append(*all, c)
		return
	}
	(*all)[i] = c
}

// patch sends a merge patch of the request at that resourceVersion. It returns the request as it is then; nil: it is
// gone, or another client wrote first.
func (c *Controller) patch(
	ctx context.Context, r *api.ForcefenceRemediation, rv string, change map[string]any, status bool,
) (*api.ForcefenceRemediation, error) {
	meta, _ := change["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		change["metadata"] = meta
	}
	meta["resourceVersion"] = rv
	text, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("writing request: %w", err)
	}
	into := &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if status {
		err = c.live.Status().Patch(ctx, into, client.RawPatch(types.MergePatchType, text))
	} else {
		err = c.live.Patch(ctx, into, client.RawPatch(types.MergePatchType, text))
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the watch shows what it is by now
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("writing request %s/%s: %w", r.Namespace, r.Name, err)
	}
	return into, nil
}
