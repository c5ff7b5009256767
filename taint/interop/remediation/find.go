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

	"github.com/forcefence/forcefence/taint/interop/remediation/api"
	"github.com/forcefence/forcefence/taint/interop/remediation/request"
)

// FindRequest lists the requests of the namespaces, and returns the one that permits to power off the machine of a Node
// now; "": none does. An error is that of a list or a Machine that cannot be read; a resource that is not served has no
// requests. It blocks for the API server.
func FindRequest(ctx context.Context, from client.Reader, namespaces []string, node *corev1.Node) (string, error) {
	for _, namespace := range namespaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind + "List"))
		switch err := from.List(ctx, list, client.InNamespace(namespace)); {
		case apimeta.IsNoMatchError(err):
			return "", nil
		case client.IgnoreNotFound(err) != nil:
			return "", fmt.Errorf("listing requests: %w", err)
		}
		for i := range list.Items {
			var r api.ForcefenceRemediation
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &r); err != nil {
				return "", fmt.Errorf("reading request %s/%s: %w", namespace, list.Items[i].GetName(), err)
			}
			m, err := readMachine(ctx, from, &r)
			if err != nil {
				return "", err
			}
			if request.Refusal(&r, m.Machine, node) == "" {
				return describe(types.NamespacedName{Namespace: r.Namespace, Name: r.Name}), nil
			}
		}
	}
	return "", nil
}
