package observe

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// done tells of an action that is over.
func (n *Node) done(ctx context.Context, s decide.StepDone, o decide.ActionDone) {
	d := s.Decision
	n.tellDone(s, o)
	n.tellPart(s, o.Err)
	n.tellStep(s, o)
	switch {
	case action.Is[action.PowerOff](d) || action.Is[action.PowerOn](d):
	case o.Err != nil:
		n.stepFailed(ctx, d, o.Err)
	default:
		if writesRecord(d.Action) {
			n.tellWritten(d)
		}
		n.stepSucceeded()
		if phase := phases[action.Name(d.Action)]; phase != "" {
			n.Metrics.phase(phase, s.Ended.Sub(s.Began))
		}
	}
}

// tellDone tells what an action did.
func (n *Node) tellDone(s decide.StepDone, o decide.ActionDone) {
	l, log := s.Look, n.Log.With("node", n.name, "fence", s.Look.Record.IDOr(""))
	for _, all := range o.Writes.Asked {
		n.tellAnswers(all)
	}
	switch a := s.Decision.Action.(type) {
	case action.ClearVolumes:
		if o.Err == nil {
			log.Info("Cleared volume lists", "policy", a.Policy,
				"inUse", len(l.InUse)-len(a.InUse), "attached", len(l.Attached)-len(a.Attached))
		}
	case action.PowerOff:
		tellPower(log, o.Power, "Sent power-off", "Power-off was not sent", "Power-off was not accepted")
	case action.PowerOn:
		tellPower(log, o.Power, "Sent power-on", "Power-on was not sent", "Power-on was not accepted")
	case action.DeleteAttachments:
		tellUnwritten(log, s.Decision.Action, o.Writes)
		for _, one := range a.Attachments {
			if o.Writes.Made[one.UID] {
				log.Warn("Deleted volume attachment", "attachment", one.Name, "volume", one.PV, "policy", a.Policy)
			}
		}
	case action.Tombstone, action.Delete, action.Spare, action.SetNotReady:
		tellUnwritten(log, s.Decision.Action, o.Writes)
		n.tellPods(log, a, slices.DeleteFunc(slices.Clone(action.PodsOf(a)), func(p action.Pod) bool {
			return !o.Writes.Made[p.UID]
		}))
	}
}

// tellPower tells how each device took a power action.
func tellPower(log *slog.Logger, by []decide.PowerSent, sent, late, refused string) {
	for _, d := range by {
		log := log.With("device", d.Device)
		switch {
		case d.Late:
			log.Warn(late, "error", d.Err)
		case d.Err != nil:
			log.Error(refused, "error", d.Err)
		default:
			log.Info(sent)
		}
	}
}

// tellUnwritten tells of writes of pods or attachments that were not made.
func tellUnwritten(log *slog.Logger, a action.Action, w decide.Writes) {
	of := len(action.PodsOf(a)) + len(action.AttachmentsOf(a))
	if w.Failed > 0 {
		log.Warn("Could not write some pods or attachments", "policy", action.PolicyOf(a), "act", action.Name(a),
			"failed", w.Failed, "of", of, "first", w.First)
	}
	if w.Crowded > 0 {
		log.Warn("The API server has no room for some writes of pods or attachments", "act", action.Name(a),
			"refused", w.Crowded, "of", of)
	}
	if w.Stopped {
		log.Warn("Stopped: the node shows life, or its machine is no longer proven off")
	}
}

// tellPods tells of pods that were written.
func (n *Node) tellPods(log *slog.Logger, a action.Action, pods []action.Pod) {
	if !action.OfPolicy(a) {
		n.tellFencePods(a, pods)
	}
	log = log.With("pods", len(pods))
	policy := action.PolicyOf(a)
	switch a.(type) {
	case action.Spare:
		log.Info("Spared pods")
	case action.Delete:
		log.Info("Deleted pods")
	case action.SetNotReady:
		log.Info("Set pods not ready")
	default:
		if policy != "" {
			log.Warn("Ended pods without proof", "policy", policy)
			for _, p := range pods {
				n.event(n.at, podRef(p), n.node, reason.PolicyEnded, "Evict", "{node}", n.name, "{detail}", policy)
			}
			return
		}
		log.Info("Ended pods")
		for _, p := range pods {
			n.queuePodEvent(p, reason.Fenced,
				"{node}", n.name, "{detail}", n.course.Said(), "{fence}", n.course.Look().Record.ID)
		}
	}
}

