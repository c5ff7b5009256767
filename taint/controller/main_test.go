package controller

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/test/cluster"
)

// shared is a real control plane for what only an API server can tell; nil under -short. Its controller-manager and scheduler are
// stopped: nothing but a test changes an object.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(cluster.Main(m, cluster.Options{}, func(c *cluster.Cluster) {
		if shared = c; c != nil {
			c.ControllerManager().Stop()
			c.Scheduler().Stop()
		}
	}))
}

var errStale = errors.New("not leading")

// admin is a client of the real API server.
func admin(t *testing.T) client.Client {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane")
	}
	c, err := client.New(shared.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newNode(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), n) })
	return n
}
