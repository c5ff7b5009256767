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
				"part: " +
				"yq .config values.yaml | forcefence check-config -"},
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
			`f:1: mode: must be observe, fence, shadow or disabled: did you mean "disabled"?`},
		{"half a node", "stormGuard: {maxPowerOffs: 0.5}\n",
			"f:1: stormGuard.maxPowerOffs: must be a whole number of nodes (3), or a share of them of at most 100% " +
				"(50%)"},
		{"more than all nodes", "stormGuard: {minHealthy: 150%}\n",
			"f:1: stormGuard.minHealthy: must be a whole number of nodes (3), or a share of them of at most 100% " +
				"(50%)"},
		{"a sum of more than all nodes", "stormGuard: {maxPowerOffs: 1+150%}\n",
			"f:1: stormGuard.maxPowerOffs: must be a whole number, a plus, and a share of at most 100%: 1+5%"},
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

// What a directory and a file without permission need is said, too.
func TestLoadExplains(t *testing.T) {
	if _, err := Load(t.TempDir(), nil); err == nil || !strings.HasSuffix(err.Error(),
		"is a directory. Name the file in it, such as config.yaml") {
		t.Errorf("got %v", err)
	}
	if _, err := Load("/dev/zero", nil); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
		t.Errorf("an endless file: got %v", err)
	}
}
