package main

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// options are the flags.
type options struct {
	command, config, deploy, out, run string
	of, hand                          string
	seed                              uint64
	rounds                            int
	bound                             time.Duration
	noLease, noMutants, keep          bool
}

func main() { os.Exit(run1()) }

func run1() int {
	var o options
	flag.StringVar(&o.command, "command", "bin/forcefence run --config {config} --kubeconfig {kubeconfig}",
		"the judged command; also {device}, {device-user}, {device-password-file}, {device-ca}")
	flag.StringVar(&o.config, "config", "", "its configuration, with the same words in braces; empty: forcefence's")
	flag.StringVar(&o.deploy, "deploy", "deploy/install.yaml",
		"manifests that are applied first, without what runs pods")
	flag.StringVar(&o.out, "out", "out/referee", "folder of results")
	flag.StringVar(&o.run, "run", ".", "rows: a regexp of their names")
	flag.StringVar(&o.of, "of", "", "compare: play what all systems are judged by, with this one, into OF.jsonl "+
		"of the folder, and go on where that ends; empty: forcefence's own table")
	flag.StringVar(&o.hand, "hand", "", "only set out-of-service taints at NotReady, with this kubeconfig")
	flag.IntVar(&o.rounds, "rounds", 1, "of a comparison: how often each run is played")
	flag.Uint64Var(&o.seed, "seed", 0, "0: a random one")
	flag.DurationVar(&o.bound, "bound", 0, "no new run after that, and of forcefence's own table only the bounded "+
		"part; 0: all")
	flag.BoolVar(&o.noLease, "no-lease", false, "the command elects no leader in namespace forcefence-system")
	flag.BoolVar(&o.noMutants, "no-mutants", false, "leave out the mutants of our own source")
	flag.BoolVar(&o.keep, "keep", false, "keep the control plane's folder")
	flag.Parse()
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	klog.SetOutput(io.Discard) // client-go's, of watches that end
	klog.LogToStderr(false)
	log.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.hand != "" {
		if err := hand(ctx, o.hand); err != nil {
			fmt.Fprintln(os.Stderr, "referee:", err)
			return 2
		}
		return 0
	}
	bad, err := referee(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "referee:", err)
		return 2
	}
	if bad {
		return 1
	}
	return 0
}

