package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/features/drain"
)

// newDrainPolicy returns the command that shows, sets and removes drain policies for nodes.
func newDrainPolicy() *cobra.Command {
	var cluster clusterFlags
	var policy, long string
	var reset bool
	var wanted drain.Override
	cmd := &cobra.Command{
		Use:   "policy [NODE]",
		Short: "Set the drain policy of a node or of all nodes, until a time",
		Long: `Set the drain policy of a node or of all nodes, until a time. Then the policy of
the configuration applies again, without a further command. A node's own policy
takes precedence over the one of all nodes. Without --set and --reset the command
lists the policies that are set.

The policies are in the ConfigMap forcefence-drain in the controller's namespace,
so no kubelet can write them. The controller reads it within 30 seconds. Where
Longhorn carries out the policy itself, only the one of all nodes applies.

Policies: ` + strings.Join(policyNames(), ",\n  ") + `.`,
		Example: `  # A node, for the time of an upgrade
  forcefence drain policy n3 --set block-for-eviction --for 4h
  # What is set
  forcefence drain policy`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		PreRunE: func(*cobra.Command, []string) (err error) {
			if policy != "" || long != "" {
				wanted, err = parseDrainPolicy(policy, long, time.Now())
			}
			return err
		},
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			namespace, err := controllerNamespace(cmd.Context(), c, cluster.overrides.Context.Namespace)
			if err != nil {
				return err
			}
			o := drainPolicies{c, client.ObjectKey{Namespace: namespace, Name: config.DrainConfigMap}, time.Now}
			node := drain.AllNodes
			if len(args) > 0 {
				node = args[0]
			}
			var lines []string
			switch {
			case reset:
				lines, err = o.remove(cmd.Context(), node)
			case policy != "":
				lines, err = o.set(cmd.Context(), node, wanted)
			default:
				lines, err = o.list(cmd.Context())
			}
			for _, line := range lines {
				printText(cmd.OutOrStdout(), "", "%s", line)
			}
			return err
		}),
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f.StringVar(&policy, "set", "", "the policy, such as "+string(drain.BlockForEviction))
	f.StringVar(&long, "for", "", "with --set: how long, such as 4h, or forever: until --reset")
	f.BoolVar(&reset, "reset", false, "remove the policy: the configuration's applies")
	completeFlag(cmd, "set", cobra.FixedCompletions(policyNames(), cobra.ShellCompDirectiveNoFileComp))
	completeFlag(cmd, "for", completeDurations)
	cmd.MarkFlagsMutuallyExclusive("set", "reset")
	cmd.MarkFlagsMutuallyExclusive("for", "reset")
	return withRole(cmd, rolePauser)
}

func policyNames() (names []string) {
	for _, p := range drain.Policies {
		names = append(names, string(p))
	}
	return names
}

// parseDrainPolicy returns the policy that the flags describe.
func parseDrainPolicy(policy, long string, now time.Time) (drain.Override, error) {
	o := drain.Override{Policy: drain.Policy(policy)}
	switch {
	case policy == "":
		return o, errors.New("--for needs --set POLICY")
	case !o.IsKnown():
		return o, fmt.Errorf("--set: %q is none of %s", policy, strings.Join(policyNames(), ", "))
	case long == "":
		return o, errors.New("--for is required: --for 4h, or --for forever, which lasts until --reset")
	}
	var err error
	o.Until, err = parseUntil(long, now)
	return o, err
}

// drainPolicies reads and writes the ConfigMap with the policies. Its methods block for the API server, and may be
// repeated.
type drainPolicies struct {
	client client.Client
	at     client.ObjectKey
	now    func() time.Time
}

// readDrainPolicies returns the policies in that ConfigMap, those that are over as well.
func readDrainPolicies(ctx context.Context, c client.Reader, at client.ObjectKey) (drain.Overrides, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, at, &cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	return drain.ParseOverrides(cm.Data), nil
}

func (o drainPolicies) list(ctx context.Context) (lines []string, _ error) {
	all, err := readDrainPolicies(ctx, o.client, o.at)
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if p := all[node]; !p.IsOver(o.now()) {
			lines = append(lines, fmt.Sprintf("%s: %s.", describeScope(node), p))
		}
	}
	if err == nil && len(lines) == 0 {
		lines = []string{"No drain policy is set: the configuration's applies to all nodes."}
	}
	return lines, err
}

