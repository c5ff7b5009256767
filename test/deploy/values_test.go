package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestRequestsElsewhere: without a namespace, or with requests in another cluster, the chart has no rights for them.
func TestRequestsElsewhere(t *testing.T) {
	for values, want := range map[string]bool{
		"{}": false,
		"config: {remediation: {namespaces: [a]}}": true,
		"config: {remediation: {namespaces: []}}":  false,
		"{config: {remediation: {namespaces: [a], kubeconfig: /etc/k/c}}, extraSecrets: [{name: k, mountPath: /etc/k}]}": false,
	} {
		if got := strings.Contains(charted(t, values), "forcefenceremediationtemplates"); got != want {
			t.Errorf("%s: got rights or definitions: %v, want %v", values, got, want)
		}
	}
	// What a management cluster gets.
	text, err := cluster.RenderChart(t.Context(), chart, "config: {remediation: {namespaces: [default]}}",
		"remediation.yaml")
	kit.Must(t, err)
	got := slices.Sorted(maps.Keys(byKey(t, text)))
	if want := []string{"ClusterRole /forcefence-remediation", "ClusterRole /forcefence-remediation-requester",
		"RoleBinding default/forcefence-remediation"}; !slices.Equal(got, want) {
		t.Errorf("remediation.yaml: got %q, want %q", got, want)
	}
}

// TestNoLeases: without a rule the chart has no rights to Leases of others.
func TestNoLeases(t *testing.T) {
	for values, want := range map[string]int{
		"{}":                          0,
		"config: {releaseLeases: []}": 0,
		"config: {releaseLeases: [{namespace: a, names: [x]}, {namespace: b, names: [x]}]}": 2,
	} {
		if got := strings.Count(charted(t, values), "kind: ClusterRole, name: forcefence-leases}"); got != want {
			t.Errorf("%s: got the right in %d namespaces, want %d", values, got, want)
		}
	}
}

// TestMetal3Elsewhere: the chart has rights for BareMetalHosts of this cluster only, and to write only where that is
// asked for.
func TestMetal3Elsewhere(t *testing.T) {
	const read = `resources: [baremetalhosts], verbs: [get]`
	const write = `resources: [baremetalhosts], verbs: [get, list, patch]`
	for settings, want := range map[string]string{
		"namespaces: [a]":                                         read,
		"namespaces: [a], powerOff: none":                         read,
		"namespaces: [a], powerOff: detach":                       write,
		"namespaces: [a], powerOff: detach, kubeconfig: /etc/k/c": "",
	} {
		got := charted(t, "{config: {providers: [{name: hosts, metal3: {"+settings+"}}]}, extraSecrets: [{name: k, "+
			"mountPath: /etc/k}]}")
		if has := strings.Contains(got, "forcefence-metal3"); has != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: got rights: %v, want %q", settings, has, want)
		}
	}
}

// TestNetworkFenceRights: the chart grants them, and the deletion of the drivers' attachments, only where a policy has
// a class.
func TestNetworkFenceRights(t *testing.T) {
	policy := "config: {policies: [{name: p, drivers: [csi.example.net], withoutProof: storage-fences%s}]}"
	for values, want := range map[string]bool{
		"{}":                    false,
		fmt.Sprintf(policy, ""): false,
		fmt.Sprintf(policy, ", networkFenceClasses: [c]"): true,
	} {
		text := charted(t, values)
		for _, part := range []string{"csiaddons.openshift.io", "['csi.example.net']"} {
			if got := strings.Contains(text, part); got != want {
				t.Errorf("%s: got %q in the chart: %v, want %v", values, part, got, want)
			}
		}
	}
}

// TestNodeClaims: the chart has rights on NodeClaims as far as karpenter needs them.
func TestNodeClaims(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                                 "",
		"config: {karpenter: ignore}":        "",
		"config: {karpenter: leaveDeleting}": "verbs: [get]}",
		"config: {karpenter: handOver}":      "verbs: [get, patch, delete]}",
	} {
		_, got, _ := strings.Cut(charted(t, values), "metadata: {name: forcefence-karpenter,")
		_, got, _ = strings.Cut(got, "resources: [nodeclaims], ")
		if got, _, _ = strings.Cut(got, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", values, got, want)
		}
	}
}

