// Command bench measures forcefence: it is what make bench runs. It starts the real control plane of test/cluster with
// simulated kubelets, machines with Redfish BMCs, and the real forcefence program, and takes the figures that the
// project promises.
//
// Where a promise is a ratio, its floor is measured in the same run on the same cluster: a bare loop that makes the
// same writes with 64 workers, proves nothing and waits for nothing (loop.go). Floor and forcefence take turns in
// pairs, and the order changes from pair to pair, so that neither profits from a machine that warms up or tires.
// forcefence is frozen (SIGSTOP) during the floor's turns, so that it neither helps nor competes. -versus names a
// second forcefence, an older one, that takes turns with both: then each is started anew for its own.
//
// Bench notice times the ways in which a power cut is noticed, beside each other. For lines to nodes it gives the
// machines addresses in a network namespace of its own, and its own network a link there, which are gone when it ends;
// it needs root and iproute2, and says what it leaves out where they or libvirt are missing. Bench offseen is the short
// part of it: one way, with short Leases.
//
// Bench evict times one node's pods and volumes, beside the floor.
//
// Bench fleet measures up to 5,000 nodes, on a simulated API server in this process, and how what they cost grows. Each
// node has a line, as in bench notice.
//
// Bench peers times what Kubernetes offers without forcefence.
//
// It promises that every time in it was seen: pods, nodes and attachments by a watch of its own, the first Off by
// forcefence's log or its record on the Node, all on one machine's clock. A figure is the median; the table shows the
// extremes beside it. -out gets one JSON object a figure; -run replaces the lines of the bench that it runs and keeps
// the others. Logs and configuration of each bench stay in a folder beside that file. It ends after every process that
// it started has.
//
// The exit status is 0 if all could be measured, 1 if not, or with -strict if a limit does not hold, and 2 for wrong
// arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// bench is one measurement.
type bench struct {
	name  string
	asked bool // only by name
	run   func(context.Context, *runner) error
}

var benches = []bench{
	{name: "offseen", run: offSeen},
	{name: "notice", run: notice},
	{name: "evict", run: evict},
	{name: "fleet", run: fleetBench},
	{name: "peers", asked: true, run: peers},
}

type options struct {
	forcefence, versus, out, run string
	pairs                        int
	sizes                        sizesFlag
	strict, logStages            bool
}

func main() {
	os.Exit(run())
}

func run() int {
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
		}
		return 2
	}
	klog.SetLogger(logr.Discard()) // a watch that an API server's end breaks is no news here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once, and with us, on Linux, our children
	r := &runner{o: o}
	failed := false
	for _, b := range benches {
		if !b.chosen(o.run) {
			continue
		}
		if err := r.bench(ctx, b); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", b.name, err)
			failed = true
		}
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "Interrupted; everything that was started has ended.")
			return 130
		}
	}
	if o.run == "" {
		fmt.Println()
		fmt.Print(table(r.all))
	}
	if failed || o.strict && slices.ContainsFunc(r.all, func(f Figure) bool { return f.Holds != nil && !*f.Holds }) {
		return 1
	}
	return 0
}

func (b bench) chosen(run string) bool {
	if run == "" {
		return !b.asked
	}
	return b.name == run
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.forcefence, "forcefence", "bin/forcefence", "the program to measure")
	f.StringVar(&o.versus, "versus", "", "another forcefence that takes turns too, where the floor does; \"\": none")
	f.StringVar(&o.out, "out", "out/bench.jsonl", "file of the figures, one JSON object a line")
	f.StringVar(&o.run, "run", "", "the one bench to run; \"\": all but peers")
	f.IntVar(&o.pairs, "pairs", 7, "turns of forcefence, each with one of the floor")
	f.Var(&o.sizes, "nodes", "sizes of bench fleet, in nodes, such as 500,1000; \"\": its own")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 if a limit does not hold")
	f.BoolVar(&o.logStages, "stages", false, "print what forcefence's log says of each turn's stages")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.pairs < 1:
		return o, fmt.Errorf("-pairs: %d is less than 1", o.pairs)
	}
	if o.run != "" && !slices.ContainsFunc(benches, func(b bench) bool { return b.chosen(o.run) }) {
		var names []string
		for _, b := range benches {
			names = append(names, b.name)
		}
		return o, fmt.Errorf("-run: %q is none of %s", o.run, strings.Join(names, ", "))
	}
	var err error
	if o.out, err = filepath.Abs(o.out); err != nil {
		return o, err
	}
	for _, program := range []*string{&o.forcefence, &o.versus} {
		if *program == "" {
			continue
		}
		if *program, err = filepath.Abs(*program); err != nil {
			return o, err
		}
		if _, err := os.Stat(*program); err != nil {
			return o, fmt.Errorf("finding the forcefence program (make build makes it): %w", err)
		}
	}
	return o, nil
}

// sizesFlag is a list of numbers, separated by commas.
type sizesFlag []int

func (s *sizesFlag) String() string { return strings.Trim(fmt.Sprint([]int(*s)), "[]") }

// or returns the list, or the bench's own if none was given.
func (s sizesFlag) or(own ...int) []int {
	if len(s) > 0 {
		return s
	}
	return own
}

// Set parses it.
func (s *sizesFlag) Set(text string) error {
	*s = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < fleetZones {
			return fmt.Errorf("%q is no number of nodes from %d on", part, fleetZones)
		}
		*s = append(*s, n)
	}
	return nil
}

// runner carries a run's options and figures.
type runner struct {
	o       options
	name    string   // of the bench under way
	figures []Figure // of the bench under way
	all     []Figure
}

// bench runs one bench, prints its figures and puts them into the file. What could be measured before an error is kept.
func (r *runner) bench(ctx context.Context, b bench) error {
	r.name, r.figures = b.name, nil
	begun := time.Now()
	r.say("begins")
	err := b.run(ctx, r)
	r.say("took %s", time.Since(begun).Round(time.Second))
	if len(r.figures) == 0 {
		return err
	}
	r.all = append(r.all, r.figures...)
	fmt.Println()
	fmt.Print(table(r.figures))
	return errors.Join(err, store(r.o.out, b.name, r.figures))
}

// folder is where a bench leaves its logs.
func (r *runner) folder(name string) string {
	return filepath.Join(filepath.Dir(r.o.out), strings.TrimSuffix(filepath.Base(r.o.out), filepath.Ext(r.o.out)), name)
}

// say prints progress.
func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %-10s %s\n", time.Now().UTC().Format("15:04:05"), r.name, fmt.Sprintf(format, args...))
}

// turns are those of a bench that has a floor.
func (r *runner) turns() []side {
	if r.o.versus != "" {
		return turns(r.o.pairs, floorSide, oursSide, versusSide)
	}
	return turns(r.o.pairs, floorSide, oursSide)
}

// figure is ours beside the floor's median. With -versus it adds the other program's, and ours over it, turn by turn.
func (r *runner) figure(name, unit string, by map[side][]float64) Figure {
	if other := by[versusSide]; len(other) > 0 {
		r.add(figure(name+", -versus", unit, other))
		r.add(figure(name+", times -versus, pair by pair", "x", ratios(by[oursSide], other)))
	}
	return figure(name, unit, by[oursSide]).above(by[floorSide])
}

func (r *runner) add(f Figure) {
	if f.Bench == "" {
		f.Bench = r.name
	}
	r.figures = append(r.figures, f)
}
