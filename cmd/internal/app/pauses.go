package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
)

// pauseGauge exports which pauses are in force, while this process leads.
type pauseGauge struct {
	live   client.Reader
	nodes  client.Reader
	pause  client.ObjectKey // the ConfigMap that pauses all nodes
	log    *slog.Logger
	now    func() time.Time
	pauses *prometheus.GaugeVec
}

const (
	// pauseInterval is the time between two reads of the pauses. The alert waits for many of them.
	pauseInterval = time.Minute
	// plannedPause is the longest pause that ends by itself soon enough: a longer one can be forgotten.
	plannedPause = 24 * time.Hour
)

// The values of the labels of the metric of pauses.
const (
	ofCluster, ofNode       = "cluster", "node"
	endsWithinDay, endsLate = "within_a_day", "later"
)

func newPauseGauge(
	live, nodes client.Reader, pause client.ObjectKey, log *slog.Logger, now func() time.Time,
	reg prometheus.Registerer,
) *pauseGauge {
	g := &pauseGauge{live: live, nodes: nodes, pause: pause, log: log, now: now,
		pauses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_pauses",
			Help: "Pauses in force, by what they pause (cluster, node) and by their end: within_a_day, or later, " +
				"which includes those without an end.",
		}, []string{"of", "ends"})}
	reg.MustRegister(g.pauses)
	g.set(ofCluster, nil)
	g.set(ofNode, nil)
	return g
}

// Start reads the pauses until ctx ends.
func (g *pauseGauge) Start(ctx context.Context) error {
	for {
		g.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pauseInterval):
		}
	}
}

// read reads the pauses once. What cannot be read stays as it was.
func (g *pauseGauge) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var cm corev1.ConfigMap
	switch err := g.live.Get(ctx, g.pause, &cm); {
	case err == nil:
		g.set(ofCluster, []fence.Pause{fence.PauseOf(cm.Data)})
	case client.IgnoreNotFound(err) == nil:
		g.set(ofCluster, nil)
	default:
		g.log.Warn("Cannot read the pause of all nodes", "error", err)
	}
	nodes, err := kube.CachedNodes(ctx, g.nodes)
	if err != nil {
		g.log.Warn("Cannot read the pauses of nodes", "error", err)
		return
	}
	var pauses []fence.Pause
	for _, n := range nodes {
		if text, paused := n.Annotations[fence.PausedAnnotation]; paused {
			pauses = append(pauses, fence.ParsePause(text))
		}
	}
	g.set(ofNode, pauses)
}

// set exports how many of the pauses are in force.
func (g *pauseGauge) set(of string, pauses []fence.Pause) {
	now, soon, late := g.now(), 0, 0
	for _, p := range pauses {
		switch {
		case p.IsOver(now):
		case p.IsOver(now.Add(plannedPause)):
			soon++
		default:
			late++
		}
	}
	g.pauses.WithLabelValues(of, endsWithinDay).Set(float64(soon))
	g.pauses.WithLabelValues(of, endsLate).Set(float64(late))
}
