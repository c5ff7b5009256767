package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/networkfence"
	"github.com/forcefence/forcefence/taint/features/release"
	"github.com/forcefence/forcefence/taint/writes"
)

// newCleanup returns the command that removes everything that the controller wrote on Nodes.
func newCleanup() *cobra.Command {
	var cluster clusterFlags
	var o cleanup
	var check bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that the controller wrote on Nodes, before you uninstall it",
		Long: `Remove everything that the controller wrote: on Nodes the records of fences, the
machines' pins, conditions and marks; the PodDisruptionBudgets of its drain
guards, which would block drains forever; NetworkFences that have let their
addresses in; and its Lease, which would keep an installation in another
namespace from leading. Labels that users set (forcefence.io/exclude) stay. The
hook removes its own condition.

The command refuses while a controller leads, a node is marked, a fence is not
done, or a NetworkFence shuts addresses out. --force ends each such fence as
forcefence release does, and leaves such a NetworkFence. Without --yes the
command only prints what it would do.

With --check it only lists. It exits with 1 while a node is marked, has a fence
that is not done, or has the hook, and while a NetworkFence shuts addresses out.
It prints what to run before an uninstall, and what others go on to obey. The
Helm chart runs it before helm uninstall deletes anything.`,
		Example: `  # What it would remove
  forcefence cleanup
  # Remove it, once no controller leads
  forcefence cleanup --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.client, err = cluster.newClient(); err != nil {
				return err
			}
			o.out = cmd.OutOrStdout()
			if check {
				return o.checkUninstall(cmd.Context(), cmp.Or(cluster.overrides.Context.Namespace, "NAMESPACE"))
			}
			return o.removeLeftovers(cmd.Context())
		},
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	addTaintKeyFlag(cmd, &o.key)
	f.BoolVar(&check, "check", false, "only say what must be done before an uninstall")
	f.BoolVar(&o.yes, "yes", false, "remove it; without --yes only print it")
	f.BoolVar(&o.force, "force", false, "continue while a controller leads or a fence is not done")
	cmd.MarkFlagsMutuallyExclusive("check", "yes")
	return withRole(cmd, roleAdmin)
}

// cleanupAttempts is how often a write is retried after a conflict. Kubelets write their Nodes only every few minutes,
// so a writer that conflicts more often does nothing else.
const cleanupAttempts = 5

type cleanup struct {
	client     client.Client
	out        io.Writer
	key        string
	yes, force bool
}

func (o cleanup) removeLeftovers(ctx context.Context) error {
	leader, err := app.ReadLeader(ctx, o.client, time.Now())
	if err != nil {
		return err
	}
	var list corev1.NodeList
	if err := o.client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var dirty []string
	open := map[string]bool{} // nodes whose fence is not done
	for i := range list.Items {
		left := o.leftOn(&list.Items[i])
		if left.isEmpty() {
			continue
		}
		name := list.Items[i].Name
		dirty = append(dirty, name)
		fmt.Fprintf(o.out, "node %s: %s\n", name, left)
		if left.open != "" {
			open[name] = true
		}
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := o.client.List(ctx, &budgets, client.HasLabels{taint.DrainGuardLabel}); err != nil {
		return fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for _, b := range budgets.Items {
		fmt.Fprintf(o.out, "PodDisruptionBudget %s/%s of drain guard %s\n", b.Namespace, b.Name,
			b.Labels[taint.DrainGuardLabel])
	}
	ended, holding, err := o.storageFences(ctx)
	if err != nil {
		return err
	}
	orders, err := o.readOrders(ctx, list.Items)
	if err != nil {
		return err
	}
	for _, order := range orders {
		if order.Resource != app.FencesResource {
			fmt.Fprintf(o.out, "%s, and stays: the page about upgrades says how to end it\n", order.Text())
		}
	}
	if leader.Lease != "" {
		fmt.Fprintf(o.out, "Lease %s\n", leader.Lease)
	}
	var objections []string
	if holding > 0 {
		objections = append(objections, decide.FormatCount(holding, "NetworkFence")+" may shut addresses out of "+
			"storage: let them in first, as the alert ForcefenceOrderKept says in the runbook")
	}
	if leader.Leads {
		objections = append(objections,
			fmt.Sprintf("a controller leads (Lease %s held by %s): stop it first", leader.Lease, leader.Holder))
	}
	if len(open) > 0 {
		objections = append(objections, decide.FormatCount(len(open), "fence")+
			" not done: wait, or run `forcefence release` for each node")
	}
	switch {
	case len(objections) > 0 && !o.force:
		return fmt.Errorf("nothing was changed: %s; --force overrides this", strings.Join(objections, "; "))
	case len(dirty)+len(budgets.Items)+len(ended) == 0 && leader.Lease == "":
		fmt.Fprintln(o.out, "there is nothing to remove")
		return nil
	case !o.yes:
		return fmt.Errorf("nothing was changed: add --yes to clean %s and delete %s and the Lease",
			decide.FormatCount(len(dirty), "node"), decide.FormatCount(len(budgets.Items), "PodDisruptionBudget"))
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		if err := o.client.Delete(ctx, b, client.Preconditions{UID: &b.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("run the command again: deleting PodDisruptionBudget %s/%s: %w", b.Namespace, b.Name, err)
		}
	}
	for _, name := range ended {
		if err := networkfence.DeleteEnded(ctx, o.client, name); err != nil {
			return fmt.Errorf("run the command again: %w", err)
		}
	}
	for _, name := range dirty {
		if open[name] {
			message, err := release.ReleaseNode(ctx, o.client, name, o.key, nil, true, time.Now)
			if err != nil {
				return err
			}
			fmt.Fprintln(o.out, message)
		}
		if err := o.cleanNode(ctx, name); err != nil {
			return fmt.Errorf("node %s: run the command again: %w", name, err)
		}
		fmt.Fprintf(o.out, "node %s is clean\n", name)
	}
	return o.deleteLease(ctx)
}

// storageFences prints the NetworkFences of forcefence. It returns the names of those that have let their addresses in,
// and how many may shut them out still. Without those nothing would name the addresses, so they stay even with --force.
func (o cleanup) storageFences(ctx context.Context) (ended []string, holding int, _ error) {
	all, err := networkfence.ListFences(ctx, o.client)
	if meta.IsNoMatchError(err) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	for _, f := range all {
		switch {
		case !f.Owned:
		case f.IsEnded():
			ended = append(ended, f.Name)
			fmt.Fprintf(o.out, "NetworkFence %s of node %s, which was let in\n", f.Name, f.Node)
		default:
			holding++
			fmt.Fprintf(o.out, "NetworkFence %s of node %s stays: it is %s\n", f.Name, f.Node, f.State)
		}
	}
	return ended, holding, nil
}

// readOrders returns what others go on to obey after a cleanup. What this user may not list, no feature uses.
func (o cleanup) readOrders(ctx context.Context, nodes []corev1.Node) ([]writes.Order, error) {
	lists := app.ListOrders(o.client)
	lists.Budgets = nil // cleanup deletes them
	orders, unread := lists.Read(ctx, nodes, o.key)
	for _, err := range unread {
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
	}
	return orders, nil
}

// deleteLease deletes the leader's Lease, unless a controller leads by it.
func (o cleanup) deleteLease(ctx context.Context) error {
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.LeaseNamespace, Name: config.LeaseName},
	}
	if err := o.client.Get(ctx, client.ObjectKeyFromObject(l), l); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch leader, err := app.ReadLeader(ctx, o.client, time.Now()); {
	case err != nil || leader.Leads:
		return err
	default:
		err := o.client.Delete(ctx, l, client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("run the command again: deleting Lease %s: %w", leader.Lease, err)
		}
		return nil
	}
}

// leftover lists what forcefence left on one Node.
type leftover struct {
	open                            string // why the node's fence is not done; "" if it is done, or there was none
	annotations, labels, conditions []string
}

func (l leftover) isEmpty() bool {
	return l.open == "" && len(l.annotations)+len(l.labels)+len(l.conditions) == 0
}

func (l leftover) String() string {
	var parts []string
	for kind, keys := range map[string][]string{
		"annotation": l.annotations,
		"label":      l.labels,
		"condition":  l.conditions,
	} {
		for _, k := range keys {
			parts = append(parts, kind+" "+k)
		}
	}
	slices.Sort(parts)
	if l.open != "" {
		parts = append(parts, l.open)
	}
	return strings.Join(parts, ", ")
}

func (o cleanup) leftOn(n *corev1.Node) leftover {
	var l leftover
	rec, err := taint.RecordOf(n)
	mark, marked := taint.FindMark(n, o.key, rec.IDOr(""))
	switch {
	case marked:
		l.open = fmt.Sprintf("mark %q", mark.Value)
	case err != nil:
		l.open = "the fence's record is unreadable"
	case rec.IsOpen():
		l.open = fmt.Sprintf("fence %q is in phase %s", rec.ID, rec.Phase)
	}
	for k := range n.Annotations {
		if ownKeys.MatchString(k) {
			l.annotations = append(l.annotations, k)
		}
	}
	for k := range n.Labels {
		if ownKeys.MatchString(k) && !strings.HasPrefix(k, "forcefence.io/") { // users set the other keys
			l.labels = append(l.labels, k)
		}
	}
	for _, c := range n.Status.Conditions {
		if ownKeys.MatchString(string(c.Type)) {
			l.conditions = append(l.conditions, string(c.Type))
		}
	}
	return l
}

// cleanNode removes all leftovers from a Node whose fence is done.
func (o cleanup) cleanNode(ctx context.Context, name string) error {
	var err error
	for range cleanupAttempts {
		n := &corev1.Node{}
		if err = o.client.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
			return client.IgnoreNotFound(err)
		}
		left := o.leftOn(n)
		switch {
		case left.open != "":
			return fmt.Errorf("a fence is in progress: %s", left.open)
		case left.isEmpty():
			return nil
		}
		if err = o.patchNode(ctx, n, left); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// patchNode patches the Node only in the version that was read.
func (o cleanup) patchNode(ctx context.Context, n *corev1.Node, left leftover) error {
	null := func(keys []string) map[string]any {
		m := map[string]any{}
		for _, k := range keys {
			m[k] = nil
		}
		return m
	}
	if len(left.annotations)+len(left.labels) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":             n.UID,
			"resourceVersion": n.ResourceVersion,
			"annotations":     null(left.annotations),
			"labels":          null(left.labels),
		}})
		if err == nil {
			err = o.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil {
			return fmt.Errorf("removing annotations and labels: %w", err)
		}
	}
	if len(left.conditions) > 0 {
		var gone []map[string]string
		for _, c := range left.conditions {
			gone = append(gone, map[string]string{"type": c, "$patch": "delete"})
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion},
			"status":   map[string]any{"conditions": gone},
		})
		if err == nil {
			err = o.client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, patch))
		}
		if err != nil {
			return fmt.Errorf("removing conditions: %w", err)
		}
	}
	return nil
}
