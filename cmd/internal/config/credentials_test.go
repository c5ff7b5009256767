package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// secretsIn writes files, and returns their folder.
func secretsIn(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("secret "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The API token of the controller and the key that signs its records are no passwords: a device that the file names
// would get them.
func TestOwnSecrets(t *testing.T) {
	dir := secretsIn(t, "key.pem", "password")
	if err := os.Symlink("key.pem", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	const refused = "f:2: providers[0].redfish.passwordFile: is a secret of forcefence itself"
	for file, says := range map[string]string{
		"DIR/password": "", "DIR/key.pem": refused, "DIR/./key.pem": refused, "DIR/link": refused,
		"DIR/{name}": "can turn this into the file on line 8", // n1's own file, and one of a Node key.pem
		"/var/run/secrets/kubernetes.io/serviceaccount/token":                refused,
		"/run/secrets/kubernetes.io/serviceaccount/..data/token":             refused,
		"/etc/x/../../var/run/secrets/kubernetes.io/serviceaccount/token":    refused,
		"var/run/secrets/kubernetes.io/serviceaccount/token":                 "must be an absolute path",
		"/var/run/secrets/kubernetes.io/serviceaccount/{name}":               refused,
		"/var/run/secrets/kubernetes.io/{name}/token":                        refused,
		"/etc/forcefence-signing/key.pem":                                    refused,
		"/etc/forcefence-signing/..data/key.pem":                             refused,
		"/proc/self/environ":                                                 refused,
		"/proc/self/root/var/run/secrets/kubernetes.io/serviceaccount/token": refused,
		"/etc/forcefence-bmc/password":                                       "",
		"/var/run/secrets/eks.amazonaws.com/token":                           "",
	} {
		text := strings.ReplaceAll("providers:\n- {name: a, redfish: {username: fence, passwordFile: '"+file+"'}}\n"+
			"nodes:\n- name: n\n  provider: a\n  machine: {from: list, list: [{node: n1, id: 'https://10.0.0.1'}]}\n"+
			"mode: observe\nsigning: {keyFile: DIR/key.pem}\n", "DIR", dir)
		_, err := config.Parse("f", []byte(text), all.Types(), config.SkipFiles())
		got := fmt.Sprint(err)
		if (err != nil) != (says != "") || says != "" && !strings.Contains(got, says) {
			t.Errorf("%s: got %v, want %q", file, err, says)
		}
	}
}

// A kubeconfig may name the file of a token, and a server that gets it. So it is none of the ConfigMap's entries.
func TestKubeconfigInConfigMap(t *testing.T) {
	for file, says := range map[string]string{
		"/etc/forcefence/k": "is in the ConfigMap", "/etc/forcefence-bmc/../forcefence/..data/k": "is in the ConfigMap",
		"/etc/forcefence-bmc/k": "", "/etc/k/c": "",
	} {
		for _, text := range []string{
			"remediation: {namespaces: [a], kubeconfig: '" + file + "'}\n",
			"providers: [{name: a, metal3: {namespaces: [a], kubeconfig: '" + file + "'}}]\n",
		} {
			_, err := config.Parse("f", []byte(text), all.Types(), config.SkipFiles())
			if got := fmt.Sprint(err); strings.Contains(got, "is in the ConfigMap") != (says != "") {
				t.Errorf("%s: got %v, want %q", text, err, says)
			}
		}
	}
}

// Who chooses the device does not choose whose password it gets: both come from one name, by a list or by a template
// over it.
func TestOwnCredentials(t *testing.T) {
	dir := secretsIn(t, "n1")
	const own = "redfish: {username: fence, passwordFile: DIR/{name}}"
	for _, tc := range []struct{ name, settings, rule, says string }{
		{"a list", own, "machine: {from: list, list: [{node: n1, id: 'https://10.0.0.1'}]}", ""},
		{"the name", own, "machine: {from: template, template: 'https://{name}.bmc.example.net'}", ""},
		{"the name, and labels that no kubelet writes", own,
			"selector: a.node-restriction.kubernetes.io/rack=1\n  machine: {from: template, template: 'https://" +
				"{name}.bmc.example.net'}", ""},
		{"a label", own, "machine: {from: template, template: 'https://{label:bmc}.bmc.example.net'}",
			"f:5: nodes[0].machine: a kubelet could choose this device"},
		{"a label beside the name", own, "machine: {from: template, template: 'https://{name}-{label:a}" +
			".bmc.example.net'}", "a kubelet could choose"},
		{"an annotation", own, "machine: {from: annotation, annotation: bmc, allow: [10.0.0.0/8]}",
			"its node's password (line 2)"},
		{"a providerID", own, "machine: {from: providerID, allow: [10.0.0.0/8]}", "a kubelet could choose"},
		{"a label chooses the rule", own, "selector: rack=1\n  machine: {from: template, template: 'https://{name}" +
			".bmc.example.net'}", "a kubelet could choose"},
		{"a user of its own", "redfish: {username: '{name}', passwordFile: DIR/n1}",
			"machine: {from: annotation, annotation: bmc, allow: [10.0.0.0/8]}", "a kubelet could choose"},
		{"one for all", "redfish: {username: fence, passwordFile: DIR/n1}",
			"machine: {from: annotation, annotation: bmc, allow: [10.0.0.0/8]}", ""},
		{"ipmi", "ipmi: {username: fence, passwordFile: DIR/{name}}",
			"machine: {from: annotation, annotation: bmc, allow: [10.0.0.0/8]}", "a kubelet could choose"},
		{"a device in front of all", "redfish: {address: 'https://10.0.0.1', username: fence, passwordFile: DIR/" +
			"{name}}", "machine: {from: systemUUID}", "f:2: providers[0].redfish.passwordFile: has {name}, " +
			"but one device answers for all"},
		{"a vCenter", "vsphere: {address: 'https://10.0.0.1', username: '{name}', passwordFile: DIR/n1}",
			"machine: {from: systemUUID}", "f:2: providers[0].vsphere.username: has {name}"},
		{"a label in the file's name", "redfish: {username: fence, passwordFile: 'DIR/{label:rack}'}",
			"machine: {from: list, list: [{node: n1, id: 'https://10.0.0.1'}]}",
			"f:2: providers[0].redfish.passwordFile: "},
		{"no folder", "redfish: {username: fence, passwordFile: 'DIR/none/{name}'}",
			"machine: {from: list, list: [{node: n1, id: 'https://10.0.0.1'}]}", "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "providers:\n- {name: p, " + strings.ReplaceAll(tc.settings, "DIR", dir) +
				"}\nnodes:\n- name: n\n  " + tc.rule + "\n  provider: p\n"
			text = strings.ReplaceAll(text, "passwordFile: "+dir+"/{name}", "passwordFile: '"+dir+"/{name}'")
			_, err := config.Parse("f", []byte(text), all.Types())
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want an error that says %q\n%s", err, tc.says, text)
			}
		})
	}
}

// A host has no Node, and so no credentials of its own.
func TestHostsHaveNoOwnCredentials(t *testing.T) {
	dir := secretsIn(t, "n1")
	text := fmt.Sprintf("providers:\n- {name: p, redfish: {username: u, passwordFile: '%s/{name}'}}\n- {name: "+
		"g, libvirt: {uri: 'qemu+tls://hv1/system'}}\n"+
		"nodes:\n- name: n\n  provider: g\n  machine: {from: list, list: [{node: n1, id: n1}]}\n  within:\n  - "+
		"{hypervisor: 'qemu+tls://hv1/system', provider: p, id: 'https://10.0.0.1'}\n", dir)
	_, err := config.Parse("f", []byte(text), all.Types())
	if err == nil || !strings.Contains(err.Error(), "f:9: nodes[0].within[0].provider: uses credentials "+
		"by the Node's name (line 2)") {
		t.Errorf("got %v", err)
	}
}

// No Node can be called so that another's secret would be sent to its device.
func TestSecretsApart(t *testing.T) {
	dir := secretsIn(t, "n1", "strips", "sub/strips", "sub/n1", "upper/N1", "n1_strips", "strips.user")
	for _, tc := range []struct {
		name, own, other string
		refused          bool
	}{
		{"one in the same folder", "{name}", "strips", true},
		{"one in another folder", "sub/{name}", "strips", false},
		{"one in the same folder, written otherwise", "{name}", "sub/../strips", true},
		{"a name that no Node has", "upper/{name}", "upper/N1", false},
		{"a folder of each", "{name}/strips", "sub/strips", true},
		{"with an ending", "{name}.user", "strips", false},
		{"with its ending", "{name}.user", "strips.user", true},
		{"the same of two", "{name}", "{name}", false},
		{"a longer ending", "{name}", "{name}.user", true},
		{"a longer beginning", "{name}", "ipmi-{name}", true},
		{"other endings", "{name}.redfish", "{name}.ipmi", false},
		{"another depth", "{name}", "{name}/strips", false},
		{"crosswise", "{name}/strips", "sub/{name}", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, turned := range []bool{false, true} {
				one, two := tc.own, tc.other
				if turned {
					one, two = two, one
				}
				text := fmt.Sprintf("providers:\n- {name: a, redfish: {username: u, passwordFile: '%[1]s/%[2]s'}}\n- "+
					"{name: b, ipmi: {username: u, passwordFile: '%[1]s/%[3]s'}}\n", dir, one, two)
				_, err := config.Parse("f", []byte(text), all.Types(), config.SkipFiles())
				if got := err != nil &&
					strings.Contains(err.Error(),
						"a Node's name can turn this into the file on line "); got != tc.refused ||
					err != nil && !got {
					t.Errorf("%s and %s: got %v, want it refused %t", one, two, err, tc.refused)
				}
			}
		})
	}
	// What is no secret may be beside them; a key is one.
	for key, refused := range map[string]bool{"caFile": false, "certFile": false, "keyFile": true} {
		text := fmt.Sprintf("providers:\n- {name: a, redfish: {username: u, passwordFile: '%[1]s/{name}'}}\n- "+
			"{name: b, libvirt: {uri: 'qemu+tls://hv/system', %s: '%[1]s/x.pem'}}\n", dir, key)
		_, err := config.Parse("f", []byte(text), all.Types(), config.SkipFiles())
		if got := err != nil && strings.Contains(err.Error(), "f:2: providers[0].redfish.passwordFile: a Node's name "+
			"can turn this into the file on line 3"); got != refused {
			t.Errorf("%s: got %v, want it refused %t", key, err, refused)
		}
	}
}

// A machine without its file causes a warning with its line. Other machines can be asked, and no content is shown.
func TestListedFiles(t *testing.T) {
	dir := secretsIn(t, "n1", "n3", "all/password")
	if err := os.WriteFile(filepath.Join(dir, "n3"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("providers:\n- {name: a, redfish: {username: u, passwordFile: '%s/{name}'}}\n- {name: "+
		"b, redfish: {username: u, passwordFile: '%[1]s/all/password'}}\n", dir) +
		"nodes:\n- name: n\n  provider: a\n  machine:\n    from: list\n    list:\n    - {node: n1, id: " +
		"'https://10.0.0.1'}\n    - {node: n2, id: 'https://10.0.0.2'}\n    - {node: n3, id: 'https://10.0.0.3'}\n" +
		"- name: o\n  provider: b\n  machine: {from: list, list: [{node: n4, id: 'https://10.0.0.4'}]}\n"
	for _, skip := range []bool{false, true} {
		var opts []config.Option
		if skip {
			opts = append(opts, config.SkipFiles())
		}
		cfg, err := config.Parse("f", []byte(text), all.Types(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range cfg.ListedFiles() {
			got = append(got,
				fmt.Sprintf("%s %s %s %t", f.Provider, f.Node, strings.TrimPrefix(f.File, dir), f.Err == nil))
		}
		if want := "[a n1 /n1 true a n2 /n2 false a n3 /n3 false]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		got = nil
		for _, w := range cfg.Warnings() {
			if strings.Contains(w.Problem, "secret n") {
				t.Errorf("the warning shows content: %s", w)
			}
			if strings.Contains(w.Path, ".list") {
				got = append(got, w.Error())
			}
		}
		want := []string{
			"f:11: nodes[0].machine.list[1]: warning: this machine cannot be asked, but the others can: reading " +
				"secret of node n2: " + dir + "/n2: no such file or directory",
			"f:12: nodes[0].machine.list[2]: warning: this machine cannot be asked, but the others can: reading " +
				"secret: " + dir + "/n3 is empty",
		}
		if skip {
			want = want[1:]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got warnings %q, want %q", got, want)
		}
	}
}
