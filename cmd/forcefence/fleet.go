package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/view"
)

// statusReader holds what to read, and how.
type statusReader struct {
	client    client.Client
	nodes     []string
	selector  string
	namespace string // of the controller; "": that of its Lease
	key       string
	all       bool
	now       func() time.Time
	visit     func(*corev1.Node, view.Node) // called for each node that was read; nil: nothing
	types     providers.Registry            // to read the deployed configuration

	excluded labels.Selector // the nodes that the deployed configuration excludes, as readFleet found it
	deployed *config.Config  // that configuration; nil: it was not read, or has faults
	cluster  view.Cluster    // the leader, and what pauses all nodes, as readCluster found them
	home     string          // the controller's namespace, as readCluster found it; "": unknown
	hooked   bool            // one of the nodes that readFleet read has the hook
}

// fleet is the result of one read, and its JSON form.
type fleet struct {
	At time.Time `json:"at"`
	view.Cluster
	Counts   map[view.State]int `json:"counts"`
	Nodes    []view.Node        `json:"nodes"`
	Storm    []view.Banner      `json:"storm,omitempty"`    // nil if only some of the nodes were read
	Gone     []view.Banner      `json:"gone,omitempty"`     // deleted nodes with volumes; nil as Storm
	Pods     []view.Banner      `json:"pods,omitempty"`     // pods that wait after a fence; nil as Storm
	Unlisted int                `json:"unlisted,omitempty"` // nodes with nothing to report
	Unknown  []string           `json:"unknown,omitempty"`  // what could not be read, and why
	refused  bool               // a right to read was missing

	unreadPods string // that of Unknown which is about pods; "": none
}

// smallFleet is how many nodes a fleet may have to be listed completely.
const smallFleet = 50

// readFleet reads the fleet's state. A bad selector and unreadable Nodes are errors; what else cannot be read is listed
// in Unknown.
func (o *statusReader) readFleet(ctx context.Context) (*fleet, error) {
	f := &fleet{At: o.now().UTC(), Counts: map[view.State]int{}, Nodes: []view.Node{}}
	unknown := func(err error) {
		f.refused = f.refused || denialOf(err) != nil
		if text := describeUnread(err, roleLook); !slices.Contains(f.Unknown, text) {
			f.Unknown = append(f.Unknown, text)
		}
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	o.readCluster(ctx, f.At, unknown)
	f.Cluster = o.cluster
	events, err := eventsOf(ctx, o.client, "")
	if err != nil {
		unknown(err)
	}
	records, exist := true, map[string]bool{}
	addNode := func(n *corev1.Node) {
		s := view.NodeFacts{Node: n, Key: o.key, Events: events[n.Name], Now: f.At,
			Excluded: o.describeExcluded(n), Paused: f.Paused, Leaderless: f.LostLeader(), Namespace: o.home,
			ConfigSince: f.ConfigSince(), HeldBack: f.HeldBack(), ReadsConfirmation: o.readsConfirmation(n)}
		if rec, _ := taint.RecordOf(n); rec.IsOpen() && records {
			if err = readNeedsPerson(ctx, o.client, &s, rec); err != nil {
				unknown(err)
				records = false // reads for other nodes would fail, too
			}
		}
		one := view.NodeOf(s)
		exist[n.Name] = true
		f.Counts[one.State]++
		f.Nodes = append(f.Nodes, one)
		if o.visit != nil {
			o.visit(n, one)
		}
	}
	if err := o.eachNode(ctx, selector, addNode); err != nil {
		return nil, err
	}
	o.hooked = view.NoteMissingHooks(f.Nodes)
	order := view.States()
	slices.SortFunc(f.Nodes, func(a, b view.Node) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)),
			cmp.Compare(a.Node, b.Node))
	})
	if len(o.nodes) == 0 && o.selector == "" {
		f.Storm, f.Gone = view.DescribeStorm(f.Cluster, f.Nodes, f.At), view.DescribeGone(events, exist)
		if len(view.FreedLately(f.Nodes, f.At)) > 0 {
			if f.Waiting, err = app.CountWaiting(ctx, o.client); err != nil {
				f.unreadPods = describeUnread(err, roleExplain)
				f.Unknown = append(f.Unknown, f.unreadPods)
			}
		}
		f.Pods = view.DescribeWaiting(f.Nodes, f.Waiting, f.At)
	}
	if len(f.Nodes) > smallFleet && !o.all && len(o.nodes) == 0 {
		had := len(f.Nodes)
		f.Nodes = slices.DeleteFunc(
			f.Nodes, func(n view.Node) bool { return n.State == view.StateFine && n.Next == "" },
		)
		f.Unlisted = had - len(f.Nodes)
	}
	return f, nil
}

