package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
)

// newTimeline returns the command that prints the timeline of one fence.
func newTimeline() *cobra.Command {
	var cluster clusterFlags
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "timeline NODE|ID",
		Short: "Show a fence step by step: phases, device answers, Events, pods and volumes",
		Long: `Show a node's last fence, or the fence with an id or the name of its Fencing:
its phases, its steps and how long they took, the devices' answers, Events,
ended pods and detached volumes. -o wide shows them as a table. The command
changes nothing.

The controller deletes old Fencings; the API server keeps Events for an hour by
default.`,
		Example: `  # The last fence of a node
  forcefence timeline n3
  # A fence by its id, for a program
  forcefence timeline f-8bd391b2f0c0 -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cluster.completeFences,
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			t, err := readTimeline(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return format.print(cmd.OutOrStdout(), report{t, momentTable(t), func(out io.Writer, wide bool) error {
				if wide {
					return printTable(out, momentTable(t), wide)
				}
				printTimeline(out, t, time.Now())
				return nil
			}})
		}),
	}
	cluster.addFlags(cmd)
	format.addFlag(cmd)
	return withRole(cmd, roleLook)
}

// readTimeline reads the timeline of a node's last fence, or of the fence with that id or name.
func readTimeline(ctx context.Context, c client.Client, what string) (*view.Fence, error) {
	found, err := findFencings(ctx, c, what)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf(
			"no fence of node %[1]s and no fence with id %[1]s is recorded (kubectl get fcg lists them)", what,
		)
	}
	view.SortNewestFirst(found)
	node := found[0].Fencing.Spec.Node
	all := found
	if what != node { // the others tell which Events are not of this one
		if all, err = findFencings(ctx, c, node); err != nil {
			return nil, err
		}
		view.SortNewestFirst(all)
	}
	events, err := eventsOf(ctx, c, node)
	t := view.TimelineOf(found[0], all, events[node])
	if err != nil {
		t.Unknown = append(t.Unknown, describeUnread(err, roleLook))
	}
	return t, nil
}

// momentTable returns a fence's timeline as a table, whose rows are about the Fencing.
func momentTable(t *view.Fence) *metav1.Table {
	table := newTable("Time", "After", "Kind", "From", "Text")
	about := objectNamed(api.GroupVersion.Group, api.Kind, "", t.Name)
	for _, m := range t.Moments {
		addRow(table, about, m.At.Format(time.RFC3339), formatOffset(m.At.Sub(t.Started)), m.Kind, m.From, m.Text)
	}
	return table
}

func printTimeline(out io.Writer, t *view.Fence, now time.Time) {
	what := "Fence " + t.ID
	if t.Shadow {
		what = "Mode shadow, nothing was done: fence"
	}
	printText(out, "", "%s of node %s, begun %s (%s ago) by %s. Why: %s.", what, t.Node, t.Started.Format(time.RFC3339),
		formatAge(&t.Started, now), t.By, cmp.Or(t.Why, "not known"))
	switch {
	case t.Phase != string(taint.PhaseDone):
		printText(out, "", "It is in phase %s.", cmp.Or(t.Phase, "none"))
	default:
		printText(out, "", "It ended as %s after %s: %s.", t.Result, cmp.Or(t.Duration, "no time"),
			cmp.Or(t.Outcome, "-"))
	}
	if t.Proven != "" {
		printText(out, "", "Proof: %s.", t.Proven)
	}
	if t.NeedsPerson != "" {
		printText(out, "", "NEEDS A PERSON: %s", t.NeedsPerson)
		for _, a := range t.Volumes.Waiting {
			if look := a.LookCommand(); look != "" {
				fmt.Fprintf(out, "  %s  # %s\n", look, reason.SectionMarkStuck)
			}
		}
	}
	if len(t.Newer) > 0 {
		printText(out, "",
			"This Fencing has fields that this version does not know: %s. A newer version wrote it, or it was edited.",
			strings.Join(t.Newer, "; "))
	}
	for _, what := range t.Unknown {
		printText(out, "", "Unknown: %s.", what)
	}
	fmt.Fprintln(out)
	for _, e := range t.Moments {
		text := e.Text
		switch e.Kind {
		case "phase":
			text = "PHASE " + text
		case "event", "step":
			text = e.From + ": " + text
		}
		printText(out, fmt.Sprintf("%s %8s  ", e.At.Format(time.TimeOnly), formatOffset(e.At.Sub(t.Started))), "%s",
			text)
	}
	if p := t.Pods; p.Ended+p.Spared+p.Left+p.Would > 0 {
		fmt.Fprintln(out)
		text := fmt.Sprintf("%d ended, %d spared, %d left behind", p.Ended, p.Spared, p.Left)
		if t.Shadow {
			text = fmt.Sprintf("%d would have been ended", p.Would)
		}
		printText(out, "Pods: ", "%s%s", text, formatNames(t.PodNames(), int(max(p.Ended, p.Would))))
	}
	v := t.Volumes
	if v.Attached > 0 {
		printText(out, "Volumes: ", "%d of %d detached%s", v.Detached, v.Attached,
			formatNames(v.Names, int(v.Attached)))
	}
	if len(v.Left) > 0 {
		printText(out, "Volumes: ", "still attached: %s", strings.Join(v.Left, ", "))
	}
	if len(v.Staying) > 0 {
		printText(out, "Volumes: ", "attached to pods that stay: %s", strings.Join(v.Staying, ", "))
	}
	if len(t.Others) > 0 {
		fmt.Fprintln(out)
		printText(out, "", "Other fences of the node: %s.", strings.Join(t.Others, ", "))
	}
}
