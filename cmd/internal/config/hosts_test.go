package config_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
)

// A Node's name sends the password to no host outside the domain behind the last placeholder.
func TestTemplateHosts(t *testing.T) {
	t.Setenv("PW", "12345678")
	for _, tc := range []struct {
		name, typ, template string
		refused             bool   // by the check: a node could choose any host
		under               string // what every host ends with
	}{
		{name: "a name alone", template: "https://{name}", refused: true},
		{name: "a name alone, and a path", template: "https://{name}/redfish/v1/Systems/1", refused: true},
		{name: "a name alone, and a port", template: "https://{name}:8443", refused: true},
		{name: "a prefix is no domain", template: "https://bmc.example.net.{name}", refused: true},
		{name: "a part of a label is no domain", template: "https://{name}-bmc", refused: true},
		{name: "everybody's domain", template: "https://{name}.com", refused: true},
		{name: "everybody's second level", template: "https://{name}.co.uk", refused: true},
		{name: "everybody's private domain", template: "https://{name}.github.io", refused: true},
		{name: "the last byte of an IP", template: "https://10.0.0.{name}", refused: true},
		{name: "the first byte of an IP", template: "https://{name}.0.0.1", refused: true},
		{name: "a label alone", template: "https://{label:bmc}", refused: true},
		{name: "all of the address", template: "{annotation:bmc}", refused: true},
		{name: "an annotation alone", template: "https://{annotation:bmc}", refused: true},
		{name: "the scheme", template: "{name}://bmc.example.net", refused: true},
		{name: "the second of two hosts", template: "https://{name}.bmc.example.net https://{name}",
			refused: true},

		{name: "a domain", template: "https://{name}.bmc.example.net", under: ".bmc.example.net"},
		{name: "a domain, a port and a path", template: "https://{name}" +
			".bmc.example.net:8443/redfish/v1/Systems/{name}", under: ".bmc.example.net"},
		{name: "a suffix and a domain", template: "https://{name}-bmc.example.net", under: "-bmc.example.net"},
		{name: "a top level domain of one's own", template: "https://{name}.bmc", under: ".bmc"},
		{name: "two placeholders", template: "https://{name}.{label:rack}.bmc.example.net",
			under: ".bmc.example.net"},
		{name: "an annotation in a domain", template: "https://{annotation:rack}.bmc.example.net",
			under: ".bmc.example.net"},
		{name: "a host that is written out", template: "https://bmc_1.example.net/redfish/v1/Systems/{name}",
			under: "bmc_1.example.net"},
		{name: "nothing of a node's", template: "https://10.0.0.7", under: "10.0.0.7"},

		{name: "ipmi, a name alone", typ: "ipmi", template: "{name}", refused: true},
		{name: "ipmi, a domain", typ: "ipmi", template: "{name}.bmc.example.net:6230", under: ".bmc.example.net"},
		{name: "pdu, a strip of a name", typ: "pdu", template: "{name}/7", refused: true},
		{name: "pdu, an outlet of a name", typ: "pdu", template: "10.0.0.7/{label:node-restriction.kubernetes.io/outlet}",
			under: "10.0.0.7"},
		{name: "pdu, two strips", typ: "pdu", template: `a.example.net/{name},{name}/1`, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			types, settings := configtest.Types(),
				map[string]string{"pdu": "mib: apc-rpdu2, "}[tc.typ]+"username: u, passwordEnv: PW"
			if tc.typ == "" {
				tc.typ = "redfish"
			} else {
				types = all.Types()
			}
			text := "providers: [{name: p, " + tc.typ + ": {" + settings + "}}]\n" +
				"nodes: [{name: n, selector: rack, provider: p, machine: {from: template, template: " +
				quoted(tc.template) + "}}]\n"
			cfg, err := config.Parse("f", []byte(text), types)
			if got := err != nil && strings.Contains(err.Error(), "f:2: nodes[0].machine.allow: missing: a Node's "+
				"creator chooses its name"); got != tc.refused {
				t.Fatalf("got error %v, want it refused %t", err, tc.refused)
			}
			if tc.refused {
				return
			}
			for _, name := range []string{
				"n7", "7", "w-7", "attacker.example", "bmc.example.net.attacker.example", "..", ".", "",
				"attacker.example:443/", "attacker.example/",
				"attacker.example#", "attacker.example?", "x@attacker.example", "x:y@attacker.example/",
				`attacker.example\`, "attacker.example ",
				"attacker.example\t", "attacker.example,attacker.example/1", "attacker.example%2f", "[2001:db8::1]",
				"attacker.example\u3002",
			} {
				m, err := cfg.FindMachine(nodeNamed(name, name, name))
				if err != nil {
					continue
				}
				host := m.Target.ID[strings.Index(m.Target.ID, "//")+1:]
				host, _, _ = strings.Cut(strings.TrimPrefix(host, "/"), "/")
				if host, _, _ = strings.Cut(host, ":"); !strings.HasSuffix(host, tc.under) {
					t.Errorf("a node named %q leads to %s, want a host that ends with %s", name, m.Target.ID, tc.under)
				}
				if strings.ContainsAny(m.Target.ID, "#?@\\ \t,%[]\u3002") {
					t.Errorf("a node named %q leads to %s", name, m.Target.ID)
				}
			}
			if m, err := cfg.FindMachine(nodeNamed("n7", "r1", "7")); err != nil {
				t.Errorf("n7: got machine %q, error %v", m.Target.ID, err)
			}
		})
	}
}

// nodeNamed returns a Node with a rack, in a label and in an annotation, and an outlet in a label that no
// kubelet can write.
func nodeNamed(name, rack, outlet string) *corev1.Node {
	return with(node(name, "rack="+rack, "node-restriction.kubernetes.io/outlet="+outlet), func(n *corev1.Node) {
		n.Annotations = map[string]string{"rack": rack}
	})
}

// An annotation does not end its place in a host's name, and if it did, its host would be refused.
func TestTemplateStaysInPlace(t *testing.T) {
	const rule = "https://{annotation:rack}.bmc.example.net"
	cfg := parse(t, addresses+"{from: template, template: "+quoted(rule)+"}}]")
	for name, want := range map[string]error{"n1": nil, "attacker.example/x": config.ErrNoID} {
		m, err := cfg.FindMachine(nodeNamed("n", name, ""))
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: got machine %q, error %v, want %v", name, m.Target.ID, err, want)
		}
	}
	// With allow it is the host that decides.
	cfg = parse(t, addresses+"{from: template, template: "+quoted(rule)+", allow: [\"*.bmc.example.net\"]}}]")
	for name, want := range map[string]error{"n1": nil, "attacker.example/x": config.ErrNotAllowed} {
		m, err := cfg.FindMachine(nodeNamed("n", name, ""))
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s, with allow: got machine %q, error %v, want %v", name, m.Target.ID, err, want)
		}
	}
}

// A forged record on a Node leads to no host that the configuration does not give this node.
func TestKnowsNoOtherHost(t *testing.T) {
	list := parse(t,
		addresses+`{from: list, list: [{node: n1, id: "https://10.0.0.1"}, {node: n2, id: "https://10.0.0.2"}]}}]`)
	names := parse(t, addresses+`{from: template, template: "https://{name}.bmc.example.net"}}]`)
	labels := parse(t, addresses+`{from: template, template: "https://{label:bmc}.bmc.example.net"}}]`)
	// An ID in a record is in the one way to write it: one in another way was written by somebody else, and would be
	// another machine.
	for _, tc := range []struct {
		name string
		cfg  *config.Config
		id   string
		want bool
	}{
		{"its own in the list", list, "https://10.0.0.1", true},
		{"another node's in the list", list, "https://10.0.0.2", false},
		{"none in the list", list, "https://attacker.example", false},
		{"its own by name", names, "https://n1.bmc.example.net", true},
		{"another's by name", names, "https://n2.bmc.example.net", false},
		{"outside of the domain", names, "https://attacker.example", false},
		{"one that a label named before", labels, "https://b7.bmc.example.net", true},
		{"the same in another spelling", labels, "https://B7.bmc.example.net:443/", false},
		{"its own in another spelling", names, "https://N1.bmc.example.net/", false},
		{"one that no label can name", labels, "https://attacker.example", false},
	} {
		if got := tc.cfg.MayNameMachine(node("n1", "bmc=b1"), "p", tc.id); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.name, got, tc.want)
		}
	}
}
