package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/view"
)

// newStatus returns the command that shows the fleet at a glance.
func newStatus(types providers.Registry) *cobra.Command {
	var cluster clusterFlags
	var o statusReader
	var format outputFormat
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Show each node: Ready, power as last seen, hook, room, fence, and what happens next",
		Long: `Show each node: whether it is Ready, its machine's power as last seen, how the
hook protects it, whether its pods find room elsewhere, its fence, and what
happens next. -o wide adds the device and the fence's id. Nodes that need
attention come first. In a cluster of more than 50 nodes, nodes without anything
to report are left out; --all or a name shows them.

The command reads the API server only. It asks no device and changes nothing.
The age beside a power is that of the first drill with these answers, or of a
question in a fence. While a controller leads, each drill since then got the
same answers. A power in brackets is from before the node's outage.

The states, of which a node has the first that fits:

` + describeStates() + `
The other columns; a dash stands for none:

` + describeColumns() + `
Exits with 0 if the state could be read, and with 1 otherwise.`,
		Example: `  # The whole fleet, the worst nodes first; then each change
  forcefence status -w
  # The nodes of a rack, with their devices
  forcefence status -l rack=a -o wide`,
		ValidArgsFunction: cluster.completeNodes(0),
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := labels.Parse(o.selector); err != nil {
				return fmt.Errorf("--selector: %w", err)
			}
			return nil
		},
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			o.client, o.nodes, o.namespace = c, args, cluster.overrides.Context.Namespace
			o.types, o.now = types, time.Now
			f, err := o.readFleet(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			shown := *f // followNodes compares f with what it reads
			shown.Nodes = slices.Clone(f.Nodes)
			for i := range shown.Nodes {
				shown.Nodes[i].Next = nameCommands(cmd.Root(), shown.Nodes[i].Next)
			}
			if err := format.print(out, report{shown, shown.table(), shown.printFleet}); err != nil || !follow {
				return err
			}
			return o.followNodes(cmd.Context(), c, f, func(n view.Node) error {
				n.Next = nameCommands(cmd.Root(), n.Next)
				changed := &fleet{At: time.Now(), Nodes: []view.Node{n}}
				return format.print(out, report{n, changed.table(), func(out io.Writer, _ bool) error {
					printChange(out, n, changed.At)
					return nil
				}})
			})
		}),
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	format.addFlag(cmd)
	f.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	f.BoolVarP(&follow, "watch", "w", false, "then print changes of the nodes")
	f.BoolVar(&o.all, "all", false, "list every node")
	addTaintKeyFlag(cmd, &o.key)
	return withRole(cmd, roleLook)
}

// describeStates explains the states, for the help.
func describeStates() string {
	var b strings.Builder
	for _, m := range view.Meanings() {
		b.WriteString(wrapHelp(fmt.Sprintf("%s: %s. Next: %s. Who acts: %s.", m.State.DisplayName(), m.Means, m.Next,
			m.Actor)))
	}
	return b.String()
}

// describeColumns explains the words of the columns besides the state, for the help.
func describeColumns() string {
	var b strings.Builder
	for _, text := range []string{
		"READY: yes; or no, and for how long.",
		"POWER: On, Off, Changing (it goes on or off) or Unknown, and its age.",
		"GUARD: FailClosed: no pod starts unless the hook allows it. FailOpen: pods start while the hook is killed " +
			"or hangs. NotAtBoot: pods of a boot may start before the hook. None: there is no hook. A dash: none was " +
			"reported.",
		"ROOM: ok; how many of its pods find no room elsewhere; or ? if that is unknown.",
		"FENCE: PoweringOff, Armed (marked, and nothing is evicted), Evicting: the phase, and its age. Evicted, " +
			"Returned, Lifted, Cancelled, PowerOffFailed, MarkRemoved, Released, NeverPoweredOff: the result of the " +
			"last fence, and its age. marked: there is a mark without a fence. unreadable: the fence's record cannot " +
			"be read.",
	} {
		b.WriteString(wrapHelp(text))
	}
	return b.String()
}

// wrapHelp indents a text, in lines of at most 80 columns.
func wrapHelp(text string) string {
	var b strings.Builder
	line := "  "
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > 78 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = "    "
		}
		line += word + " "
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}

// printChange prints the new state of a node.
func printChange(out io.Writer, n view.Node, now time.Time) {
	var parts []string
	for _, p := range []struct{ name, text string }{
		{"Ready", readyWord(n, now)}, {"power", powerWord(n, now)}, {"guard", n.Protection},
		{"fence", fenceWord(n, now)},
	} {
		if p.text != "" {
			parts = append(parts, p.name+" "+p.text)
		}
	}
	text := fmt.Sprintf("%s  %s (%s): %s.", now.Format(time.TimeOnly), n.Node, stateWord(n),
		strings.Join(parts, ", "))
	if n.Next != "" {
		text += " " + n.Next
	}
	printText(out, "", "%s", text)
}
