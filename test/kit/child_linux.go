package kit

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

// starter is the way to startAll's thread.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go startAll(requests)
	return requests
})

// startAll starts children from one thread that never ends: a child's Pdeathsig comes when the thread that started it
// ends, and the runtime ends threads as it likes. A test that looks for goroutines left over ignores it by its name.
func startAll(requests <-chan startRequest) {
	runtime.LockOSThread()
	for r := range requests {
		r.err <- r.cmd.Start()
	}
}

func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r := startRequest{cmd: cmd, err: make(chan error, 1)}
	starter() <- r
	return <-r.err
}
