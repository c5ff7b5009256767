package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/reason"
)

// The reasons of conditions that are no reasons of package reason.
const (
	refused   = "RequestRefused"
	waiting   = "WaitingForController"
	timedOut  = "TimedOut"
	fencing   = "FenceInProgress"
	fenceDone = "FenceDone"
	broken    = "RecordUnreadable"
	isReady   = "NodeReady"
	isBack    = "NodeReadyInFence"
	recovered = "NodeRecovered"
)

// Node is what is known of a request's node.
type Node struct {
	Look taint.Look // from a cache: without a Lease
	Mode fence.Mode // that the configuration and the Node's annotation choose
	// Waits and Detail are why no fence began, by the last decision about the node; "": none was made.
	Waits  reason.Reason
	Detail string
}

// Outcome is what a request should show.
type Outcome struct {
	Node string
	// NodeUID, BootID and ReadySince are the life that the node has, and its outage; empty if a part is too long to be
	// stored, or if the outage of the request may have ended before.
	NodeUID, BootID string
	ReadySince      *metav1.Time
	Processing      metav1.Condition
	Succeeded       metav1.Condition
	// Finalizer says whether our finalizer must keep the request. Only a request that is not being deleted gets it.
	Finalizer bool
}

// Done reports whether the node's pods were moved and its mark is off.
func (o Outcome) Done() bool { return o.Succeeded.Status == metav1.ConditionTrue }

// MayReplace reports whether the owner of a Machine may replace it: power-offs were tried, and no device reported Off.
// A fault in the configuration, which many nodes share, is no reason.
func (o Outcome) MayReplace() bool {
	return o.Succeeded.Status == metav1.ConditionFalse && o.Succeeded.Reason == string(taint.ResultPowerOffFailed)
}

