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

// adopt makes this process the parent of the guests that libvirtd puts into the background. It is of the whole process, and stays:
// other orphans below us become ours, too, and are the kernel's to tidy up when we end.
var adopt = sync.OnceFunc(func() {
	const prSetChildSubreaper = 36
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // without it, all that happens is slower
})

// bury takes the exit status of a guest that has ended, if it is our child. It never waits.
func bury(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }
