//go:build unix && !linux

package hypervisor

import (
	"os/exec"
	"syscall"
)

func daemonAttr(uid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if uid > 0 {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	return a
}

func start(cmd *exec.Cmd) error { return cmd.Start() }

func adopt() {}

func bury(int) {}
