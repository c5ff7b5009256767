package main

import (
	"context"
	"fmt"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// sixty times sixty of 600 nodes that lose their power at once, in mode observe: until the record of the last says that
// it is recovered. The floor makes the same writes, from the mark to its end, as fast as the API server takes them.
func sixty(ctx context.Context, r *runner) error {
	const nodes, lost, podsOnNode = 600, 60, 6
	l, err := r.newLab(ctx, labOptions{nodes: nodes, grace: -1, patient: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer l.end()
	r.say("%d nodes are ready", nodes)
	victims := l.names[:lost]
	if err := l.open(ctx, victims...); err != nil {
		return err
	}
	if err := l.deploy(ctx, load{plain: lost * podsOnNode}); err != nil {
		return err
	}
	if err := l.running(ctx, lost*podsOnNode, victims); err != nil {
		return err
	}
	r.say("%d pods run", l.pods)
	var loss, sign, floor, recovered []float64
	for i, s := range turns(min(r.o.pairs, 3), floorSide, oursSide) {
		if err := l.gather(ctx, lost*podsOnNode, victims...); err != nil {
			return err
		}
		if !wait(ctx, settle) {
			return ctx.Err()
		}
		t, err := l.play(ctx, outage{victims: victims, side: s, mark: true, align: true})
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		if s == floorSide {
			floor = append(floor, t.evicted()+t.unmarking.Seconds())
			r.say("%2d %-5s %d pods of %d nodes gone and all marks off in %.3f s", i+1, s, len(t.old), lost,
				floor[len(floor)-1])
			continue
		}
		done, n := t.done()
		loss, sign = append(loss, done.Sub(t.zero).Seconds()), append(sign, done.Sub(t.firstSign()).Seconds())
		recovered = append(recovered, float64(n))
		r.say("%2d %-5s %d of %d nodes recovered, the last %.3f s after the loss, %.3f s after the first sign of it",
			i+1, s, n, lost, loss[len(loss)-1], sign[len(sign)-1])
	}
	r.add(figure(fmt.Sprintf("of %d nodes lost at once, out of %d, so many are recovered", lost, nodes), "nodes",
		recovered).atLeast(lost))
	r.add(figure("loss to the last Done", "s", loss).above(floor))
	r.add(figure("stale Lease or NotReady, the earlier, to the last Done", "s", sign).above(floor))
	r.add(figure("stale Lease or NotReady, the earlier, to the last Done, times the floor, pair by pair", "x",
		ratios(sign, floor)))
	return nil
}

// done is when the record of the last victim said that its fence is over, and how many say that it was evicted.
func (t *turn) done() (last time.Time, evicted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, at := range t.doneAt {
		if at.After(last) {
			last = at
		}
		if t.results[node] == taint.ResultEvicted {
			evicted++
		}
	}
	return last, evicted
}
