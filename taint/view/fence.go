package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// Fence is the story of one fence, or of one shadow decision, as JSON has it. Like a Node's, its texts may come from
// any writer; those of a Fleet's fences are printable.
type Fence struct {
	Name        string    `json:"name"`
	Node        string    `json:"node"`
	ID          string    `json:"id,omitempty"`
	Why         string    `json:"why,omitempty"`
	By          string    `json:"by"`
	Shadow      bool      `json:"shadow,omitempty"` // nothing was touched
	Open        bool      `json:"-"`
	Started     time.Time `json:"started"`
	Finished    time.Time `json:"-"` // zero while it is open
	Phase       string    `json:"phase"`
	Result      string    `json:"result,omitempty"`
	Duration    string    `json:"duration,omitempty"`    // until its end; of an open fence in a Fleet: until now
	Outcome     string    `json:"outcome,omitempty"`     // how it ended, in words
	NeedsPerson string    `json:"needsPerson,omitempty"` // why a person should look; "" for no reason
	// NeedsPersonSince is since when a person should look; zero: none should, or unknown.
	NeedsPersonSince time.Time   `json:"-"`
	Proven           string      `json:"proven,omitempty"` // which device answered Off, or that none did
	Spans            []Span      `json:"-"`
	Steps            []api.Step  `json:"-"`
	Moments          []Moment    `json:"moments"` // in a Fleet without Events, which MomentsOf adds
	Pods             api.Pods    `json:"pods"`
	Volumes          api.Volumes `json:"volumes"`
	Others           []string    `json:"others,omitempty"`  // further Fencings of the node, newest first
	Newer            []string    `json:"newer,omitempty"`   // what a newer version wrote, and this one does not know
	Unknown          []string    `json:"unknown,omitempty"` // what could not be read, and why
}

