package karpenter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/karpenter/claim"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/test/kit"
)

// dead is a node of Karpenter's whose pods were moved.
func dead(t *testing.T) *corev1.Node {
	t.Helper()
	rec, err := json.Marshal(taint.Record{ID: "f1", Phase: taint.PhaseDone, Result: taint.ResultEvicted, NodeUID: "u1",
		LeaseRV: "7", By: "p", Since: time.Unix(1, 0).UTC(), At: time.Unix(2, 0).UTC()})
	kit.Must(t, err)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "5",
			Annotations: map[string]string{taint.RecordAnnotation: string(rec)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "karpenter.sh/v1", Kind: claim.Kind, Name: "c1", UID: "c-uid"}}},
		Spec: corev1.NodeSpec{ProviderID: "cloud://1"},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
}

// nodeClaim is its NodeClaim.
func nodeClaim(deleted bool) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": claim.Kind,
		"metadata": map[string]any{"name": "c1", "uid": "c-uid", "resourceVersion": "7",
			"finalizers": []any{"karpenter.sh/termination"}},
		"status": map[string]any{"nodeName": "n1", "providerID": "cloud://1"},
	}}
	if deleted {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
	}
	return o
}

// nodes is a cache that was filled by hand.
type nodes struct {
	cache.Cache
	from client.Reader
}

func (n nodes) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return n.from.Get(ctx, k, o, opts...)
}

func (n nodes) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return n.from.List(ctx, l, opts...)
}

// world is what a hand-over meets.
type world struct {
	cached, live *corev1.Node
	claim        *unstructured.Unstructured
	power        providers.PowerState
	lease        string // the Lease's resourceVersion
	asked        func() // while the devices are asked
	options      func(*Options)
	refuses      error  // the API server's answer to the announcement
	announced    string // what was written on the Node
}

func TestReconcile(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*world)
		want []string // the calls about NodeClaims
		err  string   // a part of it
	}{
		{"handed over", nil, []string{"get", "delete", "patch"}, ""},
		{"the fence is not over", func(w *world) { w.cached.Annotations = nil }, nil, ""},
		{"the Node is Ready by now", func(w *world) {
			w.asked = func() { w.live.Status.Conditions[0].Status = corev1.ConditionTrue }
		}, []string{"get"}, ""},
		{"its Lease was renewed by now", func(w *world) { w.asked = func() { w.lease = "8" } }, []string{"get"}, ""},
		{"the Node has changed since", func(w *world) { w.refuses = errors.New("conflict") }, []string{"get"},
			"conflict"},
		{"another Node by now", func(w *world) { w.asked = func() { w.live.UID = "u2" } }, []string{"get"}, ""},
		{"its NodeClaim is being deleted", func(w *world) { w.claim = nodeClaim(true) }, []string{"get"}, ""},
		{"its NodeClaim is gone", func(w *world) { w.claim = nil }, []string{"get"}, ""},
		{"the NodeClaim is another node's", func(w *world) {
			kit.Must(t, unstructured.SetNestedField(w.claim.Object, "n2", "status", "nodeName"))
		}, []string{"get"}, ""},
		{"the machine is on", func(w *world) { w.power = providers.PowerOn }, []string{"get"}, ""},
		{"its mode", func(w *world) {
			w.options = func(o *Options) { o.MayAct = func(*corev1.Node) bool { return false } }
		}, []string{"get"}, ""},
		{"left alone", func(w *world) {
			w.options = func(o *Options) {
				o.LeftAlone = func(context.Context, string) (string, error) { return "paused", nil }
			}
		}, []string{"get"}, ""},
		{"it is not known whether it is left alone", func(w *world) {
			w.options = func(o *Options) {
				o.LeftAlone = func(context.Context, string) (string, error) { return "", errors.New("no answer") }
			}
		}, nil, "no answer"},
		{"another leads", func(w *world) {
			w.options = func(o *Options) { o.Leading = func() error { return errors.New("not the leader") } }
		}, []string{"get"}, "not the leader"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{cached: dead(t), live: dead(t), claim: nodeClaim(false), power: providers.PowerOff, lease: "7"}
			if tt.edit != nil {
				tt.edit(w)
			}
			c, claims := w.controller()
			_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: got %v, want %q", err, tt.err)
			}
			if got := verbs(claims); !slices.Equal(got, tt.want) {
				t.Errorf("calls about NodeClaims: got %q, want %q", got, tt.want)
			}
			if deleted := len(tt.want) > 1; deleted && !strings.Contains(w.announced, `\"afterFence\":\"HandedOver\"`) {
				t.Errorf("announced %s before the deletion", w.announced)
			}
		})
	}
}

