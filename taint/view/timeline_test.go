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
			for _, e := range TimelineOf(r, nil, events).Moments {
				got = append(got, e.Kind+" "+e.From+": "+e.Text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A step that counts fewer pods than its fence says why, once the fence is over. A pod that is left may be counted or not.
func TestDescribeStep(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fence Fence
		step  api.Step
		want  string
	}{
		{"some were gone", Fence{Pods: api.Pods{Ended: 110}}, api.Step{Step: api.StepDeletePods, Objects: 82},
			"82 of 110 pods (28 gone already), took 0s"},
		{"all were gone", Fence{Pods: api.Pods{Ended: 1}}, api.Step{Step: api.StepDeletePods},
			"0 of 1 pod (1 gone already), took 0s"},
		{"all", Fence{Pods: api.Pods{Ended: 3}}, api.Step{Step: api.StepDeletePods, Objects: 3}, "3 pods, took 0s"},
		{"under way", Fence{Open: true, Pods: api.Pods{Ended: 3}}, api.Step{Step: api.StepDeletePods, Objects: 1},
			"1 pod, took 0s"},
		{"one is left", Fence{Pods: api.Pods{Ended: 3, Left: 1}}, api.Step{Step: api.StepDeletePods, Objects: 1},
			"1 pod, took 0s"},
		{"the kubelet changed some", Fence{Pods: api.Pods{Spared: 39}}, api.Step{Step: api.StepSparePods, Objects: 27},
			"27 of 39 pods (12 changed meanwhile: no write needed), took 0s"},
		{"another step", Fence{Pods: api.Pods{Ended: 3}}, api.Step{Step: api.StepEndPods, Objects: 1}, "1 pod, took 0s"},
	} {
		if got := tt.fence.describeStep(tt.step); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The second answer of a proof can be seen: its device was asked after the mark.
func TestAskedAfterMark(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d)) }
	mark := api.Step{Step: api.StepSetMark, Began: at(0), Ended: at(20 * time.Millisecond)}
	failed := mark
	failed.Error = "conflict"
	for _, tt := range []struct {
		name  string
		step  api.Step
		asked time.Duration
		state string
		want  string
	}{
		{"before the mark", mark, -time.Second, "Off", "bmc says Off"},
		{"while it is written", mark, 10 * time.Millisecond, "Off", "bmc says Off"},
		{"after it", mark, 30 * time.Millisecond, "Off", "bmc says Off, asked after the mark"},
		{"after it, and the machine is back", mark, time.Second, "On", "bmc says On, asked after the mark"},
		{"a person", mark, time.Second, "None", "bmc: no device can say"},
		{"the mark failed", failed, time.Second, "Off", "bmc says Off"},
		{"another step", api.Step{Step: api.StepPowerOff, Ended: at(0)}, time.Second, "Off", "bmc says Off"},
	} {
		var r ParsedFencing
		r.Fencing.Status.Steps = []api.Step{tt.step}
		r.Fencing.Status.Evidence = []api.Answer{{At: at(tt.asked), From: "bmc", State: tt.state}}
		moments := TimelineOf(r, nil, nil).Moments
		i := slices.IndexFunc(moments, func(m Moment) bool { return m.Kind == "answer" })
		if got := moments[i].Text; got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A moment of a Fleet's fence is one row: its phase, step and Event are merged where they say the same.
func TestMergeMoments(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d)) }
	const ms = time.Millisecond
	var r ParsedFencing
	r.Fencing.Name = "n.f-1"
	r.Fencing.Spec.Node, r.Fencing.Spec.Why, r.Fencing.Spec.StartedAt = "n", "NotReady", at(0)
	s := &r.Fencing.Status
	s.Timeline = []api.PhaseEntered{{Phase: "Armed", At: at(0)}, {Phase: "Evicting", At: at(40 * ms)},
		{Phase: "Done", Result: "Evicted", At: at(1400 * ms)}}
	s.Steps = []api.Step{
		{Step: api.StepAskDevices, Began: at(-9 * ms), Ended: at(-7 * ms)},
		{Step: api.StepSetMark, Began: at(2 * ms), Ended: at(9 * ms)},
		{Step: api.StepEndPods, Began: at(50 * ms), Ended: at(370 * ms), Objects: 3},
		{Step: api.StepSetPodsNotReady, Began: at(900 * ms), Ended: at(923 * ms), Objects: 1},
		{Step: api.StepRemoveMark, Began: at(5 * time.Second), Ended: at(5016 * ms), Error: "timeout"},
	}
	s.Evidence = []api.Answer{{At: at(-9 * ms), From: "bmc", State: "Off"}, {At: at(20 * ms), From: "bmc", State: "Off"}}
	own := func(ago time.Duration, why reason.Reason) Event {
		return Event{At: now.Add(ago), From: "forcefence", Reason: string(why), Text: "..."}
	}
	f := FleetOf(Snapshot{At: now.Add(time.Minute), Fences: []ParsedFencing{r}, Events: map[string][]Event{"n": {
		own(0, reason.ProvenOff), own(50*ms, reason.Confirmed), own(900*ms, reason.SettingNotReady),
		own(1200*ms, reason.WaitingDetach), own(1400*ms, reason.Finished), own(8*time.Second, reason.ProvenOff),
	}}})
	var got []string
	for _, m := range f.MomentsOf(f.Fences[0]) {
		got = append(got, m.Who+": "+m.What)
	}
	if diff := cmp.Diff([]string{
		"bmc: Off (AskDevices: took 2ms)",
		"forcefence: Armed: the fence begins (NotReady); the node is marked; nothing was evicted yet (SetMark: took 7ms)",
		"bmc: Off, asked after the mark",
		"forcefence: Evicting: its pods are ended, then its volumes detach",
		"forcefence: EndPods: 3 pods, took 320ms",
		"forcefence: SetPodsNotReady: 1 pod, took 23ms",
		"forcefence: WaitingForDetach: ...",
		"forcefence: Evicted: the moved pods are gone, their volumes detached",
		"forcefence: RemoveMark: took 16ms; last failure: timeout",
		"forcefence: MachineOff: ...",
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
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
		{At: now.Add(time.Minute), Reason: "Starting", From: "kubelet"},
		{At: now.Add(-time.Minute), Reason: "Suspect"},
		{At: now.Add(-time.Minute), Reason: "Started", From: "kubelet"},
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
			[]string{"EarlierFence", "Suspect", "bmc", "Starting", "Later", "MuchLater"}},
		{"over", []ParsedFencing{fenceFrom("a", 0, minutes(5))}, events,
			[]string{"EarlierFence", "Suspect", "bmc", "Starting", "Later"}},
		{
			"after an earlier fence", []ParsedFencing{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))},
			events,
			[]string{"Suspect", "bmc", "Starting", "Later", "MuchLater"},
		},
		{
			"before a later fence", []ParsedFencing{fenceFrom("a", 0, minutes(5)), fenceFrom("b", 25*time.Minute, nil)},
			events,
			[]string{"EarlierFence", "Suspect", "bmc", "Starting"},
		},
		{
			"before one that followed at once",
			[]ParsedFencing{fenceFrom("a", 0, minutes(5)), fenceFrom("b", 6*time.Minute, nil)},
			events,
			[]string{"EarlierFence", "Suspect", "bmc", "Starting"},
		},
		{
			"its end was not recorded", []ParsedFencing{fenceFrom("a", 0, nil), fenceFrom("b", 25*time.Minute, nil)},
			events,
			[]string{"EarlierFence", "Suspect", "bmc", "Starting", "Later"},
		},
		{
			"Events not read", []ParsedFencing{fenceFrom("b", 0, nil), fenceFrom("a", -time.Hour, minutes(-3))}, nil,
			[]string{"bmc"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.events)
			var got []string
			for _, e := range TimelineOf(tt.records[0], tt.records[1:], tt.events).Moments {
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
