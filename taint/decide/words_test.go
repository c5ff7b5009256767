package decide

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// TestDescribeReturnedPods says which pods came back to a dead node by a toleration, and which only came late.
func TestDescribeReturnedPods(t *testing.T) {
	taints := []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
	}
	tolerating := func(name string, effect corev1.TaintEffect) action.Pod {
		return action.Pod{Namespace: "a", Name: name, Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: effect}}}
	}
	stays, done := tolerating("stays", ""), tolerating("done", "")
	stays.Exempt, done.Terminal = taint.ExemptTolerate, true
	const more = "there is more to do on the node"
	for _, tt := range []struct {
		name   string
		pods   []action.Pod
		taints []corev1.Taint
		want   string
	}{
		{"every effect", []action.Pod{tolerating("web-1", "")}, taints,
			"a/web-1 tolerates node.kubernetes.io/unreachable:NoSchedule"},
		{"several", []action.Pod{tolerating("web-2", corev1.TaintEffectNoSchedule), tolerating("web-1", ""),
			tolerating("web-3", "")}, taints,
			"a/web-1 tolerates node.kubernetes.io/unreachable:NoSchedule, and 2 pods like it"},
		{"NoExecute alone does not bring it back",
			[]action.Pod{tolerating("web-1", corev1.TaintEffectNoExecute)}, taints, more},
		{"a pod that stays never left", []action.Pod{stays}, taints, more},
		{"a finished pod", []action.Pod{done}, taints, more},
		{"the node has no such taint", []action.Pod{tolerating("web-1", "")}, taints[:1], more},
		{"no pod", nil, taints, more},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := describeReturnedPods(tt.pods, tt.taints); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
