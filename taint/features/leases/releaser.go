// Package leases releases Leases whose holder ran on a machine that is proven off. So the next leader need not
// wait until they expire. It watches the Leases of the configured namespaces while this process leads. Package rule
// decides.
//
// A release is what client-go's ReleaseOnCancel writes: no holder, and a duration of one second. Nothing runs, and
// nothing is watched, unless the configuration names a namespace.
//
// It promises: a release names the UID and the resourceVersion that the watch showed before the proof, so it fails if
// the Lease was written since. A release that fails is logged and not repeated. No fence waits for one.
package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/leases/rule"
	"github.com/forcefence/forcefence/taint/kube"
)

// Options is all that a Releaser is made of. Every field is required.
type Options struct {
	REST    *rest.Config
	Rules   []rule.Rule
	Live    client.Reader // reads pods from the API server
	Nodes   client.Reader // the informer of Nodes
	Client  client.Client // writes
	Leading func() error  // nil while this process is sure to be the leader
	Log     *slog.Logger
	Now     providers.Clock
}

// Releaser follows Leases while Start runs. It is safe for concurrent use.
type Releaser struct {
	Options

	cached cache.Cache

	mu   sync.Mutex // guards what follows
	seen map[types.NamespacedName]seen
	run  context.Context // of Start; nil: it does not run
	work sync.WaitGroup  // of the proofs under way; Start waits for it
}

// seen is the last version of a Lease that the watch showed.
type seen struct {
	rule.Lease
	uid     types.UID
	version string
}

// timeout bounds the work on one proof.
const timeout = 10 * time.Second

// New makes a Releaser that follows nothing yet.
func New(o Options) (*Releaser, error) {
	within := map[string]cache.Config{}
	for _, r := range o.Rules {
		within[r.Namespace] = cache.Config{}
	}
	mapper := apimeta.NewDefaultRESTMapper(nil) // else a start would wait for the API's discovery
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	held := rest.CopyConfig(o.REST)
	kube.BoundLeases(held)
	cached, err := cache.New(held, cache.Options{
		Scheme: clientgoscheme.Scheme, Mapper: mapper, DefaultNamespaces: within,
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("making cache of Leases: %w", err)
	}
	return &Releaser{Options: o, cached: cached, seen: map[types.NamespacedName]seen{}}, nil
}

// Start follows the Leases until ctx ends. Without the right to do so it logs errors, and nothing is released.
func (r *Releaser) Start(ctx context.Context) error {
	informer, err := r.cached.GetInformer(ctx, &coordinationv1.Lease{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Leases: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.observe(o.(*coordinationv1.Lease)) },
		UpdateFunc: func(_, o any) { r.observe(o.(*coordinationv1.Lease)) },
		DeleteFunc: r.forget,
	}); err != nil {
		return fmt.Errorf("watching Leases: %w", err)
	}
	r.mu.Lock()
	r.run = ctx
	r.mu.Unlock()
	err = r.cached.Start(ctx)
	r.mu.Lock()
	r.run = nil
	r.mu.Unlock()
	r.work.Wait()
	if err != nil {
		return fmt.Errorf("watching Leases: %w", err)
	}
	return nil
}

// observe notes a version of a Lease. A version that a new list shows again keeps the time of its first sight.
func (r *Releaser) observe(l *coordinationv1.Lease) {
	now := r.Now.Instant()
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(l)
	if old, ok := r.seen[key]; ok && old.uid == l.UID && old.version == l.ResourceVersion {
		return
	}
	s := seen{
		Lease: rule.Lease{Namespace: l.Namespace, Name: l.Name, Seen: now}, uid: l.UID, version: l.ResourceVersion,
	}
	if l.Spec.HolderIdentity != nil {
		s.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		s.Renewed = l.Spec.RenewTime.Time
	}
	r.seen[key] = s
}

func (r *Releaser) forget(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if l, ok := o.(*coordinationv1.Lease); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.seen, client.ObjectKeyFromObject(l))
	}
}

// ReleaseHeld releases the Leases that processes of the proof's machine hold. It does not block.
func (r *Releaser) ReleaseHeld(p decide.Proof) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run == nil {
		return
	}
	var held []seen
	for _, s := range r.seen {
		if rule.Refusal(s.Lease, p, r.Rules, rule.Others{}) == "" {
			held = append(held, s)
		}
	}
	if len(held) == 0 {
		return
	}
	run := r.run
	r.work.Go(func() {
		ctx, cancel := context.WithTimeout(run, timeout)
		defer cancel()
		for _, s := range held {
			r.releaseOne(ctx, s, p)
		}
	})
}

// releaseOne releases a Lease, unless another object has its holder's name. It logs what became of it.
func (r *Releaser) releaseOne(ctx context.Context, s seen, p decide.Proof) {
	log := r.Log.With("lease", s.Namespace+"/"+s.Name, "holder", s.Holder, "node", p.Node)
	if why := rule.Refusal(s.Lease, p, r.Rules, r.findOthers(ctx, s, p.Node)); why != "" {
		log.Warn("Lease not released: the next leader waits until it expires", "why", why)
		return
	}
	if err := r.Leading(); err != nil {
		log.Warn("Lease not released: this process may not lead any more", "error", err)
		return
	}
	switch err := r.write(ctx, s); {
	case apierrors.IsConflict(err):
		log.Info("Lease not released: it was written since the proof")
	case err != nil:
		log.Warn("Lease not released: the next leader waits until it expires. If the right is missing, bind the role "+
			"forcefence-leases in its namespace", "error", err)
	default:
		log.Info("Lease released: its holder's machine is off")
	}
}

// findOthers looks for further objects that have the name of the Lease's holder. What cannot be read may be there.
func (r *Releaser) findOthers(ctx context.Context, s seen, node string) (o rule.Others) {
	name := rule.Process(s.Holder)
	if name != node {
		o.Node = !apierrors.IsNotFound(r.Nodes.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}))
	}
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": name})
	o.Pod = err != nil
	for _, pod := range pods.Items {
		o.Pod = o.Pod || pod.Spec.NodeName != "" && pod.Spec.NodeName != node
	}
	return o
}

// write writes the release.
func (r *Releaser) write(ctx context.Context, s seen) error {
	now := metav1.NewMicroTime(r.Now())
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.uid, "resourceVersion": s.version},
		"spec": map[string]any{
			"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now,
		},
	})
	if err != nil {
		return fmt.Errorf("encoding release: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	return r.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, body))
}
