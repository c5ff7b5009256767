package taint

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxFormer is how many machines of deleted Nodes are remembered. The oldest is forgotten first.
const maxFormer = 1000

// FormerMachines remembers the machines that deleted Nodes were pinned to. A Node that was there while such a Node was
// heard is another machine. So what its own kubelet writes does not lead it to that one (FindClash). A host that was
// renamed was never heard under both names.
//
// It knows what this process has seen: a Node is heard when its heartbeat is later than in the version before. The zero
// value is ready for use, and nil knows nothing. Its methods must not be called concurrently.
type FormerMachines struct {
	events  uint64
	present map[string]presence
	former  map[string]formerMachine // by the hash of the machine's ID
	oldest  []string                 // the keys of former, in the order in which they came
}

// presence is what was seen of a Node. Its numbers count events.
type presence struct {
	uid          types.UID
	machine      string // the hash of the ID of the machine that it is pinned to; "": of none
	heartbeat    time.Time
	since, heard uint64
}

// formerMachine is the machine of a deleted Node, which was heard last at that event.
type formerMachine struct {
	node  string
	heard uint64
}

// ApplyNode notes a Node that came or changed.
func (f *FormerMachines) ApplyNode(n *corev1.Node) {
	old, known := f.present[n.Name]
	if known && old.uid != n.UID {
		f.ApplyDeletion(n.Name)
		known = false
	}
	f.events++
	now := presence{uid: n.UID, since: f.events}
	if known {
		now = old
	}
	now.machine, _ = Claim{Pin: n.Labels[PinLabel]}.splitPin()
	for _, c := range n.Status.Conditions {
		if at := heartbeatOf(c); c.Type == corev1.NodeReady && at.After(now.heartbeat) {
			if known {
				now.heard = f.events
			}
			now.heartbeat = at
		}
	}
	if f.present == nil {
		f.present, f.former = map[string]presence{}, map[string]formerMachine{}
	}
	f.present[n.Name] = now
}

// ApplyDeletion notes that a Node is gone. It may be called repeatedly.
func (f *FormerMachines) ApplyDeletion(node string) {
	gone := f.present[node]
	delete(f.present, node)
	if gone.machine == "" || gone.heard <= f.former[gone.machine].heard {
		return
	}
	if f.former[gone.machine] == (formerMachine{}) {
		f.oldest = append(f.oldest, gone.machine)
	}
	f.former[gone.machine] = formerMachine{node, gone.heard}
	if len(f.oldest) > maxFormer {
		delete(f.former, f.oldest[0])
		f.oldest = f.oldest[1:]
	}
}

// findFormer returns the deleted Node that had the claimed machine and was heard beside the claiming node; "": none.
func (f *FormerMachines) findFormer(mine Claim) string {
	if f == nil {
		return ""
	}
	id, _ := mine.machinePins()
	node, known := f.present[mine.Node]
	if was, ok := f.former[id]; ok && known && was.heard > node.since {
		return was.node
	}
	return ""
}
