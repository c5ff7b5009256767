package hypervisor

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// daemonAttr runs a child in a process group of its own, so that Ctrl-C reaches only us, and has the kernel kill it when we die.
// With uid it runs as that user.
func daemonAttr(uid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid > 0 {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	return a
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

// starter is one thread that never ends: a child's Pdeathsig comes when the thread that started it ends, and the runtime ends
// threads as it likes.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.err <- r.cmd.Start()
		}
	}()
	return requests
})

func start(cmd *exec.Cmd) error {
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	starter() <- r
	return <-r.err
}
