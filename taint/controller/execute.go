package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
)

// step does the next step of a node's course. It returns when to come again, or that it should be at once.
func (r *Reconciler) step(ctx context.Context, name string, st *nodeState) (after time.Duration, again bool, err error) {
	var s decide.Step
	r.across(func(f *fleet.Fleet) { s = st.course.Next(r.now(), f) })
	if s.Do == decide.Read {
		err = r.read(ctx, name, st, s)
		r.called(err)
		if err != nil {
			r.stepFailed(ctx, st, s, err)
		}
		return 0, true, err
	}
	if !st.course.Look().Exists {
		r.forget(name, st)
		return 0, false, nil
	}
	r.reads(st)
	r.flush(&st.told.later, false)
	r.alert(st, s)
	r.chronicleLook(st)
	r.reportPowerOffs(st.node, st, st.course.Look().Record)
	r.tellNotes(st, s)
	begun := r.Now()
	if !writes(s.Do) { // what is written is told once it is: a conflict leaves a fence that never was one
		r.tell(st, s)
	}
	switch s.Do {
	case decide.Leave:
		r.stepSucceeded(st)
		return 0, false, nil
	case decide.Wait:
		r.stepSucceeded(st)
		r.tellAside(st, s)
		r.flush(&st.told.pods, false)
		return s.After, false, nil
	case decide.Ask:
		r.ask(ctx, st)
		if st.course.Look().Mark != nil {
			r.Metrics.phase("confirm", r.Now().Sub(begun))
		}
		return 0, true, nil
	}
	o := r.act(ctx, st, s)
	r.took(st, s, begun, o.Err)
	r.apply(st, o)
	switch {
	case o.Err == nil && writes(s.Do):
		r.tell(st, s)
		r.chronicleWrite(st, s)
	case o.Late && (s.Do == decide.PowerOff || s.Do == decide.PowerOn): // look again at once, unless another leads
		return 0, true, r.Leading()
	case s.Do == decide.PowerOff, s.Do == decide.PowerOn: // the course knows it; what follows, it decides
		return 0, true, nil
	case o.Err != nil:
		r.stepFailed(ctx, st, s, o.Err)
		return 0, false, o.Err
	}
	r.stepSucceeded(st)
	if phase := phases[s.Do]; phase != "" {
		r.Metrics.phase(phase, r.Now().Sub(begun))
	}
	return 0, true, nil
}

// apply takes what became of the last action into the node's course.
func (r *Reconciler) apply(st *nodeState, o decide.Observation) {
	r.across(func(f *fleet.Fleet) { st.course.Apply(r.now(), f, o) })
}

// writes reports an act that is one write of the Node.
func writes(d decide.Do) bool {
	return d == decide.Write || d == decide.Announce || d == decide.Arm || d == decide.Unmark
}

// phases are the names of acts in the metric of phases.
var phases = map[decide.Do]string{decide.Arm: "mark", decide.Tombstone: "tombstone", decide.ClearVolumes: "clear", decide.Delete: "delete"}

// parts are the names of the other acts that Options.Took is told of.
var parts = map[decide.Do]string{
	decide.PowerOff: "power_off", decide.PowerOn: "power_on", decide.Unmark: "unmark", decide.Spare: "spare", decide.DeleteAttachments: "delete_attachments",
	decide.SetNotReady: "set_not_ready",
}

// took tells of an act of a fence. One of a policy is none.
func (r *Reconciler) took(st *nodeState, s decide.Step, begun time.Time, err error) {
	name := cmp.Or(phases[s.Do], parts[s.Do])
	if r.Took == nil || name == "" || s.Policy != "" {
		return
	}
	rec := st.course.Look().Record
	if s.Do == decide.Arm {
		rec = &s.Record
	}
	r.Took(Part{Node: st.course.Look().Name, Record: rec, Name: name, Begun: begun, Ended: r.Now(), Pods: len(s.Pods), Err: err})
}

// tookAsked tells of what devices were asked.
func (r *Reconciler) tookAsked(st *nodeState, all []providers.Answer) {
	if r.Took == nil {
		return
	}
	l := st.course.Look()
	for i, d := range st.machine.Devices() {
		a := all[i]
		r.Took(Part{Node: l.Name, Record: l.Record, Name: "ask", Begun: a.At.Wall, Ended: a.Got.Wall, Device: d.Device, State: a.State, Err: a.Err})
	}
}

// act does a step that changes something. It blocks for the API server or the device.
func (r *Reconciler) act(ctx context.Context, st *nodeState, s decide.Step) (o decide.ActionDone) {
	l := st.course.Look()
	switch s.Do {
	case decide.Write:
		o.Err = r.writer.Record(ctx, l, s.Record)
	case decide.Announce:
		o.Err = r.writer.Announce(ctx, l, s.Note)
	case decide.Arm:
		o.Err = r.writer.Arm(ctx, l, s.Record)
	case decide.Unmark:
		o.Err = r.writer.Unmark(ctx, l, s.Record)
	case decide.Condition:
		o.Err = r.writer.PoweredOn(ctx, l, s.On)
	case decide.ExpireReady:
		o.Err = r.writer.ExpireReady(ctx, l)
	case decide.OutOfService, decide.InService:
		by, hold := r.maySend(st, "")
		if hold != decide.Yes {
			return decide.ActionDone{Err: kube.ErrLate, Late: true}
		}
		o.Err = r.writer.OutOfService(kube.SendBy(ctx, by), l, s.Do == decide.OutOfService)
	case decide.PowerOff:
		o = r.powerOff(ctx, st, s)
	case decide.PowerOn:
		o = r.powerOn(ctx, st, s)
	case decide.ClearVolumes:
		o = r.clear(ctx, st, s)
	case decide.Tombstone:
		message := taint.PolicyMessage(s.Policy)
		if s.Policy == "" {
			message = taint.FenceMessage(l.Record.ID)
		}
		return r.forEach(ctx, st, s, func(ctx context.Context, p action.Pod) error { return r.writer.Tombstone(ctx, p, message) })
	case decide.Delete:
		return r.forEach(ctx, st, s, r.writer.Delete)
	case decide.SetNotReady:
		return r.forEach(ctx, st, s, r.writer.SetNotReady)
	case decide.DeleteAttachments:
		return r.detach(ctx, st, s)
	case decide.Spare:
		return r.forEach(ctx, st, s, func(ctx context.Context, p action.Pod) error { return r.writer.Spare(ctx, p, l.Record.Token()) })
	default:
		o.Err = fmt.Errorf("unknown step %d", s.Do)
	}
	return o
}

// ask puts the question to the machine's devices, live.
func (r *Reconciler) ask(ctx context.Context, st *nodeState) {
	all := st.machine.HeardAt(r.fleetView(st.course.Look().Name).Beat.Wall).Ask(ctx, r.liar, r.now)
	r.apply(st, decide.DevicesAnswered{Answers: all})
	r.logAnswers(st, all)
	r.noticed(st)
	r.tookAsked(st, all)
}

// noticed tells who was the first to make a node suspect whose machine is off, once in a life of the node: not where a fence of that
// life says so already, which may be ours.
func (r *Reconciler) noticed(st *nodeState) {
	l := st.course.Look()
	if st.course.Answer().State != providers.PowerOff || l.Mark != nil || l.Record != nil && !l.Alive(l.Record) {
		return
	}
	var by fleet.Source
	var silent time.Duration
	r.across(func(f *fleet.Fleet) { by, silent = f.Noticed(l.Name, r.now()) })
	if by == "" {
		return
	}
	r.Metrics.noticed.WithLabelValues(string(by)).Inc()
	if silent > 0 {
		r.Metrics.noticedAfter.Observe(silent.Seconds())
	}
	r.Log.Info("Noticed that a machine is off", "node", l.Name, "by", string(by), "silent", silent.Round(time.Millisecond).String())
}

