package config_test

import (
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// Time serves only policies that accept it, and these need a device that reports it.
func TestByTime(t *testing.T) {
	const (
		disks = `
providers: [{name: disks, watchdog: {devices: [/dev/a]}}, {name: people, confirm: {}}]
nodes:
- {name: a, selector: rack=a, provider: disks, machine: {from: list, list: [{node: n1, id: n1}]}}
- {name: b, selector: rack=b, provider: people, machine: {from: template, template: '{{ .Name }}'}}
`
		level = `
providers: [{name: disks, watchdog: {devices: [/dev/a]}}, {name: people, confirm: {}}]
nodes:
- name: a
  provider: people
  machine: {from: template, template: '{{ .Name }}'}
  levels: [{devices: [{provider: disks, machine: {from: list, list: [{node: n1, id: n1}]}}]}]
`
		nothing = `
providers: [{name: people, confirm: {}}]
nodes: [{name: b, provider: people, machine: {from: template, template: '{{ .Name }}'}}]
`
		byTime  = "policies: [{name: p, namespaces: [db], withoutProof: by-time}]\n"
		needs   = "policies[0].withoutProof: by-time needs a watchdog"
		useless = "providers[0]: warning: provider disks proves nothing"
	)
	for _, tt := range []struct{ name, text, fault, warning string }{
		{name: "both", text: disks + byTime},
		{name: "in a level", text: level + byTime},
		{name: "of the policy's nodes", text: disks + strings.Replace(byTime, "p,", "p, nodes: rack=a,", 1)},
		{name: "of other nodes", text: disks + strings.Replace(byTime, "p,", "p, nodes: rack=b,", 1), fault: needs},
		{name: "no device", text: nothing + byTime, fault: needs},
		{name: "in one level with another", text: strings.Replace(level, "devices: [{", "devices: [{provider: people, "+
			"machine: {from: list, list: [{node: n1, id: x}]}}, {", 1) + byTime, fault: "never says Off"},
		{name: "no policy", text: disks, warning: useless},
		{name: "another policy", text: disks + strings.Replace(byTime, "by-time", "accept-duplicates", 1),
			warning: useless},
		{name: "volumes stay attached", text: disks + strings.Replace(byTime, "[db]", "[db], drivers: [csi]", 1),
			warning: "policies[0]: warning: the volumes of pods that this policy ends stay attached"},
	} {
		cfg, err := config.Parse("f", []byte(tt.text), all.Types())
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: got %v, want none", tt.name, err)
			continue
		}
		var got []string
		for _, w := range cfg.Warnings() {
			if text := w.Error(); strings.Contains(text, useless) || strings.Contains(text, "policies[") {
				got = append(got, text)
			}
		}
		if len(got) > 1 || tt.warning == "" && len(got) > 0 ||
			tt.warning != "" && !strings.Contains(strings.Join(got, ""), tt.warning) {
			t.Errorf("%s: got warnings %q, want %q", tt.name, got, tt.warning)
		}
	}
}
