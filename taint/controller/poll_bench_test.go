package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/machine"
)

// indexed hands out copies of Nodes, as an informer's cache does.
type indexed map[string]*corev1.Node

func (x indexed) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n, is := o.(*corev1.Node)
	if !is || x[k.Name] == nil {
		return fmt.Errorf("no %T %s here", o, k.Name)
	}
	x[k.Name].DeepCopyInto(n)
	return nil
}

func (x indexed) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	nodes, is := l.(*corev1.NodeList)
	if !is {
		return fmt.Errorf("no %T here", l)
	}
	for _, n := range x {
		nodes.Items = append(nodes.Items, *n)
	}
	return nil
}

// What one look costs that a policy about storage takes at each of 5,000 healthy nodes every poll interval: a thousand
// a second.
func BenchmarkPoll(b *testing.B) {
	const nodes = 5000
	spec := storage.Spec{Drivers: []string{"a.csi"},
		Node: storage.NodeSpec{Resource: "nodes.v1.a.example.com", Name: "object.metadata.name",
			Healthy: "object.healthy"}}
	a, bad := storage.CompileAdapter("a", spec)
	if len(bad) > 0 {
		b.Fatal(bad)
	}
	state := storage.NewState(a)
	state.Replace(storage.Nodes, nil)
	cached := indexed{}
	var names []string
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		names = append(names, name)
		state.Put(storage.Nodes,
			&unstructured.Unstructured{
				Object: map[string]any{"metadata": map[string]any{"name": name}, "healthy": true}})
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		n.Labels, n.Annotations = map[string]string{}, map[string]string{}
		for j := range 20 {
			n.Labels[fmt.Sprint("example.com/label-", j)], n.Annotations[fmt.Sprint("example.com/note-", j)] = "value",
				"value"
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		cached[name] = n
	}
	rule := policy.Policy{Name: "p", When: policy.StorageUnhealthy, Storage: "a", Drivers: spec.Drivers,
		Intervals: policy.StorageOSIntervals, WithoutProof: policy.StorageFences}
	config := &Config{
		Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
			return machine.Machine{}, fmt.Errorf("no device")
		}},
		Settings: decide.Settings{Policies: []policy.Policy{rule}}, Storage: []StorageSystem{state},
	}
	sinks, _ := sinksTo(nil)
	r := New(Options{
		Live: cached, Cache: cached, Sinks: sinks,
		Config: func() *Config { return config }, Leading: func() error { return nil }, Key: taint.DefaultKey,
		By: "bench", Now: time.Now,
	})
	ctx := b.Context()
	next := 0
	for b.Loop() {
		res, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: names[next%nodes]}})
		if err != nil || res.RequeueAfter != policy.StorageOSIntervals.Poll {
			b.Fatalf("got %v, %v, want another look after %s", res, err, policy.StorageOSIntervals.Poll)
		}
		next++
	}
}
