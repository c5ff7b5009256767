package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
)

// A rule for instances takes the whole providerID, whose machine the node has for good, and the Node's addresses; what
// is no instance is no machine. The type's own limit holds where the file names none.
func TestProviderIDs(t *testing.T) {
	const text = "providers:\n- {name: aws, ec2: {regions: [eu-west-1]}}\n- {name: few, concurrency: 3, ec2: " +
		"{regions: [eu-west-1]}}\n" +
		"- {name: guests, libvirt: {uri: 'qemu:///system'}}\nnodes:\n- {name: all, provider: aws, machine: {from: " +
		"providerID}}\n"
	cfg, err := config.Parse("f", []byte(text), all.Types())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{64, 3, 2} {
		if got := cfg.Providers[i].Concurrency; got != want {
			t.Errorf("provider %s: %d calls in flight, want %d", cfg.Providers[i].Name, got, want)
		}
	}
	p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(), listedNodes(nil))
	if err == nil {
		err = p.applyConfig(cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.providers.closeAll()
	node := func(id string) *corev1.Node {
		n := annotated("n1", "", uuid1, "")
		n.Spec.ProviderID = id
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeExternalIP, Address: "fd00::7"}}
		return &n
	}
	const id = "aws:///eu-west-1a/i-0123456789abcdef0"
	m, err := p.activeConfig().Machines.Led(node(id))
	if err != nil || m.Target.ID != id || m.Target.Addresses != "10.0.0.7 fd00::7" || !m.Fixed || !m.Target.Claimed {
		t.Errorf("got %+v, %v", m, err)
	}
	if s, ok := m.Provider.(providers.Slow); !ok || s.TimeToOff() != 3*time.Second {
		t.Errorf("the slow device is not reported: got %v", ok)
	}
	r, err := p.activeConfig().
		Machines.Recorded(node("aws:///eu-west-1b/i-0123456789abcdef0"),
		taint.MachineRef{Provider: "aws", ID: id, SystemUUID: uuid1})
	if err != nil || r.Target.ID != id || r.Target.Addresses != "10.0.0.7 fd00::7" || !r.Target.Claimed {
		t.Errorf("the machine of its fence: got %+v, %v", r, err)
	}
	for _, other := range []string{
		"", "aws:///eu-west-1a/0d6c/fargate-ip-10-0-7-7.eu-west-1.compute.internal", "azure:///subscriptions/x",
		"i-0123456789abcdef0"} {
		if _, err := p.activeConfig().Machines.Led(node(other)); err == nil ||
			other != "" && !strings.Contains(err.Error(), "is not an EC2 instance") {
			t.Errorf("%q: got error %v", other, err)
		}
	}
	for settings, want := range map[string]string{"timeout: 4s": "", "timeout: 3900ms": "providers[1].timeout: must " +
		"be at least 4s: these devices take 3s"} {
		if _, err := config.Parse("f", []byte(strings.Replace(text, "concurrency: 3", settings, 1)),
			all.Types()); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", settings, err, want)
		}
	}
	// no timeout may be as long as this agree needs, so agree alone has a fault
	_, err = config.Parse("f", []byte("providers: [{name: aws, ec2: {regions: [eu-west-1], agree: 1m}}]\n"), all.Types())
	const want = "f:1: providers[0].ec2.agree: must be from 2s to 4s: an answer older than 5s proves nothing"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := config.Parse("f", []byte(strings.Replace(text, "from: providerID", "from: providerID, part: last", 1)),
		all.Types()); err == nil ||
		!strings.Contains(err.Error(), "nodes[0].machine.part: this provider uses whole providerIDs as IDs") {
		t.Errorf("part: last: got %v", err)
	}
}
