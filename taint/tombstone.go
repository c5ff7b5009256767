package taint

import corev1 "k8s.io/api/core/v1"

// TombstoneReason is the reason of a tombstone: a pod's status with phase Failed and this reason. No kubelet admits or
// starts such a pod again, and the terminal phase wins over what a kubelet reports later (F3). Its DisruptionTarget
// condition lets Jobs with a podFailurePolicy distinguish it from a failure of the program. A pod that is near the
// limit of an object's size gets its small form: phase and reason alone, 11 bytes more than before.
const TombstoneReason = "NodeFenced"

// FenceMessage returns the message of a tombstone of that fence.
func FenceMessage(id string) string {
	return "The node's machine is powered off; forcefence ended the pod so that it can run elsewhere " +
		"(fence " + id + ")."
}

// PolicyMessage returns the message of a tombstone that was set without proof; by names the policy and its word.
func PolicyMessage(by string) string {
	return "The node looks dead; forcefence ended the pod so that it can run elsewhere (" + by + ")."
}

// IsTombstone reports whether the pod carries a tombstone, of any fence.
func IsTombstone(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == TombstoneReason
}

// IsTerminal reports whether the pod has finished. Such a pod is never tombstoned: its Job would run again (F3).
func IsTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// SparedAnnotation on a pod names the fence that let it live when its node returned (Record.Token). That fence never
// ends the pod afterwards. A later look sees the annotation. A tombstone that was sent before, and is still in flight,
// fails, because the annotation changed the resourceVersion.
const SparedAnnotation = "forcefence.io/spared-by"

// SparedBy returns the token of the last fence that spared the pod; "" if none did.
func SparedBy(p *corev1.Pod) string { return p.Annotations[SparedAnnotation] }

// SparedMessage returns the status message of a spared pod that could not take the annotation. A pod that has the
// message already gets the other one, since only a change makes a new resourceVersion. It adds 8 bytes, less than the
// small tombstone. So a tombstone in flight either finds another resourceVersion or is too large itself.
func SparedMessage(before string) string {
	if before == "spared" {
		return "Spared"
	}
	return "spared"
}
