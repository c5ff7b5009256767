package main

import (
	"context"
	"fmt"
	"time"
)

// shop is the load whose recovery is timed, and which the peers get.
var shop = load{volumes: 20, plain: 80, deployed: 10}

// afterwards is how long replacements are watched once all of them run: a late write may still end them.
const afterwards = 3 * time.Second

// recoveryBench times the way from a power cut until every StatefulSet pod runs again, on any of five other nodes.
func recoveryBench(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 6})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	cut, sign, deaths := map[side][]float64{}, map[side][]float64{}, map[side]float64{}
	var notReady []float64
	for i, s := range r.turns() {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, shop.pods(), victim); err != nil {
			return err
		}
		if !wait(ctx, settle) {
			return ctx.Err()
		}
		t, err := l.play(ctx, outage{victims: []string{victim}, side: s, mark: true, afterwards: afterwards})
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		back := t.recovered()
		cut[s], sign[s] = append(cut[s], back.cut), append(sign[s], back.sign)
		deaths[s] += float64(t.deaths())
		if s == oursSide {
			notReady = append(notReady, back.notReady)
		}
		r.say("%2d %-5s all run again %.3f s after the power cut, %.3f s after the first sign of death; %d running "+
			"replacements ended", i+1, s, back.cut, back.sign, t.deaths())
	}
	r.add(r.figure("power cut to every StatefulSet pod running", "s", cut).
		atMost(recoveryLimit * median(cut[floorSide])))
	r.add(r.figure("stale Lease or NotReady, the earlier, to every StatefulSet pod running", "s", sign).
		atMost(recoveryLimit * median(sign[floorSide])))
	r.add(figure("NotReady to every StatefulSet pod running", "s", notReady))
	r.add(figure("running replacements that anything deleted, in all turns", "pods", []float64{deaths[oursSide]}).
		above([]float64{deaths[floorSide]}).atMost(0))
	return nil
}
