package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
)

// pauseGauge exports which pauses there are, and when they end, while this process leads.
type pauseGauge struct {
	live  client.Reader
	nodes client.Reader
	pause client.ObjectKey // the ConfigMap that pauses all nodes
	// excluded returns the excludeSelector in force. It does not block.
	excluded func() labels.Selector
	log      *slog.Logger
	now      func() time.Time
	pauses   *prometheus.GaugeVec
}

const (
	// pauseInterval is the time between two reads of the pauses. The alert waits for many of them.
	pauseInterval = time.Minute
	// plannedPause is the longest pause that ends by itself soon enough: a longer one can be forgotten.
	plannedPause = 24 * time.Hour
)

// The values of the labels of the metric of pauses.
const (
	ofCluster, ofNode, ofLabel = "cluster", "node", "label"

	endsWithinDay, endsLate, ended = "within_a_day", "later", "over"
)

func newPauseGauge(
	live, nodes client.Reader, pause client.ObjectKey, excluded func() labels.Selector, log *slog.Logger,
	now func() time.Time, reg prometheus.Registerer,
) *pauseGauge {
	g := &pauseGauge{live: live, nodes: nodes, pause: pause, excluded: excluded, log: log, now: now,
		pauses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forcefence_pauses",
			Help: "Pauses, by what they are of (cluster, node, or an exclude label on a node) and by their end: " +
				"within_a_day, later, which includes those without an end, or over, which pause nothing.",
		}, []string{"of", "ends"})}
	reg.MustRegister(g.pauses)
	g.set(ofCluster, nil)
	g.set(ofNode, nil)
	g.set(ofLabel, nil)
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
	var pauses, marked []fence.Pause
	for _, n := range nodes {
		if g.hasExcludeLabel(n) {
			marked = append(marked, fence.Pause{})
		}
		if text, paused := n.Annotations[fence.PausedAnnotation]; paused {
			pauses = append(pauses, fence.ParsePause(text))
		}
	}
	g.set(ofNode, pauses)
	g.set(ofLabel, marked)
}

// hasExcludeLabel reports whether a label excludes the node that people set on single nodes, as a pause without an end:
// forcefence's own, or medik8s'. A selector of the file's author names a class of nodes on purpose.
func (g *pauseGauge) hasExcludeLabel(n *corev1.Node) bool {
	_, own := n.Labels[config.DefaultExclude]
	return own && g.excluded().Matches(labels.Set(n.Labels)) || fence.HasExcludeLabel(n.Labels)
}

// set exports how many of the pauses end when.
func (g *pauseGauge) set(of string, pauses []fence.Pause) {
	now, soon, late, over := g.now(), 0, 0, 0
	for _, p := range pauses {
		switch {
		case p.IsOver(now):
			over++
		case p.IsOver(now.Add(plannedPause)):
			soon++
		default:
			late++
		}
	}
	g.pauses.WithLabelValues(of, endsWithinDay).Set(float64(soon))
	g.pauses.WithLabelValues(of, endsLate).Set(float64(late))
	g.pauses.WithLabelValues(of, ended).Set(float64(over))
}
