package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/forcefence/forcefence/taint/reason"
)

// Cluster is what concerns all nodes at once, as JSON has it. The zero value claims nothing.
type Cluster struct {
	Controller *Leader `json:"controller"`       // nil: not read
	Paused     string  `json:"paused,omitempty"` // what pauses fencing for all nodes; "": nothing, or not read
	// NeverPaused is a pause of all nodes that pauses nothing: its end had passed when it was written. "": none.
	NeverPaused string `json:"neverPaused,omitempty"`
	// Waiting is how many pods of the cluster are Pending without a node, at most MaxWaiting. It is 0 if it was not
	// read: it is read if a fence of the last hour freed pods.
	Waiting int `json:"waiting,omitempty"`
}

// Leader is the Lease by which controllers elect their leader. The zero value: there is none.
type Leader struct {
	Lease     string     `json:"lease,omitempty"`     // its namespace and name
	Namespace string     `json:"namespace,omitempty"` // of the installation that it belongs to; "": not known
	Holder    string     `json:"holder,omitempty"`    // "": no controller
	Renewed   *time.Time `json:"renewed,omitempty"`
	Leads     bool       `json:"leads"` // a controller holds it, or held it a moment ago
	// Until is when its Lease ends unless it is renewed; nil: the Lease does not say, or has no holder.
	Until *time.Time `json:"until,omitempty"`
	// Late: it leads by the rule above, and the Lease's own duration is over. It may be gone, or clocks differ.
	Late bool `json:"late,omitempty"`
	// ConfigRejected is why the leader rejects its changed configuration file; "" while that file is in force.
	ConfigRejected string `json:"configRejected,omitempty"`
	// ConfigDigest identifies the configuration file in force, and ConfigSince is when a leader put it in force. A
	// leader of an older version reports neither.
	ConfigDigest string     `json:"configDigest,omitempty"`
	ConfigSince  *time.Time `json:"configSince,omitempty"`
	// DrilledSince is when it asked the devices of the node that it asked the longest ago; nil: not of every node.
	DrilledSince *time.Time `json:"drilledSince,omitempty"`
	// Room is its last estimate whether pods find room elsewhere; nil: none yet, or not known.
	Room Room `json:"room,omitempty"`
	// HeldBack is what its storm guard holds back now; nil: nothing, or not known.
	HeldBack *HeldBack `json:"heldBack,omitempty"`
}

// Room is an estimate whether pods find room elsewhere.
type Room interface {
	// EstimatedAt returns when it was made.
	EstimatedAt() time.Time
	// Word says for a node in a word whether its pods find room; "?" for unknown.
	Word(node string, now time.Time) string
	// DescribeLately says for each kind of failure how many leave pods without room; nil if the estimate is old.
	DescribeLately(now time.Time) []RoomStatement
	// DescribeLacking says how many single nodes leave pods without room; "" for none, and if the estimate is old.
	DescribeLacking(now time.Time) string
}

// noRoom is the estimate of a cluster that has none.
type noRoom struct{}

func (noRoom) EstimatedAt() time.Time                   { return time.Time{} }
func (noRoom) Word(string, time.Time) string            { return "?" }
func (noRoom) DescribeLately(time.Time) []RoomStatement { return nil }
func (noRoom) DescribeLacking(time.Time) string         { return "" }

// RoomStatement is what an estimate says of one kind of failure.
type RoomStatement struct {
	Verdict string // the worst of the kind's failures: one of features/room.Verdict
	Text    string
}

// Describe says, without a full stop, who leads. Of a Lease whose duration is over it says until when its holder led.
// It is of use while Leads.
func (l *Leader) Describe(now time.Time) string {
	if l.Lease == "" || l.Renewed == nil {
		return "Controller " + l.Holder + " leads"
	}
	age := duration.HumanDuration(max(now.Sub(*l.Renewed), 0))
	if l.Late && l.Until != nil {
		return fmt.Sprintf("Controller %s led until %s (Lease %s, renewed %s ago): it may be gone, or clocks differ",
			l.Holder, l.Until.UTC().Format("15:04:05 UTC"), l.Lease, age)
	}
	return fmt.Sprintf("Controller %s leads (Lease %s, renewed %s ago)", l.Holder, l.Lease, age)
}

// Leads reports whether a controller leads.
func (c Cluster) Leads() bool { return c.Controller != nil && c.Controller.Leads }

// IsLeaderless reports whether no controller leads; false: one does, or the Lease was not read.
func (c Cluster) IsLeaderless() bool { return c.Controller != nil && !c.Controller.Leads }

// LostLeader reports whether the controllers' Lease has no leader now. It is false without a Lease: a controller
// without leader election has none.
func (c Cluster) LostLeader() bool { return c.IsLeaderless() && c.Controller.Lease != "" }

// Room returns the leader's last estimate whether pods find room elsewhere; one that knows nothing if there is none.
func (c Cluster) Room() Room {
	if !c.Leads() || c.Controller.Room == nil {
		return noRoom{}
	}
	return c.Controller.Room
}

// ConfigSince returns when the leader's configuration was put in force; zero if that is unknown. Answers that are older
// may come from devices of the configuration before.
func (c Cluster) ConfigSince() (since time.Time) {
	if c.Leads() && c.Controller.ConfigSince != nil {
		since = *c.Controller.ConfigSince
	}
	return since
}

