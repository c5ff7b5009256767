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

// driver carries out a node's course, and has each step reported.
func (r *Reconciler) driver(ctx context.Context, name string, st *nodeState) decide.Driver {
	return decide.Driver{
		World:  &executor{Reconciler: r, name: name, st: st},
		Across: func(do func(decide.Fleet)) { r.across(func(f *fleet.Fleet) { do(f) }) },
		Now:    r.now,
		Done:   func(s decide.StepDone) { st.told.Step(ctx, s) },
	}
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
	mode := p.ChooseMode(node, m.Mode)
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

// apply takes what devices answered in the middle of an action into the node's course.
func (r *Reconciler) apply(st *nodeState, o decide.Observation) {
	r.across(func(f *fleet.Fleet) { st.course.Apply(r.now(), f, o) })
}
