package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLock stands for the Lease; only its errors matter here. Real elections run in test/integration.
type fakeLock struct {
	resourcelock.Interface
	err error
}

func (f *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }
func (f *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return f.err }
func (f *fakeLock) Identity() string                                                { return "me" }

func TestLeadingEndsWithTheRenewals(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	inner := &fakeLock{}
	l := &stampedLock{Interface: inner, now: func() time.Time { return now }, valid: 10 * time.Second}
	mine, released := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	check := func(what string, want bool) {
		t.Helper()
		err := l.leading()
		if (err == nil) != want {
			t.Errorf("%s: got %v, want leading %v", what, err, want)
		}
		if err != nil && !errors.Is(err, errNotLeading) {
			t.Errorf("%s: got %v, want errNotLeading", what, err)
		}
	}
	check("never renewed", false)
	_ = l.Create(t.Context(), mine)
	check("acquired", true)
	now = now.Add(9 * time.Second)
	check("9 s later", true)
	_ = l.Update(t.Context(), mine)
	now = now.Add(9 * time.Second)
	check("9 s after a renewal", true)
	inner.err = errors.New("API server away")
	_ = l.Update(t.Context(), mine)
	now = now.Add(time.Second)
	check("10 s after the last renewal that succeeded", false)
	now = now.Add(-time.Hour)
	check("the clock was set back", false)
	inner.err = nil
	_ = l.Update(t.Context(), mine)
	check("renewed", true)
	_ = l.Update(t.Context(), released)
	check("released", false)
}
