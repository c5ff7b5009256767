// Package nri is the hook on the node: a plugin of NRI, the interface that containerd and CRI-O offer. It refuses the sandboxes and
// containers of ordinary pods while the own Node carries the mark, and until the node is known to be clear on this boot;
// admit.Decide says which. The kubelet tries again by its back-off, the pod stays Pending, nothing is marked Failed.
//
// Every answer comes from memory (view.go), which one reader (reader.go) keeps in step with the API server by the kubelet's own
// credentials; no request of the runtime ever waits for the network or a disk. The plugin (plugin.go) is run twice on a node: by
// the runtime itself, before it serves its first request, and by a DaemonSet (run.go). Both are told by Config and tell by
// Status. What outlives a boot is which pods are exempt (memory.go): so a node that boots and cannot read the API server starts its
// network and storage, as the KEP wants it. What it then does not know is a DaemonSet's pod that was made while the node was away:
// that is held until the first answer, and so is a pod that was given its toleration meanwhile.
//
// It guards containers, not mounts: the kubelet mounts a pod's volumes before it asks for the sandbox.
package nri
