package drainguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/test/cluster"
)

// shared is a real API server; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

var copies = schema.GroupVersionResource{Group: "disks.example.com", Version: "v1", Resource: "copies"}

// world is a storage system's objects on a real API server, and a Controller whose passes the test makes.
type world struct {
	t       *testing.T
	ctx     context.Context
	admin   client.Client
	api     dynamic.NamespaceableResourceInterface
	k       *Controller
	seen    *storage.State // what the Controller's watch of the storage system would have
	guards  []Guarded
	ask     []*storage.Adapter // Options.Adapters
	leading error
	later   time.Duration // how far the Controller's clock is ahead
	still   bool          // the mode begins nothing
	alone   string        // why nothing may be begun

	policies map[string]string // what Options.Policies reads, or its error
	unread   error
	events   *events.FakeRecorder
	ns       string
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newWorld makes nodes of these names with a storage pod each.
func newWorld(t *testing.T, policy drain.Policy, nodes ...string) *world {
	t.Helper()
	admin := cluster.Admin(t, shared)
	w := &world{t: t, ctx: t.Context(), admin: admin, events: events.NewFakeRecorder(100),
		ns: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))}
	def := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "copies.disks.example.com"},
		"spec": map[string]any{
			"group": "disks.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "copies", "singular": "copy", "kind": "Copy"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	w.must(client.IgnoreAlreadyExists(admin.Create(w.ctx, def)))
	dyn, err := dynamic.NewForConfig(shared.RESTConfig())
	w.must(err)
	w.api = dyn.Resource(copies)
	w.until("the CRD is served", func() bool { _, err := w.api.List(w.ctx, metav1.ListOptions{}); return err == nil })
	w.must(admin.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	adapter, bad := storage.CompileAdapter("disks", storage.Spec{
		Drivers: []string{"disks.example.com"}, Namespace: w.ns, Pods: "app=engine",
		Replica: storage.ReplicaSpec{
			Resource: "copies.v1.disks.example.com", Node: "object.spec.node", Volume: "object.spec.volume",
			Healthy:  "object.spec.healthy",
			Evicting: "object.spec.evict", Evict: `{"spec": {"evict": true}}`, Keep: `{"spec": {"evict": false}}`,
		},
	})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	w.seen = storage.NewState(adapter)
	for _, n := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + n}}
		w.must(admin.Create(w.ctx, node))
		t.Cleanup(func() { _ = admin.Delete(context.Background(), node) })
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.must(admin.Status().Update(w.ctx, node))
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "engine-" + n,
				Labels: map[string]string{"app": "engine", "on": n}},
			Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		w.must(admin.Create(w.ctx, p))
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		w.must(admin.Status().Update(w.ctx, p))
	}
	c, err := cache.New(shared.RESTConfig(), cache.Options{})
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Start(ctx)
	}()
	_, err = c.GetInformer(ctx, &corev1.Node{})
	w.must(err)
	w.guards = []Guarded{{
		Guard: drain.Guard{Name: "disks", Policy: policy, Namespace: w.ns, Identity: drain.Identity{"on"},
			Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}}},
		Adapter: adapter, LastSeen: func() storage.System { return w.seen },
	}}
	w.k = New(Options{
		REST: shared.RESTConfig(), Live: admin, Cache: c, Client: admin, Dynamic: dyn, Events: w.events,
		Log:     slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()), Guards: func() []Guarded { return w.guards },
		Leading:  func() error { return w.leading },
		Adapters: func() []*storage.Adapter { return w.ask }, Now: func() time.Time { return time.Now().Add(w.later) },
		MayBegin:  func(*corev1.Node) bool { return !w.still },
		LeftAlone: func(context.Context, string) (string, error) { return w.alone, nil },
		Policies:  func(context.Context) (map[string]string, error) { return w.policies, w.unread },
	})
	t.Cleanup(func() {
		for _, all := range []map[string]*watch{w.k.watches, w.k.settingWatches} {
			for _, o := range all {
				o.stop()
			}
		}
		cancel()
		<-done
	})
	return w
}

