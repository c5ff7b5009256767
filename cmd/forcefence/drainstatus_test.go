package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/test/cluster"
)

// The command reads only the Node and the PodDisruptionBudgets: it needs no controller.
func TestDrainStatus(t *testing.T) {
	admin := cluster.Admin(t, shared)
	ctx := t.Context()
	now := time.Now().Truncate(time.Second)
	held := drain.Progress{
		Guard: "disks", Policy: drain.BlockForEviction, Since: now.Add(-10 * time.Minute), WrittenAt: now, Total: 30,
		Left:    25,
		Volumes: []drain.Held{{Volume: "vol-7", Replica: "vol-7-r1", Why: "it has not left yet"}},
	}
	blind := drain.Progress{Guard: "blind", Policy: drain.BlockIfLast, Since: now.Add(-time.Minute),
		Unknown: "replicas were not listed yet"}
	for _, n := range []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "drained", Annotations: map[string]string{
			taint.DrainAnnotation: drain.EncodeProgress(
				map[string]*drain.Progress{"disks": &held, "blind": &blind}),
			taint.AutoEvictingAnnotation: "true",
		}}, Spec: corev1.NodeSpec{Unschedulable: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
	} {
		if err := admin.Create(ctx, n); err != nil {
			t.Fatal(err)
		}
		defer admin.Delete(ctx, n)
	}
	g := drain.Guard{Name: "disks", Pods: &metav1.LabelSelector{}, Identity: drain.Identity{"node"}}
	var budgets []*policyv1.PodDisruptionBudget
	for _, node := range []string{"drained", "guarded"} {
		b := g.BudgetFor(drain.Pod{Namespace: "default", Node: node, Labels: map[string]string{"node": node}})
		if err := admin.Create(ctx, b); err != nil {
			t.Fatal(err)
		}
		budgets = append(budgets, b)
	}
	policies := drainPolicies{admin, client.ObjectKey{Namespace: "default", Name: config.DrainConfigMap},
		func() time.Time { return now }}
	for node, p := range map[string]drain.Override{
		"drained":      {Policy: drain.BlockForEviction, Until: now.Add(4 * time.Hour)},
		drain.AllNodes: {Policy: drain.AlwaysAllow},
	} {
		if _, err := policies.set(ctx, node, p); err != nil {
			t.Fatal(err)
		}
	}
	defer admin.Delete(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: config.DrainConfigMap}})
	for node, want := range map[string][]string{
		"drained": {
			"Node drained is cordoned.\n",
			"Drain policy block-for-eviction until " + now.Add(4*time.Hour).UTC().Format(time.RFC3339) +
				", set for this node.",
			"Then the configuration's applies.\n",
			fmt.Sprintf("Drain guard disks, policy block-for-eviction: blocked for 10m0s, PodDisruptionBudget "+
				"default/%s\n", budgets[0].Name),
			"Replicas: 5 of 30 have left, 25 block the drain; 0.5 a minute so far, about 50m0s remaining\n",
			"disks   vol-7    vol-7-r1   it has not left yet\nand 24 more replicas\n",
			"Drain guard blind, policy block-if-contains-last-replica: blocked for 1m0s, but forcefence's " +
				"PodDisruptionBudget does not exist",
			"The storage system's state is unknown: replicas were not listed yet.",
			"the rate is unknown until one has left",
		},
		"guarded": {"Node guarded is not cordoned. forcefence does not block its drain now. Its guards:\n  drain " +
			"guard " +
			"disks, PodDisruptionBudget default/" + budgets[1].Name},
		"bare": {"Node bare is not cordoned. forcefence does not block its drain.\n",
			"Drain policy always-allow without an end, set for all nodes.\n"},
	} {
		s, err := drainStatusOf(ctx, admin, node, "default", now)
		if err != nil {
			t.Fatal(err)
		}
		if s.AutoEvicting != (node == "drained") {
			t.Errorf("%s: auto-evicting: got %t", node, s.AutoEvicting)
		}
		var out bytes.Buffer
		if err := s.printDrain(&out, false); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: want %q in:\n%s", node, text, &out)
			}
		}
	}
	if _, err := drainStatusOf(ctx, admin, "missing", "default", now); err == nil {
		t.Error("a node that does not exist: got no error")
	}

	// What holds drains up goes with the controller, by the command that cleans up after it.
	var out bytes.Buffer
	c := cleanup{client: admin, out: &out, key: taint.DefaultKey}
	if err := c.removeLeftovers(ctx); err == nil ||
		!strings.Contains(out.String(), "PodDisruptionBudget default/"+budgets[0].Name) {
		t.Errorf("cleanup without --yes: got %v\n%s", err, &out)
	}
	c.yes = true
	if err := c.removeLeftovers(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err := drainStatusOf(ctx, admin, "drained", "default", now); err != nil || len(s.Budgets)+len(s.Guards) > 0 {
		t.Errorf("after cleanup: got %+v, %v", s, err)
	}
}
