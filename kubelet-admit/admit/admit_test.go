package admit

import "testing"

// TestDecide goes through all inputs.
func TestDecide(t *testing.T) {
	type in struct{ read, marked, ready, exempt, known, was, listed, detaching, apart bool }
	want := map[in]Reason{}
	for i := range 1 << 9 {
		c := in{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0, i&16 != 0, i&32 != 0, i&64 != 0, i&128 != 0, i&256 != 0}
		// The design's sentence, clause by clause: a later clause decides only if no earlier one does.
		for _, clause := range []struct {
			applies bool
			why     Reason
		}{
			{c.exempt, Exempted},
			{c.was && !c.listed, ExemptedBefore},
			{!c.read, NodeUnread},
			{c.marked && !c.detaching, NodeMarked},
			{!c.ready, NodeNeverReady},
			{!c.known, PodUnknown},
			{c.marked && !c.apart, VolumeDetaches},
			{c.marked, NotConcerned},
			{true, Clear},
		} {
			if clause.applies {
				want[c] = clause.why
				break
			}
		}
	}
	count := map[Reason]int{}
	for c, why := range want {
		allow, got := Decide(
			Node{Read: c.read, Marked: c.marked, ReadySeen: c.ready, Listed: c.listed, Detaching: c.detaching},
			Pod{Exempt: c.exempt, WasExempt: c.was, Known: c.known, Unaffected: c.apart})
		if got != why {
			t.Errorf("Decide(%+v): reason %q, want %q", c, got, why)
		}
		if wantAllow := why == Exempted || why == ExemptedBefore || why == Clear ||
			why == NotConcerned; allow != wantAllow {
			t.Errorf("Decide(%+v) = %v (%s), want %v", c, allow, got, wantAllow)
		}
		if allow && !c.exempt && (!c.was || c.listed) &&
			(c.marked && !(c.detaching && c.apart && c.known && c.ready) || !c.read) {
			t.Errorf("Decide(%+v) lets an ordinary pod start on a node that was not read, or whose mark holds it", c)
		}
		count[got]++
	}
	// Of 512 inputs: the numbers show that no clause hides another.
	for why, n := range map[Reason]int{
		Exempted: 256, ExemptedBefore: 64, NodeUnread: 96, NodeMarked: 24, NodeNeverReady: 36, PodUnknown: 18,
		VolumeDetaches: 3, NotConcerned: 3, Clear: 12,
	} {
		if count[why] != n {
			t.Errorf("%d inputs are answered %q, want %d", count[why], why, n)
		}
	}
}

func TestZeroNodeHolds(t *testing.T) {
	for _, p := range []Pod{{}, {Known: true}} {
		if allow, why := Decide(Node{}, p); allow || why != NodeUnread {
			t.Errorf("Decide(Node{}, %+v) = %v, %q, want false, %q", p, allow, why, NodeUnread)
		}
	}
	if allow, why := Decide(Node{}, Pod{Exempt: true}); !allow || why != Exempted {
		t.Errorf("Decide(Node{}, exempt) = %v, %q, want true, %q", allow, why, Exempted)
	}
}

// TestExemptBeforeTheBoot holds the KEP's rule for a node that cannot be read: pods that tolerate the mark start. The
// first list of the boot ends the memory: a pod that it does not contain is not exempt.
func TestExemptBeforeTheBoot(t *testing.T) {
	for _, tt := range []struct {
		node Node
		pod  Pod
		want Reason
	}{
		{Node{}, Pod{WasExempt: true}, ExemptedBefore},
		{Node{Read: true, Marked: true}, Pod{WasExempt: true}, ExemptedBefore},
		{Node{Read: true, Marked: true, Listed: true}, Pod{WasExempt: true}, NodeMarked},
		{Node{Listed: true}, Pod{WasExempt: true}, NodeUnread}, // the Node was deleted
		{Node{Read: true, ReadySeen: true, Listed: true}, Pod{WasExempt: true}, PodUnknown},
		{Node{}, Pod{}, NodeUnread},
	} {
		if _, got := Decide(tt.node, tt.pod); got != tt.want {
			t.Errorf("Decide(%+v, %+v): %q, want %q", tt.node, tt.pod, got, tt.want)
		}
	}
}

// TestBoot plays the KEP's scenarios: what the hook knows, in the order in which it learns it.
func TestBoot(t *testing.T) {
	known := Pod{Known: true}
	for _, tt := range []struct {
		name  string
		steps []Node
		want  []Reason
	}{
		{
			"scenario 1: heartbeat after the mark",
			[]Node{{}, {Read: true, Marked: true}, {Read: true, Marked: true, ReadySeen: true},
				{Read: true, ReadySeen: true}},
			[]Reason{NodeUnread, NodeMarked, NodeMarked, Clear},
		},
		{
			"scenario 2: the API server cannot be reached",
			[]Node{{}, {}, {Read: true, Marked: true}, {Read: true}, {Read: true, ReadySeen: true}},
			[]Reason{NodeUnread, NodeUnread, NodeMarked, NodeNeverReady, Clear},
		},
		{
			"scenario 3: the heartbeat comes before the taint manager looks",
			[]Node{{}, {Read: true, Marked: true, ReadySeen: true}, {Read: true, ReadySeen: true}},
			[]Reason{NodeUnread, NodeMarked, Clear},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, n := range tt.steps {
				if _, got := Decide(n, known); got != tt.want[i] {
					t.Errorf("step %d, %+v: %q, want %q", i, n, got, tt.want[i])
				}
			}
		})
	}
}
