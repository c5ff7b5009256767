package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// Snapshot is what a process holds at one moment. Its objects are never changed.
type Snapshot struct {
	At         time.Time
	Key        string // the mark's taint key
	Nodes      []*corev1.Node
	NodeConfig func(*corev1.Node) NodeConfig // returns the configuration of a node
	Fences     []ParsedFencing
	Missing    string // why Fencings may be missing here; "": all are here
	Cluster    Cluster
	Events     map[string][]Event
}

// NodeConfig is the part of the configuration that applies to a node.
type NodeConfig struct {
	Devices        []string // as provider/device
	NoDeviceReason string   // why it has no device; "" if it has one
	Mode           string
	Excluded       string // why it is excluded from fencing; "" if it is not
	// ReadsConfirmation reports that one of its devices is of a provider of type confirm.
	ReadsConfirmation bool
}

// DrillAnswer says whether a node could be fenced, as its last drill found; from a closed set.
type DrillAnswer string

// The answers.
const (
	CanBeFenced    DrillAnswer = "yes"
	CannotBeFenced DrillAnswer = "no"
	CanBePartly    DrillAnswer = "in part"     // yes, but not all of its devices answer
	NotReached     DrillAnswer = "not reached" // for the first time
	NotAsked       DrillAnswer = "not asked"   // not yet, or not since the node is not Ready
)

// DrillAnswers lists all of them, the worst first.
var DrillAnswers = []DrillAnswer{CannotBeFenced, NotReached, NotAsked, CanBePartly, CanBeFenced}

// Protections lists the reasons of the node's own condition about its hook, the weakest first. ProtectionNeverTold is
// for a missing condition.
var Protections = []string{
	ProtectionNeverTold, taint.ProtectionNone, taint.ProtectionNotAtBoot, taint.ProtectionFailOpen,
	taint.ProtectionFailClosed,
}

// ProtectionNeverTold is the protection of a node whose hook never reported one.
const ProtectionNeverTold = "not reported"

// NodeRow is one row of the fleet: the summary of a Node, and its configuration.
type NodeRow struct {
	Name     string
	State    State
	Since    time.Time // when it came into that state; zero: unknown
	Next     string    // what comes next, or what a person does about it; "" for nothing
	Runbook  reason.Section
	Commands []Command // what a person runs, in that order
	LeftOff  bool      // its last fence powered the machine off, and nothing powered it on since
	PowerOn  string    // the command that powers its machine on
	Power    string    // its machine's power as observed last
	PowerBy  string    // the device that reported it, or the answer of each of several
	// FormerPower is what it was at PowerAt, before the node's outage, if Power is Unknown since; "": nothing else.
	FormerPower string
	PowerAt     time.Time // when it was observed; zero: never
	PowerSince  bool      // each drill since PowerAt has observed the same
	Config      NodeConfig
	Fenceable   DrillAnswer
	DrilledAt   time.Time // since when each drill found that; zero: none ran
	Why         string    // the reason of Fenceable, in the condition's words
	Protection  string    // one of Protections
	Fence       string    // the name of the newest fence; "" if there is none

	// NotReadySince is since when the node is not Ready; zero: it is Ready, or that is unknown.
	NotReadySince time.Time
}

// ProviderRow summarizes the drills of the nodes of one provider.
type ProviderRow struct {
	Name  string // "" for the nodes without a device
	Nodes int
	Found map[DrillAnswer]int
}

// Fleet is the view of all nodes and fences. Counts are of all nodes.
type Fleet struct {
	At          time.Time
	Nodes       []NodeRow // the most urgent first, then by name
	Capacity    Capacity
	States      map[State]int
	Answers     map[DrillAnswer]int
	Protections map[string]int
	Providers   []ProviderRow // by name
	Fences      []Fence       // the newest first
	Missing     string
	Banners     []Banner
	Room        []RoomStatement // whether pods find room elsewhere if machines fail now; nil: not known

	events map[string][]Event
	nodes  map[string]int
	fences map[string]int
}

