package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/test/cluster"
)

// TestNudging tells stories of looks and says at which second rounds are due. A round finds as many held pods as the
// story says, the last number for all that follow.
func TestNudging(t *testing.T) {
	type seen struct {
		at     int // seconds
		marked bool
		ready  bool
		boot   string
		rv     string // "": one more than the last
		guard  corev1.ConditionStatus
		waits  []string // the claims that the mark waits for alone
	}
	const hook, none = corev1.ConditionTrue, corev1.ConditionFalse
	marked, open := seen{marked: true, ready: true, boot: "a", guard: hook},
		seen{at: 10, ready: true, boot: "a", guard: hook}
	with := func(s seen, f func(*seen)) seen { f(&s); return s }
	waits := func(at int, claims ...string) seen { return with(marked, func(s *seen) { s.at, s.waits = at, claims }) }
	for _, tt := range []struct {
		name  string
		looks []seen
		held  []int
		want  []int
	}{
		{"the mark goes", []seen{marked, open}, []int{2}, []int{10, 11, 13}},
		{"the mark goes, all move at once", []seen{marked, open}, []int{2, 0}, []int{10, 11}},
		{"the mark goes, nothing is held", []seen{marked, open}, []int{0}, []int{10}},
		{"the first look of a process", []seen{open}, []int{2}, nil},
		{"nothing changes", []seen{marked, open, with(open, func(s *seen) { s.at = 20 })}, []int{2}, []int{10, 11, 13}},
		{"the mark waits for volumes",
			[]seen{marked, waits(5, "a/b", "a/c"), waits(15, "a/b", "a/c"), waits(20, "a/b"),
				with(open, func(s *seen) { s.at = 30 })},
			[]int{1}, []int{5, 6, 8, 20, 21, 23, 30, 31, 33}},
		{"and all are held again", []seen{marked, waits(5, "a/b"), with(marked, func(s *seen) { s.at = 6 })}, []int{1},
			[]int{5}},
		{"the mark goes from a node that is not Ready",
			[]seen{with(marked, func(s *seen) { s.ready = false }), with(open, func(s *seen) { s.ready = false })},
			[]int{2}, nil},
		{"and Ready comes later", []seen{
			with(marked, func(s *seen) { s.ready = false }), with(open, func(s *seen) { s.ready = false }),
			with(open, func(s *seen) { s.at = 30 }),
		}, []int{2}, []int{30, 31, 33}},
		{"Ready comes under the mark",
			[]seen{with(marked, func(s *seen) { s.ready = false }), with(marked, func(s *seen) { s.at = 5 }), open},
			[]int{0}, []int{10}},
		{"marked again between the rounds", []seen{marked, open, with(marked, func(s *seen) { s.at = 12 })}, []int{2},
			[]int{10, 11}},
		{"not Ready between the rounds", []seen{marked, open, with(open, func(s *seen) { s.at, s.ready = 12, false })},
			[]int{2}, []int{10, 11}},
		{"a reboot that nobody saw as NotReady",
			[]seen{with(open, func(s *seen) { s.at = 0 }), with(open, func(s *seen) { s.boot = "b" })}, []int{2},
			[]int{10, 11, 13}},
		{"a boot, no pod has its status yet",
			[]seen{with(open, func(s *seen) { s.at = 0 }), with(open, func(s *seen) { s.boot = "b" })}, []int{0, 3},
			[]int{10, 11, 13}},
		{"a boot, nothing is held",
			[]seen{with(open, func(s *seen) { s.at = 0 }), with(open, func(s *seen) { s.boot = "b" })}, []int{0},
			[]int{10, 11}},
		{"boots while not Ready",
			[]seen{with(open, func(s *seen) { s.at, s.ready = 0, false }),
				with(open, func(s *seen) { s.ready, s.boot = false, "b" })}, []int{2}, nil},
		{"Ready after NotReady on the same boot", []seen{with(open, func(s *seen) { s.at, s.ready = 0, false }), open},
			[]int{2}, []int{10, 11, 13}},
		{"no hook", []seen{marked, with(open, func(s *seen) { s.guard = none })}, []int{2}, nil},
		{"nobody tells of a hook", []seen{marked, with(open, func(s *seen) { s.guard = "" })}, []int{2}, nil},
		{"a cache that is behind",
			[]seen{marked, open, with(marked, func(s *seen) { s.at, s.rv = 10, "1" }),
				with(open, func(s *seen) { s.at = 20 })}, []int{2}, []int{10, 11, 13}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			zero := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			var n nudgeState
			var got []int
			looks := tt.looks
			for sec := range 40 {
				now := zero.Add(time.Duration(sec) * time.Second)
				for len(looks) > 0 && looks[0].at == sec {
					s := looks[0]
					looks = looks[1:]
					l := taint.Look{Exists: true, ResourceVersion: s.rv, BootID: s.boot, Ready: corev1.ConditionFalse}
					if s.rv == "" {
						l.ResourceVersion = fmt.Sprint(100 - len(looks))
					}
					if s.marked {
						l.Mark, l.Record = &taint.Mark{}, &taint.Record{Phase: taint.PhaseEvicting}
					}
					for _, claim := range s.waits {
						l.Record.Detaching = append(l.Record.Detaching, taint.Detaching{PV: "pv", Claim: claim})
					}
					if s.ready {
						l.Ready = corev1.ConditionTrue
					}
					n.observeLook(l, s.guard, now)
				}
				if wait, ok := n.nextRound(now); ok && wait == 0 {
					n.endRound(tt.held[min(len(got), len(tt.held)-1)])
					got = append(got, sec)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("rounds: got %v, want %v", got, tt.want)
			}
		})
	}
}

