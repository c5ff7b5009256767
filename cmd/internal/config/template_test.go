package config_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers/all"
)

// golang runs a template as text/template does, with the functions that it may use here. At the rehearsal every label
// is there.
func golang(text, name string, labels map[string]string, rehearsal bool) (string, error) {
	option := "missingkey=error"
	if rehearsal {
		option, labels = "missingkey=zero", map[string]string{}
	}
	t, err := template.New("t").Option(option).Funcs(template.FuncMap{
		"lower":      strings.ToLower,
		"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"replace":    func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
		"index": func(labels map[string]string, key string) (string, error) {
			v, ok := labels[key]
			if !ok && !rehearsal {
				return "", fmt.Errorf("no label %q", key)
			}
			return v, nil
		},
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, map[string]any{"Name": name, "Labels": labels}); err != nil {
		return "", err
	}
	if strings.Contains(b.String(), "map[") {
		return "", fmt.Errorf("prints all labels")
	}
	return strings.TrimSpace(b.String()), nil
}

// writer makes up templates. Most are of fitting types, so that they run.
type writer struct{ *rand.Rand }

func (w writer) one(of ...func() string) string { return of[w.IntN(len(of))]() }

func word(s string) func() string { return func() string { return s } }

func (w writer) text(depth int) string {
	if w.IntN(40) == 0 {
		return w.condition(depth - 1) // of another type
	}
	if depth <= 0 {
		return w.one(word(".Name"), word(".Name"), word(".Labels.rack"), word(".Labels.empty"), word(`"worker-"`),
			word(`""`), word("`7`"), word(".Labels.none"))
	}
	s := func() string { return w.text(depth - 1) }
	return w.one(
		func() string { return "(lower " + s() + ")" },
		func() string { return "(" + s() + " | lower | trimPrefix " + s() + ")" },
		func() string { return "(trimSuffix " + s() + " " + s() + ")" },
		func() string { return "(replace " + s() + " " + s() + " " + s() + ")" },
		func() string { return "(" + s() + " | replace " + s() + " " + s() + ")" },
		func() string { return `(index .Labels "example.net/slot")` },
		func() string { return "(index .Labels " + s() + ")" },
		func() string { return "(and " + s() + " " + s() + " " + s() + ")" },
		func() string { return "(or " + s() + " " + s() + ")" },
		func() string { return "(" + s() + " | or " + s() + ")" },
		func() string { return "(" + s() + " | and " + w.condition(depth-1) + ")" },
		func() string { return "(" + s() + ")" },
		func() string { return "(" + s() + " " + s() + ")" },
		s, s, s, s, s, s,
	)
}

func (w writer) condition(depth int) string {
	if depth <= 0 {
		return w.one(word("true"), word("false"), word(".Labels"), word(".Name"), word("not"))
	}
	s, c := func() string { return w.text(depth - 1) }, func() string { return w.condition(depth - 1) }
	return w.one(
		func() string { return "(eq " + s() + " " + s() + ")" },
		func() string { return "(eq " + s() + " " + s() + " " + s() + ")" },
		func() string { return "(ne " + s() + " " + s() + ")" },
		func() string { return "(" + s() + " | eq " + s() + ")" },
		func() string { return "(eq " + c() + " " + c() + ")" },
		func() string { return "(not " + c() + ")" },
		func() string { return "(and " + c() + " " + s() + ")" },
		func() string { return "(or " + c() + " " + c() + ")" },
		s, c,
	)
}

func (w writer) template(depth int) string {
	t := func() string { return w.template(depth - 1) }
	if depth <= 0 {
		return w.one(word("bmc-"), word(" {{- /* nothing */ -}} x"), func() string { return "{{ " + w.text(2) + " }}" })
	}
	return w.one(
		func() string { return t() + t() },
		func() string { return "{{ " + w.text(depth) + " }}" },
		func() string { return "{{ if " + w.condition(depth) + " }}" + t() + "{{ end }}" },
		func() string { return "{{ if " + w.condition(depth) + " }}" + t() + "{{ else }}" + t() + "{{ end }}" },
		func() string {
			return "{{ if " + w.condition(depth) + " }}" + t() + "{{ else if " + w.condition(depth) + " -}} " + t() +
				"{{ else }}" + t() + "{{ end }}"
		},
	)
}

// A template leads to the machine that text/template would lead to, and to none where that fails.
func TestTemplatesMeanWhatTheyMeanInGo(t *testing.T) {
	w := writer{rand.New(rand.NewPCG(1, 2))}
	labels := map[string]string{"rack": "r1", "example.net/slot": "4", "empty": "", "worker-": "w"}
	n := node("Worker-7", "rack=r1", "example.net/slot=4", "empty=", "worker-=w")
	refused, none, some := 0, 0, map[string]bool{}
	for range 3000 {
		text := w.template(1 + w.IntN(3))
		_, wrong := golang(text, "node", nil, true)
		want, fails := golang(text, "Worker-7", labels, false)
		cfg, err := config.Parse("f", []byte("providers: [{name: p, plain: }]\n"+
			"nodes: [{name: n, selector: rack=r1, provider: p, machine: {from: template, "+
			"template: "+quoted(text)+"}}]\n"),
			configtest.Types())
		if (err != nil) != (wrong != nil) {
			t.Fatalf("%s: refused with %v, want %v", text, err, wrong)
		}
		if err != nil {
			refused++
			continue
		}
		got, err := cfg.FindMachine(n)
		if wants := fails == nil && want != ""; wants != (err == nil) || wants && got.Target.ID != want {
			t.Fatalf("%s: got %q, %v, want %q, %v", text, got.Target.ID, err, want, fails)
		}
		if err != nil {
			none++
		} else {
			some[want] = true
		}
	}
	if refused < 300 || none < 300 || len(some) < 50 { // or this test says little
		t.Errorf("%d were refused, %d led nowhere, the others to %d machines", refused, none, len(some))
	}
}

// A template that gives no usual name of a node an ID of the type is a warning: a node's name may be unusual.
func TestTemplateOfAnotherType(t *testing.T) {
	for template, warns := range map[string]bool{
		"{{ .Name }}": true, "vm-{{ .Name }}": true, "hcloud://{{ .Name }}": false, "hcloud://{{ .Labels.server }}": false,
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
