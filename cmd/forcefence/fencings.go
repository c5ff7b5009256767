package main

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/view"
)

// fencingReadError explains why Fencings cannot be read, if the cause is their CustomResourceDefinition. It returns
// other errors unchanged.
func fencingReadError(c client.Client, err error) error {
	if !meta.IsNoMatchError(err) {
		return err
	}
	served, bad := c.RESTMapper().RESTMappings(api.GroupVersion.WithKind(api.Kind).GroupKind())
	if bad != nil || len(served) == 0 {
		return fmt.Errorf(
			"this cluster has no Fencings: install the CustomResourceDefinition %s.%s from "+
				"deploy/helm/forcefence/files",
			api.Resource.Resource, api.Resource.Group,
		)
	}
	var versions []string
	for _, m := range served {
		versions = append(versions, m.GroupVersionKind.Version)
	}
	return fmt.Errorf(
		"this cluster serves Fencings as %s, but this program only knows %s: use the controller's version",
		strings.Join(versions, ", "), api.GroupVersion.Version,
	)
}

func newFencing() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind))
	return u
}

func newFencings() *unstructured.UnstructuredList {
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind + "List"))
	return u
}

// readNeedsPerson adds to a node's facts, from its fence's Fencing, why a person should look, and the attachments that
// the fence waits for. It adds nothing if the Fencing gives no reason, or does not exist.
func readNeedsPerson(ctx context.Context, c client.Client, s *view.NodeFacts, r *taint.Record) error {
	u := newFencing()
	if err := c.Get(ctx, client.ObjectKey{Name: journal.ObjectName(s.Node.Name, *r)}, u); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading Fencing: %w", fencingReadError(c, err))
	}
	f, err := view.ParseFencing(u.Object)
	if err != nil {
		return err
	}
	s.NeedsPerson, s.NeedsPersonSince, s.Waiting = view.NeedsPerson(f), view.NeedsPersonSince(f), view.Waiting(f)
	return nil
}

// findFencings returns the Fencings of a node, or the one with that id or name.
func findFencings(ctx context.Context, c client.Client, what string) (out []view.ParsedFencing, _ error) {
	if strings.Contains(what, ".") && len(validation.IsDNS1123Subdomain(what)) == 0 {
		u := newFencing()
		switch err := c.Get(ctx, client.ObjectKey{Name: what}, u); {
		case err == nil:
			f, err := view.ParseFencing(u.Object)
			return []view.ParsedFencing{f}, err
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading Fencing %s: %w", what, fencingReadError(c, err))
		}
	}
	opts := []client.ListOption{}
	take := func(f view.ParsedFencing) bool { return f.Fencing.Spec.Node == what || f.Fencing.Spec.ID == what }
	labels := []string{api.NodeLabel, api.FenceLabel}
	if len(validation.IsValidLabelValue(what)) > 0 {
		labels = labels[:1] // the text is no valid label value, so all are read
	}
	for _, label := range labels {
		if len(labels) > 1 {
			opts = []client.ListOption{client.MatchingLabels{label: what}}
		}
		err := eachObject(ctx, c, newFencings, func(o runtime.Object) error {
			f, err := view.ParseFencing(o.(*unstructured.Unstructured).Object)
			if err == nil && take(f) {
				out = append(out, f)
			}
			return err
		}, opts...)
		if err != nil {
			return nil, fmt.Errorf("listing Fencings: %w", fencingReadError(c, err))
		}
		if len(out) > 0 {
			break
		}
	}
	return out, nil
}