// FleetOf builds the Fleet of a snapshot. The Fleet keeps the snapshot's Events.
func FleetOf(s Snapshot) *Fleet {
	f := &Fleet{
		At:       s.At,
		Capacity: CapacityOf(s.Nodes, s.Cluster, s.At),
		States:   map[State]int{}, Answers: map[DrillAnswer]int{}, Protections: map[string]int{},
		Missing: OneLine(s.Missing, 300),
		Room:    s.Cluster.Room().DescribeLately(s.At),
		events:  s.Events, nodes: make(map[string]int, len(s.Nodes)), fences: map[string]int{},
		Nodes: make([]NodeRow, 0, len(s.Nodes)),
	}
	for i := range f.Room {
		f.Room[i].Text = OneLine(f.Room[i].Text, 500) // a Lease's annotation is not to be believed
	}
	for _, r := range s.Fences {
		f.Fences = append(f.Fences, printableFence(r, s.At))
	}
	fences := map[string]*Fence{} // by name
	namespace := s.Cluster.namespace()
	for i := range f.Fences {
		f.Fences[i].NeedsPerson = nameInController(namespace, f.Fences[i].NeedsPerson)
		fences[f.Fences[i].Name] = &f.Fences[i]
	}
	providers := map[string]*ProviderRow{}
	all := make([]Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		node, row, rec := rowOf(s, n, fences)
		all = append(all, node)
		if rec != nil && fences[row.Fence] == nil {
			// no Fencing was written, or not yet: use the Node's record
			entry := journal.Entry{}.AddUpdate(journal.Update{Node: n.Name, At: s.At, Record: *rec, OnlyRead: true})
			f.Fences = append(f.Fences, printableFence(ParsedFencing{Fencing: entry.Object}, s.At))
		}
		f.States[row.State]++
		f.Answers[row.Fenceable]++
		f.Protections[row.Protection]++
		f.Nodes = append(f.Nodes, row)
		for _, name := range row.Config.providerNames() {
			p := providers[name]
			if p == nil {
				p = &ProviderRow{Name: name, Found: map[DrillAnswer]int{}}
				providers[name] = p
			}
			p.Nodes++
			p.Found[row.Fenceable]++
		}
	}
	NoteMissingHooks(all)
	for i, n := range all { // in the order of f.Nodes
		if n.Runbook == reason.SectionHookMissing {
			f.Nodes[i].Next, f.Nodes[i].Runbook = n.Next, n.Runbook
		}
	}
	exist := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		exist[n.Name] = true
	}
	for _, b := range slices.Concat(s.Cluster.Banners(s.At), DescribeStorm(s.Cluster, all, s.At),
		DescribeGone(s.Events, exist), DescribeWaiting(all, s.Cluster.Waiting, s.At)) {
		b.Text, b.Remedy = OneLine(b.Text, 1200), nameInController(namespace, OneLine(b.Remedy, 400))
		b.Command = nameInController(namespace, b.Command)
		f.Banners = append(f.Banners, b)
	}
	for _, p := range providers {
		f.Providers = append(f.Providers, *p)
	}
	slices.SortFunc(f.Providers, func(a, b ProviderRow) int { return strings.Compare(a.Name, b.Name) })
	order := States()
	slices.SortFunc(f.Nodes, func(a, b NodeRow) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)),
			strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Fences, func(a, b Fence) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Name, b.Name))
	})
	for i, n := range f.Nodes {
		f.nodes[n.Name] = i
	}
	for i := range f.Fences {
		f.fences[f.Fences[i].Name] = i
	}
	return f
}

