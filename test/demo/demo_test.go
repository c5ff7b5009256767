package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScreenOrdersLines(t *testing.T) {
	var out strings.Builder
	now := t0
	s := &Screen{out: &out, now: func() time.Time { return now }}
	s.Event(Event{Millis: 2100, Kind: Marked, Detail: "later"})
	now = now.Add(settleTime / 2)
	s.Event(Event{Millis: 2000, Kind: OffSeen, Detail: "earlier"})
	now = now.Add(settleTime / 2)
	s.Flush(false)
	if out.Len() > 0 {
		t.Errorf("printed %q while an earlier line was young", out.String())
	}
	now = now.Add(settleTime / 2)
	s.Flush(false)
	s.Note(3*time.Second, "noted")
	s.Flush(true)
	want := "     2.00s  off seen           earlier\n     2.10s  node marked        later\n     3.00s    ...         " +
		"     noted\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestNoColorInFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := NewScreen(f)
	s.Title("%s", "title")
	s.Check(false, "claim")
	s.Picture([]Rack{{Node: "n", Power: "off", Ready: "NotReady", Mark: "yes", Pods: 9, Volumes: 2, Remark: "look"}})
	s.Step("begin %d", 1)("end %d", 2)
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "\x1b") {
		t.Errorf("colour in a file:\n%s", b)
	}
	if want := "  n        off    NotReady yes      9       2  ###  <-- look\n"; !strings.Contains(string(b), want) {
		t.Errorf("got:\n%s\nwant a line %q", b, want)
	}
}

// TestTimelineFile holds the names that others read.
func TestTimelineFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "timeline.json")
	for _, tt := range []struct {
		events []Event
		want   any
	}{
		{nil, []any{}},
		{[]Event{{1500, 1, OffSeen, "node-1", "why"}}, []any{
			map[string]any{"t_ms": 1500.0, "round": 1.0, "event": "off_seen", "node": "node-1", "detail": "why"},
		}},
	} {
		if err := writeTimeline(file, tt.events); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("file (-want +got):\n%s", diff)
		}
	}
	for _, k := range kinds {
		if labels[k] == "" {
			t.Errorf("event %s has no label", k)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args   string
		rounds []int
		err    string
	}{
		{"", []int{1, 2, 3}, ""},
		{"-rounds 3,1", []int{3, 1}, ""},
		{"-rounds 4", nil, `-rounds: "4" is none of 1, 2, 3`},
		{"-rounds 1,", nil, `-rounds: "" is none of 1, 2, 3`},
		{"1", nil, `unexpected argument "1"`},
	} {
		o, err := parse(strings.Fields(tt.args))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.err {
			t.Errorf("%q: got error %q, want %q", tt.args, got, tt.err)
		}
		if diff := cmp.Diff(tt.rounds, o.rounds); tt.err == "" && diff != "" {
			t.Errorf("%q: rounds (-want +got):\n%s", tt.args, diff)
		}
	}
}