func (o drainPolicies) set(ctx context.Context, node string, p drain.Override) ([]string, error) {
	if node != drain.AllNodes {
		if err := o.client.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{}); err != nil {
			return nil, fmt.Errorf("reading node: %w", err)
		}
	}
	before, had, err := o.change(ctx, func(data map[string]string) { data[node] = p.Text() }, node)
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("%s: the drain policy is %s.", describeScope(node), p)
	if had && !before.IsOver(o.now()) {
		line += fmt.Sprintf(" It replaces %s.", before)
	}
	return []string{line}, nil
}

func (o drainPolicies) remove(ctx context.Context, node string) ([]string, error) {
	before, had, err := o.change(ctx, func(data map[string]string) { delete(data, node) }, node)
	switch {
	case err != nil:
		return nil, err
	case !had:
		return nil, fmt.Errorf("%s: no drain policy is set", describeScope(node))
	}
	return []string{fmt.Sprintf("%s: the drain policy is the configuration's again. It was %s.", describeScope(node),
		before)}, nil
}

// change changes the ConfigMap's data in the version that was read, without the policies that are over. It returns the
// node's policy of before.
func (o drainPolicies) change(
	ctx context.Context, edit func(map[string]string), node string,
) (before drain.Override, had bool, err error) {
	for range pauseTries {
		var cm corev1.ConfigMap
		err = o.client.Get(ctx, o.at, &cm)
		if client.IgnoreNotFound(err) != nil {
			return before, had, fmt.Errorf("reading ConfigMap %s: %w", o.at, err)
		}
		write := func() error { return o.client.Update(ctx, &cm) }
		if apierrors.IsNotFound(err) {
			cm.Namespace, cm.Name = o.at.Namespace, o.at.Name
			write = func() error { return o.client.Create(ctx, &cm) }
		}
		before, had = drain.ParseOverrides(cm.Data)[node]
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		maps.DeleteFunc(cm.Data, func(_, text string) bool { return drain.ParseOverride(text).IsOver(o.now()) })
		edit(cm.Data)
		if err = write(); err == nil {
			return before, had, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return before, had, fmt.Errorf("writing ConfigMap %s: %w", o.at, err)
		}
	}
	return before, had, fmt.Errorf("writing ConfigMap %s: other clients change it all the time", o.at)
}

// describeScope names the nodes that a policy of that key is for.
func describeScope(key string) string {
	if key == drain.AllNodes {
		return "All nodes"
	}
	return "Node " + key
}

// nodePolicy is the policy that an operator set for a node, as JSON has it.
type nodePolicy struct {
	Policy string     `json:"policy"`
	Until  *time.Time `json:"until,omitempty"` // nil: no end
	SetFor string     `json:"setFor"`          // "this node" or "all nodes"

	text string
}

// readNodePolicy returns the policy that an operator set for a node, nil if none is set, or why it cannot be read.
func readNodePolicy(
	ctx context.Context, c client.Reader, node, namespace string, now time.Time,
) (*nodePolicy, string) {
	namespace, err := controllerNamespace(ctx, c, namespace)
	if err != nil {
		return nil, err.Error()
	}
	all, err := readDrainPolicies(ctx, c, client.ObjectKey{Namespace: namespace, Name: config.DrainConfigMap})
	if err != nil {
		return nil, err.Error()
	}
	return nodePolicyOf(all, node, now), ""
}

// nodePolicyOf returns the policy in force on a node; nil: none is set.
func nodePolicyOf(all drain.Overrides, node string, now time.Time) *nodePolicy {
	key, o, ok := all.Find(node, now)
	if !ok {
		return nil
	}
	p := &nodePolicy{Policy: string(o.Policy), SetFor: "this node", text: o.String()}
	if key == drain.AllNodes {
		p.SetFor = "all nodes"
	}
	if !o.Until.IsZero() {
		p.Until = &o.Until
	}
	return p
}

// String returns the policy as a sentence, for a person.
func (p *nodePolicy) String() string {
	text := fmt.Sprintf("Drain policy %s, set for %s.", p.text, p.SetFor)
	if p.Until != nil {
		text += " Then the configuration's applies."
	}
	return text
}
