package kube

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

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
