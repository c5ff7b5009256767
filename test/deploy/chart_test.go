package deploy

import (
	"flag"
	"maps"
	"os"
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

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

//go:generate go test . -run ^TestRendered$ -update

const (
	chart     = "../../deploy/helm/forcefence"
	someImage = "testdata/image.yaml" // values: the chart has no image of its own to begin with
)

// ownNamespace is the release's namespace, which a user makes before the install.
const ownNamespace = `apiVersion: v1
kind: Namespace
metadata:
  name: forcefence-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

var update = flag.Bool("update", false, "write what is rendered from the chart's templates")

// helm runs the real program and returns what it printed.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs helm")
	}
	return cluster.Helm(t.Context(), kubeconfig, args...)
}

// charted is what the chart renders with values on top of its own, for an image that nodes know as forcefence:dev:
// without Helm's hooks, and without the labels that say which release an object is from.
func charted(t *testing.T, values string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs helm")
	}
	out, err := cluster.RenderChart(t.Context(), chart, values)
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

// features are what users ask the chart for, and the values that do.
var features = map[string]string{
	"nothing":  "{}",
	"agents":   "config: {providers: [{name: racks, fenceagent: {agent: fence_ipmilan}}]}",
	"any node": "controller: {onControlPlane: false}",
	"an account in AWS": "serviceAccount: {annotations: {eks.amazonaws.com/role-arn: " +
		"'arn:aws:iam::123456789012:role/forcefence'}}",
	"delete-attachments": "config: {onDetachTimeout: delete-attachments}",
	"drain":              "config: {storage: [{name: disks}], drain: [{name: disks, storage: disks}]}",
	"drain of Longhorn": "config: {storage: [{name: longhorn, preset: longhorn}], drain: [{name: longhorn, " +
		"storage: longhorn, delegate: true}]}",
	"a runtime": "hook: {runtimeCommand: /opt/bin/containerd --config /etc/c.toml}",
	"handOver":  "config: {karpenter: handOver}",
	"leases":    "config: {releaseLeases: [{namespace: cnpg-system, names: [db9c8771.cnpg.io]}]}",
	"longhorn":  "config: {policies: [{name: longhorn, preset: longhorn, withoutProof: accept-duplicates}]}",
	"machine keys": "admissionPolicies: {machineKeys: [example.net/chassis, example.net/bmc, " +
		"example.net/rack]}",
	"metal3": "config: {providers: [{name: racks, metal3: {namespaces: [metal3], powerOff: request}}]}",
	"monitoring": "metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, " +
		"dashboard: {enabled: true}}",
	"network fence": "config: {policies: [{name: rbd, drivers: [rook-ceph.rbd.csi.ceph.com], " +
		"networkFenceClasses: [rbd], withoutProof: storage-fences}]}",
	"noobaa":           "config: {policies: [{name: noobaa, preset: noobaa, withoutProof: accept-duplicates}]}",
	"out-of-service":   "{config: {onDetachTimeout: out-of-service}, admissionPolicies: {outOfServiceGuard: true}}",
	"remediation":      "config: {remediation: {namespaces: [forcefence-requests]}}",
	"replaceMachine":   "config: {remediation: {namespaces: [forcefence-requests], onGiveUp: replaceMachine}}",
	"required plugins": "hook: {requiredPlugins: true}",
	"status page":      `config: {listen: {metrics: ":8080", status: "127.0.0.1:8082"}}`,
	"storageos": "config: {policies: [{name: storageos, preset: storageos, storage: pool, withoutProof: " +
		"storage-fences}], storage: [{name: pool}]}",
	"taint key": "config: {taintKey: example.net/off}",
	"uninstall": "hook: {uninstall: true}",
}

// copies are files that the chart has to carry with it, by where they come from.
var copies = map[string]string{
	"../../deploy/alerts/forcefence.rules.yaml": chart + "/files/forcefence.rules.yaml",
	"../../deploy/dashboards/forcefence.json":   chart + "/files/forcefence.json",
}

// TestConfiguration: the controller's file has the keys of the values over the chart's own.
func TestConfiguration(t *testing.T) {
	for name, text := range features {
		var values struct{ Config map[string]any }
		kit.Must(t, yaml.Unmarshal([]byte(text), &values))
		want := ownValues(t)["config"].(map[string]any)
		maps.Copy(want, values.Config)
		got := configOf(t, byKey(t, charted(t, text))["ConfigMap "+namespace+"/forcefence"])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: config.yaml (-values +chart):\n%s", name, diff)
		}
	}
}

// TestTaintKey: another key for the mark is in all objects, no matter what else is asked for.
func TestTaintKey(t *testing.T) {
	out := charted(t, `
config:
  taintKey: example.net/off
  onDetachTimeout: delete-attachments
  karpenter: handOver
  providers: [{name: racks, fenceagent: {agent: fence_ipmilan}}]
  releaseLeases: [{namespace: a, names: [x]}]
  remediation: {namespaces: [a]}
  storage: [{name: disks}, {name: longhorn, preset: longhorn}]
  drain: [{name: disks, storage: disks}, {name: longhorn, storage: longhorn, delegate: true}]
  policies:
  - {name: longhorn, preset: longhorn, withoutProof: accept-duplicates}
  - {name: storageos, preset: storageos, storage: disks, withoutProof: storage-fences}
  - {name: rbd, drivers: [csi.example.net], networkFenceClasses: [rbd], withoutProof: storage-fences}
admissionPolicies: {outOfServiceGuard: true}
hook: {requiredPlugins: true}
`)
	wantCounts(t, out, map[string]int{
		key:                                     0,
		`"'example.net/off'"`:                   6, // the policies about nodes, and about pods that are exempt
		"- {key: example.net/off, operator: Ex": 1, // the controller's toleration
		"taintKey: example.net/off\n":           1,
		"- --taint-key=example.net/off\n":       1, // the hook's
	})
}

func wantCounts(t *testing.T, rendered string, counts map[string]int) {
	t.Helper()
	for text, want := range counts {
		if got := strings.Count(rendered, text); got != want {
			t.Errorf("%q in what is rendered: got %d times, want %d", text, got, want)
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

// TestRendered: install.yaml is what the chart renders, and the chart's files are those of deploy. `go generate
// ./test/deploy` writes them.
func TestRendered(t *testing.T) {
	for from, to := range copies {
		text, err := os.ReadFile(from)
		kit.Must(t, err)
		keep(t, to, from, string(text))
	}
	keep(t, chart+"/files/defaults.yaml", chart+"/values.yaml", defaults(t))
	keep(t, "../../deploy/install.yaml", "the chart", "# forcefence, as the chart of deploy/helm/forcefence renders "+
		"it with its own values and the hook: go generate ./test/deploy. See deploy/README.md.\n"+
		ownNamespace+charted(t, "crds: {keep: false}"))
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
	kit.Must(t, os.WriteFile(file, []byte(want), 0o644))
}

// TestOpenShift renders for an API server that has OpenShift's SecurityContextConstraints: no pod but the hook's names
// a user, which restricted-v2 would refuse, and the hook may use the SCC privileged. Elsewhere neither is so.
func TestOpenShift(t *testing.T) {
	const values = "image: {repository: registry.example.net/forcefence, tag: v1}\nproofGuard: {enabled: true}\n" +
		"hook: {enabled: true}\nconfig: {signing: {keyFile: /etc/forcefence-signing/key}}\n"
	const binding = "name: system:openshift:scc:privileged"
	for _, tc := range []struct {
		args                  []string
		users, groups, scopes int
	}{{nil, 4, 2, 0}, {[]string{"--api-versions", "security.openshift.io/v1"}, 0, 0, 1}} {
		out, err := helm(t, "", append([]string{"template", "forcefence", chart, "-n", "forcefence-system", "-f",
			valuesFile(t, values)}, tc.args...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", tc.args, err, out)
		}
		wantCounts(t, out, map[string]int{
			"runAsUser: 65532": tc.users, "fsGroup: 65532": tc.groups, binding: tc.scopes, "runAsUser: 0 ": 1,
		})
	}
}

// TestTolerationsOfThePlane holds that what must run on control-plane nodes tolerates the taints that distributions put
// there (docs/platforms.md).
func TestTolerationsOfThePlane(t *testing.T) {
	out := charted(t, "image: {repository: registry.example.net/forcefence, tag: v1}\nproofGuard: {enabled: true}\n"+
		"config: {signing: {keyFile: /etc/forcefence-signing/key}}\n")
	for _, key := range []string{
		"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd",
		"CriticalAddonsOnly",
	} { // of the controller and of the proof guard
		wantCounts(t, out, map[string]int{"- {key: " + key + ", operator: Exists}": 2})
	}
}
