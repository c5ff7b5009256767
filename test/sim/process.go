package sim

import (
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// Process is one forcefence controller: the loop that taint/controller runs in production, with every request split into its
// arrival at the API server and the arrival of the answer, either of which may be late or lost. A crash loses all of it but what
// was written.
type Process struct {
	w       *World
	name    string
	index   int
	life    int  // what belongs to an earlier life is dropped
	leading bool // it believes so
	paused  bool // SIGSTOP: nothing of it runs until it is resumed
	stopped []func()
	heldUp  time.Duration // how much longer the next request is on its way
	workers []*worker
	fleet   fleet.Fleet
	cacheAt time.Time // how old its cache of attachments is
	stuck   time.Time // until when that cache misses every event

	fence fence.Settings
	evict evict.Settings
	mode  fence.Mode
}

// worker is a process' work on one node.
type worker struct {
	*Process
	m     *machine
	fence fence.Memory
	evict evict.Memory

	kept   []evict.Pod // the last list, which may serve for the next act
	keptAt time.Time

	busy bool   // in the middle of look, step, act
	turn int    // counts looks: a wait that was cut short is dropped
	seen string // what the last look saw: nothing to do until it differs

	leaseRV string // the watch on leases
	pinning bool
	pinSeen string // the Node's resourceVersion at which there was nothing to pin
}

func (p *Process) begin() {
	p.life++
	p.workers, p.stopped, p.paused = nil, nil, false
	p.fleet, p.stuck = fleet.Fleet{}, time.Time{}
	for _, m := range p.w.machines {
		p.workers = append(p.workers, &worker{Process: p, m: m})
	}
	p.after(0, p.tick)
}

// after runs do in this life of the process, and not while it is stopped.
func (p *Process) after(d time.Duration, do func()) { p.within(p.life, d, do) }

// within is after for what an earlier event of the same life began.
func (p *Process) within(life int, d time.Duration, do func()) {
	p.w.after(d, func() {
		switch {
		case p.life != life:
		case p.paused:
			p.stopped = append(p.stopped, do)
		default:
			do()
		}
	})
}

// may is the check of leadership before a request. A leader that was replaced without noticing passes it now and then.
func (p *Process) may() bool {
	if p.w.leader == p.index {
		return true
	}
	if p.leading && !p.w.calm && p.w.chance(0.7) {
		p.w.count("stale leader acts")
		return true
	}
	if p.leading {
		p.w.logf("%s: no leader any more", p.name)
	}
	p.leading = false
	p.begin()
	return false
}

// call puts a request on its way: do runs at the server, then runs here with its result, or with a time-out.
func (p *Process) call(do func() error, then func(error)) {
	w := p.w
	if !p.may() {
		return
	}
	there, back, life := w.latency()+w.limits.api/2+p.heldUp, w.latency()+w.limits.api/2, p.life
	p.heldUp = 0
	lost, unheard := w.down || !w.calm && w.chance(0.01), !w.calm && w.chance(0.01)
	answered := false
	answer := func(err error) {
		if !answered {
			answered = true
			then(err)
		}
	}
	p.after(10*time.Second+w.limits.api, func() { answer(errTimeout) })
	w.after(there, func() {
		if lost || w.down {
			return
		}
		err := do()
		if !unheard {
			p.within(life, back, func() { answer(err) })
		}
	})
}

// tick looks at what the watches say, and starts the workers that have something to look at.
func (p *Process) tick() {
	if p.leading {
		for _, k := range p.workers {
			k.watch()
		}
	}
	p.after(p.w.between(300*time.Millisecond, 1200*time.Millisecond), p.tick)
}

func (k *worker) watch() {
	w := k.w
	n, lease := w.api.node(k.m.name), w.api.lease(k.m.name)
	k.fleet.Tick(w.now)
	if w.down {
		return // no watch brings anything
	}
	if n == nil {
		k.fleet.Drop(k.m.name, w.now)
		return
	}
	k.fleet.Know(k.m.name, w.now)
	if lease != nil {
		k.leaseRV = lease.ResourceVersion
		k.fleet.Lease(k.m.name, lease.ResourceVersion, taint.LeaseDuration(lease), w.now)
	}
	l := taint.See(n, lease, taint.DefaultKey, w.now, w.now)
	why := k.suspicion(l)
	if k.busy {
		return
	}
	if why == "" && l.Mark == nil && !l.Record.Open() {
		k.fleet.Fence(k.m.name, l.Record, w.now)
		k.pin(n)
	}
	_, recorded := n.Annotations[taint.RecordAnnotation]
	if (why != "" || l.Mark != nil || recorded) && k.seen != n.ResourceVersion+k.leaseRV+why {
		k.look()
	}
}

func (k *worker) suspicion(l taint.Look) string {
	return fence.Suspicion(l, k.fleet.View(k.m.name, k.w.now))
}

func (p *Process) deviceEvent(node string) {
	p.after(p.w.latency(), func() { p.fleet.Hint(node, p.w.now) })
}

// cachedAttachments are those of the informer's cache, which lags behind, and now and then misses events for long.
func (p *Process) cachedAttachments(node string) []*storagev1.VolumeAttachment {
	w := p.w
	if w.limits.lostEvents && !w.calm && w.chance(0.02) && !p.stuck.After(w.now) {
		p.stuck = w.now.Add(w.between(20*time.Second, 3*time.Minute))
		w.count("lost watch events")
	}
	if !p.stuck.After(w.now) {
		if at := w.now.Add(-w.lag()); at.After(p.cacheAt) {
			p.cacheAt = at
		}
	}
	return w.api.asOf(p.cacheAt).attachmentsOf(node)
}

// look reads Node and Lease live, in either order, then pods and attachments.
func (k *worker) look() {
	w, name := k.w, k.m.name
	k.busy = true
	k.turn++
	sent := w.now
	var l taint.Look
	var node *corev1.Node
	var ps []*corev1.Pod
	failed := func(err error) bool {
		if err != nil {
			k.wait(time.Second)
		}
		return err != nil
	}
	var lease *coordinationv1.Lease
	first, second := func() { node = w.api.node(name) }, func() { lease = w.api.lease(name) }
	if w.chance(0.5) { // they are sent together: either may be the older one
		first, second = second, first
	}
	k.call(func() error { first(); return nil }, func(err error) {
		if failed(err) {
			return
		}
		k.call(func() error { second(); return nil }, func(err error) {
			if failed(err) {
				return
			}
			l = taint.See(node, lease, taint.DefaultKey, sent, w.now)
			k.call(func() error { ps = w.api.podsOn(name); return nil }, func(err error) {
				if !failed(err) {
					k.step(seen{look: l, node: node, pods: podsOf(ps), atts: attachedOf(k.cachedAttachments(name)), reads: w.now.Sub(sent)})
				}
			})
		})
	})
}

// wait looks again after d; a change that the watch sees ends the wait earlier.
func (k *worker) wait(d time.Duration) {
	k.busy = false
	turn := k.turn
	k.after(d, func() {
		if !k.busy && k.turn == turn {
			k.look()
		}
	})
}

// seen is what one look brought.
type seen struct {
	look  taint.Look
	node  *corev1.Node
	led   led
	pods  []evict.Pod
	atts  []evict.Attachment
	live  bool          // atts are from the API server
	reads time.Duration // how long it took
}

func (k *worker) step(s seen) {
	l := s.look
	k.fence.Saw(l)
	k.evict.Saw(l)
	k.fleet.Lease(l.Name, l.LeaseRV, l.LeaseDuration, k.w.now)
	if l.Exists {
		k.fleet.Fence(l.Name, l.Record, k.w.now)
	}
	k.seen = l.ResourceVersion + l.LeaseRV + k.suspicion(l)
	if l.Exists {
		s.led = k.led(s)
	}
	k.decide(s)
}

func (k *worker) decide(s seen) {
	if s.look.Mark == nil {
		k.fenceStep(s)
		return
	}
	k.evictStep(s)
}

// askAnd puts the question to the device and looks again, or decides again on the same look where another would take too long.
func (k *worker) askAnd(s seen) {
	k.ask(s.led, func() {
		if fence.Keeps(s.look, s.reads, k.w.now) {
			k.w.count("kept a slow look")
			k.decide(s)
			return
		}
		k.look()
	})
}

// readLive lists the attachments from the API server and decides again.
func (k *worker) readLive(s seen) {
	k.call(func() error {
		s.atts, s.live = attachedOf(k.w.api.attachmentsOf(k.m.name)), true
		return nil
	}, func(err error) {
		if err != nil {
			k.wait(time.Second)
			return
		}
		k.evict.Listed = k.w.now
		k.decide(s)
	})
}

func (k *worker) fenceStep(s seen) {
	w, l, ps := k.w, s.look, s.pods
	v := fence.View{
		Now: w.now, Look: l, Memory: k.fence, Settings: k.Process.fence, Mode: s.led.mode, Fleet: k.fleet.View(k.m.name, w.now),
		Device: s.led.device(), Identity: s.led.id, Machine: s.led.why, NewID: w.id("f"), By: k.name,
		Distrusted: l.Record.Distrusts(s.led.id, s.led.device(), true),
	}
	switch {
	case evict.Work(ps, nil) || s.live && evict.Work(ps, s.atts):
		v.Work = fence.SomeToDo
	case evict.Work(ps, s.atts):
		v.Work = fence.CacheSays
	}
	d := fence.Step(v)
	k.keep(ps)
	w.logf("%s: %s: %s %s", k.name, k.m.name, d.Act, d.Why)
	switch d.Act {
	case fence.Leave:
		if d.Why == fence.BadRecord {
			w.check.alert(k.m.name, string(d.Why))
		}
		k.busy = false
	case fence.Wait:
		k.wait(d.After)
	case fence.Look:
		k.look()
	case fence.Ask:
		k.askAnd(s)
	case fence.ReadLive:
		w.count("live before the mark")
		k.readLive(s)
	case fence.Write:
		if d.Record.Phase == taint.PhasePoweringOff && !k.reserve() {
			k.wait(time.Second)
			return
		}
		k.patch(l, d.Record, nil, string(d.Why))
	case fence.PowerOff:
		k.powerOff(s)
	case fence.Arm:
		w.check.arm(v)
		k.patch(l, d.Record, func(n *corev1.Node) {
			n.Spec.Taints = taint.With(n.Spec.Taints, taint.DefaultKey, d.Record.ID, w.now)
		}, "Arm")
	}
}

// reserve takes the turn to be powered off, after what the records of other nodes tell.
func (k *worker) reserve() bool {
	for _, n := range k.w.api.nodes {
		if r, err := taint.RecordOf(n); err == nil && n.Name != k.m.name && r.Open() {
			k.fleet.Fence(n.Name, r, k.w.now)
		}
	}
	return k.fleet.Reserve(k.m.name)
}

// ask puts the question to the node's device and folds the answer into both memories.
func (k *worker) ask(to led, then func()) {
	k.w.jolt(k.Process, k.m)
	life := k.life
	k.w.ask(k.m, to, func(a providers.Answer) {
		k.within(life, 0, func() {
			k.w.logf("%s: %s is %s (%s, asked %s ago)", k.name, k.m.name, a.State, a.Raw, k.w.now.Sub(a.At))
			k.fleet.Answered(k.m.name, a)
			k.fence.Answered(a)
			k.evict.Answered(a)
			then()
		})
	})
}

func (k *worker) powerOff(s seen) {
	w, l := k.w, s.look
	if !k.may() {
		return
	}
	w.count("PowerOff")
	w.check.powerOff(l, k.Process)
	k.fence.SentPowerOff(w.now, nil)
	sent, life := w.now, k.life
	w.after(w.latency(), func() {
		err := s.led.to.orderOff(s.led.target)
		k.within(life, w.latency(), func() {
			if err != nil {
				k.fence.SentPowerOff(sent, err)
			}
			k.look()
		})
	})
	w.jolt(k.Process, k.m)
}

// patch writes the record, and with edit the mark, under the look's resourceVersion.
func (k *worker) patch(l taint.Look, r taint.Record, edit func(*corev1.Node), what string) {
	k.patchNode(l, func(n *corev1.Node) {
		setRecord(n, r.Encode())
		if edit != nil {
			edit(n)
		}
	}, what+" "+string(r.Phase)+" "+string(r.Result), nil)
}

func (k *worker) patchNode(l taint.Look, edit func(*corev1.Node), what string, done func()) {
	w := k.w
	w.jolt(k.Process, k.m)
	k.call(func() error {
		err := w.api.patchNode(k.name, k.m.name, l.ResourceVersion, edit)
		if err != nil {
			w.count("conflict")
		} else {
			w.count(what)
		}
		w.logf("%s: %s: writes %s: %v", k.name, k.m.name, what, err)
		w.jolt(k.Process, k.m)
		return err
	}, func(err error) {
		if err == nil && done != nil {
			done()
		}
		k.look()
	})
}

func (k *worker) evictStep(s seen) {
	w, l, ps := k.w, s.look, s.pods
	v := evict.View{
		Now: w.now, Look: l, Memory: k.evict, Settings: k.Process.evict, Pods: ps, Reads: s.reads, Resolved: true, Attachments: s.atts, Live: s.live,
		Device: s.led.device(), Identity: s.led.id, By: k.name,
	}
	d := evict.Step(v)
	if by, ok := k.byKept(v); ok {
		d = by
	}
	k.keep(ps)
	w.logf("%s: %s: %s %s %s", k.name, k.m.name, d.Act, d.Why, d.Detail)
	if d.Alert != "" {
		w.check.alert(k.m.name, d.Alert)
	}
	switch d.Act {
	case evict.Leave:
		k.busy = false
	case evict.Wait:
		k.wait(d.After)
	case evict.Ask:
		k.askAnd(s)
	case evict.Read:
		k.readLive(s)
	case evict.Write:
		if d.Record.Phase == taint.PhaseEvicting && d.Why != evict.Adopting { // a mark overwritten in the middle goes on
			w.check.proof(v, "beginning of the eviction")
		}
		k.patch(l, d.Record, nil, string(d.Why))
	case evict.ExpireReady:
		w.check.expire(v)
		k.patchNode(l, func(n *corev1.Node) { setReady(n, corev1.ConditionUnknown, w.now) }, "ExpireReady", nil)
	case evict.Tombstone:
		k.each(v, s.led, d.Act, d.Pods, func() bool { v.Memory, v.Now = k.evict, w.now; return v.Holds(w.now) }, k.tombstone)
	case evict.ClearVolumes:
		w.check.clear(v, d)
		k.patchNode(l, func(n *corev1.Node) {
			n.Status.VolumesInUse, n.Status.VolumesAttached = d.InUse, d.Attached
		}, "ClearVolumes", func() { k.evict.Cleared = true })
	case evict.Delete:
		holds := func() bool { v.Memory, v.Now = k.evict, w.now; return v.Holds(w.now) }
		if d.Returned {
			holds = nil
		}
		k.each(v, s.led, d.Act, d.Pods, holds, func(v evict.View, p evict.Pod, then func(error)) { k.delete(v, p, d.Returned, then) })
	case evict.Spare:
		k.each(v, s.led, d.Act, d.Pods, nil, k.spare)
	case evict.Unmark:
		if d.Why == evict.NeverPoweredOff {
			w.check.accused(k.m)
		}
		w.check.unmark(v, d)
		k.patch(l, d.Record, func(n *corev1.Node) {
			n.Spec.Taints = taint.Without(n.Spec.Taints, taint.DefaultKey, d.Record.ID)
		}, "Unmark")
	}
}

func (k *worker) keep(ps []evict.Pod) { k.kept, k.keptAt = ps, k.w.now }

// byKept decides by an earlier list, as taint/controller does now and then to end pods and to delete ended ones.
func (k *worker) byKept(v evict.View) (evict.Decision, bool) {
	if age := k.w.now.Sub(k.keptAt); k.kept == nil || age > time.Second || !k.w.chance(0.5) {
		return evict.Decision{}, false
	}
	v.Pods = k.kept
	d := evict.Step(v)
	if d.Act != evict.Tombstone && (d.Act != evict.Delete || d.Returned) {
		return evict.Decision{}, false
	}
	k.w.count("by a kept list")
	return d, true
}

// each acts on the pods in their order, a few at a time, each only while the proof holds: one that ran out is asked for again,
// and if it does not come back the rest waits for the next look.
func (k *worker) each(v evict.View, to led, what evict.Act, list []evict.Pod, holds func() bool, act func(evict.View, evict.Pod, func(error))) {
	together, open, asking := 1+k.w.rng.IntN(3), 0, false
	all, how := list, map[string]evict.Refusal{}
	var more func()
	more = func() {
		for open < together && len(list) > 0 && !asking {
			if holds != nil && !holds() {
				asking = true
				k.ask(to, func() {
					asking = false
					if !holds() {
						list = nil
					}
					more()
				})
				return
			}
			p := list[0]
			list = list[1:]
			open++
			if holds != nil {
				v.Memory, v.Now = k.evict, k.w.now
			}
			act(v, p, func(err error) {
				open--
				how[p.UID] = refusal(err)
				if errors.Is(err, errTimeout) {
					list = nil
				}
				more()
			})
		}
		if open == 0 && len(list) == 0 && !asking {
			k.evict.Wrote(what, all, how, k.w.now)
			k.look()
		}
	}
	more()
}

// refusal sorts what a pod's write came to.
func refusal(err error) evict.Refusal {
	switch {
	case err == nil, errors.Is(err, errNotFound):
		return evict.Accepted
	case errors.Is(err, errConflict):
		return evict.Changed
	case errors.Is(err, errTooLarge):
		return evict.TooLarge
	default:
		return evict.Failed
	}
}

func (k *worker) tombstone(v evict.View, p evict.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	w.holdUp(k.Process, k.m)
	w.check.sent(v, p)
	at := w.now
	k.call(func() error {
		err := w.api.patchPod(k.name, p.Name, p.UID, p.ResourceVersion, func(o *corev1.Pod) {
			o.Status.Phase, o.Status.Reason = corev1.PodFailed, taint.TombstoneReason
			if p.Small {
				w.count("small tombstone")
				return
			}
			o.Status.Message = taint.TombstoneMessage + v.Look.Record.ID + ")"
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		})
		w.logf("%s: %s: tombstones %s (%s), sent %s ago: %v", k.name, k.m.name, p.Name, p.UID, w.now.Sub(at), err)
		if err == nil {
			w.count("tombstone")
			w.check.tombstoned(v, p, at)
		}
		w.jolt(k.Process, k.m)
		return err
	}, then)
}

func (k *worker) delete(v evict.View, p evict.Pod, returned bool, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	w.check.sentDelete(v, p, returned)
	k.call(func() error {
		err := w.api.deletePod(k.name, p.Name, p.UID, p.ResourceVersion, 0)
		w.logf("%s: %s: deletes %s (%s): %v", k.name, k.m.name, p.Name, p.UID, err)
		if err == nil {
			w.count("delete")
		}
		w.jolt(k.Process, k.m)
		return err
	}, then)
}

func (k *worker) spare(v evict.View, p evict.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	k.call(func() error {
		err := w.api.patchPod(k.name, p.Name, p.UID, p.ResourceVersion, func(o *corev1.Pod) {
			if p.Small { // any change will do: it is the new resourceVersion that counts
				w.count("small spare")
				o.Status.Message = "spared"
				return
			}
			o.Annotations = map[string]string{taint.SparedAnnotation: v.Look.Record.Token()}
		})
		w.logf("%s: %s: spares %s (%s): %v", k.name, k.m.name, p.Name, p.UID, err)
		if err == nil {
			w.count("spare")
		}
		return err
	}, then)
}

// podsOf reduces pods to what Step needs.
func podsOf(list []*corev1.Pod) []evict.Pod {
	out := make([]evict.Pod, 0, len(list))
	for _, p := range list {
		e := evict.Pod{
			Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
			Exempt: taint.Exempt(p, taint.DefaultKey), Terminal: taint.IsTerminal(p), Tombstone: taint.IsTombstone(p), Spared: taint.SparedBy(p),
			Deleting: p.DeletionTimestamp != nil, Finalizers: p.Finalizers, Tolerations: p.Spec.Tolerations,
		}
		if e.Deleting {
			e.Grace = *p.DeletionGracePeriodSeconds
		}
		for _, v := range volumesOf(p) {
			e.Volumes = append(e.Volumes, evict.Volume{PV: v, Unique: unique(v)})
		}
		out = append(out, e)
	}
	return out
}

func attachedOf(list []*storagev1.VolumeAttachment) []evict.Attachment {
	var out []evict.Attachment
	for _, a := range list {
		out = append(out, evict.Attachment{
			Name: a.Name, PV: *a.Spec.Source.PersistentVolumeName, Deleting: a.DeletionTimestamp != nil,
		})
	}
	return out
}

// lead makes p the leader. The one before may not know yet.
func (p *Process) lead() {
	p.w.leader = p.index
	p.leading = true
	p.w.logf("%s: leads", p.name)
	p.begin()
}

// crash loses all memory; somebody leads again soon.
func (p *Process) crash() {
	p.w.logf("%s: crashes", p.name)
	p.w.count("crash")
	p.leading = false
	p.begin()
	p.w.elect(p)
}

// pause stops the process where it is, for d; if that is long enough another one leads meanwhile.
func (p *Process) pause(d time.Duration) {
	if p.paused || !p.leading {
		return
	}
	p.w.logf("%s: stopped for %s", p.name, d)
	p.w.count("pause")
	p.paused = true
	if d > 2*time.Second {
		p.w.elect(p)
	}
	life := p.life
	p.w.after(d, func() {
		if p.life != life {
			return
		}
		p.w.logf("%s: goes on", p.name)
		p.paused = false
		todo := p.stopped
		p.stopped = nil
		for _, do := range todo {
			p.after(0, do)
		}
	})
}

// elect makes another process the leader, after the old one's lease has run out, or the same one where there is no other.
func (w *World) elect(old *Process) {
	if w.leader != old.index {
		return
	}
	w.leader = -1
	w.after(w.between(500*time.Millisecond, 6*time.Second), func() {
		if w.leader >= 0 {
			return
		}
		standby := slices.DeleteFunc(slices.Clone(w.procs), func(p *Process) bool { return p.paused })
		if len(standby) > 1 {
			standby = slices.DeleteFunc(standby, func(p *Process) bool { return p == old })
		}
		if len(standby) == 0 {
			standby = w.procs[:1]
		}
		standby[0].lead()
	})
}
