package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
)

// ErrAgain means that the object changed between the look and the write: look again and decide again.
var ErrAgain = errors.New("changed since it was read")

// Writer sends every write of the protocol. Each Node write carries the resourceVersion of the look that it was decided
// on. Each pod write, and each deletion of an attachment, carries a UID and a resourceVersion. A process that may have
// lost its leadership sends none (invariant 5). It writes only the mark, the record, what policies do, the pin, the two
// volume lists, Ready, and forcefence's own conditions and annotations. Each method blocks only for the API server, 15
// s at most, and may be repeated. Its error is an ErrAgain if the object changed or is gone.
type Writer struct {
	Client  client.Client
	Key     string       // the mark's
	Leading func() error // nil while this process is sure to be the leader
	Now     func() time.Time
}

// object is a JSON object under construction.
type object map[string]any

// WriteRecord writes the record. If the record ends the fence, the same write removes its out-of-service taint.
func (w Writer) WriteRecord(ctx context.Context, l taint.Look, rec taint.Record) error {
	body := object{}
	if rec.Phase == taint.PhaseDone && taint.IsOutOfService(l.Taints) {
		body = withTaints(taint.WithoutOutOfService(l.Taints))
	}
	return w.mergePatchNode(ctx, l, "writing record", recordMeta(rec), body)
}

// SetOutOfService adds Kubernetes' out-of-service taint, the one for nodes that are shut down for good, or removes
// ours.
func (w Writer) SetOutOfService(ctx context.Context, l taint.Look, yes bool) error {
	taints := taint.WithoutOutOfService(l.Taints)
	if yes {
		taints = append(taints, taint.OutOfService(w.Now()))
	}
	return w.mergePatchNode(ctx, l, "writing the out-of-service taint", object{}, withTaints(taints))
}

// AnnouncePolicy writes which policies end pods of the node without proof, and nothing else.
func (w Writer) AnnouncePolicy(ctx context.Context, l taint.Look, note string) error {
	meta := object{"annotations": object{taint.PolicyAnnotation: note}}
	return w.mergePatchNode(ctx, l, "announcing a policy", meta, object{})
}

// SetMark sets the mark and the record in one write (step 5).
func (w Writer) SetMark(ctx context.Context, l taint.Look, rec taint.Record) error {
	marked := taint.WithMark(l.Taints, w.Key, rec.ID, w.Now())
	return w.mergePatchNode(ctx, l, "setting mark", recordMeta(rec), withTaints(marked))
}

// RemoveMark removes the marks of the record's fence and our out-of-service taint, and closes the record, in one write
// (step 13).
func (w Writer) RemoveMark(ctx context.Context, l taint.Look, rec taint.Record) error {
	left := taint.WithoutOutOfService(taint.WithoutMark(l.Taints, w.Key, rec.ID))
	return w.mergePatchNode(ctx, l, "removing mark", recordMeta(rec), withTaints(left))
}

// ReleaseNode removes every mark, no matter who set it, and writes the record, in one write.
func (w Writer) ReleaseNode(ctx context.Context, l taint.Look, rec taint.Record) error {
	left := slices.DeleteFunc(taint.WithoutOutOfService(l.Taints), func(t corev1.Taint) bool { return t.Key == w.Key })
	return w.mergePatchNode(ctx, l, "releasing", recordMeta(rec), withTaints(append([]corev1.Taint{}, left...)))
}

func recordMeta(rec taint.Record) object {
	return object{"annotations": object{taint.RecordAnnotation: rec.Encode()}}
}

func withTaints(taints []corev1.Taint) object { return object{"spec": object{"taints": taints}} }

// PinMachine writes which machine the node is. Only PinLabel changes.
func (w Writer) PinMachine(ctx context.Context, l taint.Look, pin string) error {
	return w.mergePatchNode(ctx, l, "pinning machine", object{"labels": object{taint.PinLabel: pin}}, object{})
}

// AnnotateNode writes annotations of a Node that was read live; an empty text removes its annotation.
func (w Writer) AnnotateNode(ctx context.Context, n *corev1.Node, notes map[string]string) error {
	texts := object{}
	for key, text := range notes {
		if texts[key] = text; text == "" {
			texts[key] = nil
		}
	}
	l := taint.Look{Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion}
	return w.mergePatchNode(ctx, l, "writing annotations", object{"annotations": texts}, object{})
}

