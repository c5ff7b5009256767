package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
)

// batch is a run of pod writes on one node. Each write is made only while the proof holds: a proof that grew old is asked for
// again, by one worker for all; an answer other than Off, or a sign of life from the informers, stops the run.
type batch struct {
	stopped atomic.Bool // set by the informers' handlers

	mu   sync.Mutex // guards view; held while asking, so that workers wait for the one answer
	view evict.View
	turn *turn
}

// forEach runs write for every pod of the decision, with as many workers as are free, in the decision's order. A write that fails is no
// error: how each ended is folded into the memory, and the next look decides anew. It returns the pods that were written, after all
// workers have returned. A run that stops lets the writes under way come to their end: one that was cut off could land after the next
// look.
func (t *turn) forEach(ctx context.Context, v evict.View, d evict.Decision, write func(context.Context, evict.Pod) error) ([]evict.Pod, error) {
	b := &batch{view: v, turn: t}
	t.setBatch(b)
	defer t.setBatch(nil)
	var mu sync.Mutex // guards the results
	var written []evict.Pod
	how := map[string]evict.Refusal{}
	var failed int
	var first error
	g, gctx := errgroup.WithContext(ctx)
	for _, p := range d.Pods {
		if !t.acquire(gctx) {
			break
		}
		g.Go(func() error {
			defer func() { <-t.workers }()
			// Returned: the pods are tombstoned, no kubelet can start them, and the node is alive: no proof is needed or possible.
			if !d.Returned && !b.holds(gctx) {
				return errProofLost
			}
			err := write(ctx, p)
			if err != nil && ctx.Err() != nil {
				return nil // this process ends
			}
			if lost := t.Leading(); err != nil && lost != nil {
				return lost
			}
			mu.Lock()
			defer mu.Unlock()
			how[p.UID] = refusal(err)
			if err == nil {
				written = append(written, p)
			} else if !errors.Is(err, errAgain) {
				if failed++; first == nil {
					first = fmt.Errorf("%s/%s: %w", p.Namespace, p.Name, err)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	t.st.evict.Wrote(d.Act, d.Pods, how, t.Now())
	if failed > 0 {
		t.Log.Warn("Writes of pods failed", "node", t.look.Name, "fence", t.look.Record.ID, "act", d.Act.String(), "failed", failed, "of", len(d.Pods), "first", first)
	}
	switch {
	case errors.Is(err, errProofLost):
		t.Log.Warn("Stopped in the middle: the machine is no longer proven off", "node", t.look.Name, "fence", t.look.Record.ID)
		return written, nil // the next look decides
	case err != nil:
		return written, fmt.Errorf("%s: %w", d.Act, err)
	}
	return written, ctx.Err()
}

// acquire takes a worker's token; false when ctx ended first.
func (r *Reconciler) acquire(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case r.workers <- struct{}{}:
		return true
	}
}

// holds reports whether a write may be made now, asking the device again where the last answer is too old.
func (b *batch) holds(ctx context.Context) bool {
	if b.stopped.Load() || ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view.Holds(b.turn.Now()) {
		return true
	}
	if b.view.Answer.State != providers.PowerOff && b.view.Device != "" && b.turn.look.Record.By != taint.ByPerson {
		return false
	}
	b.turn.ask(ctx)
	b.view.Memory = b.turn.st.evict
	return !b.stopped.Load() && b.view.Holds(b.turn.Now())
}

// setBatch tells the informers' handlers which run to stop.
func (t *turn) setBatch(b *batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.st.batch = b
}

// stopBatch stops the pod writes under way on a node that shows life.
func (r *Reconciler) stopBatch(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st := r.nodes[name]; st != nil && st.batch != nil {
		st.batch.stopped.Store(true)
	}
}
