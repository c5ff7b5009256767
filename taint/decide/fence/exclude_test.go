package fence

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pause counts whatever its text, until the time that it names. An invalid time does not end it.
func TestPause(t *testing.T) {
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	noon := at("2026-03-01T12:00:00Z")
	for _, tc := range []struct {
		text string
		want Pause
		says string
	}{
		{"", Pause{}, `"", with no end`},
		{"new disk", Pause{Reason: "new disk"}, `"new disk", with no end`},
		{"new disk; until=2026-03-01T12:00:00Z", Pause{Reason: "new disk", Until: noon},
			`"new disk" until 2026-03-01T12:00:00Z`},
		{" new disk ;until= 2026-03-01T13:00:00+01:00 ", Pause{Reason: "new disk", Until: noon},
			`"new disk" until 2026-03-01T12:00:00Z`},
		{"until=2026-03-01T12:00:00Z", Pause{Until: noon}, `"" until 2026-03-01T12:00:00Z`},
		{"disk; fan; until=2026-03-01T12:00:00Z", Pause{Reason: "disk; fan", Until: noon},
			`"disk; fan" until 2026-03-01T12:00:00Z`},
		{"until=2026-03-01T12:00:00Z; disk", Pause{Reason: "until=2026-03-01T12:00:00Z; disk"},
			`"until=2026-03-01T12:00:00Z; disk", with no end`},
		{"disk; until=", Pause{Reason: "disk"}, `"disk", with no end`},
		{"disk; until=tomorrow", Pause{Reason: "disk", BadUntil: "tomorrow"},
			`"disk", with no end (until="tomorrow" is not a time of the form YYYY-MM-DDThh:mm:ssZ)`},
		{"disk; until=2026-03-01 12:00", Pause{Reason: "disk", BadUntil: "2026-03-01 12:00"},
			`"disk", with no end (until="2026-03-01 12:00" is not a time of the form YYYY-MM-DDThh:mm:ssZ)`},
		{"a\x1b[2J\nb", Pause{Reason: "a\x1b[2J\nb"}, `"a [2J b", with no end`},
	} {
		got := ParsePause(tc.text)
		if got.Reason != tc.want.Reason || !got.Until.Equal(tc.want.Until) || got.BadUntil != tc.want.BadUntil ||
			got.String() != tc.says {
			t.Errorf("%q: got %+v (%s), want %+v (%s)", tc.text, got, got, tc.want, tc.says)
		}
		ends := tc.want.Until.Equal(noon)
		if got.IsOver(noon.Add(-time.Second)) || got.IsOver(noon) != ends || got.IsOver(noon.AddDate(9, 0, 0)) != ends {
			t.Errorf("%q: over at the wrong time", tc.text)
		}
	}
	if n := len(ParsePause(strings.Repeat("x", 200000)).String()); n > 300 {
		t.Errorf("a long reason makes %d bytes of an Event", n)
	}
}

// Each word of others alone keeps a node from everything, or its machine from being powered off.
func TestExcludedByNode(t *testing.T) {
	annotated := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{"forcefence.io/paused": value} }
	}
	labelled := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Labels = map[string]string{"remediation.medik8s.io/exclude-from-remediation": value}
		}
	}
	condition := func(name string, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeConditionType(name), Status: status})
		}
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	for name, tc := range map[string]struct {
		change             func(*corev1.Node)
		excluded           string
		kept, keptCordoned string
	}{
		"nothing":           {func(*corev1.Node) {}, "", "", ""},
		"paused":            {annotated("new disk"), `annotation forcefence.io/paused "new disk", with no end`, "", ""},
		"paused, no reason": {annotated(""), `annotation forcefence.io/paused "", with no end`, "", ""},
		"paused until later": {annotated("disk; until=2026-03-01T12:00:01Z"),
			`annotation forcefence.io/paused "disk" until 2026-03-01T12:00:01Z`, "", ""},
		"paused until now": {annotated("disk; until=2026-03-01T12:00:00Z"), "", "", ""},
		"paused until who knows": {annotated("disk; until=noon"),
			`annotation forcefence.io/paused "disk", with no end (until="noon" is not a time of the form ` +
				`YYYY-MM-DDThh:mm:ssZ)`,
			"", ""},
		"excluded by label":      {labelled("true"), "label remediation.medik8s.io/exclude-from-remediation", "", ""},
		"its label says false":   {labelled("false"), "", "", ""},
		"its label says nothing": {labelled(""), "", "", ""},
		"maintenance": {condition("MaintenanceInProgress", corev1.ConditionTrue),
			"condition MaintenanceInProgress", "", ""},
		"maintenance is over": {condition("MaintenanceInProgress", corev1.ConditionFalse), "", "", ""},
		"maintenance unknown": {condition("MaintenanceInProgress", corev1.ConditionUnknown), "", "", ""},
		"a drain": {condition("DrainInProgress", corev1.ConditionTrue), "", "condition DrainInProgress",
			"condition DrainInProgress"},
		"a drain is over": {condition("DrainInProgress", corev1.ConditionFalse), "", "", ""},
		"drained":         {condition("Drained", corev1.ConditionTrue), "", "condition Drained", "condition Drained"},
		"drained, over":   {condition("Drained", corev1.ConditionFalse), "", "", ""},
		"maintenance is planned": {condition("MaintenancePlanned", corev1.ConditionTrue), "",
			"condition MaintenancePlanned", "condition MaintenancePlanned"},
		"a shutdown": {condition("GracefulNodeShutdownInProgress", corev1.ConditionTrue), "",
			"condition GracefulNodeShutdownInProgress", "condition GracefulNodeShutdownInProgress"},
		"cordoned":          {cordoned, "", "", "the node is cordoned"},
		"another condition": {condition("MemoryPressure", corev1.ConditionTrue), "", "", ""},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		}}
		tc.change(n)
		for _, c := range n.Status.Conditions {
			read := strings.HasSuffix(tc.excluded+tc.kept, string(c.Type)) && c.Status == corev1.ConditionTrue
			if read && !IsExclusionCondition(c.Type) {
				t.Errorf("%s: IsExclusionCondition(%s): false, so a watch passes over it", name, c.Type)
			}
		}
		if got := ExclusionReason(n, now.Wall); got != tc.excluded {
			t.Errorf("%s: excluded %q, want %q", name, got, tc.excluded)
		}
		if got, cord := KeepOnReason(n, false), KeepOnReason(n, true); got != tc.kept || cord != tc.keptCordoned {
			t.Errorf("%s: kept on %q, and %q where a cordon counts; want %q and %q", name, got, cord, tc.kept,
				tc.keptCordoned)
		}
	}
}

