package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testRound is a fence of a pod with a volume. Its volume is attached and its pod Ready so many seconds later.
func testRound(attachedLater, readyLater float64) fenceRound {
	a := 2 + attachedLater
	return fenceRound{
		Way: p99Ways[0].name, Build: "v1", Pods: 5, Volumes: 1, By: "push", Pod: "db-0",
		At:    map[moment]float64{noticed: 0.2, off: 0.3, marked: 0.4, lastRunning: a + 0.1 + readyLater},
		PodAt: map[moment]float64{ended: 0.5, gone: 0.7, created: 0.9, bound: 1, attached: a},
		Reasons: []reasonAt{{At: 0.35, Why: "Marking"}, {At: 0.7, Why: "Deleting"},
			{At: 0.8, Why: "Detaching", Wait: true}, {At: 9, Why: "Done"}},
	}
}

// TestTook: the steps follow each other and add up to the total, also if a moment was not seen or came out of order.
func TestTook(t *testing.T) {
	whole := testRound(0, 0)
	deployment := testRound(0, 0)
	deployment.PodAt = map[moment]float64{created: 0.35, bound: 0.6}
	late := testRound(0, 0)
	late.PodAt[attached] = 9
	for _, tt := range []struct {
		name string
		in   fenceRound
		want []float64
	}{
		{"all seen", whole, []float64{0.2, 0.1, 0.1, 0.1, 0.2, 0.2, 0.1, 1, 0.1}},
		{"a Deployment's pod", deployment, []float64{0.2, 0.1, 0.1, 0, 0, 0, 0.2, 0, 1.5}},
		{"later than the end", late, []float64{0.2, 0.1, 0.1, 0.1, 0.2, 0.2, 0.1, 1.1, 0}},
	} {
		sum := 0.0
		for _, v := range tt.in.took() {
			sum += v
		}
		if diff := cmp.Diff(tt.want, tt.in.took()); diff != "" || round(sum) != tt.in.total() {
			t.Errorf("%s: sum %v, want %v; -want +got:\n%s", tt.name, sum, tt.in.total(), diff)
		}
	}
	if stuck := (fenceRound{NotEnded: "1 of 5 pods are not gone"}); !math.IsInf(stuck.total(), 1) {
		t.Errorf("a round that did not end: got %v, want infinite", stuck.total())
	}
}

func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, tt := range []struct {
		samples []float64
		p       int
		want    float64
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:10], 50, 95}, {hundred[:10], 99, 100},
		{hundred[:1], 50, 100}, {[]float64{1, math.Inf(1)}, 99, math.Inf(1)},
	} {
		if got := percentile(tt.samples, tt.p); got != tt.want {
			t.Errorf("p%d of %d: got %v, want %v", tt.p, len(tt.samples), got, tt.want)
		}
	}
}

// TestSlowest: of 101 rounds the two slowest, with the step that was longest against its median.
func TestSlowest(t *testing.T) {
	rounds := slices.Repeat([]fenceRound{testRound(0, 0)}, 99)
	rounds = append(rounds, testRound(3, 0.5), fenceRound{Way: p99Ways[0].name, NotEnded: "no mark"})
	slow := slowest(rounds)
	if len(slow) != 2 {
		t.Fatalf("got %d, want 2", len(slow))
	}
	if s := slow[0]; s.number != 101 || s.step != -1 || s.why != "no mark" {
		t.Errorf("got %+v, want the round that did not end", s)
	}
	if s := slow[1]; s.number != 100 || podSteps[max(0, s.step)].until != attached || s.took != 4 || s.median != 1 ||
		s.why != "Detaching" {
		t.Errorf("got %+v, want 4 s instead of 1 s until its volume was attached, for Detaching", s)
	}
	for _, tt := range []struct {
		from, to float64
		want     []string
	}{
		{0, 0.2, []string{"Marking"}}, {0.3, 0.5, []string{"Marking", "Deleting"}}, {0.71, 0.75, nil},
		{0.6, 1, []string{"Deleting", "Detaching"}}, {8.5, 8.8, []string{"Detaching"}}, {9.1, 9.2, nil},
	} {
		if got := rounds[99].reasonsBetween(tt.from, tt.to); !slices.Equal(got, tt.want) {
			t.Errorf("reasons from %v to %v: got %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
	if got := waits(rounds); len(got) != 3 || got[1][2] != "never" || got[2][3] != "until its volume is attached" {
		t.Errorf("table: got %q", got)
	}
	fences, parts := percentiles(rounds)
	if got, want := fences[1], []string{"libvirt's events", "101", "2.10 s", "2.10 s", "5.60 s", "never", "5.00 s",
		"not seen 1, push 100"}; !slices.Equal(got, want) {
		t.Errorf("figures: got %q, want %q", got, want)
	}
	if got, want := parts[8], []string{"until its volume is attached", "1.00 s; 1.00 s; 4.00 s"}; !slices.Equal(got,
		want) {
		t.Errorf("figures of a step: got %q, want %q", got, want)
	}
}

// TestRawData: what was written is read again, and continued by the same build and load only.
func TestRawData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p99.jsonl")
	b := p99Bench{file: file, build: "v1", load: load{Volumes: 1, Plain: 4}}
	if err := b.open(); err != nil || len(b.all) != 0 {
		t.Fatalf("without a file: got %v and %v", b.all, err)
	}
	want := []fenceRound{testRound(0, 0), testRound(1, 0)}
	for _, r := range want {
		if err := appendRound(file, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.all); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, other := range []p99Bench{{file: file, build: "v2", load: b.load}, {file: file, build: "v1"}} {
		if err := other.open(); err == nil || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("of build %s with %d pods: got %v, want a refusal", other.build, other.load.pods(), err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readRounds(bytes.NewReader(raw[:len(raw)-9])); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that was cut off: got %v, want its number", err)
	}
}