func (w *world) controller() (*Controller, *dynamicfake.FakeDynamicClient) {
	var objects []runtime.Object
	if w.claim != nil {
		objects = append(objects, w.claim)
	}
	gvr := schema.GroupVersionResource{Group: claim.Group, Version: claim.Version, Resource: claim.Resource}
	claims := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{gvr: "NodeClaimList"}, objects...)
	get := func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object,
		_ ...client.GetOption) error {
		switch o := o.(type) {
		case *corev1.Node:
			w.live.DeepCopyInto(o)
		case *coordinationv1.Lease:
			o.ResourceVersion = w.lease
		}
		return nil
	}
	patch := func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch,
		_ ...client.PatchOption) error {
		text, err := p.Data(o)
		w.announced = string(text)
		return cmp.Or(err, w.refuses)
	}
	live := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithInterceptorFuncs(interceptor.Funcs{Get: get, Patch: patch}).Build()
	leads := func() error { return nil }
	o := Options{
		Live: live, Dynamic: claims, Key: taint.DefaultKey, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Nodes:     nodes{from: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(w.cached).Build()},
		Leading:   leads,
		Writer:    kube.Writer{Client: live, Key: taint.DefaultKey, Leading: leads, Now: time.Now},
		Events:    kube.Events{To: events.NewFakeRecorder(10), Leading: leads},
		NoPower:   func(taint.Look) string { return "" },
		MayAct:    func(*corev1.Node) bool { return true },
		LeftAlone: func(context.Context, string) (string, error) { return "", nil },
		Ask: func(context.Context, *corev1.Node) providers.Answer {
			if w.asked != nil {
				w.asked()
			}
			return providers.Answer{Observation: providers.Observation{State: w.power}}
		},
	}
	if w.options != nil {
		w.options(&o)
	}
	return New(o), claims
}

func verbs(c *dynamicfake.FakeDynamicClient) (out []string) {
	for _, a := range c.Actions() {
		out = append(out, a.GetVerb())
	}
	return out
}

// The very NodeClaim that was read is deleted, and then annotated.
func TestHandOver(t *testing.T) {
	c, claims := (&world{cached: dead(t), live: dead(t), claim: nodeClaim(false)}).controller()
	c.Now = func() time.Time { return time.Unix(3, 0) }
	node := dead(t)
	kit.Must(t, c.handOver(t.Context(), claim.Facts{
		Node: node, Look: taint.NewLook(node, nil, taint.DefaultKey, providers.Instant{}, providers.Instant{}),
		Claim: claim.Claim{Name: "c1", UID: "c-uid", ResourceVersion: "7"}}))
	all := claims.Actions()
	if got, want := verbs(claims), []string{"delete", "patch"}; !slices.Equal(got, want) {
		t.Fatalf("calls: got %q, want %q", got, want)
	}
	p := all[0].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
	if p == nil || p.UID == nil || *p.UID != "c-uid" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
		t.Errorf("preconditions of the deletion: got %+v, want UID c-uid and resourceVersion 7", p)
	}
	const want = `{"metadata":{"annotations":{"karpenter.sh/nodeclaim-termination-timestamp":"1970-01-01T00:00:03Z"},` +
		`"uid":"c-uid"}}`
	if got := string(all[1].(clienttesting.PatchActionImpl).Patch); got != want {
		t.Errorf("patch: got %s, want %s", got, want)
	}
}

func TestReadKeptOn(t *testing.T) {
	kind := schema.GroupVersionKind{Group: claim.Group, Version: claim.Version, Kind: claim.Kind}
	served := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	served.Add(kind, apimeta.RESTScopeRoot)
	for _, tt := range []struct {
		name   string
		mapper apimeta.RESTMapper
		edit   func(*corev1.Node)
		claim  *unstructured.Unstructured
		err    error
		want   string
	}{
		{"it lives", served, nil, nodeClaim(false), nil, ""},
		{"it is being deleted", served, nil, nodeClaim(true), nil, "Karpenter is deleting its machine (NodeClaim c1)"},
		{"it is gone", served, nil, nil, nil, ""},
		{"it cannot be read", served, nil, nodeClaim(true), errors.New("no answer"),
			"NodeClaim c1 cannot be read, and Karpenter may be deleting the machine"},
		{"Karpenter is not installed", apimeta.NewDefaultRESTMapper(nil), nil, nil, errors.New("no answer"), ""},
		{"no node of Karpenter's", served, func(n *corev1.Node) { n.OwnerReferences = nil }, nil,
			errors.New("no answer"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRESTMapper(served)
			if tt.claim != nil {
				b = b.WithObjects(tt.claim)
			}
			c := interceptor.NewClient(b.Build(), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
				key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if tt.err != nil {
					return tt.err
				}
				return c.Get(ctx, key, o, opts...)
			}})
			node := dead(t)
			if tt.edit != nil {
				tt.edit(node)
			}
			if got := ReadKeptOn(t.Context(), c, tt.mapper, node); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
