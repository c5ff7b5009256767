package sharing

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Callers share the call that begins after they came. It belongs to none of them alone, and its failure counts once.
func TestCallersShareTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Call[time.Duration]
		began, broken := time.Now(), errors.New("broken")
		calls := 0
		put := func(ctx context.Context) (time.Duration, error) {
			calls++ // one at a time
			at := time.Since(began)
			select {
			case <-time.After(time.Second):
				return at, broken
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		var all sync.WaitGroup
		var mu sync.Mutex // guards counted
		counted := 0
		ask := func(ctx context.Context, want time.Duration, fails error) {
			all.Go(func() {
				at, err := c.Ask(ctx, time.Minute, put)
				if at != want || !errors.Is(err, fails) {
					t.Errorf("got the call of %s, %v; want that of %s, %v", at, err, want, fails)
				}
				var shared Shared
				if errors.Is(err, broken) && !errors.As(err, &shared) {
					mu.Lock()
					defer mu.Unlock()
					counted++
				}
			})
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		ask(short, 0, context.DeadlineExceeded) // the call goes on without it
		time.Sleep(500 * time.Millisecond)
		for range 40 {
			ask(t.Context(), time.Second, broken)
		}
		all.Wait()
		if calls != 2 || counted != 1 {
			t.Errorf("%d calls, %d failures; want 2, and one that counts", calls, counted)
		}
	})
}

// A call that takes too long ends, and the next begins.
func TestCallEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Call[int]
		hangs := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, context.Cause(ctx) }
		for range 2 {
			began := time.Now()
			_, err := c.Ask(t.Context(), time.Second, hangs)
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
				t.Errorf("got %v after %s, want the end of its time after 1s", err, took)
			}
			synctest.Wait() // the call is put away
		}
	})
}
