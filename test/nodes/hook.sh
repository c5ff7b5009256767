#!/bin/sh
# An OCI hook, createContainer: it gives a container, whose /proc is a new one, the node's boot id. On a real machine
# that comes by itself. It runs in the container's namespaces, and its root is still the node's.
target=$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')/rootfs/proc/sys/kernel/random/boot_id
[ ! -e "$target" ] || mount -n --bind /run/node/proc-sys-kernel-random-boot_id "$target"
