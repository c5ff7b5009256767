// Package nri is the hook on the node: a plugin of NRI, the interface that containerd and CRI-O offer. It refuses the
// sandboxes and containers of ordinary pods while the own Node carries the mark, and until the node is known to be
// clear on this boot; admit.Decide decides. The kubelet retries with its back-off, the pod stays Pending, no pod is
// marked Failed.
//
// Every answer comes from memory (view.go). One reader (reader.go) keeps that memory in step with the API server, with
// the kubelet's own credentials. No request of the runtime ever waits for the network or a disk. The plugin (plugin.go)
// runs twice on a node: started by the runtime itself, before it serves its first request, and by a DaemonSet (run.go).
// Both read their Config and write their Status. The list of exempt pods outlives a boot (memory.go): so a node that
// boots and cannot read the API server starts its network and storage, as the KEP wants it. Such a node does not know a
// DaemonSet's pod that was created while the node was away. It holds that pod until the first answer, and so it does a
// pod that was given its toleration meanwhile.
//
// It guards containers, not mounts: the kubelet mounts a pod's volumes before it asks for the sandbox.
package nri
