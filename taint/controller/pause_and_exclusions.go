package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
)

// ExclusionSources are the objects other than the Node that can exclude nodes. The zero value is none.
type ExclusionSources struct {
	Pause  client.ObjectKey // the ConfigMap that pauses the whole cluster; no name: none
	Leases string           // the namespace of medik8s' Leases; "": none
	// KeptOn reads live why another controller's object forbids to change the power of the Node's machine; "": it does
	// not. nil: no such object is read.
	KeptOn func(ctx context.Context, c client.Reader, m meta.RESTMapper, node *corev1.Node) string
}

// Exclusions is what those objects state about a node. The zero value is nothing.
type Exclusions struct {
	Excluded string   // why it must be left alone
	KeptOn   string   // why its machine's power must be left alone: an object says so, or cannot be read
	Denied   []string // the objects that we may not read, and that may exclude it
}

// ReadExclusions reads the exclusions of a live Node at now from those objects, and from Cluster API's objects if m
// knows them. It blocks for the API server.
func (at ExclusionSources) ReadExclusions(
	ctx context.Context, c client.Reader, m meta.RESTMapper, node *corev1.Node, now time.Time,
) (w Exclusions, _ error) {
	// a read that is shared begins after the one that is under way
	ctx, cancel := context.WithTimeout(ctx, 2*kube.Timeout)
	defer cancel()
	var paused, maintained, machine, cluster exclusion
	var g errgroup.Group
	if at.Pause.Name != "" {
		g.Go(func() (err error) {
			paused, err = readPause(ctx, c, at.Pause, now)
			return err
		})
	}
	if at.Leases != "" {
		g.Go(func() (err error) {
			var lease coordinationv1.Lease
			key := client.ObjectKey{Namespace: at.Leases, Name: fence.LeaseName(node.Name)}
			maintained, err = readExclusion(ctx, c, "Lease", key, &lease, func() string {
				if fence.IsUnderMaintenance(&lease, now) {
					return "node maintenance"
				}
				return ""
			})
			return err
		})
	}
	var unread [2]string
	var kept string
	if at.KeptOn != nil {
		g.Go(func() error {
			kept = at.KeptOn(ctx, c, m, node)
			return nil
		})
	}
	namespace, ofMachine, ofCluster := fence.MachineOf(node)
	g.Go(func() error {
		machine, unread[0] = readClusterAPI(ctx, c, m, "Machine",
			client.ObjectKey{Namespace: namespace, Name: ofMachine})
		return nil
	})
	g.Go(func() error {
		cluster, unread[1] = readClusterAPI(ctx, c, m, "Cluster",
			client.ObjectKey{Namespace: namespace, Name: ofCluster})
		return nil
	})
	err := g.Wait()
	var all []string
	for _, s := range []exclusion{paused, maintained, machine, cluster} {
		if s.denied != "" {
			w.Denied = append(w.Denied, s.denied)
		}
		if s.why != "" {
			all = append(all, s.why)
		}
	}
	w.Excluded, w.KeptOn = strings.Join(all, "; "), cmp.Or(unread[0], unread[1], kept)
	return w, err
}

// conversionTimeout bounds the reading of Cluster API's objects. The webhook that converts them may run on the dead
// node.
const conversionTimeout = 3 * time.Second

// readPause returns what the ConfigMap that pauses the whole cluster states at now.
func readPause(ctx context.Context, c client.Reader, key client.ObjectKey, now time.Time) (exclusion, error) {
	var cm corev1.ConfigMap
	return readExclusion(ctx, c, "ConfigMap", key, &cm, func() string {
		if p := fence.PauseOf(cm.Data); !p.IsOver(now) {
			return p.String()
		}
		return ""
	})
}

// readClusterAPI returns what Cluster API's Machine or Cluster of a Node states, if its objects are in this cluster. A
// name that no object can have names none. If the object exists and cannot be read, for any reason, unread says so.
// That keeps the node's machine on, and does not delay the recovery of a node whose machine is off.
func readClusterAPI(
	ctx context.Context, c client.Reader, m meta.RESTMapper, kind string, key client.ObjectKey,
) (s exclusion, unread string) {
	if len(validation.IsDNS1123Label(key.Namespace))+len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return exclusion{}, ""
	}
	ctx, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	o, err := kube.NewServedObject(m, schema.GroupKind{Group: fence.ClusterAPI, Kind: kind})
	if o == nil && err == nil {
		return exclusion{}, ""
	}
	if err == nil {
		s, err = readExclusion(ctx, c, kind, key, o, func() string {
			paused, _, err := unstructured.NestedBool(o.Object, "spec", "paused")
			return fence.ClusterAPIExclusion(o.GetAnnotations(), paused || err != nil)
		})
	}
	if err != nil || s.denied != "" {
		return exclusion{}, fmt.Sprintf("%s %s cannot be read, and may exclude the node", kind, key)
	}
	return s, ""
}

// exclusion is what one object states, or its name if we may not read it.
type exclusion struct{ why, denied string }

// readExclusion returns what an object states, with its name; nothing if it does not exist.
func readExclusion(
	ctx context.Context, c client.Reader, kind string, key client.ObjectKey, o client.Object, text func() string,
) (exclusion, error) {
	name := fmt.Sprintf("%s %s", kind, key)
	switch err := c.Get(ctx, key, o); {
	case apierrors.IsForbidden(err):
		return exclusion{denied: name}, nil
	case apierrors.IsNotFound(err):
		return exclusion{}, nil
	case err != nil:
		return exclusion{}, fmt.Errorf("reading %s live: %w", name, err)
	}
	if why := text(); why != "" {
		return exclusion{why: fmt.Sprintf("%s: %s", name, why)}, nil
	}
	return exclusion{}, nil
}