// ClearVolumes writes the two volume lists (step 10). It writes an empty list as null: merge patches have no other way.
func (w Writer) ClearVolumes(
	ctx context.Context, l taint.Look, inUse []corev1.UniqueVolumeName, attached []corev1.AttachedVolume,
) error {
	lists := object{"status": object{"volumesInUse": inUse, "volumesAttached": attached}}
	return w.mergePatchNode(ctx, l, "clearing volume lists", object{}, lists, "status")
}

// SetPoweredOn writes the condition of a node that does not answer while its machine is on.
func (w Writer) SetPoweredOn(ctx context.Context, l taint.Look, on bool) error {
	c := corev1.NodeCondition{
		Type: taint.PoweredOnCondition, Status: corev1.ConditionFalse, Reason: "NodeAnswers",
		Message: "The node answers.",
	}
	if on {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "PoweredOnNotReady",
			"The node does not answer, but its machine is on. Nothing is evicted."
	}
	return w.setCondition(ctx, l, c)
}

// SetFenceable writes whether the node could be fenced now. The caller chooses reason and message.
func (w Writer) SetFenceable(
	ctx context.Context, l taint.Look, status corev1.ConditionStatus, reason, message string,
) error {
	return w.setCondition(ctx, l, corev1.NodeCondition{
		Type: taint.FenceableCondition, Status: status, Reason: reason, Message: message,
	})
}

// ExpireReady sets a stale Ready to Unknown: the machine is off, so no kubelet reports it (step 5). A live
// kubelet would revert it.
func (w Writer) ExpireReady(ctx context.Context, l taint.Look) error {
	return w.setCondition(ctx, l, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		Reason: "MachinePoweredOff", Message: "The machine's own device says that it is off.",
	})
}

// setCondition writes one condition of the Node, as of now; the strategic merge keeps the others.
func (w Writer) setCondition(ctx context.Context, l taint.Look, c corev1.NodeCondition) error {
	c.LastTransitionTime = metav1.NewTime(w.Now())
	c.LastHeartbeatTime = c.LastTransitionTime
	body := object{"status": object{"conditions": []corev1.NodeCondition{c}}}
	what := fmt.Sprintf("setting condition %s", c.Type)
	return w.patchNode(ctx, l, what, types.StrategicMergePatchType, object{}, body, "status")
}

func (w Writer) mergePatchNode(
	ctx context.Context, l taint.Look, what string, meta, body object, sub ...string,
) error {
	return w.patchNode(ctx, l, what, types.MergePatchType, meta, body, sub...)
}

// patchNode patches the very Node that l saw, unless it has changed since. It adds the UID and the resourceVersion to
// meta, the patch's metadata.
func (w Writer) patchNode(
	ctx context.Context, l taint.Look, what string, pt types.PatchType, meta, body object, sub ...string,
) error {
	if l.ResourceVersion == "" {
		return fmt.Errorf("%s: no resourceVersion", what) // would overwrite any state
	}
	meta["uid"] = l.UID
	meta["resourceVersion"] = l.ResourceVersion
	body["metadata"] = meta
	return w.patchObject(ctx, partialObject("Node", "", l.Name), what, pt, body, sub...)
}

// podFailed is the reason that kubelets give Ready and ContainersReady of a failed pod. A kubelet that comes back then
// has nothing to correct.
const podFailed = "PodFailed"

// EndPod ends a pod: phase Failed, so that no kubelet starts it again (F3, step 9). message becomes the pod's status
// message. Database operators read the conditions and not the phase, so the same write sets Ready and ContainersReady
// False where they were True.
func (w Writer) EndPod(ctx context.Context, p action.Pod, message string) error {
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
	return w.patchPod(ctx, p, "ending pod", types.StrategicMergePatchType, object{}, object{"status": status})
}

// SetPodNotReady sets the condition Ready of a pod that stays to False. It takes the pod out of EndpointSlices, as the
// node lifecycle controller does on a node that is not Ready. A kubelet that comes back sets Ready again.
func (w Writer) SetPodNotReady(ctx context.Context, p action.Pod) error {
	status := object{"conditions": []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now()),
		Reason: taint.TombstoneReason, Message: "The machine of the pod's node is off.",
	}}}
	return w.patchPod(ctx, p, "setting pod not ready", types.StrategicMergePatchType, object{},
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
	return w.patchPod(ctx, p, "sparing pod", types.MergePatchType, meta, body)
}

