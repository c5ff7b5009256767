package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// patience is much longer than a Watch needs to report or to return: other packages' tests share the machine.
const patience = time.Minute

// StartWatch runs a Watch until the test ends, or stop is called. It returns the reports as "node state word" ("n1 Off
// event: stopped"). The channel is closed once Watch has returned, as the contract requires: a later report panics.
func StartWatch(t testing.TB, w providers.Watcher, targets ...providers.Target) (reports <-chan string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ch, over := make(chan string, 100_000), make(chan error, 1)
	go func() {
		over <- w.Watch(ctx, targets, func(of providers.Target, o providers.Observation) {
			if o.At.IsZero() {
				t.Error("got a report without a time")
			}
			ch <- fmt.Sprintf("%s %s %s", of.Node, o.State, o.Raw)
		})
		close(ch)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-over:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch: got %v", err)
			}
		case <-time.After(patience):
			t.Error("Watch does not return")
		}
	})
	t.Cleanup(stop)
	return ch, stop
}

// AwaitReports waits until all of these, or reports that begin with them, have arrived, in any order and among any
// others. It returns all that arrived.
func AwaitReports(t testing.TB, reports <-chan string, want ...string) (seen []string) {
	t.Helper()
	for deadline := time.After(patience); len(want) > 0; {
		select {
		case got, open := <-reports:
			if !open {
				t.Fatalf("not reported: %q, only %q, and Watch has returned", want, seen)
			}
			seen = append(seen, got)
			want = slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.HasPrefix(got, w) })
		case <-deadline:
			t.Fatalf("not reported: %q, only %q", want, seen)
		}
	}
	return seen
}
