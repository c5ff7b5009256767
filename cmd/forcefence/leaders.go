package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
)

// leader is a Lease by which controllers elect their leader.
type leader struct {
	Namespace string     `json:"namespace"`
	Lease     string     `json:"lease"`
	Holder    string     `json:"holder,omitempty"` // "": no controller
	Renewed   *time.Time `json:"renewed,omitempty"`
	Leads     bool       `json:"leads"` // a controller holds it, or held it a moment ago
}

// listLeaders returns the Leases of all controllers.
func listLeaders(ctx context.Context, c client.Reader) (out []leader, _ error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.HasLabels{app.LeaderLabel}); err != nil {
		return nil, fmt.Errorf("looking for the leader's Lease: %w", err)
	}
	for _, l := range list.Items {
		one := leader{Namespace: l.Namespace, Lease: l.Name}
		if h := l.Spec.HolderIdentity; h != nil && *h != "" && l.Spec.RenewTime != nil {
			valid := time.Minute // this machine's clock may differ from the controller's
			if s := l.Spec.LeaseDurationSeconds; s != nil {
				valid = max(valid, min(time.Duration(*s)*time.Second, time.Hour))
			}
			at := l.Spec.RenewTime.UTC()
			one.Holder, one.Renewed, one.Leads = *h, &at, time.Since(at) < valid
		}
		out = append(out, one)
	}
	return out, nil
}

// errNoNamespace reports that the controller's namespace cannot be determined.
var errNoNamespace = errors.New("the controller's namespace is unknown (use -n)")

// controllerNamespace returns the controller's namespace: named, or that of its Lease if named is "".
func controllerNamespace(ctx context.Context, c client.Reader, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := listLeaders(ctx, c)
	return onlyNamespace(all, err)
}

// namespacesOf returns the namespaces of the Leases, each once.
func namespacesOf(all []leader) (out []string) {
	for _, l := range all {
		out = append(out, l.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func onlyNamespace(all []leader, err error) (string, error) {
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
