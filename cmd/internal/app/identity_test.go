package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
)

const uuid1, uuid2 = "11223344-5566-7788-99aa-bbccddeeff01", "11223344-5566-7788-99aa-bbccddeeff02"

func annotated(name, bmc, uuid, pin string) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"bmc": bmc},
			Labels: map[string]string{taint.PinLabel: pin}}}
	n.Status.NodeInfo.SystemUUID = uuid
	return n
}

// What a node is led to comes with who else has it; what its fence began with is found again as long
// as the configuration may name it.
func TestMachines(t *testing.T) {
	t.Setenv("BMC", "x")
	const text = "providers:\n- {name: racks, redfish: {username: u, passwordEnv: BMC}}\n" +
		"nodes:\n- {name: all, provider: racks, mode: fence, machine: {from: annotation, annotation: bmc, allow: " +
		"[%s]}}\n"
	bmc1 := taint.MachineRef{Provider: "racks", ID: "https://bmc1.example.net", SystemUUID: uuid1}
	bmc2 := taint.MachineRef{Provider: "racks", ID: "https://bmc2.example.net", SystemUUID: uuid2}
	nodes := []corev1.Node{
		annotated("n1", "https://bmc1.example.net", uuid1, bmc1.Pin()),
		annotated("n2", "https://BMC2.example.net:443/", uuid2, bmc2.Pin()),
	}
	p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(), listedNodes(nodes))
	if err != nil {
		t.Fatal(err)
	}
	defer p.providers.closeAll()
	use := func(allow string) {
		t.Helper()
		cfg, err := config.Parse("f", fmt.Appendf(nil, text, allow), all.Types())
		if err == nil {
			err = p.applyConfig(cfg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	use(`"*.example.net"`)
	for i, want := range []taint.MachineRef{bmc1, bmc2} {
		m, err := p.activeConfig().Machines.Led(&nodes[i])
		if err != nil || m.Identity != want || m.Clash.Refused+m.Clash.NoPin != "" || !m.Target.Claimed ||
			m.Target.ID != want.ID || m.Device != "racks/"+want.ID {
			t.Errorf("got %+v, error %v, want %+v", m, err, want)
		}
	}
	// A version of n1 that the index does not hold yet names the machine of n2, and its UUID.
	forged := annotated("n1", "https://bmc2.example.net/", uuid2, bmc1.Pin())
	if m, err := p.activeConfig().Machines.Led(&forged); err != nil ||
		!strings.Contains(m.Clash.Refused, "pinned to node n2") {
		t.Errorf("got %+v, error %v, want n2's machine refused", m.Clash, err)
	}
	if m, err := p.activeConfig().Machines.Recorded(&forged, bmc1); err != nil || m.Identity != bmc1 ||
		m.Target.ID != bmc1.ID || m.Target.SystemUUID != uuid1 || !m.Target.Claimed {
		t.Errorf("the machine of its fence: got %+v, error %v", m, err)
	}
	if _, err := p.activeConfig().Machines.Recorded(&forged, taint.MachineRef{Provider: "gone", ID: "x"}); err == nil ||
		!strings.Contains(err.Error(), "no such provider") {
		t.Errorf("a provider that is gone: got error %v", err)
	}
	// What the Node's label says of its devices goes with each question.
	forged.Labels[taint.NamedLabel] = taint.AddNamed("", []taint.MachineRef{bmc1}, []taint.MachineRef{bmc1})
	for _, n := range []*corev1.Node{&nodes[0], &forged} {
		led, err := p.activeConfig().Machines.Led(n)
		if err != nil || led.Target.Identified {
			t.Errorf("%s: a device that has named no machine: got %+v, error %v", led.Device, led.Target, err)
		}
	}
	if m, err := p.activeConfig().Machines.Recorded(&forged, bmc1); err != nil || !m.Target.Identified {
		t.Errorf("the machine of its fence, which its device has named: got %+v, error %v", m.Target, err)
	}
	back := annotated("n1", "https://bmc1.example.net", uuid1, bmc1.Pin())
	back.Labels[taint.NamedLabel] = forged.Labels[taint.NamedLabel]
	if m, err := p.activeConfig().Machines.Led(&back); err != nil || !m.Target.Identified {
		t.Errorf("a machine that its device has named: got %+v, error %v", m.Target, err)
	}
	use("bmc2.example.net")
	if _, err := p.activeConfig().Machines.Recorded(&forged, bmc1); err == nil ||
		!strings.Contains(err.Error(), "no rule") {
		t.Errorf("a host that is not allowed any more: got error %v", err)
	}
}
