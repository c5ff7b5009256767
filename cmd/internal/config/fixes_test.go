package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
)

// TestFixes: a message about a common mistake names its cause and the fix.
func TestFixes(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no space after -, and nothing follows", "providers:\n-name: racks\n",
			"f:2: a space is missing after -: write - name: racks"},
		{"no-break spaces before a key", "listen:\n\u00a0\u00a0metrics: x\n", "f:2: " + aSpecialSpace},
		{"bare template that is YAML", "mode: {{ .Values.mode }}\n", "f:1: mode: " + notExpanded},
		{"bare template instead of a mapping", "listen: {{ .Values.listen }}\n", "f:1: listen: " + notExpanded},
		{"shell variable", "mode: ${MODE}\n",
			"f:1: mode: $(NAME) and ${NAME} are not expanded here: write the value itself"},
		{"values of the chart", "image: {repository: x}\nconfig:\n  mode: observe\n",
			"f:2: these are the chart's values, and the controller's configuration is their part config. Check that " +
				"part: yq .config f | forcefence check-config -"},
		{"the nearest key of two", "mode: observe\nnode: []\n", `f:2: node: unknown key: did you mean "nodes"?`},
		{"a provider among the rules", "providers: []\nnodes:\n- name: a\n  plain: {}\n",
			"f:4: nodes[0]: plain is a type of provider: move this item to providers, and let the rule name it " +
				"(provider: " +
				"racks)"},
		{"text instead of a mapping", "listen: 127.0.0.1\n",
			"f:1: listen: want a mapping ({metrics: ..., status: ...}), have text"},
		{"mapping instead of a selector", "evictFirst: {rack: a}\n",
			`f:1: evictFirst: want a label selector, which is text such as "rack=a" or "rack in (a, b)", have a ` +
				`mapping`},
		{"a mode of another word", "mode: off\n",
			`f:1: mode: must be observe, onRequest, fence, shadow or disabled: did you mean "disabled"?`},
		{"half a node", "stormGuard: {maxPowerOffs: 0.5}\n",
			"f:1: stormGuard.maxPowerOffs: must be a whole number of nodes (3), or a share of them of at most 100% " +
				"(50%), or both (1+5%)"},
		{"more than all nodes", "stormGuard: {minHealthy: 150%}\n",
			"f:1: stormGuard.minHealthy: must be a whole number of nodes (3), or a share of them of at most 100% " +
				"(50%)"},
		{"a sum of more than all nodes", "stormGuard: {maxPowerOffs: 1+150%}\n",
			"f:1: stormGuard.maxPowerOffs: must be a whole number, a plus, and a share of at most 100%: 1+5%"},
		{"list instead of a selector", "evictFirst: [rack=a]\n",
			`f:1: evictFirst: want a label selector, which is text such as "rack=a" or "rack in (a, b)", have a list`},
		{"half a selector", "evictFirst: rack in (a\n",
			`f:1: evictFirst: not a label selector, such as "rack=a" or "rack in (a, b)": the text ends, expected: ` +
				`',' or ')'`},
		{"a bool in quotes", "leaderElection: {enabled: \"false\"}\n",
			"f:1: leaderElection.enabled: want true or false, have text: write it without quotes"},
		{"a bool of YAML 1.1", "leaderElection: {enabled: off}\n",
			"f:1: leaderElection.enabled: want true or false, have text: write false"},
		{"a number in quotes", "maxPowerOnsPerDay: \"3\"\n",
			"f:1: maxPowerOnsPerDay: want a whole number, have text: write it without quotes"},
		{"TOML", "mode = 'observe'\n", "f:1: want a mapping (mode: observe), have text. Write every setting as a " +
			"key, a colon and its value: config.example.yaml shows how"},
		{"a template that is not closed", "providers: [{name: a, plain: {}}]\nnodes:\n- name: n\n  provider: a\n" +
			"  machine: {from: template, template: 'https://{name-bmc'}\n", "f:5: nodes[0].machine.template: has " +
			"a brace that belongs to no placeholder: use {name}, {label:KEY}, {annotation:KEY} or {uuid}"},
		{"a label of no kind", "providers: [{name: a, plain: {}}]\nnodes:\n- name: n\n  provider: a\n" +
			"  machine: {from: template, template: '{my-rack}'}\n", "f:5: nodes[0].machine.template: {my-rack} is " +
			"no placeholder: use {name}, {label:KEY}, {annotation:KEY} or {uuid}"},
		{"a certificate instead of its file",
			"providers: [{name: a, redfish: {username: u, passwordEnv: P, caFile: '-----BEGIN CERTIFICATE-----'}}]\n",
			"f:1: providers[0].redfish.caFile: is the content of a file: write it into a file, and the file's path " +
				"here"},
		{"curly quotes in a selector", "evictFirst: rack=“a”\n", `f:1: evictFirst: not a label selector, such as ` +
			`"rack=a" or "rack in (a, b)": remove the quotes that are no plain ones`},
		{"a colon in a selector", "evictFirst: 'rack: a'\n", `f:1: evictFirst: not a label selector, such as ` +
			`"rack=a" or "rack in (a, b)": write = between a label and its value, not a colon`},
		{"no label's key", "evictFirst: 'my rack=a'\n", `f:1: evictFirst: not a label selector, such as ` +
			`"rack=a" or "rack in (a, b)": found 'rack', expected: in, notin, =, ==, !=, gt, lt`},
		{"no label's value", "evictFirst: rack=-a\n", `f:1: evictFirst: not a label selector, such as ` +
			`"rack=a" or "rack in (a, b)": no label has "-a" as its key or value: use letters, digits, -, _ and .`},
		{"an escape of a control character", "evictFirst: \"rack\\a\"\n", "f:1: evictFirst: has a line break or a " +
			`control character (in "..." a \ begins an escape: use '...')`},
		{"a rule's key at the top", "nodes:\n- name: a\nlevels: []\n", "f:2: nodes[0].machine.from: missing: one of " +
			"systemUUID, providerID, annotation, name, template, list\nf:2: nodes[0].provider: missing: it names one of " +
			"providers\nf:3: levels: belongs to an item of nodes: indent it, as the name there"},
		{"a type as an item of its own", "providers:\n- name: a\n- plain: {}\n", "f:2: providers[0]: no type: add one " +
			"of agents, guests, plain, redfish\nf:3: providers[1].name: missing. If this type belongs to the item above, write it " +
			"without the -, at the column of its name"},
		{"two types", "providers:\n- name: a\n  redfish:\n  plain: {}\n", "f:4: providers[0].plain: a provider has " +
			"one type, and line 3 names one already. Make it an item of its own, with a name of its own"},
		{"a type at the top", "providers:\n- name: a\nplain: {}\n", "f:3: plain: this is a type of provider: indent " +
			"it, so that it belongs to an item of providers, as the name above it does"},
		{"a provider's key in its type", "providers:\n- name: a\n  plain:\n    timeout: 3s\n",
			"f:4: providers[0].plain.timeout: belongs to the provider and not to its type: indent it as name"},
		{"a merge", "providers:\n- name: a\n  redfish:\n    <<: {username: u}\n    passwordEnv: P\n",
			"f:4: providers[0].redfish: merge keys (<<) are not read here: write the values out"},
		{"unknown keys", "listen:\n  q: 1\n  zzz: 2\n", "f:2: listen.q: unknown key: known are metrics, status, " +
			"statusCertFile, statusKeyFile, statusCluster\nf:3: listen.zzz: unknown key: line 2 lists those that are " +
			"known"},
		{"a duration in days", "powerOffAfter: 7d\n", `f:1: powerOffAfter: a duration has no days: write "168h"`},
		{"a duration in weeks", "powerOffAfter: 1w\n", `f:1: powerOffAfter: a duration has no days: write "168h"`},
		{"a provider's duration in days", "providers: [{name: a, confirm: {}, timeout: 1 day}]\n",
			"f:1: providers[0].confirm: unknown provider type: known are agents, guests, plain, redfish\n" +
				`f:1: providers[0].timeout: a duration has no days: write hours, such as "168h" for a week`},
		{"days and hours", "powerOffAfter: 1d12h\n",
			`f:1: powerOffAfter: a duration has no days: write hours, such as "168h" for a week`},
		{"a file in UTF-16", "\xff\xfem\x00o\x00d\x00e\x00", "f:1: " + inUTF16},
		{"a file in UTF-16 without a mark", "\x00m\x00o\x00d\x00e", "f:1: " + inUTF16},
		{"a relative path of a secret", "providers: [{name: a, redfish: {username: u, passwordFile: bmc/password}}]\n",
			"f:1: providers[0].redfish.passwordFile: must be an absolute path, such as /etc/forcefence-bmc/password. " +
				"A password itself does not belong in this setting"},
		{"a relative path", "listen: {statusCertFile: tls.crt, statusKeyFile: ./tls.key}\n",
			"f:1: listen.statusCertFile: must be an absolute path\nf:1: listen.statusKeyFile: must be an absolute path"},
		{"a relative path of other files", "recording: {file: a}\nsigning: {keyFile: b}\nremediation: {kubeconfig: c}\n",
			"f:1: recording.file: must be an absolute path\nf:2: signing.keyFile: must be an absolute path\n" +
				"f:3: remediation.kubeconfig: must be an absolute path"},
		{"a setting that depends on a faulty one",
			"providers: [{name: a, redfish: {username: u, passwordFile: [x]}}]\n",
			"f:1: providers[0].redfish.passwordFile: want text, have a list"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tc.text), configtest.Types())
			if got := fmt.Sprint(err); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestCheckPart: the command that checks a part names the user's own file, and keeps the flag.
