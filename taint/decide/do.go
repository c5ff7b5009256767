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

	EndPods(context.Context, action.EndPods) Observation
	DeletePods(context.Context, action.DeletePods) Observation
	SparePods(context.Context, action.SparePods) Observation
	SetPodsNotReady(context.Context, action.SetPodsNotReady) Observation
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
	default: // Wait, NoAction
		return nil
	}
}
