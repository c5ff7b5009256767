package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/kube"
)

// Elsewhere is where else than on a Node it is said that nodes are to be left alone. The zero value is nowhere.
type Elsewhere struct {
	Pause  client.ObjectKey // the ConfigMap that pauses the whole cluster; no name: none
	Leases string           // the namespace of medik8s' Leases; "": none
}

// excludedElsewhere is "" or why the node must be left alone, by what is said elsewhere now. Where we may not read that, it is left alone.
// It blocks for the API server.
func (r *Reconciler) excludedElsewhere(ctx context.Context, at Elsewhere, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var paused, maintained string
	var g errgroup.Group
	if at.Pause.Name != "" {
		g.Go(func() (err error) {
			var cm corev1.ConfigMap
			paused, err = r.said(ctx, "ConfigMap", at.Pause, &cm, func() string {
				if p := fence.PauseOf(cm.Data); !p.Over(r.Now()) {
					return p.String()
				}
				return ""
			})
			return err
		})
	}
	if at.Leases != "" {
		g.Go(func() (err error) {
			var lease coordinationv1.Lease
			key := client.ObjectKey{Namespace: at.Leases, Name: fence.LeaseName(node)}
			maintained, err = r.said(ctx, "Lease", key, &lease, func() string {
				if fence.Maintained(&lease, r.Now()) {
					return "node maintenance"
				}
				return ""
			})
			return err
		})
	}
	err := g.Wait()
	all := slices.DeleteFunc([]string{paused, maintained}, func(s string) bool { return s == "" })
	return strings.Join(all, "; "), err
}

// said is what an object says, with its name; "" if it is not there.
func (r *Reconciler) said(ctx context.Context, kind string, key client.ObjectKey, o client.Object, says func() string) (string, error) {
	switch err := r.Live.Get(ctx, key, o); {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s %s may not be read, and so may say it", kind, key), nil
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading %s %s live: %w", kind, key, err)
	}
	if text := says(); text != "" {
		return fmt.Sprintf("%s %s: %s", kind, key, text), nil
	}
	return "", nil
}

// checkExcluded tells once, when a configuration is new, that everything is paused, or that nobody can read whether it is.
func (p *Policies) checkExcluded(ctx context.Context, config *Config) error {
	why, err := p.Reconciler.excludedElsewhere(ctx, config.Elsewhere, "forcefence")
	if why != "" {
		p.Reconciler.Log.Warn("No node is fenced", "why", why)
	}
	return err
}
