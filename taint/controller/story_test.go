package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// The pods that go and their volumes are ended, in every kind of volume; what stays keeps its attachments and its
// entries in the node's lists, and nothing on another node is touched.
func TestFenceInAMixedWorld(t *testing.T) {
	w := newWorld(t)
	w.run(30 * time.Second)
	heard := w.beats["n1"]
	snapshot := func() map[string]any {
		out := map[string]any{}
		var nodes corev1.NodeList
		var pods corev1.PodList
		var vas storagev1.VolumeAttachmentList
		must(t, w.api.List(context.Background(), &nodes))
		must(t, w.api.List(context.Background(), &pods))
		must(t, w.api.List(context.Background(), &vas))
		for _, n := range nodes.Items {
			if n.Name != "n1" {
				out["node "+n.Name] = n
			}
		}
		for _, p := range pods.Items {
			if !strings.HasPrefix(p.Name, "db-n1") && !strings.HasPrefix(p.Name, "web-n1") {
				out["pod "+p.Name] = p
			}
		}
		for _, va := range vas.Items {
			if va.Spec.NodeName != "n1" {
				out["attachment "+va.Name] = va
			}
		}
		return out
	}
	before := snapshot()
	was := w.attached("n1")
	w.cut("n1")
	w.cut("n5") // nothing there goes: it is left alone
	w.untilDone("n1", taint.ResultEvicted)
	// The device is told when the node was heard last, which the informer brought a moment before.
	if m := w.machines["n1"]; m.heard.IsZero() || m.heard.After(w.beats["n1"]) ||
		m.heard.Before(heard.Add(-time.Second)) {
		t.Errorf("its device was asked with a node heard at %s, want %s", m.heard, w.beats["n1"])
	}
	w.run(5 * time.Second)
	after := snapshot()
	for _, name := range []string{"pod agent-n1", "pod stays-n1"} { // of these Ready alone is written
		is, was := after[name].(corev1.Pod), before[name].(corev1.Pod)
		if c := is.Status.Conditions; len(c) != 1 || c[0].Status != corev1.ConditionFalse ||
			c[0].Reason != taint.TombstoneReason {
			t.Errorf("conditions of %s: got %+v, want Ready False by the fence", name, c)
		}
		was.Status.Conditions, was.ResourceVersion = is.Status.Conditions, is.ResourceVersion
		before[name] = was
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what nobody may touch (-before +after):\n%s", diff)
	}
	if got, want := w.pods("n1"), []string{"agent-n1", "crashed-n1", "done-n1", "stays-n1"}; !slices.Equal(got, want) {
		t.Errorf("pods left on n1: got %v, want %v", got, want)
	}
	stay := slices.Concat(w.uses["agent-n1"], w.uses["stays-n1"])
	slices.Sort(stay)
	if got := w.attached("n1"); !slices.Equal(got, stay) || len(was) != len(stay)+3 {
		t.Errorf("attached to n1: got %v of %v, want those of the pods that stay, %v", got, was, stay)
	}
	var lists, want []string
	n := w.node("n1")
	for _, v := range n.Status.VolumesInUse {
		lists = append(lists, string(v))
	}
	for _, v := range n.Status.VolumesAttached {
		lists = append(lists, string(v.Name))
	}
	for _, pv := range stay {
		want = append(want, w.unique[pv], w.unique[pv])
	}
	slices.Sort(lists)
	slices.Sort(want)
	if !slices.Equal(lists, want) {
		t.Errorf("n1's volume lists: got %q, want %q", lists, want)
	}
	if d := w.record("n1").Device; d != "racks/enclosure-7" {
		t.Errorf("the record's device: got %q", d)
	}
}

