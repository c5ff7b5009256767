package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// machineKeys is base with the keys by which machines are found, as README.md shows it.
func machineKeys(t *testing.T, keys string) string {
	t.Helper()
	return overlay(t, []string{"base"}, []string{"machine-keys"}, map[string]string{"machine-keys.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: forcefence-machine-keys, annotations: {config.kubernetes.io/local-config: "true"}}
data: {keys: "` + keys + `"}
`})
}

// otherTaintKey is what the component taint-key reads.
var otherTaintKey = map[string]string{"taint-key.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: forcefence-taint-key, annotations: {config.kubernetes.io/local-config: "true"}}
data: {taintKey: example.net/off}
`}

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
// the mark, and docs/metrics.md's collector of traces.
func TestOverlay(t *testing.T) {
	dir := overlay(t, []string{"base", "node"}, []string{"taint-key"}, otherTaintKey)
	kit.Must(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("taintKey: example.net/off\n"), 0o600))
	f, err := os.OpenFile(filepath.Join(dir, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	kit.Must(t, err)
	_, err = f.WriteString(`configMapGenerator:
- name: forcefence
  namespace: forcefence-system
  behavior: replace
  files: [config.yaml]
  options: {disableNameSuffixHash: true}
` + sample(t, "../../docs/metrics.md", "OTEL_EXPORTER_OTLP_ENDPOINT"))
	kit.Must(t, errors.Join(err, f.Close()))
	out := render(t, dir)
	wantCounts(t, out, map[string]int{
		key:                                  0,
		"'''example.net/off'''":              5, // the policies about nodes
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
	out := render(t, overlay(t, []string{"base", "node"}, components, otherTaintKey))
	wantCounts(t, out, map[string]int{
		key:                     0,
		"'''example.net/off'''": 5,
		"name: forcefence-controller-attachment\n":           2, // each policy and its binding
		"name: forcefence-controller-budget\n":               2,
		"name: forcefence-controller-storageos-attachment\n": 2,
	})
}

// TestMachineKeysOverlay: the policy about kubelets learns the keys, and no other object does.
func TestMachineKeysOverlay(t *testing.T) {
	out := render(t, machineKeys(t, "example.net/bmc,example.net/rack"))
	wantCounts(t, out, map[string]int{
		"'''example.net/bmc,example.net/rack''.split('','')'": 1,
		"example.net/rack":              1,
		"name: forcefence-machine-keys": 0,
	})
}

// TestAWSRoleOverlay: the ServiceAccount names the role, no other object does, and no pod needs a Secret.
func TestAWSRoleOverlay(t *testing.T) {
	const role, annotation = "arn:aws:iam::123456789012:role/forcefence", "eks.amazonaws.com/role-arn"
	counts := map[string]int{annotation: 0, "optional: true\n": 1, "secretName: forcefence-bmc\n": 1}
	wantCounts(t, render(t, base), counts)
	out := render(t,
		overlay(t, []string{"base"}, []string{"aws-role", "any-node"},
			map[string]string{"aws-role.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: forcefence-aws-role, annotations: {config.kubernetes.io/local-config: "true"}}
data: {roleARN: "` + role + `"}
`}))
	counts[annotation+": "+role], counts[annotation], counts["forcefence-aws-role"], counts["nodeAffinity:"] = 1, 1, 0,
		0
	wantCounts(t, out, counts)
	for _, u := range parse(t, out) {
		if named := u.GetAnnotations()[annotation] != ""; named != (u.GetKind() == "ServiceAccount" &&
			u.GetName() == "forcefence") {
			t.Errorf("%s %s names a role: %t", u.GetKind(), u.GetName(), named)
		}
	}
}

// TestAnyNodeOverlay: where there are no control-plane nodes the pods go anywhere, still on two nodes.
func TestAnyNodeOverlay(t *testing.T) {
	where := map[string]int{"nodeAffinity:": 1, "topologyKey: kubernetes.io/hostname": 1}
	wantCounts(t, render(t, base), where)
	where["nodeAffinity:"] = 0
	wantCounts(t, render(t, overlay(t, []string{"base"}, []string{"any-node"}, nil)), where)
}

// TestLonghornOverlay: the controller may read whose a ReplicaSet is (people may, by forcefence-explain), and one
// setting of Longhorn's, and delete VolumeAttachments, bounded by a policy, and nothing else more.
func TestLonghornOverlay(t *testing.T) {
	const owners = "  - apps\n  resources:\n  - replicasets\n  verbs:\n  - get\n"
	counts := map[string]int{"replicasets": 1, owners: 1, "longhorn.io": 0, "forcefence-controller-attachment": 0}
	wantCounts(t, render(t, base), counts)
	counts["forcefence-controller-attachment"] = 3
	counts["  - storage.k8s.io\n  resources:\n  - volumeattachments\n  verbs:\n  - delete\n"] = 1
	// and the attacher
	counts["longhorn.io"], counts["  - longhorn.io\n  resourceNames:\n  - node-down-pod-deletion-policy\n  "+
		"resources:\n  - settings\n  verbs:\n  - get\n"] = 2, 1
	counts["replicasets"], counts[owners] = 2, 2
	wantCounts(t, render(t, overlay(t, []string{"base"}, []string{"longhorn"}, nil)), counts)
}

// TestMonitoringOverlay: what the Prometheus operator and Grafana's sidecar look for, and nothing else more.
func TestMonitoringOverlay(t *testing.T) {
	before := len(parse(t, render(t, base)))
	out := render(t, overlay(t, []string{"base"}, []string{"monitoring"}, nil))
	if got := len(parse(t, out)); got != before+3 {
		t.Errorf("got %d objects, want 3 beside %d", got, before)
	}
	wantCounts(t, out, map[string]int{
		"kind: ServiceMonitor\n": 1, "kind: PrometheusRule\n": 1, "grafana_dashboard: \"1\"\n": 1,
		"port: metrics\n": 1, "name: metrics\n": 2, // the Service's and the container's
		"- alert: Forcefence": 9, "forcefence_phase_seconds_bucket": 1,
	})
}
