//go:build unix

package kit

import (
	"os/exec"
	"syscall"
)

// StartChild starts a program that a Ctrl-C for us does not reach and that, on Linux, dies with this process, however
// that ends; elsewhere it outlives a process that is killed. It has a process group of its own, if not a session. What
// else its SysProcAttr asks for stays.
func StartChild(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid
	return start(cmd)
}
