package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// twoSupplies is a server whose BMC comes first, and then the two outlets that feed it.
const twoSupplies = `
powerOffTimeout: 60s
providers: [{name: racks, plain: }, {name: strips-a, plain: }, {name: strips-b, plain: }, {name: people, plain: }]
nodes:
- name: all
  provider: racks
  machine: {from: annotation, annotation: bmc}
  levels:
  - delay: 5s
    attempts: 3
    devices:
    - {provider: strips-a, machine: {from: list, list: [{node: n1, id: a/1}, {node: n2, id: a/2}, {node: n4, id: a/4}]}}
    - {provider: strips-b, machine: {from: template, template: '%s'}}
  - timeout: 15s
    devices: [{provider: people, machine: {from: name}}]
`

// outlet is a label that no kubelet can write.
const outlet = "node-restriction.kubernetes.io/outlet"

// said writes devices as level:provider/id.
func said(m config.Assignment) (out []string) {
	for _, f := range m.Further {
		out = append(out, fmt.Sprintf("%d:%s/%s", f.Level, f.Provider, f.Target.ID))
	}
	return out
}

// A level stands whole or not at all: what is left of one whose other device does not know the node, or speaks already,
// would prove more than it knows.
func TestLevelsAreWhole(t *testing.T) {
	bmc := func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": "b"} }
	for _, tc := range []struct {
		name, text string
		node       *corev1.Node
		want       []string
	}{
		{"both outlets", fmt.Sprintf(twoSupplies, `b/{label:`+outlet+`}`), with(node("n1", outlet+"=1"), bmc),
			[]string{"1:strips-a/a/1", "1:strips-b/b/1", "2:people/n1"}},
		{"the first has nothing to do with it", fmt.Sprintf(twoSupplies, `b/{name}`), node("n2"),
			[]string{"1:strips-a/a/2", "1:strips-b/b/n2", "2:people/n2"}},
		{"only one outlet is known", fmt.Sprintf(twoSupplies, `b/{name}`), with(node("n3"), bmc),
			[]string{"2:people/n3"}},
		{"only the other outlet is known", `
providers: [{name: strips-a, plain: }, {name: strips-b, plain: }, {name: people, plain: }]
nodes:
- name: all
  levels:
  - devices:
    - {provider: strips-a, machine: {from: template, template: 'a/{name}'}}
    - {provider: strips-b, machine: {from: list, list: [{node: n1, id: b/1}]}}
  - devices: [{provider: people, machine: {from: name}}]
`, node("n3"), []string{"2:people/n3"}},
		{"two templates lead to one outlet",
			strings.Replace(fmt.Sprintf(twoSupplies, `a/{label:`+outlet+`}`), "provider: strips-b",
				"provider: strips-a", 1),
			with(node("n4", outlet+"=4"), bmc), []string{"2:people/n4"}},
		{"an outlet is the rule's own device",
			strings.Replace(fmt.Sprintf(twoSupplies, "{label:"+outlet+"}"), "provider: strips-b",
				"provider: racks", 1),
			with(node("n4", outlet+"=b"), bmc), []string{"2:people/n4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, _ := parse(t, tc.text).FindMachine(tc.node)
			if diff := cmp.Diff(tc.want, said(m)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Each level has its limits. Those without a timeout share what is left of powerOffTimeout.
func TestLevelLimits(t *testing.T) {
	m, err := parse(t, fmt.Sprintf(twoSupplies, "b/{name}")).
		FindMachine(with(node("n1"), func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": "b"} }))
	if err != nil {
		t.Fatal(err)
	}
	strips := proof.Limits{Delay: 5 * time.Second, Timeout: 20 * time.Second, Attempts: 3}
	got := []proof.Limits{m.Limits}
	for _, f := range m.Further {
		got = append(got, f.Limits)
	}
	if diff := cmp.Diff([]proof.Limits{{Timeout: 20 * time.Second}, strips, strips, {Timeout: 15 * time.Second}},
		got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A rule may have all of its levels under levels: none of its devices is what a node names, and two outlets may be the
// first level.
func TestOnlyLevels(t *testing.T) {
	cfg := parse(t, `
mode: fence
providers: [{name: strips, plain: }]
nodes:
- name: all
  levels:
  - devices:
    - {provider: strips, machine: {from: template, template: 'a/{name}'}}
    - {provider: strips, machine: {from: template, template: 'b/{name}'}}
`)
	m, err := cfg.FindMachine(node("n1"))
	if diff := cmp.Diff([]string{"1:strips/a/n1", "1:strips/b/n1"}, said(m)); diff != "" || err == nil ||
		m.Provider != "" {
		t.Errorf("got %+v, error %v, -want +got:\n%s", m, err, diff)
	}
	claims := taint.NewClaims(cfg.MachineClaims([]*corev1.Node{node("n1"), node("n2")}))
	thief := taint.Claim{Node: "n3", Machine: taint.MachineRef{Provider: "strips", ID: "b/n1"}, Claimed: true}
	if c := claims.FindClash(thief, nil); !strings.Contains(c.Refused, "node n1") {
		t.Errorf("another node takes an outlet: got %+v", c)
	}
}

// A confirmation is read where any level of the node's rule has a provider of type confirm, also if the node's own
// device cannot be found.
func TestReadsConfirmation(t *testing.T) {
	const file = "providers: [{name: people, confirm: {}}, {name: guests, libvirt: {uri: 'qemu:///system'}}]\n" +
		"nodes:\n" +
		"- name: alone\n  selector: x.node-restriction.kubernetes.io/rule=alone\n  provider: people\n" +
		"  machine: {from: name}\n" +
		"- name: guest\n  selector: x.node-restriction.kubernetes.io/rule=guest\n  provider: guests\n" +
		"  machine: {from: systemUUID}\n" +
		"- name: last\n  selector: x.node-restriction.kubernetes.io/rule=last\n  provider: guests\n" +
		"  machine: {from: systemUUID}\n" +
		"  levels: [{devices: [{provider: people, machine: {from: name}}]}]\n"
	cfg, err := config.Parse("f", []byte(file), all.Types())
	if err != nil {
		t.Fatal(err)
	}
	for rule, want := range map[string]bool{"alone": true, "guest": false, "last": true, "none": false} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
			"x.node-restriction.kubernetes.io/rule": rule}}}
		if got, err := cfg.ReadsConfirmation(n); got != want {
			t.Errorf("%s: got %t (%v), want %t", rule, got, err, want)
		}
	}
}

// check-config warns where machines may be powered off, a selector names a label of KubeVirt, and the file does not say
// whether its hosts are powered off.
func TestWarningOfKubeVirtHosts(t *testing.T) {
	const people = "providers: [{name: people, confirm: {}}]\nnodes: [{name: all, provider: people, machine: {from: " +
		"template, template: '{name}'}}]\n"
	hosts := strings.Replace(people, "{name: all,", "{name: all, selector: kubevirt.io/schedulable=true,", 1)
	for name, tc := range map[string]struct {
		file string
		want bool
	}{
		"fence":           {hosts + "mode: fence\n", true},
		"fence, of some":  {people + "modes: [{selector: kubevirt.io/schedulable, mode: fence}]\n", true},
		"fence and never": {hosts + "mode: fence\nstormGuard: {kubeVirtHosts: never}\n", false},
		"fence and yes":   {hosts + "mode: fence\nstormGuard: {kubeVirtHosts: powerOff}\n", false},
		"fence and other": {hosts + "mode: fence\nstormGuard: {controlPlane: never}\n", true},
		"no hint":         {people + "mode: fence\n", false},
		"observe":         {hosts, false},
		"shadow":          {hosts + "mode: shadow\n", false},
	} {
		cfg, err := config.Parse("f", []byte(tc.file), all.Types())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := false
		for _, w := range cfg.Warnings() {
			got = got || w.Path == "stormGuard.kubeVirtHosts" && strings.HasPrefix(w.Problem, "warning: ") && w.Line > 0
		}
		if got != tc.want {
			t.Errorf("%s: warned %v, want %v", name, got, tc.want)
		}
	}
}

// check-config warns where another controller may lead before a power action arrives.
func TestWarningOfShortLease(t *testing.T) {
	const file = "mode: fence\nproviders: [{name: quick, timeout: 1s, confirm: {}}, {name: slow, timeout: 3500ms, " +
		"confirm: {}}]\n" +
		"nodes: [{name: all, provider: slow, machine: {from: name}}]\n"
	observe := strings.Replace(file, "mode: fence", "mode: observe", 1)
	for _, tc := range []struct{ name, file, want string }{
		{"the default", file, ""},
		{"just long enough", file + "leaderElection: {leaseDuration: 14s}\n", ""},
		{"too short", file + "leaderElection: {leaseDuration: 13s}\n",
			"at least 14s: renewDeadline (10s) plus the timeout of provider slow (3.5s)"},
		{"a long deadline", file + "leaderElection: {renewDeadline: 12s}\n", "at least 16s: renewDeadline (12s)"},
		{"no election", file + "leaderElection: {enabled: false, leaseDuration: 13s}\n", ""},
		{"nothing is powered off", observe + "leaderElection: {leaseDuration: 13s}\n", ""},
	} {
		cfg, err := config.Parse("f", []byte(tc.file), all.Types())
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got := ""
		for _, w := range cfg.Warnings() {
			if w.Path == "leaderElection.leaseDuration" && w.Line > 0 {
				got = w.Problem
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got warning %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A Lease that lasts as long as its leader may act without renewing it has two leaders at its end.
func TestRenewDeadline(t *testing.T) {
	for deadline, refused := range map[string]bool{"14900ms": false, "15s": true, "15100ms": true} {
		_, err := config.Parse("f", []byte("leaderElection: {leaseDuration: 15s, renewDeadline: "+deadline+"}\n"),
			all.Types())
		if got := err != nil && strings.Contains(err.Error(), "leaderElection.renewDeadline: must be shorter than "+
			"leaseDuration (15s)"); got != refused || (err != nil) != refused {
			t.Errorf("%s of 15s: got %v, want it refused %t", deadline, err, refused)
		}
	}
}

// check-config warns, once for a rule, where silence is all that is left once the power is gone.
func TestWarnings(t *testing.T) {
	t.Setenv("PW", "12345678")
	const providers = `
mode: fence
providers:
- {name: racks, redfish: {username: u, passwordEnv: PW}}
- {name: older, ipmi: {username: u, passwordEnv: PW}}
- {name: strips, pdu: {mib: apc-rpdu2, username: u, passwordEnv: PW}}
- {name: cloud, cloudtaint: {trust: nobody}}
nodes:
`
	const policies = "- {name: a, machine: {from: list, list: [{node: n1, id: strip/1}]}, provider: " +
		"strips}\npolicies:\n- name: db\n  namespaces: [db]\n  "
	const bmc = "provider: racks\n  machine: {from: template, template: 'https://{name}.bmc.example.net'}\n"
	level := func(provider, id string) string {
		return fmt.Sprintf("  - devices: [{provider: %s, machine: {from: template, template: '%s'}}]\n", provider, id)
	}
	const listed = "  - devices: [{provider: strips, machine: {from: list, list: [{node: n1, id: strip/1}]}}]\n"
	for _, tc := range []struct {
		name, rules string
		want        []string // paths
	}{
		{"a BMC alone", "- name: a\n  " + bmc, []string{"nodes[0]"}},
		{"two BMCs", "- name: a\n  " + bmc + "  levels:\n" + level("older", "{name}.bmc.example.net"),
			[]string{"nodes[0]"}},
		{"storage-fences for StatefulSets",
			policies + "owners: [StatefulSet]\n  drivers: [csi.example.net]\n  withoutProof: storage-fences\n",
			[]string{"policies[0]"}},
		{"storage-fences that detaches", policies + "drivers: [csi.example.net]\n  volumeAttachmentRecoveryPolicy: " +
			"wait\n  withoutProof: storage-fences\n", nil},
		{"no volumes matter", policies + "withoutProof: storage-fences\n", nil},
		{"accept-duplicates", policies + "drivers: [csi.example.net]\n  withoutProof: accept-duplicates\n", nil},
		{"a BMC and an outlet", "- name: a\n  " + bmc + "  levels:\n" + listed, nil},
		{"a BMC and an outlet that is never switched off", "- name: a\n  mode: observe\n  " + bmc + "  levels:\n" + listed,
			[]string{"nodes[0]"}},
		{"an outlet by name", "- name: a\n  " + bmc + "  levels:\n" + level("strips", "{name}.example.net/1"),
			[]string{"nodes[0].levels[0].devices[0].machine"}},
		{"the second of two rules",
			"- name: a\n  selector: node-role.kubernetes.io/a\n  levels:\n" + listed +
				"- name: b\n  selector: node-role.kubernetes.io/b\n  " + bmc, []string{"nodes[1]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := config.Parse("f", []byte(providers+tc.rules), all.Types())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range cfg.Warnings() {
				if strings.HasPrefix(w.Path, "providers[") {
					continue // no rule of this case uses it
				}
				got = append(got, w.Path)
				if !strings.HasPrefix(w.Problem, "warning: ") || w.Line == 0 {
					t.Errorf("got %q", w)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	// What never says Off holds its whole level up.
	_, err := config.Parse("f", []byte(providers+"- name: a\n  levels:\n  - devices:\n    - {provider: strips, "+
		"machine: {from: template, template: '{name}.example.net/1'}}\n"+
		"    - {provider: cloud, machine: {from: name}}\n"), all.Types())
	if err == nil || !strings.Contains(err.Error(), "devices[1].provider: never says Off") {
		t.Errorf("got error %v", err)
	}
}
