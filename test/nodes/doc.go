// Package nodes runs real Kubernetes nodes on one machine, for tests: each has network, process, mount, UTS and IPC
// namespaces of its own with its own containerd, runc, CNI plugins and kubelet, joined to the real control plane that
// test/cluster starts. Its power can be cut: the kernel then ends everything in it at once.
//
// It promises that a node looks like a real one inside (standard paths, own boot id at each boot, own system UUID,
// `containerd` in the PATH), that what it writes stays in the lab's folder, and that nothing is left after Stop, nor,
// except for empty cgroups and a folder that the next lab removes, when this process dies without it. It needs root,
// and Linux: elsewhere the package is empty.
//
//	lab := nodes.ForTest(t, nodes.Options{Cluster: c})
//	n, err := lab.Add(ctx, nodes.NodeOptions{Name: "n1", Machine: dc.AddMachine("n1")})
//	n.PowerCut()
//	err = n.PowerOn()
package nodes
