package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

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

// NameMachine writes which devices have named the node's machine. Only NamedLabel changes.
func (w Writer) NameMachine(ctx context.Context, l taint.Look, named string) error {
	return w.mergePatchNode(ctx, l, "noting who named the machine", object{"labels": object{taint.NamedLabel: named}},
		object{})
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
	c.LastHeartbeatTime = metav1.NewTime(w.Now())
	return w.setCondition(ctx, l, c, object{})
}

// SetFenceable writes whether the node could be fenced at that time, and in the same write the annotation
// taint.DrillAnnotation. The caller chooses reason and message.
func (w Writer) SetFenceable(
	ctx context.Context, l taint.Look, at time.Time, status corev1.ConditionStatus, reason, message, answers string,
) error {
	return w.setCondition(ctx, l, corev1.NodeCondition{
		Type: taint.FenceableCondition, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: metav1.NewTime(at),
	}, object{"annotations": object{taint.DrillAnnotation: answers}})
}

// ExpireReady sets a stale Ready to Unknown: the machine is off, so no kubelet reports it (step 5). A live
// kubelet would revert it.
func (w Writer) ExpireReady(ctx context.Context, l taint.Look) error {
	return w.setCondition(ctx, l, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		Reason: taint.ExpiredReason, Message: "The machine's own device says that it is off.",
		LastHeartbeatTime: metav1.NewTime(l.Heartbeat), // the kubelet's: ours would look like a sign of life
	}, object{})
}

// setCondition writes one condition of the Node, which changes now, and meta; the strategic merge keeps the others.
func (w Writer) setCondition(ctx context.Context, l taint.Look, c corev1.NodeCondition, meta object) error {
	c.LastTransitionTime = metav1.NewTime(w.Now())
	body := object{"status": object{"conditions": []corev1.NodeCondition{c}}}
	what := fmt.Sprintf("setting condition %s", c.Type)
	return w.patchNode(ctx, l, what, types.StrategicMergePatchType, meta, body, "status")
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
