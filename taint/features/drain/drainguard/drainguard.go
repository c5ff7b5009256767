// Package drainguard carries out what package drain decides. It keeps PodDisruptionBudgets for a storage system's pods,
// requests and cancels the eviction of replicas, and reports what holds up a drain. Where a storage system carries out
// a drain policy itself, it only sets that system's setting.
//
// It decides nothing. Its watches only wake it. It removes something (a budget, a request) by UID and resourceVersion,
// and only after a live look. That look reads the nodes, the pods, the budgets and the replicas, and must lead to the
// same act again.
package drainguard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// Guarded is one guard in force with its storage system.
type Guarded struct {
	drain.Guard
	// Adapter: reads the system's replicas live; nil where the system carries out the policy itself
	Adapter  *storage.Adapter
	LastSeen func() storage.System // returns what the watches saw last; nil: no watch follows the system
	Setting  *Setting              // the system's own setting, where it carries out the policy itself; else nil

	removed bool // the configuration does not have it any more: no operator's policy brings it back
}

// Setting is a storage system's own setting of a drain policy, in the field value of an object.
type Setting struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Default         drain.Policy // the system's default
}

// Longhorn is Longhorn's setting, which holds for its whole cluster. Longhorn's node controller carries it out: it owns
// replica.spec.evictionRequested, and overwrites what any other client requests.
var Longhorn = Setting{
	Resource:  schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "settings"},
	Namespace: "longhorn-system", Name: "node-drain-policy", Default: drain.BlockIfLast,
}

// Options is what a Controller is made of. Every field is required.
type Options struct {
	REST    *rest.Config  // for the watches of pods and budgets
	Live    client.Reader // reads from the API server, not from a cache
	Cache   cache.Cache   // of Nodes
	Client  client.Client // writes
	Dynamic dynamic.Interface
	Events  events.EventRecorder
	Log     *slog.Logger
	Metrics *Metrics
	Guards  func() []Guarded // returns the guards of the configuration in force
	// Adapters returns the configuration's storage systems whose replicas a guard may request to leave a node, guarded
	// or not.
	Adapters func() []*storage.Adapter
	Leading  func() error // returns nil while this process is sure to be the leader
	// MayBegin reports whether the mode of a node lets guards begin an act there. An empty Node asks for the
	// configuration's mode.
	MayBegin func(*corev1.Node) bool
	// LeftAlone returns why a pause or an exclusion forbids to begin an act on the node, or in the cluster (""). It
	// returns "" if none does. It reads live.
	LeftAlone func(ctx context.Context, node string) (string, error)
	// Policies reads the operators' policies for nodes live, as ParseOverrides takes them; nil: there are none. Until
	// the first read without an error, Forbidden counts as none.
	Policies func(ctx context.Context) (map[string]string, error)
	Now      func() time.Time
}

// Controller keeps the guards. It is a Runnable that runs on the leader only.
type Controller struct {
	Options
	writer kube.Writer
	wake   chan struct{}

	// Only Start's goroutine uses these.
	watches        map[string]*watch // by the guard's name
	settingWatches map[string]*watch // watches of the settings that guards are delegated to, by the guard's name
	reported       map[string]string // the oddities that were reported, by node, guard and reason
	annotated      map[string]bool   // nodes that have annotations of ours
	warned         map[string]string // the errors that were logged, by guard and attempt
	retry          bool              // work is left, or a read failed: the next pass is due although nothing changes
	nodesListed    bool              // all Nodes were listed at least once
	firstPass      time.Time         // when the first pass ran; zero: not yet
	swept          bool              // sweepLeftovers found nothing left of removed guards
	leftAloneNodes map[string]bool   // in this pass: whether to begin nothing on a node; "" is the cluster
	overrides      drain.Overrides   // the operators' policies as read last; nil: never read
	knownForAll    drain.Override    // the one of all nodes that was known last; zero: none
	overridesRead  time.Time         // when they were read; zero: never
	overridesEnd   time.Time         // when the next of them ends; zero: none will
	fullPassEvery  time.Duration     // the constant of that name; tests shorten it
}

// fullPassEvery is how often a pass runs although nothing changed: a watch may have missed something.
const fullPassEvery = 30 * time.Second

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, writer: kube.Writer{Client: o.Client, Leading: o.Leading, Now: o.Now}, wake: make(chan struct{}, 1),
		watches: map[string]*watch{}, settingWatches: map[string]*watch{}, reported: map[string]string{},
		annotated: map[string]bool{}, warned: map[string]string{}, fullPassEvery: fullPassEvery,
	}
}

// watch is the watches for one guard: its pods and budgets, or its setting (cache is nil then).
type watch struct {
	g      Guarded
	cache  cache.Cache
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// wakeUp makes the loop run a pass soon. It does not block.
func (k *Controller) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default: // it is awake already
	}
}

// warnOnce logs an error once, until the error changes or is nil.
func (k *Controller) warnOnce(ctx context.Context, guard, what string, err error) {
	key := guard + "\n" + what
	switch {
	case ctx.Err() != nil:
	case err == nil:
		delete(k.warned, key)
	case k.warned[key] != err.Error():
		k.warned[key] = err.Error()
		k.Log.Warn("Drain guard failed", "what", what, "guard", guard, "error", err)
	}
}

// sendEvent sends the Event about an object, unless this process has stopped to lead.
func (k *Controller) sendEvent(about, related runtime.Object, why reason.Reason, action string, words ...string) {
	kube.Events{To: k.Events, Leading: k.Leading}.Send(about, related, why, action, words...)
}

// reduceNode reduces a Node, apart from an operator's policy. The node's mode decides whether guards act there.
func (k *Controller) reduceNode(n *corev1.Node) drain.Node {
	out := drain.SeeNode(n)
	out.Withdrawn = !k.MayBegin(n)
	return out
}

// leftAlone reports whether to begin nothing on a node, or in the cluster (""). It reads once a pass. If the read fails
// it returns true, because what it could not read may forbid it.
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
	k.warnOnce(ctx, "", strings.TrimSuffix("Begins nothing on node "+node, " on node "), err)
	k.leftAloneNodes[node] = err != nil
	return err != nil
}
