package kit

import (
	"os"
	"strings"
	"testing"
)

// Installed returns the objects of deploy/install.yaml that come from one of the chart's templates, as YAML, for a test
// of a package two folders below the repository's. It needs no Helm.
func Installed(t testing.TB, template string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/install.yaml")
	Must(t, err)
	var objects []string
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.HasPrefix(object, "# Source: forcefence/templates/"+template+"\n") {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		t.Fatalf("install.yaml has nothing from %s", template)
	}
	return strings.Join(objects, "\n---\n") + "\n"
}
