package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// controlPlaneLabels tell a control-plane or etcd node: kubeadm's and most others', the one before it, and RKE2's and k3s' for etcd.
var controlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd",
}

func isControlPlane(labels map[string]string) bool {
	return slices.ContainsFunc(controlPlaneLabels, func(l string) bool { _, ok := labels[l]; return ok })
}

// fence takes a node that is not marked one act further.
func (t *turn) fence(ctx context.Context) (after time.Duration, again bool, err error) {
	v := fence.View{
		Look: t.look, Settings: t.policy.Fence, Fleet: t.fleet,
		Mode: t.machine.Mode, Device: t.machine.Device, Identity: t.machine.Identity, Excluded: t.policy.Excluded(t.node), NewID: newID(), By: t.By,
	}
	t.tellPods(0)
	v.ControlPlane = isControlPlane(t.look.Labels)
	if t.machineErr != nil {
		v.Machine = t.machineErr.Error()
	}
	v.Distrusted = t.distrusted
	if t.st.suspect != "" {
		if v.Work, err = t.work(ctx); err != nil {
			return 0, false, err
		}
	}
	read := t.readsTook()
	for {
		v.Memory, v.Now = t.st.fence, t.Now() // the reads and the question took their time
		d := fence.Step(v)
		switch d.Why {
		case fence.Distrusted:
			d.Detail = t.liar
		case fence.PoweredOn:
			d.Detail = cmp.Or(t.noPower, "mode observe")
		}
		if d.Act != fence.Write && d.Act != fence.Arm { // what begins a fence is told once it is written: a conflict leaves an id that never was one
			t.tellFence(d)
		}
		if err := t.reportPoweredOn(ctx, d.Why == fence.PoweredOn); err != nil {
			return 0, false, err
		}
		switch d.Act {
		case fence.Leave:
			return 0, false, nil
		case fence.Wait:
			return d.After, false, nil
		case fence.Look:
			return 0, true, nil
		case fence.Ask:
			t.ask(ctx)
			if !fence.Keeps(t.look, read, t.Now()) {
				return 0, true, nil
			}
		case fence.ReadLive:
			if v.Work, err = t.liveWork(ctx); err != nil {
				return 0, false, err
			}
		case fence.Write:
			if d.Record.Phase == taint.PhasePoweringOff {
				if got, err := t.reservePowerOff(ctx, t.look.Name); err != nil || !got {
					return time.Second, false, err
				}
			}
			if err := t.writer.record(ctx, t.look, d.Record); err != nil {
				t.across(func(f *fleet.Fleet) { f.Fence(t.look.Name, t.look.Record, t.Now()) }) // gives a turn back that was not used
				return 0, false, err
			}
			t.tellFence(d)
			t.closed(d.Record)
			return 0, true, nil
		case fence.PowerOff:
			t.powerOff(ctx)
			return 0, true, nil
		case fence.Arm:
			begin := t.Now()
			if err := t.writer.arm(ctx, t.look, d.Record); err != nil {
				return 0, false, err
			}
			t.tellFence(d)
			t.Metrics.phase("mark", t.Now().Sub(begin))
			t.Log.Info("Marked node", "node", t.look.Name, "fence", d.Record.ID, "device", d.Record.Device)
			return 0, true, nil
		default:
			return 0, false, fmt.Errorf("unknown act %d", d.Act)
		}
	}
}

// slowRead is how long the reads of a turn may take before it is told.
const slowRead = 2 * time.Second

// readsTook returns how long the reads of this turn took until now, and tells at most every ten seconds of an API server that is slow:
// a fence that gets nowhere for that says what it waits for.
func (t *turn) readsTook() time.Duration {
	took := t.Now().Sub(t.look.Sent)
	if now := t.Now(); took > slowRead && now.Sub(t.st.slow) > 10*time.Second {
		t.st.slow = now
		t.Log.Warn("The API server answers slowly: the node's recovery waits for its reads", "node", t.look.Name,
			"fence", t.look.Record.IDOr(""), "took", took.Round(time.Millisecond).String())
	}
	return took
}

// workHolds is how long work that was found counts, beside twice the time that finding it took: it is a reason to ask and to mark, and
// what a mark finds to do is listed anew.
const workHolds = time.Second

