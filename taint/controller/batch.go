package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
)

// batch is a run of pod writes on one node. Each write is made only while the proof holds. If a proof is too old, one
// worker asks for it again for all. An answer other than Off, or a sign of life from the informers, stops the run.
type batch struct {
	stopped atomic.Bool // set by the informers' handlers

	mu sync.Mutex // guards the node's course; held while asking, so that all workers wait for the one answer
	*work

	asked [][]providers.Answer // what devices answered meanwhile
}

// item is one object that a run of writes writes.
type item struct {
	uid, name string
	first     bool // evictFirst names it
	write     func(context.Context) error
	then      func(context.Context) error // a write that follows one that was made; nil: none
}

func podItem(p action.Pod, write func(context.Context) error) item {
	return item{uid: p.UID, name: p.Namespace + "/" + p.Name, first: p.First, write: write}
}

// writePods runs write for every pod of the decision, in the way of writeEach.
func (w *work) writePods(
	ctx context.Context, a action.Action, write func(context.Context, action.Pod) error,
) decide.ActionDone {
	var items []item
	for _, p := range action.PodsOf(a) {
		items = append(items, podItem(p, func(ctx context.Context) error { return write(ctx, p) }))
	}
	return w.writeEach(ctx, a, items)
}

// writeEach runs the items' writes in the decision's order, each as soon as the gate lets it through. A failed write is
// not an error: each result goes into the course, and the next look decides again. It returns after all workers have. A
// run that stops lets the writes under way finish: a write that was cut off could take effect after the next look.
// While it waits for turns, other nodes are looked at, because the gate must know all of their storage pods.
func (w *work) writeEach(ctx context.Context, a action.Action, items []item) decide.ActionDone {
	w.st.releaseSlot()
	b := &batch{work: w}
	w.runs.Add(1)
	defer w.runs.Add(-1)
	w.st.run.Store(&b.stopped)
	defer w.st.run.Store(nil)
	var mu sync.Mutex // guards the results
	how := map[string]action.WriteResult{}
	writes := decide.Writes{Made: map[string]bool{}}
	// note records what became of an item's own write, or of the write that follows it. An error ends the run: a write
	// that follows ends none.
	note := func(p item, follows bool, err error) error {
		fate := fateOf(ctx, err)
		switch {
		case follows:
		case fate == proofLost:
			return err
		case fate == outdated, fate == failed:
			if lost := w.Leading(); lost != nil {
				return lost
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch fate {
		case crowded:
			writes.Throttled++
		case failed:
			if writes.Failed++; writes.FirstErr == nil {
				writes.FirstErr = fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if !follows && (fate == made || fate == outdated || fate == failed) {
			how[p.uid] = kube.RefusalOf(err)
		}
		if !follows && fate == made {
			writes.Made[p.uid] = true
		}
		return nil
	}
	var workers sync.WaitGroup
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	began := w.st.course.FenceBegan()
	for _, p := range items {
		turn := &fleet.Turn{Node: w.name, First: p.first, Since: began}
		if !w.gate.takeTurn(run, turn) {
			break
		}
		workers.Go(func() {
			held, err := b.writeItem(ctx, run, turn, p)
			if why := note(p, false, err); why != nil {
				end(why)
			}
			if err == nil && p.then != nil {
				err = b.follow(ctx, run, p)
				_ = note(p, true, err)
			}
			if held { // released here: the run may have ended, and then has no next write
				w.gate.returnTurn(turn, kube.IsCrowded(err))
			}
		})
	}
	workers.Wait()
	err := context.Cause(run)
	writes.Stopped, writes.Answers = errors.Is(err, errProofLost), b.asked
	o := decide.ActionDone{Results: how, Writes: writes}
	if err != nil && !writes.Stopped {
		o.Err = fmt.Errorf("%s: %w", action.Name(a), err)
	}
	return o
}

// writeFate is what became of a write.
type writeFate uint8

const (
	made      writeFate = iota
	proofLost           // it was not sent: the machine is not proven off any more
	unsent              // this process ends, or it was too late, or it was not the pod's turn: the next look decides
	crowded             // the API server is overloaded: the pod is not the cause
	outdated            // it met another client's write, which the next look finds
	failed
)

// fateOf classifies the error of a write. ctx is the process's.
func fateOf(ctx context.Context, err error) writeFate {
	switch {
	case err == nil:
		return made
	case errors.Is(err, errProofLost):
		return proofLost
	case ctx.Err() != nil, errors.Is(err, kube.ErrLate), errors.Is(err, errNotNow):
		return unsent
	case apierrors.IsTooManyRequests(err):
		return crowded
	case errors.Is(err, kube.ErrAgain): // ErrLate is one, too
		return outdated
	}
	return failed
}

// crowdedTries is how often in a run a write is tried while the API server is overloaded, and longest how long it waits
// for the next try.
const (
	crowdedTries   = 5
	maxCrowdedRest = 5 * time.Second
)

// writeItem makes a write whose turn it is, while the proof holds. If the API server answers 429, which it does before
// any effect, writeItem gives the turn back. It queues again after the time that the answer asks for: each try is a
// write of its own, under a proof of its own. run ends with the run. held reports whether the caller must still give
// the turn back.
func (b *batch) writeItem(ctx, run context.Context, turn *fleet.Turn, p item) (held bool, err error) {
	for tries := 1; ; tries++ {
		by, err := b.ensureProof(run, p.uid)
		if err != nil {
			return true, err
		}
		err = p.write(kube.SendBy(ctx, by))
		if !apierrors.IsTooManyRequests(err) || tries == crowdedTries {
			return true, err
		}
		b.gate.returnTurn(turn, true)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		rest := min(max(time.Duration(seconds)*time.Second, 100*time.Millisecond), maxCrowdedRest)
		select {
		case <-run.Done():
			return false, err
		case <-time.After(rest):
		}
		if !b.gate.takeTurn(run, turn) {
			return false, err
		}
	}
}

// follow makes the write that follows an item's, while the proof holds.
func (b *batch) follow(ctx, run context.Context, p item) error {
	by, err := b.ensureProof(run, p.uid)
	if err != nil {
		return err
	}
	return p.then(kube.SendBy(ctx, by))
}

// errProofLost stops a batch of pod writes: the machine is no longer proven off, or the node shows life.
var errProofLost = errors.New("proof lost in the middle")

// errNotNow means that a write was not sent: Kubernetes' own eviction is about to delete the pod.
var errNotNow = errors.New("stock eviction is about to delete the pod")

// ensureProof returns until when the write of one pod or attachment may be sent, and asks the device again if the last
// answer is too old. The error is errProofLost, which ends the run, or errNotNow, which concerns this pod alone.
func (b *batch) ensureProof(ctx context.Context, uid string) (by providers.Instant, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped.Load() || ctx.Err() != nil {
		return by, errProofLost
	}
	by, hold := b.maySend(uid)
	if hold == decide.HoldAskFirst {
		all := b.askDevices(ctx)
		b.applyObservation(decide.DevicesAnswered{Answers: all})
		b.asked = append(b.asked, all)
		if b.stopped.Load() {
			return by, errProofLost
		}
		by, hold = b.maySend(uid)
	}
	switch hold {
	case decide.HoldYes:
		return by, nil
	case decide.HoldSkipPod:
		return by, errNotNow
	default:
		return by, errProofLost
	}
}
