package wake

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/wake/line"
)

// lines keeps the lines to the nodes, and wakes a node whose line broke.
type lines struct {
	Options
	kept   *line.Lines
	broken workqueue.TypedInterface[string] // nodes whose lines broke, still to be woken
}

func newLines(o Options) *lines {
	l := &lines{Options: o, broken: workqueue.NewTyped[string]()}
	l.kept = line.New(line.Options{Log: o.Log, OnBreak: l.noteBroken})
	return l
}

// runLines keeps the lines to the nodes that devices chose. It blocks until ctx ends and they are closed.
func (l *lines) runLines(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.kept.Run(ctx); err != nil {
			l.Log.Warn("Cannot keep lines to nodes", "error", err)
		}
	})
	running.Go(func() { l.wakeBroken(ctx) })
	defer l.Metrics.lines.Reset()
	defer running.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for state, n := range l.kept.Counts() {
				l.Metrics.lines.WithLabelValues(string(state)).Set(float64(n))
			}
		}
	}
}

// wakeBroken wakes the nodes whose lines broke, until ctx ends.
func (l *lines) wakeBroken(ctx context.Context) {
	defer context.AfterFunc(ctx, l.broken.ShutDown)()
	for node, over := l.broken.Get(); !over; node, over = l.broken.Get() {
		l.wakeNode(ctx, node)
		l.broken.Done(node)
	}
}

// noteBroken adds the hint that a node's line broke. It does not block: the goroutine that keeps the lines calls it.
func (l *lines) noteBroken(node string) {
	l.addHint(node, fleet.Line)
	l.broken.Add(node)
}