// readCluster reads the leader, what pauses all nodes, and the deployed configuration. What cannot be read stays as it
// was read before, and is reported to unknown.
func (o *statusReader) readCluster(ctx context.Context, at time.Time, unknown func(error)) {
	if leader, err := app.ReadLeader(ctx, o.client, at); err == nil {
		o.cluster.Controller = leader
	} else {
		unknown(err)
	}
	if o.home = cmp.Or(o.namespace, o.home); o.namespace == "" && o.cluster.Controller != nil {
		o.home = o.cluster.Controller.Namespace
	}
	if o.home != "" {
		now := view.Cluster{Controller: o.cluster.Controller}
		if err := app.ReadPause(ctx, o.client, &now, o.home, at); err == nil {
			o.cluster = now
		} else {
			unknown(err)
		}
	}
	o.readExcluded(ctx, o.home, unknown)
}

// readExcluded reads the deployed configuration, and which nodes it excludes. If it cannot be read, or has faults,
// those of a configuration that does not name any are. It reports what cannot be read to unknown.
func (o *statusReader) readExcluded(ctx context.Context, namespace string, unknown func(error)) {
	byDefault, err := labels.Parse(config.DefaultExclude)
	if err != nil {
		byDefault = labels.Nothing()
	}
	if o.excluded == nil {
		o.excluded = byDefault
	}
	if namespace == "" {
		return
	}
	cfg, _, err := readDeployedConfig(ctx, o.client, namespace, o.types)
	var faults config.Errors
	switch {
	case err == nil:
		o.excluded, o.deployed = cfg.Settings(namespace).ExcludeSelector, cfg
	case apierrors.IsNotFound(err) || errors.As(err, &faults): // the controller has another file, or check says it
		o.excluded, o.deployed = byDefault, nil
	default:
		unknown(err)
	}
}

// describeExcluded returns why the deployed configuration excludes a node; "" if it does not.
func (o *statusReader) describeExcluded(n *corev1.Node) string {
	if o.excluded == nil || !o.excluded.Matches(labels.Set(n.Labels)) {
		return ""
	}
	return "excludeSelector " + o.excluded.String() + " matches its labels"
}

