package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// podSteps are what a fence does one after the other until the last pod runs. Each lasts from the end of the one
// before.
var podSteps = []struct {
	name  string
	until moment
	pod   bool // the moment is the pod's or its replacement's; else the node's
}{
	{"power cut, until it is noticed", noticed, false},
	{"until the device says Off", off, false},
	{"until the node is marked", marked, false},
	{"until the pod is ended", ended, true},
	{"until the pod is gone", gone, true},
	{"until its replacement is created", created, true},
	{"until that is scheduled", bound, true},
	{"until its volume is attached", attached, true},
	{"until it is Ready", lastRunning, false},
}

// total is from the power cut until every pod ran elsewhere; infinite if that did not happen.
func (r fenceRound) total() float64 {
	if at, is := r.At[lastRunning]; is && r.NotEnded == "" {
		return at
	}
	return math.Inf(1)
}

// ends returns when each of the steps ended of the last pod to run. A step whose moment was not seen, or came out of
// order, took no time: a pod without a volume waits for no attachment, and a Deployment's replacement does not wait
// until the old pod is gone.
func (r fenceRound) ends() (out []float64) {
	before := 0.0
	for _, s := range podSteps {
		of := r.At
		if s.pod {
			of = r.PodAt
		}
		if at, is := of[s.until]; is {
			before = max(before, min(at, r.At[lastRunning]))
		}
		out = append(out, before)
	}
	return out
}

// took returns how long each of the steps took. They add up to the total.
func (r fenceRound) took() (out []float64) {
	before := 0.0
	for _, at := range r.ends() {
		out = append(out, round(at-before))
		before = at
	}
	return out
}

// percentile is the smallest sample that p of 100 samples do not exceed. There must be a sample.
func percentile(samples []float64, p int) float64 {
	s := slices.Sorted(slices.Values(samples))
	return s[(len(s)*p+99)/100-1]
}

// slowRound is one of the slowest, and the step that took longest against its median.
type slowRound struct {
	fenceRound
	number int // in its way, from 1
	step   int // -1: the round did not end
	took   float64
	median float64
	why    string
}

// slowest returns the slowest one per cent of the rounds of one way, at least one, the slowest first.
func slowest(rounds []fenceRound) (slow []slowRound) {
	medians := make([]float64, len(podSteps))
	for i := range podSteps {
		if seconds := stepTimes(rounds, i); len(seconds) > 0 {
			medians[i] = percentile(seconds, 50)
		}
	}
	for i, r := range rounds {
		slow = append(slow, r.slow(i+1, medians))
	}
	slices.SortStableFunc(slow, func(a, b slowRound) int { return cmp.Compare(b.total(), a.total()) })
	return slow[:(len(slow)+99)/100]
}

func (r fenceRound) slow(number int, medians []float64) slowRound {
	s := slowRound{fenceRound: r, number: number, step: -1, why: r.NotEnded}
	if math.IsInf(r.total(), 1) {
		return s
	}
	for i, took := range r.took() {
		if s.step < 0 || took-medians[i] > s.took-s.median {
			s.step, s.took, s.median = i, took, medians[i]
		}
	}
	end := r.ends()[s.step]
	s.why = strings.Join(r.reasonsBetween(end-s.took, end), ", ")
	return s
}

// reasonsBetween returns what forcefence did or waited for in that time, in order, each once. An act lasts from the
// entry before it until its own, a wait from its own until the next. When an act after a wait began is not known.
func (r fenceRound) reasonsBetween(from, to float64) (why []string) {
	before := reasonAt{}
	for i, reason := range r.Reasons {
		began, over := before.At, reason.At
		switch {
		case reason.Wait && i+1 < len(r.Reasons):
			began, over = reason.At, r.Reasons[i+1].At
		case reason.Wait:
			began, over = reason.At, math.Inf(1)
		case before.Wait:
			began = reason.At
		}
		if began < to && over > from && !slices.Contains(why, reason.Why) {
			why = append(why, reason.Why)
		}
		before = reason
	}
	return why
}

// stepTimes returns what a step took in the rounds that ended.
func stepTimes(rounds []fenceRound, step int) (seconds []float64) {
	for _, r := range rounds {
		if !math.IsInf(r.total(), 1) {
			seconds = append(seconds, r.took()[step])
		}
	}
	return seconds
}

// grid is a table: a head and its rows.
type grid [][]string

