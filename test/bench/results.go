package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results are a bench's raw data, as it is kept in the folder results. docs/reference/measurements.md shows the last run's.
type results interface{ markdown() string }

// Run is what all of a run's figures have in common.
type Run struct {
	Date       string // of its begin
	Kubernetes string
	Cores      int
	Load       load // on the node that loses its power
}

// newRun describes the run that begins now.
func (l *lab) newRun(on load) (Run, error) {
	version, err := l.Client().Discovery().ServerVersion()
	if err != nil {
		return Run{}, fmt.Errorf("asking for the version: %w", err)
	}
	return Run{Date: time.Now().UTC().Format(time.DateOnly), Kubernetes: version.GitVersion, Cores: runtime.NumCPU(),
		Load: on}, nil
}

// caption is said above the table of the named bench.
func (r Run) caption(bench string) string {
	return fmt.Sprintf("All figures are of one run of `make bench RUN=%s`: %s, Kubernetes %s,\n"+
		"%d cores, simulated kubelets.", bench, r.Date, r.Kubernetes, r.Cores)
}

// PeerResults are what bench peers found.
type PeerResults struct {
	Run
	Systems []SystemResults
}

// SystemResults are one system's at one rate of the controller-manager.
type SystemResults struct {
	Name     string
	Versions string `json:",omitempty"` // of a peer's programs
	Rate     int    // requests a second
	Turns    []Turn
}

// Turn is what came of one outage.
type Turn struct {
	// from the power cut and from NotReady until every StatefulSet pod ran; null: they never did
	FromCut *float64
	Seconds *float64
	Running int  // StatefulSet pods that ran in the end
	Ended   int  // replacements that ran and were ended
	Sure    bool // a device, or its agent, said Off before any pod on the node ended
	Volumes int  // not detached in the end
	// Marks are the taints that were left on the node a minute after it was Ready again, or that a person removed.
	Marks []string `json:",omitempty"`
}

// recorded is an outcome as it is kept.
func (o outcome) recorded() Turn {
	t := Turn{Running: o.running, Ended: o.deaths, Sure: o.sure, Volumes: o.volumes, Marks: o.marks}
	if o.isBack() {
		cut, seconds := round(o.cutToBack), round(o.notReadyToBack)
		t.FromCut, t.Seconds = &cut, &seconds
	}
	return t
}

const tableHead = "| system | requests a second | power cut until all run: median (least-most) | " +
	"NotReady until all run | all ran | running replacements ended | sure of off | volumes left | marks left |\n"

// markdown is the table, with a row for each system that had a turn.
func (r PeerResults) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s The node had %d pods, %d of them\nwith a volume and %d of a Deployment; five other nodes were "+
		"free.\n\n", r.caption("peers"), r.Load.pods(), r.Load.Volumes, r.Load.Deployed)
	b.WriteString(tableHead + strings.Repeat("| --- ", strings.Count(tableHead, "|")-1) + "|\n")
	for _, s := range r.Systems {
		if len(s.Turns) == 0 {
			continue
		}
		name := s.Name
		if s.Versions != "" {
			name += " (" + s.Versions + ")"
		}
		var cut, seconds []float64
		var marks []string
		sure, ended, volumes := 0, []float64{}, []float64{}
		for _, t := range s.Turns {
			if t.Seconds != nil {
				cut, seconds = append(cut, *t.FromCut), append(seconds, *t.Seconds)
			}
			if t.Sure {
				sure++
			}
			ended, volumes = append(ended, float64(t.Ended)), append(volumes, float64(t.Volumes))
			marks = append(marks, t.Marks...)
		}
		slices.Sort(marks)
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %d of %d | %s | %d of %d | %s | %s |\n", name, s.Rate,
			typical(cut), typical(seconds), len(seconds), len(s.Turns), span(ended), sure, len(s.Turns), span(volumes),
			orNone(strings.Join(slices.Compact(marks), ", ")))
	}
	return b.String()
}

// typical is the median with the least and the most, in seconds.
func typical(seconds []float64) string {
	if len(seconds) == 0 {
		return "never"
	}
	text := fmt.Sprintf("%.1f s", median(seconds))
	if len(seconds) > 1 {
		text += fmt.Sprintf(" (%.1f-%.1f)", slices.Min(seconds), slices.Max(seconds))
	}
	return text
}

// span is the least and the most of counts, which are not empty.
func span(counts []float64) string {
	least, most := slices.Min(counts), slices.Max(counts)
	switch {
	case most == 0:
		return "none"
	case least == most:
		return number(most)
	}
	return number(least) + "-" + number(most)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
