package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/test/kit"
)

// Live reads must be older for a minute without a break. What is not known to be older is not.
func TestRewindDecides(t *testing.T) {
	type read struct {
		after   time.Duration // since the first read
		version string
	}
	const minute = time.Minute
	for _, tc := range []struct {
		name          string
		reads         []read
		want, holding bool // after the last read
	}{
		{"the first read", []read{{0, "7"}}, false, false},
		{"versions go on", []read{{0, "7"}, {minute, "8"}, {2 * minute, "9"}}, false, false},
		{"nobody writes the Lease", []read{{0, "7"}, {minute, "7"}, {2 * minute, "7"}}, false, false},
		{"one older read", []read{{0, "7"}, {minute, "5"}}, false, true},
		{"older for nearly a minute", []read{{0, "7"}, {minute, "5"}, {2*minute - time.Second, "6"}}, false, true},
		{"older for a minute", []read{{0, "7"}, {minute, "5"}, {2 * minute, "5"}}, true, true},
		{"older for a minute, and counting on", []read{{0, "100"}, {minute, "98"}, {2 * minute, "99"}}, true, true},
		{"older than one before the last", []read{{0, "7"}, {minute, "9"}, {2 * minute, "8"}, {3 * minute, "8"}}, true,
			true},
		{"a server lags now and then",
			[]read{{0, "7"}, {minute, "5"}, {minute + 30*time.Second, "7"}, {2 * minute, "5"}},
			false, true},
		{"the last read is not older", []read{{0, "7"}, {minute, "5"}, {2 * minute, "7"}}, false, false},
		{"longer numbers are newer", []read{{0, "99"}, {minute, "100"}, {2 * minute, "101"}}, false, false},
		{"no number", []read{{0, "7"}, {minute, "x"}, {2 * minute, "x"}}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, start, got := &rewind{}, providers.Now(), false
			for _, read := range tc.reads {
				got = r.observeVersion(read.version, start.Add(read.after))
			}
			if got != tc.want {
				t.Errorf("behind: got %v, want %v", got, tc.want)
			}
			leading := func() error { return nil }
			if err := r.withRewindCheck(leading)(); errors.Is(err, errRewound) != tc.holding ||
				(err != nil) != tc.holding {
				t.Errorf("while it leads: got %v, want errRewound %v", err, tc.holding)
			}
			if err := r.withRewindCheck(func() error { return errNotLeading })(); !errors.Is(err, errNotLeading) {
				t.Errorf("while it does not lead: got %v, want errNotLeading", err)
			}
		})
	}
}

// If the clocks of a process diverge, it counts the minute by the one that stops during a suspension.
func TestRewindOfASuspendedProcess(t *testing.T) {
	r, start := &rewind{}, time.Now()
	r.observeVersion("7", providers.InstantOf(start))
	r.observeVersion("5", providers.InstantOf(start.Add(time.Second)))
	if r.observeVersion("5", providers.InstantOf(apart(t, start, 2*time.Second, time.Hour))) {
		t.Error("two reads a second apart, and a suspension between them: got behind, want not yet")
	}
}

// restore takes the store back to a copy of before, and counts on from there: an etcd without a revision bump.
func (s *store) restore(before *store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv, s.leases = before.rv, before.leases
}

func (s *store) backup() *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &store{rv: s.rv, leases: map[types.NamespacedName]*coordinationv1.Lease{}}
	for name, l := range s.leases {
		out.leases[name] = l.DeepCopy()
	}
	return out
}

// After a restore the leader and its standby write nothing more, report it once each, and end.
func TestRestoredEtcdEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{store: &store{}}
		leader, standby := lockIn(s, "a"), lockIn(s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		renewals := func(d time.Duration) {
			for range d / election.RetryPeriod {
				kit.Must(t, claim(leader))
				time.Sleep(election.RetryPeriod) // the bubble's
			}
			synctest.Wait()
		}
		renewals(election.RetryPeriod)

		type process struct {
			*rewind
			events *events.FakeRecorder
			ended  chan error
		}
		var all []process
		for _, l := range []*stampedLock{leader, standby} {
			p := process{events: events.NewFakeRecorder(10), ended: make(chan error, 1)}
			tell := newLeaseReporter(p.events, "Restart", func() error { return nil })
			p.rewind = newRewind(l, func(detail string) { tell(reason.WatchesBehind, "{detail}", detail) })
			go func() { p.ended <- p.watchLease(ctx) }()
			all = append(all, p)
		}
		leading := all[0].withRewindCheck(leader.checkLeading)
		backup := s.store.backup()
		renewals(5 * time.Minute)
		kit.Must(t, leading())
		lost := s.store.rv

		s.store.restore(backup)
		restored := time.Now()
		renewals(rewindPeriod + election.RetryPeriod)
		if err := leading(); !errors.Is(err, errRewound) {
			t.Errorf("after the first older read: got %v, want that nothing is sent", err)
		}
		renewals(rewoundFor - rewindPeriod - election.RetryPeriod)
		for i, p := range all {
			if len(p.ended)+len(p.events.Events) > 0 {
				t.Errorf("process %d: got an end or an Event after %s, want none", i, time.Since(restored))
			}
		}
		renewals(rewindPeriod + eventTime + election.RetryPeriod)
		for i, p := range all {
			select {
			case err := <-p.ended:
				if want := fmt.Sprintf("was at %d", lost); !errors.Is(err, errRewound) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("process %d: got %v, want errRewound that says %q", i, err, want)
				}
			default:
				t.Errorf("process %d goes on %s after the restore", i, time.Since(restored))
			}
			if len(p.events.Events) != 1 {
				t.Fatalf("process %d: got %d Events, want 1", i, len(p.events.Events))
			}
			text, version := <-p.events.Events, fmt.Sprint(lost)
			if !strings.HasPrefix(text, "Warning WatchesBehind etcd was restored") || !strings.Contains(text, version) {
				t.Errorf("process %d: got Event %q, want WatchesBehind with version %s", i, text, version)
			}
		}
	})
}

// Neither an API server that is away nor a missing Lease ends a process. A process that is told to stop ends without an
// error.
func TestRewindNeedsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		s := &session{store: &store{}, call: func(_ string, do func()) error {
			if away.Load() {
				return errors.New("API server away")
			}
			do()
			return nil
		}}
		l := lockIn(s, "a")
		r := newRewind(l, func(detail string) { t.Errorf("got an Event (%s), want none", detail) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.watchLease(ctx) }()
		time.Sleep(2 * rewoundFor) // no Lease
		kit.Must(t, claim(l))
		time.Sleep(2 * rewoundFor)
		synctest.Wait()
		away.Store(true)
		time.Sleep(2 * rewoundFor)
		synctest.Wait()
		if err := r.withRewindCheck(func() error { return nil })(); err != nil {
			t.Errorf("while nothing can be read: got %v, want no error", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("told to stop: got %v, want no error", err)
		}
	})
}
