package view

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
)

// Where one node has the hook, each fine node without it says so. Its state stays: a fence could prove it off.
func TestMissingHook(t *testing.T) {
	hook := func(word string) func(*corev1.Node) {
		return condition(taint.ProtectionCondition, corev1.ConditionTrue, 0, word, "")
	}
	const lacks = NoHook + " " + NoHookRemedy
	for _, tt := range []struct {
		name  string
		node  *corev1.Node
		other string // the other node's protection; "": it never reported one
		want  string
	}{
		{"no node has it", node(ready, answers), "", ""},
		{"the other reports that it has none", node(ready, answers), taint.ProtectionNone, ""},
		{"the other has it", node(ready, answers), taint.ProtectionFailClosed, lacks},
		{"the other has it, which may be bypassed", node(ready, answers), taint.ProtectionFailOpen, lacks},
		{"it reports that it has none", node(ready, answers, hook(taint.ProtectionNone)), taint.ProtectionNotAtBoot,
			lacks},
		{"both have it", node(ready, answers, hook(taint.ProtectionFailOpen)), taint.ProtectionFailClosed, ""},
		{"it has one of a newer version", node(ready, answers, hook("FailSoft")), taint.ProtectionFailClosed, ""},
		{"its own pause comes first", node(ready, answers, annotation(fence.PausedAnnotation, "disk")),
			taint.ProtectionFailClosed, `No fence begins: annotation forcefence.io/paused "disk", with no end.`},
	} {
		other := node(ready, answers)
		if other.Name = "n5"; tt.other != "" {
			hook(tt.other)(other)
		}
		nodes := []Node{NodeOf(NodeFacts{Node: tt.node, Key: taint.DefaultKey, Now: now}),
			NodeOf(NodeFacts{Node: other, Key: taint.DefaultKey, Now: now})}
		state := nodes[0].State
		NoteMissingHooks(nodes)
		section := reason.Section("")
		if tt.want == lacks {
			section = reason.SectionHookMissing
		}
		if got := nodes[0]; got.Next != tt.want || got.State != state || got.Runbook != section {
			t.Errorf("%s: got %s, %q (%s), want %q", tt.name, got.State, got.Next, got.Runbook, tt.want)
		}
		f := FleetOf(Snapshot{At: now, Key: taint.DefaultKey, Nodes: []*corev1.Node{tt.node, other},
			NodeConfig: func(*corev1.Node) NodeConfig { return NodeConfig{} }})
		if got, _ := f.Node("n4"); got.Next != tt.want || got.Runbook != section {
			t.Errorf("%s: the page has %q (%s), want %q", tt.name, got.Next, got.Runbook, tt.want)
		}
	}
}
