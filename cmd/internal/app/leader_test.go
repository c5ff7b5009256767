package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/test/kit"
)

// store keeps Leases as an API server does: one write after the other, each with a new resourceVersion. Elections on a
// real one run in test/deploy.
type store struct {
	mu     sync.Mutex // guards the rest
	rv     int
	leases map[types.NamespacedName]*coordinationv1.Lease
	writes []string // verb and name
}

// session is one client's view of the store.
type session struct {
	store *store
	call  func(verb string, do func()) error // around each request; nil: as it is
}

type leaseClient struct {
	coordinationclient.LeaseInterface
	session   *session
	namespace string
}

func (s *session) Leases(ns string) coordinationclient.LeaseInterface {
	return leaseClient{session: s, namespace: ns}
}

func (l leaseClient) do(ctx context.Context, verb string, f func(s *store) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var err error
	run := func() {
		l.session.store.mu.Lock()
		defer l.session.store.mu.Unlock()
		err = f(l.session.store)
	}
	if l.session.call == nil {
		run()
		return err
	}
	if bad := l.session.call(verb, run); bad != nil {
		return bad
	}
	return err
}

var leaseResource = coordinationv1.Resource("leases")

func (l leaseClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *coordinationv1.Lease, _ error) {
	return out, l.do(ctx, "get", func(s *store) error {
		have := s.leases[types.NamespacedName{Namespace: l.namespace, Name: name}]
		if have == nil {
			return apierrors.NewNotFound(leaseResource, name)
		}
		out = have.DeepCopy()
		return nil
	})
}

func (l leaseClient) Create(ctx context.Context, in *coordinationv1.Lease,
	_ metav1.CreateOptions) (out *coordinationv1.Lease, _ error) {
	return out, l.do(ctx, "create", func(s *store) error {
		if s.leases[types.NamespacedName{Namespace: l.namespace, Name: in.Name}] != nil {
			return apierrors.NewAlreadyExists(leaseResource, in.Name)
		}
		out = s.put("create", in)
		return nil
	})
}

func (l leaseClient) Update(ctx context.Context, in *coordinationv1.Lease,
	_ metav1.UpdateOptions) (out *coordinationv1.Lease, _ error) {
	return out, l.do(ctx, "update", func(s *store) error {
		have := s.leases[types.NamespacedName{Namespace: l.namespace, Name: in.Name}]
		if have == nil || have.ResourceVersion != in.ResourceVersion {
			return apierrors.NewConflict(leaseResource, in.Name, errors.New("changed"))
		}
		out = s.put("update", in)
		return nil
	})
}

// put stores a Lease; mu is held.
func (s *store) put(verb string, in *coordinationv1.Lease) *coordinationv1.Lease {
	s.rv++
	l := in.DeepCopy()
	l.ResourceVersion, l.UID = fmt.Sprint(s.rv), types.UID(l.Namespace+"/"+l.Name)
	if s.leases == nil {
		s.leases = map[types.NamespacedName]*coordinationv1.Lease{}
	}
	s.leases[types.NamespacedName{Namespace: l.Namespace, Name: l.Name}] = l
	s.writes = append(s.writes, verb+" "+l.Namespace)
	return l.DeepCopy()
}

// election is what config.example.yaml shows.
var election = config.LeaderElection{
	Enabled: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
	RetryPeriod: 2 * time.Second,
}

// clock is a test's clock; it moves only when the test moves it.
type clock struct{ t time.Time }

func newClock() *clock                { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time       { return c.t }
func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }
func (l *stampedLock) use(c *clock)   { l.now = c.now }

var theLease = types.NamespacedName{Namespace: "kube-system", Name: "forcefence"}

// lockIn is the lock of an installation in that namespace.
func lockIn(s *session, ns string) *stampedLock { return lockOf(s, election, "pod-in-"+ns, ns) }

// replica is the lock of one of several replicas of an installation.
func replica(s *session, identity string) *stampedLock { return lockOf(s, election, identity, "a") }

// holder is who holds the Lease.
func (s *store) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ptr.Deref(s.leases[theLease].Spec.HolderIdentity, "")
}

func record(l *stampedLock) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(l.now())
	return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 15, AcquireTime: now,
		RenewTime: now}
}

// claim does what an elector does to lead: it reads the Lease, and writes it if it has no holder.
func claim(l *stampedLock) error {
	rec, _, err := l.Get(context.Background())
	switch {
	case apierrors.IsNotFound(err):
		return l.Create(context.Background(), record(l))
	case err != nil:
		return err
	case rec.HolderIdentity != "" && rec.HolderIdentity != l.Identity():
		return fmt.Errorf("held by %s", rec.HolderIdentity)
	}
	return l.Update(context.Background(), record(l))
}

