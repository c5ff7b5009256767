package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// TestOverlay renders what README.md tells a user to write: an image and a configuration of one's own, and another key for the mark.
func TestOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("needs kubectl")
	}
	bin, err := binaries.Build(t.Context(), binaries.Options{})
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	sources, err := filepath.Abs("../../deploy/kustomize")
	must(t, err)
	rel, err := filepath.Rel(dir, sources)
	must(t, err)
	for name, text := range map[string]string{
		"config.yaml": "taintKey: example.net/off\n",
		"taint-key.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: forcefence-taint-key, annotations: {config.kubernetes.io/local-config: "true"}}
data: {taintKey: example.net/off}
`,
		"kustomization.yaml": `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [` + rel + `/base, ` + rel + `/node, taint-key.yaml]
components: [` + rel + `/components/taint-key]
images:
- {name: forcefence, newName: registry.example.net/forcefence, newTag: v1}
configMapGenerator:
- name: forcefence
  namespace: forcefence-system
  behavior: replace
  files: [config.yaml]
  options: {disableNameSuffixHash: true}
`,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, binaries.Kubectl), "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v\n%s", err, out)
	}
	for text, want := range map[string]int{
		key:                                  0,
		"'''example.net/off'''":              4, // the policies about nodes
		"- key: example.net/off\n":           1, // the toleration
		"taintKey: example.net/off\n":        1, // config.yaml; the helper is not rendered
		"--taint-key=example.net/off\n":      1, // the hook's
		"registry.example.net/forcefence:v1": 3,
		"name: forcefence-taint-key":         0,
	} {
		if got := strings.Count(string(out), text); got != want {
			t.Errorf("%q in what is rendered: got %d times, want %d", text, got, want)
		}
	}
}
