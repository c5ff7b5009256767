package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
)

// Fence is one fence, or one shadow decision.
type Fence struct {
	Name, Node, ID, By, Why string
	Shadow, PowerOff, Open  bool
	Started, Finished       time.Time // Finished is zero while it is open
	Duration                string    // until its end, or until now
	Phase, Result           string
	Outcome                 string // how it ended, in words
	Proven                  string // which device answered Off, or that none did
	NeedsPerson             string // why a person should look; "" for no reason
	Unrecognized            []string
	Spans                   []Span
	Pods                    Pods
	Volumes                 Volumes

	moments []Moment // without Events
}

// Pods are the results of a fence for the node's pods. Names may hold fewer than the counts.
type Pods struct {
	Ended, Spared, Left, Would int
	Names                      []string // namespace/name
}

// Volumes are the results of a fence for the attached volumes. Names may hold fewer than the counts.
type Volumes struct {
	Attached, Detached int
	Names, Left        []string
}

// Span is how long a phase lasted. An open fence's last span ends now.
type Span struct {
	Phase    string
	From, To time.Time
}

// MomentKind is the kind of a moment, from a closed set.
type MomentKind string

// The kinds.
const (
	MomentBegins MomentKind = "begins"
	MomentPhase  MomentKind = "phase"
	MomentOff    MomentKind = "said Off"
	MomentOn     MomentKind = "said On"
	// Changing, Unknown, None, or a word that this version does not know
	MomentUnsure  MomentKind = "gave no clear answer"
	MomentEvent   MomentKind = "Event"
	MomentWarning MomentKind = "Event of type Warning"
	MomentEnds    MomentKind = "ends"
)

// The lanes: the source of a moment. Each device is a lane of its own, by its name.
const (
	LaneForcefence = "forcefence"
	LaneCluster    = "Kubernetes"
)

// Moment is one entry of a fence's story: when, from which source, and what.
type Moment struct {
	At   time.Time
	Who  string // LaneForcefence, LaneCluster, or a device
	Kind MomentKind
	What string
}

func fenceOf(r ParsedFencing, now time.Time) Fence {
	o, s := &r.Fencing, &r.Fencing.Status
	f := Fence{
		Name: OneLine(o.Name, 253), Node: OneLine(o.Spec.Node, 253), ID: OneLine(o.Spec.ID, 63),
		By: OneLine(o.Spec.By, 120), Why: OneLine(o.Spec.Why, 120),
		Shadow: o.Spec.Shadow, PowerOff: o.Spec.PowerOff, Open: journal.IsOpen(o),
		Started: o.Spec.StartedAt.Time, Phase: OneLine(s.Phase, 40), Result: OneLine(s.Result, 40),
		Duration: OneLine(s.Duration, 40), Unrecognized: r.Unrecognized,
		Pods: Pods{
			Ended:  int(s.Pods.Ended),
			Spared: int(s.Pods.Spared),
			Left:   int(s.Pods.Left),
			Would:  int(s.Pods.Would),
		},
		Volumes: Volumes{Attached: int(s.Volumes.Attached), Detached: int(s.Volumes.Detached)},
	}
	for _, p := range s.Pods.Names {
		f.Pods.Names = append(f.Pods.Names, OneLine(p.Namespace+"/"+p.Name, 320))
	}
	for _, v := range s.Volumes.Names {
		f.Volumes.Names = append(f.Volumes.Names, OneLine(v, 253))
	}
	for _, v := range s.Volumes.Left {
		f.Volumes.Left = append(f.Volumes.Left, OneLine(v, 253))
	}
	if f.Open {
		f.Duration = formatDuration(now.Sub(f.Started))
	} else if s.FinishedAt != nil {
		f.Finished = s.FinishedAt.Time
	}
	if c := meta.FindStatusCondition(s.Conditions, api.Finished); c != nil {
		f.Outcome = OneLine(c.Message, 300)
	}
	if c := meta.FindStatusCondition(s.Conditions, api.Proven); c != nil {
		f.Proven = OneLine(c.Message, 300)
	}
	if c := meta.FindStatusCondition(s.Conditions, api.NeedsPerson); c != nil && c.Status == "True" {
		f.NeedsPerson = OneLine(c.Message, 500)
	}
	f.moments = append(f.moments, Moment{f.Started, LaneForcefence, MomentBegins, describeBegin(f)})
	for i, p := range s.Timeline {
		end := now
		switch {
		case i+1 < len(s.Timeline):
			end = s.Timeline[i+1].At.Time
		case !f.Open:
			end = p.At.Time
		}
		phase := OneLine(p.Phase, 40)
		kind, what := MomentPhase, phaseMeanings[taint.Phase(phase)]
		if p.Phase == string(taint.PhaseDone) {
			kind, what = MomentEnds, cmp.Or(journal.ResultText(p.Result), "in a way that this version does not know")
			if phase = OneLine(p.Result, 40); f.Shadow {
				kind = MomentPhase
			}
		} else {
			f.Spans = append(f.Spans, Span{phase, p.At.Time, end})
		}
		f.moments = append(f.moments, Moment{
			p.At.Time, LaneForcefence, kind, phase + ": " + cmp.Or(what, "a phase that this version does not know"),
		})
	}
	for _, a := range s.Evidence {
		kind := MomentUnsure
		switch a.State {
		case "Off":
			kind = MomentOff
		case "On":
			kind = MomentOn
		}
		what := OneLine(a.State, 40)
		if raw := OneLine(a.Raw, 120); raw != "" && raw != what {
			what += " (" + raw + ")"
		}
		f.moments = append(f.moments, Moment{a.At.Time, OneLine(a.From, 120), kind, what})
	}
	return f
}

// phaseMeanings explains each phase to a person.
var phaseMeanings = map[taint.Phase]string{
	taint.PhasePoweringOff: "the machine is powered off through its device",
	taint.PhaseArmed:       "the node is marked; nothing was evicted yet",
	taint.PhaseEvicting:    "its pods are ended, then its volumes detach",
}

func describeBegin(f Fence) string {
	what := "begins"
	if f.Shadow {
		what = "would begin, in another mode"
	}
	if f.Why != "" {
		what += " (" + f.Why + ")"
	}
	return what
}

// Event is one Event about a Node.
type Event struct {
	At      time.Time // when it happened last
	From    string    // its writer, as the Event claims
	Reason  string
	Note    string
	Warning bool
	Count   int
}

func (e Event) toMoment() Moment {
	m := Moment{
		At:   e.At,
		Who:  LaneCluster,
		Kind: MomentEvent,
		What: OneLine(e.Reason, 80) + ": " + OneLine(e.Note, 500),
	}
	if e.Warning {
		m.Kind = MomentWarning
	}
	if strings.HasPrefix(e.From, "forcefence") {
		m.Who = LaneForcefence
	} else if from := OneLine(e.From, 60); from != "" {
		m.What = from + ": " + m.What
	}
	if e.Count > 1 {
		m.What += fmt.Sprintf(" (%d times)", e.Count)
	}
	return m
}
