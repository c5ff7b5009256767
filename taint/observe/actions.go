package observe

import (
	"context"
	"log/slog"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// actions reports what was done.
type actions struct {
	*subject
	states  *states
	fences  *fences
	answers *answers
}

// reportActionDone reports an action that is over.
func (n *actions) reportActionDone(ctx context.Context, s decide.StepDone, o decide.ActionDone) {
	d := s.Decision
	n.reportDone(s, o)
	n.fences.reportAction(s, o)
	switch {
	case action.Is[action.PowerOff](d) || action.Is[action.PowerOn](d):
	case o.Err != nil:
		n.states.stepFailed(ctx, d, o.Err)
	default:
		n.states.stepSucceeded()
		if phase := phases[action.Name(d.Action)]; phase != "" {
			n.Metrics.observePhase(phase, s.Ended.Sub(s.Began))
		}
	}
}

// reportDone reports what an action did.
func (n *actions) reportDone(s decide.StepDone, o decide.ActionDone) {
	l, log := s.Look, n.Log.With("node", n.name, "fence", s.Look.Record.IDOr(""))
	for _, all := range o.Writes.Answers {
		n.answers.reportAnswers(all)
	}
	switch a := s.Decision.Action.(type) {
	case action.ClearVolumes:
		if o.Err == nil {
			log.Info("Cleared volume lists", "policy", a.Policy,
				"inUse", len(l.InUse)-len(a.InUse), "attached", len(l.Attached)-len(a.Attached))
		}
	case action.PowerOff, action.PowerOn:
		reportPower(log, a, o.Power)
	case action.DeleteAttachments:
		reportUnwritten(log, s.Decision.Action, o.Writes)
		for _, one := range a.Attachments {
			if o.Writes.Made[one.UID] {
				log.Warn("Deleted volume attachment", "attachment", one.Name, "volume", one.PV, "policy", a.Policy)
			}
		}
	case action.EndPods, action.DeletePods, action.SparePods, action.SetPodsNotReady:
		reportUnwritten(log, s.Decision.Action, o.Writes)
		n.reportPods(log, a, madePods(a, o.Writes))
	}
}

// reportPower reports what each device answered to a power-off or a power-on.
func reportPower(log *slog.Logger, a action.Action, by []decide.PowerSent) {
	for _, d := range by {
		log := log.With("device", d.Device, "act", action.Name(a))
		switch {
		case d.Withheld:
			log.Warn("Power request was not sent", "error", d.Err)
		case d.Err != nil:
			log.Error("Power request was not accepted", "error", d.Err)
		default:
			log.Info("Sent power request")
		}
	}
}

// reportUnwritten reports writes of pods or attachments that were not made.
func reportUnwritten(log *slog.Logger, a action.Action, w decide.Writes) {
	of := len(action.PodsOf(a)) + len(action.AttachmentsOf(a))
	if w.Failed > 0 {
		log.Warn("Could not write some pods or attachments", "policy", action.PolicyOf(a), "act", action.Name(a),
			"failed", w.Failed, "of", of, "first", w.FirstErr)
	}
	if w.Throttled > 0 {
		log.Warn("The API server has no room for some writes of pods or attachments", "act", action.Name(a),
			"refused", w.Throttled, "of", of)
	}
	if w.Stopped {
		log.Warn("Stopped: the node shows life, or its machine is no longer proven off")
	}
}

// reportPods reports the pods that were written.
func (n *actions) reportPods(log *slog.Logger, a action.Action, pods []action.Pod) {
	log = log.With("pods", len(pods))
	policy := action.PolicyOf(a)
	switch a.(type) {
	case action.SparePods:
		log.Info("Spared pods")
	case action.DeletePods:
		log.Info("Deleted pods")
	case action.SetPodsNotReady:
		log.Info("Set pods not ready")
	default:
		if policy != "" {
			log.Warn("Ended pods without proof", "policy", policy)
			for _, p := range pods {
				n.sendEvent(n.at, podRef(p), n.node, reason.PolicyEnded, "Evict", "{node}", n.name, "{detail}", policy)
			}
			return
		}
		log.Info("Ended pods")
		n.queuePodEvents(pods, reason.Fenced,
			"{node}", n.name, "{detail}", n.course.LastAnswerText(), "{fence}", n.course.Look().Record.IDOr(""))
	}
}
