package evict

import (
	"slices"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// notReadyFirst puts SetPodsNotReady before a wait of the eviction and before the end of its mark. Pods that stay on a
// dead node then leave EndpointSlices. The node lifecycle controller does not do this for a node whose Ready step 5
// ended (F19). Pods that go come first. Nothing depends on this act: d continues without a proof, after a failure, or
// if another client undoes it. A person's confirmation is not a proof.
func (v View) notReadyFirst(d action.Decision) action.Decision {
	unmark, _ := d.Action.(action.RemoveMark)
	ends := unmark.Record.Result == taint.ResultEvicted
	if action.NeedsNoProof(d.Action) || !action.Is[action.Wait](d) && !ends {
		return d
	}
	pods := v.readyPods()
	switch {
	case len(pods) > 0 && v.IsProvenOff(v.Now):
		return action.Decision{Action: action.SetPodsNotReady{Pods: pods}, Reason: reason.SettingNotReady,
			Alert: d.Alert, Stuck: d.Stuck}
	case len(pods) > 0 && v.mayProve():
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Confirming, Alert: d.Alert, Stuck: d.Stuck}
	}
	if ends {
		d.Stuck = append(d.Stuck, v.podsLeftReady()...)
	}
	return d
}

// podsLeftReady returns the pods that stay and could not be set not ready, or did not remain so.
func (v View) podsLeftReady() (left []action.StuckPod) {
	for _, p := range v.Pods {
		if t := v.Memory.troubles[attempt{p.UID, action.WritesNotReady}]; p.StaysReady() &&
			(t.times > 0 || t.written > 0) {
			left = append(left, action.StuckPod{Pod: p, Write: action.WritesNotReady, Why: t.why})
		}
	}
	return left
}

// readyPods returns the pods that stay on the node and read Ready, without those whose write is backing off or
// hopeless.
func (v View) readyPods() []action.Pod {
	pods := slices.DeleteFunc(slices.Clone(v.Pods), func(p action.Pod) bool {
		return !p.StaysReady() || v.backoffLeft(action.WritesNotReady, p) > 0 || v.isHopeless(action.WritesNotReady, p)
	})
	sortForEviction(pods)
	return pods
}

// mayProve reports whether one more question is likely to bring a proof in time. That is so if nothing was asked since
// the mark, or if the last Off would still count after the reads that follow a question. So no device is asked
// repeatedly for this act.
func (v View) mayProve() bool {
	switch {
	case v.hasNoDevice(), v.Twin != "":
		return false
	case !v.isAskedSinceMark():
		return true
	default:
		return v.Answers.Answer.State == providers.PowerOff &&
			v.Answers.Answer.At.Age(v.Answers.Answer.Got)+v.Reads <= proof.TTL
	}
}