// counting notes what is read live.
type counting struct {
	client.Reader
	lists int
}

func (c *counting) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, l, opts...)
}

// nudgeWorld is a node with pods on a real API server, whose kubelet is the test, and a Reconciler with a clock of its
// own.
type nudgeWorld struct {
	t    *testing.T
	c    client.Client
	r    *Reconciler
	live *counting
	node *corev1.Node
	pods map[string]*corev1.Pod
	now  time.Time
	lead error

	heard *heard
}

func newNudgeWorld(t *testing.T) *nudgeWorld {
	t.Helper()
	c := cluster.Admin(t, shared)
	w := &nudgeWorld{t: t, c: c, live: &counting{Reader: c}, node: newNode(t, c), pods: map[string]*corev1.Pod{},
		now: time.Now()}
	w.patchNode(
		`{"status":{"nodeInfo":{"bootID":"a"},"conditions":[{"type":"ForcefenceGuard","status":"True",`+
			`"reason":"FailClosed"},{"type":"Ready","status":"True"}]}}`, "status")
	var sinks observe.Sinks
	sinks, w.heard = sinksTo(nil)
	w.r = New(Options{
		Live: w.live, Cache: c, Client: c, Sinks: sinks, Key: taint.DefaultKey,
		Now: func() time.Time { return w.now }, Leading: func() error { return w.lead },
		Config: noMachines,
	})
	for name, status := range map[string]string{
		"held": `{"phase":"Pending","conditions":[{"type":"PodReadyToStartContainers","status":"False"}]}`,
		"stale": `{"phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"False"},` +
			`{"type":"Ready","status":"True"}]}`,
		"exempt":   `{"phase":"Pending","conditions":[{"type":"PodReadyToStartContainers","status":"False"}]}`,
		"runs":     `{"phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}`,
		"finished": `{"phase":"Succeeded","conditions":[{"type":"PodReadyToStartContainers","status":"False"}]}`,
		"leaving":  `{"phase":"Pending","conditions":[{"type":"PodReadyToStartContainers","status":"False"}]}`,
	} {
		w.addPod(name, status)
	}
	return w
}

func (w *nudgeWorld) addPod(name, status string) {
	w.t.Helper()
	no, grace := false, int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: "kube-system"},
		Spec: corev1.PodSpec{
			NodeName: w.node.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			AutomountServiceAccountToken: &no,
			ServiceAccountName:           "writer-test",
		},
	}
	if name == "exempt" {
		p.Spec.Tolerations = []corev1.Toleration{{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists}}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "writer-test", Namespace: "kube-system"}}
	w.must(client.IgnoreAlreadyExists(w.c.Create(w.t.Context(), sa)))
	w.must(w.c.Create(w.t.Context(), p))
	w.t.Cleanup(func() { _ = w.c.Delete(context.Background(), p, client.GracePeriodSeconds(grace)) })
	w.pods[name] = p
	w.setPod(name, status)
	if name == "leaving" {
		w.must(w.c.Delete(w.t.Context(), p))
	}
}

