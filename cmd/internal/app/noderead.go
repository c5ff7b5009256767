package app

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// NodeReader returns a function that reads Nodes for providers (providers.Options.Node), through a client that asks the
// API server and no cache; nil for nil.
func NodeReader(live client.Reader) func(context.Context, string) (providers.Node, error) {
	if live == nil {
		return nil
	}
	return func(ctx context.Context, name string) (providers.Node, error) {
		var n corev1.Node
		if err := live.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			class := providers.ErrUnreachable
			switch {
			case apierrors.IsNotFound(err):
				class = providers.ErrNotFound
			case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
				class = providers.ErrDenied
			}
			return providers.Node{}, providers.WithClass(class, fmt.Errorf("reading node: %w", err))
		}
		out := providers.Node{UID: string(n.UID), BootID: n.Status.NodeInfo.BootID}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				out.Ready = string(c.Status)
			}
		}
		for _, t := range n.Spec.Taints {
			out.Taints = append(out.Taints, providers.NodeTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
		switch c, err := taint.ConfirmationOf(&n); {
		case err != nil:
			out.Confirmed.Refused = strings.TrimPrefix(err.Error(), taint.ErrConfirmation.Error()+": ")
		case c != nil:
			out.Confirmed = providers.Confirmed{By: c.By, Reason: c.Reason, At: c.At}
		}
		return out, nil
	}
}
