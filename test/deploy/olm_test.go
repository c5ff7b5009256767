package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/deploy/olm"
	"github.com/forcefence/forcefence/test/kit"
)

// eventsWarning is OLM's of a right that is not outdated: it knows the group's old version alone, and a rule names no
// version.
const eventsWarning = "deprecated and removed in v1.25"

// TestBundle: what OLM does not install is in guards.yaml, and nothing is lost between the two; without guards.yaml no
// pod starts.
func TestBundle(t *testing.T) {
	want := byKey(t, charted(t, "crds: {keep: false}"))
	files := bundle(t, "crds: {keep: false}", olm.Release{Version: "1.2.3", Replaces: "1.2.2"})
	got := byKey(t, files["guards.yaml"])
	for name, text := range files {
		if !strings.HasPrefix(name, "bundle/manifests/") {
			continue
		}
		for key, o := range byKey(t, text) {
			kind, object, _ := strings.Cut(key, " ")
			// OLM puts them there
			if slices.Contains([]string{"Service", "PodDisruptionBudget", "Role", "RoleBinding"}, kind) {
				key = kind + " " + namespace + object
				o["metadata"].(map[string]any)["namespace"] = namespace
			}
			got[key] = o
		}
	}
	csv := got["ClusterServiceVersion /forcefence.v1.2.3"]
	text, err := yaml.Marshal(csv)
	kit.Must(t, err)
	for _, s := range []string{
		"version: 1.2.3\n", "replaces: forcefence.v1.2.2\n", "minKubeVersion: 1.30.0\n",
		"containerImage: forcefence:dev\n", "deploy/olm/guards.yaml"} {
		if !strings.Contains(string(text), s) {
			t.Errorf("the ClusterServiceVersion lacks %q", s)
		}
	}
	var install struct {
		Spec struct {
			Install struct {
				Spec struct {
					Deployments []struct{ Spec appsv1.DeploymentSpec }
				}
			}
		}
	}
	kit.Must(t, yaml.Unmarshal(text, &install))
	s := install.Spec.Install.Spec
	// The two that the pods wait for must not be optional.
	waits := map[string]bool{}
	for _, v := range s.Deployments[0].Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Optional == nil {
			waits[v.ConfigMap.Name] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"forcefence": true, olm.Guards: true}, waits); diff != "" {
		t.Errorf("the ConfigMaps without which no pod starts (-want +got):\n%s", diff)
	}
	for _, key := range []string{ // what is made of them, or the user's
		"Deployment " + namespace + "/forcefence", "ClusterRole /forcefence-controller",
		"ClusterRoleBinding /forcefence-controller",
		"ServiceAccount " + namespace + "/forcefence", "ConfigMap " + namespace + "/forcefence",
	} {
		if want[key] == nil {
			t.Errorf("the chart has no %s", key)
		}
		delete(want, key)
	}
	for _, key := range []string{
		"ClusterServiceVersion /forcefence.v1.2.3", "Namespace /" + namespace,
		"ConfigMap " + namespace + "/" + olm.Guards} {
		if got[key] == nil {
			t.Errorf("no %s", key)
		}
		delete(got, key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bundle and guards.yaml together (-chart +them):\n%s", diff)
	}
	for _, image := range []string{"forcefence", "forcefence:v1", "@sha256:00", "forcefence@md5:00"} {
		if _, _, ok := olm.Image(image); ok {
			t.Errorf("image %q: taken, want it refused: it has no digest", image)
		}
	}
}

// withoutGuards takes off what the bundle adds.
func withoutGuards(s appsv1.DeploymentSpec) appsv1.DeploymentSpec {
	pod := &s.Template.Spec
	pod.Volumes = pod.Volumes[:len(pod.Volumes)-1]
	c := &pod.Containers[0]
	c.VolumeMounts = c.VolumeMounts[:len(c.VolumeMounts)-1]
	return s
}

