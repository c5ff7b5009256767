package view

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/reason"
)

func TestLine(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"", 10, ""},
		{"plain", 5, "plain"},
		{"longer than that", 10, "lon…that"},
		{"two\r\nlines\tand\x00more", 40, "two  lines and more"},
		{"turned \u202eround\u2066", 40, "turned  round "},
		{"not \xff UTF-8", 40, "not ? UTF-8"},
		{"ä is not cut in two äääää", 12, "ä i…ää"},
		{strings.Repeat("x", 1<<20) + "end", 9, "xxx…end"},
	} {
		got := OneLine(tc.text, tc.most)
		if got != tc.want || len(got) > tc.most || !utf8.ValidString(got) {
			t.Errorf("OneLine(%.40q, %d): got %q, want %q", tc.text, tc.most, got, tc.want)
		}
	}
}

// Another object is an error. Words of a newer version are listed, and never read as something else.
func TestRead(t *testing.T) {
	fencing := func(change func(spec, status map[string]any)) map[string]any {
		spec := map[string]any{"node": "n1", "by": "ff", "startedAt": "2026-05-04T12:00:00.000000Z"}
		status := map[string]any{"phase": "Done", "result": "Evicted"}
		change(spec, status)
		return map[string]any{"apiVersion": "forcefence.io/v1alpha1", "kind": "Fencing",
			"metadata": map[string]any{"name": "n1.f-1"}, "spec": spec, "status": status}
	}
	for _, tc := range []struct {
		name string
		raw  map[string]any
		want []string
		bad  bool
	}{
		{name: "ours", raw: fencing(func(_, _ map[string]any) {})},
		{name: "a newer field", raw: fencing(func(_, s map[string]any) { s["colour"] = "red" }),
			want: []string{"fields of a newer version, which are not shown"}},
		{name: "a newer phase", raw: fencing(func(_, s map[string]any) { s["phase"], s["result"] = "Pondering", "" }),
			want: []string{"phase Pondering"}},
		{name: "a newer result", raw: fencing(func(_, s map[string]any) { s["result"] = "Teleported" }),
			want: []string{"result Teleported"}},
		{name: "a newer phase on the way", raw: fencing(func(_, s map[string]any) {
			s["timeline"] = []any{map[string]any{"phase": "Pondering", "at": "2026-05-04T12:00:00.000000Z"}}
		}), want: []string{"phase Pondering"}},
		{name: "a newer version", raw: func() map[string]any {
			r := fencing(func(_, _ map[string]any) {})
			r["apiVersion"] = "forcefence.io/v2"
			return r
		}(), want: []string{"apiVersion forcefence.io/v2"}},
		{name: "another type", raw: fencing(func(s, _ map[string]any) { s["startedAt"] = true }), bad: true},
	} {
		r, err := ParseFencing(tc.raw)
		if (err != nil) != tc.bad || !slices.Equal(r.Unrecognized, tc.want) {
			t.Errorf("%s: got %q, %v, want %q", tc.name, r.Unrecognized, err, tc.want)
		}
	}
}

// What comes next hangs on forcefence's newest Event, and on no one else's; a fence that needs a person says so.
func TestNext(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(at)}}
	s := Snapshot{
		At: at.Add(time.Hour), Key: taint.DefaultKey, Nodes: []*corev1.Node{n},
		NodeConfig: func(*corev1.Node) NodeConfig { return NodeConfig{} },
		Events: map[string][]Event{"n": {
			{At: at.Add(2 * time.Minute), From: "forcefence", Reason: "PowerUnknown", Text: "the newest\x1b[31m"},
			{At: at.Add(time.Minute), From: "forcefence", Reason: "PoweredOnNotReady", Text: "older"},
			{At: at.Add(3 * time.Minute), From: "kubelet", Reason: "PowerUnknown", Text: "not ours"},
		}},
	}
	if got := FleetOf(s).Nodes[0]; got.State != StateNeedsPerson || !strings.HasPrefix(got.Next, "the newest [31m") {
		t.Errorf("silent: got %s, %q", got.State, got.Next)
	}
	rec := taint.Record{ID: "f-0123456789ab", Phase: taint.PhaseEvicting, NodeUID: "u", By: "ff", Since: at, At: at}
	n.Annotations[taint.RecordAnnotation] = rec.Encode()
	r := ParsedFencing{Fencing: api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: "n.f-0123456789ab"}}}
	r.Fencing.Status.Conditions = []metav1.Condition{
		{Type: api.NeedsPerson, Status: metav1.ConditionTrue, Message: "pv-1 hangs"}}
	s.Fences, s.Events = []ParsedFencing{r}, nil
	if got := FleetOf(s).Nodes[0]; got.State != StateNeedsPerson || !strings.Contains(got.Next, "pv-1 hangs") {
		t.Errorf("stuck: got %s, %q", got.State, got.Next)
	}
	// A volume that stays is named as data, with the command to look first.
	stays := api.Attachment{Name: "csi-7", Volume: "pv-1", Driver: "csi.example.com"}
	s.Fences[0].Fencing.Status.Volumes.Waiting = []api.Attachment{stays}
	if got := FleetOf(s).Nodes[0]; len(got.Commands) == 0 ||
		got.Commands[0].Line != "kubectl describe volumeattachment csi-7" || got.Runbook != reason.SectionMarkStuck {
		t.Errorf("a volume stays: got %+v, %q", got.Commands, got.Runbook)
	}
	facts := NodeFacts{Node: n, Key: taint.DefaultKey, Now: s.At, NeedsPerson: NeedsPerson(r), Waiting: []api.Attachment{stays}}
	if got := NodeOf(facts); !slices.Equal(got.Fence.Attachments, facts.Waiting) {
		t.Errorf("a volume stays: got %+v in the node's fence", got.Fence.Attachments)
	}
	s.Fences[0].Fencing.Status.Volumes.Waiting[0].Name = "x; reboot"
	if got := FleetOf(s).Nodes[0]; len(got.Commands) == 0 || strings.Contains(got.Commands[0].Line, "reboot") {
		t.Errorf("a name that another client wrote: got %+v", got.Commands)
	}
	rec.Phase, rec.Result = taint.PhaseDone, taint.ResultEvicted
	n.Annotations[taint.RecordAnnotation] = rec.Encode()
	if got := FleetOf(s).Nodes[0]; got.State != StateNotReady {
		t.Errorf("done: got %s, %q", got.State, got.Next)
	}
}

