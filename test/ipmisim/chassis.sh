#!/bin/sh
# What ipmi_sim runs for its chassis commands: chassis.sh UUID (get NAME | set NAME VALUE | check NAME)...
# "force" is "set" by the tests themselves. The machine is the QEMU whose number is in qemu.pid.
dir=${0%/*}
uuid=$1
shift

alive() { # a zombie executes nothing
	{ read -r pid <"$dir/qemu.pid"; } 2>/dev/null && { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 1
	case $stat in
	*"(qemu-"*") Z "* | *"(qemu-"*") X "*) return 1 ;;
	*"(qemu-"*) return 0 ;;
	esac
	return 1
}

power() {
	case $1 in
	1)
		alive && return
		rm -f "$dir/qemu.pid" # one that was killed just now may still hold its lock
		qemu-system-x86_64 -name bmc -uuid "$uuid" -machine pc,accel=tcg -m 16 -nodefaults -no-user-config -display none \
			-daemonize -pidfile "$dir/qemu.pid" >/dev/null
		;;
	0)
		alive && kill -9 "$pid"
		while alive; do sleep 0.01; done
		;;
	esac
}

while [ $# -gt 0 ]; do
	case $1 in
	get)
		[ "$2" != power ] || echo >>"$dir/asked"
		if [ "$2" = power ] && alive; then echo power:1; else echo "$2:0"; fi
		shift 2
		;;
	set)
		[ -e "$dir/ignore" ] || [ "$2" != power ] || power "$3"
		shift 3
		;;
	force)
		power "$3"
		shift 3
		;;
	*) shift 2 ;;
	esac
done
exit 0
