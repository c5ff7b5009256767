package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Figure is one line of the table. Floor and Limit are nil where there is none.
type Figure struct {
	Bench, Name  string
	Value        float64 // a median, where there are several
	Unit         string
	Floor, Limit *float64
	Samples      []float64
}

// figure is the median of samples. Values are kept to a thousandth: a clock here shows no more.
func figure(name, unit string, samples []float64) Figure {
	return Figure{Name: name, Value: round(median(samples)), Unit: unit, Samples: samples}
}

// atMost limits the figure from above.
func (f Figure) atMost(limit float64) Figure {
	limit = round(limit)
	f.Limit = &limit
	return f
}

// above gives the figure its floor.
func (f Figure) above(floor []float64) Figure {
	m := round(median(floor))
	f.Floor = &m
	return f
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// median is NaN of no samples.
func median(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// ratios are ours over the floor, pair by pair.
func ratios(ours, floor []float64) []float64 {
	var out []float64
	for i := range min(len(ours), len(floor)) {
		if floor[i] != 0 {
			out = append(out, ours[i]/floor[i])
		}
	}
	return out
}

// turns are n rounds in which each of them has one turn; who begins changes from round to round.
func turns[T any](n int, of ...T) (out []T) {
	for i := range n {
		first := i % len(of)
		out = append(append(out, of[first:]...), of[:first]...)
	}
	return out
}

// table is for people.
func table(figures []Figure) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "bench\tfigure\tmedian\tmin..max\tn\tunit\tfloor\tlimit\tholds")
	for _, f := range figures {
		holds := "-"
		if f.Limit != nil {
			holds = "yes"
			if f.Value > *f.Limit {
				holds = "NO"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			f.Bench, f.Name, number(f.Value), extremes(f.Samples), max(1, len(f.Samples)), f.Unit, optional(f.Floor),
			optional(f.Limit), holds)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// extremes are "-" of less than two samples.
func extremes(samples []float64) string {
	if len(samples) < 2 {
		return "-"
	}
	return number(slices.Min(samples)) + ".." + number(slices.Max(samples))
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

// number has three digits behind the point, or none where they say nothing.
func number(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	digits := 3
	if math.Abs(v) >= 100 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
