package main

import (
	"context"
	"fmt"
	"time"

	"github.com/forcefence/forcefence/test/hypervisor"
)

// source is a way in which forcefence comes to know that a machine is off.
type source struct {
	name    string
	devices func(context.Context, *lab) (devices, error)
	missing func() string // what must be installed, "" if nothing is missing; nil: nothing must
	push    bool          // the device tells by itself: the limit counts from the power cut, else from the first sign of death
	limit   float64       // seconds
}

// sources are measured one after another. One that pushes, such as a hypervisor with events, is an entry here and a type of devices.
var sources = []source{
	{name: "Redfish", devices: newRedfish, limit: 1},
	{name: "Redfish's events", devices: newRedfishEvents, push: true, limit: 1},
	{name: "libvirt's events", devices: newLibvirt, push: true, limit: 2, missing: hypervisor.Missing},
}

// offSeen times the way from a power cut to the first Off that forcefence has.
func offSeen(ctx context.Context, r *runner) error {
	for _, s := range sources {
		if s.missing != nil && s.missing() != "" {
			return fmt.Errorf("%s: %s", s.name, s.missing())
		}
		if err := r.offSeenBy(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (r *runner) offSeenBy(ctx context.Context, s source) error {
	const pods = 12
	l, err := r.newLab(ctx, labOptions{nodes: 6, devices: s.devices})
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
		// Heartbeats come every quarter of the Lease: the cuts are spread over that.
		if !wait(ctx, settle+time.Duration(i)*nodeGrace/4/time.Duration(r.o.pairs)) {
			return ctx.Err()
		}
		t, err := l.play(ctx, outage{victims: []string{victim}, side: oursSide})
		if err != nil {
			return fmt.Errorf("power cut %d: %w", i+1, err)
		}
		seen := t.offSeen()
		cut = append(cut, seen.Sub(t.zero).Seconds())
		sign = append(sign, seen.Sub(t.firstSign()).Seconds())
		r.say("%2d %s: off_seen %.3f s after the power cut, %.3f s after the first sign", i+1, s.name, cut[i], sign[i])
	}
	fromCut := figure(s.name+": power cut to off_seen", "s", cut)
	fromSign := figure(s.name+": NotReady or stale Lease, the earlier, to off_seen", "s", sign)
	if s.push {
		r.add(fromCut.atMost(s.limit))
		return nil
	}
	r.add(fromCut)
	r.add(fromSign.atMost(s.limit))
	return nil
}