// A device that lied is not believed any more; the others are.
func TestOneLiarAmongDevices(t *testing.T) {
	w := newWorld(t)
	w.run(30 * time.Second)
	w.machines["n1"].lies = true
	w.silence("n1")
	w.untilDone("n1", taint.ResultEvicted)
	w.beat("n1")
	w.change("n1", setReady(corev1.ConditionTrue))
	if !w.until(10*time.Second, func() bool { return w.record("n1").Result == taint.ResultNeverPoweredOff }) {
		t.Fatalf("the lie is not found out: %+v", w.record("n1"))
	}
	w.pod("n1", "late-n1", nil, nil, nil)
	w.cut("n1")
	w.cut("n3")
	w.untilDone("n3", taint.ResultEvicted)
	w.run(10 * time.Second)
	if !slices.Contains(w.pods("n1"), "late-n1") || w.marked("n1") || !w.told.has("DeviceDistrusted n1") ||
		w.told.has("DeviceDistrusted n3") {
		t.Errorf("n1 through its device that lied: pods %v, marked %v; told %q", w.pods("n1"), w.marked("n1"),
			w.told.said)
	}
}

// unlisted is a cache whose Nodes cannot be listed.
type unlisted struct{ client.Reader }

func (u unlisted) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if _, ok := l.(*corev1.NodeList); ok {
		return errors.New("not in sync")
	}
	return u.Reader.List(ctx, l, opts...)
}

// Where nobody can tell which devices lied, or who is there, nothing is done: a process that begins to lead knows all
// Nodes' records before it decides on the first.
func TestNoFenceWithoutTheRecords(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	w.lead()
	w.r.Cache = unlisted{w.api}
	w.cut("n1")
	w.run(time.Minute)
	if r := w.record("n1"); r.ID != "" || w.marked("n1") {
		t.Errorf("got record %+v, marked %v, want none", r, w.marked("n1"))
	}
	w.r.Cache = informers{w.api}
	w.untilDone("n1", taint.ResultEvicted)
}

// A node is silent, and later NotReady: the grace runs from the first of the two.
func TestGraceBeginsOnce(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.run(30 * time.Second)
	w.silence("n1")
	if !w.until(40*time.Second, func() bool { return w.told.has("WaitingForGrace n1") }) {
		t.Fatalf("n1 is not suspected; told %q", w.told.said)
	}
	begun := w.Now()
	w.run(20 * time.Second)
	w.change("n1", setReady(corev1.ConditionUnknown))
	w.until(2*time.Minute, func() bool { return w.machines["n1"].offs() > 0 })
	if took := w.Now().Sub(begun); took < 55*time.Second || took > 65*time.Second {
		t.Errorf("powered off %s after it was first suspected, want 1m0s", took)
	}
	w.untilDone("n1", taint.ResultEvicted)
}

// A power-off that cannot be announced takes nobody else's turn.
func TestNobodyWaitsForAnAnnouncement(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	refused := 0
	w.fail = func(o client.Object, patch string) error {
		if o.GetName() == "n1" && strings.Contains(patch, string(taint.PhasePoweringOff)) {
			refused++
			return apierrors.NewServiceUnavailable("a webhook is down")
		}
		return nil
	}
	w.run(15 * time.Second)
	w.silence("n1")
	w.silence("n3")
	w.until(2*time.Minute, func() bool { return w.machines["n3"].offs() > 0 })
	if refused == 0 || w.machines["n1"].offs() != 0 || w.machines["n3"].offs() != 1 {
		t.Errorf("got %d refusals, %d power-offs of n1 and %d of n3, want none of n1 and one of n3; told %q",
			refused, w.machines["n1"].offs(), w.machines["n3"].offs(), w.told.said)
	}
}

// A node that is deleted while its machine is being powered off, or comes back meanwhile, keeps nobody waiting.
func TestNobodyWaitsForOneThatIsGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		gone func(w *world)
	}{
		{"deleted", func(w *world) { must(w.t, w.api.Delete(context.Background(), w.node("n1"))) }},
		{"back", func(w *world) {
			w.beat("n1")
			w.change("n1", func(n *corev1.Node) { n.Labels = map[string]string{"touched": ""} })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.mode = fence.Fence
			w.machines["n1"].obeys = false
			w.run(30 * time.Second)
			w.silence("n1")
			w.run(5 * time.Second)
			w.silence("n3")
			if !w.until(2*time.Minute, func() bool { return w.machines["n1"].offs() > 0 }) {
				t.Fatal("n1 is not powered off")
			}
			w.run(8 * time.Second)
			if n := w.machines["n3"].offs(); n != 0 {
				t.Fatalf("n3 while n1 is being powered off: got %d power-offs, want none", n)
			}
			tc.gone(w)
			if !w.until(10*time.Second, func() bool { return w.machines["n3"].offs() > 0 }) {
				t.Errorf("n3 is not powered off; told %q", w.told.said)
			}
		})
	}
}

