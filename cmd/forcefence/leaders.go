package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/taint/view"
)

// errNoNamespace reports that the controller's namespace cannot be determined.
var errNoNamespace = errors.New("the controller's namespace is unknown (use -n)")

// controllerNamespace returns the controller's namespace: named, or that of its Lease if named is "".
func controllerNamespace(ctx context.Context, c client.Reader, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := app.ListLeaders(ctx, c, time.Now())
	return onlyNamespace(all, err)
}

// namespacesOf returns the namespaces of the Leases, each once.
func namespacesOf(all []view.Leader) (out []string) {
	for _, l := range all {
		out = append(out, l.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func onlyNamespace(all []view.Leader, err error) (string, error) {
	found := namespacesOf(all)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", errNoNamespace, err)
	case len(found) == 0:
		return "", fmt.Errorf("%w: no controller has created its Lease in this cluster", errNoNamespace)
	case len(found) > 1:
		return "", fmt.Errorf("%w: controllers have Leases in %s", errNoNamespace, strings.Join(found, ", "))
	}
	return found[0], nil
}
