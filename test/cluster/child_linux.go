package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// childAttr puts a child into its own process group, so that Ctrl-C reaches only us, and has the kernel kill it when we die.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

// keeper starts children from one thread that never ends: a child's Pdeathsig fires when the *thread* that forked it ends, and
// the runtime ends threads as it likes.
var keeper = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests { // never closed: the thread lives as long as the process
			r.err <- r.cmd.Start()
		}
	}()
	return requests
})

func startFromKeeper(cmd *exec.Cmd) error {
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	keeper() <- r
	return <-r.err
}
