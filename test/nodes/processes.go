//go:build linux

package nodes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Process is one of a node's, containers' included.
type Process struct {
	PID  int // on the machine: what syscall.Kill takes
	Args []string
}

// Name is the program's, without its folder.
func (p Process) Name() string {
	if len(p.Args) == 0 {
		return ""
	}
	return filepath.Base(p.Args[0])
}

// Processes are all that run in the node now, in any order. A node that is off has none.
func (n *Node) Processes() []Process {
	l := n.current()
	if l == nil {
		return nil
	}
	top, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", l.cmd.Process.Pid))
	if err != nil { // it ended
		return nil
	}
	return processes(top)
}

// processes are those of a process namespace, named as its link in /proc, and of those below it.
func processes(top string) []Process {
	entries, _ := os.ReadDir("/proc")
	var out []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if within(pid, top) {
			out = append(out, Process{PID: pid, Args: arguments(pid)})
		}
	}
	return out
}

const (
	nsGetParent = 0xb702 // NS_GET_PARENT of ioctl_nsfs(2)
	maxDepth    = 32     // of process namespaces, by the kernel
)

// within reports whether a process is in the namespace top or below it.
func within(pid int, top string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return false
	}
	for range maxDepth {
		var st syscall.Stat_t
		if syscall.Fstat(int(f.Fd()), &st) == nil && fmt.Sprintf("pid:[%d]", st.Ino) == top {
			f.Close()
			return true
		}
		fd, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), nsGetParent, uintptr(unsafe.Pointer(nil)))
		f.Close()
		if errno != 0 { // EPERM: the next one up is ours, or above it
			return false
		}
		f = os.NewFile(fd, "pid namespace")
	}
	f.Close()
	return false
}

func arguments(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	data = bytes.TrimRight(data, "\x00")
	if len(data) == 0 {
		return nil
	}
	return strings.Split(string(data), "\x00")
}
