package remediation

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/interop/remediation/api"
	"github.com/forcefence/forcefence/test/kit"
)

// objectsOfPages matches the blocks of objects that TestPages holds.
var objectsOfPages = regexp.MustCompile("(?s)```yaml test=taint/interop/remediation.TestPages\n(.*?)```")

// TestPages: the API server takes the pages' templates, and the health checks on the pages name them.
func TestPages(t *testing.T) {
	w := newWorld(t, shared, nil)
	serve(t, w.admin)
	for page, path := range map[string][]string{
		"nodehealthcheck.md": {"spec", "escalatingRemediations", "remediationTemplate"},
		"cluster-api.md":     {"spec", "remediation", "templateRef"},
	} {
		text, err := os.ReadFile("../../../docs/" + page)
		kit.Must(t, err)
		template, ref := &unstructured.Unstructured{}, map[string]any(nil)
		for _, block := range objectsOfPages.FindAllStringSubmatch(string(text), -1) {
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
			t.Errorf("%s: the health check names %v, want %s %s", page, ref, template.GetKind(), template.GetName())
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