// TestFaults: the chart refuses what check-config refuses, in the same words. It knows no lines.
func TestFaults(t *testing.T) {
	binary := build(t, t.TempDir(), "forcefence")
	fault, line := regexp.MustCompile(`(?m)^\S+:\d+: (.*)$`), regexp.MustCompile(`,? on line \d+$`)
	const rule = "nodes: [{name: all, selector: '', machine: {from: systemUUID}, provider: "
	const vcenter = "providers: [{name: vms, confirm: {validFor: 1h}}]\n"
	const bmcs = "providers: [{name: a, redfish: {" + login + "}}]\n"
	const at = "nodes: [{name: all, selector: '', provider: a, machine: "
	for _, tc := range []struct {
		name, config string
		want         []string // the beginnings of the faults
	}{
		{"a provider without a type", "providers: [{name: racks, timeout: 3s}]\nnodes: []",
			[]string{"providers[0]: no type: add one of azure, cloudtaint, "}},
		{"a provider without a name", "providers: [{confirm: {validFor: 1h}}]\nnodes: []",
			[]string{"providers[0].name: missing"}},
		{"an unknown provider", vcenter + rule + "racks}]",
			[]string{"nodes[0].provider: no such provider: known are vms"}},
		{"no providers", "providers: []\n" + rule + "racks}]",
			[]string{"nodes[0].provider: no such provider: the file has none. Add it under providers"}},
		{"a rule without a provider", vcenter + "nodes: [{name: all, selector: ''}]",
			[]string{"nodes[0].provider: missing: it names one of providers"}},
		{"an unknown provider in a level", vcenter + "nodes: [{name: all, selector: '', levels: [{devices: " +
			"[{provider: racks, machine: {from: name}}]}]}]",
			[]string{"nodes[0].levels[0].devices[0].provider: no such provider: known are vms"}},
		{"two faults", "providers: [{name: racks}, {name: vms, confirm: {validFor: 1h}}]\n" + rule + "pdus}]",
			[]string{"providers[0]: no type: ", "nodes[0].provider: no such provider: known are racks, vms"}},
		{"two providers of one name", "providers: [{name: a, confirm: {}}, {name: a, confirm: {}}]\nnodes: []",
			[]string{`providers[1].name: "a" is already the name of providers[0]`}},
		{"names", "providers: [{name: a_b, confirm: {}}]\nnodes: [{selector: '', provider: a_b, machine: {from: " +
			"systemUUID}}]", []string{"providers[0].name: must be a DNS label: ", "nodes[0].name: missing"}},
		{"machines without what they need", vcenter + "nodes: [{name: a, selector: a, provider: vms, machine: " +
			"{from: template}}, {name: b, selector: b, provider: vms, machine: {from: systemUUID, list: [{node: " +
			"n1, id: m}]}}, {name: c, selector: c, provider: vms}]", []string{
			`nodes[0].machine.template: missing: "from: template" `,
			`nodes[1].machine.list: belongs to "from: list"`, "nodes[2].machine.from: missing: one of systemUUID, "}},
		{"nothing to fence", "mode: fence\nproviders: []\nnodes: []", []string{"mode: nothing to fence: "}},
		{"nothing to fence by modes", "modes: [{selector: a, mode: fence}]\nproviders: []\nnodes: []",
			[]string{"modes: nothing to fence: "}},
		{"requests of no namespace", "mode: onRequest\n" + vcenter + rule + "vms}]",
			[]string{"remediation.namespaces: missing: mode onRequest "}},
		{"requests of no namespace by modes", "modes: [{selector: a, mode: onRequest}]\n" + vcenter + rule + "vms}]",
			[]string{"remediation.namespaces: missing: mode onRequest "}},
		{"nothing to fence on request", "mode: onRequest\nremediation: {namespaces: [a]}\nproviders: []\nnodes: []",
			[]string{"mode: nothing to fence: "}},
		{"hosts that a Node's creator chooses", bmcs + at + "{from: template, template: 'https://{name}'}}]",
			[]string{"nodes[0].machine.allow: missing: "}},
		{"such hosts of ipmi", "providers: [{name: a, ipmi: {username: a, passwordFile: /etc/forcefence-bmc/a}}]\n" +
			at + "{from: template, template: 'bmc-{name}'}}]", []string{"nodes[0].machine.allow: missing: "}},
		{"a template without encryption", bmcs + at + "{from: template, template: " +
			"'http://{name}.bmc.example.net'}}]",
			[]string{"nodes[0].machine.template: gives no node a device, because the ID is not https://: "}},
		{"a template without a scheme", bmcs + at + "{from: template, template: '{name}.bmc.example.net'}}]",
			[]string{"nodes[0].machine.template: gives no node a device, because the ID is no address: "}},
		{"a name without a scheme", bmcs + at + "{from: name}}]",
			[]string{"nodes[0].machine.from: gives no node a device, because the ID is no address: "}},
		{"a template of Go", bmcs + at + "{from: template, template: 'https://{{ .Name }}.{{ .Labels.a }}.example.net'}}]",
			[]string{"nodes[0].machine.template: {{ }} is not read: write 'https://{name}.{label:a}.example.net'"}},
		{"a function of Go", bmcs + at + "{from: template, template: 'https://{{ .Name | lower }}.example.net'}}]",
			[]string{"nodes[0].machine.template: {{ }} is not read: use {name}, {label:KEY}, {annotation:KEY} or {uuid}. "}},
		{"a list without https", bmcs + at + "{from: list, list: [{node: n1, id: 10.0.0.7}, {node: n2, id: " +
			"'http://10.0.0.8'}]}}]", []string{"nodes[0].machine.list[0].id: is no address: ",
			"nodes[0].machine.list[1].id: is not https://: "}},
		{"nodes and machines twice in lists", bmcs + "nodes: [{name: one, provider: a, machine: {from: list, list: [{node: " +
			"n1, id: 'https://a'}, {node: n1, id: 'https://b'}, {node: n2, id: 'https://b'}]}}, {name: two, provider: " +
			"a, machine: {from: list, list: [{node: n2, id: 'https://c'}]}, levels: [{devices: [{provider: a, " +
			"machine: {from: list, list: [{node: n2, id: 'https://a'}]}}]}]}]", []string{
			"nodes[0].machine.list[1].node: n1 is already listed", "nodes[0].machine.list[2].id: another node ",
			"nodes[1].machine.list[0].node: n2 is already listed",
			"nodes[1].levels[0].devices[0].machine.list[0].id: another node "}},
		{"ec2 without a region", "providers: [{name: a, ec2: {regions: []}}]\nnodes: []",
			[]string{"providers[0].ec2.regions: missing: "}},
		{"addresses without https", "providers: [{name: a, redfish: {address: 'http://10.0.0.3', " + login +
			"}}, {name: b, vsphere: {address: vcenter.example.net, " + login + "}}]\nnodes: []",
			[]string{"providers[0].redfish.address: is not https://: ",
				"providers[1].vsphere.address: is no address: "}},
		{"a transport that libvirt has", "providers: [{name: a, libvirt: {uri: 'qemu+ssh://a/system'}}, {name: b, " +
			"libvirt: {uris: ['qemu+libssh2://a/system']}}]\nnodes: []", []string{
			"providers[0].libvirt.uri: has the transport ssh, ", "providers[1].libvirt.uris[0]: has the transport ssh, "}},
		{"a level without a device", vcenter + "nodes: [{name: all, selector: '', levels: [{devices: []}]}]",
			[]string{"nodes[0].levels[0].devices: missing: a level without a device "}},
		{"short times", "powerOffAfter: 19s\npowerOffTimeout: 4.9s\ndetachTimeout: 9999ms\nmodes: [{selector: a, " +
			"mode: fence, powerOffAfter: 1s}]\nproviders: [{name: a, confirm: {}, timeout: 5001ms}]\nnodes: []",
			[]string{
				"powerOffAfter: must be at least 20s: ", "powerOffTimeout: must be at least 5s",
				"detachTimeout: must be at least 10s", "modes[0].powerOffAfter: must be at least 20s: ",
				"providers[0].timeout: must be from 100ms to 5s: "}},
		{"a page without TLS", "listen: {status: ':8443'}\nproviders: []\nnodes: []",
			[]string{"listen.status: would send users' tokens over the network unencrypted: "}},
		{"a certificate without its key", "listen: {status: ':8443', statusCertFile: " +
			"/etc/forcefence-bmc/tls.crt}\nproviders: []\nnodes: []", []string{"listen.status: statusCertFile and " +
			"statusKeyFile go together"}},
		{"removed keys", "listen: {health: ':9090'}\nleaderElection: {name: a, namespace: b}\npauseConfigMap: " +
			"stop\npowerOnDelay: 5m\nrecord: {maxBytes: 1}\nrecords: {keep: 1}\nstormGuard: {coolDown: 1m}\nnodes: " +
			"[]\nproviders: []", []string{"listen.health: this key was removed: ", "leaderElection.name: this ",
			"leaderElection.namespace: this ", "pauseConfigMap: this ", "powerOnDelay: this ",
			"record: this key was removed: write recording: ",
			"records: this ", "stormGuard.coolDown: this "}},
		{"keys that are not there", "stormGard: {}\nproviders: [{name: a, redfsh: {}}, {name: b, redfish: {usrname: a, " +
			"passwordEnv: A}}]\nnodes: []", []string{`stormGard: unknown key: did you mean "stormGuard"?`,
			`providers[0].redfsh: unknown provider type: did you mean "redfish"?`,
			`providers[1].redfish.usrname: unknown key: did you mean "username"?`}},
		{"a secret in the file", "providers: [{name: a, redfish: {username: a, password: b}}]\nnodes: []",
			[]string{"providers[0].redfish.password: a secret does not belong in this file: use passwordFile or "}},
		{"a provider's key in its type", "providers: [{name: a, redfish: {" + login + ", timeout: 3s}}]\nnodes: []",
			[]string{"providers[0].redfish.timeout: belongs to the provider and not to its type: "}},
		{"words", "mode: observ\nkarpenter: 'yes'\nonDetachTimeout: delete\nproviders: []\nnodes: []", []string{
			`mode: must be observe, onRequest, fence, shadow or disabled: did you mean "observe"?`,
			"karpenter: must be ignore, leaveDeleting or handOver", "onDetachTimeout: must be "}},
		{"values of other types", "powerOffAfter: 30\ndetachTimeout: a minute\nexcludeCordoned: 'yes'\nlines: {port: " +
			"'7'}\nstormGuard: {maxPowerOffs: lots, minHealthy: 101%}\nexcludeSelector: 5\nevictFirst: [a]\nlisten: 8080\n" +
			"providers: {a: b}\nnodes: []", []string{`powerOffAfter: a duration needs a unit: "30s"?`,
			"detachTimeout: not a duration: ", "excludeCordoned: want true or false, have text: write true",
			"lines.port: want a whole number, have text: write it without quotes",
			"stormGuard.maxPowerOffs: must be a whole number of nodes (3), or ",
			"stormGuard.minHealthy: must be a whole number of nodes (3), or ",
			"excludeSelector: want text, have a whole number: put it in quotes",
			"evictFirst: want a label selector, which is text ", "listen: want a mapping (",
			"providers: want a list (lines that begin with -), have a mapping"}},
		{"numbers out of bounds", "lines: {port: 70000}\nproviders: [{name: a, confirm: {}, concurrency: 0, " +
			"ratePerSecond: 0}]\nnodes: []", []string{"lines.port: must be a port, ",
			"providers[0].concurrency: must be from 1 to 100", "providers[0].ratePerSecond: must be more than 0 "}},
		{"settings that are missing", "providers: [{name: a, openstack: {address: 'https://a', " + login + "}}, " +
			"{name: b, ipmi: {username: a}}]\nnodes: []", []string{
			"providers[0].openstack.values.identity: missing: ", "providers[1].ipmi.passwordFile: missing"}},
		{"durations in days", "powerOffAfter: 7d\ndetachTimeout: 2w\nproviders: [{name: a, confirm: {validFor: 1 " +
			"day}}]\nnodes: []", []string{"powerOffAfter: a duration has no days: write \"168h\"",
			"detachTimeout: a duration has no days: write \"336h\"",
			"providers[0].confirm.validFor: a duration has no days: write hours, such as "}},
		{"relative paths", "signing: {keyFile: key.pem}\nproviders: [{name: a, redfish: {username: a, passwordFile: " +
			"bmc/password, caFile: ca.crt}}]\nnodes: []", []string{"signing.keyFile: must be an absolute path",
			"providers[0].redfish.passwordFile: must be an absolute path, such as ",
			"providers[0].redfish.caFile: must be an absolute path"}},
		{"a taint's key", "taintKey: a/b/c\nproviders: []\nnodes: []", []string{"taintKey: no taint can have this key: "}},
		{"Kubernetes' key", "taintKey: node.kubernetes.io/a\nproviders: []\nnodes: []",
			[]string{"taintKey: keys under kubernetes.io belong to Kubernetes: "}},
	} {
		file := valuesFile(t, tc.config)
		said, err := exec.CommandContext(t.Context(), binary, "check-config", file).CombinedOutput()
		if err == nil {
			t.Errorf("%s: check-config accepts it", tc.name)
		}
		var faults []string
		for _, m := range fault.FindAllStringSubmatch(string(said), -1) {
			faults = append(faults, line.ReplaceAllString(m[1], ""))
		}
		values := "config:\n  " + strings.ReplaceAll(tc.config, "\n", "\n  ")
		_, err = helm(t, "", "template", "forcefence", chart, "--values", someImage, "--values", valuesFile(t,
			values))
		if err == nil {
			t.Errorf("%s: the chart accepts it", tc.name)
			continue
		}
		for _, want := range tc.want {
			i := slices.IndexFunc(faults, func(f string) bool { return strings.HasPrefix(f, want) })
			if i < 0 {
				t.Errorf("%s: check-config printed:\n%s\nwant %q", tc.name, said, want)
			} else if !strings.Contains(err.Error(), "\nconfig."+faults[i]+"\n") {
				t.Errorf("%s: got %v, want check-config's line in it: config.%s", tc.name, err, faults[i])
			}
		}
	}
	// Addresses that look like those above and are right.
	const bmc = "providers: [{name: a, redfish: {address: 'https://10.0.0.3', " + login + "}}]\n"
	const plain = "providers: [{name: a, redfish: {allowHTTP: true, " + login + "}}]\n"
	for _, config := range []string{
		bmc + at + "{from: name}}]",
		bmc + at + "{from: list, list: [{node: n1, id: n1}]}, levels: [{devices: [{provider: a, machine: {from: list, " +
			"list: [{node: n1, id: n2}]}}]}]}]",
		bmcs + at + "{from: template, template: 'https://{name}', allow: ['*.example.net']}}]",
		plain + at + "{from: template, template: 'http://{name}.bmc.example.net'}}]",
		plain + at + "{from: list, list: [{node: n1, id: 'http://10.0.0.8'}]}}]",
		bmcs + at + "{from: template, template: '{label:scheme}://{name}', allow: [10.0.0.0/8]}}]",
		"providers: [{name: a, ipmi: {" + login + "}}]\n" + at + "{from: template, template: " +
			"'{name}.bmc.example.net'}}]",
		"providers: [{name: a, libvirt: {uri: 'qemu+tls://a/system', caFile: /etc/forcefence-bmc/a, certFile: " +
			"/etc/forcefence-bmc/b, keyFile: /etc/forcefence-bmc/c}}]\nnodes: []",
	} {
		out, err := exec.CommandContext(t.Context(), binary, "check-config", "--skip-files",
			valuesFile(t, config)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: check-config printed %s, want it accepted", config, out)
		}
		charted(t, "config:\n  "+strings.ReplaceAll(config, "\n", "\n  "))
	}
}

