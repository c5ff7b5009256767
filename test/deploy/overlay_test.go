package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// machineKeys is base with the keys by which machines are found, as README.md shows it.
func machineKeys(t *testing.T, keys string) string {
	t.Helper()
	return kit.Overlay(t, []string{"base"}, []string{"machine-keys"}, helper("machine-keys", "keys: '"+keys+"'"))
}

// otherTaintKey is what the component taint-key reads.
var otherTaintKey = helper("taint-key", "taintKey: example.net/off")

// render is what kubectl makes of a folder.
func render(t *testing.T, dir string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs kubectl")
	}
	kubectl, err := cluster.KubectlPath(t.Context())
	kit.Must(t, err)
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v\n%s", err, out)
	}
	return string(out)
}

func wantCounts(t *testing.T, rendered string, counts map[string]int) {
	t.Helper()
	for text, want := range counts {
		if got := strings.Count(rendered, text); got != want {
			t.Errorf("%q in what is rendered: got %d times, want %d", text, got, want)
		}
	}
}

// TestOverlay renders what README.md tells a user to write: an image and a configuration of one's own, another key for
// the mark, and docs/reference/metrics.md's collector of traces.
func TestOverlay(t *testing.T) {
	dir := kit.Overlay(t, []string{"base", "node"}, []string{"taint-key"}, otherTaintKey)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("taintKey: example.net/off\n"), 0o600))
	f, err := os.OpenFile(filepath.Join(dir, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	kit.Must(t, err)
	_, err = f.WriteString(`configMapGenerator:
- name: forcefence
  namespace: forcefence-system
  behavior: replace
  files: [config.yaml]
  options: {disableNameSuffixHash: true}
` + sample(t, "../../docs/reference/metrics.md", "OTEL_EXPORTER_OTLP_ENDPOINT"))
	kit.Must(t, errors.Join(err, f.Close()))
	out := render(t, dir)
	wantCounts(t, out, map[string]int{
		key:                                  0,
		"'''example.net/off'''":              6, // the policies about nodes, and about pods that are exempt
		"- key: example.net/off\n":           1, // the toleration
		"taintKey: example.net/off\n":        1, // config.yaml; the helper is not rendered
		"--taint-key=example.net/off\n":      1, // the hook's
		"registry.example.net/forcefence:v1": 3,
		"name: forcefence-taint-key":         0,
		"name: OTEL_EXPORTER_OTLP_ENDPOINT":  1,
	})
}

// TestTaintKeyOverlay: another key for the mark goes with all components, those that bring policies of their own above
// all.
func TestTaintKeyOverlay(t *testing.T) {
	components := []string{"agents", "any-node", "drain", "drain-longhorn", "longhorn", "required-plugins", "storageos",
		"taint-key"}
	out := render(t, kit.Overlay(t, []string{"base", "node"}, components, otherTaintKey))
	wantCounts(t, out, map[string]int{
		key:                     0,
		"'''example.net/off'''": 6,
		"name: forcefence-controller-attachment\n":           2, // each policy and its binding
		"name: forcefence-controller-budget\n":               2,
		"name: forcefence-controller-storageos-attachment\n": 2,
	})
}

var blocks = regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```")

// sample is the one sample of a page that has that in it.
func sample(t *testing.T, page, has string) (found string) {
	t.Helper()
	text, err := os.ReadFile(page)
	kit.Must(t, err)
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], has) {
			if found != "" {
				t.Fatalf("%s has two samples with %s", page, has)
			}
			found = m[1]
		}
	}
	if found == "" {
		t.Fatalf("%s has no sample with %s", page, has)
	}
	return found
}