// text is for terminals.
func (g grid) markdown() string {
	var b strings.Builder
	for i, row := range g {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
	return b.String()
}

// ofWay returns the rounds of a way, in order.
func ofWay(all []fenceRound, way string) (rounds []fenceRound) {
	for _, r := range all {
		if r.Way == way {
			rounds = append(rounds, r)
		}
	}
	return rounds
}

// percentiles returns the figures of whole fences, a row for each way, and of their steps, a column for each way.
func percentiles(all []fenceRound) (fences, parts grid) {
	fences = grid{{"noticed by", "fences", "p50", "p90", "p99", "maximum", "goal for p99", "first noticed by"}}
	parts = grid{{"step of the last pod"}}
	for _, s := range podSteps {
		parts = append(parts, []string{s.name})
	}
	for _, w := range p99Ways {
		rounds := ofWay(all, w.name)
		if len(rounds) == 0 {
			continue
		}
		var totals []float64
		by := map[string]int{}
		for _, r := range rounds {
			totals = append(totals, r.total())
			by[r.By]++
		}
		var signals []string
		for _, name := range slices.Sorted(maps.Keys(by)) {
			signals = append(signals, fmt.Sprintf("%s %d", cmp.Or(name, "not seen"), by[name]))
		}
		fences = append(fences, slices.Concat([]string{w.name, fmt.Sprint(len(rounds))},
			seconds(totals, 50, 90, 99, 100), []string{secs(w.limit), strings.Join(signals, ", ")}))
		parts[0] = append(parts[0], w.name+": p50; p99; maximum")
		for i := range podSteps {
			cell := "-"
			if took := stepTimes(rounds, i); len(took) > 0 {
				cell = strings.Join(seconds(took, 50, 99, 100), "; ")
			}
			parts[i+1] = append(parts[i+1], cell)
		}
	}
	return fences, parts
}

// windows returns how long a fence needs its machine to stay off if the node has no hook: from the device's Off, and
// from the mark, until the last pod was ended; and until the mark was removed.
func windows(all []fenceRound) grid {
	g := grid{{"from; until: p50; p99; maximum"}}
	for _, w := range p99Ways {
		g[0] = append(g[0], w.name)
	}
	for _, s := range []struct {
		name     string
		from, to moment
	}{
		{"the device says Off; the last pod is ended", off, lastEnded},
		{"the node is marked; the last pod is ended", marked, lastEnded},
		{"the node is marked; the mark is removed", marked, unmarked},
	} {
		row := []string{s.name}
		for _, w := range p99Ways {
			var took []float64
			for _, r := range ofWay(all, w.name) {
				from, began := r.At[s.from]
				if to, ended := r.At[s.to]; began && ended {
					took = append(took, round(to-from))
				}
			}
			cell := "-"
			if len(took) > 0 {
				cell = strings.Join(seconds(took, 50, 99, 100), "; ")
			}
			row = append(row, cell)
		}
		g = append(g, row)
	}
	return g
}

// seconds prints percentiles.
func seconds(samples []float64, of ...int) (out []string) {
	for _, p := range of {
		out = append(out, secs(percentile(samples, p)))
	}
	return out
}

// waits is the table of the slowest rounds.
func waits(all []fenceRound) grid {
	g := grid{{"noticed by", "fence", "pods run after", "longest against its median", "took", "median", "last pod",
		"forcefence's reasons then"}}
	for _, w := range p99Ways {
		for _, s := range slowest(ofWay(all, w.name)) {
			step, took, middle := "did not end", "-", "-"
			if s.step >= 0 {
				step, took, middle = podSteps[s.step].name, secs(s.took), secs(s.median)
			}
			g = append(g, []string{w.name, fmt.Sprint(s.number), secs(s.total()), step, took, middle,
				cmp.Or(s.Pod, "-"), cmp.Or(s.why, "-")})
		}
	}
	return g
}

// secs prints seconds.
func secs(v float64) string {
	if math.IsInf(v, 1) {
		return "never"
	}
	return fmt.Sprintf("%.2f s", v)
}

// measuredOn says what all rounds were measured on. They are of one build. It has two lines.
func measuredOn(all []fenceRound) string {
	r, last := all[0], all[len(all)-1]
	var loads []float64
	for _, o := range all {
		if load, err := strconv.ParseFloat(o.Load, 64); err == nil {
			loads = append(loads, load)
		}
	}
	load := "?"
	if len(loads) > 0 {
		load = fmt.Sprintf("%.1f to %.1f", slices.Min(loads), slices.Max(loads))
	}
	const minute = "2006-01-02 15:04"
	return fmt.Sprintf("%d fences of %d pods, %d with a volume; build %s, Kubernetes %s, %d cores.\n"+
		"From %s to %s UTC, load %s.", len(all), r.Pods, r.Volumes, r.Build, r.Kubernetes, r.Cores,
		r.Cut.Format(minute), last.Cut.Format(minute), load)
}
