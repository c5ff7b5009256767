package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
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
