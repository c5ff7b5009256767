package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// request is the kind of the requests that the controllers make; its template's kind has the suffix Template.
var request = api.GroupVersion.WithKind(api.Kind)

// other is another remediator's kind, which a NodeHealthCheck escalates to.
var other = schema.GroupVersionKind{Group: standIns, Version: "v1alpha1", Kind: "OtherRemediation"}

// standIns is the group of kinds that exist in these tests alone.
const standIns = "interop.forcefence.io"

// grace is how long a node may be silent. It is not the shortest: a node that is late on a busy machine would spoil a
// story.
const grace = 2 * cluster.FastNodeGrace

// Namespaces of what the chart installs.
const (
	installedIn = "forcefence-system"
	requests    = "forcefence-requests" // whose requests count
)

// finalizer is the remediator's.
const finalizer = standIns + "/mark"

// world is a control plane with one controller, or a part of it: a namespace with its nodes.
type world struct {
	*cluster.Cluster
	t       *testing.T
	ctx     context.Context
	dynamic dynamic.Interface
	part    *cluster.Part // the controller
	name    string        // the story's; that of its NodeHealthCheck or MachineHealthCheck, too
	ns      string        // of the requests
}

// newWorld starts a control plane on which silent nodes become Unknown after seconds, and the controller.
func newWorld(t *testing.T, start func(context.Context, *cluster.Cluster, string) (*cluster.Part, error)) *world {
	t.Helper()
	needWanted(t)
	t.Parallel()
	w := &world{t: t, ctx: t.Context(), Cluster: cluster.ForTest(t, cluster.Options{NodeGrace: grace})}
	var err error
	w.dynamic, err = dynamic.NewForConfig(w.RESTConfig())
	kit.Must(t, err)
	w.install()
	w.part, err = start(w.ctx, w.Cluster, t.TempDir())
	t.Cleanup(func() {
		if w.part != nil {
			w.part.Stop()
		}
	})
	kit.Must(t, err)
	return w
}

// story is a part of the world for one test, which is named like it. Its nodes are called NAME-n0, NAME-n1 and so on.
// Requests are in a namespace of that name, unless all stories of the world share one.
func (w *world) story(t *testing.T, nodes int, describe func(i int, o *cluster.NodeOptions)) (*world, []*cluster.Node) {
	t.Helper()
	s := *w
	s.t, s.ctx, s.name = t, t.Context(), strings.ToLower(path.Base(t.Name()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.describe())
		}
	})
	if s.ns == "" {
		s.ns = s.name
		s.namespace(s.ns)
		s.templates()
	}
	added, err := w.AddNodes(s.ctx, nodes, func(i int) cluster.NodeOptions {
		o := cluster.NodeOptions{Name: fmt.Sprintf("%s-n%d", s.name, i), Labels: map[string]string{"story": s.name}}
		if describe != nil {
			describe(i, &o)
		}
		return o
	})
	kit.Must(t, err)
	return &s, added
}

// install makes what a user of forcefence installs, of which no pod runs, and the other remediator's kind.
func (w *world) install() {
	w.t.Helper()
	w.namespace(requests)
	w.installChart(fmt.Sprintf(`
config:
  karpenter: handOver
  policies: [{name: rbd, drivers: [%s], networkFenceClasses: [sim], withoutProof: storage-fences}]
  remediation: {namespaces: [%s], onGiveUp: replaceMachine}
admissionPolicies: {outOfServiceGuard: true}
`, cluster.CSIDriver, requests))
	_, err := w.Kubectl(w.ctx, "wait", "--for=condition=Established", "--all", "crd")
	kit.Must(w.t, err)
	w.create(definition(other, nil), definition(template(other), nil), fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: stand-ins, labels: {%s: "true"}}
rules:
- {apiGroups: [%s], resources: ["*"], verbs: [get, list, watch, create, update, patch, delete]}
`, NodeHealthCheckRights, standIns))
}

// installChart applies what the chart renders with these values, without pods.
func (w *world) installChart(values string) {
	w.t.Helper()
	w.namespace(installedIn)
	text, err := cluster.RenderChart(w.ctx, "../../deploy/helm/forcefence",
		"controller: {replicas: 0}\nhook: {enabled: false}\n"+values)
	kit.Must(w.t, err)
	file := filepath.Join(w.t.TempDir(), "installed.yaml")
	kit.Must(w.t, os.WriteFile(file, []byte(text), 0o600))
	_, err = w.Kubectl(w.ctx, "apply", "--server-side", "-f", file)
	kit.Must(w.t, err)
}

func (w *world) namespace(name string) {
	w.t.Helper()
	w.create(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
}

// templates makes a template of each kind in the requests' namespace, under the name mend.
func (w *world) templates() {
	w.t.Helper()
	for _, kind := range []schema.GroupVersionKind{request, other} {
		w.create(fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: mend}, `+
			`spec: {template: {spec: {}}}}`, kind.GroupVersion(), template(kind).Kind, w.ns))
	}
}

