package release

import (
	"os"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }
