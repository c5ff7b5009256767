package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// forever is the flag value of a pause that never expires.
const forever = "forever"

// newPause returns the command that pauses fencing for nodes or for the whole cluster.
func newPause() *cobra.Command {
	var cluster clusterFlags
	var reason, long string
	var p fence.Pause
	cmd := &cobra.Command{
		Use:   "pause [NODE] --for DURATION --reason TEXT",
		Short: "Pause fencing for a node or for the whole cluster",
		Long: `Pause fencing for a node or for the whole cluster: no power-off, no mark and no
action of a policy begins. A fence in progress continues. Controllers read
pauses live before each action that begins something. A node's pause is its
annotation forcefence.io/paused; the cluster's pause is the ConfigMap forcefence-pause
in the controller's namespace.

A pause expires by itself, except with --for forever, which lasts until resume.
The command never shortens a pause, your own included.`,
		Example: `  # A node, while its disks are changed
  forcefence pause n3 --for 2h --reason "new disks"
  # The whole cluster
  forcefence pause --for 30m --reason "new switches"`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		PreRunE: func(*cobra.Command, []string) (err error) {
			p, err = parsePause(reason, long, time.Now())
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cluster.newClient()
			if err != nil {
				return err
			}
			var me authenticationv1.SelfSubjectReview
			if err := c.Create(cmd.Context(), &me); err == nil { // on an error the pause names no user
				p.Reason += " (" + me.Status.UserInfo.Username + ")"
			}
			lines, err := pauser{c, cluster.overrides.Context.Namespace, time.Now}.setPause(cmd.Context(), args, p)
			for _, line := range lines {
				printText(cmd.OutOrStdout(), "", "%s", line)
			}
			return err
		},
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f.StringVar(&reason, "reason", "", "why; shown in Events and in status")
	f.StringVar(&long, "for", "", "how long, such as 2h, or forever: until resume")
	completeFlag(cmd, "for", completeDurations)
	return withRole(cmd, rolePauser)
}

// newResume returns the command that removes a pause.
func newResume() *cobra.Command {
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use:   "resume [NODE]",
		Short: "Remove the pause of a node or of the whole cluster",
		Long: `Remove the pause of a node or of the whole cluster. The controller starts at
once what the pause held back. The command prints the pause that it removed,
and other reasons why the node is not fenced that its annotations and
conditions show. A label that excludes the node stays.`,
		Example: `  # A node
  forcefence resume n3
  # The whole cluster
  forcefence resume`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cluster.completeNodes(1),
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			lines, err := pauser{c, cluster.overrides.Context.Namespace, time.Now}.removePause(cmd.Context(), args)
			for _, line := range lines {
				printText(cmd.OutOrStdout(), "", "%s", line)
			}
			return err
		}),
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	return withRole(cmd, rolePauser)
}

// completeDurations completes how long a pause or a policy lasts, the shortest first.
var completeDurations = cobra.FixedCompletions([]string{"30m", "2h", "8h", forever},
	cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)

// maxPauseReason bounds the reason, in bytes.
const maxPauseReason = 200

// parsePause builds the pause that the flags describe.
func parsePause(reason, long string, now time.Time) (fence.Pause, error) {
	p := fence.Pause{Reason: strings.Join(strings.Fields(reason), " ")}
	switch {
	case p.Reason == "" && long == "":
		return p, errors.New(`--for and --reason are required, such as --for 2h --reason "new disks"`)
	case p.Reason == "":
		return p, errors.New("--reason is required")
	case len(p.Reason) > maxPauseReason:
		return p, fmt.Errorf("--reason has %d bytes: at most %d", len(p.Reason), maxPauseReason)
	case long == "":
		return p, errors.New("--for is required: --for 2h, or --for forever, which lasts until resume")
	}
	var err error
	p.Until, err = parseUntil(long, now)
	return p, err
}

// parseUntil returns the time at which a duration of --for ends; zero for forever.
func parseUntil(long string, now time.Time) (time.Time, error) {
	if long == forever {
		return time.Time{}, nil
	}
	d, err := time.ParseDuration(long)
	if err != nil || d < time.Second {
		return time.Time{}, fmt.Errorf("--for: %q is neither a duration such as 30m or 2h, nor %s", long, forever)
	}
	return now.Add(d).UTC().Truncate(time.Second), nil
}

// pauser sets and removes pauses. Its methods block for the API server, and may be repeated.
type pauser struct {
	client    client.Client
	namespace string // of the controller; "": that of its Lease
	now       func() time.Time
}

// pauseTries is how often a write is retried after a conflict. Conflicts are common, because a kubelet writes its Node
// all the time.
const pauseTries = 5

