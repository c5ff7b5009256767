package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/test/kit"
)

// TestPodsRunOnLinux: the image has no other program, and the hook's DaemonSet tolerates everything: without the
// selector it would sit on every Windows node and never become ready.
func TestPodsRunOnLinux(t *testing.T) {
	found := 0
	kit.Must(t, filepath.WalkDir("../../deploy", func(file string, e fs.DirEntry, err error) error {
		// what these render is here, too
		if err != nil || filepath.Ext(file) != ".yaml" || strings.HasPrefix(file, chart+"/templates/") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, u := range parse(t, string(text)) {
			spec, ok, _ := unstructured.NestedMap(u.Object, "spec", "template", "spec")
			if !ok {
				continue
			}
			found++
			if got, _, _ := unstructured.NestedString(spec, "nodeSelector", "kubernetes.io/os"); got != "linux" {
				t.Errorf("%s: %s %s: nodeSelector kubernetes.io/os is %q, want linux", file, u.GetKind(), u.GetName(),
					got)
			}
		}
		return nil
	}))
	if found < 4 {
		t.Errorf("found %d objects that run pods, want the Deployment and the DaemonSet, each of kustomize and of "+
			"install.yaml", found)
	}
}
