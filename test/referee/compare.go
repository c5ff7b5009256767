package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// result is one comparison of one system: the raw data of docs/reliability.md.
type result struct {
	System, Title string
	Versions      string
	Date          string // of its end
	Commit        string // of this repository
	Seed          uint64
	LimitSeconds  float64 // until a run is stuck
	Seconds       float64
	Runs          []outcome
}

// compare plays the comparison with the world's system. It writes the result after each run. Each row's first run is
// played before any second, so that a bound leaves something of every row.
func (w *world) compare(ctx context.Context, pattern *regexp.Regexp, began time.Time) error {
	versions, err := w.versions(ctx)
	if err != nil {
		return err
	}
	commit, err := kit.Git(ctx, ".", nil, "rev-parse", "--short=8", "HEAD")
	if err != nil {
		return err
	}
	res := result{System: w.system.name, Title: w.system.title, Versions: versions, Commit: commit, Seed: w.o.seed,
		LimitSeconds: peerLimit.Seconds()}
	n := 0
	for round := range w.o.rounds {
		for i := range maxRuns {
			for _, t := range comparison {
				if !pattern.MatchString(t.name) || !w.system.asks(t.need) || i >= t.runs(0) {
					continue
				}
				if w.o.bound > 0 && time.Since(began) > w.o.bound {
					w.say("the bound of %s is over", w.o.bound)
					return nil
				}
				if t.need == needWrites {
					if err := w.countWrites(ctx); err != nil {
						return err
					}
				}
				n++
				out, err := w.playRow(ctx, n, t.row, i)
				if err != nil {
					return err
				}
				out.Index += maxRuns * round
				w.say("%-18s %3d  %5.1f s  %3d writes  %3d faults  %s", t.name, i, out.Seconds, out.Writes, out.Faults,
					out.Verdict)
				for _, f := range out.Harm[:min(len(out.Harm), 8)] {
					w.say("    %s: %s", f.Check, f.Text)
				}
				for _, e := range out.Ends {
					w.say("    end: %s", e)
				}
				res.Runs = append(res.Runs, out)
				res.Date = time.Now().UTC().Format(time.DateOnly)
				res.Seconds = time.Since(began).Round(time.Second).Seconds()
				if err := res.write(w.o.out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// write writes SYSTEM.json and SYSTEM.md.
func (r result) write(folder string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, r.System+".json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.System+".md"), []byte(reliability([]result{r})), 0o644)
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

// readResults returns all results of a folder, forcefence's first, then by name.
func readResults(folder string) ([]result, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []result
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	order := func(r result) int {
		return slices.IndexFunc(systems, func(s system) bool { return s.name == r.System })
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(order(a), order(b)) })
	return all, nil
}

// cell says how the runs of one row ended: "harmed 1, good 2"; or why none did.
func (r result) cell(t comparedRow) string {
	if s, err := systemOf(r.System); err == nil && !s.asks(t.need) {
		return "not asked"
	}
	count := map[judge.Verdict]int{}
	for _, o := range r.Runs {
		if o.Row == t.name {
			count[o.Verdict]++
		}
	}
	var parts []string
	for _, v := range judge.Verdicts {
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

// reliability returns the tables of docs/reliability.md.
func reliability(all []result) string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head, dashes := []string{"fault"}, []string{"---"}
	for _, r := range all {
		head, dashes = append(head, r.Title), append(dashes, "---")
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
		line(r.Title, r.Versions, fmt.Sprintf("%d in %s", len(r.Runs),
			(time.Duration(r.Seconds)*time.Second).Round(time.Second)), r.harms(),
			fmt.Sprintf("%s, %s, %d", r.Date, r.Commit, r.Seed),
			fmt.Sprintf("`make referee OF=%s SEED=%d`", r.System, r.Seed))
	}
	return b.String()
}
