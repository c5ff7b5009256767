// Package admit decides on the node whether a pod may start: the KEP's canAdmit. It is a pure function over what the
// node's hook knows. It imports nothing, so that simulated kubelets, the protocol's simulation and the real hook share
// it.
//
// It promises that a node which may have been fenced starts no ordinary pod. It holds ordinary pods until the own Node
// was read cleanly on this boot, while the mark is there, and until the node was Ready on this boot. It also holds a
// pod that a consistent list does not contain. Exempt pods (taint.ExemptionOf) always start: without CNI and CSI
// nothing else could, and volumes could not detach. A mark that waits only for volumes holds, of the pods listed since,
// only those that may use one of these volumes.
//
// A node that cannot read the API server after a boot knows exempt pods by their UIDs, as the last list before the boot
// had them (Pod.WasExempt). That starts no second copy: the taint manager does not evict an exempt pod (invariant 9),
// so nothing takes its place, and only exemptions that last as long as the UID are remembered:
//
//   - A toleration of the mark. The API server lets a pod's tolerations be added to, never be removed or changed,
//     except for the tolerationSeconds of one whose effect is NoExecute. So a pod that is exempt by such a one alone is
//     not remembered.
//   - A DaemonSet as the owner. It can be lost (kubectl delete --cascade=orphan), and the pod is evicted like any other
//     then. But no controller makes another one of its name, and its volumes need an attachment, which only the API
//     server gives.
//
// A static pod needs no memory: the kubelet itself reports that it is static.
package admit

// Node is what the hook knows about its own Node. The zero value holds every ordinary pod.
type Node struct {
	Read   bool // a quorum read of the own Node succeeded on this boot
	Marked bool // the last state read has the mark
	// Detaching: that mark waits only for volumes to be detached, and lists them.
	Detaching bool
	// ReadySeen: on this boot the Node was Ready with nodeInfo.bootID equal to the machine's own. A Ready left from
	// before a crash does not count.
	ReadySeen bool
	// Listed: on this boot the node's pods were listed consistently. From then on only that list decides who is exempt.
	Listed bool
}

// Pod is what the hook knows about the pod that asks to start.
type Pod struct {
	Exempt bool // taint.ExemptionOf
	// WasExempt: the last list before this boot had this UID as exempt for as long as the UID exists.
	WasExempt bool
	// Known: a consistent list or GET has this UID bound to this node, not terminal. It was made on this boot and since
	// the mark was last seen: under the mark the pod may have been ended.
	Known bool
	// Unaffected: the pod certainly uses none of the volumes that the mark waits for.
	Unaffected bool
}

// Reason is why a pod may start or not. A person sees it in the pod's Event.
type Reason string

// The reasons of all answers. The first four allow, the others hold.
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

// Decide returns whether the pod may start, and why. After one clean read an API outage does not stop a running node:
// the last state read decides.
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