// powerOff sends the power-off that the record announced.
func (r *Reconciler) powerOff(ctx context.Context, st *nodeState, s decide.Step) (o decide.ActionDone) {
	l := st.course.Look()
	by := st.machine.Devices()[s.Device]
	o = r.actOnPower(ctx, st, by, by.Provider.PowerOff)
	switch {
	case o.Late:
		r.Log.Warn("Power-off was not sent", "node", l.Name, "fence", l.Record.ID, "device", by.Device, "error", o.Err)
		return o
	case o.Err != nil:
		r.Log.Error("Power-off was not accepted", "node", l.Name, "fence", l.Record.ID, "device", by.Device, "error", o.Err)
		return o
	}
	r.Log.Info("Sent power-off", "node", l.Name, "fence", l.Record.ID, "device", by.Device)
	return o
}

// powerOn sends the power-on that the record announced, through one device after the other. What keeps one device from
// being sent to keeps the others as well.
func (r *Reconciler) powerOn(ctx context.Context, st *nodeState, s decide.Step) (all decide.ActionDone) {
	l, devices := st.course.Look(), st.machine.Devices()
	all.Late = true
	for _, i := range s.Devices {
		by := devices[i]
		o := r.actOnPower(ctx, st, by, by.Provider.PowerOn)
		all.Sent, all.Err, all.Late = o.Sent, cmp.Or(o.Err, all.Err), all.Late && o.Late
		if o.Late {
			r.Log.Warn("Power-on was not sent", "node", l.Name, "fence", l.Record.ID, "device", by.Device, "error", o.Err)
			return all
		}
		if o.Err != nil {
			r.Log.Error("Power-on was not accepted", "node", l.Name, "fence", l.Record.ID, "device", by.Device, "error", o.Err)
			continue
		}
		r.Log.Info("Sent power-on", "node", l.Name, "fence", l.Record.ID, "device", by.Device)
	}
	return all
}

// actOnPower has a device do what the course decided, and gives it the course's last check. Outcome.Late means that
// nothing was sent. It blocks for the device.
func (r *Reconciler) actOnPower(
	ctx context.Context, st *nodeState, by Machine, act func(context.Context, providers.Target, func() error) error,
) decide.ActionDone {
	call, end := context.WithCancelCause(ctx)
	defer end(errCallOver)
	check := lastCheck{r: r, call: call, course: st.course.Node, node: st.node, allowed: r.now()}
	err := check.still()
	if err != nil {
		err = providers.WithClass(providers.ErrNotSent, err)
	} else {
		err = act(ctx, by.Target, check.still)
	}
	return decide.ActionDone{Err: err, Sent: check.sent(), Late: errors.Is(err, providers.ErrNotSent)}
}

// errCallOver refuses what a provider would send after its call has returned.
var errCallOver = errors.New("the call that asked for it is over")

// pauseRead is how long the last check waits for the cluster's pause. The look read it as well, so a slow API server
// does not keep machines on.
const pauseRead = 500 * time.Millisecond

// lastCheck tells providers right before each request of a power action whether it may still be sent. A provider may
// ask it in a goroutine of its own, so it works on a copy of the course.
type lastCheck struct {
	r      *Reconciler
	call   context.Context
	course decide.Node
	node   *corev1.Node // of the look

	mu      sync.Mutex    // guards what follows
	allowed taint.Instant // when it last allowed a request, or when the call began
}

// still blocks for pauseRead at most. Everything but the pause is checked after that.
func (c *lastCheck) still() error {
	r, name := c.r, c.course.Look().Name
	config := r.Config()
	re := decide.Recheck{Paused: r.pausedNow(c.call, config.Elsewhere.Pause)}
	if c.call.Err() != nil {
		return context.Cause(c.call)
	}
	now := r.now()
	var node corev1.Node
	if err := r.Cache.Get(c.call, client.ObjectKey{Name: name}, &node); err == nil {
		re.Seen = taint.See(&node, nil, r.Key, now, now)
		newer, l := &node, re.Seen
		if c.course.AheadOf(l) {
			newer, l = c.node, c.course.Look()
		}
		facts, _ := config.Facts(newer, l, now.Wall)
		re.Facts = facts.Facts
	}
	re.Leading, re.Fleet = r.Leading(), r.fleetView(name)
	now = r.now()
	if err := c.course.StillHolds(now, re); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = now
	return nil
}

