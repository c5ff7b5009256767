package controller

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// TestSlimKeepsWhatIsRead holds that a cached Node is seen as the live one is.
func TestSlimKeepsWhatIsRead(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rec := taint.Record{ID: "f", NodeUID: "u", BootID: "b", Since: now, By: "me"}.EnterPhase(taint.PhaseArmed, "", now)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: types.UID("u"), ResourceVersion: "7", Labels: map[string]string{"a": "b"},
			Annotations:   map[string]string{taint.RecordAnnotation: rec.Encode()},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.NodeSpec{ProviderID: "x:///1",
			Taints: []corev1.Taint{{Key: taint.DefaultKey, Value: "f", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: taint.PoweredOnCondition, Status: corev1.ConditionTrue},
				{Type: taint.ProtectionCondition, Status: corev1.ConditionTrue, Reason: taint.ProtectionFailOpen},
			},
			Capacity:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			Images:          []corev1.ContainerImage{{Names: []string{"i"}}},
			NodeInfo:        corev1.NodeSystemInfo{BootID: "b", SystemUUID: "s", KernelVersion: "k"},
			VolumesInUse:    []corev1.UniqueVolumeName{"v"},
			VolumesAttached: []corev1.AttachedVolume{{Name: "v"}},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
		},
	}
	whole := node.DeepCopy()
	slimNode(node)
	if diff := cmp.Diff(taint.NewLook(whole, nil, taint.DefaultKey, providers.InstantOf(now), providers.InstantOf(now)),
		taint.NewLook(node, nil, taint.DefaultKey, providers.InstantOf(now), providers.InstantOf(now))); diff != "" {
		t.Errorf("seen otherwise (-whole +slim):\n%s", diff)
	}
	// by which a machine may be told from others
	if diff := cmp.Diff(whole.Status.Addresses, node.Status.Addresses); diff != "" {
		t.Errorf("addresses (-whole +slim):\n%s", diff)
	}
	if !taint.NewLook(node, nil, taint.DefaultKey, providers.InstantOf(now), providers.InstantOf(now)).PoweredOn {
		t.Error("our own condition is gone")
	}
	if status, why := taint.ProtectionOf(node); status != corev1.ConditionTrue || why != taint.ProtectionFailOpen {
		t.Errorf("the hook's condition: got %q %q, want it kept", status, why)
	}
	if node.ManagedFields != nil || node.Status.Images != nil || node.Status.Capacity != nil ||
		len(node.Status.Conditions) != 3 {
		t.Errorf("kept what nobody reads: %+v", node)
	}
}

// A cloud controller manager's shutdown taint makes the node's devices be asked when it appears, and not for as long as
// it stands.
func TestShutdownTaintIsAHint(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r := New(Options{Now: c.Now, Key: taint.DefaultKey})
	node := func(taints ...corev1.Taint) *corev1.Node {
		n := noted("https://bmc1", uuid1)
		n.Spec.Taints = taints
		return n
	}
	shut := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoExecute}
	changed := func(o, n *corev1.Node, want fleet.Source) {
		t.Helper()
		c.now = c.now.Add(time.Hour)
		r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: o, ObjectNew: n})
		if got := r.fleetView("n1").Hint; got != want {
			t.Errorf("hint by %q, want %q", got, want)
		}
	}
	changed(node(), node(), "")
	changed(node(), node(other), "")
	changed(node(other), node(other, shut), fleet.ShutdownTaint)
	changed(node(shut), node(shut), "")
	changed(node(shut), node(), "")

	confirmed := node()
	confirmed.Annotations[taint.ConfirmAnnotation] = "x"
	changed(node(), confirmed, fleet.Confirmation) // so does a person's word
	changed(confirmed, confirmed, "")
	changed(confirmed, node(), "")
}

// A Node that comes, goes or changes has all nodes looked up again.
func TestNodesMove(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for what, move := range map[string]func(r *Reconciler){
		"came": func(r *Reconciler) { r.onNodeAdded(event.TypedCreateEvent[*corev1.Node]{Object: n}) },
		"went": func(r *Reconciler) { r.onNodeDeleted(event.TypedDeleteEvent[*corev1.Node]{Object: n}) },
		"changed": func(r *Reconciler) {
			r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: n, ObjectNew: noted("https://bmc1", uuid1)})
		},
	} {
		r := New(Options{Now: c.Now, Key: taint.DefaultKey})
		looked := c.now
		c.now = c.now.Add(10 * time.Second)
		if r.moved.ShouldList(looked, c.now) {
			t.Errorf("%s: all nodes are looked up before", what)
		}
		if move(r); !r.moved.ShouldList(looked, c.now) {
			t.Errorf("a node %s: nobody is looked up", what)
		}
	}
}

// A Node that shows life stops its pod writes at once, by the watch alone: it need not wait for the next look at the
// fleet.
func TestLifeStopsWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"Ready": {func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}, true},
		"another boot": {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "another" }, true},
		"another Node": {func(n *corev1.Node) { n.UID = "another" }, true},
		"a label":      {func(n *corev1.Node) { n.Labels = map[string]string{"rack": "2"} }, false},
	} {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		var stopped atomic.Bool
		x.st.run.Store(&stopped)
		was := x.live.node
		is := was.DeepCopy()
		tt.change(is)
		x.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is})
		if got := stopped.Load(); got != tt.want {
			t.Errorf("%s: writes stopped %v, want %v", name, got, tt.want)
		}
	}
}

// A node is woken by an attachment that is created, and a moment after one is deleted: others go with it.
func TestAttachmentsWakeTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}}
		wantWoken := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := q.Len(); got != want {
				t.Fatalf("%s: %d nodes are woken, want %d", what, got, want)
			}
			for range want {
				if r, _ := q.Get(); r.Name != "n1" {
					t.Errorf("%s: got %q, want n1", what, r.Name)
				} else {
					q.Done(r)
				}
			}
		}
		h := attachmentsGone()
		h.Create(t.Context(), event.TypedCreateEvent[*storagev1.VolumeAttachment]{Object: va}, q)
		wantWoken("created", 1)
		for range 3 {
			h.Delete(t.Context(), event.TypedDeleteEvent[*storagev1.VolumeAttachment]{Object: va}, q)
		}
		wantWoken("three are deleted", 0)
		time.Sleep(coalesce)
		wantWoken("a moment later", 1)
	})
}

// Only the cloud controller manager's own taint says that an instance is shut down.
func TestIsShutDown(t *testing.T) {
	const key = "node.cloudprovider.kubernetes.io/shutdown"
	for _, tc := range []struct {
		taint corev1.Taint
		want  bool
	}{
		{corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, true},
		{corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, false},
	} {
		if got := isShutDown(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{tc.taint}}}); got != tc.want {
			t.Errorf("%v: got %v, want %v", tc.taint, got, tc.want)
		}
	}
}

// The index of attachments has the node that each names, and nothing else.
func TestIndexNodeName(t *testing.T) {
	va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}}
	if got, none := indexNodeName(va), indexNodeName(&corev1.Node{}); !cmp.Equal(got, []string{"n1"}) || none != nil {
		t.Errorf("got %q of an attachment, %q of a node", got, none)
	}
}
