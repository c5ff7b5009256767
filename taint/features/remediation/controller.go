// Package remediation makes forcefence a remediator of NodeHealthCheck (medik8s) and of Cluster API's
// MachineHealthChecks. It watches ForcefenceRemediation objects in the configured namespaces, reports to the reconciler
// of nodes which of them permits a power-off, and writes their conditions and finalizers. Package request decides.
//
// The objects are in this cluster, or in Cluster API's management cluster. Nothing runs, and nothing is watched, unless
// the configuration names a namespace.
//
// It promises: a request permits a power-off only while it was read live after the Node was looked at, and a watch has
// not shown since that it is gone. Until the resource is served and the watch has its first list, no request permits
// anything. Each write carries the resourceVersion that was read.
package remediation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
	"github.com/forcefence/forcefence/taint/follow"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Options is all that a Controller is made of. Every field is required, except where noted.
type Options struct {
	REST           *rest.Config // of the cluster that has the requests
	Namespaces     []string     // whose requests count
	ReplaceMachine bool         // let Cluster API replace a Machine whose node cannot be fenced
	Nodes          cache.Cache  // of this cluster
	Mode           func(*corev1.Node) fence.Mode
	Key            string       // the mark's key
	Leading        func() error // nil while this process is sure to be the leader
	Log            *slog.Logger
	Now            func() time.Time
	ServedEvery    time.Duration // between two questions whether the resource is served; 0: 30 s
}

// Controller follows requests while Start runs. It is safe for concurrent use.
type Controller struct {
	Options
	follow.ChangedNodes // about which a request changed

	live   client.Client // reads and writes requests and Machines
	cached cache.Cache   // of requests
	server discovery.DiscoveryInterface

	mu      sync.Mutex                                              // guards what follows
	targets map[types.NamespacedName]target                         // of all requests
	waits   map[string]decision                                     // by node
	watched map[types.NamespacedName]request.Watched                // of all requests
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request] // of Start; nil: it does not run
}

// target is the node that a request is for.
type target struct {
	node    string // "": it names none
	permits bool   // it permits a power-off, as it was read last
}

// decision is what was decided last about a node.
type decision struct {
	why    reason.Reason
	detail string
}

// retryMachine is when a request is read again whose Machine or Node no watch shows.
const retryMachine = 15 * time.Second

// readTimeout bounds the live reads of a request and its Machine at a look.
const readTimeout = 3 * time.Second

// maxReads is how many requests a look at a node reads.
const maxReads = 8

