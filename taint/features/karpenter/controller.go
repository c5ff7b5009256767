// Package karpenter works beside Karpenter. It reads the NodeClaim of a node, so that the power of a machine that
// Karpenter is deleting is left alone. If configured, it hands nodes over once their fence has ended: it deletes the
// NodeClaim, and Karpenter deletes the machine and the Node. Package claim decides.
//
// It promises: it deletes a NodeClaim only right after a live look at the machine, the Node with its Lease, and the
// NodeClaim. It first announces that on the Node as it read it, and then deletes the very version of the NodeClaim that
// it read. It never deletes a Node.
package karpenter

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/karpenter/claim"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// readTimeout bounds the live read of a NodeClaim at a look.
const readTimeout = 3 * time.Second

// retryEvery is when a node is looked at again whose hand-over was refused.
const retryEvery = 15 * time.Second

// ReadKeptOn reads live why the power of a Node's machine must be left alone, because of its NodeClaim; "": no reason.
// A NodeClaim that cannot be read is a reason. It blocks for the API server.
func ReadKeptOn(ctx context.Context, c client.Reader, m apimeta.RESTMapper, node *corev1.Node) string {
	name, _ := claim.OwnerOf(node)
	if name == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	o, err := kube.NewServedObject(m, schema.GroupKind{Group: claim.Group, Kind: claim.Kind})
	if o == nil && err == nil {
		return ""
	}
	if err == nil {
		err = c.Get(ctx, client.ObjectKey{Name: name}, o)
	}
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return fmt.Sprintf("NodeClaim %s cannot be read, and Karpenter may be deleting the machine", name)
	}
	return claim.KeptOn(node, claimOf(o))
}

// claimOf returns what a NodeClaim states.
func claimOf(o *unstructured.Unstructured) claim.Claim {
	node, _, _ := unstructured.NestedString(o.Object, "status", "nodeName")
	id, _, _ := unstructured.NestedString(o.Object, "status", "providerID")
	return claim.Claim{
		Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
		NodeName: node, ProviderID: id, Deleted: o.GetDeletionTimestamp() != nil,
	}
}

// Options is all that a Controller is made of. Every field is required.
type Options struct {
	Live    client.Reader // reads Nodes from the API server
	Nodes   cache.Cache
	Dynamic dynamic.Interface // reads and deletes NodeClaims
	Key     string            // the mark's key
	Leading func() error      // nil while this process is sure to be the leader
	MayAct  func(*corev1.Node) bool
	// LeftAlone returns why nothing may be begun on a node; "" if something may.
	LeftAlone func(ctx context.Context, node string) (string, error)
	// NoPower returns why the machine must not be powered off now, once a power-off failed; "" if it may be.
	NoPower func(taint.Look) string
	Writer  kube.Writer // writes the announcement
	Events  kube.Events
	// Ask asks the node's devices about its power, all at the same time. It blocks for them.
	Ask func(ctx context.Context, node *corev1.Node) providers.Answer
	Log *slog.Logger
	Now func() time.Time
}

// Controller hands nodes over while Start runs.
type Controller struct {
	Options

	refusals map[string]string // by node, as they were logged last; Reconcile's alone
}

// New makes a Controller that hands no node over yet.
func New(o Options) *Controller { return &Controller{Options: o, refusals: map[string]string{}} }

// Start hands nodes over until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	all, err := crcontroller.NewUnmanaged("karpenter", crcontroller.Options{
		Reconciler: c, MaxConcurrentReconciles: 1, SkipNameValidation: new(true), CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("making controller: %w", err)
	}
	if err := all.Watch(source.Kind(c.Nodes, &corev1.Node{}, &handler.TypedEnqueueRequestForObject[*corev1.Node]{},
		predicate.NewTypedPredicateFuncs(func(n *corev1.Node) bool { return claim.IsEnded(n, c.Key) }))); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	c.Log.Info("Handing nodes over to Karpenter once their fences have ended")
	return all.Start(ctx)
}

