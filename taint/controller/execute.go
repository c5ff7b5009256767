package controller

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// step carries out the next decision of a node's course. It returns when to come again, or that it should be at once.
func (r *Reconciler) step(ctx context.Context, name string, st *nodeState) (after time.Duration, again bool, err error) {
	var d action.Decision
	r.across(func(f *fleet.Fleet) { d = st.course.Next(r.now(), f) })
	w := &executor{Reconciler: r, name: name, st: st, d: d}
	if action.Reads(d.Action) {
		o := decide.Do(ctx, d.Action, w)
		if r.called(w.err); w.err != nil {
			r.stepFailed(ctx, st, d, w.err)
		} else {
			r.apply(st, o)
		}
		return 0, true, w.err
	}
	if !st.course.Look().Exists {
		r.forget(name, st)
		return 0, false, nil
	}
	r.reads(st)
	r.flush(&st.told.later, false)
	r.alert(st, d)
	r.chronicleLook(st)
	r.reportPowerOffs(st.node, st, st.course.Look().Record)
	r.tellNotes(st, d)
	begun := r.Now()
	if !writes(d.Action) { // what is written is told once it is: a conflict leaves a fence that never was one
		r.tell(st, d)
	}
	switch d.Action.(type) {
	case action.Leave:
		r.stepSucceeded(st)
		return 0, false, nil
	case action.Wait:
		r.stepSucceeded(st)
		r.tellAside(st, d)
		r.flush(&st.told.pods, false)
		return d.RequeueAfter, false, nil
	case action.Ask:
		decide.Do(ctx, d.Action, w)
		if st.course.Look().Mark != nil {
			r.Metrics.phase("confirm", r.Now().Sub(begun))
		}
		return 0, true, nil
	}
	o, _ := decide.Do(ctx, d.Action, w).(decide.ActionDone)
	r.took(st, d, begun, o.Err)
	r.apply(st, o)
	power := action.Is[action.PowerOff](d) || action.Is[action.PowerOn](d)
	switch {
	case o.Err == nil && writes(d.Action):
		r.tell(st, d)
		r.chronicleWrite(st, d)
	case o.Late && power: // look again at once, unless another leads
		return 0, true, r.Leading()
	case power: // the course knows it; what follows, it decides
		return 0, true, nil
	case o.Err != nil:
		r.stepFailed(ctx, st, d, o.Err)
		return 0, false, o.Err
	}
	r.stepSucceeded(st)
	if phase := phases[action.Name(d.Action)]; phase != "" {
		r.Metrics.phase(phase, r.Now().Sub(begun))
	}
	return 0, true, nil
}

// apply takes what became of the last action into the node's course.
func (r *Reconciler) apply(st *nodeState, o decide.Observation) {
	r.across(func(f *fleet.Fleet) {
		st.course.Apply(r.now(), f, o)
		if read, is := o.(decide.NodeRead); is {
			st.suspect = f.View(st.course.Name, r.now()).Suspicion(read.Look)
		}
	})
}

// writes reports an action that is one write of the Node, and news.
func writes(a action.Action) bool {
	switch a.(type) {
	case action.Write, action.Announce, action.Arm, action.Unmark:
		return true
	}
	return false
}

// phases are the names of actions in the metric of phases.
var phases = map[string]string{"Arm": "mark", "Tombstone": "tombstone", "ClearVolumes": "clear", "Delete": "delete"}

// parts are the names of the other actions that Options.Took is told of.
var parts = map[string]string{
	"PowerOff": "power_off", "PowerOn": "power_on", "Unmark": "unmark", "Spare": "spare", "DeleteAttachments": "delete_attachments",
	"SetNotReady": "set_not_ready",
}

// took tells of an action of a fence. One of a policy is none.
func (r *Reconciler) took(st *nodeState, d action.Decision, begun time.Time, err error) {
	name := cmp.Or(phases[action.Name(d.Action)], parts[action.Name(d.Action)])
	if r.Took == nil || name == "" || action.OfPolicy(d.Action) {
		return
	}
	rec := st.course.Look().Record
	if a, arms := d.Action.(action.Arm); arms {
		rec = &a.Record
	}
	r.Took(Part{Node: st.course.Look().Name, Record: rec, Name: name, Begun: begun, Ended: r.Now(), Pods: len(action.PodsOf(d.Action)), Err: err})
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

// actOnPower has a device do what the course decided, and gives it the course's last check. Outcome.Late means that
// nothing was sent. It blocks for the device.
func (r *Reconciler) actOnPower(
	ctx context.Context, st *nodeState, by machine.Machine, act func(context.Context, providers.Target, func() error) error,
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

// Facts are what the configuration and the Node itself say of a node that was looked at, at now, and the machine that it is believed to be.
// Who fences it, and what is said elsewhere (Elsewhere.Says), is for the caller to add; NewID is "" but where a person's word is evidence.
func (p *Config) Facts(node *corev1.Node, l taint.Look, now time.Time) (decide.Facts, machine.Machine) {
	m, err := p.Machines.Find(node, l.Record)
	mode := p.mode(node, m.Mode)
	facts := decide.Facts{
		Facts: fence.Facts{
			Settings: p.Fence, Mode: mode.Mode, ModeBy: mode.By, Nobody: err, Devices: m.Proofs(),
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
