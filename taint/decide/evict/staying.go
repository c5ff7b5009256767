package evict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// FindStaying returns, in the order of their names, the pods that a fence of their node leaves there although a user
// may expect that they move (StayingPodOf).
func FindStaying(pods []action.Pod) taint.Staying { return findPods(pods, StayingPodOf) }

// findLeft returns those that a fence left there when it ended. These are also pods whose names stay taken, because
// finalizers keep them.
func findLeft(pods []action.Pod) taint.Staying {
	return findPods(pods, func(p action.Pod) (taint.StayingPod, bool) {
		theirs := p.KeepingFinalizers()
		if !p.IsHeldByFinalizers() || len(theirs) == 0 || belongsToNode(p) {
			return StayingPodOf(p)
		}
		return taint.StayingPod{Pod: p.Namespace + "/" + p.Name, Finalizer: theirs[0]}, true
	})
}

func findPods(pods []action.Pod, find func(action.Pod) (taint.StayingPod, bool)) (out taint.Staying) {
	var all []taint.StayingPod
	for _, p := range pods {
		if one, stays := find(p); stays {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b taint.StayingPod) int { return cmp.Compare(a.Pod, b.Pod) })
	if out.More = len(all) - taint.MaxStaying; out.More > 0 {
		all = all[:taint.MaxStaying]
	}
	out.Pods, out.More = all, max(out.More, 0)
	return out
}

// belongsToNode reports whether the pod belongs to its node, or no controller creates it elsewhere.
func belongsToNode(p action.Pod) bool {
	return slices.Contains([]string{"DaemonSet", "Node", ""}, p.Owner.Kind)
}

// StayingPodOf reports whether a fence leaves the pod on its node although a user may expect that it moves, and says
// why. A controller that could create it elsewhere owns it, or it keeps a volume that no other node can use meanwhile.
//
// Stock eviction deletes a pod that tolerates unreachable for a time only; then a fence removes it. Such a pod counts
// if evictFirst selects it: the order, which is all that evictFirst gives, is lost.
func StayingPodOf(p action.Pod) (out taint.StayingPod, stays bool) {
	if p.Exempt == taint.NotExempt || p.Terminal || p.Deleting {
		return out, false
	}
	out = taint.StayingPod{Pod: p.Namespace + "/" + p.Name, Why: p.Exempt}
	for _, vol := range p.Volumes {
		if vol.OneNode && len(out.Claims) < taint.MaxStayingClaims {
			out.Claims = append(out.Claims, vol.Claim)
		}
	}
	if belongsToNode(p) {
		return out, len(out.Claims) > 0
	}
	out.First = p.First
	_, ends := StockEnds(p.Tolerations,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, time.Time{})
	return out, !ends || p.First
}

// detailAlert adds to an alert about volumes that do not detach their drivers, and the pods that stay: one may be a
// driver's controller. The text changes seldom, because each change is another alert.
func (v View) detailAlert(d action.Decision) action.Decision {
	if d.Alert != string(reason.WaitingDetach) {
		return d
	}
	left, _ := v.HoldingAttachments(v.unusedAttachments())
	var drivers []string
	for _, a := range left {
		if !slices.Contains(drivers, a.Attacher) {
			drivers = append(drivers, a.Attacher)
		}
	}
	slices.Sort(drivers)
	d.AlertDetail = "volumes of " + strings.Join(drivers[:min(len(drivers), taint.MaxStaying)], ", ") +
		" are still attached"
	if staying := FindStaying(v.Pods).String(); staying != "" {
		d.AlertDetail += "; " + staying
	}
	return d
}
