package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/taint/writes"
)

// nodeWith returns a Ready node whose last drill and hook reported that; "": neither did.
func nodeWith(name string, drill corev1.ConditionStatus, why reason.Reason, hook string) Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if drill != "" {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: taint.FenceableCondition, Status: drill, Reason: string(why), Message: "The drill's words."})
	}
	if hook != "" {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: taint.ProtectionCondition, Status: corev1.ConditionTrue, Reason: hook})
	}
	return Node{Node: n, View: view.NodeOf(view.NodeFacts{Node: n, Key: taint.DefaultKey})}
}

// provable is how many of so many Ready nodes could be proven off, as the sentence says it.
func provable(n, ready int) string {
	return view.Capacity{Nodes: ready, Provable: n}.String()
}

func TestInstallation(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lease := view.Leader{Namespace: "ff", Lease: "kube-system/forcefence", Holder: "ff-1", Renewed: &at, Leads: true}
	cluster := func(l view.Leader) view.Cluster { return view.Cluster{Controller: &l} }
	leads, held, rejecting, late, configured := cluster(lease), lease, lease, lease, lease
	held.Leads = false
	late.Late, late.Until = true, new(at.Add(15*time.Second))
	configured.ConfigDigest, configured.ConfigSince = "old", &at
	crowded := lease
	crowded.Room = &room.Summary{At: at, Counts: map[room.Kind]map[room.Verdict]int{room.Node: {room.Lacks: 1}},
		Worst: map[room.Kind]room.Failure{room.Node: {Name: "n1", Lacking: 2, Pods: 5}}}
	rejecting.ConfigRejected = "config.yaml:3: mode: missing"
	const fault = "ConfigMap ff/forcefence: config.yaml:3: mode: must be fence."
	good := func(name string) Node { return nodeWith(name, yes, reason.Answers, taint.ProtectionFailClosed) }
	bad := func(name string, why reason.Reason) Node { return nodeWith(name, no, why, taint.ProtectionFailClosed) }
	fresh := good("n2")
	fresh.Node.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(at)
	excluded := func(n Node) Node {
		n.View.LeftAlone = "label forcefence.io/exclude"
		return n
	}
	stuck := good("n1")
	stuck.View.State, stuck.View.Next = view.StateNeedsPerson, "A person should look: volume pv-7 does not detach"
	deaf := bad("n1", reason.Disagree)
	deaf.View = stuck.View
	freed := good("n1")
	freed.View.Fence = &view.NodeFence{Result: string(taint.ResultEvicted), At: at}
	pending := leads
	pending.Waiting = 21
	silent := good("n1")
	silent.View.State, silent.View.Next = view.StateNotReady, "A controller asks its devices."
	waiting := bad("n1", reason.Disagree)
	waiting.View = silent.View
	twin := func(name string) Node {
		n := good(name)
		n.Node.Status.NodeInfo.SystemUUID = "11223344-5566-7788-99aa-bbccddeeff01"
		return n
	}
	dark := good("n3")
	dark.View.Ready = string(corev1.ConditionUnknown)
	shadowed := good("n1")
	shadowed.Node.Annotations = map[string]string{
		taint.DrillAnnotation: drill.AnswersOf(drill.Facts{Shadow: true}).Encode(time.Time{}),
	}
	over := good("n1")
	over.Node.Annotations = map[string]string{fence.PausedAnnotation: "disks; until=2026-01-31T00:00:00Z"}
	over.View = view.NodeOf(view.NodeFacts{Node: over.Node, Key: taint.DefaultKey, Now: at})
	pausedFor := func(d time.Duration) Node {
		n := excluded(good("n2"))
		n.View.State, n.View.ReadySince = view.StateNotReady, new(at.Add(-d))
		return n
	}

	stays := action.Pod{Namespace: "shop", Name: "tol-0", Exempt: taint.ExemptTolerate,
		Owner:       action.Owner{Kind: "StatefulSet", Name: "tol"},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	selected := stays
	selected.First = true
	for _, tc := range []struct {
		name    string
		facts   Facts
		summary string
		ok      bool
		// findings is how many there are; 0: any number
		findings int
		finding  []string // level about: part of text | part of remedy

		problems int // 0: any number
	}{
		{name: "all is well", facts: Facts{Cluster: leads, Nodes: []Node{good("n1"), good("n2")}}, ok: true,
			summary: "forcefence leads; " + provable(2, 2) + "."},
		{name: "records are signed", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")},
			Signing: Signing{On: true, Keys: 1}}, ok: true,
			summary: "forcefence leads; " + provable(1, 1) + "; records are signed."},
		{name: "no public key", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")},
			Signing: Signing{On: true, Fault: "No ConfigMap has public keys."}},
			summary: "forcefence leads; " + provable(1, 1) + "; no proof can be verified.",
			finding: []string{"problem signing: No ConfigMap has public keys.|forcefence proof keys --new"}},
		{name: "public keys that cannot be read", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")},
			Signing: Signing{On: true}}, ok: true, summary: "forcefence leads; " + provable(1, 1) + "."},
		{name: "no room for the pods of one node", facts: Facts{At: at.Add(time.Minute), Cluster: cluster(crowded),
			Nodes: []Node{good("n1")}}, ok: true, summary: "forcefence leads; " + provable(1, 1) + ".", findings: 1,
			finding: []string{"note room: The pods of 0 of 1 nodes fit elsewhere. If node n1 fails now, 2 of 5|" +
				"estimated 60s ago"}},
		{name: "an old estimate of room", facts: Facts{At: at.Add(24 * time.Hour), Cluster: cluster(crowded),
			Nodes: []Node{good("n1")}}, ok: true, summary: "forcefence leads; " + provable(1, 1) + "."},
		{name: "volumes of a deleted node", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")}, Gone: []view.Banner{
			{About: view.PartGone, Title: "Volumes are attached", Text: "1 volume.", Remedy: "Wait."}}},
			summary: "forcefence leads; volumes are attached; " + provable(1, 1) + ".", findings: 1,
			finding: []string{"problem volumes: Volumes are attached: 1 volume.|Wait."}},
		{name: "a node's pause whose end has passed", facts: Facts{Cluster: leads, Nodes: []Node{over}}, ok: true,
			summary: "forcefence leads; " + provable(1, 1) + ".", findings: 1,
			finding: []string{"note n1: Its pause pauses nothing any more|"}},
		{name: "a node in mode shadow", facts: Facts{Cluster: leads, Nodes: []Node{shadowed, good("n2")}}, ok: true,
			summary: "forcefence leads; " + provable(2, 2) + ".", findings: 1,
			finding: []string{"note mode: shadow, for 1 of 2 nodes|Set mode: observe"}},
		{name: "a dead node that is left alone for less than an hour", ok: true,
			facts:   Facts{At: at, Cluster: leads, Nodes: []Node{good("n1"), pausedFor(time.Hour - 1)}},
			summary: "forcefence leads; " + provable(1, 1) + "; 1 excluded.",
			finding: []string{"note n2: It is not Ready, and no fence of it begins: label|"}},
		{name: "a dead node that is left alone for an hour",
			facts:   Facts{At: at, Cluster: leads, Nodes: []Node{good("n1"), pausedFor(time.Hour)}},
			summary: "forcefence leads; " + provable(1, 1) + "; 1 excluded.",
			finding: []string{"problem n2: It is not Ready, and no fence of it begins: label|"}},
		{name: "two nodes report one UUID", facts: Facts{Cluster: leads, Nodes: []Node{twin("n1"), twin("n2")}},
			summary: "forcefence leads; " + provable(2, 2) + ".",
			finding: []string{"problem n1, n2: They report one system UUID|guests were cloned"}},
		{name: "most nodes are silent", facts: Facts{Cluster: leads, Nodes: []Node{good("n1"), dark, dark}},
			summary: "forcefence leads; most nodes are silent; " + provable(3, 3) + ".",
			finding: []string{"problem storm: 2 of 3 nodes are not Ready|API server"}},
		{name: "one device does not answer",
			facts: Facts{Cluster: leads, Nodes: []Node{good("n1"), good("n2"), good("n3"), good("n4"), good("n5"),
				bad("n6", reason.NotAnswering)}},
			summary: "forcefence leads; " + provable(5, 6) + "; n6: no device gives an answer that counts.",
			finding: []string{"problem n6: The drill's words.|Look at the device"}},
		{name: "each node without a device is named with what to do",
			facts:   Facts{Cluster: leads, Nodes: []Node{bad("n1", reason.Disagree), bad("n2", reason.NoMachine)}},
			summary: "forcefence leads; " + provable(0, 2) + "; give n2 a device, under nodes in the configuration.",
			finding: []string{"problem n1: The drill's words.|Look at each",
				"problem n2: The drill's words.|Add or correct its rule under nodes"}},
		{name: "a reason of a newer version", facts: Facts{Cluster: leads, Nodes: []Node{bad("n1", "Dozing")}},
			summary: "forcefence leads; " + provable(0, 1) + "; n1: The drill's words.",
			finding: []string{"problem n1: The drill's words.|"}},
		{name: "not drilled yet",
			facts:   Facts{Cluster: leads, Nodes: []Node{nodeWith("n1", "", "", taint.ProtectionFailClosed)}},
			summary: "forcefence leads; " + provable(0, 1) + "; no controller has asked the devices of n1 yet.",
			finding: []string{"problem n1: No controller has asked|--wait"}},
		{name: "drilled before the configuration changed",
			facts: Facts{Cluster: cluster(configured),
				Nodes: []Node{good("n1"), fresh, bad("n3", reason.ModeDisabled)}},
			summary: "forcefence leads; " + provable(1, 3) + "; " +
				"the devices of n1 were last asked before the configuration changed.",
			finding: []string{"problem n1: before the configuration changed|--wait",
				"problem n3: before the configuration changed|--wait"},
			problems: 2},
		{name: "a changed ConfigMap that the controller has not read",
			facts:   Facts{Cluster: cluster(configured), Nodes: []Node{fresh}, ConfigDigest: "new"},
			summary: "forcefence leads; its changed configuration is not in force yet; " + provable(1, 1) + ".",
			finding: []string{"problem configuration: has not read the changed ConfigMap|--wait"}, problems: 1},
		{name: "the ConfigMap is in force", ok: true,
			facts:   Facts{Cluster: cluster(configured), Nodes: []Node{fresh}, ConfigDigest: "old"},
			summary: "forcefence leads; " + provable(1, 1) + "."},
		{name: "the leader renews late", ok: true,
			facts:   Facts{At: at.Add(21 * time.Second), Cluster: cluster(late), Nodes: []Node{good("n1")}},
			summary: "forcefence led until 12:00:15 UTC (renewed 21s ago: late); " + provable(1, 1) + ".",
			finding: []string{
				"note controller: ff-1 has not renewed its Lease kube-system/forcefence in time|a minute"}},
		{name: "an Unknown drill proves nothing",
			facts: Facts{Cluster: leads, Nodes: []Node{
				nodeWith("n1", corev1.ConditionUnknown, reason.NotAnswering, taint.ProtectionFailClosed)}},
			summary: "forcefence leads; " + provable(0, 1) + "; n1: no device gives an answer that counts."},
		{name: "pods that a fence freed wait", facts: Facts{Cluster: pending, Nodes: []Node{freed}, At: at},
			summary: "forcefence leads; 21 pods wait for a node; " + provable(1, 1) + ".", problems: 1,
			finding: []string{"problem pods: of the last hour freed the pods of n1|kubectl get pods -A"}},
		{name: "one node is one problem", facts: Facts{Cluster: leads, Nodes: []Node{deaf}}, problems: 1,
			summary: "forcefence leads; " + provable(0, 1) + "; n1: The drill's words; 1 in need of a person.",
			finding: []string{"problem n1: pv-7 does not detach"}, findings: 1},
		{name: "a drill of a node that is not Ready is no second finding",
			facts: Facts{Cluster: leads, Nodes: []Node{waiting}}, ok: true, findings: 1,
			summary: "forcefence leads; " + provable(0, 1) + "; n1: The drill's words.",
			finding: []string{"note n1: A controller asks its devices."}},
		{name: "excluded nodes do not count",
			facts:   Facts{Cluster: leads, Nodes: []Node{good("n1"), excluded(bad("n2", reason.NoMachine))}},
			ok:      true,
			summary: "forcefence leads; " + provable(1, 1) + "; 1 excluded.",
			finding: []string{"note n2: No fence of it begins: label forcefence.io/exclude.|"}},
		{name: "mode disabled excludes",
			facts:   Facts{Cluster: leads, Nodes: []Node{bad("n1", reason.ModeDisabled)}},
			summary: "forcefence leads; every node is excluded.",
			finding: []string{"problem nodes: Every node is excluded|excludeSelector"}},
		{name: "no controller is installed",
			facts: Facts{Cluster: cluster(view.Leader{}), Nodes: []Node{nodeWith("n1", "", "", "")}},
			summary: "no controller leads; " + provable(0, 1) + "; " +
				"no controller has asked the devices of n1 yet.",
			finding:  []string{"problem controller: No controller has created its Lease|--before-install"},
			problems: 1},
		{name: "the leader is gone",
			facts:   Facts{At: at.Add(3 * time.Minute), Cluster: cluster(held), Nodes: []Node{good("n1")}},
			summary: "no controller leads; " + provable(1, 1) + ".",
			finding: []string{"problem controller: No controller leads: Lease kube-system/forcefence was renewed " +
				"3 min ago, by ff-1. It belongs to the installation in namespace ff.|-n ff describe pods"}},
		{name: "the user's installation is another one",
			facts:   Facts{Cluster: leads, Namespace: "second", Nodes: []Node{good("n1")}},
			summary: "forcefence leads; not the one in namespace second; " + provable(1, 1) + ".",
			finding: []string{"problem controller: A controller in namespace second cannot lead: Lease " +
				"kube-system/forcefence belongs to the installation in namespace ff.|Uninstall one of them"}},
		{name: "a pause, and faults of the configuration",
			facts: Facts{Nodes: []Node{good("n1")}, Configuration: []string{fault},
				Cluster: view.Cluster{Controller: leads.Controller,
					Paused: `ConfigMap ff/forcefence-pause: "switches"`}},
			summary: "forcefence leads; fencing is paused for all nodes; its configuration has faults; " +
				provable(1, 1) + ".",
			finding: []string{"problem pause: \"switches\"|forcefence resume",
				"problem configuration: " + fault + "|Correct"}},
		{name: "a rejected configuration, whose faults are reported once",
			facts:    Facts{Cluster: cluster(rejecting), Nodes: []Node{good("n1")}, Configuration: []string{fault}},
			summary:  "forcefence leads; the changed configuration is rejected; " + provable(1, 1) + ".",
			finding:  []string{"problem configuration: config.yaml:3: mode: missing. The previous|Correct"},
			problems: 1},
		{name: "an unread Lease is a problem", facts: Facts{Nodes: []Node{good("n1")}},
			summary: "the leader is unknown; " + provable(1, 1) + ".",
			finding: []string{"problem controller: unknown|Lease"}},
		{name: "a missing right is a problem",
			facts:   Facts{Nodes: []Node{good("n1")}, Unknown: []string{"You lack the right: list leases"}},
			summary: "the leader is unknown; " + provable(1, 1) + ".",
			finding: []string{"problem rights: You lack the right: list leases.|forcefence-look"}},
		{name: "no nodes", facts: Facts{Cluster: leads}, summary: "forcefence leads; the cluster has no nodes."},
		{name: "a fence needs a person", facts: Facts{Cluster: leads, Nodes: []Node{stuck}},
			summary: "forcefence leads; " + provable(1, 1) + "; 1 in need of a person.",
			finding: []string{"problem n1: volume pv-7|"}},
		{name: "a node that is not Ready is what forcefence is for",
			facts: Facts{Cluster: leads, Nodes: []Node{silent}}, ok: true,
			summary: "forcefence leads; " + provable(1, 1) + ".",
			finding: []string{"note n1: asks its devices|"}},
		{name: "no hook anywhere",
			facts: Facts{Cluster: leads, Nodes: []Node{nodeWith("n1", yes, reason.Answers, "")}}, ok: true,
			summary: "forcefence leads; " + provable(1, 1) + ".",
			finding: []string{"note hook: No node has the hook|hook.enabled=true"}},
		{name: "a hook is missing, another may be bypassed",
			facts: Facts{Cluster: leads, Nodes: []Node{good("n1"),
				nodeWith("n2", yes, reason.Answers, ""), nodeWith("n3", yes, reason.Answers, taint.ProtectionNone),
				nodeWith("n4", yes, reason.Answers, taint.ProtectionFailOpen),
				nodeWith("n5", yes, reason.Answers, taint.ProtectionNotAtBoot)}},
			summary: "forcefence leads; " + provable(5, 5) + ".",
			finding: []string{"problem n2: It has no hook|DaemonSet", "problem n3: It has no hook|DaemonSet",
				"note hook: On n5 pods of a boot may start|power-on", "note hook: On n4 pods start|ForcefenceGuard"}},
		{name: "pods stay on their nodes", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")}, Pods: []action.Pod{
			stays}, EvictFirst: "app=web"}, ok: true, summary: "forcefence leads; " + provable(1, 1) + ".",
			finding: []string{"note pods: 1 pod stays: shop/tol-0 (tolerates the mark)|by key"}},
		{name: "evictFirst selects only pods that stay", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")},
			Pods: []action.Pod{selected}, EvictFirst: "app=csi"},
			summary: "forcefence leads; " + provable(1, 1) + ".", problems: 1,
			finding: []string{`problem evictFirst: "app=csi" has no effect: every pod that it selects stays ` +
				"on its node, such as shop/tol-0 (tolerates the mark)|Select others"}},
		{name: "evictFirst also selects a pod that moves", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")},
			Pods: []action.Pod{selected, {First: true}}, EvictFirst: "app=csi"}, ok: true,
			summary: "forcefence leads; " + provable(1, 1) + "."},
		{name: "pods may not be read", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")}, NoPods: "You may not."},
			ok: true, summary: "forcefence leads; " + provable(1, 1) + ".",
			finding: []string{"note pods: unknown which pods would stay on a dead node. You may not."}},
		{name: "fences are not recorded", facts: Facts{Cluster: leads, Nodes: []Node{good("n1")}, NoFencings: true},
			ok: true, summary: "forcefence leads; " + provable(1, 1) + ".",
			finding: []string{"note fencings: not recorded|CustomResourceDefinition"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Installation(tc.facts)
			if got.Summary != tc.summary || got.OK != tc.ok || got.OK != (got.Problems() == 0) {
				t.Errorf("got OK %t, %d problems and %q\nwant %t and %q", got.OK, got.Problems(), got.Summary, tc.ok,
					tc.summary)
			}
			if n := len(got.Findings); tc.findings > 0 && n != tc.findings {
				t.Errorf("got %d findings, want %d: %+v", n, tc.findings, got.Findings)
			}
			if n := got.Problems(); tc.problems > 0 && n != tc.problems {
				t.Errorf("got %d problems, want %d: %+v", n, tc.problems, got.Findings)
			}
			for _, want := range tc.finding {
				head, rest, _ := strings.Cut(want, ": ")
				text, remedy, _ := strings.Cut(rest, "|")
				if !slices.ContainsFunc(got.Findings, func(f Finding) bool {
					return string(f.Level)+" "+f.About == head && strings.Contains(f.Text, text) &&
						strings.Contains(f.Remedy, remedy)
				}) {
					t.Errorf("got no %q in %+v", want, got.Findings)
				}
			}
			if i := slices.IndexFunc(got.Findings, func(f Finding) bool { return f.Level == Note }); i >= 0 &&
				slices.ContainsFunc(got.Findings[i:], func(f Finding) bool { return f.Level == Problem }) {
				t.Errorf("got a problem behind a note: %+v", got.Findings)
			}
		})
	}
}

