//go:build unix

package program

import (
	"os"
	"syscall"
)

// ownGroup gives a program a process group of its own: its children end with it, and a Ctrl-C is for forcefence.
var ownGroup = &syscall.SysProcAttr{Setpgid: true}

func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
