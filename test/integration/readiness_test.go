package integration

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

//go:embed testdata/nodereadinessrules.yaml
var readinessRules string

// readinessRule is the example of a rule for node-readiness-controller.
type readinessRule struct {
	Spec struct {
		Conditions []struct {
			Type                          corev1.NodeConditionType
			RequiredStatus, DefaultStatus corev1.ConditionStatus
		}
		EnforcementMode string
		Taint           corev1.Taint
		NodeSelector    metav1.LabelSelector
	}
}

// The example holds for the condition that the hook reports, on workers alone. It only keeps new pods away, and a node
// that reports nothing does not count as protected. The API server takes it, and refuses rules that the project
// refuses.
func TestReadinessRule(t *testing.T) {
	w := newWorld(t, plan{nodes: 1})
	text, err := os.ReadFile("../../deploy/examples/node-readiness-rule.yaml")
	kit.Must(t, err)
	var rule readinessRule
	kit.Must(t, yaml.Unmarshal(text, &rule))
	s := rule.Spec
	if len(s.Conditions) != 1 || s.Conditions[0].Type != taint.ProtectionCondition ||
		s.Conditions[0].RequiredStatus != corev1.ConditionTrue ||
		s.Conditions[0].DefaultStatus != corev1.ConditionUnknown {
		t.Errorf("conditions: got %+v, want %s=True, and Unknown where it is missing",
			s.Conditions, taint.ProtectionCondition)
	}
	if s.EnforcementMode != "continuous" || s.Taint.Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("got mode %s and effect %s, want continuous and NoSchedule", s.EnforcementMode, s.Taint.Effect)
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.NodeSelector)
	kit.Must(t, err)
	if selector.Empty() || !selector.Matches(labels.Set{}) ||
		selector.Matches(labels.Set{"node-role.kubernetes.io/control-plane": ""}) {
		t.Errorf("nodeSelector: got %s, want all workers; the project's webhook refuses an empty one", selector)
	}

	w.kubectlApply(readinessRules)
	w.kubectl("wait", "--for=condition=Established", "--timeout=5m", "crd/nodereadinessrules.readiness.node.x-k8s.io")
	apply := func(text string) error {
		file := filepath.Join(t.TempDir(), "rule.yaml")
		kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := w.Kubectl(w.ctx, "apply", "--server-side", "--validate=strict", "-f", file)
		return err
	}
	for _, tt := range []struct{ name, old, new, want string }{
		{"the key of another group", "readiness.k8s.io/", "forcefence.io/", "wrong prefix"},
		{"an unknown effect", "NoSchedule", "Never", "wrong effect"},
		{"an unknown mode", "continuous", "always", "enforcementMode"},
		{"a missing mode", "  enforcementMode: continuous\n", "", "enforcementMode: Required"},
		{"an unknown field", "defaultStatus", "default", `.default: field not declared`},
	} {
		broken := strings.Replace(string(text), tt.old, tt.new, 1)
		if err := apply(broken); broken == string(text) || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	kit.Must(t, apply(string(text)))
	kit.Must(t, apply(string(text))) // what is immutable is not written again
	changed := strings.Replace(string(text), "defaultStatus: Unknown", "defaultStatus: \"True\"", 1)
	if err := apply(changed); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("changed conditions: got %v, want them refused", err)
	}
	if changed == string(text) {
		t.Error("the example has no default status")
	}
}