// NudgePod changes an annotation of a held pod, so that its kubelet tries again at once. The time has its fraction:
// each nudge must differ from the one before. It writes through the status subresource for the reason given at
// SparePod.
func (w Writer) NudgePod(ctx context.Context, p action.Pod) error {
	now := w.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	meta := object{"annotations": object{taint.NudgedAnnotation: now}}
	return w.patchPod(ctx, p, "nudging pod", types.MergePatchType, meta, object{})
}

// patchPod patches that very pod through its status subresource, unless it has changed since it was listed.
func (w Writer) patchPod(
	ctx context.Context, p action.Pod, what string, pt types.PatchType, meta, body object,
) error {
	if p.UID == "" || p.ResourceVersion == "" {
		return fmt.Errorf("%s: no UID or resourceVersion", what) // would write to any pod of that name
	}
	meta["uid"] = p.UID
	meta["resourceVersion"] = p.ResourceVersion
	body["metadata"] = meta
	return w.patchObject(ctx, partialObject("Pod", p.Namespace, p.Name), what, pt, body, "status")
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

// deleteObject deletes the very object with the UID, unless it has changed since.
func (w Writer) deleteObject(
	ctx context.Context, obj client.Object, what, uid, resourceVersion string, opts ...client.DeleteOption,
) error {
	if err := w.Leading(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if uid == "" || resourceVersion == "" {
		return fmt.Errorf("%s: no UID or resourceVersion", what) // would delete any object of that name
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	id := types.UID(uid)
	opts = append(opts, client.Preconditions{UID: &id, ResourceVersion: &resourceVersion})
	return classifyError(what, w.Client.Delete(ctx, obj, opts...))
}

// partialObject returns an object whose patch is answered with its metadata alone: the caller needs no more, and a
// node's pods may be 1.5 MB each.
func partialObject(kind, namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

func (w Writer) patchObject(
	ctx context.Context, obj client.Object, what string, pt types.PatchType, body object, sub ...string,
) error {
	if err := w.Leading(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	patch := client.RawPatch(pt, b)
	if len(sub) > 0 {
		return classifyError(what, w.Client.SubResource(sub[0]).Patch(ctx, obj, patch))
	}
	return classifyError(what, w.Client.Patch(ctx, obj, patch))
}

// classifyError classifies the API server's answer: a conflict and a missing object both mean that the look is too old.
func classifyError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, ErrAgain, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// RefusalOf classifies the result of a pod's write. The API server reports a too large pod in three ways: as the limit
// of a request, as that of the annotations, and by etcd in words alone, with status 500.
func RefusalOf(err error) action.WriteResult {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return action.Accepted
	case apierrors.IsConflict(err):
		return action.Changed
	case !errors.As(err, &status):
		return action.Failed
	}
	tooLong := func(c metav1.StatusCause) bool { return c.Type == metav1.CauseType(field.ErrorTypeTooLong) }
	s := status.Status()
	switch {
	case s.Code == http.StatusRequestEntityTooLarge,
		s.Code == http.StatusUnprocessableEntity && s.Details != nil && slices.ContainsFunc(s.Details.Causes, tooLong),
		s.Code == http.StatusInternalServerError && slices.ContainsFunc(etcdTooLarge,
			func(w string) bool { return strings.Contains(s.Message, w) }):
		return action.TooLarge
	case s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout && s.Code != http.StatusTooManyRequests:
		return action.Denied
	default:
		return action.Failed
	}
}

// IsCrowded reports whether the API server, or etcd, is overloaded: it reported that, or did not answer in time.
func IsCrowded(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || errors.Is(err, context.DeadlineExceeded)
}

// etcdTooLarge holds the texts by which etcd, and the API server's client of it, report that an object exceeds their
// limits. The API server matches the same texts, and has then already retried without managedFields
// (k8s.io/apiserver/pkg/endpoints/handlers, isTooLargeError).
var etcdTooLarge = []string{"etcdserver: request is too large", "trying to send message larger than max"}
