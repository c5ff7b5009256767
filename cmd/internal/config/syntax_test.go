package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
)

// TestSyntaxLine puts a fault in a known line of a long file.
func TestSyntaxLine(t *testing.T) {
	var head, tail strings.Builder
	head.WriteString("mode: observe\nnodes:\n- name: n\n  machine:\n    from: list\n    list:\n")
	for i := range 60 {
		fmt.Fprintf(&head, "    - {node: n%d, id: m%d}\n", i, i)
		fmt.Fprintf(&tail, "    - {node: o%d, id: m%d}\n", i, i)
	}
	for _, fault := range []string{
		"    - {node: x, id: y\n", "    - {node: \"x, id: y}\n", "   - x\n", "\t- x\n", "    - x: y: z\n", "    - @x\n",
		"    - *x\n", "    - \x01\n", "}\n",
	} {
		_, err := Parse("f", []byte(head.String()+fault+tail.String()), nil)
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 || errs[0].Line != 67 {
			t.Errorf("%q: got %v, want one fault on line 67", fault, err)
		}
	}
}

// A Kubernetes object is one fault, and not one for each of its keys.
func TestKubernetesObject(t *testing.T) {
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config.yaml: |\n    mode: observe\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n"
	)
	for file, want := range map[string]string{
		configMap: "f:2: this is a Kubernetes object (ConfigMap), and not the controller's configuration. Check the " +
			`text that it holds: yq '.data["config.yaml"]' f | forcefence check-config -`,
		secret + configMap: "f:2: this is a Kubernetes object (Secret), and not the controller's configuration. " +
			"config.example.yaml shows one",
	} {
		if _, err := Parse("f", []byte(file), nil); fmt.Sprint(err) != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestSlips: of the commonest slips, the message names the slip's own line, its cause and the fix.
func TestSlips(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no colon on the first line", "mode observe\nproviders: []\n",
			"f:1: YAML: a colon is missing: a key and its value are written as mode: observe"},
		{"no colon, after a comment", "# a comment\nmode observe\n\n# b: c\nproviders: []\n",
			"f:2: YAML: a colon is missing: a key and its value are written as mode: observe"},
		{"no colon in the middle", "mode: observe\npowerOffAfter 60s\nproviders: []\n",
			"f:2: YAML: a colon is missing: a key and its value are written as mode: observe"},
		{"no colon in an item", "providers:\n- name racks\n  redfish: {}\n",
			"f:2: YAML: a colon is missing: a key and its value are written as mode: observe"},
		{"no colon after a key of a mapping", "providers\n- name: racks\n",
			"f:1: YAML: a colon is missing: a key and its value are written as mode: observe"},
		{"no space after the colon", "mode:observe\r\nproviders: []\r\n",
			"f:1: YAML: a space is missing after the colon of mode"},
		{"no space in the middle", "providers:\n- name: a\n  redfish:\n    username:hunter2\n    passwordEnv: Y\n",
			"f:4: YAML: a space is missing after the colon of username"},
		{"no space in an item", "providers:\n- name:racks\n  redfish: {}\n",
			"f:2: YAML: a space is missing after the colon of name"},
		{"no space after -", "mode: observe\nproviders:\n-name: racks\n  redfish: {}\n",
			"f:3: YAML: a space is missing after -: write - name: racks"},
		{"equals sign", "mode = fence\nnodes: []\n",
			"f:1: YAML: a key and its value are written as mode: observe, with a colon"},
		{"comment of another language", "// comment\nmode: observe\n",
			"f:1: YAML: this is no comment: a comment begins with #"},
		{"no-break space", "mode:\u00a0observe\nproviders: []\n", "f:1: YAML: " + aSpecialSpace},
		{"no-break space in an item", "providers:\n-\u00a0name: racks\n  redfish: {}\n", "f:2: YAML: " + aSpecialSpace},
		{"conflict", "mode: observe\n<<<<<<< HEAD\npowerOffAfter: 60s\n=======\npowerOffAfter: 30s\n>>>>>>> x\n",
			"f:2: YAML: a marker of a conflict in git: keep one of the versions, and remove the lines that begin " +
				"with " +
				"<<<<<<<, ======= and >>>>>>>"},
		{"conflict at the top", "<<<<<<< HEAD\nmode: observe\n=======\nmode: fence\n>>>>>>> x\n",
			"f:1: YAML: a marker of a conflict in git: keep one of the versions, and remove the lines that begin " +
				"with " +
				"<<<<<<<, ======= and >>>>>>>"},
		{"key at column 1", "nodes:\n- name: a\n  selector: x\nprovider: racks\n  machine: {from: systemUUID}\n",
			"f:4: YAML: this line begins at column 1, and the lines around it at column 3: indent them alike"},
		{"indented too far", "providers:\n- name: a\n   redfish: {}\n",
			"f:3: YAML: this line begins at column 4, but line 2 has its value already: begin at column 3, as the " +
				"key " +
				"there"},
		{"indented too far at the top", "mode: observe\n listen: {}\n",
			"f:2: YAML: this line begins at column 2, but line 1 has its value already: begin at column 1, as the " +
				"key " +
				"there"},
		{"first line indented", " mode: observe\nlisten: {}\n",
			"f:1: YAML: this line begins at column 2, and line 2 at column 1: indent them alike"},
		{"indented too little", "providers:\n- name: a\n redfish: {}\n",
			"f:3: YAML: this line begins at column 2, where no line above begins: use column 1 or 3"},
		{"between two blocks", "providers:\n- name: a\n  redfish:\n    username: x\n   passwordEnv: Y\n",
			"f:5: YAML: this line begins at column 4, where no line above begins: use column 1, 3 or 5"},
		{"at the column of -", "providers:\n  - name: a\n  redfish: {}\n",
			"f:3: YAML: this line begins at the column of a list's -: a key of that item begins at column 5, and a " +
				"further item with -"},
		{"an item's key at the column of -, and a further item", "providers:\n- name: a\nplain:\n  x: y\n- name: b\n",
			"f:3: YAML: line 5 has a further item of the list above: indent this line, as the keys of the item before it"},
		{"tab", "listen:\n\tmetrics: x\n", "f:2: YAML: a tab indents this line: use spaces"},
		{"bare template", "nodes:\n- machine:\n    template: {name}.bmc\n",
			"f:3: YAML: text with { } must be in quotes: template: 'https://{name}.bmc.example.net'"},
		{"bare template in braces", "nodes:\n- machine: {from: template, template: https://{name}.bmc}\n",
			"f:2: YAML: text with { } must be in quotes: template: 'https://{name}.bmc.example.net'"},
		{"quotes in quotes", "nodes:\n- machine:\n    template: \"https://\"n1\".bmc\"\n",
			`f:3: YAML: text follows a closing quote: put '...' around text that has ", and "..." around text that ` +
				`has '`},
		{"quotes in quotes in braces", "nodes:\n- machine: {template: \"https://\"n1\".bmc\"}\n",
			`f:2: YAML: text follows a closing quote: put '...' around text that has ", and "..." around text that ` +
				`has '`},
		{"apostrophe", "nodes:\n- selector: 'it's'\n  name: x\n",
			`f:2: YAML: text follows a closing quote: put '...' around text that has ", and "..." around text that ` +
				`has '`},
		{"open brace", "leaderElection: {enabled: true\ntaintKey: x\n",
			"f:1: YAML: a { is opened and not closed, or a comma is missing: {key: value, key: value}"},
		{"open quote above others", "providers:\n- name: a\n  redfish:\n    username: \"forcefence\n" +
			"    passwordFile: \"/x\"\n", "f:4: YAML: a quote is opened in this line and not closed"},
		{"open quote of a selector", "nodes:\n- selector: \"pool=workers\n  name: 'a'\n  provider: \"b & c\"\n",
			"f:2: YAML: a quote is opened in this line and not closed"},
		{"open quote in braces", "nodes:\n- {name: 'a, provider: b}\n- {name: 'c'}\n",
			"f:2: YAML: a quote is opened in this line and not closed"},
		{"backslash before u", "mode: \"DOM\\user\"\n",
			"f:1: YAML: in \"...\" a \\ begins an escape: use '...', or write \\\\"},
		{"open bracket", "nodes: [a, b\nmode: x\n",
			"f:1: YAML: a [ is opened and not closed, or a comma is missing: [item, item]"},
		{"open brace before a list", "mode: x\nproviders: {\n- name: a\nnodes: [{id: '{name}'}]\n",
			"f:2: YAML: a { or [ is opened here and not closed. Without brackets, write each item on a line of its " +
				"own, with - before it"},
		{"cut JSON", "{\"mode\":\"observe\",\"providers\":[\n",
			"f:1: YAML: a { or [ is opened here and not closed. Without brackets, write each item on a line of its " +
				"own, with - before it"},
		{"comma too many in closed brackets", "nodes: [ # {\n  '{', , b]\n",
			"f:1: YAML: a value is missing before a comma or a bracket, or begins with one: put such text in quotes"},
		{"null before a list", "mode: x\nnodes: null # none\n- name: a\n",
			"f:2: YAML: this key has an empty value, but line 3 begins its list: remove what follows the colon"},
		{"Markdown", "```yaml\nmode: x\n```\n", "f:1: YAML: ``` is Markdown's mark around code: remove the line"},
		{"brace too many", "leaderElection: {enabled: true}}\nmode: x\n",
			"f:1: YAML: a } or ] in this line closes nothing: remove it"},
		{"two colons", "excludeSelector: a: b\n",
			`f:1: YAML: two colons are in this line: put a value that has ": " in quotes, and each key on a line of ` +
				`its ` +
				"own"},
		{"@", "mode: @x\n", "f:1: YAML: text that begins with @, ` or % must be in quotes"},
		{"%", "%x: a\n", "f:1: YAML: text that begins with @, ` or % must be in quotes"},
		{"*", "mode: *\n",
			"f:1: YAML: text that begins with & or * must be in quotes (anchors and aliases are not read here)"},
		{"backslash", "mode: \"C:\\d\"\n",
			"f:1: YAML: in \"...\" a \\ begins an escape: use '...', or write \\\\"},
		{"list beside its key", "nodes: - b\n",
			"f:1: YAML: a list begins on the line after its key: write - item there"},
		{"second value", "{mode: observe}\nnodes: []\n",
			"f:2: YAML: text follows the end of the configuration: remove it, or the brackets or dots above"},
		{"list among keys", "mode: observe\n- c\n",
			"f:2: YAML: a key is expected here (key: value), at the column of the keys above"},
		{"binary", "\x00\x01", "f:1: YAML: a control character: write the file as plain text in UTF-8"},
		{"Latin-1", "mode: \xff\n", "f:1: YAML: this is not UTF-8: write the file in that encoding"},
		{"comma too many", "nodes: [1,, 2]\n",
			"f:1: YAML: a value is missing before a comma or a bracket, or begins with one: put such text in quotes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tc.text), configtest.Types())
			if got := fmt.Sprint(err); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// FuzzExplainSyntax demands a line of the text, and a cause, of any text and words.
func FuzzExplainSyntax(f *testing.F) {
	for _, words := range []string{noColonHere, noColonYet, noKey, noEntry, noItem, noDocument, noContent, noToken} {
		f.Add("a: b\n - c\n\n# d\n  e:f\n", words, 5)
		f.Add("", words, 0)
	}
	f.Fuzz(func(t *testing.T, text, words string, at int) {
		line, cause := explainSyntax(text, words, at)
		if lines := 1 + strings.Count(text, "\n"); line < 1 || line > lines || cause == "" && words != "" {
			t.Errorf("got line %d of %d, %q", line, lines, cause)
		}
	})
}
