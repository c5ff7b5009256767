package main

import (
	"context"
	"fmt"
	"time"

	"github.com/forcefence/forcefence/test/hypervisor"
)

// ways are how a power cut is noticed while Leases are as Kubernetes has them, from 40 s without a renewal every 10 s.
// One at a time is on.
var ways = []source{
	{name: "Line to the node", by: []string{"line"}, devices: newRedfish, wired: true, limit: 3.5, missing: noWires},
	{name: "Redfish's events", by: []string{"push"}, devices: newRedfishEvents, limit: 1},
	{name: "libvirt's events", by: []string{"push"}, devices: newLibvirt, limit: 1, missing: hypervisor.Missing},
	{name: "Poll every " + pollEvery.String(), by: []string{"poll"}, devices: newRedfishPolled,
		limit: pollEvery.Seconds() + 0.5},
	{name: "Lease alone", by: []string{"lease", "ready"}, devices: newRedfish},
}

const (
	pollEvery = 5 * time.Second

	// lineStable is after how long a line is made again at once when it breaks, and a bit: lines to nodes are hours
	// old.
	lineStable = 11 * time.Second

	shopLimit = 8.0 // seconds
)

// noWires says why there can be no machines that fall silent, "" if there can.
func noWires() string {
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
		if s.missing != nil {
			if missing := s.missing(); missing != "" {
				r.say("LEFT OUT: %s: %s", s.name, missing)
				continue
			}
		}
		if err := r.offSeenBy(ctx, s, -1); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if missing := noWires(); missing != "" {
		r.say("LEFT OUT: recovery: %s", missing)
		return nil
	}
	return r.backByLine(ctx)
}

// backByLine times the way from a power cut until every StatefulSet pod runs again.
func (r *runner) backByLine(ctx context.Context) error {
	l, err := r.newLab(ctx, labOptions{nodes: 6, grace: -1, wired: true})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shop); err != nil {
		return err
	}
	var off, cut []float64
	for i := range r.o.pairs {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, shop.pods(), victim); err != nil {
			return err
		}
		if err := l.spread(ctx, i, victim); err != nil {
			return err
		}
		t, err := l.play(ctx, outage{victims: []string{victim}, side: oursSide})
		if err != nil {
			return fmt.Errorf("power cut %d: %w", i+1, err)
		}
		off, cut = append(off, t.offSeen().Sub(t.zero).Seconds()), append(cut, t.recovered().cut)
		r.say("%2d line: off_seen %.3f s, all of %d StatefulSet pods run again %.3f s after the power cut; noticed "+
			"by %s; load %s",
			i+1, off[i], t.sets, cut[i], t.noticedBy(), load1())
	}
	name := fmt.Sprintf("Line to the node, %d pods: power cut to ", shop.pods())
	r.add(figure(name+"off_seen", "s", off))
	r.add(figure(name+"every StatefulSet pod running", "s", cut).atMost(shopLimit))
	return nil
}

// spread waits before the cut of turn i: heartbeats come every quarter of a Lease, and the cuts are spread over that.
// Who has lines has had the victim's for a while.
func (l *lab) spread(ctx context.Context, i int, victim string) error {
	if l.wires != nil {
		ctx, cancel := context.WithTimeoutCause(ctx, 2*l.patience(), fmt.Errorf("not after %s", 2*l.patience()))
		defer cancel()
		if err := l.wires.open(ctx, []string{victim}, lineStable); err != nil {
			return err
		}
	}
	if !wait(ctx, settle+time.Duration(i)*l.lease()/4/time.Duration(l.r.o.pairs)) {
		return ctx.Err()
	}
	return nil
}
