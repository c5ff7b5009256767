package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// A node without a hook starts its old pods if it boots before the mark is off: a person is told, once a fence, when its eviction begins.
func TestNodeWithoutHookIsTold(t *testing.T) {
	begins := action.Decision{Action: action.Write{}, Reason: reason.Confirmed}
	vouched := action.Decision{Action: action.Write{}, Reason: reason.Vouched}
	goesOn, over := action.Decision{Action: action.Tombstone{}, Reason: reason.Tombstoning}, action.Decision{Action: action.Unmark{}, Reason: reason.Finished}
	for name, tt := range map[string]struct {
		guard corev1.NodeCondition
		story []action.Decision
		want  int
	}{
		"no hook ever":               {corev1.NodeCondition{}, []action.Decision{begins, goesOn, over}, 1},
		"the runtime has no NRI":     {corev1.NodeCondition{Status: "False", Reason: taint.ProtectionNone}, []action.Decision{begins, goesOn}, 1},
		"nobody knows":               {corev1.NodeCondition{Status: "Unknown", Reason: taint.ProtectionFailClosed}, []action.Decision{begins}, 1},
		"under a person's word":      {corev1.NodeCondition{}, []action.Decision{vouched, goesOn}, 1},
		"the write met a conflict":   {corev1.NodeCondition{}, []action.Decision{begins, begins, goesOn}, 1},
		"two fences":                 {corev1.NodeCondition{}, []action.Decision{begins, goesOn, over, begins, goesOn}, 2},
		"fail-closed":                {corev1.NodeCondition{Status: "True", Reason: taint.ProtectionFailClosed}, []action.Decision{begins, goesOn, over}, 0},
		"fail-open":                  {corev1.NodeCondition{Status: "True", Reason: taint.ProtectionFailOpen}, []action.Decision{begins, goesOn, over}, 0},
		"lifted before it was begun": {corev1.NodeCondition{}, []action.Decision{{Action: action.Unmark{}, Reason: reason.NotConfirmed}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerUnknown}, taint.PhaseArmed)
			x.upTo("Unmark")
			if tt.guard.Status != "" {
				tt.guard.Type = taint.ProtectionCondition
				x.st.node.Status.Conditions = append(x.st.node.Status.Conditions, tt.guard)
			}
			for _, step := range tt.story {
				x.tell(x.st, step)
			}
			x.send(&x.st.told.later)
			var got []string
			for _, e := range told(x.events) {
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
