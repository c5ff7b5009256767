// Package install puts the hook (kubelet-admit/nri) on a host, upgrades it, removes it, and reports the node's
// protection.
//
// A wrong file in NRI's plugin folder can keep containerd from starting. So files are staged in a folder beside it that
// NRI does not read, synced, and renamed, and the configuration comes before the plugin that needs it. The runtime
// itself says how it is configured (config dump), and parses what is written for it, before and after.
//
// The runtime, its files, its systemd unit and the kubelet's kubeconfig are found by the command lines of the host's
// processes. Only those count that the host itself runs as root.
//
// Paths are the host's, and so is PATH: a process in a container changes its root first (cmd/forcefence-node --root).
// On the API server it needs only the rights of the kubelet's own kubeconfig.
package install