// until passes until something is true.
func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	for begun := time.Now(); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			w.t.Fatalf("waiting for %s", what)
		}
		if w.k != nil {
			w.k.runPass(w.ctx)
		}
	}
}

// passes makes a few, long enough for the watches to have seen all there is.
func (w *world) passes() {
	for range 25 {
		w.k.runPass(w.ctx)
		time.Sleep(20 * time.Millisecond)
	}
}

// copy makes a replica; seen, if not nil, is what the Controller's watch has of it instead.
func (w *world) copy(volume, node string, healthy bool, seen ...bool) {
	w.t.Helper()
	o := w.object(volume, node, healthy)
	made, err := w.api.Namespace(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
	w.must(err)
	if len(seen) > 0 {
		w.must(unstructured.SetNestedField(made.Object, seen[0], "spec", "healthy"))
	}
	w.seen.Put(storage.Replicas, made)
}

func (w *world) object(volume, node string, healthy bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "disks.example.com/v1", "kind": "Copy",
		"metadata": map[string]any{"name": volume + "-" + node, "namespace": w.ns},
		"spec":     map[string]any{"node": w.ns + "-" + node, "volume": volume, "healthy": healthy, "evict": false},
	}}
}

// refresh is what the watch of the storage system would do.
func (w *world) refresh() {
	list, err := w.api.Namespace(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var all []*unstructured.Unstructured
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	w.seen.Replace(storage.Replicas, all)
}

func (w *world) cordon(node string, yes bool) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + node}}
	w.must(w.admin.Patch(w.ctx, n,
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes))))
}

// guarded are the nodes before whose pods a budget is.
func (w *world) guarded() string {
	w.t.Helper()
	var list policyv1.PodDisruptionBudgetList
	w.must(w.admin.List(w.ctx, &list, client.InNamespace(w.ns)))
	var out []string
	for _, b := range list.Items {
		out = append(out, strings.TrimPrefix(b.Annotations[taint.GuardedNodeAnnotation], w.ns+"-"))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// asked are the copies whose eviction is asked for.
func (w *world) asked() string {
	w.t.Helper()
	list, err := w.api.Namespace(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var out []string
	for _, o := range list.Items {
		if yes, _, _ := unstructured.NestedBool(o.Object, "spec", "evict"); yes {
			out = append(out, o.GetName())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) notes(node string) map[string]string {
	w.t.Helper()
	var n corev1.Node
	w.must(w.admin.Get(w.ctx, client.ObjectKey{Name: w.ns + "-" + node}, &n))
	return n.Annotations
}

// progress is what the Node says of the drain that the guard of this name holds up; nil: nothing.
func (w *world) progress(node, guard string) *drain.Progress {
	w.t.Helper()
	return drain.ProgressOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: w.notes(node)}})[guard]
}

// makeSetting makes the storage system's own setting, with its default.
func (w *world) makeSetting() {
	w.t.Helper()
	_, err := w.api.Namespace(w.ns).Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "disks.example.com/v1", "kind": "Copy", "metadata": map[string]any{"name": "policy"},
		"value": string(drain.BlockIfLast),
	}}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) settingValue() drain.Policy {
	w.t.Helper()
	o, err := w.api.Namespace(w.ns).Get(w.ctx, "policy", metav1.GetOptions{})
	w.must(err)
	v, _, _ := unstructured.NestedString(o.Object, "value")
	return drain.Policy(v)
}

// What the watches have is not enough to let go of a budget: the live look decides.
func TestLiveLook(t *testing.T) {
	w := newWorld(t, drain.BlockIfLast, "a", "b")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "a", true)
	w.copy("v", "b", false, true) // healthy as far as the watch has heard
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	w.cordon("a", true)
	w.passes()
	if got := w.guarded(); got != "a b" {
		t.Fatalf("the copy elsewhere failed a moment ago: got budgets before %q, want both", got)
	}
	o := w.object("v", "b", true)
	_, err := w.api.Namespace(w.ns).
		Patch(w.ctx, o.GetName(), types.MergePatchType, []byte(`{"spec":{"healthy":true}}`), metav1.PatchOptions{})
	w.must(err)
	w.refresh()
	w.until("the budget is let go of", func() bool { return w.guarded() == "b" })
	w.cordon("b", true)
	w.until("both are cordoned, and nothing of the first was evicted yet: its budget is back",
		func() bool { return w.guarded() == "a b" })
	w.cordon("a", false)
	w.until("the other's goes", func() bool { return w.guarded() == "a" })
}

