package kube

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/test/kit"
)

func names(nodes []*corev1.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// What the informer holds is lent, not copied, and is what a list would bring.
func TestCachedNodesOfAnInformer(t *testing.T) {
	if shared == nil {
		t.Skip("-short: needs a control plane")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want := []string{"cached-1", "cached-2"}
	for _, name := range want {
		_, err := shared.Client().CoreV1().Nodes().
			Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		kit.Must(t, err)
		t.Cleanup(func() {
			kit.Must(t, shared.Client().CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
		})
	}
	c, err := cache.New(shared.RESTConfig(), cache.Options{})
	kit.Must(t, err)
	if got, err := CachedNodes(ctx, c); err == nil {
		t.Errorf("before the cache runs: got nodes %v, want an error", names(got))
	}
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	first, err := CachedNodes(ctx, c)
	kit.Must(t, err)
	second, err := CachedNodes(ctx, c)
	kit.Must(t, err)
	ours := func(nodes []*corev1.Node) []*corev1.Node {
		return slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !slices.Contains(want, n.Name) })
	}
	first, second = ours(first), ours(second)
	if got := names(first); !slices.Equal(got, want) {
		t.Errorf("got nodes %v, want %v", got, want)
	}
	for _, n := range first {
		if !slices.Contains(second, n) {
			t.Errorf("node %s was copied", n.Name)
		}
	}
	cancel()
	kit.Must(t, <-ended)
}

func TestCachedNodesOfAList(t *testing.T) {
	c := fake.NewClientBuilder().
		WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}).Build()
	got, err := CachedNodes(t.Context(), c)
	kit.Must(t, err)
	if want := []string{"n1", "n2"}; !slices.Equal(names(got), want) {
		t.Errorf("got nodes %v, want %v", names(got), want)
	}
}
