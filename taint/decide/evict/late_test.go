package evict

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

// firstListed has these pods, by name, in the first list under the mark. All others of the View are late.
func firstListed(names ...string) with {
	return func(v *View) {
		v.Memory.firstPods = map[string]bool{}
		for _, n := range names {
			v.Memory.firstPods["uid-"+n] = true
		}
	}
}

// sentTo has this process have sent tombstones to late pods.
func sentTo(names ...string) with {
	return func(v *View) {
		for _, n := range names {
			v.Memory.noteSentTombstones([]action.Pod{pod(n)})
		}
	}
}

// A stream of new pods delays no step of the pods that were there, and keeps no mark of a node that is back.
func TestLatePods(t *testing.T) {
	for _, tt := range []struct {
		name string
		view View
		want want
	}{
		{"the first pods are ended before a late one", evicting(proven, pods(pod("late"), pod("web-0")),
			firstListed("web-0")), want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: []string{"web-0"}}},
		{"their volumes are cleared before a late pod is ended", evicting(proven, pods(pod("late"), pod("web-0", tomb)),
			lists(pvA), firstListed("web-0")), want{Act: action.ClearVolumes{}, Why: reason.Clearing}},
		{"they are deleted before a late pod is ended", evicting(proven, cleared, pods(pod("late"), pod("web-0", tomb)),
			firstListed("web-0")), want{Act: action.DeletePods{}, Why: reason.Deleting, Pods: []string{"web-0"}}},
		{"a late pod is ended then", evicting(proven, cleared, pods(pod("late")), firstListed("web-0")),
			want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: []string{"late"}}},
		{"a late pod is deleted before a later one is ended", evicting(proven, cleared,
			pods(pod("late", tomb), pod("later")), firstListed("web-0")),
			want{Act: action.DeletePods{}, Why: reason.Deleting, Pods: []string{"late"}}},
		{"back: a late pod needs no sparing", evicting(heartbeat, pods(pod("late")), firstListed("web-0")),
			lift(reason.FinishedReturn, taint.ResultReturned)},
		{"back: a late pod to which a tombstone was sent is spared", evicting(heartbeat, pods(pod("late")),
			firstListed("web-0"), sentTo("late")),
			want{Act: action.SparePods{}, Why: reason.Sparing, Pods: []string{"late"}, Returned: true}},
		{"back: a new leader spares all that it finds", evicting(heartbeat, pods(pod("web-0"))),
			want{Act: action.SparePods{}, Why: reason.Sparing, Pods: []string{"web-0"}, Returned: true}},
	} {
		if diff := cmp.Diff(tt.want, short(Step(tt.view)), byBrief); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A client that undoes each write of a pod keeps no mark of a node that is back, and is not fought at the speed of the
// API server while the node is off.
func TestUndoneWritesAreBounded(t *testing.T) {
	p := pod("web-0")
	v := evicting(heartbeat, pods(p))
	for range maxUndone {
		if d := Step(v); !action.Is[action.SparePods](d) {
			t.Fatalf("got %s (%s), want the pod spared", action.Name(d.Action), d.Reason)
		}
		v.Memory.ApplyPodWrites(action.WritesSpare, []action.Pod{p},
			map[string]action.WriteResult{p.UID: action.Accepted}, now)
	}
	if d := Step(v); !action.Is[action.RemoveMark](d) || len(d.Stuck) != 1 || d.Stuck[0].Why != action.Undone {
		t.Errorf("another client undoes SparePods: got %s (%s) with %v, want the mark removed and the pod named",
			action.Name(d.Action), d.Reason, d.Stuck)
	}
	v = evicting(proven, pods(p))
	for range maxUndone {
		v.Memory.ApplyPodWrites(action.WritesEnd, []action.Pod{p},
			map[string]action.WriteResult{p.UID: action.Accepted}, now)
	}
	if d := Step(v); !action.Is[action.Wait](d) || d.Alert != string(reason.Stuck) {
		t.Errorf("another client undoes EndPods: got %s (%s), want a wait that names the pod", action.Name(d.Action),
			d.Reason)
	}
	v = evicting(proven, lists(pvA), func(v *View) { v.Memory.Cleared = maxClearings })
	if d := Step(v); !action.Is[action.RemoveMark](d) {
		t.Errorf("another client undoes ClearVolumes: got %s (%s), want the mark removed", action.Name(d.Action),
			d.Reason)
	}
}

// What one process remembers of late pods does not grow with their number over time.
func TestLatePodsAreForgotten(t *testing.T) {
	m := evicting().Memory
	m.ApplyPods(nil, now)
	for i := range 100 {
		p := pod(fmt.Sprint(i))
		m.ApplyPods([]action.Pod{p}, now)
		m.ApplyAct(action.EndPods{Pods: []action.Pod{p}})
	}
	if len(m.sentLate) != 1 {
		t.Errorf("got %d late pods remembered, want the last", len(m.sentLate))
	}
}
