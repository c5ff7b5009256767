// Package admit decides on the node whether a pod may start: the KEP's canAdmit. It is a pure function over what the node's
// hook knows; it imports nothing, so that simulated kubelets, the protocol's simulation and the real hook share it.
//
// It promises that a node which may have been fenced starts no ordinary pod: until the own Node was read cleanly on this boot,
// while the mark is there, before the node was Ready on this boot, and for a pod that a consistent list does not know. Exempt
// pods (taint.ExemptionOf) always start: without CNI and CSI nothing else could, and volumes could not detach. A mark that waits for
// nothing but volumes holds, of the pods that were listed since, only those that may use one of them.
//
// A node that cannot read the API server after a boot knows exempt pods by their UIDs, as the last list before the boot had them
// (Pod.WasExempt). That starts no second copy: the taint manager does not evict an exempt pod (invariant 9), so nothing takes its
// place, and only exemptions that last as long as the UID are remembered:
//
//   - A toleration of the mark. The API server lets a pod's tolerations be added to, never be removed or changed, but for the
//     tolerationSeconds of one whose effect is NoExecute; so a pod that is exempt by such a one alone is not remembered.
//   - A DaemonSet as the owner. It can be lost (kubectl delete --cascade=orphan), and the pod is evicted like any other then; but
//     nobody makes another one of its name, and its volumes need an attachment, which only the API server gives.
//
// A static pod needs no memory: the kubelet itself says that it is one.
package admit

// Node is what the hook knows about its own Node. The zero value holds every ordinary pod.
type Node struct {
	Read   bool // a quorum read of the own Node succeeded on this boot
	Marked bool // the last state seen carries the mark
	// Detaching: that mark waits for nothing but volumes that are to be detached, and says which.
	Detaching bool
	// ReadySeen: on this boot the Node was seen Ready with nodeInfo.bootID equal to the machine's own; a Ready left from before
	// a crash does not count.
	ReadySeen bool
	// Listed: on this boot the node's pods were listed consistently. From then on only that says who is exempt.
	Listed bool
}

// Pod is what the hook knows about the pod that asks to start.
type Pod struct {
	Exempt bool // taint.ExemptionOf
	// WasExempt: the last list before this boot had this UID exempt for as long as it stands.
	WasExempt bool
	// Known: a consistent list or GET has this UID bound to this node, not terminal; made on this boot, and since the mark was last
	// seen: under the mark the pod may have been ended.
	Known bool
	// Unaffected: the pod uses none of the volumes that the mark waits for, for certain.
	Unaffected bool
}

// Reason says why; it is what a person sees in the pod's Event.
type Reason string

// Every answer's reason. The first four allow, the others hold.
const (
	Exempted       Reason = "pod is exempt"
	ExemptedBefore Reason = "pod was exempt before the boot"
	Clear          Reason = "node is not marked"
	NotConcerned   Reason = "pod uses no volume that is still to be detached"
	NodeUnread     Reason = "node was not read yet on this boot"
	NodeMarked     Reason = "node is marked as shut down"
	VolumeDetaches Reason = "pod may use a volume that is still to be detached"
	NodeNeverReady Reason = "node was not Ready yet on this boot"
	PodUnknown     Reason = "pod is not known to the API server"
)

// Decide returns whether the pod may start, and why. After one clean read an API outage does not stop a running node: the last
// state seen decides.
func Decide(n Node, p Pod) (allow bool, why Reason) {
	switch {
	case p.Exempt:
		return true, Exempted
	case p.WasExempt && !n.Listed:
		return true, ExemptedBefore
	case !n.Read:
		return false, NodeUnread
	case n.Marked && !n.Detaching:
		return false, NodeMarked
	case !n.ReadySeen:
		return false, NodeNeverReady
	case !p.Known:
		return false, PodUnknown
	case n.Marked && !p.Unaffected:
		return false, VolumeDetaches
	case n.Marked:
		return true, NotConcerned
	default:
		return true, Clear
	}
}
