// Package networkfence has storage cut nodes off by CSI-Addons' NetworkFence objects, for policies that move pods
// without a proof that their machine is off. It makes one object for each fence, notes the storage's success on it,
// and lets the node in again once its machine has booted. Package storagefence decides.
//
// Nothing runs, and nothing is watched, unless a policy names a NetworkFenceClass.
//
// It promises: an object is made only after a live read of all that decides about its addresses. Its spec is changed
// once, to let the node in. Each write carries the resourceVersion that was read.
package networkfence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/follow"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Options is all that a Controller is made of. Every field is required, except where noted.
type Options struct {
	REST    *rest.Config  // its writes are sent once (kube.SendWritesOnce)
	Live    client.Reader // reads Nodes, Leases and pods from the API server
	Nodes   client.Reader // reads Nodes from a cache
	Key     string        // the mark's key
	Leading func() error  // nil while this process is sure to be the leader
	// LeftAlone returns the pause or exclusion that forbids to begin anything on a node; "" if there is none.
	LeftAlone func(ctx context.Context, node string) (string, error)
	MayAct    func(*corev1.Node) bool // the mode of a node lets a policy begin something
	Events    kube.Events
	Log       *slog.Logger
	Now       func() time.Time
	Every     time.Duration // between two looks at the node of a fence; 0: 5 s
}

// Controller makes and ends fences. It is safe for concurrent use.
type Controller struct {
	Options
	follow.ChangedNodes // about whose fences something changed

	client client.Client
	server discovery.DiscoveryInterface

	mu       sync.Mutex        // guards reported
	reported map[string]string // by fence: what a person was last asked to do about it
}

// readTimeout bounds the live reads of a node's fences at a look.
const readTimeout = 3 * time.Second

// New makes a Controller that does nothing yet.
func New(o Options) (*Controller, error) {
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	c, err := client.New(o.REST, client.Options{Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(o.REST)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return &Controller{
		Options: o, client: c, server: server, ChangedNodes: follow.NewChangedNodes(), reported: map[string]string{},
	}, nil
}

// mapper knows the kinds without asking the API server: it may not serve them yet.
func mapper() apimeta.RESTMapper {
	m := apimeta.NewDefaultRESTMapper(nil)
	m.Add(kind, apimeta.RESTScopeRoot)
	m.Add(groupVersion.WithKind("NetworkFenceClass"), apimeta.RESTScopeRoot)
	m.Add(groupVersion.WithKind("CSIAddonsNode"), apimeta.RESTScopeNamespace)
	return m
}

// ReadFences reads live how far the storage of each policy that needs it has cut a node off, by the policies' names. It
// blocks for the API server. What cannot be read is refused.
func (c *Controller) ReadFences(
	ctx context.Context, look taint.Look, policies []policy.Policy,
) map[string]policy.StorageFence {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	out, err := FindFences(ctx, c.client, c.Nodes, look, policies)
	if err != nil {
		c.Log.Warn("The storage's fences cannot be read, so no policy ends pods by them", "node", look.Name,
			"error", err)
	}
	return out
}

// MakeFence makes what is missing of the policy's fence of a node, for the life that the look saw. The error is a
// kube.ErrAgain if nothing is missing any more.
func (c *Controller) MakeFence(ctx context.Context, look taint.Look, p policy.Policy) error {
	cluster, err := readCluster(ctx, c.client, c.Live, look, []policy.Policy{p})
	if err != nil {
		return err
	}
	state, targets := cluster.Decide(p)
	if state.State != policy.FenceAbsent {
		return fmt.Errorf("%w: the storage's fence is %s: %s", kube.ErrAgain, state.State, state.Detail)
	}
	for _, t := range targets {
		if err := c.Leading(); err != nil {
			return fmt.Errorf("creating no NetworkFence: %w", err)
		}
		o := c.newFence(look, p, t)
		if err := c.client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating NetworkFence: %w", err)
		}
		c.Log.Warn("The storage is asked to cut a node off", "node", look.Name, "policy", p.Name,
			"networkFence", o.GetName(), "class", t.Class, "cidrs", t.CIDRs)
	}
	return nil
}

// newFence returns the object of a new fence. Its name is never used again.
func (c *Controller) newFence(look taint.Look, p policy.Policy, t storagefence.Target) *unstructured.Unstructured {
	life := look.Life().Encode()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", life, t.Class, c.Now().UTC().Format(time.RFC3339Nano)))
	id := hex.EncodeToString(sum[:8])
	var cidrs []any
	for _, s := range t.CIDRs {
		cidrs = append(cidrs, s)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"networkFenceClassName": t.Class, "fenceState": storagefence.Fenced, "cidrs": cidrs,
	}}}
	o.SetGroupVersionKind(kind)
	o.SetName("forcefence-" + id)
	o.SetLabels(map[string]string{nodeUIDLabel: look.UID})
	o.SetAnnotations(map[string]string{
		nodeName: look.Name, nodeLife: life, policyName: p.Name, fenceID: id, madeWith: strings.Join(t.CIDRs, ","),
	})
	return o
}

