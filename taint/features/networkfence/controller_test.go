package networkfence

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/follow"
	"github.com/forcefence/forcefence/taint/kube"
)

var rule = policy.Policy{Name: "p", Drivers: []string{"rbd"}, FenceClasses: []string{"c"}}

func nodeObject(name, address, boot string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: boot},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}

func addonsNode(node, cidr string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"driver": map[string]any{"name": "rbd", "nodeID": node, "endpoint": "pod://x.y:1"}},
		"status": map[string]any{"networkFenceClientStatus": []any{map[string]any{
			"networkFenceClassName": "c",
			"ClientDetails":         []any{map[string]any{"id": "fsid", "cidrs": []any{cidr}}},
		}}},
	}}
	o.SetGroupVersionKind(groupVersion.WithKind("CSIAddonsNode"))
	o.SetNamespace("ceph")
	o.SetName(node)
	return o
}

// newController returns a Controller of a cluster with a silent node n1 and these objects.
func newController(t *testing.T, objects ...client.Object) (*Controller, *events.FakeRecorder) {
	t.Helper()
	class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"provisioner": "rbd"}}}
	class.SetGroupVersionKind(groupVersion.WithKind("NetworkFenceClass"))
	class.SetName("c")
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"NetworkFence", "NetworkFenceClass", "CSIAddonsNode"} {
		kinds.AddKnownTypeWithName(groupVersion.WithKind(k), &unstructured.Unstructured{})
		kinds.AddKnownTypeWithName(groupVersion.WithKind(k+"List"), &unstructured.UnstructuredList{})
	}
	c := fake.NewClientBuilder().WithScheme(kinds).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		WithObjects(append(objects, class, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}})...).Build()
	said := events.NewFakeRecorder(10)
	leads := func() error { return nil }
	return &Controller{
		Options: Options{
			Live: c, Nodes: c, Key: taint.DefaultKey, Leading: leads, Log: slog.New(slog.DiscardHandler),
			Events: kube.Events{To: said, Leading: leads}, Now: time.Now, Every: time.Minute,
			LeftAlone: func(context.Context, string) (string, error) { return "", nil },
			MayAct:    func(*corev1.Node) bool { return true },
		},
		client: c, ChangedNodes: follow.NewChangedNodes(), reported: map[string]string{},
	}, said
}

// lookAt returns a look at the Node beside the Lease of the cluster.
func lookAt(t *testing.T, c *Controller, node *corev1.Node) taint.Look {
	t.Helper()
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node.Name}
	if err := c.Live.Get(t.Context(), key, &lease); err != nil {
		t.Fatal(err)
	}
	return taint.NewLook(node, &lease, taint.DefaultKey, providers.Instant{}, providers.Instant{})
}

// fences returns all NetworkFences.
func fences(t *testing.T, c *Controller) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(groupVersion.WithKind("NetworkFenceList"))
	if err := c.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// A fence is made once, and only for addresses that the API server shows as the node's own at that moment.
func TestMakeFence(t *testing.T) {
	n1 := nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)
	for _, tt := range []struct {
		name    string
		objects []client.Object
		want    int
	}{
		{"its own address", []client.Object{addonsNode("n1", "10.0.0.1/32"),
			nodeObject("n2", "10.0.0.2", "b", corev1.ConditionTrue)}, 1},
		{"an address of another Node", []client.Object{addonsNode("n1", "10.0.0.2/32"),
			nodeObject("n2", "10.0.0.2", "b", corev1.ConditionTrue)}, 0},
		{"an address of another node's client", []client.Object{addonsNode("n1", "10.0.0.7/32"),
			addonsNode("n2", "10.0.0.7/32")}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := newController(t, append(tt.objects, n1.DeepCopy())...)
			c.Nodes = fake.NewClientBuilder().Build() // a cache without Nodes: what is read live decides
			look := lookAt(t, c, n1)
			err := c.MakeFence(t.Context(), look, rule)
			made := fences(t, c)
			if len(made) != tt.want || (tt.want == 0) != errors.Is(err, kube.ErrAgain) {
				t.Fatalf("got %d NetworkFences and %v, want %d", len(made), err, tt.want)
			}
			if tt.want == 0 {
				return
			}
			var n networkFence
			if err := decode(&made[0], &n); err != nil {
				t.Fatal(err)
			}
			f := n.fence()
			if !f.Owned || !f.Life.StillHolds(look) || f.Confirmed || f.State != "Fenced" ||
				len(f.CIDRs) != 1 || f.CIDRs[0] != "10.0.0.1/32" || f.Made[0] != f.CIDRs[0] ||
				n.Name != "forcefence-"+n.Annotations[fenceID] {
				t.Errorf("got %+v", n)
			}
			if err := c.MakeFence(t.Context(), look, rule); !errors.Is(err, kube.ErrAgain) || len(fences(t, c)) != 1 {
				t.Errorf("again: got %v and %d NetworkFences, want one", err, len(fences(t, c)))
			}
		})
	}
}