// Whom nobody may power off, or fence: each for some time after the grace.
func TestWhoIsLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   fence.Mode
		change func(w *world)
		told   string
	}{
		{"mode observe", fence.Observe, func(w *world) { w.silence("n1") }, "PoweredOnNotReady n1"},
		{"a control-plane node", fence.Fence, func(w *world) {
			w.change("n1",
				func(n *corev1.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
			w.silence("n1")
		}, "ControlPlaneNode n1"},
		{"an excluded node", fence.Fence, func(w *world) { w.excluded = "n1"; w.silence("n1") }, ""},
		{"an excluded node that is off", fence.Fence, func(w *world) { w.excluded = "n1"; w.cut("n1") }, ""},
		{"a paused node", fence.Fence, func(w *world) { w.change("n1", paused("new disk")); w.silence("n1") },
			"NodeExcluded n1"},
		{"a paused node that is off", fence.Observe, func(w *world) { w.change("n1", paused("new disk")); w.cut("n1") },
			"NodeExcluded n1"},
		{"another's maintenance", fence.Fence, func(w *world) {
			w.change("n1", setCondition("MaintenanceInProgress", corev1.ConditionTrue))
			w.cut("n1")
		}, "NodeExcluded n1"},
		{"a kubelet that is heard", fence.Fence, func(w *world) { w.change("n1", setReady(corev1.ConditionFalse)) },
			"KubeletHeartbeats n1"},
		{"everybody is silent", fence.Fence, func(w *world) {
			for n := range w.machines {
				w.cut(n)
			}
			w.run(30 * time.Second)
			for n := range w.machines {
				w.change(n, setReady(corev1.ConditionUnknown))
			}
		}, "AllLeasesStale n1"},
		{"nothing goes", fence.Fence, func(w *world) { w.silence("n5") }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.mode = tc.mode
			w.run(15 * time.Second)
			tc.change(w)
			w.run(100 * time.Second)
			for n, m := range w.machines {
				if m.offs() != 0 || w.marked(n) || w.record(n).ID != "" {
					t.Errorf("%s: got %d power-offs, marked %v, record %+v", n, m.offs(), w.marked(n), w.record(n))
				}
			}
			if tc.told != "" && !w.told.has(tc.told) {
				t.Errorf("told: got %q, want %q", w.told.said, tc.told)
			}
		})
	}
}

// A new leader knows of the power-off that the last one announced, and sends no other beside it.
func TestNewLeaderKnowsWhoIsPoweredOff(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.machines["n1"].obeys = false
	w.run(15 * time.Second)
	w.silence("n1")
	w.run(20 * time.Second)
	w.silence("n3")
	if !w.until(2*time.Minute, func() bool { return w.machines["n1"].offs() > 0 }) {
		t.Fatal("n1 is not powered off")
	}
	for _, n := range []string{"n1", "n3"} {
		w.change(n, setReady(corev1.ConditionUnknown))
	}
	rec := w.record("n1")
	w.offTimeout = 5 * time.Minute // it goes on for longer than the new leader's grace
	w.lead()
	w.run(110 * time.Second)
	if !w.told.has("PowerOffLimit n3") || w.machines["n3"].offs() != 0 ||
		w.record("n1").Phase != taint.PhasePoweringOff || w.record("n1").ID != rec.ID {
		t.Errorf("n3 while n1 (%s) is being powered off: got %d power-offs; told %q", w.record("n1").Phase,
			w.machines["n3"].offs(), w.told.said)
	}
}

