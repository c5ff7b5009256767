package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
)

// list is a rule of rulesOf that names its nodes.
const list = "list"

// rulesOf is a file with rules of these selectors, or with lists; the first is on line 3.
func rulesOf(selectors ...string) []byte {
	var text strings.Builder
	text.WriteString("providers: [{name: a, plain: {}}]\nnodes:\n")
	for i, selector := range selectors {
		machine := "{from: name}"
		if selector == list {
			selector, machine = "", fmt.Sprintf("{from: list, list: [{node: n%d, id: m%d}]}", i, i)
		}
		fmt.Fprintf(&text, "- {name: r%d, selector: %q, provider: a, machine: %s}\n", i, selector, machine)
	}
	return []byte(text.String())
}

// A rule whose nodes certainly match another rule, too, is a warning of check-config.
func TestOverlap(t *testing.T) {
	const first, second = "nodes[0].selector: nodes[1] (line 4)", "nodes[1].selector: nodes[0] (line 3)"
	for _, tc := range []struct{ name, a, b, want string }{
		{"all, and a pool", "", "pool=a", second},
		{"a pool, and all", "pool=a", "", first},
		{"twice the same", "pool=a", "pool=a", second},
		{"two pools", "pool=a", "pool=b", ""},
		{"other labels", "pool=a", "zone=b", ""},
		{"with a label, without it", "!gpu", "gpu", ""},
		{"a pool, and the rest", "pool=a", "pool!=a", ""},
		{"a pool of several", "pool in (a,b)", "pool=b,zone=x", second},
		{"more pools than the other", "pool in (a,b)", "pool in (b,c)", ""},
		{"any pool", "pool", "pool in (b,c)", second},
		{"no pool is not any", "pool", "pool notin (b)", ""},
		{"all but a pool", "pool!=a", "pool=b", second},
		{"all but two pools", "pool!=a", "pool notin (a,b)", second},
		{"all but more pools", "pool notin (a,b)", "pool!=a", first},
		{"none of a pool", "pool!=a", "!pool", second},
		{"any of a pool", "!pool", "pool!=a", first},
		{"a number", "disks>3", "disks>3,pool=a", second},
		{"a list, and all", list, "", first},
		{"two lists", list, list, ""},
		{"a list, and a pool", list, "pool=a", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := config.Parse("f", rulesOf(tc.a, tc.b), configtest.Types())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, w := range cfg.Warnings() {
				if _, rest, ok := strings.Cut(w.Problem, "also matches "); ok {
					other, _, _ := strings.Cut(rest, ",")
					got += w.Path + ": " + other
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A selector that no node can match is a warning of check-config.
func TestImpossibleSelector(t *testing.T) {
	for selector, want := range map[string]bool{
		"": false, "a": false, "!a": false, "a=b,c=d": false, "a!=b,a!=c": false, "a in (b,c),a!=b": false,
		"a,a!=b": false, "!a,a!=b": false, "a=b,a=b": false, "a>2,a<4": false, "a>3,a<2": true,
		"role=worker,role=db": true, "a,!a": true, "a=b,!a": true, "a=b,a!=b": true, "a in (b,c),a notin (b,c)": true,
		"x=y,a in (b,c),a in (d,e)": true,
	} {
		cfg, err := config.Parse("f", rulesOf(selector), configtest.Types())
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return w.Line == 3 && w.Path == "nodes[0].selector" && strings.Contains(w.Problem, "nothing can match")
		})
		if got != want {
			t.Errorf("%q: got a warning %v, want %v: %v", selector, got, want, cfg.Warnings())
		}
	}
}

// Rules whose devices no node can have are faults or warnings.
func TestNoDevicePossible(t *testing.T) {
	const bmc, cloud = "redfish: {username: u, passwordEnv: P}", "ec2: {regions: [eu-west-1]}"
	const noID = "f:3: nodes[0].machine.from: gives no node a device: this provider does not find machines by their " +
		"system UUID, but needs an ID. Use providerID, annotation, name, template or list"
	const noHost = "f:3: nodes[0].machine.allow: has none of the hosts that the template can give, so no node has " +
		"this device: correct one of them, or remove allow"
	for _, tc := range []struct{ name, settings, machine, want string }{
		{"a system UUID where IDs are addresses", bmc, "{from: systemUUID}", noID},
		{"a system UUID where IDs are providerIDs", cloud, "{from: systemUUID}", noID},
		{"a system UUID of a VM", "vsphere: {address: 'https://vc', username: u, passwordEnv: P}",
			"{from: systemUUID}", ""},
		{"a domain that the template does not give", bmc, "{from: template, template: " +
			"'https://{name}-bmc.example.net', allow: ['*.example.org', bmc.example.net, 10.0.0.0/8]}", noHost},
		{"the template's domain", bmc,
			"{from: template, template: 'https://{name}-bmc.example.net', allow: ['*.example.net']}", ""},
		{"a host of the template's domain", bmc,
			"{from: template, template: 'https://{name}.bmc.example.net', allow: [n1.bmc.example.net]}", ""},
		{"an address that the template writes", bmc, "{from: template, template: " +
			"'https://10.0.0.1/redfish/v1/Systems/{name}', allow: [10.0.1.0/24]}", noHost},
		{"its network", bmc, "{from: template, template: " +
			"'https://10.0.0.1/redfish/v1/Systems/{name}', allow: [10.0.0.0/24]}", ""},
		{"a host that a node chooses", bmc, "{from: template, template: 'https://{name}', allow: [10.0.1.0/24]}",
			""},
		{"a system UUID behind one BMC", "redfish: {address: 'https://bmc', username: u, passwordEnv: P}",
			"{from: systemUUID}", ""},
		{"four numbers that are no IP", bmc, "{from: list, list: [{node: n1, id: 'https://10.0.0.999'}]}",
			"f:3: nodes[0].machine.list[0].id: is no IP address: write four numbers from 0 to 255, without leading " +
				"zeros"},
		{"an IP", bmc, "{from: list, list: [{node: n1, id: 'https://10.0.0.99'}]}", ""},
		{"a folder instead of a file", "redfish: {username: u, passwordFile: /}", "{from: list, list: []}",
			"f:1: providers[0].redfish.passwordFile: reading secret: read /: is a directory. Name the file in it"},
		{"an empty list", bmc, "{from: list, list: []}", "f:3: nodes[0].machine.list: warning: the list is empty, so " +
			"no node has this device: write - {node: n1, id: ...} for each node"},
	} {
		t.Setenv("P", "x")
		cfg, err := config.Parse("f", []byte("providers: [{name: a, "+tc.settings+"}]\nnodes:\n- {name: r, "+
			"provider: a, machine: "+tc.machine+"}\n"), all.Types())
		got := ""
		if err != nil {
			got = err.Error()
		} else if i := slices.IndexFunc(cfg.Warnings(), func(w config.Error) bool {
			return strings.HasPrefix(w.Path, "nodes[0].machine")
		}); i >= 0 {
			got = cfg.Warnings()[i].Error()
		}
		if got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.name, got, tc.want)
		}
	}
}

// Items of lists that name no node are warned of where the nodes are known.
func TestMissingNodes(t *testing.T) {
	cfg, err := config.Parse("f", rulesOf(list, list, "a=b"), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]string{
		"n0 n1 n2": "",
		"n0 n3": "f:4: nodes[1].machine.list: warning: the cluster has no node n1 (line 4). Correct the names, or " +
			"remove the items",
	} {
		if got := cfg.MissingNodes(strings.Fields(names)).Error(); got != want {
			t.Errorf("%s: got %q, want %q", names, got, want)
		}
	}
	var long strings.Builder
	for i := range 12 {
		fmt.Fprintf(&long, "    - {node: old-%d, id: m%d}\n", i, i)
	}
	cfg, err = config.Parse("f", []byte("providers: [{name: a, plain: {}}]\nnodes:\n- name: r\n  provider: a\n"+
		"  machine:\n    from: list\n    list:\n"+long.String()), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.MissingNodes([]string{"old-0"}); len(got) != 1 || got[0].Line != 9 ||
		!strings.Contains(got[0].Problem, "no node old-1 (line 9), ") ||
		!strings.Contains(got[0].Problem, "old-10 (line 18) and 1 more. ") {
		t.Errorf("got %v", got)
	}
}

// One warning says which rules have no device that outlives the power supply.
func TestSharedPowerOnce(t *testing.T) {
	cfg, err := config.Parse("f", []byte("providers: [{name: a, redfish: {username: u, passwordEnv: PW}}]\nnodes:\n"+
		"- {name: x, selector: 'pool=x', provider: a, machine: {from: list, list: [{node: n1, id: 'https://a'}]}}\n"+
		"- {name: y, selector: 'pool=y', provider: a, machine: {from: list, list: [{node: n2, id: 'https://b'}]}}\n"+
		"- {name: z, selector: 'pool=z', provider: a, machine: {from: list, list: [{node: n3, id: 'https://c'}]}}\n"),
		all.Types())
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(cfg.Warnings(), func(w config.Error) bool {
		return !strings.Contains(w.Problem, "loses its power, ")
	})
	if len(got) != 1 || got[0].Path != "nodes[0]" ||
		!strings.HasSuffix(got[0].Problem, "The same is true of nodes[1], nodes[2]") {
		t.Errorf("got %v, want one warning that names each rule", got)
	}
}

// A rule warns if all its devices fall silent with the machine's power. BMCs, hypervisors and vCenter do; outlets and
// people do not.
func TestWarningOfSharedPower(t *testing.T) {
	const head = `providers:
- {name: racks, redfish: {username: u, passwordEnv: PW}}
- {name: group, libvirt: {uri: 'qemu:///system'}}
- {name: vcenter, vsphere: {address: 'https://v', username: u, passwordEnv: PW}}
- {name: pve, proxmox: {address: 'https://p', username: u, passwordEnv: PW}}
- {name: nova, openstack: {address: 'https://n', username: u, passwordEnv: PW, values: {identity: 'https://k'}}}
- {name: hcloud, hetzner: {address: 'https://h', passwordEnv: PW}}
- {name: aws, ec2: {regions: [eu-west-1]}}
- {name: people, confirm: {}}
- {name: strips, pdu: {mib: apc-rpdu2, username: u, passwordEnv: PW}}
- {name: mark, cloudtaint: {trust: cloud-controller-manager}}
- {name: laptop, container: {socket: /run/no.sock}}
nodes:
- name: x
`
	const (
		list   = "machine: {from: list, list: [{node: n1, id: %s}]}"
		guest  = "  provider: group\n  machine: {from: list, list: [{node: n1, id: vm}]}\n"
		level  = "  levels: [{devices: [{provider: %s, machine: {from: list, list: [{node: n1, id: %s}]}}]}]\n"
		within = "  within: [{hypervisor: 'qemu:///system', provider: %s, id: %s}]\n"
	)
	person, outlet := fmt.Sprintf(level, "people", "n1"), fmt.Sprintf(level, "strips", "a.example.net/1")
	host := fmt.Sprintf(within, "racks", "'https://hv1'")
	for _, tc := range []struct {
		name, rule string
		want       bool // in mode fence
	}{
		{"a BMC", "  provider: racks\n  " + fmt.Sprintf(list, "'https://a'") + "\n", true},
		{"a BMC, then a person", "  provider: racks\n  " + fmt.Sprintf(list, "'https://a'") + "\n" + person, false},
		{"a BMC, then an outlet", "  provider: racks\n  " + fmt.Sprintf(list, "'https://a'") + "\n" + outlet, false},
		{"a guest", guest, true},
		{"a guest, then a person", guest + person, false},
		{"a guest within a host with a BMC", guest + host, true},
		{"a guest within a host with outlets", guest + fmt.Sprintf(within, "strips", "a.example.net/1"), false},
		{"a VM", "  provider: vcenter\n  machine: {from: systemUUID}\n", true},
		{"a guest of Proxmox", "  provider: pve\n  " + fmt.Sprintf(list, "'101'") + "\n", true},
		{"a guest of Proxmox, then a person", "  provider: pve\n  " + fmt.Sprintf(list, "'101'") + "\n" + person, false},
		{"a server of OpenStack", "  provider: nova\n  machine: {from: providerID}\n", true},
		{"a server of Hetzner", "  provider: hcloud\n  machine: {from: providerID}\n", true},
		{"an instance of EC2", "  provider: aws\n  machine: {from: providerID}\n", true},
		{"an instance of EC2, then a person", "  provider: aws\n  machine: {from: providerID}\n" + person, false},
		{"a cloud's taint", "  provider: mark\n  " + fmt.Sprintf(list, "n1") + "\n", true},
		{"a BMC, then a cloud's taint", "  provider: racks\n  " + fmt.Sprintf(list, "'https://a'") + "\n" +
			fmt.Sprintf(level, "mark", "n1"), true},
		{"a cloud's taint, then a person", "  provider: mark\n  " + fmt.Sprintf(list, "n1") + "\n" + person, false},
		{"a container", "  provider: laptop\n  " + fmt.Sprintf(list, "n1") + "\n", false},
		{"outlets alone", "  provider: strips\n  " + fmt.Sprintf(list, "a.example.net/1") + "\n", false},
		{"a VM, then a person", "  provider: vcenter\n  machine: {from: systemUUID}\n" + person, false},
	} {
		for mode, want := range map[string]bool{
			"mode: fence\n": tc.want, "mode: shadow\n": tc.want,
			"mode: observe\n": tc.want || strings.Contains(tc.rule, "strips"), // which switches no outlet off
			"mode: observe\nmodes: [{selector: pool=x, mode: fence}]\n": tc.want,
		} {
			cfg, err := config.Parse("f", []byte(mode+head+tc.rule), all.Types())
			if err != nil {
				t.Errorf("%s%s: %v", mode, tc.name, err)
				continue
			}
			got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
				return w.Path == "nodes[0]" && strings.Contains(w.Problem, "no device of this rule says Off. Add a "+
					"person as the last level (type confirm). In mode fence, outlets that feed the machine work, too")
			})
			if got != want {
				t.Errorf("%s%s: warned %v, want %v: %v", mode, tc.name, got, want, cfg.Warnings())
			}
		}
	}
}