func renew(l *stampedLock) error { return l.Update(context.Background(), record(l)) }

func wantLeading(t *testing.T, what string, l *stampedLock, want bool) {
	t.Helper()
	err := l.checkLeading()
	if (err == nil) != want {
		t.Errorf("%s: got %v, want leading %v", what, err, want)
	}
	if err != nil && !errors.Is(err, errNotLeading) {
		t.Errorf("%s: got %v, want errNotLeading", what, err)
	}
}

func TestLeadingEndsWithTheRenewals(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	l := lockIn(s, "a")
	l.use(c)
	wantLeading(t, "never renewed", l, false)
	kit.Must(t, claim(l))
	wantLeading(t, "acquired", l, true)
	c.pass(9 * time.Second)
	wantLeading(t, "9 s later", l, true)
	kit.Must(t, renew(l))
	c.pass(9 * time.Second)
	wantLeading(t, "9 s after a renewal", l, true)
	s.call = func(string, func()) error { return errors.New("API server away") }
	_ = renew(l)
	wantLeading(t, "9 s after the last renewal that succeeded", l, true)
	c.pass(time.Second)
	// The margin of the Lease: who waits for it to run out waits 15 s, and what was written in the last moment arrives
	// before that.
	wantLeading(t, "10 s after the last renewal that succeeded", l, false)
	c.pass(-time.Hour)
	wantLeading(t, "the clock was set back", l, false)
	s.call = nil
	kit.Must(t, claim(l))
	wantLeading(t, "acquired again", l, true)
	_ = l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
	wantLeading(t, "released", l, false)
}

// A renewal counts from when it was sent: the others may have seen it arrive at once.
func TestLeadingCountsFromTheQuestion(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	l := lockIn(s, "a")
	l.use(c)
	kit.Must(t, claim(l))
	s.call = func(_ string, do func()) error {
		do()
		c.pass(4 * time.Second)
		return nil
	}
	kit.Must(t, renew(l))
	c.pass(5 * time.Second)
	wantLeading(t, "9 s after it was sent", l, true)
	c.pass(time.Second)
	wantLeading(t, "10 s after it was sent, 6 s after its answer", l, false)
}

// The two clocks of a process diverge when its machine is suspended, and when the time is set.
func TestLeadingByEitherClock(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name            string
		monotonic, wall time.Duration
		want            bool
	}{
		{"both are young", 9 * time.Second, 9 * time.Second, true},
		{"suspended for a minute", time.Second, time.Minute, false},
		{"the time was set back", 11 * time.Second, 2 * time.Second, false},
		// the monotonic clock knows better
		{"the time was set back to before the renewal", time.Second, -time.Minute, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := lockIn(&session{store: &store{}}, "a")
			l.now = func() time.Time { return start }
			l.sent.Store(&start)
			l.now = func() time.Time { return apart(t, start, tc.monotonic, tc.wall) }
			wantLeading(t, tc.name, l, tc.want)
		})
	}
}

// apart is a reading of the clocks so much after t: package time has no way to make one in which they differ.
func apart(t *testing.T, from time.Time, monotonic, wall time.Duration) time.Time {
	t.Helper()
	out := from.Add(monotonic)
	word := (*uint64)(unsafe.Pointer(&out)) // in its upper bits the seconds, below bit 30 nanoseconds
	*word += uint64((wall - monotonic) / time.Second << 30)
	if m, w := out.Sub(from), out.Round(0).Sub(from.Round(0)); m != monotonic || w != wall {
		t.Fatalf("package time has changed: got %s and %s, want %s and %s", m, w, monotonic, wall)
	}
	return out
}

