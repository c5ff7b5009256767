package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/hypervisor"
)

// source is a way in which forcefence comes to know that a machine is off.
type source struct {
	name    string
	by      []string // what must have noticed it, by forcefence's log: any of them; nil: anything
	lab     labOptions
	missing func() string // what must be installed, "" if nothing is missing; nil: nothing must
	limit   float64       // seconds from the power cut; 0: the limit is signLimit
}

// ways are how a power cut is noticed while Leases are as Kubernetes has them, from 40 s without a renewal every 10 s.
// One at a time is on.
var ways = []source{
	{name: "Line to the node", by: []string{"line"}, lab: labOptions{wired: true}, limit: 3.5, missing: missingWires},
	{name: "Redfish's events", by: []string{"push"}, lab: labOptions{events: true}, limit: 1},
	{name: "libvirt's events", by: []string{"push"}, lab: labOptions{power: "libvirt"}, limit: 1,
		missing: hypervisor.Missing},
	{name: "Poll every " + pollEvery.String(), by: []string{"poll"}, lab: labOptions{poll: pollEvery},
		limit: pollEvery.Seconds() + 0.5},
	{name: "Lease alone", by: []string{"lease", "ready"}},
}

const (
	pollEvery = 5 * time.Second

	// lineStable is after how long a line is made again at once when it breaks, and a bit: lines to nodes are hours
	// old.
	lineStable = 11 * time.Second

	signLimit = 1.0 // seconds that the answer may take after the first sign of death
	shopLimit = 8.0 // seconds
)

// missingWires says why there can be no machines that fall silent, "" if there can.
func missingWires() string {
	w, err := newWires()
	if err != nil {
		return err.Error()
	}
	w.close()
	return ""
}

// notice times what each way of noticing takes from a power cut to the first Off, with stock Leases, and how long it
// takes with lines until the pods run again.
func notice(ctx context.Context, r *runner) error {
	for _, s := range ways {
		if s.missing != nil && s.missing() != "" {
			r.say("LEFT OUT: %s: %s", s.name, s.missing())
			continue
		}
		s.lab.stock = true
		if err := r.offSeenBy(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if missing := missingWires(); missing != "" {
		r.say("LEFT OUT: recovery: %s", missing)
		return nil
	}
	return r.backByLine(ctx)
}

// offSeen times the way from the first sign of death to the first Off that forcefence has, with short Leases.
func offSeen(ctx context.Context, r *runner) error {
	return r.offSeenBy(ctx, source{name: "Redfish"})
}

// offSeenBy times it from the power cut, too.
func (r *runner) offSeenBy(ctx context.Context, s source) error {
	const pods = 12
	s.lab.nodes = 6
	l, err := r.newLab(ctx, s.lab)
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, load{Plain: pods}); err != nil {
		return err
	}
	var cut, sign []float64
	err = l.cuts(ctx, pods/2, func(i int, o outcome) error {
		if s.by != nil && !slices.Contains(s.by, o.noticedBy) {
			return fmt.Errorf("noticed by %q, want %v", o.noticedBy, s.by)
		}
		cut, sign = append(cut, o.cutToOff), append(sign, o.signToOff)
		r.say("%2d %s: off_seen %.3f s after the power cut, %.3f s after the first sign; noticed by %s; load %s", i,
			s.name, o.cutToOff, o.signToOff, o.noticedBy, load1())
		return nil
	})
	if err != nil {
		return err
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

// backByLine times the way from a power cut until every StatefulSet pod runs again.
func (r *runner) backByLine(ctx context.Context) error {
	l, err := r.newLab(ctx, labOptions{nodes: 6, stock: true, wired: true})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	var off, cut []float64
	err = l.cuts(ctx, shop.pods(), func(i int, o outcome) error {
		off, cut = append(off, o.cutToOff), append(cut, o.cutToBack)
		r.say("%2d line: off_seen %.3f s, all StatefulSet pods run again %.3f s after the power cut; noticed by %s; "+
			"load %s", i, o.cutToOff, o.cutToBack, o.noticedBy, load1())
		return nil
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("Line to the node, %d pods: power cut to ", shop.pods())
	r.add(figure(name+"off_seen", "s", off))
	r.add(figure(name+"every StatefulSet pod running", "s", cut).atMost(shopLimit))
	return nil
}

// cuts takes the power of one node after the other, each with so many pods on it, and hands over each outcome.
// Heartbeats come every quarter of a Lease, and the cuts are spread over that. With lines, it waits until the victim's
// has been up for a while.
func (l *lab) cuts(ctx context.Context, pods int, seen func(i int, o outcome) error) error {
	for i := range l.r.o.pairs {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, pods, victim); err != nil {
			return err
		}
		if l.wires != nil {
			if err := l.wires.open(ctx, []string{victim}, lineStable); err != nil {
				return err
			}
		}
		if !cluster.Sleep(ctx, settle+time.Duration(i)*l.lease()/4/time.Duration(l.r.o.pairs)) {
			return ctx.Err()
		}
		o, err := l.outage(ctx, victim, forcefence)
		if err == nil {
			err = seen(i+1, o)
		}
		if err != nil {
			return fmt.Errorf("power cut %d: %w", i+1, err)
		}
	}
	return nil
}
