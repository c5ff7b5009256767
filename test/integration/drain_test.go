package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// podName is the label that distinguishes a StatefulSet's pods.
const podName = "statefulset.kubernetes.io/pod-name"

// crd is a CustomResourceDefinition without a schema to speak of.
func crd(group, version, plural, kind, scope string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: %[6]s
  names: {plural: %[3]s, singular: %[5]s, kind: %[4]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, version, plural, kind, strings.ToLower(kind), scope)
}

var copies = schema.GroupVersionResource{Group: "disks.example.com", Version: "v1", Resource: "copies"}

// disks is a storage system that does what a real one does as far as drains see it: one engine pod a node, copies of
// volumes behind them, of which one is healthy while its engine runs, and which it moves away from where they are asked
// to go.
type disks struct {
	w   *world
	api dynamic.ResourceInterface

	turning sync.Mutex // held while it looks and acts

	mu    sync.Mutex // guards the rest
	full  bool       // no node has room for another copy
	slow  bool       // copies that were begun do not become ready
	least map[string]int
	stop  chan struct{}
	done  chan struct{}
}

// copyState is a copy's spec.
type copyState struct {
	Node    string `json:"node"`
	Volume  string `json:"volume"`
	Healthy bool   `json:"healthy"`
	Running bool   `json:"running"`
	Started bool   `json:"started"`
	Evict   bool   `json:"evict"`
	Wanted  bool   `json:"wanted"`
}