// The elector's requests end long before the Lease expires, even if the API server never answers.
func TestElectorsRequestsEnd(t *testing.T) {
	server := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	le := election
	le.RenewDeadline = 200 * time.Millisecond
	l, err := newLock(&rest.Config{Host: server.URL}, le,
		Options{Identity: "me", Namespace: "a", Log: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, _, err = l.Get(ctx)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || ctx.Err() != nil {
		t.Errorf("a request without an answer: got %v, want a time-out of its own", err)
	}
}

// A process without leader election does not start beside a leader, and ends once one leads. A dead leader's Lease, and
// one that was released, do not hold it up for long.
func TestRivalOfNoElection(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(*testing.T, *session)
		renews  bool // the other process lives
		atStart error
		waits   time.Duration
	}{
		{name: "no Lease"},
		{name: "its own Lease", prepare: func(t *testing.T, s *session) { kit.Must(t, claim(replica(s, "here"))) }},
		{name: "a released Lease", prepare: func(t *testing.T, s *session) {
			other := replica(s, "other")
			kit.Must(t, claim(other))
			kit.Must(t, claim(other)) // which reads the Lease, as an elector does before it releases it
			kit.Must(t, other.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}))
		}},
		{name: "a dead leader", waits: 15 * time.Second,
			prepare: func(t *testing.T, s *session) { kit.Must(t, claim(replica(s, "other"))) }},
		{name: "a leader", renews: true, atStart: errRival, waits: 2 * time.Second,
			prepare: func(t *testing.T, s *session) { kit.Must(t, claim(replica(s, "other"))) }},
		{name: "another installation", atStart: errOtherInstall,
			prepare: func(t *testing.T, s *session) { kit.Must(t, claim(lockIn(s, "theirs"))) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{store: &store{}}
				if tc.prepare != nil {
					tc.prepare(t, s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.renews {
					go renewEvery(ctx, replica(s, "other"), time.Second)
				}
				began := time.Now()
				err := replica(s, "here").checkNoRival(ctx, election.RetryPeriod)
				if !errors.Is(err, tc.atStart) {
					t.Errorf("at the start: got %v, want %v", err, tc.atStart)
				}
				if took := time.Since(began); took != tc.waits {
					t.Errorf("at the start: waited %s, want %s", took, tc.waits)
				}
				if tc.renews && !strings.Contains(err.Error(), "other renews the Lease kube-system/forcefence") {
					t.Errorf("got %v, want who renews which Lease", err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &session{store: &store{}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other := replica(s, "other")
		go func() {
			time.Sleep(time.Minute)
			_ = claim(other)
			time.Sleep(time.Minute)
			renewEvery(ctx, other, time.Second)
		}()
		began := time.Now()
		err := replica(s, "here").watchRival(ctx, rivalPeriod)
		if took := time.Since(began); !errors.Is(err, errRival) || took > 2*time.Minute+2*rivalPeriod {
			t.Errorf("later: got %v after %s, want errRival soon after the other renewed", err, took)
		}
		cancel()
		if err := replica(s, "here").watchRival(ctx, rivalPeriod); err != nil {
			t.Errorf("told to stop: got %v, want no error", err)
		}
	})
}

// renewEvery reads and renews the Lease until ctx ends.
func renewEvery(ctx context.Context, l *stampedLock, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = claim(l)
		}
	}
}

// One installation leads in a cluster, wherever others are: the Lease belongs to the one that wrote it first, also when
// no process of it holds the Lease, and until a person deletes it.
func TestOneInstallationLeads(t *testing.T) {
	c, st := newClock(), &store{}
	ours, theirs := lockIn(&session{store: st}, "ours"), lockIn(&session{store: st}, "theirs")
	ours.use(c)
	theirs.use(c)
	kit.Must(t, claim(theirs))
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"it leads", func() {}},
		{"it was released", func() { kit.Must(t, theirs.Update(t.Context(), resourcelock.LeaderElectionRecord{})) }},
		{"its process died an hour ago", func() {
			kit.Must(t, claim(theirs))
			c.pass(time.Hour)
		}},
	} {
		step.do()
		before := len(st.writes)
		err := claim(ours)
		const whose = "Lease kube-system/forcefence belongs to the one in namespace theirs, and this one is in ours."
		if !errors.Is(err, errOtherInstall) || !strings.Contains(err.Error(), whose) {
			t.Errorf("%s: got %v, want errOtherInstall with the Lease and both namespaces", step.name, err)
		}
		wantLeading(t, step.name, ours, false)
		if got := st.writes[before:]; len(got) > 0 {
			t.Errorf("%s: writes of ours: got %v, want none", step.name, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := ours.watchInstall(ctx); !errors.Is(err, errOtherInstall) {
		t.Errorf("the process: got %v, want that it ends with errOtherInstall", err)
	}
	cancel()
	if err := theirs.watchInstall(ctx); err != nil {
		t.Errorf("the process that leads, told to stop: got %v, want no error", err)
	}
	kit.Must(t, claim(theirs))
	delete(st.leases, theLease)
	kit.Must(t, claim(ours))
	wantLeading(t, "a person deleted the Lease", ours, true)
	if err := renew(theirs); err == nil {
		t.Error("the installation before renews the Lease that was deleted")
	}
	if err := claim(theirs); !errors.Is(err, errOtherInstall) {
		t.Errorf("the installation before: got %v, want errOtherInstall", err)
	}
	wantLeading(t, "the installation before, at once", theirs, false)
}

// A Lease that names no installation is taken by the first that may.
func TestLeaseWithoutInstallation(t *testing.T) {
	st := &store{}
	st.put("made", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: theLease.Namespace, Name: theLease.Name}})
	kit.Must(t, claim(lockIn(&session{store: st}, "a")))
	if err := claim(lockIn(&session{store: st}, "b")); !errors.Is(err, errOtherInstall) {
		t.Errorf("got %v, want errOtherInstall", err)
	}
}

// Two begin at the same moment: in every order of their requests exactly one leads, of one installation and of two.
func TestTwoBeginAtOnce(t *testing.T) {
	type actor struct {
		lock        *stampedLock
		turn, acted chan struct{}
		done        chan struct{}
	}
	const requests = 2 // of one: look, write
	for _, namespaces := range [][2]string{{"a", "a"}, {"a", "b"}} {
		led := map[string]int{}
		for order := range 1 << (2 * requests) {
			st := &store{}
			var actors [2]*actor
			for i := range actors {
				a := &actor{turn: make(chan struct{}), acted: make(chan struct{}), done: make(chan struct{})}
				s := &session{store: st, call: func(_ string, do func()) error {
					<-a.turn
					do()
					a.acted <- struct{}{}
					return nil
				}}
				a.lock = lockOf(s, election, fmt.Sprint("pod-", i), namespaces[i])
				actors[i] = a
				go func() {
					defer close(a.done)
					_ = claim(a.lock)
				}()
			}
			step := func(a *actor) {
				select {
				case a.turn <- struct{}{}:
					<-a.acted
				case <-a.done:
				}
			}
			for i := range 2 * requests {
				step(actors[order>>i&1])
			}
			for _, a := range actors {
				for range requests {
					step(a)
				}
				<-a.done
			}
			a, b := actors[0].lock.checkLeading() == nil, actors[1].lock.checkLeading() == nil
			if a == b {
				t.Fatalf("%v, order %0*b: leading: got %t and %t, want one", namespaces, 2*requests, order, a, b)
			}
			led[fmt.Sprint(a)]++
		}
		if len(led) != 2 {
			t.Errorf("%v: who led: got %v, want orders in which either leads", namespaces, led)
		}
	}
}

// A leader that stood still for longer than its Lease lasts has lost it to the next one, and writes nothing.
func TestLapsedLeaderWritesNothing(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	old, next := replica(s, "old"), replica(s, "next")
	old.use(c)
	next.use(c)
	kit.Must(t, claim(old))
	c.pass(15 * time.Second)
	take(t, next)
	s.store.writes = nil
	if err := renew(old); !apierrors.IsConflict(err) { // the elector's short way, by a clock that stood still
		t.Errorf("renewal of a lapsed leader: got %v, want a conflict", err)
	}
	if err := claim(old); err == nil || err.Error() != "held by next" {
		t.Errorf("lapsed leader: got %v, want that the other holds the Lease", err)
	}
	if len(s.store.writes) > 0 {
		t.Errorf("writes of the lapsed leader: got %v, want none", s.store.writes)
	}
	wantLeading(t, "old", old, false)
	wantLeading(t, "next", next, true)
}

// take does what an elector does with a Lease that has expired.
func take(t *testing.T, l *stampedLock) {
	t.Helper()
	_, _, err := l.Get(t.Context())
	kit.Must(t, err)
	kit.Must(t, renew(l))
}

// A leader that was frozen wakes up after another took over, and gives up: what it releases is not its own any more.
// The elector reads the Lease first, and then releases it whosever it is.
func TestFrozenLeaderReleasesNothing(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	frozen, next := replica(s, "pod-1"), replica(s, "pod-2")
	frozen.use(c)
	next.use(c)
	kit.Must(t, claim(frozen))
	c.pass(15 * time.Second)
	take(t, next)
	release := func(l *stampedLock, want string) {
		t.Helper()
		_, _, err := l.Get(t.Context())
		kit.Must(t, err)
		kit.Must(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}))
		if got := s.store.holder(); got != want {
			t.Errorf("after the release by %s: the Lease is held by %q, want %q", l.Identity(), got, want)
		}
	}
	release(frozen, "pod-2")
	wantLeading(t, "frozen", frozen, false)
	wantLeading(t, "next", next, true)
	release(next, "")
}