// DrilledSince returns since when the leader has asked the devices of every node; zero if it has not, or if no
// controller leads.
func (c Cluster) DrilledSince() (since time.Time) {
	if c.Leads() && c.Controller.DrilledSince != nil {
		since = *c.Controller.DrilledSince
	}
	return since
}

// HeldBack returns what the leader's storm guard holds back; nil if nothing, or if it is not known.
func (c Cluster) HeldBack() *HeldBack {
	if !c.Leads() {
		return nil
	}
	return c.Controller.HeldBack
}

// namespace returns the leader's namespace; "" if it is not known.
func (c Cluster) namespace() string {
	if !c.Leads() {
		return ""
	}
	return c.Controller.Namespace
}

// Banner is a reason why forcefence does not act on any node, or not as configured. Its texts may come from any writer.
type Banner struct {
	About  Part   `json:"about"`
	Title  string `json:"title"`  // a short sentence without a full stop
	Text   string `json:"text"`   // the details
	Remedy string `json:"remedy"` // what a person does
	// Command is what a person runs for it; "": none. The remedy ends in a colon then.
	Command string `json:"command,omitempty"`
}

// Part is the part of an installation that a Banner is about, from a closed set.
type Part string

// The parts.
const (
	PartController    Part = "controller"
	PartPause         Part = "pause"
	PartConfiguration Part = "configuration"
	PartStorm         Part = "storm"
	PartGone          Part = "volumes"
	PartPods          Part = "pods"
)

// Section returns the section of docs/runbook.md that is about the part.
func (p Part) Section() reason.Section {
	switch p {
	case PartController:
		return reason.SectionNoLeader
	case PartConfiguration:
		return reason.SectionConfigRefused
	case PartStorm:
		return reason.SectionStorm
	case PartPause:
		return reason.SectionPauseForgotten
	case PartPods:
		return reason.SectionNoRoom
	case PartGone:
		return reason.SectionDeletedNode
	default:
		return reason.SectionNothing
	}
}

// Advice returns what a person does, and with which command.
func (b Banner) Advice() string {
	if b.Command == "" {
		return b.Remedy
	}
	return b.Remedy + " " + b.Command // without a full stop, so that it can be copied
}

// Details returns what follows the title.
func (b Banner) Details() string { return b.Text + " " + b.Advice() }

// Banners returns what a person must know of the whole cluster before anything else, the gravest first.
func (c Cluster) Banners(now time.Time) (out []Banner) {
	if c.IsLeaderless() {
		out = append(out, c.Controller.describeMissing(now))
	}
	if c.Paused != "" {
		out = append(out, Banner{About: PartPause, Title: "Fencing is paused for all nodes",
			Text:   "by " + c.Paused + ". No power-off, mark or policy action begins; a fence in progress continues.",
			Remedy: "To end the pause:", Command: "forcefence resume"})
	}
	if c.NeverPaused != "" {
		out = append(out, Banner{About: PartPause, Title: "A pause for all nodes pauses nothing",
			Text:    c.NeverPaused + " was written after its own end. Fencing goes on.",
			Remedy:  "Pause with a duration, after forcefence resume:",
			Command: "forcefence pause --for 2h --reason TEXT"})
	}
	if c.Leads() && c.Controller.ConfigRejected != "" {
		out = append(out, Banner{About: PartConfiguration, Title: "The changed configuration is rejected",
			Text:   endSentence(c.Controller.ConfigRejected) + " The previous file stays in force.",
			Remedy: PlainRemedy(reason.ConfigRejected)})
	}
	return out
}

// endSentence returns a text that ends in one mark.
func endSentence(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// describeMissing describes the Lease, which no controller holds now.
func (l *Leader) describeMissing(now time.Time) Banner {
	b := Banner{About: PartController, Title: "No controller leads"}
	if l.Lease == "" {
		b.Text = "No controller has created its Lease in this cluster: forcefence is not installed, or its pods do " +
			"not start. Nothing is fenced."
		b.Remedy = "Look at the pods in its namespace. Before an installation: forcefence check --before-install."
		return b
	}
	state, pods := "has no holder", "describe pods -A"
	if l.Renewed != nil {
		state = fmt.Sprintf("was renewed %s, by %s", FormatAge(*l.Renewed, now), l.Holder)
	}
	if l.Namespace != "" {
		state += ". It belongs to the installation in namespace " + l.Namespace
		pods = "-n " + l.Namespace + " describe pods"
	}
	b.Text = fmt.Sprintf("Lease %s %s. Nothing is fenced, and what is shown may be stale.", l.Lease, state)
	b.Remedy = "Look at the controller's pods:"
	b.Command = "kubectl " + pods + " -l app.kubernetes.io/name=forcefence"
	return b
}

// FormatAge returns how long ago a time was: "<1 min ago", "2 min ago", "3 h ago", "5 days ago". A time in the future
// counts as now, because clocks may differ.
func FormatAge(at, now time.Time) string {
	switch age := now.Sub(at); {
	case age < time.Minute:
		return "<1 min ago"
	case age < time.Hour:
		return fmt.Sprintf("%d min ago", age/time.Minute)
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h ago", age/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", age/(24*time.Hour))
	}
}
