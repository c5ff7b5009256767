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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/drainguard/drain"
)

// newDrainStatus returns the command that shows what a drain waits for.
func newDrainStatus() *cobra.Command {
	var cluster clusterFlags
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "drain-status NODE",
		Short: "Show what a node's drain waits for: volumes, replicas, and how long they take",
		Long: `Show what a node's drain waits for, as the controller wrote it on the Node: the
volumes and why, how many replicas are left, their rate so far, and how long the
rest takes at that rate. A policy that "forcefence drain-policy" set is shown with
its end. The command reads the API server only, and changes nothing.`,
		Args: cobra.ExactArgs(1),
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			s, err := drainStatusOf(cmd.Context(), c, args[0], cluster.overrides.Context.Namespace, time.Now())
			if err != nil {
				return err
			}
			return format.print(cmd.OutOrStdout(), s, func() { s.printTable(cmd.OutOrStdout()) })
		}),
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	format.addFlag(cmd)
	return withRole(cmd, "forcefence-look")
}

// drainStatus is the state of a node's drain, and its JSON form.
type drainStatus struct {
	Node         string       `json:"node"`
	Cordoned     bool         `json:"cordoned"`
	AutoEvicting bool         `json:"autoEvicting"`
	Policy       *nodePolicy  `json:"policy,omitempty"`        // that an operator set; nil: none, or not read
	Missing      string       `json:"missingPolicy,omitempty"` // why the policy could not be read
	Guards       []heldGuard  `json:"guards"`                  // drain guards that block the drain
	Budgets      []heldBudget `json:"budgets"`                 // forcefence's budgets for the node's storage pods
}

type heldGuard struct {
	drain.Progress
	Budget      string  `json:"budget"` // namespace/name; "" if there is none
	HeldSeconds float64 `json:"heldSeconds"`
	PerMinute   float64 `json:"replicasPerMinute,omitempty"` // 0: none has left so far
	RestSeconds float64 `json:"restSeconds,omitempty"`
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
	s.Policy, s.Missing = readNodePolicy(ctx, c, name, namespace, now)
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
			g.PerMinute, g.RestSeconds = rate, rest.Seconds()
		}
		s.Guards = append(s.Guards, g)
	}
	slices.SortFunc(s.Guards, func(a, b heldGuard) int { return cmp.Compare(a.Guard, b.Guard) })
	return s, nil
}

func (s drainStatus) printTable(out io.Writer) {
	word := "is not cordoned"
	if s.Cordoned {
		word = "is cordoned"
	}
	switch {
	case len(s.Guards) > 0:
		fmt.Fprintf(out, "Node %s %s.\n", s.Node, word)
	case len(s.Budgets) == 0:
		fmt.Fprintf(out, "Node %s %s. forcefence does not block its drain.\n", s.Node, word)
	default:
		fmt.Fprintf(out, "Node %s %s. forcefence does not block its drain now. Its guards:\n", s.Node, word)
		for _, b := range s.Budgets {
			fmt.Fprintf(out, "  drain guard %s, PodDisruptionBudget %s\n", b.Guard, b.Budget)
		}
	}
	switch {
	case s.Policy != nil:
		printText(out, "", "%s", s.Policy)
	case s.Missing != "":
		printText(out, "", "A drain policy of this node could not be read: %s.", s.Missing)
	}
	for _, g := range s.Guards {
		by := "PodDisruptionBudget " + g.Budget
		if g.Budget == "" {
			by = "but forcefence's PodDisruptionBudget does not exist, so nothing blocks the drain"
		}
		fmt.Fprintf(out, "\nDrain guard %s, policy %s: blocked for %s, %s\n", g.Guard, g.Policy,
			formatSeconds(g.HeldSeconds), by)
		if g.Unknown != "" {
			fmt.Fprintf(out, "The storage system's state is unknown: %s. The drain waits until it is known.\n",
				g.Unknown)
		}
		fmt.Fprintf(out, "Replicas: %d of %d have left, %d block the drain", g.Total-g.Left, g.Total, g.Left)
		if g.PerMinute > 0 {
			fmt.Fprintf(out, "; %.1f a minute so far, about %s remaining", g.PerMinute, formatSeconds(g.RestSeconds))
		} else {
			fmt.Fprint(out, "; the rate is unknown until one has left")
		}
		fmt.Fprintf(out, "\n\n")
		var rows [][]cell
		for _, v := range g.Volumes {
			rows = append(rows, plainCells(cmp.Or(v.Volume, "-"), v.Replica, v.Why))
		}
		printGrid(out, []string{"VOLUME", "REPLICA", "WHY"}, rows)
		if more := g.Left - len(g.Volumes); more > 0 {
			fmt.Fprintf(out, "and %d more\n", more)
		}
	}
}
