//go:build linux

// Driver is the node half of the CSI driver of the end-to-end tests. Its volumes are ext4 in files of a backing store
// (test/csi/store) that all nodes of one machine see, and it refuses what real single-writer storage refuses:
//
//	driver --endpoint unix://SOCKET --store DIR --node NAME --kubelet-dir DIR [--boot-id-file FILE]
//
// The controller half, which is the store's, publishes a volume to one node at a time. The node half mounts only what
// is published to its node, and registers itself with the kubelet.
//
// # How this is a SAN
//
// What makes two writers impossible on a SAN, or visible, is the array: it knows who has the volume. Here one kernel
// runs all nodes, and would mount one file twice without a word. So a disk is mounted through a lock that the kernel
// keeps for as long as the mount lives, and no longer: the node half opens the disk's file, takes an exclusive flock,
// and hands this very open file to a loop device with autoclear. A flock belongs to the open file, and ends when its
// last user lets go of it. After the hand-over that is the loop device, and a loop device with autoclear lets go when
// the last mount over it is gone, in whatever mount namespace that is. So:
//
//   - a node half that restarts keeps the lock, because the mount stays;
//   - a node whose power is cut loses the lock: its processes end, and with them its mount namespace, the mount and the
//     device;
//   - a mount that stayed behind, by propagation or in a namespace that a process still holds, keeps the lock. The next
//     node is refused, and the log says busy. store.Violations reports whether the log has a holder that runs.
//
// What it does not model: a power cut loses no write, since the kernel that has the page cache lives on and unmounts in
// good order.
package main