// TestSelectorsOfValues: the chart refuses each selector that Kubernetes cannot parse, and no other, except for names
// that are too long. Where check-config says what to do, the chart says the same.
func TestSelectorsOfValues(t *testing.T) {
	said := map[string]string{
		"rack=“a”": "remove the quotes that are no plain ones", "rack:a": "write = between a label and its value, not a colon",
		"rack=-a": "write labels and values with letters, digits, -, _ and .",
	}
	selectors := slices.Concat(slices.Sorted(maps.Keys(said)), []string{
		"my rack=a", "rack in a", "rack in (a b)", "a in (b", "a=b,", ",a", "a=!b", "a>b", "a>-1", "!a=b", "a;b",
		"/a", "a/", "a/b/c", "A/b", "a=b/c", "(a)", "=a", "a.", "a in (b) c", "notin (a)", "a<>1",
		"rack", "!rack", "rack=a", "rack==a", "rack != a", "rack=", "a in (b)", "a in (b,c)", "a notin (b, c)", "a in(,)",
		"a in ( b , )", "example.net/a-b_c.D=1.2", "a > 5", "a<05", " a , !b ", "! a", "a\tin (b)", "a in ()", "in",
	})
	for _, key := range []string{"a", "!a", "e.x/a", "a b", ""} {
		for _, operator := range []string{"=", "==", "!=", " in ", " notin ", ">", " ", "", "=="} {
			for _, value := range []string{"", "b", "7", "(b)", "(b,)", "( )", "b c", "é"} {
				selectors = append(selectors, key+operator+value)
			}
		}
	}
	var modes []string
	for _, s := range selectors {
		modes = append(modes, fmt.Sprintf("  - {mode: observe, selector: %q}\n", s))
	}
	_, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--values", valuesFile(t,
		"config:\n  providers: []\n  nodes: []\n  modes:\n"+strings.Join(modes, "")))
	if err == nil {
		t.Fatal("the chart accepts all selectors")
	}
	for i, s := range selectors {
		_, bad := labels.Parse(s)
		line := fmt.Sprintf("\nconfig.modes[%d].selector: not a label selector, such as \"rack=a\" or \"rack in (a, b)\": ", i)
		if got := strings.Contains(err.Error(), line+said[s]); got != (bad != nil) && s != "in" {
			t.Errorf("%q: refused %t, and Kubernetes says %v", s, got, bad)
		}
	}
}