// Waiting helps unless each problem is a node to which the configuration in force gives no device.
func TestLasting(t *testing.T) {
	const no = corev1.ConditionFalse
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	leads := view.Leader{Namespace: "ff", Lease: "kube-system/forcefence", Holder: "ff-1", Renewed: &at, Leads: true}
	changed := leads
	changed.ConfigDigest, changed.ConfigSince = "old", &at
	drilledNode := func(name string, why reason.Reason, unclaimed bool) Node {
		n := nodeWith(name, no, why, "")
		n.Unclaimed = unclaimed
		return n
	}
	deviceless := drilledNode("n1", reason.NoMachine, true)
	fine := nodeWith("n2", corev1.ConditionTrue, reason.Answers, "")
	for _, tc := range []struct {
		name   string
		leader view.Leader
		digest string // of the ConfigMap
		nodes  []Node
		want   bool
	}{
		{"nodes without a device", leads, "", []Node{deviceless, drilledNode("n3", reason.NoMachine, true)}, true},
		{"one of two nodes", leads, "", []Node{deviceless, fine}, true},
		{"all is well", leads, "", []Node{fine}, false},
		{"no drill yet", leads, "", []Node{deviceless, nodeWith("n2", "", "", "")}, false},
		{"a device that does not answer", leads, "",
			[]Node{deviceless, drilledNode("n2", reason.NotAnswering, false)}, false},
		{"a node whose rule does not find it yet", leads, "",
			[]Node{drilledNode("n1", reason.NoMachine, false)}, false},
		{"another problem before a drill by the new rules", leads, "",
			[]Node{drilledNode("n1", reason.NotAnswering, true)}, false},
		{"a drill before the change", changed, "old", []Node{deviceless}, false},
		{"a change that the controller has not read", changed, "new", []Node{deviceless}, false},
		{"no leader", view.Leader{}, "", []Node{deviceless}, false},
	} {
		r := Installation(Facts{At: at, Cluster: view.Cluster{Controller: &tc.leader}, ConfigDigest: tc.digest,
			Nodes: tc.nodes})
		if r.Lasting != tc.want {
			t.Errorf("%s: got Lasting %t, want %t: %+v", tc.name, r.Lasting, tc.want, r.Findings)
		}
	}
}