// A renewal that was under way while the Lease ran out does not count as one.
func TestRenewalThatTakesTooLong(t *testing.T) {
	c, st := newClock(), &store{}
	slow := &session{store: st}
	old, next := replica(slow, "old"), replica(&session{store: st}, "next")
	old.use(c)
	next.use(c)
	kit.Must(t, claim(old))
	c.pass(9 * time.Second)
	slow.call = func(verb string, do func()) error {
		if verb == "update" {
			slow.call = nil
			c.pass(6 * time.Second)
			take(t, next)
		}
		do()
		return nil
	}
	if err := renew(old); !apierrors.IsConflict(err) {
		t.Errorf("renewal that took 6 s: got %v, want a conflict", err)
	}
	wantLeading(t, "old", old, false)
	wantLeading(t, "next", next, true)
	if who := st.holder(); who != "next" {
		t.Errorf("Lease: got held by %s, want next", who)
	}
}

// Three replicas with the real elector, for an hour: processes end and come back, requests take their time.
func TestElectionsOfThreeReplicas(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex // guards random
			upTo := func(d time.Duration) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.Int64N(int64(d)))
			}
			st := &store{}
			ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
			var wg sync.WaitGroup
			locks := make([]*stampedLock, 3)
			var who sync.Mutex // guards locks
			for i := range locks {
				wg.Go(func() {
					for ctx.Err() == nil {
						s := &session{store: st, call: func(_ string, do func()) error {
							time.Sleep(upTo(200 * time.Millisecond))
							do()
							time.Sleep(upTo(200 * time.Millisecond))
							return nil
						}}
						l := replica(s, fmt.Sprint("pod-", i, "-", time.Now().UnixNano()))
						who.Lock()
						locks[i] = l
						who.Unlock()
						e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
							Lock: l, LeaseDuration: election.LeaseDuration, RenewDeadline: election.RenewDeadline,
							RetryPeriod:     election.RetryPeriod,
							ReleaseOnCancel: upTo(2) == 0, // half of them crash
							Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {},
								OnStoppedLeading: func() {}},
						})
						if err != nil {
							t.Error(err)
							return
						}
						life, end := context.WithTimeout(ctx, upTo(3*time.Minute))
						e.Run(life)
						end()
						l.sent.Store(nil) // the process is gone
					}
				})
			}
			reigns, last := 0, -1
			for range 36000 {
				time.Sleep(100 * time.Millisecond)
				who.Lock()
				var leaders []int
				for i, l := range locks {
					if l != nil && l.checkLeading() == nil {
						leaders = append(leaders, i)
					}
				}
				who.Unlock()
				if len(leaders) > 1 {
					t.Errorf("seed %d: %v lead at once", seed, leaders)
					break
				}
				if len(leaders) == 1 && leaders[0] != last {
					last = leaders[0]
					reigns++
				}
			}
			if reigns < 5 {
				t.Errorf("seed %d: got %d reigns in an hour, want more: no process may wait for long", seed,
					reigns)
			}
			cancel()
			wg.Wait()
		})
	}
}

