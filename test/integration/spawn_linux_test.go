package integration

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

type launch struct {
	cmd *exec.Cmd
	err chan error
}

// launcher owns one thread for the whole test: the kernel sends a child's Pdeathsig when the thread that forked it ends.
var launcher = sync.OnceValue(func() chan<- launch {
	todo := make(chan launch)
	go func() {
		runtime.LockOSThread()
		for l := range todo { // never closed
			l.err <- l.cmd.Start()
		}
	}()
	return todo
})

// spawn starts a child that dies with this process, however that ends, and that a Ctrl-C for us does not reach.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	l := launch{cmd: cmd, err: make(chan error, 1)}
	launcher() <- l
	return <-l.err
}
