package evict

import (
	"maps"
	"slices"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// A user who may create pods can bind new ones to a marked node for ever. Pods that this process first saw after its
// first list under the mark are late. They are ended and deleted when nothing else is left to do, each batch to its end
// before the next. On the return path only a pod that a tombstone may still reach needs to be spared, so a late pod
// that this process sent none keeps no mark (invariant 16).

// notePods keeps the first list of the node's pods under the mark, and forgets late pods that are gone.
func (m *Memory) notePods(pods []action.Pod) {
	if len(m.sentLate) > 0 {
		left := map[string]bool{}
		for _, p := range pods {
			if m.sentLate[p.UID] {
				left[p.UID] = true
			}
		}
		m.sentLate = left
	}
	if m.firstPods != nil {
		return
	}
	m.firstPods = make(map[string]bool, len(pods))
	for _, p := range pods {
		m.firstPods[p.UID] = true
	}
}

// noteSentTombstones keeps the late pods to which this process sent a tombstone.
func (m *Memory) noteSentTombstones(pods []action.Pod) {
	sent := map[string]bool{}
	for _, p := range pods {
		if !m.firstPods[p.UID] {
			sent[p.UID] = true
		}
	}
	if len(sent) == 0 {
		return
	}
	m.sentLate = maps.Clone(m.sentLate)
	if m.sentLate == nil {
		m.sentLate = map[string]bool{}
	}
	maps.Copy(m.sentLate, sent)
}

// isLate reports whether the pod came after the first list under the mark.
func (v View) isLate(p action.Pod) bool {
	return v.Memory.firstPods != nil && !v.Memory.firstPods[p.UID]
}

// mayBeTombstoned reports whether a tombstone of this fence may still be on its way to the pod. Another process may
// have sent one to each pod of the first list.
func (v View) mayBeTombstoned(p action.Pod) bool { return !v.isLate(p) || v.Memory.sentLate[p.UID] }

// splitLate moves the late pods out of the list.
func (v View) splitLate(pods []action.Pod) (first, late []action.Pod) {
	late = slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool { return !v.isLate(p) })
	return slices.DeleteFunc(slices.Clone(pods), v.isLate), late
}
