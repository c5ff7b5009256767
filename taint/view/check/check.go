// Package check decides whether an installation of forcefence is well, from what the API server has: who leads, what
// pauses it, whether its configuration is accepted, what the drills recorded on each Node, and what each hook reports.
//
// It is pure: it names no client, no clock and no logger, and prints nothing.
//
// It promises: a node counts as one that can be proven off only if its last drill says so. What could not be read is a
// problem, so a report without problems has seen everything. Its texts may hold those of other writers.
package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/taint/writes"
)

// Level is how much a finding matters, from a closed set.
type Level string

// The levels.
const (
	Problem Level = "problem" // something that has to be repaired; the report is not OK
	Note    Level = "note"    // something to know; the report may be OK
)

// Finding is one thing that a person should know.
type Finding struct {
	Level  Level  `json:"level"`
	About  string `json:"about"` // a node, or what else it is about
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // what to do about it; "": nothing
}

// Report is the result of a check, as JSON has it.
type Report struct {
	OK       bool      `json:"ok"`      // there is no problem
	Summary  string    `json:"summary"` // one sentence
	Findings []Finding `json:"findings"`

	// Lasting says that there are problems, and that none passes by itself: each is a node that the configuration in
	// force gives no device. The zero value: waiting may help.
	Lasting bool `json:"-"`
}

// NewReport makes a report: problems come first. The parts become one sentence; empty ones are left out.
func NewReport(findings []Finding, parts ...string) Report {
	r := Report{OK: true, Findings: []Finding{}}
	for _, level := range []Level{Problem, Note} {
		for _, f := range findings {
			if f.Level == level {
				r.Findings = append(r.Findings, f)
				r.OK = r.OK && level != Problem
			}
		}
	}
	r.Summary = strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ") + "."
	return r
}

// Problems returns how many problems the report has.
func (r Report) Problems() (n int) {
	for _, f := range r.Findings {
		if f.Level == Problem {
			n++
		}
	}
	return n
}

// Facts is what the API server has of an installation.
type Facts struct {
	At            time.Time // when it was read
	Cluster       view.Cluster
	Namespace     string   // in which the user looks for the controller; "": in no certain one
	Configuration []string // the faults of the controller's configuration
	ConfigDigest  string   // of the ConfigMap with the configuration (view.Leader.ConfigDigest); "": unknown
	Warnings      []string // about a configuration without faults
	Nodes         []Node
	Gone          []view.Banner // deleted Nodes to which volumes are attached
	Signing       Signing
	// Pods are those of all nodes that evictFirst selects, and those that a fence leaves on their node.
	Pods       []action.Pod
	EvictFirst string   // the configured selector; "": none, or unknown
	NoPods     string   // why Pods could not be read; "": they were
	NoFencings bool     // the cluster does not have the CustomResourceDefinition of Fencings
	Unknown    []string // what could not be read, and why
	Orders     []writes.Order
}

// Signing is how the records of fences are signed. The zero value: they are not, or that is unknown.
type Signing struct {
	On    bool   // signing.keyFile is set
	Keys  int    // how many public keys verify proofs
	Fault string // why the public keys cannot be used; "": they can, or could not be read
}

// Node is one node.
type Node struct {
	Node *corev1.Node
	View view.Node
	// Unclaimed says that no rule of the deployed configuration claims the node, so a person has to give it a device.
	Unclaimed bool
}

// leftAloneFor is how long a dead node may be left alone by a person's choice until that is a problem, as in the alert
// ForcefenceNodeLeftAlone.
const leftAloneFor = time.Hour

// excludedBy returns why no fence of the node begins, or "".
func (f Facts) excludedBy(n Node) string {
	disabled := ""
	if n.lastDrill().Reason == string(reason.ModeDisabled) && !f.isOutdated(n) {
		disabled = "mode disabled"
	}
	return cmp.Or(n.View.LeftAlone, disabled)
}

// lastDrill returns the condition in which the controller reports the node's last drill; the zero value: none yet.
func (n Node) lastDrill() corev1.NodeCondition {
	return taint.Condition(n.Node, taint.FenceableCondition)
}

// isOutdated reports whether the node's last drill is older than the configuration in force.
func (f Facts) isOutdated(n Node) bool { return drill.IsOlder(n.lastDrill(), f.Cluster.ConfigSince()) }

