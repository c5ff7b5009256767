package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/reason"
)

// The annotations of the leader's Lease.
const (
	// NamespaceAnnotation is the namespace of the installation that the Lease belongs to. No other one may lead.
	NamespaceAnnotation = "forcefence.io/namespace"
	// ConfigRejectedAnnotation is why the leader rejects its changed file. There is none while that file is in force.
	ConfigRejectedAnnotation = "forcefence.io/config-rejected"
	// ConfigDigestAnnotation identifies the file in force (config.Config.Digest).
	ConfigDigestAnnotation = "forcefence.io/config-digest"
	// ConfigSinceAnnotation is when a leader put that file in force (RFC 3339).
	ConfigSinceAnnotation = "forcefence.io/config-since"
	// DrilledSinceAnnotation is when the leader asked the devices of the node that it asked the longest ago (RFC 3339).
	// It is missing until the leader has asked those of every node.
	DrilledSinceAnnotation = "forcefence.io/drilled-since"
	// HeldBackAnnotation is what the leader's storm guard holds back now (view.HeldBack, in JSON). It is missing while
	// that is nothing. It names its leader, so that the next one's Lease does not show it.
	HeldBackAnnotation = "forcefence.io/held-back"
)

// errNotLeading stops a write: the process does not lead, or no longer surely leads.
var errNotLeading = errors.New("not the leader any more")

// errOtherInstall reports that the Lease belongs to an installation in another namespace. Each of the two would take
// the other's marks for a person's.
var errOtherInstall = errors.New("another forcefence is installed in this cluster")

// errRival reports that another process leads while this one acts without leader election.
var errRival = errors.New("two controllers would fence at once")

// stampedLock is a leader-election lock that remembers when its last successful renewal was sent. A process may be
// paused, or its renewals may stop. By the stamp it detects before its next write that another leader may have begun.
// The elector itself detects this only when it runs again.
//
// There is one Lease in a cluster. It belongs to the installation that wrote it first, also while no process holds it.
// A process of another installation never writes it, and ends by watchInstall.
type stampedLock struct {
	resourcelock.Interface
	now       func() time.Time
	valid     time.Duration // RenewDeadline: shorter than another replica's wait
	namespace string        // of this process's installation
	leases    coordinationclient.LeaseInterface
	refused   chan error // of the capacity 1: that the Lease belongs to another installation

	annotate func(map[string]string) // sets the Lease's annotations about the configuration

	sent atomic.Pointer[time.Time] // nil: not leading

	holder string // of the Lease, when it was read last; only the elector's goroutine uses it
}

func newLock(rc *rest.Config, le config.LeaderElection, o Options) (*stampedLock, error) {
	// The elector's own requests must not wait longer than the Lease is valid.
	rc = rest.CopyConfig(rc)
	rc.Timeout = le.RenewDeadline / 2
	cs, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return lockOf(cs.CoordinationV1(), le, o.Identity, o.Namespace), nil
}

func lockOf(c coordinationclient.LeasesGetter, le config.LeaderElection, identity, namespace string) *stampedLock {
	l := &stampedLock{
		now: time.Now, valid: le.RenewDeadline, namespace: namespace, leases: c.Leases(config.LeaseNamespace),
		refused: make(chan error, 1), annotate: func(map[string]string) {},
	}
	l.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: config.LeaseNamespace, Name: config.LeaseName},
		Client:     ownLeases{l},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	return l
}

// ownLeases is the elector's client. It writes the annotations, and refuses a Lease of another installation.
type ownLeases struct{ lock *stampedLock }

// Leases implements coordinationclient.LeasesGetter. The elector has one namespace.
func (o ownLeases) Leases(string) coordinationclient.LeaseInterface {
	return ownLease{o.lock.leases, o.lock}
}

type ownLease struct {
	coordinationclient.LeaseInterface
	lock *stampedLock
}

func (o ownLease) Get(ctx context.Context, name string, g metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := o.LeaseInterface.Get(ctx, name, g)
	if err != nil {
		return nil, err
	}
	if err := o.lock.checkInstall(lease); err != nil {
		return nil, err
	}
	return lease, nil
}

func (o ownLease) Create(
	ctx context.Context,
	lease *coordinationv1.Lease,
	c metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	lease.Annotations = map[string]string{NamespaceAnnotation: o.lock.namespace}
	return o.LeaseInterface.Create(ctx, lease, c)
}

func (o ownLease) Update(
	ctx context.Context,
	lease *coordinationv1.Lease,
	u metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[NamespaceAnnotation] = o.lock.namespace
	o.lock.annotate(lease.Annotations)
	return o.LeaseInterface.Update(ctx, lease, u)
}

