package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/test/cluster"
)

const (
	// of the controller-manager's pod garbage collector, which obeys the out-of-service taint
	podgcTick  = 20 * time.Second
	peerLimit  = 2 * time.Minute
	stockLimit = 7 * time.Minute
)

// peers times what stock Kubernetes offers: the out-of-service taint, which a person sets at the very moment of
// NotReady, and nothing at all.
func peers(ctx context.Context, r *runner) error {
	for _, p := range []peer{
		{"controller-manager at 1000 QPS", false, 5 * time.Second},
		{"controller-manager at its default QPS", true, 20 * time.Second},
	} {
		if err := r.outOfService(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// peer is stock Kubernetes in one setting.
type peer struct {
	name  string
	stock bool          // it has its default QPS
	after time.Duration // the stock taint-eviction controller works off its queue for that long
}

func (r *runner) outOfService(ctx context.Context, p peer) error {
	begun := time.Now()
	l, err := r.newLab(ctx, labOptions{nodes: 6, stockQPS: p.stock, bare: true})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	var took []float64
	deaths := 0
	// a third of a tick apart, from the luckiest moment on
	for i, offset := range []time.Duration{14 * time.Second, 7 * time.Second, 0} {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, shop.pods(), victim); err != nil {
			return err
		}
		// The tick counts from the controller-manager's start, about a second after ours: the sweep does not need it
		// exactly.
		next := (offset - nodeGrace - time.Since(begun)) % podgcTick
		if !cluster.Sleep(ctx, next+podgcTick) {
			return ctx.Err()
		}
		o, err := l.leave(ctx, victim, true, peerLimit, p.after)
		if err != nil {
			return err
		}
		took = append(took, o.notReadyToBack)
		deaths += o.deaths
		r.say("%d out-of-service, %s, NotReady %.0f s after a tick: all run again %.1f s after it; %d running "+
			"replacements ended", i+1, p.name, offset.Seconds(), o.notReadyToBack, o.deaths)
	}
	r.add(figure("out-of-service by hand, "+p.name+": NotReady to every StatefulSet pod running", "s", took))
	r.add(figure("out-of-service by hand, "+p.name+": running replacements that anything deleted, in all turns", "pods",
		[]float64{float64(deaths)}))
	if !p.stock {
		return nil
	}
	if err := l.gather(ctx, shop.pods(), l.names[5]); err != nil {
		return err
	}
	r.say("stock alone, for up to %s", stockLimit)
	o, err := l.leave(ctx, l.names[5], false, stockLimit, p.after)
	if err != nil {
		return err
	}
	seconds := stockLimit.Seconds()
	if o.notReadyToBack > 0 {
		seconds = o.notReadyToBack
	}
	r.add(figure(fmt.Sprintf("stock alone, capped at %.0f s: NotReady to every StatefulSet pod running",
		stockLimit.Seconds()), "s", []float64{seconds}))
	r.add(figure("stock alone: StatefulSet pods running again then, of 100", "pods", []float64{float64(o.running)}))
	return nil
}

// leave plays one outage without forcefence and returns the node as it was.
func (l *lab) leave(ctx context.Context, victim string, outOfService bool, limit, after time.Duration) (o outcome,
	err error) {
	t, err := l.watched(ctx, victim)
	if err != nil {
		return o, err
	}
	defer l.turn.Store(nil)
	if err := l.cut(t); err != nil {
		return o, err
	}
	if err := l.WaitNode(ctx, victim, cluster.IsNotReady); err != nil {
		return o, err
	}
	if outOfService {
		if err := l.setOutOfService(ctx, victim, true); err != nil {
			return o, err
		}
	}
	capped, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = cluster.Until(capped, func(context.Context) (bool, error) { return t.isBack(), nil })
	switch {
	case ctx.Err() != nil:
		return o, context.Cause(ctx)
	case err != nil && outOfService:
		return o, fmt.Errorf("out-of-service on %s: %d StatefulSet pods run after %s", victim,
			t.outcome(time.Time{}).running, limit)
	case err == nil && !cluster.Sleep(ctx, after):
		return o, ctx.Err()
	}
	l.turn.Store(nil)
	o = t.outcome(time.Time{})
	if !outOfService {
		return o, nil // the last turn: the node stays off
	}
	if err := l.setOutOfService(ctx, victim, false); err != nil {
		return o, err
	}
	return o, l.boot(ctx, victim)
}

// setOutOfService sets a node's out-of-service taint, as a person would, or removes it.
func (l *lab) setOutOfService(ctx context.Context, node string, yes bool) error {
	err := loop{l.floor}.patchNode(ctx, node, func(n *corev1.Node) object {
		taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeOutOfService
		})
		if yes {
			taints = append(taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
				Effect: corev1.TaintEffectNoExecute})
		}
		return object{"spec": object{"taints": taints}}
	})
	if err != nil {
		return fmt.Errorf("out-of-service on %s: %w", node, err)
	}
	return nil
}