// A device that named the machine, and now says Off without its name, proves nothing to a new leader either, until a
// person removes the label. The Off of a device that never named it counts.
func TestNewLeaderKnowsWhoNamedTheMachine(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	w.change("n1", func(n *corev1.Node) { // as a drill does
		m := []taint.MachineRef{{Provider: "racks", ID: "enclosure-7/n1"}}
		metav1.SetMetaDataLabel(&n.ObjectMeta, taint.NamedLabel, taint.AddNamed("", m, m))
	})
	w.lead()
	w.run(30 * time.Second)
	for _, n := range []string{"n1", "n3"} {
		w.machines[n].uuid = ""
		w.cut(n)
	}
	before := w.pods("n1")
	w.untilDone("n3", taint.ResultEvicted)
	w.run(2 * time.Minute)
	if got := w.pods("n1"); w.marked("n1") || !slices.Equal(got, before) {
		t.Fatalf("n1, whose device names no machine any more: marked %t, pods %v, want %v", w.marked("n1"), got, before)
	}
	w.change("n1", func(n *corev1.Node) { delete(n.Labels, taint.NamedLabel) })
	w.untilDone("n1", taint.ResultEvicted)
}

// Nodes that were deleted are no silent ones: most of those that are left are heard.
func TestDeletedNodesDoNotCount(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	for _, n := range []string{"n3", "n4"} {
		w.silence(n)
		must(t, w.api.Delete(t.Context(), w.node(n)))
	}
	w.run(30 * time.Second)
	w.cut("n1")
	w.untilDone("n1", taint.ResultEvicted)
}

// A person's mark on a node that is well goes with its next heartbeat, and the fence did nothing.
func TestPersonMarksAHealthyNode(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	pods := w.pods("n1")
	w.change("n1", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints,
			corev1.Taint{Key: taint.DefaultKey, Value: "kim", Effect: corev1.TaintEffectNoSchedule})
	})
	w.untilDone("n1", taint.ResultLifted)
	if got := w.pods("n1"); !slices.Equal(got, pods) || !w.told.has("MarkedByPerson n1") {
		t.Errorf("pods: got %v, want %v; told %q", got, pods, w.told.said)
	}
}

// The condition of a silent node whose machine is on goes when the node is back.
func TestPoweredOnConditionGoes(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	w.silence("n1")
	if !w.until(time.Minute, func() bool { return w.poweredOn("n1") }) {
		t.Fatalf("no condition; told %q", w.told.said)
	}
	w.beat("n1")
	if !w.until(10*time.Second, func() bool { return !w.poweredOn("n1") }) {
		t.Errorf("the condition stays: %+v", w.node("n1").Status.Conditions)
	}
}

// Each change that a fence may hang on wakes the node, and what every heartbeat changes does not.
func TestNodeChanged(t *testing.T) {
	base := func() *corev1.Node {
		n := &corev1.Node{}
		n.Labels, n.Annotations = map[string]string{"a": "b"}, map[string]string{taint.RecordAnnotation: "r"}
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "f", Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
			{Type: taint.ProtectionCondition, Status: corev1.ConditionTrue}}
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
		return n
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		wakes  bool
	}{
		"nothing": {func(*corev1.Node) {}, false},
		"a heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions[0].LastHeartbeatTime.Time = time.Now()
		}, false},
		// it may lead to the machine
		"their word":     {func(n *corev1.Node) { n.Annotations["example.com/x"] = "y" }, true},
		"Ready":          {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
		"a boot":         {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b" }, true},
		"another object": {func(n *corev1.Node) { n.UID = "u" }, true},
		"the record":     {func(n *corev1.Node) { n.Annotations[taint.RecordAnnotation] = "{" }, true},
		"no record":      {func(n *corev1.Node) { n.Annotations = nil }, true},
		"the mark goes":  {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
		"its value":      {func(n *corev1.Node) { n.Spec.Taints[0].Value = "kim" }, true},
		"its effect":     {func(n *corev1.Node) { n.Spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule }, true},
		"a label":        {func(n *corev1.Node) { n.Labels["forcefence.io/exclude"] = "" }, true},
		"a volume less":  {func(n *corev1.Node) { n.Status.VolumesInUse = nil }, true},
		"the hook":       {func(n *corev1.Node) { n.Status.Conditions[1].Reason = taint.ProtectionFailOpen }, true},
		"an address": {func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} },
			false},
	} {
		o, n := base(), base()
		tc.change(n)
		r := New(Options{Key: taint.DefaultKey, Now: time.Now})
		if got := r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: o, ObjectNew: n}); got != tc.wakes {
			t.Errorf("%s: got %v, want %v", name, got, tc.wakes)
		}
		now := time.Now()
		// a line is kept to it
		if moved, want := r.moved.ShouldList(now, now.Add(10*time.Second)), tc.wakes ||
			name == "an address"; moved != want {
			t.Errorf("%s: moved %v, want %v", name, moved, want)
		}
	}
}

