package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// A pod that the node's hook holds is tried again by its kubelet after 10 to 15 s. When what held it has gone, a changed annotation
// makes the kubelet try at once (kubernetes 1.36: pkg/kubelet/config takes changed annotations for an update of the pod, and an update
// wakes the pod's worker out of its back-off). Nudging is a help and proves nothing: what it misses starts by itself a little later,
// and nothing waits for it. So a process that takes over the lead in the middle does not go on with the rounds of the one before.

// nudgeAfter are the rounds, from the moment a node opened: the hook learns by its own watch that it did, perhaps after the first.
var nudgeAfter = [...]time.Duration{0, time.Second, 3 * time.Second}

// nudging is what is remembered of a node for its held pods. It is pure: looks go in, due rounds come out.
type nudging struct {
	known  bool   // a look was folded in; without one nobody can say what changed
	rv     string // of the last look
	boot   string
	ready  bool
	marked bool   // and the mark holds all
	waits  string // the claims whose pods alone it holds

	opened  time.Time // when the node last opened
	round   int       // the next of nudgeAfter
	pending bool      // that round is to come
	fresh   bool      // it opened because its kubelet came: pods' statuses may be those of before
}

// saw folds in a look. A node is open when the hook lets ordinary pods start: it is not marked, or its mark waits for volumes alone, and
// Ready. Held pods are nudged when it opens, and when it is open and on another boot, or waits for other volumes. A node without a hook
// holds nothing.
func (n *nudging) saw(l taint.Look, status corev1.ConditionStatus, now time.Time) {
	if n.known && taint.Older(l.ResourceVersion, n.rv) {
		return // the cache is behind a live look
	}
	was := *n
	n.known, n.rv, n.boot, n.ready, n.waits = true, l.ResourceVersion, l.BootID, l.IsReady(), strings.Join(l.Detaching(), " ")
	n.marked = l.Mark != nil && n.waits == ""
	switch {
	case n.marked || !n.ready || status != corev1.ConditionTrue:
		n.pending = false
	case !was.known:
	case was.marked || !was.ready || was.boot != n.boot || was.waits != n.waits:
		n.opened, n.round, n.pending, n.fresh = now, 0, true, !was.ready || was.boot != n.boot
	}
}

// due returns how long until the next round, and whether there is one.
func (n *nudging) due(now time.Time) (time.Duration, bool) {
	if !n.pending {
		return 0, false
	}
	return max(0, n.opened.Add(nudgeAfter[n.round]).Sub(now)), true
}

// done ends a round that found so many held pods. There is a next one until none is held; after a boot an empty first round proves
// nothing, since a kubelet may be Ready before it has written the statuses of all its pods.
func (n *nudging) done(held int) {
	n.pending = n.round+1 < len(nudgeAfter) && (held > 0 || n.fresh && n.round == 0)
	n.round++
}

// nudge takes the round that is due, if one is, and returns when to come again; 0 is never. It blocks for the API server. Failures are
// logged and counted, and left to the next round.
func (r *Reconciler) nudge(ctx context.Context, name string, st *nodeState) time.Duration {
	wait, ok := st.nudging.due(r.Now())
	if !ok || wait > 0 {
		return wait
	}
	if r.Leading() != nil || st.still {
		st.nudging.pending = false
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	done := observe.NudgeDone{Round: st.nudging.round + 1}
	held, open, err := r.held(ctx, name, st)
	switch {
	case err != nil:
		done.Err = err
		st.nudging.done(1) // unknown: look again
	case open:
		st.looked()
		r.nudgePods(ctx, name, held, &done)
		st.nudging.done(len(held))
	}
	st.told.Nudged(done)
	wait, _ = st.nudging.due(r.Now())
	return wait
}

// held lists the node's held pods live, after a live look: a node that is marked by now is not nudged (open is false).
func (r *Reconciler) held(ctx context.Context, name string, st *nodeState) (held []corev1.Pod, open bool, err error) {
	var node corev1.Node
	sent := r.Now()
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return nil, false, fmt.Errorf("reading node live: %w", err)
	}
	status, _ := taint.ProtectionOf(&node)
	st.nudging.saw(taint.See(&node, nil, r.Key, providers.InstantOf(sent), r.now()), status, r.Now())
	if _, open = st.nudging.due(r.Now()); !open {
		return nil, false, nil
	}
	list, err := kube.Pods(ctx, r.Live, name)
	if err != nil {
		return nil, false, err
	}
	for i := range list {
		if taint.Held(&list[i], r.Key) {
			held = append(held, list[i])
		}
	}
	return held, true, nil
}

// nudgePods writes the annotations, through the gate of all pod writes, after those of fences.
func (r *Reconciler) nudgePods(ctx context.Context, name string, pods []corev1.Pod, done *observe.NudgeDone) {
	done.Pods, done.Results, done.Failed = len(pods), map[string]int{}, map[string]error{}
	var mu sync.Mutex // guards done
	var g sync.WaitGroup
	for i := range pods {
		turn := &fleet.Turn{Node: name, Since: r.now()}
		if !r.gate.enter(ctx, turn) {
			mu.Lock()
			done.Results[observe.NudgeFailed] += len(pods) - i
			mu.Unlock()
			break
		}
		g.Go(func() {
			p := &pods[i]
			err := r.writer.Nudge(ctx, kube.SeePod(p, r.Key, nil))
			r.gate.leave(turn, kube.Crowded(err))
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