// Installation checks an installation. The report is OK if one controller leads, nothing pauses it, its configuration
// is accepted, and every node that is not excluded can be proven off and has a hook if any node has one.
func Installation(f Facts) Report {
	parts, out := f.checkCluster()
	for _, w := range f.Warnings {
		out = append(out, Finding{Note, string(view.PartConfiguration), w, ""})
	}
	if f.NoFencings {
		out = append(out, Finding{Note, "fencings", "The cluster has no Fencings, so fences are not recorded.",
			"Install the CustomResourceDefinition of deploy/helm/forcefence/files."})
	}
	for _, u := range f.Unknown {
		remedy := "The ClusterRole forcefence-look has what this command reads."
		if strings.Contains(u, "Role forcefence-") {
			remedy = ""
		}
		out = append(out, Finding{Problem, "rights", strings.TrimSuffix(u, ".") + ".", remedy})
	}
	out = append(out, f.checkOrders()...)
	counts, lasting, nodes := f.checkNodes()
	out = append(out, nodes...)
	out = append(out, f.checkHooks()...)
	out = append(out, f.checkPods()...)
	out = append(out, f.checkRoom()...)
	signing, more := f.checkSigning()
	r := NewReport(append(out, more...), append(append(parts, counts...), signing)...)
	r.Lasting = lasting > 0 && lasting == r.Problems()
	return r
}

// checkRoom reports that pods of a node that fails find no room elsewhere, by the leader's last estimate.
func (f Facts) checkRoom() []Finding {
	text := f.Cluster.Room().DescribeLacking(f.At)
	if text == "" {
		return nil
	}
	age := duration.HumanDuration(f.At.Sub(f.Cluster.Room().EstimatedAt()))
	return []Finding{{Note, "room", view.OneLine(text, 500), fmt.Sprintf("Add nodes, or lower requests. That was "+
		"estimated %s ago; forcefence room estimates it now, and says why.", age)}}
}

// checkSigning returns what the sentence says of signed records, and what keeps a proof from being verified.
func (f Facts) checkSigning() (part string, out []Finding) {
	const remedy = "Make a key: forcefence proof keys --new. Alert ForcefenceNotSigning in the runbook says more."
	switch s := f.Signing; {
	case !s.On:
		return "", nil
	case s.Fault != "":
		return "no proof can be verified", []Finding{{Problem, "signing", s.Fault, remedy}}
	case s.Keys > 0:
		return "records are signed", nil
	}
	return "", nil // the keys could not be read, which is a finding
}

// checkCluster returns the beginning of the sentence: who leads, and what the banners of the status page say.
func (f Facts) checkCluster() (parts []string, out []Finding) {
	parts = []string{"forcefence leads"}
	l := f.Cluster.Controller
	if l == nil {
		parts = []string{"the leader is unknown"}
		out = append(out, Finding{Problem, string(view.PartController), "It is unknown whether a controller leads.",
			"Find out why the Lease cannot be read."})
		l = &view.Leader{}
	}
	if l.Late {
		parts[0] = "forcefence led"
		if l.Until != nil {
			parts[0] += " until " + l.Until.UTC().Format("15:04:05 UTC")
		}
		parts[0] += fmt.Sprintf(" (renewed %s ago: late)", duration.HumanDuration(f.At.Sub(*l.Renewed)))
		out = append(out, Finding{Note, string(view.PartController), fmt.Sprintf(
			"%s has not renewed its Lease %s in time: it may be gone, or clocks differ.", l.Holder, l.Lease),
			"Check again: after a minute without a renewal no controller leads."})
	}
	if f.Namespace != "" && l.Namespace != "" && l.Namespace != f.Namespace {
		parts = append(parts, "not the one in namespace "+f.Namespace)
		out = append(out, Finding{Problem, string(view.PartController), fmt.Sprintf(
			"A controller in namespace %s cannot lead: Lease %s belongs to the installation in namespace %s.",
			f.Namespace, l.Lease, l.Namespace), "Uninstall one of them. If the one in " + l.Namespace +
			" is gone, delete the Lease."})
	}
	if l.Leads && len(f.Configuration) == 0 && l.ConfigRejected == "" && f.ConfigDigest != "" && l.ConfigDigest != "" &&
		l.ConfigDigest != f.ConfigDigest {
		parts = append(parts, "its changed configuration is not in force yet")
		out = append(out, Finding{Problem, string(view.PartConfiguration),
			"The controller has not read the changed ConfigMap yet. What follows is of the configuration before.",
			"The kubelet of its node brings the change within two minutes: forcefence check --wait 5m."})
	}
	faults := f.Configuration
	var nodes []view.Node
	for _, n := range f.Nodes {
		nodes = append(nodes, n.View)
	}
	for _, b := range slices.Concat(f.Cluster.Banners(f.At), view.DescribeStorm(f.Cluster, nodes, f.At),
		f.Gone, view.DescribeWaiting(nodes, f.Cluster.Waiting, f.At)) {
		switch b.About {
		case view.PartController:
			parts = nil
		case view.PartConfiguration:
			faults = nil // the banner has them
		}
		parts = append(parts, strings.ToLower(b.Title[:1])+b.Title[1:])
		out = append(out, Finding{Problem, string(b.About), b.Title + ": " + b.Text, b.Advice()})
	}
	for _, fault := range faults {
		out = append(out, Finding{Problem, string(view.PartConfiguration), fault,
			view.PlainRemedy(reason.ConfigRejected)})
	}
	if len(faults) > 0 {
		parts = append(parts, "its configuration has faults")
	}
	return parts, out
}

