package main

import (
	"context"
	"fmt"
)

// tenOfSixty times ten nodes that die at once. Throughput is the pods that were on them, gone, a second, from the first
// Off of any.
func tenOfSixty(ctx context.Context, r *runner) error {
	const nodes, dead, podsOnNode, volumes = 60, 10, 30, 50
	l, err := r.newLab(ctx, labOptions{nodes: nodes, counted: true})
	if err != nil {
		return err
	}
	defer l.end()
	r.say("60 nodes are ready")
	victims := l.names[:dead]
	if err := l.open(ctx, victims...); err != nil {
		return err
	}
	if err := l.deploy(ctx, load{volumes: volumes}); err != nil {
		return err
	}
	if err := l.running(ctx, volumes, victims); err != nil {
		return err
	}
	if err := l.open(ctx); err != nil {
		return err
	}
	if err := l.deploy(ctx, load{plain: nodes*podsOnNode*5/6 - volumes, deployed: nodes * podsOnNode / 6}); err != nil {
		return err
	}
	if err := l.running(ctx, 0, nil); err != nil {
		return err
	}
	r.say("%d pods run", l.pods)
	rate, m := map[side][]float64{}, moved{}
	for i, s := range r.turns() {
		if err := l.gather(ctx, dead*podsOnNode, victims...); err != nil {
			return err
		}
		if !wait(ctx, settle) {
			return ctx.Err()
		}
		t, err := l.play(ctx, outage{victims: victims, side: s, mark: true, align: true})
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		rate[s] = append(rate[s], t.throughput())
		m[s] = append(m[s], t)
		first, last := t.replaced()
		r.say("%2d %-5s %d pods of %d nodes gone in %.3f s: %.0f pods/s; last of %d volumes detached after %.3f s; "+
			"replacements run after %.3f to %.3f s; load %s",
			i+1, s, len(t.old), dead, t.evicted(), t.throughput(), len(t.vas), t.freed(), first, last, load1())
		r.say("%2d %-5s %s", i+1, s, t.calls)
	}
	r.add(r.figure("pods gone a second", "1/s", rate).atLeast(throughputLimit * median(rate[floorSide])))
	r.add(figure("pods gone a second, times the floor, pair by pair", "x", ratios(rate[oursSide], rate[floorSide])))
	r.addTurns(m)
	return nil
}