// TestNullValues: a value that is null counts as the chart's own, or is refused with its name. It never breaks a
// template, and never lets forcefence act where the chart's own value does not.
func TestNullValues(t *testing.T) {
	// What the user takes away.
	other := regexp.MustCompile(`^(config\.evictFirst|(controller|hook)\.resources\.|metrics\.dashboard\.labels\.)`)
	refused := []string{"image.repository", "config.providers", "config.nodes"}
	var sections, leaves []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		m, is := v.(map[string]any)
		for key, v := range m {
			walk(path+"."+strings.ReplaceAll(key, ".", `\.`), v)
		}
		switch {
		case other.MatchString(path) || slices.Contains(refused, path):
		case is && len(m) > 0 && path != "image" && path != "config":
			sections = append(sections, path+"=null")
		case (!is || len(m) == 0) && path != "image.tag" && path != "hook.enabled": // someImage has them
			leaves = append(leaves, path+"=null")
		}
	}
	for key, v := range ownValues(t) {
		walk(key, v)
	}
	if len(sections) < 20 || len(leaves) < 90 {
		t.Errorf("got %d sections and %d other values", len(sections), len(leaves))
	}
	for _, tc := range []struct {
		paths []string
		own   string
	}{{sections, charted(t, noHook)}, {leaves, charted(t, "{}")}} { // hook=null takes someImage's away
		paths, own := tc.paths, tc.own
		out, err := helm(t, "", "template", "forcefence", chart, "--namespace", namespace, "--no-hooks",
			"--set", strings.Join(paths, ","), "--values", someImage)
		kit.Must(t, err)
		if diff := cmp.Diff(own, withoutRelease(out)); diff != "" {
			t.Errorf("null: %s: got (+) other objects than (-) by the chart's own values:\n%s", paths, diff)
		}
	}
	for _, path := range refused {
		_, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--set", path+"=null")
		if err == nil || !strings.Contains(err.Error(), "\n"+path+": ") {
			t.Errorf("%s: null: got %v, want it refused by its name", path, err)
		}
	}
	_, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--set", "config=null")
	if err == nil {
		t.Error("config: null: accepted")
	}
}

