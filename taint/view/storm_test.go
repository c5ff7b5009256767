package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

func TestDescribeStorm(t *testing.T) {
	held := &Event{At: ago(30 * time.Second), Reason: string(reason.DomainLost), Text: "A failure domain is lost: a."}
	alone := &Event{At: ago(30 * time.Second), Reason: string(reason.Unknown), Text: "Its device is mute."}
	const share, command = " To see what the nodes share:", "kubectl get nodes -L topology.kubernetes.io/zone"
	remedy := PlainRemedy(reason.DomainLost) + share
	for _, tt := range []struct {
		name   string
		ready  int
		silent []*Event // of each silent node
		want   []Banner
	}{
		{"no nodes", 0, nil, nil},
		{"all are well", 3, nil, nil},
		{"the only node", 0, []*Event{nil}, nil},
		{"one of three is silent, for itself", 2, []*Event{alone}, nil},
		{"half are silent", 2, []*Event{nil, nil}, nil},
		{"a power-off is held back", 3, []*Event{alone, held}, []Banner{{PartStorm, "Power-offs are held back",
			"1 silent node: n4. A failure domain is lost: a.", remedy, command}}},
		{"two power-offs are held back, by one Event", 3, []*Event{held, nil}, []Banner{{PartStorm,
			"Power-offs are held back", "2 silent nodes: n4, n4. A failure domain is lost: a.", remedy, command}}},
		{"most are silent", 1, []*Event{nil, nil}, []Banner{{PartStorm, "Most nodes are silent",
			"2 of 3 nodes are not Ready and not heard: n4, n4. While fewer than half of the nodes renew their " +
				"Leases, no machine is powered off.",
			"Look at the API server and the network." + share, command}}},
	} {
		var nodes []Node
		for range tt.ready { // an Event of an earlier outage does not count
			nodes = append(nodes,
				NodeOf(NodeFacts{Node: node(ready, refused), Key: taint.DefaultKey, Events: ownEvents(*held),
					Now: now}))
		}
		for _, e := range tt.silent {
			facts := NodeFacts{Node: node(silent, answers), Key: taint.DefaultKey, Now: now}
			if e != nil {
				facts.Events = ownEvents(*e)
			}
			nodes = append(nodes, NodeOf(facts))
		}
		if diff := cmp.Diff(tt.want, DescribeStorm(nodes)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// A kubelet that reports itself not Ready is heard: a broken network of pods is no storm.
func TestHeardNodesAreNoStorm(t *testing.T) {
	heard := NodeOf(NodeFacts{Node: node(condition(corev1.NodeReady, corev1.ConditionFalse, time.Minute, "", "")),
		Key: taint.DefaultKey, Now: now})
	if got := DescribeStorm([]Node{heard, heard, heard}); got != nil {
		t.Errorf("got %v, want no storm", got)
	}
}

// A command ends its line as it is typed: a full stop would be a part of its last word.
func TestAdviceIsCopied(t *testing.T) {
	b := Banner{Remedy: "To see them:", Command: "kubectl get pods"}
	if got := b.Advice(); got != "To see them: kubectl get pods" {
		t.Errorf("got %q", got)
	}
}

func TestDisplayCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 needs a person": StateNeedsPerson.DisplayCount(1), "2 need a person": StateNeedsPerson.DisplayCount(2),
		"2 not ready": StateNotReady.DisplayCount(2),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestGroupUrgent(t *testing.T) {
	got := GroupUrgent([]NodeRow{{Name: "n1", Runbook: reason.SectionUnproven}, {Name: "n2",
		Runbook: reason.SectionNothing}, {Name: "n3", Runbook: reason.SectionUnproven}})
	want := []UrgentGroup{{"no device proves it off", []string{"n1", "n3"}}, {"each its own reason, in its row", []string{"n2"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDescribeUrgent(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "n1 needs a person": {"n1"}, "2 nodes need a person: n1, n2": {"n1", "n2"},
		"6 nodes need a person: 1, 2, 3, 4, 5 and 1 more": {"1", "2", "3", "4", "5", "6"},
	} {
		if got := DescribeUrgent(names); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
