package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

// check-config warns of BMCs whose account may not power off what a rule with mode fence powers off.
func TestWarningOfReadOnly(t *testing.T) {
	t.Setenv("PW", "12345678")
	const (
		devices = "providers:\n- {name: other, confirm: {}}\n- name: racks\n  ipmi:\n    username: u\n" +
			"    passwordEnv: PW\n    privilege: "
		machine = "machine: {from: list, list: [{node: n1, id: 10.0.0.1}]}"
		own     = "nodes: [{name: all, provider: racks, " + machine + "}]\n"
		level   = "nodes: [{name: all, levels: [{devices: [{provider: racks, " + machine + "}]}]}]\n"
		other   = "nodes: [{name: all, levels: [{devices: [{provider: other, " + machine + "}]}]}]\n"
	)
	for _, tc := range []struct {
		name, privilege, rest string
		want                  bool
	}{
		{"fence", "user", own + "mode: fence\n", true},
		{"the rule's mode", "user", strings.Replace(own, "name: all", "name: all, mode: fence", 1), true},
		{"some nodes", "user", own + "modes: [{selector: a=b, mode: fence}]\n", true},
		{"a level", "user", level + "mode: fence\n", true},
		{"another provider's level", "user", other + "mode: fence\n", false},
		{"the rule's mode is another", "user", strings.Replace(own, "name: all", "name: all, mode: observe", 1) +
			"mode: fence\n", false},
		{"operator", "operator", own + "mode: fence\n", false},
		{"observe", "user", own, false},
		{"shadow", "user", own + "mode: shadow\n", false},
	} {
		cfg, err := config.Parse("f", []byte(devices+tc.privilege+"\n"+tc.rest), all.Types())
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return w.Path == "providers[1].ipmi.privilege" && w.Line == 7 && strings.Contains(w.Problem, "use operator")
		})
		if got != tc.want {
			t.Errorf("%s: warned %v, want %v: %v", tc.name, got, tc.want, cfg.Warnings())
		}
	}
}

// check-config shows each setting that takes a check away, with its line and its risk.
func TestCautions(t *testing.T) {
	t.Setenv("PW", "12345678")
	const file = "providers:\n- name: racks\n  redfish:\n    username: u\n    passwordEnv: PW\n    %s\nnodes: " +
		"[{name: n, provider: racks, machine: {from: list, list: [{node: n1, id: 'https://bmc'}]}}]\n"
	for setting, risk := range map[string]string{
		"ignoreUUID: true": "which machine", "ignoreChassisPower: true": "counts as off",
		"ignoreStates: [UpdateStatus]": "counts as off",
		"allowOldTLS: true":            "TLS 1.0", "ignoreUUID: false": "",
		"insecureSkipVerify: true": "any host that answers", "allowHTTP: true": "reads the password",
	} {
		cfg, err := config.Parse("f", fmt.Appendf(nil, file, setting), all.Types())
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(setting, ":")
		got := slices.DeleteFunc(cfg.Warnings(), func(w config.Error) bool {
			return !strings.HasPrefix(w.Path, "providers[0].redfish.") // such as that a BMC shares its machine's supply
		})
		switch {
		case risk == "" && len(got) > 0:
			t.Errorf("%s: got %v", setting, got)
		case risk != "" &&
			(len(got) != 1 || got[0].Path != "providers[0].redfish."+path || got[0].Line != 6 ||
				!strings.Contains(got[0].Problem, risk)):
			t.Errorf("%s: got %v", setting, got)
		}
	}
}

// Each setting that its own comment calls bad is one of which check-config warns.
func TestBadSettingsWarn(t *testing.T) {
	t.Setenv("PW", "12345678")
	for provider, path := range map[string]string{
		"redfish: {username: u, passwordEnv: PW, insecureSkipVerify: true}":                          "insecureSkipVerify",
		"vsphere: {address: 'https://v', username: u, passwordEnv: PW, insecureSkipVerify: true}":    "insecureSkipVerify",
		"libvirt: {uri: 'qemu+tls://h/system', certFile: /c, keyFile: /k, insecureSkipVerify: true}": "insecureSkipVerify",
		"libvirt: {uri: 'qemu+tcp://h/system', allowTCP: true}":                                      "allowTCP",
		"pdu: {mib: apc-rpdu2, version: v2c, passwordEnv: PW}":                                       "version",
		"fenceagent: {agent: fence_none, dir: /none, allowGuessedOff: true}":                         "allowGuessedOff",
		"fenceagent: {agent: fence_none, dir: /none, allowGuessedOff: true, allowInsecure: true}":    "allowInsecure",
	} {
		cfg, err := config.Parse("f", []byte("providers:\n- name: p\n  "+provider+"\n"), all.Types(),
			config.SkipFiles())
		if err != nil {
			t.Errorf("%s: %v", provider, err)
			continue
		}
		typ, _, _ := strings.Cut(provider, ":")
		want := "providers[0]." + typ + "." + path
		if !slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool { return w.Path == want && w.Line == 3 }) {
			t.Errorf("%s: got %v, want a warning at %s", provider, cfg.Warnings(), want)
		}
	}
}

