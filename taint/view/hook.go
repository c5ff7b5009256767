package view

import (
	"slices"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// What is said of a node without the hook where other nodes have it.
const (
	NoHook       = "It has no hook, or its hook does not run: nothing holds pods on it."
	NoHookRemedy = "Look at its pod of the DaemonSet forcefence-node, and at the Node's condition ForcefenceGuard."
)

// HasHook reports whether the node's hook holds pods, at least while it runs. A word of a newer version counts.
func (n Node) HasHook() bool { return n.Protection != "" && n.Protection != taint.ProtectionNone }

// NoteMissingHooks says of each fine node that it lacks the hook, if another of the nodes has it: where none has it,
// it is not installed. It returns whether one has it. Nodes with something else to say keep that.
func NoteMissingHooks(nodes []Node) (installed bool) {
	if installed = slices.ContainsFunc(nodes, Node.HasHook); installed {
		for i := range nodes {
			nodes[i].NoteMissingHook()
		}
	}
	return installed
}

// NoteMissingHook says of a fine node that it lacks the hook. Other nodes of the cluster must have it.
func (n *Node) NoteMissingHook() {
	if n.State != StateFine || n.Next != "" || n.HasHook() {
		return
	}
	n.Next, n.Runbook = NoHook+" "+NoHookRemedy, reason.SectionHookMissing
}
