package drill

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// drilledNode is a Node with these answers, and a condition of that time.
func drilledNode(answers string, at time.Time) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{taint.DrillAnnotation: answers}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: taint.FenceableCondition, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.NewTime(at)}}
	return n
}

// What a drill wrote is read again as it was: each device with its power, its problem, and the password it refuses.
func TestAnswersRoundTrip(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	on := providers.Answer{Observation: providers.Observation{State: providers.PowerOn}}
	refused := providers.Answer{Err: providers.WithClass(providers.ErrDenied,
		&providers.RefusedPassword{Place: "/etc/bmc/password", Text: "401"})}
	a := AnswersOf(Facts{Verdict: on, Devices: []Device{
		{Name: "racks/1", Answer: refused}, {Name: "pdus/2", Answer: on}, {Name: "liar/3", Answer: on, FalseOff: "n9"},
	}})
	got := AnswersIn(drilledNode(a.Encode(at), at.Truncate(time.Second)))
	if got.Power != providers.PowerOn || !got.IsSame(a) || !got.IsPartial() || !got.At.Equal(at.Truncate(time.Second)) {
		t.Errorf("got %+v, want %+v", got, a)
	}
	const want = "racks/1: refuses the password in /etc/bmc/password, pdus/2: On, liar/3: distrusted"
	if got.Describe() != want {
		t.Errorf("got %q, want %q", got.Describe(), want)
	}
}

// Answers that cannot be read, that are too many or too long, or that are not the condition's, are none.
func TestAnswersThatCannotBeRead(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	good := Answers{Word: "Off", Devices: []DeviceAnswer{{Device: "racks/1", Power: "Off"}}}
	many := good
	for i := range maxAnswers {
		many.Devices = append(many.Devices, DeviceAnswer{Device: fmt.Sprint("racks/", i), Power: "Off"})
	}
	long := good
	long.Devices = []DeviceAnswer{{Device: strings.Repeat("x", maxAnnotation), Power: "Off"}}
	for name, node := range map[string]*corev1.Node{
		"none":                  drilledNode("", at),
		"half":                  drilledNode(good.Encode(at)[:20], at),
		"another type":          drilledNode(`{"at":"2026-03-01T12:00:00Z","word":3}`, at),
		"a word of no state":    drilledNode(Answers{Word: "off"}.Encode(at), at),
		"too many":              drilledNode(many.Encode(at), at),
		"too long":              drilledNode(long.Encode(at), at),
		"of an older condition": drilledNode(good.Encode(at), at.Add(time.Minute)),
	} {
		if got := AnswersIn(node); got.Power != providers.PowerUnknown || len(got.Devices) > 0 {
			t.Errorf("%s: got %+v, want none", name, got)
		}
	}
	if got := AnswersIn(drilledNode(good.Encode(at), at)); got.Power != providers.PowerOff {
		t.Errorf("got %+v, want Off", got)
	}
}

// What a drill writes is bounded, and read again.
func TestAnswersAreBounded(t *testing.T) {
	var devices []Device
	for range 100 {
		devices = append(devices, Device{Name: strings.Repeat("ü\"", 200), Answer: providers.Answer{
			Err: providers.WithClass(providers.ErrDenied,
				&providers.RefusedPassword{Place: strings.Repeat("\x01", 500)}),
		}})
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := AnswersOf(Facts{Devices: devices})
	text := a.Encode(at)
	if got := AnswersIn(drilledNode(text, at)); len(text) > maxAnnotation || len(got.Devices) == 0 || !got.IsSame(a) {
		t.Errorf("got %d bytes of %d devices, want at most %d", len(text), len(got.Devices), maxAnnotation)
	}
}

// The first device whose answer does not count decides what to do: each problem has another cause.
func TestRemedy(t *testing.T) {
	refused := DeviceAnswer{Problem: "denied", Refused: "/etc/bmc/password"}
	for want, devices := range map[string][]DeviceAnswer{
		"":                   {{Power: "On"}, {Problem: "unreachable"}, refused},
		"Write the password": {{Power: "On"}, refused, {Problem: "identity"}},
		"another machine":    {{Problem: "identity"}},
		"caFile or":          {{Problem: "untrusted"}},
	} {
		if got := (Answers{Devices: devices}).Remedy(); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%+v: got %q, want %q", devices, got, want)
		}
	}
}
