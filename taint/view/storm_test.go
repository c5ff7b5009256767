package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// The leader's fact decides what is said, with its count, for as long as the leader holds nodes back. An Event of one of
// the nodes adds nothing: it is sent once, and ends after an hour.
func TestDescribeStorm(t *testing.T) {
	event := &Event{At: ago(30 * time.Second), Reason: string(reason.DomainLost), Text: "A failure domain is lost: a."}
	remedy := PlainRemedy(reason.DomainLost)
	lost := HeldBack{Rule: reason.DomainLost, Detail: "7 of 8 nodes of zone=a fell silent at the same moment", Held: 7,
		Nodes: []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7"}, Silent: 7, Of: 20, Since: ago(3 * time.Hour)}
	alone := HeldBack{Rule: reason.TooFewHealthy, Detail: "2 of 3 nodes of the cluster are not healthy, the floor is 2",
		Held: 1, Nodes: []string{"n4"}, Silent: 1, Of: 3, Since: ago(time.Second)}
	for _, tt := range []struct {
		name   string
		held   *HeldBack
		gone   bool // the leader's Lease is over
		ready  int
		silent []*Event // of each silent node
		want   []Banner
	}{
		{"no nodes", nil, false, 0, nil, nil},
		{"all are well", nil, false, 3, nil, nil},
		{"the only node", nil, false, 0, []*Event{nil}, nil},
		{"half are silent", nil, false, 2, []*Event{nil, nil}, nil},
		{"the guard has ended, and its Event is left", nil, false, 3, []*Event{event}, nil},
		{"a zone is lost for hours, and no Event is left", &lost, false, 3, []*Event{nil}, []Banner{{PartStorm,
			"Power-offs are held back", "7 nodes: a1, a2, a3, a4, a5 and 2 more. A failure domain is lost: 7 of 8 " +
				"nodes of zone=a fell silent at the same moment. 7 of 20 nodes are silent. It began 3 h ago.", remedy,
			""}}},
		{"one node, just now", &alone, false, 3, []*Event{event}, []Banner{{PartStorm, "Power-offs are held back",
			"1 node: n4. Too few nodes are healthy: 2 of 3 nodes of the cluster are not healthy, the floor is 2. " +
				"1 of 3 nodes are silent. It began <1 min ago.", PlainRemedy(reason.TooFewHealthy), ""}}},
		{"the leader that held it is gone", &alone, true, 3, []*Event{event}, nil},
		{"most are silent, and no leader says what it holds back", nil, true, 1, []*Event{nil, nil},
			[]Banner{{PartStorm, "Most nodes are silent",
				"2 of 3 nodes are not Ready and not heard: n4, n4. While fewer than half of the nodes renew their " +
					"Leases, no machine is powered off.",
				"Look at the API server and the network.", ""}}},
	} {
		var nodes []Node
		for range tt.ready {
			nodes = append(nodes, NodeOf(NodeFacts{Node: node(ready, refused), Key: taint.DefaultKey, Now: now}))
		}
		for _, e := range tt.silent {
			facts := NodeFacts{Node: node(silent, answers), Key: taint.DefaultKey, Now: now}
			if e != nil {
				facts.Events = ownEvents(*e)
			}
			nodes = append(nodes, NodeOf(facts))
		}
		cluster := Cluster{Controller: &Leader{Leads: !tt.gone, HeldBack: tt.held}}
		if diff := cmp.Diff(tt.want, DescribeStorm(cluster, nodes, now)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// A kubelet that reports itself not Ready is heard: a broken network of pods is no storm.
func TestHeardNodesAreNoStorm(t *testing.T) {
	heard := NodeOf(NodeFacts{Node: node(condition(corev1.NodeReady, corev1.ConditionFalse, time.Minute, "", "")),
		Key: taint.DefaultKey, Now: now})
	if got := DescribeStorm(Cluster{}, []Node{heard, heard, heard}, now); got != nil {
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
