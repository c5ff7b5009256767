package observe

import (
	"context"
	"slices"
	"time"

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

// NodeReporter reports what happens to one node. Only one goroutine may call its methods.
type NodeReporter struct {
	*subject
	states    states
	fences    fences
	answers   answers
	decisions decisions
	actions   actions

	oddLease  bool          // the Lease's duration is out of bounds
	longLease time.Duration // fleet.View.LongLease
	refused   string        // why the machine of the healthy node is not believed
}

// NewNodeReporter returns the reporter of one node. It reads the node's state, course, while it reports a step.
func (o *Observer) NewNodeReporter(name string, course *decide.Node) *NodeReporter {
	n := &NodeReporter{subject: &subject{Observer: o, name: name, course: course}}
	n.states.subject, n.fences.subject = n.subject, n.subject
	n.answers = answers{subject: n.subject, fences: &n.fences}
	n.decisions = decisions{subject: n.subject, states: &n.states, fences: &n.fences}
	n.actions = actions{subject: n.subject, states: &n.states, fences: &n.fences, answers: &n.answers}
	return n
}

// ReportStep reports a step, once it is over. ctx is the context in which the step ran.
func (n *NodeReporter) ReportStep(ctx context.Context, s decide.StepDone) {
	n.at = s.Began.Wall
	switch o := s.Outcome.(type) {
	case decide.ReadFailed:
		n.states.stepFailed(ctx, s.Decision, o.Err)
		return
	case decide.NodeRead:
		n.noteNodeRead(o)
		return
	case decide.PodsListed:
		n.fences.reportEndedBefore(o.Pods)
		return
	case decide.VolumesRead:
		n.decisions.reportUnreadClaims(o.Err)
		n.fences.reportAttached()
		return
	case decide.ClaimsRead, decide.AttachmentsListed:
		n.fences.reportAttached()
		return
	}
	if action.IsRead(s.Decision.Action) || !s.Look.Exists {
		return
	}
	n.decisions.reportStep(s)
	n.answers.reportOutOfService()
	switch o := s.Outcome.(type) {
	case nil:
		n.states.stepSucceeded()
		if action.Is[action.Wait](s.Decision) {
			n.decisions.reportAside(s.Decision.PolicyBlock)
		}
	case decide.DevicesAnswered:
		n.answers.reportAnswers(o.Answers)
		if s.Look.Mark != nil {
			n.Metrics.observePhase("confirm", s.Ended.Sub(s.Began))
		}
	case decide.ActionDone:
		n.actions.reportActionDone(ctx, s, o)
	}
}

// noteNodeRead records what a live look returned.
func (n *NodeReporter) noteNodeRead(o decide.NodeRead) {
	n.node = o.Node
	n.Fleet(func(f *fleet.Fleet) { n.suspicion = f.View(n.name, n.Now.Instant()).Suspicion(o.Look) })
	if o.Look.Exists {
		n.states.setMode(o.Facts.Mode.String())
	}
}

// ReportCachedNode reports what the caches know of a Node: its hook's protection, and a Lease with a duration out of
// bounds.
func (n *NodeReporter) ReportCachedNode(node *corev1.Node, v fleet.View) {
	n.at = n.Now()
	status, why := taint.ProtectionOf(node)
	n.states.setProtection(protectionLabel(status, why))
	if v.OddLease && !n.oddLease {
		least, most := fleet.MinDuration.String(), fleet.MaxDuration.String()
		n.Log.Warn("Lease names a duration out of bounds", "node", node.Name, "min", least, "max", most)
		n.sendEvent(n.at, node, nil, reason.OddLease, "Detect",
			"{min}", least, "{max}", most, "{default}", fleet.DefaultDuration.String())
	}
	n.oddLease = v.OddLease
	if v.LongLease != n.longLease && v.LongLease != 0 {
		n.Log.Warn("Lease names a longer duration than those of other nodes", "node", node.Name,
			"duration", v.LongLease)
		n.sendEvent(n.at, node, nil, reason.LongLease, "Detect", "{detail}", v.LongLease.String())
	}
	n.longLease = v.LongLease
}

// ReportIdle reports a healthy node that needs nothing. l is a look at the cached Node.
func (n *NodeReporter) ReportIdle(node *corev1.Node, l taint.Look, mode fence.Mode) {
	n.at = n.Now()
	n.states.stepSucceeded()
	if l.Record != nil { // a stale cache may not have it yet
		n.fences.reportPowerOffs(node, l.Record)
	}
	n.states.setState(reason.StateHealthy)
	n.states.setMode(mode.String())
	n.queue.releaseEvents(n.name, true)
	n.node = nil
	n.decisions.resetReported()
	n.answers.power, n.answers.text, n.fences.asked = "", "", nil
}

// fencing are the states in which a fence is under way.
var fencing = []reason.State{
	reason.StatePoweringOff, reason.StateArmed, reason.StateEvicting, reason.StateProofLost, reason.StateStuck,
}

// ReportGone reports that the Node no longer exists. An open fence ends with it: stock garbage collection deletes the
// pods of a Node that is gone.
func (n *NodeReporter) ReportGone() {
	n.at = n.Now()
	if slices.Contains(fencing, n.states.state) {
		n.Log.Warn("Node was deleted in the middle of its fence", "node", n.name)
		n.Metrics.fences.WithLabelValues(string(resultGone)).Inc()
	}
	if rec := n.course.Look().Record; rec.IsOpen() {
		n.reportFence(journal.Update{Record: *rec, Gone: true})
	}
	if rec := n.fences.open; rec != nil {
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(rec.NodeUID)}}
		n.fences.sendPowerOffs(gone, rec, string(resultGone))
	}
	n.queue.flushNode(n.name)
	n.states.failing = failing{}
	n.states.setState("")
	n.states.setProtection("")
	n.states.setMode("")
}
