package watch

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Options is what a Watcher is made of. All fields are required unless noted.
type Options struct {
	Client    dynamic.Interface
	Discovery discovery.DiscoveryInterface
	Log       *slog.Logger
	Registry  prometheus.Registerer // nil: no metrics
	// Retry is how long after a failure the API server is asked again (default 1s). Absent is how often a resource is
	// looked for that the cluster does not have (default 10s). Both are jittered, up to twice.
	Retry, Absent time.Duration
}
