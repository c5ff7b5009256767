package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
)

// newConfirmOff returns the command with which a person confirms that a node's machine is off, for providers of type
// confirm.
func newConfirmOff(types providers.Registry) *cobra.Command {
	var cluster clusterFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "confirm-off NODE --reason TEXT",
		Short: "Confirm that a node's machine is off, as evidence for its fence",
		Long: `Confirm that a node's machine is off. If the configuration gives the node a
provider of type confirm, your confirmation counts like a device's Off. It
proves nothing if another device says On. It is valid for this boot of the node,
for one fence, and for a limited time (validFor). The proof guard reads it, too,
while the fence ends pods. Where neither would read it, the command fails and
writes nothing.

To fence a node without any device and without such a provider, mark it by hand
with kubectl taint.`,
		Example:           `  forcefence confirm-off n3 --reason "I pulled both plugs"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		PreRunE: func(*cobra.Command, []string) (err error) {
			reason, err = parseReason(reason)
			return err
		},
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			note, err := checkConfirmProvider(cmd.Context(), c, cluster.overrides.Context.Namespace, types, args[0])
			if err != nil {
				return err
			}
			message, err := confirmOff(cmd.Context(), c, args[0], reason, time.Now)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), message)
			if note != "" {
				printText(cmd.OutOrStdout(), "", "%s.", strings.TrimSuffix(note, "."))
			}
			return nil
		}),
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f.StringVar(&reason, "reason", "", "how you know; shown on the Node and in the fence's record")
	return withRole(cmd, roleOperate)
}

// parseReason returns a reason as one line, or why it cannot be written.
func parseReason(text string) (string, error) {
	text = strings.Join(strings.Fields(text), " ")
	switch {
	case text == "":
		return "", errors.New("--reason is required: how do you know that the machine is off?")
	case len(text) > taint.MaxReason:
		return "", fmt.Errorf("--reason has %d bytes: at most %d", len(text), taint.MaxReason)
	}
	return text, nil
}

// onlyGuardReads describes a confirmation that no controller reads, of a node whose pods are being ended.
const onlyGuardReads = "No provider of type confirm reads it. The proof guard does, if it is installed"

// checkConfirmProvider returns an error if no reader of a confirmation is known: the deployed configuration gives the
// node no device of a provider of type confirm, and its fence is not in the phase in which the proof guard reads one.
// It returns what a person should know of who reads it, or "". It writes nothing.
func checkConfirmProvider(
	ctx context.Context, c client.Client, namespace string, types providers.Registry, name string,
) (note string, _ error) {
	const unknown = "It is unknown whether a provider of type confirm reads it: "
	namespace, err := controllerNamespace(ctx, c, namespace)
	if err != nil {
		return unknown + err.Error(), nil
	}
	cfg, at, err := readDeployedConfig(ctx, c, namespace, types)
	if err != nil {
		return unknown + describeUnread(fmt.Errorf("ConfigMap %s: %w", at, err), roleOperate), nil
	}
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return "", fmt.Errorf("reading node: %w", err)
	}
	reads, err := cfg.ReadsConfirmation(&node)
	if reads {
		return "", nil
	}
	if rec, bad := taint.RecordOf(&node); bad == nil && rec.IsOpen() && rec.Phase == taint.PhaseEvicting {
		return onlyGuardReads, nil
	}
	why := "its devices are others"
	if err != nil {
		why = err.Error()
	}
	return "", fmt.Errorf("nothing is confirmed: by ConfigMap %s node %s has no provider of type confirm that would "+
		"read it (%s). Add one to its rule, or mark the node by hand: kubectl taint node %s %s=manual:NoSchedule", at,
		name, why, name, taint.DefaultKey)
}

// confirmOff writes the confirmation on the Node. It blocks for the API server, and may be repeated.
func confirmOff(ctx context.Context, c client.Client, name, reason string, now func() time.Time) (string, error) {
	var me authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &me); err != nil {
		return "", fmt.Errorf("asking for your user name: %w", err)
	}
	var node corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return "", fmt.Errorf("reading node: %w", err)
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return "", fmt.Errorf(
				"node %s is Ready: its kubelet is running. If you powered the machine off just now, wait until the "+
					"node is NotReady",
				name,
			)
		}
	}
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}
	if err := c.Get(ctx, key, &lease); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the node's Lease: %w", err)
	}
	rec, err := taint.RecordOf(&node)
	if err != nil {
		return "", fmt.Errorf("node %s: %w; to close the fence: forcefence release %s --yes", name, err, name)
	}
	confirmation := taint.Confirmation{
		By:        me.Status.UserInfo.Username,
		Reason:    reason,
		NodeUID:   string(node.UID),
		BootID:    node.Status.NodeInfo.BootID,
		Fence:     controller.NewFenceID(),
		LastFence: taint.LastFenceID(rec),
		LeaseRV:   lease.ResourceVersion,
		At:        now().UTC().Truncate(time.Second),
	}
	if rec.IsOpen() {
		confirmation.Fence = rec.ID
	}
	text := confirmation.Encode()
	if _, err := taint.ParseConfirmation(text); err != nil {
		return "", fmt.Errorf("node %s: %w", name, err)
	}
	before := node.DeepCopy()
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[taint.ConfirmAnnotation] = text
	if err := c.Patch(
		ctx, &node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
	); err != nil {
		return "", fmt.Errorf("writing the confirmation on node %s: %w", name, err)
	}
	return fmt.Sprintf(
		"%s confirms that the machine of node %s (boot %s) is off, as evidence for fence %s", confirmation.By, name,
		confirmation.BootID, confirmation.Fence,
	), nil
}
