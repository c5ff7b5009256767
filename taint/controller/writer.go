package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
)

// errAgain says that the object changed between the look and the write: look again and decide anew.
var errAgain = errors.New("changed since it was read")

// writer sends every write of the protocol. Each Node write carries the resourceVersion of the look that it was decided on, each
// pod write a UID and a resourceVersion, and none is sent by a process that may have lost its leadership (invariant 5). Only the
// mark, the record, the pin, the two volume lists, Ready and forcefence's own conditions are ever written.
type writer struct {
	client  client.Client
	key     string
	leading func() error
	now     func() time.Time
}

// object is a JSON object under construction.
type object map[string]any

// record writes the record alone.
func (w writer) record(ctx context.Context, l taint.Look, rec taint.Record) error {
	return w.node(ctx, l, "writing record", object{"metadata": w.meta(l, rec)})
}

// arm sets the mark and the record in one write (step 5).
func (w writer) arm(ctx context.Context, l taint.Look, rec taint.Record) error {
	return w.node(ctx, l, "setting mark", object{
		"metadata": w.meta(l, rec),
		"spec":     object{"taints": taint.With(l.Taints, w.key, rec.ID, w.now())},
	})
}

// unmark takes the marks of the record's fence off and closes the record in one write (step 13).
func (w writer) unmark(ctx context.Context, l taint.Look, rec taint.Record) error {
	return w.node(ctx, l, "taking mark off", object{
		"metadata": w.meta(l, rec),
		"spec":     object{"taints": taint.Without(l.Taints, w.key, rec.ID)},
	})
}

func (w writer) meta(l taint.Look, rec taint.Record) object {
	return object{
		"resourceVersion": l.ResourceVersion,
		"uid":             l.UID,
		"annotations":     object{taint.RecordAnnotation: rec.Encode()},
	}
}

// pin writes which machine the node is. Only PinLabel changes.
func (w writer) pin(ctx context.Context, l taint.Look, pin string) error {
	return w.node(ctx, l, "pinning machine", object{
		"metadata": object{"resourceVersion": l.ResourceVersion, "uid": l.UID, "labels": object{taint.PinLabel: pin}},
	})
}

// clear writes the two volume lists (step 10). An empty list is written as null: merge patches have no other way.
func (w writer) clear(ctx context.Context, l taint.Look, inUse []corev1.UniqueVolumeName, attached []corev1.AttachedVolume) error {
	return w.node(ctx, l, "clearing volume lists", object{
		"metadata": object{"resourceVersion": l.ResourceVersion, "uid": l.UID},
		"status":   object{"volumesInUse": inUse, "volumesAttached": attached},
	}, "status")
}

// condition writes one condition of the Node; the strategic merge leaves the others alone.
func (w writer) condition(ctx context.Context, l taint.Look, what string, c corev1.NodeCondition) error {
	return w.nodePatch(ctx, l, what, types.StrategicMergePatchType, object{
		"metadata": object{"resourceVersion": l.ResourceVersion, "uid": l.UID},
		"status":   object{"conditions": []corev1.NodeCondition{c}},
	}, "status")
}

// expireReady makes a stale Ready Unknown: the machine is off, so no kubelet can mean it (step 5). A live kubelet would revert it.
func (w writer) expireReady(ctx context.Context, l taint.Look) error {
	now := metav1.NewTime(w.now())
	return w.condition(ctx, l, "expiring Ready", corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: now, LastHeartbeatTime: now,
		Reason: "MachinePoweredOff", Message: "The machine's own device says that it is off.",
	})
}

func (w writer) node(ctx context.Context, l taint.Look, what string, body object, sub ...string) error {
	return w.nodePatch(ctx, l, what, types.MergePatchType, body, sub...)
}

func (w writer) nodePatch(ctx context.Context, l taint.Look, what string, pt types.PatchType, body object, sub ...string) error {
	if l.ResourceVersion == "" {
		return fmt.Errorf("%s: no resourceVersion", what) // would overwrite whatever is there
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.Name}}
	return w.patch(ctx, node, what, pt, body, sub...)
}

