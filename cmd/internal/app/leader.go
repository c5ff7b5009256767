package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// LeaderLabel marks every leader's Lease of forcefence, of any name and namespace. By it two controllers that were
// installed under different names find each other.
const LeaderLabel = "forcefence.io/leader"

// The annotations of a leader's Lease about its configuration file.
const (
	// ConfigRejectedAnnotation is why the leader rejects its changed file. There is none while that file is in force.
	ConfigRejectedAnnotation = "forcefence.io/config-rejected"
	// ConfigDigestAnnotation identifies the file in force (config.Config.Digest).
	ConfigDigestAnnotation = "forcefence.io/config-digest"
	// ConfigSinceAnnotation is when a leader put that file in force (RFC 3339).
	ConfigSinceAnnotation = "forcefence.io/config-since"
)

// errNotLeading stops a write: the process does not lead, or no longer surely leads.
var errNotLeading = errors.New("not the leader any more")

// errRival reports that another forcefence leads, under another Lease. Each would take the other's marks for a
// person's.
var errRival = errors.New("another forcefence leads this cluster")

// stampedLock is a leader-election lock that remembers when its last successful renewal was sent. A process may be
// paused, or its renewals may stop. By the stamp it detects before its next write that another leader may have begun.
// The elector itself detects this only when it runs again.
//
// It also ensures that one forcefence leads in a cluster, not one per Lease. A process that begins to lead looks for a
// rival before it writes its Lease, and again after. Of two that begin at the same moment, the one that looks last sees
// the other's Lease. If both see each other, both withdraw, and the elector's jitter separates them.
type stampedLock struct {
	resourcelock.Interface
	now    func() time.Time
	valid  time.Duration // RenewDeadline: shorter than another replica's wait
	rivals *rivals
	log    *slog.Logger

	annotate func(map[string]string) // sets the Lease's annotations about the configuration

	sent atomic.Pointer[time.Time] // nil: not leading

	// Only the elector's goroutine uses these.
	loggedRival string // the rival that was logged last
	holder      string // of the Lease, when it was read last
}

func newLock(rc *rest.Config, le config.LeaderElection, o Options) (*stampedLock, error) {
	// The elector's own requests must not wait longer than the Lease is valid.
	rc = rest.CopyConfig(rc)
	rc.Timeout = le.RenewDeadline / 2
	cs, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	name := types.NamespacedName{Namespace: o.Namespace, Name: config.LeaseName}
	l := lockOf(cs.CoordinationV1(), name, le, o.Identity, o.Log)
	// Users of any namespace can label large Leases as a rival's.
	rc.ContentType = runtime.ContentTypeProtobuf
	kube.BoundLeases(rc)
	if cs, err = kubernetes.NewForConfig(rc); err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	l.rivals.client = cs.CoordinationV1()
	return l, nil
}

func lockOf(
	c coordinationclient.LeasesGetter,
	name types.NamespacedName,
	le config.LeaderElection,
	identity string,
	log *slog.Logger,
) *stampedLock {
	l := &stampedLock{
		now: time.Now, valid: le.RenewDeadline, log: log,
		rivals:   &rivals{client: c, self: name, least: le.LeaseDuration, now: time.Now},
		annotate: func(map[string]string) {},
	}
	l.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Client:     annotatedLeases{c, l},
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		Labels:     map[string]string{LeaderLabel: "true"},
	}
	return l
}

// annotatedLeases is a client of Leases. With every update it writes the annotations about the configuration.
type annotatedLeases struct {
	coordinationclient.LeasesGetter
	lock *stampedLock
}

func (a annotatedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return annotatedLease{a.LeasesGetter.Leases(namespace), a.lock}
}

type annotatedLease struct {
	coordinationclient.LeaseInterface
	lock *stampedLock
}

func (a annotatedLease) Update(
	ctx context.Context,
	lease *coordinationv1.Lease,
	o metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	a.lock.annotate(lease.Annotations)
	return a.LeaseInterface.Update(ctx, lease, o)
}