// TestWarningOfPeopleAlone: in mode fence a rule that has a person and no device is a warning.
func TestWarningOfPeopleAlone(t *testing.T) {
	const rule = "providers: [{name: people, confirm: {}}, {name: racks, redfish: {username: u, passwordEnv: PW}}]\n" +
		"nodes:\n- name: x\n  provider: %s\n  machine: {from: list, list: [{node: n1, id: '%s'}]}\n"
	const level = "  levels: [{devices: [{provider: people, machine: {from: list, list: [{node: n1, id: n1}]}}]}]\n"
	person, bmc := fmt.Sprintf(rule, "people", "n1"), fmt.Sprintf(rule, "racks", "https://a")
	for _, tc := range []struct {
		name, file string
		want       bool
	}{
		{"fence", "mode: fence\n" + person, true},
		{"fence by modes", "modes: [{selector: a, mode: fence}]\n" + person, true},
		{"observe", "mode: observe\n" + person, false},
		{"a BMC, then a person", "mode: fence\n" + bmc + level, false},
	} {
		cfg, err := config.Parse("f", []byte(tc.file), all.Types())
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return w.Path == "nodes[0]" && strings.Contains(w.Problem, "this rule has no device that can")
		})
		if got != tc.want {
			t.Errorf("%s: warned %t, want %t: %v", tc.name, got, tc.want, cfg.Warnings())
		}
	}
}

