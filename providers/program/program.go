// Package program has what provider types share that run programs: bounded output, and an environment without secrets.
// It imports the standard library only.
package program

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"
)

// MaxOutput is how much is kept of each of a program's outputs; the rest is read and dropped.
const MaxOutput = 64 << 10

// killAfter is how long Run waits for a program that was killed, and for its outputs.
const killAfter = time.Second

// Output keeps the first MaxOutput bytes written to it. It embeds no buffer: io.Copy would call the buffer's ReadFrom,
// which has no bound.
type Output struct{ kept bytes.Buffer }

func (o *Output) Write(p []byte) (int, error) {
	o.kept.Write(p[:min(len(p), MaxOutput-o.kept.Len())])
	return len(p), nil
}

// String returns what was kept.
func (o *Output) String() string { return o.kept.String() }

func (o *Output) isFull() bool { return o.kept.Len() == MaxOutput }

// Environ is the only part of this process' environment that programs get: passwords may be in the rest.
func Environ() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, key := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// Result is the result of one run of a program.
type Result struct {
	Code           int // its exit status
	Stdout, Stderr string
	Full           bool // an output may have been cut
}

// Run runs a program without a shell, with an empty input, in a process group of its own. When ctx ends, it kills the
// group and returns ctx's cause. A program that cannot be killed, because its disk hangs, is left to the system then.
// An error means that there is no result: the program did not start, or a signal ended it.
func Run(ctx context.Context, path string, args ...string) (Result, error) {
	done := make(chan struct{})
	var ran Result
	var failed error
	go func() { // ends with the program
		ran, failed = run(ctx, path, args)
		close(done)
	}()
	select {
	case <-done:
		return ran, failed
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(killAfter):
	}
	return Result{}, context.Cause(ctx)
}

func run(ctx context.Context, path string, args []string) (Result, error) {
	var stdout, stderr Output
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.SysProcAttr, cmd.WaitDelay = Environ(), ownGroup, killAfter
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case err != nil && (cmd.ProcessState == nil || !cmd.ProcessState.Exited()):
		return Result{}, err
	}
	return Result{
		Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String(),
		Full: stdout.isFull() || stderr.isFull(),
	}, nil
}
