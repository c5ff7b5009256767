package remediation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
)

// FindRequest lists the requests of the namespaces, and returns the one that permits to power off the machine of a Node
// now; "": none does. An error is that of a list or a Machine that cannot be read. It blocks for the API server.
func FindRequest(ctx context.Context, from client.Reader, namespaces []string, node *corev1.Node) (string, error) {
	all, err := ListRequests(ctx, from, namespaces)
	if err != nil {
		return "", err
	}
	for i := range all {
		m, err := readMachine(ctx, from, &all[i])
		if err != nil {
			return "", err
		}
		if request.Refusal(&all[i], m.Machine, node) == "" {
			return describe(types.NamespacedName{Namespace: all[i].Namespace, Name: all[i].Name}), nil
		}
	}
	return "", nil
}

// ListRequests lists the requests of the namespaces; the name "" means all of them. A resource that is not served has
// no requests. It blocks for the API server.
func ListRequests(
	ctx context.Context, from client.Reader, namespaces []string,
) (all []api.ForcefenceRemediation, err error) {
	for _, namespace := range namespaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind + "List"))
		switch err := from.List(ctx, list, client.InNamespace(namespace)); {
		case apimeta.IsNoMatchError(err):
			return nil, nil
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("listing requests: %w", err)
		}
		for i := range list.Items {
			var r api.ForcefenceRemediation
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &r); err != nil {
				return nil, fmt.Errorf("reading request %s/%s: %w", namespace, list.Items[i].GetName(), err)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// ListRequests lists the requests that the Controller follows.
func (c *Controller) ListRequests(ctx context.Context) ([]api.ForcefenceRemediation, error) {
	return ListRequests(ctx, c.live, c.Namespaces)
}
