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

// nudges have a node's kubelet try its held pods again.
type nudges struct{ *work }

// nudge takes the round that is due, if one is, and returns when to come again; 0 is never. It blocks for the API server. Failures are
// logged and counted, and left to the next round.
func (w nudges) nudge(ctx context.Context) time.Duration {
	wait, ok := w.st.nudging.due(w.Now())
	if !ok || wait > 0 {
		return wait
	}
	if w.Leading() != nil || w.st.still {
		w.st.nudging.pending = false
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	done := observe.NudgeDone{Round: w.st.nudging.round + 1}
	held, open, err := w.held(ctx)
	switch {
	case err != nil:
		done.Err = err
		w.st.nudging.done(1) // unknown: look again
	case open:
		w.st.looked()
		w.nudgePods(ctx, held, &done)
		w.st.nudging.done(len(held))
	}
	w.st.observed.Nudged(done)
	wait, _ = w.st.nudging.due(w.Now())
	return wait
}

// held lists the node's held pods live, after a live look: a node that is marked by now is not nudged (open is false).
func (w nudges) held(ctx context.Context) (held []corev1.Pod, open bool, err error) {
	var node corev1.Node
	sent := w.Now()
	if err := w.Live.Get(ctx, client.ObjectKey{Name: w.name}, &node); err != nil {
		return nil, false, fmt.Errorf("reading node live: %w", err)
	}
	status, _ := taint.ProtectionOf(&node)
	w.st.nudging.saw(taint.See(&node, nil, w.Key, providers.InstantOf(sent), w.now()), status, w.Now())
	if _, open = w.st.nudging.due(w.Now()); !open {
		return nil, false, nil
	}
	list, err := kube.Pods(ctx, w.Live, w.name)
	if err != nil {
		return nil, false, err
	}
	for i := range list {
		if taint.Held(&list[i], w.Key) {
			held = append(held, list[i])
		}
	}
	return held, true, nil
}

// nudgePods writes the annotations, through the gate of all pod writes, after those of fences.
func (w nudges) nudgePods(ctx context.Context, pods []corev1.Pod, done *observe.NudgeDone) {
	done.Pods, done.Results, done.Failed = len(pods), map[string]int{}, map[string]error{}
	var mu sync.Mutex // guards done
	var g sync.WaitGroup
	for i := range pods {
		turn := &fleet.Turn{Node: w.name, Since: w.now()}
		if !w.gate.enter(ctx, turn) {
			mu.Lock()
			done.Results[observe.NudgeFailed] += len(pods) - i
			mu.Unlock()
			break
		}
		g.Go(func() {
			p := &pods[i]
			err := w.writer.Nudge(ctx, kube.SeePod(p, w.Key, nil))
			w.gate.leave(turn, kube.Crowded(err))
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
