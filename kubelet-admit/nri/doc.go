// Package nri is the hook on the node: a plugin of NRI, the interface that containerd and CRI-O offer. It refuses the sandboxes and
// containers of ordinary pods while the own Node carries the mark, and until the node is known to be clear on this boot;
// admit.Decide says which. The kubelet tries again by its back-off, the pod stays Pending, nothing is marked Failed.
//
// Every answer comes from memory (view.go), which one reader (reader.go) keeps in step with the API server by the kubelet's own
// credentials; no request of the runtime ever waits for the network or a disk. The plugin (plugin.go) is run twice on a node: by
// the runtime itself, before it serves its first request, and by a DaemonSet (run.go). Both are told by Config and tell by
// Status.
//
// It guards containers, not mounts: the kubelet mounts a pod's volumes before it asks for the sandbox.
package nri
