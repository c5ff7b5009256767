package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/room"
)

// newRoom returns the command that estimates whether pods find room elsewhere if nodes fail.
func newRoom(d *sessionFlags) *cobra.Command {
	var format outputFormat
	var all bool
	cmd := &cobra.Command{
		Use:   "room",
		Short: "Estimate for each node, failure domain and pair of domains: do its pods fit elsewhere?",
		Long: `Estimate for each node, failure domain and pair of domains whether its pods find
room elsewhere if it fails now. The domains are those of the configuration's
storm guard, by default zones. Failures that leave no pod without room are left
out where there are many; --all shows them. "forcefence explain NODE" says for
each pod where it fits, or why it does not.

The command lists nodes, pods and volumes from the API server. It asks no device
and changes nothing. The controller repeats the same estimate: "forcefence status"
and the metrics forcefence_room_... have its result.

Exits with 0 if the pods of every single node fit elsewhere, and with 1
otherwise.`,
		Example: `  forcefence room
  # The pods of the pairs of zones that do not fit, as JSON
  forcefence room -o json | jq '.failures[] | select(.kind == "pair")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			open, err := d.openSession(cmd, true)
			if err != nil {
				return err
			}
			defer open.Close()
			c, unread, err := open.ReadRoom(cmd.Context())
			if err != nil {
				return err
			}
			e := roomEstimate{At: time.Now().UTC().Truncate(time.Second), Failures: c.Estimate(), Estimate: estimate}
			e.summary = room.Summarize(e.At, e.Failures)
			if unread != nil {
				e.Unread = describeUnread(unread, roleExplain)
			}
			shown := e
			if len(e.Failures) > smallFleet && !all {
				shown.Failures = slices.DeleteFunc(slices.Clone(e.Failures), func(f room.Failure) bool {
					return f.Verdict() == room.Fits
				})
			}
			if err := format.print(cmd.OutOrStdout(), report{e, shown.table(), shown.printRoom}); err != nil {
				return err
			}
			nodes := e.summary.Counts[room.Node]
			if bad := nodes[room.Lacks] + nodes[room.Unknown]; bad > 0 {
				return fmt.Errorf("the pods of %d of %s may find no room elsewhere", bad,
					decide.FormatCount(bad+nodes[room.Fits], "node"))
			}
			return nil
		},
	}
	format.addFlag(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "list every failure")
	d.addFlags(cmd)
	return withRole(cmd, roleExplain)
}

// roomEstimate is the estimate for all failures, and its JSON form.
type roomEstimate struct {
	At       time.Time      `json:"at"`
	Failures []room.Failure `json:"failures"`
	Unread   string         `json:"unread,omitempty"` // what could not be read, so that pods are unknown
	Estimate string         `json:"estimate"`
	summary  *room.Summary
}

func (e roomEstimate) table() *metav1.Table {
	t := newTable("If-this-fails", "+Nodes", "Pods", "No-room", "Unknown", "Why")
	for _, f := range e.Failures {
		addRow(t, objectNamed("", string(f.Kind), "", f.Name), f.Name, strconv.Itoa(f.Nodes), strconv.Itoa(f.Pods),
			strconv.Itoa(f.Lacking), strconv.Itoa(f.Unknown), f.Why)
	}
	return t
}

// printRoom prints what is true of each kind of failure, then the table.
func (e roomEstimate) printRoom(out io.Writer, wide bool) error {
	for _, s := range e.summary.Describe() {
		printText(out, "", "%s", s.Text)
	}
	printText(out, "", "%s", e.Estimate)
	if e.Unread != "" {
		printText(out, "", "Unknown: %s.", e.Unread)
	}
	if len(e.Failures) > 0 {
		fmt.Fprintln(out)
	}
	return printTable(out, e.table(), wide)
}
