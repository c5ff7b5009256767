package main

import (
	"context"
	"fmt"

	"github.com/forcefence/forcefence/test/cluster"
)

// shop is what runs in the benches of recoveries.
var shop = load{Volumes: 20, Plain: 80, Deployed: 10}

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
	took := map[string][]float64{}
	for i, s := range turns(r.o.pairs, floor, forcefence) {
		victim, next := l.names[i%len(l.names)], l.names[(i+1)%len(l.names)]
		if err := l.Open(ctx, next); err != nil {
			return err
		}
		if !cluster.Sleep(ctx, settle) {
			return ctx.Err()
		}
		o, err := l.outage(ctx, victim, s)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		took[s.name] = append(took[s.name], o.gone)
		r.say("%2d %-10s last of %d pods gone after %.3f s; load %s", i+1, s.name, shop.pods(), o.gone, load1())
	}
	const name = "off_seen to last pod gone"
	ours, floor := took[forcefence.name], took[floor.name]
	r.add(figure(name, "s", ours).above(floor).atMost(1.4 * median(floor)))
	r.add(figure(name+", times the floor, pair by pair", "x", ratios(ours, floor)))
	return nil
}
