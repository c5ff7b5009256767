// Package main changes the product's source, one place at a time, and expects a test to fail: `make mutants`.
//
// Most changes are generated (generate.go): a statement or a case is removed, a condition is negated or loses an arm, a
// constant, a number or two arguments are swapped. A seed chooses which are tried. Beside these there is a table of
// changes that people wrote (protocol.txt), for each invariant of docs/protocol.md.
//
// Gremlins does not fit. It changes operators only, removes no statement or case, and runs either the tests of the
// package alone or those of the whole module: our decisions are tested by the packages that import them.
//
// The changed file is laid over the source with go's -overlay, so the working tree is never touched. A mutant is killed
// when a test fails or hangs. One that survives is a defect of the tests, unless accepted.txt gives a reason.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
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

// limit is how long one test command may take with a mutant. Without one, none takes a third of it.
const limit = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	var s sampling
	h := hunter{out: out}
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.Uint64Var(&s.seed, "seed", 0, "which generated mutants are tried; 0: none but the table's")
	flags.IntVar(&s.count, "count", 300, "how many generated mutants")
	flags.DurationVar(&h.time, "time", 0, "begin no mutant later than this; 0: try all")
	flags.IntVar(&h.jobs, "jobs", runtime.NumCPU(), "how many are tried at the same time")
	only := flags.String("only", "", "a regular expression: choose among those whose ID matches")
	list := flags.Bool("list", false, "print what would be tried")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("reading -only: %w", err)
	}
	if h.root, err = moduleRoot(ctx); err != nil {
		return err
	}
	src := newSource(h.root)
	var chosen []Candidate
	if s.seed == 0 {
		chosen, err = src.placeProtocol()
		chosen = slices.DeleteFunc(chosen, func(c Candidate) bool { return !s.only.MatchString(c.ID) })
	} else {
		chosen, err = chooseGenerated(ctx, out, src, s)
	}
	if err != nil {
		return err
	}
	if *list {
		for _, c := range chosen {
			fmt.Fprintln(out, c.ID)
		}
		return nil
	}
	if h.graph, err = readGraph(ctx, h.root); err != nil {
		return err
	}
	if h.accepted, err = readAccepted(h.root); err != nil {
		return err
	}
	return h.hunt(ctx, chosen)
}

// hunter tries mutants.
type hunter struct {
	root     string
	jobs     int
	time     time.Duration // no mutant begins later; 0: all do
	out      io.Writer
	graph    *graph
	accepted map[string]string // reasons by ID
	scratch  string
}

// tally is what became of a package's mutants.
type tally struct{ killed, survived, accepted int }

// hunt tries the mutants and prints one line for each, and the sum by package. The error names those that survived
// without a reason.
func (h hunter) hunt(ctx context.Context, mutants []Candidate) error {
	scratch, err := os.MkdirTemp("", "forcefence-mutants-")
	if err != nil {
		return fmt.Errorf("making scratch folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	begin := time.Now()
	var mu sync.Mutex // guards what follows, and h.out
	tallies := map[string]*tally{}
	var survivors []string
	tried := 0
	try := func(i int, c Candidate) error {
		if h.time > 0 && time.Since(begin) > h.time {
			return nil
		}
		start, one := time.Now(), h
		one.scratch = filepath.Join(scratch, strconv.Itoa(i))
		by, err := one.kill(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		tried++
		t := tallies[c.Dir]
		if t == nil {
			t = &tally{}
			tallies[c.Dir] = t
		}
		verdict := "killed by " + by
		switch reason := h.accepted[c.ID]; {
		case by != "":
			t.killed++
		case reason != "":
			t.accepted++
			verdict = "ACCEPTED: " + reason
		default:
			t.survived++
			verdict = fmt.Sprintf("SURVIVED at %s:%d", c.Path, c.Line)
			survivors = append(survivors, c.ID)
		}
		fmt.Fprintf(h.out, "%3d/%d %5.1fs  %s  %s\n", tried, len(mutants), time.Since(start).Seconds(), c.ID, verdict)
		return nil
	}
	var work errgroup.Group
	work.SetLimit(max(1, h.jobs))
	for i, c := range mutants {
		work.Go(func() error { return try(i, c) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	sum := tally{}
	for _, dir := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[dir]
		fmt.Fprintf(h.out, "%-28s %3d killed  %3d survived  %3d accepted\n", dir, t.killed, t.survived, t.accepted)
		sum = tally{sum.killed + t.killed, sum.survived + t.survived, sum.accepted + t.accepted}
	}
	fmt.Fprintf(h.out, "%d mutants: %d killed (%.1f %%), %d survived, %d accepted, %.1f minutes\n", tried, sum.killed,
		100*float64(sum.killed)/float64(max(tried, 1)), sum.survived, sum.accepted, time.Since(begin).Minutes())
	if len(survivors) > 0 {
		return fmt.Errorf("no test notices:\n%s", strings.Join(survivors, "\n"))
	}
	return nil
}

// kill returns the first test that fails with the mutant; "" if none does.
func (h hunter) kill(ctx context.Context, c Candidate) (by string, err error) {
	overlay, err := h.lay(c)
	if err != nil {
		return "", err
	}
	testers := c.Tests
	if testers == nil {
		testers = h.graph.testers(c.Dir)
	}
	for _, args := range testers {
		failed, said, err := h.test(ctx, overlay, args)
		if err != nil {
			return "", err
		} else if failed {
			return killer(said), nil
		}
	}
	return "", nil
}

// lay writes the changed file, and the overlay that puts it in its place.
func (h hunter) lay(c Candidate) (overlay string, err error) {
	text, err := c.text()
	if err != nil {
		return "", err
	}
	file := filepath.Join(h.scratch, filepath.Base(c.Path))
	table, err := json.Marshal(map[string]any{"Replace": map[string]string{c.Path: file}})
	if err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	overlay = filepath.Join(h.scratch, "overlay.json")
	if err := errors.Join(os.MkdirAll(h.scratch, 0o700), os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(overlay, table, 0o600)); err != nil {
		return "", fmt.Errorf("writing overlay: %w", err)
	}
	return overlay, nil
}

// test runs go test, and reports whether a test failed, as opposed to go. What takes longer than limit has hung, which
// no test lets pass.
func (h hunter) test(ctx context.Context, overlay, args string) (failed bool, said string, err error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said, err = h.goTool(within, overlay, append([]string{"test", "-count=1", "-vet=off", "-failfast",
		"-ldflags=-s -w"}, strings.Fields(args)...)...) // links in half the time
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, said, nil
	case errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		return true, "--- FAIL: time-out (" + args + ")\n", nil
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
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" '-overlay="+overlay+"'"))
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
