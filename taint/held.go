package taint

import (
	corev1 "k8s.io/api/core/v1"
)

// ProtectionCondition is the Node condition by which the node's side tells what protection its hook gives.
const ProtectionCondition corev1.NodeConditionType = "ForcefenceGuard"

// The reasons of ProtectionCondition. The first two come with status True, the last with False.
const (
	ProtectionFailClosed = "FailClosed" // a pod that the hook cannot be asked about does not start
	ProtectionFailOpen   = "FailOpen"   // such a pod starts
	ProtectionNone       = "None"       // there is no hook
)

// ProtectionOf returns the status of the node's ProtectionCondition and its reason; "" where the node's side never said.
func ProtectionOf(node *corev1.Node) (corev1.ConditionStatus, string) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == ProtectionCondition {
			return c.Status, c.Reason
		}
	}
	return "", ""
}

// NudgedAnnotation on a pod is when the controller last asked its kubelet to try again: any annotation that changes makes a kubelet
// sync the pod at once, where it would else come back after 10 to 15 s.
const NudgedAnnotation = "forcefence.io/nudged"

// IsHeldByHook reports whether the pod looks as one does that the node's hook holds: bound, ordinary, unfinished, not being deleted, and
// without a sandbox. A kubelet says the last by the condition PodReadyToStartContainers (on by default since 1.29), which it computes
// from the sandboxes that its runtime has: after a reboot it is False although the phase is still Running. Where there is no such
// condition, a pod is taken for held if it is Pending and all of its containers that have a status wait.
//
// The image of a pod that is not held may be on its way all the same: Held is good for a nudge, and proves nothing.
func IsHeldByHook(pod *corev1.Pod, key string) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || IsTerminal(pod) || ExemptionOf(pod, key) != NotExempt {
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
