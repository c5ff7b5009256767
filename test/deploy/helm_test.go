package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestChartLints: the chart lints with its own values, and with those of every feature, and names the definition's
// version for Artifact Hub.
func TestChartLints(t *testing.T) {
	var about struct{ Annotations map[string]string }
	text, err := os.ReadFile(chart + "/Chart.yaml")
	kit.Must(t, err)
	kit.Must(t, yaml.Unmarshal(text, &about))
	var listed []struct{ Name, Version string }
	kit.Must(t, yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/crds"]), &listed))
	text, err = os.ReadFile(chart + "/files/forcefence.io_fencings.yaml")
	kit.Must(t, err)
	crd := parse(t, string(text))[0]
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	kit.Must(t, err)
	if version := versions[0].(map[string]any)["name"]; len(listed) != 1 || listed[0].Name != crd.GetName() ||
		listed[0].Version != version {
		t.Errorf("artifacthub.io/crds: got %v, want %s, %s", listed, crd.GetName(), version)
	}
	for name, values := range features {
		out, err := helm(t, "", "lint", "--strict", chart, "--values", someImage, "--values", valuesFile(t, values))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestValues: what is wrong is refused with its place, before anything reaches the cluster.
func TestValues(t *testing.T) {
	digest, agents := strings.Repeat("0", 64), "config: {providers: [{name: agents, fenceagent: {agent: "+
		"fence_ipmilan}}]}"
	for _, r := range []struct{ values, want string }{ // want: in the error
		{"controller: {replicas: two}", "at '/controller/replicas': got string, want integer"},
		{"controler: {replicas: 2}", "\ncontroler: unknown key: did you mean \"controller\"?\n"},
		{"zzz: 1", "\nzzz: unknown key: known are admissionPolicies, bmcSecret, "},
		{"mode: fence", "\nmode: is a key of forcefence's configuration: write it under config\n"},
		{"{providers: [], nodes: [], stormGuard: {}}", "\nnodes: is a key of forcefence's configuration: write it under " +
			"config\nproviders: is a key of forcefence's configuration: write it under config\nstormGuard: is a key "},
		{"typesFit: true", "at '': 'not' failed"}, // the mark of checked values,
		{"controller: {resources: {requests: {memory: 2Gi}}}", "\ncontroller.resources.requests.memory: 2Gi is more " +
			"than limits.memory, 1Gi: no pod can have that. Lower the request, or raise the limit\n"},
		{"hook: {resources: {requests: {cpu: 1500m}, limits: {cpu: 1}}}", "\nhook.resources.requests.cpu: 1500m is " +
			"more than limits.cpu, 1: "},
		{"proofGuard: {resources: {requests: {memory: 1Gi}, limits: {memory: 1000Mi}}}",
			"\nproofGuard.resources.requests.memory: 1Gi is more than "},
		{"config: {powerOffAfter: 7d}", "\nconfig.powerOffAfter: a duration has no days: write \"168h\"\n"},
		{"nameOverride: mine", "\nnameOverride: unknown key: known are "},
		{"image: {tag: 1.2}", "at '/image/tag': got number, want string"},
		{"image: {digest: latest}", "at '/image/digest'"},
		{"image: {tag: 'v 1'}", `image.tag: "v 1" is not a tag`},
		{"image: {tag: v1+dirty}", `image.tag: "v1+dirty" is not a tag`},
		{"image: {repository: ''}", "image.repository: missing"},
		{"image: {tag: ''}", "image.tag: missing: this chart is of no release"},
		{"image: {repository: 'registry.example.net:5000/forcefence:v1'}", "is not the name of an image"},
		{"service: {status: {enabled: true}}", "service.status.enabled: the page is off, or listens on loopback"},
		{"service: {events: {enabled: true}}", "service.events.enabled: no provider listens for events"},
		{"ingress: {enabled: true}", "ingress.enabled: leads to the page's Service"},
		{"ingress: {enabled: true}", "ingress.hosts: missing"},
		{"{config: {listen: {metrics: '127.0.0.1:8080'}}, metrics: {serviceMonitor: {enabled: true}}}",
			`Prometheus cannot reach config.listen.metrics "127.0.0.1:8080": write ":8080"`},
		{"{config: {listen: {metrics: 'localhost:9090'}}, metrics: {podMonitor: {enabled: true}}}",
			`metrics.podMonitor.enabled: Prometheus cannot reach`},
		{"metrics: {podMonitor: {interval: 30s, scrapeTimeout: 1m}}", "metrics.podMonitor.scrapeTimeout: " +
			"must be at most"},
		{"metrics: {prometheusRule: {disabled: {HookMissing: true}, customRules: {Storm: {for: 1m}}}}",
			"metrics.prometheusRule.disabled.HookMissing: no such alert: known are ForcefenceMarkStuck, "},
		{"metrics: {prometheusRule: {customRules: {Storm: {for: 1m}}}}",
			"metrics.prometheusRule.customRules.Storm: no such alert"},
		{"controller: {hostPorts: [{hostPort: 443}]}",
			"at '/controller/hostPorts/0': missing property 'containerPort'"},
		{"controller: {hostNetwork: true, hostPorts: [{containerPort: 8444, hostPort: 443}]}",
			"controller.hostPorts[0]: with hostNetwork the node has the container's port"},
		{"hook: {updateStrategy: {type: Recreate}}", "at '/hook/updateStrategy/type'"},
		{"hook: {namespace: default}", "\nhook.namespace: default is the release's namespace"}, // helm template's
		{"hook: {enabled: false, requiredPlugins: true}",
			"\nhook.requiredPlugins: has no effect without hook.enabled: set it, too"},
		{"hook: {runtimeArgs: [--runtime-unit=x]}", "at '/hook/runtimeArgs'"},
		{"hook: {runtimeCommand: containerd}", "at '/hook/runtimeCommand'"},
		{"extraSecrets: [{name: rack-b}]", "at '/extraSecrets/0': missing property 'mountPath'"},
		{"hook: {podLabels: {app.kubernetes.io/component: x}}", "at '/hook/podLabels/app.kubernetes.io~1component'"},
		{"commonLabels: {app.kubernetes.io/name: x}", "at '/commonLabels/app.kubernetes.io~1name'"},
		{"metrics: {podMonitor: {interval: 30}}", "at '/metrics/podMonitor/interval': got number, want string"},
		{"config: {mode: observ}",
			"\nconfig.mode: must be observe, onRequest, fence, shadow or disabled: did you mean \"observe\"?\n"},
		{"config: {karpenter: yes}", "\nconfig.karpenter: must be ignore, leaveDeleting or handOver\n"},
		{"config: {excludeSelector: yes}", "\nconfig.excludeSelector: want text, have true or false: put it in quotes\n"},
		{"config: {taintKey: a/b/c}", "\nconfig.taintKey: no taint can have this key: it must look like "},
		{"config: {providers: [{name: r, redfish: {" + login + ", events: 'yes'}}]}",
			"\nconfig.providers[0].redfish.events: must be off, sse or push\n"},
		{"config: {powerOffAfter: 30}", "\nconfig.powerOffAfter: a duration needs a unit: \"30s\"?\n"},
		{"config: {powerOffAfter: 1 minute}", "\nconfig.powerOffAfter: not a duration: "},
		{"config: {stormGard: {}}", "\nconfig.stormGard: unknown key: did you mean \"stormGuard\"?\n"},
		{"config: {listen: 8080}", "\nconfig.listen: want a mapping ("},
		{"config: {nodes: {a: b}}", "\nconfig.nodes: want a list (lines that begin with -), have a mapping\n"},
		{"config: {listen: {metrics: ''}}", "\nconfig.listen.metrics: must be host:port, such as "},
		{"config: {pauseConfigMap: stop}", "add --set config.pauseConfigMap=null"},
		{"config: {listen: {health: ':9090'}, powerOnDelay: 5m}",
			"add --set config.listen.health=null,config.powerOnDelay=null"},
		{"config: {taintKey: \"o'k\"}", "\nconfig.taintKey: no taint can have this key"},
		{"config: {providers: [{name: r, redfish: {usrname: x}}]}",
			"\nconfig.providers[0].redfish.usrname: unknown key: did you mean \"username\"?\n"},
		{"config: {providers: [{name: r, redfish: {passwordEnv: A}}]}",
			"\nconfig.providers[0].redfish.username: missing\n"},
		{"config: {providers: [{name: r, ipmi: {username: a}}]}",
			"\nconfig.providers[0].ipmi.passwordFile: missing"},
		{"config: {providers: [{name: r, ipmi: {" + login + "}, redfish: {" + login + "}}]}",
			"config.providers[0]: a provider has one type, and this one has ipmi, redfish"},
		{"config: {providers: [{name: r, confirm: {}, concurrency: 0}]}",
			"\nconfig.providers[0].concurrency: must be from 1 to 100\n"},
		{"config: {stormGuard: {maxPowerOffs: lots}}", "\nconfig.stormGuard.maxPowerOffs: must be a whole number of " +
			"nodes (3), or a share of them of at most 100% (50%), or both (1+5%)\n"},
		{"config: {stormGuard: {minHealthy: 101%}}", "\nconfig.stormGuard.minHealthy: must be a whole number of " +
			"nodes (3), or a share of them of at most 100% (50%)\n"},
		{"hook: {maxUnavailable: 200%}", "at '/hook/maxUnavailable': '200%' does not match"},
		{"global: {imageRegistry: 'https://registry.example.net'}", "at '/global/imageRegistry'"},
		{"config: {policies: [{name: l, preset: longhron}]}",
			"\nconfig.policies[0].preset: must be longhorn, noobaa or storageos: did you mean \"longhorn\"?\n"},
		{"networkPolicy: {metricsFrom: [{}]}", "at '/networkPolicy/metricsFrom/0': minProperties"},
		{"networkPolicy: {metricsFrom: monitoring}", "at '/networkPolicy/metricsFrom': got string, want array"},
		{"{image: {digest: sha256:" + digest + "}, " + agents + "}",
			"set image.agents to the whole name of the image that has them"},
		{signingValues + "proofGuard: {enabled: true, certificate: {secret: mine}}", "proofGuard.certificate.path: missing: "},
		{"proofGuard: {enabled: true}", "\nproofGuard.enabled: nothing signs proofs, so the webhook would refuse "},
		{signingValues + "proofGuard: {enabled: true, maxAge: 5m}", "\nproofGuard.maxAge: 5m must be longer than " +
			"config.detachTimeout (5m): "},
		{"{config: {detachTimeout: 20m, signing: {keyFile: /etc/forcefence-signing/key.pem}}, proofGuard: {enabled: " +
			"true}}", "\nproofGuard.maxAge: 15m must be longer than config.detachTimeout (20m): "},
		{"config: {signing: {keyFile: /etc/x/key.pem}}", "\nconfig.signing.keyFile: no volume of the pod has " +
			"/etc/x/key.pem: write /etc/forcefence-signing/key.pem, "},
		{"config: {remediation: {namespaces: [a], kubeconfig: /etc/x/c}}", "\nconfig.remediation.kubeconfig: no volume " +
			"of the pod has /etc/x/c: add to extraSecrets {name: x, mountPath: /etc/x}"},
		{"extraSecrets: [{name: a, mountPath: /etc/forcefence-signing}]", "is the folder of the key that signs proofs"},
		{"controller: {resources: {limits: {memory: 1Gib, cpu: two}}}", "\ncontroller.resources.limits.cpu: \"two\" is " +
			"not a quantity: write a number such as 2 or 250m\ncontroller.resources.limits.memory: \"1Gib\" is not a " +
			"quantity: write a number and Mi or Gi, such as 512Mi\n"},
		{"hook: {resources: {limits: {memory: 10Mi}}}", "\nhook.resources.limits.memory: 10Mi is too small for the " +
			"program to run: use at least 64Mi\n"},
		{"controller: {resources: {limits: {memory: 60e6}}}", "is too small for the program to run: "},
		{"config: {leaderElection: {enabled: false}}", "\nconfig.leaderElection.enabled: is false, and " +
			"controller.replicas is 2: both would fence at once. Set replicas to 1, or leave leaderElection on\n"},
		{"{config: {leaderElection: {enabled: false}}, controller: {replicas: 3}}", "is 3: all would fence at once. "},
		{"controller: {env: [{name: FORCEFENCE_LEADER_ELECTION_ENABLED, value: 'False'}]}", "\ncontroller.env: " +
			"FORCEFENCE_LEADER_ELECTION_ENABLED is false, and controller.replicas is 2: "},
		{"controller: {env: [{name: FORCEFENCE_LEADER_ELECTION_ENABLED, valueFrom: {configMapKeyRef: {name: a, key: " +
			"b}}}]}", "\ncontroller.env: FORCEFENCE_LEADER_ELECTION_ENABLED may be false, "},
		{"proofGuard: {certificate: {path: /review}}", "at '/proofGuard/certificate/path'"},
		{"admissionPolicies: {machineKeys: \"example.net/bmc\"}",
			"at '/admissionPolicies/machineKeys': got string, want array"},
		{"admissionPolicies: {machineKeys: [\"a', 'b\"]}", "at '/admissionPolicies/machineKeys/0'"},
		{"config: {storage: [{name: p}], policies: [{name: p, drivers: [\"a'] + ['\"]}]}",
			"\nconfig.policies[0].drivers[0]: no CSI driver can have this name"},
	} {
		if _, err := helm(t, "", "template", "forcefence", chart, "--values", someImage, "--values",
			valuesFile(t, r.values)); err == nil ||
			!strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want an error with %q", r.values, err, r.want)
		}
	}
	// What forcefence takes, the chart does.
	samples, err := filepath.Glob("../../cmd/internal/config/testdata/good/*.yaml")
	kit.Must(t, err)
	examples, err := filepath.Glob("../../deploy/examples/config-*.yaml")
	kit.Must(t, err)
	for _, file := range append(append(samples, "../../config.example.yaml"), examples...) {
		var config map[string]any
		text, err := os.ReadFile(file)
		kit.Must(t, err)
		kit.Must(t, yaml.Unmarshal(text, &config))
		listed, _ := config["providers"].([]any)
		for _, p := range listed { // some have types of a test's
			for key := range p.(map[string]any) {
				if key != "name" {
					delete(p.(map[string]any), key)
				}
			}
			p.(map[string]any)["confirm"] = map[string]any{}
		}
		replicas := 2
		if election, _ := config["leaderElection"].(map[string]any); election["enabled"] == false {
			replicas = 1
		}
		delete(config, "listen")    // a pod must be reached from outside
		delete(config, "recording") // that takes a volume
		text, err = yaml.Marshal(map[string]any{"config": config, "controller": map[string]int{"replicas": replicas},
			"extraSecrets": []map[string]string{{"name": "capi", "mountPath": "/etc/capi"}}}) // remediation.kubeconfig
		kit.Must(t, err)
		charted(t, string(text))
	}
}

// TestSwitches: what a value switches off is not rendered; by its own values and the hook the chart renders all of it,
// and Helm keeps the records' definition. The hook is a second step: by its own values the chart changes no host.
func TestSwitches(t *testing.T) {
	has := func(values, text string) bool {
		for key := range byKey(t, charted(t, values)) {
			if strings.Contains(key+"\n", text) {
				return true
			}
		}
		return false
	}
	for _, s := range []struct{ values, object string }{ // object: in its kind, namespace and name
		{"admissionPolicies: {enabled: false}", "ValidatingAdmissionPolicy"},
		{"controller: {podDisruptionBudget: false}", "PodDisruptionBudget"},
		{"crds: {install: false}", "CustomResourceDefinition"},
		{"flowSchemas: false", "FlowSchema"},
		{"networkPolicy: {enabled: false}", "NetworkPolicy"},
		{"hook: {enabled: false}", " forcefence-node/"},
		{"hook: {enabled: false}", "/forcefence-tolerate-missing"},
		{"hook: {enabled: false}", "/forcefence-bypass"},
		{"hook: {createNamespace: false}", "Namespace "},
	} {
		if on, off := has("{}", s.object), has(s.values, s.object); !on || off {
			t.Errorf("%s: %q is rendered: got %t, and %t without the value; want false and true", s.values, s.object,
				off, on)
		}
	}
	alone, err := helm(t, "", "template", "forcefence", chart, "--namespace", namespace, "--set",
		"image.repository=forcefence,image.tag=dev")
	kit.Must(t, err)
	wantCounts(t, alone, map[string]int{"kind: DaemonSet": 0, "name: forcefence-node\n": 0, "kind: Deployment": 1})
	wantCounts(t, charted(t, "hook: {enabled: false, uninstall: true}"), map[string]int{"kind: DaemonSet": 1,
		"- name: uninstalled\n": 1})
	wantCounts(t, charted(t, "{}"), map[string]int{"helm.sh/resource-policy: keep\n": 1})
	wantCounts(t, charted(t, "controller: {extraVolumes: [{name: recording, emptyDir: {}}], extraVolumeMounts: "+
		"[{name: recording, mountPath: /rec}]}"),
		map[string]int{"mountPath: /rec\n": 1, "name: recording\n": 2})
	wantCounts(t, charted(t, "crds: {keep: false}"), map[string]int{"helm.sh/resource-policy": 0})
	// Without leader election one pod at a time runs, also in a rollout.
	wantCounts(t, charted(t, "{}"), map[string]int{"one leads, the other is replaced\n": 1, "{type: Recreate}": 0})
	wantCounts(t, charted(t, "{config: {leaderElection: {enabled: false}}, controller: {replicas: 1}}"),
		map[string]int{"one leads, the other is replaced\n": 0, "{type: Recreate}": 1})
	wantCounts(t, charted(t, "{config: {leaderElection: {enabled: false}}, controller: {env: [{name: "+
		"FORCEFENCE_LEADER_ELECTION_ENABLED, value: 'true'}]}}"), map[string]int{"{type: Recreate}": 0})
	_, err = helm(t, "", "template", "forcefence", chart, "--kube-version", "1.29")
	if err == nil || !strings.Contains(err.Error(), "requires kubeVersion") {
		t.Errorf("on Kubernetes 1.29: got %v, want it refused", err)
	}
}

// TestElsewhere: in namespaces of other names, nothing names the usual ones.
func TestElsewhere(t *testing.T) {
	out, err := helm(t, "", "template", "mine", chart, "--namespace", "elsewhere", "--values", someImage, "--set",
		"hook.namespace=on-nodes,admissionPolicies.outOfServiceGuard=true",
		"--values", valuesFile(t, `config:
  onDetachTimeout: delete-attachments
  storage: [{name: pool, drivers: [csi.example.net]}]
  drain: [{name: pool, storage: pool}]
  policies: [{name: longhorn, preset: longhorn}, {name: pool, preset: storageos, storage: pool}]
`))
	kit.Must(t, err)
	wantCounts(t, out, map[string]int{
		namespace: 0, "namespace: forcefence-node": 0, "name: on-nodes": 1,
		// each of the two policies about attachments names both drivers
		`"['driver.longhorn.io', 'csi.example.net']"`:        1,
		`"['csi.example.net', 'driver.longhorn.io']"`:        1,
		`{name: drivers, expression: "['csi.example.net']"}`: 1,
	})
}

// TestHelm is a release's whole life on a real API server.
func TestHelm(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "forcefence")
	w := newWorld(t, cluster.Options{})
	_, err := w.c.AddNodes(w.ctx, 2,
		func(i int) cluster.NodeOptions { return cluster.NodeOptions{Name: fmt.Sprintf("n%d", i)} })
	kit.Must(t, err)
	run := func(args ...string) string {
		t.Helper()
		out, err := helm(t, w.c.Kubeconfig(), append(args, "--namespace", namespace)...)
		kit.Must(t, err)
		return out
	}
	set := []string{"--set", "controller.onControlPlane=false"}
	own := append([]string{"--values", someImage}, set...) // the chart's own values, and an image
	commands := w.c.RunCommands(binary, "forcefence-uninstall", "forcefence-test")
	t.Cleanup(commands.Stop)
	available := func(when string) {
		t.Helper()
		w.until("both replicas and the hooks run "+when, func() (bool, error) {
			d, ds := w.objects(t)
			return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == 2 &&
					d.Status.UpdatedReplicas == 2 && ds.Status.NumberReady == 2,
				fmt.Errorf("the Deployment says %+v, the DaemonSet %+v", d.Status, ds.Status)
		})
		w.checked()
	}

	// With the chart's own values, without a Secret, and without the CustomResourceDefinition.
	run("package", chart, "--destination", dir, "--version", "1.2.3", "--app-version", "dev")
	notes := run(
		append([]string{"install", "forcefence", filepath.Join(dir, "forcefence-1.2.3.tgz"), "--create-namespace",
			"--set", "crds.install=false"}, own...)...)
	if !strings.Contains(notes, "mode shadow") || !strings.Contains(notes, "No device is configured") ||
		!strings.HasSuffix(strings.TrimSpace(notes), "helm test forcefence --namespace "+namespace) {
		t.Errorf("install: want notes that no device is configured, and the next command at their end:\n%s", notes)
	}
	available("after the install")
	first, _ := w.objects(t)
	p := w.process(binary, dir, "pod", func(metrics, _ string) string {
		var config map[string]any
		kit.Must(t, yaml.Unmarshal([]byte(w.config(t)), &config))
		config["listen"] = map[string]string{"metrics": metrics}
		text, err := yaml.Marshal(config)
		kit.Must(t, err)
		return string(text)
	})
	w.leader("")
	w.until("the controller says what to do next", func() (bool, error) {
		list, err := w.c.Client().CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
		kit.Must(t, err)
		nodes := make([]*corev1.Node, len(list.Items))
		for i := range list.Items {
			nodes[i] = &list.Items[i]
		}
		got := view.CapacityOf(nodes, view.Cluster{}, time.Time{}).String()
		return got == beforeDevices, fmt.Errorf("it says %q", got)
	})
	w.reportsByHelmTest(t, commands)
	p.Stop()

	// An older version's CustomResourceDefinition, then this one's.
	old := filepath.Join(dir, "old")
	kit.Must(t, os.CopyFS(old, os.DirFS(chart)))
	file := filepath.Join(old, "files", "forcefence.io_fencings.yaml")
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	older := strings.Replace(string(text), "    shortNames:\n    - fcg\n", "", 1)
	if older == string(text) {
		t.Fatal("the CustomResourceDefinition has no short name")
	}
	kit.Must(t, os.WriteFile(file, []byte(older), 0o600))
	run(append([]string{"upgrade", "forcefence", old}, own...)...)
	short := func() error { _, err := w.c.Kubectl(w.ctx, "get", "fcg"); return err }
	w.until("the older definition is served", func() (bool, error) {
		_, err := w.c.Kubectl(w.ctx, "get", "fencings.forcefence.io")
		return err == nil && short() != nil, err
	})
	_, err = w.c.Kubectl(w.ctx, "create", "-f",
		valuesFile(t, `{apiVersion: forcefence.io/v1alpha1, kind: Fencing, metadata: {name: f-1},
spec: {node: n1, by: somebody, startedAt: "2026-01-02T03:04:05Z"}}`))
	kit.Must(t, err)
	w.monitored(t)
	for values, want := range map[string][]string{
		"release=stack": {"WARNING: no node has the label node-role.kubernetes.io/control-plane, "},
		"release=other": {"WARNING: no node has the label node-role.kubernetes.io/control-plane, ",
			"WARNING: no Prometheus reads metrics.prometheusRule: set metrics.prometheusRule.labels to " +
				`{"release":"stack"}`},
	} {
		notes := run("upgrade", "forcefence", chart, "--dry-run=server", "--values", someImage, "--set",
			"metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels."+values)
		var got []string
		for line := range strings.Lines(notes) {
			if strings.HasPrefix(line, "WARNING: ") {
				got = append(got, line)
			}
		}
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("labels of the alerts %s: got warnings %q, want %q", values, got, want)
		}
	}
	attachments := func() bool { return w.may(t, "delete", "volumeattachments") }
	if attachments() {
		t.Error("without a policy that wants it the controller may delete VolumeAttachments")
	}
	_, err = w.c.Kubectl(w.ctx, "-n", namespace, "create", "secret", "generic", "rack-b", "--from-literal=tls.crt=x")
	kit.Must(t, err)
	if strings.Contains(notes, "Secret") {
		t.Errorf("install: want notes without a Secret, as the configuration reads none:\n%s", notes)
	}
	notes = run(append([]string{"upgrade", "forcefence", chart, "--values", "testdata/values.yaml"}, set...)...)
	for _, want := range []string{
		"mode fence", "There is no Secret bmcs, ", "create secret generic bmcs --from-file=password=",
		"Secret rack-b has no key tls.key, ",
		"patch secret rack-b --patch \"{\\\"data\\\": {\\\"tls.key\\\": ", "create secret docker-registry registry ",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("upgrade: want notes with %q:\n%s", want, notes)
		}
	}
	w.namesSecrets(t)
	available("after the upgrade")
	for _, kind := range []string{"podmonitor", "servicemonitor", "prometheusrule"} {
		out, err := w.c.Kubectl(w.ctx, "-n", namespace, "get", kind, "forcefence", "-o", "jsonpath={.metadata.labels}")
		if err != nil || !strings.Contains(out, `"release":"prometheus"`) {
			t.Errorf("%s: got labels %s, %v, want the one by which Prometheus finds it", kind, out, err)
		}
	}
	w.until("the short name is there", func() (bool, error) { err := short(); return err == nil, err })
	w.until("the right came with the policy", func() (bool, error) { return attachments(), nil })
	if got := w.config(t); !strings.Contains(got, "mode: fence") {
		t.Errorf("config.yaml after the upgrade:\n%s", got)
	}
	changed, _ := w.objects(t)
	for _, want := range []string{
		`"image":"registry.example.net/forcefence@sha256:`, `"imagePullPolicy":"Always"`,
		`"imagePullSecrets":[{"name":"registry"}]`, `"--log-level=debug"`, `"value":"http://proxy"`,
		`"mountPath":"/etc/rack-b"`, `"secretName":"rack-b","defaultMode":288,"optional":true`,
		`"secretName":"bmcs","defaultMode":288,"optional":true`, `"key":"example.net/pool"`, `"team":"a"`,
		`"example.net/note":"b"`, `"containerPort":9090`, `"cpu":"75m"`, `"podAntiAffinity"`,
		`"name":"host-443","hostPort":443,"containerPort":8445,"protocol":"TCP"`,
		`"name":"status","containerPort":8443`,
		`"name":"events-8444","containerPort":8444`, `"hostAliases":[{"ip":"10.0.0.7"`, `"dnsPolicy":"ClusterFirst"`,
		`"dnsConfig":{"nameservers":["10.0.0.53"]}`, `"name":"before"`, `"topologyKey":"example.net/rack"`,
		`"nodeSelector":{"kubernetes.io/os":"linux"}`,
	} {
		if got, err := json.Marshal(changed.Spec); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("the Deployment after the upgrade: got %s, %v, want %s in it", got, err, want)
		}
	}

	run("rollback", "forcefence", "1")
	available("after the roll-back")
	w.until("the right is gone", func() (bool, error) { return !attachments(), nil })
	if got := w.config(t); !strings.Contains(got, "mode: shadow") {
		t.Errorf("config.yaml after the roll-back:\n%s", got)
	}
	kit.Must(t, short()) // the definition was not part of that revision, and stays with what was written
	// A change of the configuration alone restarts no pod.
	before, _ := w.objects(t)
	run(append([]string{"upgrade", "forcefence", chart, "--set", "config.mode=observe"}, own...)...)
	if after, _ := w.objects(t); after.Generation != before.Generation || first.UID != after.UID {
		t.Errorf("the Deployment: got generation %d of %s, want %d of %s as before", after.Generation, after.UID,
			before.Generation, first.UID)
	}

	// An upgrade that would delete the hook's DaemonSet and leave the hook on the hosts is refused.
	_, err = helm(t, w.c.Kubeconfig(), "upgrade", "forcefence", chart, "--namespace", namespace, "--set",
		"image.repository=forcefence,image.tag=dev")
	if err == nil || !strings.Contains(err.Error(), "\nhook.enabled: is false, and the hosts have the hook: ") {
		t.Errorf("an upgrade without hook.enabled: got %v, want it refused, as the hosts have the hook", err)
	}

	// A second one is refused, and nothing of it is there.
	_, err = helm(t, w.c.Kubeconfig(), "install", "second", chart, "--namespace", "other", "--create-namespace",
		"--values", someImage)
	if err == nil ||
		!strings.Contains(err.Error(),
			`key "meta.helm.sh/release-namespace" must equal "other": current value is "`+namespace+`"`) {
		t.Errorf("a second install: got %v, want it refused with the first one's namespace", err)
	}
	if out, err := w.c.Kubectl(w.ctx, "-n", "other", "get", "deployments,serviceaccounts,configmaps,secrets", "-o",
		"name", "-l", "app.kubernetes.io/part-of=forcefence"); err != nil || out != "" {
		t.Errorf("after the refused install: got %q, %v, want nothing of ours in its namespace", out, err)
	}
	available("after the refused install")

	// The values of an earlier chart lack those that were added since.
	earlier := filepath.Join(dir, "earlier")
	kit.Must(t, os.CopyFS(earlier, os.DirFS(chart)))
	text, err = os.ReadFile("testdata/earlier/with-listen-health.yaml")
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(filepath.Join(earlier, "values.yaml"), text, 0o600))
	run(append([]string{"upgrade", "forcefence", earlier}, own...)...)
	run("upgrade", "forcefence", chart, "--reuse-values", "--set", "controller.podLabels.again=b")
	available("after an upgrade that reuses values")
	if got := w.config(t); !strings.Contains(got, "validFor: 15m") {
		t.Errorf("config.yaml after an upgrade with --reuse-values:\n%s\nwant the earlier one", got)
	}

	// As README.md says: no controller, no hook on the hosts, and then nothing stays but the records.
	run(append([]string{"upgrade", "forcefence", chart, "--set", "controller.replicas=0,hook.uninstall=true"},
		own...)...)
	w.until("the hook is taken off, and no controller runs", func() (bool, error) {
		d, ds := w.objects(t)
		return d.Status.Replicas == 0 && ds.Spec.Template.Spec.Containers[0].Name == "uninstalled" &&
				ds.Status.ObservedGeneration == ds.Generation &&
				ds.Status.UpdatedNumberScheduled == 2 && ds.Status.NumberReady == 2,
			fmt.Errorf("the Deployment says %+v, the DaemonSet %+v", d.Status, ds.Status)
	})
	manifest := valuesFile(t, run("get", "manifest", "forcefence"))
	w.refusesUninstall(t, commands)
	run("uninstall", "forcefence")
	w.until("all but the definition is gone", func() (bool, error) {
		left, err := w.c.Kubectl(w.ctx, "get", "-f", manifest, "--ignore-not-found", "-o", "name")
		return left == "customresourcedefinition.apiextensions.k8s.io/fencings.forcefence.io\n",
			fmt.Errorf("left: %s %w", left, err)
	})
	_, err = w.c.Kubectl(w.ctx, "get", "fcg", "f-1")
	kit.Must(t, err)

	// What kubectl has applied is not taken over unasked. A field that it set and the chart does not would stay: hence
	// the same values.
	_, err = w.c.Kubectl(w.ctx, "apply", "--server-side", "--force-conflicts", "-f",
		valuesFile(t, charted(t, features["any node"])))
	kit.Must(t, err)
	install := append([]string{"install", "forcefence", chart, "--namespace", namespace}, own...)
	if _, err := helm(t, w.c.Kubeconfig(), install...); err == nil ||
		!strings.Contains(err.Error(), "cannot be imported into the current release") {
		t.Errorf("an install over what kubectl applied: got %v, want it refused", err)
	}
	run(append(install, "--take-ownership", "--force-conflicts")...)
	available("after the chart took over")
	_, err = w.c.Kubectl(w.ctx, "get", "fcg", "f-1")
	kit.Must(t, err)
}

