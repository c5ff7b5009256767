package drainguard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// patchCopy changes a copy at the API server alone.
func (w *world) patchCopy(name, body string) {
	w.t.Helper()
	_, err := w.api.Namespace(w.ns).Patch(w.ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	w.must(err)
}

// A Node that was deleted while no controller ran: what was asked of its replicas is taken back, and what a person
// asked stays.
func TestNodeGone(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction, "a")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "gone", true)
	w.copy("u", "gone", true)
	w.patchCopy("v-gone",
		`{"metadata":{"annotations":{"`+storage.EvictionAnnotation+`":"true"}},"spec":{"evict":true}}`)
	w.patchCopy("u-gone", `{"spec":{"evict":true}}`)
	w.refresh()
	w.until("ours is taken back", func() bool { return w.asked() == "u-gone" })
}

// What guards left that were removed while no controller ran goes, once whoever leads is sure to have the newest
// configuration. What is a guard's, and what is not certainly ours, stays.
func TestSweep(t *testing.T) {
	w := newWorld(t, drain.BlockIfLast, "a", "b")
	w.seen.Replace(storage.Replicas, nil)
	was := w.guards[0].Guard
	was.Name = "was"
	left := func(name string, g drain.Guard, edit func(*policyv1.PodDisruptionBudget)) {
		b := g.BudgetFor(drain.Pod{Namespace: w.ns, Node: w.ns + "-" + name, Labels: map[string]string{"on": "nobody"}})
		b.Name += "-" + name
		if edit != nil {
			edit(b)
		}
		w.must(w.admin.Create(w.ctx, b))
	}
	left("left", was, nil)
	left("kept", w.guards[0].Guard, nil) // its node is gone, so that the guard itself sees to it
	left("own", was, func(b *policyv1.PodDisruptionBudget) { b.Name = "own" })
	left("bare", was, func(b *policyv1.PodDisruptionBudget) { b.Labels = nil })
	left("unmarked", was, func(b *policyv1.PodDisruptionBudget) { b.Annotations = nil })
	for _, v := range []string{"v", "u"} {
		w.copy(v, "a", true)
		w.patchCopy(v+"-a", `{"spec":{"evict":true}}`)
	}
	w.patchCopy("v-a", `{"metadata":{"annotations":{"`+storage.EvictionAnnotation+`":"true"}}}`)
	other, bad := storage.CompileAdapter("other", w.guards[0].Adapter.Spec) // a storage system without a guard
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	w.ask = []*storage.Adapter{other}
	w.seen.Replace(storage.Replicas, nil) // the guard's own knows of no copy

	const all = " a b bare left own" // "" is unmarked
	w.until("budgets of the guard", func() bool { return w.guarded() == all })
	w.passes()
	if got := w.guarded(); got != all || w.asked() != "u-a v-a" {
		t.Fatalf("a process that has just begun to lead: got budgets %q, %q asked to go, want all", got, w.asked())
	}
	own := func() (out []types.UID) { // the guard's, whose place another of its own would take at once
		var list policyv1.PodDisruptionBudgetList
		w.must(w.admin.List(w.ctx, &list, client.InNamespace(w.ns),
			client.MatchingLabels{taint.DrainGuardLabel: w.guards[0].Name}))
		for _, b := range list.Items {
			out = append(out, b.UID)
		}
		slices.Sort(out)
		return out
	}
	were := own()
	w.later, w.leading = sweepAfter, errors.New("another leads")
	w.passes()
	if got := w.guarded(); got != all || w.asked() != "u-a v-a" {
		t.Fatalf("not leading: got budgets %q, %q asked to go, want all", got, w.asked())
	}
	w.leading = nil
	w.until("what is nobody's goes", func() bool { return w.guarded() == " a b bare own" && w.asked() == "u-a" })
	w.passes()
	if now := own(); len(were) != 2 || !slices.Equal(now, were) {
		t.Fatalf("the guard's own: got %v, want %v as they were", now, were)
	}

	// A guard that looks elsewhere from now on leaves nothing where it looked.
	w.guards = slices.Clone(w.guards)
	w.guards[0].Namespace = "default"
	w.until("nothing of the guard is left there", func() bool { return w.guarded() == " bare own" })
	w.until("it is done with", func() bool { return w.k.swept })
}

// counted is a cache that counts passes, each of which lists the nodes once.
type counted struct {
	cache.Cache
	passes atomic.Int64
}

func (c *counted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.passes.Add(1)
	return c.Cache.List(ctx, list, opts...) //nolint:wrapcheck // the test's own
}

// locked is a storage system that the test changes while the Controller runs.
type locked struct {
	storage.System
	mu *sync.Mutex
}

func (l locked) ReplicasOn(node string) []storage.Replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.System.ReplicasOn(node)
}

func (l locked) ReplicasOf(volume string) []storage.Replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.System.ReplicasOf(volume)
}

func (l locked) MissingReason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.System.MissingReason()
}

func (l locked) NodesWithRequests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.System.NodesWithRequests()
}

func (l locked) Version() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.System.Version()
}

// start runs the Controller, which looks at what did not change as good as never.
func (w *world) start() (passes *atomic.Int64) {
	k := w.k
	w.k = nil // its passes are its own now
	k.fullPassEvery = time.Hour
	count := &counted{Cache: k.Cache}
	k.Cache = count
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.Start(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		w.k = k
	})
	return &count.passes
}