// The leader's Lease says why the changed configuration file is rejected, with the next renewal, and only so long.
func TestLeaseNamesRejectedConfig(t *testing.T) {
	s := &session{store: &store{}}
	l := lockIn(s, "a")
	why := ""
	l.annotate = func(a map[string]string) { a[ConfigRejectedAnnotation] = why }
	kit.Must(t, claim(l))
	for _, want := range []string{"", "mode: missing", "mode: unknown", ""} {
		why = want
		kit.Must(t, renew(l))
		if got := s.store.leases[theLease].Annotations[ConfigRejectedAnnotation]; got != want {
			t.Errorf("after a renewal: got %q, want %q", got, want)
		}
	}
}

// The end of the leadership is an error of a process that was not told to stop, and of no other.
func TestStoppingLog(t *testing.T) {
	for stopped, want := range map[bool]string{false: "level=ERROR", true: "level=INFO"} {
		var out strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		if stopped {
			cancel()
		}
		log := slog.New(quietLog{slog.NewTextHandler(&out, nil), ctx}).With("a", 1).WithGroup("g")
		log.Error("error received after stop sequence was engaged", "err", errors.New("leader election lost"))
		cancel()
		if !strings.Contains(out.String(), want) {
			t.Errorf("stopped %v: got %q, want %s", stopped, out.String(), want)
		}
	}
}
