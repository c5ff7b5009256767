// Package controller drives the two pure state machines on a real cluster: it looks live, lets fence.Step or evict.Step
// decide, carries out the one action that they name, and looks again. It is the only package of the protocol that
// writes to the API server and asks devices.
//
// One Reconcile is one node. Within it a live look (a GET without resourceVersion, never the cache) precedes and
// follows every action; the informers only wake it. Every Node write carries a resourceVersion, every pod write a UID
// and a resourceVersion, and a process that may have lost its leadership sends none. What a process remembers between
// looks (nodeState) is never needed after a restart: a new leader continues from the record on the Node, with a new
// proof.
package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/wake"
)

// Reconciler implements reconcile.Reconciler for Nodes.
type Reconciler struct {
	*base

	observer  *observe.Observer
	lookSlots chan struct{} // holds one for each node on its way to its first pod write
	moved     wake.Moves    // of Nodes

	mu          sync.Mutex            // guards what follows
	nodes       map[string]*nodeState // by Node name; only Reconcile uses an entry's fields, except where noted
	gone        map[string]*goneNode  // by Node name; only Reconcile uses an entry's fields
	fleetLoaded bool                  // the fleet has the nodes and records of when this process began to lead
	limits      *fleet.Limits         // that the fleet keeps to
}

// looksAtOnce is how many nodes are on their way to their first pod write at the same time: each may be waiting for its
// own device. It bounds the reads that the API server sees at once, no matter how many nodes are worked on.
const looksAtOnce = 64

// New returns a Reconciler.
func New(o Options) *Reconciler {
	c := newBase(o)
	return &Reconciler{
		base: c, nodes: map[string]*nodeState{}, gone: map[string]*goneNode{},
		lookSlots: make(chan struct{}, looksAtOnce),
		observer: observe.New(observe.Options{
			Sinks:         o.Sinks,
			Leading:       o.Leading,
			RefusedDetach: o.RefusedDetach,
			Writing:       c.writesPods,
			Fleet:         c.WithFleet,
			Now:           o.Now,
		}),
	}
}

// maxConflicts bounds one Reconcile: a node that other clients write again and again goes to the end of the queue.
const maxConflicts = 50

// Reconcile advances a node as far as possible without waiting. It blocks until the node is one of looksAtOnce, for the
// device's answers (bounded by their deadline) and for pod writes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	st := r.stateOf(req.Name)
	r.lookSlots <- struct{}{}
	st.releaseSlot = sync.OnceFunc(func() { <-r.lookSlots })
	defer st.releaseSlot()
	res, err := r.advanceNode(ctx, req, st)
	for _, after := range []time.Duration{nudges{r.workOn(req.Name, st)}.runDueRound(ctx), r.pollInterval(req.Name)} {
		if err == nil && after > 0 && (res.RequeueAfter == 0 || after < res.RequeueAfter) { // the queue retries errors
			res.RequeueAfter = after
		}
	}
	return res, err
}

// workOn returns the work on a node.
func (r *Reconciler) workOn(name string, st *nodeState) *work {
	return &work{base: r.base, name: name, st: st}
}

// newDriver returns a driver that carries out a node's course and reports each step.
func (r *Reconciler) newDriver(ctx context.Context, name string, st *nodeState) decide.Driver {
	return decide.Driver{
		World:     newExecutor(r.workOn(name, st)),
		WithFleet: func(do func(decide.Fleet)) { r.WithFleet(func(f *fleet.Fleet) { do(f) }) },
		Now:       r.Now.Instant,
		OnStep: func(s decide.StepDone) {
			st.reporter.ReportStep(ctx, s)
			if r.Requests != nil && s.Outcome == nil {
				r.Requests.ReportDecision(name, s.Decision.Reason, s.Decision.Detail)
			}
		},
	}
}

// executor carries out decisions on one node: it is the node's decide.World, over the API server and the providers.
type executor struct {
	reads
	nodeWrites
	podWrites
	powerActions
}

func newExecutor(w *work) *executor {
	return &executor{reads{w}, nodeWrites{w}, podWrites{w}, powerActions{w}}
}

