package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/wake"
)

// CacheOptions returns what the manager's cache must hold, and no more: nodes without what is large and not used here,
// and the VolumeAttachments. Leases are watched and not kept (package wake). Pods are never cached: they are listed
// live, of nodes that look dead.
func CacheOptions() cache.Options {
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: func(o any) (any, error) {
				if n, ok := o.(*corev1.Node); ok {
					slimNode(n)
				}
				return o, nil
			}},
			&storagev1.VolumeAttachment{}: {Transform: cache.TransformStripManagedFields()},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
	}
}

// slimNode removes from a cached Node what no code here reads. Decisions use live reads.
func slimNode(n *corev1.Node) {
	n.ManagedFields = nil
	var ours []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady || c.Type == taint.PoweredOnCondition || c.Type == taint.ProtectionCondition ||
			c.Type == taint.FenceableCondition || fence.IsExclusionCondition(c.Type) {
			ours = append(ours, c)
		}
	}
	n.Status = corev1.NodeStatus{
		Conditions: ours, VolumesInUse: n.Status.VolumesInUse, VolumesAttached: n.Status.VolumesAttached,
		NodeInfo:  corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID, SystemUUID: n.Status.NodeInfo.SystemUUID},
		Addresses: n.Status.Addresses,
	}
}

// concurrency is how many nodes are worked on at the same time. Most of them wait for a turn to write: so many that the
// gate knows the storage pods of a whole lost zone.
const concurrency = 1024

// SetupWithManager registers the reconciler, its informers' handlers and the sources of package wake. The reconciler
// runs on the leader only.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx,
		&storagev1.VolumeAttachment{}, nodeNameIndex, indexNodeName); err != nil {
		return fmt.Errorf("indexing volume attachments: %w", err)
	}
	c, err := crcontroller.New("fence", mgr, crcontroller.Options{
		Reconciler: r, MaxConcurrentReconciles: concurrency,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			50*time.Millisecond, 5*time.Second),
	})
	if err != nil {
		return fmt.Errorf("making controller: %w", err)
	}
	nodes := source.Kind(mgr.GetCache(), &corev1.Node{}, &handler.TypedEnqueueRequestForObject[*corev1.Node]{},
		predicate.TypedFuncs[*corev1.Node]{
			CreateFunc: r.onNodeAdded,
			UpdateFunc: r.onNodeUpdated,
			DeleteFunc: r.onNodeDeleted,
		})
	if err := c.Watch(nodes); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	attachments := source.Kind(mgr.GetCache(), &storagev1.VolumeAttachment{}, attachmentsGone())
	if err := c.Watch(attachments); err != nil {
		return fmt.Errorf("watching volume attachments: %w", err)
	}
	nodesToWake := make(chan event.GenericEvent)
	if err := c.Watch(source.Channel(nodesToWake, &handler.EnqueueRequestForObject{})); err != nil {
		return fmt.Errorf("waking nodes: %w", err)
	}
	if err := wake.AddTo(mgr, r.wakeOptions(nodesToWake)); err != nil {
		return err
	}
	if err := mgr.Add(r.observer); err != nil {
		return fmt.Errorf("adding the observer: %w", err)
	}
	return nil
}

// wakeOptions returns the options of this Reconciler's sources of wake-ups, which send to nodes.
func (r *Reconciler) wakeOptions(nodes chan<- event.GenericEvent) wake.Options {
	return wake.Options{
		Live:        r.Live,
		Cache:       r.Cache,
		Log:         r.Sinks.Log,
		Metrics:     r.Wakes,
		Config:      func() *wake.Config { return r.Config().Wake },
		Key:         r.Key,
		Now:         r.Now,
		Nodes:       nodes,
		Fleet:       r.WithFleet,
		KnownNodes:  r.knownNodes,
		OnHeartbeat: r.stopWrites,
		Moves:       &r.moved,
		Changes:     r.Changes,
	}
}