// OutcomeOf returns what a request should show at now. refusal is that of Refusal, node its node; nil: it names none
// that exists.
//
// Succeeded is True once a fence of the node is done, or the node is Ready again, and stays so. It is False only if
// waiting for forcefence is useless, so that NodeHealthCheck goes on with its next template.
func OutcomeOf(r *api.ForcefenceRemediation, refusal string, node *Node, now time.Time) Outcome {
	out := Outcome{}
	if node != nil {
		out.Node, out.Finalizer = node.Look.Name, node.Look.HasOwnMark()
		l := node.Look
		if len(l.UID) <= maxLifeID && len(l.BootID) <= maxLifeID && !isUnwatched(r, l.ReadySince) {
			out.NodeUID, out.BootID = l.UID, l.BootID
			if !l.ReadySince.IsZero() {
				out.ReadySince = &metav1.Time{Time: l.ReadySince}
			}
		}
		if r.DeletionTimestamp != nil {
			out.Finalizer = out.Finalizer && HasFinalizer(r)
		}
	}
	set := func(processing, succeeded metav1.ConditionStatus, why, message string) Outcome {
		out.Processing = keepTime(r, metav1.Condition{
			Type: api.Processing, Status: processing, Reason: why, Message: message}, now)
		out.Succeeded = keepTime(r, metav1.Condition{
			Type: api.Succeeded, Status: succeeded, Reason: why, Message: message}, now)
		return out
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	was := meta.FindStatusCondition(r.Status.Conditions, api.Succeeded)
	answered := was != nil && was.Status == yes
	switch {
	case answered && (was.Reason == recovered || !hasRecovered(r, node, answered)):
		return set(no, yes, was.Reason, was.Message)
	case node != nil && node.Look.RecordErr != nil:
		return set(yes, unknown, broken, "the record of the node's fence cannot be read: see forcefence status")
	case node != nil && node.Look.Record.IsOpen():
		rec, why := node.Look.Record, fencing
		// Ready may be stale under a young fence, but not if it has changed since the request was made.
		if wasBack(r) ||
			hasRecovered(r, node, answered) && node.Look.ReadySince.After(r.CreationTimestamp.Time) {
			why = isBack
		}
		return set(yes, unknown, why, fmt.Sprintf("fence %s is in phase %s", rec.ID, rec.Phase))
	case wasBack(r):
		return set(no, yes, recovered, "the node was Ready again in the middle of its fence: the request permits no "+
			"further power-off")
	case IsTimedOut(r):
		return set(no, no, timedOut, "NodeHealthCheck's time for it is over: forcefence begins no power-off")
	case node != nil && !answered && fencedFor(r, node.Look): // answered: the node is Ready since
		rec := node.Look.Record
		return set(no, yes, fenceDone, fmt.Sprintf("fence %s is done (%s), and its mark is off", rec.ID, rec.Result))
	case hasRecovered(r, node, answered):
		return set(no, yes, recovered, "the node is Ready again: the request permits no further power-off")
	case refusal != "":
		return set(no, unknown, refused, "it permits no power-off: "+refusal)
	}
	if why, text := node.cannotFence(r); why != "" {
		return set(no, no, why, text)
	}
	if node.Look.IsReady() {
		return set(yes, unknown, isReady, "the node is Ready: forcefence leaves it alone")
	}
	return set(yes, unknown, cmp.Or(string(node.Waits), waiting), describeWait(node))
}

// keepTime returns the condition with the time at which its status changed.
func keepTime(r *api.ForcefenceRemediation, c metav1.Condition, now time.Time) metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	if was := meta.FindStatusCondition(r.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	c.ObservedGeneration = r.Generation
	return c
}

// fencedFor reports whether a fence that moved the node's pods is done: in the time of the request, or before it in an
// outage that still lasts.
func fencedFor(r *api.ForcefenceRemediation, l taint.Look) bool {
	rec := l.Record
	if rec == nil || rec.Phase != taint.PhaseDone ||
		rec.Result != taint.ResultEvicted && rec.Result != taint.ResultReturned {
		return false
	}
	lasts := rec.Result == taint.ResultEvicted && l.Ready != corev1.ConditionTrue &&
		rec.NodeUID == l.UID && rec.BootID == l.BootID
	return lasts || !rec.At.Before(r.CreationTimestamp.Time)
}

// hasRecovered reports whether the outage that the request is for is over: the node is Ready, and was not when the
// request was made, or was shown last. A paused health check keeps the request, and must not permit the next power-off
// with it. One that waits for its healthyDelay does not call the node healthy yet.
func hasRecovered(r *api.ForcefenceRemediation, node *Node, answered bool) bool {
	if _, delayed := r.Annotations[healthyDelayAnnotation]; delayed || node == nil || !node.Look.IsReady() {
		return false
	}
	shown := meta.FindStatusCondition(r.Status.Conditions, api.Processing)
	waited := shown != nil && shown.Status == metav1.ConditionTrue && shown.Reason != isReady
	// The kubelet's clock wrote the one time, the API server's the other.
	return answered || waited || node.Look.ReadySince.After(r.CreationTimestamp.Time)
}

// wasBack reports whether the request shows that the outage that it is for ended in the middle of a fence.
func wasBack(r *api.ForcefenceRemediation) bool {
	shown := meta.FindStatusCondition(r.Status.Conditions, api.Processing)
	return shown != nil && shown.Reason == isBack
}

// cannotFence returns why forcefence will not fence the node, however long the request waits; "" if it may. A person's
// exclusion or release is no such reason: it means that no one touches the node, and NodeHealthCheck would go on with a
// reboot.
func (n *Node) cannotFence(r *api.ForcefenceRemediation) (why, text string) {
	rec := n.Look.Record
	failed := rec != nil && !rec.At.Before(r.CreationTimestamp.Time)
	switch {
	case !n.Mode.MayAct():
		return "Mode", fmt.Sprintf("the node's mode is %s: forcefence does nothing about it", n.Mode)
	case n.Waits == reason.PoweredOn && !n.Mode.MayPowerOff():
		return string(n.Waits), fmt.Sprintf("its machine is on, and in mode %s forcefence powers none off", n.Mode)
	case slices.Contains([]reason.Reason{reason.NoMachine, reason.Distrusted, reason.NoWork}, n.Waits):
		return string(n.Waits), describeWait(n)
	case failed && rec.Result == taint.ResultPowerOffFailed:
		return string(rec.Result), fmt.Sprintf("fence %s: no device reported Off after the power-off", rec.ID)
	case failed && rec.Result == taint.ResultNeverPoweredOff:
		return string(rec.Result), fmt.Sprintf("fence %s: a device reported Off of a machine that was on", rec.ID)
	}
	return "", ""
}

// maxText is how many bytes of a decision's detail a condition shows.
const maxText = 1024

// describeWait says what forcefence waits for.
func describeWait(n *Node) string {
	if n.Waits == "" {
		return "forcefence has not looked at the node yet"
	}
	text := "forcefence waits: " + string(n.Waits)
	if n.Detail != "" {
		text += ": " + n.Detail
	}
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
