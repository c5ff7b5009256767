package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// newDrill returns the command that tests before an outage whether nodes can be fenced.
func newDrill(d *sessionFlags) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "drill [NODE...]",
		Short: "Ask nodes' devices now: power, identity, and whether the nodes can be fenced",
		Long: `Test for all or the named nodes whether they can be fenced now. For each device
the command connects, logs in, compares the machine's identity and reads its
power. It powers nothing off and writes nothing. The controller repeats the same
test and reports it in the Node's condition forcefence.io/Fenceable.

Of named nodes the command also prints whether the machine is on, by all devices
together, and a fence that is not over.

The command sends a wrong password to a device only once. If your devices lock
accounts, do not repeat the command with a wrong password.

Exits with 0 if all nodes can be fenced, and with 1 otherwise.`,
		Example: `  # All nodes, by the controller's configuration
  forcefence drill --config config.yaml
  # Is the machine of one node on? With the devices' errors
  forcefence drill n3 -o wide`,
		ValidArgsFunction: d.completeNodes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			open, err := d.openSession(cmd, false)
			if err != nil {
				return err
			}
			defer open.Close()
			names := args
			if len(names) == 0 {
				names = open.NodeNames()
				for _, w := range open.MissingNodes() {
					fmt.Fprintln(cmd.ErrOrStderr(), w)
				}
			}
			slices.Sort(names)
			all, err := drillAll(cmd.Context(), open, slices.Compact(names))
			if err != nil {
				return err
			}
			warnOfStaying(cmd.Context(), open, all)
			text := func(out io.Writer, wide bool) error { return printDrill(out, all, wide, len(args) > 0) }
			if err := format.print(cmd.OutOrStdout(), report{all, drillTable(all), text}); err != nil {
				return err
			}
			bad := 0
			for _, n := range all {
				if n.Fenceable != corev1.ConditionTrue {
					bad++
				}
			}
			if bad > 0 {
				return fmt.Errorf("%d of %s cannot be fenced now", bad, decide.FormatCount(len(all), "node"))
			}
			return nil
		},
	}
	format.addFlag(cmd)
	d.addFlags(cmd)
	return withRole(cmd, roleExplain)
}

// drilledNode is the result of one node's drill, and its JSON form.
type drilledNode struct {
	Node      string                 `json:"node"`
	Fenceable corev1.ConditionStatus `json:"fenceable"`
	Reason    string                 `json:"reason"`
	Detail    string                 `json:"detail"`
	Warning   string                 `json:"warning,omitempty"`
	State     string                 `json:"state"`           // of the machine, by all devices together
	Fence     string                 `json:"fence,omitempty"` // why the node's fence is not over
	Devices   []drilledDevice        `json:"devices"`
	files     []config.OwnFile
}

// drilledFile is a path at which a machine's own secret is expected.
type drilledFile struct {
	File  string `json:"file"`
	Error string `json:"error,omitempty"`
}

type drilledDevice struct {
	Device   string  `json:"device"`
	Result   string  `json:"result"`
	State    string  `json:"state"`
	Raw      string  `json:"raw"`
	Identity string  `json:"identity"`
	Seconds  float64 `json:"seconds"`
	Error    string  `json:"error,omitempty"`
	// Files lists the files of the secrets that belong to this machine alone.
	Files  []drilledFile `json:"files,omitempty"`
	device drill.Device
}

// drilledDeviceOf returns a device's answer without the files of secrets.
func drilledDeviceOf(d drill.Device) drilledDevice {
	return drilledDevice{
		Device:   d.Name,
		Result:   d.Result(),
		State:    d.Answer.State.String(),
		Raw:      d.Answer.Raw,
		Identity: d.IdentityResult(),
		Seconds:  d.Duration.Seconds(),
		Error:    providers.ErrorText(d.Answer.Err),
		device:   d,
	}
}

