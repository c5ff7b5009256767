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

type leases struct {
	coordinationclient.LeaseInterface
	session   *session
	namespace string
}

func (s *session) Leases(ns string) coordinationclient.LeaseInterface {
	return leases{session: s, namespace: ns}
}

func (l leases) do(ctx context.Context, verb string, f func(s *store) error) error {
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

func (l leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *coordinationv1.Lease, _ error) {
	return out, l.do(ctx, "get", func(s *store) error {
		have := s.leases[types.NamespacedName{Namespace: l.namespace, Name: name}]
		if have == nil {
			return apierrors.NewNotFound(leaseResource, name)
		}
		out = have.DeepCopy()
		return nil
	})
}

func (l leases) Create(ctx context.Context, in *coordinationv1.Lease,
	_ metav1.CreateOptions) (out *coordinationv1.Lease, _ error) {
	return out, l.do(ctx, "create", func(s *store) error {
		if s.leases[types.NamespacedName{Namespace: l.namespace, Name: in.Name}] != nil {
			return apierrors.NewAlreadyExists(leaseResource, in.Name)
		}
		out = s.put("create", in)
		return nil
	})
}

func (l leases) Update(ctx context.Context, in *coordinationv1.Lease,
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

func (l leases) List(ctx context.Context, o metav1.ListOptions) (out *coordinationv1.LeaseList, _ error) {
	return out, l.do(ctx, "list", func(s *store) error {
		out = &coordinationv1.LeaseList{}
		for _, have := range s.leases {
			if _, ok := have.Labels[o.LabelSelector]; ok {
				out.Items = append(out.Items, *have.DeepCopy())
			}
		}
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
func (l *stampedLock) use(c *clock)   { l.now, l.rivals.now = c.now, c.now }
func lease(ns string) types.NamespacedName {
	return types.NamespacedName{Namespace: ns, Name: "forcefence"}
}

// lockIn is the lock of an installation in that namespace.
func lockIn(s *session, ns string) *stampedLock {
	return lockOf(s, lease(ns), election, "pod-in-"+ns, slog.New(slog.DiscardHandler))
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

func TestOneLeadsWhateverItsLease(t *testing.T) {
	hour := int32(3600)
	years := int32(2000000000)
	for _, tc := range []struct {
		name string
		edit func(*coordinationv1.Lease) // of the other's Lease
		wait time.Duration               // after it was first seen
		want bool                        // we may lead
	}{
		{"it leads", nil, 0, false},
		{"not renewed for nearly as long as it lasts", nil, 14 * time.Second, false},
		{"not renewed for as long as it lasts", nil, 15 * time.Second, true},
		{"it lasts for less than ours", func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 1 },
			14 * time.Second, false},
		{"it lasts for more than ours", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &hour },
			59 * time.Minute, false},
		{"it lasts for more than ours, and is over",
			func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &hour }, time.Hour, true},
		{"it claims to last for ever", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &years },
			time.Hour, true},
		{"its clock is far behind", func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{} }, 0, false},
		{"it tells no duration", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, 14 * time.Second,
			false},
		{"it was released", func(l *coordinationv1.Lease) { *l.Spec.HolderIdentity = "" }, 0, true},
		{"nobody ever held it", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }, 0, true},
		{"another program's", func(l *coordinationv1.Lease) { l.Labels = nil }, 0, true},
		{"another name in our namespace", func(l *coordinationv1.Lease) { l.Namespace, l.Name = "ours", "second" }, 0,
			false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, s := newClock(), &session{store: &store{}}
			other, ours := lockIn(s, "theirs"), lockIn(s, "ours")
			other.use(c)
			ours.use(c)
			kit.Must(t, claim(other))
			held := s.store.leases[lease("theirs")]
			delete(s.store.leases, lease("theirs"))
			if tc.edit != nil {
				tc.edit(held)
			}
			s.store.put("edit", held)
			s.store.writes = nil
			_ = claim(ours)
			if wrote := len(s.store.writes) > 0; wrote && tc.wait > 0 {
				t.Errorf("at once: got writes %v, want none", s.store.writes)
			}
			if tc.wait > 0 {
				c.pass(tc.wait)
				_ = claim(ours)
			}
			wantLeading(t, "ours", ours, tc.want)
			if got := len(s.store.writes) > 0; got != tc.want {
				t.Errorf("writes: got %v, want some: %v", s.store.writes, tc.want)
			}
		})
	}
}

