# What a node's process 1 does: it builds the node's root, enters it, and waits for the end of its standard input. The
# node ends with it. A lab starts it as root in namespaces of the node's own.
#
# $NODE, $BOOT_ID and $SYSTEM_UUID are the machine's; $SCRATCH is an empty folder in which the root is put together. The
# arguments come in threes: a path of the host, where it lies inside, ro or rw.
root=$SCRATCH/root

# over SOURCE TARGET [ro]: lays a file or folder over another, which it makes first.
over() {
	if [ -d "$1" ]; then
		mkdir -p "$2"
	else
		mkdir -p "${2%/*}"
		[ -e "$2" ] || : >"$2"
	fi
	mount -n --bind "$1" "$2"
	[ "${3:-rw}" = rw ] || mount -n -o remount,bind,ro "$2"
}

# says FILE VALUE: lays a file of the node's own over one of the kernel's, if this kernel has that.
says() {
	[ -e "$root$1" ] || return 0
	own=$root/run/node/$(echo "${1#/}" | tr / -)
	echo "$2" >"$own"
	mount -n --bind "$own" "$root$1"
}

# Nothing that is mounted here may reach the machine, and the other way round.
mount -n --make-rprivate /
# The machine's own files under a layer in memory, so that no path has to exist on the machine and nothing is written
# there. A file system that is itself an overlay, as in a container, could not hold the layer.
mount -n -t tmpfs -o mode=0755 tmpfs "$SCRATCH"
mkdir "$root" "$SCRATCH/upper" "$SCRATCH/work"
mount -n -t overlay -o "lowerdir=/,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" overlay "$root"
# A /sys of its own shows the node's network interfaces; cgroups stay the machine's.
mount -n -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -n -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
mount -n --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -n --rbind /dev "$root/dev"
mkdir -p "$root/run" "$root/tmp"
mount -n -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -n -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [ $# -gt 0 ]; do
	over "$1" "$root$2" "$3"
	shift 3
done
for program in "$root"/usr/local/lib/forcefence-lab/*/*; do
	ln -sf "${program#"$root"}" "$root/usr/local/bin/"
done

# The node's identity, where its programs look for it.
mkdir "$root/run/node"
echo "$NODE" >"$root/proc/sys/kernel/hostname"
says /proc/sys/kernel/random/boot_id "$BOOT_ID"
if [ -e "$root/sys/class/dmi/id/product_uuid" ]; then
	says /sys/class/dmi/id/product_uuid "$SYSTEM_UUID" # through the link: over the device's own file
else
	# A small virtual machine has none, and a folder in /sys cannot be made: a folder of ours lies over /sys/class.
	class=$root/sys/class real=$root/run/sys-class
	mkdir "$real"
	mount -n --bind "$class" "$real"
	mount -n -t tmpfs -o mode=0755 tmpfs "$class"
	for entry in "$real"/*/; do # links in there are relative, and lead to the same places from here
		over "$entry" "$class/$(basename "$entry")"
	done
	mkdir -p "$class/dmi/id"
	(umask 0377 && echo "$SYSTEM_UUID" >"$class/dmi/id/product_uuid")
	umount -n -l "$real"
	rmdir "$real"
fi
# What a kubelet writes for the whole machine (its container manager's setupKernelTunables), as it wants it.
says /proc/sys/vm/overcommit_memory 1
says /proc/sys/vm/panic_on_oom 0
says /proc/sys/kernel/panic 10
says /proc/sys/kernel/panic_on_oops 1
says /proc/sys/kernel/keys/root_maxkeys 1000000
says /proc/sys/kernel/keys/root_maxbytes 25000000
rm -f "$root/etc/machine-id" "$root/etc/hostname" # a link, perhaps
echo "$SYSTEM_UUID" | tr -d - >"$root/etc/machine-id"
echo "$NODE" >"$root/etc/hostname"

cd "$root"
mkdir .machine
pivot_root . .machine
umount -n -l /.machine
rmdir /.machine
cd /
# A kubelet's and a CSI driver's mounts must reach containers, as on a node under systemd.
mount -n --make-rshared /
trap '' CHLD # the kernel takes orphans' exit statuses itself then
echo ready
exec cat >&2
