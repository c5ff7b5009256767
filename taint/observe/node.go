package observe

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// Node tells of one node. Only one goroutine may call its methods.
type Node struct {
	*subject
	states    states
	fences    fences
	answers   answers
	decisions decisions
	actions   actions

	oddLease bool   // the Lease's duration is out of bounds
	refused  string // why the machine of the healthy node is not believed
}

// Node returns what tells of one node. Its course is read while a step of it is told.
func (o *Observer) Node(name string, course *decide.Node) *Node {
	n := &Node{subject: &subject{Observer: o, name: name, course: course}}
	n.states.subject, n.fences.subject = n.subject, n.subject
	n.answers = answers{subject: n.subject, fences: &n.fences}
	n.decisions = decisions{subject: n.subject, states: &n.states, fences: &n.fences}
	n.actions = actions{subject: n.subject, states: &n.states, fences: &n.fences, answers: &n.answers}
	return n
}

// Step tells of a step, once it is over. ctx is what the step ran under.
func (n *Node) Step(ctx context.Context, s decide.StepDone) {
	n.at = s.Began.Wall
	switch o := s.Outcome.(type) {
	case decide.ReadFailed:
		n.states.stepFailed(ctx, s.Decision, o.Err)
		return
	case decide.NodeRead:
		n.nodeRead(o)
		return
	case decide.PodsListed:
		n.fences.tellEndedBefore(o.Pods)
		return
	case decide.VolumesRead:
		n.decisions.tellUnread(o.Unread)
		return
	case decide.AttachmentsListed:
		n.fences.tellAttached(o.Attachments)
		return
	}
	if action.Reads(s.Decision.Action) || !s.Look.Exists {
		return
	}
	n.decisions.tell(s)
	switch o := s.Outcome.(type) {
	case nil:
		n.states.stepSucceeded()
		if action.Is[action.Wait](s.Decision) {
			n.decisions.tellAside(s.Decision.Aside)
		}
	case decide.DevicesAnswered:
		n.answers.tellAnswers(o.Answers)
		if s.Look.Mark != nil {
			n.Metrics.phase("confirm", s.Ended.Sub(s.Began))
		}
	case decide.ActionDone:
		n.actions.tell(ctx, s, o)
	}
}

// nodeRead notes what a live look brought.
func (n *Node) nodeRead(o decide.NodeRead) {
	n.node = o.Node
	n.Fleet(func(f *fleet.Fleet) { n.suspicion = f.View(n.name, n.instant()).Suspicion(o.Look) })
	if o.Look.Exists {
		n.states.setMode(o.Facts.Mode.String())
	}
}

// Seen tells what the caches say of a Node: of its hook, and of a Lease whose duration is not believed.
func (n *Node) Seen(node *corev1.Node, v fleet.View) {
	n.at = n.Now()
	status, why := taint.ProtectionOf(node)
	n.states.setProtection(protectionLabel(status, why))
	if v.OddLease && !n.oddLease {
		least, most := fleet.MinDuration.String(), fleet.MaxDuration.String()
		n.Log.Warn("Lease names a duration out of bounds", "node", node.Name, "min", least, "max", most)
		n.event(n.at, node, nil, reason.OddLease, "Detect",
			"{min}", least, "{max}", most, "{default}", fleet.DefaultDuration.String())
	}
	n.oddLease = v.OddLease
}

// Idle tells of a healthy node, about which nothing is to be done. l is a look at the cached node.
func (n *Node) Idle(node *corev1.Node, l taint.Look, mode fence.Mode) {
	n.at = n.Now()
	n.states.stepSucceeded()
	if l.Record != nil { // a cache that is behind may not have it yet
		n.fences.tellPowerOffs(node, l.Record)
	}
	n.states.setState(reason.StateHealthy)
	n.states.setMode(mode.String())
	n.queue.release(n.name, true)
	n.node = nil
	n.decisions.reset()
}

// fencing are the states in which a fence is under way.
var fencing = []reason.State{
	reason.StatePoweringOff, reason.StateArmed, reason.StateEvicting, reason.StateProofLost, reason.StateStuck,
}

// Gone tells that the Node does not exist any more. A fence that was going on ends with it: stock garbage collection takes
// the pods of a Node that is gone.
func (n *Node) Gone() {
	n.at = n.Now()
	if slices.Contains(fencing, n.states.state) {
		n.Log.Warn("Node was deleted in the middle of its fence", "node", n.name)
		n.Metrics.fences.WithLabelValues(string(resultGone)).Inc()
	}
	if rec := n.course.Look().Record; rec.Open() {
		n.tellFence(journal.Told{Record: *rec, Gone: true})
	}
	if rec := n.fences.open; rec != nil {
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(rec.NodeUID)}}
		n.fences.sendPowerOffs(gone, rec, string(resultGone))
	}
	n.queue.drop(n.name)
	n.states.failing = failing{}
	n.states.setState("")
	n.states.setProtection("")
	n.states.setMode("")
}
