//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forcefence/forcefence/test/nodes/wire"
)

// tunables are what a kubelet writes for the whole machine (kubelet's container manager, setupKernelTunables), with the
// values it wants. Files of the node's own lie over them.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// build makes the node's root and enters it: the machine's own files with a scratch layer over them, so that no path
// has to exist on the machine and nothing is written there; over that the node's folders, and a /proc, /sys, /run and
// /tmp of its own.
func build(b wire.Boot) error {
	if err := syscall.Sethostname([]byte(b.Hostname)); err != nil {
		return fmt.Errorf("setting hostname: %w", err)
	}
	// Nothing that is mounted here may reach the machine, and the other way round.
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// The scratch layer is in memory: a file system that is itself an overlay, as in a container, could not hold it.
	if err := mount("tmpfs", b.Scratch, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	root, upper, work := filepath.Join(b.Scratch, "root"), filepath.Join(b.Scratch, "upper"),
		filepath.Join(b.Scratch, "work")
	for _, dir := range []string{root, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work); err != nil {
		return err
	}
	in := func(path string) string { return filepath.Join(root, path) }
	if err := kernelFiles(in); err != nil {
		return err
	}
	for _, path := range b.Tmpfs {
		if err := os.MkdirAll(in(path), 0o755); err != nil {
			return err
		}
		mode := "mode=0755"
		if path == "/tmp" {
			mode = "mode=1777"
		}
		if err := mount("tmpfs", in(path), "tmpfs", 0, mode); err != nil {
			return err
		}
	}
	for _, bind := range b.Binds {
		if err := over(bind.Host, in(bind.Inside), bind.ReadOnly); err != nil {
			return err
		}
	}
	if err := identity(b, in); err != nil {
		return err
	}
	for name, target := range b.Links {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, in(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return enter(root)
}

// kernelFiles mounts what the kernel shows. A /sys of its own shows the node's network interfaces; cgroups stay the
// machine's.
func kernelFiles(in func(string) string) error {
	const cgroup = "/sys/fs/cgroup"
	if err := mount("proc", in("/proc"), "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mount("sysfs", in("/sys"), "sysfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
		""); err != nil {
		return err
	}
	if err := mount(cgroup, in(cgroup), "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	return mount("/dev", in("/dev"), "", syscall.MS_BIND|syscall.MS_REC, "")
}

// identity gives the node its boot id, system UUID and machine id where its programs look for them, and tunables of its
// own.
func identity(b wire.Boot, in func(string) string) error {
	files := map[string]string{bootIDFile: b.BootID}
	for name, value := range tunables {
		files["/proc/sys/"+name] = value
	}
	const uuid = "id/product_uuid"
	if _, err := os.Stat(in("/sys/class/dmi/" + uuid)); err == nil {
		files["/sys/class/dmi/"+uuid] = b.SystemUUID // through the link: lies over the device's own file
	} else if err := firmware(in, b.SystemUUID); err != nil {
		return fmt.Errorf("making a firmware's folder: %w", err)
	}
	if err := os.MkdirAll(in(ownFolder), 0o755); err != nil {
		return err
	}
	for path, value := range files {
		if _, err := os.Stat(in(path)); err != nil {
			continue // not in this kernel
		}
		file := in(own(path))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, in(path), "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	id := strings.ReplaceAll(b.SystemUUID, "-", "")
	for path, text := range map[string]string{"/etc/machine-id": id, "/etc/hostname": b.Hostname} {
		if err := os.Remove(in(path)); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a link
			return err
		}
		if err := os.WriteFile(in(path), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// own is the file that lies over path.
func own(path string) string { return filepath.Join(ownFolder, strings.ReplaceAll(path[1:], "/", "-")) }

// firmware makes /sys/class/dmi if the machine has none, as in small virtual machines. A folder in /sys cannot be made,
// so a /sys/class of our own with the same entries lies over it.
func firmware(in func(string) string, uuid string) error {
	class, real := in("/sys/class"), in("/run/sys-class")
	if err := os.MkdirAll(real, 0o755); err != nil {
		return err
	}
	if err := mount(class, real, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", class, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		// Links in there are relative, and lead to the same places from here.
		if err := over(filepath.Join(real, e.Name()), filepath.Join(class, e.Name()), false); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(class, "dmi/id"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(class, "dmi/id/product_uuid"), []byte(uuid+"\n"), 0o400); err != nil {
		return err
	}
	if err := syscall.Unmount(real, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", real, err)
	}
	return os.Remove(real)
}

// enter makes root the root, and lets go of the machine's.
func enter(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	// With both the same folder the old root lies under the new one, and is then taken away (pivot_root(2)).
	if err := syscall.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("entering root: %w", err)
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// A kubelet's and a CSI driver's mounts must reach containers, as on a node under systemd.
	return mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// over lays source over target, and makes the target first.
func over(source, target string, readOnly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := mount(source, target, "", syscall.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s %s on %s: %w", kind, source, target, err)
	}
	return nil
}
