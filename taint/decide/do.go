package decide

import (
	"context"

	"github.com/forcefence/forcefence/taint/decide/action"
)

// World carries out actions on one node. It has one method for each action, so a missing one does not compile. Each
// returns the outcome of the action, for Apply; nil if that is not known yet. A destructive request is sent only while
// Node.MaySend allows it, or Node.StillHolds for power.
type World interface {
	ReadNode(context.Context) Observation
	ListPods(context.Context) Observation
	ReadVolumes(context.Context, action.ReadVolumes) Observation
	ListAttachments(context.Context, action.ListAttachments) Observation
	ReadOwners(context.Context, action.ReadOwners) Observation
	ReadRival(context.Context) Observation
	ReadWaiting(context.Context, action.ReadWaiting) Observation
	ReadMembers(context.Context) Observation
	ReadClaims(context.Context, action.ReadClaims) Observation
	Ask(context.Context) Observation

	Write(context.Context, action.Write) Observation
	Arm(context.Context, action.Arm) Observation
	Unmark(context.Context, action.Unmark) Observation
	Announce(context.Context, action.Announce) Observation
	Condition(context.Context, action.Condition) Observation
	ExpireReady(context.Context) Observation
	ClearVolumes(context.Context, action.ClearVolumes) Observation
	OutOfService(context.Context) Observation
	InService(context.Context) Observation

	PowerOff(context.Context, action.PowerOff) Observation
	PowerOn(context.Context, action.PowerOn) Observation

	Tombstone(context.Context, action.Tombstone) Observation
	Delete(context.Context, action.Delete) Observation
	Spare(context.Context, action.Spare) Observation
	SetNotReady(context.Context, action.SetNotReady) Observation
	DeleteAttachments(context.Context, action.DeleteAttachments) Observation
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
	case action.ReadRival:
		return w.ReadRival(ctx)
	case action.ReadWaiting:
		return w.ReadWaiting(ctx, a)
	case action.ReadMembers:
		return w.ReadMembers(ctx)
	case action.ReadClaims:
		return w.ReadClaims(ctx, a)
	case action.Ask:
		return w.Ask(ctx)
	case action.Write:
		return w.Write(ctx, a)
	case action.Arm:
		return w.Arm(ctx, a)
	case action.Unmark:
		return w.Unmark(ctx, a)
	case action.Announce:
		return w.Announce(ctx, a)
	case action.Condition:
		return w.Condition(ctx, a)
	case action.ExpireReady:
		return w.ExpireReady(ctx)
	case action.ClearVolumes:
		return w.ClearVolumes(ctx, a)
	case action.OutOfService:
		return w.OutOfService(ctx)
	case action.InService:
		return w.InService(ctx)
	case action.PowerOff:
		return w.PowerOff(ctx, a)
	case action.PowerOn:
		return w.PowerOn(ctx, a)
	case action.Tombstone:
		return w.Tombstone(ctx, a)
	case action.Delete:
		return w.Delete(ctx, a)
	case action.Spare:
		return w.Spare(ctx, a)
	case action.SetNotReady:
		return w.SetNotReady(ctx, a)
	case action.DeleteAttachments:
		return w.DeleteAttachments(ctx, a)
	default: // Wait, Leave
		return nil
	}
}
