package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/recording"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
	"github.com/forcefence/forcefence/taint/reason"
)

// Process is one forcefence controller: it does what each node's course (taint/decide) says, as taint/controller does
// in production, with every request split into its arrival at the API server and the arrival of the answer, either of
// which may be late or lost. A crash loses all of it but what was written.
type Process struct {
	w       *World
	name    string
	index   int
	life    int  // what belongs to an earlier life is dropped
	leading bool // it believes so
	since   time.Time
	heardAt time.Time // when its watches brought the last news
	deaf    time.Time // until when they bring nothing
	paused  bool      // SIGSTOP: nothing of it runs until it is resumed
	stopped []func()
	asleep  time.Time     // since when its machine is suspended; zero: it is not
	slept   time.Duration // for how long that was before, in all
	heldUp  time.Duration // how much longer the next request is on its way
	workers []*worker
	fleet   fleet.Fleet
	former  *taint.FormerMachines
	cacheAt time.Time // how old its cache of attachments is
	stuck   time.Time // until when that cache misses every event

	work work

	poolAt, poolRead time.Time // how old its cache of the storage system is, and since when it is there

	unanswered int // requests in a row that got no answer

	fence fence.Settings
	evict evict.Settings
}

// worker is a process' work on one node.
type worker struct {
	*Process
	m       *machine
	course  recording.Recorder
	next    action.Decision // that is carried out now
	decided decision        // the one before
	led     led             // whom the last look leads to
	looked  *corev1.Node
	watched map[types.UID]request.Watched // by request

	busy   bool                   // in the middle of a step
	spent  bool                   // the last look: a wait or a failed read came after it
	asked  bool                   // and nothing was read since
	said   []providers.PowerState // what each device said last, but for On of what feeds the machine
	states []providers.PowerState // what each said, in the order of led.to, as it counts
	turn   int                    // counts looks: a wait that was cut short is dropped
	seen   string                 // what the last look saw: nothing to do until it differs
	polled time.Time              // when it looked last

	pods   []action.Pod // that were listed last, with their volumes
	listed bool         // since the last look
	atts   []action.Attachment

	heard        *corev1.Node // a write makes another one
	heardMachine *corev1.Node // the same, also while another process leads
	told         taint.Look   // what the watch told of it
	gone         *goneCourse  // the Node was deleted; nil: it was not

	leaseRV string // the watch on leases
	pinning bool
	refusal refusalNote
	pinSeen string // the Node's resourceVersion at which there was nothing to pin

	line     bool      // somebody accepted the line to the node, and it was not told as broken since
	lineEnds time.Time // when that is told; zero: somebody answers
	polling  bool      // a device is asked without need
	pollDue  time.Time // when one is asked next
}

func (p *Process) begin() {
	p.life++
	p.workers, p.stopped, p.paused = nil, nil, false
	p.wake()
	p.fleet, p.stuck, p.deaf, p.unanswered = fleet.Fleet{}, time.Time{}, time.Time{}, 0
	p.fleet.SetLimits(&p.w.storm.limits)
	p.former = &taint.FormerMachines{}
	p.work = work{busy: map[string]bool{}, due: map[string]time.Time{}}
	for _, m := range p.w.machines {
		k := &worker{Process: p, m: m, watched: map[types.UID]request.Watched{},
			course: recording.Recorder{Node: &decide.Node{}, Name: m.name}}
		if p.w.Tape != nil {
			k.course.Tape = func(line []byte) bool {
				p.w.Tape(p.name, line)
				return true
			}
		}
		p.workers = append(p.workers, k)
	}
	if p.w.pool != nil {
		p.poolAt, p.poolRead = time.Time{}, p.w.now.Add(p.w.between(0, 3*time.Second))
	}
	p.after(0, p.tick)
}

