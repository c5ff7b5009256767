//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/test/csi"
	"github.com/forcefence/forcefence/test/nodes"
)

const diskGroup = "disks.test.forcefence.io"

// diskKinds are the resources in which the storage system reports its state.
var diskKinds = map[string]string{"nodes": "Node", "volumes": "Volume", "copies": "Copy"}

// disks is the storage system of policies and drains, over the volumes of the test CSI driver. It says of nodes and
// volumes whether they are healthy, and it has replicas: each is a file in its node's folder of the store, which is
// there or is not, and serves while the node's engine, a pod, is Ready. The CSI driver mounts the replica to which the
// volume's disk leads. Nothing of it runs by itself: it acts when turn is called.
type disks struct {
	w     *world
	api   dynamic.Interface
	room  bool           // a replica that shall go may be built elsewhere
	least map[string]int // by volume: the least replicas that were healthy at a time
}

// copyState is a replica's spec.
type copyState struct {
	Node    string `json:"node"`
	Volume  string `json:"volume"`
	Healthy bool   `json:"healthy"`
	Evict   bool   `json:"evict"`
}

// disks is its description in the configuration.
func (w *world) disks() string {
	const health = `{"online": true, "offline": false}[object.spec.health]`
	return fmt.Sprintf(`storage:
- name: disks
  drivers: [%[1]s]
  namespace: %[2]s
  pods: app=engine
  node: {resource: nodes.v1.%[3]s, name: object.metadata.name, healthy: %[4]q}
  volume: {resource: volumes.v1.%[3]s, find: pv, key: object.metadata.name, healthy: %[4]q}
  replica:
    resource: copies.v1.%[3]s
    node: object.spec.node
    volume: object.spec.volume
    healthy: object.spec.healthy
    evicting: object.spec.evict
    evict: '{"spec": {"evict": true}}'
    keep: '{"spec": {"evict": false}}'
`, csi.Name, w.ns, diskGroup, health)
}

// newDisks makes its resources known to the API server.
func (w *world) newDisks() *disks {
	w.t.Helper()
	api, err := dynamic.NewForConfig(w.c.RESTConfig())
	w.must(err)
	d := &disks{w: w, api: api, least: map[string]int{}}
	var crds strings.Builder
	for plural, kind := range diskKinds {
		fmt.Fprintf(&crds, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {plural: %[1]s, singular: %[4]s, kind: %[3]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, plural, diskGroup, kind, strings.ToLower(kind))
	}
	file := filepath.Join(w.dir, "disks.yaml")
	w.must(os.WriteFile(file, []byte(crds.String()), 0o600))
	w.kubectl("apply", "-f", file)
	w.kubectl("wait", "--for=condition=Established", "--timeout=1m", "-f", file)
	return d
}

func (d *disks) of(plural string) dynamic.ResourceInterface {
	return d.api.Resource(schema.GroupVersionResource{Group: diskGroup, Version: "v1", Resource: plural}).
		Namespace(d.w.ns)
}

// put writes an object's spec.
func (d *disks) put(plural, name string, spec any) {
	d.w.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	d.w.must(err)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": diskGroup + "/v1", "kind": diskKinds[plural],
		"metadata": map[string]any{"name": name, "namespace": d.w.ns}, "spec": content,
	}}
	_, err = d.of(plural).Apply(d.w.t.Context(), name, o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	d.w.must(err)
}

// says sets what the system reports about one of its "nodes" or "volumes".
func (d *disks) says(plural, name, health string) {
	d.w.t.Helper()
	d.put(plural, name, &struct {
		Health string `json:"health"`
	}{health})
}

// file is a replica's.
func (d *disks) file(node, volume string) string {
	return filepath.Join(d.w.csi.Store().Dir(), "replicas", node, volume)
}

// is reports whether the replica's file is there.
func (d *disks) is(node, volume string) bool {
	d.w.t.Helper()
	_, err := os.Stat(d.file(node, volume))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.w.t.Fatal(err)
	}
	return err == nil
}

// serve has the volume mounted from that node's replica from now on.
func (d *disks) serve(volume, node string) {
	d.w.t.Helper()
	disk := d.w.csi.Store().Disk(volume)
	d.w.must(os.Symlink(d.file(node, volume), disk+".new"))
	d.w.must(os.Rename(disk+".new", disk))
}

