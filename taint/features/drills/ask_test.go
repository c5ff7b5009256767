package drills

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

func nobodyLies(machine.Machine) string { return "" }

// broken is a provider whose device fails in one way.
type broken struct{ err error }

func (b broken) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{}, b.err
}
func (b broken) PowerOff(context.Context, providers.Target, func() error) error { return b.err }
func (b broken) PowerOn(context.Context, providers.Target, func() error) error  { return b.err }

// oneMachine is a provider with one answer.
type oneMachine struct{ state providers.PowerState }

func (m oneMachine) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{State: m.state, At: providers.Now()}, nil
}
func (oneMachine) PowerOff(context.Context, providers.Target, func() error) error { return nil }
func (oneMachine) PowerOn(context.Context, providers.Target, func() error) error  { return nil }

// If one of a node's devices does not answer, the drill names it. If devices contradict each other, it names all of
// them.
func TestDrillOfTwoDevices(t *testing.T) {
	const on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	device := func(name string, s providers.PowerState) machine.Machine {
		return machine.Machine{Provider: oneMachine{s}, Name: name, Device: name + "/1"}
	}
	outlet := device("pdus", on)
	outlet.Feeds = true
	for _, tc := range []struct {
		name          string
		first, second machine.Machine
		class, says   string
	}{
		{"both answer", device("racks", on), device("pdus", on), "ok",
			"Device racks/1 answers: On. Device pdus/1 answers: On."},
		{"the second is down", device("racks", on),
			machine.Machine{Provider: broken{providers.ErrDenied}, Name: "pdus", Device: "pdus/1"}, "denied",
			"Device pdus/1 cannot say whether the machine is on (denied: access denied). Another device of this node " +
				"answers."},
		{"the first says an unknown state", device("racks", unknown), device("pdus", on), "unknown",
			"Device racks/1 answers with an unknown word"},
		{"both are down", machine.Machine{Provider: broken{providers.ErrDenied}, Device: "racks/1"},
			machine.Machine{Provider: broken{providers.ErrDenied}, Device: "pdus/1"}, "denied",
			"This node could not be fenced at present."},
		{"the second gives it its power, and the first is down",
			machine.Machine{Provider: broken{providers.ErrDenied}, Device: "racks/1"}, outlet,
			"only_outlets", "Only outlets answer. They stay On when the machine dies, and mode observe does not " +
				"switch them off."},
		{"they disagree", device("racks", on), device("pdus", off), "disagree",
			"The devices of this node contradict each other (racks/1: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.first
			m.Further = []machine.Machine{tc.second}
			m.Further[0].Level = 1
			config := &controller.Config{
				Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
			f := drill.FindingOf(
				AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
					nobodyLies, providers.Now))
			if f.Result != tc.class || !strings.Contains(f.Detail, tc.says) {
				t.Errorf("got %s, %q, want %s, %q", f.Result, f.Detail, tc.class, tc.says)
			}
		})
	}
}

// A device that lied once is not believed before the outage either, and a machine that could not be powered off is not
// fenceable where that is what the fence would need.
func TestDrillOfDistrustedAndPowerless(t *testing.T) {
	m := machine.Machine{Provider: oneMachine{providers.PowerOff}, Name: "racks", Device: "racks/1",
		Identity: taint.MachineRef{Provider: "racks", ID: "1"}, Target: providers.Target{Node: "n1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	mode := fence.Observe
	judge := func(m machine.Machine, liar func(machine.Machine) string) drill.Finding {
		config := &controller.Config{
			Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }},
			Settings: decide.Settings{Modes: modeOfAll(mode)}}
		return drill.FindingOf(AskDevices(t.Context(), config, node, liar, providers.Now))
	}
	if f := judge(m, func(machine.Machine) string { return "n9" }); f.Fenceable != corev1.ConditionFalse ||
		f.Reason != reason.Distrusted || !strings.Contains(f.Detail, "record of node n9") {
		t.Errorf("distrusted: got %+v", f)
	}
	m.Target.Claimed = true // and it reports no UUID
	if f := judge(m, nobodyLies); f.Fenceable != corev1.ConditionTrue {
		t.Errorf("observe: got %+v", f)
	}
	mode = fence.Fence
	if f := judge(m, nobodyLies); f.Fenceable != corev1.ConditionFalse || f.Result != "no_power" ||
		!strings.Contains(f.Message, "never pinned") {
		t.Errorf("fence: got %+v", f)
	}
	// A healthy node gets its pin in a moment, so a missing pin is not reported. A device without a UUID is.
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if f := judge(m, nobodyLies); f.Result != "no_power" || strings.Contains(f.Message, "never pinned") {
		t.Errorf("fence, healthy: got %+v", f)
	}
}

