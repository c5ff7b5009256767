package fenceagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeperName is this program's name when it runs as an agent's keeper.
const keeperName = "forcefence-agent-keeper"

// The meanings of a keeper's exit status. The agent's statuses are moved away from those that a program returns by
// accident: 2 is a panic's, and an agent's off.
const (
	codeBase    = 64 // and the agent's own status behind it
	codeFailed  = 62 // the agent was ended, by a signal or by its keeper
	codeNoStart = 63
)

// init turns this program into a keeper if it was started as one: before any other code of the program runs, and in the
// tests' program too.
func init() {
	if len(os.Args) >= 2 && os.Args[0] == keeperName {
		// os.Exit would wait a second where the race detector is built in
		syscall.Exit(runKeeper(os.Args[1], os.Args[2:]))
	}
}

// keeperPath is the program between forcefence and one run of an agent: this very program, under another name. A
// process group is not enough to end an agent: those that type into a telnet or ssh give it a session of its own, which
// outlives a kill of the group. Only the process that adopts orphans can find them, and it must have no other children.
// The keeper ends at the end of a pipe, which also comes when forcefence dies.
const keeperPath = "/proc/self/exe"

// keeperAttr gives the keeper a process group of its own: a Ctrl-C is for forcefence, which ends the keeper.
var keeperAttr = &syscall.SysProcAttr{Setpgid: true}

// lifelineFD is the file descriptor of a keeper's pipe.
const lifelineFD = 3

// runKeeper runs the agent with the keeper's input and output, in a sandbox that has these files. It returns when
// nothing of the agent is left: when the agent has ended, or was ended because the lifeline did.
func runKeeper(agent string, files []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "adopting orphans:", err)
		return codeNoStart
	}
	closeInherited()
	pid, err := startSandboxed(agent, files)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return codeNoStart
	}
	code := codeFailed
	for {
		// The only thread that waits is the one that kills, so the PID of a process that is killed here cannot belong
		// to another process by then.
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if ended == pid && err == nil {
			if status.Exited() && status.ExitStatus() < 128-codeBase {
				code = codeBase + status.ExitStatus()
			}
			break
		}
		if ended == 0 && lifelineEnded(2*time.Millisecond) {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // most of it, at once
			break
		}
	}
	killOrphans()
	return code
}

// lifelineEnded waits that long for the end of the pipe and reports whether it came.
func lifelineEnded(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: lifelineFD, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(wait.Milliseconds()))
	return err == nil && n > 0
}

// killOrphans kills and reaps all processes that the agent left. The agent's children became the keeper's when it
// ended, and theirs become the keeper's as they end. A process that cannot be killed (of another user, by sudo; in the
// kernel, by a disk) is left to the system once none has ended for a second. So is one of those that start others
// faster than they end, after five.
func killOrphans() {
	begun := time.Now()
	for last := begun; time.Since(last) < time.Second && time.Since(begun) < 5*time.Second; {
		switch pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.ECHILD):
			return
		case pid > 0:
			last = time.Now()
			continue
		}
		for _, pid := range childPIDs() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond) // for the killed to end
	}
}

// childPIDs returns the processes whose parent is this process.
func childPIDs() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PARENT ...; the name may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// closeInherited keeps the files that forcefence itself inherited open away from the agent: all that Go opens is closed
// on exec already.
func closeInherited() {
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil && n >= lifelineFD {
			unix.CloseOnExec(n)
		}
	}
}