// An order that should have ended is a problem, another one a note. A budget that holds a drain is neither.
func TestOrders(t *testing.T) {
	const fences, budgets = "networkfences.csiaddons.openshift.io", "poddisruptionbudgets.policy"
	for _, tt := range []struct {
		resource string
		state    writes.State
		level    Level
		text     string
	}{
		{fences, writes.Holds, Note, fences + " f of node n1 is in force."},
		{fences, writes.Kept, Problem, fences + " f of node n1 is in force, and should have ended."},
		{fences, writes.Ending, Problem, fences + " f of node n1 was taken back, and nothing confirms that yet."},
		{fences, writes.NodeGone, Problem, fences + " f of node n1 is in force, and its Node was deleted."},
		{budgets, writes.NodeGone, Problem, budgets + " f of node n1 is in force, and its Node was deleted."},
		{budgets, writes.Holds, "", ""},
	} {
		r := Installation(Facts{Orders: []writes.Order{
			{Resource: tt.resource, Name: "f", Node: "n1", State: tt.state}}})
		var found Finding
		if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.About == "n1" }); i >= 0 {
			found = r.Findings[i]
		}
		if found.Level != tt.level || found.Text != tt.text || (found.Remedy != "") != (tt.level == Problem) {
			t.Errorf("%s %s: got %+v, want %s: %s", tt.resource, tt.state, found, tt.level, tt.text)
		}
	}
}