func (o pauser) setPause(ctx context.Context, node []string, p fence.Pause) ([]string, error) {
	if len(node) > 0 {
		return o.updateNode(ctx, node[0], func(n *corev1.Node) ([]string, error) {
			told := fmt.Sprintf("Node %s is paused: %s.", n.Name, p)
			if text, ok := n.Annotations[fence.PausedAnnotation]; ok {
				if err := o.refuseShorter(
					fence.ParsePause(text), p, "node "+n.Name, "forcefence resume "+n.Name,
				); err != nil {
					return nil, err
				}
			}
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, fence.PausedAnnotation, p.Annotation())
			if rec, _ := taint.RecordOf(n); rec.IsOpen() {
				told += fmt.Sprintf(" Its fence %s in phase %s continues.", rec.ID, rec.Phase)
			}
			return []string{told}, nil
		})
	}
	at, err := o.configMap(ctx)
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{}
	write := func() error {
		cm.Namespace, cm.Name = at.Namespace, at.Name
		cm.Data = map[string]string{"reason": p.Reason}
		if !p.Until.IsZero() {
			cm.Data["until"] = p.Until.Format(time.RFC3339)
		}
		if cm.ResourceVersion == "" {
			return o.client.Create(ctx, cm)
		}
		return o.client.Update(ctx, cm)
	}
	for range pauseTries {
		if err = write(); !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			break
		}
		had := &corev1.ConfigMap{}
		switch err := o.client.Get(ctx, at, had); {
		case apierrors.IsNotFound(err):
			cm = &corev1.ConfigMap{}
			continue
		case err != nil:
			return nil, fmt.Errorf("reading ConfigMap %s: %w", at, err)
		}
		if err := o.refuseShorter(fence.PauseOf(had.Data), p, "the whole cluster", "forcefence resume"); err != nil {
			return nil, err
		}
		cm = had
	}
	if err != nil {
		return nil, fmt.Errorf("writing ConfigMap %s: %w", at, err)
	}
	told := fmt.Sprintf("All nodes are paused, by ConfigMap %s: %s.", at, p)
	return append([]string{told}, o.describeOpenFences(ctx)...), nil
}

// refuseShorter returns an error if the pause in force lasts longer than the new one, which would replace it. The user
// who set that pause may still count on its end. what is paused, and resume is the command that ends the pause.
func (o pauser) refuseShorter(had, now fence.Pause, what, resume string) error {
	if had.IsOver(o.now()) || now.Until.IsZero() || !had.Until.IsZero() && !had.Until.After(now.Until) {
		return nil
	}
	return fmt.Errorf("%s is already paused for longer: %s. Nothing was changed. To end that pause, at once: %s",
		what, had, resume)
}

// describeOpenFences returns sentences that name the fences in progress. A pause does not stop them.
func (o pauser) describeOpenFences(ctx context.Context) []string {
	var under []string
	err := eachObject(ctx, o.client, func() *corev1.NodeList { return &corev1.NodeList{} },
		func(obj runtime.Object) error {
			n := obj.(*corev1.Node)
			if rec, _ := taint.RecordOf(n); rec.IsOpen() {
				under = append(under, fmt.Sprintf("%s (%s)", n.Name, rec.Phase))
			}
			return nil
		})
	switch {
	case err != nil:
		return []string{fmt.Sprintf("Fences in progress continue, but they could not be listed: %v.", err)}
	case len(under) > 0:
		return []string{"These fences are in progress and continue: " + strings.Join(under, ", ") + "."}
	}
	return nil
}

func (o pauser) removePause(ctx context.Context, node []string) ([]string, error) {
	if len(node) > 0 {
		return o.updateNode(ctx, node[0], func(n *corev1.Node) ([]string, error) {
			text, ok := n.Annotations[fence.PausedAnnotation]
			if !ok {
				return []string{fmt.Sprintf("Node %s is not paused%s.", n.Name, o.stillLeftAlone(n))}, nil
			}
			delete(n.Annotations, fence.PausedAnnotation)
			return []string{fmt.Sprintf(
				"Node %s is no longer paused (%s)%s.", n.Name, fence.ParsePause(text), o.stillLeftAlone(n),
			)}, nil
		})
	}
	at, err := o.configMap(ctx)
	if err != nil {
		return nil, err
	}
	var cm corev1.ConfigMap
	switch err := o.client.Get(ctx, at, &cm); {
	case apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("The cluster is not paused: there is no ConfigMap %s.", at)}, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	if err := o.client.Delete(
		ctx, &cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion},
	); err != nil {
		return nil, fmt.Errorf("deleting ConfigMap %s: %w", at, err)
	}
	return []string{fmt.Sprintf(
		"The cluster is no longer paused (%s). Nodes with a pause of their own stay paused.", fence.PauseOf(cm.Data),
	)}, nil
}

// stillLeftAlone returns the other reasons why a node is left alone.
func (o pauser) stillLeftAlone(n *corev1.Node) string {
	if why := fence.ExclusionReason(n, o.now()); why != "" {
		return ", but still not fenced: " + why
	}
	return ""
}

// configMap returns the ConfigMap that pauses the cluster. The controller reads it only in its own namespace, so
// another namespace is an error: a pause there would have no effect.
func (o pauser) configMap(ctx context.Context) (client.ObjectKey, error) {
	leader, err := app.ReadLeader(ctx, o.client, o.now())
	namespace := o.namespace
	if namespace == "" {
		namespace, err = namespaceOf(leader, err)
	}
	switch {
	case err != nil:
		return client.ObjectKey{}, err
	case leader.Lease == "":
		return client.ObjectKey{},
			errors.New("no controller has created its Lease in this cluster: there is nothing to pause")
	case leader.Namespace != namespace:
		return client.ObjectKey{}, fmt.Errorf("no controller runs in namespace %s: "+
			"a pause there has no effect. Use -n %s", namespace, leader.Namespace)
	}
	return app.PauseKey(namespace), nil
}

// updateNode patches the Node only in the version that was read.
func (o pauser) updateNode(
	ctx context.Context,
	name string,
	change func(*corev1.Node) ([]string, error),
) (lines []string, err error) {
	for range pauseTries {
		var n corev1.Node
		if err := o.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return nil, fmt.Errorf("reading node: %w", err)
		}
		before := n.DeepCopy()
		if lines, err = change(&n); err != nil {
			return nil, err
		}
		if err = o.client.Patch(
			ctx, &n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("writing node %s: %w", name, err)
	}
	return lines, nil
}