// A process that is stopped while it begins to lead releases its Lease, so the next leader need not wait.
func TestEndWhileBeginningToLead(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	s := &session{store: &store{}}
	s.call = func(verb string, do func()) error {
		if verb == "list" && len(s.store.writes) > 0 {
			end()
			return ctx.Err()
		}
		do()
		return nil
	}
	l := lockIn(s, "a")
	if _, _, err := l.Get(ctx); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := l.Create(ctx, record(l)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that its context ended", err)
	}
	wantLeading(t, "told to end", l, false)
	if held := s.store.leases[lease("a")]; held == nil || holderOf(held) != "" {
		t.Errorf("got %+v, want a Lease that was released", held)
	}
}

// What cannot be looked for may be there.
func TestNobodyLeadsBlind(t *testing.T) {
	for _, list := range []int{1, 2} { // before the write, and after
		s := &session{store: &store{}}
		n := 0
		s.call = func(verb string, do func()) error {
			if verb == "list" {
				if n++; n == list {
					return apierrors.NewForbidden(leaseResource, "", errors.New("no right"))
				}
			}
			do()
			return nil
		}
		l := lockIn(s, "a")
		if err := claim(l); err == nil || !strings.Contains(err.Error(), "right to list leases") {
			t.Errorf("look %d refused: got %v, want it to name the right", list, err)
		}
		wantLeading(t, fmt.Sprintf("look %d refused", list), l, false)
		if held := s.store.leases[lease("a")]; held != nil && holderOf(held) != "" {
			t.Errorf("look %d refused: got a Lease held by %s, want it released", list, holderOf(held))
		}
		kit.Must(t, claim(l))
		wantLeading(t, "the next look passed", l, true)
	}
}

// Two begin at the same moment: in every order of their requests at most one leads.
func TestTwoBeginAtOnce(t *testing.T) {
	type actor struct {
		lock        *stampedLock
		turn, acted chan struct{}
		done        chan struct{}
	}
	led := map[string]int{}
	const requests = 6 // of one: look at its own, list, write, list, perhaps withdraw; one more to end by
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
			a.lock = lockIn(s, string(rune('a'+i)))
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
		if a && b {
			t.Fatalf("order %0*b: both lead", 2*requests, order)
		}
		for i, leads := range []bool{a, b} {
			if held := st.leases[lease(string(rune('a'+i)))]; !leads && held != nil && holderOf(held) != "" {
				t.Fatalf("order %0*b: %s does not lead and holds its Lease", 2*requests, order, holderOf(held))
			}
		}
		led[fmt.Sprint(a, b)]++
	}
	if len(led) != 3 {
		t.Errorf("who led: got %v, want orders in which either leads, and some in which none does", led)
	}
}

// A leader that stood still for longer than its Lease lasts begins anew, and finds who began meanwhile before it
// writes.
func TestLapsedLeaderLooksFirst(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	old, next := lockIn(s, "old"), lockIn(s, "next")
	old.use(c)
	next.use(c)
	kit.Must(t, claim(old))
	_ = claim(next)
	c.pass(15 * time.Second)
	kit.Must(t, claim(next))
	s.store.writes = nil
	if err := renew(old); !errors.Is(err, errNotLeading) { // the elector's short way, by a clock that stood still
		t.Errorf("renewal of a lapsed leader: got %v, want errNotLeading", err)
	}
	if err := claim(old); err == nil || !strings.Contains(err.Error(), "next/forcefence") {
		t.Errorf("lapsed leader: got %v, want it to name the other's Lease", err)
	}
	if len(s.store.writes) > 0 {
		t.Errorf("writes of the lapsed leader: got %v, want none", s.store.writes)
	}
	wantLeading(t, "old", old, false)
	wantLeading(t, "next", next, true)
}

