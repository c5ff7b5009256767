package evict

import (
	"slices"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// maxUrgentActs is for how many acts the other pods wait for the urgent ones: to end, clear and delete, and two more
// where another client changes the Node or a pod meanwhile. A write that fails each time must not keep the others from
// their end (invariant 16).
const maxUrgentActs = 5

// urgentPods returns the pods that are ended, cleared and deleted before the others (steps 9 to 11); nil: none is, and
// all go together. These are pods with volumes, such as databases, whose priority is higher than that of at least half
// of the pods. Pods that evictFirst selects go with them, because their volumes may need those. It is done once for
// each mark: pods that come later must not delay the others again.
func (v View) urgentPods(ready []action.Pod) (urgent []action.Pod) {
	if v.Memory.urgentActs > 0 || len(ready) == 0 {
		return nil
	}
	var priorities []int32
	for _, p := range ready {
		priorities = append(priorities, p.Priority)
	}
	slices.Sort(priorities)
	usual := priorities[(len(priorities)-1)/2]
	databases := false
	for _, p := range ready {
		database := hasVolumes(p) && p.Priority > usual
		if databases = databases || database; database || p.First {
			urgent = append(urgent, p)
		}
	}
	if !databases {
		return nil
	}
	return urgent
}

// movesUrgentPods reports whether the other pods wait until the urgent ones are cleared and deleted.
func (m Memory) movesUrgentPods() bool { return m.urgentActs > 0 && m.urgentActs < maxUrgentActs }

// ApplyAct folds in that an act was done, well or not.
func (m *Memory) ApplyAct(a action.Action) {
	switch a := a.(type) {
	case action.EndPods:
		m.noteSentTombstones(a.Pods)
		if m.urgentActs++; !a.Urgent {
			m.urgentActs = maxUrgentActs
		}
	case action.ClearVolumes, action.DeletePods:
		if m.urgentActs > 0 {
			m.urgentActs++
		}
	}
}

// hasVolumes reports whether the pod has persistent volumes, which may be unknown.
func hasVolumes(p action.Pod) bool { return p.Claims || len(p.Volumes) > 0 }
