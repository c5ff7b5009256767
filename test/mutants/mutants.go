// Package main weakens the protocol, one piece at a time, and demands that a test or a seed notices: `make mutants`.
//
// Each mutant (list.go) names a declaration and replaces a piece of its syntax (syntax.go) by a weaker one: a check
// that is dropped, a word that is believed, an order that is turned round. The changed file lies in a scratch folder
// and is laid over the source with go's -overlay, so the working tree is never touched. A mutant is killed when a
// package of its own tests fails within two minutes; one that does not compile, or has no place in the source any more,
// is a fault of the list; one that survives is a defect of the tests.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Mutant is one weakening.
type Mutant struct {
	Name string // what is weakened, unique
	// the declaration that is weakened, by its package's folder and its name: "taint/decide/fence.View.powerState"
	In string

	// Old and New are Go syntax: expressions, elements of a literal, statements, or cases. Formatting, comments,
	// parentheses and the declaration's place in its package do not matter. "..." among statements matches any, and in
	// New it is the same ones.
	Old string // is in the declaration once
	New string // takes its place; "": nothing does

	Tests []string // arguments of go test, tried in turn until one fails; nil: the tests of the package (testsOf)
}

// where splits In.
func (m Mutant) where() (dir, decl string) {
	slash := strings.LastIndex(m.In, "/") + 1
	pkg, decl, _ := strings.Cut(m.In[slash:], ".")
	return m.In[:slash] + pkg, decl
}

// limit is how long one mutant may live.
const limit = 2 * time.Minute

func main() { os.Exit(run()) }