// tombstone ends a pod: phase Failed, so that no kubelet starts it again (F3, step 9).
func (w writer) tombstone(ctx context.Context, p evict.Pod, fenceID string) error {
	status := object{"phase": corev1.PodFailed, "reason": taint.TombstoneReason}
	if !p.Small {
		message := taint.TombstoneMessage + fenceID + ")."
		status["message"] = message
		status["conditions"] = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now()),
			Reason: taint.TombstoneReason, Message: message,
		}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return w.patch(ctx, pod, "ending pod", types.StrategicMergePatchType, object{
		"metadata": object{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status":   status,
	}, "status")
}

// spare marks a pod as one that the fence lets live: its new resourceVersion refuses a tombstone that is still on its way. It goes
// through the status, which takes annotations, so that no grant of patch on pods is needed.
func (w writer) spare(ctx context.Context, p evict.Pod, token string) error {
	meta := object{"uid": p.UID, "resourceVersion": p.ResourceVersion}
	body := object{"metadata": meta}
	if p.Small {
		body["status"] = object{"message": taint.SparedMessage(p.Message)}
	} else {
		meta["annotations"] = object{taint.SparedAnnotation: token}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return w.patch(ctx, pod, "sparing pod", types.MergePatchType, body, "status")
}

// nudge changes an annotation of a held pod, so that its kubelet tries again at once. The time has its fraction: each nudge must differ
// from the one before. It goes through the status for the reason that spare gives.
func (w writer) nudge(ctx context.Context, p evict.Pod) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return w.patch(ctx, pod, "nudging pod", types.MergePatchType, object{
		"metadata": object{
			"uid": p.UID, "resourceVersion": p.ResourceVersion,
			"annotations": object{taint.NudgedAnnotation: w.now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")},
		},
	}, "status")
}

// delete removes a tombstoned pod from the API with grace 0 (KEP step 3, step 11).
func (w writer) delete(ctx context.Context, p evict.Pod) error {
	if err := w.leading(); err != nil {
		return fmt.Errorf("deleting pod: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	uid := types.UID(p.UID)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err := w.client.Delete(ctx, pod, client.GracePeriodSeconds(0),
		client.Preconditions{UID: &uid, ResourceVersion: &p.ResourceVersion})
	return outcome("deleting pod", err)
}

func (w writer) patch(ctx context.Context, obj client.Object, what string, pt types.PatchType, body object, sub ...string) error {
	if err := w.leading(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	patch := client.RawPatch(pt, b)
	if len(sub) > 0 {
		return outcome(what, w.client.SubResource(sub[0]).Patch(ctx, obj, patch))
	}
	return outcome(what, w.client.Patch(ctx, obj, patch))
}

// outcome sorts the API server's answer: a conflict and an object that is gone both mean that the look is too old.
func outcome(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, errAgain, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// refusal sorts what a pod's write came to. That a pod is too large is told in three ways: as the limit of a request, as that of the
// annotations, and by etcd in words alone, with status 500.
func refusal(err error) evict.Refusal {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return evict.Accepted
	case apierrors.IsConflict(err):
		return evict.Changed
	case !errors.As(err, &status):
		return evict.Failed
	}
	tooLong := func(c metav1.StatusCause) bool { return c.Type == metav1.CauseType(field.ErrorTypeTooLong) }
	s := status.Status()
	switch {
	case s.Code == http.StatusRequestEntityTooLarge,
		s.Code == http.StatusUnprocessableEntity && s.Details != nil && slices.ContainsFunc(s.Details.Causes, tooLong),
		s.Code == http.StatusInternalServerError && slices.ContainsFunc(etcdTooLarge, func(w string) bool { return strings.Contains(s.Message, w) }):
		return evict.TooLarge
	case s.Code >= 400 && s.Code < 500 && s.Code != http.StatusRequestTimeout && s.Code != http.StatusTooManyRequests:
		return evict.Denied
	default:
		return evict.Failed
	}
}

// etcdTooLarge is how etcd, and the API server's client of it, say that an object exceeds their limits. The API server knows it by the
// same words, and has then tried without managedFields already (k8s.io/apiserver/pkg/endpoints/handlers, isTooLargeError).
var etcdTooLarge = []string{"etcdserver: request is too large", "trying to send message larger than max"}
