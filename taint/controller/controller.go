// Package controller drives the two pure machines on a real cluster: it looks live, lets fence.Step or evict.Step decide, does the
// one act they name, and looks again. It is the only place that writes to the API server and the only one that asks devices.
//
// One Reconcile is one node. Within it every act is preceded and followed by a live look (a GET without resourceVersion, never
// the cache); the informers only wake it. Every Node write carries a resourceVersion, every pod write a UID and a
// resourceVersion, and none is sent by a process that may have lost its leadership. What a process remembers between looks
// (nodeState) is never needed after a restart: a new leader goes on where the record on the Node stands, with a new proof.
package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/recording"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/sharing"
	"github.com/forcefence/forcefence/taint/wake"
)

// Config is the configuration in force. It is immutable: a reload makes another.
type Config struct {
	Machines   machine.Finder
	Mode       func(*corev1.Node) fence.Chosen // what may be done about a node; nil: what its machine says
	Selectors  map[string]labels.Selector      // of nodes that the file names, by where it does: one that selects none is told
	Excluded   func(*corev1.Node) string       // "" or why the node must be left alone
	Elsewhere  Elsewhere                       // where else that is said
	EvictFirst labels.Selector                 // pods to evict before the others
	Fence      fence.Settings
	Evict      evict.Settings
	Policies   []policy.Policy
	Storage    []storage.System // that policies ask, by their names
	Limits     *fleet.Limits    // of the storm guard; nil: fleet.DefaultLimits
	Keep       journal.Keep     // of Fencing objects
	Wake       *wake.Config     // of what wakes nodes
}

// Options is all that a Reconciler is made of. Every field is required but where noted.
type Options struct {
	Live    client.Reader // reads from the API server, not from a cache
	Cache   client.Reader // the informers; VolumeAttachments are indexed by NodeNameIndex
	Client  client.Client // writes; no client-side rate limit
	Sinks   observe.Sinks // where people are told
	Wakes   *wake.Metrics // of what wakes nodes
	Config  func() *Config
	Leading func() error // nil while this process is sure to be the leader
	Key     string       // the mark's key
	By      string       // this process's identity in records
	Workers int          // pod writes at the same time at most, for all nodes; 0: fleet.DefaultPace (F6)
	// Storage calls tell with each node whose storage changed, until ctx ends. nil: none does.
	Storage func(ctx context.Context, tell func(node string))
	// Record takes each line of a recording of what is seen and decided, for package replay; false: it has no room. It must not block. nil: nothing
	// is recorded.
	Record func(line []byte) bool
	Now    func() time.Time
}

// Reconciler implements reconcile.Reconciler for Nodes.
type Reconciler struct {
	Options
	writer   kube.Writer
	observer *observe.Observer
	gate     *gate         // of pod writes
	batches  atomic.Int32  // runs of pod writes under way
	looks    chan struct{} // holds one of each node that is on its way to its first pod write
	pauses   sharedMaps    // of Config.Elsewhere
	moved    wake.Moves    // of Nodes

	attached sharing.Call[map[string][]action.Attachment] // all of them, by node

	fleetMu sync.Mutex // guards fleet
	fleet   fleet.Fleet

	mu    sync.Mutex            // guards what follows
	nodes map[string]*nodeState // by Node name; an entry's fields are the reconcile's alone but where noted
	met   bool                  // the fleet knows the nodes, and their records, that were there when this process began to lead

	limits *fleet.Limits // that the fleet keeps to
}

// nodeState is what this process remembers of one node. Only one Reconcile runs for a node at a time.
type nodeState struct {
	course  recording.Course
	told    *observe.Node
	nudging nudging

	// Of the last look, for those who execute and report.
	node    *corev1.Node
	machine machine.Machine
	objects []corev1.Pod // of the pods that were listed, as slimPods leaves them

	still      bool      // its mode begins nothing: held pods are not nudged
	looked     func()    // lets another node begin; may be called again
	unbelieved time.Time // since when the machine is not believed; zero: it is
	pinAgain   time.Time // when a pin that was refused is tried again

	batch *batch // guarded by Reconciler.mu: the pod writes under way, stopped when the node shows life
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{Options: o, nodes: map[string]*nodeState{}, looks: make(chan struct{}, looksAtOnce)}
	r.gate = &gate{pace: fleet.Pace{Most: o.Workers}, let: map[*fleet.Turn]chan struct{}{}}
	r.observer = observe.New(observe.Options{
		Sinks: o.Sinks, Leading: o.Leading, Writing: func() bool { return r.batches.Load() > 0 }, Fleet: r.across, Now: o.Now,
	})
	r.writer = kube.Writer{Client: o.Client, Key: o.Key, Leading: o.Leading, Now: o.Now}
	return r
}

