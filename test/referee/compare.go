package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/peers"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// need is what a row asks of a system. Without it the row is not asked.
type need string

const (
	needWrites need = "programs" // whose requests can be perturbed
	needDevice need = "a device"
)

// maxRuns is how many runs a row of a comparison may have.
const maxRuns = 3

// comparedRow is a row of a comparison. Its faults follow from no system's own steps.
type comparedRow struct {
	row
	need need
}

// comparison is what every system is judged by: the worst rows of the table, and two of its own.
var comparison = []comparedRow{
	{row: row{name: "none", what: "no fault but the power cut", runs: fixed(3), make: noFaults}},
	{row: row{name: "network-cut", runs: fixed(3), what: "the machine keeps its power and its pods run on, but its " +
		"kubelet loses the API server", make: func(*world, int, *rand.Rand) *faults { return &faults{cut: true} }}},
	{row: row{name: "back-later", what: "the machine boots 2 s, 15 s and 40 s after the power cut", runs: fixed(3),
		make: func(_ *world, i int, _ *rand.Rand) *faults {
			return bootsAfter([]time.Duration{2 * time.Second, 15 * time.Second, 40 * time.Second}[i])
		}}},
	{need: needWrites, row: row{name: "back-after", what: "the machine boots right after the first, middle, last write",
		runs: fixed(3), make: func(w *world, i int, _ *rand.Rand) *faults { return returns(w.thirds(i), true) }}},
	{need: needWrites, row: row{name: "killed-before", runs: fixed(3),
		what: "a program is killed right before it sends the first, middle, last write",
		make: onThirds(func(q request) verdict { return verdict{Before: q.Slot.process().Crash, Drop: true} })}},
	{need: needWrites, row: row{name: "killed-after", runs: fixed(3),
		what: "a program is killed right after it has sent the first, middle, last write",
		make: onThirds(func(q request) verdict { return verdict{After: q.Slot.process().Crash, Lose: true} })}},
	{need: needWrites, row: row{name: "stopped", runs: fixed(3),
		what: "a program is stopped for 20 s right after the first, middle, last write",
		make: func(w *world, i int, _ *rand.Rand) *faults { return stopped(w.thirds(i), 20*time.Second) }}},
	{need: needWrites, row: fromTable("watch-reset", 2)},
	{need: needWrites, row: fromTable("watch-gone", 2)},
	{need: needWrites, row: fromTable("watch-dropped", 2)},
	{need: needWrites, row: fromTable("watch-late", 2)},
	{need: needWrites, row: fromTable("lost-answers", 3)},
	{need: needWrites, row: fromTable("409", 2)},
	{need: needWrites, row: fromTable("429", 2)},
	{need: needWrites, row: fromTable("500", 3)},
	{need: needDevice, row: fromTable("device-flaps", 2)},
	{need: needDevice, row: fromTable("device-slow", 2)},
	{need: needDevice, row: fromTable("device-cut", 2)},
	{need: needDevice, row: fromTable("device-503", 2)},
}

// fromTable returns the first runs of a row of forcefence's table.
func fromTable(name string, runs int) row {
	r := table[slices.IndexFunc(table, func(r row) bool { return r.name == name })]
	r.runs = fixed(runs)
	return r
}

// thirds returns the number of the first, middle or last write of a fence without faults.
func (w *world) thirds(i int) int { return 1 + i*max(0, w.writes-1)/2 }

func onThirds(do func(request) verdict) func(*world, int, *rand.Rand) *faults {
	return func(w *world, i int, _ *rand.Rand) *faults { return &faults{request: onWrite(w.thirds(i), do)} }
}

// bootsAfter boots the machine so long after the power cut.
func bootsAfter(d time.Duration) *faults {
	return &faults{back: true, during: func(ctx context.Context, r *run) {
		if cluster.Sleep(ctx, d) {
			r.machine.PowerOn()
		}
	}}
}

// asks reports whether a system is judged by what needs this.
func (s system) asks(n need) bool {
	return n == "" || n == needWrites && s.install != nil || n == needDevice && s.device
}

// played is one run of a comparison: a line of SYSTEM.jsonl, the raw data of docs/reference/measurements.md.
type played struct {
	System   string
	Versions string
	Date     string // of its end
	Commit   string // of this repository
	Seed     uint64
	outcome
}

// result is all that was played with one system. It has a run.
type result struct {
	system
	Runs []played
}

// turn is a run that is to be played.
type turn struct {
	comparedRow
	index int
}

// turns returns the runs that are to be played with a system, without what was played earlier. Each row's first run
// comes before any second, so that a bound leaves something of every row.
func turns(s system, pattern *regexp.Regexp, rounds int, earlier []played) (all []turn) {
	for index := range maxRuns * rounds {
		for _, t := range comparison {
			was := slices.ContainsFunc(earlier, func(p played) bool { return p.Row == t.name && p.Index == index })
			if pattern.MatchString(t.name) && s.asks(t.need) && index%maxRuns < t.runs(0) && !was {
				all = append(all, turn{t, index})
			}
		}
	}
	return all
}