func run() int {
	only := flag.String("only", "", "a regular expression: run the mutants whose name or declaration matches")
	with := flag.String("with", "", "arguments of go test that are to kill them, in place of the mutants' own: what "+
		"would the simulation alone find?")
	list := flag.Bool("list", false, "print the mutants and end")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many to try at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "reading -only: %v\n", err)
		return 1
	}
	chosen := slices.DeleteFunc(slices.Clone(Mutants),
		func(m Mutant) bool { return !match.MatchString(m.Name) && !match.MatchString(m.In) })
	if len(chosen) == 0 {
		fmt.Fprintf(os.Stderr, "no mutant matches %q\n", *only)
		return 1
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%-48s %s\n", m.In, m.Name)
		}
		return 0
	}
	if *with != "" {
		for i := range chosen {
			chosen[i].Tests = []string{*with}
		}
	}
	if err := hunt(ctx, os.Stdout, chosen, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hunt tries the mutants and prints one line for each. The error names those that survived, and those that cannot be
// tried.
func hunt(ctx context.Context, out io.Writer, mutants []Mutant, jobs int) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "forcefence-mutants-")
	if err != nil {
		return fmt.Errorf("making scratch folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	h := hunter{source: newSource(root), scratch: scratch, quick: map[string]string{}}
	var survivors, faults []string
	placed := slices.DeleteFunc(slices.Clone(mutants), func(m Mutant) bool {
		_, _, err := h.weaken(m)
		if err != nil {
			fmt.Fprintf(out, "NOT PLACED  %s: %v\n", m.Name, err)
			faults = append(faults, m.Name)
		}
		return err != nil
	})
	if err := h.healthy(ctx, out, placed); err != nil {
		return err
	}
	begin := time.Now()
	var mu sync.Mutex // guards out, survivors and faults
	tried := 0
	try := func(i int, m Mutant) error {
		start, one := time.Now(), h
		one.scratch = filepath.Join(scratch, strconv.Itoa(i))
		if err := os.Mkdir(one.scratch, 0o700); err != nil {
			return fmt.Errorf("making scratch folder: %w", err)
		}
		by, err := one.kill(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		tried++
		verdict := "killed by " + by
		switch {
		case err != nil:
			verdict = "FAULTY: " + err.Error()
			faults = append(faults, m.Name)
		case by == "":
			verdict = "SURVIVED"
			survivors = append(survivors, m.Name)
		}
		dir, _ := m.where()
		fmt.Fprintf(out, "%3d/%d %5.1fs  %-24s %-66s %s\n", tried, len(placed), time.Since(start).Seconds(), dir,
			m.Name, verdict)
		return nil
	}
	var work errgroup.Group
	work.SetLimit(max(1, jobs))
	for i, m := range placed {
		work.Go(func() error { return try(i, m) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mutants, %d killed, %d survived, %.1f minutes\n",
		len(mutants), len(mutants)-len(survivors)-len(faults), len(survivors), time.Since(begin).Minutes())
	if len(survivors)+len(faults) > 0 {
		return fmt.Errorf("no test notices: %q; cannot be tried: %q", survivors, faults)
	}
	return nil
}

// hunter runs go over the source with a mutant laid over it.
type hunter struct {
	*source
	scratch string
	quick   map[string]string // which tests of a package to run first, by go test's arguments
}

func moduleRoot(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}

// healthy runs every test that is to kill a mutant without one: a test that fails anyway kills nothing. It notes which
// of them are quick.
func (h hunter) healthy(ctx context.Context, out io.Writer, mutants []Mutant) error {
	done := map[string]bool{}
	for _, m := range mutants {
		for _, args := range testsOf(m) {
			if done[args] {
				continue
			}
			done[args] = true
			start := time.Now()
			failed, said, err := h.test(ctx, "", args+" -v")
			switch {
			case err != nil:
				return fmt.Errorf("running go test %s without a mutant: %w", args, err)
			case failed:
				return fmt.Errorf("go test %s fails without a mutant:\n%s", args, said)
			}
			if names := quickOf(said); names != "" {
				h.quick[args] = names
			}
			fmt.Fprintf(out, "        %5.1fs  passes without a mutant: %s\n", time.Since(start).Seconds(), args)
		}
	}
	return nil
}

var (
	passedTest = regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([\d.]+)s\)`)
	passedAll  = regexp.MustCompile(`(?m)^ok\s+\S+\s+([\d.]+)s`)
)

// quickOf names a package's tests that take less than half a second each, as a pattern, by what it said with -v. It
// names none where all the others take less than two seconds, or where what all tests share takes more than one, as it
// would be made ready twice.
func quickOf(said string) string {
	seconds := func(s string) float64 {
		f, _ := strconv.ParseFloat(s, 64) // what fits the patterns and is no number counts nothing
		return f
	}
	var names []string
	slow, shared := 0.0, 0.0
	for _, all := range passedAll.FindAllStringSubmatch(said, -1) {
		shared += seconds(all[1])
	}
	for _, m := range passedTest.FindAllStringSubmatch(said, -1) {
		took := seconds(m[2])
		shared -= took
		if took < 0.5 {
			names = append(names, m[1])
		} else {
			slow += took
		}
	}
	if names == nil || slow < 2 || shared > 1 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// kill returns the first test that fails with the mutant, "" if none does in time. A mutant that does not compile is an
// error.
func (h hunter) kill(ctx context.Context, m Mutant) (by string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	overlay, err := h.lay(m)
	if err != nil {
		return "", err
	}
	for _, args := range testsOf(m) {
		failed, said, err := h.test(ctx, overlay, args)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return "", nil
		case err != nil:
			return "", err
		case failed:
			return killer(said), nil
		}
	}
	return "", nil
}

// lay writes the mutated file and the overlay that puts it in its place.
func (h hunter) lay(m Mutant) (overlay string, err error) {
	path, weaker, err := h.weaken(m)
	if err != nil {
		return "", err
	}
	file := filepath.Join(h.scratch, filepath.Base(path))
	table, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	if err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	overlay = filepath.Join(h.scratch, "overlay.json")
	if err := errors.Join(os.WriteFile(file, []byte(weaker), 0o600), os.WriteFile(overlay, table, 0o600)); err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	return overlay, nil
}

// inTurn runs a test's program twice: its quick tests, and if they pass the others.
const inTurn = `#!/bin/sh
"$@" -test.run '%[1]s' && exec "$@" -test.skip '%[1]s'
`

// test runs go test and reports whether a test failed, as opposed to go. The quick tests of the package come first.
func (h hunter) test(ctx context.Context, overlay, args string) (failed bool, said string, err error) {
	flags := []string{"test", "-count=1", "-vet=off", "-failfast", "-ldflags=-s -w"} // links in half the time
	if names := h.quick[args]; names != "" {
		script := filepath.Join(h.scratch, "inturn")
		if err := os.WriteFile(script, fmt.Appendf(nil, inTurn, names), 0o700); err != nil {
			return false, "", fmt.Errorf("writing script: %w", err)
		}
		flags = append(flags, "-exec="+script)
	}
	said, err = h.goTool(ctx, overlay, append(flags, strings.Fields(args)...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, said, nil
	case strings.Contains(said, "[build failed]"):
		return false, said, fmt.Errorf("does not compile: go test %s: %w\n%s", args, err, said)
	case errors.As(err, &exit) && ctx.Err() == nil && strings.Contains(said, "FAIL") &&
		!strings.Contains(said, "[setup failed]"):
		return true, said, nil
	default:
		return false, said, fmt.Errorf("go test %s: %w\n%s", args, err, said)
	}
}

// goTool runs go in the module's root. The overlay goes through the environment, so that a test which builds a program
// builds the mutant. It ends with all that it started.
func (h hunter) goTool(ctx context.Context, overlay string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = h.root
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	return out.String(), err
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	failedSeed = regexp.MustCompile(`seed \d+ \([a-z]+\): invariant \S+`)
)

// killer names what noticed: the innermost test that go names first, and the seed where it is the simulation.
func killer(said string) string {
	if seed := failedSeed.FindString(said); seed != "" {
		return seed
	}
	name := "a crash"
	if m := failedTest.FindAllStringSubmatch(said, -1); m != nil {
		name = m[0][1]
		for _, sub := range m[1:] { // its subtests follow it, indented
			if strings.HasPrefix(sub[1], name+"/") {
				name = sub[1]
			}
		}
	}
	return name
}
