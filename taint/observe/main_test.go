package observe

import (
	"errors"
	"os"
	"testing"

	"github.com/forcefence/forcefence/test/cluster"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

var errStale = errors.New("not leading")
