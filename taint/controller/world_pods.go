package controller

import (
	"context"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// podWrites implements the World's writes of pods and attachments: several requests each.
type podWrites struct{ *work }

// EndPods ends pods, and deletes those without volumes right away.
func (w podWrites) EndPods(ctx context.Context, a action.EndPods) decide.Observation {
	message := taint.PolicyMessage(a.Policy)
	if a.Policy == "" {
		message = taint.FenceMessage(w.st.course.Look().Record.ID)
	}
	if p, ok := w.st.course.Proof(w.Now.Instant()); ok && w.Proven != nil {
		w.Proven(p)
	}
	var items []item
	for _, p := range a.Pods {
		one := podItem(p, func(ctx context.Context) (err error) {
			p, err = w.writer.EndPod(ctx, p, message)
			return err
		})
		if p.AtOnce {
			one.then = func(ctx context.Context) error { return w.writer.DeletePod(ctx, p) }
		}
		items = append(items, one)
	}
	return w.writeEach(ctx, a, items)
}

// DeletePods deletes ended pods.
func (w podWrites) DeletePods(ctx context.Context, a action.DeletePods) decide.Observation {
	return w.writePods(ctx, a, w.writer.DeletePod)
}

// SparePods spares pods.
func (w podWrites) SparePods(ctx context.Context, a action.SparePods) decide.Observation {
	token := w.st.course.Look().Record.Token()
	spare := func(ctx context.Context, p action.Pod) error { return w.writer.SparePod(ctx, p, token) }
	return w.writePods(ctx, a, spare)
}

// SetPodsNotReady sets pods that stay not ready.
func (w podWrites) SetPodsNotReady(ctx context.Context, a action.SetPodsNotReady) decide.Observation {
	return w.writePods(ctx, a, w.writer.SetPodNotReady)
}

// DeleteAttachments deletes attachments.
func (w podWrites) DeleteAttachments(ctx context.Context, a action.DeleteAttachments) decide.Observation {
	var items []item
	for _, one := range a.Attachments {
		items = append(items, item{uid: one.UID, name: one.Name, write: func(ctx context.Context) error {
			return w.writer.DeleteAttachment(ctx, one)
		}})
	}
	return w.writeEach(ctx, a, items)
}
