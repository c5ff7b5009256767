package cluster

import (
	"fmt"
	"slices"
	"testing"
)

func TestLedger(t *testing.T) {
	a := Run{Node: "n1", Name: "a-0", UID: "1", Identity: "ns/a-0", Volumes: []string{"v"}}
	b := Run{Node: "n2", Name: "a-0", UID: "2", Identity: "ns/a-0", Volumes: []string{"v"}}
	sameNode, writer, reader, sharer := b, b, b, b
	sameNode.Node = "n1"
	writer.Identity = ""
	reader.Identity, reader.Volumes = "", nil
	sharer.Identity, sharer.Node = "", "n1"
	rerun := a
	rerun.Node = "n2"
	for _, tc := range []struct {
		name string
		do   func(*Ledger)
		want []ViolationKind
	}{
		{"alone", func(l *Ledger) { l.start(a) }, nil},
		{"both", func(l *Ledger) { l.start(a); l.start(b) }, []ViolationKind{TwoPods, TwoWriters}},
		{"one UID on two nodes", func(l *Ledger) { l.start(a); l.start(rerun) }, []ViolationKind{TwoPods, TwoWriters}},
		{"two UIDs on one node", func(l *Ledger) { l.start(a); l.start(sameNode) }, []ViolationKind{TwoPods}},
		{"two writers", func(l *Ledger) { l.start(a); l.start(writer) }, []ViolationKind{TwoWriters}},
		{"a reader", func(l *Ledger) { l.start(a); l.start(reader) }, nil},
		{"two writers on one node", func(l *Ledger) { l.start(a); l.start(sharer) }, nil},
		{"after stop", func(l *Ledger) { l.start(a); l.stop("n1", "1"); l.start(b) }, nil},
		{"after power-off", func(l *Ledger) { l.start(a); l.powerOff("n1"); l.start(b) }, nil},
		{"stop of another node", func(l *Ledger) { l.start(a); l.stop("n2", "1"); l.start(b) },
			[]ViolationKind{TwoPods, TwoWriters}},
		{"the copy ended, the first runs", func(l *Ledger) {
			l.start(a)
			l.start(rerun)
			l.stop("n2", "1")
			l.violations = nil
			l.start(b)
		}, []ViolationKind{TwoPods, TwoWriters}},
		{"attached twice", func(l *Ledger) { l.attach("v", "n1"); l.attach("v", "n2") }, []ViolationKind{TwoAttached}},
		{"attached after detach", func(l *Ledger) { l.attach("v", "n1"); l.detach("v", "n1"); l.attach("v", "n2") },
			nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger()
			tc.do(l)
			var got []ViolationKind
			for _, v := range l.Violations() {
				got = append(got, v.Kind)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("violations: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSpans(t *testing.T) {
	l := newLedger()
	l.keepSpans = true
	l.powerOn("n1")
	l.attach("v", "n1")
	l.attach("v", "n1") // again, after an answer that was lost
	l.start(Run{Node: "n1", Namespace: "ns", Name: "a-0", UID: "1", Volumes: []string{"v"}})
	l.start(Run{Node: "n1", Namespace: "ns", Name: "a-1", UID: "2"})
	l.renew("n1")
	l.stop("n1", "2")
	check := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range l.CutSpans() {
			text := fmt.Sprintf("%s %s %s%s", s.Kind, s.Node, s.What, s.UID)
			if s.To.IsZero() {
				text += " open"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("spans: got %q, want %q", got, want)
		}
	}
	check("power n1  open", "attached n1 v open", "use n1 v1 open", "run n1 ns/a-01 open", "run n1 ns/a-12",
		"renewal n1 ")
	l.powerOff("n1")
	check("power n1 ", "attached n1 v open", "use n1 v1", "run n1 ns/a-01")
	l.detach("v", "n1")
	check("attached n1 v")
	check()
}