// build copies the replica of a node to another: as it was at one moment, or not at all (false), if it was written to
// meanwhile.
func (d *disks) build(volume, from, to string) bool {
	d.w.t.Helper()
	source, target := d.file(from, volume), d.file(to, volume)
	data, err := os.ReadFile(source)
	d.w.must(err)
	d.w.must(os.MkdirAll(filepath.Dir(target), 0o755))
	d.w.must(os.WriteFile(target+".new", data, 0o600))
	again, err := os.ReadFile(source)
	d.w.must(err)
	if !bytes.Equal(data, again) {
		return false
	}
	d.w.must(os.Rename(target+".new", target))
	return true
}

// volume gives replicas on these nodes to a volume that is there: its disk becomes the first's, the others are copies.
func (d *disks) volume(name string, on ...*nodes.Node) {
	d.w.t.Helper()
	first := on[0].Name()
	d.w.must(os.MkdirAll(filepath.Dir(d.file(first, name)), 0o755))
	d.w.must(os.Rename(d.w.csi.Store().Disk(name), d.file(first, name))) // it may be mounted
	d.serve(name, first)
	for _, n := range on[1:] {
		d.w.until("a copy of "+name, func() bool { return d.build(name, first, n.Name()) })
	}
	d.least[name] = len(on)
	for _, n := range on {
		d.put("copies", name+"-"+n.Name(), &copyState{Node: n.Name(), Volume: name, Healthy: true})
	}
}

// list are the replicas that the API server knows, by name.
func (d *disks) list() map[string]copyState {
	d.w.t.Helper()
	list, err := d.of("copies").List(d.w.t.Context(), metav1.ListOptions{})
	d.w.must(err)
	out := map[string]copyState{}
	for _, o := range list.Items {
		var c struct {
			Spec copyState `json:"spec"`
		}
		d.w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &c))
		out[o.GetName()] = c.Spec
	}
	return out
}

// engines are the nodes whose engine serves.
func (d *disks) engines() map[string]bool {
	d.w.t.Helper()
	list, err := d.w.c.Client().CoreV1().Pods(d.w.ns).
		List(d.w.t.Context(), metav1.ListOptions{LabelSelector: "app=engine"})
	d.w.must(err)
	out := map[string]bool{}
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		out[p.Spec.NodeName] = out[p.Spec.NodeName] || ready && p.DeletionTimestamp == nil
	}
	return out
}

// healthy counts a volume's files on nodes whose engine serves.
func (d *disks) healthy(volume string, serves map[string]bool) (n int) {
	d.w.t.Helper()
	for _, node := range d.w.nodes() {
		if serves[node.Name()] && d.is(node.Name(), volume) {
			n++
		}
	}
	return n
}