// checkOrders reports what others obey while forcefence does not look. An order that should have ended is a problem,
// each other one a note. Budgets that hold drains are many, and drain status shows them.
func (f Facts) checkOrders() (out []Finding) {
	for _, o := range f.Orders {
		found := Finding{Note, o.Node, o.Text() + ".", ""}
		if o.IsOverdue() {
			found.Level, found.Remedy = Problem, "Alert ForcefenceOrderKept in the runbook says what to do."
		} else if o.Resource == "poddisruptionbudgets.policy" {
			continue
		}
		out = append(out, found)
	}
	return out
}

// checkUUIDs names nodes that report one system UUID.
func (f Facts) checkUUIDs() (out []Finding) {
	nodes, told := map[string][]string{}, map[string]string{}
	for _, n := range f.Nodes {
		if uuid := providers.CanonicalUUID(n.Node.Status.NodeInfo.SystemUUID); uuid != "" {
			nodes[uuid] = append(nodes[uuid], n.Node.Name)
			told[uuid] = n.Node.Status.NodeInfo.SystemUUID
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(nodes)) {
		if same := slices.Sorted(slices.Values(nodes[uuid])); len(same) > 1 {
			const most = 5
			names := strings.Join(same[:min(len(same), most)], ", ")
			if more := len(same) - most; more > 0 {
				names += fmt.Sprintf(" and %d more", more)
			}
			text := fmt.Sprintf("They report one system UUID, %s. It does not tell these machines apart, so a wrong "+
				"cable would not be found, and while one of them is heard the others are not recovered.", told[uuid])
			out = append(out, Finding{Problem, names, text, "If a host was renamed, delete the Node of the old name. " +
				"If guests were cloned, give each machine its own UUID."})
		}
	}
	return out
}

// checkNodes returns how many nodes can be proven off, and what else the sentence says of them. lasting counts the
// problems that stay until a person changes the configuration.
func (f Facts) checkNodes() (counts []string, lasting int, out []Finding) {
	var counted []*corev1.Node
	var failed []Node // in their last drill
	stuck, shadow := 0, 0
	leaderless := f.Cluster.IsLeaderless()
	for _, n := range f.Nodes {
		v, why, last := n.View, f.excludedBy(n), n.lastDrill()
		if why == "" {
			counted = append(counted, n.Node)
		}
		if drill.AnswersIn(n.Node).Shadow {
			shadow++
		}
		switch { // one finding for a node: the gravest
		case v.State == view.StateNeedsPerson:
			stuck++
			out = append(out, Finding{Problem, v.Node, v.Next, ""})
		case why != "" && v.State == view.StateNotReady:
			level := Note
			if v.ReadySince != nil && f.At.Sub(*v.ReadySince) >= leftAloneFor {
				level = Problem
			}
			out = append(out, Finding{level, v.Node, "It is not Ready, and no fence of it begins: " + why + ".", ""})
		case why != "":
			out = append(out, Finding{Note, v.Node, "No fence of it begins: " + why + ".", ""})
		case v.State == view.StateFencing, v.State == view.StateNotReady:
			out = append(out, Finding{Note, v.Node, v.Next, ""})
		case last.Status == "" && leaderless: // the missing leader is the problem, not the node
		case f.isOutdated(n):
			out = append(out, Finding{Problem, v.Node, view.DrilledBefore, askedSoon})
		case last.Status != corev1.ConditionTrue:
			failed = append(failed, n)
			if n.Unclaimed && last.Reason == string(reason.NoMachine) {
				lasting++ // a finding of its own: explainDrills joins other problems alone
			}
		case v.Partly, v.EndedPause != "":
			out = append(out, Finding{Note, v.Node, v.Next, ""})
		}
	}
	if shadow > 0 {
		out = append(out, Finding{Note, "mode", fmt.Sprintf("shadow, for %d of %d nodes: forcefence says what it "+
			"would do, and recovers none of them.", shadow, len(f.Nodes)),
			"Set mode: observe in the configuration when you trust it."})
	}
	out = append(out, explainDrills(failed)...)
	out = append(out, f.checkUUIDs()...)
	excluded := len(f.Nodes) - len(counted)
	switch {
	case len(f.Nodes) == 0:
		out = append(out, Finding{Problem, "nodes", "The cluster has no nodes.", ""})
	case len(counted) == 0:
		out = append(out, Finding{Problem, "nodes", "Every node is excluded from fencing.",
			"If that is not meant, change mode or excludeSelector of the configuration."})
		return []string{"every node is excluded"}, lasting, out
	}
	counts = []string{view.CapacityOf(counted, f.Cluster, f.At).String()}
	if excluded > 0 {
		counts = append(counts, fmt.Sprintf("%d excluded", excluded))
	}
	if stuck > 0 {
		counts = append(counts, fmt.Sprintf("%d in need of a person", stuck))
	}
	return counts, lasting, out
}

// checkPods names pods that a fence would leave on their node although a user may expect that they move.
func (f Facts) checkPods() (out []Finding) {
	if f.NoPods != "" {
		out = append(out, Finding{Note, "pods", "It is unknown which pods would stay on a dead node. " + f.NoPods, ""})
	}
	const narrow = "Give each of these workloads the tolerations that it needs, by key, without the mark's."
	selected := slices.DeleteFunc(slices.Clone(f.Pods), func(p action.Pod) bool { return !p.First })
	moves := func(p action.Pod) bool { return p.Exempt == taint.NotExempt }
	if f.EvictFirst != "" && len(selected) > 0 && !slices.ContainsFunc(selected, moves) {
		p := selected[0]
		out = append(out, Finding{Problem, "evictFirst", fmt.Sprintf("%q has no effect: every pod that it selects "+
			"stays on its node, such as %s/%s (%s).", f.EvictFirst, p.Namespace, p.Name, p.Exempt.Describe()),
			"Select others. " + narrow})
	}
	if staying := evict.FindStaying(f.Pods).String(); staying != "" {
		out = append(out, Finding{Note, "pods", "On a node that is fenced " + staying + ".", narrow})
	}
	return out
}

// askedSoon is what to do about a node whose devices the leader is about to ask.
const askedSoon = "A controller that leads asks them within minutes: forcefence check --wait 5m."

// explainDrill returns why a node cannot be proven off, and what to do about it.
func (n Node) explainDrill() Finding {
	last := n.lastDrill()
	switch why := reason.Reason(last.Reason); {
	case last.Status == "":
		return Finding{Problem, n.View.Node, "No controller has asked its devices yet.", askedSoon}
	case why == reason.NoMachine:
		return Finding{Problem, n.View.Node, last.Message, view.NoDeviceRemedy}
	default:
		return Finding{Problem, n.View.Node, last.Message, view.DrillRemedy(n.Node, why)}
	}
}

// checkHooks reports nodes without the hook, or where it may be bypassed.
func (f Facts) checkHooks() (out []Finding) {
	has := func(n Node) bool { return n.View.Protection != "" }
	if !slices.ContainsFunc(f.Nodes, has) {
		if len(f.Nodes) == 0 {
			return nil
		}
		return []Finding{{Note, "hook",
			"No node has the hook: a machine that boots during its fence may start a second copy of a pod.",
			"Install it (hook.enabled=true), or disable automatic power-on in the BMCs."}}
	}
	var open, late []string
	for _, n := range f.Nodes {
		switch n.View.Protection {
		case taint.ProtectionFailClosed:
		case taint.ProtectionFailOpen:
			open = append(open, n.View.Node)
		case taint.ProtectionNotAtBoot:
			late = append(late, n.View.Node)
		default:
			if f.excludedBy(n) == "" {
				out = append(out, Finding{Problem, n.View.Node, view.NoHook, view.NoHookRemedy})
			}
		}
	}
	if len(late) > 0 {
		out = append(out, Finding{Note, "hook",
			fmt.Sprintf("On %s pods of a boot may start before the hook.", view.FormatNames(late)),
			"Disable automatic power-on in the BMCs. The condition ForcefenceGuard of each Node says why."})
	}
	if len(open) > 0 {
		out = append(out, Finding{Note, "hook",
			fmt.Sprintf("On %s pods start if the hook is killed or hangs.", view.FormatNames(open)),
			"The condition ForcefenceGuard of each Node says what to do about it."})
	}
	return out
}
