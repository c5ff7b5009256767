package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/reason"
)

// Timeline is a fence's story as JSON has it. Like a Node's, its texts may come from any writer.
type Timeline struct {
	Fencing     string          `json:"fencing"`
	Node        string          `json:"node"`
	ID          string          `json:"id,omitempty"`
	Why         string          `json:"why,omitempty"`
	By          string          `json:"by"`
	Shadow      bool            `json:"shadow,omitempty"` // nothing was touched
	Begun       time.Time       `json:"begun"`
	Phase       string          `json:"phase"`
	Result      string          `json:"result,omitempty"`
	Duration    string          `json:"took,omitempty"`
	Outcome     string          `json:"outcome,omitempty"`
	NeedsPerson string          `json:"needsPerson,omitempty"` // why a person should look
	Proven      string          `json:"proven,omitempty"`
	Entries     []TimelineEntry `json:"entries"`
	Pods        api.Pods        `json:"pods"`
	Volumes     api.Volumes     `json:"volumes"`
	Others      []string        `json:"others,omitempty"`  // further Fencings of the node, newest first
	Newer       []string        `json:"newer,omitempty"`   // what a newer version wrote, and this one does not know
	Unknown     []string        `json:"unknown,omitempty"` // what could not be read, and why
}

// TimelineEntry is one moment of the story.
type TimelineEntry struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`           // phase, step, answer or event
	From string    `json:"from,omitempty"` // the step, the device of an answer, the reason of an Event
	Text string    `json:"text"`
}

// The window of Events that belong to a fence: the suspicion is reported before the fence, the machine's recovery after
// it.
const (
	eventsBefore = 10 * time.Minute
	eventsAfter  = 30 * time.Minute
)

// SortNewestFirst sorts the newest fence to the front.
func SortNewestFirst(records []ParsedFencing) {
	slices.SortFunc(records, func(a, b ParsedFencing) int {
		return cmp.Or(
			b.Fencing.Spec.StartedAt.Compare(a.Fencing.Spec.StartedAt.Time),
			cmp.Compare(b.Fencing.Name, a.Fencing.Name),
		)
	})
}

// TimelineOf returns the story of the first record. The others are earlier fences of its node, in SortNewestFirst's
// order. events are forcefence's Events about that node; those outside of the fence's window are left out.
func TimelineOf(records []ParsedFencing, events []OwnEvent) *Timeline {
	f := records[0].Fencing
	t := timelineOf(records[0])
	from, until := t.Begun.Add(-eventsBefore), time.Time{} // until is zero for a fence that is not over
	if f.Status.FinishedAt != nil {
		until = f.Status.FinishedAt.Add(eventsAfter)
	}
	for _, other := range records[1:] {
		t.Others = append(t.Others, other.Fencing.Name)
		// An earlier fence's Events are not this one's.
		if end := other.Fencing.Status.FinishedAt; end != nil && end.After(from) && end.Time.Before(t.Begun) {
			events = slices.DeleteFunc(slices.Clone(events), func(e OwnEvent) bool { return !e.At.After(end.Time) })
		}
	}
	for _, e := range events {
		if e.At.After(from) && (until.IsZero() || e.At.Before(until)) && !isStep(e, f.Status.Steps) {
			t.Entries = append(t.Entries, TimelineEntry{e.At, "event", e.Reason, e.Text})
		}
	}
	slices.SortStableFunc(t.Entries, func(a, b TimelineEntry) int { return a.At.Compare(b.At) })
	return t
}

// timelineOf returns the story of a Fencing without Events.
func timelineOf(r ParsedFencing) *Timeline {
	f := r.Fencing
	t := &Timeline{
		Fencing: f.Name, Node: f.Spec.Node, ID: f.Spec.ID, Why: f.Spec.Why, By: f.Spec.By, Shadow: f.Spec.Shadow,
		Begun: f.Spec.StartedAt.UTC(), Phase: f.Status.Phase, Result: f.Status.Result, Duration: f.Status.Duration,
		Pods: f.Status.Pods, Volumes: f.Status.Volumes, Newer: r.Unrecognized, Entries: []TimelineEntry{},
	}
	for _, c := range f.Status.Conditions {
		switch {
		case c.Type == api.Finished && c.Status == metav1.ConditionTrue:
			t.Outcome = c.Message
		case c.Type == api.Proven:
			t.Proven = c.Message
		case c.Type == api.NeedsPerson && c.Status == metav1.ConditionTrue:
			t.NeedsPerson = c.Message
		}
	}
	for _, p := range f.Status.Timeline {
		text := strings.TrimSuffix(p.Phase+" "+p.Result, " ")
		t.Entries = append(t.Entries, TimelineEntry{p.At.UTC(), "phase", "", text})
	}
	for _, s := range f.Status.Steps {
		t.Entries = append(t.Entries, TimelineEntry{s.Began.UTC(), "step", s.Step, describeStep(s)})
	}
	for _, a := range f.Status.Evidence {
		text := fmt.Sprintf("%s says %s", a.From, a.State)
		switch {
		case a.State == "None":
			text = a.From + ": no device can say"
		case a.Raw != "" && a.Raw != a.State:
			text += ` ("` + a.Raw + `")`
		}
		t.Entries = append(t.Entries, TimelineEntry{a.At.UTC(), "answer", a.From, text})
	}
	return t
}

// stepEvents are the Events that report only that a step begins.
var stepEvents = map[string]reason.Reason{
	api.StepEndPods:      reason.Tombstoning,
	api.StepClearVolumes: reason.Clearing,
	api.StepDeletePods:   reason.Deleting,
}

// isStep reports whether an Event only repeats one of the steps. Clocks may differ by a second.
func isStep(e OwnEvent, steps []api.Step) bool {
	return slices.ContainsFunc(steps, func(s api.Step) bool {
		own, ok := stepEvents[s.Step]
		return ok && e.Reason == string(own) && !e.At.Before(s.Began.Add(-time.Second))
	})
}

// stepObjects names the objects of the steps that are not about pods.
var stepObjects = map[string]string{
	api.StepClearVolumes:      "volume",
	api.StepDeleteAttachments: "VolumeAttachment",
}

// describeStep describes a step: its objects, its duration and its last error.
func describeStep(s api.Step) string {
	var text string
	if s.Objects > 0 {
		text = fmt.Sprintf("%d %s", s.Objects, cmp.Or(stepObjects[s.Step], "pod"))
		if s.Objects > 1 {
			text += "s"
		}
		text += ", "
	}
	d := max(s.Ended.Sub(s.Began.Time), 0)
	took := formatDuration(d)
	if d < time.Second {
		took = d.Round(time.Millisecond).String()
	}
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
