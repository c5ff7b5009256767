package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// source is a way in which forcefence comes to know that a machine is off.
type source struct {
	name    string
	by      []string // what must have noticed it, by forcefence's log: any of them; nil: anything
	devices func(context.Context, *lab) (devices, error)
	missing func() string // what must be installed, "" if nothing is missing; nil: nothing must
	wired   bool          // the nodes have addresses, and lines are kept
	limit   float64       // seconds from the power cut; 0: the limit is signLimit
}

// signLimit is how many seconds the answer may take after the first sign of death.
const signLimit = 1.0

// offSeen times the way from the first sign of death to the first Off that forcefence has.
func offSeen(ctx context.Context, r *runner) error {
	return r.offSeenBy(ctx, source{name: "Redfish", devices: newRedfish}, 0)
}

// offSeenBy times it from the power cut, too; grace is labOptions'.
func (r *runner) offSeenBy(ctx context.Context, s source, grace time.Duration) error {
	const pods = 12
	l, err := r.newLab(ctx, labOptions{nodes: 6, grace: grace, devices: s.devices, wired: s.wired, lineless: !s.wired})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, load{plain: pods}); err != nil {
		return err
	}
	var cut, sign []float64
	for i := range r.o.pairs {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, pods/2, victim); err != nil {
			return err
		}
		if err := l.spread(ctx, i, victim); err != nil {
			return err
		}
		t, err := l.play(ctx, outage{victims: []string{victim}, side: oursSide})
		if err != nil {
			return fmt.Errorf("power cut %d: %w", i+1, err)
		}
		by := t.noticedBy()
		if s.by != nil && !slices.Contains(s.by, by) {
			return fmt.Errorf("power cut %d: noticed by %q, want %v", i+1, by, s.by)
		}
		seen := t.offSeen()
		cut = append(cut, seen.Sub(t.zero).Seconds())
		sign = append(sign, seen.Sub(t.firstSign()).Seconds())
		r.say("%2d %s: off_seen %.3f s after the power cut, %.3f s after the first sign; noticed by %s; load %s", i+1,
			s.name, cut[i], sign[i], by, load1())
	}
	fromCut := figure(s.name+": power cut to off_seen", "s", cut)
	if s.limit > 0 {
		r.add(fromCut.atMost(s.limit))
		return nil
	}
	r.add(fromCut)
	r.add(figure(s.name+": NotReady or stale Lease, the earlier, to off_seen", "s", sign).atMost(signLimit))
	return nil
}
