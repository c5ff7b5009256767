package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
)

// A template that gives no usual name of a node an ID of the type is a warning: a node's name may be unusual.
func TestTemplateOfAnotherType(t *testing.T) {
	for template, warns := range map[string]bool{
		"{name}": true, "vm-{name}": true, "hcloud://{name}": false, "hcloud://{label:server}": false,
	} {
		cfg, err := config.Parse("f", []byte(`
providers:
- {name: cloud, hetzner: {address: https://api.hetzner.cloud, passwordEnv: TOKEN}}
nodes:
- {name: a, selector: x=1, provider: cloud, machine: {from: template, template: '`+template+`'}}
`), all.Types(), config.SkipFiles())
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return strings.Contains(w.Problem, "no usual name") && strings.Contains(w.Problem, "write it as hcloud://42")
		})
		if got != warns {
			t.Errorf("%s: got %v, want a warning %t", template, cfg.Warnings(), warns)
		}
	}
}

// A constant template is a warning if a selector may match several nodes.
func TestConstantTemplate(t *testing.T) {
	for selector, warns := range map[string]bool{
		"bmc": true, "kubernetes.io/hostname=n1": false, "kubernetes.io/hostname in (n1, n2)": true,
	} {
		cfg := parse(t, "providers: [{name: p, plain: }]\nnodes:\n- {name: n, selector: "+quoted(selector)+
			", provider: p, machine: {from: template, template: x}}\n")
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool {
			return w.Path == "nodes[0].machine.template" && w.Line == 3 &&
				strings.Contains(w.Problem, "the same machine")
		})
		if got != warns {
			t.Errorf("%s: got %v, want a warning %t", selector, cfg.Warnings(), warns)
		}
	}
}

// An old template is refused with the text that means the same now.
func TestOldTemplates(t *testing.T) {
	for old, says := range map[string]string{
		"{{ .Name }}":                            "write '{name}'",
		"https://{{.Name}}.bmc.example.net":      "write 'https://{name}.bmc.example.net'",
		"{{ .Labels.rack }}-{{- .Name -}}":       "write '{label:rack}-{name}'",
		`{{ index .Labels "example.net/slot" }}`: "write '{label:example.net/slot}'",
		`{{ .Name | trimPrefix "worker-" }}`:     "For what functions and conditions did, write a list",
		`{{ if .Labels.a }}x{{ end }}`:           "For what functions and conditions did, write a list",
		"{{ .Name":                               "use {name}, {label:KEY}, {annotation:KEY} or {uuid}",
	} {
		_, err := config.Parse("f", []byte("providers: [{name: p, plain: }]\n"+
			"nodes: [{name: n, selector: a, provider: p, machine: {from: template, template: "+quoted(old)+"}}]\n"),
			configtest.Types())
		if err == nil || !strings.Contains(err.Error(), "f:2: nodes[0].machine.template: {{ }} is not read: ") ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that says %q", old, err, says)
		}
	}
}
