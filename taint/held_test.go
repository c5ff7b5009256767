package taint

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHeld(t *testing.T) {
	sandbox := func(s corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodReadyToStartContainers, Status: s},
			}
		}
	}
	phase := func(ph corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = ph } }
	waits := corev1.ContainerStatus{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	main := func(s ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = s }
	}
	initial := func(s ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = s }
	}
	for _, tt := range []struct {
		name string
		pod  []func(*corev1.Pod)
		want bool
	}{
		{"no sandbox", []func(*corev1.Pod){sandbox(corev1.ConditionFalse)}, true},
		{"no sandbox after a reboot: still Running, stale containers",
			[]func(*corev1.Pod){sandbox(corev1.ConditionFalse), phase(corev1.PodRunning), main(runs)}, true},
		{"sandbox not known", []func(*corev1.Pod){sandbox(corev1.ConditionUnknown)}, true},
		{"sandbox, containers wait for their image", []func(*corev1.Pod){sandbox(corev1.ConditionTrue), main(waits)},
			false},
		{"not bound", []func(*corev1.Pod){sandbox(corev1.ConditionFalse), func(p *corev1.Pod) { p.Spec.NodeName = "" }},
			false},
		{"being deleted",
			[]func(*corev1.Pod){
				sandbox(corev1.ConditionFalse),
				func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }}, false},
		{"succeeded", []func(*corev1.Pod){sandbox(corev1.ConditionFalse), phase(corev1.PodSucceeded)}, false},
		{"failed", []func(*corev1.Pod){sandbox(corev1.ConditionFalse), phase(corev1.PodFailed)}, false},
		{"exempt", []func(*corev1.Pod){sandbox(corev1.ConditionFalse), func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: DefaultKey, Operator: corev1.TolerationOpExists}}
		}}, false},
		{"older kubelet: all wait", []func(*corev1.Pod){initial(waits), main(waits, waits)}, true},
		{"older kubelet: an init container has ended", []func(*corev1.Pod){initial(ended), main(waits)}, false},
		{"older kubelet: one runs", []func(*corev1.Pod){main(waits, runs)}, false},
		{"older kubelet: Running, all wait: a crash loop", []func(*corev1.Pod){phase(corev1.PodRunning), main(waits)},
			false},
		{"not seen by any kubelet yet", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
			for _, f := range tt.pod {
				f(p)
			}
			if got := IsHeldByHook(p, DefaultKey); got != tt.want {
				t.Errorf("Held: got %v, want %v", got, tt.want)
			}
		})
	}
}
