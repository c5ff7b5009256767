package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
)

const (
	realVolumes = 3                // pods on a node of a StatefulSet with a volume each
	realPlain   = 3                // of a StatefulSet without
	realBare    = 24               // without owner
	realPatient = 30 * time.Minute // for one wait
	realPortion = 10               // one node in so many is lost
)

// fleetReal fills a real control plane, on this one machine, with ever more nodes, and loses a tenth of them at once:
// what the simulated API server of bench fleet cannot tell. etcd, the API server, the controllers (attach/detach, node
// lifecycle, garbage collection, StatefulSets and all others) and the scheduler are real. Simulated are kubelets, with
// a kubelet's heartbeats, the CSI driver, BMCs and machines. Of a node's 30 pods StatefulSets have six; the others are
// bound past the scheduler, have no owner, and are not replaced. It says of each size what the parts of the control
// plane take, and whether the heartbeats of the nodes that live came in time; it ends at the first size that does not
// fit.
func fleetReal(ctx context.Context, r *runner) error {
	for _, n := range r.o.sizes.or(250, 500) {
		if err := r.realOf(ctx, n); err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	return nil
}

func (r *runner) realOf(ctx context.Context, n int) error {
	o := labOptions{nodes: n, podsOnNode: 110, grace: -1, patient: realPatient, counted: true}
	if missing := noWires(); missing != "" {
		r.say("WITHOUT LINES to the nodes: %s", missing)
	} else {
		o.wired = true
	}
	begun := time.Now()
	l, err := r.newLab(ctx, o)
	if err != nil {
		return err
	}
	defer l.end()
	r.say("%d nodes are ready after %s; load %s", n, time.Since(begun).Round(time.Second), load1())
	if err := l.fatten(ctx); err != nil {
		return err
	}
	if err := l.deploy(ctx, load{volumes: realVolumes * n, plain: realPlain * n}); err != nil {
		return err
	}
	if err := l.running(ctx, 0, nil); err != nil {
		return err
	}
	r.say("%d pods of StatefulSets run after %s; load %s", l.pods, time.Since(begun).Round(time.Second), load1())
	if err := l.bind(ctx, realBare*n); err != nil {
		return err
	}
	l.pods += realBare * n
	if err := l.running(ctx, 0, nil); err != nil {
		return err
	}
	r.say("%d pods run after %s; load %s", l.pods, time.Since(begun).Round(time.Second), load1())
	pods := l.pods
	add := func(name, unit string, v float64) {
		r.add(Figure{
			Name:  fmt.Sprintf("%d nodes, %d pods, %d volumes, real control plane: %s", n, pods, realVolumes*n, name),
			Value: round(v), Unit: unit})
	}
	add("until all pods run", "s", time.Since(begun).Seconds())
	lines := 0
	if l.wires != nil {
		if err := l.wires.open(ctx, l.names, 0); err != nil {
			return err
		}
		lines = n
	}
	add("lines that are up", "lines", float64(lines))
	if !wait(ctx, quiet/2) {
		return ctx.Err()
	}
	if _, err := l.askedSince(); err != nil {
		return err
	}
	spent, err := l.measured(ctx, func(ctx context.Context) error {
		if !wait(ctx, sampled) {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		return err
	}
	asked, err := l.askedSince()
	if err != nil {
		return err
	}
	r.say("idle: %s", asked)
	add("API requests a minute of forcefence while idle, in the first round of drills", "1/min",
		float64(asked.all)/sampled.Minutes())
	add("the oldest heartbeat of a node that lives, while idle", "s", spent.oldest)
	for _, p := range spent.parts {
		add(p.name+": VmRSS while idle", "MB", p.rss)
		add(p.name+": CPU while idle", "% of a core", 100*p.cpu/sampled.Seconds())
	}
	database, err := os.Stat(filepath.Join(l.c.Dir(), "etcd", "member", "snap", "db"))
	if err != nil {
		return err
	}
	add("etcd's database", "MB", float64(database.Size())/1e6)
	victims := l.names[:n/realPortion]
	l.pods -= realBare * len(victims)
	var t *turn
	spent, err = l.measured(ctx, func(ctx context.Context) (err error) {
		t, err = l.play(ctx, outage{victims: victims, side: oursSide, mark: true})
		return err
	}, victims...)
	if err != nil {
		return err
	}
	took, recovered := t.recoveries()
	r.say("%d of %d lost nodes recovered: first %.1f s, median %.1f s, last %.1f s after the cut; noticed by %s; %d "+
		"StatefulSet pods run again after %.1f s; load %s",
		recovered, len(victims), took[0], median(took), took[len(took)-1], t.noticedBy(), t.sets, t.recovered().cut,
		load1())
	r.say("loss: %s", t.calls)
	r.add(Figure{
		Name:  fmt.Sprintf("%d nodes, real control plane: of %d lost at once, so many are recovered", n, len(victims)),
		Value: float64(recovered), Unit: "nodes"}.
		atLeast(float64(len(victims))))
	add("a tenth lost: to the first node recovered", "s", took[0])
	add("a tenth lost: to the median node recovered", "s", median(took))
	add("a tenth lost: to the last node recovered", "s", took[len(took)-1])
	add("a tenth lost: until every StatefulSet pod runs again", "s", t.recovered().cut)
	add("a tenth lost: API requests of forcefence", "1", float64(t.calls.all))
	add("a tenth lost: the oldest heartbeat of a node that lives", "s", spent.oldest)
	for _, p := range spent.parts {
		add(p.name+": CPU for a tenth lost and booted again", "s", p.cpu)
		add(p.name+": VmHWM", "MB", p.peak)
	}
	return l.onlyFenced(ctx, victims)
}

// partCost is what one process took.
type partCost struct {
	name           string
	rss, peak, cpu float64 // MB, MB, seconds
}

// spending is what all took while something happened.
type spending struct {
	parts  []partCost
	oldest float64 // the longest that a node which lives was not heard, in seconds
}

// measured runs do, and says what it took of the control plane and of forcefence; the heartbeats of the dead do not
// count.
func (l *lab) measured(ctx context.Context, do func(context.Context) error, dead ...string) (s spending, err error) {
	parts := append(l.c.Parts(), l.ours)
	before := make([]time.Duration, len(parts))
	for i, p := range parts {
		if before[i], err = processor(p.PID()); err != nil {
			return s, err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for going := true; going; {
		select {
		case err = <-ended:
			going = false
		case now := <-tick.C:
			s.oldest = max(s.oldest, l.watch.oldest(now, dead).Seconds())
		}
	}
	if err != nil {
		return s, err
	}
	for i, p := range parts {
		c := partCost{name: p.Name()}
		after, err := processor(p.PID())
		if err != nil {
			return s, err
		}
		if c.rss, c.peak, err = residentNow(p.PID()); err != nil {
			return s, err
		}
		c.cpu = (after - before[i]).Seconds()
		s.parts = append(s.parts, c)
		l.r.say("%-24s %7.1f s of CPU, %6.0f MB, at most %6.0f MB", c.name, c.cpu, c.rss, c.peak)
	}
	return s, nil
}

// oldest returns how long the node with the longest silence has been silent, since its Lease was last seen to change.
func (w *watch) oldest(now time.Time, without []string) (age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, at := range w.leases {
		if !slices.Contains(without, name) {
			age = max(age, now.Sub(at))
		}
	}
	return age
}

// recoveries are how long after the cut each fence was over, the shortest first, and how many ended with everything
// evicted.
func (t *turn) recoveries() (took []float64, evicted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, at := range t.doneAt {
		if took = append(took, at.Sub(t.zero).Seconds()); t.results[node] == taint.ResultEvicted {
			evicted++
		}
	}
	slices.Sort(took)
	return took, evicted
}

// askedSince are forcefence's requests since it was called last.
func (l *lab) askedSince() (c calls, err error) {
	c, l.auditRead, err = countCalls(l.callsLog(), l.auditRead)
	return c, err
}

// onlyFenced fails where a node was fenced that did not lose its power.
func (l *lab) onlyFenced(ctx context.Context, victims []string) error {
	nodes, err := l.c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if rec, err := taint.RecordOf(n); (rec != nil || err != nil) && !slices.Contains(victims, n.Name) {
			return fmt.Errorf("node %s was fenced and had not lost its power", n.Name)
		}
	}
	return nil
}
