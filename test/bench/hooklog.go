package main

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the bench of the node's side reads out of what others wrote: the go command, the hook, containerd and the probe.

// percentile is the smallest sample that at least p percent of all do not exceed; NaN of none.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	return s[max(0, int(math.Ceil(p/100*float64(len(s))))-1)]
}

// differences are ours less the floor, pair by pair.
func differences(ours, floor []float64) []float64 {
	var out []float64
	for i := range min(len(ours), len(floor)) {
		out = append(out, ours[i]-floor[i])
	}
	return out
}

var cpus = regexp.MustCompile(`-\d+$`)

// goBench reads what `go test -bench` prints: each benchmark's values by unit, in the order of its runs.
func goBench(out string) map[string]map[string][]float64 {
	all := map[string]map[string][]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := cpus.ReplaceAllString(fields[0], "")
		if all[name] == nil {
			all[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				all[name][fields[i+1]] = append(all[name][fields[i+1]], v)
			}
		}
	}
	return all
}

var admission = regexp.MustCompile(`^time=(\S+) .*msg="Admitted pod" .*\buid=(\S+)`)

// admissions reads the hook's log: when each pod that was held was let go, by UID. Two plugins write it; the later one
// counts.
func admissions(log string) map[string]time.Time {
	out := map[string]time.Time{}
	for line := range strings.Lines(log) {
		m := admission.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && at.After(out[m[2]]) {
			out[m[2]] = at
		}
	}
	return out
}

var sandbox = regexp.MustCompile(
	`^time="([^"]+)" .*RunPodSandbox for .*\buid:\\"([^\\]+)\\".*?( returns sandbox id .*)?$`)

// sandboxes reads containerd's log: how long it had each pod's sandbox under way, by UID, from the kubelet's request to
// its success.
func sandboxes(log string) map[string]time.Duration {
	asked, out := map[string]time.Time{}, map[string]time.Duration{}
	for line := range strings.Lines(log) {
		m := sandbox.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			continue
		}
		if m[3] == "" {
			asked[m[2]] = at
		} else if begun, ok := asked[m[2]]; ok {
			out[m[2]] = at.Sub(begun)
		}
	}
	return out
}

// firstWrites reads the probes' log (test/e2e/probe): when each pod's container first wrote, by UID.
func firstWrites(log string) map[string]time.Time {
	out := map[string]time.Time{}
	for line := range strings.Lines(log) {
		var l struct {
			Time time.Time `json:"time"`
			UID  string    `json:"uid"`
		}
		if json.Unmarshal([]byte(line), &l) != nil || l.UID == "" {
			continue // half a line, still being written
		}
		if at, ok := out[l.UID]; !ok || l.Time.Before(at) {
			out[l.UID] = l.Time
		}
	}
	return out
}

// span is the earliest and the latest time of those UIDs, and whether all have one.
func span(times map[string]time.Time, uids []string) (first, last time.Time, all bool) {
	for _, uid := range uids {
		at, ok := times[uid]
		if !ok {
			return time.Time{}, time.Time{}, false
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last, true
}