// definition is a CRD without a schema.
func definition(kind schema.GroupVersionKind, labels map[string]string) string {
	text, err := json.Marshal(labels)
	if err != nil {
		panic(err)
	}
	plural := resource(kind).Resource
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  labels: %[5]s
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[1]s, singular: %[4]s}
  versions:
  - name: %[6]s
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, plural, kind.Group, kind.Kind, strings.ToLower(kind.Kind), text, kind.Version)
}

func template(kind schema.GroupVersionKind) schema.GroupVersionKind {
	kind.Kind += "Template"
	return kind
}

func resource(kind schema.GroupVersionKind) schema.GroupVersionResource {
	return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
}

// create makes objects from YAML, and waits until a new definition is served.
func (w *world) create(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		o := &unstructured.Unstructured{}
		kit.Must(w.t, yaml.UnmarshalStrict([]byte(text), &o.Object))
		kit.Must(w.t, w.Create(w.ctx, o))
		if o.GetKind() == "CustomResourceDefinition" {
			_, err := w.Kubectl(w.ctx, "wait", "--for=condition=Established", "crd/"+o.GetName())
			kit.Must(w.t, err)
		}
	}
}

// find returns the object, or nil.
func (w *world) find(of schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.dynamic.Resource(of).Namespace(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	kit.Must(w.t, err)
	return o
}

// request returns the request of that kind and name, or nil.
func (w *world) request(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.t.Helper()
	return w.find(resource(kind), w.ns, name)
}

// requestNames returns the names of the requests that are there.
func (w *world) requestNames(kind schema.GroupVersionKind) (names []string) {
	w.t.Helper()
	list, err := w.dynamic.Resource(resource(kind)).Namespace(w.ns).List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}

// patch merges into an object, or into its status.
func (w *world) patch(of schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.dynamic.Resource(of).Namespace(namespace).
		Patch(w.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	kit.Must(w.t, err)
}

// hold puts the remediator's finalizer on a request; release takes it off.
func (w *world) hold(kind schema.GroupVersionKind, name string) {
	w.t.Helper()
	w.patch(resource(kind), w.ns, name, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
}

func (w *world) release(kind schema.GroupVersionKind, name string) {
	w.t.Helper()
	w.patch(resource(kind), w.ns, name, `{"metadata":{"finalizers":null}}`)
}

// conclude sets a request's condition Succeeded.
func (w *world) conclude(kind schema.GroupVersionKind, name string, status metav1.ConditionStatus) {
	w.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	w.patch(resource(kind), w.ns, name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Succeeded","status":%q,`+
		`"reason":"Test","message":"","lastTransitionTime":%q}]}}`, status, now), "status")
}

// until waits for something, logs how long that took, and returns it.
func (w *world) until(what string, so func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	kit.Until(w.t, what, so)
	took := time.Since(start)
	w.t.Logf("%5.1f s until %s", took.Seconds(), what)
	return took
}

// untilUnknown waits until Kubernetes has noticed that the nodes are silent.
func (w *world) untilUnknown(nodes ...*cluster.Node) {
	w.t.Helper()
	for _, n := range nodes {
		kit.Must(w.t, w.WaitNode(w.ctx, n.Name(), cluster.IsNotReady))
	}
}

// during checks that something holds for a while.
func (w *world) during(d time.Duration, what string, so func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	if cluster.Until(ctx, func(context.Context) (bool, error) { return !so(), nil }) == nil {
		w.t.Errorf("not so for %s: %s", d, what)
	}
}

// logged waits until a line of the controller's log has all these texts.
func (w *world) logged(texts ...string) {
	w.t.Helper()
	kit.Until(w.t, fmt.Sprintf("the log has a line with %q", texts), func() bool {
		text, err := os.ReadFile(w.part.LogFile())
		kit.Must(w.t, err)
		for line := range bytes.Lines(text) {
			if !slices.ContainsFunc(texts, func(s string) bool { return !bytes.Contains(line, []byte(s)) }) {
				return true
			}
		}
		return false
	})
}

// describe is for a story that failed: its requests, and what the controller logged of the story.
func (w *world) describe() string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, kind := range []schema.GroupVersionKind{request, other} {
		out, err := w.Kubectl(ctx, "-n", w.ns, "get", resource(kind).GroupResource().String(), "-o", "yaml")
		fmt.Fprintln(&b, out, err)
	}
	text, err := os.ReadFile(w.part.LogFile())
	fmt.Fprintln(&b, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, w.name) {
			lines = append(lines, line)
		}
	}
	b.WriteString(strings.Join(lines[max(0, len(lines)-60):], ""))
	return b.String()
}

// ownerOf is the reference to the owner of that kind, or the zero value.
func ownerOf(o *unstructured.Unstructured, kind string) metav1.OwnerReference {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == kind {
			return ref
		}
	}
	return metav1.OwnerReference{}
}

// condition is the object's condition of that type, and whether there is one.
func condition(o *unstructured.Unstructured, kind string) (metav1.Condition, bool) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		var c metav1.Condition
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil && c.Type == kind {
			return c, true
		}
	}
	return metav1.Condition{}, false
}
