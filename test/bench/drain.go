package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
)

const (
	drainNodes    = 1000
	drainInputMax = 50 // milliseconds
	drainPasses   = 25
)

// drainPass measures what a drain guard takes from what its watches hold to a decision about every node, once something
// changed: with all nodes in use, with ten of them cordoned at once, and about one node after a live look.
func drainPass(r *runner) error {
	preset, _ := storage.PresetOf("longhorn")
	a, bad := storage.CompileAdapter("longhorn", preset.Spec)
	if len(bad) > 0 {
		return fmt.Errorf("compiling the preset: %v", bad)
	}
	state := storage.NewState(a)
	for _, k := range storage.Kinds {
		state.Replace(k, nil)
	}
	for i := range drainNodes {
		state.Put(storage.Nodes, storedNode(i))
	}
	for i := range storageVolumes {
		for c := range storageCopies {
			state.Put(storage.Replicas, replicaAmong(drainNodes, i, c, "running"))
		}
	}
	g := drain.Guard{
		Name: "bench", Policy: drain.BlockForEvictionIfLast, Namespace: storageNamespace,
		Identity: drain.Identity{podLabel},
		Pods:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}},
	}
	var nodes []corev1.Node
	var pods []corev1.Pod
	var budgets []policyv1.PodDisruptionBudget
	for i := range drainNodes {
		nodes = append(nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		name := fmt.Sprintf("engine-%d", i)
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: storageNamespace, Name: name, UID: types.UID(name),
				Labels: map[string]string{"app": "engine", podLabel: name}},
			Spec: corev1.PodSpec{NodeName: nodeName(i)},
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		pods = append(pods, pod)
		b := g.BudgetFor(drain.SeePod(&pod))
		b.UID, b.ResourceVersion = types.UID("b-"+name), "1"
		budgets = append(budgets, *b)
	}
	see := func() drain.View {
		v := drain.View{Guard: g, Nodes: map[string]drain.Node{}, Storage: state}
		for i := range nodes {
			v.Nodes[nodes[i].Name] = drain.SeeNode(&nodes[i])
		}
		for i := range pods {
			v.Pods = append(v.Pods, drain.SeePod(&pods[i]))
		}
		for i := range budgets {
			v.Budgets = append(v.Budgets, drain.SeeBudget(&budgets[i]))
		}
		return v
	}
	size := fmt.Sprintf("%d nodes with a storage pod and a PodDisruptionBudget each, %d volumes, %d replicas",
		drainNodes, storageVolumes, storageVolumes*storageCopies)
	for _, cordoned := range []int{0, 10} {
		for i := range nodes {
			nodes[i].Spec.Unschedulable = i < cordoned
		}
		var all, one []float64
		for range drainPasses {
			runtime.GC() // each pays for its own garbage
			begun := time.Now()
			v := see().WithIndex()
			held, acts := 0, len(drain.DecideLeftovers(v))
			for i := range nodes {
				d := drain.DecideNode(v, nodes[i].Name)
				acts += len(slices.DeleteFunc(d.Acts, func(a drain.Act) bool { return a.Do == drain.DeleteBudget }))
				if d.Held {
					held++
				}
			}
			all = append(all, ms(time.Since(begun)))
			if acts > 0 || held < drainNodes-cordoned {
				return fmt.Errorf("%d nodes are guarded and %d acts are due, want %d and none", held, acts,
					drainNodes-cordoned)
			}
			runtime.GC()
			begun = time.Now()
			if v := see(); drain.DecideNode(v, nodes[0].Name).Unknown != "" {
				return fmt.Errorf("node %s: nothing is known of its storage", nodes[0].Name)
			}
			one = append(one, ms(time.Since(begun)))
		}
		r.add(figure(fmt.Sprintf("drain guard: a pass over %s, %d of them cordoned", size, cordoned), "ms", all).
			atMost(drainInputMax))
		r.add(figure(fmt.Sprintf("drain guard: one node's decision after a live look at all, %d cordoned", cordoned),
			"ms", one).atMost(drainInputMax))
	}
	return nil
}

// podLabel is the label that distinguishes a StatefulSet's pods.
const podLabel = "statefulset.kubernetes.io/pod-name"
