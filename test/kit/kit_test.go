package kit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestFreePorts(t *testing.T) {
	ports := make([]int, 50)
	seen := map[int]bool{}
	var fill []*int
	for i := range ports {
		fill = append(fill, &ports[i])
	}
	Must(t, FreePorts(fill...))
	for _, p := range ports {
		if p == 0 || seen[p] {
			t.Errorf("port %d: zero, or picked twice", p)
		}
		seen[p] = true
	}
	// a caller that asks for one after the other gets different ones, too: of 20,000, two of these would be the same
	for range 1000 {
		var p int
		Must(t, FreePorts(&p))
		if seen[p] {
			t.Fatalf("port %d: picked twice", p)
		}
		seen[p] = true
	}
	l, err := net.Listen("tcp", FreeAddress(t))
	Must(t, err)
	l.Close()
}

func TestDropEnv(t *testing.T) {
	t.Setenv("KIT_A", "a")
	t.Setenv("OTHER_KIT_A", "a")
	t.Run("dropped", func(t *testing.T) {
		DropEnv(t, "KIT_")
		if _, ok := os.LookupEnv("KIT_A"); ok || os.Getenv("OTHER_KIT_A") != "a" {
			t.Errorf("KIT_A is set: %t; OTHER_KIT_A: %q", ok, os.Getenv("OTHER_KIT_A"))
		}
	})
	if got := os.Getenv("KIT_A"); got != "a" {
		t.Errorf("at the end: got %q, want a", got)
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	ctx, stop := context.WithCancel(t.Context())
	lines := make(chan string)
	var wg sync.WaitGroup
	wg.Go(func() { Tail(ctx, file, time.Millisecond, func(l []byte) { lines <- string(l) }) })
	f, err := os.Create(file)
	Must(t, err)
	defer f.Close()
	for _, step := range []struct {
		write string
		want  []string
	}{
		{"one\ntw", []string{"one"}},
		{"o\n\nthree", []string{"two", ""}},
		{"\n", []string{"three"}},
	} {
		_, err := f.WriteString(step.write)
		Must(t, err)
		for _, want := range step.want {
			if got := <-lines; got != want {
				t.Errorf("got line %q, want %q", got, want)
			}
		}
	}
	stop()
	wg.Wait()
}

// A child has a process group of its own, or a session, and on Linux dies with its parent, whichever thread of it asked
// for it.
func TestChildDiesWithUs(t *testing.T) {
	var pid int
	KillTest(t, func() []string {
		started := make(chan int)
		go func() {
			runtime.LockOSThread() // and never unlocks: the thread ends with this goroutine
			cmd := exec.Command("sleep", "600")
			Must(t, StartChild(cmd))
			started <- cmd.Process.Pid
		}()
		return []string{strconv.Itoa(<-started)}
	}, func(words []string) {
		var err error
		pid, err = strconv.Atoi(words[0])
		Must(t, err)
		if group, err := syscall.Getpgid(pid); err != nil || group != pid {
			t.Errorf("the child's process group: got %d (%v), want %d", group, err, pid)
		}
		if runtime.GOOS != "linux" {
			Must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		time.Sleep(200 * time.Millisecond) // the asking thread has ended: the child must not have
		if err := syscall.Kill(pid, 0); err != nil && runtime.GOOS == "linux" {
			t.Errorf("the child ended before its parent: %v", err)
		}
	})
	Until(t, "the child is gone", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
}

// zombie reports whether a process has ended and was not waited for yet.
func zombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") Z ")
}
