package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/journal"
)

// Snapshot is what a process holds at one moment. Its objects are not changed.
type Snapshot struct {
	At         time.Time
	Key        string // the mark's
	Nodes      []*corev1.Node
	NodeConfig func(*corev1.Node) NodeConfig // what the configuration says of a node
	Fences     []ParsedFencing
	Missing    string // why there may be Fencings that it does not hold; "": it holds all
	Events     map[string][]Event
}

// NodeConfig is what the configuration says of a node.
type NodeConfig struct {
	Devices        []string // as provider/device
	NoDeviceReason string   // why no device speaks for it; "" if one does
	Mode           string
}

// DrillAnswer is whether a node could be fenced, as its last drill found; from a closed set.
type DrillAnswer string

// The answers.
const (
	CanBeFenced    DrillAnswer = "yes"
	CannotBeFenced DrillAnswer = "no"
	NotReached     DrillAnswer = "not reached" // for the first time
	NotAsked       DrillAnswer = "not asked yet"
)

// DrillAnswers are all of them, the worst first.
var DrillAnswers = []DrillAnswer{CannotBeFenced, NotReached, NotAsked, CanBeFenced}

// Protections are the reasons of the node's own condition about its hook, the weakest first; ProtectionNeverTold stands for none.
var Protections = []string{ProtectionNeverTold, taint.ProtectionNone, taint.ProtectionFailOpen, taint.ProtectionFailClosed}

// ProtectionNeverTold is the protection of a node whose side never said which it has.
const ProtectionNeverTold = "never told"

// NodeRow is one row of the fleet: what Node says of it, and what the configuration does.
type NodeRow struct {
	Name       string
	State      State
	Since      time.Time // its fence's phase, or else Ready's last change
	Next       string    // what comes next, or what a person does about it; "" where nothing is to come
	Power      string    // of its machine, when that was seen last
	PowerBy    string    // the device that said so, or what each of several said
	PowerAt    time.Time // zero: never seen
	Config     NodeConfig
	Fenceable  DrillAnswer
	Partly     bool   // not all of its devices answer
	Why        string // of Fenceable, in the condition's words
	Protection string // one of Protections
	Fence      string // the name of the newest fence; "" if there is none
}

// ProviderRow is what drills found of the nodes that a provider speaks for.
type ProviderRow struct {
	Name  string // "" for the nodes without a device
	Nodes int
	Found map[DrillAnswer]int
}

// Fleet is all of it. Counts are of all nodes.
type Fleet struct {
	At          time.Time
	Nodes       []NodeRow // the most urgent first, then by name
	States      map[State]int
	Answers     map[DrillAnswer]int
	Protections map[string]int
	Providers   []ProviderRow // by name
	Fences      []Fence       // the newest first
	Missing     string

	events map[string][]Event
	nodes  map[string]int
	fences map[string]int
}

// FleetOf is the fleet as the snapshot shows it. It keeps what it was given of Events.
func FleetOf(s Snapshot) *Fleet {
	f := &Fleet{
		At: s.At, States: map[State]int{}, Answers: map[DrillAnswer]int{}, Protections: map[string]int{}, Missing: OneLine(s.Missing, 300),
		events: s.Events, nodes: make(map[string]int, len(s.Nodes)), fences: map[string]int{}, Nodes: make([]NodeRow, 0, len(s.Nodes)),
	}
	for _, r := range s.Fences {
		f.Fences = append(f.Fences, fenceOf(r, s.At))
	}
	needs := map[string]string{} // by the names of all fences
	for i := range f.Fences {
		needs[f.Fences[i].Name] = f.Fences[i].NeedsPerson
	}
	providers := map[string]*ProviderRow{}
	for _, n := range s.Nodes {
		row, rec := rowOf(s, n, needs)
		if _, known := needs[row.Fence]; rec != nil && !known { // no Fencing was written, or not yet: the Node's own record tells
			entry := journal.Entry{}.AddUpdate(journal.Update{Node: n.Name, At: s.At, Record: *rec, OnlyRead: true})
			f.Fences = append(f.Fences, fenceOf(ParsedFencing{Fencing: entry.Object}, s.At))
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
	for _, p := range providers {
		f.Providers = append(f.Providers, *p)
	}
	slices.SortFunc(f.Providers, func(a, b ProviderRow) int { return strings.Compare(a.Name, b.Name) })
	order := States()
	slices.SortFunc(f.Nodes, func(a, b NodeRow) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Fences, func(a, b Fence) int { return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Name, b.Name)) })
	for i, n := range f.Nodes {
		f.nodes[n.Name] = i
	}
	for i := range f.Fences {
		f.fences[f.Fences[i].Name] = i
	}
	return f
}

// providerNames are those of its devices, each once; "" alone where there is no device.
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

