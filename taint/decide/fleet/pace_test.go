package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// run is a number of writes on one node: so many pods, and the first of them are storage's.
type run struct {
	node        string
	began       int // seconds
	first, pods int
}

// played gives turns until all runs are over, one write at a time under way of each slot, and returns the nodes in the
// order of their writes: in capitals those of storage pods. A write takes as long as all others.
func played(p *Pace, runs ...run) (order []string) {
	next := func(r *run) *Turn {
		if r.pods == 0 {
			return nil
		}
		t := &Turn{Node: r.node, First: r.first > 0, Since: epoch.Add(time.Duration(r.began) * time.Second)}
		r.pods, r.first = r.pods-1, max(r.first-1, 0)
		return t
	}
	for i := range runs {
		if t := next(&runs[i]); t != nil {
			p.AddTurn(t)
		}
	}
	var under []*Turn
	for {
		for t := p.NextTurn(); t != nil; t = p.NextTurn() {
			name := t.Node
			if t.First {
				name = strings.ToUpper(name)
			}
			order, under = append(order, name), append(under, t)
			for i := range runs {
				if runs[i].node == t.Node {
					if again := next(&runs[i]); again != nil {
						p.AddTurn(again)
					}
				}
			}
		}
		if len(under) == 0 {
			return order
		}
		p.FinishTurn(under[0], false)
		under = under[1:]
	}
}

var epoch = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func TestPaceOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		runs []run
		want string
	}{
		{"storage first, across nodes", []run{{"a", 1, 0, 3}, {"b", 2, 1, 3}, {"c", 3, 1, 1}}, "BCaaabb"},
		{"the older fence first", []run{{"b", 2, 0, 2}, {"a", 1, 0, 2}, {"c", 3, 0, 2}}, "aabbcc"},
		{"of the same age by name", []run{{"b", 1, 0, 1}, {"a", 1, 0, 1}}, "ab"},
		{"who waits longest has a share", []run{{"c", 3, 0, 2}, {"a", 1, 0, 20}, {"b", 2, 0, 1}},
			"aaaaaaacaaaaaaabaaaaaac"},
		{"also of storage's", []run{{"b", 1, 0, 1}, {"a", 2, 20, 20}}, "AAAAAAAbAAAAAAAAAAAAA"},
	} {
		if got := strings.Join(played(&Pace{Most: 1}, tc.runs...), ""); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// However many pods one node has, and gets, a hundred others come to their end, and none of them later than with equal
// shares.
func TestPaceStarvesNoNode(t *testing.T) {
	runs := []run{{node: "huge", began: 0, first: 100000, pods: 100000}}
	for i := range 100 {
		runs = append(runs, run{node: fmt.Sprintf("n%02d", i), began: 1 + i, pods: 10})
	}
	order := played(&Pace{Most: 4}, runs...)
	last := 0
	for i, n := range order {
		if n != "HUGE" {
			last = i
		}
	}
	if most := 101 * 10 * turnsShared; last > most {
		t.Errorf("the last of the others was written after %d writes, want %d at most", last, most)
	}
}

// Nodes are done one after the other, not all at the end.
func TestPaceMedian(t *testing.T) {
	var runs []run
	for i := range 50 {
		runs = append(runs, run{node: fmt.Sprintf("n%02d", i), began: i, pods: 20})
	}
	order := played(&Pace{Most: 8}, runs...)
	ends := map[string]int{}
	for i, n := range order {
		ends[n] = i
	}
	var at []int
	for _, i := range ends {
		at = append(at, i)
	}
	slices.Sort(at)
	if median := at[len(at)/2]; median > 6*len(order)/10 || len(order) != 1000 {
		t.Errorf("half of the nodes are done after %d of %d writes, want about half of them", median, len(order))
	}
}

func TestPaceNarrows(t *testing.T) {
	p := &Pace{}
	// take gives as many turns as there are.
	take := func() (out []*Turn) {
		for range 100 {
			p.AddTurn(&Turn{})
		}
		for t := p.NextTurn(); t != nil; t = p.NextTurn() {
			out = append(out, t)
		}
		return out
	}
	under := take()
	if len(under) != DefaultPace {
		t.Fatalf("%d writes under way, want %d", len(under), DefaultPace)
	}
	done := func(crowded bool) {
		for _, t := range under {
			p.FinishTurn(t, crowded)
		}
		under = take()
	}
	for _, want := range []int{32, 16, 8, 8} { // each crowd counts once, and something is always tried
		if done(true); len(under) != want {
			t.Fatalf("%d writes under way after a crowd, want %d", len(under), want)
		}
	}
	before := len(under)
	if done(false); len(under) != before+1 && len(under) != before {
		t.Errorf("%d writes under way after %d that succeeded, want one more at most", len(under), before)
	}
	for range 200 {
		done(false)
	}
	if len(under) != DefaultPace {
		t.Errorf("%d writes under way in the end, want %d", len(under), DefaultPace)
	}
}

// Fewer workers than the least are not made more.
func TestPaceOfFew(t *testing.T) {
	p := &Pace{Most: 2}
	p.AddTurn(&Turn{})
	turn := p.NextTurn()
	if p.FinishTurn(turn, true); p.CurrentLimit() != 2 {
		t.Errorf("room for %d, want 2", p.CurrentLimit())
	}
}

func TestPaceLeave(t *testing.T) {
	p := &Pace{Most: 1}
	a, b := &Turn{Node: "a"}, &Turn{Node: "b"}
	p.AddTurn(a)
	p.AddTurn(b)
	if p.NextTurn() != a || p.RemoveTurn(a) || !p.RemoveTurn(b) || p.RemoveTurn(b) {
		t.Error("a was given, b waited")
	}
	if p.FinishTurn(a, false); p.NextTurn() != nil {
		t.Error("no node waits any more")
	}
}
