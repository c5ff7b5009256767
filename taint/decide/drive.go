package decide

import (
	"context"
	"errors"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// errNotLeading is the error of a power action that was not sent because the process may have lost leadership.
var errNotLeading = errors.New("checking leadership")

// StepDone is one finished step of a node: a decision, and its outcome.
type StepDone struct {
	Look         taint.Look // the look of the decision
	Decision     action.Decision
	Outcome      Observation // nil: the decision was to wait, or to leave the node
	Began, Ended providers.Instant
}

// Err returns why the step failed; nil: it did not. A device that did not accept a power action is no failure of the
// step: the kernel decides what follows.
func (s StepDone) Err() error {
	switch o := s.Outcome.(type) {
	case ReadFailed:
		return o.Err
	case ActionDone:
		power := action.Is[action.PowerOff](s.Decision) || action.Is[action.PowerOn](s.Decision)
		if !power || errors.Is(o.Err, errNotLeading) {
			return o.Err
		}
	}
	return nil
}

// Decider is what Drive drives: a Node, or one whose steps are recorded.
type Decider interface {
	Look() taint.Look
	Next(now providers.Instant, f Fleet) action.Decision
	Apply(now providers.Instant, f Fleet, o Observation)
}

// Driver is what Drive needs besides a Decider.
type Driver struct {
	World     World
	WithFleet func(func(Fleet))        // calls the function with the fleet, one call at a time
	Now       func() providers.Instant // by the clocks that the Decider counts by
	OnStep    func(StepDone)           // receives each step; must not block for long
}

// maxSteps limits one Drive. driveAgainAfter is when to continue with a node that needs more steps.
const (
	maxSteps        = 250
	driveAgainAfter = 100 * time.Millisecond
)

// Drive takes a node as far as it goes without waiting. It returns when to drive it again; 0: once something changes.
// The error is that of a failed step; the node may be driven again at once. It blocks for the World.
func Drive(ctx context.Context, c Decider, by Driver) (requeueAfter time.Duration, err error) {
	for range maxSteps {
		s := Step(ctx, c, by)
		if s.Outcome == nil {
			return s.Decision.RequeueAfter, nil
		}
		if err := s.Err(); err != nil {
			return 0, err
		}
	}
	return driveAgainAfter, nil
}

// Step carries out the next decision, applies the outcome, and reports the step to OnStep.
func Step(ctx context.Context, c Decider, by Driver) StepDone {
	s := StepDone{Began: by.Now()}
	by.WithFleet(func(f Fleet) { s.Decision = c.Next(by.Now(), f) })
	s.Look = c.Look()
	if s.Outcome = Do(ctx, s.Decision.Action, by.World); s.Outcome != nil {
		by.WithFleet(func(f Fleet) { c.Apply(by.Now(), f, s.Outcome) })
	}
	s.Ended = by.Now()
	by.OnStep(s)
	return s
}

// World carries out actions on one node. It has one method for each action, so a missing one does not compile. Each
// returns the outcome of the action, for Apply; nil if that is not known yet. A destructive request is sent only while
// Node.MaySend allows it, or Node.StillHolds for power.
type World interface {
	ReadNode(context.Context) Observation
	ListPods(context.Context) Observation
	ReadVolumes(context.Context, action.ReadVolumes) Observation
	ListAttachments(context.Context, action.ListAttachments) Observation
	ReadOwners(context.Context, action.ReadOwners) Observation
	ReadStorageSetting(context.Context) Observation
	ReadAwaitedClaims(context.Context, action.ReadAwaitedClaims) Observation
	ListEtcdPods(context.Context) Observation
	ReadClaims(context.Context, action.ReadClaims) Observation
	AskDevices(context.Context) Observation

	WriteRecord(context.Context, action.WriteRecord) Observation
	SetMark(context.Context, action.SetMark) Observation
	RemoveMark(context.Context, action.RemoveMark) Observation
	AnnouncePolicy(context.Context, action.AnnouncePolicy) Observation
	SetPoweredOnCondition(context.Context, action.SetPoweredOnCondition) Observation
	ExpireReady(context.Context) Observation
	ClearVolumes(context.Context, action.ClearVolumes) Observation
	AddOutOfServiceTaint(context.Context) Observation
	RemoveOutOfServiceTaint(context.Context) Observation

	PowerOff(context.Context, action.PowerOff) Observation
	PowerOn(context.Context, action.PowerOn) Observation
	WithdrawOrders(context.Context, action.WithdrawOrders) Observation

	EndPods(context.Context, action.EndPods) Observation
	DeletePods(context.Context, action.DeletePods) Observation
	SparePods(context.Context, action.SparePods) Observation
	SetPodsNotReady(context.Context, action.SetPodsNotReady) Observation
	DeleteAttachments(context.Context, action.DeleteAttachments) Observation
	FenceStorage(context.Context, action.FenceStorage) Observation
}

// Do carries out one action. It has the only switch over all of them. It blocks for as long as w does.
func Do(ctx context.Context, a action.Action, w World) Observation {
	switch a := a.(type) {
	case action.ReadNode:
		return w.ReadNode(ctx)
	case action.ListPods:
		return w.ListPods(ctx)
	case action.ReadVolumes:
		return w.ReadVolumes(ctx, a)
	case action.ListAttachments:
		return w.ListAttachments(ctx, a)
	case action.ReadOwners:
		return w.ReadOwners(ctx, a)
	case action.ReadStorageSetting:
		return w.ReadStorageSetting(ctx)
	case action.ReadAwaitedClaims:
		return w.ReadAwaitedClaims(ctx, a)
	case action.ListEtcdPods:
		return w.ListEtcdPods(ctx)
	case action.ReadClaims:
		return w.ReadClaims(ctx, a)
	case action.AskDevices:
		return w.AskDevices(ctx)
	case action.WriteRecord:
		return w.WriteRecord(ctx, a)
	case action.SetMark:
		return w.SetMark(ctx, a)
	case action.RemoveMark:
		return w.RemoveMark(ctx, a)
	case action.AnnouncePolicy:
		return w.AnnouncePolicy(ctx, a)
	case action.SetPoweredOnCondition:
		return w.SetPoweredOnCondition(ctx, a)
	case action.ExpireReady:
		return w.ExpireReady(ctx)
	case action.ClearVolumes:
		return w.ClearVolumes(ctx, a)
	case action.AddOutOfServiceTaint:
		return w.AddOutOfServiceTaint(ctx)
	case action.RemoveOutOfServiceTaint:
		return w.RemoveOutOfServiceTaint(ctx)
	case action.PowerOff:
		return w.PowerOff(ctx, a)
	case action.PowerOn:
		return w.PowerOn(ctx, a)
	case action.WithdrawOrders:
		return w.WithdrawOrders(ctx, a)
	case action.EndPods:
		return w.EndPods(ctx, a)
	case action.DeletePods:
		return w.DeletePods(ctx, a)
	case action.SparePods:
		return w.SparePods(ctx, a)
	case action.SetPodsNotReady:
		return w.SetPodsNotReady(ctx, a)
	case action.DeleteAttachments:
		return w.DeleteAttachments(ctx, a)
	case action.FenceStorage:
		return w.FenceStorage(ctx, a)
	default: // Wait, NoAction
		return nil
	}
}
