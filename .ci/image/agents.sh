#!/bin/sh
# agents.sh FOLDER [APT-SOURCES]: unpacks Debian's fence agents and their Python into FOLDER/agents-amd64 and
# FOLDER/agents-arm64.
#
# mmdebstrap resolves, fetches, verifies and unpacks the packages; it runs none of their scripts. So this needs no root,
# and makes what is for a machine that this one is not. What the scripts would have done, and is needed, is done here.
set -eu
umask 022
command -v mmdebstrap >/dev/null || { echo "install Debian's package mmdebstrap" >&2; exit 1; }
native=$(dpkg --print-architecture)

# unpack makes the folder $root for $arch. Another version of the agents may guess at off where the one that
# providers/fenceagent has read did not, so apt fails where it is not to be had. ssh, telnet, snmpget and ipmitool are
# what agents call; Python comes with the agents.
#
# The setup hook merges /bin, /sbin and /lib into /usr before anything is unpacked, as this release wants it. The
# extract hook keeps what each package says about itself where scanners of images look for it, and the packages'
# checksums. The image has no other list of its packages, because dpkg installed none of them.
unpack() {
  SOURCE_DATE_EPOCH=0 mmdebstrap --variant=extract --mode=chrootless --format=directory --architectures="$arch" \
    --include='fence-agents=4.12.1-*,ipmitool,openssh-client,snmp,telnet,ca-certificates,base-files,dash' \
    --aptopt='APT::Install-Recommends "false"' \
    --setup-hook='cd "$1" && for d in bin sbin lib lib64; do mkdir -p usr/$d && ln -s usr/$d $d; done' \
    --extract-hook='set -e
      cd "$1/var/cache/apt/archives"
      mkdir -p "$1/var/lib/dpkg/status.d" "$1/usr/share/forcefence"
      for deb in *.deb; do
        dpkg-deb --field "$deb" >"$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$deb" Package)"
      done
      sha256sum *.deb >"$1/usr/share/forcefence/packages"' \
    bookworm "$root" ${sources:+"$sources"}
}

# furnish drops what no agent reads: files for a machine with an init and a package manager, and traces of the building
# machine. Licences stay. It writes what the packages' scripts would have made: without its line in passwd ssh does not
# start; its home is the one folder that can be written, if any. telnet is an alternative of Debian's.
furnish() {
  rm -rf boot dev proc run sys tmp etc/apt etc/fstab etc/hostname etc/hosts etc/mtab etc/resolv.conf usr/share/info \
    usr/share/lintian usr/share/locale usr/share/man var/cache/apt var/lib/apt var/log var/run var/lock
  find usr/share/doc -mindepth 2 -maxdepth 2 ! -name copyright -exec rm -rf {} +
  mkdir -p dev proc run sys tmp etc/ssl/certs
  printf 'root:x:0:0:root:/root:/bin/sh\nforcefence:x:65532:65532:forcefence:/tmp:/bin/sh\n' >etc/passwd
  printf 'root:x:0:\nforcefence:x:65532:\n' >etc/group
  printf '%s: files\n' passwd group services protocols >etc/nsswitch.conf
  echo 'hosts: files dns' >>etc/nsswitch.conf
  ln -s inetutils-telnet usr/bin/telnet
  ln -s /run var/run
  (LC_ALL=C && awk 1 usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt) # awk ends each line
}

# compile makes the byte code of all modules in $root: the container cannot write any, and an agent that compiles its
# modules first takes twice as long. It is the same on all machines, so the Python of the platform that runs here
# compiles for the others. It is found valid by its place alone, not by times. Some tests' modules are not of this
# Python, which is status 1.
compile() {
  (
    cd "$folder/agents-$native"
    loader=$(echo usr/lib/*-linux-gnu/ld-linux-*.so.*) libraries=$(echo usr/lib/*-linux-gnu)
    env -i PYTHONHOME="$PWD/usr" PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8 \
      "$PWD/$loader" --library-path "$PWD/$libraries" usr/bin/python3.11 -m compileall -qq \
      --invalidation-mode unchecked-hash -s "$root" -p / "$root/usr/lib/python3" \
      "$root/usr/lib/python3.11" "$root/usr/share/fence" || [ $? = 1 ]
  )
}

# complete fails where a file is missing without which agents do not run, or not as fast.
complete() {
  for file in usr/bin/python3.11 usr/bin/ipmitool usr/bin/ssh usr/bin/snmpget usr/bin/telnet usr/bin/dash bin sbin lib \
    usr/sbin/fence_ipmilan usr/sbin/fence_apc usr/share/fence/__pycache__/fencing.cpython-311.pyc \
    usr/lib/python3.11/__pycache__/ssl.cpython-311.pyc etc/ssl/certs/ca-certificates.crt \
    usr/lib/python3/dist-packages/requests/__pycache__/__init__.cpython-311.pyc \
    usr/share/forcefence/packages var/lib/dpkg/status.d/fence-agents usr/share/doc/fence-agents/copyright; do
    [ -s "$file" ] || { echo "$PWD/$file is missing or empty" >&2; return 1; }
  done
}

folder=$1 sources=${2:-}
for arch in "$native" amd64 arm64; do
  root=$folder/agents-$arch
  [ ! -e "$root" ] || continue
  unpack
  cd "$root"
  furnish
  compile
  complete
done
