package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	powerOffGrace = 20 * time.Second // the shortest that is taken
	powerOffLimit = 1.0              // seconds, beyond the grace
)

// powerOff times a power-off: a node falls silent, its machine runs on, and in mode fence it is powered off once the
// silence has counted for the grace, which begins when the Lease is stale. The machine's end shows when the BMC got the
// request.
func powerOff(ctx context.Context, r *runner) error {
	const pods = 12
	l, err := r.newLab(ctx, labOptions{nodes: 5, mode: fmt.Sprintf("fence\npowerOffAfter: %s", powerOffGrace)})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, load{plain: pods}); err != nil {
		return err
	}
	ends := ends{at: map[string]time.Time{}}
	for _, m := range l.dc.Machines() {
		m.OnChange(ends.see)
	}
	var stale, notReady []float64
	for i := range r.o.pairs {
		victim := l.names[i%len(l.names)]
		if err := l.gather(ctx, pods/2, victim); err != nil {
			return err
		}
		// Heartbeats come every quarter of the Lease: the cuts are spread over that.
		if !wait(ctx, settle+time.Duration(i)*nodeGrace/4/time.Duration(r.o.pairs)) {
			return ctx.Err()
		}
		t, err := l.silence(ctx, victim)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		off := ends.of(victim)
		stale = append(stale, off.Sub(t.staleAt).Seconds())
		notReady = append(notReady, off.Sub(t.firstNotReady()).Seconds())
		r.say("%2d powered off %.3f s after the Lease was stale, %.3f s after NotReady; grace %s", i+1, stale[i],
			notReady[i], powerOffGrace)
		if err := l.boot(ctx, []string{victim}); err != nil {
			return err
		}
	}
	r.add(figure(fmt.Sprintf("stale Lease, and the machine On, to power-off, with a grace of %s", powerOffGrace), "s",
		stale).atMost(powerOffGrace.Seconds() + powerOffLimit))
	r.add(figure(fmt.Sprintf("NotReady, and the machine On, to power-off, with a grace of %s", powerOffGrace), "s",
		notReady).atMost(powerOffGrace.Seconds() + powerOffLimit))
	return nil
}

// silence is one turn: a node's kubelet is cut off, until its machine was powered off and its fence is done.
func (l *lab) silence(ctx context.Context, victim string) (*turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience(), fmt.Errorf("not after %s", l.patience()))
	defer cancel()
	t, err := l.watched(ctx, []string{victim})
	if err != nil {
		return nil, err
	}
	defer l.watch.follow(nil)
	t.begin(time.Now())
	node := l.c.Node(victim)
	node.StopHeartbeats()
	defer node.ResumeHeartbeats()
	if err := l.c.WaitNode(ctx, victim, func(n *corev1.Node) bool { return !nodeReady(n) }); err != nil {
		return nil, fmt.Errorf("cutting off %s: %w", victim, err)
	}
	t.stale(l.watch.staleAt(victim, l.lease()))
	missing := ""
	if err := cluster.Until(ctx,
		func(context.Context) (bool, error) { missing = t.missing(true); return missing == "", nil }); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", victim, missing, err)
	}
	return t, nil
}

// ends are when machines went off last.
type ends struct {
	mu sync.Mutex // guards the rest
	at map[string]time.Time
}

func (e *ends) see(m *datacenter.Machine, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !on {
		e.at[m.Name()] = time.Now()
	}
}

func (e *ends) of(machine string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[machine]
}