// work reports whether a fence would have something to do.
func (t *turn) work(ctx context.Context) (fence.Work, error) {
	begin := t.Now()
	if age := begin.Sub(t.st.worked); t.st.work != fence.NoneToDo && age >= 0 && age < workHolds+2*t.st.workTook {
		return t.st.work, nil
	}
	pods, objects, err := t.pods(ctx)
	if err == nil {
		err = t.resolve(ctx, pods, objects, false)
	}
	if err != nil {
		return fence.NoneToDo, err
	}
	atts, err := t.cachedAttachments(ctx)
	if err != nil {
		return fence.NoneToDo, err
	}
	t.st.work = fence.NoneToDo
	switch {
	case evict.Work(pods, nil):
		t.st.work = fence.SomeToDo
	case evict.Work(pods, atts):
		t.st.work = fence.CacheSays
	}
	if t.st.work != fence.NoneToDo {
		t.st.worked, t.st.workTook = t.Now(), t.Now().Sub(begin)
		t.keep(pods)
	}
	t.st.workPods = pods
	return t.st.work, nil
}

// liveWork is work by the API server's own list of attachments: a cache that missed an event would have the node marked for nothing,
// again and again.
func (t *turn) liveWork(ctx context.Context) (fence.Work, error) {
	atts, err := attachments(ctx, t.Live, t.look.Name)
	if err != nil {
		return fence.NoneToDo, err
	}
	t.st.work = fence.NoneToDo
	if evict.Work(t.st.workPods, atts) {
		t.st.work = fence.SomeToDo
	}
	return t.st.work, nil
}

// powerOff sends the power-off that the record announced. The error is remembered, not returned: fence.Step decides what follows.
func (t *turn) powerOff(ctx context.Context) {
	now := t.Now()
	if now.Sub(t.look.Got) > fence.ProofTTL {
		return // paused since the look: look again
	}
	err := t.Leading()
	if err == nil && t.noPower != "" { // its mode is observe then
		err = fmt.Errorf("%w: %s", ErrNotBelieved, t.noPower)
	}
	if err == nil {
		err = t.machine.Provider.PowerOff(ctx, t.machine.Target)
	}
	t.st.fence.SentPowerOff(now, err)
	id := t.look.Record.ID
	if err != nil {
		t.Log.Error("Power-off was not accepted", "node", t.look.Name, "fence", id, "device", t.machine.Device, "error", err)
		return
	}
	t.Log.Info("Sent power-off", "node", t.look.Name, "fence", id, "device", t.machine.Device)
}

// evict takes a marked node one act further.
func (t *turn) evict(ctx context.Context) (after time.Duration, again bool, err error) {
	t.st.work, t.st.workPods = fence.NoneToDo, nil // this fence does that work: the next one wants a list of its own
	v := evict.View{Look: t.look, Settings: t.policy.Evict, Device: t.machine.Device, Identity: t.machine.Identity, By: t.By}
	d, err := t.decide(ctx, &v)
	if err != nil {
		return 0, false, err
	}
	t.tellEvict(v, d)
	if read := t.readsTook(); d.Act == evict.Ask {
		begin := t.Now()
		t.ask(ctx)
		t.Metrics.phase("confirm", t.Now().Sub(begin))
		if !fence.Keeps(t.look, read, t.Now()) {
			return 0, true, nil
		}
		if d, err = t.decide(ctx, &v); err != nil {
			return 0, false, err
		}
		t.tellEvict(v, d)
	}
	begin := t.Now()
	done := func(phase string) { t.Metrics.phase(phase, t.Now().Sub(begin)) }
	if d.Act == evict.Wait || d.Act == evict.Spare {
		t.tellPods(tellWithin)
	}
	switch d.Act {
	case evict.Leave:
		return 0, false, nil
	case evict.Wait:
		return d.After, false, nil
	case evict.Ask:
		return 0, true, nil
	case evict.Write:
		return 0, true, t.writer.record(ctx, t.look, d.Record)
	case evict.ExpireReady:
		return 0, true, t.writer.expireReady(ctx, t.look)
	case evict.Tombstone:
		ended, err := t.forEach(ctx, v, d, func(ctx context.Context, p evict.Pod) error { return t.writer.tombstone(ctx, p, t.look.Record.ID) })
		done("tombstone")
		t.Log.Info("Ended pods", "node", t.look.Name, "fence", t.look.Record.ID, "pods", len(ended))
		t.st.untold = append(t.st.untold, untold{t.Now(), ended, v.Look.Record.ID, t.answerDetail()})
		return 0, true, err
	case evict.ClearVolumes:
		if !v.Holds(t.Now()) {
			return 0, true, nil
		}
		var pods []evict.Pod // what is to be deleted next is listed meanwhile; without it, it is listed then
		var g errgroup.Group
		g.Go(func() error {
			pods, _, _ = t.pods(ctx)
			return nil
		})
		err := t.writer.clear(ctx, t.look, d.InUse, d.Attached)
		_ = g.Wait() // no error: the list may fail
		if err != nil {
			return 0, false, err
		}
		t.st.evict.Cleared = true
		t.keep(pods)
		done("clear")
		t.Log.Info("Cleared volume lists", "node", t.look.Name, "fence", t.look.Record.ID,
			"inUse", len(t.look.InUse)-len(d.InUse), "attached", len(t.look.Attached)-len(d.Attached))
		return 0, true, nil
	case evict.Spare:
		spared, err := t.forEach(ctx, v, d, func(ctx context.Context, p evict.Pod) error { return t.writer.spare(ctx, p, t.look.Record.Token()) })
		t.Log.Info("Spared pods", "node", t.look.Name, "fence", t.look.Record.ID, "pods", len(spared))
		return 0, true, err
	case evict.Delete:
		deleted, err := t.forEach(ctx, v, d, t.writer.delete)
		done("delete")
		t.Log.Info("Deleted pods", "node", t.look.Name, "fence", t.look.Record.ID, "pods", len(deleted))
		return 0, true, err
	case evict.Unmark:
		if err := t.writer.unmark(ctx, t.look, d.Record); err != nil {
			return 0, false, err
		}
		t.Metrics.phase("evict", t.Now().Sub(d.Record.Since))
		t.Log.Info("Took mark off", "node", t.look.Name, "fence", d.Record.ID, "result", d.Record.Result)
		t.tellPods(0)
		t.tellKept(v, d)
		t.closed(d.Record)
		return 0, true, nil
	default:
		return 0, false, fmt.Errorf("unknown act %d", d.Act)
	}
}

