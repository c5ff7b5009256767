package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/observe"
)

// nudges makes a node's kubelet try its held pods again.
type nudges struct{ *work }

// runDueRound runs the round that is due, if there is one, and returns when to call it again; 0 is never. It blocks for
// the API server. It logs and counts failures, and leaves them to the next round.
func (w nudges) runDueRound(ctx context.Context) time.Duration {
	wait, ok := w.st.nudging.nextRound(w.Now())
	if !ok || wait > 0 {
		return wait
	}
	if w.Leading() != nil || w.st.beginsNothing {
		w.st.nudging.pending = false
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	done := observe.NudgeDone{Round: w.st.nudging.round + 1}
	held, open, err := w.listHeld(ctx)
	switch {
	case err != nil:
		done.Err = err
		w.st.nudging.endRound(1) // unknown: look again
	case open:
		w.st.releaseSlot()
		w.nudgePods(ctx, held, &done)
		w.st.nudging.endRound(len(held))
	}
	w.st.reporter.ReportNudges(done)
	wait, _ = w.st.nudging.nextRound(w.Now())
	return wait
}

// listHeld lists the node's held pods live, after a live look: a node that is marked by now is not nudged (open is
// false).
func (w nudges) listHeld(ctx context.Context) (held []corev1.Pod, open bool, err error) {
	var node corev1.Node
	sent := w.Now()
	if err := w.Live.Get(ctx, client.ObjectKey{Name: w.name}, &node); err != nil {
		return nil, false, fmt.Errorf("reading node live: %w", err)
	}
	status, _ := taint.ProtectionOf(&node)
	w.st.nudging.observeLook(taint.NewLook(&node, nil, w.Key, providers.InstantOf(sent), w.Now.Instant()), status,
		w.Now())
	if _, open = w.st.nudging.nextRound(w.Now()); !open {
		return nil, false, nil
	}
	err = kube.EachPods(ctx, w.Live, w.name, func(page []corev1.Pod) {
		for i := range page {
			if taint.IsHeldByHook(&page[i], w.Key) {
				held = append(held, page[i])
			}
		}
	})
	return held, err == nil, err
}

// nudgePods writes the annotations, through the gate of all pod writes, after those of fences.
func (w nudges) nudgePods(ctx context.Context, pods []corev1.Pod, done *observe.NudgeDone) {
	done.Pods, done.Results, done.Failed = len(pods), map[string]int{}, map[string]error{}
	var mu sync.Mutex // guards done
	var g sync.WaitGroup
	for i := range pods {
		turn := &fleet.Turn{Node: w.name, Since: w.Now.Instant()}
		if !w.gate.takeTurn(ctx, turn) {
			mu.Lock()
			done.Results[observe.NudgeFailed] += len(pods[i:])
			mu.Unlock()
			break
		}
		g.Go(func() {
			p := &pods[i]
			err := w.writer.NudgePod(ctx, kube.SeePod(p, w.Key, nil))
			w.gate.returnTurn(turn, kube.IsCrowded(err))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done.Results[observe.NudgeSent]++
			case errors.Is(err, kube.ErrAgain):
				done.Results[observe.NudgeChanged]++
			default:
				done.Results[observe.NudgeFailed]++
				done.Failed[p.Namespace+"/"+p.Name] = err
			}
		})
	}
	g.Wait()
}