// TestRenderedFile: install.yaml is applied as it is, then the file that README.md has Helm write by other values; with
// the values of an uninstall it stops the controller, and deleted it leaves nothing.
func TestRenderedFile(t *testing.T) {
	w := newWorld(t, cluster.Options{})
	_, err := w.c.AddNode(w.ctx, cluster.NodeOptions{Name: "n1"})
	kit.Must(t, err)
	kubectl := func(args ...string) {
		t.Helper()
		_, err := w.c.Kubectl(w.ctx, args...)
		kit.Must(t, err)
	}
	kubectl("apply", "--server-side", "--warnings-as-errors", "-f", "../../deploy/install.yaml")
	w.checked()
	rendered := func(values string) string {
		t.Helper()
		text, err := helm(t, "", "template", "forcefence", chart, "--namespace", namespace, "--no-hooks", "--values",
			someImage, "--values", valuesFile(t, values))
		kit.Must(t, err)
		return valuesFile(t, text)
	}
	runs := func(when string, replicas int32, container string) {
		t.Helper()
		w.until(when, func() (bool, error) {
			d, ds := w.objects(t)
			return d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas &&
					d.Status.Replicas == replicas && ds.Status.ObservedGeneration == ds.Generation &&
					ds.Status.UpdatedNumberScheduled == 1 && ds.Status.NumberReady == 1 &&
					ds.Spec.Template.Spec.Containers[0].Name == container,
				fmt.Errorf("the Deployment says %+v, the DaemonSet %+v", d.Status, ds.Status)
		})
	}
	const values = "config: {onDetachTimeout: delete-attachments}\ncontroller: {onControlPlane: false"
	kubectl("apply", "--server-side", "--warnings-as-errors", "-f", rendered(values+"}\n"))
	w.checked()
	runs("the controller and the hook run", 2, "hook")
	if !w.may(t, "delete", "volumeattachments") {
		t.Error("the right of the key is not granted")
	}
	file := rendered(values + ", replicas: 0}\nhook: {uninstall: true}\n")
	kubectl("apply", "--server-side", "--warnings-as-errors", "-f", file)
	runs("the hook is taken off", 0, "uninstalled")
	kubectl("delete", "-f", file)
	for _, kinds := range []string{"clusterroles,clusterrolebindings,customresourcedefinitions,flowschemas",
		"validatingadmissionpolicies,validatingadmissionpolicybindings"} {
		out, err := w.c.Kubectl(w.ctx, "get", kinds, "-o", "name")
		if err != nil || strings.Contains(out, "forcefence") {
			t.Errorf("left: %s %v", out, err)
		}
	}
}