// A node has two devices. With the first down it is powered off through the second, on whose word its pods move; with
// the first lying nothing moves, and people are told.
func TestTwoDevices(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.machines["n1"].two, w.machines["n1"].deaf = true, true
	w.run(15 * time.Second)
	w.silence("n1")
	w.until(5*time.Minute, func() bool { return w.record("n1").Phase == taint.PhaseDone })
	r := w.record("n1")
	if r.Result != taint.ResultEvicted || w.machines["n1"].offs() != 1 || w.marked("n1") {
		t.Fatalf("got %s %q after %d power-offs; told %q", r.Phase, r.Result, w.machines["n1"].offs(), w.told.said)
	}
	words := map[string]bool{}
	for _, e := range r.Evidence {
		words[e.From+" "+e.State+" "+e.Raw] = true
	}
	for _, want := range []string{"racks/enclosure-7 Unknown unreachable", "pdus/n1 On lit", "pdus/n1 Off dark"} {
		if !words[want] {
			t.Errorf("the record's evidence lacks %q: %v", want, r.Evidence)
		}
	}

	w.machines["n4"].two, w.machines["n4"].lies = true, true
	w.silence("n4")
	w.run(3 * time.Minute)
	if w.marked("n4") || w.record("n4").ID != "" || w.machines["n4"].offs() != 0 || !w.told.has("DevicesDisagree n4") {
		t.Errorf("its devices disagree: marked %v, record %+v, %d power-offs; told %q", w.marked("n4"), w.record("n4"),
			w.machines["n4"].offs(), w.told.said)
	}
	if got := w.heard.count(t, "forcefence_nodes", "devices_disagree"); got != 1 {
		t.Errorf("metric of nodes whose devices disagree: %v, want 1", got)
	}
}

// The fence that a person's confirmation is for has the id that it names, and the next has another.
func TestConfirmedFence(t *testing.T) {
	w := newWorld(t)
	w.run(15 * time.Second)
	n := w.node("n1")
	c := taint.Confirmation{By: "ann", Reason: "it is dark", NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID,
		Fence: "f-said", At: w.Now()}
	w.change("n1", func(n *corev1.Node) { n.Annotations[taint.ConfirmAnnotation] = c.Encode() })
	w.cut("n1")
	w.untilDone("n1", taint.ResultEvicted)
	if got := w.record("n1").ID; got != "f-said" {
		t.Errorf("the fence is %s, want that of the confirmation", got)
	}
	w.machines["n1"].on = true
	w.change("n1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2-of-n1" })
	w.beat("n1")
	w.change("n1", setReady(corev1.ConditionTrue))
	w.run(15 * time.Second)
	w.pod("n1", "late", nil, nil, nil)
	w.cut("n1")
	w.until(2*time.Minute, func() bool { return w.record("n1").ID != "f-said" })
	if got := w.record("n1").ID; got == "f-said" || !strings.HasPrefix(got, "f-") {
		t.Errorf("the next fence is %s", got)
	}
}

// Proofs are passed on when pods are about to be ended, with all pods of the node.
func TestProofsArePassedOn(t *testing.T) {
	w := newWorld(t)
	w.run(30 * time.Second)
	var got []decide.Proof
	w.r.Proven = func(p decide.Proof) {
		if pods := w.pods(p.Node); len(pods) != len(p.Pods) {
			t.Errorf("proof of %s: got %d pods, want all of %v", p.Node, len(p.Pods), pods)
		}
		got = append(got, p)
	}
	cut := w.Now()
	w.cut("n1")
	w.untilDone("n1", taint.ResultEvicted)
	if len(got) == 0 {
		t.Fatal("got no proof")
	}
	for _, p := range got {
		if p.Node != "n1" || p.Asked.Wall.Before(cut) || p.Since.After(p.Asked) {
			t.Errorf("got %+v, want one of n1 from after the power cut", p)
		}
	}
}
