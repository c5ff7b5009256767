package observe

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// Node is what was told of one node.
type Node struct {
	*Observer
	name   string
	course *decide.Node

	node      *corev1.Node // of the last look; nil: it is idle, or was not looked at
	at        time.Time    // when what is being told of happened
	suspicion string       // fleet.View.Suspicion of the last look

	gauges    gauges
	failing   failing
	openFence *taint.Record // the fence that was last seen open, until its end is reported; nil: there is none

	reason   reason.Reason // the last that was logged and sent as an Event
	alert    string        // what a person was called for
	aside    action.Aside  // why policies end nothing
	unread   string        // why claims could not be read
	answers  string        // the last that were logged
	asked    *api.Step     // the question with these answers, if no fence is open; nil: it was told
	slow     time.Time     // when it was last told that the API server is slow
	oddLease bool          // the Lease's duration is out of bounds
	refused  string        // why the machine of the healthy node is not believed
}

// Step tells of a step, once it is over. ctx is what the step ran under.
func (n *Node) Step(ctx context.Context, s decide.StepDone) {
	n.at = s.Began.Wall
	switch o := s.Outcome.(type) {
	case decide.ReadFailed:
		n.stepFailed(ctx, s.Decision, o.Err)
		return
	case decide.NodeRead:
		n.nodeRead(o)
		return
	case decide.PodsListed:
		n.tellEndedBefore(o.Pods)
		return
	case decide.VolumesRead:
		n.tellUnread(o.Unread)
		return
	case decide.AttachmentsListed:
		n.tellAttached(o.Attachments)
		return
	}
	if action.Reads(s.Decision.Action) || !s.Look.Exists {
		return
	}
	n.decided(s)
	switch o := s.Outcome.(type) {
	case nil:
		n.stepSucceeded()
		if action.Is[action.Wait](s.Decision) {
			n.tellAside(s.Decision.Aside)
		}
	case decide.DevicesAnswered:
		n.tellAnswers(o.Answers)
		if s.Look.Mark != nil {
			n.Metrics.phase("confirm", s.Ended.Sub(s.Began))
		}
	case decide.ActionDone:
		n.done(ctx, s, o)
	}
}

// nodeRead notes what a live look brought.
func (n *Node) nodeRead(o decide.NodeRead) {
	n.node = o.Node
	n.Fleet(func(f *fleet.Fleet) { n.suspicion = f.View(n.name, n.instant()).Suspicion(o.Look) })
	if o.Look.Exists {
		n.gauges.setMode(n.Metrics, o.Facts.Mode.String())
	}
}

// Seen tells what the caches say of a Node: of its hook, and of a Lease whose duration is not believed.
func (n *Node) Seen(node *corev1.Node, v fleet.View) {
	n.at = n.Now()
	status, why := taint.ProtectionOf(node)
	n.gauges.setProtection(n.Metrics, protectionLabel(status, why))
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
	n.stepSucceeded()
	if l.Record != nil { // a cache that is behind may not have it yet
		n.tellPowerOffs(node, l.Record)
	}
	n.setState(reason.StateHealthy)
	n.gauges.setMode(n.Metrics, mode.String())
	n.queue.release(n.name, true)
	n.node, n.reason, n.alert, n.aside = nil, "", "", action.Aside{}
}

// fencing are the states in which a fence is under way.
var fencing = []reason.State{
	reason.StatePoweringOff, reason.StateArmed, reason.StateEvicting, reason.StateProofLost, reason.StateStuck,
}

// Gone tells that the Node does not exist any more. A fence that was going on ends with it: stock garbage collection takes
// the pods of a Node that is gone.
func (n *Node) Gone() {
	n.at = n.Now()
	if slices.Contains(fencing, n.gauges.state) {
		n.Log.Warn("Node was deleted in the middle of its fence", "node", n.name)
		n.Metrics.fences.WithLabelValues(string(resultGone)).Inc()
	}
	if rec := n.course.Look().Record; rec.Open() {
		n.tellFence(journal.Told{Record: *rec, Gone: true})
	}
	if rec := n.openFence; rec != nil {
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(rec.NodeUID)}}
		n.sendPowerOffs(gone, rec, string(resultGone))
	}
	n.queue.drop(n.name)
	n.failing = failing{}
	n.setState("")
	n.gauges.setProtection(n.Metrics, "")
	n.gauges.setMode(n.Metrics, "")
}
