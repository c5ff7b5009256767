package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machines "github.com/forcefence/forcefence/test/world"
)

// plan is what a test's world is made of.
type plan struct {
	nodes         int
	oneBMC        bool                                // one BMC in front of all machines; else each has its own
	powerOffDelay time.Duration                       // from an accepted ForceOff to off
	node          func(i int, o *cluster.NodeOptions) // nil: all alike
	doubles       bool                                // the story is one in which doubles are the device's fault
	own           *cluster.Options                    // a cluster of the test's own, with these; nil: one that is there
}

// lifetime is how long a test may take. None needs three minutes on an idle machine.
const lifetime = 15 * time.Minute

// world is one test's cluster, for as long as it runs: a namespace, nodes, and the machines under them with their BMCs.
type world struct {
	*machines.World
	t        *testing.T
	ctx      context.Context
	ns       string
	dir      string
	dc       *datacenter.DataCenter
	hosts    []*host
	seen     *history
	children int
}

// host is a node and its machine.
type host struct {
	*cluster.Node
	machine *datacenter.Machine
	bmc     *datacenter.BMC
}

// cut takes the machine's power; boot gives it back, with a new boot id.
func (h *host) cut()  { h.machine.CutPower() }
func (h *host) boot() { h.machine.PowerOn() }

// partition cuts the kubelet off the API server: its containers run on.
func (h *host) partition() { h.StopHeartbeats() }

// resets counts the power-offs that were asked of the machine.
func (h *host) resets() int { return resets(h.machine, h.bmc) }

// askedSince counts the questions about the machine's power that its BMC got after that moment.
func (h *host) askedSince(at time.Time) int {
	n := 0
	for _, r := range h.bmc.Requests() {
		if r.Method == http.MethodGet && strings.HasSuffix(r.Path, "/Systems/"+h.machine.Name()) && r.At.After(at) {
			n++
		}
	}
	return n
}

// newWorld borrows a cluster and makes the plan's nodes. The test runs in parallel with others from here on.
func newWorld(t *testing.T, p plan) *world {
	t.Helper()
	stage.register(t)
	t.Parallel()
	stage.enter(t)
	var c *cluster.Cluster
	if p.own != nil {
		c = cluster.ForTest(t, *p.own)
	} else {
		c = spare.get(t)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), lifetime, fmt.Errorf("the world's %s are over", lifetime))
	t.Cleanup(cancel)
	ns, err := c.CreateNamespace(ctx, "it")
	kit.Must(t, err)
	w := &world{t: t, ctx: ctx, ns: ns, dir: t.TempDir()}
	var racks *machines.Redfish
	w.World, racks = machines.ForTest(t, c, w.dir, datacenter.Options{PowerOffDelay: p.powerOffDelay})
	racks.OneBMC, w.dc = p.oneBMC, racks.DataCenter
	t.Cleanup(w.clear)
	names := make([]string, p.nodes)
	for i := range names {
		names[i] = fmt.Sprintf("%s-n%d", ns, i)
	}
	kit.Must(t, w.AddHosts(ctx, names, func(i int, o *cluster.NodeOptions) {
		o.SystemUUID = spelled(i, o.SystemUUID)
		o.Labels = w.selector()
		o.SandboxRetry = 200 * time.Millisecond
		if i%2 == 1 && !p.oneBMC {
			o.Labels["room"] = "cellar" // another provider's, unless the test has rules of its own
		}
		if p.node != nil {
			p.node(i, o)
		}
	}))
	for _, h := range w.Hosts {
		m := h.Redfish()
		w.hosts = append(w.hosts, &host{Node: h.Node, machine: m.Machine, bmc: m.BMC})
	}
	w.seen = newHistory(ns)
	t.Cleanup(c.Watch(w.seen.see))
	t.Cleanup(func() {
		if !p.doubles {
			w.noDoubles()
		}
		if t.Failed() {
			t.Log(w.describe())
		}
	})
	return w
}

// spelled is a machine's system UUID as its node tells it: every other one in the byte order that its BMC does not use,
// and in capitals.
func spelled(i int, uuid string) string {
	u, ok := providers.ParseUUID(uuid)
	if i%2 == 0 || !ok {
		return uuid
	}
	s := providers.SwapUUID(u)
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", s[:4], s[4:6], s[6:8], s[8:10], s[10:]))
}

