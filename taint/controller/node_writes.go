package controller

import (
	"context"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/kube"
)

// nodeWrites implements the World's writes of the Node: one request each.
type nodeWrites struct{ *work }

// writeResult returns the observation of one write of the Node that ended with err.
func writeResult(err error) decide.Observation { return decide.ActionDone{Err: err} }

// Write writes the record.
func (w nodeWrites) Write(ctx context.Context, a action.Write) decide.Observation {
	return writeResult(w.writer.WriteRecord(ctx, w.st.course.Look(), a.Record))
}

// Announce writes the names of policies on the Node.
func (w nodeWrites) Announce(ctx context.Context, a action.Announce) decide.Observation {
	return writeResult(w.writer.AnnouncePolicy(ctx, w.st.course.Look(), a.Note))
}

// Arm sets the mark.
func (w nodeWrites) Arm(ctx context.Context, a action.Arm) decide.Observation {
	return writeResult(w.writer.SetMark(ctx, w.st.course.Look(), a.Record))
}

// Unmark removes the mark.
func (w nodeWrites) Unmark(ctx context.Context, a action.Unmark) decide.Observation {
	return writeResult(w.writer.RemoveMark(ctx, w.st.course.Look(), a.Record))
}

// Condition sets or clears the condition that the machine is on.
func (w nodeWrites) Condition(ctx context.Context, a action.Condition) decide.Observation {
	return writeResult(w.writer.SetPoweredOn(ctx, w.st.course.Look(), a.On))
}

// ExpireReady sets a stale Ready to Unknown.
func (w nodeWrites) ExpireReady(ctx context.Context) decide.Observation {
	return writeResult(w.writer.ExpireReady(ctx, w.st.course.Look()))
}

// OutOfService adds Kubernetes' own out-of-service taint.
func (w nodeWrites) OutOfService(ctx context.Context) decide.Observation {
	return w.setOutOfService(ctx, true)
}

// InService removes it.
func (w nodeWrites) InService(ctx context.Context) decide.Observation {
	return w.setOutOfService(ctx, false)
}

func (w nodeWrites) setOutOfService(ctx context.Context, out bool) decide.Observation {
	by, hold := w.maySend("")
	if hold != decide.HoldYes {
		return decide.ActionDone{Err: kube.ErrLate, Late: true}
	}
	return writeResult(w.writer.SetOutOfService(kube.SendBy(ctx, by), w.st.course.Look(), out))
}

// ClearVolumes clears the volume lists.
func (w nodeWrites) ClearVolumes(ctx context.Context, a action.ClearVolumes) decide.Observation {
	l := w.st.course.Look()
	by, hold := w.maySend("")
	if hold != decide.HoldYes {
		return decide.ActionDone{Err: kube.ErrLate, Late: true}
	}
	return writeResult(w.writer.ClearVolumes(kube.SendBy(ctx, by), l, a.InUse, a.Attached))
}
