package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// errRewound reports that the watches of this process wait for revisions that etcd has lost.
var errRewound = errors.New("etcd was restored from an older backup, so older watches bring no events")

const (
	rewindPeriod = 10 * time.Second // between two live reads
	rewoundFor   = time.Minute      // live reads must stay older for so long
	eventTime    = 5 * time.Second  // an Event is sent in the background, and no more once the process ends
)

// rewind detects that etcd was restored from an older backup: its revisions count on from there. Watches from before
// wait for revisions of the future. They bring nothing and report no error, so every cache stays as it was (F41).
//
// rewind compares live reads of the leader's Lease, which the leader writes every few seconds. Such a read is a quorum
// read. Through any API server, it is older than an earlier one only after a restore.
//
// Every replica reads the Lease, not only the leader. A leader loses its Lease during most restores, and then a standby
// leads with watches from before.
type rewind struct {
	read   func(context.Context) (version string, err error) // the Lease's resourceVersion, live
	report func(detail string)                               // sends the Event
	now    func() time.Time

	newest string                            // the newest version read so far
	older  atomic.Pointer[providers.Instant] // the first of the older reads in a row; nil: the last read was not older
}

// newRewind returns a rewind over the Lease of the lock.
func newRewind(l *stampedLock, report func(detail string)) *rewind {
	read := func(ctx context.Context) (string, error) {
		// Without a resourceVersion it is a quorum read.
		got, err := l.leases.Get(ctx, config.LeaseName, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading the leader's Lease live: %w", err)
		}
		return got.ResourceVersion, nil
	}
	return &rewind{read: read, report: report, now: l.now}
}

// observeVersion records a live read, and reports whether live reads have been older for long enough. A read that is
// not older starts the count again.
func (r *rewind) observeVersion(version string, at providers.Instant) bool {
	if !taint.IsOlder(version, r.newest) {
		r.newest = version
		r.older.Store(nil)
		return false
	}
	r.older.CompareAndSwap(nil, &at)
	return at.Sub(*r.older.Load()) >= rewoundFor
}

// withRewindCheck returns leading with one more condition: the last live read was not older. Until the process ends no
// node or pod is written and no power is cut. The last check before a power-off relies on the watches.
func (r *rewind) withRewindCheck(leading func() error) func() error {
	return func() error {
		if err := leading(); err != nil {
			return err
		}
		if r.older.Load() != nil {
			return errRewound
		}
		return nil
	}
}

// watchLease blocks until ctx ends and returns nil, or until the live reads have been older for a minute. Then it sends
// the Event and returns an error, so that the process ends and its successor begins with new watches.
func (r *rewind) watchLease(ctx context.Context) error {
	tick := time.NewTicker(rewindPeriod)
	defer tick.Stop()
	for {
		// A failed read gives no version. The elector, which reads the same Lease, logs it.
		version, err := r.read(ctx)
		if err == nil && r.observeVersion(version, providers.InstantOf(r.now())) {
			detail := fmt.Sprintf("the leader's Lease is at resourceVersion %s, and was at %s", version, r.newest)
			r.report(detail)
			select {
			case <-ctx.Done():
			case <-time.After(eventTime):
			}
			return fmt.Errorf("%w: %s", errRewound, detail)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
