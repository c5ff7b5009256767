// Package admit decides on the node whether a pod may start: the KEP's canAdmit. It is a pure function over what the node's
// hook knows; it imports nothing, so that simulated kubelets, the protocol's simulation and the real hook share it.
//
// It promises that a node which may have been fenced starts no ordinary pod: until the own Node was read cleanly on this boot,
// while the mark is there, before the node was Ready on this boot, and for a pod that a consistent list does not know. Exempt
// pods (taint.Exempt) always start: without CNI and CSI nothing else could, and volumes could not detach.
package admit

// Node is what the hook knows about its own Node. The zero value holds every ordinary pod.
type Node struct {
	Read   bool // a quorum read of the own Node succeeded on this boot
	Marked bool // the last state seen carries the mark
	// ReadySeen: on this boot the Node was seen Ready with nodeInfo.bootID equal to the machine's own; a Ready left from before
	// a crash does not count.
	ReadySeen bool
}

// Pod is what the hook knows about the pod that asks to start.
type Pod struct {
	Exempt bool // taint.Exempt
	// Known: a consistent list or GET has this UID bound to this node, not terminal; made on this boot, and since the mark was last
	// seen: under the mark the pod may have been ended.
	Known bool
}

// Reason says why; it is what a person sees in the pod's Event.
type Reason string

// Every answer's reason. The first two allow, the others hold.
const (
	Exempted       Reason = "pod is exempt"
	Clear          Reason = "node is not marked"
	NodeUnread     Reason = "node was not read yet on this boot"
	NodeMarked     Reason = "node is marked as shut down"
	NodeNeverReady Reason = "node was not Ready yet on this boot"
	PodUnknown     Reason = "pod is not known to the API server"
)

// Decide returns whether the pod may start, and why. After one clean read an API outage does not stop a running node: the last
// state seen decides.
func Decide(n Node, p Pod) (allow bool, why Reason) {
	switch {
	case p.Exempt:
		return true, Exempted
	case !n.Read:
		return false, NodeUnread
	case n.Marked:
		return false, NodeMarked
	case !n.ReadySeen:
		return false, NodeNeverReady
	case !p.Known:
		return false, PodUnknown
	default:
		return true, Clear
	}
}