// rowOf is a Node's row, and its record where that can be read. needs says of fences by their names why a person should look.
func rowOf(s Snapshot, n *corev1.Node, needs map[string]string) (NodeRow, *taint.Record) {
	row := NodeRow{Name: n.Name, Config: s.NodeConfig(n), Fenceable: NotAsked, Protection: ProtectionNeverTold}
	rec, _ := taint.RecordOf(n) // one that cannot be read makes its state Stuck
	facts := NodeFacts{Node: n, Key: s.Key, Event: s.lastOwnEvent(n.Name), Now: s.At}
	if rec != nil {
		if row.Fence = journal.ObjectName(n.Name, *rec); rec.IsOpen() {
			facts.NeedsPerson = needs[row.Fence]
		}
	}
	node := NodeOf(facts)
	row.State, row.Next, row.Partly, row.Power, row.PowerBy = node.State, OneLine(node.Next, 500), node.Partly, OneLine(node.Machine.Power, 40), OneLine(node.Machine.By, 300)
	if node.Machine.At != nil {
		row.PowerAt = *node.Machine.At
	}
	switch {
	case rec.IsOpen():
		row.Since = rec.At
	case node.ReadySince != nil:
		row.Since = *node.ReadySince
	}
	if slices.Contains(Protections[1:], node.Protection) { // a newer version's word says nothing here
		row.Protection = node.Protection
	}
	switch corev1.ConditionStatus(node.Fenceable) {
	case "":
	case corev1.ConditionTrue:
		row.Fenceable = CanBeFenced
	case corev1.ConditionFalse:
		row.Fenceable = CannotBeFenced
	default:
		row.Fenceable = NotReached
	}
	for _, c := range n.Status.Conditions {
		if c.Type == taint.FenceableCondition {
			row.Why = OneLine(c.Message, 300)
		}
	}
	return row, rec
}

// lastOwnEvent is the newest Event about a node that forcefence wrote, as the Event says itself; nil for none.
func (s Snapshot) lastOwnEvent(node string) *OwnEvent {
	var last *Event
	for i, e := range s.Events[node] {
		if e.From == "forcefence" && (last == nil || e.At.After(last.At)) {
			last = &s.Events[node][i]
		}
	}
	if last == nil {
		return nil
	}
	return &OwnEvent{At: last.At, Reason: last.Reason, Text: last.Note}
}

// NodeQuery chooses nodes. The zero value chooses all.
type NodeQuery struct {
	Text       string // a part of the name
	State      State
	Answer     DrillAnswer
	Protection string
	Provider   string // a name of Fleet.Providers; NoProvider for ""
}

// NoProvider chooses the nodes that no device speaks for.
const NoProvider = "none"

// SelectNodes returns the nodes that the query chooses, in the fleet's order.
func (f *Fleet) SelectNodes(q NodeQuery) []NodeRow {
	provider := q.Provider
	if provider == NoProvider {
		provider = ""
	}
	var out []NodeRow
	for _, n := range f.Nodes {
		if strings.Contains(n.Name, q.Text) && (q.State == "" || n.State == q.State) && (q.Answer == "" || n.Fenceable == q.Answer) &&
			(q.Protection == "" || n.Protection == q.Protection) && (q.Provider == "" || slices.Contains(n.Config.providerNames(), provider)) {
			out = append(out, n)
		}
	}
	return out
}

// Node returns a node by its name.
func (f *Fleet) Node(name string) (NodeRow, bool) {
	i, ok := f.nodes[name]
	if !ok {
		return NodeRow{}, false
	}
	return f.Nodes[i], true
}

// FencesOf are a node's fences, the newest first.
func (f *Fleet) FencesOf(node string) (out []Fence) {
	for _, v := range f.Fences {
		if v.Node == node {
			out = append(out, v)
		}
	}
	return out
}

// MomentsOf are who said what when, in order: of the record, and of the Events about the node meanwhile.
func (f *Fleet) MomentsOf(v Fence) []Moment {
	out := slices.Clone(v.moments)
	end := f.At
	if !v.Finished.IsZero() {
		end = v.Finished.Add(eventMargin)
	}
	for _, e := range f.events[v.Node] {
		if len(out) >= maxMoments {
			break
		}
		if e.At.Before(v.Started.Add(-eventMargin)) || e.At.After(end) {
			continue
		}
		out = append(out, e.toMoment())
	}
	slices.SortStableFunc(out, func(a, b Moment) int { return a.At.Compare(b.At) })
	return out
}

// EventsOf are those about a node, the newest first.
func (f *Fleet) EventsOf(node string) (out []Moment) {
	for _, e := range f.events[node] {
		out = append(out, e.toMoment())
	}
	slices.SortStableFunc(out, func(a, b Moment) int { return b.At.Compare(a.At) })
	return out
}

// Fence returns a fence by its name.
func (f *Fleet) Fence(name string) (Fence, bool) {
	i, ok := f.fences[name]
	if !ok {
		return Fence{}, false
	}
	return f.Fences[i], true
}

// eventMargin is how long before its beginning and after its end Events belong to a fence.
const eventMargin = 2 * time.Minute

// maxMoments is how many moments a story has: what forcefence and the devices said comes first.
const maxMoments = 120
