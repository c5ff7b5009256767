package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
)

// newStatus returns the command that shows the fleet at a glance.
func newStatus() *cobra.Command {
	var cluster clusterFlags
	var o statusReader
	var format string
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [NODE...]",
		Short: "Show how nodes are: their machines' power as last seen, guard, fence, and what comes next",
		Long: "Show how nodes are, those with something to tell first: whether each is Ready; its device, and whether its machine was on when that was\n" +
			"seen last; how its hook guards it; its fence; and what comes next, or what a person does about it. It asks the API server alone, no\n" +
			"device, and changes nothing. Nodes of which there is nothing to tell are listed where there are at most 50 nodes, with --all, or by name.\n\n" +
			"A power with an age was told that long ago, and found the same in each drill since then, as long as a controller leads.\n\n" +
			"Exit status: 0 if it could be told, whatever it is; 1 for any error.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return fmt.Errorf("--output: %q is neither table nor json", format)
			}
			c, err := cluster.newClient()
			if err != nil {
				return err
			}
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
		},
	}
	f := cmd.Flags()
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	f.StringVarP(&format, "output", "o", "table", "table or json")
	f.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	f.BoolVarP(&follow, "watch", "w", false, "then follow what changes of the nodes")
	f.BoolVar(&o.all, "all", false, "list every node, whatever there is to tell")
	f.StringVar(&o.key, "taint-key", taint.DefaultKey, "the mark's key, where the configuration names another")
	return withRole(cmd, "forcefence-look")
}

// statusReader holds what to read, and how.
type statusReader struct {
	client    client.Client
	nodes     []string
	selector  string
	namespace string // of the controller; "": that of its Lease
	key       string
	all       bool
	now       func() time.Time
}

// fleet is the result of one read, and its JSON form.
type fleet struct {
	At          time.Time          `json:"at"`
	Controllers []leader           `json:"controllers"`
	Paused      string             `json:"paused,omitempty"` // what pauses the whole cluster
	Counts      map[view.State]int `json:"counts"`
	Nodes       []view.Node        `json:"nodes"`
	Unlisted    int                `json:"unlisted,omitempty"` // nodes with nothing to report
	Unknown     []string           `json:"unknown,omitempty"`  // what could not be read, and why
}

// smallFleet is how many nodes a fleet may have to be listed completely.
const smallFleet = 50

// readFleet reads the fleet's state. A bad selector and unreadable Nodes are errors; what else cannot be read is listed
// in Unknown.
func (o *statusReader) readFleet(ctx context.Context) (*fleet, error) {
	f := &fleet{At: o.now().UTC(), Controllers: []leader{}, Counts: map[view.State]int{}, Nodes: []view.Node{}}
	unknown := func(err error) {
		text := err.Error()
		if right := missingRight(err); right != "" {
			text = "You lack the right: " + right
		}
		f.Unknown = append(f.Unknown, text)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	controllers, err := listLeaders(ctx, o.client)
	if err != nil {
		unknown(err)
	}
	f.Controllers = append(f.Controllers, controllers...)
	namespace := o.namespace
	if namespace == "" {
		if namespace, err = onlyNamespace(controllers, err); err != nil && len(controllers) > 0 {
			unknown(err)
		}
	}
	if namespace != "" {
		if err := f.pausedIn(ctx, o.client, namespace); err != nil {
			unknown(err)
		}
	}
	events, err := eventsOf(ctx, o.client, "")
	if err != nil {
		unknown(err)
	}
	records := true
	addNode := func(n *corev1.Node) {
		s := view.NodeFacts{Node: n, Key: o.key, Event: newestEvent(events[n.Name]), Now: f.At}
		if rec, _ := taint.RecordOf(n); rec.IsOpen() && records {
			if s.NeedsPerson, err = readNeedsPerson(ctx, o.client, n.Name, rec); err != nil {
				unknown(err)
				records = false // reads for other nodes would fail, too
			}
		}
		one := view.NodeOf(s)
		f.Counts[one.State]++
		f.Nodes = append(f.Nodes, one)
	}
	if err := o.eachNode(ctx, selector, addNode); err != nil {
		return nil, err
	}
	order := view.States()
	slices.SortFunc(f.Nodes, func(a, b view.Node) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(a.Node, b.Node),
		)
	})
	if len(f.Nodes) > smallFleet && !o.all && len(o.nodes) == 0 {
		had := len(f.Nodes)
		f.Nodes = slices.DeleteFunc(
			f.Nodes, func(n view.Node) bool { return n.State == view.StateFine && n.Next == "" },
		)
		f.Unlisted = had - len(f.Nodes)
	}
	return f, nil
}