func (w *nudgeWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// setPod is the kubelet's write.
func (w *nudgeWorld) setPod(name, status string) {
	w.t.Helper()
	p := w.pods[name].DeepCopy()
	w.must(w.c.SubResource("status").
		Patch(w.t.Context(), p, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":`+status+`}`))))
}

func (w *nudgeWorld) patchNode(patch string, sub ...string) {
	w.t.Helper()
	n, p := w.node.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch))
	if len(sub) > 0 {
		w.must(w.c.SubResource(sub[0]).Patch(w.t.Context(), n, p))
		return
	}
	w.must(w.c.Patch(w.t.Context(), n, p))
}

// mark sets or takes off the mark as kubectl would.
func (w *nudgeWorld) mark(on bool) {
	w.t.Helper()
	if on {
		w.patchNode(`{"spec":{"taints":[{"key":"` + taint.DefaultKey + `","value":"manual","effect":"NoSchedule"}]}}`)
		return
	}
	w.patchNode(`{"spec":{"taints":null}}`)
}

func (w *nudgeWorld) boot(id string) {
	w.t.Helper()
	w.patchNode(`{"status":{"nodeInfo":{"bootID":"`+id+`"}}}`, "status")
}

// see is a look that a Reconcile makes on its way, without the rest of it.
func (w *nudgeWorld) see() {
	w.t.Helper()
	_, _, err := w.r.checkIdle(w.t.Context(), w.node.Name, w.r.stateOf(w.node.Name))
	w.must(err)
}

// reconcile lets some seconds pass and returns the pods whose annotation changed, sorted, and when it wants to come
// again.
func (w *nudgeWorld) reconcile(after time.Duration) (nudged []string, again time.Duration) {
	w.t.Helper()
	before := w.notes()
	w.now = w.now.Add(after)
	res, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: w.node.Name}})
	w.must(err)
	for name, note := range w.notes() {
		if note != before[name] {
			nudged = append(nudged, name)
		}
	}
	slices.Sort(nudged)
	return nudged, res.RequeueAfter
}

func (w *nudgeWorld) notes() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for name, p := range w.pods {
		var is corev1.Pod
		w.must(w.c.Get(w.t.Context(), client.ObjectKeyFromObject(p), &is))
		out[name] = is.Annotations[taint.NudgedAnnotation]
	}
	return out
}

func (w *nudgeWorld) wantLists(want int) {
	w.t.Helper()
	if w.live.lists != want {
		w.t.Errorf("live lists: got %d, want %d", w.live.lists, want)
	}
}

func (w *nudgeWorld) want(what string, after time.Duration, pods []string, again time.Duration) {
	w.t.Helper()
	if got, next := w.reconcile(after); !slices.Equal(got, pods) || next != again {
		w.t.Errorf("%s: nudged %q, again after %s; want %q, %s", what, got, next, pods, again)
	}
}

func TestNudgeWhenTheMarkGoes(t *testing.T) {
	w := newNudgeWorld(t)
	w.want("a look at an open node", 0, nil, 0)
	w.mark(true)
	w.see()
	w.wantLists(0)
	w.mark(false)
	w.want("at once", 0, []string{"held", "stale"}, time.Second)
	w.want("an event in between", 400*time.Millisecond, nil, 600*time.Millisecond)
	w.wantLists(1)
	w.setPod("held", `{"conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}`)
	w.want("after 1 s, one has moved", 600*time.Millisecond, []string{"stale"}, 2*time.Second)
	w.want("after 3 s", 2*time.Second, []string{"stale"}, 0)
	w.want("later", time.Minute, nil, 0)
	w.wantLists(3)
	if got := w.heard.count(t, "forcefence_nudges_total", observe.NudgeSent); got != 4 {
		t.Errorf("forcefence_nudges_total{result=sent}: got %v, want 4", got)
	}
}

