package view

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// TestCapacity: the sentence counts the drills that succeeded, and names the node that a person should begin with.
func TestCapacity(t *testing.T) {
	node := func(name string, status corev1.ConditionStatus, why reason.Reason, message string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if status != "" {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: taint.FenceableCondition, Status: status, Reason: string(why), Message: message})
		}
		return n
	}
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	noDevice := func(name string) *corev1.Node { return node(name, no, reason.NoMachine, "no rule matches.") }
	good := func(name string) *corev1.Node { return node(name, yes, reason.Answers, "The machine is On.") }
	silent := func(name string) *corev1.Node {
		return node(name, unknown, reason.NotAnswering, "No answer that counts: racks/n: unreachable.")
	}
	dead := func(n *corev1.Node) *corev1.Node {
		n.Status.Conditions[0].Status = unknown
		return n
	}
	const lately = " could be proven off when their devices were last asked"
	const asked = " could be proven off when its devices were last asked"
	for _, tc := range []struct {
		name  string
		nodes []*corev1.Node
		want  string
	}{
		{"no nodes", nil, "the cluster has no nodes"},
		{"one node", []*corev1.Node{good("n1")}, "1 of 1 Ready node" + asked},
		{"one node without a device", []*corev1.Node{noDevice("n1")},
			"0 of 1 Ready node" + asked + "; give n1 a device, under nodes in the configuration"},
		{"nothing configured", []*corev1.Node{noDevice("n3"), noDevice("n1"), noDevice("n2"), noDevice("n5"),
			noDevice("n4")}, "0 of 5 Ready nodes" + lately + "; give n1 a device, under nodes in the configuration"},
		{"a device that does not answer", []*corev1.Node{good("n1"), silent("n2")},
			"1 of 2 Ready nodes" + lately + "; n2: no device gives an answer that counts"},
		{"no device comes first", []*corev1.Node{silent("n1"), good("n2"), noDevice("n3")},
			"1 of 3 Ready nodes" + lately + "; give n3 a device, under nodes in the configuration"},
		{"what is wrong with the device", []*corev1.Node{silent("n1"),
			node("n2", no, reason.Disagree, "The devices contradict each other.")},
			"0 of 2 Ready nodes" + lately + "; n2: The devices contradict each other"},
		{"a machine that is off, as it should be", []*corev1.Node{dead(good("n1")), silent("n2")},
			"0 of 1 Ready node" + asked + "; 1 not Ready: n1; n2: no device gives an answer that counts"},
		{"its device answered before it was not Ready", []*corev1.Node{dead(good("n1")), good("n2")},
			"1 of 1 Ready node" + asked + "; 1 not Ready: n1"},
		{"all that cannot be proven off are not Ready", []*corev1.Node{dead(silent("n2")), dead(silent("n1")),
			good("n3")}, "1 of 1 Ready node" + asked + "; 2 not Ready: n1, n2"},
		{"none is Ready", []*corev1.Node{dead(noDevice("n1")), dead(good("n2"))},
			"no node is Ready; give n1 a device, under nodes in the configuration"},
		{"a newer version's reason", []*corev1.Node{node("n1", no, "Newer", "")},
			"0 of 1 Ready node" + asked + "; n1: Newer"},
		{"text on two lines", []*corev1.Node{node("n1", no, reason.Distrusted, "one\ntwo\x1b[31m")},
			"0 of 1 Ready node" + asked + "; n1: one two [31m"},
		{"before the first drill", []*corev1.Node{node("n2", "", "", ""), node("n1", "", "", "")},
			"0 of 2 Ready nodes" + lately + "; no controller has asked the devices of n1 yet"},
		{"the first drill has begun", []*corev1.Node{node("n1", "", "", ""), silent("n2")},
			"0 of 2 Ready nodes" + lately + "; n2: no device gives an answer that counts"},
	} {
		if got := CapacityOf(tc.nodes, Cluster{}, time.Time{}).String(); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}

	// A drill counts from the second on in which the configuration was put in force.
	at := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)
	n := good("n1")
	n.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(at)
	for after, want := range map[time.Duration]string{
		0: "1 of 1 Ready node" + asked, 900 * time.Millisecond: "1 of 1 Ready node" + asked,
		time.Second: "0 of 1 Ready node" + asked + "; " +
			"the devices of n1 were last asked before the configuration changed",
	} {
		leader := Cluster{Controller: &Leader{Leads: true, ConfigSince: new(at.Add(after))}}
		if got := CapacityOf([]*corev1.Node{n}, leader, at).String(); got != want {
			t.Errorf("configured %s after the drill: got %q, want %q", after, got, want)
		}
	}

	// The oldest drill gives the count its age, while a controller leads.
	for _, tc := range []struct {
		name  string
		leads bool
		age   time.Duration
		want  string
	}{
		{"now", true, 0, " (at most 1 min ago)"},
		{"its clock is ahead", true, -time.Minute, " (at most 1 min ago)"},
		{"rounded up", true, 4*time.Minute + time.Second, " (at most 5 min ago)"},
		{"hours", true, 3*time.Hour - time.Minute, " (at most 3 h ago)"},
		{"no controller leads", false, time.Minute, ""},
	} {
		leader := Cluster{Controller: &Leader{Leads: tc.leads, DrilledSince: new(at.Add(-tc.age))}}
		if got := CapacityOf([]*corev1.Node{n}, leader, at).String(); got != "1 of 1 Ready node"+asked+tc.want {
			t.Errorf("%s: got %q, want %q at its end", tc.name, got, tc.want)
		}
	}
}
