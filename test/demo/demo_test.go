package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// healthy is what compare finds nothing wrong with.
func healthy() (pods []*corev1.Pod, runs map[types.UID][]string) {
	runs = map[types.UID][]string{}
	for app, count := range map[string]int{"db": dbPods, "queue": queuePods, "web": webPods, "agent": nodeCount} {
		for i := range count {
			name := fmt.Sprintf("%s-%d", app, i)
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
			p.Spec.NodeName = nodeName(i % nodeCount)
			pods = append(pods, p)
			runs[p.UID] = []string{p.Spec.NodeName}
		}
	}
	return pods, runs
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(pods []*corev1.Pod, runs map[types.UID][]string)
		unready string
		want    string
	}{
		{"all is well", func([]*corev1.Pod, map[types.UID][]string) {}, "", ""},
		{"one runs nowhere", func(_ []*corev1.Pod, runs map[types.UID][]string) { delete(runs, "db-0") }, "",
			"pod db-0 runs on 0 machines []"},
		{"one runs twice",
			func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["db-0"] = []string{"node-1", "node-2"} }, "",
			"pod db-0 runs on 2 machines [node-1 node-2]"},
		{"one runs elsewhere", func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["db-0"] = []string{"node-6"} },
			"",
			"pod db-0 runs on node-6, the API server says node-1"},
		{"one is not Ready", func([]*corev1.Pod, map[types.UID][]string) {}, "db-0",
			"pod db-0 on node-1 is not Ready, or is going"},
		{"a deleted one runs on",
			func(_ []*corev1.Pod, runs map[types.UID][]string) { runs["old"] = []string{"node-1"} }, "",
			"a pod that the API server does not know runs on [node-1] (UID old)"},
		{"one is missing", func(pods []*corev1.Pod, runs map[types.UID][]string) {
			for _, p := range pods {
				if p.Name == "web-0" {
					p.Labels["app"] = "db"
				}
			}
		}, "", "db has 21 pods, want 20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods, runs := healthy()
			tt.change(pods, runs)
			var ready []*corev1.Pod
			for _, p := range pods {
				if p.Name != tt.unready {
					ready = append(ready, p)
				}
			}
			if got := compare(pods, ready, runs); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

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
