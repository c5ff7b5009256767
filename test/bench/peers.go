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
	// A third of a tick apart, from the luckiest moment on.
	offsets := []time.Duration{14 * time.Second, 7 * time.Second, 0}
	for _, p := range []struct {
		name  string
		qps   int
		after time.Duration // the stock taint-eviction controller works off its queue for that long
		stock bool
	}{
		{"controller-manager at 1000 QPS", 0, 5 * time.Second, false},
		{"controller-manager at its default QPS", -1, 20 * time.Second, true},
	} {
		if err := r.outOfService(ctx, p.name, p.qps, p.after, offsets, p.stock); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (r *runner) outOfService(ctx context.Context, name string, qps int, after time.Duration, offsets []time.Duration,
	stock bool) error {
	begun := time.Now()
	l, err := r.newLab(ctx, labOptions{nodes: 6, kcmQPS: qps, bare: true})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	var took []float64
	deaths := 0
	for i, offset := range offsets {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, shop.pods(), victim); err != nil {
			return err
		}
		// The tick counts from the controller-manager's start, about a second after ours: the sweep does not need it
		// exactly.
		next := (offset - nodeGrace - time.Since(begun)) % podgcTick
		if !wait(ctx, next+podgcTick) {
			return ctx.Err()
		}
		t, err := l.peer(ctx, victim, true, peerLimit, after)
		if err != nil {
			return err
		}
		back := t.recovered()
		took = append(took, back.notReady)
		deaths += t.deaths()
		r.say("%d out-of-service, %s, NotReady %.0f s after a tick: all run again %.1f s after it; %d running "+
			"replacements ended",
			i+1, name, offset.Seconds(), back.notReady, t.deaths())
	}
	r.add(figure("out-of-service by hand, "+name+": NotReady to every StatefulSet pod running", "s", took))
	r.add(figure("out-of-service by hand, "+name+": running replacements that anything deleted, in all turns", "pods",
		[]float64{float64(deaths)}))
	if !stock {
		return nil
	}
	if err := l.gather(ctx, shop.pods(), l.names[5]); err != nil {
		return err
	}
	r.say("stock alone, for up to %s", stockLimit)
	t, err := l.peer(ctx, l.names[5], false, stockLimit, after)
	if err != nil {
		return err
	}
	seconds := stockLimit.Seconds()
	if t.isBack() {
		seconds = t.recovered().notReady
	}
	r.add(figure(
		fmt.Sprintf("stock alone, capped at %.0f s: NotReady to every StatefulSet pod running", stockLimit.Seconds()),
		"s", []float64{seconds}))
	r.add(figure("stock alone: StatefulSet pods running again then, of 100", "pods", []float64{float64(t.running())}))
	return nil
}

// peer plays one outage without forcefence and returns the node as it was.
func (l *lab) peer(ctx context.Context, victim string, outOfService bool, limit, after time.Duration) (*turn, error) {
	victims := []string{victim}
	t, err := l.watched(ctx, victims)
	if err != nil {
		return nil, err
	}
	defer l.watch.follow(nil)
	l.cut(t, victims)
	if err := l.c.WaitNode(ctx, victim, cluster.IsNotReady); err != nil {
		return nil, err
	}
	if outOfService {
		taint := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
			Effect: corev1.TaintEffectNoExecute}
		err := newLoop(l.floor, false).patchNode(ctx, victim, func(n *corev1.Node) object {
			return object{"spec": object{"taints": append(slices.Clone(n.Spec.Taints), taint)}}
		})
		if err != nil {
			return nil, fmt.Errorf("tainting %s: %w", victim, err)
		}
	}
	capped, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = cluster.Until(capped, func(context.Context) (bool, error) { return t.isBack(), nil })
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && outOfService:
		return nil, fmt.Errorf("out-of-service on %s: %d StatefulSet pods run after %s", victim, t.running(), limit)
	case err == nil && !wait(ctx, after):
		return nil, ctx.Err()
	}
	l.watch.follow(nil)
	if !outOfService {
		return t, nil // the last turn: the node stays off
	}
	err = newLoop(l.floor, false).patchNode(ctx, victim, func(n *corev1.Node) object {
		return object{
			"spec": object{"taints": slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeOutOfService
			})}}
	})
	if err != nil {
		return nil, fmt.Errorf("taking the taint off %s: %w", victim, err)
	}
	return t, l.boot(ctx, victims)
}
