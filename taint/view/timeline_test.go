package view

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/reason"
)

// TestTimelineSteps: each step is shown with its time and duration. An Event that says no more is left out; a
// Fencing of an earlier version, which has no steps, is told by its Events.
func TestTimelineSteps(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d)) }
	const ms = time.Millisecond
	steps := []api.Step{
		{Step: api.StepSetMark, Began: at(0), Ended: at(23 * ms)},
		{Step: api.StepEndPods, Began: at(600 * ms), Ended: at(1900 * ms), Objects: 5, Times: 2, Error: "conflict"},
		{Step: api.StepClearVolumes, Began: at(800 * ms), Ended: at(800 * ms), Objects: 1},
		{Step: api.StepDeleteAttachments, Began: at(time.Minute), Ended: at(2*time.Minute + 300*ms), Objects: 2},
		{Step: "Verify", Began: at(3 * time.Minute), Ended: at(2 * time.Minute)},
	}
	events := []Event{
		{At: now.Add(-2 * time.Second), Reason: "EndingPods", Text: "Ending 2 pods of before."},
		{At: now.Add(600 * ms), Reason: "EndingPods", Text: "Ending 3 pods."},
		{At: now.Add(700 * ms), Reason: "MachineConfirmedOff", Text: "The machine is off."},
		{At: now.Add(800 * ms), Reason: "ClearingVolumes", Text: "Clearing."},
		{At: now.Add(900 * ms), Reason: "DeletingPods", Text: "Deleting 3 pods."},
		{At: now.Add(50 * time.Second), Reason: "ForcingDetach",
			Text: "Volumes are attached for longer than detachTimeout."},
		{At: now.Add(70 * time.Second), Reason: "EndingPods", Text: "Ending 2 pods."},
	}
	for _, tt := range []struct {
		name  string
		steps []api.Step
		want  []string
	}{
		{"with steps", steps, []string{
			"event EndingPods: Ending 2 pods of before.",
			"step SetMark: took 23ms",
			"step EndPods: 5 pods, 2 times within 1.3s; last failure: conflict",
			"event MachineConfirmedOff: The machine is off.",
			"step ClearVolumes: 1 volume reference, took 0s",
			"event DeletingPods: Deleting 3 pods.",
			"event ForcingDetach: Volumes are attached for longer than detachTimeout.",
			"step DeleteAttachments: 2 VolumeAttachments, took 1m0s",
			"step Verify: took 0s",
		}},
		{"of an earlier version", nil, []string{
			"event EndingPods: Ending 2 pods of before.",
			"event EndingPods: Ending 3 pods.",
			"event MachineConfirmedOff: The machine is off.",
			"event ClearingVolumes: Clearing.",
			"event DeletingPods: Deleting 3 pods.",
			"event ForcingDetach: Volumes are attached for longer than detachTimeout.",
			"event EndingPods: Ending 2 pods.",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r ParsedFencing
			r.Fencing.Spec.StartedAt, r.Fencing.Status.Steps = at(0), tt.steps
			var got []string
			for _, e := range TimelineOf([]ParsedFencing{r}, events).Moments {
				got = append(got, e.Kind+" "+e.From+": "+e.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTimelineEvents(t *testing.T) {
	fenceFrom := func(name string, begun time.Duration, ended *time.Duration) (r ParsedFencing) {
		r.Fencing.Name = name
		r.Fencing.Spec.StartedAt = metav1.NewMicroTime(now.Add(begun))
		r.Fencing.Status.Evidence = []api.Answer{{At: metav1.NewMicroTime(now.Add(begun)), From: "bmc", State: "Off"}}
		if ended != nil {
			at := metav1.NewMicroTime(now.Add(*ended))
			r.Fencing.Status.FinishedAt = &at
		}
		return r
	}
	events := []Event{ // the newest first, as they are read
		{At: now.Add(40 * time.Minute), Reason: "MuchLater"},
		{At: now.Add(20 * time.Minute), Reason: "Later"},
		{At: now.Add(-time.Minute), Reason: "Suspect"},
		{At: now.Add(-5 * time.Minute), Reason: "EarlierFence"},
		{At: now.Add(-11 * time.Minute), Reason: "LongBefore"},
	}
	minutes := func(n time.Duration) *time.Duration { d := n * time.Minute; return &d }
	for _, tt := range []struct {
		name    string
		records []ParsedFencing
		events  []Event
		want    []string
	}{
		{"open", []ParsedFencing{fenceFrom("a", 0, nil)}, events,
			[]string{"EarlierFence", "Suspect", "bmc", "Later", "MuchLater"}},
		{"over", []ParsedFencing{fenceFrom("a", 0, minutes(5))}, events,
			[]string{"EarlierFence", "Suspect", "bmc", "Later"}},
		{
			"after an earlier fence", []ParsedFencing{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))},
			events,
			[]string{"Suspect", "bmc", "Later", "MuchLater"},
		},
		{
			"Events not read", []ParsedFencing{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))}, nil,
			[]string{"bmc"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			SortNewestFirst(tt.records)
			before := slices.Clone(tt.events)
			var got []string
			for _, e := range TimelineOf(tt.records, tt.events).Moments {
				got = append(got, e.From)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if !slices.Equal(before, tt.events) {
				t.Errorf("TimelineOf changed the events that it was given: %v", tt.events)
			}
		})
	}
}

// A warning is a sign only where a person can do something about it, and an Event of another writer keeps its own type.
func TestSignOfEvent(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    Event
		want Sign
	}{
		{"a step of a success", Event{From: "forcefence", Reason: string(reason.Confirmed), Warning: true}, SignEvent},
		{"a lost proof", Event{From: "forcefence", Reason: string(reason.ProofLost), Warning: true}, SignWarning},
		{"a newer version's", Event{From: "forcefence", Reason: "Sideways", Warning: true}, SignWarning},
		{"another writer's", Event{From: "kubelet", Reason: string(reason.Confirmed), Warning: true}, SignWarning},
		{"no warning", Event{From: "kubelet", Reason: "Rebooted"}, SignEvent},
	} {
		if got := tt.e.toMoment().Sign; got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
