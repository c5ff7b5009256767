package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/view"
)

// newStatus returns the command that shows the fleet at a glance.
func newStatus() *cobra.Command {
	var cluster clusterFlags
	var o statusReader
	var format outputFormat
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Show each node: Ready, power as last seen, hook, fence, and what happens next",
		Long: `Show each node: whether it is Ready, its device and the machine's power as last
seen, how the hook protects it, its fence, and what happens next. Nodes that
need attention come first. In a cluster of more than 50 nodes, nodes without
anything to report are left out; --all or a name shows them.

The command reads the API server only. It asks no device and changes nothing.
An age beside a power says when the device last reported a change. While a
controller leads, each drill since then has seen the same power.

Exits with 0 if the state could be read, and with 1 otherwise.`,
		RunE: cluster.withClient(func(cmd *cobra.Command, c client.WithWatch, args []string) error {
			o.client, o.nodes, o.namespace, o.now = c, args, cluster.overrides.Context.Namespace, time.Now
			f, err := o.readFleet(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case format == "table":
				f.printFleet(out)
			case follow:
				err = printJSON(out, f, "")
			default:
				err = printJSON(out, f, "  ")
			}
			if err != nil || !follow {
				return err
			}
			return o.followNodes(cmd.Context(), c, f, func(n view.Node) error {
				if format == "json" {
					return printJSON(out, n, "")
				}
				printChange(out, n, time.Now())
				return nil
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
	return withRole(cmd, "forcefence-look")
}

// printChange prints the new state of a node.
func printChange(out io.Writer, n view.Node, now time.Time) {
	row := rowOf(n, now)
	var parts []string
	for i, name := range []string{"", "Ready", "", "power", "guard", "fence"} {
		if name != "" && row[i].text != "-" {
			parts = append(parts, name+" "+row[i].text)
		}
	}
	text := fmt.Sprintf("%s  %s (%s): %s.", now.Format(time.TimeOnly), n.Node, n.State.DisplayName(),
		strings.Join(parts, ", "))
	if n.Next != "" {
		text += " " + n.Next
	}
	printText(out, "", "%s", text)
}