// checkInstall returns errOtherInstall if the Lease belongs to another installation.
func (l *stampedLock) checkInstall(lease *coordinationv1.Lease) error {
	of := lease.Annotations[NamespaceAnnotation]
	if of == "" || of == l.namespace {
		return nil
	}
	err := fmt.Errorf("%w: Lease %s/%s belongs to the one in namespace %s, and this one is in %s. Uninstall one of "+
		"them. If the one in %[4]s is gone, delete the Lease", errOtherInstall, lease.Namespace, lease.Name, of,
		l.namespace)
	select {
	case l.refused <- err:
	default:
	}
	return err
}

// watchInstall returns an error once the Lease turns out to belong to another installation: this one cannot lead. It
// blocks until then, or returns nil when ctx ends.
func (l *stampedLock) watchInstall(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.refused:
		return err
	}
}

func (l *stampedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	rec, raw, err := l.Interface.Get(ctx)
	if l.holder = ""; err == nil {
		l.holder = rec.HolderIdentity
	}
	if errors.Is(err, errOtherInstall) || err == nil && l.holder != l.Identity() {
		l.sent.Store(nil) // a person may have deleted the Lease by which this process led
	}
	return rec, raw, err
}

func (l *stampedLock) Create(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.writeStamped(ctx, rec, l.Interface.Create)
}

func (l *stampedLock) Update(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return l.writeStamped(ctx, rec, l.Interface.Update)
}

func (l *stampedLock) writeStamped(
	ctx context.Context,
	rec resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if rec.HolderIdentity != l.Identity() { // a release, whether it arrives or not
		l.sent.Store(nil)
		// A leader that was stopped and replaced wakes up, gives up, and reads the Lease before it releases it. It does
		// not check the Lease's holder (client-go 0.37, LeaderElector.tryRelease), so it would take the Lease from the
		// new leader.
		if rec.HolderIdentity == "" && l.holder != l.Identity() {
			return nil
		}
		return write(ctx, rec)
	}
	sent := l.now()
	if err := write(ctx, rec); err != nil {
		return err
	}
	l.sent.Store(&sent)
	return nil
}

// checkLeading returns nil while no other process can have become the leader.
func (l *stampedLock) checkLeading() error {
	sent := l.sent.Load()
	if sent == nil {
		return errNotLeading
	}
	// The monotonic clock stops while a virtual machine is suspended, and the wall clock may be set back. The greater
	// age counts.
	now := l.now()
	if age := max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0))); age >= l.valid || age < 0 {
		return fmt.Errorf("%w: its Lease was last renewed %s ago (renewDeadline is %s)", errNotLeading,
			age.Round(time.Millisecond), l.valid)
	}
	return nil
}

// rivalWait is how long a start without leader election waits for a renewal by the Lease's holder. A leader renews
// every retryPeriod, 2s by default. The liveness probe ends a process that waits for 30 s.
const rivalWait = 20 * time.Second

// rivalPeriod is how often a process without leader election looks for a leader.
const rivalPeriod = 10 * time.Second

// checkNoRival returns an error if another process leads, or if that is unknown. It is for a process that acts without
// leader election. If the Lease has a holder, it reads the Lease every so often, for at most rivalWait. It finds no
// rival that has no leader election either, and none whose retryPeriod is longer than that.
func (l *stampedLock) checkNoRival(ctx context.Context, every time.Duration) error {
	rec, _, err := l.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for another leader: %w", err)
	case rec.HolderIdentity == "" || rec.HolderIdentity == l.Identity():
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(rivalWait, time.Duration(rec.LeaseDurationSeconds)*time.Second))
	defer cancel()
	return l.watchRival(ctx, every)
}

// watchRival returns an error once another process renews the Lease, or the Lease belongs to another installation. It
// blocks until then, or returns nil when ctx ends. It ignores reads that fail: an outage of the API server is no rival.
func (l *stampedLock) watchRival(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last *resourcelock.LeaderElectionRecord
	for {
		rec, _, err := l.Get(ctx)
		switch {
		case errors.Is(err, errOtherInstall):
			return err
		case err != nil:
		case rec.HolderIdentity == "" || rec.HolderIdentity == l.Identity():
			last = nil
		case last != nil && !rec.RenewTime.Equal(&last.RenewTime):
			return fmt.Errorf("%w: leaderElection.enabled is false here, and %s renews the Lease %s/%s. Stop that "+
				"process, or leave leaderElection on", errRival, rec.HolderIdentity, config.LeaseNamespace,
				config.LeaseName)
		default:
			last = rec
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// newLeaseReporter returns a function that sends an Event about the leader's Lease, with that action. It sends none
// while may returns an error: all replicas read the same file, and one Event is enough.
func newLeaseReporter(to events.EventRecorder, action string, may func() error) func(reason.Reason, ...string) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.LeaseNamespace, Name: config.LeaseName},
	}
	return func(why reason.Reason, words ...string) {
		if may() != nil {
			return
		}
		to.Eventf(lease, nil, corev1.EventTypeWarning, string(why), action, "%s", reason.RowOf(why).EventNote(words...))
	}
}