// The pods that get no turn before the process ends are reported as failed, each once.
func TestNudgesOfAProcessThatEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	r := New(Options{Now: time.Now, Config: noMachines})
	var done observe.NudgeDone
	nudges{&work{base: r.base, name: "n1"}}.nudgePods(ctx, make([]corev1.Pod, 3), &done)
	if done.Pods != 3 || done.Results[observe.NudgeFailed] != 3 {
		t.Errorf("got %+v, want 3 of 3 failed", done)
	}
}

func TestNudgeEndsWhenAllMoved(t *testing.T) {
	w := newNudgeWorld(t)
	w.mark(true)
	w.see()
	w.mark(false)
	w.want("at once", 0, []string{"held", "stale"}, time.Second)
	for _, p := range []string{"held", "stale"} {
		w.setPod(p, `{"conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}`)
	}
	w.want("all moved", time.Second, nil, 0)
	w.wantLists(2)
}

// A mark may come and go while one Reconcile works on the node: what the caches told before and after it looks the
// same.
func TestNudgeAfterAMarkThatOnlyALiveLookSaw(t *testing.T) {
	w := newNudgeWorld(t)
	w.r.Config = func() *Config {
		return &Config{
			Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
				return machine.Machine{}, errors.New("no provider")
			}},
		}
	}
	w.see()
	w.mark(true)
	if err := w.r.step(t.Context(), w.node.Name, w.r.stateOf(w.node.Name)).Err(); err != nil {
		t.Fatal(err)
	}
	w.mark(false)
	if got, _ := w.reconcile(0); !slices.Equal(got, []string{"held", "stale"}) {
		t.Errorf("nudged: got %q, want held and stale", got)
	}
}

// A mark that the cache does not show yet is seen by the live look.
func TestNudgeNeverUnderTheMark(t *testing.T) {
	w := newNudgeWorld(t)
	w.mark(true)
	w.see()
	w.mark(false)
	w.see()
	w.mark(true)
	st := w.r.stateOf(w.node.Name)
	before := w.notes()
	if after := (nudges{w.r.workOn(w.node.Name, st)}).runDueRound(t.Context()); after != 0 {
		t.Errorf("again after: got %s, want never", after)
	}
	if diff := cmp.Diff(before, w.notes()); diff != "" {
		t.Errorf("nudged under the mark:\n%s", diff)
	}
	w.wantLists(0)
	w.mark(false)
	w.want("it goes again", 0, []string{"held", "stale"}, time.Second)
}

func TestNudgeOnlyByTheLeader(t *testing.T) {
	w := newNudgeWorld(t)
	w.mark(true)
	w.see()
	w.mark(false)
	w.lead = errStale
	w.want("not leading", 0, nil, 0)
	w.wantLists(0)
}

func TestNudgeWithoutHook(t *testing.T) {
	w := newNudgeWorld(t)
	w.patchNode(`{"status":{"conditions":[{"type":"ForcefenceGuard","status":"False","reason":"None"}]}}`, "status")
	w.mark(true)
	w.see()
	w.mark(false)
	w.want("no hook", 0, nil, 0)
	w.wantLists(0)
}

func TestNudgeAfterReboot(t *testing.T) {
	w := newNudgeWorld(t)
	w.see()
	w.boot("b")
	w.want("another boot", 0, []string{"held", "stale"}, time.Second)
	for _, p := range []string{"held", "stale"} {
		w.setPod(p, `{"conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}`)
	}
	w.want("all moved", time.Second, nil, 0)

	// Ready before the statuses are written: an empty first round proves nothing.
	w.boot("c")
	w.want("a third boot", 0, nil, time.Second)
	w.setPod("stale", `{"conditions":[{"type":"PodReadyToStartContainers","status":"False"}]}`)
	w.want("after 1 s", time.Second, []string{"stale"}, 2*time.Second)
}

// busyPods lists pods that somebody else writes to before the nudge can land.
type busyPods struct{ client.Reader }

func (b busyPods) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := b.Reader.List(ctx, l, opts...); err != nil {
		return err
	}
	if pods, ok := l.(*corev1.PodList); ok {
		for i := range pods.Items {
			pods.Items[i].ResourceVersion = "1"
		}
	}
	return nil
}

