package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Longhorn's own setting for its pod deletion policy, an object of the CRD settings.longhorn.io, and its default.
const (
	longhornSetting   = "node-down-pod-deletion-policy"
	longhornNamespace = "longhorn-system"
	longhornNothing   = "do-nothing"
)

// LonghornDeletes returns why only Longhorn may end pods with its volumes now: its own setting makes it do so, or
// cannot be read, which counts the same. It returns "" if the setting says do-nothing, or does not exist: Longhorn
// creates all of its settings when it starts, so it is not installed then. c must read from the API server and not from
// a cache. It blocks for two reads at most, and for the API's discovery the first time.
func LonghornDeletes(ctx context.Context, c client.Reader, m meta.RESTMapper) string {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	unread := func(err error) string {
		return fmt.Sprintf("Longhorn's own setting %s cannot be read (%s)",
			longhornSetting, cmp.Or(string(apierrors.ReasonForError(err)), "no answer"))
	}
	s, err := NewServedObject(m, schema.GroupKind{Group: "longhorn.io", Kind: "Setting"})
	switch {
	case err != nil:
		return unread(err)
	case s == nil:
		return ""
	}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: longhornNamespace, Name: longhornSetting}, s); {
	// With that cause the resource itself no longer exists.
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return ""
	case err != nil:
		return unread(err)
	}
	switch value, _, err := unstructured.NestedString(s.Object, "value"); {
	case err != nil:
		return unread(err)
	case value != longhornNothing:
		return fmt.Sprintf("Longhorn's own setting %s is %q", longhornSetting, value)
	}
	return ""
}

// NewServedObject returns an empty object of a kind, to read into, in the version that the API server serves: an
// unknown version must not count as absent. It returns nil if there is no such resource. It blocks for the API's
// discovery.
func NewServedObject(m meta.RESTMapper, kind schema.GroupKind) (*unstructured.Unstructured, error) {
	mapping, err := m.RESTMapping(kind)
	// counts as no match, too, where one of several versions was not found
	var failed *apiutil.ErrResourceDiscoveryFailed
	switch {
	case meta.IsNoMatchError(err) && !errors.As(err, &failed):
		return nil, nil
	case err != nil:
		return nil, err
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	return o, nil
}
