package controller

import (
	"context"
	"slices"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/kube"
)

// nodeWrites implements the World's writes of the Node: one request each.
type nodeWrites struct{ *work }

// writeResult returns the observation of one write of the Node that ended with err.
func writeResult(err error) decide.Observation { return decide.ActionDone{Err: err} }

// writeSigned writes a record, with a proof of what this process heard from the devices, by one of the writer's
// methods. A fence neither waits for a signature nor depends on one.
func (w nodeWrites) writeSigned(
	ctx context.Context, rec taint.Record, write func(context.Context, taint.Look, taint.Record) error,
) decide.Observation {
	l := w.st.course.Look()
	if w.SignRecord != nil {
		rec.Proof = w.SignRecord(l, rec, w.st.course.Answer().State == providers.PowerOff)
	}
	return decide.ActionDone{Err: write(ctx, l, rec), Proof: rec.Proof}
}

// WriteRecord writes the record.
func (w nodeWrites) WriteRecord(ctx context.Context, a action.WriteRecord) decide.Observation {
	return w.writeSigned(ctx, a.Record, w.writer.WriteRecord)
}

// AnnouncePolicy writes the names of policies on the Node.
func (w nodeWrites) AnnouncePolicy(ctx context.Context, a action.AnnouncePolicy) decide.Observation {
	return writeResult(w.writer.AnnouncePolicy(ctx, w.st.course.Look(), a.Note))
}

// SetMark sets the mark.
func (w nodeWrites) SetMark(ctx context.Context, a action.SetMark) decide.Observation {
	return w.writeSigned(ctx, a.Record, w.writer.SetMark)
}

// RemoveMark removes the mark.
func (w nodeWrites) RemoveMark(ctx context.Context, a action.RemoveMark) decide.Observation {
	return w.writeSigned(ctx, a.Record, w.writer.RemoveMark)
}

// SetPoweredOnCondition sets or clears the condition that the machine is on.
func (w nodeWrites) SetPoweredOnCondition(ctx context.Context, a action.SetPoweredOnCondition) decide.Observation {
	return writeResult(w.writer.SetPoweredOn(ctx, w.st.course.Look(), a.On))
}

// ExpireReady sets a stale Ready to Unknown.
func (w nodeWrites) ExpireReady(ctx context.Context) decide.Observation {
	return writeResult(w.writer.ExpireReady(ctx, w.st.course.Look()))
}

// AddOutOfServiceTaint adds Kubernetes' own out-of-service taint.
func (w nodeWrites) AddOutOfServiceTaint(ctx context.Context) decide.Observation {
	return w.setOutOfService(ctx, true)
}

// RemoveOutOfServiceTaint removes it.
func (w nodeWrites) RemoveOutOfServiceTaint(ctx context.Context) decide.Observation {
	return w.setOutOfService(ctx, false)
}

func (w nodeWrites) setOutOfService(ctx context.Context, out bool) decide.Observation {
	by, hold := w.maySend("")
	if hold != decide.HoldYes {
		return decide.ActionDone{Err: kube.ErrLate, Withheld: true}
	}
	return writeResult(w.writer.SetOutOfService(kube.SendBy(ctx, by), w.st.course.Look(), out))
}

// FenceStorage has the storage of a policy cut the node off.
func (w nodeWrites) FenceStorage(ctx context.Context, a action.FenceStorage) decide.Observation {
	policies := w.Config().Policies
	i := slices.IndexFunc(policies, func(p policy.Policy) bool { return p.Name == a.Name && p.NeedsFence() })
	by, hold := w.maySend("")
	if hold != decide.HoldYes || w.StorageFences == nil || i < 0 {
		return decide.ActionDone{Err: kube.ErrLate, Withheld: true}
	}
	return writeResult(w.StorageFences.MakeFence(kube.SendBy(ctx, by), w.st.course.Look(), policies[i]))
}

// ClearVolumes clears the volume lists.
func (w nodeWrites) ClearVolumes(ctx context.Context, a action.ClearVolumes) decide.Observation {
	l := w.st.course.Look()
	by, hold := w.maySend("")
	if hold != decide.HoldYes {
		return decide.ActionDone{Err: kube.ErrLate, Withheld: true}
	}
	return writeResult(w.writer.ClearVolumes(kube.SendBy(ctx, by), l, a.InUse, a.Attached))
}
