//go:build unix

package kit

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Sweep starts a shell that, once stop is called or this process has ended, however that ends, kills every process with
// a path below the folder in its command line, and removes the folder. stop waits for it, and may be repeated.
func Sweep(dir string) (stop func(), err error) {
	const script = `cat >/dev/null
for f in $(grep -alF "$1/" /proc/[0-9]*/cmdline 2>/dev/null); do
	pid=${f#/proc/}
	kill -9 ${pid%/cmdline} 2>/dev/null
done
rm -rf "$1"`
	cmd := exec.Command("/bin/sh", "-c", script, "sweep", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait() // its own errors are processes that have just ended
	}, nil
}

// killedRole is the variable that makes a test's process the one that KillTest kills.
const killedRole = "FORCEFENCE_TEST_IS_KILLED"

// KillTest runs the test in a process of its own once more. There it calls prepare, which may start what it likes; here
// it calls seen with the words that prepare returned, kills the process, and returns them.
func KillTest(t testing.TB, prepare func() []string, seen func(words []string)) (words []string) {
	t.Helper()
	if os.Getenv(killedRole) != "" {
		_, _ = os.Stdout.WriteString("\nready " + strings.Join(prepare(), " ") + "\n")
		for { // until killed; without a timer the runtime would end a process that only waits
			time.Sleep(time.Hour)
		}
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	child.Env = append(os.Environ(), killedRole+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	Must(t, err)
	Must(t, StartChild(child))
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said, ready := strings.CutPrefix(lines.Text(), "ready "); ready {
			words = strings.Fields(said)
			seen(words)
			Must(t, child.Process.Kill())
			_ = child.Wait() // killed
			return words
		}
	}
	t.Fatalf("the process that was to be killed ended: %v", child.Wait())
	return nil
}

// WaitGone waits until no process has the text in its command line, and the file or folder is gone.
func WaitGone(t testing.TB, text, file string) {
	t.Helper()
	Until(t, "nothing of "+text+" is left", func() bool {
		if _, err := os.Stat(file); err == nil {
			return false
		}
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
		return !slices.ContainsFunc(lines, func(line string) bool {
			args, _ := os.ReadFile(line) // it may have ended
			return bytes.Contains(args, []byte(text))
		})
	})
}