// now is this moment by the process's clocks. The monotonic one stops while its machine is suspended.
func (p *Process) now() providers.Instant {
	now := p.w.instant()
	if now.Mono -= p.slept; !p.asleep.IsZero() {
		now.Mono -= p.w.now.Sub(p.asleep)
	}
	return now
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
	// in the small world it goes on for a while
	if p.leading && !p.w.calm && (p.w.Small != nil && p.w.now.Sub(p.w.deposed) < staleFor || p.w.chance(0.7)) {
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
	lost, unheard := w.down || !w.calm && w.rng.rare(0.01), !w.calm && w.rng.rare(0.01)
	answered := false
	answer := func(err error) {
		if !answered {
			answered = true
			p.fleet.ApplyReadResult(errors.Is(err, errTimeout), p.now())
			if p.unanswered++; !errors.Is(err, errTimeout) {
				p.unanswered = 0
			}
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
	for _, k := range p.workers {
		k.hearMachine()
	}
	if p.leading {
		for _, k := range p.workers {
			k.hear()
			k.follow()
		}
		p.hearTwin()
		for _, k := range p.workers {
			k.watch()
		}
		p.tendNeighbours()
	}
	p.after(p.w.between(300*time.Millisecond, 1200*time.Millisecond), p.tick)
}

// hearMachine notes whose machine a deleted Node had. Each process does, whether it leads or not.
func (k *worker) hearMachine() {
	switch n := k.w.api.node(k.m.name); {
	case k.w.down || k.w.now.Before(k.deaf):
	case n == nil:
		k.former.ApplyDeletion(k.m.name)
	case n != k.heardMachine:
		k.former.ApplyNode(n)
		k.heardMachine = n
	}
}

// hear folds what the watches bring into the fleet.
func (k *worker) hear() {
	w := k.w
	n, lease := w.api.node(k.m.name), w.api.lease(k.m.name)
	k.fleet.Tick(k.now())
	if w.down || w.now.Before(k.deaf) {
		return // no watch brings anything
	}
	k.heardAt = w.now
	if n == nil {
		if k.heard != nil {
			k.gone = &goneCourse{GoneNode: decide.GoneNode{Since: k.now()}, node: k.heard}
		}
		k.heard = nil
		k.fleet.RemoveNode(k.m.name, k.now())
		return
	}
	k.gone = nil
	if n != k.heard {
		k.heard = n
		k.told = k.lookAt(n, nil)
	}
	k.fleet.ApplyLook(k.told, k.now())
	if lease != nil {
		k.leaseRV = lease.ResourceVersion
		k.fleet.ApplyLease(k.m.name, lease.ResourceVersion, taint.LeaseDuration(lease), k.now())
	}
}

// watch comes to the node if there is something to look at.
func (k *worker) watch() {
	w := k.w
	n, lease := w.api.node(k.m.name), w.api.lease(k.m.name)
	if w.down || w.now.Before(k.deaf) || n == nil || k.busy {
		if n == nil && !k.busy && w.cloud.deletes {
			k.followGone()
		}
		return
	}
	l := k.told // hear made it of this Node
	if l.Sent, l.Got = k.now(), k.now(); lease != nil {
		l.LeaseRV, l.LeaseDuration = lease.ResourceVersion, taint.LeaseDuration(lease)
	}
	v := k.fleet.View(k.m.name, k.now())
	if w.pool != nil {
		k.course.Apply(k.now(), &k.fleet, decide.StorageReported{Policies: w.policies(), Health: k.storage(k.m.name)})
	}
	if k.course.IsIdle(l, v) {
		k.course.Apply(l.Got, &k.fleet, decide.NodeIdle{Look: l})
		k.pin(n)
		k.poll(n, l)
		return
	}
	if k.seen != n.ResourceVersion+k.leaseRV+v.Suspicion(l) ||
		w.pool != nil && w.now.Sub(k.polled) >= w.pool.rule.Intervals.Poll {
		k.look()
	}
}

func (p *Process) deviceEvent(node string) {
	p.after(p.w.latency(), func() { p.fleet.ApplyHint(node, fleet.Push, p.now()) })
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

// look goes on with the node's course.
func (k *worker) look() {
	k.busy = true
	k.turn++
	k.advance()
}

// wait looks again after d; a change that the watch sees ends the wait earlier.
func (k *worker) wait(d time.Duration) {
	k.busy, k.spent = false, true
	turn := k.turn
	k.after(d, func() {
		if !k.busy && k.turn == turn {
			k.look()
		}
	})
}

// advance carries out the course's next decision. The worker is its World; what becomes of it is applied when it is
// there.
func (k *worker) advance() {
	w, ctx := k.w, context.Background()
	d := k.course.Next(k.now(), &k.fleet)
	k.next = d
	if action.IsRead(d.Action) {
		k.asked = false
		decide.Do(ctx, d.Action, k)
		return
	}
	if k.asked {
		k.asked = false
		w.count("kept a slow look")
	}
	if k.spent {
		w.fail("look", "%s of %s after a wait, on the look before it", action.Name(d.Action), k.m.name)
	}
	k.cover(d)
	k.noteRefusal()
	w.logf("%s: %s: %s %s %s", k.name, k.m.name, action.Name(d.Action), d.Reason, d.Detail)
	for _, n := range d.Notes {
		w.count(string(n.Why))
	}
	if d.PolicyBlock.Why != "" {
		w.count("aside: " + string(d.PolicyBlock.Why))
	}
	if action.Is[action.Wait](d) && counted[d.Reason] {
		w.count("waits: " + string(d.Reason))
	}
	if d.Alert != "" {
		w.check.alert(k.m.name, d.Alert)
	}
	switch {
	case action.Is[action.NoAction](d):
		if d.Reason == reason.BadRecord {
			w.check.alert(k.m.name, string(d.Reason))
		}
		k.busy = false
	case action.Is[action.Wait](d):
		k.wait(d.RequeueAfter)
	default:
		decide.Do(ctx, d.Action, k)
	}
}

// saw applies what a read brought, and goes on.
func (k *worker) saw(o decide.Observation) {
	k.course.Apply(k.now(), &k.fleet, o)
	k.advance()
}

// AskDevices puts the question to the node's devices.
func (k *worker) AskDevices(context.Context) decide.Observation {
	k.w.check.asked(k.course.Look())
	k.ask(k.advance)
	return nil
}

// WriteRecord writes the record.
func (k *worker) WriteRecord(_ context.Context, a action.WriteRecord) decide.Observation {
	w, l, why := k.w, k.course.Look(), k.next.Reason
	if a.Record.Phase == taint.PhasePoweringOff {
		w.check.begins(l, "announcement of a power-off")
		w.check.keptOn(l, "announcement of a power-off")
	} else if a.Record.Phase == taint.PhaseArmed && !l.Record.IsOpen() &&
		w.machine(l.Name).still(l.Sent.Wall, fence.Shadow, fence.Disabled) {
		w.fail("mode", "a person's mark of %s is taken up, whose mode is shadow or disabled", l.Name)
	}
	switch before := l.Record; {
	case a.Record.Phase != taint.PhaseEvicting || why == reason.Adopting: // a mark overwritten in the middle goes on
	case before.IsOpen() && before.Phase == taint.PhaseEvicting:
		if !slices.Equal(a.Record.Detaching, before.Detaching) { // else it adds an answer
			w.check.names(k.grounds())
		}
	default:
		w.check.proof(k.grounds(), "beginning of the eviction")
		w.check.lifeless(l, "beginning of the eviction")
	}
	if why == reason.NeverOff {
		w.check.accused(k.m, a.Record)
	}
	k.patch(l, a.Record, func(n *corev1.Node) {
		if a.Record.Phase == taint.PhaseDone {
			n.Spec.Taints = taint.WithoutOutOfService(n.Spec.Taints)
		}
	}, string(why))
	return nil
}

// AnnouncePolicy names policies on the Node.
func (k *worker) AnnouncePolicy(_ context.Context, a action.AnnouncePolicy) decide.Observation {
	k.patchNode(k.course.Look(), func(n *corev1.Node) { note(n, taint.PolicyAnnotation, a.Note) }, "AnnouncePolicy")
	return nil
}

// SetMark sets the mark.
func (k *worker) SetMark(_ context.Context, a action.SetMark) decide.Observation {
	w, l := k.w, k.course.Look()
	w.check.arm(k.grounds())
	w.check.begins(l, "the mark")
	w.check.parts(l.Name, k.led.to, k.states)
	why := k.fleet.View(l.Name, k.now()).Suspicion(l)
	k.patch(l, a.Record, func(n *corev1.Node) {
		w.begun(why)
		n.Spec.Taints = taint.WithMark(n.Spec.Taints, taint.DefaultKey, a.Record.ID, w.now)
	}, "SetMark")
	return nil
}

// RemoveMark takes the mark off.
func (k *worker) RemoveMark(_ context.Context, a action.RemoveMark) decide.Observation {
	w := k.w
	if k.next.Reason == reason.NeverOff {
		w.check.accused(k.m, a.Record)
	}
	w.check.unmark(k.grounds())
	k.patch(k.course.Look(), a.Record, func(n *corev1.Node) {
		n.Spec.Taints = taint.WithoutOutOfService(taint.WithoutMark(n.Spec.Taints, taint.DefaultKey, a.Record.ID))
	}, "RemoveMark")
	return nil
}

// AddOutOfServiceTaint sets Kubernetes' own taint.
func (k *worker) AddOutOfServiceTaint(context.Context) decide.Observation {
	k.w.check.outOfService(k.grounds())
	k.patchNode(k.course.Look(), func(n *corev1.Node) {
		n.Spec.Taints = append(taint.WithoutOutOfService(n.Spec.Taints), taint.OutOfService(k.w.now))
	}, "AddOutOfServiceTaint")
	return nil
}

// RemoveOutOfServiceTaint takes it off.
func (k *worker) RemoveOutOfServiceTaint(context.Context) decide.Observation {
	k.patchNode(k.course.Look(), func(n *corev1.Node) { n.Spec.Taints = taint.WithoutOutOfService(n.Spec.Taints) },
		"RemoveOutOfServiceTaint")
	return nil
}

// SetPoweredOnCondition says that the machine is on, or takes that back.
func (k *worker) SetPoweredOnCondition(_ context.Context, a action.SetPoweredOnCondition) decide.Observation {
	k.patchNode(k.course.Look(), func(n *corev1.Node) { setPoweredOn(n, a.On, k.w.now) }, "SetPoweredOnCondition")
	return nil
}

// ExpireReady ends a stale Ready.
func (k *worker) ExpireReady(context.Context) decide.Observation {
	k.w.check.expire(k.grounds())
	k.patchNode(k.course.Look(), func(n *corev1.Node) { setReady(n, corev1.ConditionUnknown, k.w.now) }, "ExpireReady")
	return nil
}

// EndPods ends pods.
func (k *worker) EndPods(_ context.Context, a action.EndPods) decide.Observation {
	if a.Urgent {
		k.w.count("urgent pods ended")
	}
	k.each(k.tombstone)
	return nil
}

// DeletePods deletes ended pods.
func (k *worker) DeletePods(context.Context, action.DeletePods) decide.Observation {
	k.each(k.delete)
	return nil
}

// SparePods spares pods.
func (k *worker) SparePods(context.Context, action.SparePods) decide.Observation {
	k.each(k.spare)
	return nil
}

// SetPodsNotReady sets pods that stay not ready.
func (k *worker) SetPodsNotReady(context.Context, action.SetPodsNotReady) decide.Observation {
	k.each(k.setNotReady)
	return nil
}

// read puts a read on its way: do runs at the server, then brings what it found. What fails is tried again in a second.
func (k *worker) read(what string, do func(), found func() decide.Observation) decide.Observation {
	k.get(what, do, func(err error) {
		if err != nil {
			k.wait(time.Second)
			return
		}
		k.saw(found())
	})
	return nil
}

// ListPods lists the node's pods.
func (k *worker) ListPods(context.Context) decide.Observation {
	var ps []*corev1.Pod
	return k.read("pods", func() { ps = k.w.api.podsOn(k.m.name) }, func() decide.Observation {
		k.pods, k.listed = podsOf(ps), true
		return decide.PodsListed{Pods: unresolved(k.pods)}
	})
}

// ReadVolumes reads the volumes of pods: claims and volumes do not change in here.
func (k *worker) ReadVolumes(context.Context, action.ReadVolumes) decide.Observation {
	return k.read("volumes", func() {}, func() decide.Observation {
		of := map[string][]action.Volume{}
		for i, p := range k.pods {
			of[p.UID] = k.w.judged(p.Volumes)
			k.pods[i].Volumes = of[p.UID]
		}
		return decide.VolumesRead{ByPod: of}
	})
}

// ListAttachments lists what is attached to the node.
func (k *worker) ListAttachments(_ context.Context, a action.ListAttachments) decide.Observation {
	w, name := k.w, k.m.name
	if !a.Live {
		k.atts = attachedOf(k.cachedAttachments(name))
		k.saw(decide.AttachmentsListed{Attachments: k.atts})
		return nil
	}
	if k.course.Look().Mark == nil {
		w.count("live before the mark")
	}
	return k.read("attachments", func() { k.atts = attachedOf(w.api.attachmentsOf(name)) }, func() decide.Observation {
		return decide.AttachmentsListed{Attachments: k.atts, Live: true}
	})
}

// ListEtcdPods reads who is of etcd.
func (k *worker) ListEtcdPods(context.Context) decide.Observation {
	var members map[string]bool
	return k.read("members", func() { members = k.w.members() }, func() decide.Observation {
		return decide.EtcdPodsListed{Ready: members}
	})
}

// ReadClaims reads the claims of volumes, which do not change in here.
func (k *worker) ReadClaims(_ context.Context, a action.ReadClaims) decide.Observation {
	return k.read("claims", func() {}, func() decide.Observation {
		claims := map[string]string{}
		for _, pv := range a.PVs {
			claims[pv] = k.w.user.claimOf(pv)
		}
		return decide.ClaimsRead{ByVolume: claims}
	})
}

// ReadAwaitedClaims reads what Pending pods wait for.
func (k *worker) ReadAwaitedClaims(context.Context, action.ReadAwaitedClaims) decide.Observation {
	var claims map[string]bool
	return k.read("waiting", func() { claims = k.w.waiting(k.m.name) }, func() decide.Observation {
		return decide.AwaitedClaimsRead{Claims: claims}
	})
}

// ReadOwners is asked for by no policy of a history.
func (k *worker) ReadOwners(context.Context, action.ReadOwners) decide.Observation {
	panic("no policy of a history asks for owners")
}

// ReadStorageSetting is asked for by no policy of a history.
func (k *worker) ReadStorageSetting(context.Context) decide.Observation {
	panic("no policy of a history yields")
}

// WithdrawOrders takes back what Metal3's operator has not carried out, and then writes the record without it.
func (k *worker) WithdrawOrders(ctx context.Context, a action.WithdrawOrders) decide.Observation {
	if !k.may() {
		return nil
	}
	k.call(func() error {
		k.w.count("order withdrawn")
		for _, o := range a.Orders {
			k.w.machine(o.Machine.ID).order = nil
		}
		return nil
	}, func(err error) {
		if err != nil {
			k.did(decide.ActionDone{Err: err})
			return
		}
		k.WriteRecord(ctx, action.WriteRecord{Record: a.Record})
	})
	return nil
}

// get puts a read on its way: do runs at the server.
func (k *worker) get(what string, do func(), then func(error)) {
	k.call(func() error {
		k.w.receive(k.name, "get", what+" of "+k.m.name, nil)
		do()
		return nil
	}, then)
}

// ReadNode reads Node and Lease live. They are sent together: either may be the older one.
func (k *worker) ReadNode(context.Context) decide.Observation {
	w, name, sent := k.w, k.m.name, k.now()
	var node *corev1.Node
	var lease *coordinationv1.Lease
	first, second := func() { node = w.api.node(name) }, func() { lease = w.api.lease(name) }
	if w.chance(0.5) {
		first, second = second, first
	}
	k.get("life", first, func(err error) {
		if err != nil {
			k.wait(time.Second)
			return
		}
		k.get("life", second, func(err error) {
			if err != nil {
				k.wait(time.Second)
				return
			}
			k.readElsewhere(node, lease, sent)
		})
	})
	return nil
}

// readElsewhere reads live what is said of the node elsewhere, where that may be and decides something, and folds the
// look in.
func (k *worker) readElsewhere(node *corev1.Node, lease *coordinationv1.Lease, sent providers.Instant) {
	w, name := k.w, k.m.name
	if w.Tape != nil && node != nil { // as an API server hands it over, whose times have no parts of a second
		text, _ := json.Marshal(node)
		node = &corev1.Node{}
		_ = json.Unmarshal(text, node) // of what was written just now
	}
	l := taint.NewLook(node, lease, taint.DefaultKey, sent, k.now())
	look := func(elsewhere string, storage map[string]policy.StorageFence) {
		k.listed, k.spent, k.led, k.looked, k.polled = false, false, led{}, node, w.now
		facts := decide.Facts{
			Facts: fence.Facts{Settings: k.Process.fence, NewID: w.id("f"), By: k.name}, Evict: k.evict,
			Policies: w.policies(), Storage: k.storage(name), StorageFences: storage,
		}
		if l.Exists {
			k.led = k.ledBy(node, l)
			facts.Mode, facts.RequestedBy, facts.Devices = k.led.mode, k.m.requestedBy(node), k.led.devices()
			facts.Excluded, facts.KeptOn = cmp.Or(fence.ExclusionReason(node, w.now), elsewhere),
				cmp.Or(fence.KeepOnReason(node, w.rules.cordoned), w.near.keptOn(node))
		}
		if len(k.led.to) == 0 {
			facts.NoDeviceErr = errors.New(k.led.why)
		}
		k.course.Apply(l.Got, &k.fleet, decide.NodeRead{Look: l, Facts: facts, Node: node})
		k.seen = l.ResourceVersion + l.LeaseRV + k.fleet.View(name, k.now()).Suspicion(l)
		k.advance()
	}
	saw := func(elsewhere string) {
		k.readFences(l, node, func(storage map[string]policy.StorageFence) {
			if storage != nil {
				l.Got = k.now()
			}
			look(elsewhere, storage)
		})
	}
	if !w.rules.words || !l.Exists || l.Mark != nil || fence.ExclusionReason(node, w.now) != "" {
		saw("")
		return
	}
	var elsewhere string
	k.get("elsewhere", func() { elsewhere = w.excluded(name) }, func(err error) {
		if err != nil {
			k.wait(time.Second)
			return
		}
		saw(elsewhere)
	})
}

// unresolved are pods as a list brings them, without their volumes.
func unresolved(pods []action.Pod) []action.Pod {
	out := slices.Clone(pods)
	for i := range out {
		out[i].Volumes, out[i].Claims = nil, len(out[i].Volumes) > 0
	}
	return out
}

// ask puts the question to the node's device.
func (k *worker) ask(then func()) {
	w := k.w
	w.jolt(k.Process, k.m)
	life := k.life
	to := k.led.to
	w.ask(k.m, to, k.now, func(all []providers.Answer) {
		k.within(life, 0, func() {
			k.said = nil
			known := false
			for i, a := range all {
				known = known || !to[i].Feeds && a.State != providers.PowerUnknown
			}
			k.states = nil
			for i, a := range all {
				state := a.State
				if state == providers.PowerOff && a.Got.Sub(a.At) > proofTTL { // too long on its way
					state = providers.PowerUnknown
				}
				k.states = append(k.states, state)
				w.logf("%s: %s is %s (%s, asked %s ago)", k.name, to[i].Name, a.State, a.Raw, w.now.Sub(a.At.Wall))
				// a machine that was shut down keeps its outlets
				if to[i].Feeds && a.State == providers.PowerOn && known {
					continue
				}
				k.said = append(k.said, a.State)
			}
			k.course.Apply(k.now(), &k.fleet, decide.DevicesAnswered{Answers: all})
			if v := k.course.Answer(); errors.Is(v.Err, proof.ErrDisagree) {
				w.count("devices disagree")
			}
			k.asked = true
			then()
		})
	})
}

// PowerOff sends the power-off.
func (k *worker) PowerOff(_ context.Context, a action.PowerOff) decide.Observation {
	w, l, by := k.w, k.course.Look(), k.led.to[a.Move.Device]
	if !k.may() {
		return nil
	}
	var sent providers.Instant
	order := func(t providers.Target, which int) error {
		err := by.of.orderOff(t, which)
		if err == nil {
			w.check.acceptedOff(l, by)
		}
		return err
	}
	k.act(by, "power-off", order, func(l taint.Look) {
		sent = k.now()
		w.count("PowerOff")
		w.check.powerOff(l, k.Process)
		w.check.guards(l, k.Process)
		w.check.level(k.Process, l, k.led.to, k.states, a.Move.Device)
		w.check.sentOff(l, k.Process)
	}, func(err error) {
		late := errors.Is(err, errNotSent)
		if !late {
			w.check.taken(k.Process, k.m.name, by, err)
		}
		k.did(decide.ActionDone{SentAt: sent, Err: err, Withheld: late})
	})
	w.jolt(k.Process, k.m)
	return nil
}

// PowerOn sends the power-on through one device after the other.
func (k *worker) PowerOn(_ context.Context, a action.PowerOn) decide.Observation {
	w := k.w
	if !k.may() {
		return nil
	}
	sent, devices := k.now(), a.Devices
	one := func(l taint.Look) {
		w.count("PowerOn")
		w.check.powerOn(l, k.m)
	}
	var refused error
	var next func()
	next = func() {
		if len(devices) == 0 {
			k.did(decide.ActionDone{SentAt: sent, Err: refused})
			return
		}
		by, first := k.led.to[devices[0]], len(devices) == len(a.Devices)
		devices = devices[1:]
		k.act(by, "power-on", by.of.orderOn, one, func(err error) {
			if errors.Is(err, errNotSent) { // the same is true of the devices that follow
				k.did(decide.ActionDone{SentAt: sent, Err: err, Withheld: first})
				return
			}
			if err != nil {
				refused = err
			}
			next()
		})
		one = func(taint.Look) {}
	}
	next()
	w.jolt(k.Process, k.m)
	return nil
}

// act has a device carry out a power action as a provider does. First the provider is busy for a while, then it asks
// StillHolds, and then it sends the request, which takes at most actDeadline. sent runs when the request is sent, then
// runs with the answer.
func (k *worker) act(
	by speaker, what string, order func(providers.Target, int) error, sent func(taint.Look), then func(error),
) {
	w, life := k.w, k.life
	k.within(life, w.wires.busy(k), func() {
		if err := k.still(); err != nil && !w.Unchecked {
			w.count("not sent")
			w.logf("%s: %s: nothing is sent: %v", k.name, k.m.name, err)
			then(errNotSent)
			return
		}
		last := lastCheck{k.Process, k.course.Look(), w.now, k.heardAt, what}
		w.check.allowed(last)
		sent(last.look)
		w.after(w.wires.way(k), func() {
			w.check.arrives(last)
			err := order(by.target, by.which)
			k.within(life, w.latency(), func() { then(err) })
		})
	})
}

// still is the last check before a power action, by what the process knows now.
func (k *worker) still() error {
	w := k.w
	r := decide.Recheck{Fleet: k.fleet.View(k.m.name, k.now())}
	if w.leader >= 0 && w.leader != k.index {
		r.Leading = errors.New("another leads")
	}
	if w.rules.words && !w.down && w.api.pause != nil { // it is read once more
		if p := fence.PauseOf(w.api.pause); !p.IsOver(w.now) {
			r.Paused = p.String()
		}
	}
	if k.heard != nil {
		r.Seen = k.told
		newer := k.heard
		if k.course.AheadOf(k.told) {
			newer = k.looked
		}
		r.Facts = fence.Facts{
			Mode:        k.m.chosenMode(newer),
			RequestedBy: k.m.requestedBy(newer),
			Excluded:    fence.ExclusionReason(newer, w.now), KeptOn: fence.KeepOnReason(newer, w.rules.cordoned),
		}
	}
	return k.course.StillHolds(k.now(), r)
}

// did tells the course how an act ended, and goes on.
func (k *worker) did(o decide.ActionDone) {
	k.course.Apply(k.now(), &k.fleet, o)
	k.look()
}

// patch writes the record, and with edit the mark, under the look's resourceVersion.
func (k *worker) patch(l taint.Look, r taint.Record, edit func(*corev1.Node), what string) {
	k.patchNode(l, func(n *corev1.Node) {
		setRecord(n, r.Encode())
		if edit != nil {
			edit(n)
		}
	}, what+" "+string(r.Phase)+" "+string(r.Result))
}

// patchNode writes the Node.
func (k *worker) patchNode(l taint.Look, edit func(*corev1.Node), what string) {
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
	}, func(err error) { k.did(decide.ActionDone{Err: err}) })
}

// ClearVolumes clears the node's lists.
func (k *worker) ClearVolumes(_ context.Context, a action.ClearVolumes) decide.Observation {
	w := k.w
	if !k.maySend("") {
		k.did(decide.ActionDone{Withheld: true})
		return nil
	}
	what := "ClearVolumes"
	if a.Policy == "" {
		w.check.clear(k.grounds())
	} else {
		w.check.clearedFor(k.grounds())
		what = "cleared by a policy"
	}
	k.patchNode(k.course.Look(), func(n *corev1.Node) {
		n.Status.VolumesInUse, n.Status.VolumesAttached = a.InUse, a.Attached
	}, what)
	return nil
}

// grounds are what the decision was made on, for the checker.
func (k *worker) grounds() grounds {
	hint := k.fleet.View(k.m.name, k.now()).Hint
	return grounds{
		Decision: k.next, look: k.course.Look(), answer: k.course.Answer(), pods: k.pods, atts: k.atts, said: k.said,
		device: len(k.led.to) > 0, trust: k.evict.TrustPerson,
		by: k.Process, hinted: hint != "" && hint != fleet.Poll,
	}
}

// each acts on the pods in their order, a few at a time, each only while that holds: a proof that ran out is asked for
// again, and if it does not come back the rest waits for the next look.
func (k *worker) each(act func(grounds, action.Pod, func(error))) {
	if !k.listed {
		k.w.count("by a kept list")
	}
	together, open, asking := 1+k.w.rng.IntN(3), 0, false
	list, how := action.PodsOf(k.next.Action), map[string]action.WriteResult{}
	var more func()
	more = func() {
		for open < together && len(list) > 0 && !asking {
			p := list[0]
			switch _, hold := k.course.MaySend(p.UID, k.now(), k.fleet.View(k.m.name, k.now())); hold {
			case decide.HoldNo:
				list = nil
				continue
			case decide.HoldSkipPod:
				k.w.count("left to stock eviction before its write")
				list = list[1:]
				continue
			case decide.HoldAskFirst:
				asking = true
				k.ask(func() {
					asking = false
					if !k.maySend("") {
						list = nil
					}
					more()
				})
				return
			}
			list = list[1:]
			open++
			act(k.grounds(), p, func(err error) {
				open--
				how[p.UID] = refusal(err)
				if errors.Is(err, errTimeout) {
					list = nil
				}
				more()
			})
		}
		if open == 0 && len(list) == 0 && !asking {
			k.did(decide.ActionDone{Results: how})
		}
	}
	more()
}

// maySend reports whether a write of the pod may be sent now, or of what else the action writes: "".
func (k *worker) maySend(uid string) bool {
	_, hold := k.course.MaySend(uid, k.now(), k.fleet.View(k.m.name, k.now()))
	return hold == decide.HoldYes
}

// DeleteAttachments deletes one after the other, each only while that holds.
func (k *worker) DeleteAttachments(_ context.Context, act action.DeleteAttachments) decide.Observation {
	w, list, how := k.w, act.Attachments, map[string]action.WriteResult{}
	var next func()
	next = func() {
		if len(list) == 0 || !k.maySend("") {
			k.did(decide.ActionDone{Results: how})
			return
		}
		a := list[0]
		list = list[1:]
		g := k.grounds()
		w.jolt(k.Process, k.m)
		if act.Policy != "" {
			w.check.byPolicy(g, "deletion of attachment "+a.Name)
		} else {
			w.check.proof(g, "deletion of attachment "+a.Name)
			w.count("attachment deleted after its time")
		}
		k.call(func() error {
			w.check.detach(g, a)
			err := w.api.deleteAttachment(a.Name, a.UID, a.ResourceVersion)
			w.logf("%s: %s: deletes attachment %s (%s): %v", k.name, k.m.name, a.Name, a.UID, err)
			return err
		}, func(err error) {
			how[a.UID] = refusal(err)
			next()
		})
	}
	next()
	return nil
}

// counted are the reasons to wait whose histories are counted.
var counted = map[reason.Reason]bool{
	reason.PowerOffLimit: true, reason.TooFewHealthy: true, reason.DomainLost: true, reason.DevicesCut: true,
	reason.CutOff: true, reason.CoolDown: true,
	reason.Quorum: true, reason.ControlPlane: true, reason.KeptOn: true, reason.Excluded: true,
	reason.ModeDisabled: true, reason.WouldPowerOff: true,
	reason.WouldRecover: true, reason.MarkNotTaken: true, reason.LevelDelay: true, reason.NotAccepted: true,
	reason.SharedMachine: true,
}

// refusal sorts what a pod's write came to.
func refusal(err error) action.WriteResult {
	switch {
	case err == nil, errors.Is(err, errNotFound):
		return action.Accepted
	case errors.Is(err, errConflict):
		return action.Changed
	case errors.Is(err, errTooLarge):
		return action.TooLarge
	default:
		return action.Failed
	}
}

// patchPod writes a pod in the version that was listed. done runs at the server with what came of it.
func (k *worker) patchPod(p action.Pod, edit func(*corev1.Pod), done func(error), then func(error)) {
	k.call(func() error {
		err := k.w.api.patchPod(k.name, p.Name, p.UID, p.ResourceVersion, edit)
		done(err)
		return err
	}, then)
}

func (k *worker) tombstone(g grounds, p action.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	w.holdUp(k.Process, k.m)
	w.check.sent(g, p)
	at := w.now
	ended := p
	k.patchPod(p, func(o *corev1.Pod) {
		o.Status.Phase, o.Status.Reason = corev1.PodFailed, taint.TombstoneReason
		if p.Small {
			w.count("small tombstone")
			return
		}
		o.Status.Message = taint.PolicyMessage(action.PolicyOf(g.Action))
		if action.PolicyOf(g.Action) == "" {
			o.Status.Message = taint.FenceMessage(g.look.Record.ID)
		}
		if p.Ready && p.ContainersReady {
			setPodReady(o, corev1.ConditionFalse, "PodFailed")
		}
		setPodCondition(o, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	}, func(err error) {
		w.logf("%s: %s: tombstones %s (%s), sent %s ago: %v", k.name, k.m.name, p.Name, p.UID, w.now.Sub(at), err)
		if err == nil {
			w.count("tombstone")
			if w.limits.device > 0 {
				w.count("tombstone behind a slow device")
			}
			w.check.tombstoned(g, p, at)
			ended.ResourceVersion, ended.Tombstone = w.api.pod(p.Name).ResourceVersion, true
		}
		w.jolt(k.Process, k.m)
	}, func(err error) {
		if err != nil || !p.AtOnce || !k.maySend(p.UID) {
			then(err)
			return
		}
		k.delete(k.grounds(), ended, func(error) { then(nil) }) // the device may have been asked again meanwhile
	})
}

func (k *worker) delete(g grounds, p action.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	w.check.sentDelete(g, p)
	k.call(func() error {
		err := w.api.deletePod(k.name, p.Name, p.UID, p.ResourceVersion, 0)
		k.wrote("delete", "deletes", p, err)
		w.jolt(k.Process, k.m)
		return err
	}, then)
}

// wrote notes what came of a pod's write.
func (k *worker) wrote(what, does string, p action.Pod, err error) {
	k.w.logf("%s: %s: %s %s (%s): %v", k.name, k.m.name, does, p.Name, p.UID, err)
	if err == nil {
		k.w.count(what)
	}
}

func (k *worker) spare(g grounds, p action.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	k.patchPod(p, func(o *corev1.Pod) {
		if p.Small { // any change will do: it is the new resourceVersion that counts
			w.count("small spare")
			o.Status.Message = "spared"
			return
		}
		o.Annotations = map[string]string{taint.SparedAnnotation: g.look.Record.Token()}
	}, func(err error) { k.wrote("spare", "spares", p, err) }, then)
}

func (k *worker) setNotReady(g grounds, p action.Pod, then func(error)) {
	w := k.w
	w.jolt(k.Process, k.m)
	w.check.sentNotReady(g, p)
	k.patchPod(p, func(o *corev1.Pod) {
		setPodCondition(o, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse,
			Reason: taint.TombstoneReason})
	}, func(err error) {
		if k.wrote("pod set not ready", "sets not ready", p, err); err == nil {
			w.check.notReady(g, k.m, p)
		}
	}, then)
}

// podsOf reduces pods to what Step needs.
func podsOf(list []*corev1.Pod) []action.Pod {
	out := make([]action.Pod, 0, len(list))
	for _, p := range list {
		e := action.Pod{
			Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
			Exempt: taint.ExemptionOf(p, taint.DefaultKey), Terminal: taint.IsTerminal(p),
			Tombstone: taint.IsTombstone(p), Spared: taint.SparedBy(p),
			Owner: ownerOf(p), Deleting: p.DeletionTimestamp != nil, Finalizers: p.Finalizers,
			Tolerations: p.Spec.Tolerations,
			Ready:       isTrue(p, corev1.PodReady), ContainersReady: isTrue(p, corev1.ContainersReady),
		}
		if p.Spec.Priority != nil {
			e.Priority = *p.Spec.Priority
		}
		if e.Deleting {
			e.Grace, e.DeleteAt = *p.DeletionGracePeriodSeconds, p.DeletionTimestamp.Time
		}
		for _, v := range volumesOf(p) {
			e.Volumes = append(e.Volumes, action.Volume{PV: v, Claim: v, Driver: "sim", Unique: unique(v)})
			e.ClaimNames = append(e.ClaimNames, v)
		}
		out = append(out, e)
	}
	return out
}

func ownerOf(p *corev1.Pod) action.Owner {
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		return action.Owner{Kind: ref.Kind, Name: ref.Name, Known: true}
	}
	return action.Owner{}
}

// What the storage system of a history does, by its seed; those below have none.
const (
	firstPool       = 8
	fencing         = firstPool + iota - 1 // it fences, and the policy deletes attachments
	fencingOnly                            // it fences, and the policy does not
	lying                                  // it is said to fence, and does not
	asWritten                              // nobody says that it fences
	kindsOfPolicies                        // how many there are
)

// policies are those of the scenario: one that acts at once, or one that waits for the deletionTimestamp; without and
// with what deletes attachments, and that alone; or one that asks the storage.
func (w *World) policies() []policy.Policy {
	if w.near != nil {
		return []policy.Policy{w.near.storage.rule}
	}
	if w.Scenario != Accepting {
		return nil
	}
	accept := func(p policy.Policy) policy.Policy {
		p.WithoutProof = policy.AcceptDuplicates
		return p
	}
	atOnce := accept(policy.Policy{Name: "at-once", When: policy.BecameNotReady})
	terminating := accept(policy.Policy{Name: "terminating", When: policy.NotReady, Terminating: true})
	wait := accept(
		policy.Policy{Name: "wait", When: policy.NotReady, Drivers: []string{"sim"}, Terminating: true, Keep: true,
			Detach: true})
	immediate := wait
	immediate.Name, immediate.Terminating, immediate.Replaced = "immediate", false, true
	if w.pool != nil {
		return []policy.Policy{w.pool.rule}
	}
	switch w.Seed % kindsOfPolicies {
	case 0, 2:
		return []policy.Policy{atOnce}
	case 1, 3:
		return []policy.Policy{terminating}
	case 4:
		atOnce.Drivers, atOnce.Detach = wait.Drivers, true
		return []policy.Policy{atOnce}
	case 5:
		return []policy.Policy{terminating, wait}
	case 6:
		return []policy.Policy{terminating, immediate}
	default:
		return []policy.Policy{wait}
	}
}

// waiting are the claims that Pending pods wait for, but on that node. Here a pod that is terminating is as good: a
// StatefulSet has no replacement beside it.
func (w *World) waiting(node string) map[string]bool {
	out := map[string]bool{}
	for _, p := range w.api.pods {
		if p.Status.Phase == corev1.PodPending && p.Spec.NodeName != node || p.DeletionTimestamp != nil {
			for _, v := range volumesOf(p) {
				out[p.Namespace+"/"+v] = true
			}
		}
	}
	return out
}

func attachedOf(list []*storagev1.VolumeAttachment) []action.Attachment {
	var out []action.Attachment
	for _, a := range list {
		out = append(out, action.Attachment{
			Name: a.Name, UID: string(a.UID), ResourceVersion: a.ResourceVersion,
			PV: *a.Spec.Source.PersistentVolumeName, Attacher: a.Spec.Attacher,
			Deleting: a.DeletionTimestamp != nil, NeverAttached: !a.Status.Attached && len(a.Finalizers) == 0,
		})
	}
	return out
}

// lead makes p the leader. The one before may not know yet.
func (p *Process) lead() {
	p.w.leader = p.index
	p.leading, p.since = true, p.w.now
	p.w.logf("%s: leads", p.name)
	former := p.former
	if p.begin(); former != nil { // it followed the Nodes before
		p.former = former
	}
}

// crash loses all memory; somebody leads again soon.
func (p *Process) crash() {
	p.w.logf("%s: crashes", p.name)
	p.w.count("crash")
	p.leading = false
	p.begin()
	p.w.elect(p)
}

// pause stops the process where it is, for d; if that is long enough another one leads meanwhile. Some processes are
// suspended with their machine. No other leads meanwhile, so these lead on.
func (p *Process) pause(d time.Duration) {
	if p.paused || !p.leading {
		return
	}
	p.w.logf("%s: stopped for %s", p.name, d)
	p.w.count("pause")
	p.paused = true
	// drawn, it would change what all other histories draw
	if suspended := (p.w.Seed+uint64(p.w.stats["pause"]))%3 == 0; suspended {
		p.w.count("suspended")
		p.asleep = p.w.now
	} else if d > 2*time.Second {
		p.w.elect(p)
	}
	life := p.life
	p.w.after(d, func() {
		if p.life != life {
			return
		}
		p.w.logf("%s: goes on", p.name)
		p.paused = false
		p.wake()
		todo := p.stopped
		p.stopped = nil
		for _, do := range todo {
			p.after(0, do)
		}
	})
}

// wake ends the suspension of the process's machine, if there is one.
func (p *Process) wake() {
	if !p.asleep.IsZero() {
		p.slept, p.asleep = p.slept+p.w.now.Sub(p.asleep), time.Time{}
	}
}

// stopProcesses is a person who stops all processes for that long.
func (w *World) stopProcesses(d time.Duration) {
	w.count("no process runs")
	w.noneUntil = w.now.Add(d)
	for _, p := range w.procs {
		p.crash()
	}
}

// elect makes another process the leader, after the old one's lease has run out, or the same one where there is no
// other.
func (w *World) elect(old *Process) {
	if w.leader != old.index {
		return
	}
	w.leader, w.deposed = -1, w.now
	w.electIn(old, w.between(500*time.Millisecond, 6*time.Second))
}

func (w *World) electIn(old *Process, d time.Duration) {
	w.after(d, func() {
		switch {
		case w.leader >= 0:
			return
		case w.now.Before(w.noneUntil):
			w.electIn(old, w.noneUntil.Sub(w.now))
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