// eachNode calls visit for the named nodes, or for those that the selector matches.
func (o *statusReader) eachNode(ctx context.Context, selector labels.Selector, visit func(*corev1.Node)) error {
	for _, name := range o.nodes {
		var n corev1.Node
		if err := o.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return fmt.Errorf("reading node: %w", err)
		}
		if selector.Matches(labels.Set(n.Labels)) {
			visit(&n)
		}
	}
	if len(o.nodes) > 0 {
		return nil
	}
	err := eachObject(ctx, o.client, func() *corev1.NodeList { return &corev1.NodeList{} },
		func(n runtime.Object) error {
			visit(n.(*corev1.Node))
			return nil
		}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	return nil
}

func (f *fleet) pausedIn(ctx context.Context, c client.Reader, namespace string) error {
	at, _, err := pauseConfigMap(ctx, c, namespace)
	if err != nil {
		return nil // no ConfigMap pauses
	}
	p, err := readClusterPause(ctx, c, at, f.At)
	if p != nil {
		f.Paused = fmt.Sprintf("ConfigMap %s: %s", at, p)
	}
	return err
}

func (f *fleet) printFleet(out io.Writer) {
	leads := slices.ContainsFunc(f.Controllers, func(l leader) bool { return l.Leads })
	for _, l := range f.Controllers {
		switch {
		case l.Leads:
			printText(
				out, "", "Controller %s leads (Lease %s/%s, renewed %s ago).", l.Holder, l.Namespace, l.Lease,
				formatAge(l.Renewed, f.At),
			)
		case !leads:
			printText(
				out, "", "No controller leads: Lease %s/%s was renewed last %s ago.", l.Namespace, l.Lease,
				cmp.Or(formatAge(l.Renewed, f.At), "never"),
			)
		}
	}
	if len(f.Controllers) == 0 && len(f.Unknown) == 0 {
		printText(out, "", "No controller has made its Lease in this cluster: nothing is fenced.")
	} else if !leads && len(f.Controllers) > 0 {
		printText(out, "", "Nothing is fenced, and what stands below may be old.")
	}
	if f.Paused != "" {
		printText(out, "", "PAUSED for all nodes, by %s.", f.Paused)
	}
	for _, what := range f.Unknown {
		printText(out, "", "Not known: %s.", strings.TrimSuffix(what, "."))
	}
	var counts []string
	total := 0
	for _, s := range view.States() {
		if n := f.Counts[s]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s.DisplayName()))
			total += n
		}
	}
	printText(out, "", "Nodes: %d (%s).", total, strings.Join(counts, ", "))
	if len(f.Nodes) > 0 {
		fmt.Fprintln(out)
		var rows [][]cell
		for _, n := range f.Nodes {
			rows = append(rows, rowOf(n, f.At))
		}
		printGrid(out, []string{"NODE", "READY", "MACHINE", "POWER", "GUARD", "FENCE", "NEXT"}, rows)
	}
	if f.Unlisted > 0 {
		fmt.Fprintln(out)
		printText(out, "", "And %d nodes of which there is nothing to tell: --all lists them.", f.Unlisted)
	}
}

// colors maps each state to its colour.
var colors = map[view.State]string{
	view.StateStuck:       red,
	view.StateFencing:     yellow,
	view.StateNotReady:    yellow,
	view.StateUnfenceable: red,
	view.StateLeftAlone:   faint,
	view.StateFine:        green,
}

// rowOf returns a node as a row of the table.
func rowOf(n view.Node, now time.Time) []cell {
	ready := map[string]string{"True": "yes", "False": "no", "Unknown": "no"}[n.Ready]
	if ready == "no" && n.ReadySince != nil {
		ready += " " + formatAge(n.ReadySince, now)
	}
	power := n.Machine.Power
	if n.Machine.At != nil {
		power += " " + formatAge(n.Machine.At, now)
	}
	return []cell{
		{n.Node, colors[n.State]}, {ready, ""}, {cmp.Or(n.Machine.By, "-"), ""}, {power, ""},
		{cmp.Or(n.Protection, "-"), ""}, {fenceWord(n, now), ""}, {n.Next, ""},
	}
}

// fenceWord describes a node's fence in a few words. It leaves out a finished fence that no longer matters.
func fenceWord(n view.Node, now time.Time) string {
	switch {
	case n.Broken != "":
		return "unreadable"
	case n.Fence != nil && n.Fence.Result == "":
		return n.Fence.Phase + " " + formatAge(&n.Fence.At, now)
	case n.Mark != "":
		return "marked"
	case n.Fence != nil && n.State != view.StateFine:
		return n.Fence.Result + " " + formatAge(&n.Fence.At, now)
	}
	return "-"
}

// formatAge formats the time since at for people.
func formatAge(at *time.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(*at)))
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
	text := fmt.Sprintf(
		"%s  %s (%s): %s.", now.Format(time.TimeOnly), n.Node, n.State.DisplayName(), strings.Join(parts, ", "),
	)
	if n.Next != "" {
		text += " " + n.Next
	}
	printText(out, "", "%s", text)
}