func (d *disks) list() map[string]copyState {
	list, err := d.api.List(d.w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	out := map[string]copyState{}
	for _, o := range list.Items {
		var c struct{ Spec copyState }
		b, err := o.MarshalJSON()
		if err == nil && json.Unmarshal(b, &c) == nil {
			out[o.GetName()] = c.Spec
		}
	}
	return out
}

func (d *disks) put(name string, c copyState) {
	spec, err := json.Marshal(c)
	kit.Must(d.w.t, err)
	o := &unstructured.Unstructured{}
	kit.Must(d.w.t,
		o.UnmarshalJSON(
			fmt.Appendf(nil,
				`{"apiVersion":"disks.example.com/v1","kind":"Copy","metadata":{"name":%q,"namespace":%q},"spec":%s}`,
				name, d.w.ns, spec)))
	_, err = d.api.Create(d.w.ctx, o, metav1.CreateOptions{})
	kit.Must(d.w.t, err)
}

func (d *disks) patch(name string, body string) {
	_, err := d.api.Patch(d.w.ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && d.w.ctx.Err() == nil {
		d.w.t.Errorf("patching copy %s: %v", name, err)
	}
}

// remove deletes a copy that may be gone.
func (d *disks) remove(name string) {
	err := d.api.Delete(d.w.ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && d.w.ctx.Err() == nil {
		d.w.t.Errorf("deleting copy %s: %v", name, err)
	}
}

// volume makes a volume with a healthy copy on each node.
func (d *disks) volume(name string, on ...*host) {
	d.turning.Lock() // no client sees half of it
	defer d.turning.Unlock()
	for _, h := range on {
		d.put(name+"-"+h.Name(), copyState{Node: h.Name(), Volume: name, Healthy: true, Running: true, Started: true})
	}
}

// run is the system's own controller.
func (d *disks) run() {
	defer close(d.done)
	for {
		select {
		case <-d.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		d.turn()
	}
}

func (d *disks) turn() {
	d.turning.Lock()
	defer d.turning.Unlock()
	d.mu.Lock()
	full, slow := d.full, d.slow
	d.mu.Unlock()
	serves := map[string]bool{}
	for _, p := range d.w.ReadyPods(d.w.ns) {
		serves[p.Spec.NodeName] = serves[p.Spec.NodeName] || p.Labels["app"] == "engine"
	}
	all := d.list()
	copiesOf := slices.Collect(maps.Values(all))
	healthy := map[string]int{}
	for name, c := range all {
		switch {
		case !c.Started && serves[c.Node] && !slow: // the copy is whole; the one that it replaces goes
			d.patch(name, `{"spec":{"healthy":true,"started":true,"running":true}}`)
			for old, o := range all {
				if o.Volume == c.Volume && o.Evict {
					d.remove(old)
					break
				}
			}
			healthy[c.Volume]++
			continue
		case c.Started && c.Healthy != serves[c.Node]:
			d.patch(name, fmt.Sprintf(`{"spec":{"healthy":%t}}`, serves[c.Node]))
		}
		if c.Started && serves[c.Node] {
			healthy[c.Volume]++
		}
		building := slices.ContainsFunc(copiesOf,
			func(o copyState) bool { return o.Volume == c.Volume && !o.Started })
		if !c.Evict || full || building {
			continue
		}
		for _, h := range d.w.hosts {
			taken := slices.ContainsFunc(copiesOf,
				func(o copyState) bool { return o.Volume == c.Volume && o.Node == h.Name() })
			if !taken && serves[h.Name()] && !d.w.node(h).Spec.Unschedulable {
				d.put(c.Volume+"-"+h.Name(), copyState{Node: h.Name(), Volume: c.Volume})
				break
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range all {
		if n := healthy[c.Volume]; d.least[c.Volume] == 0 || n < d.least[c.Volume] {
			d.least[c.Volume] = max(n, 0)
			if n == 0 {
				d.least[c.Volume] = -1
			}
		}
	}
}

// were is the least number of healthy copies that a volume ever had; -1 is none.
func (d *disks) were(volume string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.least[volume]
}

func (d *disks) set(full, slow bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.slow = full, slow
}

// asked are the copies whose eviction is asked for.
func (d *disks) asked() (out []string) {
	for name, c := range d.list() {
		if c.Evict {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// on are the volumes with a copy on a node.
func (d *disks) on(h *host) (out []string) {
	for _, c := range d.list() {
		if c.Node == h.Name() {
			out = append(out, c.Volume)
		}
	}
	slices.Sort(out)
	return out
}

// empty removes all copies.
func (d *disks) empty() {
	d.w.t.Helper()
	d.turning.Lock() // it makes none meanwhile
	defer d.turning.Unlock()
	kit.Must(d.w.t, d.api.DeleteCollection(d.w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	d.w.until("no copies", func() bool { return len(d.list()) == 0 })
}

// drains begins `kubectl drain` and returns what it came to.
func (w *world) drains(h *host, timeout time.Duration) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := w.Kubectl(w.ctx, "drain", h.Name(), "--ignore-daemonsets", "--delete-emptydir-data",
			"--timeout="+timeout.String())
		out <- err
	}()
	return out
}

func (w *world) annotation(h *host, key string) string {
	w.t.Helper()
	return w.node(h).Annotations[key]
}

// auto reports what the Node says of its replicas' eviction.
func (w *world) auto(h *host) bool {
	w.t.Helper()
	return w.annotation(h, taint.AutoEvictingAnnotation) == "true"
}

// budgets are ours, by node.
func (w *world) budgets() map[string]policyv1.PodDisruptionBudget {
	w.t.Helper()
	list, err := w.Client().PolicyV1().PodDisruptionBudgets(w.ns).
		List(w.ctx, metav1.ListOptions{LabelSelector: taint.DrainGuardLabel})
	kit.Must(w.t, err)
	out := map[string]policyv1.PodDisruptionBudget{}
	for _, b := range list.Items {
		out[b.Annotations[taint.GuardedNodeAnnotation]] = b
	}
	return out
}

// told returns the copies for which an Event with that reason was sent, since the world began.
func (w *world) told(reason string) (out []string) {
	w.t.Helper()
	list, err := w.Client().EventsV1().Events(w.ns).List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	for _, e := range list.Items {
		if e.Regarding.Kind == "Copy" && e.Reason == reason {
			out = append(out, e.Regarding.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Longhorn's document about drains, item by item, on a storage system that does not guard drains itself, and Longhorn's
// own setting.
func TestLonghornDrain(t *testing.T) {
	w := newWorld(t, plan{nodes: 4, own: &options})
	w.kubectlApply(crd("disks.example.com", "v1", "copies", "Copy", "Namespaced"))
	w.kubectlApply(crd("longhorn.io", "v1beta2", "settings", "Setting", "Namespaced"))
	w.kubectlApply("apiVersion: v1\nkind: Namespace\nmetadata: {name: longhorn-system}\n")
	api, err := dynamic.NewForConfig(w.RESTConfig())
	kit.Must(t, err)
	d := &disks{w: w, api: api.Resource(copies).Namespace(w.ns), least: map[string]int{}, stop: make(chan struct{}),
		done: make(chan struct{})}
	w.until("the CRD is served", func() bool {
		_, err := d.api.List(w.ctx, metav1.ListOptions{})
		return err == nil
	})
	grace := int64(1)
	engine := cluster.Workload{Namespace: w.ns, Name: "engine", Replicas: len(w.hosts),
		GracePeriod: &grace}.StatefulSet()
	engine.Spec.Template.Spec.NodeSelector = w.selector()
	engine.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}},
			TopologyKey:   corev1.LabelHostname,
		}},
	}}
	w.create(engine)
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, len(w.hosts)))
	go d.run()
	defer func() {
		close(d.stop)
		<-d.done
	}()

	var ff *child
	policy := func(p drain.Policy, more ...string) {
		t.Helper()
		set := settings{Top: fmt.Sprintf(`storage:
- name: disks
  drivers: [disks.example.com]
  namespace: %s
  pods: app=engine
  node: {resource: nodes.v1, name: object.metadata.name, healthy: "true"}
  replica:
    resource: copies.v1.disks.example.com
    node: object.spec.node
    volume: object.spec.volume
    healthy: object.spec.healthy
    running: object.spec.running
    started: object.spec.started
    evicting: object.spec.evict
    wanted: object.spec.wanted
    evict: '{"spec": {"evict": true}}'
    keep: '{"spec": {"evict": false}}'
- {name: longhorn, preset: longhorn}
drain:
- {name: disks, storage: disks, policy: %s, identity: [%s]}
%s`, w.ns, p, podName, strings.Join(more, "\n"))}
		if ff == nil {
			ff = w.start(w.installed(set, `
config:
  storage: [{name: disks, drivers: [disks.example.com]}, {name: longhorn, preset: longhorn}]
  drain: [{name: disks, storage: disks}, {name: longhorn, storage: longhorn, delegate: true}]
rbac: {extraRules: [{apiGroups: [disks.example.com], resources: [copies], verbs: [list, watch, patch]}]}
`))
			return
		}
		const series = `forcefence_config_reloads_total{result="ok"}`
		var before float64
		w.until("its metrics", func() bool { before, err = ff.scrape(series); return err == nil })
		ff.configure(set)
		ff.untilMetric(series, before+1)
	}
	a, b, c, e := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	guarded := func(t *testing.T) {
		t.Helper()
		w.until("a budget before every engine",
			func() bool { return len(w.budgets()) == len(w.hosts) && len(w.ReadyPods(w.ns)) == len(w.hosts) })
	}
	begin := func(t *testing.T) {
		t.Helper()
		d.empty()
		d.set(false, false)
		guarded(t)
	}
	fail := func(t *testing.T, done <-chan error) {
		t.Helper()
		if err := <-done; err == nil {
			t.Error("the drain came to its end, want it held up")
		}
	}

	policy(drain.BlockForEviction)
	t.Run("normal", func(t *testing.T) {
		begin(t)
		d.set(true, false)
		d.volume("n", a, b)
		done := w.drains(a, 3*time.Minute)
		w.until("its replica is asked to go",
			func() bool { return slices.Equal(d.asked(), []string{"n-" + a.Name()}) && w.auto(a) })
		d.set(false, false)
		kit.Must(t, <-done)
		w.kubectl("uncordon", a.Name())
		w.until("it says so no more", func() bool { return !w.auto(a) && w.annotation(a, taint.DrainAnnotation) == "" })
		if on := d.on(a); len(on) > 0 || len(d.asked()) > 0 || d.were("n") != 2 {
			t.Errorf("after the drain: got %v on the node, %v asked to go, and at least %d healthy copies; want "+
				"none, none and 2", on, d.asked(), d.were("n"))
		}
		w.until("its Event, and no other's",
			func() bool { return slices.Equal(w.told("EvictionAutomatic"), []string{"n-" + a.Name()}) })
		if got := w.told("EvictionCanceled"); len(got) > 0 {
			t.Errorf("EvictionCanceled: got %v, want none", got)
		}
	})
	t.Run("status", func(t *testing.T) {
		begin(t)
		d.set(true, false)
		d.volume("s1", a, b)
		d.volume("s2", a, c)
		done := w.drains(a, 3*time.Minute)
		status := func() string {
			t.Helper()
			out, err := exec.CommandContext(w.ctx, binary, "drain", "status", a.Name(), "--kubeconfig", w.Kubeconfig()).
				CombinedOutput()
			kit.Must(t, err)
			return string(out)
		}
		if note := w.untilEvent("Node", a.Name(), "DrainHeldUp"); !strings.Contains(note, "drain status "+a.Name()) {
			t.Errorf("Event: got %q, want it to name the command", note)
		}
		var out string
		for _, want := range []string{
			"Drain guard disks, policy block-for-eviction: blocked for ",
			"PodDisruptionBudget " + w.ns + "/" + w.budgets()[a.Name()].Name,
			"Replicas: 0 of 2 have left, 2 block the drain; the rate is unknown",
			"disks s1 s1-" + a.Name() + " it has not left yet",
		} {
			w.until("drain status tells "+want, func() bool {
				out = status()
				return strings.Contains(strings.Join(strings.Fields(out), " "), want)
			})
		}
		d.patch("s1-"+a.Name(), `{"spec":{"evict":true,"wanted":false}}`)
		d.remove("s1-" + a.Name())
		w.until("one has left",
			func() bool { return strings.Contains(status(), "Replicas: 1 of 2 have left, 1 block the drain; ") })
		if out = status(); !strings.Contains(out, " a minute so far, about ") {
			t.Errorf("drain status: want the rate and the rest in\n%s", out)
		}
		d.set(false, false)
		kit.Must(t, <-done)
		w.untilEvent("Node", a.Name(), "DrainAllowed")
		w.until("drain status reports that nothing holds it up",
			func() bool { return strings.Contains(status(), "forcefence does not block its drain") })
		w.kubectl("uncordon", a.Name())
	})
	t.Run("uncordon in the middle", func(t *testing.T) {
		begin(t)
		d.set(false, true)
		d.volume("m", a, b)
		done := w.drains(a, 3*time.Second)
		w.until("a copy is begun", func() bool { return len(d.list()) == 3 })
		fail(t, done)
		w.kubectl("uncordon", a.Name())
		w.until("the request is taken back", func() bool { return len(d.asked()) == 0 && !w.auto(a) })
		for _, reason := range []string{"EvictionAutomatic", "EvictionCanceled"} {
			w.until(reason, func() bool { return slices.Contains(w.told(reason), "m-"+a.Name()) })
		}
		d.set(false, false)
		w.until("the copy that was begun is whole, and all of them stay", func() bool {
			all := slices.Collect(maps.Values(d.list()))
			return len(all) == 3 && !slices.ContainsFunc(all, func(c copyState) bool { return !c.Healthy })
		})
	})
	policy(drain.BlockForEvictionIfLast)
	t.Run("last replica", func(t *testing.T) {
		begin(t)
		d.volume("one", a)
		d.volume("three", a, b, c)
		done := w.drains(a, 3*time.Minute)
		w.until("the last replica is asked to go",
			func() bool { return slices.Contains(w.told("EvictionAutomatic"), "one-"+a.Name()) })
		kit.Must(t, <-done)
		w.until("the volume with three is degraded", func() bool { return d.were("three") == 2 })
		w.kubectl("uncordon", a.Name())
		w.until("all is as before", func() bool { return !w.auto(a) && len(d.asked()) == 0 })
		if on := d.on(a); !slices.Equal(on, []string{"three"}) || d.were("one") != 1 {
			t.Errorf("after the drain: got %v on the node, and at least %d healthy copies of one; want three, and 1",
				on, d.were("one"))
		}
		for _, reason := range []string{"EvictionAutomatic", "EvictionCanceled"} {
			if slices.Contains(w.told(reason), "three-"+a.Name()) {
				t.Errorf("%s: got one for a replica that was not asked to go", reason)
			}
		}
	})

	policy(drain.BlockIfLast)
	t.Run("two nodes at once", func(t *testing.T) {
		begin(t)
		d.volume("t", a, b)
		d.volume("free", a, b, c)
		first, second := w.drains(a, 3*time.Second), w.drains(b, 3*time.Second)
		one, two := <-first, <-second
		if one == nil && two == nil || d.were("t") < 1 {
			t.Errorf("two drains at once: got %v and %v, and at least %d healthy copies; want one of them held up, "+
				"and one", one, two, d.were("t"))
		}
		w.kubectl("uncordon", b.Name())
		w.until("a budget before the engine that stays",
			func() bool { _, ok := w.budgets()[b.Name()]; return ok && len(w.ReadyPods(w.ns)) >= 3 })
		kit.Must(t, <-w.drains(a, 3*time.Minute))
		if n := d.were("t"); n < 1 {
			t.Errorf("healthy copies: got %d, want one at all times", n)
		}
		w.kubectl("uncordon", a.Name())
	})
	t.Run("user's own PDB", func(t *testing.T) {
		begin(t)
		d.volume("p", e)
		var name string
		w.until("its engine", func() bool {
			ready := w.ReadyPods(w.ns)
			i := slices.IndexFunc(ready, func(p *corev1.Pod) bool { return p.Spec.NodeName == e.Name() })
			if i >= 0 {
				name = ready[i].Name
			}
			return i >= 0
		})
		theirs := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: w.ns},
			Spec: policyv1.PodDisruptionBudgetSpec{
				Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{podName: name}},
				MaxUnavailable: &intstr.IntOrString{IntVal: 0},
			}}
		budgets := w.Client().PolicyV1().PodDisruptionBudgets(w.ns)
		_, err := budgets.Create(w.ctx, theirs, metav1.CreateOptions{})
		kit.Must(t, err)
		w.until("ours is gone", func() bool { _, ok := w.budgets()[e.Name()]; return !ok })
		if note := w.untilEvent("Node", e.Name(), "DrainGuardedByOther"); !strings.Contains(note,
			name+" (PodDisruptionBudget theirs)") {
			t.Errorf("Event: got %q, want the pod and the budget", note)
		}
		kit.Must(t, budgets.Delete(w.ctx, "theirs", metav1.DeleteOptions{}))
		guarded(t)
		fail(t, w.drains(e, 2*time.Second))
		_, err = budgets.Create(w.ctx, theirs, metav1.CreateOptions{})
		kit.Must(t, err)
		w.during(2*time.Second, "a budget that keeps a last replica", func() error {
			if _, ok := w.budgets()[e.Name()]; !ok {
				return fmt.Errorf("got none")
			}
			return nil
		})
		kit.Must(t, budgets.Delete(w.ctx, "theirs", metav1.DeleteOptions{}))
		w.kubectl("uncordon", e.Name())
	})

	settingsAPI := api.Resource(
		schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "settings"}).
		Namespace("longhorn-system")
	value := func() (string, string) {
		o, err := settingsAPI.Get(w.ctx, "node-drain-policy", metav1.GetOptions{})
		kit.Must(t, err)
		v, _, _ := unstructured.NestedString(o.Object, "value")
		return v, o.GetAnnotations()[taint.DelegatedAnnotation]
	}
	delegated := "- {name: longhorn, storage: longhorn, policy: block-for-eviction, delegate: true}"
	policy(drain.AlwaysAllow, delegated)
	t.Run("delegation", func(t *testing.T) {
		w.until("no budget is left where everything is allowed", func() bool { return len(w.budgets()) == 0 })
		w.kubectlApply("apiVersion: longhorn.io/v1beta2\nkind: Setting\nmetadata: {name: node-drain-policy, " +
			"namespace: longhorn-system}\nvalue: block-if-contains-last-replica\n")
		w.until("the setting is ours", func() bool { v, by := value(); return v == "block-for-eviction" && by == v })
		ff.untilMetric(`forcefence_drain_delegated{guard="longhorn"}`, 1)
		w.untilEvent("Setting", "node-drain-policy", "DrainPolicySet")
	})
	ff.documented(func(metric string) bool { return strings.HasPrefix(metric, "forcefence_drain_") })
}

// kubectlApply applies a manifest.
func (w *world) kubectlApply(text string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "manifest.yaml")
	kit.Must(w.t, os.WriteFile(file, []byte(text), 0o600))
	w.kubectl("apply", "--server-side", "-f", file)
}