// A provider that no rule, level or host uses is a warning at its line.
func TestUnusedProviders(t *testing.T) {
	const file = `providers:
- {name: own, plain: }
- {name: guests, guests: {hypervisors: [h1]}}
- {name: level, plain: }
- {name: host, plain: }
- {name: strips, plain: }
nodes:
- {name: a, selector: node-role.kubernetes.io/a, provider: own, machine: {from: systemUUID}}
- name: b
  selector: "!node-role.kubernetes.io/a"
  provider: guests
  machine: {from: name}
  levels: [{devices: [{provider: level, machine: {from: name}}]}]
  within: [{hypervisor: h1, provider: host, id: x}]
`
	var got []string
	for _, w := range parse(t, file).Warnings() {
		if strings.Contains(w.Problem, "no rule under nodes uses") {
			got = append(got, w.Error())
		}
	}
	const want = "f:6: providers[4]: warning: no rule under nodes uses the provider strips, so none of its devices " +
		"is " +
		"asked. Name it in a rule (provider: strips), in a rule's levels, or remove it"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A rule whose nodes are all excluded gets a warning.
func TestExcludedRules(t *testing.T) {
	for _, tc := range []struct {
		selector, exclude string
		want              bool
	}{
		{"", "kubernetes.io/hostname", true},
		{"rack=a", "rack=a", true},
		{"rack=a", "rack in (a, b)", true},
		{"rack=a", "kubernetes.io/os", true},
		{config.DefaultExclude + "=true", config.DefaultExclude, true},
		{"rack=a", "rack=b", false},
		{"", "rack=a", false},
		{"", config.DefaultExclude, false},
	} {
		cfg, err := config.Parse("f", append([]byte("excludeSelector: "+tc.exclude+"\n"), rulesOf(tc.selector)...),
			configtest.Types())
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return w.Line == 4 && w.Path == "nodes[0]" && strings.Contains(w.Problem, "left alone")
		})
		if got != tc.want {
			t.Errorf("selector %q, exclude %q: got a warning %v, want %v: %v", tc.selector, tc.exclude, got, tc.want,
				cfg.Warnings())
		}
	}
}
