//go:build linux

package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var labs atomic.Uint32 // started by this process

// namespaces are what a node has of its own.
const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWNET

// File systems by their number in statfs(2).
const (
	overlayMagic = 0x794c7630
	cgroup2Magic = 0x63677270
)

// Missing says why nodes cannot run here, or "" if they can.
var Missing = sync.OnceValue(func() string {
	if os.Geteuid() != 0 {
		return "real nodes need root"
	}
	for _, program := range []string{"ip", "nsenter", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed (apt-get install iproute2 util-linux gcc libc6-dev)"
		}
	}
	if err := exec.Command("pkg-config", "--exists", "libseccomp").Run(); err != nil {
		return "libseccomp is not installed (apt-get install libseccomp-dev pkg-config): runc is built with it"
	}
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := probe.Run(); err != nil {
		return fmt.Sprintf("cannot make namespaces: %v", err)
	}
	all := hierarchies()
	if len(all) == 0 {
		return "no cgroups under " + cgroupRoot
	}
	for _, h := range all {
		dir := filepath.Join(h, fmt.Sprintf("%s%d-probe", folderPrefix, os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Sprintf("cgroups are not writable: %v", err)
		}
		_ = os.Remove(dir) // a sweep takes it otherwise
	}
	return ""
})

func holdsOverlay(dir string) (bool, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("looking at %s: %w", dir, err)
	}
	return st.Type != overlayMagic, nil
}

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are the roots of all cgroup hierarchies: one for version 2, one for each controller (and systemd's) for
// version 1.
func hierarchies() []string {
	if unified() {
		return []string{cgroupRoot}
	}
	entries, _ := os.ReadDir(cgroupRoot) // none: no cgroups
	var out []string
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		if !e.IsDir() { // cpu,cpuacct and the like have links to them
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			out = append(out, dir)
		}
	}
	return out
}

func unified() bool {
	var st syscall.Statfs_t
	return syscall.Statfs(cgroupRoot, &st) == nil && st.Type == cgroup2Magic
}

// makeCgroups makes the group in which the kubelet puts everything.
func makeCgroups(name string) error {
	if unified() {
		return makeUnified(name)
	}
	for _, h := range hierarchies() {
		dir := filepath.Join(h, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making cgroup: %w", err)
		}
		// A cpuset is born empty, and takes no process then.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
			}
			if err != nil {
				return fmt.Errorf("filling cgroup: %w", err)
			}
		}
	}
	return nil
}

func makeUnified(name string) error {
	dir := filepath.Join(cgroupRoot, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making cgroup: %w", err)
	}
	for _, parent := range []string{cgroupRoot, dir} {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
			err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) { // not in this kernel
				return fmt.Errorf("enabling controller %s: %w", controller, err)
			}
		}
	}
	return nil
}

const cgroupPatience = 5 * time.Second // a killed process leaves its group a moment after it was reaped

// removeCgroups removes a group that no process is in, in every hierarchy. It may be repeated.
func removeCgroups(name string) error {
	if name == "" {
		return nil
	}
	var errs []error
	for _, h := range hierarchies() {
		dir := filepath.Join(h, name)
		for end := time.Now().Add(cgroupPatience); ; time.Sleep(10 * time.Millisecond) {
			removeTree(dir)
			_, err := os.Stat(dir)
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(end) {
				errs = append(errs, fmt.Errorf("cgroup %s stays", dir))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a folder of folders, from the leaves. A cgroup's files do not count, and cannot be removed.
func removeTree(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir) // tried again by who cares
}