// TestEarlierValues: helm upgrade --reuse-values puts an earlier chart's values in the place of the chart's own. Those
// that it lacks count as this chart's, and a former default that changes nothing is dropped.
func TestEarlierValues(t *testing.T) {
	template := func(own, values string) string { // with these values in the place of the chart's own
		t.Helper()
		dir := t.TempDir()
		kit.Must(t, os.CopyFS(dir, os.DirFS(chart)))
		kit.Must(t, os.WriteFile(dir+"/values.yaml", []byte(own), 0o600))
		out, err := helm(t, "", "template", "forcefence", dir, "--namespace", namespace, "--no-hooks",
			"--values", someImage, "--values", valuesFile(t, values))
		kit.Must(t, err)
		return withoutRelease(out)
	}
	config, err := yaml.Marshal(map[string]any{"config": ownValues(t)["config"]})
	kit.Must(t, err)
	// All but what the user writes is missing.
	for _, values := range []string{"flowSchemas: true", "hook: {enabled: false}", "metrics: {dashboard: " +
		"{enabled: true}}"} {
		if got, want := template("{}", string(config)+values), charted(t, values); got != want {
			t.Errorf("%s, and no chart's values: got (+) other objects than (-) with them:\n%s", values,
				cmp.Diff(want, got))
		}
	}
	earlier, err := filepath.Glob("testdata/earlier/*.yaml")
	kit.Must(t, err)
	if len(earlier) < 2 {
		t.Errorf("got %v, want the values of earlier charts", earlier)
	}
	for _, file := range earlier {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		got, want := template(string(text), "{}"), charted(t, strings.Replace(string(text), `, health: ":8081"`, "", 1))
		if got != want {
			t.Errorf("%s: got (+) other objects than (-) by the same values on top of the chart's own:\n%s", file,
				cmp.Diff(want, got))
		}
	}
}

// TestReleaseLabels: every object of a release has the labels that Kubernetes recommends, and Helm's.
func TestReleaseLabels(t *testing.T) {
	out, err := helm(t, "", "template", "mine", chart, "--values", someImage, "--values", "testdata/values.yaml",
		"--set", "extraObjects=null")
	kit.Must(t, err)
	objects := parse(t, out)
	if len(objects) < 40 {
		t.Errorf("got %d objects", len(objects))
	}
	for _, o := range objects {
		labels := o.GetLabels()
		for key, want := range map[string]string{
			"app.kubernetes.io/instance": "mine", "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "dev", "app.kubernetes.io/part-of": "forcefence",
			"helm.sh/chart": "forcefence-0.0.0", "example.net/owner": "sre",
		} {
			if labels[key] != want {
				t.Errorf("%s %s: label %s: got %q, want %q", o.GetKind(), o.GetName(), key, labels[key], want)
			}
		}
		if labels["app.kubernetes.io/name"] == "" {
			t.Errorf("%s %s: no label app.kubernetes.io/name", o.GetKind(), o.GetName())
		}
	}
}

// TestAccount: an account of another name gets the same rights, and the same policies bound it.
func TestAccount(t *testing.T) {
	own, mine := charted(t, "{}"), charted(t, "serviceAccount: {create: false, name: mine}")
	const text = "system:serviceaccount:" + namespace + ":"
	if got, want := strings.Count(mine, text+"mine'"), strings.Count(own, text+"forcefence'"); got != want || want < 4 {
		t.Errorf("policies name the account %d times, want %d", got, want)
	}
	for _, o := range parse(t, mine) {
		switch o.GetKind() {
		case "ServiceAccount":
			if o.GetNamespace() == namespace {
				t.Errorf("ServiceAccount %s is rendered", o.GetName())
			}
		case "RoleBinding", "ClusterRoleBinding":
			for _, s := range typed[rbacv1.RoleBinding](t, o.Object).Subjects {
				if s.Name != "mine" {
					t.Errorf("%s %s: subject %s, want mine", o.GetKind(), o.GetName(), s.Name)
				}
			}
		case "Deployment":
			if got := typed[appsv1.Deployment](t, o.Object).Spec.Template.Spec.ServiceAccountName; got != "mine" {
				t.Errorf("the pods' account: got %s, want mine", got)
			}
		}
	}
	const role = "arn:aws:iam::123456789012:role/forcefence"
	aws := find[corev1.ServiceAccount](t, parse(t, charted(t, features["an account in AWS"])), "ServiceAccount",
		"forcefence")
	if got := aws.Annotations["eks.amazonaws.com/role-arn"]; got != role {
		t.Errorf("the account's role in AWS: got %q, want %s", got, role)
	}
}

// TestNooBaaAsksForNothing: the preset noobaa changes the configuration alone.
func TestNooBaaAsksForNothing(t *testing.T) {
	own, noobaa := byKey(t, charted(t, "{}")), byKey(t, charted(t, features["noobaa"]))
	for _, objects := range []map[string]map[string]any{own, noobaa} {
		delete(objects, "ConfigMap "+namespace+"/forcefence")
	}
	if diff := cmp.Diff(own, noobaa); diff != "" {
		t.Errorf("other objects (-own +noobaa):\n%s", diff)
	}
}

