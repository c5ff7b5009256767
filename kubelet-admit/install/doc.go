// Package install puts the hook (kubelet-admit/nri) on a host, upgrades it, removes it, and reports the node's
// protection.
//
// A plugin of NRI lies in a folder of the runtime, and a wrong file there can keep containerd from starting. So that
// folder never holds an incomplete plugin: files are staged in a folder beside it that NRI does not read, synced, and
// renamed. The configuration is put in place before the plugin that needs it. What the host is like is read from its
// runtime (config dump), never guessed. What is written for the runtime is checked by the runtime's own parser before
// and after it is put in place.
//
// Paths are the host's: a process in a container changes its root first (cmd/forcefence-node --root). On the API server
// it needs only the rights of the kubelet's own kubeconfig.
package install
