package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
)

// newDrainStatus returns the command that shows what a drain waits for.
func newDrainStatus() *cobra.Command {
	var cluster clusterFlags
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "status NODE",
		Short: "Show what a node's drain waits for: volumes, replicas, and how long they take",
		Long: `Show what a node's drain waits for, as the controller wrote it on the Node: the
volumes and why, how many replicas are left, their rate so far, and how long the
rest takes at that rate. A policy that "forcefence drain policy" set is shown with
its end. The command reads the API server only, and changes nothing.`,
		Example:           `  forcefence drain status n3`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			s, err := drainStatusOf(cmd.Context(), c, args[0], cluster.overrides.Context.Namespace, time.Now())
			if err != nil {
				return err
			}
			return format.print(cmd.OutOrStdout(), report{s, s.table(), s.printDrain})
		}),
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	format.addFlag(cmd)
	return withRole(cmd, roleLook)
}

// drainStatus is the state of a node's drain, and its JSON form.
type drainStatus struct {
	Node          string       `json:"node"`
	Cordoned      bool         `json:"cordoned"`
	AutoEvicting  bool         `json:"autoEvicting"`
	Policy        *nodePolicy  `json:"policy,omitempty"`        // that an operator set; nil: none, or not read
	MissingPolicy string       `json:"missingPolicy,omitempty"` // why the policy could not be read
	Guards        []heldGuard  `json:"guards"`                  // drain guards that block the drain
	Budgets       []heldBudget `json:"budgets"`                 // forcefence's budgets for the node's storage pods
}

type heldGuard struct {
	drain.Progress
	Budget            string  `json:"budget"` // namespace/name; "" if there is none
	HeldSeconds       float64 `json:"heldSeconds"`
	ReplicasPerMinute float64 `json:"replicasPerMinute,omitempty"` // 0: none has left so far
	RestSeconds       float64 `json:"restSeconds,omitempty"`
}

type heldBudget struct {
	Guard  string `json:"guard"`
	Budget string `json:"budget"`
}

// drainStatusOf reads a node's drain. namespace is the controller's; "": that of its Lease.
func drainStatusOf(
	ctx context.Context, c client.Reader, name, namespace string, now time.Time,
) (drainStatus, error) {
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return drainStatus{}, fmt.Errorf("reading node: %w", err)
	}
	var list policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &list, client.HasLabels{taint.DrainGuardLabel}); err != nil {
		return drainStatus{}, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	s := drainStatus{
		Node:         name,
		Cordoned:     node.Spec.Unschedulable,
		AutoEvicting: node.Annotations[taint.AutoEvictingAnnotation] == "true",
		Guards:       []heldGuard{},
		Budgets:      []heldBudget{},
	}
	s.Policy, s.MissingPolicy = readNodePolicy(ctx, c, name, namespace, now)
	for i := range list.Items {
		if b := &list.Items[i]; b.Annotations[taint.GuardedNodeAnnotation] == name {
			s.Budgets = append(s.Budgets, heldBudget{b.Labels[taint.DrainGuardLabel], b.Namespace + "/" + b.Name})
		}
	}
	for _, p := range drain.ProgressOf(&node) {
		g := heldGuard{Progress: *p, HeldSeconds: now.Sub(p.Since).Seconds()}
		if i := slices.IndexFunc(s.Budgets, func(b heldBudget) bool { return b.Guard == p.Guard }); i >= 0 {
			g.Budget = s.Budgets[i].Budget
		}
		if rate, rest, known := p.Rate(now); known {
			g.ReplicasPerMinute, g.RestSeconds = rate, rest.Seconds()
		}
		s.Guards = append(s.Guards, g)
	}
	slices.SortFunc(s.Guards, func(a, b heldGuard) int { return cmp.Compare(a.Guard, b.Guard) })
	return s, nil
}

// table has a row for each volume that blocks the drain, as far as the Node lists them.
func (s drainStatus) table() *metav1.Table {
	t := newTable("Guard", "Volume", "Replica", "Why", "+Policy", "+Budget")
	for _, g := range s.Guards {
		for _, v := range g.Volumes {
			addRow(t, nodeNamed(s.Node), g.Guard, v.Volume, v.Replica, v.Why, g.Policy, g.Budget)
		}
	}
	return t
}

// printDrain prints the state of the drain and of each guard, then the table.
func (s drainStatus) printDrain(out io.Writer, wide bool) error {
	word := "is not cordoned"
	if s.Cordoned {
		word = "is cordoned"
	}
	switch {
	case len(s.Guards) > 0:
		printText(out, "", "Node %s %s.", s.Node, word)
	case len(s.Budgets) == 0:
		printText(out, "", "Node %s %s. forcefence does not block its drain.", s.Node, word)
	default:
		printText(out, "", "Node %s %s. forcefence does not block its drain now. Its guards:", s.Node, word)
		for _, b := range s.Budgets {
			printText(out, "  ", "drain guard %s, PodDisruptionBudget %s", b.Guard, b.Budget)
		}
	}
	switch {
	case s.Policy != nil:
		printText(out, "", "%s", s.Policy)
	case s.MissingPolicy != "":
		printText(out, "", "A drain policy of this node could not be read: %s.", s.MissingPolicy)
	}
	unlisted := 0
	for _, g := range s.Guards {
		by := "PodDisruptionBudget " + g.Budget
		if g.Budget == "" {
			by = "but forcefence's PodDisruptionBudget does not exist, so nothing blocks the drain"
		}
		fmt.Fprintln(out)
		printText(out, "", "Drain guard %s, policy %s: blocked for %s, %s", g.Guard, g.Policy,
			formatSeconds(g.HeldSeconds), by)
		if g.Unknown != "" {
			printText(out, "", "The storage system's state is unknown: %s. The drain waits until it is known.",
				g.Unknown)
		}
		rate := "the rate is unknown until one has left"
		if g.ReplicasPerMinute > 0 {
			rate = fmt.Sprintf("%.1f a minute so far, about %s remaining", g.ReplicasPerMinute,
				formatSeconds(g.RestSeconds))
		}
		printText(out, "", "Replicas: %d of %d have left, %d block the drain; %s", g.Total-g.Left, g.Total, g.Left,
			rate)
		unlisted += g.Left - len(g.Volumes)
	}
	t := s.table()
	if len(t.Rows) > 0 {
		fmt.Fprintln(out)
	}
	err := printTable(out, t, wide)
	if unlisted > 0 {
		printText(out, "", "and %d more replicas", unlisted)
	}
	return err
}
