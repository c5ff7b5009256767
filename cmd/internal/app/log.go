package app

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// quietLog is the libraries' log handler. It logs at level debug what is no fault: an Event was refused because its
// namespace is being deleted. The namespace of a pod that a fence ended may be. (client-go, tools/events: an error that
// is not retried.)
type quietLog struct{ slog.Handler }

// rejectedEvent is client-go's message for an Event that the API server rejects.
const rejectedEvent = "Server rejected event (will not retry!)"

// Handle implements slog.Handler.
func (q quietLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == rejectedEvent && isNamespaceEnding(r) {
		r.Level = slog.LevelDebug
		if !q.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quietLog) WithAttrs(as []slog.Attr) slog.Handler { return quietLog{q.Handler.WithAttrs(as)} }

// WithGroup implements slog.Handler.
func (q quietLog) WithGroup(name string) slog.Handler { return quietLog{q.Handler.WithGroup(name)} }

func isNamespaceEnding(r slog.Record) (ends bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		ends = ok && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		return !ends
	})
	return ends
}

// shutdownLog is the libraries' log handler. After the process was asked to stop, it lowers errors to level info. The
// manager logs every end of the leadership as a loss, and informers that were just starting as broken.
type shutdownLog struct {
	slog.Handler
	ctx context.Context
}

func (s shutdownLog) Handle(ctx context.Context, r slog.Record) error {
	if s.ctx.Err() != nil {
		r.Level = min(r.Level, slog.LevelInfo)
	}
	return s.Handler.Handle(ctx, r)
}

func (s shutdownLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return shutdownLog{s.Handler.WithAttrs(attrs), s.ctx}
}
func (s shutdownLog) WithGroup(name string) slog.Handler {
	return shutdownLog{s.Handler.WithGroup(name), s.ctx}
}