// A ConfigMap pauses with any content. Of medik8s' Leases only node maintenance's counts, until it has expired.
func TestExcludedElsewhere(t *testing.T) {
	for _, tc := range []struct {
		data map[string]string
		says string
		over bool
	}{
		{nil, `"", with no end`, false},
		{map[string]string{"reason": "switches"}, `"switches", with no end`, false},
		{map[string]string{"reason": "switches", "until": "2026-03-01T12:00:01Z"},
			`"switches" until 2026-03-01T12:00:01Z`, false},
		{map[string]string{"until": "2026-03-01T12:00:00Z"}, `"" until 2026-03-01T12:00:00Z`, true},
		{map[string]string{"until": "noon"},
			`"", with no end (until="noon" is not a time of the form YYYY-MM-DDThh:mm:ssZ)`, false},
		{map[string]string{"paused": "false"}, `"", with no end`, false},
	} {
		if p := PauseOf(tc.data); p.String() != tc.says || p.IsOver(now.Wall) != tc.over {
			t.Errorf("%v: got %s, over %v", tc.data, p, p.IsOver(now.Wall))
		}
	}
	const hour = int32(3600)
	at := func(d time.Duration) *metav1.MicroTime { m := metav1.NewMicroTime(now.Add(d).Wall); return &m }
	text, seconds := func(s string) *string { return &s }, func(s int32) *int32 { return &s }
	held := func(renewed *metav1.MicroTime, duration int32) coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{HolderIdentity: text(maintainer), RenewTime: renewed,
			LeaseDurationSeconds: &duration}
	}
	for name, tc := range map[string]struct {
		spec coordinationv1.LeaseSpec
		want bool
	}{
		"without holder": {coordinationv1.LeaseSpec{RenewTime: at(0), LeaseDurationSeconds: seconds(hour)},
			false},
		"node maintenance's": {
			coordinationv1.LeaseSpec{HolderIdentity: text("node-maintenance"), RenewTime: at(-time.Hour + 1),
				LeaseDurationSeconds: seconds(hour)}, true},
		"it ran out": {
			coordinationv1.LeaseSpec{HolderIdentity: text("node-maintenance"), RenewTime: at(-time.Hour),
				LeaseDurationSeconds: seconds(hour)}, false},
		"it names no duration": {coordinationv1.LeaseSpec{HolderIdentity: text(maintainer), RenewTime: at(0)}, false},
		"it names no renewal":  {held(nil, hour), false},
		"for a long time":      {held(at(1-time.Hour), 1<<31-1), true},
		"for too long":         {held(at(-time.Hour), 1<<31-1), false},
		"for no time":          {held(at(0), 0), false},
		"by a clock ahead":     {held(at(5*time.Minute), hour), true},
		"in the future":        {held(at(5*time.Minute+time.Microsecond), hour), false},
		"a health check's": {
			coordinationv1.LeaseSpec{HolderIdentity: text("NodeHealthCheck-workers"), RenewTime: at(0),
				LeaseDurationSeconds: seconds(hour)}, false},
		"released": {
			coordinationv1.LeaseSpec{HolderIdentity: text(""), RenewTime: at(0), LeaseDurationSeconds: seconds(hour)},
			false},
	} {
		if got := IsUnderMaintenance(&coordinationv1.Lease{Spec: tc.spec}, now.Wall); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if got := LeaseName("n1"); got != "node-n1" {
		t.Errorf("its Lease: got %s", got)
	}
}

// The label alone makes a node a host of KubeVirt. Its value does not matter: KubeVirt sets "false" when its own
// heartbeat is late.
func TestIsVMHost(t *testing.T) {
	for _, value := range []string{"true", "false", "", "anything"} {
		if !IsVMHost(map[string]string{"kubevirt.io/schedulable": value}) {
			t.Errorf("value %q: got no host of KubeVirt", value)
		}
	}
	for _, labels := range []map[string]string{
		nil, {"kubevirt.io": "schedulable"}, {"kubevirt.io/schedulable.x": "true"}} {
		if IsVMHost(labels) {
			t.Errorf("%v: got a host of KubeVirt", labels)
		}
	}
}
