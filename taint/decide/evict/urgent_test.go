package evict

import (
	"fmt"
	"slices"
	"testing"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
)

func claimant(p *action.Pod) { p.Claims = true }

func urgentActs(n int) with { return func(v *View) { v.Memory.urgentActs = n } }

// TestUrgentPods says which pods are moved before the others.
func TestUrgentPods(t *testing.T) {
	db := pod("db", claimant, prio(9))
	for _, tt := range []struct {
		name string
		pods []action.Pod
		want []string
	}{
		{"a database", []action.Pod{db, pod("a"), pod("b", claimant)}, []string{"db"}},
		{"its volumes are known", []action.Pod{pod("a"), pod("db", uses("pv", pvA), prio(9))}, []string{"db"}},
		{"of all priorities that are higher",
			[]action.Pod{db, pod("a"), pod("b"), pod("c"), pod("low", claimant, prio(1))}, []string{"db", "low"}},
		{"with what evictFirst selects", []action.Pod{db, pod("a"), pod("csi", first)}, []string{"csi", "db"}},
		{"all have the same priority", []action.Pod{pod("a", claimant, prio(9)), db}, nil},
		{"a few have a lower one", []action.Pod{pod("a", prio(-1)), db, pod("b", claimant, prio(9))}, nil},
		{"no volume", []action.Pod{pod("a", prio(9)), pod("b"), pod("csi", first)}, nil},
		{"a lower priority", []action.Pod{pod("a", claimant, prio(-9)), pod("b"), pod("c")}, nil},
		{"alone", []action.Pod{db}, nil},
		{"the database stays", []action.Pod{
			pod("db", claimant, prio(9), exempt, func(p *action.Pod) { p.Claims = false }), pod("a"),
		}, nil},
		{"none", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ends, _ := Step(evicting(proven, pods(tt.pods...))).Action.(action.EndPods)
			var got []string
			for _, p := range ends.Pods {
				got = append(got, p.Name)
			}
			if !ends.Urgent {
				got = nil
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestUrgentPodsGoFirst holds the order: the urgent pods' volumes are cleared, and the pods deleted, before another pod
// is ended; and neither new pods nor writes that fail make the others wait for long.
func TestUrgentPodsGoFirst(t *testing.T) {
	dead := pod("db", uses("a", pvA), prio(9), tomb)
	late := pod("late", uses("b", pvB), prio(9))
	for _, tt := range []struct {
		name string
		view View
		want string
	}{
		{"clear", evicting(proven, urgentActs(1), pods(dead, pod("b", uses("b", pvB))), lists(pvA, pvB)),
			"ClearVolumes [] keeps [kubernetes.io/csi/d^b]"},
		{"the owner deleted it", evicting(proven, urgentActs(1), pods(pod("b", uses("b", pvB))), lists(pvA, pvB)),
			"ClearVolumes [] keeps [kubernetes.io/csi/d^b]"},
		{"clear, when the others' volumes are known", evicting(proven, urgentActs(1), pods(dead, pod("b", claimant)),
			lists(pvA)), "ReadVolumes [] keeps []"},
		{"another pod uses the volume", evicting(proven, urgentActs(1), pods(dead, pod("b", uses("a", pvA))),
			lists(pvA)), "DeletePods [db] keeps []"},
		{"delete", evicting(proven, urgentActs(2), cleared, pods(dead, pod("b"))), "DeletePods [db] keeps []"},
		{"the others", evicting(proven, urgentActs(3), cleared, pods(pod("b"), pod("a"))), "EndPods [a b] keeps []"},
		{"no second time", evicting(proven, urgentActs(3), cleared, pods(late, pod("a"))), "EndPods [late a] keeps []"},
		{"the list takes no clearing", evicting(proven, urgentActs(maxUrgentActs), pods(dead, pod("b")), lists(pvA)),
			"EndPods [b] keeps []"},
		{"without urgent pods", evicting(proven, pods(dead, pod("b")), lists(pvA)), "EndPods [b] keeps []"},
		{"the proof was lost", evicting(saying(unknown, 0), urgentActs(1), pods(dead, pod("b")), lists(pvA)),
			"Wait [] keeps []"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Step(tt.view)
			names, keeps := []string{}, []corev1.UniqueVolumeName{}
			for _, p := range action.PodsOf(d.Action) {
				names = append(names, p.Name)
			}
			if clear, is := d.Action.(action.ClearVolumes); is {
				keeps = clear.InUse
			}
			if got := fmt.Sprintf("%s %v keeps %v", action.Name(d.Action), names, keeps); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestUrgentActs counts for how many acts the others wait.
func TestUrgentActs(t *testing.T) {
	urgent, others := action.EndPods{Urgent: true}, action.EndPods{}
	for _, tt := range []struct {
		name string
		acts []action.Action
		want bool // the others wait
	}{
		{"nothing was done", []action.Action{action.WriteRecord{}}, false},
		{"ended", []action.Action{urgent}, true},
		{"cleared", []action.Action{urgent, action.ClearVolumes{}, action.SetPodsNotReady{}}, true},
		{"deleted", []action.Action{urgent, action.ClearVolumes{}, action.DeletePods{}}, true},
		{"cleared again and again", []action.Action{urgent, action.ClearVolumes{}, action.ClearVolumes{},
			action.ClearVolumes{}, action.ClearVolumes{}}, false},
		{"the others are ended", []action.Action{urgent, others}, false},
		{"all go together", []action.Action{others, action.ClearVolumes{}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Memory
			for _, a := range tt.acts {
				m.ApplyAct(a)
			}
			if got := m.movesUrgentPods(); got != tt.want {
				t.Errorf("the others wait: %v, want %v", got, tt.want)
			}
		})
	}
}