// TestHooks: Helm's hooks run as the controller does, with rights to read alone, and the check before an uninstall can
// be left out.
func TestHooks(t *testing.T) {
	hooks := func(values string) map[string]int {
		out, err := helm(t, "", "template", "forcefence", chart, "--namespace", namespace, "--values", someImage,
			"--values", valuesFile(t, values))
		kit.Must(t, err)
		count := map[string]int{}
		for _, o := range parse(t, out) {
			event := o.GetAnnotations()["helm.sh/hook"]
			count[event]++
			if event == "" {
				continue
			}
			var pod corev1.PodSpec
			labels := o.GetLabels()
			switch o.GetKind() {
			case "Pod":
				pod = typed[corev1.Pod](t, o.Object).Spec
			case "Job":
				template := typed[batchv1.Job](t, o.Object).Spec.Template
				pod, labels = template.Spec, template.Labels
			case "ClusterRole":
				for _, rule := range typed[rbacv1.ClusterRole](t, o.Object).Rules {
					if !slices.Equal(rule.Verbs, []string{"list"}) || !slices.Equal(rule.Resources, []string{"nodes"}) {
						t.Errorf("ClusterRole %s: got %v, want nodes to be listed", o.GetName(), rule)
					}
				}
				continue
			case "ClusterRoleBinding":
				role := typed[rbacv1.ClusterRoleBinding](t, o.Object).RoleRef.Name
				if role != "forcefence-look" && role != "forcefence-uninstall" {
					t.Errorf("the account of %s has the role %s", o.GetName(), role)
				}
				continue
			default:
				continue
			}
			if got := labels["app.kubernetes.io/component"]; "forcefence-"+got != o.GetName() {
				t.Errorf("the pod of %s: got component %q, want it in the name", o.GetName(), got)
			}
			s, own := pod.Containers[0].SecurityContext, pod.SecurityContext
			if !*own.RunAsNonRoot || own.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
				!*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				!strings.HasPrefix(pod.ServiceAccountName, "forcefence-") {
				t.Errorf("%s %s: got %+v, %+v, account %s", o.GetKind(), o.GetName(), own, s, pod.ServiceAccountName)
			}
		}
		return count
	}
	if got := hooks("{}"); got["test"] != 3 || got["pre-delete"] != 4 {
		t.Errorf("got %v, want 3 objects for helm test and 4 for helm uninstall", got)
	}
	for values, want := range map[string]string{
		"{}": "--wait=30s", "config: {providers: [{name: a, confirm: {}}]}": "--wait=30s",
		"config: {providers: [{name: a, container: {socket: /a}}]}":                      "--wait=4m30s",
		"{config: {providers: [{name: a, container: {socket: /a}}]}, test: {wait: 15m}}": "--wait=15m",
	} {
		out, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--values",
			valuesFile(t, values), "--show-only", "templates/hooks/test.yaml")
		kit.Must(t, err)
		pod := find[corev1.Pod](t, parse(t, out), "Pod", "forcefence-test")
		if got := pod.Spec.Containers[0].Args; !slices.Contains(got, want) {
			t.Errorf("%s: helm test: got arguments %v, want %s", values, got, want)
		}
	}
	if got := hooks("uninstallCheck: false"); got["test"] != 3 || got["pre-delete"] != 0 {
		t.Errorf("without the check: got %v, want 3 objects for helm test", got)
	}
}

// TestServices: the Services lead to the ports of the configuration, by a policy that keeps the BMCs' addresses; the
// chart's own values open nothing on a node, and no NetworkPolicy has to change.
func TestServices(t *testing.T) {
	objects := byKey(t, charted(t, `
config:
  listen: {metrics: ":8080", status: ":8443", `+certificate+`}
  providers:
  - {name: racks, redfish: {`+login+`, push: {listen: ":8444"}}}
  - {name: more, redfish: {`+login+`, push: {listen: ":8444"}}}
  nodes: []
service: {status: {enabled: true}, events: {enabled: true}}
`))
	ports := func(name string) (out []string) {
		s := typed[corev1.Service](t, objects["Service "+namespace+"/"+name])
		for _, p := range s.Spec.Ports {
			out = append(out, string(p.Protocol)+" "+p.TargetPort.String())
		}
		return append(out, string(s.Spec.Type), string(s.Spec.ExternalTrafficPolicy), string(s.Spec.SessionAffinity))
	}
	for name, want := range map[string][]string{
		"forcefence-status": {"TCP status", "ClusterIP", "", "ClientIP"},
		"forcefence-events": {"TCP events-8444", "LoadBalancer", "Local", ""},
	} {
		if got := ports(name); !slices.Equal(got, want) {
			t.Errorf("Service %s: got %v, want %v", name, got, want)
		}
	}
	own := byKey(t, charted(t, "{}"))["Deployment "+namespace+"/forcefence"]
	pod := typed[appsv1.Deployment](t, own).Spec.Template.Spec
	if pod.HostNetwork || slices.ContainsFunc(pod.Containers[0].Ports,
		func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
		t.Error("by the chart's own values the controller is on the node's network")
	}
}

// TestNotes: they name what was installed, and the commands that say whether it is well.
func TestNotes(t *testing.T) {
	const tag, digest = "forcefence:dev", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const device = "config: {providers: [{name: a, container: {socket: /a}}]}"
	for _, tc := range []struct {
		values        string
		want, wantNot []string
	}{
		{"{}", []string{tag + ", mode shadow. It reports what it would do, ", "daemonset/forcefence-node",
			"No device is configured", "docs/upgrade.md#uninstall\n", "has no registry: "},
			[]string{"kubectl get fencings", "WARNING", "controller alone"}},
		{"{config: {mode: observe}, hook: {enabled: false}}", []string{tag + ", mode observe. It recovers ",
			"the controller alone", "docs/promises.md#without-the-hook\n", "hook.enabled=true"}, []string{"daemonset"}},
		{"{image: {digest: '" + digest + "'}, " + device + "}", []string{"forcefence@" + digest + ", mode ",
			"\n  kubectl get fencings\n", "| forcefence check-config --skip-files -\n"}, []string{tag, "No device"}},
		{"controller: {hostNetwork: true}", []string{"WARNING: with hostNetwork the NetworkPolicy "}, nil},
		{"controller: {replicas: 0}", []string{"WARNING: controller.replicas is 0: "}, nil},
		{"image: {repository: 'registry.example.net:5000/forcefence'}", []string{"WARNING: " +
			"registry.example.net:5000/forcefence is the documentation's example. "}, []string{"no registry"}},
		{"image: {repository: 'registry.acme.test/forcefence'}", nil, []string{"WARNING", "no registry"}},
		{"admissionPolicies: {enabled: false}", []string{"WARNING: without the admission policies"}, nil},
		{"controller: {env: [{name: FORCEFENCE_MODE, value: fence}]}", []string{", mode fence. It recovers a node whose " +
			"machine is Off, and powers off ", "FORCEFENCE_MODE in controller.env, which comes before config.mode " +
			"(shadow)"}, []string{"mode shadow"}},
	} {
		out, err := helm(t, "", "install", "mine", chart, "--dry-run=client", "--namespace", namespace, "--values",
			someImage, "--values", valuesFile(t, tc.values))
		kit.Must(t, err)
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		for _, want := range append(tc.want, "\n  helm test mine --namespace "+namespace+"\n") {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: got notes\n%s\nwant %q in them", tc.values, notes, want)
			}
		}
		for _, not := range append(tc.wantNot, "control-plane") { // a dry run sees no nodes
			if strings.Contains(notes, not) {
				t.Errorf("%s: got notes\n%s\nwant no %q in them", tc.values, notes, not)
			}
		}
	}
}