// TestOLM installs the bundle by OLM's own controllers, upgrades and removes it, as deploy/olm/README.md says.
func TestOLM(t *testing.T) {
	if os.Getenv("FORCEFENCE_OLM") == "" {
		t.Skip("make olm runs it: OLM takes minutes to build")
	}
	kit.Must(t, os.Unsetenv("FORCEFENCE_OLM")) // the program takes such a variable for one of its own keys
	bin, err := binaries.Build(t.Context(), binaries.Options{Names: []string{binaries.OLM}})
	kit.Must(t, err)
	program := filepath.Join(bin, binaries.OLM)
	dir := t.TempDir()
	binary := build(t, dir, "forcefence")

	// Two releases.
	image := func(digit string) string {
		return "registry.example.net/forcefence@sha256:" + strings.Repeat(digit, 64)
	}
	release := func(version, replaces, digit string) string {
		repository, digest, _ := olm.Image(image(digit))
		files := bundle(t,
			fmt.Sprintf("{crds: {keep: false}, image: {repository: %s, digest: '%s'}}", repository, digest),
			olm.Release{Version: version, Replaces: replaces})
		to := filepath.Join(dir, version)
		kit.Must(t, olm.Write(to, files))
		out, err := exec.CommandContext(t.Context(), program, "validate", filepath.Join(to, "bundle")).CombinedOutput()
		kit.Must(t, err)
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, eventsWarning) {
				t.Errorf("OLM's checks of %s: %s", version, line)
			}
		}
		return to
	}
	first, second := release("1.2.3", "", "1"), release("1.3.0", "1.2.3", "2")

	w := newWorld(t, cluster.Options{})
	_, err = w.c.AddNodes(w.ctx, 2,
		func(i int) cluster.NodeOptions { return cluster.NodeOptions{Name: fmt.Sprintf("n%d", i)} })
	kit.Must(t, err)
	run := func(args ...string) string {
		t.Helper()
		out, err := w.c.Kubectl(w.ctx, args...)
		kit.Must(t, err)
		return out
	}
	run("label", "nodes", "--all", "node-role.kubernetes.io/control-plane=")
	crds, err := exec.CommandContext(t.Context(), program, "crds").Output()
	kit.Must(t, err)
	run("apply", "--server-side", "-f", valuesFile(t, string(crds)))
	run("wait", "--for=condition=Established", "--all", "crd")
	run("create", "namespace", "olm")
	catalogue := kit.FreeAddress(t)
	log := filepath.Join(dir, "olm.log")
	p := cluster.NewPart("olm", program,
		[]string{"run", "--kubeconfig", w.c.Kubeconfig(), "--listen", catalogue, filepath.Join(first, "bundle"),
			filepath.Join(second, "bundle")}, log,
		func(ctx context.Context) error {
			text, err := os.ReadFile(log)
			if err == nil && !bytes.Contains(text, []byte("ready\n")) {
				err = fmt.Errorf("%s does not say that it is ready", log)
			}
			if err != nil {
				return err
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", catalogue)
			if err != nil {
				return err
			}
			return c.Close()
		}, nil)
	w.endsWithTest(p)
	kit.Must(t, p.Start(w.ctx))

	// First what OLM does not install, and the configuration; then the Subscription.
	run("apply", "--server-side", "--warnings-as-errors", "-f", filepath.Join(first, "guards.yaml"))
	config := filepath.Join(dir, "config.yaml")
	kit.Must(t, os.WriteFile(config, []byte("mode: shadow\nlisten: {metrics: ':8080'}\nproviders: [{name: people, "+
		"confirm: {validFor: 15m}}]\n"+
		"nodes: [{name: all, selector: '', provider: people, machine: {from: template, template: '{{ .Name }}'}}]\n"),
		0o600))
	run("-n", namespace, "create", "configmap", "forcefence", "--from-file="+config)
	run("create", "-f", valuesFile(t, fmt.Sprintf("{apiVersion: operators.coreos.com/v1alpha1, kind: CatalogSource, "+
		"metadata: {name: forcefence, namespace: %s}, spec: {sourceType: grpc, address: '%s'}}",
		namespace, catalogue)))
	page, err := os.ReadFile(olmFolder + "/README.md")
	kit.Must(t, err)
	_, block, _ := strings.Cut(string(page), "```yaml test=test/deploy.TestOLM\n")
	block, _, _ = strings.Cut(block, "```")
	run("create", "-f",
		valuesFile(t,
			strings.Replace(block, "\n  channel: stable\n", "\n  channel: stable\n  startingCSV: forcefence.v1.2.3\n",
				1)))
	w.approve("forcefence.v1.2.3")
	w.succeeded("forcefence.v1.2.3")
	w.checked()

	// What is there now is the chart's, the account's rights among them.
	chartObjects := byKey(t, charted(t, fmt.Sprintf("image: {repository: registry.example.net/forcefence, digest: "+
		"'sha256:%s'}", strings.Repeat("1", 64))))
	wantRights := rightsOf(t, chartObjects)
	if diff := cmp.Diff(wantRights, w.accountRights(t)); diff != "" || len(wantRights) < 25 {
		t.Errorf("the account's rights (-chart +OLM), of %d:\n%s", len(wantRights), diff)
	}
	like, err := json.Marshal(chartObjects["Deployment "+namespace+"/forcefence"])
	kit.Must(t, err)
	var want appsv1.Deployment // with the API server's defaults
	kit.Must(t, json.Unmarshal(
		[]byte(run("create", "--dry-run=server", "-o", "json", "-f",
			valuesFile(t,
				strings.Replace(string(like), `"name":"forcefence","namespace"`, `"name":"like","namespace"`, 1)))),
		&want))
	d, ds := w.objects(t)
	have := withoutGuards(d.Spec)
	have.Template.Spec.Containers[0].Env = nil // OPERATOR_CONDITION_NAME
	for _, s := range []*appsv1.DeploymentSpec{&have, &want.Spec} {
		s.Template.Annotations, s.RevisionHistoryLimit = nil, nil // OLM's notes, and its own limit
	}
	if diff := cmp.Diff(want.Spec, have); diff != "" {
		t.Errorf("the Deployment (-chart +OLM):\n%s", diff)
	}
	if ds.Status.DesiredNumberScheduled != 2 {
		t.Errorf("the hook: got %+v, want it on both nodes", ds.Status)
	}
	pod := w.process(binary, dir, "pod", func(metrics, _ string) string {
		text, err := os.ReadFile(config)
		kit.Must(t, err)
		return strings.Replace(string(text), ":8080", metrics, 1)
	})
	w.leader("")
	pod.Stop()
	if text, err := os.ReadFile(pod.LogFile()); err != nil || bytes.Contains(bytes.ToLower(text), []byte("forbidden")) {
		t.Errorf("the controller's log: %v\n%s", err, text)
	}

	// The next release: its guards, then the approval.
	run("apply", "--server-side", "--warnings-as-errors", "-f", filepath.Join(second, "guards.yaml"))
	plan := w.approve("forcefence.v1.3.0")
	w.succeeded("forcefence.v1.3.0")
	w.until("the old version is gone, and the new one's pods run", func() (bool, error) {
		d, _ := w.objects(t)
		csvs, err := w.c.Kubectl(w.ctx, "-n", namespace, "get", "clusterserviceversions", "-o", "name")
		return csvs == "clusterserviceversion.operators.coreos.com/forcefence.v1.3.0\n" &&
			d.Spec.Template.Spec.Containers[0].Image == image("2") && d.Status.UpdatedReplicas == 2 &&
			d.Status.AvailableReplicas == 2, fmt.Errorf("%s; %+v; %w", csvs, d.Status, err)
	})
	w.until("the account has the rights of one version", func() (bool, error) {
		diff := cmp.Diff(wantRights, w.accountRights(t))
		return diff == "", fmt.Errorf("(-chart +OLM):\n%s", diff)
	})
	if got := w.config(t); !strings.Contains(got, "mode: shadow") {
		t.Errorf("the configuration after the upgrade: got %s, want the user's", got)
	}

	// OLM carries a plan out a second time where its cache is late, and would make the rights again that the removal
	// takes. It works on a plan one sync after the other, so nothing of that comes once a sync has begun with the plan
	// complete.
	w.until("OLM is done with "+plan, func() (bool, error) {
		text, err := os.ReadFile(log)
		return regexp.MustCompile(`msg=syncing .*\bip=` + plan + ` .*phase=Complete`).Match(text), err
	})

	// Off again: the guards stay until nothing needs them, and the records' definition stays.
	run("-n", namespace, "delete", "subscription/forcefence", "clusterserviceversion/forcefence.v1.3.0")
	w.until("the controller and its rights are gone", func() (bool, error) {
		list, err := w.c.Client().AppsV1().Deployments(namespace).List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left := w.accountRights(t)
		return len(list.Items) == 0 && !w.may(t, "patch", "nodes"),
			fmt.Errorf("left: %d Deployments, rights: %q", len(list.Items), slices.Sorted(maps.Keys(left)))
	})
	run("get", "crd/fencings.forcefence.io", "validatingadmissionpolicy/forcefence-mark", "daemonset/forcefence-node",
		"-n", "forcefence-node")
}

