package taint

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Node that was there while a deleted one was heard gets that one's machine by no word of its own kubelet.
func TestMachineOfDeletedNode(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bmc2 := MachineRef{Provider: "racks", ID: "bmc-2", SystemUUID: "2"}
	// node is a Node whose kubelet wrote its status after so many seconds.
	node := func(name, pin string, wrote int) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{PinLabel: pin}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				LastHeartbeatTime: metav1.NewTime(begin.Add(time.Duration(wrote) * time.Second))}}},
		}
	}
	claim := func(name string) Claim { return Claim{Node: name, Machine: bmc2, Claimed: true} }
	seen := func(nodes ...*corev1.Node) *FormerMachines {
		var f FormerMachines
		for _, n := range nodes {
			f.ApplyNode(n)
		}
		f.ApplyDeletion("n2")
		f.ApplyDeletion("n2")
		return &f
	}
	n2, n3 := node("n2", bmc2.Pin(), 1), node("n3", "", 1)
	heard := node("n2", bmc2.Pin(), 11)
	listed, pinned := claim("n3"), claim("n3")
	listed.Claimed, pinned.Pin = false, bmc2.Pin()
	again := node("n2", bmc2.Pin(), 31)
	again.UID = "n2, made again"
	for _, tt := range []struct {
		name    string
		former  *FormerMachines
		mine    Claim
		refused bool
	}{
		{"heard at once", seen(n2, n3, heard), claim("n3"), true},
		{"and silent before the deletion", seen(n2, n3, heard, node("n2", bmc2.Pin(), 11)), claim("n3"), true},
		{"another Node had its name", seen(n2, n3, heard, again), claim("n3"), true},
		{"renamed: heard under one name after the other", seen(n2, heard, n3), claim("n3"), false},
		{"never heard beside it", seen(n2, n3), claim("n3"), false},
		{"what a process sees first is no sign of life", seen(n3, n2), claim("n3"), false},
		{"the deleted Node had no machine", seen(node("n2", "", 1), n3, node("n2", "", 11)), claim("n3"), false},
		{"another machine", seen(n2, n3, heard), Claim{Node: "n3", Claimed: true,
			Machine: MachineRef{Provider: "racks", ID: "bmc-3", SystemUUID: "3"}}, false},
		{"an operator's list", seen(n2, n3, heard), listed, false},
		{"it is pinned to that machine", seen(n2, n3, heard), pinned, false},
		{"a Node that came later", seen(n2, n3, heard), claim("n4"), false},
		{"nothing was seen", nil, claim("n3"), false},
	} {
		if got := NewClaims([]Claim{tt.mine}).FindClash(tt.mine, tt.former); (got.Refused != "") != tt.refused {
			t.Errorf("%s: got %q, want refused %v", tt.name, got.Refused, tt.refused)
		}
	}

	f := seen(n2, n3, heard)
	for i := range maxFormer {
		name := fmt.Sprint("other-", i)
		pin := MachineRef{Provider: "racks", ID: name}.Pin()
		f.ApplyNode(node(name, pin, 1))
		f.ApplyNode(node(name, pin, 2))
		f.ApplyDeletion(name)
	}
	if len(f.former) != maxFormer || len(f.oldest) != maxFormer || f.findFormer(claim("n3")) != "" {
		t.Errorf("got %d machines of deleted Nodes, want the newest %d", len(f.former), maxFormer)
	}
}
