// Package install puts the hook (kubelet-admit/nri) on a host, upgrades it, takes it away, and says which protection the node has.
//
// A plugin of NRI lies in a folder of the runtime's, and a wrong file there can keep containerd from starting. So nothing but a
// complete plugin is ever there: files are staged in a folder beside it that NRI does not read, synced, and renamed; the
// configuration comes before the plugin that needs it. What the host is like is asked of its runtime (config dump), never guessed,
// and what is written for the runtime is shown to the runtime's own parser before and after it is put in place.
//
// Paths are the host's: a process in a container changes its root first (cmd/forcefence-node --root). On the API server it needs no
// right but those of the kubelet's own kubeconfig.
package install
