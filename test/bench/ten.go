package main

import (
	"context"
	"fmt"
)

// tenOfSixty times ten nodes that die at once. Throughput is the pods that were on them, gone, a second, from the first Off of any.
func tenOfSixty(ctx context.Context, r *runner) error {
	const nodes, dead, podsOnNode = 60, 10, 30
	l, err := r.newLab(ctx, labOptions{nodes: nodes})
	if err != nil {
		return err
	}
	defer l.end()
	r.say("60 nodes are ready")
	if err := l.deploy(ctx, load{plain: nodes * podsOnNode * 5 / 6, deployed: nodes * podsOnNode / 6}); err != nil {
		return err
	}
	if err := l.running(ctx, 0, nil); err != nil {
		return err
	}
	r.say("%d pods run", l.pods)
	victims := l.names[:dead]
	rate := map[side][]float64{}
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
		r.say("%2d %-5s %d pods of %d nodes gone in %.3f s: %.0f pods/s", i+1, s, len(t.old), dead, t.evicted(), t.throughput())
	}
	r.add(r.figure("pods gone a second", "1/s", rate).atLeast(throughputLimit * median(rate[floorSide])))
	r.add(figure("pods gone a second, times the floor, pair by pair", "x", ratios(rate[oursSide], rate[floorSide])))
	return nil
}
