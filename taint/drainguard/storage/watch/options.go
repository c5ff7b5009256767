package watch

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Options is what a Watcher is made of. All are required but where noted.
type Options struct {
	Client    dynamic.Interface
	Discovery discovery.DiscoveryInterface
	Log       *slog.Logger
	Registry  prometheus.Registerer // nil: no metrics
	// Retry is how long after a failure the API server is asked again, and Absent how often a resource is looked for that the cluster does not
	// have; default 1s and 10s. Both are spread, up to twice.
	Retry, Absent time.Duration
}
