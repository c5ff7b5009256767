package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// runLimit bounds what a run waits for. It is generous: a machine with a load of 30 keeps it.
const runLimit = 5 * time.Minute

// faults are what goes wrong in a run, from the power cut until all pods have moved. Nil functions do nothing.
type faults struct {
	request func(request) verdict
	watch   func(request) stream
	device  func(system string, n int) says
	during  func(ctx context.Context, r *run) // plays beside, and must end when ctx does
	back    bool                              // the machine comes back by itself: pods need not move

	w      *world
	mu     sync.Mutex // guards writes
	writes int
}

// decide counts a request and says what becomes of it.
func (f *faults) decide(q request) verdict {
	f.mu.Lock()
	if q.Write {
		f.writes++
		q.N = f.writes
	}
	f.mu.Unlock()
	if f.request == nil {
		return verdict{}
	}
	v := f.request(q)
	if v.Before != nil || v.After != nil || v.Hold > 0 || v.Drop || v.Code != 0 || v.Lose || v.Slow > 0 {
		f.w.hit()
	}
	return v
}

func (f *faults) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// run is one fence.
type run struct {
	w      *world
	name   string
	victim *kubelet
	f      *faults
	moves  []string
	stays  []string
}

// outcome of a run.
type outcome struct {
	Row      string
	Index    int
	Faults   int
	Writes   int // that the judged sent while there were faults
	Seconds  float64
	Findings []finding
}

// play plays one run and judges it. An error is the referee's own.
func (w *world) play(ctx context.Context, name string, rng *rand.Rand, f *faults) (out outcome, err error) {
	began := time.Now()
	f.w = w
	w.mu.Lock()
	w.rng, w.hits = rng, 0
	w.mu.Unlock()
	if f.request == nil {
		f.request = func(request) verdict { return verdict{} }
	}
	if err := w.forget(); err != nil {
		return out, err
	}
	r := &run{w: w, name: name, f: f}
	r.victim = w.machine("v-" + name)
	defer func() {
		w.faults.Store(nil)
		w.bmc.perturb(nil)
		for _, s := range w.slots {
			s.stop()
		}
		if cerr := w.clean(ctx, name, r.victim); err == nil {
			err = cerr
		}
		out.Seconds = time.Since(began).Seconds()
	}()
	if err := until(ctx, runLimit, "the run's node is Ready", func() (bool, error) {
		n := w.hub.node(r.victim.name)
		return n != nil && readyNow(n), nil
	}); err != nil {
		return out, err
	}
	for _, s := range w.slots {
		if err := s.start(); err != nil {
			return out, err
		}
	}
	if r.moves, r.stays, err = w.workload(ctx, name, r.victim); err != nil {
		return out, err
	}
	if err := until(ctx, runLimit, "a leader", func() (bool, error) { return w.leads(ctx) }); err != nil {
		return out, err
	}

	// The fault, and its end.
	var a account
	a.Victim = r.victim.name
	w.faults.Store(f)
	if f.device != nil {
		w.bmc.perturb(func(system string, n int) says {
			if system != r.victim.name {
				return says{}
			}
			return f.device(system, n)
		})
	}
	if f.watch != nil { // the watches that are there begin again, with the fault
		for _, s := range w.slots {
			s.proxy.reset()
		}
	}
	r.victim.off()
	if err := w.silence(ctx, r.victim.name); err != nil {
		return out, err
	}
	during, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if f.during != nil {
		wg.Go(func() { f.during(during, r) })
	}
	not := r.victim.name
	if f.back {
		not = ""
	}
	if err := until(ctx, runLimit, "the pods have moved", func() (bool, error) {
		if ok, err := w.runOnce(r.moves, not); !ok {
			return false, err
		}
		if n := w.hub.node(r.victim.name); n == nil || marked(n) {
			return false, fmt.Errorf("%s is marked", r.victim.name)
		}
		return true, nil
	}); err != nil {
		a.Ends = append(a.Ends, err.Error())
	}
	end()
	wg.Wait()
	out.Writes = f.count()
	w.faults.Store(nil)
	w.bmc.perturb(nil)
	for _, s := range w.slots {
		s.proxy.reset() // what waits in a watch that is late goes on again
	}

	// The machine is repaired, and everything runs.
	r.victim.on()
	if err := until(ctx, runLimit, "the node is back and all pods run once", func() (bool, error) {
		if n := w.hub.node(r.victim.name); n == nil || !readyNow(n) || marked(n) {
			return false, fmt.Errorf("%s is not Ready, or is marked", r.victim.name)
		}
		return w.runOnce(slices.Concat(r.moves, r.stays), "")
	}); err != nil {
		a.Ends = append(a.Ends, err.Error())
	}
	for _, s := range w.slots {
		s.stop()
	}
	w.mu.Lock()
	out.Faults = w.hits
	w.mu.Unlock()
	hits, err := w.collect(ctx, &a)
	out.Faults += hits
	if err != nil {
		return out, err
	}
	for i := range a.Versions {
		if v := a.Versions[i]; v.Node != nil && v.Key == r.victim.name && len(a.Kept) == 0 {
			a.Kept = []string{volumePath + name + "-" + roleTolerating + "-0"}
		}
	}
	out.Findings = judge(a)
	return out, nil
}

// leads reports whether the leader's Lease has a holder.
func (w *world) leads(ctx context.Context) (bool, error) {
	list, err := w.control.client.CoordinationV1().Leases(namespace).List(ctx, everything)
	if err != nil {
		return false, err
	}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return true, nil
		}
	}
	return len(list.Items) == 0 && w.noLease, nil
}

// forget begins all accounts again.
func (w *world) forget() error {
	var a account
	_, err := w.collect(w.ctx, &a)
	return err
}

// collect takes all accounts, once the referee's own view has caught up with what was written.
func (w *world) collect(ctx context.Context, a *account) (hits int, err error) {
	proxied := map[string]sent{}
	for _, s := range w.slots {
		for id, at := range s.proxy.cut() {
			proxied[id] = at
		}
	}
	for _, l := range w.audits {
		if err := l.read(a, proxied); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(a.Leads, func(x, y lead) int { return x.Done.Compare(y.Done) })
	if err := until(ctx, runLimit, "the referee has seen all writes", func() (bool, error) {
		for _, x := range a.Writes {
			if x.Life != "" && x.Verb != "delete" && x.Resource != "volumeattachments" && !w.hub.saw(x) {
				return false, fmt.Errorf("%s %s at %s", x.Resource, x.Key, x.RV)
			}
		}
		return true, nil
	}); err != nil {
		return 0, err
	}
	if a.Versions, err = w.hub.cut(); err != nil {
		return 0, err
	}
	a.Runs, a.Mounts, a.Attached, a.Alive, a.Beats = w.ledger.cut()
	a.Log, hits = w.bmc.cut()
	a.Stalls = w.stalls.cut()
	return hits, nil
}