// clear leaves the cluster as it was: no nodes, no pods, no delays.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	w.Attacher().SetDelays(0, 0)
	for _, h := range w.hosts {
		if h.Node != nil {
			kit.Must(w.t, h.Remove(ctx))
		}
	}
	zero := int64(0)
	api := w.Client()
	_ = api.AppsV1().StatefulSets(w.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = api.AppsV1().Deployments(w.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = api.AppsV1().DaemonSets(w.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = api.AppsV1().ReplicaSets(w.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = api.CoreV1().Pods(w.ns).
		DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
	_ = api.CoreV1().Namespaces().Delete(ctx, w.ns, metav1.DeleteOptions{})
	// It belongs to this world: until it is gone, no process of the next test leads.
	_ = api.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "forcefence", metav1.DeleteOptions{})
	_ = api.CoreV1().Events(metav1.NamespaceSystem).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Lease"})
}

func (w *world) selector() map[string]string { return map[string]string{"world": w.ns} }

// history is what the cluster's watch saw, which a look now and then would miss.
type history struct {
	ns       string     // the world's
	mu       sync.Mutex // guards the rest
	nodes    map[string][]chapter
	powering map[string]bool
	crowded  [][]string               // nodes that were in PoweringOff at the same time
	pods     map[string][]*corev1.Pod // by name: the first state seen of each UID
}

// chapter is one state of a Node that differs from the one before.
type chapter struct {
	UID    types.UID
	Mark   string // "" if there is none
	Phase  taint.Phase
	Result taint.Result
	ID, By string
}

func newHistory(ns string) *history {
	return &history{ns: ns, nodes: map[string][]chapter{}, powering: map[string]bool{},
		pods: map[string][]*corev1.Pod{}}
}

func (h *history) see(o metav1.Object, deleted bool) {
	switch o := o.(type) {
	case *corev1.Node:
		if o.Labels["world"] == h.ns && !deleted {
			h.node(o)
		}
	case *corev1.Pod:
		if o.Namespace == h.ns && !deleted {
			h.pod(o)
		}
	}
}

func (h *history) node(node *corev1.Node) {
	c := chapter{UID: node.UID}
	if rec, err := taint.RecordOf(node); err == nil && rec != nil {
		c.Phase, c.Result, c.ID, c.By = rec.Phase, rec.Result, rec.ID, rec.By
	}
	if m, ok := taint.FindMark(node, taint.DefaultKey, c.ID); ok {
		c.Mark = m.Value
		if c.Mark == "" {
			c.Mark = "(empty)"
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.nodes[node.Name]; len(all) > 0 && all[len(all)-1] == c {
		return
	}
	h.nodes[node.Name] = append(h.nodes[node.Name], c)
	delete(h.powering, node.Name)
	if c.Phase == taint.PhasePoweringOff {
		h.powering[node.Name] = true
		if len(h.powering) > 1 {
			h.crowded = append(h.crowded, slices.Sorted(maps.Keys(h.powering)))
		}
	}
}

func (h *history) pod(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.pods[pod.Name]; len(all) == 0 || all[len(all)-1].UID != pod.UID {
		h.pods[pod.Name] = append(all, pod)
	}
}

// chapters are a node's states so far.
func (h *history) chapters(node string) []chapter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes[node])
}

// phases are the phases of a fence in the order they were seen.
func (h *history) phases(node, id string) []taint.Phase {
	var out []taint.Phase
	for _, c := range h.chapters(node) {
		if c.ID == id && (len(out) == 0 || out[len(out)-1] != c.Phase) {
			out = append(out, c.Phase)
		}
	}
	return out
}

// lives returns how many pods of each name there were, by UID.
func (h *history) lives() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{}
	for name, all := range h.pods {
		out[name] = len(all)
	}
	return out
}

// poll calls check, as often as cluster.Until does, until it says true or ctx ends.
func poll(ctx context.Context, check func() (bool, error)) error {
	return cluster.Until(ctx, func(context.Context) (bool, error) {
		ok, err := check()
		if ok {
			err = nil
		}
		return ok, err
	})
}

// until waits for something to come true.
func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	if err := poll(w.ctx, func() (bool, error) { return check(), nil }); err != nil {
		w.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// during checks that something holds all the time.
func (w *world) during(d time.Duration, what string, check func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	var broken error
	_ = poll(ctx, func() (bool, error) { // ends with ctx, or when it is broken
		broken = check()
		return broken != nil, nil
	})
	switch {
	case broken != nil:
		kit.Harm(w.t, "%s: %v", what, broken)
		w.t.FailNow()
	case w.ctx.Err() != nil:
		w.t.Fatalf("%s: %v", what, context.Cause(w.ctx))
	}
}

func (w *world) node(h *host) *corev1.Node {
	w.t.Helper()
	n, err := w.Client().CoreV1().Nodes().Get(w.ctx, h.Name(), metav1.GetOptions{})
	kit.Must(w.t, err)
	return n
}

// record is the Node's; the zero Record if there is none, or none that can be read.
func (w *world) record(h *host) taint.Record {
	w.t.Helper()
	r, err := taint.RecordOf(w.node(h))
	if err != nil || r == nil {
		return taint.Record{}
	}
	return *r
}

// mark is the mark's value, and whether there is one.
func (w *world) mark(h *host) (string, bool) {
	w.t.Helper()
	m, ok := taint.FindMark(w.node(h), taint.DefaultKey, "")
	return m.Value, ok
}

func (w *world) marked(h *host) bool {
	w.t.Helper()
	_, ok := w.mark(h)
	return ok
}

func (w *world) ready(h *host) bool { w.t.Helper(); return cluster.IsReady(w.node(h)) }

// untilPhase waits for a fence of the node to reach a phase, and returns the record.
func (w *world) untilPhase(h *host, p taint.Phase) taint.Record {
	w.t.Helper()
	var r taint.Record
	w.until(fmt.Sprintf("phase %s of %s", p, h.Name()), func() bool {
		r = w.record(h)
		return r.Phase == p
	})
	return r
}

// untilDone waits for the end of the node's fence and checks how it ended, and that no mark is left.
func (w *world) untilDone(h *host, want taint.Result) taint.Record {
	w.t.Helper()
	r := w.untilPhase(h, taint.PhaseDone)
	if r.Result != want {
		w.t.Fatalf("fence of %s: got %s, want %s (%+v)", h.Name(), r.Result, want, r)
	}
	if v, ok := w.mark(h); ok {
		w.t.Errorf("mark of %s after its fence: got %q, want none", h.Name(), v)
	}
	return r
}

// alone returns what is wrong with a node that must stay untouched: it has a mark or a record.
func (w *world) alone(h *host) error {
	n := w.node(h)
	if v, ok := taint.FindMark(n, taint.DefaultKey, ""); ok {
		return fmt.Errorf("node %s: got mark %q, want none", h.Name(), v.Value)
	}
	if r, ok := n.Annotations[taint.RecordAnnotation]; ok {
		return fmt.Errorf("node %s: got record %s, want none", h.Name(), r)
	}
	return nil
}

func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	out, err := w.Kubectl(w.ctx, args...)
	kit.Must(w.t, err)
	return out
}

// manualMark is the mark that a person sets.
const manualMark = taint.DefaultKey + "=manual:NoSchedule"

// fill makes workloads whose pods all begin on one node, and waits until they run.
func (w *world) fill(h *host, pods int, objects ...any) {
	w.t.Helper()
	kit.Must(w.t, w.Open(w.ctx, h.Name()))
	w.create(objects...)
	kit.Must(w.t, w.WaitReadyPods(w.ctx, w.ns, pods))
	kit.Must(w.t, w.Open(w.ctx))
}

// busy is the usual load: a StatefulSet of four with a volume each and a Deployment of two, all on one node.
func (w *world) busy(h *host) {
	w.t.Helper()
	w.fill(h, 6, w.volumes("db", 4), w.plain("web", 2))
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.Client().CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	return list.Items
}

// has reports whether a pod of that name is there.
func (w *world) has(name string) bool {
	w.t.Helper()
	return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.Name == name })
}