// decide reads what evict.Step needs and lets it decide. What v has already is not read again.
func (t *turn) decide(ctx context.Context, v *evict.View) (evict.Decision, error) {
	v.Memory = t.st.evict
	if evict.LooksAtPods(v.Look) && t.objects == nil {
		if d, ok, err := t.decideByKept(ctx, v); ok || err != nil {
			return d, err
		}
		var err error
		if v.Pods, t.objects, err = t.pods(ctx); err != nil {
			return evict.Decision{}, err
		}
		if err := t.resolve(ctx, v.Pods, t.objects, false); err != nil {
			return evict.Decision{}, err
		}
		if v.Attachments, err = t.cachedAttachments(ctx); err != nil {
			return evict.Decision{}, err
		}
	}
	for {
		v.Now = t.Now()
		v.Reads = v.Now.Sub(t.look.Sent)
		d := evict.Step(*v)
		if d.Act != evict.Read {
			return d, nil
		}
		if !v.Resolved {
			if err := t.resolve(ctx, v.Pods, t.objects, true); err != nil {
				return evict.Decision{}, err
			}
			v.Resolved = true
		}
		if d.Live {
			var err error
			if v.Attachments, err = attachments(ctx, t.Live, t.look.Name); err != nil {
				return evict.Decision{}, err
			}
			v.Live = true
			t.st.evict.Listed = t.Now()
			v.Memory = t.st.evict
		}
	}
}

// keptHolds is how long a list may be kept for the next act.
const keptHolds = time.Second

// keep keeps a list for decideByKept. An API server answers two consistent lists of a resource that nobody writes to 100 ms apart: it
// waits for etcd's word that its cache is fresh, and asks for that ten times a second (kubernetes 1.36, ConditionalProgressRequester).
func (t *turn) keep(pods []evict.Pod) { t.st.kept, t.st.keptAt = pods, t.Now() }

// decideByKept decides by the list that was kept, if that is new enough and the decision is to end pods or to delete ended ones: each of
// these writes names a UID and a resourceVersion, so a pod that changed since is refused and looked at again, and one that is missing
// is found by the list that follows. Any other decision wants a list of its own.
func (t *turn) decideByKept(ctx context.Context, v *evict.View) (_ evict.Decision, ok bool, err error) {
	pods := t.st.kept
	t.st.kept = nil
	if age := t.Now().Sub(t.st.keptAt); len(pods) == 0 || age < 0 || age > keptHolds {
		return evict.Decision{}, false, nil
	}
	view := *v
	view.Pods = pods
	if view.Attachments, err = t.cachedAttachments(ctx); err != nil {
		return evict.Decision{}, false, err
	}
	view.Now = t.Now()
	if d := evict.Step(view); d.Act == evict.Tombstone || d.Act == evict.Delete && !d.Returned {
		*v = view
		return d, true, nil
	}
	return evict.Decision{}, false, nil
}

// closed counts a fence that ended.
func (t *turn) closed(rec taint.Record) {
	if rec.Phase == taint.PhaseDone {
		t.Metrics.fences.WithLabelValues(string(rec.Result)).Inc()
	}
}

// errProofLost stops a batch of pod writes: the machine is no longer proven off, or the node shows life.
var errProofLost = errors.New("proof lost in the middle")