// approve waits for the plan that installs a version, and lets OLM begin.
func (w *world) approve(csv string) (plan string) {
	w.t.Helper()
	w.until("OLM plans "+csv, func() (bool, error) {
		out, err := w.c.Kubectl(w.ctx, "-n", namespace, "get", "installplans", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.phase} `+
				`{.spec.clusterServiceVersionNames[0]}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 3 && f[1] == "RequiresApproval" && f[2] == csv {
				plan = f[0]
			}
		}
		return plan != "", fmt.Errorf("plans: %q: %w", out, err)
	})
	_, err := w.c.Kubectl(w.ctx, "-n", namespace, "patch", "installplan", plan, "--type=merge", "-p",
		`{"spec":{"approved":true}}`)
	kit.Must(w.t, err)
	return plan
}

func (w *world) succeeded(csv string) {
	w.t.Helper()
	w.until(csv+" is installed", func() (bool, error) {
		out, err := w.c.Kubectl(w.ctx, "-n", namespace, "get", "clusterserviceversion", csv, "-o",
			"jsonpath={.status.phase} {.status.message} {.status.requirementStatus}")
		return strings.HasPrefix(out, "Succeeded "), fmt.Errorf("%s: %w", out, err)
	})
}

// rightsOf is what objects grant to the controller's account, a line for each verb and kind.
func rightsOf(t *testing.T, objects map[string]map[string]any) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for key, o := range objects {
		kind, _, _ := strings.Cut(key, " ")
		if kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		b := typed[rbacv1.RoleBinding](t, o) // a ClusterRoleBinding has its fields, too
		if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == "forcefence"
		}) {
			continue
		}
		from := b.RoleRef.Kind + " /" + b.RoleRef.Name
		if b.RoleRef.Kind == "Role" {
			from = "Role " + b.Namespace + "/" + b.RoleRef.Name
		}
		for _, r := range typed[rbacv1.Role](t, objects[from]).Rules {
			for _, verb := range r.Verbs {
				for _, group := range r.APIGroups {
					for _, res := range r.Resources {
						out[fmt.Sprintf("%s %q in %q", right(verb, group, res), r.ResourceNames, b.Namespace)] = true
					}
				}
			}
		}
	}
	return out
}

// accountRights are those that the cluster's bindings grant to the controller's account.
func (w *world) accountRights(t *testing.T) map[string]bool {
	t.Helper()
	out, err := w.c.Kubectl(w.ctx, "get", "roles,rolebindings,clusterroles,clusterrolebindings", "-A", "-o", "json")
	kit.Must(t, err)
	var list struct{ Items []map[string]any }
	kit.Must(t, json.Unmarshal([]byte(out), &list))
	objects := map[string]map[string]any{}
	for _, o := range list.Items {
		m := o["metadata"].(map[string]any)
		ns, _ := m["namespace"].(string)
		objects[fmt.Sprintf("%s %s/%s", o["kind"], ns, m["name"])] = o
	}
	return rightsOf(t, objects)
}