func (c *lastCheck) sent() taint.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allowed
}

// clear clears the volume lists.
func (r *Reconciler) clear(ctx context.Context, st *nodeState, s decide.Step) decide.ActionDone {
	l := st.course.Look()
	by, hold := r.maySend(st, "")
	if hold != decide.Yes {
		return decide.ActionDone{Err: kube.ErrLate, Late: true}
	}
	err := r.writer.Clear(kube.SendBy(ctx, by), l, s.InUse, s.Attached)
	if err == nil {
		r.Log.Info("Cleared volume lists", "node", l.Name, "fence", l.Record.IDOr(""), "policy", s.Policy,
			"inUse", len(l.InUse)-len(s.InUse), "attached", len(l.Attached)-len(s.Attached))
	}
	return decide.ActionDone{Err: err}
}

// read reads what a step asks for. It blocks for the API server alone.
func (r *Reconciler) read(ctx context.Context, name string, st *nodeState, s decide.Step) error {
	switch s.Read {
	case decide.Life:
		return r.readLife(ctx, name, st)
	case decide.Pods:
		objects, err := kube.Pods(ctx, r.Live, name)
		if err != nil {
			return err
		}
		seen := kube.SeePods(objects, r.Key, r.Config().EvictFirst)
		st.objects = slimPods(objects)
		r.chronicleList(st)
		r.apply(st, decide.PodsListed{Pods: seen})
	case decide.Volumes:
		of, unread, err := kube.Volumes(ctx, r.Live, st.only(s.Pods))
		if err != nil {
			return err
		}
		r.tellUnread(st, unread)
		r.Config().judge(st.only(s.Pods), of)
		r.apply(st, decide.VolumesRead{Of: of})
	case decide.Owners:
		of, err := kube.Owners(ctx, r.Live, s.Pods)
		if err != nil {
			return err
		}
		r.apply(st, decide.OwnersRead{Of: of})
	case decide.Rival:
		r.apply(st, decide.RivalRead{Why: kube.LonghornDeletes(ctx, r.Live, r.Client.RESTMapper())})
	case decide.Members:
		members, err := kube.Members(ctx, r.Live)
		if err != nil {
			return err
		}
		r.apply(st, decide.MembersRead{Ready: members})
	case decide.Waiting:
		var namespaces []string
		for _, p := range s.Pods {
			if !slices.Contains(namespaces, p.Namespace) {
				namespaces = append(namespaces, p.Namespace)
			}
		}
		claims, err := kube.Waiting(ctx, r.Live, name, namespaces)
		if err != nil {
			return err
		}
		r.apply(st, decide.WaitingRead{Claims: claims})
	case decide.Claims:
		claims, err := kube.Claims(ctx, r.Live, s.PVs)
		if err != nil {
			return err
		}
		r.apply(st, decide.ClaimsRead{Of: claims})
	case decide.CachedAttachments:
		cached, err := kube.Attachments(ctx, r.Cache, client.MatchingFields{NodeNameIndex: name})
		if err != nil {
			return err
		}
		r.chronicleAttached(st, cached[name])
		r.apply(st, decide.AttachmentsListed{Attachments: cached[name]})
	case decide.LiveAttachments:
		live, err := r.attachedTo(ctx, name)
		if err != nil {
			return err
		}
		r.chronicleAttached(st, live)
		r.apply(st, decide.AttachmentsListed{Attachments: live, Live: true})
	default:
		return fmt.Errorf("unknown reading %d", s.Read)
	}
	return nil
}

