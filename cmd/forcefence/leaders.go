package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/taint/view"
)

// errNoNamespace reports that the controller's namespace cannot be determined.
var errNoNamespace = errors.New("the controller's namespace is unknown (use -n)")

// controllerNamespace returns the controller's namespace: named, or the one that the leader's Lease names if named is
// "".
func controllerNamespace(ctx context.Context, c client.Reader, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	return namespaceOf(app.ReadLeader(ctx, c, time.Now()))
}

// namespaceOf returns the controller's namespace by its Lease.
func namespaceOf(l *view.Leader, err error) (string, error) {
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", errNoNamespace, err)
	case l.Lease == "":
		return "", fmt.Errorf("%w: no controller has created its Lease in this cluster", errNoNamespace)
	case l.Namespace == "":
		return "", fmt.Errorf("%w: Lease %s does not name it", errNoNamespace, l.Lease)
	}
	return l.Namespace, nil
}