func TestCheckPart(t *testing.T) {
	for file, want := range map[string]string{
		"my/values.yaml": "yq .config my/values.yaml | forcefence check-config --skip-files -",
		"my values.yaml": "yq .config 'my values.yaml' | forcefence check-config --skip-files -",
		"it's":           `yq .config 'it'\''s' | forcefence check-config --skip-files -`,
		standardInput:    "yq .config FILE | forcefence check-config --skip-files -",
	} {
		_, err := Parse(file, []byte("config: {}\n"), configtest.Types(), SkipFiles())
		if got := fmt.Sprint(err); !strings.HasSuffix(got, " Check that part: "+want) {
			t.Errorf("%q: got\n%s\nwant it to end with\n%s", file, got, want)
		}
	}
}

// What a directory and a file without permission need is said, too.
func TestLoadExplains(t *testing.T) {
	folder := t.TempDir()
	want := "reading configuration: " + folder + " is a folder: name the file in it, such as " + folder + "/config.yaml"
	if _, err := Load(folder, nil); err == nil || err.Error() != want {
		t.Errorf("a folder: got %v, want %s", err, want)
	}
	if _, err := Load("/dev/zero", nil); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("an endless file: got %v", err)
	}
}

// A message lists the first of very many faults, and counts the others.
func TestManyFaults(t *testing.T) {
	_, err := Parse("f", []byte(strings.Repeat("x: 1\n", maxShown+21)), configtest.Types())
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != maxShown+1 || !strings.HasPrefix(lines[0], "f:1: x: unknown key") ||
		lines[maxShown] != "and 21 more" {
		t.Errorf("got %d lines, the first %q, the last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