// Only the leader writes.
func TestNotLeading(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction, "a")
	w.leading = errors.New("another leads")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "a", true)
	w.cordon("a", true)
	w.passes()
	if w.guarded() != "" || w.asked() != "" || len(w.notes("a")) > 0 || len(w.events.Events) > 0 {
		t.Errorf("not leading: got budgets before %q, %q asked to go, annotations %v and %d Events", w.guarded(),
			w.asked(), w.notes("a"), len(w.events.Events))
	}
}

// A pause or an exclusion lets a guard begin nothing; what it began before ends. In a mode that begins nothing, all of
// it goes.
func TestPausedAndDisabled(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction, "a", "b")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "a", true)
	w.alone = "ConfigMap forcefence-pause: new switches"
	w.cordon("a", true)
	w.passes()
	if w.guarded() != "" || w.asked() != "" {
		t.Fatalf("paused: got budgets before %q, %q asked to go, want none", w.guarded(), w.asked())
	}
	w.alone = ""
	w.until("resumed: budgets, and the copy is asked to go", func() bool {
		w.refresh()
		return w.guarded() == "a b" && w.asked() == "v-a"
	})
	w.alone = "annotation forcefence.io/paused"
	w.cordon("a", false)
	w.until("paused: the request is taken back", func() bool {
		w.refresh()
		return w.asked() == ""
	})
	w.passes()
	if w.guarded() != "a b" {
		t.Errorf("paused: got budgets before %q, want both, which stand", w.guarded())
	}
	w.alone, w.still = "", true
	w.cordon("a", true)
	w.until("disabled: nothing is left", func() bool { return w.guarded() == "" })
	w.passes()
	if w.guarded() != "" || w.asked() != "" {
		t.Errorf("disabled: got budgets before %q, %q asked to go, want none", w.guarded(), w.asked())
	}
	w.still = false
	w.until("enabled again", func() bool { return w.guarded() == "a b" })
}

// Nothing known of the storage holds a drain up, says so, and asks for nothing.
func TestBlind(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction, "a")
	w.until("a budget", func() bool { return w.guarded() == "a" })
	w.cordon("a", true)
	w.until("it says so", func() bool { return strings.Contains(w.notes("a")[taint.DrainAnnotation], "not read yet") })
	if w.guarded() != "a" {
		t.Error("the budget is gone")
	}
}

