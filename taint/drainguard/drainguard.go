// Package drainguard does what package drain decides: it keeps PodDisruptionBudgets before a storage system's pods, asks for the eviction of
// replicas and takes that back, and tells what holds a drain up. Where a storage system carries a drain policy out itself, it sets that
// system's setting, and nothing else.
//
// It decides nothing. What it sees by its watches only wakes it: what takes something away (a budget, a request) it does only after a live
// look at the nodes, the pods, the budgets and the replicas has led to the same act again, and by UID and resourceVersion.
package drainguard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Guarded is one guard in force, and the storage system that it asks.
type Guarded struct {
	drain.Guard
	Adapter  *storage.Adapter      // how the system's replicas are read, live; nil where the system carries the policy out itself
	LastSeen func() storage.System // what was seen of it last; nil: nothing was
	Setting  *Setting              // the system's own, where it carries the policy out itself
}

// Setting is a storage system's own setting of a drain policy, in the field value of an object.
type Setting struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Default         drain.Policy // what it is where nobody chose
}

// Longhorn is that of Longhorn, which holds for its whole cluster. Its node controller carries it out: it owns replica.spec.evictionRequested, and writes over
// what anybody else asks.
var Longhorn = Setting{
	Resource:  schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "settings"},
	Namespace: "longhorn-system", Name: "node-drain-policy", Default: drain.BlockIfLast,
}

// Options is all that a Controller is made of. Every field is required.
type Options struct {
	REST    *rest.Config  // for the watches of pods and budgets
	Live    client.Reader // reads from the API server, not from a cache
	Cache   cache.Cache   // of Nodes
	Client  client.Client // writes
	Dynamic dynamic.Interface
	Events  events.EventRecorder
	Log     *slog.Logger
	Metrics *Metrics
	Guards  func() []Guarded // in force
	// Adapters are the storage systems of the configuration whose replicas a guard may ask to leave a node, guarded or not.
	Adapters func() []*storage.Adapter
	Leading  func() error // nil while this process is sure to be the leader
	// MayBegin reports whether the mode of a node lets anything be begun there; of an empty Node, that of the
	// configuration.
	MayBegin func(*corev1.Node) bool
	// LeftAlone returns why a pause or an exclusion forbids to begin anything on the node, or in the cluster (""). It
	// returns "" if none does, and reads live.
	LeftAlone func(ctx context.Context, node string) (string, error)
	Now       func() time.Time
}

// Controller keeps the guards. It is a Runnable of the leader.
type Controller struct {
	Options
	writer kube.Writer
	wake   chan struct{}

	// Start's goroutine alone uses these.
	watches        map[string]*watch // by the guard's name
	settingWatches map[string]*watch // of the settings that guards are delegated to, by the guard's name
	reported       map[string]string // what was told of a node, by node, guard and reason
	annotated      map[string]bool   // nodes with annotations of ours
	warned         map[string]string // what was told of a guard, or of its setting
	retry          bool              // not all is as it should be, or was seen: the next pass is due although nothing changes
	nodesListed    bool              // all Nodes were looked at once
	firstPass      time.Time         // the first pass
	swept          bool              // what guards left that are no more is gone
	leftAloneNodes map[string]bool   // in this pass: whether nothing may be begun on a node, "" for the cluster
	fullPassEvery  time.Duration     // the constant, but in tests
}

// fullPassEvery is how often everything is looked at although nothing changed: a watch may have missed something.
const fullPassEvery = 30 * time.Second

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, writer: kube.Writer{Client: o.Client, Leading: o.Leading, Now: o.Now}, wake: make(chan struct{}, 1),
		watches: map[string]*watch{}, settingWatches: map[string]*watch{}, reported: map[string]string{}, annotated: map[string]bool{}, warned: map[string]string{}, fullPassEvery: fullPassEvery,
	}
}

// watch is what is watched for one guard.
type watch struct {
	g      Guarded
	cache  cache.Cache
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// wakeUp lets the loop look at once.
func (k *Controller) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default: // it is awake already
	}
}

// warnOnce logs an error once, until it is another one or none.
func (k *Controller) warnOnce(ctx context.Context, guard, what string, err error) {
	key := guard + "\n" + what
	switch {
	case ctx.Err() != nil:
	case err == nil:
		delete(k.warned, key)
	case k.warned[key] != err.Error():
		k.warned[key] = err.Error()
		k.Log.Warn("Drain guard is hindered", "what", what, "guard", guard, "error", err)
	}
}

// sendEvent sends the Event about an object, unless another process leads by now.
func (k *Controller) sendEvent(about, related runtime.Object, why reason.Reason, action string, words ...string) {
	kube.Events{To: k.Events, Leading: k.Leading}.Send(about, related, why, action, words...)
}

// reduceNode reduces a Node. Its mode says whether guards act there.
func (k *Controller) reduceNode(n *corev1.Node) drain.Node {
	out := drain.SeeNode(n)
	out.Withdrawn = !k.MayBegin(n)
	return out
}

// leftAlone reports, once a pass, whether nothing may be begun on a node, or in the cluster (""). What cannot be read
// may say so.
func (k *Controller) leftAlone(ctx context.Context, node string) bool {
	alone, known := k.leftAloneNodes[node]
	if known {
		return alone
	}
	why, err := k.LeftAlone(ctx, node)
	k.retry = k.retry || err != nil
	if err == nil && why != "" {
		err = errors.New(why)
	}
	k.warnOnce(ctx, "", strings.TrimSuffix("A drain guard begins nothing on node "+node, " on node "), err)
	k.leftAloneNodes[node] = err != nil
	return err != nil
}
