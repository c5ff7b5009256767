package hypervisor

import (
	"sync"
	"syscall"
)

// adopt makes this process the parent of the guests that libvirtd puts into the background. It is of the whole process,
// and stays: other orphans below us become ours, too, and are the kernel's to tidy up when we end.
var adopt = sync.OnceFunc(func() {
	const prSetChildSubreaper = 36
	// without it, all that happens is slower
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
})

// bury takes the exit status of a guest that has ended, if it is our child. It never waits.
func bury(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }
