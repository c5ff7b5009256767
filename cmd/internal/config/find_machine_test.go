package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

const (
	uuid        = "11223344-5566-7788-99aa-bbccddeeff00"
	uuidSwapped = "44332211-6655-8877-99aa-bbccddeeff00"
	noUUID      = "00000000-0000-0000-0000-000000000000"
)

// node makes a Node; labels are given as key=value.
func node(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		metav1.SetMetaDataLabel(&n.ObjectMeta, k, v)
	}
	return n
}

func with(n *corev1.Node, change func(*corev1.Node)) *corev1.Node {
	change(n)
	return n
}

func good(t *testing.T, file string) *config.Config {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "good", file))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(data))
}

func TestMachine(t *testing.T) {
	cfg := good(t, "full.yaml")
	const worker, rack = "node-role.kubernetes.io/worker=", "example.net/rack=r7"
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want config.Assignment
		err  error
		says string
	}{
		{
			name: "template", node: node("N1-w", worker, rack),
			want: config.Assignment{Provider: "racks", Rule: "workers",
				Target: providers.Target{Node: "N1-w", ID: "https://N1-w.r7.example.net", Claimed: true, Named: true}},
		},
		{name: "template, label missing", node: node("n1", worker), err: config.ErrNoID,
			says: `no label "example.net/rack"`},
		{
			name: "providerID, last part, mode of the file",
			node: with(node("n1", "example.net/cloud=yes"), func(n *corev1.Node) {
				n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = "aws:///eu-west-1a/i-0abc", uuid
			}),
			want: config.Assignment{Provider: "cloud", Rule: "clouds",
				Target: providers.Target{Node: "n1", ID: "i-0abc", SystemUUID: uuid, Claimed: true}},
		},
		{
			name: "providerID, all of it",
			node: with(node("n1", "example.net/cloud=raw"),
				func(n *corev1.Node) { n.Spec.ProviderID = "aws:///a/i-0abc" }),
			want: config.Assignment{Provider: "cloud", Rule: "raw",
				Target: providers.Target{Node: "n1", ID: "aws:///a/i-0abc", Claimed: true}},
		},
		{name: "providerID missing", node: node("n1", "example.net/cloud=yes"), err: config.ErrNoID,
			says: "spec.providerID"},
		{
			name: "providerID without a last part",
			node: with(node("n1", "example.net/cloud=yes"), func(n *corev1.Node) { n.Spec.ProviderID = "aws:///" }),
			err:  config.ErrNoID, says: "aws:///",
		},
		{
			name: "systemUUID",
			node: with(node("n1", "uuid"), func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid }),
			want: config.Assignment{Provider: "cloud", Rule: "uuid",
				Target: providers.Target{Node: "n1", SystemUUID: uuid, Claimed: true}},
		},
		{name: "systemUUID missing", node: node("n1", "uuid"), err: config.ErrNoID},
		{
			name: "systemUUID that many share",
			node: with(node("n1", "uuid"), func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = noUUID }),
			err:  config.ErrNoID, says: noUUID,
		},
		{
			name: "annotation",
			node: with(node("n1", "noted"),
				func(n *corev1.Node) { n.Annotations = map[string]string{"Example.net/machine": " m1 "} }),
			want: config.Assignment{Provider: "cloud", Rule: "noted",
				Target: providers.Target{Node: "n1", ID: "m1", Claimed: true}},
		},
		{name: "annotation missing", node: node("n1", "noted"), err: config.ErrNoID, says: "Example.net/machine"},
		{
			name: "list", node: node("old-2"),
			want: config.Assignment{Provider: "racks", Rule: "old-ones",
				Target: providers.Target{Node: "old-2", ID: "https://10.0.0.2"}},
		},
		{name: "nobody", node: node("new-1"), err: config.ErrNoMachine, says: "new-1"},
		{name: "two", node: node("old-1", worker, rack), err: config.ErrTwoMachines, says: "workers, old-ones"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.node.DeepCopy()
			got, err := cfg.FindMachine(tc.node)
			if !errors.Is(err, tc.err) || (err != nil && !strings.Contains(err.Error(), tc.says)) {
				t.Fatalf("got error %v, want %v that says %q", err, tc.err, tc.says)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.node); diff != "" {
				t.Errorf("the node was changed:\n%s", diff)
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	for _, tc := range []struct {
		template, want, says string
	}{
		{template: "{name}-bmc", want: "Worker-7-bmc"},
		{template: `{label:rack}/{label:example.net/slot}`, want: "r1/4"},
		{template: "{annotation:example.net/bmc}/{uuid}", want: "b1/4c4c4544-0042-3510-8054-b4c04f4d3232"},
		{template: "  x\n", want: "x"},
		{template: "{label:row}", says: "row"},
		{template: "{annotation:row}", says: `no annotation "row"`},
		{template: `x{label:row}`, says: `no label "row"`},
		{template: "{label:empty}", says: "gives nothing"},
	} {
		t.Run(tc.template, func(t *testing.T) {
			cfg := parse(t, "providers: [{name: p, plain: }]\n"+
				"nodes: [{name: n, selector: rack=r1, provider: p, machine: {from: template, template: "+
				quoted(tc.template)+"}}]\n")
			got, err := cfg.FindMachine(with(node("Worker-7", "rack=r1", "example.net/slot=4", "empty="),
				func(n *corev1.Node) {
					n.Annotations = map[string]string{"example.net/bmc": "b1"}
					n.Status.NodeInfo.SystemUUID = "4C4C4544-0042-3510-8054-B4C04F4D3232"
				}))
			if tc.says != "" {
				if !errors.Is(err, config.ErrNoID) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v and error %v, want ErrNoID that says %q", got, err, tc.says)
				}
				return
			}
			if err != nil || got.Target.ID != tc.want {
				t.Errorf("got %q and error %v, want %q", got.Target.ID, err, tc.want)
			}
		})
	}
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func isExcluded(c *config.Config, n *corev1.Node) bool {
	s := c.Settings("")
	return s.Excluded(n) != ""
}

func TestExcluded(t *testing.T) {
	cfg := good(t, "full.yaml")
	if !isExcluded(cfg, node("n1", "example.net/never-fence=")) || isExcluded(cfg, node("n1")) {
		t.Error("want the labelled node excluded and no other")
	}
	minimal := good(t, "minimal.yaml")
	if isExcluded(minimal, node("n1", "a=b")) ||
		!isExcluded(minimal, node("n1", config.DefaultExclude+"=maintenance")) {
		t.Error("want the nodes with the default label excluded where there is no excludeSelector")
	}
	for _, none := range []string{`""`, `" "`} {
		if cfg := parse(t, "excludeSelector: "+none+"\n"); isExcluded(cfg, node("n1", config.DefaultExclude+"=")) ||
			isExcluded(cfg, node("n1")) {
			t.Errorf("excludeSelector %s excludes a node, want none", none)
		}
	}
}

func TestClashes(t *testing.T) {
	cfg := good(t, "full.yaml")
	id := func(id string) func(*corev1.Node) { return func(n *corev1.Node) { n.Spec.ProviderID = id } }
	sys := func(id string) func(*corev1.Node) { return func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = id } }
	nodes := []*corev1.Node{
		with(node("c2", "example.net/cloud=yes"), id("aws:///a/i-1")),
		with(node("c1", "example.net/cloud=yes"), id("aws:///b/i-1")),
		with(node("c3", "example.net/cloud=yes"), id("aws:///b/i-2")),
		with(node("u1", "uuid"), sys(uuid)),
		with(node("u2", "uuid"), sys(uuidSwapped)),
		with(node("u3", "uuid"), sys("99999999-5566-7788-99aa-bbccddeeff00")),
		node("u4", "uuid"), // has no machine
		node("old-1"),
		node("old-1"), // the same node twice in the list is no clash
		with(node("r1", "noted"),
			func(n *corev1.Node) { n.Annotations = map[string]string{"Example.net/machine": "https://10.0.0.1"} }),
	}
	claims := cfg.MachineClaims(nodes)
	all := taint.NewClaims(claims)
	want := map[string]string{"c1": "c2", "c2": "c1", "u1": "u2", "u2": "u1"}
	for _, c := range claims {
		switch other, got := want[c.Node], all.FindClash(c, nil); {
		case other == "" && got.Refused+got.NoPin != "":
			t.Errorf("%s: got %+v, want no clash", c.Node, got)
		case other != "" && !strings.Contains(got.Refused, "also claimed by node "+other):
			t.Errorf("%s: got %+v, want it to be also claimed by node %s", c.Node, got, other)
		}
	}
}

// A slash more is no other machine.
func TestClashIsCanonical(t *testing.T) {
	cfg := parse(t, addresses+`{from: annotation, annotation: bmc, allow: ["*.example.net"]}}]`)
	claim := func(name, id string) taint.Claim {
		return cfg.MachineClaims(
			[]*corev1.Node{with(node(name), func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": id} })})[0]
	}
	a, b := claim("n1", "https://bmc2.example.net/"), claim("n2", "https://BMC2.example.net")
	all := taint.NewClaims([]taint.Claim{a, b})
	if all.FindClash(a, nil).Refused == "" || all.FindClash(b, nil).Refused == "" {
		t.Errorf("got %+v and %+v, want both refused", all.FindClash(a, nil), all.FindClash(b, nil))
	}
}

// What a kubelet can write to choose its machine, and what it cannot.
func TestClaimed(t *testing.T) {
	for source, want := range map[string]bool{
		"{from: systemUUID}":                     true,
		"{from: providerID}":                     true,
		"{from: annotation, annotation: bmc}":    true,
		"{from: name}":                           false,
		"{from: template, template: 'x-{name}'}": false,
		"{from: template, template: '{label:a.node-restriction.kubernetes.io/rack}'}": false,
		"{from: template, template: '{uuid}'}":                                        true,
		"{from: template, template: '{annotation:bmc}'}":                              true,
		"{from: template, template: '{name}-{label:kubernetes.io/hostname}'}":         true,
		"{from: template, template: '{label:rack}'}":                                  true,
		"{from: list, list: [{node: n1, id: m1}]}":                                    false,
	} {
		cfg := parse(t, "providers: [{name: p, plain: }]\nnodes: [{name: n, provider: p, machine: "+source+"}]\n")
		n := with(node("n1", "rack=r1", "a.node-restriction.kubernetes.io/rack=r1", "kubernetes.io/hostname=h"), func(n *corev1.Node) {
			n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID, n.Annotations = "x", uuid, map[string]string{"bmc": "b"}
		})
		if m, err := cfg.FindMachine(n); err != nil || m.Target.Claimed != want {
			t.Errorf("%s: got claimed %v, error %v, want %v", source, m.Target.Claimed, err, want)
		}
	}
}

// A client that writes a label chooses the rule that the label selects.
func TestClaimedBySelector(t *testing.T) {
	for selector, want := range map[string]bool{
		"":                               false,
		"rack=r1":                        true,
		"example.net/rack":               true,
		"!example.net/gone":              true,
		"node-role.kubernetes.io/worker": false,
		"role.node-restriction.kubernetes.io/worker":      false,
		"kubernetes.io/os=linux":                          true,
		"node.kubernetes.io/pool":                         true,
		"topology.kubernetes.io/zone":                     true,
		"node-role.kubernetes.io/worker,rack in (r1, r2)": true,
		// domains that only look like one of Kubernetes' own
		"xkubernetes.io/a":                             true,
		"xk8s.io/a":                                    true,
		"xnode-restriction.kubernetes.io/a":            false,
		"node-restriction.kubernetes.io/a":             false,
		"node-restriction.kubernetes.io.example.net/a": true,
		"a.kubelet.kubernetes.io/a":                    true,
		"a.k8s.io/a":                                   false,
	} {
		for source, always := range map[string]bool{
			"{from: name}": want, "{from: list, list: [{node: n1, id: m1}]}": false} {
			cfg := parse(t,
				"providers: [{name: p, plain: }]\nnodes: [{name: n, provider: p, selector: "+quoted(selector)+
					", machine: "+source+"}]\n")
			n := node("n1", "rack=r1", "example.net/rack=", "node-role.kubernetes.io/worker=",
				"role.node-restriction.kubernetes.io/worker=", "kubernetes.io/os=linux", "node.kubernetes.io/pool=",
				"topology.kubernetes.io/zone=a", "xkubernetes.io/a=", "xk8s.io/a=", "a.k8s.io/a=",
				"a.kubelet.kubernetes.io/a=", "xnode-restriction.kubernetes.io/a=",
				"node-restriction.kubernetes.io/a=", "node-restriction.kubernetes.io.example.net/a=")
			if m, err := cfg.FindMachine(n); err != nil || m.Target.Claimed != always {
				t.Errorf("%q, %s: got claimed %v, error %v, want %v", selector, source, m.Target.Claimed, err, always)
			}
		}
	}
}

const addresses = "providers: [{name: p, redfish: {username: u, passwordEnv: P}}]\nnodes: [{name: n, provider: p, " +
	"machine: "

// A node cannot send the password to a host that allow does not name.
func TestAllow(t *testing.T) {
	cfg := parse(t,
		addresses+
			`{from: annotation, annotation: bmc, allow: ["bmc1.example.net", "*.BMC.example.net", 192.0.2.0/25, `+
			`2001:db8::/32, 198.51.100.9]}}]`)
	for id, want := range map[string]error{
		"https://bmc1.example.net":                     nil,
		"https://BMC1.example.net/":                    nil,
		"https://a.bmc.example.net:8443":               nil,
		"https://a.b.bmc.example.net":                  nil,
		"https://192.0.2.7":                            nil,
		"https://198.51.100.9":                         nil,
		"https://[2001:db8::7]":                        nil,
		"https://bmc.example.net":                      config.ErrNotAllowed,
		"https://evilbmc.example.net":                  config.ErrNotAllowed,
		"https://a.bmc.example.net.evil.net":           config.ErrNotAllowed,
		"https://192.0.2.200":                          config.ErrNotAllowed,
		"https://198.51.100.8":                         config.ErrNotAllowed,
		"https://3221225991":                           config.ErrNotAllowed, // 192.0.2.7 to some resolvers
		"https://127.0.0.1":                            config.ErrNotAllowed,
		"http://192.0.2.7":                             config.ErrNotAllowed,
		"http://bmc1.example.net":                      config.ErrNotAllowed,
		"HTTP://192.0.2.7":                             config.ErrNotAllowed,
		"https://bmc1.example.net https://192.0.2.7":   nil,
		"https://bmc1.example.net https://192.0.2.200": config.ErrNotAllowed,
		"https://192.0.2.200 https://bmc1.example.net": config.ErrNotAllowed,
		"https://":                            config.ErrNoID,
		"https://" + strings.Repeat("a", 600): config.ErrNoID,
	} {
		m, err := cfg.FindMachine(
			with(node("n1"), func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": id} }))
		if !errors.Is(err, want) || (err == nil) != (want == nil) || (m.Target.ID == "") != (want != nil) {
			t.Errorf("%s: got machine %q, error %v, want %v", id, m.Target.ID, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "https://") || strings.Contains(err.Error(), "aaa")) {
			t.Errorf("%s: the error repeats it: %v", id, err)
		}
	}
}

// What a kubelet says of its machine is shown to people, on terminals, too.
func TestIDsArePrintable(t *testing.T) {
	cfg := parse(t, "providers: [{name: p, plain: }]\nnodes: [{name: n, provider: p, machine: {from: annotation, "+
		"annotation: machine}}]\n")
	for id, want := range map[string]error{
		"rack 7, größe": nil, "\x1b]0;n1\x07": config.ErrNoID, "n1\nn2": config.ErrNoID, "n1\u202e": config.ErrNoID,
		"n\xff": config.ErrNoID,
	} {
		m, err := cfg.FindMachine(
			with(node("n1"), func(n *corev1.Node) { n.Annotations = map[string]string{"machine": id} }))
		if !errors.Is(err, want) || (err == nil) != (want == nil) || err != nil && strings.Contains(err.Error(), id) {
			t.Errorf("%q: got machine %q, error %v, want %v", id, m.Target.ID, err, want)
		}
	}
}

// An operator's own list is trusted unchanged, over http, too.
func TestAllowIsForNodes(t *testing.T) {
	cfg := parse(t, addresses+`{from: list, list: [{node: n1, id: "http://127.0.0.1:8000/"}]}}]`)
	if m, err := cfg.FindMachine(node("n1")); err != nil || m.Target.ID != "http://127.0.0.1:8000" || m.Target.Claimed {
		t.Errorf("got %+v, error %v", m, err)
	}
	cfg = parse(t, addresses+`{from: template, template: "https://{name}.bmc.example.net/"}}]`)
	if m, err := cfg.FindMachine(node("n1")); err != nil || m.Target.ID != "https://n1.bmc.example.net" ||
		m.Target.Claimed {
		t.Errorf("got %+v, error %v", m, err)
	}
}

// Further devices speak for a node in their order, by the operator's word alone; one that does not know the node has
// nothing to say.
func TestFurtherDevices(t *testing.T) {
	cfg := parse(t, `
mode: fence
providers: [{name: racks, plain: }, {name: pdus, plain: }, {name: people, plain: }]
nodes:
- name: all
  provider: racks
  machine: {from: annotation, annotation: bmc}
  levels:
  - devices: [{provider: pdus, machine: {from: list, list: [{node: n1, id: a1}, {node: n2, id: a2}]}}]
  - devices: [{provider: people, machine: {from: name}}]
  - devices: [{provider: pdus, machine: {from: template, template: "a{label:node-restriction.kubernetes.io/outlet}"}}]
`)
	bmc := func(id string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.NodeInfo.SystemUUID = uuid
			if id != "" {
				n.Annotations = map[string]string{"bmc": id}
			}
		}
	}
	machine := func(node, provider, id string, level int) config.Assignment {
		return config.Assignment{
			Provider: provider, Target: providers.Target{Node: node, ID: id, SystemUUID: uuid, Named: level > 1},
			Level: level, Limits: proof.Limits{Timeout: 15 * time.Second},
		}
	}
	for _, tc := range []struct {
		name    string
		node    *corev1.Node
		first   string
		further []config.Assignment
	}{
		{"listed, and what is said twice is one", with(node("n1", outlet+"=1"), bmc("b1")), "b1",
			[]config.Assignment{machine("n1", "pdus", "a1", 1), machine("n1", "people", "n1", 2)}},
		{"not listed", with(node("n3", outlet+"=3"), bmc("b3")), "b3",
			[]config.Assignment{machine("n3", "people", "n3", 2), machine("n3", "pdus", "a3", 3)}},
		{"the first does not know it", with(node("n2", outlet+"=2"), bmc("")), "",
			[]config.Assignment{machine("n2", "pdus", "a2", 1), machine("n2", "people", "n2", 2)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := cfg.FindMachine(tc.node)
			if errors.Is(err, config.ErrNoID) != (tc.first == "") || got.Target.ID != tc.first ||
				got.Target.Claimed != (tc.first != "") || got.Rule != "all" {
				t.Errorf("got %+v, error %v, want %q", got, err, tc.first)
			}
			if diff := cmp.Diff(tc.further, got.Further); diff != "" {
				t.Errorf("further devices, -want +got:\n%s", diff)
			}
		})
	}
	// No other node can claim a machine that the operator gave to one node. A machine given to two belongs to none.
	forged := with(node("n9"), func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": "x"} })
	all := taint.NewClaims(
		cfg.MachineClaims([]*corev1.Node{with(node("n1", outlet+"=1"), bmc("b1")), with(node("n2", outlet+"=2"), bmc("")), forged}))
	mine := taint.Claim{Node: "n9", Machine: taint.MachineRef{Provider: "pdus", ID: "a1"}, Claimed: true}
	if c := all.FindClash(mine, nil); !strings.Contains(c.Refused, "also claimed by node n1") {
		t.Errorf("a kubelet claims another node's further device: got %+v", c)
	}
	mine.Claimed = false
	if c := all.FindClash(mine, nil); !strings.Contains(c.Refused, "also claimed by node n1") {
		t.Errorf("the operator gave it to two: got %+v", c)
	}
	mine.Node = "n1"
	if c := all.FindClash(mine, nil); c.Refused != "" {
		t.Errorf("its own node: got %+v", c)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		for _, at := range []struct{ provider, id, of string }{
			{"pdus", "a1", "n1"}, {"pdus", "a2", "n2"}, {"people", "n1", "n1"}, {"gone", "a2", ""}, {"racks", "b7", n},
		} {
			if got := cfg.MayNameMachine(node(n), at.provider, at.id); got != (at.of == n) {
				t.Errorf("%s of provider %s may be node %s's: got %t", at.id, at.provider, n, got)
			}
		}
	}
}
