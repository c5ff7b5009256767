package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

const (
	evictionLimit = 1.4 // times the floor
	detachLimit   = 0.5 // seconds
)

// shop is the load of one node, and which the peers get.
var shop = load{volumes: 20, plain: 80, deployed: 10}

// evict times one node's pods and volumes. The victim is closed and one other node open, so that all pods come up
// there, and that one is the next victim: nothing has to be moved between the turns, and no replacement can be bound to
// the dead node.
func evict(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 5, podsOnNode: 2 * shop.pods(), counted: true})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.open(ctx, l.names[0]); err != nil {
		return err
	}
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	if err := l.running(ctx, shop.pods(), l.names[:1]); err != nil {
		return err
	}
	gone, requested, m := map[side][]float64{}, map[side][]float64{}, moved{}
	for i, s := range r.turns() {
		victim, next := l.names[i%len(l.names)], l.names[(i+1)%len(l.names)]
		if err := l.open(ctx, next); err != nil {
			return err
		}
		if !wait(ctx, settle) {
			return ctx.Err()
		}
		t, err := l.play(ctx, outage{victims: []string{victim}, side: s})
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		gone[s] = append(gone[s], t.evicted())
		requested[s] = append(requested[s], t.requested())
		m[s] = append(m[s], t)
		first, last := t.replaced()
		r.say("%2d %-5s last of %d pods gone after %.3f s, last of %d volumes asked back %+.3f s later; replacements "+
			"run after %.3f to %.3f s; load %s",
			i+1, s, len(t.old), t.evicted(), len(t.vas), t.requested(), first, last, load1())
		r.say("%2d %-5s %s", i+1, s, t.calls)
	}
	r.add(r.figure("off_seen to last pod gone", "s", gone).atMost(evictionLimit * median(gone[floorSide])))
	r.add(figure("off_seen to last pod gone, times the floor, pair by pair", "x",
		ratios(gone[oursSide], gone[floorSide])))
	r.add(r.figure("last pod gone to last VolumeAttachment deletion request", "s", requested).atMost(detachLimit))
	r.addTurns(m)
	return nil
}

// moved are the turns of a bench.
type moved map[side][]*turn

// addTurns adds when replacements ran and volumes were free, and what the turns asked of the API server.
func (r *runner) addTurns(m moved) {
	for _, f := range []struct {
		name, unit string
		of         func(*turn) float64
	}{
		{"off_seen to the first replacement running", "s",
			func(t *turn) float64 { first, _ := t.replaced(); return first }},
		{"off_seen to the last replacement running", "s",
			func(t *turn) float64 { _, last := t.replaced(); return last }},
		{"off_seen to the last volume detached", "s", (*turn).freed},
		{"API requests", "requests", func(t *turn) float64 { return float64(t.calls.all) }},
		{"deletions of pods that were gone", "requests", func(t *turn) float64 { return float64(t.calls.missed) }},
	} {
		by := map[side][]float64{}
		for s, turns := range m {
			for _, t := range turns {
				by[s] = append(by[s], f.of(t))
			}
		}
		r.add(r.figure(f.name, f.unit, by))
	}
}

// load1 is the machine's load of the last minute, "?" where the system does not tell.
func load1() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "?"
}
