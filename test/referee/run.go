package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/referee/judge"
)

const (
	// runLimit bounds what a run waits for. It is generous: a machine with a load of 30 keeps it.
	runLimit = 5 * time.Minute
	// peerLimit is the same until the pods run, in a comparison: the slowest system that gets there needs 460 s.
	peerLimit = 10 * time.Minute
	// settle is how long a system in a comparison goes on when all is well again, so that it may do harm late.
	settle = 20 * time.Second
)

// faults are what goes wrong in a run, from the power cut until all pods have moved. Nil functions do nothing.
type faults struct {
	request func(request) verdict
	watch   func(request) stream
	device  func(n int) datacenter.Fault      // of the n-th request about the machine
	during  func(ctx context.Context, r *run) // plays beside, and must end when ctx does
	back    bool                              // the machine comes back by itself: pods need not move
	cut     bool                              // it keeps its power: its kubelet loses the API server instead

	config  string                             // forcefence's in this run; "": the world's
	begin   func(*run, context.Context) error  // makes what neighbours need, before the power cut
	storage func(n int, state string) []answer // what the storage answers to the n-th change of a NetworkFence
	until   func(*run) (bool, error)           // what is waited for before the repair; nil: run.hasMoved

	w      *world
	writes atomic.Int64
}

// decide counts a request and says what becomes of it.
func (f *faults) decide(q request) verdict {
	if q.Write {
		q.N = int(f.writes.Add(1))
	}
	if f.request == nil {
		return verdict{}
	}
	v := f.request(q)
	if v.Before != nil || v.After != nil || v.Hold > 0 || v.Drop || v.Code != 0 || v.Lose || v.Slow > 0 {
		f.w.hits.Add(1)
	}
	return v
}

// run is one fence.
type run struct {
	w            *world
	name, victim string
	machine      *datacenter.Machine // the victim's
	f            *faults
	moves, stays []string // pods
	kept         []string // volumes that stay in the victim's lists
}

// perturbDevice has the faults of the victim's device begin.
func (r *run) perturbDevice() {
	var requests atomic.Int64
	r.machine.SetFaults(func() datacenter.Fault {
		fault := r.f.device(int(requests.Add(1)))
		if fault != (datacenter.Fault{}) {
			r.w.hits.Add(1)
		}
		return fault
	})
}

// outcome of a run.
type outcome struct {
	Row      string
	Index    int
	Faults   int
	Writes   int // that the judged sent while there were faults
	Seconds  float64
	Findings []judge.Finding // of forcefence's promises

	Verdict judge.Verdict
	Harm    []judge.Finding `json:",omitempty"`
	Ends    []string        `json:",omitempty"` // what was not as it should be at the end
}

