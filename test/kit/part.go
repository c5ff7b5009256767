//go:build unix

package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute // a busy machine has needed more than half of one
	stopTimeout  = time.Minute     // from SIGTERM to SIGKILL
	restartPause = time.Second
	readyPeriod  = 25 * time.Millisecond
	tailBytes    = 4 << 10
)

// Part is one process of a world: of the control plane, of a node, of a device. One that ends by itself once it was
// ready is started again a second later, as a kubelet does with static pods; one that was stopped or killed stays down
// until Start. Its methods may be called at any time, one after another.
type Part struct {
	name  string
	bin   string
	args  []string
	log   string
	ready func(context.Context) error // nil once it answers
	slog  *slog.Logger
	// Env holds more variables of the process than this one's. It is set before Start.
	Env []string
	// Change has the last word on each command before it starts; nil: none. It is set before Start.
	Change func(*exec.Cmd)
	// Again is asked when the process ended by itself with that status; nil: it is always started again. It is set
	// before Start.
	Again func(status int) bool

	mu       sync.Mutex // guards the rest
	cmd      *exec.Cmd
	paused   bool
	wanted   bool          // was ready and is to run
	starts   int           // of processes
	restarts int           // those of them after one that ended by itself
	exited   chan struct{} // closed once the process is reaped
}

// NewPart describes a program that is to run beside the control plane and to live and end as its parts do: in a process
// group of its own, killed with this process, started again when it ends by itself. ready is asked until it returns
// nil; it may be called while nothing listens yet. The caller starts it and stops it. A nil log is silent.
func NewPart(name, bin string, args []string, logFile string, ready func(context.Context) error,
	log *slog.Logger) *Part {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Part{name: name, bin: bin, args: args, log: logFile, ready: ready, slog: log}
}

// Name is the program's name, such as kube-apiserver.
func (p *Part) Name() string { return p.name }

// LogFile holds everything that the program printed, over all its starts.
func (p *Part) LogFile() string { return p.log }

// PID is the process id, or 0 while it does not run.
func (p *Part) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *Part) running() bool { // with mu held
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ExitCode is the status of a process that ended, -1 if a signal killed it or if none ended yet.
func (p *Part) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Restarts counts how often it ended by itself. kube-scheduler does when a bound pod was replaced under its name while
// its watch was down (v1.36.3: "Scheduler cache is corrupted").
func (p *Part) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// Starts counts its processes so far: it is the number of the one that runs, from 1.
func (p *Part) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Start starts the program and returns once it is ready. Its error carries the log's tail. A program that runs is left
// alone.
func (p *Part) Start(ctx context.Context) error {
	p.mu.Lock()
	if p.running() {
		p.mu.Unlock()
		return nil
	}
	exited, err := p.spawn()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	begin := time.Now()
	var last error
	for {
		if last = p.ready(ctx); last == nil {
			p.mu.Lock()
			p.wanted = true
			p.mu.Unlock()
			p.slog.Debug("Started", "program", p.name, "pid", p.PID(), "after",
				time.Since(begin).Round(time.Millisecond))
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("start %s: it exited: %w\n%s", p.name, errExited, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %w\n%s", p.name, context.Cause(ctx), last, p.tail())
		case <-time.After(readyPeriod):
		}
	}
}

// Launch starts the program and does not wait until it is ready. From now on it is started again when it ends by
// itself. A program that runs is left alone.
func (p *Part) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	if p.running() {
		return nil
	}
	_, err := p.spawn()
	return err
}

var errExited = errors.New("process ended before it was ready")

func (p *Part) spawn() (exited chan struct{}, err error) { // with mu held
	defer func() {
		if err != nil {
			err = fmt.Errorf("start %s: %w", p.name, err)
		}
	}()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(p.bin, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	if p.Change != nil {
		p.Change(cmd)
	}
	if err := StartChild(cmd); err != nil {
		return nil, err
	}
	exited = make(chan struct{})
	p.cmd, p.exited, p.paused = cmd, exited, false
	p.starts++
	go func() {
		err := cmd.Wait()
		p.slog.Debug("Ended", "program", p.name, "pid", cmd.Process.Pid, "state", cmd.ProcessState.String(), "err", err)
		close(exited)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wanted && (p.Again == nil || p.Again(cmd.ProcessState.ExitCode())) {
			p.restarts++
			time.AfterFunc(restartPause, p.respawn)
		}
	}()
	return exited, nil
}

func (p *Part) respawn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.running() {
		return
	}
	p.slog.Warn("Starting again", "program", p.name, "restarts", p.restarts)
	if _, err := p.spawn(); err != nil {
		p.slog.Warn("Cannot start again", "program", p.name, "err", err)
	}
}

// Stop asks the program to end, kills it if it has not after a minute, and waits. It may be repeated.
func (p *Part) Stop() { p.end(syscall.SIGTERM, false) }

// Kill ends the program as a crash would, and waits.
func (p *Part) Kill() { p.end(syscall.SIGKILL, false) }

// Crash is Kill, but the program is started again, as one that ended by itself.
func (p *Part) Crash() { p.end(syscall.SIGKILL, true) }

func (p *Part) end(sig syscall.Signal, again bool) {
	p.mu.Lock()
	p.wanted = p.wanted && again
	if !p.running() {
		p.mu.Unlock()
		return
	}
	proc, exited := p.cmd.Process, p.exited
	paused := p.paused
	p.paused = false
	p.mu.Unlock()
	// os.Process never signals a process that it has reaped, so these cannot hit a stranger. Errors mean that it ended.
	_ = proc.Signal(sig)
	if paused {
		_ = proc.Signal(syscall.SIGCONT)
	}
	select {
	case <-exited:
		return
	case <-time.After(stopTimeout):
	}
	p.slog.Warn("Killing", "program", p.name, "pid", proc.Pid)
	_ = proc.Kill()
	<-exited
}

// Pause freezes the program: connections stay open and nothing answers.
func (p *Part) Pause() error { return p.freeze(syscall.SIGSTOP, true) }

// Resume lets a paused program go on.
func (p *Part) Resume() error { return p.freeze(syscall.SIGCONT, false) }

func (p *Part) freeze(sig syscall.Signal, paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("signal %s: it does not run", p.name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	p.paused = paused
	return nil
}

// tail is the end of the log, indented, for error messages.
func (p *Part) tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tailBytes), io.SeekStart)
	}
	b, _ := io.ReadAll(f)
	return "\t" + strings.ReplaceAll(string(bytes.TrimSpace(b)), "\n", "\n\t")
}