// drillAll drills the nodes, at most drill.MaxAtOnce at a time, as the controller does. It returns the first error.
func drillAll(ctx context.Context, open *app.Session, names []string) ([]drilledNode, error) {
	out, errs := make([]drilledNode, len(names)), make([]error, len(names))
	turns := make(chan struct{}, drill.MaxAtOnce)
	var wait sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			seen, err := open.DrillNode(ctx, name)
			if errs[i] = err; err != nil {
				return
			}
			f := drill.FindingOf(seen)
			n := drilledNode{Node: name, Fenceable: f.Fenceable, Reason: string(f.Reason), Detail: f.Detail,
				Warning: f.Warning, State: seen.Verdict.State.String(), Fence: open.DescribeFence(name),
				Devices: []drilledDevice{}}
			for _, d := range seen.Devices {
				var files []drilledFile
				for _, f := range open.OwnFiles(d.Answer.By, name) {
					files = append(files, drilledFile{f.File, providers.ErrorText(f.Err)})
					n.files = append(n.files, f)
				}
				one := drilledDeviceOf(d)
				one.Files = files
				n.Devices = append(n.Devices, one)
			}
			out[i] = n
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, ctx.Err()
}

// warnOfStaying adds to each node which pods a fence would leave there, or why that is unknown.
func warnOfStaying(ctx context.Context, open *app.Session, all []drilledNode) {
	for i := range all {
		staying, err := open.FindStaying(ctx, all[i].Node)
		text := staying.String()
		if text != "" {
			text = "If it is fenced, " + text + "."
		}
		if err != nil {
			text = "Which of its pods would stay is unknown: " + endSentence(describeUnread(err, roleExplain))
		}
		all[i].Warning = strings.TrimSpace(all[i].Warning + " " + text)
	}
}

// drillTable has a row for each device of each node.
func drillTable(all []drilledNode) *metav1.Table {
	t := newTable("Node", "Fenceable", "Device", "State", "Raw", "Identity", "Took", "+Reason", "+Error")
	for _, n := range all {
		if len(n.Devices) == 0 {
			addRow(t, nodeNamed(n.Node), n.Node, n.Fenceable, "", "", "", "", "", n.Reason, "")
		}
		for _, d := range n.Devices {
			addRow(t, nodeNamed(n.Node), n.Node, n.Fenceable, d.Device, d.State, strconv.Quote(d.Raw), d.Identity,
				roundedDuration(d.device), n.Reason, errorText(d.device.Answer.Err))
		}
	}
	return t
}

// printDrill prints the table, the files of secrets, and what is wrong with each node; with power also whether each
// machine is on.
func printDrill(out io.Writer, all []drilledNode, wide, power bool) error {
	if err := printTable(out, drillTable(all), wide); err != nil {
		return err
	}
	var files []config.OwnFile
	for _, n := range all {
		files = append(files, n.files...)
	}
	if len(files) > 0 {
		fmt.Fprintln(out)
	}
	if err := printTable(out, fileTable(files), wide); err != nil {
		return err
	}
	var remarks []remark
	for _, n := range all {
		if power && len(n.Devices) > 0 {
			remarks = append(remarks, remark{n.Node, describeState(n.State)})
		}
		if power && n.Fence != "" {
			remarks = append(remarks, remark{n.Node, endSentence(n.Fence)})
		}
		failed := func(d drilledDevice) bool { return d.Result != "ok" }
		if n.Fenceable != corev1.ConditionTrue || slices.ContainsFunc(n.Devices, failed) {
			remarks = append(remarks, remark{n.Node, n.Detail})
		}
		if n.Warning != "" {
			remarks = append(remarks, remark{n.Node, "warning: " + n.Warning})
		}
	}
	if len(remarks) > 0 {
		fmt.Fprintln(out)
	}
	printRemarks(out, "", remarks)
	return nil
}

// describeState returns the devices' common answer as a sentence.
func describeState(state string) string {
	if state == providers.PowerUnknown.String() {
		return "The machine is Unknown, which never counts as off."
	}
	return "The machine is " + state + "."
}
