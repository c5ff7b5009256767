//go:build linux

package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// What a program says without end is read, and not kept.
func TestOutputIsBounded(t *testing.T) {
	var o Output
	piece := bytes.Repeat([]byte("x"), MaxOutput/2+1)
	for range 4 {
		if n, err := o.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("got %d, %v; want %d: the program would get an error", n, err, len(piece))
		}
	}
	if n := len(o.String()); n != MaxOutput {
		t.Errorf("kept %d bytes, want %d", n, MaxOutput)
	}
}

func TestRun(t *testing.T) {
	t.Setenv("DEVICE_PASSWORD", "hidden")
	for _, tt := range []struct {
		name, script string
		want         Result
		fails        bool
	}{
		{name: "outputs and status", script: "echo out; echo err >&2; exit 7",
			want: Result{Code: 7, Stdout: "out\n", Stderr: "err\n"}},
		{name: "an empty input", script: "cat; echo end", want: Result{Stdout: "end\n"}},
		{name: "no secrets", script: "echo $DEVICE_PASSWORD", want: Result{Stdout: "\n"}},
		{name: "ended by a signal", script: "kill -9 $$", fails: true},
	} {
		got, err := Run(t.Context(), "/bin/sh", "-c", tt.script)
		if got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: got %+v, %v; want %+v, an error: %t", tt.name, got, err, tt.want, tt.fails)
		}
	}
	if r, err := Run(t.Context(), "/bin/sh", "-c", "head -c 70000 /dev/zero"); err != nil || !r.Full ||
		len(r.Stdout) != MaxOutput {
		t.Errorf("too much: got %d bytes, full %t, %v; want the first %d", len(r.Stdout), r.Full, err, MaxOutput)
	}
	if _, err := Run(t.Context(), filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: got %v, want os.ErrNotExist", err)
	}
}

// A program that hangs ends with its context, and so do its children.
func TestRunKillsChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		for {
			if b, _ := os.ReadFile(file); strings.HasSuffix(string(b), "\n") {
				cancel(enough)
				return
			}
		}
	}()
	script := "sleep 1000 & echo $! >" + kit.QuoteShell(file) + "; wait"
	if _, err := Run(ctx, "/bin/sh", "-c", script); !errors.Is(err, enough) {
		t.Errorf("got %v, want the context's cause", err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		// A killed orphan stays a zombie where no init reaps it.
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d runs on: %s", pid, stat)
		}
	}
}