// Reconcile hands one node over, if that is allowed now. It may be repeated.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var cached corev1.Node
	err := c.Nodes.Get(ctx, req.NamespacedName, &cached)
	if err != nil || !claim.IsEnded(&cached, c.Key) {
		delete(c.refusals, req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	facts, err := c.look(ctx, &cached)
	if err != nil {
		return reconcile.Result{}, err
	}
	if facts.Claim.Deleted {
		return reconcile.Result{}, nil
	}
	if why := claim.Refusal(facts); why != "" {
		if c.refusals[req.Name] != why {
			c.Log.Info("Node not handed over to Karpenter", "node", req.Name, "why", why)
		}
		c.refusals[req.Name] = why
		return reconcile.Result{RequeueAfter: retryEvery}, nil
	}
	if err := c.Leading(); err != nil {
		return reconcile.Result{}, fmt.Errorf("not handing node %s over: %w", req.Name, err)
	}
	return reconcile.Result{}, c.handOver(ctx, facts)
}

// look asks the machine, and then reads everything else live.
func (c *Controller) look(ctx context.Context, cached *corev1.Node) (f claim.Facts, _ error) {
	f.Key, f.Power = c.Key, c.Ask(ctx, cached)
	ctx, cancel := context.WithTimeout(ctx, 2*kube.Timeout)
	defer cancel()
	var err error
	if f.LeftAlone, err = c.LeftAlone(ctx, cached.Name); err != nil {
		return f, err
	}
	var nodes corev1.NodeList
	if err := c.Nodes.List(ctx, &nodes); err != nil {
		return f, fmt.Errorf("listing cached nodes: %w", err)
	}
	for i := range nodes.Items {
		if claim.IsOfPool(&nodes.Items[i], cached) {
			f.Pool = append(f.Pool, &nodes.Items[i])
		}
	}
	name, _ := claim.OwnerOf(cached)
	o, err := c.claims().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return f, fmt.Errorf("reading NodeClaim %s live: %w", name, err)
	default:
		f.Claim = claimOf(o)
	}
	if f.Node, f.Look, err = kube.ReadNode(ctx, c.Live, cached.Name, c.Key, c.Now); err != nil {
		return f, err
	}
	if f.Node == nil {
		return f, fmt.Errorf("node %s is gone", cached.Name)
	}
	f.MayAct, f.NoPower = c.MayAct(f.Node), c.NoPower(f.Look)
	return f, nil
}

// handOver announces on the Node that its machine goes, deletes the NodeClaim as it was read, and then asks Karpenter
// not to wait. Another order could leave the annotation on a NodeClaim that lives on: a later drain of its node would
// not wait for pods.
func (c *Controller) handOver(ctx context.Context, f claim.Facts) error {
	of, node, rec := f.Claim, f.Node.Name, *f.Look.Record
	if rec.AfterFence != taint.AfterFenceHandedOver { // else the announcement succeeded, and the deletion did not
		rec.AfterFence = taint.AfterFenceHandedOver
		if err := c.Writer.WriteRecord(ctx, f.Look, rec); err != nil {
			return fmt.Errorf("announcing that node %s is handed over: %w", node, err)
		}
	}
	c.Events.Send(f.Node, nil, reason.HandedOver, "HandOver", "{detail}", "NodeClaim "+of.Name)
	uid := types.UID(of.UID)
	err := c.claims().Delete(ctx, of.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &of.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting NodeClaim %s: %w", of.Name, err)
	}
	c.Log.Info("Node handed over to Karpenter", "node", node, "nodeClaim", of.Name)
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         of.UID,
		"annotations": map[string]string{claim.TerminationAnnotation: c.Now().UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return fmt.Errorf("writing NodeClaim: %w", err)
	}
	_, err = c.claims().Patch(ctx, of.Name, types.MergePatchType, text, metav1.PatchOptions{})
	if client.IgnoreNotFound(err) != nil { // it goes in any case: Karpenter waits for pods and volumes first
		c.Log.Warn("A deleted NodeClaim cannot be annotated, so Karpenter drains its node first", "nodeClaim", of.Name,
			"error", err)
	}
	return nil
}

func (c *Controller) claims() dynamic.ResourceInterface {
	return c.Dynamic.Resource(schema.GroupVersionResource{
		Group: claim.Group, Version: claim.Version, Resource: claim.Resource})
}
