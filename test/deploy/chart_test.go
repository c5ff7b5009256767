package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

//go:generate go test . -run ^TestRendered$ -update

const (
	chart     = "../../deploy/helm/forcefence"
	kustomize = "../../deploy/kustomize"
	someImage = "testdata/image.yaml" // values: the chart has no image of its own to begin with
)

var update = flag.Bool("update", false, "write what is rendered from the chart's templates")

// helm runs the real program, with a home of its own, and returns what it printed.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs helm")
	}
	bin, err := binaries.Build(t.Context(), binaries.Options{Names: []string{binaries.Helm}})
	kit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, binaries.Helm), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+kubeconfig)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), nil
}

// charted is what the chart renders with values on top of its own, for an image that nodes know as forcefence:dev:
// without Helm's hooks, and without the labels that say which release an object is from.
func charted(t *testing.T, values string) string {
	t.Helper()
	out, err := helm(t, "", "template", "forcefence", chart, "--namespace", namespace, "--no-hooks",
		"--values", someImage, "--values", valuesFile(t, values))
	kit.Must(t, err)
	return withoutRelease(out)
}

// withoutRelease returns what the chart rendered without the labels that say of which release of Helm's an object is.
func withoutRelease(rendered string) string { return ofRelease.ReplaceAllString(rendered, "") }

// ofRelease matches these labels in a mapping of labels, and the one of a pod.
var ofRelease = regexp.MustCompile(`(, app.kubernetes.io/name: forcefence)?, app.kubernetes.io/instance: [^}]*` +
	`helm.sh/chart: [^,}]*|\n +app.kubernetes.io/instance: "forcefence"`)

func valuesFile(t *testing.T, values string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	kit.Must(t, os.WriteFile(file, []byte(values), 0o600))
	return file
}

// component is one of kustomize's, and the values by which the chart renders the same.
type component struct {
	name   string
	values string
	add    []string          // components, in kustomize's order; nil: the one of that name
	files  map[string]string // beside them
}

var components = []component{
	{name: "plain", values: "{}", add: []string{}},
	{name: "agents", values: "config: {providers: [{name: racks, fenceagent: {agent: fence_ipmilan}}]}"},
	{name: "any-node", values: "controller: {onControlPlane: false}"},
	{name: "aws-role", values: "serviceAccount: {annotations: {eks.amazonaws.com/role-arn: " +
		"'arn:aws:iam::123456789012:role/forcefence'}}",
		files: helper("aws-role", "roleARN: 'arn:aws:iam::123456789012:role/forcefence'")},
	{name: "delete-attachments", values: "config: {onDetachTimeout: delete-attachments}"},
	{name: "drain", values: "config: {storage: [{name: disks}], drain: [{name: disks, storage: disks}]}"},
	{name: "drain-longhorn", values: "config: {storage: [{name: longhorn, preset: longhorn}], drain: [{name: " +
		"longhorn, storage: longhorn, delegate: true}]}"},
	{name: "k3s", values: "hook: {layout: k3s}"},
	{name: "karpenter", values: "config: {karpenter: handOver}"},
	{name: "leases", values: "config: {releaseLeases: [{namespace: cnpg-system, names: [db9c8771.cnpg.io]}]}"},
	{name: "longhorn", values: "config: {policies: [{name: longhorn, preset: longhorn, withoutProof: " +
		"accept-duplicates}]}"},
	{name: "machine-keys", values: "admissionPolicies: {machineKeys: [example.net/bmc, example.net/rack]}",
		files: helper("machine-keys", "keys: 'example.net/bmc,example.net/rack'")},
	{name: "metal3", values: "config: {providers: [{name: racks, metal3: {namespaces: [metal3], powerOff: request}}]}"},
	{name: "monitoring", values: "metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, " +
		"dashboard: {enabled: true}}"},
	{name: "network-fence", values: "config: {policies: [{name: rbd, drivers: [rook-ceph.rbd.csi.ceph.com], " +
		"networkFenceClasses: [rbd], withoutProof: storage-fences}]}"},
	{name: "noobaa", values: "config: {policies: [{name: noobaa, preset: noobaa, withoutProof: accept-duplicates}]}",
		add: []string{}},
	{name: "out-of-service", values: "config: {onDetachTimeout: out-of-service}"},
	{name: "out-of-service-guard", values: "admissionPolicies: {outOfServiceGuard: true}"},
	{name: "remediation", values: "config: {remediation: {namespaces: [forcefence-requests]}}"},
	{name: "required-plugins", values: "hook: {layout: k3s, requiredPlugins: true}",
		add: []string{"k3s", "required-plugins"}},
	{name: "status", values: `config: {listen: {metrics: ":8080", status: "127.0.0.1:8082"}}`},
	{name: "storageos", values: "config: {policies: [{name: storageos, preset: storageos, storage: pool, " +
		"withoutProof: storage-fences}], storage: [{name: pool}]}"},
	{name: "taint-key", values: "config: {taintKey: example.net/off}", files: otherTaintKey},
	{name: "uninstall", values: "hook: {layout: k3s, uninstall: true}", add: []string{"k3s", "uninstall"}},
}