// Get returns a rival's hold as if it were that of this Lease, so that the elector waits quietly.
func (l *stampedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	rec, raw, err := l.Interface.Get(ctx)
	if l.holder = ""; err == nil {
		l.holder = rec.HolderIdentity
	}
	if err != nil && !apierrors.IsNotFound(err) || l.checkLeading() == nil {
		return rec, raw, err
	}
	l.sent.Store(nil) // the stamp is too old: to lead again is to begin again
	rival, bad := l.rivals.findRivals(ctx, fromMemory)
	if bad != nil {
		return nil, nil, bad
	}
	if rival == "" {
		if l.loggedRival != "" {
			l.log.Info("No other forcefence leads any more", "lease", l.loggedRival)
			l.loggedRival = ""
		}
		return rec, raw, err
	}
	if l.loggedRival != rival {
		l.log.Warn("Not leading while another forcefence leads this cluster", "lease", rival)
		l.loggedRival = rival
	}
	// The elector trusts a record for its duration after the record's text changed. So the text changes each time while
	// the rival exists.
	held := resourcelock.LeaderElectionRecord{
		HolderIdentity:       rival,
		LeaseDurationSeconds: int(l.rivals.least / time.Second),
	}
	return &held, []byte(rival + l.now().Format(time.RFC3339Nano)), nil
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
	before := l.sent.Load()
	begins := l.checkLeading()
	if begins != nil && before != nil {
		l.sent.Store(nil)
		return begins // the elector has not looked since the stamp expired: now it does, by Get
	}
	sent := l.now()
	if err := write(ctx, rec); err != nil {
		return err
	}
	// A renewal that arrives after the previous stamp expired is a beginning as well.
	if begins != nil || l.checkLeading() != nil {
		rival, err := l.rivals.findRivals(ctx, fromEtcd)
		if err == nil && rival != "" {
			err = fmt.Errorf("%w: %s", errRival, rival)
		}
		if err != nil {
			l.sent.Store(nil)
			rec.HolderIdentity, rec.LeaseDurationSeconds = "", 1
			// Write even if the process has just been asked to stop, so that the next leader need not wait until the
			// Lease expires. Every request of this lock has its own timeout.
			return errors.Join(err, l.Interface.Update(context.WithoutCancel(ctx), rec))
		}
		l.sent.Store(&sent)
		return nil
	}
	if !l.sent.CompareAndSwap(before, &sent) {
		return errNotLeading // watchRivals has found a rival meanwhile
	}
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

// watchRivals looks for a rival while this process leads, and returns an error if there is one: nothing should have let
// it begin. It blocks until then, or returns nil when ctx ends.
func (l *stampedLock) watchRivals(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	blind := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		rival, err := l.rivals.findRivals(ctx, fromMemory)
		if rival != "" {
			// A rival that has withdrawn but is still in memory must not end the leadership.
			rival, err = l.rivals.findRivals(ctx, fromEtcd)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case rival != "":
			l.sent.Store(nil) // nothing more is written
			return fmt.Errorf("%w: %s", errRival, rival)
		case err != nil && !blind:
			l.log.Warn("Could not look for another forcefence; trying again", "error", err)
		}
		blind = err != nil
	}
}

// rivals finds the Leases by which other installations of forcefence lead. Like an elector it compares no clocks. A
// Lease counts as held until it was seen unchanged for its own duration.
type rivals struct {
	client coordinationclient.LeasesGetter
	self   types.NamespacedName
	least  time.Duration // LeaseDuration: a Lease counts as held for that long at least
	now    func() time.Time

	mu   sync.Mutex // guards seen
	seen map[types.UID]sighting
}

// sighting is when a Lease was first seen in its present version.
type sighting struct {
	version string
	at      time.Time
}

// longestLease is the longest leaseDuration that the configuration allows. A Lease that claims more counts for this
// long.
const longestLease = time.Hour

// The sources of a list of Leases: the API server's memory, or etcd.
const (
	fromMemory = "0"
	fromEtcd   = ""
)

// findRivals returns a Lease that another leader holds, as namespace/name and its holder; "" if there is none.
func (r *rivals) findRivals(ctx context.Context, from string) (string, error) {
	all := metav1.ListOptions{LabelSelector: LeaderLabel, ResourceVersion: from}
	list, err := r.client.Leases(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return "", fmt.Errorf("looking for another forcefence (takes the right to list leases.coordination.k8s.io in "+
			"all namespaces): %w", err)
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, found := map[types.UID]sighting{}, []string{}
	for i := range list.Items {
		lease := &list.Items[i]
		holder := holderOf(lease)
		if holder == "" || (types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}) == r.self {
			continue
		}
		s, ok := r.seen[lease.UID]
		if !ok || s.version != lease.ResourceVersion {
			s = sighting{version: lease.ResourceVersion, at: now}
		}
		seen[lease.UID] = s
		if now.Sub(s.at) < max(r.least, leaseDuration(lease)) {
			found = append(found, fmt.Sprintf("%s/%s held by %s", lease.Namespace, lease.Name, holder))
		}
	}
	r.seen = seen
	return strings.Join(found, ", "), nil
}

func holderOf(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

func leaseDuration(l *coordinationv1.Lease) time.Duration {
	return min(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second, longestLease)
}

// newLeaseReporter returns a function that sends an Event about the leader's Lease, with that action. It sends none
// while may returns an error: all replicas read the same file, and one Event is enough.
func newLeaseReporter(
	to events.EventRecorder, action string, may func() error, namespace string,
) func(reason.Reason, ...string) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.LeaseName}}
	return func(why reason.Reason, words ...string) {
		if may() != nil {
			return
		}
		to.Eventf(lease, nil, corev1.EventTypeWarning, string(why), action, "%s", reason.RowOf(why).EventNote(words...))
	}
}