// A pod that changed since the list is not nudged by force: it is counted, and the next round has it.
func TestNudgeOfAPodThatChanged(t *testing.T) {
	w := newNudgeWorld(t)
	w.mark(true)
	w.see()
	w.mark(false)
	w.r.Live = busyPods{w.live}
	w.want("changed since the list", 0, nil, time.Second)
	w.r.Live = w.live
	w.want("after 1 s", time.Second, []string{"held", "stale"}, 2*time.Second)
	for result, want := range map[string]float64{
		observe.NudgeChanged: 2, observe.NudgeSent: 2, observe.NudgeFailed: 0} {
		if got := w.heard.count(t, "forcefence_nudges_total", result); got != want {
			t.Errorf("forcefence_nudges_total{result=%s}: got %v, want %v", result, got, want)
		}
	}
}

// deafAPI answers no list.
type deafAPI struct{ client.Reader }

func (deafAPI) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the API server is away")
}

// A list that fails fails no Reconcile: it is counted, and the next round lists again; there is none beyond the third.
func TestNudgeWhenTheListFails(t *testing.T) {
	w := newNudgeWorld(t)
	w.mark(true)
	w.see()
	w.mark(false)
	w.r.Live = deafAPI{w.c}
	w.want("no list", 0, nil, time.Second)
	w.r.Live = w.live
	w.want("after 1 s", time.Second, []string{"held", "stale"}, 2*time.Second)
	w.r.Live = deafAPI{w.c}
	w.want("no list again", 2*time.Second, nil, 0)
	w.want("later", time.Minute, nil, 0)
	if got := w.heard.count(t, "forcefence_nudges_total", observe.NudgeFailed); got != 2 {
		t.Errorf("forcefence_nudges_total{result=failed}: got %v, want 2", got)
	}
}

// unattached is an API without attachments. The real one selects none by node, as an index of a cache does.
type unattached struct{ client.Reader }

func (u unattached) List(ctx context.Context, l client.ObjectList, o ...client.ListOption) error {
	if _, attachments := l.(*storagev1.VolumeAttachmentList); attachments {
		return nil
	}
	return u.Reader.List(ctx, l, o...)
}

// TestNodeGuardMetric follows one node's word through the cache.
func TestNodeGuardMetric(t *testing.T) {
	c := cluster.Admin(t, shared)
	n := newNode(t, c)
	sinks, told := sinksTo(nil)
	leads := func() error { return nil }
	r := New(Options{Cache: unattached{c}, Now: time.Now, Sinks: sinks, Key: taint.DefaultKey, Config: noMachines,
		Leading: leads})
	for _, tt := range []struct{ status, reason, want string }{
		{"", "", "unknown"},
		{"True", "FailClosed", "fail-closed"},
		{"True", "FailOpen", "fail-open"},
		{"False", "None", "none"},
		{"Unknown", "FailClosed", "unknown"},
		{"False", "FailClosed", "unknown"},
		{"True", "Other", "unknown"},
		{"gone", "", ""},
	} {
		switch tt.status {
		case "":
		case "gone":
			if err := c.Delete(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		default:
			patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"ForcefenceGuard","status":%q,"reason":%q}]}}`,
				tt.status, tt.reason)
			was := n.DeepCopy()
			if err := c.SubResource("status").
				Patch(t.Context(), n, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
				t.Fatal(err)
			}
			slimNode(was)
			is := n.DeepCopy()
			slimNode(is)
			if !r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is}) {
				t.Errorf("%s %s: the change does not wake the node", tt.status, tt.reason)
			}
		}
		if _, _, err := r.checkIdle(t.Context(), n.Name, r.stateOf(n.Name)); err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, p := range []string{"fail-closed", "fail-open", "none", "unknown"} {
			if v := told.count(t, "forcefence_node_protection", p); v != 0 {
				got[p] = v
			}
		}
		want := map[string]float64{}
		if tt.want != "" {
			want[tt.want] = 1
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s %s: got %v, want %v", tt.status, tt.reason, got, want)
		}
	}
}
