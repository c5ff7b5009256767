// Command bench measures forcefence: it is what make bench runs. It starts the real control plane of test/cluster with
// simulated kubelets, machines with Redfish BMCs, and the real forcefence program, and takes the figures that the
// project promises.
//
// Where a promise is a ratio, its floor is measured in the same run on the same cluster: a bare loop that makes the
// same writes with 64 workers, proves nothing and waits for nothing (loop.go). Floor and forcefence take turns in
// pairs, and the order changes from pair to pair, so that neither profits from a machine that warms up or tires.
// forcefence is frozen (SIGSTOP) during others' turns, so that it neither helps nor competes. So the ratio of two
// builds can be compared, though the machine's load cannot.
//
// Bench notice times the ways in which a power cut is noticed, beside each other. For lines to nodes it gives the
// machines addresses in a network namespace of its own, and its own network a link there, which are gone when it ends;
// it needs root and iproute2, and says what it leaves out where they or libvirt are missing. Bench offseen is the short
// part of it: one way, with short Leases.
//
// Bench evict times one node's pods and volumes, beside the floor.
//
// Bench first times the pods of the highest priority, which have volumes, beside the floor, and beside a fence whose
// node has only them.
//
// Bench fleet measures what 5,000 nodes cost while nothing is wrong. Each node has a line, as in bench notice.
//
// Bench peers times forcefence beside what Kubernetes and other projects offer without it, in turns. It says of each
// whether it was sure that the machine was off. It needs the fence agent fence_redfish.
//
// Bench p99 repeats real fences of QEMU guests: noticed by libvirt's events, and by a line to a machine behind
// OpenIPMI's BMC simulator. It needs root. Its raw data is a file beside the table, p99.jsonl, with a line for each
// power cut (rawdata.go). A later run continues it. The table says what the slowest fences waited for.
//
// It promises that every time in it was seen: pods, nodes and attachments by the cluster's watch, the first Off by
// forcefence's log or its record on the Node, all on one machine's clock. A figure is the median; the table shows the
// extremes beside it. The folder -out gets the table of each bench, the raw data of peers and first, and a folder of
// logs and configuration. It ends after every process that it started has.
//
// The exit status is 0 if all could be measured, 1 if not, and 2 for wrong arguments.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
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
	{name: "first", asked: true, run: first},
	{name: "fleet", run: fleetBench},
	{name: "peers", asked: true, run: comparePeers},
	{name: "p99", asked: true, run: p99},
}

type options struct {
	forcefence, out, run string
	pairs, nodes         int
	rounds, pods         int      // of bench p99
	systems              []string // of bench peers; nil: all
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
	log.SetLogger(logr.Discard())  // controller-runtime would print a stack, 30 s after its first client was made
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
	if failed {
		return 1
	}
	return 0
}

func (b bench) chosen(run string) bool { return run == b.name || run == "" && !b.asked }

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.forcefence, "forcefence", "bin/forcefence", "the program to measure")
	f.StringVar(&o.out, "out", "out/bench", "folder of the figures and logs")
	f.StringVar(&o.run, "run", "", "the one bench to run; \"\": all but first, peers and p99")
	f.IntVar(&o.pairs, "pairs", 7, "turns of forcefence, each with one of the floor; in bench peers at most 3")
	f.Func("systems", "the systems of bench peers, as beginnings of their names with commas; \"\": all",
		func(s string) error {
			o.systems = strings.Split(s, ",")
			return nil
		})
	f.IntVar(&o.nodes, "nodes", fleetNodes, "nodes of bench fleet")
	f.IntVar(&o.rounds, "rounds", 100, "power cuts of bench p99, half of them in each way; those of earlier runs count")
	f.IntVar(&o.pods, "pods", 30, "pods on the machine in bench p99")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.pairs < 1:
		return o, fmt.Errorf("-pairs: %d is less than 1", o.pairs)
	case o.rounds < len(p99Ways):
		return o, fmt.Errorf("-rounds: %d is less than %d, one for each way", o.rounds, len(p99Ways))
	case o.pods < 5:
		return o, fmt.Errorf("-pods: %d is less than 5, one of which has a volume", o.pods)
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
	if o.forcefence, err = filepath.Abs(o.forcefence); err != nil {
		return o, err
	}
	if _, err := os.Stat(o.forcefence); err != nil {
		return o, fmt.Errorf("finding the forcefence program (make build makes it): %w", err)
	}
	return o, nil
}

// runner carries a run's options and figures.
type runner struct {
	o       options
	name    string   // of the bench under way
	figures []Figure // of the bench under way
	results results  // of the bench under way, if it keeps raw data
}

// bench runs one bench, prints its figures and puts them into the file. What could be measured before an error is kept.
func (r *runner) bench(ctx context.Context, b bench) error {
	r.name, r.figures, r.results = b.name, nil, nil
	begun := time.Now()
	r.say("begins")
	err := b.run(ctx, r)
	r.say("took %s", time.Since(begun).Round(time.Second))
	switch {
	case r.results != nil:
		raw, failed := json.MarshalIndent(r.results, "", " ")
		return errors.Join(err, failed, os.WriteFile(r.folder(b.name)+".json", append(raw, '\n'), 0o644),
			r.print(b.name+".md", r.results.markdown()))
	case len(r.figures) > 0:
		return errors.Join(err, r.print(b.name+".txt", table(r.figures)))
	}
	return err
}

// print prints a table and keeps it in a file of the folder -out.
func (r *runner) print(file, table string) error {
	fmt.Print("\n", table)
	return os.WriteFile(r.folder(file), []byte(table), 0o644)
}

// folder is where a bench leaves its logs.
func (r *runner) folder(name string) string { return filepath.Join(r.o.out, name) }

// say prints progress.
func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %-10s %s\n", time.Now().UTC().Format("15:04:05"), r.name, fmt.Sprintf(format, args...))
}

func (r *runner) add(f Figure) {
	f.Bench = r.name
	r.figures = append(r.figures, f)
}
