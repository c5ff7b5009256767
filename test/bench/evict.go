package main

import (
	"context"
	"fmt"
)

// shop is what runs in the benches of recoveries.
var shop = load{volumes: 20, plain: 80, deployed: 10}

// evict times one node's pods and volumes. The victim is closed and one other node open, so that all pods come up
// there, and that one is the next victim: nothing has to be moved between the turns, and no replacement can be bound to
// the dead node.
func evict(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 5})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.Open(ctx, l.names[0]); err != nil {
		return err
	}
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	took := map[side][]outcome{}
	for i, s := range turns(r.o.pairs) {
		victim, next := l.names[i%len(l.names)], l.names[(i+1)%len(l.names)]
		if err := l.Open(ctx, next); err != nil {
			return err
		}
		if !wait(ctx, settle) {
			return ctx.Err()
		}
		o, err := l.outage(ctx, victim, s)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		took[s] = append(took[s], o)
		r.say("%2d %-5s last of %d pods gone after %.3f s, last volume asked back %+.3f s later; replacements run "+
			"after %.3f to %.3f s; load %s", i+1, s, shop.pods(), o.gone, o.requested, o.ranFirst, o.ranLast, load1())
	}
	for _, f := range []struct {
		name         string
		of           func(outcome) float64
		limit, times float64 // seconds, times the floor; 0: none
	}{
		{name: "off_seen to last pod gone", of: func(o outcome) float64 { return o.gone }, times: 1.4},
		{name: "last pod gone to last VolumeAttachment deletion request",
			of: func(o outcome) float64 { return o.requested }, limit: 0.5},
		{name: "off_seen to the first replacement running", of: func(o outcome) float64 { return o.ranFirst }},
		{name: "off_seen to the last replacement running", of: func(o outcome) float64 { return o.ranLast }},
		{name: "off_seen to the last volume detached", of: func(o outcome) float64 { return o.freed }},
	} {
		by := map[side][]float64{}
		for s, outcomes := range took {
			for _, o := range outcomes {
				by[s] = append(by[s], f.of(o))
			}
		}
		ours, floor := by[oursSide], by[floorSide]
		seconds := figure(f.name, "s", ours).above(floor)
		switch {
		case f.times > 0:
			r.add(seconds.atMost(f.times * median(floor)))
			r.add(figure(f.name+", times the floor, pair by pair", "x", ratios(ours, floor)))
		case f.limit > 0:
			r.add(seconds.atMost(f.limit))
		default:
			r.add(seconds)
		}
	}
	return nil
}
