package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// What one leader writes, a reader of its own Lease reads. The same words in another leader's Lease are of a former
// leader, which an older version leaves there.
func TestHeldBackIsOfItsLeader(t *testing.T) {
	held := &HeldBack{Rule: reason.DomainLost, Detail: "zone a", Held: 2, Nodes: []string{"n1", "n2"}, Silent: 2, Of: 5,
		Since: ago(time.Hour), By: "ff-1"}
	if diff := cmp.Diff(held, ParseHeldBack(held.Encode(), "ff-1")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, got := range map[string]*HeldBack{
		"another leader": ParseHeldBack(held.Encode(), "ff-2"), "no leader": ParseHeldBack(held.Encode(), ""),
		"nothing is held": ParseHeldBack((*HeldBack)(nil).Encode(), "ff-1"),
		"no node is held": ParseHeldBack(`{"rule":"DomainLost","since":"2026-03-01T12:00:00Z","by":"ff-1"}`, "ff-1"),
		"no time":         ParseHeldBack(`{"rule":"DomainLost","held":1,"by":"ff-1"}`, "ff-1"),
		"not JSON":        ParseHeldBack("held", "ff-1"),
		"too long":        ParseHeldBack(held.Encode()+strings.Repeat(" ", maxHeldBack), "ff-1"),
	} {
		if got != nil {
			t.Errorf("%s: got %+v, want nil", name, got)
		}
	}
}

// The annotation is bounded, no matter how many nodes are held back and how long their names are. The count is of all.
func TestHeldBackIsBounded(t *testing.T) {
	held := &HeldBack{Rule: reason.TooFewHealthy, Detail: strings.Repeat("d", 9<<10), Held: 5000, Since: now, By: "ff-1"}
	for i := range 5000 {
		held.Nodes = append(held.Nodes, fmt.Sprintf("n%d-%s", i, strings.Repeat("x", 240)))
	}
	text := held.Encode()
	got := ParseHeldBack(text, "ff-1")
	if len(text) > maxHeldBack || got == nil || got.Held != 5000 || len(got.Nodes) != maxHeldNames {
		t.Errorf("got %d bytes, %+v", len(text), got)
	}
}

// Each rule that holds nodes back has its own sentence.
func TestHeldBackDescribesEachRule(t *testing.T) {
	for _, row := range reason.Table() {
		if row.State != reason.StateHeldBack {
			continue
		}
		held := HeldBack{Rule: row.Reason, Detail: "some numbers"}
		if got := held.describeRule(); strings.Contains(got, string(row.Reason)) || !slices.Contains(reason.LimitReasons,
			row.Reason) {
			t.Errorf("%s: got %q, want a sentence, and the reason among LimitReasons", row.Reason, got)
		}
	}
	if got := (&HeldBack{Rule: "NewRule", Detail: "x"}).describeRule(); got != "The rule is NewRule: x." {
		t.Errorf("a rule of a newer leader: got %q", got)
	}
}

// Each node that is held back says so, without an Event of its own.
func TestNodeIsHeldBack(t *testing.T) {
	held := &HeldBack{Rule: reason.DomainLost, Detail: "zone a", Held: 1, Nodes: []string{"n4"}, Since: ago(time.Hour)}
	for _, tt := range []struct {
		name  string
		facts NodeFacts
		want  string
	}{
		{"by the guard", NodeFacts{Node: node(silentForLong, answers), HeldBack: held}, "The storm guard holds it back, " +
			"so its machine is not powered off. A failure domain is lost: zone a. " +
			strings.ReplaceAll(PlainRemedy(reason.DomainLost), "NODE", "n4")},
		{"Ready again", NodeFacts{Node: node(ready, answers), HeldBack: held}, ""},
		{"another node", NodeFacts{Node: node(silentForLong, answers), HeldBack: &HeldBack{Nodes: []string{"n5"}}},
			"Nothing proves that its machine is off"},
	} {
		tt.facts.Key, tt.facts.Now = taint.DefaultKey, now
		got := NodeOf(tt.facts)
		if !strings.HasPrefix(got.Next, tt.want) || tt.want == "" && got.Next != "" ||
			(got.Runbook == reason.SectionStorm) != strings.HasPrefix(tt.want, "The storm") {
			t.Errorf("%s: got %q, %q, want %q", tt.name, got.Next, got.Runbook, tt.want)
		}
	}
}