// Requests are reported and canceled. A guard that was removed from the configuration leaves nothing behind.
func TestAskAndTakeBack(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction, "a", "b")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "a", true)
	w.copy("u", "a", true)
	w.copy("x", "b", true)
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	// a person's
	_, err := w.api.Namespace(w.ns).
		Patch(w.ctx, "u-a", types.MergePatchType, []byte(`{"spec":{"evict":true}}`), metav1.PatchOptions{})
	w.must(err)
	w.cordon("a", true)
	w.until("asked", func() bool {
		w.refresh()
		return w.asked() == "u-a v-a" && w.notes("a")[taint.AutoEvictingAnnotation] == "true"
	})
	w.passes()
	told := func() (out []string) {
		for {
			select {
			case e := <-w.events.Events:
				out = append(out, strings.Join(strings.Fields(e)[:2], " "))
			default:
				slices.Sort(out)
				return out
			}
		}
	}
	if diff := cmp.Diff([]string{"Normal EvictionAutomatic", "Warning DrainHeldUp"}, told()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
	var all []drain.Progress
	w.must(json.Unmarshal([]byte(w.notes("a")[taint.DrainAnnotation]), &all))
	if len(all) != 1 || all[0].Left != 2 || all[0].NoBudget {
		t.Errorf("progress: got %+v, want two left", all)
	}
	w.guards = nil
	w.until("nothing is left of it", func() bool { return w.guarded() == "" && w.asked() == "u-a" })
	w.until("it says so", func() bool {
		n := w.notes("a")
		return n[taint.DrainAnnotation] == "" && n[taint.AutoEvictingAnnotation] == "" && len(w.k.watches) == 0
	})
	if diff := cmp.Diff([]string{"Normal DrainAllowed", "Normal EvictionCanceled"}, told()); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

// Somebody who takes our budget for his own gets it mended, and one who changes it between the look and the deletion
// keeps it.
func TestBudgetsOfOurs(t *testing.T) {
	w := newWorld(t, drain.BlockIfLast, "a")
	w.seen.Replace(storage.Replicas, nil)
	w.until("a budget", func() bool { return w.guarded() == "a" })
	var list policyv1.PodDisruptionBudgetList
	read := func() *policyv1.PodDisruptionBudget {
		w.must(w.admin.List(w.ctx, &list, client.InNamespace(w.ns)))
		return &list.Items[0]
	}
	b := read()
	b.Spec.MinAvailable.IntVal = 0
	w.must(w.admin.Update(w.ctx, b))
	w.until("it is mended", func() bool { return read().Spec.MinAvailable.IntVal == 1 })
	b = read()
	b.Spec.Selector.MatchLabels["on"] = "nowhere"
	w.must(w.admin.Update(w.ctx, b))
	w.until("it is before its pod again", func() bool { return read().Spec.Selector.MatchLabels["on"] == "a" })

	seen := drain.SeeBudget(read())
	b = read()
	b.Labels["note"] = "changed"
	w.must(w.admin.Update(w.ctx, b))
	w.must(w.k.carryOut(w.ctx, w.guards[0], "", drain.Act{Do: drain.DeleteBudget, Budget: seen}))
	if w.guarded() != "a" {
		t.Error("a budget that changed since the look: it was deleted")
	}
	seen = drain.SeeBudget(read())
	seen.UID = "another"
	w.must(w.k.carryOut(w.ctx, w.guards[0], "", drain.Act{Do: drain.DeleteBudget, Budget: seen}))
	if w.guarded() != "a" {
		t.Error("another budget of that name: it was deleted")
	}
	if err := w.k.carryOut(w.ctx, w.guards[0], "", drain.Act{}); err == nil {
		t.Error("an unknown act: got no error")
	}
}

// The storage system's own setting is written once. A value that another client writes stays.
func TestSetting(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction)
	setting := Setting{Resource: copies, Namespace: w.ns, Name: "policy", Default: drain.BlockIfLast}
	w.guards = []Guarded{{Guard: drain.Guard{Name: "theirs", Policy: drain.BlockForEviction}, Setting: &setting}}
	w.passes() // it does not exist
	w.makeSetting()
	w.leading = errors.New("another leads")
	w.passes()
	if v := w.settingValue(); v != drain.BlockIfLast {
		t.Errorf("not leading: got it set to %s", v)
	}
	w.leading = nil
	for _, w.alone = range []string{"ConfigMap forcefence-pause", ""} {
		w.still = w.alone == ""
		w.passes()
		if v := w.settingValue(); v != drain.BlockIfLast {
			t.Errorf("paused (%q), or in a mode that begins nothing: got it set to %s", w.alone, v)
		}
	}
	w.still = false
	w.until("it is ours", func() bool { return w.settingValue() == drain.BlockForEviction })
	_, err := w.api.Namespace(w.ns).
		Patch(w.ctx, "policy", types.MergePatchType, []byte(`{"value":"always-allow"}`), metav1.PatchOptions{})
	w.must(err)
	w.passes()
	if v := w.settingValue(); v != "always-allow" {
		t.Errorf("another client's choice: got %s", v)
	}
	said := map[string]int{}
	for len(w.events.Events) > 0 {
		said[strings.Fields(<-w.events.Events)[1]]++
	}
	if want := map[string]int{"DrainPolicySet": 1, "DrainPolicyConflict": 1}; !maps.Equal(said, want) {
		t.Errorf("Events: got %v, want %v", said, want)
	}
}