// slimPods is what is read of listed pods once they are reduced to what is decided on. A node keeps them while it waits for its turns to write, and so do
// a thousand others.
func slimPods(list []corev1.Pod) []corev1.Pod {
	out := make([]corev1.Pod, len(list))
	for i := range list {
		p := &list[i]
		out[i].Namespace, out[i].Name, out[i].UID = p.Namespace, p.Name, p.UID
		out[i].Spec.Volumes = p.Spec.Volumes
		out[i].Status.Phase, out[i].Status.Reason, out[i].Status.Message = p.Status.Phase, p.Status.Reason, p.Status.Message
	}
	return out
}

// only are the listed objects of these pods.
func (st *nodeState) only(pods []action.Pod) []corev1.Pod {
	want := map[string]bool{}
	for _, p := range pods {
		want[p.UID] = true
	}
	var out []corev1.Pod
	for i := range st.objects {
		if want[string(st.objects[i].UID)] {
			out = append(out, st.objects[i])
		}
	}
	return out
}

// readLife looks live at the Node and its Lease, and finds its machine.
func (r *Reconciler) readLife(ctx context.Context, name string, st *nodeState) error {
	node, l, err := kube.Look(ctx, r.Live, name, r.Key, r.Now)
	if err != nil {
		return err
	}
	var facts decide.Facts
	var elsewhere decide.Elsewhere
	st.node, st.objects, st.machine = node, nil, Machine{}
	if l.Exists {
		config := r.Config()
		facts, st.machine = config.Facts(node, l, r.Now())
		facts.By, facts.NewID = r.By, cmp.Or(facts.NewID, newID())
		facts.Nobody = st.since(facts.Nobody, r.Now())
		if facts.Excluded == "" && l.Mark == nil {
			said, err := r.saidElsewhere(ctx, config.Elsewhere, node)
			if err != nil {
				return err
			}
			facts.Excluded, facts.KeptOn = said.Excluded, cmp.Or(facts.KeptOn, said.KeptOn)
			l.Got = r.now() // this is part of the look: where it alone took longer than a look holds, no power-off could ever be sent
			elsewhere = decide.Elsewhere{Excluded: said.Excluded, KeptOn: said.KeptOn}
		}
		r.inMode(st, facts.Mode)
		status, _ := taint.ProtectionOf(node)
		st.nudging.saw(l, status, r.Now())
	}
	r.across(func(f *fleet.Fleet) {
		st.course.Apply(l.Got, f, decide.NodeRead{Look: l, Facts: facts, Node: node, Elsewhere: elsewhere})
		st.suspect = f.View(name, r.now()).Suspicion(l)
	})
	return nil
}

// Facts are what the configuration and the Node itself say of a node that was looked at, at now, and the machine that it is believed to be.
// Who fences it, and what is said elsewhere (Elsewhere.Says), is for the caller to add; NewID is "" but where a person's word is evidence.
func (p *Config) Facts(node *corev1.Node, l taint.Look, now time.Time) (decide.Facts, Machine) {
	m, err := p.Believed(node, l.Record)
	mode := p.mode(node, m.Mode)
	facts := decide.Facts{
		Facts: fence.Facts{
			Settings: p.Fence, Mode: mode.Mode, ModeBy: mode.By, Nobody: err, Devices: m.proofs(),
			Excluded: cmp.Or(p.Excluded(node), fence.Excluded(node, now)), KeptOn: fence.KeptOn(node, p.Fence.Cordoned),
		},
		Evict: p.Evict, Policies: p.Policies, Storage: p.health(node.Name),
	}
	if mode.PowerOffAfter > 0 {
		facts.PowerOffAfter = mode.PowerOffAfter
	}
	if c, err := taint.Confirmed(node); err == nil && c != nil { // the fence that a person's word is evidence for
		facts.NewID = c.Fence
	}
	return facts, m
}

// errProofLost stops a batch of pod writes: the machine is no longer proven off, or the node shows life.
var errProofLost = errors.New("proof lost in the middle")