// A device that says nothing while the machine runs is no fault beside one that answers; one that cannot be asked is,
// and so is one alone.
func TestDrillOfQuietDevices(t *testing.T) {
	bmc := machine.Machine{Provider: oneMachine{providers.PowerOn}, Name: "racks", Device: "racks/1"}
	quiet := machine.Machine{Provider: oneMachine{}, Name: "people", Device: "people/1", Quiet: true}
	failing := machine.Machine{Provider: broken{providers.ErrDenied}, Name: "people", Device: "people/1", Quiet: true}
	for name, tc := range map[string]struct {
		first, second machine.Machine
		want          int
	}{"beside a BMC": {bmc, quiet, 1}, "that fails": {bmc, failing, 2}, "alone": {quiet, quiet, 2}} {
		m := tc.first
		m.Further = []machine.Machine{tc.second}
		m.Further[0].Device += "-b"
		m.Further[0].Level = 1
		config := &controller.Config{
			Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
		seen := AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			func(machine.Machine) string { return "" }, providers.Now)
		if len(seen.Devices) != tc.want {
			t.Errorf("%s: %d devices are judged, want %d: %+v", name, len(seen.Devices), tc.want, seen.Devices)
		}
	}
}

// modeOfAll is the mode of every node.
func modeOfAll(m fence.Mode) []fence.ModeRule {
	return []fence.ModeRule{{
		Matches: func(*corev1.Node) bool { return true }, ChosenMode: fence.ChosenMode{Mode: m, By: "the file"},
	}}
}

// In mode disabled no device of the node is asked, and its condition says so. In shadow the node must be as ready for a
// power-off as in fence.
func TestDrillAndModes(t *testing.T) {
	asked := oneMachine{providers.PowerOn}
	config := &controller.Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
		return machine.Machine{Provider: asked, Name: "racks", Device: "racks/1",
			Identity: taint.MachineRef{Provider: "racks", ID: "1"}, Target: providers.Target{Claimed: true}}, nil
	}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for mode, want := range map[fence.Mode]string{
		fence.Observe: "ok", fence.Shadow: "no_power", fence.Fence: "no_power", fence.Disabled: drill.Disabled} {
		config.Modes = modeOfAll(mode)
		seen := AskDevices(t.Context(), config, node, nobodyLies, providers.Now)
		f := drill.FindingOf(seen)
		if f.Result != want || (len(seen.Devices) == 0) != (mode == fence.Disabled) {
			t.Errorf("%s: got %+v of %d devices, want %s", mode, f, len(seen.Devices), want)
		}
		if got := drill.AnswersOf(seen).Shadow; got != (mode == fence.Shadow) {
			t.Errorf("%s: got shadow %t", mode, got)
		}
		if mode == fence.Disabled &&
			(f.Fenceable != corev1.ConditionFalse || f.Reason != reason.ModeDisabled ||
				!strings.Contains(f.Message, "the file") || !f.OK()) {
			t.Errorf("disabled: got %+v", f)
		}
	}
}

// The drill warns of a host of KubeVirt that mode fence would not power off.
func TestDrillOfKubeVirtHost(t *testing.T) {
	asked := oneMachine{providers.PowerOn}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
		Labels: map[string]string{"kubevirt.io/schedulable": "true"}}}
	for _, tc := range []struct {
		mode   fence.Mode
		may    bool
		labels map[string]string
		warns  bool
	}{
		{fence.Fence, false, node.Labels, true}, {fence.Shadow, false, node.Labels, true},
		{fence.Observe, false, node.Labels, false},
		{fence.Fence, true, node.Labels, false}, {fence.Fence, false, nil, false},
	} {
		config := &controller.Config{
			Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
				return machine.Machine{Provider: asked, Name: "racks", Device: "racks/1"}, nil
			}},
			Settings: decide.Settings{Fence: fence.Settings{VMHosts: tc.may}, Modes: modeOfAll(tc.mode)},
		}
		n := node.DeepCopy()
		n.Labels = tc.labels
		f := drill.FindingOf(AskDevices(t.Context(), config, n, nobodyLies, providers.Now))
		if warns := strings.Contains(f.Warning, "KubeVirt"); warns != tc.warns || f.Fenceable != corev1.ConditionTrue {
			t.Errorf("%+v: got %+v, want a warning: %v", tc, f, tc.warns)
		}
	}
}

// doubting says why an Off may not count, but only in a drill.
type doubting struct{ oneMachine }

func (d doubting) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	o, err := d.oneMachine.State(ctx, t)
	if providers.IsDrill(ctx) {
		o.Doubt = "its chassis says On"
	}
	return o, err
}

// A drill lets a device tell what an ordinary question has no time for.
func TestDrillAsksForDoubts(t *testing.T) {
	m := machine.Machine{Provider: doubting{oneMachine{providers.PowerOn}}, Name: "racks", Device: "racks/1"}
	config := &controller.Config{
		Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) { return m, nil }}}
	seen := AskDevices(t.Context(), config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nobodyLies,
		providers.Now)
	if f := drill.FindingOf(seen); f.Fenceable != corev1.ConditionTrue ||
		!strings.Contains(f.Warning, "Device racks/1: its chassis says On.") {
		t.Errorf("got %+v, want a warning", f)
	}
}
