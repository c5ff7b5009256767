package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tt := range []struct {
		name string
		in   []float64
		p    float64
		want float64
	}{
		{"p99 of a hundred is not the worst", hundred, 99, 99},
		{"p100 is", hundred, 100, 100},
		{"p50", hundred, 50, 50},
		{"p99 of few is the worst", []float64{3, 1, 2}, 99, 3},
		{"one", []float64{7}, 99, 7},
		{"p0", hundred, 0, 1},
	} {
		if got := percentile(tt.in, tt.p); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := percentile(nil, 99); !math.IsNaN(got) {
		t.Errorf("none: got %v, want NaN", got)
	}
	if hundred[0] != 100 {
		t.Error("the samples were put into another order")
	}
}

func TestDifferences(t *testing.T) {
	if got, want := differences([]float64{5, 1, 9}, []float64{2, 3}), []float64{3, -2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGoBench(t *testing.T) {
	got := goBench(`goos: linux
BenchmarkAsk/allow-2	11325402	        90.42 ns/op	       142.0 p99-ns	       0 B/op	       1 allocs/op
BenchmarkAsk/allow-2	13774172	       114.0 ns/op	       134.0 p99-ns	       0 B/op	       0 allocs/op
BenchmarkAsk/hold         	7404789	       263.3 ns/op
PASS
ok  	example.net/nri	8.819s
`)
	want := map[string]map[string][]float64{
		"BenchmarkAsk/allow": {"ns/op": {90.42, 114}, "p99-ns": {142, 134}, "B/op": {0, 0}, "allocs/op": {1, 0}},
		"BenchmarkAsk/hold":  {"ns/op": {263.3}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAdmissions(t *testing.T) {
	line := func(at, msg, plugin, pod, why string) string {
		return "time=2026-03-01T12:00:0" + at + `Z level=INFO msg="` + msg + `" plugin=` + plugin +
			"-forcefence pod=ns/" + pod + " uid=u" + pod + ` why="` + why + "\n"
	}
	got := admissions(line("0.100", "Holding pod", "10", "a", `node is marked as shut down"`) +
		line("1.250", "Admitted pod", "10", "a", `node is open" held=1.15s`) +
		line("1.500", "Admitted pod", "20", "a", `node is open" held=250ms`) +
		line("1.400", "Admitted pod", "10", "a", `an earlier one, later" held=250ms`) +
		line("2.000", "Admitted pod", "10", "b", `node is open" held=1s`) +
		`time=2026-03-01T12:00:03.000Z level=INFO msg="Admitted p`)
	want := map[string]time.Time{"ua": at(1.5), "ub": at(2)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSandboxes(t *testing.T) {
	line := func(at, level, rest string) string {
		return `time="2026-03-01T12:00:0` + at + `Z" level=` + level + ` msg="` + rest + "\"\n"
	}
	const pod = `RunPodSandbox for name:\"a\"  uid:\"ua\"  namespace:\"ns\"`
	for _, tt := range []struct {
		name, log string
		want      map[string]time.Duration
	}{
		{"it works", line("0.5", "info", pod) + line("0.75", "info", pod+` returns sandbox id \"x\"`),
			map[string]time.Duration{"ua": 250 * time.Millisecond}},
		{
			"a failed one before does not count",
			line("0.5", "info", pod) + line("1.5", "error", pod+" failed, error") + line("3.5", "info", pod) +
				line("3.6", "info", pod+` returns sandbox id \"x\"`),
			map[string]time.Duration{"ua": 100 * time.Millisecond},
		},
		{"it failed", line("0.5", "info", pod) + line("1.5", "error", pod+" failed, error"),
			map[string]time.Duration{}},
		{"under way", line("0.5", "info", pod), map[string]time.Duration{}},
		{"other requests",
			line("0.5", "info", "StopPodSandbox for x") + line("0.6", "info", "StopPodSandbox for x returns"),
			map[string]time.Duration{}},
	} {
		if diff := cmp.Diff(tt.want, sandboxes(tt.log)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestFirstWrites(t *testing.T) {
	got := firstWrites(`{"time":"2026-03-01T12:00:02Z","uid":"a","count":1}
{"time":"2026-03-01T12:00:01Z","uid":"b","count":1}
{"time":"2026-03-01T12:00:03Z","uid":"a","count":2}
{"time":"2026-03-01T12:00:04Z","uid":""}
{"time":"2026-03-01T12:00:0`)
	if diff := cmp.Diff(map[string]time.Time{"a": at(2), "b": at(1)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpan(t *testing.T) {
	times := map[string]time.Time{"a": at(1), "b": at(3), "c": at(9)}
	for _, uids := range [][]string{{"a", "b"}, {"b", "a"}} {
		if first, last, all := span(times, uids); !all || !first.Equal(at(1)) || !last.Equal(at(3)) {
			t.Errorf("%q: got %v, %v, %v", uids, first, last, all)
		}
	}
	if _, _, all := span(times, []string{"a", "d"}); all {
		t.Error("one that is missing was overlooked")
	}
}
