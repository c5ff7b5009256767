package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotLeading stops a write: the process is not, or no longer surely, the leader.
var errNotLeading = errors.New("not the leader any more")

// stampedLock is a leader-election lock that remembers when its last successful renewal was sent. A process that was paused, or
// whose clock of renewals stands still, thus learns before its next write that another leader may have begun: the elector itself
// finds out only when it gets to run again.
type stampedLock struct {
	resourcelock.Interface
	now   func() time.Time
	valid time.Duration             // RenewDeadline: shorter than what another replica waits for
	sent  atomic.Pointer[time.Time] // nil: not leading
}

func (l *stampedLock) Create(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.stamp(rec, func() error { return l.Interface.Create(ctx, rec) })
}

func (l *stampedLock) Update(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.stamp(rec, func() error { return l.Interface.Update(ctx, rec) })
}

func (l *stampedLock) stamp(rec resourcelock.LeaderElectionRecord, write func() error) error {
	sent := l.now()
	if err := write(); err != nil {
		return err
	}
	if rec.HolderIdentity == l.Identity() {
		l.sent.Store(&sent)
	} else {
		l.sent.Store(nil) // released
	}
	return nil
}

// leading returns nil while no other process can have become the leader.
func (l *stampedLock) leading() error {
	sent := l.sent.Load()
	if sent == nil {
		return errNotLeading
	}
	// The monotonic clock stands still while a virtual machine is suspended, the wall clock may be set back: the older age counts.
	now := l.now()
	if age := max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0))); age >= l.valid || age < 0 {
		return fmt.Errorf("%w: its Lease was last renewed %s ago (renewDeadline is %s)", errNotLeading, age.Round(time.Millisecond), l.valid)
	}
	return nil
}
