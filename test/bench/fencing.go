package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/test/cluster"
)

const (
	poolGroup    = "storage.bench.forcefence.io"
	fencedPods   = 20
	fencingLimit = 1.0 // seconds, beyond the policy's own poll
)

// fencing times what the preset storageos does about a node that its storage system calls unhealthy, while its kubelet
// is cut off and its machine runs: where the storage fences, and by the rule as written. Beside it, the same pods
// recover from a power cut with proof.
func fencing(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 5, late: true})
	if err != nil {
		return err
	}
	defer l.end()
	p, err := newPool(ctx, l)
	if err != nil {
		return err
	}
	l.top = p.rules()
	if err := l.startForcefence(ctx); err != nil {
		return err
	}
	set := cluster.Workload{Namespace: namespace, Name: "db", Replicas: fencedPods, Volume: true}.StatefulSet()
	set.Spec.Template.Labels["storageos.com/fenced"] = "true"
	if err := p.deploy(ctx, set); err != nil {
		return err
	}
	gone, back := map[string][]float64{}, map[string][]float64{}
	const proof = "proof"
	for i := range r.o.pairs {
		for j, kind := range []string{string(policy.StorageFences), proof, string(policy.AcceptDuplicates)} {
			victim := l.names[(3*i+j)%len(l.names)]
			if err := l.gather(ctx, fencedPods, victim); err != nil {
				return err
			}
			if !wait(ctx, settle) {
				return ctx.Err()
			}
			var t *turn
			from := func() time.Time { return t.zero }
			if kind == proof {
				t, err = l.play(ctx, outage{victims: []string{victim}, side: oursSide})
				from = func() time.Time { return t.firstSign() }
			} else {
				t, err = p.play(ctx, victim, kind)
			}
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, kind, err)
			}
			gone[kind] = append(gone[kind], t.lastGone.Sub(from()).Seconds())
			back[kind] = append(back[kind], t.backAt.Sub(from()).Seconds())
			r.say("%2d %-17s last of %d pods gone after %.3f s, all run again after %.3f s", i+1, kind, len(t.old),
				gone[kind][i], back[kind][i])
		}
	}
	const fences, written = string(policy.StorageFences), string(policy.AcceptDuplicates)
	r.add(figure("unhealthy to last pod gone", "s", append(gone[fences], gone[written]...)).
		atMost(policy.StorageOSIntervals.Poll.Seconds() + fencingLimit))
	r.add(figure("stale Lease or NotReady, the earlier, to last pod gone, with proof", "s", gone[proof]))
	r.add(figure("unhealthy to every pod running, storage-fences; the floor is proof's", "s", back[fences]).
		above(back[proof]))
	r.add(figure("unhealthy to every pod running, as written; the floor is proof's", "s", back[written]).
		above(back[proof]))
	r.add(figure("storage-fences, times proof, round by round", "x", ratios(back[fences], back[proof])))
	r.add(figure("as written, times proof, round by round", "x", ratios(back[written], back[proof])))
	return nil
}

// pool is a storage system that says of nodes and volumes whether they are healthy.
type pool struct {
	l      *lab
	client dynamic.Interface
}

func newPool(ctx context.Context, l *lab, more ...string) (*pool, error) {
	client, err := dynamic.NewForConfig(l.c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	crds := client.Resource(
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"})
	for _, kind := range append([]string{"Node", "Volume"}, more...) {
		plural := strings.ToLower(kind) + "s"
		_, err := crds.Apply(ctx, plural+"."+poolGroup, &unstructured.Unstructured{Object: object{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": object{"name": plural + "." + poolGroup},
			"spec": object{
				"group": poolGroup, "scope": "Cluster",
				"names": object{"kind": kind, "plural": plural, "singular": strings.ToLower(kind)},
				"versions": []any{
					object{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": object{
						"type": "object", "properties": object{"health": object{"type": "string"}},
						"x-kubernetes-preserve-unknown-fields": true,
					}}}},
			},
		}}, metav1.ApplyOptions{FieldManager: namespace, Force: true})
		if err != nil {
			return nil, fmt.Errorf("defining the storage's %s: %w", kind, err)
		}
	}
	p := &pool{l, client}
	return p, parallel(l.names, func(n string) error { return p.says(ctx, "Node", n, "online") })
}

