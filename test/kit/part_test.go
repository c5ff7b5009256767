//go:build unix

package kit

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPartComesBack ends a program in each way: it is started again after a crash, and not after Kill.
func TestPartComesBack(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	Must(t, err)
	p := NewPart("sleep", sleep, []string{"1000"}, filepath.Join(t.TempDir(), "log"),
		func(context.Context) error { return nil }, nil)
	defer p.Stop()
	Must(t, p.Start(t.Context()))
	first := p.PID()
	p.Crash()
	if p.Starts() != 1 {
		t.Errorf("right after the crash: got %d starts, want 1", p.Starts())
	}
	Until(t, "it is started again", func() bool { return p.PID() != 0 })
	if p.PID() == first || p.Starts() != 2 || p.Restarts() != 1 {
		t.Errorf("after the crash: got process %d, %d starts and %d restarts, want another than %d, 2 and 1", p.PID(),
			p.Starts(), p.Restarts(), first)
	}
	Must(t, p.Pause())
	p.Kill()
	if p.PID() != 0 || p.wanted {
		t.Errorf("after Kill: got process %d, wanted %t; want none, false", p.PID(), p.wanted)
	}
}
