package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// Helm runs Helm with a home of its own and returns what it printed; the error carries what it said. It builds Helm if
// it is not in the cache. A kubeconfig of "" is no cluster.
func Helm(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	bin, err := binaries.Build(ctx, binaries.Options{Names: []string{binaries.Helm}})
	if err != nil {
		return "", err
	}
	home, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, binaries.Helm), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+kubeconfig)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out),
			fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// RenderChart returns what the chart in a folder makes of values over its own, as YAML, for an install as forcefence in
// namespace forcefence-system: without Helm's hooks and without that namespace. templates limits it to these, such as
// node/daemonset.yaml. The image is forcefence:dev and the hook is enabled, unless values say otherwise.
func RenderChart(ctx context.Context, folder, values string, templates ...string) (string, error) {
	dir, err := os.MkdirTemp("", "values-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	image, own := filepath.Join(dir, "image.yaml"), filepath.Join(dir, "values.yaml")
	if err := errors.Join(os.WriteFile(image, []byte("image: {repository: forcefence, tag: dev}\nhook: {enabled: true}\n"), 0o600),
		os.WriteFile(own, []byte(values), 0o600)); err != nil {
		return "", err
	}
	args := []string{"template", "forcefence", folder, "--namespace", "forcefence-system", "--no-hooks",
		"--values", image, "--values", own}
	for _, name := range templates {
		args = append(args, "--show-only", "templates/"+name)
	}
	return Helm(ctx, "", args...)
}

// Definition returns a CustomResourceDefinition as JSON: of a neighbour's kind whose objects may have any fields, and
// have a status of their own. scope is Cluster or Namespaced. The first version is the one that is stored.
func Definition(group, kind, scope string, versions ...string) string {
	var all []string
	for i, v := range versions {
		all = append(all, fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"subresources":{"status":{}},"schema":
{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, v, i == 0))
	}
	singular := strings.ToLower(kind)
	plural := singular + "s"
	if strings.HasSuffix(singular, "s") {
		plural = singular + "es"
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"%s.%s"},"spec":{"group":%[2]q,"scope":%[3]q,"names":{"plural":%[1]q,"singular":%[4]q,"kind":%[5]q},
"versions":[%[6]s]}}`, plural, group, scope, singular, kind, strings.Join(all, ","))
}