// providerNames returns the providers of its devices, each once. It returns "" alone if there is no device.
func (l NodeConfig) providerNames() []string {
	var names []string
	for _, d := range l.Devices {
		name, _, _ := strings.Cut(d, "/")
		names = append(names, name)
	}
	if len(names) == 0 {
		return []string{""}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rowOf returns a Node's summary and row without Next, and its record if that can be read. fences are those that have a
// Fencing, by name.
func rowOf(s Snapshot, n *corev1.Node, fences map[string]*Fence) (Node, NodeRow, *taint.Record) {
	row := NodeRow{Name: n.Name, Config: s.NodeConfig(n), Fenceable: NotAsked, Protection: ProtectionNeverTold}
	rec, _ := taint.RecordOf(n) // one that cannot be read makes its state Stuck
	facts := NodeFacts{Node: n, Key: s.Key, Events: s.Events[n.Name], Now: s.At,
		NoDevice: row.Config.NoDeviceReason, Excluded: row.Config.Excluded, Paused: s.Cluster.Paused,
		Leaderless: s.Cluster.LostLeader(), ConfigSince: s.Cluster.ConfigSince(),
		ReadsConfirmation: row.Config.ReadsConfirmation, Namespace: s.Cluster.namespace(),
		HeldBack: s.Cluster.HeldBack()}
	if rec != nil {
		row.Fence = journal.ObjectName(n.Name, *rec)
		if f := fences[row.Fence]; f != nil && rec.IsOpen() {
			facts.NeedsPerson, facts.NeedsPersonSince = f.NeedsPerson, f.NeedsPersonSince
			if f.NeedsPerson != "" {
				facts.Waiting = f.Volumes.Waiting
			}
		}
	}
	node := NodeOf(facts)
	row.Next = nameInController(facts.Namespace, OneLine(node.verdict.next, 500))
	row.State, row.Power, row.PowerBy = node.State, OneLine(node.Machine.Power, 40), OneLine(node.Machine.By, 300)
	for _, c := range []Command{node.verdict.first, node.verdict.then} {
		if c.Line != "" {
			row.Commands = append(row.Commands, Command{c.Purpose, OneLine(c.Line, 500)})
		}
	}
	row.PowerSince = node.Machine.From == "drill"
	row.FormerPower = OneLine(node.Machine.Former, 40)
	row.Runbook, row.LeftOff = node.Runbook, isLeftOff(node, rec)
	row.PowerOn = OneLine(facts.powerOn(), 500)
	drill := taint.Condition(n, taint.FenceableCondition)
	row.DrilledAt = drill.LastHeartbeatTime.Time
	if node.Machine.At != nil {
		row.PowerAt = *node.Machine.At
	}
	if node.Since != nil {
		row.Since = *node.Since
	}
	if node.Ready != string(corev1.ConditionTrue) && node.ReadySince != nil {
		row.NotReadySince = *node.ReadySince
	}
	if slices.Contains(Protections[1:], node.Protection) { // a word of a newer version is ignored
		row.Protection = node.Protection
	}
	switch corev1.ConditionStatus(node.Fenceable) {
	case "":
	case corev1.ConditionTrue:
		row.Fenceable = CanBeFenced
		if node.Partly {
			row.Fenceable = CanBePartly
		}
	case corev1.ConditionFalse:
		row.Fenceable = CannotBeFenced
	default:
		row.Fenceable = NotReached
	}
	row.Why = OneLine(drill.Message, 300)
	if row.DrilledAt.Before(row.NotReadySince) { // it says nothing about now: a node that is fenced is not drilled
		row.Fenceable, row.DrilledAt, row.Why = NotAsked, time.Time{}, ""
	}
	return node, row, rec
}

// printableFence returns a fence for a Fleet: all of its texts are printable, on one line and cut.
func printableFence(r ParsedFencing, now time.Time) Fence {
	f := fenceOf(r, now)
	if f.Open {
		f.Duration = journal.FormatDuration(now.Sub(f.Started))
	}
	clean := func(most int, texts ...*string) {
		for _, text := range texts {
			*text = OneLine(*text, most)
		}
	}
	clean(253, &f.Name, &f.Node)
	clean(63, &f.ID)
	clean(120, &f.By, &f.Why)
	clean(40, &f.Phase, &f.Result, &f.Duration)
	clean(300, &f.Outcome, &f.Proven)
	clean(500, &f.NeedsPerson)
	f.Pods, f.Volumes = *f.Pods.DeepCopy(), *f.Volumes.DeepCopy()
	for i := range f.Pods.Names {
		clean(253, &f.Pods.Names[i].Namespace, &f.Pods.Names[i].Name, &f.Pods.Names[i].UID)
	}
	for i := range f.Volumes.Waiting {
		a := &f.Volumes.Waiting[i]
		clean(253, &a.Name, &a.Volume, &a.Driver)
	}
	for _, list := range [][]string{f.Volumes.Names, f.Volumes.Left, f.Volumes.Staying} {
		for i := range list {
			clean(253, &list[i])
		}
	}
	f.Steps = slices.Clone(f.Steps)
	for i := range f.Steps {
		clean(40, &f.Steps[i].Step)
	}
	for i := range f.Moments {
		clean(500, &f.Moments[i].From, &f.Moments[i].Text)
	}
	return f
}

// Urgent returns the nodes that need a person.
func (f *Fleet) Urgent() []NodeRow { return f.Nodes[:f.States[StateNeedsPerson]] }

// LongNotReady returns the names of the nodes that have not been Ready for five minutes, also of those that need no
// person.
func (f *Fleet) LongNotReady() (names []string) {
	for _, n := range f.Nodes {
		if !n.NotReadySince.IsZero() && f.At.Sub(n.NotReadySince) >= personAfter {
			names = append(names, n.Name)
		}
	}
	return names
}

// NodeQuery selects nodes. The zero value selects all.
type NodeQuery struct {
	Text       string // a part of the name
	State      State
	Answer     DrillAnswer
	Protection string
	Provider   string // a name of Fleet.Providers; NoProvider for ""
}

// NoProvider selects the nodes without a device.
const NoProvider = "none"

// SelectNodes returns the nodes that match the query, in the fleet's order.
func (f *Fleet) SelectNodes(q NodeQuery) []NodeRow {
	provider := q.Provider
	if provider == NoProvider {
		provider = ""
	}
	var out []NodeRow
	for _, n := range f.Nodes {
		if strings.Contains(n.Name, q.Text) && (q.State == "" || n.State == q.State) &&
			(q.Answer == "" || n.Fenceable == q.Answer) &&
			(q.Protection == "" || n.Protection == q.Protection) &&
			(q.Provider == "" || slices.Contains(n.Config.providerNames(), provider)) {
			out = append(out, n)
		}
	}
	return out
}

// Node returns a node by its name.
func (f *Fleet) Node(name string) (NodeRow, bool) {
	if i, ok := f.nodes[name]; ok {
		return f.Nodes[i], true
	}
	return NodeRow{}, false
}

// FencesOf returns a node's fences, the newest first.
func (f *Fleet) FencesOf(node string) (out []Fence) {
	for _, v := range f.Fences {
		if v.Node == node {
			out = append(out, v)
		}
	}
	return out
}

// MomentsOf returns the moments of a fence in order of time: those of its record, and the Events about the node
// meanwhile. What says the same as another is merged or left out. It returns at most maxMoments, unless the record
// alone has more.
func (f *Fleet) MomentsOf(v Fence) []Moment {
	out := mergeMoments(v.Moments)
	from, to := pageMargins.windowOf(v, f.FencesOf(v.Node))
	if to.IsZero() {
		to = f.At
	}
	for _, e := range f.events[v.Node] {
		if len(out) >= maxMoments {
			break
		}
		if e.At.Before(from) || e.At.After(to) || isStep(e, v.Steps) ||
			isPhase(e, v.Moments) || e.Reason == registeredNode {
			continue
		}
		out = append(out, e.toMoment())
	}
	sortMoments(out)
	return out
}

// EventsOf returns the Events about a node as moments, the newest first.
func (f *Fleet) EventsOf(node string) (out []Moment) {
	for _, e := range f.events[node] {
		out = append(out, e.toMoment())
	}
	slices.SortStableFunc(out, func(a, b Moment) int { return b.At.Compare(a.At) })
	return out
}

// Fence returns a fence by its name.
func (f *Fleet) Fence(name string) (Fence, bool) {
	if i, ok := f.fences[name]; ok {
		return f.Fences[i], true
	}
	return Fence{}, false
}

// registeredNode is the reason of the Event that a Node exists, which has nothing to do with a fence.
const registeredNode = "RegisteredNode"

// maxMoments limits the moments of a story. Those of forcefence and the devices have priority over Events.
const maxMoments = 120