// says writes what the system says. A definition that is new may take a moment to be served.
func (p *pool) says(ctx context.Context, kind, name, health string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of := schema.GroupVersionResource{Group: poolGroup, Version: "v1", Resource: strings.ToLower(kind) + "s"}
	for {
		_, err := p.client.Resource(of).Apply(ctx, name, &unstructured.Unstructured{Object: object{
			"apiVersion": poolGroup + "/v1", "kind": kind, "metadata": object{"name": name}, "health": health,
		}}, metav1.ApplyOptions{FieldManager: namespace, Force: true})
		if err == nil {
			return nil
		}
		if !wait(ctx, 100*time.Millisecond) {
			return fmt.Errorf("saying that %s %s is %s: %w", kind, name, health, err)
		}
	}
}

// rules are its adapter, and a policy for each word, on the nodes that are labelled with it.
func (p *pool) rules() string {
	const health = `{"online": true, "offline": false}[object.health]`
	out := fmt.Sprintf(`storage:
- name: pool
  drivers: [%s]
  node: {resource: nodes.v1.%s, name: object.metadata.name, healthy: %q}
  volume: {resource: volumes.v1.%[2]s, find: pv, key: object.metadata.name, healthy: %[3]q}
policies:
`, cluster.CSIDriver, poolGroup, health)
	for _, word := range []policy.WithoutProof{policy.StorageFences, policy.AcceptDuplicates} {
		out += fmt.Sprintf("- {name: %s, preset: storageos, storage: pool, nodes: word=%[1]s, withoutProof: %[1]s}\n",
			word)
	}
	return out
}

// deploy makes the workload, and reports that its volumes are healthy.
func (p *pool) deploy(ctx context.Context, set *appsv1.StatefulSet) error {
	api := p.l.c.Client()
	if _, err := api.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create StatefulSet: %w", err)
	}
	p.l.pods += fencedPods
	if err := p.l.running(ctx, 0, nil); err != nil {
		return err
	}
	claims, err := api.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	return parallel(claims.Items,
		func(c corev1.PersistentVolumeClaim) error { return p.says(ctx, "Volume", c.Spec.VolumeName, "online") })
}

// play is one turn: a node's kubelet is cut off, and once it is NotReady its storage calls it unhealthy.
func (p *pool) play(ctx context.Context, victim, word string) (*turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	l, node := p.l, p.l.c.Node(victim)
	label := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"word":%s}}}`, value)
		if _, err := l.c.Client().CoreV1().Nodes().
			Patch(ctx, victim, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("labelling %s: %w", victim, err)
		}
		return nil
	}
	if err := label(fmt.Sprintf("%q", word)); err != nil {
		return nil, err
	}
	t, err := l.watched(ctx, []string{victim})
	if err != nil {
		return nil, err
	}
	defer l.watch.follow(nil)
	node.StopHeartbeats()
	defer node.ResumeHeartbeats()
	if err := l.c.WaitNode(ctx, victim, func(n *corev1.Node) bool { return !nodeReady(n) }); err != nil {
		return nil, fmt.Errorf("cutting off %s: %w", victim, err)
	}
	if !wait(ctx, settle) {
		return nil, context.Cause(ctx)
	}
	t.begin(time.Now())
	if err := p.says(ctx, "Node", victim, "offline"); err != nil {
		return nil, err
	}
	if err := cluster.Until(ctx,
		func(context.Context) (bool, error) { return t.isBack() && t.missing(false) == "", nil }); err != nil {
		return nil,
			fmt.Errorf("%s on %s: %s, %d of %d run again: %w", word, victim, t.missing(false), t.running(), fencedPods,
				err)
	}
	l.watch.follow(nil)
	node.ResumeHeartbeats()
	if err := p.says(ctx, "Node", victim, "online"); err != nil {
		return nil, err
	}
	if err := label("null"); err != nil {
		return nil, err
	}
	return t, l.boot(ctx, []string{victim})
}