// A leader that was frozen wakes up after another took over, and gives up: what it releases is not its own any more.
// The elector reads the Lease first, and then releases it whosever it is.
func TestFrozenLeaderReleasesNothing(t *testing.T) {
	c, s := newClock(), &session{store: &store{}}
	frozen := lockOf(s, lease("a"), election, "pod-1", slog.New(slog.DiscardHandler))
	next := lockOf(s, lease("a"), election, "pod-2", slog.New(slog.DiscardHandler))
	frozen.use(c)
	next.use(c)
	kit.Must(t, claim(frozen))
	c.pass(15 * time.Second)
	_, _, err := next.Get(t.Context())
	kit.Must(t, err)
	kit.Must(t, next.Update(t.Context(), record(next)))
	release := func(l *stampedLock, want string) {
		t.Helper()
		_, _, err := l.Get(t.Context())
		kit.Must(t, err)
		kit.Must(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}))
		if got := holderOf(s.store.leases[lease("a")]); got != want {
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
	old, next := lockIn(slow, "old"), lockIn(&session{store: st}, "next")
	old.use(c)
	next.use(c)
	kit.Must(t, claim(old))
	_ = claim(next)
	c.pass(9 * time.Second)
	slow.call = func(verb string, do func()) error {
		if verb == "update" {
			slow.call = nil
			c.pass(6 * time.Second)
			kit.Must(t, claim(next))
		}
		do()
		return nil
	}
	if err := renew(old); !errors.Is(err, errRival) {
		t.Errorf("renewal that took 6 s: got %v, want errRival", err)
	}
	wantLeading(t, "old", old, false)
	wantLeading(t, "next", next, true)
	if who := holderOf(st.leases[lease("old")]); who != "" {
		t.Errorf("Lease of old: got held by %s, want released", who)
	}
}

// A rival that begins all the same is seen, and ends the leadership at once.
func TestLeaderWatchesForRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{store: &store{}}
		l := lockIn(s, "a")
		kit.Must(t, claim(l))
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- l.watchRivals(ctx, election.RetryPeriod) }()
		time.Sleep(5 * time.Second) // the bubble's
		synctest.Wait()
		wantLeading(t, "alone", l, true)
		holder := "somebody"
		s.store.mu.Lock()
		s.store.put("forged", &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "x", Labels: map[string]string{LeaderLabel: ""}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		})
		s.store.mu.Unlock()
		select {
		case err := <-ended:
			if !errors.Is(err, errRival) || !strings.Contains(err.Error(), "b/x held by somebody") {
				t.Errorf("got %v, want errRival with the Lease and its holder", err)
			}
		case <-time.After(2 * election.RetryPeriod):
			t.Error("the leader goes on beside a rival")
		}
		wantLeading(t, "with a rival", l, false)
		cancel()
		if err := l.watchRivals(ctx, election.RetryPeriod); err != nil {
			t.Errorf("told to stop: got %v, want no error", err)
		}
	})
}

// Installations in three namespaces, with the real elector, for an hour: processes end and come back, requests take
// their time.
func TestElectionsOfThreeInstallations(t *testing.T) {
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
						ns := string(rune('a' + i))
						l := lockOf(s, lease(ns), election, fmt.Sprint(ns, time.Now().UnixNano()),
							slog.New(slog.DiscardHandler))
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

// A renewal that is under way while the watch meets a rival does not undo what the watch has done.
func TestRenewalBesideARival(t *testing.T) {
	s := &session{store: &store{}}
	l := lockIn(s, "a")
	kit.Must(t, claim(l))
	s.call = func(verb string, do func()) error {
		do()
		if verb == "update" {
			other := l.now() // a stamp that is not the one of before, as after the watch has taken that away
			l.sent.Store(&other)
		}
		return nil
	}
	if err := renew(l); !errors.Is(err, errNotLeading) {
		t.Errorf("renewal: got %v, want errNotLeading", err)
	}
}

// The API server's memory may still show a rival that has withdrawn.
func TestWatchAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{store: &store{}}
		l := lockIn(s, "a")
		kit.Must(t, claim(l))
		holder, looks := "gone", 0
		s.call = func(_ string, do func()) error {
			looks++
			if looks%2 == 1 { // from its memory
				s.store.mu.Lock()
				s.store.put("old", &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "x",
						Labels: map[string]string{LeaderLabel: ""}},
					Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
				})
				s.store.mu.Unlock()
			}
			do()
			s.store.mu.Lock()
			delete(s.store.leases, types.NamespacedName{Namespace: "b", Name: "x"})
			s.store.mu.Unlock()
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if err := l.watchRivals(ctx, election.RetryPeriod); err != nil || looks != 8 {
			t.Errorf("got %v after %d looks, want no error and 8", err, looks)
		}
	})
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
		if got := s.store.leases[lease("a")].Annotations[ConfigRejectedAnnotation]; got != want {
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
