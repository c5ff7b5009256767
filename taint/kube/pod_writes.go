package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// EndPod ends a pod: phase Failed, so that no kubelet starts it again (F3, step 9). message becomes the pod's status
// message. Database operators read the conditions and not the phase, so the same write sets Ready and ContainersReady
// False where they were True. It returns the pod, with its new resourceVersion if there is no error.
func (w Writer) EndPod(ctx context.Context, p action.Pod, message string) (ended action.Pod, err error) {
	status := object{"phase": corev1.PodFailed, "reason": taint.TombstoneReason}
	if !p.Small {
		now := metav1.NewTime(w.Now())
		conditions := []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now,
			Reason: taint.TombstoneReason, Message: message,
		}}
		setFalse := func(t corev1.PodConditionType) {
			conditions = append(conditions, corev1.PodCondition{
				Type: t, Status: corev1.ConditionFalse, LastTransitionTime: now, Reason: podFailed,
			})
		}
		if p.Ready {
			setFalse(corev1.PodReady)
		}
		if p.ContainersReady {
			setFalse(corev1.ContainersReady)
		}
		status["message"], status["conditions"] = message, conditions
	}
	err = w.patchPod(ctx, &p, "ending pod", types.StrategicMergePatchType, object{}, object{"status": status})
	return p, err
}

// SetPodNotReady sets the condition Ready of a pod that stays to False. It takes the pod out of EndpointSlices, as the
// node lifecycle controller does on a node that is not Ready. A kubelet that comes back sets Ready again.
func (w Writer) SetPodNotReady(ctx context.Context, p action.Pod) error {
	status := object{"conditions": []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now()),
		Reason: taint.TombstoneReason, Message: "The machine of the pod's node is off.",
	}}}
	return w.patchPod(ctx, &p, "setting pod not ready", types.StrategicMergePatchType, object{},
		object{"status": status})
}

// SparePod marks a pod as one that the fence lets live: its new resourceVersion makes a tombstone that is still in
// flight fail. It writes through the status subresource, which accepts annotations, so that no grant of patch on pods
// is needed.
func (w Writer) SparePod(ctx context.Context, p action.Pod, token string) error {
	meta, body := object{"annotations": object{taint.SparedAnnotation: token}}, object{}
	if p.Small {
		meta, body = object{}, object{"status": object{"message": taint.SparedMessage(p.Message)}}
	}
	return w.patchPod(ctx, &p, "sparing pod", types.MergePatchType, meta, body)
}

// NudgePod changes an annotation of a held pod, so that its kubelet tries again at once. The time has its fraction:
// each nudge must differ from the one before. It writes through the status subresource for the reason given at
// SparePod.
func (w Writer) NudgePod(ctx context.Context, p action.Pod) error {
	now := w.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	meta := object{"annotations": object{taint.NudgedAnnotation: now}}
	return w.patchPod(ctx, &p, "nudging pod", types.MergePatchType, meta, object{})
}

// patchPod patches that very pod through its status subresource, unless it has changed since it was listed. It sets
// p's new resourceVersion.
func (w Writer) patchPod(
	ctx context.Context, p *action.Pod, what string, pt types.PatchType, meta, body object,
) error {
	if p.UID == "" || p.ResourceVersion == "" {
		return fmt.Errorf("%s: no UID or resourceVersion", what) // would write to any pod of that name
	}
	meta["uid"] = p.UID
	meta["resourceVersion"] = p.ResourceVersion
	body["metadata"] = meta
	pod := partialObject("Pod", p.Namespace, p.Name)
	if err := w.patchObject(ctx, pod, what, pt, body, "status"); err != nil {
		return err
	}
	p.ResourceVersion = pod.ResourceVersion
	return nil
}

// DeletePod removes a tombstoned pod from the API with grace 0 (KEP step 3, step 11).
func (w Writer) DeletePod(ctx context.Context, p action.Pod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return w.deleteObject(ctx, pod, "deleting pod", p.UID, p.ResourceVersion, client.GracePeriodSeconds(0))
}

// DeleteAttachment deletes a VolumeAttachment. Its attacher then detaches the volume and removes the finalizer, no
// matter what the node reports.
func (w Writer) DeleteAttachment(ctx context.Context, a action.Attachment) error {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
	return w.deleteObject(ctx, va, "deleting volume attachment", a.UID, a.ResourceVersion)
}

// podFailed is the reason that kubelets give Ready and ContainersReady of a failed pod. A kubelet that comes back then
// has nothing to correct.
const podFailed = "PodFailed"
