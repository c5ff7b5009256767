// Package integration runs the real forcefence binary, as a child process with a configuration file like a user's,
// against a real control plane, simulated kubelets and Redfish BMCs in software. Each test is a story: a machine loses
// its power, a node is cut off, a person marks a node, a BMC lies, the API server goes away. The world is checked, not
// the calls: pods and their UIDs, the Node, its VolumeAttachments, Events, metrics, and the ledger of what really ran
// where.
//
// All of it is in the tests. A test has a cluster to itself while it runs, because two forcefences in one cluster would
// each end the other's fences; a few clusters are kept, so that the stories, which mostly wait, run side by side.
package integration
