package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/machine"
)

// powerActions implements the World's actions on machines.
type powerActions struct{ *work }

// PowerOff sends the power-off that the record announced.
func (w powerActions) PowerOff(ctx context.Context, a action.PowerOff) decide.Observation {
	by := w.st.machine.Devices()[a.Move.Device]
	o := w.sendPower(ctx, by, by.Provider.PowerOff)
	o.Power = []decide.PowerSent{{Device: by.Device, Err: o.Err, Withheld: o.Withheld}}
	return o
}

// PowerOn sends the power-on that the record announced, through one device after the other. A reason not to send to one
// device stops it for the others as well.
func (w powerActions) PowerOn(ctx context.Context, a action.PowerOn) decide.Observation {
	devices, all := w.st.machine.Devices(), decide.ActionDone{Withheld: true}
	for _, i := range a.Devices {
		by := devices[i]
		o := w.sendPower(ctx, by, by.Provider.PowerOn)
		all.SentAt, all.Err, all.Withheld = o.SentAt, cmp.Or(o.Err, all.Err), all.Withheld && o.Withheld
		all.Power = append(all.Power, decide.PowerSent{Device: by.Device, Err: o.Err, Withheld: o.Withheld})
		if o.Withheld {
			break
		}
	}
	return all
}

// sendPower makes a device do what the node's course decided, and gives it the course's last check. Outcome.Late means
// that nothing was sent. It blocks for the device.
func (w powerActions) sendPower(
	ctx context.Context, by machine.Machine, act func(context.Context, providers.Target, func() error) error,
) decide.ActionDone {
	call, end := context.WithCancelCause(ctx)
	defer end(errCallOver)
	check := lastCheck{base: w.base, call: call, course: *w.st.course.Node, node: w.st.node, allowed: w.Now.Instant()}
	err := check.stillHolds()
	if err != nil {
		err = providers.WithClass(providers.ErrNotSent, err)
	} else {
		err = act(ctx, w.withLife(by.Target), check.stillHolds)
	}
	return decide.ActionDone{Err: err, SentAt: check.lastAllowed(), Withheld: errors.Is(err, providers.ErrNotSent)}
}

// withLife returns the target with the life and the fence of the look, for a device that stores them with its order.
func (w powerActions) withLife(t providers.Target) providers.Target {
	l := w.st.course.Look()
	t.Life = providers.Life{NodeUID: l.UID, BootID: l.BootID, Fence: l.Record.IDOr("")}
	return t
}

// WithdrawOrders takes orders back at their devices, one after the other, and then writes the record without them.
// After a failure all are tried again later: that does no harm. It blocks for the devices.
func (w powerActions) WithdrawOrders(ctx context.Context, a action.WithdrawOrders) decide.Observation {
	for _, o := range a.Orders {
		if err := w.Leading(); err != nil {
			return decide.ActionDone{Err: err}
		}
		by, err := w.findOrdered(o)
		if err != nil {
			return decide.ActionDone{Err: fmt.Errorf("withdrawing the power-off at %s: %w", o.Device, err)}
		}
		if err := by.Withdraw(ctx, w.withLife(by.Target)); err != nil {
			return decide.ActionDone{Err: err}
		}
	}
	return nodeWrites(w).writeSigned(ctx, a.Record, w.writer.WriteRecord)
}

// findOrdered returns the device of an order: one that speaks for the node now, or one that the configuration still
// allows for it.
func (w powerActions) findOrdered(o taint.DeviceRef) (machine.Machine, error) {
	for _, d := range w.st.machine.Devices() {
		if o.IsSame(taint.DeviceRef{Device: d.Device, Machine: d.Identity.OrNil()}) {
			return d, nil
		}
	}
	if o.Machine == nil {
		return machine.Machine{}, errors.New("the record names no machine")
	}
	return w.Config().Machines.Recorded(w.st.node, *o.Machine)
}

// errCallOver refuses a request that a provider would send after its call has returned.
var errCallOver = errors.New("the call that asked for it is over")

// lastCheck decides right before each request of a power action whether the provider may still send it. A provider may
// call it in a goroutine of its own, so it works on a copy of the course.
type lastCheck struct {
	*base

	call   context.Context
	course decide.Node
	node   *corev1.Node // of the look

	mu      sync.Mutex    // guards what follows
	allowed taint.Instant // when it last allowed a request, or when the call began
}

// stillHolds returns why the request may not be sent any more; nil: it may. It blocks for pauseRead at most, and checks
// everything else after the pause.
func (c *lastCheck) stillHolds() error {
	name := c.course.Look().Name
	config := c.Config()
	re := decide.Recheck{Paused: c.pausedNow(c.call, config.Exclusions.Pause)}
	if c.call.Err() != nil {
		return context.Cause(c.call)
	}
	now := c.Now.Instant()
	var node corev1.Node
	if err := c.Cache.Get(c.call, client.ObjectKey{Name: name}, &node); err == nil {
		re.Seen = taint.NewLook(&node, nil, c.Key, now, now)
		newer, l := &node, re.Seen
		if c.course.AheadOf(l) {
			newer, l = c.node, c.course.Look()
		}
		facts, _ := config.FactsOf(newer, l, now.Wall)
		re.Facts = facts.Facts
		if c.Requests != nil {
			re.Facts.RequestedBy = c.Requests.CachedRequest(newer)
		}
	}
	re.Leading, re.Fleet = c.Leading(), c.fleetView(name)
	now = c.Now.Instant()
	if err := c.course.StillHolds(now, re); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = now
	return nil
}

func (c *lastCheck) lastAllowed() taint.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allowed
}
