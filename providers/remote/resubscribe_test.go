package remote_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forcefence/forcefence/providers/remote"
)

// TestResubscribe: the pause doubles up to the last, a subscription that was lost begins it again, and only a final
// error or the end of the context ends the Watch.
func TestResubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		final, lost := errors.New("final"), errors.New("lost")
		start := time.Now()
		var calls []time.Duration
		watch := func(context.Context) (bool, error) {
			calls = append(calls, time.Since(start))
			if len(calls) == 7 {
				return false, final
			}
			return len(calls) == 5, lost
		}
		err := remote.Resubscribe(t.Context(), slog.New(slog.DiscardHandler), time.Second, 4*time.Second, final, watch)
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 11 * time.Second, 12 * time.Second,
			14 * time.Second}
		if !errors.Is(err, final) || !slices.Equal(calls, want) {
			t.Errorf("got %v, calls at %v; want %v, calls at %v", err, calls, final, want)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls = calls[:0]
		err = remote.Resubscribe(ctx, slog.New(slog.DiscardHandler), time.Hour, time.Hour, final, watch)
		if !errors.Is(err, context.DeadlineExceeded) || len(calls) != 1 {
			t.Errorf("got %v after %d calls, want the context's error after 1", err, len(calls))
		}
	})
}