// TestHookValues: the hook's values reach its pods. A list of tolerations of one's own keeps the mark's, and an
// uninstall reaches all nodes at once, however updates come.
func TestHookValues(t *testing.T) {
	values := func(uninstall bool) *appsv1.DaemonSet {
		objects := byKey(t, charted(t, fmt.Sprintf(`hook:
  uninstall: %t
  affinity: {nodeAffinity: {}}
  tolerations: [{key: example.net/pool, operator: Exists}]
  priorityClassName: system-cluster-critical
  updateStrategy: {type: OnDelete}
`, uninstall)))
		return typed[appsv1.DaemonSet](t, objects["DaemonSet "+nodeNamespace+"/forcefence-node"])
	}
	spec := values(false).Spec
	pod := spec.Template.Spec
	var tolerated []string
	for _, t := range pod.Tolerations {
		tolerated = append(tolerated, t.Key)
	}
	if pod.Affinity == nil || pod.PriorityClassName != "system-cluster-critical" ||
		!slices.Equal(tolerated, []string{key, "example.net/pool"}) {
		t.Errorf("the hook's pods: got affinity %v, priority %s, tolerations of %v", pod.Affinity,
			pod.PriorityClassName, tolerated)
	}
	for uninstall, want := range map[bool]appsv1.DaemonSetUpdateStrategyType{
		false: appsv1.OnDeleteDaemonSetStrategyType, true: appsv1.RollingUpdateDaemonSetStrategyType,
	} {
		if got := values(uninstall).Spec.UpdateStrategy.Type; got != want {
			t.Errorf("uninstall %t: update strategy: got %s, want %s", uninstall, got, want)
		}
	}
	own := typed[appsv1.DaemonSet](t, byKey(t, charted(t, "{}"))["DaemonSet "+nodeNamespace+"/forcefence-node"])
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if got := own.Spec.Template.Spec.Tolerations; !slices.Equal(got, everything) {
		t.Errorf("by the chart's own values the hook tolerates %v, want everything", got)
	}
}

// TestMounts: each volume has a folder of its own, and each file that the configuration names is in one.
func TestMounts(t *testing.T) {
	const none = "no volume of the pod has "
	password := func(file string) string {
		return "{config: {providers: [{name: a, redfish: {username: a, passwordFile: '" + file + "'}}]}"
	}
	for _, tc := range []struct {
		name, values string
		want         []string // in the error; nil: accepted
	}{
		{"the Secret", password("/etc/forcefence-bmc/a") + "}", nil},
		{"a folder of the sources' sample", password("/etc/forcefence/vcenter-a/password") + "}",
			[]string{"config.providers[0].redfish.passwordFile: " + none + "/etc/forcefence/vcenter-a/password: " +
				"add to extraSecrets {name: vcenter-a, mountPath: /etc/forcefence/vcenter-a}, or write " +
				"/etc/forcefence-bmc/password, a key of the Secret forcefence-bmc\n"}},
		{"that line", password("/etc/forcefence/vcenter-a/password") + ", extraSecrets: [{name: vcenter-a, " +
			"mountPath: /etc/forcefence/vcenter-a}]}", nil},
		{"a password for each machine", password("/etc/machines/{name}") + "}",
			[]string{none + "/etc/machines/{name}: add to extraSecrets {name: machines, mountPath: " +
				"/etc/machines}\n"}},
		{"its Secret", password("/etc/machines/{name}") + ", extraSecrets: [{name: a, mountPath: " +
			"/etc/machines/}]}", nil},
		{"a Secret for each machine", password("/etc/machines/{name}/a") + ", extraSecrets: [{name: a, " +
			"mountPath: /etc/machines/n1}]}", nil},
		{"a folder that begins alike", password("/etc/forcefence-bmc-2/a") + "}", []string{none}},
		{"a volume of the user's", password("/mnt/a") + ", controller: {extraVolumes: [{name: a, csi: {driver: " +
			"b}}], extraVolumeMounts: [{name: a, mountPath: /mnt}]}}", nil},
		{"an injector's", password("/vault/secrets/a") + ", controller: {podAnnotations: " +
			"{vault.hashicorp.com/agent-inject: 'true'}}}", nil},
		{"a variable", "config: {providers: [{name: a, redfish: {username: a, passwordEnv: A}}]}", nil},
		{"the image's authorities", "config: {providers: [{name: a, redfish: {username: a, passwordEnv: A, caFile: " +
			"/etc/ssl/certs/ca-certificates.crt}}]}", nil},
		{"an agent's secret", "config: {providers: [{name: a, fenceagent: {agent: fence_apc, secrets: [{option: " +
			"password, file: /etc/a/b}]}}]}", []string{"config.providers[0].fenceagent.secrets[0].file: " +
			"" + none + "/etc/a/b: "}},
		{"the page's certificate", "config: {listen: {status: ':8443', statusCertFile: /etc/a/tls.crt, " +
			"statusKeyFile: /etc/forcefence-bmc/tls.key}}", []string{"config.listen.statusCertFile: " +
			"" + none + "/etc/a/tls.crt: "}},
		{"a recording", "config: {recording: {file: /rec/a}}", []string{"config.recording.file: " + none + "/rec/a: add " +
			"one to controller.extraVolumes, and to controller.extraVolumeMounts {name: NAME, mountPath: /rec}"}},
		{"folders that are taken", "extraSecrets: [{name: a, mountPath: /etc/forcefence}, {name: b, mountPath: " +
			"/etc/forcefence-bmc/}, {name: c, mountPath: /}, {name: d, mountPath: /etc/d}, {name: e, mountPath: " +
			"/etc/d}]",
			[]string{"extraSecrets[0].mountPath: /etc/forcefence is the folder of the configuration: use another " +
				"folder",
				"extraSecrets[1].mountPath: /etc/forcefence-bmc is the folder of the Secret forcefence-bmc: ",
				"extraSecrets[2].mountPath: / is the folder of the image: ",
				"extraSecrets[4].mountPath: /etc/d is the folder of extraSecrets[3]: "}},
		{"a volume over a Secret", "{extraSecrets: [{name: a, mountPath: /a}], controller: {extraVolumeMounts: " +
			"[{name: b, mountPath: /a/}]}}", []string{"extraSecrets[0].mountPath: /a is the folder of " +
			"controller.extraVolumeMounts[0]: "}},
		{"the agents' folder", "{config: {providers: [{name: a, fenceagent: {agent: fence_apc}}]}, extraSecrets: " +
			"[{name: a, mountPath: /tmp}]}", []string{"extraSecrets[0].mountPath: /tmp is the folder of the fence " +
			"agents: "}},
	} {
		_, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--values",
			valuesFile(t, tc.values))
		if tc.want == nil && err != nil || tc.want != nil && err == nil {
			t.Errorf("%s: got %v, want it refused: %t", tc.name, err, tc.want != nil)
		}
		for _, want := range tc.want {
			if err != nil && !strings.Contains(err.Error(), "\n"+want) && !strings.Contains(err.Error(), ": "+want) {
				t.Errorf("%s: got %v, want a line %q", tc.name, err, want)
			}
		}
	}
}

