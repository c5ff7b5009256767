package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// Says is "" or why the node must be left alone, by what is said elsewhere at now. denied are the objects that c may not read, and that may
// say it. It blocks for the API server.
func (at Elsewhere) Says(ctx context.Context, c client.Reader, node string, now time.Time) (why string, denied []string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var paused, maintained said
	var g errgroup.Group
	if at.Pause.Name != "" {
		g.Go(func() (err error) {
			var cm corev1.ConfigMap
			paused, err = wordOf(ctx, c, "ConfigMap", at.Pause, &cm, func() string {
				if p := fence.PauseOf(cm.Data); !p.Over(now) {
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
			maintained, err = wordOf(ctx, c, "Lease", key, &lease, func() string {
				if fence.Maintained(&lease, now) {
					return "node maintenance"
				}
				return ""
			})
			return err
		})
	}
	err := g.Wait()
	var all []string
	for _, s := range []said{paused, maintained} {
		if s.denied != "" {
			denied = append(denied, s.denied)
		}
		if s.why != "" {
			all = append(all, s.why)
		}
	}
	return strings.Join(all, "; "), denied, err
}

// said is what one object says, or its name where it may not be read.
type said struct{ why, denied string }

// wordOf is what an object says, with its name; nothing if it is not there.
func wordOf(ctx context.Context, c client.Reader, kind string, key client.ObjectKey, o client.Object, text func() string) (said, error) {
	name := fmt.Sprintf("%s %s", kind, key)
	switch err := c.Get(ctx, key, o); {
	case apierrors.IsForbidden(err):
		return said{denied: name}, nil
	case apierrors.IsNotFound(err):
		return said{}, nil
	case err != nil:
		return said{}, fmt.Errorf("reading %s live: %w", name, err)
	}
	if why := text(); why != "" {
		return said{why: fmt.Sprintf("%s: %s", name, why)}, nil
	}
	return said{}, nil
}

// excludedElsewhere is "" or why the node must be left alone, by what is said elsewhere now. Where we may not read that, it is left alone.
// It blocks for the API server.
func (r *Reconciler) excludedElsewhere(ctx context.Context, at Elsewhere, node string) (string, error) {
	why, denied, err := at.Says(ctx, r.Live, node, r.Now())
	for _, name := range denied {
		why += "; " + name + " may not be read, and so may say it"
	}
	return strings.TrimPrefix(why, "; "), err
}

// checkExcluded tells once, when a configuration is new, that everything is paused, or that nobody can read whether it is.
func (p *Policies) checkExcluded(ctx context.Context, config *Config) error {
	why, err := p.Reconciler.excludedElsewhere(ctx, config.Elsewhere, "forcefence")
	if why != "" {
		p.Reconciler.Log.Warn("No node is fenced", "why", why)
	}
	return err
}