// referee plays the table, writes it, and reports whether anything was found that should not, or not found that should.
func referee(ctx context.Context, o options) (bad bool, err error) {
	pattern, err := regexp.Compile(o.run)
	if err != nil {
		return false, err
	}
	sys := forcefence
	if o.of != "" {
		if sys, err = systemOf(o.of); err != nil {
			return false, err
		}
	}
	began := time.Now()
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "referee-")
	if err != nil {
		return false, err
	}
	config := defaultConfig
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err != nil {
			return false, err
		}
		config = string(text)
	}
	say := func(format string, args ...any) {
		fmt.Printf("%7.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	say("seed %d, in %s", o.seed, dir)
	live, end := context.WithCancel(ctx)
	w, err := startWorld(live, dir, config, sys, o, say)
	defer func() {
		end()
		w.stop()
		if (bad || o.keep || err != nil) && dir != "" {
			say("logs are in %s", dir)
			return
		}
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
	}()
	if err != nil {
		return false, fmt.Errorf("starting: %w", err)
	}
	say("control plane and nodes are up")
	if w.compares() {
		return false, w.compare(ctx, pattern, began)
	}

	var all []outcome
	full := func(t row) int { return t.runs(w.writes) }
	n := 0
	var rows []row
	if !o.noMutants { // first: a bound must not leave them out
		rows = append(rows, mutantRows...)
	}
	rows = append(rows, table...)
	for _, t := range rows {
		if !pattern.MatchString(t.name) || t.config != "" && o.config != "" {
			continue
		}
		w.command = o.command
		if full(t) == 0 {
			if err := w.countWrites(ctx); err != nil {
				return false, err
			}
		}
		indices := make([]int, full(t))
		for i := range indices {
			indices[i] = i
		}
		if o.bound > 0 {
			indices = t.brief
		}
		if t.config != "" && len(indices) > 0 {
			if err := w.addNeighbours(ctx); err != nil {
				return false, err
			}
		}
		if t.mutant != nil && len(indices) > 0 {
			binary, err := t.mutant.build(ctx, dir)
			if err != nil {
				return false, err
			}
			w.command = strings.Replace(o.command, strings.Fields(o.command)[0], binary, 1)
		}
		for _, i := range indices {
			if o.bound > 0 && time.Since(began) > o.bound {
				say("the bound of %s is over", o.bound)
				break
			}
			n++
			out, err := w.playRow(ctx, n, t, i)
			if err != nil {
				return false, err
			}
			say("%-18s %3d  %5.1f s  %3d writes  %3d faults  %d findings", t.name, i, out.Seconds, out.Writes,
				out.Faults, len(out.Findings))
			for _, f := range out.Findings[:min(len(out.Findings), 8)] {
				say("    %s: %s", f.Check, f.Text)
			}
			all = append(all, out)
		}
	}
	lines, bad := summary(rows, all)
	text := markdown(lines, o, time.Since(began))
	fmt.Print("\n", text)
	return bad, os.WriteFile(filepath.Join(o.out, "referee.md"), []byte(text), 0o644)
}

// playRow plays a row's run i, which is the n-th of all.
func (w *world) playRow(ctx context.Context, n int, t row, i int) (outcome, error) {
	seed := fnv.New64()
	fmt.Fprint(seed, t.name, i)
	rng := rand.New(rand.NewPCG(w.o.seed, seed.Sum64()))
	f := t.make(w, i, rng)
	f.config = t.config
	out, err := w.play(ctx, fmt.Sprintf("r%d", n), rng, f)
	if err != nil {
		return out, fmt.Errorf("row %s, run %d: %w", t.name, i, err)
	}
	out.Row, out.Index = t.name, i
	if t.name == "none" {
		w.noteWrites(out.Writes)
	}
	return out, nil
}

// noteWrites takes how many writes a fence without faults had. Of several such fences the whole table takes the most,
// so that no write is left out, and a comparison the least, so that another fence has that many.
func (w *world) noteWrites(n int) {
	switch {
	case w.writes == 0:
		w.writes = n
	case w.compares():
		w.writes = min(w.writes, n)
	default:
		w.writes = max(w.writes, n)
	}
}

// countWrites plays a run without faults if it is not known yet how many writes there are.
func (w *world) countWrites(ctx context.Context) error {
	if w.writes > 0 {
		return nil
	}
	out, err := w.play(ctx, "r0", rand.New(rand.NewPCG(w.o.seed, 0)), &faults{})
	w.writes = out.Writes
	return err
}

// line is a row of the table that is printed.
type line struct {
	Row, What string
	Runs      int
	Faults    int
	Findings  map[string]int // by check: in so many runs
	Seconds   float64
	Verdict   string
}

// summary adds up; a row of a mutant is bad where nothing was found by its check.
func summary(rows []row, all []outcome) (lines []line, bad bool) {
	for _, t := range rows {
		l := line{Row: t.name, What: t.what, Findings: map[string]int{}}
		for _, o := range all {
			if o.Row != t.name {
				continue
			}
			l.Runs++
			l.Faults += o.Faults
			l.Seconds += o.Seconds
			checks := map[string]bool{}
			for _, f := range o.Findings {
				checks[f.Check] = true
			}
			for c := range checks {
				l.Findings[c]++
			}
		}
		switch {
		case l.Runs == 0:
			continue
		case t.mutant != nil && l.Findings[t.check] > 0:
			l.Verdict = "found"
		case t.mutant != nil:
			l.Verdict = "NOT FOUND"
			bad = true
		case len(l.Findings) > 0:
			l.Verdict = "FINDINGS"
			bad = true
		default:
			l.Verdict = "kept"
		}
		lines = append(lines, l)
	}
	return lines, bad
}

func markdown(lines []line, o options, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`, seed %d, %s\n\n", o.command, o.seed, took.Round(time.Second))
	b.WriteString("| row | what goes wrong | runs | faults | findings | seconds | |\n| --- | --- | --- | --- | --- | " +
		"--- | --- |\n")
	runs, faults := 0, 0
	for _, l := range lines {
		var found []string
		for _, c := range slices.Sorted(maps.Keys(l.Findings)) {
			found = append(found, fmt.Sprintf("%s in %d", c, l.Findings[c]))
		}
		if len(found) == 0 {
			found = []string{"0"}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s | %.0f | %s |\n", l.Row, l.What, l.Runs, l.Faults,
			strings.Join(found, ", "), l.Seconds, l.Verdict)
		runs += l.Runs
		faults += l.Faults
	}
	fmt.Fprintf(&b, "| | | %d | %d | | %.0f | |\n", runs, faults, took.Seconds())
	return b.String()
}