// Start follows our fences until ctx ends. It waits until the resource is served, and says once why it waits.
func (c *Controller) Start(ctx context.Context) error {
	if !follow.AwaitServed(ctx, c.server, resource, 6*c.Every, func(err error) {
		c.Log.Warn("No storage can be asked to cut a node off: install CSI-Addons and its CustomResourceDefinitions",
			"error", err)
	}) {
		return nil
	}
	selector, err := labels.Parse(nodeUIDLabel)
	if err != nil {
		return fmt.Errorf("selecting our NetworkFences: %w", err)
	}
	cached, err := cache.New(c.REST, cache.Options{
		Mapper: mapper(), DefaultLabelSelector: selector, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("making cache: %w", err)
	}
	all, err := crcontroller.NewUnmanaged("networkfence", crcontroller.Options{
		Reconciler: c, SkipNameValidation: new(true),
		CacheSyncTimeout: math.MaxInt64, // a missing right must not end the process, which fences without these objects
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			100*time.Millisecond, c.Every),
	})
	if err != nil {
		return fmt.Errorf("making controller: %w", err)
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err := all.Watch(source.Kind(cached, o,
		&handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{})); err != nil {
		return fmt.Errorf("watching NetworkFences: %w", err)
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended.Go(func() {
		if err := cached.Start(ctx); err != nil {
			c.Log.Error("Watching NetworkFences failed", "error", err)
		}
	})
	c.Log.Info("Following NetworkFences")
	if err := all.Start(ctx); err != nil {
		c.Log.Error("Following NetworkFences failed: no node is let in until the next start", "error", err)
	}
	return nil
}

// Reconcile takes a fence of ours one step further. It blocks for the API server, and may be repeated.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	switch err := c.client.Get(ctx, req.NamespacedName, o); {
	case apierrors.IsNotFound(err):
		c.forget(req.Name)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading NetworkFence live: %w", err)
	}
	var n networkFence
	if err := decode(o, &n); err != nil {
		return reconcile.Result{}, err
	}
	f := n.fence()
	if !f.Owned {
		return reconcile.Result{}, nil
	}
	c.Add(f.Node)
	state, node, err := c.readState(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	step, why, err := c.decide(ctx, f, state)
	if err != nil {
		return reconcile.Result{}, err
	}
	if why != "" && c.isNew(f.Name, why) {
		c.Log.Warn("A node stays cut off from its storage", "node", f.Node, "why", why)
		if node != nil {
			c.Events.Send(node, nil, reason.StorageFenceKept, "FenceStorage", "{detail}", why)
		}
	}
	if step == storagefence.Keep {
		return reconcile.Result{RequeueAfter: c.Every}, nil
	}
	if err := c.Leading(); err != nil {
		return reconcile.Result{}, fmt.Errorf("not writing NetworkFence %s: %w", f.Name, err)
	}
	err = c.carryOut(ctx, step, o)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	c.Log.Info("Wrote NetworkFence", "node", f.Node, "networkFence", f.Name, "step", string(step))
	if step == storagefence.Delete && node != nil {
		c.Events.Send(node, nil, reason.StorageUnfenced, "FenceStorage", "{detail}", "NetworkFence "+f.Name)
	}
	return reconcile.Result{RequeueAfter: c.Every}, nil
}

// carryOut writes one step. The write is refused if the object has changed since.
func (c *Controller) carryOut(ctx context.Context, step storagefence.Step, o *unstructured.Unstructured) error {
	if step == storagefence.Delete {
		uid, version := o.GetUID(), o.GetResourceVersion()
		if err := c.client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
			return fmt.Errorf("deleting NetworkFence %s: %w", o.GetName(), err)
		}
		return nil
	}
	meta := map[string]any{"resourceVersion": o.GetResourceVersion()}
	patch := map[string]any{"metadata": meta}
	if step == storagefence.Confirm {
		meta["annotations"] = map[string]string{confirmedAt: c.Now().UTC().Format(time.RFC3339)}
	} else {
		patch["spec"] = map[string]any{"fenceState": storagefence.Unfenced}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("writing NetworkFence: %w", err)
	}
	if err := c.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("writing NetworkFence %s: %w", o.GetName(), err)
	}
	return nil
}

// decide decides the fence's next step. It reads the other fences only if the node could be let in.
func (c *Controller) decide(ctx context.Context, f storagefence.Fence, s storagefence.State) (
	step storagefence.Step, why string, err error) {
	if step, why = f.Next(s, nil, nil); step != storagefence.Unfence {
		return step, why, nil
	}
	all, err := ListFences(ctx, c.client)
	if err != nil {
		return step, "", err
	}
	states := map[string]storagefence.State{}
	for _, o := range f.Overlapping(all) {
		if states[o.Name], _, err = c.readState(ctx, o); err != nil {
			return step, "", err
		}
	}
	step, why = f.Next(s, all, states)
	return step, why, nil
}

// readState reads live the Node of a fence, and its pods if it may be back. node is nil if it does not exist.
func (c *Controller) readState(ctx context.Context, f storagefence.Fence) (
	s storagefence.State, node *corev1.Node, err error) {
	if !f.Confirmed { // it is withdrawn then
		if s.LeftAlone, err = c.LeftAlone(ctx, f.Node); err != nil {
			return s, nil, err
		}
	}
	node, s.Look, err = kube.ReadNode(ctx, c.Live, f.Node, c.Key, c.Now)
	if err == nil && s.Look.Exists && s.LeftAlone == "" && !c.MayAct(node) {
		s.LeftAlone = "its mode"
	}
	if err != nil || !s.Look.IsReady() {
		return s, node, err
	}
	err = kube.EachPods(ctx, c.Live, f.Node, func(page []corev1.Pod) {
		for i := range page {
			s.Ended = s.Ended || taint.IsTombstone(&page[i])
		}
	})
	return s, node, err
}

// isNew reports whether this was not reported of the fence last.
func (c *Controller) isNew(fence, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[fence] == why {
		return false
	}
	c.reported[fence] = why
	return true
}

func (c *Controller) forget(fence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reported, fence)
}