// New makes a Controller that follows nothing yet.
func New(o Options) (*Controller, error) {
	if o.ServedEvery <= 0 {
		o.ServedEvery = 30 * time.Second
	}
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("naming types: %w", err)
	}
	// The resources may not be served yet, so nothing here asks the API's discovery for them.
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(api.GroupVersion.WithKind(api.Kind), apimeta.RESTScopeNamespace)
	mapper.Add(machineVersion.WithKind("Machine"), apimeta.RESTScopeNamespace)
	o.REST = rest.CopyConfig(o.REST)
	kube.BoundRequests(o.REST, api.Resource.Resource)
	live, err := client.New(o.REST, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	within := map[string]cache.Config{}
	for _, n := range o.Namespaces {
		within[n] = cache.Config{}
	}
	cached, err := cache.New(o.REST, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultNamespaces: within,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("making cache: %w", err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(o.REST)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return &Controller{
		Options: o, live: live, cached: cached, server: server, ChangedNodes: follow.NewChangedNodes(),
		targets: map[types.NamespacedName]target{}, waits: map[string]decision{},
		watched: map[types.NamespacedName]request.Watched{},
	}, nil
}

// Start follows the requests until ctx ends. It waits until the resource is served, and says once why it waits.
func (c *Controller) Start(ctx context.Context) error {
	if !follow.AwaitServed(ctx, c.server, api.Resource, c.ServedEvery, func(err error) {
		c.Log.Warn("No request counts, because ForcefenceRemediations are not served: install their "+
			"CustomResourceDefinition where remediation.kubeconfig leads, or in this cluster", "error", err)
	}) {
		return nil
	}
	all, err := crcontroller.NewUnmanaged("remediation", crcontroller.Options{
		Reconciler: c, MaxConcurrentReconciles: 4, SkipNameValidation: new(true),
		CacheSyncTimeout: math.MaxInt64, // a missing right must not end the process, which fences without requests
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			100*time.Millisecond, retryMachine),
	})
	if err != nil {
		return fmt.Errorf("making controller: %w", err)
	}
	for _, from := range []source.Source{
		source.Func(c.keepQueue),
		source.Kind(c.cached, &api.ForcefenceRemediation{},
			&handler.TypedEnqueueRequestForObject[*api.ForcefenceRemediation]{}),
		source.Kind(c.Nodes, &corev1.Node{}, handler.TypedEnqueueRequestsFromMapFunc(c.requestsOf),
			predicate.TypedFuncs[*corev1.Node]{UpdateFunc: c.nodeChanged}),
	} {
		if err := all.Watch(from); err != nil {
			return fmt.Errorf("watching requests: %w", err)
		}
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended.Go(func() {
		if err := c.cached.Start(ctx); err != nil {
			c.Log.Error("Watching ForcefenceRemediations failed", "error", err)
		}
	})
	c.Log.Info("Following ForcefenceRemediations", "namespaces", c.Namespaces)
	if err := all.Start(ctx); err != nil {
		c.Log.Error("Following ForcefenceRemediations failed: no request counts until the next start", "error", err)
		c.mu.Lock()
		clear(c.targets)
		c.mu.Unlock()
	}
	return nil
}

// keepQueue keeps the controller's queue for ReportDecision.
func (c *Controller) keepQueue(
	_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request],
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = q
	return nil
}

// ReportDecision notes what was decided last about a node, and shows it on the requests for that node.
func (c *Controller) ReportDecision(node string, why reason.Reason, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := c.keysOf(node)
	now := decision{why, detail}
	if len(keys) == 0 {
		delete(c.waits, node)
		return
	}
	if c.waits[node].why == why { // a detail may count seconds
		return
	}
	c.waits[node] = now
	for _, key := range keys {
		if c.queue != nil {
			c.queue.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// keysOf returns the requests for a node, in their order. The caller holds mu.
func (c *Controller) keysOf(node string) (out []types.NamespacedName) {
	for key, t := range c.targets {
		if t.node == node && node != "" {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// requestsOf returns the requests for a Node.
func (c *Controller) requestsOf(_ context.Context, node *corev1.Node) (out []reconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.keysOf(node.Name) {
		out = append(out, reconcile.Request{NamespacedName: key})
	}
	return out
}

// nodeChanged reports whether a Node changed in what a request shows.
func (c *Controller) nodeChanged(e event.TypedUpdateEvent[*corev1.Node]) bool {
	o, n := c.lookAt(e.ObjectOld), c.lookAt(e.ObjectNew)
	return o.UID != n.UID || o.BootID != n.BootID || o.Ready != n.Ready || !o.ReadySince.Equal(n.ReadySince) ||
		o.HasOwnMark() != n.HasOwnMark() ||
		e.ObjectOld.Spec.ProviderID != e.ObjectNew.Spec.ProviderID ||
		!maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations)
}

func (c *Controller) lookAt(node *corev1.Node) taint.Look {
	return taint.NewLook(node, nil, c.Key, taint.Instant{}, taint.Instant{})
}

// ReadRequest reads live which request permits to power off the machine of a Node that was just looked at; "": none
// does.
func (c *Controller) ReadRequest(ctx context.Context, node *corev1.Node) string {
	keys := c.keysToRead(node.Name)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for _, key := range keys {
		var r api.ForcefenceRemediation
		var machine machine
		err := c.live.Get(ctx, key, &r)
		if err == nil {
			machine, err = readMachine(ctx, c.live, &r)
		}
		switch {
		case err == nil && request.Refusal(&r, machine.Machine, node) == "":
			return describe(key)
		case client.IgnoreNotFound(err) != nil:
			c.Log.Warn("A request cannot be read, so it permits nothing", "request", key.String(), "error", err)
		}
	}
	return ""
}

// keysToRead returns the requests for a node that are worth a live read: first those that permitted when they were read
// last, and of the others a few.
func (c *Controller) keysToRead(node string) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := c.keysOf(node)
	slices.SortStableFunc(keys, func(a, b types.NamespacedName) int {
		switch {
		case c.targets[a].permits == c.targets[b].permits:
			return 0
		case c.targets[a].permits:
			return -1
		}
		return 1
	})
	return keys[:min(len(keys), maxReads)]
}

// describe names a request, for a person.
func describe(key types.NamespacedName) string { return api.Kind + " " + key.String() }

// CachedRequest returns which request permits to power off the machine of a Node, as watches have shown them; "": none
// does. A request whose Machine was not read again counts as it did then.
func (c *Controller) CachedRequest(node *corev1.Node) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.keysOf(node.Name) {
		var r api.ForcefenceRemediation
		if !c.targets[key].permits || c.cached.Get(context.Background(), key, &r) != nil {
			continue
		}
		owner, _ := request.OwnerOf(&r)
		if r.DeletionTimestamp == nil && !request.IsTimedOut(&r) &&
			(owner != "" || request.Refusal(&r, request.Machine{}, node) == "") {
			return describe(key)
		}
	}
	return ""
}
