//go:build linux

// Command fresh tries what README promises to a newcomer: it makes a bare Debian root with ca-certificates, make and
// git alone, and runs there the two commands that README shows, as root and as an ordinary user.
//
// Of the host it shows these runs the kernel, Go's folder, and the module and build caches (copies on write, so that
// nothing in them changes). They have no network but loopback, and see no process of the host. A command fails if it
// exits with another status than 0, if a process outlives it, or if it changes a file that git tracks.
//
// It prints the minutes and CPU seconds of each command, and with -record writes them to minutes.json. It needs root
// and Debian's mmdebstrap.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == insideArg {
		os.Exit(runInside())
	}
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	var accounts string
	flag.StringVar(&o.out, "out", "out/fresh", "folder for the logs")
	flag.StringVar(&accounts, "as", "root,user", "accounts to run as, one after another")
	flag.BoolVar(&o.cold, "cold", false, "begin with an empty build cache")
	flag.StringVar(&o.record, "record", "", "file to write the minutes to, such as test/fresh/minutes.json")
	flag.Func("env", "ACCOUNT:NAME=VALUE, an environment variable of one account's commands; may be repeated",
		o.addVariable)
	flag.Parse()
	o.accounts = strings.Split(accounts, ",")
	if err := o.tryReadme(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: fresh:", err)
		return 1
	}
	return 0
}

type options struct {
	out       string
	accounts  []string
	cold      bool
	record    string
	variables map[string][]string // NAME=VALUE, by account
}

func (o *options) addVariable(text string) error {
	account, variable, _ := strings.Cut(text, ":")
	if account == "" || !strings.Contains(variable, "=") {
		return errors.New("is not ACCOUNT:NAME=VALUE")
	}
	if o.variables == nil {
		o.variables = map[string][]string{}
	}
	o.variables[account] = append(o.variables[account], variable)
	return nil
}

// tryReadme runs README's commands as one account after another, and prints what they took: a newcomer's machine runs
// them alone, too.
func (o options) tryReadme(ctx context.Context) error {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	commands, err := readmeCommands(string(readme))
	if err != nil {
		return fmt.Errorf("README.md: %w", err)
	}
	host, err := prepareHost(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(host.work)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	begin := time.Now()
	var runs []accountRun
	for _, account := range o.accounts {
		runs = append(runs, host.runAs(ctx, account, o.variables[account], commands,
			filepath.Join(o.out, account+".log"), o.cold))
	}
	var faults []error
	for _, r := range runs {
		for _, c := range r.Commands {
			fmt.Printf("fresh: %-5s %-12s %5.1f min %6.0f s of CPU\n", r.account, c.Command, c.Minutes, c.CPUSeconds)
		}
		faults = append(faults, r.err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Printf("fresh: %.1f min for all, on %d cores\n", time.Since(begin).Minutes(), runtime.NumCPU())
	if o.record == "" {
		return nil
	}
	return recordRun(o.record, o.cold, runs[0].Commands)
}

// accountRun is what one account's commands took. err is nil if all of them succeeded.
type accountRun struct {
	account  string
	Commands []commandTime
	err      error
}

// commandTime is one command as the README shows it, and what it took.
type commandTime struct {
	Command    string  `json:"command"`
	Minutes    float64 `json:"minutes"`
	CPUSeconds float64 `json:"cpuSeconds"`
}

// runAs runs the commands one after another in a bare root of their own, in new namespaces. What they print goes to
// logFile; its end is part of the error.
func (h *host) runAs(ctx context.Context, account string, variables, commands []string, logFile string, cold bool) (
	r accountRun) {
	r.account = account
	fail := func(err error) accountRun {
		r.err = fmt.Errorf("as %s: %w", account, err)
		return r
	}
	room, err := h.newRoom(ctx, account, cold)
	if err != nil {
		return fail(err)
	}
	room.Commands, room.Env = commands, append(room.Env, variables...)
	log, err := os.Create(logFile)
	if err != nil {
		return fail(err)
	}
	defer log.Close()
	spec, err := json.Marshal(room)
	if err != nil {
		return fail(err)
	}
	results, write, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", insideArg)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(spec), log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS,
		Pdeathsig: syscall.SIGKILL, // its end ends all of its namespace
	}
	runtime.LockOSThread() // Pdeathsig is sent when this thread ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	_ = write.Close() // the child has it
	for results := json.NewDecoder(results); ; {
		var c commandTime
		if results.Decode(&c) != nil { // the child ended
			break
		}
		fmt.Printf("fresh: as %s: %s took %.1f min, %.0f s of CPU\n", account, c.Command, c.Minutes, c.CPUSeconds)
		r.Commands = append(r.Commands, c)
	}
	err = cmd.Wait()
	if copied := keepEvents(filepath.Join(room.Work, "clone", "out"), strings.TrimSuffix(logFile, ".log")); err == nil {
		err = copied
	}
	if err != nil {
		return fail(fmt.Errorf("%w; the end of %s:\n%s", err, logFile, tailOf(logFile)))
	}
	return r
}

// keepEvents copies the tests' events out of the clone, to files whose names begin with prefix. `make played`
// finds in them which tests were skipped everywhere.
func keepEvents(out, prefix string) error {
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(prefix+"-"+filepath.Base(file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tailOf returns the last 60 lines of a file, and those that name a failure.
func tailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var out []string
	for i, line := range lines {
		if i >= len(lines)-60 || strings.Contains(line, "FAIL") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
