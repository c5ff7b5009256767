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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/kube"
)

// Elsewhere is where else than on a Node it is said that nodes are to be left alone. The zero value is nowhere.
type Elsewhere struct {
	Pause  client.ObjectKey // the ConfigMap that pauses the whole cluster; no name: none
	Leases string           // the namespace of medik8s' Leases; "": none
}

// Says is "" or why the node must be left alone, by what is said elsewhere at now: there, and by Cluster API's objects where m knows them.
// denied are the objects that c may not read, and that may say it. It blocks for the API server.
func (at Elsewhere) Says(ctx context.Context, c client.Reader, m meta.RESTMapper, node *corev1.Node, now time.Time) (why string, denied []string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var paused, maintained, machine, cluster said
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
			key := client.ObjectKey{Namespace: at.Leases, Name: fence.LeaseName(node.Name)}
			maintained, err = wordOf(ctx, c, "Lease", key, &lease, func() string {
				if fence.Maintained(&lease, now) {
					return "node maintenance"
				}
				return ""
			})
			return err
		})
	}
	namespace, ofMachine, ofCluster := fence.MachineOf(node)
	g.Go(func() (err error) {
		machine, err = clusterAPIWord(ctx, c, m, "Machine", client.ObjectKey{Namespace: namespace, Name: ofMachine})
		return err
	})
	g.Go(func() (err error) {
		cluster, err = clusterAPIWord(ctx, c, m, "Cluster", client.ObjectKey{Namespace: namespace, Name: ofCluster})
		return err
	})
	err := g.Wait()
	var all []string
	for _, s := range []said{paused, maintained, machine, cluster} {
		if s.denied != "" {
			denied = append(denied, s.denied)
		}
		if s.why != "" {
			all = append(all, s.why)
		}
	}
	return strings.Join(all, "; "), denied, err
}

// clusterAPIWord is what Cluster API's Machine or Cluster of a Node says, where its objects are in this cluster. A name that no object can
// have names none.
func clusterAPIWord(ctx context.Context, c client.Reader, m meta.RESTMapper, kind string, key client.ObjectKey) (said, error) {
	if len(validation.IsDNS1123Label(key.Namespace))+len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return said{}, nil
	}
	o, err := kube.Served(m, schema.GroupKind{Group: fence.ClusterAPI, Kind: kind})
	if o == nil || err != nil {
		return said{}, err
	}
	return wordOf(ctx, c, kind, key, o, func() string {
		paused, _, err := unstructured.NestedBool(o.Object, "spec", "paused")
		return fence.LeftAlone(o.GetAnnotations(), paused || err != nil)
	})
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
func (r *Reconciler) excludedElsewhere(ctx context.Context, at Elsewhere, node *corev1.Node) (string, error) {
	why, denied, err := at.Says(ctx, r.Live, r.Client.RESTMapper(), node, r.Now())
	for _, name := range denied {
		why += "; " + name + " may not be read, and so may say it"
	}
	return strings.TrimPrefix(why, "; "), err
}

// checkExcluded tells once, when a configuration is new, that everything is paused, or that nobody can read whether it is.
func (p *Policies) checkExcluded(ctx context.Context, config *Config) error {
	why, err := p.Reconciler.excludedElsewhere(ctx, config.Elsewhere, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forcefence"}})
	if why != "" {
		p.Reconciler.Log.Warn("No node is fenced", "why", why)
	}
	return err
}