// turn is one look of the system's own controller: it counts, says which replicas are healthy, and moves one that shall
// go.
func (d *disks) turn() {
	d.w.t.Helper()
	serves, all := d.engines(), d.list()
	for volume, n := range d.least {
		d.least[volume] = min(n, d.healthy(volume, serves))
	}
	for name, c := range all {
		if is := serves[c.Node] && d.is(c.Node, c.Volume); is != c.Healthy {
			_, err := d.of("copies").
				Patch(d.w.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"healthy":%t}}`, is),
					metav1.PatchOptions{})
			d.w.must(err)
		}
	}
	for name, c := range all {
		if !c.Evict || !d.room {
			continue
		}
		for _, n := range d.w.nodes() {
			to := n.Name()
			if _, taken := all[c.Volume+"-"+to]; taken || !serves[to] || d.w.node(n).Spec.Unschedulable ||
				!d.build(c.Volume, c.Node, to) {
				continue
			}
			d.serve(c.Volume, to)
			d.put("copies", c.Volume+"-"+to, &copyState{Node: to, Volume: c.Volume, Healthy: true})
			d.w.must(d.of("copies").Delete(d.w.t.Context(), name, metav1.DeleteOptions{}))
			d.w.must(os.Remove(d.file(c.Node, c.Volume)))
			return
		}
	}
}

// until is world's, while the system's controller runs.
func (d *disks) until(what string, check func() bool) {
	d.w.t.Helper()
	d.w.until(what, func() bool { d.turn(); return check() })
}

// asked are the replicas that were asked to go.
func (d *disks) asked() (out []string) {
	d.w.t.Helper()
	for name, c := range d.list() {
		if c.Evict {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// holds pods write random bytes once, and go on reading them.
func holds(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: "HOLD", Value: fmt.Sprint(1 << 20)})
}

// sum is what a pod read, "" until it has read anything.
func (w *world) sum(p *corev1.Pod) string {
	w.t.Helper()
	for _, l := range w.lines() {
		if l.UID == string(p.UID) {
			return l.Sum
		}
	}
	return ""
}

// engine is the storage system's pod on each node.
func (w *world) engine() {
	w.t.Helper()
	p := w.pod("engine")
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}, TopologyKey: corev1.LabelHostname,
		}},
	}}
	w.statefulSet("engine", p, func(s *appsv1.StatefulSetSpec) {
		s.Replicas, s.PodManagementPolicy = new(int32(len(w.nodes()))), appsv1.ParallelPodManagement
	})
}

// guards gives the controller a configuration with that drain guard, "" none, and waits until it has its budgets, or
// none is left.
func (w *world) guards(p drain.Policy) {
	w.t.Helper()
	text, want := w.settings, 0
	if p != "" {
		text += fmt.Sprintf("drain:\n- {name: disks, storage: disks, policy: %s, identity: [%s]}\n", p,
			appsv1.StatefulSetPodNameLabel)
		want = len(w.nodes())
	}
	w.must(os.WriteFile(w.config+".new", []byte(text), 0o600))
	w.must(os.Rename(w.config+".new", w.config))
	w.until(fmt.Sprintf("%d budgets", want), func() bool { return w.budgets() == want })
}

// budgets are ours.
func (w *world) budgets() int {
	w.t.Helper()
	list, err := w.c.Client().PolicyV1().PodDisruptionBudgets(w.ns).
		List(w.t.Context(), metav1.ListOptions{LabelSelector: taint.DrainGuardLabel})
	w.must(err)
	return len(list.Items)
}

// drain begins `kubectl drain`, which gives up after a while, and returns what it came to once it is over.
func (w *world) drain(n *nodes.Node, wait time.Duration, succeeds bool) (over func() bool) {
	done, ctx := make(chan error, 1), w.t.Context()
	go func() {
		_, err := w.c.Kubectl(ctx, "drain", n.Name(), "--ignore-daemonsets", "--timeout="+wait.String())
		done <- err
	}()
	return func() bool {
		select {
		case err := <-done:
			if succeeds != (err == nil) {
				w.t.Errorf("kubectl drain: got %v, want success: %t", err, succeeds)
			}
			return true
		default:
			return false
		}
	}
}

// auto reports whether the Node says that replicas leave it because of us.
func (w *world) auto(n *nodes.Node) bool {
	return w.node(n).Annotations[taint.AutoEvictingAnnotation] == "true"
}

// drained is what Longhorn's document about drains wants of data (TestLonghornDrain: normal, last replica,
// unschedulable): the node is drained by kubectl, its replicas move or stay as the policy says, redundancy is kept or
// is not, and the data is read from the replicas that the document wants to be there in the end, when there are no
// others any more.
func (w *world) drained() string {
	d := w.storage
	w.engine()
	names, pods := []string{"moves", "one", "three", "stays"}, map[string]*corev1.Pod{}
	w.only(w.n2, func() {
		for _, name := range names {
			w.statefulSet(name, w.volume(name, holds), data(name))
		}
		for _, name := range names {
			pods[name] = w.running(name+"-0", "")
		}
	})
	for _, n := range w.nodes() {
		d.says("nodes", n.Name(), "online")
	}
	// ends waits until the drain is over and uncordons the node.
	ends := func(over func() bool) time.Duration {
		from := time.Now()
		d.room = true
		d.until("the drain is over", over)
		took := time.Since(from)
		d.room = false
		d.until("the drain has taken the node's engine", func() bool { return !d.engines()["n2"] })
		w.kubectl("uncordon", "n2")
		d.until("all is as before", func() bool {
			return d.engines()["n2"] && !w.auto(w.n2) && len(d.asked()) == 0 && w.budgets() == len(w.nodes())
		})
		return took
	}

	w.guards(drain.BlockForEviction)
	d.volume("moves", w.n2, w.n1)
	over := w.drain(w.n2, 10*time.Minute, true)
	d.until("its replica is asked to go",
		func() bool { return slices.Equal(d.asked(), []string{"moves-n2"}) && w.auto(w.n2) })
	all := ends(over)
	if d.is("n2", "moves") || !d.is("n3", "moves") || d.least["moves"] != 2 {
		w.t.Errorf("after the drain: got replicas %v, and at least %d healthy ones at all times; want one that moved "+
			"to n3, and 2", d.list(), d.least["moves"])
	}

	w.guards("") // without it the test cannot see when the next is in force
	w.guards(drain.BlockForEvictionIfLast)
	d.volume("one", w.n2)
	d.volume("three", w.n1, w.n2, w.n3)
	over = w.drain(w.n2, 10*time.Minute, true)
	d.until("the last replica is asked to go",
		func() bool { return slices.Equal(d.asked(), []string{"one-n2"}) && w.auto(w.n2) })
	last := ends(over)
	if d.is("n2", "one") || d.least["one"] != 1 {
		w.t.Errorf("after the drain: got replicas %v, and at least %d healthy ones of one at all times; want it "+
			"elsewhere, and 1", d.list(), d.least["one"])
	}
	if !d.is("n2", "three") || d.least["three"] != 2 || d.healthy("three", d.engines()) != 3 {
		w.t.Errorf("after the drain: got replicas %v, and at least %d healthy ones of three; want it where it was, "+
			"degraded to 2, and 3 in the end", d.list(), d.least["three"])
	}
	for replica, want := range map[string]bool{"moves-n2": true, "one-n2": true, "three-n2": false} {
		if want {
			w.until("the Event of "+replica, func() bool { return w.told(replica, "EvictionAutomatic") })
		} else if w.told(replica, "EvictionAutomatic") {
			w.t.Errorf("%s has an Event of its eviction, and was not asked to go", replica)
		}
	}

	// There is no room for another replica: the drain never ends, and after it all is as before.
	w.guards("")
	w.guards(drain.BlockForEviction)
	d.volume("stays", w.n2, w.n1)
	over = w.drain(w.n2, 10*time.Second, false)
	asked := []string{"stays-n2", "three-n2"}
	d.until("its replicas are asked to go", func() bool { return slices.Equal(d.asked(), asked) && w.auto(w.n2) })
	d.until("the drain has given up", over)
	if !w.auto(w.n2) || !d.engines()["n2"] {
		w.t.Errorf("when the drain gave up: auto-evicting %t, engine %t; want both", w.auto(w.n2), d.engines()["n2"])
	}
	w.kubectl("uncordon", "n2")
	d.until("the requests are taken back", func() bool { return !w.auto(w.n2) && len(d.asked()) == 0 })
	if !d.is("n2", "stays") || !d.is("n1", "stays") || d.least["stays"] != 2 {
		w.t.Errorf("after the drain: got replicas %v, and at least %d healthy ones of stays; want them where they "+
			"were, and 2", d.list(), d.least["stays"])
	}
	for _, reason := range []string{"EvictionAutomatic", "EvictionCanceled"} {
		w.until(reason+" of stays-n2", func() bool { return w.told("stays-n2", reason) })
	}

	// The data, mounted again, with only these replicas left.
	w.guards("")
	from := map[string]string{"moves": "n3", "three": "n2", "stays": "n2"}
	for _, c := range d.list() {
		if c.Volume == "one" {
			from["one"] = c.Node
		}
	}
	for name, node := range from {
		w.kubectl("-n", w.ns, "scale", "statefulset", name, "--replicas=0")
		d.serve(name, node)
		for _, n := range w.nodes() {
			if n.Name() != node && d.is(n.Name(), name) {
				w.must(os.Remove(d.file(n.Name(), name)))
			}
		}
	}
	w.untilDetached()
	for _, name := range names {
		w.kubectl("-n", w.ns, "scale", "statefulset", name, "--replicas=1")
	}
	for _, name := range names {
		next := w.running(name+"-0", pods[name].UID)
		if was, is := w.sum(pods[name]), w.sum(next); was == "" || is != was {
			w.t.Errorf("%s reads data of sum %s from %s, and %s was written", name, is, from[name], was)
		}
	}
	w.kubectl("-n", w.ns, "delete", "statefulset", "engine", "one", "three", "stays", "--cascade=foreground", "--wait")
	w.clear("moves")
	w.kubectl("-n", w.ns, "delete", "copies."+diskGroup, "--all")
	return fmt.Sprintf("room for replicas to drained: all move %s, the last one %s", ms(all), ms(last))
}
