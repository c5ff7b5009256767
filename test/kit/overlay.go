package kit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Overlay writes a user's folder over resources and components of deploy/kustomize, for a test of a package two folders
// below the repository's. It returns the folder's path; files are resources beside them.
func Overlay(t testing.TB, resources, components []string, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	Must(t, err)
	sources, err := filepath.Abs("../../deploy/kustomize")
	Must(t, err)
	rel, err := filepath.Rel(dir, sources)
	Must(t, err)
	var b bytes.Buffer
	b.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nimages:\n" +
		"- {name: forcefence, newName: registry.example.net/forcefence, newTag: v1}\nresources:\n")
	for _, r := range resources {
		fmt.Fprintf(&b, "- %s/%s\n", rel, r)
	}
	for name, text := range files {
		Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		fmt.Fprintf(&b, "- %s\n", name)
	}
	if len(components) > 0 {
		b.WriteString("components:\n")
	}
	for _, c := range components {
		fmt.Fprintf(&b, "- %s/components/%s\n", rel, c)
	}
	Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), b.Bytes(), 0o600))
	return dir
}
