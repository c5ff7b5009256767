package remediation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

// world is a Controller beside a real API server that serves requests and Machines.
type world struct {
	t     *testing.T
	ns    string
	admin client.Client // writes as the health checks do
	nodes client.Client // of the cluster with the Nodes
	c     *Controller
	woken chan string
}

// newWorld starts a Controller. The test's namespace alone counts. Requests and Machines are in the cluster in, Nodes
// in the shared one.
func newWorld(t *testing.T, in *cluster.Cluster, edit func(*Options)) *world {
	t.Helper()
	inHere := cluster.Admin(t, shared) // it skips the test under -short
	scheme := runtime.NewScheme()
	kit.Must(t, errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)))
	admin, err := client.New(in.RESTConfig(), client.Options{Scheme: scheme})
	kit.Must(t, err)
	ns, err := in.CreateNamespace(t.Context(), "requests")
	kit.Must(t, err)
	nodes, err := cache.New(shared.RESTConfig(), cache.Options{Scheme: clientgoscheme.Scheme})
	kit.Must(t, err)
	o := Options{
		REST: in.RESTConfig(), Namespaces: []string{ns}, Nodes: nodes, Key: taint.DefaultKey,
		Mode:    func(*corev1.Node) fence.Mode { return fence.OnRequest },
		Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		ServedEvery: 50 * time.Millisecond,
	}
	if edit != nil {
		edit(&o)
	}
	w := &world{t: t, ns: ns, admin: admin, nodes: inHere, woken: make(chan string, 1000)}
	w.c, err = New(o)
	kit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- nodes.Start(ctx) }()
	go func() { done <- w.c.Start(ctx) }()
	go func() { w.c.NotifyChanged(ctx, func(n string) { w.woken <- n }); done <- nil }()
	t.Cleanup(func() {
		cancel()
		for range 3 {
			kit.Must(t, <-done)
		}
	})
	return w
}

// serve installs the definitions: those that are shipped, and one of Machines.
func serve(t *testing.T, admin client.Client) {
	t.Helper()
	files, err := filepath.Glob("../../../deploy/helm/forcefence/files/remediation.*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("definitions: got %v, %v, want two", files, err)
	}
	texts := []string{machines}
	for _, f := range files {
		text, err := os.ReadFile(f)
		kit.Must(t, err)
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		crd := &unstructured.Unstructured{}
		kit.Must(t, yaml.Unmarshal([]byte(text), &crd.Object))
		if err := admin.Create(t.Context(), crd); !apierrors.IsAlreadyExists(err) {
			kit.Must(t, err)
		}
	}
}

