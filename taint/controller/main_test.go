package controller

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/test/cluster"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

var errStale = errors.New("not leading")

func newNode(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), n) })
	return n
}
