package taint

import corev1 "k8s.io/api/core/v1"

// ProtectionCondition is the Node condition by which the node's side reports what protection its hook gives.
const ProtectionCondition corev1.NodeConditionType = "ForcefenceGuard"

// The reasons of ProtectionCondition. The last comes with status False, the others with True.
const (
	ProtectionFailClosed = "FailClosed" // a pod does not start while the hook cannot be asked
	ProtectionFailOpen   = "FailOpen"   // a pod starts while the hook cannot be asked
	ProtectionNotAtBoot  = "NotAtBoot"  // a pod starts while the hook cannot be asked, and also right after a boot
	ProtectionNone       = "None"       // there is no hook
)

// ProtectionOf returns the status of the node's ProtectionCondition and its reason; "" if the node's side never
// reported one.
func ProtectionOf(node *corev1.Node) (corev1.ConditionStatus, string) {
	c := Condition(node, ProtectionCondition)
	return c.Status, c.Reason
}

// Condition returns the Node's condition of a type; the zero value if it has none.
func Condition(node *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// NudgedAnnotation on a pod is the time at which the controller last asked its kubelet to try again. Any annotation
// that changes makes a kubelet sync the pod at once; otherwise it would retry after 10 to 15 s.
const NudgedAnnotation = "forcefence.io/nudged"

// IsHeldByHook reports whether the pod looks like one that the node's hook holds: bound, not exempt, unfinished, not
// being deleted, and without a sandbox. A kubelet reports a missing sandbox by the condition PodReadyToStartContainers
// (on by default since 1.29), which it computes from the sandboxes that its runtime has: after a reboot it is False
// although the phase is still Running. Without that condition, a pod counts as held if it is Pending and all of its
// containers that have a status wait.
//
// A pod that is not held may look the same while its image is being pulled. So the result is good enough for a nudge,
// and proves nothing.
func IsHeldByHook(pod *corev1.Pod, key string) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || IsTerminal(pod) ||
		ExemptionOf(pod, key) != NotExempt {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return c.Status != corev1.ConditionTrue
		}
	}
	if pod.Status.Phase != corev1.PodPending {
		return false
	}
	waiting := false
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.State.Waiting == nil {
				return false
			}
			waiting = true
		}
	}
	return waiting
}