// monitored gives the cluster the Prometheus operator's own definitions, and holds the chart's objects against them: a
// field that they do not know is refused.
func (w *world) monitored(t *testing.T) {
	t.Helper()
	// as go.mod pins it
	cmd := exec.CommandContext(w.ctx, "go", "mod", "download", "-json",
		"github.com/prometheus-operator/prometheus-operator")
	cmd.Dir = "../alerts"
	out, err := cmd.Output()
	kit.Must(t, err)
	var module struct{ Dir string }
	kit.Must(t, json.Unmarshal(out, &module))
	for _, kind := range []string{"podmonitors", "servicemonitors", "prometheusrules", "prometheuses"} {
		_, err := w.c.Kubectl(w.ctx, "create", "-f",
			filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+kind+".yaml"))
		kit.Must(t, err)
		w.until("the definition is established", func() (bool, error) { // kubectl wait fails before the first condition
			_, err := w.c.Kubectl(w.ctx, "wait", "--for=condition=Established", "--timeout=10s",
				"crd/"+kind+".monitoring.coreos.com")
			return err == nil, err
		})
	}
	w.until("the definition is served", func() (bool, error) { // one that reads rules of its own release alone
		_, err := w.c.Kubectl(w.ctx, "create", "-f", valuesFile(t, `
{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: k8s, namespace: default},
  spec: {ruleSelector: {matchLabels: {release: stack}}}}`))
		return err == nil, err
	})
	relabel := "relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: drop, regex: go_.*}], " +
		"scrapeTimeout: 10s, namespace: default, annotations: {a: b}"
	rendered := charted(t, "metrics: {podMonitor: {enabled: true, "+relabel+"}, serviceMonitor: {enabled: true, "+
		relabel+"}, prometheusRule: {enabled: true, customRules: {ForcefenceStorm: {for: 5m}}}}")
	checked := 0
	for _, u := range parse(t, rendered) {
		if u.GroupVersionKind().Group != "monitoring.coreos.com" {
			continue
		}
		checked++
		text, err := u.MarshalJSON()
		kit.Must(t, err)
		w.until("the definition is served", func() (bool, error) {
			_, err := w.c.Kubectl(w.ctx, "get", strings.ToLower(u.GetKind()), "-A")
			return err == nil, err
		})
		_, err = w.c.Kubectl(w.ctx, "create", "--dry-run=server", "--validate=strict", "-f",
			valuesFile(t, string(text)))
		kit.Must(t, err)
	}
	if checked != 3 {
		t.Errorf("%d objects of the Prometheus operator's, want 3", checked)
	}
}

