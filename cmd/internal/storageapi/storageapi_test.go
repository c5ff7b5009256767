package storageapi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/storageapi"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Each preset whose system has an API of its own passes what an operator's own description must pass.
func TestPresets(t *testing.T) {
	for _, p := range storage.Presets {
		text := rest.FindReading(p.Name)
		if (text != nil) != p.API {
			t.Errorf("%s: got a description %t, want %t", p.Name, text != nil, p.API)
		}
		if text == nil {
			continue
		}
		report, bad := storageapi.CheckCases(text)
		for _, f := range bad {
			t.Errorf("%s:%v", p.Name, f)
		}
		if report.Cases < 7 || report.Mutations < 2000 {
			t.Errorf("%s: got %+v", p.Name, report)
		}
		t.Logf("%s: %+v", p.Name, report)
	}
}

// shelves is a system with one request, which says all.
const shelves = `name: shelves
login: {kind: none}
requests:
- {name: all, send: GET /all}
storage:
  drivers: [csi.example.com]
  node: {resource: all.body.nodes, name: object.name, healthy: '{"up": true, "down": false}[object.state]'}
  volume:
    resource: all.body.copies
    group: object.volume
    find: claim
    key: object[0].volume
    healthy: 'object.exists(c, {"good": true, "bad": false}[c.state])'
cases:
- name: base
  answers:
    all:
      body:
        nodes: [{name: n1, state: up}, {name: n2, state: down}, {name: n3, state: odd}]
        copies: [{volume: shop/a, state: good}, {volume: shop/b, state: bad}, {volume: shop/b, state: bad}]
  want: {node: {n1: healthy, n2: unhealthy, n3: unknown}, volume: {shop/a: healthy, shop/b: unhealthy}}
- {name: broken, like: base, answers: {all: {status: 500, body: {}}}, want: {error: unreachable}}
`

var (
	head, tail, _     = strings.Cut(shelves, "storage:")
	body, recorded, _ = strings.Cut(tail, "cases:")
	meaning, cases    = "storage:" + body, "cases:" + recorded
)

// CheckCases reports faults at their lines, and each way in which a changed answer would permit a policy to act.
func TestCheckCases(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"no fault", "", "", ""},
		{"everything but up is unhealthy", `'{"up": true, "down": false}[object.state]'`, `object.state == "up"`,
			`21: cases[0].want: got node "n3" unhealthy, want unknown`},
		{"null is unhealthy", `'{"up": true, "down": false}[object.state]'`,
			`'{"up": true, "down": false}[object.state == null ? "down" : object.state]'`,
			`node "n1" is unhealthy if all/nodes/0/state is null`},
		{"a missing state is healthy", `'{"up": true, "down": false}[object.state]'`,
			`'{"up": true, "down": false}[object[?"state"].orValue("up")]'`,
			`node "n1" is healthy even if all/nodes/0/state is missing`},
		{"an empty list is no problem", `resource: all.body.copies`,
			`resource: 'all.body.copies == [] ? [{"volume": "shop/a", "state": "good"}] : all.body.copies'`,
			`volume "shop/a" is healthy even if all/copies is an empty list`},
		{"any text is a good copy", `{"good": true, "bad": false}[c.state]`, `c.state != "bad"`,
			`volume "shop/b" is healthy if all/copies/1/state is null`},
		{"an error is an answer", "send: GET /all}", "send: GET /all, expect: [200, 500]}",
			`volume "shop/a" is healthy even if the answer to all is HTTP status 500`},
		{"404 is an answer", "send: GET /all}", "send: GET /all, expect: [200, 404]}",
			`node "n1" is healthy even if the answer to all is HTTP status 404`},
		{"no unhealthy node", "n2: unhealthy, ", "", "no case wants a node that is unhealthy"},
		{"an unknown list", "node: {n1:", "nodes: {n1:", "want.nodes: is no list: write [node volume]"},
		{"another error", "error: unreachable", "error: denied", `got error "unreachable"`},
		{"an answer that is not asked for", "status: 500, body: {}}}", "status: 500, body: {}}, al: {}}",
			`no request has the name "al"`},
		{"no answer", "like: base, answers: {all: {status: 500, body: {}}}, ", "",
			"the case has no answer for this request"},
		{"an expression's fault", "object[0].volume", "object[0].volume +",
			"12: storage.volume.key: not a CEL expression"},
		{"a list's fault", "all.body.copies", "al.body.copies", "9: storage.volume.resource: not a CEL expression"},
		{"no drivers", "  drivers: [csi.example.com]\n", "", "5: storage.drivers: missing"},
		{"an unknown key of storage", "find: claim", "finds: claim", "11: finds: unknown key"},
		{"an unknown key", "cases:", "case:", "14: case: unknown key"},
		{"cases without a meaning", meaning, "", "5: cases: have no effect"},
		{"no meaning", meaning + cases, "", "1: storage: missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, bad := storageapi.CheckCases([]byte(strings.Replace(shelves, tc.old, tc.new, 1)))
			switch got := bad.Error(); {
			case tc.want == "" && (got != "" || report.Cases != 2 || report.Mutations < 100):
				t.Errorf("got %q, %+v", got, report)
			case tc.want != "" && !strings.Contains(got, tc.want):
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A description without storage leaves the meaning to the configuration.
func TestParseWithoutMeaning(t *testing.T) {
	d, bad := storageapi.Parse([]byte(head))
	if len(bad) > 0 || fmt.Sprint(d.Spec) != fmt.Sprint(storage.Spec{}) {
		t.Errorf("got %v, %v; want an empty Spec", d, bad)
	}
}

// The case in docs/storage.md is one that the preset of which it speaks may have.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml test=cmd/internal/storageapi.TestPage\n")
	block, _, ok := strings.Cut(after, "```")
	preset, _, _ := strings.Cut(string(rest.FindReading("storageos")), "cases:\n")
	report, bad := storageapi.CheckCases([]byte(preset + block))
	if !ok || len(bad) > 0 || report.Cases != 1 || report.Mutations < 100 {
		t.Errorf("got %+v, %v", report, bad)
	}
}