// machines is a definition of Machines with a free schema, as Cluster API's has the fields that are read.
const machines = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: machines.cluster.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}},
spec: {group: cluster.x-k8s.io, scope: Namespaced,
names: {kind: Machine, listKind: MachineList, plural: machines, singular: machine},
versions: [{name: v1beta2, served: true, storage: true, subresources: {status: {}},
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`

func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	kit.Must(w.t, cluster.Until(ctx, func(context.Context) (bool, error) {
		if check() {
			return true, nil
		}
		return false, fmt.Errorf("waiting for %s", what)
	}))
}

// node makes a Node, and deletes it in the end.
func (w *world) node(edit func(*corev1.Node)) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-", Annotations: map[string]string{}}}
	if edit != nil {
		edit(n)
	}
	kit.Must(w.t, w.nodes.Create(w.t.Context(), n))
	w.t.Cleanup(func() { _ = w.nodes.Delete(context.Background(), n) })
	return n
}

// request makes a request as NodeHealthCheck does.
func (w *world) request(namespace, name string, edit func(*api.ForcefenceRemediation)) *api.ForcefenceRemediation {
	w.t.Helper()
	r := &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{"remediation.medik8s.io/template-name": "forcefence"},
		Labels:      map[string]string{"app.kubernetes.io/part-of": "node-healthcheck-controller"}}}
	if edit != nil {
		edit(r)
	}
	kit.Must(w.t, w.admin.Create(w.t.Context(), r))
	return r
}

func (w *world) get(r *api.ForcefenceRemediation) *api.ForcefenceRemediation {
	out := &api.ForcefenceRemediation{}
	if w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(r), out) != nil {
		return nil
	}
	return out
}

// untilShown waits until the request's Succeeded has that status and reason.
func (w *world) untilShown(r *api.ForcefenceRemediation, status metav1.ConditionStatus, why string) {
	w.t.Helper()
	w.until(fmt.Sprintf("Succeeded=%s (%s) of %s", status, why, r.Name), func() bool {
		now := w.get(r)
		return now != nil && slices.ContainsFunc(now.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == api.Succeeded && c.Status == status && c.Reason == why
		})
	})
}

// record writes the record of a fence on a Node, with its mark while it is open.
func (w *world) record(n *corev1.Node, rec taint.Record) {
	w.t.Helper()
	kit.Must(w.t, w.nodes.Get(w.t.Context(), client.ObjectKeyFromObject(n), n))
	rec.NodeUID, rec.By, rec.Since = string(n.UID), "forcefence-1", rec.At
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, taint.RecordAnnotation, rec.Encode())
	n.Spec.Taints = nil
	if rec.IsOpen() {
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: rec.ID, Effect: corev1.TaintEffectNoSchedule}}
	}
	kit.Must(w.t, w.nodes.Update(w.t.Context(), n))
}

func (w *world) permits(n *corev1.Node) string { return w.c.ReadRequest(w.t.Context(), n) }

// Until the resource is served, a Controller waits and permits nothing. Then a request wakes its node, permits a
// power-off, shows what is waited for, is kept while the node has our mark, and shows the end. Without it nothing is
// permitted any more.
func TestRequestOfNodeHealthCheck(t *testing.T) {
	w := newWorld(t, shared, nil)
	n := w.node(nil)
	if got := w.permits(n); got != "" {
		t.Fatalf("before the resource is served: got %q", got)
	}
	serve(t, w.admin)
	var r *api.ForcefenceRemediation
	w.until("the API server to take requests", func() bool {
		r = &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: n.Name}}
		return w.admin.Create(t.Context(), r) == nil
	})
	if got := <-w.woken; got != n.Name {
		t.Errorf("woken: got %q, want %q", got, n.Name)
	}
	want := "ForcefenceRemediation " + w.ns + "/" + n.Name
	if live, cached := w.permits(n), w.c.CachedRequest(n); live != want || cached != want {
		t.Errorf("permitted by: got %q and %q, want %q", live, cached, want)
	}
	for node, want := range map[*corev1.Node]string{n: want, w.node(nil): ""} {
		if got, err := FindRequest(t.Context(), w.admin, []string{w.ns}, node); got != want || err != nil {
			t.Errorf("found for %s: %q, %v, want %q", node.Name, got, err, want)
		}
	}
	if other := w.node(nil); w.permits(other) != "" || w.c.CachedRequest(other) != "" {
		t.Error("another node is permitted to be powered off")
	}
	w.untilShown(r, metav1.ConditionUnknown, "WaitingForController")
	w.c.ReportDecision(n.Name, reason.InGrace, "")
	w.untilShown(r, metav1.ConditionUnknown, "WaitingForGrace")

	w.record(n, taint.Record{ID: "f-1", Phase: taint.PhaseEvicting, At: time.Now()})
	w.until("our finalizer", func() bool { return slices.Contains(w.get(r).Finalizers, api.Finalizer) })
	kit.Must(t, w.admin.Delete(t.Context(), r))
	w.untilShown(r, metav1.ConditionUnknown, "FenceInProgress")
	w.until("the request to permit nothing", func() bool { return w.permits(n)+w.c.CachedRequest(n) == "" })
	if w.get(r) == nil {
		t.Fatal("the request is gone while our mark is on the node")
	}
	w.record(n, taint.Record{ID: "f-1", Phase: taint.PhaseDone, Result: taint.ResultEvicted, At: time.Now()})
	w.until("the request to be gone", func() bool { return w.get(r) == nil })
	w.until("nothing to be remembered of nodes without a request", func() bool {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		return len(w.c.waits) == 0
	})
}

// What NodeHealthCheck writes on a request is respected, and what others write stays.
func TestRequestEnds(t *testing.T) {
	w := newWorld(t, shared, nil)
	serve(t, w.admin)
	foreign := func(r *api.ForcefenceRemediation) {
		r.Finalizers = []string{"example.net/kept"}
		r.Annotations["remediation.medik8s.io/healthy-delay"] = "1m"
	}
	t.Run("done", func(t *testing.T) {
		n := w.node(nil)
		r := w.request(w.ns, n.Name, foreign)
		w.record(n, taint.Record{ID: "f-1", Phase: taint.PhaseDone, Result: taint.ResultEvicted,
			At: time.Now().Add(time.Minute)})
		w.untilShown(r, metav1.ConditionTrue, "FenceDone")
		now := w.get(r)
		if !slices.Equal(now.Finalizers,
			r.Finalizers) || now.Annotations["remediation.medik8s.io/healthy-delay"] != "1m" {
			t.Errorf("got %+v, want what others wrote", now.ObjectMeta)
		}
		if now.Status.Node != n.Name {
			t.Errorf("node: got %q, want %q", now.Status.Node, n.Name)
		}
		now.Finalizers = nil
		kit.Must(t, w.admin.Update(t.Context(), now))
	})
	t.Run("timed out", func(t *testing.T) {
		n := w.node(nil)
		r := w.request(w.ns, n.Name, nil)
		w.until("it to permit a power-off", func() bool { return w.permits(n) != "" })
		kit.Must(t, w.admin.Patch(t.Context(), r, client.RawPatch(types.MergePatchType, []byte(
			`{"metadata":{"annotations":{"remediation.medik8s.io/nhc-timed-out":"2026-11-27T12:00:00Z"}}}`))))
		if got := w.permits(n); got != "" {
			t.Errorf("permitted by %q right after the time was over", got)
		}
		w.untilShown(r, metav1.ConditionFalse, "TimedOut")
		w.until("the watch to show it", func() bool { return w.c.CachedRequest(n) == "" })
	})
	t.Run("another namespace", func(t *testing.T) {
		n := w.node(nil)
		ours := w.request(w.ns, "x", nil) // the watch is in sync once this is shown
		r := w.request("default", n.Name, nil)
		w.untilShown(ours, metav1.ConditionUnknown, "RequestRefused")
		if got := w.permits(n) + w.c.CachedRequest(n); got != "" || len(w.get(r).Status.Conditions) > 0 {
			t.Errorf("permitted by %q, shown %v", got, w.get(r).Status)
		}
		kit.Must(t, w.admin.Delete(t.Context(), r))
		found, err := FindRequest(t.Context(), w.admin, []string{w.ns}, n)
		if err != nil || found != "" {
			t.Errorf("found %q, %v", found, err)
		}
	})
}

// machine makes a Machine of Cluster API whose node is n.
func (w *world) machine(name string, n *corev1.Node) *unstructured.Unstructured {
	w.t.Helper()
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
		"metadata": map[string]any{"namespace": w.ns, "name": name},
		"spec":     map[string]any{"providerID": n.Spec.ProviderID},
	}}
	w.until("the API server to take Machines", func() bool { return w.admin.Create(w.t.Context(), m) == nil })
	m.Object["status"] = map[string]any{
		"nodeRef": map[string]any{"name": n.Name},
		"conditions": []any{
			map[string]any{"type": "Ready", "status": "False"},
			map[string]any{"type": "ExternallyRemediated", "status": "False", "reason": "WaitingForRemediation"},
		},
	}
	kit.Must(w.t, w.admin.Status().Update(w.t.Context(), m))
	return m
}

// conditions returns a Machine's conditions as type=status, at the path.
func (w *world) conditions(m *unstructured.Unstructured, path ...string) string {
	w.t.Helper()
	kit.Must(w.t, w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(m), m))
	list, _, _ := unstructured.NestedSlice(m.Object, path...)
	var out []string
	for _, o := range list {
		c := o.(map[string]any)
		out = append(out, fmt.Sprintf("%s=%s", c["type"], c["status"]))
	}
	return strings.Join(out, " ")
}

// A request of Cluster API is for its Machine's node, and the Machine shows what became of it. Only onGiveUp:
// replaceMachine sets OwnerRemediated, and only if no power-off helped.
func TestRequestOfClusterAPI(t *testing.T) {
	for _, replace := range []bool{false, true} {
		t.Run(fmt.Sprintf("replace %v", replace), func(t *testing.T) {
			in := shared
			if replace { // another management cluster
				in = cluster.ForTest(t, cluster.Options{})
			}
			w := newWorld(t, in, func(o *Options) { o.ReplaceMachine = replace })
			serve(t, w.admin)
			begin := func(name string) (*corev1.Node, *unstructured.Unstructured, *api.ForcefenceRemediation) {
				n := w.node(func(n *corev1.Node) {
					n.Spec.ProviderID = "fake://" + w.ns + name
					n.Annotations["cluster.x-k8s.io/cluster-namespace"] = w.ns
					n.Annotations["cluster.x-k8s.io/machine"] = name
				})
				m := w.machine(name, n)
				return n, m, w.request(w.ns, name, func(r *api.ForcefenceRemediation) {
					r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2",
						Kind: "Machine",
						Name: name, UID: m.GetUID()}}
				})
			}
			n, m, r := begin("m1")
			w.until("it to permit a power-off", func() bool { return w.permits(n) != "" && w.c.CachedRequest(n) != "" })
			thief := w.node(func(o *corev1.Node) { o.Annotations = n.Annotations })
			if got := w.permits(thief); got != "" {
				t.Errorf("a node that claims the Machine is powered off by %q", got)
			}
			w.record(n, taint.Record{ID: "f-1", Phase: taint.PhaseDone, Result: taint.ResultEvicted,
				At: time.Now().Add(time.Minute)})
			w.untilShown(r, metav1.ConditionTrue, "FenceDone")
			w.until("ExternallyRemediated", func() bool {
				return w.conditions(m, "status", "conditions") == "Ready=False ExternallyRemediated=True"
			})

			n, m, r = begin("m2")
			w.record(n, taint.Record{ID: "f-2", Phase: taint.PhaseDone, Result: taint.ResultPowerOffFailed,
				At: time.Now().Add(time.Minute)})
			w.untilShown(r, metav1.ConditionFalse, "PowerOffFailed")
			if !replace {
				if got := w.conditions(m, "status", "conditions"); strings.Contains(got, "OwnerRemediated") {
					t.Errorf("got %s, want no OwnerRemediated", got)
				}
				return
			}
			w.until("OwnerRemediated", func() bool {
				return strings.Contains(w.conditions(m, "status", "conditions"), "OwnerRemediated=False") &&
					w.conditions(m, "status", "deprecated", "v1beta1", "conditions") == "OwnerRemediated=False"
			})

			n, m, r = begin("m3")
			w.until("it to permit a power-off", func() bool { return w.permits(n) != "" })
			w.c.ReportDecision(n.Name, reason.NoMachine, "no rule")
			w.untilShown(r, metav1.ConditionFalse, "NoMachine")
			if got := w.conditions(m, "status", "conditions"); strings.Contains(got, "OwnerRemediated") {
				t.Errorf("without a device: got %s, want no OwnerRemediated", got)
			}
		})
	}
}

// A request goes on where its node's outage changes its kind before the eyes of a controller. It permits nothing more
// where that happened while none ran.
func TestRequestBetweenControllers(t *testing.T) {
	w := newWorld(t, shared, nil)
	serve(t, w.admin)
	hours := 3
	n := w.node(nil)
	become := func(status corev1.ConditionStatus) {
		t.Helper()
		kit.Must(t, w.nodes.Get(t.Context(), client.ObjectKeyFromObject(n), n))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Duration(hours) * time.Hour))}}
		hours--
		kit.Must(t, w.nodes.Status().Update(t.Context(), n))
	}
	become(corev1.ConditionFalse)
	r := w.request(w.ns, n.Name, nil)
	noted := func() bool {
		since := w.get(r).Status.ReadySince
		return since != nil && since.Time.Equal(n.Status.Conditions[0].LastTransitionTime.Rfc3339Copy().Time)
	}
	w.until("the outage to be noted", noted)
	become(corev1.ConditionUnknown)
	w.until("its other kind to be noted", noted)
	if w.permits(n) == "" {
		t.Error("the request permits nothing, although a controller watched its outage")
	}

	w.c.mu.Lock()
	clear(w.c.watched) // another leader
	w.c.mu.Unlock()
	become(corev1.ConditionFalse)
	w.untilShown(r, metav1.ConditionUnknown, "RequestRefused")
	if got := w.permits(n) + w.c.CachedRequest(n); got != "" || noted() {
		t.Errorf("permitted by %q, noted %v: want neither", got, noted())
	}
	kit.Must(t, w.admin.Delete(t.Context(), r))
	w.until("nothing to be remembered of the request", func() bool {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		return len(w.c.watched) == 0
	})
}