// advanceNode is Reconcile without the nudges of held pods.
func (r *Reconciler) advanceNode(ctx context.Context, req reconcile.Request, st *nodeState) (reconcile.Result, error) {
	if err := r.loadFleet(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if idle, after, err := r.checkIdle(ctx, req.Name, st); err != nil || idle {
		return reconcile.Result{RequeueAfter: after}, err
	}
	for range maxConflicts {
		after, err := decide.Drive(ctx, &st.course, r.newDriver(ctx, req.Name, st))
		switch {
		case ctx.Err() != nil:
			return reconcile.Result{}, nil
		case errors.Is(err, kube.ErrAgain): // another client wrote first: look again
			continue
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("node %s: %w", req.Name, err)
		}
		if !st.course.Look().Exists {
			r.forgetNode(req.Name, st)
		}
		r.noteRefusal(st)
		return reconcile.Result{RequeueAfter: after}, nil
	}
	return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
}

// loadFleet adds all nodes to the fleet before the first decision. In a fleet that this process has not loaded, every
// other node would count as silent, and that would end an open fence. It does so again when other limits are in force.
func (r *Reconciler) loadFleet(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	limits := r.Config().Limits
	if r.fleetLoaded && limits == r.limits {
		return nil
	}
	nodes, err := kube.CachedNodes(ctx, r.Cache)
	if err != nil {
		return err
	}
	var impossible []string
	r.WithFleet(func(f *fleet.Fleet) {
		f.SetLimits(limits)
		for _, n := range nodes {
			r.seeNode(f, n)
		}
		impossible = f.ImpossibleFloors()
	})
	for _, floor := range impossible {
		r.Sinks.Log.Warn("A floor of healthy nodes is above what a power-off can keep: no machine is powered off",
			"floor", floor)
	}
	r.fleetLoaded, r.limits = true, limits
	return nil
}

// seeNode adds a Node of a watch or a list to the fleet.
func (r *Reconciler) seeNode(f *fleet.Fleet, node *corev1.Node) {
	f.ApplyLook(taint.NewLook(node, nil, r.Key, r.Now.Instant(), r.Now.Instant()), r.Now.Instant())
}

// checkIdle reports, from the caches alone, whether there is nothing to look at: this check, and once a pin, is the
// whole cost of a healthy node.
func (r *Reconciler) checkIdle(
	ctx context.Context, name string, st *nodeState,
) (idle bool, requeueAfter time.Duration, err error) {
	var node corev1.Node
	if err := r.Cache.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return false, 0, fmt.Errorf("reading cached node: %w", err)
	} else if err != nil {
		r.forgetNode(name, st)
		after, err := r.followGone(ctx, name)
		return true, after, err
	}
	r.forgetGone(name, node.UID)
	l := taint.NewLook(&node, nil, r.Key, r.Now.Instant(), r.Now.Instant())
	status, _ := taint.ProtectionOf(&node)
	st.nudging.observeLook(l, status, r.Now())
	var view fleet.View
	r.WithFleet(func(f *fleet.Fleet) {
		f.ApplyLook(l, r.Now.Instant())
		view = f.View(name, r.Now.Instant())
	})
	st.reporter.ReportCachedNode(&node, view)
	config := r.Config()
	reported := decide.StorageReported{Policies: config.Policies, Health: config.storageHealth(name)}
	st.course.Apply(r.Now.Instant(), nil, reported)
	if !st.course.IsIdle(l, view) {
		return false, 0, nil
	}
	mode := config.Mode(&node).Mode
	st.beginsNothing = !mode.MayAct()
	st.reporter.ReportIdle(&node, l, mode)
	st.course.Apply(l.Got, nil, decide.NodeIdle{Look: l})
	st.node, st.objects = nil, nil
	if mode == fence.Disabled {
		return true, 0, nil
	}
	done, requeueAfter := pins{r.workOn(name, st)}.pinNode(ctx, &node, l)
	st.reporter.ReportPin(&node, done)
	return true, requeueAfter, nil
}

// stateOf returns what is remembered of a node, and creates it if there is none.
func (r *Reconciler) stateOf(name string) *nodeState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.nodes[name]
	if st == nil {
		st = &nodeState{releaseSlot: func() {}, course: r.beginCourse(name)}
		st.reporter = r.observer.NewNodeReporter(name, st.course.Node)
		r.nodes[name] = st
	}
	return st
}

// forgetNode drops a Node that no longer exists.
func (r *Reconciler) forgetNode(name string, st *nodeState) {
	st.reporter.ReportGone()
	st.nudging = nudgeState{}
	r.WithFleet(func(f *fleet.Fleet) { f.RemoveNode(name, r.Now.Instant()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
}

// pollInterval returns when a node is looked at next because of its storage, regardless of events; 0: there is no such
// policy, or no such Node any more. If nothing changed, it costs only reads of caches: 0.04 ms of a CPU, so that 5,000
// healthy nodes take 4 % of one (BenchmarkPoll).
func (r *Reconciler) pollInterval(node string) (every time.Duration) {
	r.mu.Lock()
	known := r.nodes[node] != nil
	r.mu.Unlock()
	if !known {
		return 0
	}
	for _, p := range r.Config().Policies {
		if p.When == policy.StorageUnhealthy && (every == 0 || p.Intervals.Poll < every) {
			every = p.Intervals.Poll
		}
	}
	return every
}

// stopWrites stops the pod writes under way on a node that shows life.
func (r *Reconciler) stopWrites(name string) {
	r.mu.Lock()
	st := r.nodes[name]
	r.mu.Unlock()
	if st != nil {
		st.stopWrites()
	}
}

// knownNodes returns the names of the nodes that were looked at.
func (r *Reconciler) knownNodes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.nodes))
}

// HeldBack returns which nodes the storm guard holds back now, how many nodes renew no Lease, and how many exist.
func (r *Reconciler) HeldBack() (held observe.HeldBack, silent, of int) {
	held = r.observer.HeldBack()
	r.WithFleet(func(f *fleet.Fleet) { silent, of = f.CountSilent(r.Now.Instant()) })
	return held, silent, of
}

// ShouldList reports whether it is time to list the nodes again, which were last listed at listed: they may have moved
// since.
func (r *Reconciler) ShouldList(listed, now time.Time) bool { return r.moved.ShouldList(listed, now) }