// podsOn are those bound to a node.
func (w *world) podsOn(h *host) []corev1.Pod {
	w.t.Helper()
	return slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool { return p.Spec.NodeName != h.Name() })
}

// untouched returns what is wrong with pods that must stay untouched: one is gone, ended, or being deleted.
func untouched(before, now []corev1.Pod) error {
	for _, b := range before {
		i := slices.IndexFunc(now, func(p corev1.Pod) bool { return p.UID == b.UID })
		switch {
		case i < 0:
			return fmt.Errorf(kit.HarmPrefix+"pod %s (%s): gone", b.Name, b.UID)
		case now[i].DeletionTimestamp != nil && b.DeletionTimestamp == nil:
			return fmt.Errorf(kit.HarmPrefix+"pod %s (%s): being deleted", b.Name, b.UID)
		case now[i].Status.Phase != b.Status.Phase:
			return fmt.Errorf(kit.HarmPrefix+"pod %s (%s): phase %s (%s), was %s", b.Name, b.UID, now[i].Status.Phase,
				now[i].Status.Reason, b.Status.Phase)
		}
	}
	return nil
}

// untilReplaced waits until as many pods as before run, none of them one of those and none on that node.
func (w *world) untilReplaced(h *host, before []corev1.Pod) {
	w.t.Helper()
	var bad string
	defer func() {
		if w.t.Failed() {
			w.t.Log("not replaced: ", bad)
		}
	}()
	w.until("replacements", func() bool {
		ready := w.ReadyPods(w.ns)
		n := 0
		for _, p := range ready {
			if p.Spec.NodeName == h.Name() ||
				slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
				continue
			}
			n++
		}
		bad = fmt.Sprintf("%d of %d", n, len(before))
		return n >= len(before)
	})
}