// check-config warns of what takes a guard away, at the key and in one style: a sentence without its last full stop.
func TestGuardsOff(t *testing.T) {
	for _, tc := range []struct{ text, path, want string }{
		{"leaderElection: {enabled: false}", "leaderElection.enabled", "run exactly one"},
		{"leaderElection: {enabled: true}", "leaderElection.enabled", ""},
		{"stormGuard: {maxPowerOffs: 100%}", "stormGuard.maxPowerOffs", "is no limit"},
		{"stormGuard: {maxPowerOffs: 99%}", "stormGuard.maxPowerOffs", ""},
		{"stormGuard: {minHealthy: 0}", "stormGuard.minHealthy", "is no limit"},
		{"stormGuard: {minHealthy: 0%}", "stormGuard.minHealthy", "is no limit"},
		{"stormGuard: {minHealthy: 1}", "stormGuard.minHealthy", ""},
		{"stormGuard: {domains: [{label: a, minHealthy: 0}]}", "stormGuard.domains[0].minHealthy", "is no limit"},
		{"stormGuard: {domains: [{label: a}]}", "stormGuard.domains[0].minHealthy", ""},
		{"mode: observe", "stormGuard.minHealthy", ""},
		{"mode: observe", "leaderElection.enabled", ""},
		{"evictFirst: ''", "evictFirst", ""},
		{"excludeSelector: ''", "excludeSelector", ""},
		{"excludeSelector: 'a,!a'", "excludeSelector", "nothing can match"},
	} {
		got := ""
		for _, w := range parse(t, tc.text+"\n").Warnings() {
			if w.Path == tc.path {
				got += w.Problem
			}
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: warned %q of %s, want %q", tc.text, got, tc.path, tc.want)
		}
	}
}

// Faults and warnings end as the others do: without a full stop.
func TestEndOfMessages(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	kit.Must(t, err)
	warned := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		cfg, err := config.Parse(file, text, configtest.Types(), config.SkipFiles(), config.Strict())
		var faults config.Errors
		if errors.As(err, &faults); cfg != nil {
			faults = cfg.Warnings()
			warned += len(faults)
		}
		for _, f := range faults {
			if strings.HasSuffix(f.Problem, ".") && !strings.HasSuffix(f.Problem, "...") {
				t.Errorf("%s: ends with a full stop", f)
			}
		}
	}
	if warned == 0 {
		t.Error("no file of testdata has a warning")
	}
}

// Rules by which no node can get a machine are a fault of check-config. A controller goes on with the other rules.
func TestStrict(t *testing.T) {
	const head = "providers:\n- {name: cloud, ec2: {regions: [eu-west-1]}}\n- {name: vms, confirm: {}}\nnodes:\n"
	rule := func(name, selector, provider, machine string) string {
		return fmt.Sprintf("- {name: %s, selector: %q, provider: %s, machine: {%s}}\n", name, selector, provider, machine)
	}
	const byName = "from: name"
	for _, tc := range []struct{ name, rules, want string }{
		{"equal selectors", rule("a", "x=1", "vms", byName) + rule("b", "x in (1)", "vms", byName),
			"f:6: nodes[1].selector: selects the same nodes as nodes[0] (line 5), "},
		{"all nodes twice", rule("a", "", "vms", byName) + rule("b", "", "vms", byName), "f:6: nodes[1].selector: "},
		{"other selectors", rule("a", "x=1", "vms", byName) + rule("b", "x=2", "vms", byName), ""},
		{"a part of the nodes", rule("a", "", "vms", byName) + rule("b", "x=2", "vms", byName), ""},
		{"a name for ec2", rule("a", "", "cloud", byName), "f:5: nodes[0].machine.from: gives no node a device, " +
			"because the ID is not an EC2 instance: "},
		{"a zone and a label for ec2", rule("a", "", "cloud", "from: template, template: 'aws:///eu-west-1a/"+
			"{label:instance}'"), ""},
	} {
		text := []byte(head + tc.rules)
		if _, err := config.Parse("f", text, all.Types()); err != nil {
			t.Errorf("%s: a controller gets %v", tc.name, err)
		}
		_, err := config.Parse("f", text, all.Types(), config.Strict())
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A provider without its address is told which: that of a cloud's API is the same for all, and its page has it.
func TestMissingAddress(t *testing.T) {
	pages, err := filepath.Glob("../../../providers/rest/presets/*.md")
	kit.Must(t, err)
	public := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		kit.Must(t, err)
		m := regexp.MustCompile(`(?m)^    address: (https://\S+)$`).FindSubmatch(text)
		if m == nil {
			continue
		}
		want := string(m[1])
		if strings.Contains(want, "example.net") {
			want = "https://host[:port]"
		} else {
			public++
		}
		typ := strings.TrimSuffix(filepath.Base(page), ".md")
		_, err = config.Parse("f", []byte("providers: [{name: a, "+typ+": {passwordFile: /a}}]\n"), all.Types(),
			config.SkipFiles())
		if line := "providers[0]." + typ + ".address: missing: write " + want + "\n"; !strings.Contains(
			fmt.Sprintln(err), line) {
			t.Errorf("%s: got %v, want %s", typ, err, line)
		}
	}
	if public < 5 {
		t.Errorf("got %d public addresses, want at least 5", public)
	}
}
