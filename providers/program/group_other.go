//go:build !unix

package program

import (
	"os"
	"syscall"
)

// There are no process groups: a program's children outlive it.
var ownGroup *syscall.SysProcAttr

func killGroup(p *os.Process) error { return p.Kill() }