// readsConfirmation reports whether a controller reads what a person confirms about the node, as far as the deployed
// configuration is known.
func (o *statusReader) readsConfirmation(n *corev1.Node) bool {
	if o.deployed == nil {
		return false
	}
	reads, _ := o.deployed.ReadsConfirmation(n) // its levels count, also if its own device is unknown
	return reads
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

// printFleet prints what is true of all nodes, then the table of nodes.
func (f *fleet) printFleet(out io.Writer, wide bool) error {
	if l := f.Controller; f.Leads() {
		printText(out, "", "%s.", l.Describe(f.At))
	}
	for _, b := range slices.Concat(f.Banners(f.At), f.Storm, f.Gone, f.Pods) {
		printText(out, "! ", "%s: %s", b.Title, b.Details())
	}
	var urgent []string
	for _, n := range f.Nodes {
		if n.State == view.StateNeedsPerson {
			urgent = append(urgent, n.Node)
		}
	}
	if text := view.DescribeUrgent(urgent); text != "" {
		printText(out, "! ", "%s. What to do is below.", text)
	}
	estimated := f.Room().EstimatedAt()
	if text := f.Room().DescribeLacking(f.At); text != "" {
		printText(out, "", "%s That was estimated %s ago; `forcefence room` estimates it now, and says why.", text,
			formatAge(&estimated, f.At))
	} else if len(f.Room().DescribeLately(f.At)) > 0 {
		printText(out, "", "ROOM was estimated %s ago; `forcefence room` estimates it now.",
			formatAge(&estimated, f.At))
	}
	for _, what := range f.Unknown {
		printText(out, "", "Unknown: %s.", strings.TrimSuffix(what, "."))
	}
	printText(out, "", "%s", f.describeCounts())
	if len(f.Nodes) > 0 {
		fmt.Fprintln(out)
	}
	if err := printNextTable(out, f.table(), wide); err != nil {
		return err
	}
	f.printFirstCommands(out)
	if f.Unlisted > 0 {
		fmt.Fprintln(out)
		printText(out, "", "--all also lists %s with nothing to report.", decide.FormatCount(f.Unlisted, "node"))
	}
	return nil
}

// printFirstCommands prints, for each node that is not fine, what to look at first and the section of the runbook. A
// command keeps its line, so that it can be copied.
func (f *fleet) printFirstCommands(out io.Writer) {
	const most = 10
	begun := 0
	for _, n := range f.Nodes {
		if n.State == view.StateFine || n.Command == "" || strings.HasSuffix(n.Command, "--yes") {
			continue // its row says when to do something; this block only looks
		}
		if begun++; begun == 1 {
			fmt.Fprintln(out, "\nRun first (the runbook's section follows):")
		}
		if begun > most {
			continue
		}
		fmt.Fprintf(out, "  %s  # %s\n", n.Command, n.Runbook)
	}
	if begun > most {
		fmt.Fprintf(out, "  and %d more: forcefence status NODE shows each\n", begun-most)
	}
}

// describeCounts says how many nodes are in each state.
func (f *fleet) describeCounts() string {
	unasked := 0
	for _, n := range f.Nodes {
		if stateWord(n) == notAsked {
			unasked++
		}
	}
	var counts []string
	total := 0
	for _, s := range view.States() {
		n := f.Counts[s]
		total += n
		if s == view.StateUnfenceable {
			n -= unasked
		}
		if n > 0 {
			counts = append(counts, s.DisplayCount(n))
		}
	}
	if unasked > 0 {
		counts = append(counts, fmt.Sprintf("%d %s", unasked, notAsked))
	}
	if total == 0 {
		return "No node matches."
	}
	return fmt.Sprintf("Nodes: %d (%s).", total, strings.Join(counts, ", "))
}

// notAsked is the state of a Ready node whose devices no controller has asked yet.
const notAsked = "not asked"

// stateWord returns a node's state for people.
func stateWord(n view.Node) string {
	if n.State == view.StateUnfenceable && n.Fenceable == "" {
		return notAsked
	}
	return n.State.DisplayName()
}

func (f *fleet) table() *metav1.Table {
	t := newTable("Node", "State", "Ready", "+Machine", "Power", "Guard", "Room", "Fence", "+Fence-ID", "Next")
	for _, n := range f.Nodes {
		id, next := "", n.Next
		if stateWord(n) == notAsked && f.Controller != nil && !f.Leads() {
			next = "" // the banner says why
		}
		if n.Fence != nil {
			id = n.Fence.ID
		}
		addRow(t, nodeNamed(n.Node), n.Node, stateWord(n), readyWord(n, f.At), n.Machine.By,
			powerWord(n, f.At), n.Protection, f.Room().Word(n.Node, f.At), fenceWord(n, f.At), id, next)
	}
	return t
}

// readyWord says whether a node is Ready, and since when it is not.
func readyWord(n view.Node, now time.Time) string {
	word := map[string]string{"True": "yes", "False": "no", "Unknown": "no"}[n.Ready]
	if word == "no" && n.ReadySince != nil {
		word += " " + formatAge(n.ReadySince, now)
	}
	return word
}

// powerWord returns the machine's power as last seen, and its age. Power from before an outage is in brackets.
func powerWord(n view.Node, now time.Time) string {
	switch {
	case n.Machine.At == nil:
		return n.Machine.Power
	case n.Machine.Former != "":
		return fmt.Sprintf("%s (%s %s)", n.Machine.Power, n.Machine.Former, formatAge(n.Machine.At, now))
	}
	return n.Machine.Power + " " + formatAge(n.Machine.At, now)
}

// fenceWord describes a node's fence in a few words; "" without one, and for a finished fence that no longer matters.
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
	return ""
}