// maxConflicts bounds one Reconcile: a node that others write to again and again goes to the end of the queue.
const maxConflicts = 50

// Reconcile takes a node as far as it goes without waiting. It blocks until it is one of looksAtOnce, for the device's answers (bounded by their
// deadline) and for pod writes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	st := r.state(req.Name)
	r.looks <- struct{}{}
	st.looked = sync.OnceFunc(func() { <-r.looks })
	defer st.looked()
	res, err := r.advance(ctx, req, st)
	for _, after := range []time.Duration{r.nudge(ctx, req.Name, st), r.poll(req.Name)} {
		if err == nil && after > 0 && (res.RequeueAfter == 0 || after < res.RequeueAfter) { // an error comes again by itself
			res.RequeueAfter = after
		}
	}
	return res, err
}

// advance is Reconcile without the nudges of held pods.
func (r *Reconciler) advance(ctx context.Context, req reconcile.Request, st *nodeState) (reconcile.Result, error) {
	if err := r.meet(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if idle, after, err := r.idle(ctx, req.Name, st); err != nil || idle {
		return reconcile.Result{RequeueAfter: after}, err
	}
	for range maxConflicts {
		after, err := decide.Drive(ctx, &st.course, r.driver(ctx, req.Name, st))
		switch {
		case err != nil && ctx.Err() != nil:
			return reconcile.Result{}, nil
		case errors.Is(err, kube.ErrAgain): // somebody else wrote first: look again
			continue
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("node %s: %w", req.Name, err)
		}
		if !st.course.Look().Exists {
			r.forget(req.Name, st)
		}
		return reconcile.Result{RequeueAfter: after}, nil
	}
	return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
}

// now is this moment by both clocks of the process.
func (r *Reconciler) now() providers.Instant { return providers.InstantOf(r.Now()) }

// idle reports, from the caches alone, that there is nothing to look at: that, and once a pin, is what every healthy node costs.
func (r *Reconciler) idle(ctx context.Context, name string, st *nodeState) (idle bool, after time.Duration, err error) {
	var node corev1.Node
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return false, 0, fmt.Errorf("reading cached node: %w", err)
	} else if err != nil {
		r.forget(name, st)
		return true, 0, nil
	}
	l := taint.See(&node, nil, r.Key, r.now(), r.now())
	status, _ := taint.ProtectionOf(&node)
	st.nudging.saw(l, status, r.Now())
	var view fleet.View
	r.across(func(f *fleet.Fleet) {
		f.See(l, r.now())
		view = f.View(name, r.now())
	})
	st.told.Seen(&node, view)
	config := r.Config()
	turn := st.course.SawStorage(config.Policies, config.health(name), r.now())
	if !decide.Idle(l, view) || st.course.Owes() || turn {
		return false, 0, nil
	}
	mode := config.ChooseMode(&node, fence.Fence).Mode
	st.still = !mode.Begins()
	st.told.Idle(&node, l, mode)
	st.course.Rest(l)
	st.node, st.objects = nil, nil
	if mode == fence.Disabled {
		return true, 0, nil
	}
	done, after := r.pin(ctx, &node, l, st)
	st.told.Pinned(&node, done)
	return true, after, nil
}

// state returns what is remembered of a node, making room for it if there is none.
func (r *Reconciler) state(name string) *nodeState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.nodes[name]
	if st == nil {
		st = &nodeState{looked: func() {}, course: recording.Course{Name: name, Tape: r.Record}}
		st.told = r.observer.Node(name, &st.course.Node)
		r.nodes[name] = st
	}
	return st
}

// forget drops a Node that does not exist any more.
func (r *Reconciler) forget(name string, st *nodeState) {
	st.told.Gone()
	st.nudging = nudging{}
	r.across(func(f *fleet.Fleet) { f.Drop(name, r.now()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
}

// newID returns the id of a fence: a label value, unique for all practical purposes.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return "f-" + hex.EncodeToString(b[:])
}

// NodeNameIndex is the cache's index of VolumeAttachments by the node they name.
const NodeNameIndex = "spec.nodeName"

// IndexNodeName is its function.
func IndexNodeName(o client.Object) []string {
	va, ok := o.(*storagev1.VolumeAttachment)
	if !ok {
		return nil
	}
	return []string{va.Spec.NodeName}
}