// play plays one run and judges it. An error is the referee's own.
func (w *world) play(ctx context.Context, name string, rng *rand.Rand, f *faults) (out outcome, err error) {
	began := time.Now()
	f.w = w
	w.mu.Lock()
	w.rng = rng
	w.mu.Unlock()
	w.hits.Store(0)
	if err := w.forget(); err != nil {
		return out, err
	}
	r := &run{w: w, name: name, victim: "v-" + name, f: f}
	if err := w.addHosts(ctx, r.victim); err != nil {
		return out, err
	}
	r.machine = w.machine(r.victim).Machine
	defer func() {
		w.faults.Store(nil)
		r.machine.SetFault(datacenter.Fault{})
		for _, s := range w.slots {
			s.stop()
		}
		if cerr := r.clean(ctx); err == nil {
			err = cerr
		}
		out.Seconds = time.Since(began).Seconds()
	}()
	if w.system.ours {
		if err := w.writeConfig(f); err != nil {
			return out, err
		}
	}
	if w.system.begin == nil {
		for _, s := range w.slots {
			if err := s.start(ctx, name); err != nil {
				return out, err
			}
		}
	}
	if err := r.addWorkload(ctx); err != nil {
		return out, err
	}
	if w.system.begin != nil {
		if err := w.system.begin(ctx, r); err != nil {
			return out, err
		}
	}
	if err := until(ctx, "a leader", func() (bool, error) { return w.leads(ctx) }); err != nil {
		return out, err
	}

	if w.compares() {
		cluster.Sleep(ctx, 3*time.Second) // its caches are filled
	}
	if f.begin != nil {
		if err := f.begin(r, ctx); err != nil {
			return out, err
		}
		managed, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { r.manage(managed) })
		defer wg.Wait()
		defer end()
	}

	// The fault, and its end.
	limit := runLimit
	if w.compares() {
		limit = peerLimit
	}
	a := judge.Account{Victim: r.victim, Kept: r.kept}
	w.faults.Store(f)
	if f.device != nil {
		r.perturbDevice()
	}
	if f.watch != nil { // the watches that are there begin again, with the fault
		for _, s := range w.slots {
			s.proxy.reset()
		}
	}
	if f.cut {
		w.Host(r.victim).StopHeartbeats()
		cluster.Sleep(ctx, judge.Heard)
	} else {
		r.machine.CutPower()
	}
	if err := w.silence(ctx, r.victim); err != nil {
		return out, err
	}
	during, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if f.during != nil {
		wg.Go(func() { f.during(during, r) })
	}
	ended := f.until
	if ended == nil {
		ended = (*run).hasMoved
	}
	if err := untilWithin(ctx, limit, "the pods have moved", func() (bool, error) { return ended(r) }); err != nil {
		a.Ends = append(a.Ends, err.Error())
	}
	end()
	wg.Wait()
	out.Writes = int(f.writes.Load())
	w.faults.Store(nil)
	r.machine.SetFault(datacenter.Fault{})
	for _, s := range w.slots {
		s.proxy.reset() // what waits in a watch that is late goes on again
	}

	// The machine is repaired, and everything runs.
	if f.cut {
		w.Host(r.victim).ResumeHeartbeats()
	}
	repair := r.repairs()
	for i := range 2 {
		r.machine.PowerOn()
		if err := until(ctx, "the node is back and all pods run once", func() (bool, error) {
			if w.compares() { // forcefence's own table wants no such power-off
				repair()
			}
			if n := w.history.node(r.victim); n == nil || !cluster.IsReady(n) || judge.IsMarked(n) ||
				w.compares() && !asBefore(n) {
				return false, fmt.Errorf("%s is not Ready, or is marked", r.victim)
			}
			if orders, err := w.orders(ctx); err != nil || f.storage != nil && len(orders) > 0 {
				return false, errors.Join(err, fmt.Errorf("%d NetworkFences are left", len(orders)))
			}
			return w.runOnce(slices.Concat(r.moves, r.stays), "")
		}); err != nil {
			a.Ends = append(a.Ends, err.Error())
			break
		}
		if i == 1 || !w.compares() || !cluster.Sleep(ctx, settle) {
			break
		}
	}
	for _, s := range w.slots {
		s.stop()
	}
	out.Faults = int(w.hits.Load())
	if err := w.collect(ctx, &a); err != nil {
		return out, err
	}
	if w.system.ours {
		out.Findings = judge.Findings(a)
	} else { // a peer's own pods, such as those of kube-fencing's Jobs, are no user's
		a.Runs = slices.DeleteFunc(a.Runs, func(s judge.Span) bool { return !strings.HasPrefix(s.What, r.name+"/") })
	}
	out.Harm, out.Ends = judge.Harm(a), a.Ends
	out.Verdict = judge.VerdictOf(out.Harm, out.Ends)
	return out, nil
}

// repairs returns what is called again and again during the repair: it gives the machine its power back, as a person
// does, 30 s after the judged took it.
func (r *run) repairs() func() {
	var off time.Time
	return func() {
		switch {
		case r.machine.Running():
			off = time.Time{}
		case off.IsZero():
			off = time.Now()
		case time.Since(off) > 30*time.Second:
			r.machine.PowerOn()
		}
	}
}

// compares reports whether this is a comparison of systems, not forcefence's own table.
func (w *world) compares() bool { return w.o.of != "" }

// leads reports whether the leader's Lease has a holder, if the system has one. Systems other than forcefence have
// theirs in their own namespace.
func (w *world) leads(ctx context.Context) (bool, error) {
	of, only := namespace, metav1.ListOptions{}
	if w.system.ours {
		of, only.FieldSelector = metav1.NamespaceSystem, "metadata.name=forcefence"
	}
	list, err := w.Client().CoordinationV1().Leases(of).List(ctx, only)
	if err != nil {
		return false, err
	}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return true, nil
		}
	}
	return len(list.Items) == 0 && (w.o.noLease || !w.system.ours), nil
}
