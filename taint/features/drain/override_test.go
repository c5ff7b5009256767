package drain

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestParseOverride: what an operator writes is read, and written again as it was. A text that cannot be read never
// allows a drain, and never ends by itself.
func TestParseOverride(t *testing.T) {
	at := time.Date(2026, 12, 1, 18, 0, 0, 0, time.UTC)
	const unreadable = ", which is not of the form POLICY; until=YYYY-MM-DDThh:mm:ssZ and holds up every drain, "
	for _, tc := range []struct {
		text  string
		want  Override
		words string
		again string // what Text returns; "": the same
	}{
		{"block-for-eviction; until=2026-12-01T18:00:00Z", Override{Policy: BlockForEviction, Until: at},
			"block-for-eviction until 2026-12-01T18:00:00Z", ""},
		{" block-for-eviction ;until= 2026-12-01T19:00:00+01:00 ", Override{Policy: BlockForEviction, Until: at},
			"block-for-eviction until 2026-12-01T18:00:00Z", "block-for-eviction; until=2026-12-01T18:00:00Z"},
		{"always-allow", Override{Policy: AlwaysAllow}, "always-allow without an end", ""},
		{"always-allow; until=tomorrow", Override{Policy: "always-allow; until=tomorrow"},
			`"always-allow; until=tomorrow"` + unreadable + "without an end", ""},
		{"always-allow; until=", Override{Policy: "always-allow; until="},
			`"always-allow; until="` + unreadable + "without an end", ""},
		{"always-allow; 2026-12-01T18:00:00Z", Override{Policy: "always-allow; 2026-12-01T18:00:00Z"},
			`"always-allow; 2026-12-01T18:00:00Z"` + unreadable + "without an end", ""},
		{"allways-allow; until=2026-12-01T18:00:00Z", Override{Policy: "allways-allow", Until: at},
			`"allways-allow"` + unreadable + "until 2026-12-01T18:00:00Z", ""},
		{"", Override{Policy: "(none)"}, `"(none)"` + unreadable + "without an end", "(none)"},
	} {
		got := ParseOverride(tc.text)
		if got != tc.want || got.String() != tc.words {
			t.Errorf("%q: got %+v, %q, want %+v, %q", tc.text, got, got, tc.want, tc.words)
		}
		again := tc.again
		if again == "" {
			again = tc.text
		}
		if got.Text() != again {
			t.Errorf("%q: Text: got %q, want %q", tc.text, got.Text(), again)
		}
	}
}

// TestOverrides: a node's own override wins over the one of all nodes until it ends, and then that one until it ends.
func TestOverrides(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 12, 1, hour, 0, 0, 0, time.UTC) }
	all := ParseOverrides(map[string]string{
		"n1": "always-allow; until=2026-12-01T12:00:00Z", AllNodes: "block-for-eviction; until=2026-12-01T18:00:00Z",
		"n2": "allow-if-replica-is-stopped"})
	for _, tc := range []struct {
		node string
		hour int
		want Policy
		key  string
		end  time.Time
	}{
		{"n1", 11, AlwaysAllow, "n1", at(12)},
		{"n1", 12, BlockForEviction, AllNodes, at(18)},
		{"n1", 18, "", "", time.Time{}},
		{"n2", 19, AllowIfStopped, "n2", time.Time{}},
		{"n3", 11, BlockForEviction, AllNodes, at(12)},
		{AllNodes, 11, BlockForEviction, AllNodes, at(12)},
		{AllNodes, 18, "", "", time.Time{}},
	} {
		key, got, ok := all.Find(tc.node, at(tc.hour))
		if got.Policy != tc.want || key != tc.key || ok != (tc.want != "") {
			t.Errorf("%s at %d: got %q by %q, %t, want %q by %q", tc.node, tc.hour, got.Policy, key, ok, tc.want,
				tc.key)
		}
		if end := all.NextEnd(at(tc.hour)); !end.Equal(tc.end) {
			t.Errorf("%s at %d: the next end: got %v, want %v", tc.node, tc.hour, end, tc.end)
		}
	}
}

// TestPolicyOfNode: an override changes the decision about its node alone. It weakens no other node's, strengthens an
// allowing guard, and does not bring back a guard that the mode has withdrawn.
func TestPolicyOfNode(t *testing.T) {
	for _, tc := range []struct {
		name  string
		guard Policy
		nodes map[string]Node
		want  []string
	}{
		{"the guard's", BlockIfLast, map[string]Node{"n1": {Cordoned: true}},
			[]string{"blocked by v1-n1: no other replica of the volume is healthy"}},
		{"allowed on the node", BlockIfLast, map[string]Node{"n1": {Cordoned: true, Policy: AlwaysAllow}},
			[]string{"delete budget n1"}},
		{"allowed on another node", BlockIfLast, map[string]Node{"n1": {Cordoned: true}, "n2": {Policy: AlwaysAllow}},
			[]string{"blocked by v1-n1: no other replica of the volume is healthy"}},
		{"evicted on the node", AlwaysAllow, map[string]Node{"n1": {Cordoned: true, Policy: BlockForEviction}},
			[]string{"request eviction v1-n1", "blocked by v1-n1: it has not left yet"}},
		{"unknown", AlwaysAllow, map[string]Node{"n1": {Cordoned: true, Policy: "allways-allow"}},
			[]string{`blocked by v1-n1: unknown policy "allways-allow"`}},
		{"withdrawn", BlockIfLast, map[string]Node{"n1": {Cordoned: true, Withdrawn: true, Policy: BlockForEviction}},
			[]string{"delete budget n1"}},
	} {
		v := scene(tc.guard, replica("v1", "n1"))
		maps.Copy(v.Nodes, tc.nodes)
		if diff := cmp.Diff(tc.want, told(DecideNode(v, "n1"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	// Where the guard lets go of a node, its copies are no longer safe, and those elsewhere are held.
	v := scene(BlockIfLast, replica("v1", "n1"), replica("v1", "n2"))
	v.Nodes["n2"] = Node{Policy: AlwaysAllow}
	v.Budgets = []Budget{budget(pod("n1")), budget(pod("n3"))}
	want := []string{"blocked by v1-n1: the volume's replica on node n2 is not safe either: its pod " +
		"storage/engine-n2 has no PodDisruptionBudget of ours"}
	if diff := cmp.Diff(want, told(DecideNode(v, "n1"))); diff != "" {
		t.Errorf("the only other copy is on a node that always allows (-want +got):\n%s", diff)
	}
}
