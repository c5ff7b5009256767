package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// One want is answered at once, a flood once in a while, and the last want of it never lost.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var calls []time.Duration // of thing 1
		p := newThrottle(ctx, 3, 1, time.Second, func(_ context.Context, i int) {
			if i != 1 {
				t.Errorf("called for %d", i)
			}
			calls = append(calls, time.Since(start))
		})
		for range 10_000 {
			p.runSoon(1)
		}
		synctest.Wait()
		if len(calls) < 1 || len(calls) > 1 {
			t.Fatalf("%d calls at once, want 1", len(calls))
		}
		for range 35 { // 3.5 s
			time.Sleep(100 * time.Millisecond)
			p.runSoon(1)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(calls); n != 5 {
			t.Fatalf("calls at %v, want 5: each second, and one after the last want", calls)
		}
		for i, at := range calls {
			if want := time.Duration(i) * time.Second; at != want {
				t.Errorf("call %d at %s, want %s", i, at, want)
			}
		}
		p.runSoon(1)
		synctest.Wait()
		if len(calls) != 6 {
			t.Error("a want after a rest is not answered at once")
		}
		p.runSoon(1) // is waiting when all ends
		cancel()
		p.wait()
		p.runSoon(1)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(calls) != 6 {
			t.Errorf("%d calls, some of them after the end", len(calls)-6)
		}
	})
}

// What is wanted while f runs is answered after it, and not beside it; others wait for a free place.
func TestPaceOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running, most, calls atomic.Int32
		p := newThrottle(ctx, 10, 2, time.Second, func(ctx context.Context, i int) {
			calls.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
			}
			running.Add(-1)
		})
		p.runSoon(0)
		synctest.Wait()
		p.runSoon(0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d calls for one thing at the same time", calls.Load())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if calls.Load() != 2 {
			t.Errorf("%d calls, want a second one after the first", calls.Load())
		}
		for i := range 10 {
			p.runSoon(i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls.Load() != 12 || most.Load() != 2 {
			t.Errorf("%d calls, %d at once; want 12, 2", calls.Load(), most.Load())
		}
		p.runSoon(3)
		synctest.Wait()
		cancel()
		p.wait()
		if running.Load() != 0 {
			t.Error("f runs after Wait")
		}
	})
}

// It sleeps for the given time, and not beyond ctx's end.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if !SleepContext(ctx, 7*time.Second) || time.Since(start) != 7*time.Second {
			t.Errorf("the first: %s", time.Since(start))
		}
		if SleepContext(ctx, 7*time.Second) || time.Since(start) != 10*time.Second {
			t.Errorf("beyond the end: %s", time.Since(start))
		}
		if SleepContext(ctx, time.Hour) || time.Since(start) != 10*time.Second {
			t.Errorf("after the end: %s", time.Since(start))
		}
	})
}