// helper is a component's ConfigMap, as README.md shows it.
func helper(component, data string) map[string]string {
	return map[string]string{component + ".yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: forcefence-` + component + `, annotations: {config.kubernetes.io/local-config: "true"}}
data: {` + data + `}
`}
}

// inKustomize are the values by which the chart renders what kustomize does without a component.
const inKustomize = `
image: {repository: registry.example.net/forcefence, tag: v1, agents: forcefence-agents}
crds: {keep: false}
`

// rendered are the files of deploy that are made from templates of the chart, with the component whose values they
// want.
var rendered = []struct {
	component string
	files     map[string]string // template -> file below deploy/kustomize
}{
	{"plain", map[string]string{
		"deployment.yaml":           "base/deployment.yaml",
		"flowschema.yaml":           "base/flowschema.yaml",
		"networkpolicy.yaml":        "base/networkpolicy.yaml",
		"people.yaml":               "base/people.yaml",
		"policy-controller.yaml":    "base/policy-controller.yaml",
		"policy-kubelet.yaml":       "base/policy-kubelet.yaml",
		"policy-mark.yaml":          "base/policy-mark.yaml",
		"rbac.yaml":                 "base/rbac.yaml",
		"node/daemonset.yaml":       "node/daemonset.yaml",
		"node/namespace.yaml":       "node/namespace.yaml",
		"node/people.yaml":          "node/people.yaml",
		"node/policy-tolerate.yaml": "node/policy-tolerate.yaml",
	}},
	{"delete-attachments",
		map[string]string{"policy-overdue-attachment.yaml": "components/delete-attachments/policy.yaml"}},
	{"drain", map[string]string{"policy-budget.yaml": "components/drain/policy.yaml"}},
	{"drain-longhorn", map[string]string{"rbac-longhorn.yaml": "components/drain-longhorn/role.yaml"}},
	{"karpenter", map[string]string{"karpenter.yaml": "components/karpenter/role.yaml"}},
	{"leases", map[string]string{"leases.yaml": "components/leases/role.yaml"}},
	{"longhorn", map[string]string{"policy-attachment.yaml": "components/longhorn/policy-attachment.yaml"}},
	{"metal3", map[string]string{"metal3.yaml": "components/metal3/role.yaml"}},
	{"network-fence", map[string]string{
		"networkfence.yaml":      "components/network-fence/role.yaml",
		"policy-attachment.yaml": "components/network-fence/policy-attachment.yaml",
	}},
	{"out-of-service-guard",
		map[string]string{"policy-out-of-service.yaml": "components/out-of-service-guard/policy.yaml"}},
	{"remediation", map[string]string{"remediation.yaml": "components/remediation/role.yaml"}},
	{"status", map[string]string{"status.yaml": "components/status/rbac.yaml"}},
	{"storageos", map[string]string{"policy-storage-attachment.yaml": "components/storageos/attachments.yaml"}},
}

// copies are files that the chart has to carry with it, by where they come from.
var copies = map[string]string{
	"../../deploy/alerts/forcefence.rules.yaml": chart + "/files/forcefence.rules.yaml",
	"../../deploy/dashboards/forcefence.json":   chart + "/files/forcefence.json",
}

// TestChartIsKustomize: an install by the chart makes the objects that kustomize gives, in every variant.
func TestChartIsKustomize(t *testing.T) {
	text, err := os.ReadFile(kustomize + "/base/config.yaml")
	kit.Must(t, err)
	var config map[string]any
	kit.Must(t, yaml.Unmarshal(text, &config))
	tested := map[string]bool{}
	for _, c := range components {
		if c.add == nil {
			c.add = []string{c.name}
		}
		for _, name := range c.add {
			tested[name] = true
		}
		t.Run(c.name, func(t *testing.T) {
			var own, values map[string]any
			kit.Must(t, yaml.Unmarshal([]byte(inKustomize), &values))
			kit.Must(t, yaml.Unmarshal([]byte(c.values), &own))
			maps.Copy(values, own)
			asked, _ := own["config"].(map[string]any)
			merged := maps.Clone(config)
			maps.Copy(merged, asked)
			values["config"] = merged
			text, err := yaml.Marshal(values)
			kit.Must(t, err)
			got := byKey(t, charted(t, string(text)))
			want := byKey(t, render(t, kit.Overlay(t, []string{"base", "node"}, c.add, c.files)))
			delete(want, "Namespace /"+namespace) // helm install --create-namespace
			file := "ConfigMap " + namespace + "/forcefence"
			if diff := cmp.Diff(merged, configOf(t, got[file])); diff != "" {
				t.Errorf("config.yaml (-values +chart):\n%s", diff)
			}
			delete(want, file) // that is the user's to write
			delete(got, file)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize's objects and the chart's (-kustomize +chart):\n%s", diff)
			}
		})
	}
	folders, err := os.ReadDir(kustomize + "/components")
	kit.Must(t, err)
	for _, f := range folders {
		if !tested[f.Name()] {
			t.Errorf("component %s: nothing says by which values the chart does the same", f.Name())
		}
	}
}

// TestContainersAreReadOnly: no container writes its own root file system, and what runs on a node all the time, the
// host's. All run on Linux: the image has no other program, and the hook's DaemonSet tolerates everything. Without the
// selector it would sit on every Windows node and never become ready.
func TestContainersAreReadOnly(t *testing.T) {
	for values, writable := range map[string][]string{
		"{}": {"install"}, "hook: {uninstall: true}": {"uninstall", "uninstalled"}} {
		objects := byKey(t, charted(t, values))
		for _, key := range []string{
			"Deployment " + namespace + "/forcefence", "DaemonSet " + nodeNamespace + "/forcefence-node"} {
			pod := typed[appsv1.Deployment](t, objects[key]).Spec.Template.Spec // a DaemonSet's is in the same place
			if got := pod.NodeSelector[corev1.LabelOSStable]; got != "linux" {
				t.Errorf("%s: %s: nodeSelector %s: got %q, want linux", values, key, corev1.LabelOSStable, got)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				s := c.SecurityContext
				if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
					!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
					t.Errorf("%s: container %s of %s: got %+v", values, c.Name, key, s)
				}
				for _, m := range c.VolumeMounts {
					if m.Name == "host" && m.ReadOnly == slices.Contains(writable, c.Name) {
						t.Errorf("%s: container %s has the host's root read-only: %t", values, c.Name, m.ReadOnly)
					}
				}
			}
		}
	}
}

// byKey are objects by kind, namespace and name.
func byKey(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, u := range parse(t, text) {
		key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if out[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		out[key] = u.Object
	}
	return out
}

// configOf is what a ConfigMap holds under config.yaml.
func configOf(t *testing.T, cm map[string]any) (config map[string]any) {
	t.Helper()
	text, _, err := unstructured.NestedString(cm, "data", "config.yaml")
	kit.Must(t, err)
	kit.Must(t, yaml.Unmarshal([]byte(text), &config))
	return config
}

// TestRendered: kustomize's manifests and install.yaml are what the chart renders, and the chart's files are those of
// deploy. `go generate ./test/deploy` writes them.
func TestRendered(t *testing.T) {
	for from, to := range copies {
		text, err := os.ReadFile(from)
		kit.Must(t, err)
		keep(t, to, from, string(text))
	}
	keep(t, chart+"/files/defaults.yaml", chart+"/values.yaml", defaults(t))
	for _, r := range rendered {
		i := slices.IndexFunc(components, func(c component) bool { return c.name == r.component })
		parts := byTemplate(t, charted(t, components[i].values))
		for _, name := range slices.Sorted(maps.Keys(r.files)) {
			source := "deploy/helm/forcefence/templates/" + name
			text := "# Rendered from " + source + ": change that, and go generate ./test/deploy.\n" +
				strings.Join(inOrder(t, name, parts[name]), "---\n")
			keep(t, filepath.Join(kustomize, r.files[name]), source, text)
		}
	}
	ns, err := os.ReadFile(kustomize + "/base/namespace.yaml")
	kit.Must(t, err)
	keep(t, "../../deploy/install.yaml", "the chart", "# forcefence, as the chart of deploy/helm/forcefence renders "+
		"it with its own values: go generate ./test/deploy. See deploy/README.md.\n"+
		string(ns)+charted(t, "crds: {keep: false}"))
}

// defaults are the chart's values by which its templates complete those of an earlier chart: templates cannot read
// values.yaml. Of the configuration they complete what the chart says otherwise than the program.
func defaults(t *testing.T) string {
	t.Helper()
	values := ownValues(t)
	config := values["config"].(map[string]any)
	values["config"] = map[string]any{"mode": config["mode"], "listen": config["listen"]}
	text, err := yaml.Marshal(values)
	kit.Must(t, err)
	return "# Of values.yaml, for values that are missing or null: change that, and go generate ./test/deploy.\n" +
		string(text)
}

// ownValues are the chart's.
func ownValues(t *testing.T) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(chart + "/values.yaml")
	kit.Must(t, err)
	kit.Must(t, yaml.Unmarshal(text, &values))
	return values
}

// keep holds a file against what it is made from, or writes it.
func keep(t *testing.T, file, source, want string) {
	t.Helper()
	have, err := os.ReadFile(file)
	if err == nil && string(have) == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what %s says (go generate ./test/deploy): %s", file, source, cmp.Diff(string(have), want))
		return
	}
	kit.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	kit.Must(t, os.WriteFile(file, []byte(want), 0o644))
}

// byTemplate are the documents of each template, by its path.
func byTemplate(t *testing.T, text string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		head, body, ok := strings.Cut(doc, "\n")
		name, isSource := strings.CutPrefix(head, "# Source: forcefence/templates/")
		if !ok || !isSource {
			t.Fatalf("a document without its source:\n%s", doc)
		}
		out[name] = append(out[name], strings.Trim(body, "\n")+"\n")
	}
	return out
}

// inOrder puts the documents of a template back into its own order: Helm sorts them by kind.
func inOrder(t *testing.T, name string, docs []string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "templates", name))
	kit.Must(t, err)
	place := func(doc string) int {
		var u unstructured.Unstructured
		kit.Must(t, yaml.Unmarshal([]byte(doc), &u.Object))
		at := regexp.MustCompile(`(?m)^kind: ` + u.GetKind() + `\nmetadata:(?: \{|\n  )name: (?:` +
			regexp.QuoteMeta(u.GetName()) + `\b[^-]|\{\{)`).FindIndex(text)
		if at == nil {
			t.Fatalf("%s has no %s %s", name, u.GetKind(), u.GetName())
		}
		return at[0]
	}
	slices.SortStableFunc(docs, func(a, b string) int { return place(a) - place(b) })
	return docs
}