// PodNames returns namespace/name of the named pods.
func (f Fence) PodNames() (out []string) {
	for _, p := range f.Pods.Names {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

// Span is how long a phase lasted. An open fence's last span ends now.
type Span struct {
	Phase    string
	From, To time.Time
}

// Moment is one entry of a fence's story: when, from which source, and what.
type Moment struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`           // phase, step, answer or event
	From string    `json:"from,omitempty"` // the step, the device of an answer, the reason of an Event
	Text string    `json:"text"`

	// What the page shows of it, printable.
	Who  string `json:"-"` // LaneForcefence, LaneCluster, or a device
	Sign Sign   `json:"-"`
	What string `json:"-"`
}

// Sign is what a moment means, from a closed set. The page draws each in another shape.
type Sign string

// The signs.
const (
	SignBegins Sign = "begins"
	SignPhase  Sign = "phase"
	SignStep   Sign = "step"
	SignOff    Sign = "said Off"
	SignOn     Sign = "said On"
	// Changing, Unknown, None, or a word that this version does not know
	SignUnsure  Sign = "gave no clear answer"
	SignEvent   Sign = "Event"
	SignWarning Sign = "warning"
	SignEnds    Sign = "ends"
)

// The lanes: the source of a moment. Each device is a lane of its own, by its name.
const (
	LaneForcefence = "forcefence"
	LaneCluster    = "Kubernetes"
)

// fenceOf returns the story of a Fencing without Events. An open fence's last span ends at now.
func fenceOf(r ParsedFencing, now time.Time) Fence {
	o, s := &r.Fencing, &r.Fencing.Status
	f := Fence{
		Name: o.Name, Node: o.Spec.Node, ID: o.Spec.ID, Why: o.Spec.Why, By: o.Spec.By, Shadow: o.Spec.Shadow,
		Open: journal.IsOpen(o), Started: o.Spec.StartedAt.UTC(), Phase: s.Phase, Result: s.Result,
		Duration: s.Duration, Pods: s.Pods, Volumes: s.Volumes, Newer: r.Unrecognized, NeedsPerson: NeedsPerson(r),
		Steps: s.Steps, NeedsPersonSince: NeedsPersonSince(r),
	}
	if s.FinishedAt != nil {
		f.Finished = s.FinishedAt.Time
	}
	if c := meta.FindStatusCondition(s.Conditions, api.Finished); c != nil {
		f.Outcome = c.Message
	}
	if c := meta.FindStatusCondition(s.Conditions, api.Proven); c != nil {
		f.Proven = c.Message
	}
	begins := "the fence begins"
	if f.Shadow {
		begins = "the fence would begin, in another mode"
	}
	if f.Why != "" {
		begins += " (" + OneLine(f.Why, 120) + ")"
	}
	f.Moments = append(f.Moments, Moment{At: f.Started, Who: LaneForcefence, Sign: SignBegins, What: begins})
	for i, p := range s.Timeline {
		end := now
		switch {
		case i+1 < len(s.Timeline):
			end = s.Timeline[i+1].At.Time
		case !f.Open:
			end = p.At.Time
		}
		if p.Phase != string(taint.PhaseDone) {
			f.Spans = append(f.Spans, Span{OneLine(p.Phase, 40), p.At.Time, end})
		}
		f.Moments = append(f.Moments, phaseMoment(p, f.Shadow))
	}
	for _, p := range s.Steps {
		m := Moment{At: p.Began.UTC(), Kind: "step", From: p.Step, Text: f.describeStep(p)}
		m.Who, m.Sign, m.What = LaneForcefence, SignStep, OneLine(m.From+": "+m.Text, 500)
		f.Moments = append(f.Moments, m)
	}
	for _, a := range s.Evidence {
		f.Moments = append(f.Moments, answerMoment(a, f.isAfterMark(a)))
	}
	return f
}

// NeedsPerson returns why a person should look at a fence; "" for no reason.
func NeedsPerson(r ParsedFencing) string {
	c := meta.FindStatusCondition(r.Fencing.Status.Conditions, api.NeedsPerson)
	if c == nil || c.Status != "True" {
		return ""
	}
	return c.Message
}

// NeedsPersonSince returns since when a person should look at a fence; zero for no reason.
func NeedsPersonSince(r ParsedFencing) time.Time {
	if NeedsPerson(r) == "" {
		return time.Time{}
	}
	return meta.FindStatusCondition(r.Fencing.Status.Conditions, api.NeedsPerson).LastTransitionTime.UTC()
}

// Waiting returns the VolumeAttachments that a fence waits for where a person should look; nil if none should.
func Waiting(r ParsedFencing) []api.Attachment {
	if NeedsPerson(r) == "" {
		return nil
	}
	return r.Fencing.Status.Volumes.Waiting
}

// phaseMoment returns the moment at which a fence entered a phase.
func phaseMoment(p api.PhaseEntered, shadow bool) Moment {
	m := Moment{
		At: p.At.UTC(), Kind: "phase", Text: strings.TrimSuffix(p.Phase+" "+p.Result, " "), Who: LaneForcefence,
		Sign: SignPhase,
	}
	word, meaning := p.Phase, phaseMeanings[taint.Phase(p.Phase)]
	if p.Phase == string(taint.PhaseDone) {
		word, meaning = p.Result, cmp.Or(journal.ResultText(p.Result), "in a way that this version does not know")
		if !shadow {
			m.Sign = SignEnds
		}
	}
	m.What = OneLine(word, 40) + ": " + cmp.Or(meaning, "a phase that this version does not know")
	return m
}

// phaseMeanings explains each phase to a person.
var phaseMeanings = map[taint.Phase]string{
	taint.PhasePoweringOff: "the machine is powered off through its device",
	taint.PhaseArmed:       "the node is marked; nothing was evicted yet",
	taint.PhaseEvicting:    "its pods are ended, then its volumes detach",
}

// isAfterMark reports whether the device was asked once the fence had marked the node.
func (f Fence) isAfterMark(a api.Answer) bool {
	return slices.ContainsFunc(f.Steps, func(s api.Step) bool {
		return s.Step == api.StepSetMark && s.Error == "" && !a.At.Before(&s.Ended)
	})
}

// answerMoment returns the moment at which a device answered.
func answerMoment(a api.Answer, afterMark bool) Moment {
	m := Moment{
		At: a.At.UTC(), Kind: "answer", From: a.From, Text: fmt.Sprintf("%s says %s", a.From, a.State),
		Who: OneLine(a.From, 120), Sign: SignUnsure, What: OneLine(a.State, 40),
	}
	switch a.State {
	case "Off":
		m.Sign = SignOff
	case "On":
		m.Sign = SignOn
	case "None":
		m.Text = a.From + ": no device can say"
		afterMark = false
	}
	if afterMark {
		m.What += ", asked after the mark"
		m.Text += ", asked after the mark"
	}
	if a.Raw != "" && a.Raw != a.State {
		m.What += " (" + OneLine(a.Raw, 120) + ")"
		if a.State != "None" {
			m.Text += ` ("` + a.Raw + `")`
		}
	}
	return m
}

// Event is one Event about a Node, as JSON has it.
type Event struct {
	At      time.Time `json:"at"` // when it happened last
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	From    string    `json:"-"` // its writer, as the Event claims
	Warning bool      `json:"-"`
	Count   int       `json:"-"`
}

func (e Event) toMoment() Moment {
	m := Moment{
		At: e.At, Kind: "event", From: e.Reason, Text: e.Text,
		Who: LaneCluster, Sign: SignEvent, What: OneLine(e.Reason, 80) + ": " + OneLine(e.Text, 500),
	}
	own := strings.HasPrefix(e.From, "forcefence")
	row := reason.RowOf(reason.Reason(e.Reason))
	if e.Warning && !(own && row.Reason != "" && row.Remedy == "") { // there is nothing to do about a planned step
		m.Sign = SignWarning
	}
	if own {
		m.Who = LaneForcefence
	} else if from := OneLine(e.From, 60); from != "" {
		m.What = from + ": " + m.What
	}
	if e.Count > 1 {
		m.What += fmt.Sprintf(" (%d times)", e.Count)
	}
	return m
}

// NewestOwnEvent returns the newest Event whose writer claims to be forcefence; nil if there is none.
func NewestOwnEvent(events []Event) *Event {
	var last *Event
	for i := range events {
		if e := &events[i]; e.From == "forcefence" && (last == nil || e.At.After(last.At)) {
			last = e
		}
	}
	return last
}

// sortMoments sorts moments by time. Those of the same time keep their order.
func sortMoments(all []Moment) {
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
}

// margins are how long before a fence begins, and after it ends, an Event may still belong to it: the suspicion is
// reported before the fence, the machine's recovery after it.
type margins struct{ before, after time.Duration }

var (
	timelineMargins = margins{10 * time.Minute, 30 * time.Minute}
	pageMargins     = margins{2 * time.Minute, 2 * time.Minute}
)

// windowOf returns the time whose Events belong to a fence; to is zero while it goes on. others are fences of the same
// node: no Event belongs to two. What lies between two fences, and near enough to the later one, is the later one's.
func (m margins) windowOf(f Fence, others []Fence) (from, to time.Time) {
	if from = f.Started.Add(-m.before); !f.Finished.IsZero() {
		to = f.Finished.Add(m.after)
	}
	for _, o := range others {
		switch {
		case o.Name == f.Name:
		case o.Started.Before(f.Started):
			if o.Finished.After(from) && o.Finished.Before(f.Started) {
				from = o.Finished
			}
		case o.Started.After(f.Started):
			end := o.Started.Add(-m.before)
			if f.Finished.IsZero() || f.Finished.After(o.Started) { // its end was not recorded, or late
				end = o.Started
			} else if end.Before(f.Finished) {
				end = f.Finished
			}
			if to.IsZero() || end.Before(to) {
				to = end
			}
		}
	}
	return from, to
}

// SortNewestFirst sorts the newest fence to the front.
func SortNewestFirst(records []ParsedFencing) {
	slices.SortFunc(records, func(a, b ParsedFencing) int {
		return cmp.Or(
			b.Fencing.Spec.StartedAt.Compare(a.Fencing.Spec.StartedAt.Time),
			cmp.Compare(b.Fencing.Name, a.Fencing.Name),
		)
	})
}

// TimelineOf returns the story of a record, and the names of its node's other fences. events are forcefence's Events
// about that node; those outside of the fence's window are left out.
func TimelineOf(record ParsedFencing, others []ParsedFencing, events []Event) *Fence {
	f := fenceOf(record, time.Time{})
	f.Moments = f.Moments[1:] // that it begins is not an entry
	var all []Fence
	for _, other := range others {
		if o := fenceOf(other, time.Time{}); o.Name != f.Name {
			f.Others, all = append(f.Others, o.Name), append(all, o)
		}
	}
	from, to := timelineMargins.windowOf(f, all)
	for _, e := range events {
		if e.From == "kubelet" && e.At.Before(f.Started) {
			continue // of an earlier boot
		}
		if e.At.After(from) && (to.IsZero() || e.At.Before(to)) && !isStep(e, record.Fencing.Status.Steps) {
			f.Moments = append(f.Moments, e.toMoment())
		}
	}
	sortMoments(f.Moments)
	return &f
}

// phaseSteps names the step that enters a phase, and phaseEvents the Events that report only that a phase is entered.
var (
	phaseSteps = map[taint.Phase]string{
		taint.PhasePoweringOff: api.StepPowerOff, taint.PhaseArmed: api.StepSetMark,
		taint.PhaseDone: api.StepRemoveMark,
	}
	phaseEvents = map[taint.Phase][]reason.Reason{
		taint.PhasePoweringOff: {reason.Announcing}, taint.PhaseArmed: {reason.ProvenOff},
		taint.PhaseEvicting: {reason.Confirmed}, taint.PhaseDone: {reason.Finished, reason.FinishedReturn},
	}
)

// phase returns the phase that the moment enters; "" if it enters none.
func (m Moment) phase() taint.Phase {
	if m.Kind != "phase" {
		return ""
	}
	phase, _, _ := strings.Cut(m.Text, " ")
	return taint.Phase(phase)
}

// isAt reports whether the moment is at this time. Clocks may differ by a second.
func (m Moment) isAt(t time.Time) bool { return m.At.Sub(t).Abs() <= time.Second }

// mergeMoments returns one moment for those that say the same: a phase, the step that enters it and that the fence
// begins, or an answer and the step that asks for it.
func mergeMoments(all []Moment) (out []Moment) {
	hosts := make([]int, len(all)) // of each moment the one that has its text
	for i, m := range all {
		hosts[i] = slices.IndexFunc(all, func(host Moment) bool {
			switch {
			case !host.isAt(m.At):
				return false
			case m.Sign == SignBegins, m.Kind == "step" && phaseSteps[host.phase()] == m.From:
				return host.phase() != ""
			default:
				return m.Kind == "step" && m.From == api.StepAskDevices && host.Kind == "answer"
			}
		})
	}
	for i, m := range all {
		if hosts[i] >= 0 {
			continue
		}
		for j, part := range all {
			switch {
			case hosts[j] != i:
			case part.Sign == SignBegins:
				word, meaning, _ := strings.Cut(m.What, ": ")
				m.What = word + ": " + part.What + "; " + meaning
			default:
				m.What += " (" + part.What + ")"
			}
		}
		out = append(out, m)
	}
	return out
}

// isPhase reports whether an Event only repeats that one of the moments enters a phase.
func isPhase(e Event, moments []Moment) bool {
	return slices.ContainsFunc(moments, func(m Moment) bool {
		return slices.Contains(phaseEvents[m.phase()], reason.Reason(e.Reason)) && m.isAt(e.At)
	})
}

// stepEvents are the Events that report only that a step begins.
var stepEvents = map[string]reason.Reason{
	api.StepEndPods:         reason.Tombstoning,
	api.StepClearVolumes:    reason.Clearing,
	api.StepDeletePods:      reason.Deleting,
	api.StepSparePods:       reason.Sparing,
	api.StepSetPodsNotReady: reason.SettingNotReady,
}

// isStep reports whether an Event only repeats one of the steps. Clocks may differ by a second.
func isStep(e Event, steps []api.Step) bool {
	return slices.ContainsFunc(steps, func(s api.Step) bool {
		own, ok := stepEvents[s.Step]
		return ok && e.Reason == string(own) && !e.At.Before(s.Began.Add(-time.Second))
	})
}

// stepObjects names the objects of the steps that are not about pods.
var stepObjects = map[string]string{
	api.StepClearVolumes:      "volume reference", // a node has two lists of its volumes
	api.StepDeleteAttachments: "VolumeAttachment",
}

// describeStep describes a step: its objects, its duration and its last error.
func (f Fence) describeStep(s api.Step) string {
	var text string
	if s.Objects > 0 {
		text = decide.FormatCount(int(s.Objects), cmp.Or(stepObjects[s.Step], "pod")) + ", "
	}
	all, others := int32(0), "" // what became of the pods that the step does not count
	switch s.Step {
	case api.StepDeletePods:
		all, others = f.Pods.Ended, "gone already"
	case api.StepSparePods:
		all, others = f.Pods.Spared, "changed meanwhile: no write needed"
	}
	if n := all - s.Objects; n > 0 && !f.Open && f.Pods.Left == 0 {
		text = fmt.Sprintf("%d of %s (%d %s), ", s.Objects, decide.FormatCount(int(all), "pod"), n, others)
	}
	took := FormatSpan(s.Ended.Sub(s.Began.Time))
	if s.Times > 1 {
		text += fmt.Sprintf("%d times within %s", s.Times, took)
	} else {
		text += "took " + took
	}
	if s.Error != "" {
		text += "; last failure: " + s.Error
	}
	return text
}

// FormatSpan formats how long a step lasted. A negative time counts as none, because clocks may differ.
func FormatSpan(d time.Duration) string {
	if d < time.Second {
		return max(d, 0).Round(time.Millisecond).String()
	}
	return journal.FormatDuration(d)
}
