// Package olm makes a bundle for the Operator Lifecycle Manager (registry+v1) from what the chart renders. OLM takes
// few kinds of objects, and all into one namespace; what it does not take becomes one file beside the bundle, and the
// controller's pods do not start without it.
//
// It imports nothing of OLM's: test/olm holds the result against OLM's own checks, and installs it with OLM's own
// controllers.
package olm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	// Namespace is the one that the chart was rendered for. The policies, and the bindings in the bundle, name its
	// account.
	Namespace = "forcefence-system"
	// Guards is the ConfigMap of guards.yaml without which the pods do not start.
	Guards = "forcefence-guards"

	pkg        = "forcefence"
	controller = "forcefence-controller" // the ClusterRole that becomes the ClusterServiceVersion's
)

// Release is what differs from release to release.
type Release struct {
	Version  string // SemVer, without a v
	Replaces string // the version that it upgrades; "" for the first one
}

// Files are the bundle's and guards.yaml, by their path below deploy/olm. rendered is the chart's output for Namespace,
// with `# Source:` lines, without hooks and WithoutRelease; chart its Chart.yaml; base what neither knows. An error
// names an object without a place.
func Files(rendered, chart, base string, r Release) (map[string]string, error) {
	b := builder{files: map[string]string{}}
	if err := yaml.Unmarshal([]byte(base), &b.csv); err != nil {
		return nil, fmt.Errorf("reading base: %w", err)
	}
	if err := yaml.Unmarshal([]byte(chart), &b.chart); err != nil {
		return nil, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	for doc := range strings.SplitSeq("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		if err := b.add(strings.TrimSpace(doc) + "\n"); err != nil {
			return nil, err
		}
	}
	if err := b.finish(r); err != nil {
		return nil, err
	}
	return b.files, nil
}

type builder struct {
	csv, chart map[string]any
	files      map[string]string
	guards     []string

	deployment, role map[string]any
}

// add puts one object where it belongs.
func (b *builder) add(doc string) error {
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		return err
	}
	ours := u.GetNamespace() == Namespace
	switch kind := u.GetKind(); kind {
	case "Deployment":
		b.deployment = u.Object
		return nil
	case "ClusterRole", "ClusterRoleBinding":
		switch {
		case u.GetName() != controller:
			return b.manifest(u)
		case kind == "ClusterRole":
			b.role = u.Object
		}
		return nil // OLM makes the binding
	case "ServiceAccount":
		if ours {
			return nil // OLM makes it
		}
	case "ConfigMap":
		if ours {
			return nil // the configuration is the user's, and OLM would overwrite it at each upgrade
		}
	case "CustomResourceDefinition":
		return b.manifest(u)
	case "Service", "PodDisruptionBudget", "Role", "RoleBinding":
		if ours {
			return b.manifest(u)
		}
	case "DaemonSet", "FlowSchema", "Namespace", "NetworkPolicy", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding":
	default:
		return fmt.Errorf("%s %s: nothing says whether OLM takes it", kind, u.GetName())
	}
	_, text, ok := strings.Cut(doc, "\n")
	if !ok || !strings.HasPrefix(doc, "# Source: ") {
		return fmt.Errorf("%s %s: no source", u.GetKind(), u.GetName())
	}
	b.guards = append(b.guards, text)
	return nil
}

// manifest is an object of the bundle. OLM puts it into the namespace of its own choice.
func (b *builder) manifest(u unstructured.Unstructured) error {
	u.SetNamespace("")
	return b.write("bundle/manifests/"+u.GetName()+"."+strings.ToLower(u.GetKind())+".yaml", u.Object)
}

func (b *builder) write(file string, object map[string]any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	if _, twice := b.files[file]; twice {
		return fmt.Errorf("%s is written twice", file)
	}
	b.files[file] = "# Made from the chart: go generate ./test/deploy.\n" + string(text)
	return nil
}

func (b *builder) finish(r Release) error {
	if b.deployment == nil || b.role == nil {
		return fmt.Errorf("want a Deployment and ClusterRole %s", controller)
	}
	spec := b.deployment["spec"].(map[string]any)
	pod := unstructured.Unstructured{Object: spec["template"].(map[string]any)["spec"].(map[string]any)}
	volumes, containers := pod.Object["volumes"].([]any), pod.Object["containers"].([]any)
	pod.Object["volumes"] = append(volumes,
		map[string]any{"name": "guards", "configMap": map[string]any{"name": Guards}})
	container := containers[0].(map[string]any)
	container["volumeMounts"] = append(container["volumeMounts"].([]any),
		map[string]any{"name": "guards", "mountPath": "/etc/forcefence-guards", "readOnly": true})

	csv := unstructured.Unstructured{Object: b.csv}
	csv.SetName(pkg + ".v" + r.Version)
	notes := csv.GetAnnotations()
	notes["containerImage"] = container["image"].(string)
	notes["operatorframework.io/suggested-namespace"] = Namespace
	csv.SetAnnotations(notes)
	own := csv.Object["spec"].(map[string]any)
	own["version"] = r.Version
	own["keywords"] = b.chart["keywords"]
	own["minKubeVersion"] = strings.TrimSuffix(strings.TrimPrefix(b.chart["kubeVersion"].(string), ">="), "-0")
	if r.Replaces != "" {
		own["replaces"] = pkg + ".v" + r.Replaces
	}
	own["install"] = map[string]any{
		"strategy": "deployment",
		"spec": map[string]any{
			"clusterPermissions": []any{map[string]any{"serviceAccountName": pkg, "rules": b.role["rules"]}},
			"deployments": []any{
				map[string]any{"name": pkg, "label": b.deployment["metadata"].(map[string]any)["labels"],
					"spec": spec}},
		},
	}
	if err := b.write("bundle/manifests/"+pkg+".clusterserviceversion.yaml", csv.Object); err != nil {
		return err
	}
	b.files["bundle/metadata/annotations.yaml"] = `# Made by go generate ./test/deploy.
annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: ` + pkg + `
  operators.operatorframework.io.bundle.channels.v1: stable
  operators.operatorframework.io.bundle.channel.default.v1: stable
`
	b.files["guards.yaml"] =
		`# These objects cannot be in the bundle for OLM. Apply them as cluster-admin: kubectl apply --server-side -f
# Generated from the chart: go generate ./test/deploy
apiVersion: v1
kind: Namespace
metadata:
  name: ` + Namespace + `
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
` + strings.Join(b.guards, "---\n") + `---
# The last one: the controller's pods wait for it.
apiVersion: v1
kind: ConfigMap
metadata: {name: ` + Guards + `, namespace: ` + Namespace + `, labels: {app.kubernetes.io/part-of: forcefence}}
data: {version: "` + r.Version + `"}
`
	return nil
}

// WithoutRelease returns what the chart rendered without the labels that say of which release of Helm's an object is.
func WithoutRelease(rendered string) string { return ofRelease.ReplaceAllString(rendered, "") }

// ofRelease matches these labels in a mapping of labels, and the one of a pod.
var ofRelease = regexp.MustCompile(`(, app.kubernetes.io/name: forcefence)?, app.kubernetes.io/instance: [^}]*` +
	`helm.sh/chart: [^,}]*|\n +app.kubernetes.io/instance: "forcefence"`)

// Image takes NAME@sha256:DIGEST apart: a release names its image by what it is.
func Image(name string) (repository, digest string, ok bool) {
	repository, digest, ok = strings.Cut(name, "@")
	return repository, digest, ok && repository != "" && strings.HasPrefix(digest, "sha256:")
}

// Write puts the files into a folder.
func Write(dir string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
