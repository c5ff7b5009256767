package remediation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/follow"
)

// cachedRequests is a cache of requests.
type cachedRequests struct {
	cache.Cache
	client.Reader
}

func (c cachedRequests) Get(
	ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	return c.Reader.Get(ctx, k, o, opts...)
}

func (c cachedRequests) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, l, opts...)
}

// noMachines is an API server whose Machines cannot be read.
type noMachines struct{ client.Client }

var errMachines = errors.New("no answer about Machines")

func (n noMachines) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*unstructured.Unstructured); is {
		return errMachines
	}
	return n.Client.Get(ctx, k, o, opts...)
}

// newRequested returns a Controller with one request that permitted to power off n1 when it was read last.
func newRequested(t *testing.T, r *api.ForcefenceRemediation) *Controller {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := api.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	r.Namespace, r.Name = "ns", "n1"
	stored := fake.NewClientBuilder().WithScheme(kinds).WithObjects(r).Build()
	return &Controller{
		Options: Options{Log: slog.New(slog.DiscardHandler), Now: time.Now, Leading: func() error { return nil }},
		live:    noMachines{stored}, cached: cachedRequests{Reader: stored}, ChangedNodes: follow.NewChangedNodes(),
		targets: map[types.NamespacedName]target{{Namespace: "ns", Name: "n1"}: {node: "n1", permits: true}},
	}
}

// What came to a request after the look that read it takes its permission back at the last check.
func TestCachedRequestIsTakenBack(t *testing.T) {
	now := metav1.Now()
	owned := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m1", UID: "m"}}
	for name, tc := range map[string]struct {
		change func(*api.ForcefenceRemediation)
		want   bool
	}{
		"nothing came": {func(*api.ForcefenceRemediation) {}, true},
		"its time is over": {func(r *api.ForcefenceRemediation) {
			r.Annotations = map[string]string{"remediation.medik8s.io/nhc-timed-out": "2026-11-27T12:00:00Z"}
		}, false},
		"of a Machine": {func(r *api.ForcefenceRemediation) { r.OwnerReferences = owned }, true},
		"of a Machine, it is deleted": {func(r *api.ForcefenceRemediation) {
			r.OwnerReferences, r.DeletionTimestamp, r.Finalizers = owned, &now, []string{"example.net/kept"}
		}, false},
		"of a Machine, its time is over": {func(r *api.ForcefenceRemediation) {
			r.OwnerReferences = owned
			r.Annotations = map[string]string{"remediation.medik8s.io/nhc-timed-out": "2026-11-27T12:00:00Z"}
		}, false},
	} {
		r := &api.ForcefenceRemediation{}
		tc.change(r)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}
		if got := newRequested(t, r).CachedRequest(node); (got != "") != tc.want {
			t.Errorf("%s: permitted by %q, want so: %v", name, got, tc.want)
		}
	}
}

// A request whose Machine cannot be read permits nothing any more, although it did when it was read last.
func TestUnreadMachinePermitsNothing(t *testing.T) {
	owned := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m1", UID: "m"}}
	c := newRequested(t, &api.ForcefenceRemediation{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}
	if c.CachedRequest(node) == "" {
		t.Fatal("before: the request permits nothing")
	}
	key := types.NamespacedName{Namespace: "ns", Name: "n1"}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !errors.Is(err, errMachines) {
		t.Errorf("got %v, want %v", err, errMachines)
	}
	if cached, live := c.CachedRequest(node), c.ReadRequest(t.Context(), node); cached+live != "" {
		t.Errorf("permitted by %q and %q, want neither", cached, live)
	}
}

// However many requests a user makes for a node, a look reads a few: first those that permitted last.
func TestKeysToRead(t *testing.T) {
	c := &Controller{targets: map[types.NamespacedName]target{}}
	for i := range 1000 {
		c.targets[types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("r%03d", i)}] = target{node: "n1",
			permits: i == 900}
	}
	got := c.keysToRead("n1")
	if len(got) != maxReads || got[0].Name != "r900" || got[1].Name != "r000" {
		t.Errorf("got %v, want %d, r900 first", got, maxReads)
	}
}