// TestMonitoring: objects of the Prometheus operator have the labels by which it finds them, in a namespace of the
// user's choice, and each alert can be left out or changed.
func TestMonitoring(t *testing.T) {
	monitor := "{enabled: true, namespace: monitoring, labels: {release: stack}, annotations: {a: b}, " +
		"interval: 1m, " +
		"scrapeTimeout: 20s}"
	objects := byKey(t, charted(t, `metrics:
  podMonitor: `+monitor+`
  serviceMonitor: `+monitor+`
  prometheusRule:
    enabled: true
    namespace: monitoring
    labels: {release: stack}
    annotations: {a: b}
    disabled: {ForcefenceHookMissing: true, ForcefenceStorm: false}
    customRules: {ForcefenceDrillFailing: {severity: info, for: 1h}, ForcefenceStorm: {severity: warning}}
    additionalRuleLabels: {team: platform}
  dashboard: {enabled: true, namespace: monitoring}
`))
	for key, endpoints := range map[string]string{
		"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints", "PrometheusRule": "",
	} {
		o := unstructured.Unstructured{Object: objects[key+" monitoring/forcefence"]}
		if o.GetLabels()["release"] != "stack" || o.GetLabels()["app.kubernetes.io/name"] != "forcefence" ||
			o.GetAnnotations()["a"] != "b" {
			t.Errorf("%s: got labels %v, annotations %v", key, o.GetLabels(), o.GetAnnotations())
		}
		if endpoints == "" {
			continue
		}
		spec := o.Object["spec"].(map[string]any)
		want := map[string]any{"port": "metrics", "interval": "1m", "scrapeTimeout": "20s"}
		if diff := cmp.Diff([]any{want}, spec[endpoints]); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", key, diff)
		}
		if diff := cmp.Diff(map[string]any{"matchNames": []any{namespace}}, spec["namespaceSelector"]); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", key, diff)
		}
	}
	if objects["ConfigMap monitoring/forcefence-dashboard"] == nil {
		t.Error("the dashboard is in another namespace")
	}
	type alerts struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	rules := func(rule map[string]any) (out alerts) {
		text, err := yaml.Marshal(rule["spec"])
		kit.Must(t, err)
		kit.Must(t, yaml.Unmarshal(text, &out))
		return out
	}
	own := byKey(t, charted(t, features["monitoring"]))
	want := rules(own["PrometheusRule "+namespace+"/forcefence"])
	text, err := os.ReadFile("../../deploy/alerts/forcefence.rules.yaml")
	kit.Must(t, err)
	var shipped alerts
	kit.Must(t, yaml.Unmarshal(text, &shipped))
	if diff := cmp.Diff(shipped, want); diff != "" {
		t.Errorf("the chart's alerts (-deploy/alerts +chart):\n%s", diff)
	}
	dashboard := typed[corev1.ConfigMap](t, own["ConfigMap "+namespace+"/forcefence-dashboard"])
	text, err = os.ReadFile("../../deploy/dashboards/forcefence.json")
	kit.Must(t, err)
	if dashboard.Labels["grafana_dashboard"] != "1" || dashboard.Data["forcefence.json"] != string(text) {
		t.Errorf("the dashboard: got labels %v and %d bytes, want Grafana's label and the %d of deploy/dashboards",
			dashboard.Labels, len(dashboard.Data["forcefence.json"]), len(text))
	}
	got := rules(objects["PrometheusRule monitoring/forcefence"])
	kept := want.Groups[0].Rules[:0:0]
	for _, r := range want.Groups[0].Rules {
		r.Labels = map[string]string{"team": "platform", "severity": r.Labels["severity"]}
		switch r.Alert {
		case "ForcefenceHookMissing":
			continue
		case "ForcefenceDrillFailing":
			r.For, r.Labels["severity"] = "1h", "info"
		case "ForcefenceStorm":
			r.Labels["severity"] = "warning"
		}
		kept = append(kept, r)
	}
	want.Groups[0].Rules = kept
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// TestGlobal: a chart that has this one as a dependency may name the registry and its Secrets for both.
func TestGlobal(t *testing.T) {
	images := func(values string) []string {
		out, err := helm(t, "", "template", "forcefence", chart, "--values", valuesFile(t, values))
		kit.Must(t, err)
		found := regexp.MustCompile(`(?m)^ +image: (.*)$`).FindAllStringSubmatch(out, -1)
		var names []string
		for _, f := range found {
			names = append(names, f[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	for _, tc := range []struct{ values, want string }{
		{"{global: {imageRegistry: 'mirror:5000/x'}, image: {repository: forcefence, tag: v1}}",
			"[mirror:5000/x/forcefence:v1]"},
		{"{global: {imageRegistry: mirror/}, image: {repository: team/forcefence, tag: v1}}",
			"[mirror/team/forcefence:v1]"},
		{"{global: {imageRegistry: mirror}, image: {repository: 'registry.example.net/forcefence', tag: v1}}",
			"[registry.example.net/forcefence:v1]"},
		{"{global: {imageRegistry: mirror}, image: {repository: forcefence, tag: v1}, config: {providers: [{name: " +
			"a, fenceagent: {agent: fence_apc}}]}}", "[mirror/forcefence:v1 mirror/forcefence:v1-agents]"},
	} {
		if got := fmt.Sprint(images(tc.values)); got != tc.want {
			t.Errorf("%s: got images %s, want %s", tc.values, got, tc.want)
		}
	}
	out := charted(t, "{global: {imagePullSecrets: [{name: a}, b], other: x}, imagePullSecrets: [{name: c}]}")
	wantCounts(t, out, map[string]int{"imagePullSecrets:\n      - name: c\n      - name: a\n      - name: b\n": 2})
}
