package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
)

// A node without a hook starts its old pods if it boots before the mark is off: a person is told, once a fence, when its eviction begins.
func TestNodeWithoutHookIsTold(t *testing.T) {
	begins := evict.Decision{Act: evict.Write, Why: evict.Confirmed}
	vouched := evict.Decision{Act: evict.Write, Why: evict.Vouched}
	goesOn, over := evict.Decision{Act: evict.Tombstone, Why: evict.Tombstoning}, evict.Decision{Act: evict.Unmark, Why: evict.Finished}
	for name, tt := range map[string]struct {
		guard corev1.NodeCondition
		story []evict.Decision
		want  int
	}{
		"no hook ever":               {corev1.NodeCondition{}, []evict.Decision{begins, goesOn, over}, 1},
		"the runtime has no NRI":     {corev1.NodeCondition{Status: "False", Reason: taint.GuardNone}, []evict.Decision{begins, goesOn}, 1},
		"nobody knows":               {corev1.NodeCondition{Status: "Unknown", Reason: taint.GuardFailClosed}, []evict.Decision{begins}, 1},
		"under a person's word":      {corev1.NodeCondition{}, []evict.Decision{vouched, goesOn}, 1},
		"the write met a conflict":   {corev1.NodeCondition{}, []evict.Decision{begins, begins, goesOn}, 1},
		"two fences":                 {corev1.NodeCondition{}, []evict.Decision{begins, goesOn, over, begins, goesOn}, 2},
		"fail-closed":                {corev1.NodeCondition{Status: "True", Reason: taint.GuardFailClosed}, []evict.Decision{begins, goesOn, over}, 0},
		"fail-open":                  {corev1.NodeCondition{Status: "True", Reason: taint.GuardFailOpen}, []evict.Decision{begins, goesOn, over}, 0},
		"lifted before it was begun": {corev1.NodeCondition{}, []evict.Decision{{Act: evict.Unmark, Why: evict.NotConfirmed}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseArmed)
			recorder := events.NewFakeRecorder(20)
			tn.Events = recorder
			if tt.guard.Status != "" {
				tt.guard.Type = taint.GuardCondition
				tn.node.Status.Conditions = append(tn.node.Status.Conditions, tt.guard)
			}
			for _, d := range tt.story {
				tn.tellEvict(v, d)
			}
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				if strings.HasPrefix(e, "Warning NoHookOnNode ") {
					got = append(got, e)
				}
			}
			if len(got) != tt.want {
				t.Fatalf("got %d Events %q, want %d", len(got), got, tt.want)
			}
			for _, e := range got {
				if !strings.Contains(e, "power restore policy") || !strings.Contains(e, "install the hook") {
					t.Errorf("it does not say what to do: %s", e)
				}
			}
		})
	}
}