// coalesce is how long a fence waits for further attachments after one has gone: the attach/detach controller is at its
// busiest then, and a look at each would cost it time.
const coalesce = 100 * time.Millisecond

// attachmentsGone wakes the node of an attachment that was deleted or created. A fence waits for the deletion; updates
// before that carry no information for it.
func attachmentsGone() handler.TypedFuncs[*storagev1.VolumeAttachment, reconcile.Request] {
	node := func(va *storagev1.VolumeAttachment) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: va.Spec.NodeName}}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.TypedFuncs[*storagev1.VolumeAttachment, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*storagev1.VolumeAttachment], q queue) {
			q.Add(node(e.Object))
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*storagev1.VolumeAttachment], q queue) {
			q.AddAfter(node(e.Object), coalesce)
		},
	}
}

// onNodeAdded records a Node that is new to the watch.
func (r *Reconciler) onNodeAdded(e event.TypedCreateEvent[*corev1.Node]) bool {
	r.moved.NoteMove(r.Now())
	r.WithFleet(func(f *fleet.Fleet) { r.seeNode(f, e.Object) })
	return true
}

// onNodeDeleted records that a Node is gone.
func (r *Reconciler) onNodeDeleted(e event.TypedDeleteEvent[*corev1.Node]) bool {
	r.moved.NoteMove(r.Now())
	r.rememberGone(e.Object)
	return true
}

// onNodeUpdated passes the changes that can matter: heartbeats of a healthy node do not. It also stops pod writes on a
// node that shows life.
func (r *Reconciler) onNodeUpdated(e event.TypedUpdateEvent[*corev1.Node]) bool {
	o, n := taint.NewLook(e.ObjectOld, nil, r.Key, taint.Instant{}, taint.Instant{}),
		taint.NewLook(e.ObjectNew, nil, r.Key, taint.Instant{}, taint.Instant{})
	r.WithFleet(func(f *fleet.Fleet) {
		f.ApplyLook(n, r.Now.Instant())
		confirmation := e.ObjectNew.Annotations[taint.ConfirmAnnotation]
		if isShutDown(e.ObjectNew) && !isShutDown(e.ObjectOld) {
			f.ApplyHint(n.Name, fleet.ShutdownTaint, r.Now.Instant())
		}
		if confirmation != "" && confirmation != e.ObjectOld.Annotations[taint.ConfirmAnnotation] {
			f.ApplyHint(n.Name, fleet.Confirmation, r.Now.Instant())
		}
	})
	if n.IsReady() || n.BootID != o.BootID || n.UID != o.UID {
		r.stopWrites(n.Name)
	}
	oldStatus, oldWhy := taint.ProtectionOf(e.ObjectOld)
	status, why := taint.ProtectionOf(e.ObjectNew)
	same := status == oldStatus && why == oldWhy && o.Ready == n.Ready && o.BootID == n.BootID && o.UID == n.UID &&
		// These may lead to a machine, as may an annotation. Another annotation is the record.
		o.SystemUUID == n.SystemUUID && e.ObjectOld.Spec.ProviderID == e.ObjectNew.Spec.ProviderID &&
		maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) &&
		slices.EqualFunc(o.Taints, n.Taints, func(a, b corev1.Taint) bool {
			return a.MatchTaint(&b) && a.Value == b.Value
		}) &&
		maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) &&
		len(o.InUse) == len(n.InUse)
	if !same || !slices.Equal(e.ObjectOld.Status.Addresses, e.ObjectNew.Status.Addresses) {
		r.moved.NoteMove(r.Now())
	}
	return !same
}

// isShutDown reports whether the Node has the taint by which a cloud controller manager marks an instance that is shut
// down. It proves nothing here: it is a reason to ask.
func isShutDown(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "node.cloudprovider.kubernetes.io/shutdown" && t.Effect == corev1.TaintEffectNoSchedule
	})
}