// While nothing changes, no pass runs. Every change that a decision depends on wakes the loop.
func TestWakes(t *testing.T) {
	w := newWorld(t, drain.BlockIfLast, "a", "b")
	w.seen.Replace(storage.Replicas, nil)
	w.copy("v", "a", true)
	w.copy("v", "b", false)
	var mu sync.Mutex
	system := locked{w.seen, &mu}
	w.guards[0].LastSeen = func() storage.System { return system }
	passes := w.start()
	w.until("budgets before both", func() bool { return w.guarded() == "a b" })
	w.cordon("a", true)
	w.until("a Node that changed", func() bool { return strings.Contains(w.notes("a")[taint.DrainAnnotation], "v-a") })
	var before int64
	var since time.Time
	w.until("it rests", func() bool {
		if n := passes.Load(); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > 5*resync
	})

	mu.Lock()
	w.seen.Put(storage.Replicas, w.object("v", "b", true)) // as the watch has it, and nobody else yet
	mu.Unlock()
	w.until("storage that changed is looked at, again and again", func() bool { return passes.Load() > before+6 })
	if got := w.guarded(); got != "a b" {
		t.Fatalf("the live look says otherwise: got budgets before %q, want both", got)
	}
	w.patchCopy("v-b", `{"spec":{"healthy":true}}`)
	w.until("what a live look refused is looked at again", func() bool { return w.guarded() == "b" })

	ready := func(s corev1.ConditionStatus) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "engine-b"}}
		w.must(w.admin.Status().
			Patch(w.ctx, p,
				client.RawPatch(types.StrategicMergePatchType,
					[]byte(`{"status":{"conditions":[{"type":"Ready","status":"`+string(s)+`"}]}}`))))
	}
	ready(corev1.ConditionFalse)
	w.until("a pod that changed", func() bool { return w.guarded() == "a b" })
	ready(corev1.ConditionTrue)
	w.until("and is back", func() bool { return w.guarded() == "b" })

	var list policyv1.PodDisruptionBudgetList
	w.must(w.admin.List(w.ctx, &list, client.InNamespace(w.ns)))
	list.Items[0].Spec.MinAvailable = &intstr.IntOrString{}
	w.must(w.admin.Update(w.ctx, &list.Items[0]))
	w.until("a budget that changed", func() bool {
		w.must(w.admin.List(w.ctx, &list, client.InNamespace(w.ns)))
		return len(list.Items) == 1 && list.Items[0].Spec.MinAvailable.IntVal == 1
	})
}

// A setting that appears, and one that is given back, is seen without a look at everything.
func TestSettingWakes(t *testing.T) {
	w := newWorld(t, drain.BlockForEviction)
	setting := Setting{Resource: copies, Namespace: w.ns, Name: "policy", Default: drain.BlockIfLast}
	w.guards = []Guarded{{Guard: drain.Guard{Name: "theirs", Policy: drain.BlockForEviction}, Setting: &setting}}
	passes := w.start()
	w.until("a first pass", func() bool { return passes.Load() > 0 })
	w.makeSetting()
	ours := func() bool { return w.settingValue() == drain.BlockForEviction }
	w.until("it is ours", ours)
	w.patchCopy("policy", `{"metadata":{"annotations":null},"value":""}`)
	w.until("it is ours again", ours)
}

// An update without a relevant change does not wake the loop.
func TestSame(t *testing.T) {
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", Labels: map[string]string{"on": "a"}},
			Spec: corev1.PodSpec{NodeName: "a"}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		edit(p)
		return p
	}
	budget := func(edit func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
		g := drain.Guard{Name: "g", Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}},
			Identity: drain.Identity{"on"}}
		b := g.BudgetFor(drain.Pod{Node: "a", Labels: map[string]string{"on": "a"}})
		edit(b)
		return b
	}
	was, had := pod(func(*corev1.Pod) {}), budget(func(*policyv1.PodDisruptionBudget) {})
	now := metav1.Now()
	for _, c := range []struct {
		name        string
		before, now any
		want        bool
	}{
		{"a pod's heartbeat", was,
			pod(func(p *corev1.Pod) { p.ResourceVersion, p.Annotations = "2", map[string]string{"a": "b"} }), true},
		{"another pod", was, pod(func(p *corev1.Pod) { p.UID = "2" }), false},
		{"a pod that was bound", was, pod(func(p *corev1.Pod) { p.Spec.NodeName = "b" }), false},
		{"not ready", was, pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), false},
		{"over", was, pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false},
		{"going", was, pod(func(p *corev1.Pod) { p.DeletionTimestamp = &now }), false},
		{"labelled anew", was, pod(func(p *corev1.Pod) { p.Labels["on"] = "b" }), false},
		{"a DaemonSet's", was, pod(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
		}), false},
		{"a budget's status", had,
			budget(func(b *policyv1.PodDisruptionBudget) { b.ResourceVersion, b.Status.DisruptionsAllowed = "2", 1 }),
			true},
		{"another budget", had, budget(func(b *policyv1.PodDisruptionBudget) { b.UID = "2" }), false},
		{"somebody else's", had, budget(func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }), false},
		{"of another node", had, budget(func(b *policyv1.PodDisruptionBudget) { b.Annotations = nil }), false},
		{"weaker", had, budget(func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = nil }), false},
		{"wider", had, budget(func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} }),
			false},
		{"a budget that goes", had, budget(func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp = &now }),
			false},
		{"a budget for a pod", was, had, false},
	} {
		if got := isUnchanged(c.before, c.now); got != c.want {
			t.Errorf("%s: got the same %t, want %t", c.name, got, c.want)
		}
	}
}
