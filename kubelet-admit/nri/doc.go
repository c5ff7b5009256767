// Package nri is the hook on the node: a plugin of NRI, the interface that containerd and CRI-O offer. It holds ordinary pods
// while the own Node carries the mark, and until the node is known to be clear on this boot; admit.Decide says which.
package nri
