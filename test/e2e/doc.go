// Package e2e plays whole stories on real nodes: containerd, runc, CNI, kubelet and the hook on each (test/nodes), the
// real control plane and the controller, volumes under the real external-attacher (test/csi), machines whose power is
// cut through their BMCs or at the plug (test/datacenter), and a storage system whose replicas are files
// (disks_test.go), for policies and drains. `make e2e` runs it and prints one line per scenario.
//
// What every scenario is checked for: the probe, which runs in every pod that must not run twice, takes a lock on
// storage that all nodes share and logs each of its writes with its node; no identity ever writes from two machines at
// once, and no volume is mounted by two.
package e2e
