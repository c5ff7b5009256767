package remediation

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/test/kit"
)

// objectsOfPages matches the blocks of objects that TestPages holds.
var objectsOfPages = regexp.MustCompile("(?s)```yaml test=taint/features/remediation.TestPages\n(.*?)```")

// TestPages: the API server takes the templates of docs/health-checks.md, and the health checks there name them.
func TestPages(t *testing.T) {
	w := newWorld(t, shared, nil)
	serve(t, w.admin)
	page, err := os.ReadFile("../../../docs/health-checks.md")
	kit.Must(t, err)
	for heading, path := range map[string][]string{
		"## NodeHealthCheck": {"spec", "escalatingRemediations", "remediationTemplate"},
		"## Cluster API":     {"spec", "remediation", "templateRef"},
	} {
		_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		template, ref := &unstructured.Unstructured{}, map[string]any(nil)
		for _, block := range objectsOfPages.FindAllStringSubmatch(section, -1) {
			for doc := range strings.SplitSeq(block[1], "\n---\n") {
				o := &unstructured.Unstructured{}
				kit.Must(t, yaml.UnmarshalStrict([]byte(doc), &o.Object))
				if o.GroupVersionKind().GroupVersion() != api.GroupVersion {
					ref = refOf(o.Object, path)
					continue
				}
				template = o.DeepCopy()
				o.SetNamespace(w.ns)
				w.until("the API server to take templates", func() bool {
					return w.admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")) == nil
				})
			}
		}
		if ref["apiVersion"] != api.GroupVersion.String() || ref["kind"] != api.Kind+"Template" ||
			template.GetKind() != ref["kind"] || template.GetName() != ref["name"] {
			t.Errorf("%s: the health check names %v, want %s %s", heading, ref, template.GetKind(), template.GetName())
		}
	}
}

// refOf returns the mapping at a path. In a list it takes the first item.
func refOf(o map[string]any, path []string) map[string]any {
	for _, key := range path {
		switch v := o[key].(type) {
		case map[string]any:
			o = v
		case []any:
			o, _ = v[0].(map[string]any)
		}
	}
	return o
}