// queuePodEvent has an Event about a pod sent once the fence is over.
func (n *Node) queuePodEvent(p action.Pod, why reason.Reason, words ...string) {
	node, at := n.node, n.at
	n.queue.add(n.name, true, func() { n.event(at, podRef(p), node, why, "Evict", words...) })
}

func podRef(p action.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
}

// ownFinalizers are those that stock controllers take off an ended pod by themselves, moments later: the Job controller's
// once it has counted the pod, the garbage collector's once dependents are gone or orphaned.
var ownFinalizers = []string{
	"batch.kubernetes.io/job-tracking", metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents,
}

// leftBehind is the text about a pod that a fence leaves behind, by what could not be done with it.
var leftBehind = map[action.PodWrite]string{
	action.Spares:       "The node came back and the pod keeps running, but it could not be marked as spared (%s).",
	action.SetsNotReady: "The node's machine is off, but the pod could not be set not ready (%s).",
}

// tellKept tells each pod that the fence leaves behind: other people's finalizers keep it, and are never stripped, or the
// API server let nobody delete or spare it.
func (n *Node) tellKept(d action.Decision) {
	log := n.Log.With("node", n.name, "fence", action.RecordOf(d.Action).ID)
	kept, _ := d.Action.(action.Unmark)
	for _, p := range kept.Kept {
		theirs := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool {
			return slices.Contains(ownFinalizers, f)
		})
		if len(theirs) == 0 {
			continue
		}
		finalizers := strings.Join(theirs, ", ")
		log.Warn("Finalizers keep an ended pod", "pod", p.Namespace+"/"+p.Name, "finalizers", finalizers)
		n.queuePodEvent(p, reason.FinalizersKeep, "{detail}", finalizers)
	}
	for _, p := range d.Stuck {
		log.Warn("Left a pod behind", "pod", p.Namespace+"/"+p.Name, "act", p.Write.String(), "why", p.Why.String())
		text := leftBehind[p.Write]
		if text == "" {
			text = "The pod was ended and can never start again, but cannot be deleted (%s)."
		}
		n.queuePodEvent(p.Pod, reason.LeftBehind, "{detail}", fmt.Sprintf(text, p.Why))
	}
}

// phases are the names of actions in the metric of phases.
var phases = map[string]string{"Arm": "mark", "Tombstone": "tombstone", "ClearVolumes": "clear", "Delete": "delete"}

// parts are the names of the other actions of which Sinks.Parts is told.
var parts = map[string]string{
	"PowerOff": "power_off", "PowerOn": "power_on", "Unmark": "unmark", "Spare": "spare",
	"DeleteAttachments": "delete_attachments", "SetNotReady": "set_not_ready",
}

// tellPart tells of an action of a fence. One of a policy is none.
func (n *Node) tellPart(s decide.StepDone, err error) {
	d := s.Decision
	name := phases[action.Name(d.Action)]
	if name == "" {
		name = parts[action.Name(d.Action)]
	}
	if n.Parts == nil || name == "" || action.OfPolicy(d.Action) {
		return
	}
	rec := s.Look.Record
	if a, arms := d.Action.(action.Arm); arms {
		rec = &a.Record
	}
	n.Parts(Part{
		Node: n.name, Record: rec, Name: name, Begun: s.Began.Wall, Ended: s.Ended.Wall,
		Pods: len(action.PodsOf(d.Action)), Err: err,
	})
}

// protectionLabel is the label of the metric forcefence_node_protection for what a Node tells of its hook.
func protectionLabel(status corev1.ConditionStatus, why string) string {
	switch {
	case status == corev1.ConditionTrue && why == taint.ProtectionFailClosed:
		return "fail-closed"
	case status == corev1.ConditionTrue && why == taint.ProtectionFailOpen:
		return "fail-open"
	case status == corev1.ConditionFalse && why == taint.ProtectionNone:
		return "none"
	default:
		return "unknown"
	}
}
