package controller

import (
	"context"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// podWrites implements the World's writes of pods and attachments: several requests each.
type podWrites struct{ *work }

// Tombstone ends pods.
func (w podWrites) Tombstone(ctx context.Context, a action.Tombstone) decide.Observation {
	message := taint.PolicyMessage(a.Policy)
	if a.Policy == "" {
		message = taint.FenceMessage(w.st.course.Look().Record.ID)
	}
	return w.writePods(ctx, a, func(ctx context.Context, p action.Pod) error { return w.writer.EndPod(ctx, p, message) })
}

// Delete deletes ended pods.
func (w podWrites) Delete(ctx context.Context, a action.Delete) decide.Observation {
	return w.writePods(ctx, a, w.writer.DeletePod)
}

// Spare spares pods.
func (w podWrites) Spare(ctx context.Context, a action.Spare) decide.Observation {
	token := w.st.course.Look().Record.Token()
	return w.writePods(ctx, a, func(ctx context.Context, p action.Pod) error { return w.writer.SparePod(ctx, p, token) })
}

// SetNotReady sets pods that stay not ready.
func (w podWrites) SetNotReady(ctx context.Context, a action.SetNotReady) decide.Observation {
	return w.writePods(ctx, a, w.writer.SetPodNotReady)
}

// DeleteAttachments deletes attachments.
func (w podWrites) DeleteAttachments(ctx context.Context, a action.DeleteAttachments) decide.Observation {
	var items []item
	for _, one := range a.Attachments {
		items = append(items, item{one.UID, one.Name, false, func(ctx context.Context) error {
			return w.writer.DeleteAttachment(ctx, one)
		}})
	}
	return w.writeEach(ctx, a, items)
}
