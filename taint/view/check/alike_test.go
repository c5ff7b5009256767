package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// One wrong password of many nodes is one finding that names the file. Nodes with other problems keep their own.
func TestEqualProblemsAreOneFinding(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	failed := func(name string, device drill.DeviceAnswer) Node {
		n := nodeWith(name, corev1.ConditionFalse, reason.NotAnswering, "")
		device.Device, device.Power = "racks/bmc-"+name, "Unknown"
		n.Node.Annotations = map[string]string{
			taint.DrillAnnotation: drill.Answers{Devices: []drill.DeviceAnswer{device}}.Encode(at)}
		n.Node.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(at)
		return n
	}
	refused := drill.DeviceAnswer{Problem: "denied", Refused: "/etc/bmc/password"}
	var nodes []Node
	for i := range 40 {
		nodes = append(nodes, failed(fmt.Sprintf("n%02d", i), refused))
	}
	alone := failed("x1", drill.DeviceAnswer{Problem: "unreachable"})
	older := nodeWith("x2", corev1.ConditionFalse, reason.NotAnswering, "") // an older controller wrote no answers
	none := nodeWith("x3", corev1.ConditionFalse, reason.NoMachine, "")
	got := explainDrills(append(nodes, alone, older, none))
	if len(got) != 4 {
		t.Fatalf("got %d findings, want 4: %+v", len(got), got)
	}
	const want = "racks refuses the password in /etc/bmc/password: n00, n01, n02, n03, n04 and 35 more."
	if got[0].About != "40 nodes" || got[0].Text != want || !strings.Contains(got[0].Remedy, "Secret") ||
		got[0].Level != Problem {
		t.Errorf("got %+v, want %q of 40 nodes", got[0], want)
	}
	for i, about := range []string{"x1", "x2", "x3"} {
		if f := got[i+1]; f.About != about || f.Text != "The drill's words." || strings.Contains(f.Remedy, "Secret") {
			t.Errorf("got %+v, want the finding of %s alone", f, about)
		}
	}
}
