package controller

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
)

// nodeState is what this process remembers of one node. Only one Reconcile runs for a node at a time.
type nodeState struct {
	course   course
	reporter *observe.NodeReporter
	nudging  nudgeState

	// Of the last look, for the code that executes and reports.
	node    *corev1.Node
	machine machine.Machine
	objects []corev1.Pod // of the pods that were listed, reduced by slimPods

	beginsNothing bool      // its mode begins nothing: held pods are not nudged
	releaseSlot   func()    // lets another node begin; may be called again
	unbelieved    time.Time // since when the machine is not believed; zero: it is believed
	pinAgain      time.Time // when a pin that was refused is tried again

	refusal atomic.Pointer[powerOffRefusal] // after a power-off that failed; nil: there was none

	run atomic.Pointer[atomic.Bool] // stops the run of pod writes that is under way; nil: there is none
}

// course is what is decided about a node. What comes by Apply and Next, the Recorder of Options sees.
type course struct {
	*decide.Node
	decider decide.Decider // Node, or what records it
}

// beginCourse returns the course of a node of which nothing is remembered.
func (r *Reconciler) beginCourse(name string) course {
	node := &decide.Node{}
	if r.Recorder == nil {
		return course{node, node}
	}
	return course{node, r.Recorder(name, node)}
}

// Apply implements decide.Decider.
func (c course) Apply(now providers.Instant, f decide.Fleet, o decide.Observation) {
	c.decider.Apply(now, f, o)
}

// Next implements decide.Decider.
func (c course) Next(now providers.Instant, f decide.Fleet) action.Decision {
	return c.decider.Next(now, f)
}

// objectsOf returns the listed objects of these pods.
func (st *nodeState) objectsOf(pods []action.Pod) []corev1.Pod {
	want := map[string]bool{}
	for _, p := range pods {
		want[p.UID] = true
	}
	var out []corev1.Pod
	for i := range st.objects {
		if want[string(st.objects[i].UID)] {
			out = append(out, st.objects[i])
		}
	}
	return out
}

// stopWrites stops the pod writes under way: the node shows life.
func (st *nodeState) stopWrites() {
	if stop := st.run.Load(); stop != nil {
		stop.Store(true)
	}
}

// slimPods keeps of listed pods only what is read after they are reduced to what decisions use. A node keeps them while
// it waits for its turns to write, and a thousand other nodes may do so, too.
func slimPods(list []corev1.Pod) []corev1.Pod {
	out := make([]corev1.Pod, len(list))
	for i := range list {
		p := &list[i]
		out[i].Namespace, out[i].Name, out[i].UID = p.Namespace, p.Name, p.UID
		out[i].Spec.Volumes = p.Spec.Volumes
		if cut := taint.CutParts(p); cut != "" {
			out[i].Annotations = map[string]string{taint.CutAnnotation: cut}
		}
	}
	return out
}

// work is one node, and what the work on it needs.
type work struct {
	*base

	name string
	st   *nodeState
}

// applyObservation adds what devices answered in the middle of an action to the node's course.
func (w *work) applyObservation(o decide.Observation) {
	w.WithFleet(func(f *fleet.Fleet) { w.st.course.Apply(w.Now.Instant(), f, o) })
}

// maySend returns whether the write of the course's step may be sent now, for pods and attachments of that one. It must
// be sent before the time that is returned, of the transport's clock.
func (w *work) maySend(uid string) (by providers.Instant, hold decide.Hold) {
	read := providers.Now() // before the protocol's clock: a process paused in between then has less time, not more
	within, hold := w.st.course.MaySend(uid, w.Now.Instant(), w.fleetView(w.st.course.Look().Name))
	return read.Add(within), hold
}

// withSince adds to an error how long it has lasted, which a person needs to find what changed.
func (st *nodeState) withSince(err error, now time.Time) error {
	switch {
	case !errors.Is(err, machine.ErrNotBelieved):
		st.unbelieved = time.Time{}
		return err
	case st.unbelieved.IsZero():
		st.unbelieved = now
	}
	return fmt.Errorf("%w (since %s)", err, st.unbelieved.UTC().Format(time.RFC3339))
}