// A node is not let in while its Node, its Lease, its pods or the other fences cannot be read.
func TestUnreadableIsNotLetIn(t *testing.T) {
	broken := errors.New("etcd")
	for name, fails := range map[string]func(o runtime.Object) bool{
		"Node":   func(o runtime.Object) bool { _, is := o.(*corev1.Node); return is },
		"Lease":  func(o runtime.Object) bool { _, is := o.(*coordinationv1.Lease); return is },
		"pods":   func(o runtime.Object) bool { _, is := o.(*corev1.PodList); return is },
		"fences": func(o runtime.Object) bool { _, is := o.(*unstructured.UnstructuredList); return is },
	} {
		before := nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)
		c, _ := newController(t, nodeObject("n1", "10.0.0.1", "b2", corev1.ConditionTrue),
			addonsNode("n1", "10.0.0.1/32"))
		if err := c.MakeFence(t.Context(), lookAt(t, c, before), rule); err != nil {
			t.Fatal(err)
		}
		o := fences(t, c)[0]
		plain := c.client
		unreadable := interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if fails(o) {
					return broken
				}
				return c.Get(ctx, k, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if fails(l) {
					return broken
				}
				return c.List(ctx, l, opts...)
			},
		})
		c.client, c.Live = unreadable, unreadable
		_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&o)})
		c.client = plain
		if after := fences(t, c)[0]; !errors.Is(err, broken) || after.GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%s: got error %v and %v, want no write", name, err, after.Object)
		}
	}
}

// withRecord returns a copy of a Node with a fence's record.
func withRecord(n *corev1.Node, record string) *corev1.Node {
	n = n.DeepCopy()
	n.Annotations = map[string]string{taint.RecordAnnotation: record}
	return n
}

// A fence is confirmed, and its node let in, by the leader alone, and not while a pod that was ended is on the node.
func TestReconcile(t *testing.T) {
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: taint.TombstoneReason}}
	booted := nodeObject("n1", "10.0.0.1", "b2", corev1.ConditionTrue)
	open := taint.Record{ID: "f-1", NodeUID: "uid-n1"}.EnterPhase(taint.PhaseEvicting, "", time.Now()).Encode()
	marked := booted.DeepCopy()
	marked.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "kim", time.Now())
	runs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "q"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for _, tt := range []struct {
		name             string
		node             *corev1.Node
		pods             []client.Object
		follower         bool
		confirmed, unfed bool // before; after
		want             bool // Confirmed after
		event            bool // a person is asked to reboot the node
		paused, disabled bool
		unread           error // why it is not known whether it is paused
	}{
		{name: "a silent node's is confirmed", node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown),
			want: true},
		{name: "not by a follower", node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown), follower: true},
		{name: "a node that has booted is let in", node: nodeObject("n1", "10.0.0.1", "b2", corev1.ConditionTrue),
			confirmed: true, want: true, unfed: true},
		{name: "not by a follower, either", node: nodeObject("n1", "10.0.0.1", "b2", corev1.ConditionTrue),
			confirmed: true, want: true, follower: true},
		{name: "nor with an ended pod", node: nodeObject("n1", "10.0.0.1", "b2", corev1.ConditionTrue),
			confirmed: true, want: true, pods: []client.Object{ended}},
		{name: "nor with one beside pods that run", node: booted, confirmed: true, want: true,
			pods: []client.Object{ended, runs}},
		{name: "with pods that run it is let in", node: booted, confirmed: true, want: true, unfed: true,
			pods: []client.Object{runs}},
		{name: "nor with an open fence", node: withRecord(booted, open), confirmed: true, want: true},
		{name: "nor with a record that cannot be read", node: withRecord(booted, "{"), confirmed: true, want: true},
		{name: "nor with a mark", node: marked, confirmed: true, want: true},
		{name: "nor on the same boot", node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionTrue),
			confirmed: true, want: true, event: true},
		{name: "a paused node is let in, if nothing relies on the fence", paused: true, unfed: true,
			node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)},
		{name: "not if a policy may rely on it", paused: true, confirmed: true, want: true,
			node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)},
		{name: "one whose mode begins nothing is let in, too", disabled: true, unfed: true,
			node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)},
		{name: "and not if a policy may rely on it", disabled: true, confirmed: true, want: true,
			node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)},
		{name: "nothing is confirmed while a pause cannot be read", unread: errors.New("cut off"),
			node: nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := nodeObject("n1", "10.0.0.1", "b1", corev1.ConditionUnknown)
			c, said := newController(t, append(tt.pods, tt.node.DeepCopy(), addonsNode("n1", "10.0.0.1/32"))...)
			if err := c.MakeFence(t.Context(), lookAt(t, c, before), rule); err != nil {
				t.Fatal(err)
			}
			o := fences(t, c)[0]
			o.Object["status"] = map[string]any{"result": "Succeeded", "message": "fencing operation successful"}
			if tt.confirmed {
				a := o.GetAnnotations()
				a[confirmedAt] = "before"
				o.SetAnnotations(a)
			}
			if err := c.client.Update(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
			c.LeftAlone = func(context.Context, string) (string, error) {
				return map[bool]string{true: "paused"}[tt.paused], tt.unread
			}
			c.MayAct = func(n *corev1.Node) bool { return !tt.disabled || n.Name != "n1" }
			if tt.follower {
				c.Leading = func() error { return errors.New("another leads") }
			}
			key := reconcile.Request{NamespacedName: types.NamespacedName{Name: o.GetName()}}
			_, err := c.Reconcile(t.Context(), key)
			if (err != nil) != (tt.follower || tt.unread != nil) {
				t.Errorf("got error %v", err)
			}
			var n networkFence
			after := fences(t, c)[0]
			if err := decode(&after, &n); err != nil {
				t.Fatal(err)
			}
			if f := n.fence(); f.Confirmed != tt.want || (f.State == "Unfenced") != tt.unfed {
				t.Errorf("got %+v, want confirmed %t, unfenced %t", f, tt.want, tt.unfed)
			}
			if got := len(said.Events) > 0; got != tt.event {
				t.Errorf("got an Event: %t, want %t", got, tt.event)
			}
		})
	}
}
