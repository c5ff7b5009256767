package app

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// quietLog is the libraries' log handler. It lowers the level of what is no fault:
//   - An Event was refused because its namespace is being deleted. The namespace of a pod that a fence ended may be.
//     (client-go, tools/events: an error that is not retried.)
//   - After ctx ended, the manager logs the end of the leadership as a loss, and informers that were just starting as
//     broken.
type quietLog struct {
	slog.Handler
	ctx context.Context // ends when the process is asked to stop
}

// rejectedEvent is client-go's message for an Event that the API server rejects.
const rejectedEvent = "Server rejected event (will not retry!)"

// Handle implements slog.Handler.
func (q quietLog) Handle(ctx context.Context, r slog.Record) error {
	if q.ctx.Err() != nil {
		r.Level = min(r.Level, slog.LevelInfo)
	}
	if r.Message == rejectedEvent && isNamespaceEnding(r) {
		r.Level = slog.LevelDebug
		if !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quietLog) WithAttrs(as []slog.Attr) slog.Handler {
	return quietLog{q.Handler.WithAttrs(as), q.ctx}
}

// WithGroup implements slog.Handler.
func (q quietLog) WithGroup(name string) slog.Handler {
	return quietLog{q.Handler.WithGroup(name), q.ctx}
}

func isNamespaceEnding(r slog.Record) (ends bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		ends = ok && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		return !ends
	})
	return ends
}
