package room

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/kit"
)

func TestSummary(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := Summarize(at, []Failure{
		{Kind: Node, Name: "n1", Pods: 5, Lacking: 1},
		{Kind: Node, Name: "n2", Pods: 5, Lacking: 3, Unknown: 1},
		{Kind: Node, Name: "n3", Pods: 5, Unknown: 1},
		{Kind: Node, Name: "n4", Pods: 5},
		{Kind: Domain, Name: "zone=a", Pods: 9},
	})
	for node, want := range map[string]string{"n1": "1 pod", "n2": "3 pods", "n3": "?", "n4": "ok"} {
		if got := s.Word(node, at.Add(time.Hour)); got != want {
			t.Errorf("%s: got %q, want %q", node, got, want)
		}
		if got := s.Word(node, at.Add(4*time.Hour)); got != "?" {
			t.Errorf("%s: got %q of an old estimate", node, got)
		}
	}
	if got := (*Summary)(nil).Word("n1", at); got != "?" {
		t.Errorf("got %q without an estimate", got)
	}
	want := []view.RoomStatement{
		{Verdict: string(Lacks), Text: "The pods of 1 of 4 nodes fit elsewhere. Of 1 that is unknown. " +
			"If node n2 fails now, 3 of 5 pods do not."},
		{Verdict: string(Fits), Text: "The pods of 1 of 1 failure domains fit elsewhere."},
	}
	if got := s.Describe(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, tt := range []struct {
		s    *Summary
		age  time.Duration
		want string
	}{
		{s, 0, want[0].Text}, {s, 4 * time.Hour, ""}, {nil, 0, ""},
		{Summarize(at, []Failure{{Kind: Node, Name: "n1", Pods: 5}}), 0, ""},
	} {
		if got := tt.s.DescribeLately(at.Add(tt.age)); (got == nil) != (tt.s == nil || tt.age > 0) {
			t.Errorf("after %v: got %q", tt.age, got)
		}
		if got := tt.s.DescribeLacking(at.Add(tt.age)); got != tt.want {
			t.Errorf("after %v: got %q, want %q", tt.age, got, tt.want)
		}
	}
}

func TestUnknownIsNoFit(t *testing.T) {
	s := Summarize(time.Time{}, []Failure{{Kind: Pair, Name: "a, b", Unknown: 1}, {Kind: Pair, Name: "a, c"}})
	want := []view.RoomStatement{{Verdict: string(Unknown),
		Text: "The pods of 1 of 2 pairs of domains fit elsewhere. Of 1 that is unknown."}}
	if got := s.Describe(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A summary stays small, and a node that it leaves out is unknown.
func TestSummaryIsSmall(t *testing.T) {
	var all []Failure
	for i := range 5000 {
		all = append(all, Failure{Kind: Node, Name: fmt.Sprintf("%d-%s", i, strings.Repeat("n", 50)), Lacking: 1 + i,
			Why: strings.Repeat("ä", 5000), Without: []string{strings.Repeat("p", 300)}})
	}
	all = append(all, Failure{Kind: Node, Name: "fits"})
	s := Summarize(time.Unix(1e9, 0), all)
	raw, err := json.Marshal(s)
	kit.Must(t, err)
	if len(raw) > 8<<10 {
		t.Errorf("got %d bytes", len(raw))
	}
	for _, node := range []string{all[0].Name, "fits"} {
		if got := s.Word(node, s.At); got != "?" {
			t.Errorf("%s: got %q, want ?", node, got)
		}
	}
	if got := s.Word(all[4999].Name, s.At); got != "5000 pods" {
		t.Errorf("the worst: got %q", got)
	}
}