// objects are those that run pods.
func (w *world) objects(t *testing.T) (*appsv1.Deployment, *appsv1.DaemonSet) {
	t.Helper()
	d, err := w.c.Client().AppsV1().Deployments(namespace).Get(w.ctx, "forcefence", metav1.GetOptions{})
	kit.Must(t, err)
	ds, err := w.c.Client().AppsV1().DaemonSets("forcefence-node").Get(w.ctx, "forcefence-node", metav1.GetOptions{})
	kit.Must(t, err)
	return d, ds
}

// namesSecrets: the notes name every Secret that the pods read and the cluster does not have, in each place of the
// values, with the command that makes it.
func (w *world) namesSecrets(t *testing.T) {
	t.Helper()
	notes, err := helm(t, w.c.Kubeconfig(), "upgrade", "forcefence", chart, "--namespace", namespace,
		"--dry-run=server", "--values", someImage, "--values", valuesFile(t, `config:
  signing: {keyFile: /etc/forcefence-signing/key.pem}
  providers:
  - {name: a, ipmi: {username: a, passwordFile: "/etc/machines/{name}"}}
  - {name: b, hetzner: {address: "https://api.hetzner.cloud/v1", passwordFile: /etc/forcefence-bmc/token}}
  - {name: c, redfish: {username: a, passwordEnv: PASSWORD, caFile: /etc/mine/ca.pem}}
extraSecrets: [{name: machines, mountPath: /etc/machines}]
controller:
  env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: passwords, key: c}}}]
  extraVolumes: [{name: mine, secret: {secretName: authority}}]
  extraVolumeMounts: [{name: mine, mountPath: /etc/mine}]
proofGuard: {enabled: true, certificate: {secret: guard, path: /`+strings.Repeat("a", 32)+`}}
`))
	kit.Must(t, err)
	const create = "\n  kubectl -n " + namespace + " create secret generic "
	for _, want := range []string{
		create + "forcefence-bmc --from-file=token=FILE\n", create + "machines --from-file=FOLDER\n",
		create + "passwords --from-file=c=FILE\n", create + "authority --from-file=ca.pem=FILE\n",
		create + "guard --from-file=tls.crt=FILE --from-file=tls.key=FILE\n",
		"\n  forcefence proof keys --new --namespace " + namespace + "\n",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("want notes with %q:\n%s", want, notes)
		}
	}
}

