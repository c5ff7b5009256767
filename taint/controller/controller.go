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
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// Machine is what the configuration knows of one node's machine.
type Machine struct {
	Provider providers.Provider // asks with a deadline: providers/guard
	Watcher  providers.Watcher  // nil: its devices tell nothing by themselves
	Name     string             // the provider's name in the configuration
	Device   string             // provider/device, for the record; nodes behind one device share it
	Target   providers.Target
	Mode     fence.Mode
	Identity taint.Machine // as it is pinned and recorded
	Clash    taint.Clash   // with what leads other nodes to their machines
}

// Policy is the configuration in force. It is immutable: a reload makes another.
type Policy struct {
	// Machine returns the machine that a node is led to, or why no provider speaks for it. Whether it is believed: see believe.
	Machine func(*corev1.Node) (Machine, error)
	// Recorded returns the machine that an open fence began with.
	Recorded   func(*corev1.Node, taint.Machine) (Machine, error)
	Excluded   func(*corev1.Node) string // "" or why the node must be left alone
	EvictFirst labels.Selector           // pods to evict before the others
	Fence      fence.Settings
	Evict      evict.Settings
}

// Options is all that a Reconciler is made of. Every field is required but where noted.
type Options struct {
	Live    client.Reader // reads from the API server, not from a cache
	Cache   client.Reader // the informers; VolumeAttachments are indexed by NodeNameIndex
	Client  client.Client // writes; no client-side rate limit
	Events  events.EventRecorder
	Log     *slog.Logger
	Metrics *Metrics
	Policy  func() *Policy
	Leading func() error // nil while this process is sure to be the leader
	Key     string       // the mark's key
	By      string       // this process's identity in records
	Workers int          // pod writes at the same time, for all nodes; default 48 (F6)
	Now     func() time.Time
}

// Reconciler implements reconcile.Reconciler for Nodes.
type Reconciler struct {
	Options
	writer  writer
	workers chan struct{} // one token per pod write under way

	fleetMu sync.Mutex // guards fleet
	fleet   fleet.Fleet

	mu    sync.Mutex            // guards nodes and met
	nodes map[string]*nodeState // by Node name; an entry's fields are the reconcile's alone but where noted
	met   bool                  // the fleet knows the nodes that were there when this process began to lead
}

// nodeState is what this process remembers of one node. Only one Reconcile runs for a node at a time.
type nodeState struct {
	fence    fence.Memory
	evict    evict.Memory
	suspect  string    // fence.Suspicion, as last seen
	begun    time.Time // when the suspicion began, kept through the fence for the timeline
	said     string    // the last reason that was logged and sent as an Event
	state    string    // for the metric of nodes by state
	alerted  string
	answered string   // the last answer that was logged
	untold   []untold // pods that were ended and have no Event yet
	work     fence.Work
	worked   time.Time     // when a list last showed that work
	workTook time.Duration // how long its reads took
	workPods []evict.Pod   // what they listed
	oddLease bool          // it was told that the Lease's duration is out of bounds
	slow     time.Time     // when it was last told that the API server is slow
	kept     []evict.Pod
	keptAt   time.Time // when kept was listed: before the mark, or while the volume lists were cleared
	nudging  nudging

	refused    string    // why the machine of the healthy node is not believed, as told
	unbelieved time.Time // since when the machine is not believed; zero: it is
	pinAgain   time.Time // when a pin that was refused is tried again

	guard string // for the metric of nodes by protection
	batch *batch // guarded by Reconciler.mu: the pod writes under way, stopped when the node shows life
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	if o.Workers <= 0 {
		o.Workers = 48
	}
	r := &Reconciler{
		Options: o, workers: make(chan struct{}, o.Workers), nodes: map[string]*nodeState{},
	}
	r.writer = writer{client: o.Client, key: o.Key, leading: o.Leading, now: o.Now}
	return r
}

// maxSteps bounds one Reconcile; a node that needs more goes to the end of the queue.
const maxSteps = 50

// Reconcile takes a node as far as it goes without waiting. It blocks for the device's answers (bounded by their deadline) and for
// pod writes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	st := r.state(req.Name)
	res, err := r.advance(ctx, req, st)
	if after := r.nudge(ctx, req.Name, st); after > 0 && (res.RequeueAfter == 0 || after < res.RequeueAfter) {
		res.RequeueAfter = after
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
	for range maxSteps {
		after, again, err := r.step(ctx, req.Name, st)
		if err != nil {
			if ctx.Err() != nil {
				return reconcile.Result{}, nil
			}
			if errors.Is(err, errAgain) {
				continue // somebody else wrote first: look again
			}
			return reconcile.Result{}, fmt.Errorf("node %s: %w", req.Name, err)
		}
		if !again {
			return reconcile.Result{RequeueAfter: after}, nil
		}
	}
	return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
}

// meet makes all nodes known before the first is decided on: alone in a fleet that a process does not know yet it would find everybody
// else silent, and an open fence would end for that.
func (r *Reconciler) meet(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing cached nodes: %w", err)
	}
	r.across(func(f *fleet.Fleet) {
		for i := range nodes.Items {
			f.Know(nodes.Items[i].Name, r.Now())
		}
	})
	r.met = true
	return nil
}