// attachments are the volumes attached to a node, by PersistentVolume.
func (w *world) attachments(h *host) []string {
	w.t.Helper()
	out, err := w.attachedTo(h)
	kit.Must(w.t, err)
	return out
}

func (w *world) attachedTo(h *host) (out []string, err error) {
	list, err := w.Attachments(w.ctx)
	for _, a := range list {
		if a.Node == h.Name() && a.Volume != "" {
			out = append(out, a.Volume)
		}
	}
	return out, err
}

// bound are those of the PersistentVolumes that are still there: an ephemeral volume goes with its pod, and its
// attachment holds nothing.
func (w *world) bound(volumes []string) (out []string) {
	w.t.Helper()
	for _, v := range volumes {
		_, err := w.Client().CoreV1().PersistentVolumes().Get(w.ctx, v, metav1.GetOptions{})
		if err == nil {
			out = append(out, v)
		} else if !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
	return out
}

// noDoubles checks invariant 10 against what really ran.
func (w *world) noDoubles() {
	w.t.Helper()
	for _, v := range w.Ledger().Violations(cluster.TwoPods, cluster.TwoWriters) {
		if strings.Contains(v.What, w.ns) || strings.Contains(strings.Join(v.Nodes, " "), w.ns) {
			kit.Harm(w.t, "%s", v)
		}
	}
}

// events are the notes of the Events with that reason about an object whose name begins so. A series counts as often as
// it was seen.
func (w *world) events(kind, prefix, reason string) []eventsv1.Event {
	w.t.Helper()
	list, err := w.Client().EventsV1().Events("").List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Kind != kind || !strings.HasPrefix(e.Regarding.Name, prefix) || e.Reason != reason ||
			kind == "Pod" && e.Regarding.Namespace != w.ns
	})
}

// untilEvent waits for an Event and returns its text.
func (w *world) untilEvent(kind, prefix, reason string) string {
	w.t.Helper()
	var note string
	w.until(fmt.Sprintf("Event %s on %s %s", reason, kind, prefix), func() bool {
		list := w.events(kind, prefix, reason)
		if len(list) > 0 {
			note = list[0].Note
		}
		return len(list) > 0
	})
	return note
}

// describe is what a person wants to see of a test that failed.
func (w *world) describe() string {
	var b strings.Builder
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "node %s, machine %s, runs %d containers\n", h.Name(), h.machine.State(), len(h.Running()))
		for _, c := range w.seen.chapters(h.Name()) {
			fmt.Fprintf(&b, "\t%+v\n", c)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"describe", "nodes", "--selector", "world=" + w.ns},
		{"get", "pods", "--namespace", w.ns, "--output", "wide"}} {
		out, err := w.Kubectl(ctx, args...)
		fmt.Fprintf(&b, "%s\n%v\n", out, err)
	}
	return b.String()
}