// config is the controller's file in the cluster.
func (w *world) config(t *testing.T) string {
	t.Helper()
	cm, err := w.c.Client().CoreV1().ConfigMaps(namespace).Get(w.ctx, "forcefence", metav1.GetOptions{})
	kit.Must(t, err)
	return cm.Data["config.yaml"]
}

// may asks the API server whether the controller's account may do it to all of a kind.
func (w *world) may(t *testing.T, verb, resource string) bool {
	t.Helper()
	out, _ := w.c.Kubectl(w.ctx, "auth", "can-i", verb, resource, "--as", account) // "no" is an error of the program's
	return strings.TrimSpace(out) == "yes"
}

// refusesUninstall marks a node and gives another one the hook: Helm must refuse to uninstall, and the check must print
// the two commands.
func (w *world) refusesUninstall(t *testing.T, commands *cluster.Commands) {
	t.Helper()
	w.until("no node has the hook", func() (bool, error) {
		out, err := w.c.Kubectl(w.ctx, "get", "nodes", "-o", "yaml")
		return !strings.Contains(out, "ForcefenceGuard"), err
	})
	_, err := w.c.Kubectl(w.ctx, "taint", "node", "n0", key+"=manual:NoSchedule")
	kit.Must(t, err)
	condition := func(conditions string) {
		_, err := w.c.Kubectl(w.ctx, "patch", "node", "n1", "--subresource=status", "--patch",
			`{"status": {"conditions": [`+conditions+`]}}`)
		kit.Must(t, err)
	}
	condition(`{"type": "ForcefenceGuard", "status": "True", "reason": "FailOpen"}`)
	_, err = helm(t, w.c.Kubeconfig(), "uninstall", "forcefence", "--namespace", namespace)
	if err == nil || !strings.Contains(err.Error(), "Job/forcefence-system/forcefence-uninstall not ready") {
		t.Errorf("uninstall with a marked node: got %v, want it refused by the Job before it", err)
	}
	text := strings.Join(commands.Output("forcefence-uninstall"), "\n")
	for _, want := range []string{
		"Marked, or with a fence that is not done: n0.", "With the hook on the host: n1.",
		"  helm upgrade forcefence CHART --namespace " + namespace, "  forcefence cleanup --yes\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the check before the uninstall printed:\n%s\nwant %q in it", text, want)
		}
	}
	if d, _ := w.objects(t); d.DeletionTimestamp != nil {
		t.Error("a refused uninstall has begun to delete")
	}
	_, err = w.c.Kubectl(w.ctx, "taint", "node", "n0", key+"-")
	kit.Must(t, err)
	condition(`{"type": "ForcefenceGuard", "$patch": "delete"}`)
}

// beforeDevices is what check says of two nodes without a device.
const beforeDevices = "0 of 2 Ready nodes could be proven off when their devices were last asked; give n0 a device, " +
	"under nodes in the configuration"

// lastAsked is the age of the drills in that sentence.
var lastAsked = regexp.MustCompile(` \(at most \d+ min ago\)`)

// reportsByHelmTest runs helm test: it fails while no node has a device, with forcefence check's answer.
func (w *world) reportsByHelmTest(t *testing.T, commands *cluster.Commands) {
	t.Helper()
	if _, err := helm(t, w.c.Kubeconfig(), "test", "forcefence", "--namespace", namespace); err == nil {
		t.Error("helm test: got no error, although no node has a device")
	}
	text := strings.Join(strings.Fields(strings.Join(commands.Output("forcefence-test"), "\n")), " ")
	if !strings.Contains(lastAsked.ReplaceAllString(text, ""), beforeDevices) || strings.Contains(text, "forbidden") {
		t.Errorf("helm test: forcefence check printed:\n%s", text)
	}
}
