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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/action"
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