// compare goes on with the comparison of the world's system where the file of raw data ends. It adds each run to that
// file once it is over.
func (w *world) compare(ctx context.Context, pattern *regexp.Regexp, began time.Time) error {
	now := played{System: w.system.name, Seed: w.o.seed}
	var err error
	if now.Versions, err = w.versions(ctx); err != nil {
		return err
	}
	if now.Commit, err = kit.Git(ctx, ".", nil, "rev-parse", "--short=8", "HEAD"); err != nil {
		return err
	}
	file := filepath.Join(w.o.out, w.system.name+".jsonl")
	earlier, err := readRuns(file)
	if err != nil {
		return err
	}
	for i, p := range earlier {
		if p.Seed != now.Seed || p.Versions != now.Versions {
			return fmt.Errorf("%s, run %d: it has seed %d and %s, not seed %d and %s: go on with the former, or move "+
				"the file away", file, i+1, p.Seed, p.Versions, now.Seed, now.Versions)
		}
		if p.Row == "none" {
			w.noteWrites(p.Writes)
		}
	}
	for n, t := range turns(w.system, pattern, w.o.rounds, earlier) {
		if w.o.bound > 0 && time.Since(began) > w.o.bound {
			w.say("the bound of %s is over", w.o.bound)
			return nil
		}
		if t.need == needWrites {
			if err := w.countWrites(ctx); err != nil {
				return err
			}
		}
		out, err := w.playRow(ctx, n+1, t.row, t.index%maxRuns)
		if err != nil {
			return err
		}
		out.Index = t.index
		w.say("%-18s %3d  %5.1f s  %3d writes  %3d faults  %s", t.name, out.Index, out.Seconds, out.Writes, out.Faults,
			out.Verdict)
		for _, f := range out.Harm[:min(len(out.Harm), 8)] {
			w.say("    %s: %s", f.Check, f.Text)
		}
		for _, e := range out.Ends {
			w.say("    end: %s", e)
		}
		now.outcome, now.Date = out, time.Now().UTC().Format(time.DateOnly)
		if err := now.appendTo(file); err != nil {
			return err
		}
	}
	return nil
}

// appendTo adds the run to a file, as one line in one write.
func (p played) appendTo(file string) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readRuns reads the runs of a file. A file that is not there has none.
func readRuns(file string) (all []played, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	for d.More() {
		var p played
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("%s, run %d: %w", file, len(all)+1, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// versions are those of Kubernetes and of the system's programs.
func (w *world) versions(ctx context.Context) (string, error) {
	server, err := w.Client().Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	text := "Kubernetes " + server.GitVersion
	if w.peers == nil {
		return text, nil
	}
	programs, err := peers.Versions(ctx, w.system.name)
	return text + ", " + programs, err
}

// readResults returns what a folder has of each system, in their order.
func readResults(folder string) (all []result, err error) {
	for _, s := range systems {
		runs, err := readRuns(filepath.Join(folder, s.name+".jsonl"))
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			all = append(all, result{s, runs})
		}
	}
	return all, nil
}

// cell says how the runs of one row ended: "harmed 1, good 2"; or why none did. A good run without the row's fault says
// nothing of it.
func (r result) cell(t comparedRow) string {
	if !r.asks(t.need) {
		return "not asked"
	}
	const notMet judge.Verdict = "not met"
	count := map[judge.Verdict]int{}
	for _, o := range r.Runs {
		switch {
		case o.Row != t.name:
		case t.need != "" && o.Faults == 0 && o.Verdict == judge.Good:
			count[notMet]++
		default:
			count[o.Verdict]++
		}
	}
	var parts []string
	for _, v := range append(slices.Clone(judge.Verdicts), notMet) {
		if count[v] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", v, count[v]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "not played")
}

// harms are the kinds of harm, each with in how many runs.
func (r result) harms() string {
	kinds := []string{judge.CheckTwice, judge.CheckTaken, judge.CheckPower, judge.CheckForeign}
	count := map[string]int{}
	for _, o := range r.Runs {
		for _, c := range kinds {
			if slices.ContainsFunc(o.Harm, func(f judge.Finding) bool { return f.Check == c }) {
				count[c]++
			}
		}
	}
	var parts []string
	for _, c := range kinds {
		if count[c] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, count[c]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// reliability returns the tables of docs/reference/measurements.md.
func reliability(all []result) string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head, dashes := []string{"fault"}, []string{"---"}
	for _, r := range all {
		head, dashes = append(head, r.title), append(dashes, "---")
	}
	line(head...)
	line(dashes...)
	for _, t := range comparison {
		cells := []string{fmt.Sprintf("`%s`: %s", t.name, t.what)}
		for _, r := range all {
			cells = append(cells, r.cell(t))
		}
		line(cells...)
	}
	b.WriteString("\n")
	line("system", "versions", "runs", "kinds of harm, each in so many runs", "date, commit, seed", "repeat")
	line("---", "---", "---", "---", "---", "---")
	for _, r := range all {
		var commits []string
		seconds := 0.0
		for _, p := range r.Runs {
			if seconds += p.Seconds; !slices.Contains(commits, p.Commit) {
				commits = append(commits, p.Commit)
			}
		}
		last := r.Runs[len(r.Runs)-1]
		dates := last.Date
		if first := r.Runs[0].Date; first != dates {
			dates = first + " to " + dates
		}
		line(r.title, last.Versions, fmt.Sprintf("%d in %s", len(r.Runs),
			(time.Duration(seconds)*time.Second).Round(time.Second)), r.harms(),
			fmt.Sprintf("%s, %s, %d", dates, strings.Join(commits, " "), last.Seed),
			fmt.Sprintf("`make referee OF=%s SEED=%d`", r.name, last.Seed))
	}
	return b.String()
}