// idle reports, from the caches alone, that there is nothing to look at: that, and once a pin, is what every healthy node costs.
func (r *Reconciler) idle(ctx context.Context, name string, st *nodeState) (idle bool, after time.Duration, err error) {
	var node corev1.Node
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return false, 0, fmt.Errorf("reading cached node: %w", err)
	} else if err != nil {
		r.forget(name, st)
		return true, 0, nil
	}
	l := taint.See(&node, nil, r.Key, r.Now(), r.Now())
	guard, why := taint.Guard(&node)
	r.setGuard(st, protection(guard, why))
	st.nudging.saw(l, guard, r.Now())
	var view fleet.View
	r.across(func(f *fleet.Fleet) {
		f.Know(name, r.Now())
		view = f.View(name, r.Now())
	})
	st.suspect = fence.Suspicion(l, view)
	r.tellOddLease(&node, st, view)
	done := l.Record == nil || l.Record.Phase == taint.PhaseDone && (l.Record.BootID != l.BootID || !l.IsReady() ||
		l.Record.Result != taint.ResultEvicted && l.Record.Result != taint.ResultReturned)
	if st.suspect != "" || l.Mark != nil || l.RecordErr != nil || !done || hasCondition(&node) {
		return false, 0, nil
	}
	r.setState(st, stateHealthy)
	r.across(func(f *fleet.Fleet) { f.Fence(name, l.Record, r.Now()) }) // only here: elsewhere a cache may be behind our own record
	st.said, st.begun, st.alerted = "", time.Time{}, ""
	return true, r.pin(ctx, &node, l, st), nil
}

// step is one turn: look, decide, act. It returns when to look again, or that it should be at once.
func (r *Reconciler) step(ctx context.Context, name string, st *nodeState) (after time.Duration, again bool, err error) {
	node, l, err := r.look(ctx, name)
	if err != nil {
		return 0, false, err
	}
	if !l.Exists {
		r.forget(name, st)
		return 0, false, nil
	}
	var view fleet.View
	r.across(func(f *fleet.Fleet) {
		f.Lease(name, l.LeaseRV, l.LeaseDuration, r.Now())
		f.Fence(name, l.Record, r.Now())
		view = f.View(name, r.Now())
	})
	st.suspect = fence.Suspicion(l, view)
	if st.begun.IsZero() && st.suspect != "" {
		st.begun = r.Now()
	}
	st.fence.Saw(l)
	st.evict.Saw(l)
	guard, _ := taint.Guard(node)
	st.nudging.saw(l, guard, r.Now())
	policy := r.Policy()
	m, belief, machineErr := policy.believe(node, l.Record, false)
	t := &turn{
		Reconciler: r, st: st, node: node, look: l, fleet: view, policy: policy, machine: m, machineErr: st.since(machineErr, r.Now()),
		noPower: belief.NoPower,
	}
	if machineErr == nil {
		if t.liar, err = r.liar(ctx, name, m); err != nil {
			return 0, false, err
		}
		t.distrusted = t.liar != ""
	}
	if l.Mark == nil {
		return t.fence(ctx)
	}
	return t.evict(ctx)
}

// turn is one look and what follows from it.
type turn struct {
	*Reconciler
	st         *nodeState
	node       *corev1.Node
	look       taint.Look
	fleet      fleet.View
	policy     *Policy
	machine    Machine
	machineErr error
	distrusted bool         // the device said Off of a machine that was on
	liar       string       // the node whose record says so
	noPower    string       // "" or why the machine's power must not be touched
	objects    []corev1.Pod // of the list that is decided on; nil: none yet
}

// ask puts the question to the machine's device, live, and folds the answer into both memories.
func (t *turn) ask(ctx context.Context) {
	var a providers.Answer
	switch {
	case t.machineErr != nil:
		a = providers.Answer{Observation: providers.Observation{At: t.Now()}, Got: t.Now(), Err: t.machineErr}
	default:
		a = providers.Ask(ctx, t.machine.Provider, t.machine.Name, t.machine.Target, t.Now)
		if t.distrusted && a.State == providers.PowerOff {
			a.State, a.Err = providers.PowerUnknown, errDistrusted
		}
	}
	t.across(func(f *fleet.Fleet) { f.Answered(t.look.Name, a) })
	t.st.fence.Answered(a)
	t.st.evict.Answered(a)
	t.logAnswer(a)
}

// errDistrusted takes an Off from a device that lied once.
var errDistrusted = fmt.Errorf("%w: the device said Off of a machine that was on", providers.ErrPermanent)

// state returns what is remembered of a node, making room for it if there is none.
func (r *Reconciler) state(name string) *nodeState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.nodes[name]
	if st == nil {
		st = &nodeState{}
		r.nodes[name] = st
	}
	return st
}

// forget drops a Node that does not exist any more. A fence that was going on ends with it: stock garbage collection takes the
// pods of a Node that is gone.
func (r *Reconciler) forget(name string, st *nodeState) {
	if rec := st.fence.Begin.Record; rec.Open() || st.state == stateEvicting || st.state == stateArmed {
		r.Log.Warn("Node was deleted in the middle of its fence", "node", name)
		r.Metrics.fences.WithLabelValues("NodeGone").Inc()
	}
	r.setState(st, "")
	r.setGuard(st, "")
	st.nudging = nudging{}
	r.across(func(f *fleet.Fleet) { f.Drop(name, r.Now()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
}

// reservePowerOff takes the turn to be powered off, unless another node has it. What records tell of others is taken from the cache
// first: a process that leads since a moment ago may not have looked at them yet.
func (r *Reconciler) reservePowerOff(ctx context.Context, name string) (bool, error) {
	var nodes corev1.NodeList
	if err := r.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing cached nodes: %w", err)
	}
	got := false
	r.across(func(f *fleet.Fleet) {
		for i := range nodes.Items {
			if rec, err := taint.RecordOf(&nodes.Items[i]); err == nil && rec.Open() && nodes.Items[i].Name != name {
				f.Fence(nodes.Items[i].Name, rec, r.Now())
			}
		}
		got = f.Reserve(name)
	})
	return got, nil
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