// What a node says of itself never makes it better than it is.
func TestNodeState(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	record := func(p taint.Phase, r taint.Result) string {
		return taint.Record{ID: "f-0123456789ab", Phase: p, Result: r, NodeUID: "u", By: "ff", Since: at,
			At: at}.Encode()
	}
	for _, tc := range []struct {
		name       string
		conditions map[corev1.NodeConditionType]corev1.ConditionStatus
		record     string
		mark       string
		want       State
		fence      string
	}{
		{name: "nothing", want: StateNotReady},
		{name: "ready", conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"},
			want: StateUnfenceable},
		{name: "a word nobody knows",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "Yes"},
			want:       StateNotReady},
		{name: "silent and on",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "Unknown",
				taint.PoweredOnCondition: "True"}, want: StateNeedsPerson},
		{name: "ready and on",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True",
				taint.PoweredOnCondition: "True"}, want: StateUnfenceable},
		{name: "fenced", conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"},
			record: record(taint.PhaseArmed, ""), want: StateFencing, fence: "n.f-0123456789ab"},
		{name: "was fenced", conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"},
			record: record(taint.PhaseDone, taint.ResultEvicted), want: StateUnfenceable, fence: "n.f-0123456789ab"},
		{name: "marked by hand",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"}, mark: "manual",
			want: StateNeedsPerson},
		{name: "a record that nobody reads",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"}, record: "{",
			want: StateNeedsPerson},
		{name: "a newer version's record",
			conditions: map[corev1.NodeConditionType]corev1.ConditionStatus{corev1.NodeReady: "True"},
			record:     record("Pondering", ""), want: StateNeedsPerson},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{}}}
		for kind, s := range tc.conditions {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: s})
		}
		if tc.record != "" {
			n.Annotations[taint.RecordAnnotation] = tc.record
		}
		if tc.mark != "" {
			n.Spec.Taints = []corev1.Taint{{Key: "example.net/off", Value: tc.mark}}
		}
		f := FleetOf(
			Snapshot{At: at, Key: "example.net/off", Nodes: []*corev1.Node{n},
				NodeConfig: func(*corev1.Node) NodeConfig { return NodeConfig{} }})
		if got := f.Nodes[0]; got.State != tc.want || got.Fence != tc.fence || f.States[tc.want] != 1 ||
			(tc.fence != "") != (len(f.Fences) == 1) {
			t.Errorf("%s: got %+v with %d fences, want %s, fence %q", tc.name, got, len(f.Fences), tc.want, tc.fence)
		}
	}
}

// The page knows since when the leader's configuration is in force, and calls no answer of a former one of now.
func TestNodesBeforeConfiguration(t *testing.T) {
	f := FleetOf(Snapshot{At: now, Key: taint.DefaultKey, Nodes: []*corev1.Node{node(ready, answers)},
		Cluster:    Cluster{Controller: &Leader{Leads: true, ConfigSince: &now}},
		NodeConfig: func(*corev1.Node) NodeConfig { return NodeConfig{} }})
	if got := f.Nodes[0].Next; !strings.HasPrefix(got, DrilledBefore) {
		t.Errorf("got %q", got)
	}
}

// Without a leader no fence begins, and the page calls no node fine. A Lease that is missing, or was not read, says
// nothing.
func TestNodesWithoutLeader(t *testing.T) {
	for _, tt := range []struct {
		cluster Cluster
		want    State
	}{
		{Cluster{Controller: &Leader{Lease: "kube-system/forcefence"}}, StateLeftAlone}, {Cluster{}, StateFine},
		{Cluster{Controller: &Leader{}}, StateFine}, // perhaps without leader election
	} {
		cluster, want := tt.cluster, tt.want
		f := FleetOf(Snapshot{At: now, Key: taint.DefaultKey, Nodes: []*corev1.Node{node(ready, answers)},
			Cluster: cluster, NodeConfig: func(*corev1.Node) NodeConfig { return NodeConfig{} }})
		if got := f.Nodes[0].State; got != want {
			t.Errorf("%+v: got %s, want %s", cluster, got, want)
		}
	}
}
