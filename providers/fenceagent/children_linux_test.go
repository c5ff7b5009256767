package fenceagent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/test/kit"
)

// inherited opens a file as a parent may have left it open for us, and returns its number.
func inherited(t testing.TB) string {
	fd, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	must(t, err)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 200)
	must(t, err)
	must(t, syscall.Close(fd))
	t.Cleanup(func() { _ = syscall.Close(high) })
	return fmt.Sprint(high)
}

// left are the processes whose command line has a word in it.
func left(t testing.TB, word string) (pids []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), word) {
			pids = append(pids, file)
		}
	}
	return pids
}

// endLeft ends with the test what a keeper that failed would leave.
func endLeft(t testing.TB, word string) {
	t.Cleanup(func() {
		for _, file := range left(t, word) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// Every process that an agent started is gone when the call returns: those that left its process group and session,
// orphans, those that hold its output open, and those that ignore signals. That is so if the agent answered, and if it
// was ended at the deadline.
func TestLeavesChildren(t *testing.T) {
	for i, tt := range []struct{ name, start string }{
		{"a child", "sleep N &"},
		{"without output", "sleep N >/dev/null 2>&1 &"},
		{"a session of its own", "setsid sleep N &"},
		{"an orphan", "(setsid sh -c 'setsid sleep N & exit' &)"},
		{"deaf", "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep N; done' &"},
		{"many", "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'sleep N & sleep N' &); done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			length := fmt.Sprintf("8%05d%d.%d", os.Getpid()%100000, i, time.Now().UnixNano()%1000000)
			start := strings.ReplaceAll(tt.start, "N", length) + "\n"
			endLeft(t, length)
			wait := "until [ -e \"$dir/seen\" ]; do sleep 0.01; done\n" // a sandbox shows an agent no processes
			gone := func() {
				t.Helper()
				if pids := left(t, length); len(pids) > 0 {
					t.Errorf("left: %v", pids)
				}
			}
			c := script(t, start+wait+"echo 'Status: OFF'; exit 2")
			p := newProvider(t, c, nil)
			sayOn(t, c, p)
			answer := make(chan providers.Answer)
			go func() { answer <- ask(t, p, n1) }()
			kit.Until(t, "what it started runs", func() bool { return len(left(t, length)) > 0 })
			must(t, os.WriteFile(filepath.Join(c.Dir, "seen"), nil, 0o600))
			wants(t, <-answer, providers.PowerOff, "Status: OFF", "ok")
			gone()

			c = script(t, start+"echo 'Status: OFF'; while :; do sleep "+length+"; done")
			p = newProvider(t, c, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan struct{})
			go func() { // the call ends once what it started runs, beside the agent itself
				defer close(asked)
				for ctx.Err() == nil && len(left(t, length)) < 2 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			obs, err := p.State(ctx, n1)
			cancel()
			<-asked
			if obs.State != providers.PowerUnknown || !errors.Is(err, context.Canceled) {
				t.Errorf("got %s, %v", obs.State, err)
			}
			gone()
		})
	}
}

// An off of the agent that comes at the deadline counts for nothing.
func TestDeadline(t *testing.T) {
	p := newProvider(t, script(t, "echo 'Status: OFF'; sleep 3600; exit 2"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a := providers.Ask(ctx, p, "test", n1, providers.Now)
	wants(t, a, providers.PowerUnknown, "", "unreachable")
	if !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("got %v", a.Err)
	}
}

// When forcefence is killed, its agents end, too.
func TestDiesWithUs(t *testing.T) {
	length := fmt.Sprintf("9%05d.%d", os.Getpid()%100000, time.Now().UnixNano()%1000000)
	c := script(t, "setsid sleep "+length+" & sleep "+length)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asChild+"="+c.Dir)
	must(t, kit.StartChild(cmd))
	endLeft(t, length)
	kit.Until(t, "its children run", func() bool { return len(left(t, length)) >= 2 })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	kit.Until(t, "they have ended", func() bool { return len(left(t, length)) == 0 })
}
