package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/leases/rule"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

// world is a Releaser beside a real API server. Leases of its namespace whose names begin with x count.
type world struct {
	t      *testing.T
	ns     string
	admin  client.Client
	nodes  client.Client // the informer of Nodes
	r      *Releaser
	leader atomic.Pointer[error]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, admin: cluster.Admin(t, shared)}
	var err error
	w.ns, err = shared.CreateNamespace(t.Context(), "leases")
	kit.Must(t, err)
	w.nodes = fake.NewFakeClient(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "db-2"}})
	w.leader.Store(new(error))
	w.r, err = New(Options{
		REST: shared.RESTConfig(), Rules: []rule.Rule{{Namespace: w.ns, Names: []string{"x*"}}},
		Live: w.admin, Nodes: w.nodes, Client: w.admin, Leading: func() error { return *w.leader.Load() },
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	kit.Must(t, err)
	w.r.ReleaseHeld(w.proof()) // before Start it does nothing
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		kit.Must(t, <-done)
		w.r.ReleaseHeld(w.proof())
	})
	return w
}

// lease makes a Lease, and waits until the Releaser has seen it.
func (w *world) lease(name, holder string) *coordinationv1.Lease {
	w.t.Helper()
	now := metav1.NewMicroTime(time.Now().Add(-time.Second))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"a": "b"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &now,
			AcquireTime: &now, LeaseTransitions: new(int32(7))},
	}
	kit.Must(w.t, w.admin.Create(w.t.Context(), l))
	w.untilSeen(l)
	return l
}

func (w *world) untilSeen(l *coordinationv1.Lease) {
	w.t.Helper()
	w.until("the watch shows the Lease", func() bool {
		w.r.mu.Lock()
		defer w.r.mu.Unlock()
		return w.r.seen[client.ObjectKeyFromObject(l)].version == l.ResourceVersion
	})
}

func (w *world) until(what string, check func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	kit.Must(w.t, cluster.Until(ctx, func(context.Context) (bool, error) {
		if check() {
			return true, nil
		}
		return false, fmt.Errorf("waiting until %s", what)
	}))
}

// proof is one of n1 and its pods, of now.
func (w *world) proof() decide.Proof {
	now := providers.Now()
	return decide.Proof{Node: "n1", Asked: now, Since: now, Pods: []action.Pod{
		{Namespace: w.ns, Name: "db-1"}, {Namespace: w.ns, Name: "db-2"}, {Namespace: w.ns, Name: "db-3"},
	}}
}

func (w *world) holder(l *coordinationv1.Lease) string {
	w.t.Helper()
	now := &coordinationv1.Lease{}
	kit.Must(w.t, w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(l), now))
	return *now.Spec.HolderIdentity
}

// pod makes a pod of a node.
func (w *world) pod(name, node string) {
	w.t.Helper()
	kit.Must(w.t, w.admin.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
}

// A release has what client-go's has, and leaves the rest of the Lease alone.
func TestReleaseHeld(t *testing.T) {
	w := newWorld(t)
	l := w.lease("x1", "db-1_0b0f")
	w.pod("db-1", "n1")
	w.pod("db-3", "") // its successor is on no node yet
	host, third := w.lease("x2", "n1_0b0f"), w.lease("x3", "db-3")
	w.r.ReleaseHeld(w.proof())
	w.until("the Leases are released", func() bool { return w.holder(l)+w.holder(host)+w.holder(third) == "" })
	now := &coordinationv1.Lease{}
	kit.Must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(l), now))
	if s := now.Spec; *s.LeaseDurationSeconds != 1 || *s.LeaseTransitions != 7 || now.Labels["a"] != "b" ||
		!s.RenewTime.After(l.Spec.RenewTime.Time) || !s.AcquireTime.Equal(s.RenewTime) {
		t.Errorf("got %+v, want a duration of 1 s, renewed now, and the rest as it was", now)
	}
}

// What may be of a living process stays. A Lease that is released at the end shows that all were looked at.
func TestReleaseNothingElse(t *testing.T) {
	w := newWorld(t)
	w.pod("n1", "n2")   // named like the dead node
	w.pod("db-3", "n2") // it moved
	stay := []*coordinationv1.Lease{
		w.lease("x-elsewhere", "db-9_0b0f"), w.lease("y", "db-1"), w.lease("x-node", "db-2_0b0f"),
		w.lease("x-host", "n1_0b0f"), w.lease("x-moved", "db-3"),
	}
	for range 2 {
		w.r.ReleaseHeld(w.proof())
		w.r.work.Wait()
	}
	for _, l := range stay {
		if got := w.holder(l); got != *l.Spec.HolderIdentity {
			t.Errorf("%s: got the holder %q, want %q", l.Name, got, *l.Spec.HolderIdentity)
		}
	}
	l := w.lease("x-last", "db-1")
	failed := errors.New("not sure")
	w.leader.Store(&failed)
	w.r.ReleaseHeld(w.proof())
	w.r.work.Wait()
	if got := w.holder(l); got != "db-1" {
		t.Errorf("by a process that may not lead: got the holder %q, want db-1", got)
	}
	w.leader.Store(new(error))
	w.r.ReleaseHeld(w.proof())
	w.until("the last Lease is released", func() bool { return w.holder(l) == "" })
}

// A Lease that was written, or made again, since the watch showed it is left alone.
func TestReleaseOfAnotherVersion(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*coordinationv1.Lease){
		"written": func(l *coordinationv1.Lease) {
			l.Labels["a"] = "c"
			kit.Must(t, w.admin.Update(t.Context(), l))
		},
		"made again": func(l *coordinationv1.Lease) {
			kit.Must(t, w.admin.Delete(t.Context(), l))
			l.ResourceVersion = ""
			kit.Must(t, w.admin.Create(t.Context(), l))
		},
	} {
		l := w.lease("x1", "db-1")
		w.r.mu.Lock()
		old := w.r.seen[client.ObjectKeyFromObject(l)]
		w.r.mu.Unlock()
		change(l)
		if err := w.r.write(t.Context(), old); !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict", name, err)
		}
		if name == "made again" {
			old.version = l.ResourceVersion
			if err := w.r.write(t.Context(), old); err == nil {
				t.Errorf("%s: got no error for another UID", name)
			}
		}
		if got := w.holder(l); got != "db-1" {
			t.Errorf("%s: got the holder %q, want db-1", name, got)
		}
		kit.Must(t, w.admin.Delete(t.Context(), l))
	}
}

// The first sight of a version counts. A Lease that is gone is forgotten.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Releaser{Options: Options{Now: time.Now}, seen: map[client.ObjectKey]seen{}}
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "u", ResourceVersion: "1"}}
		key := client.ObjectKeyFromObject(l)
		first := providers.Now()
		r.observe(l)
		time.Sleep(time.Second)
		r.observe(l)
		if got := r.seen[key].Seen; !got.Equal(first) {
			t.Errorf("listed again: got %v, want %v", got, first)
		}
		l.ResourceVersion = "2"
		r.observe(l)
		if got := r.seen[key].Seen; !got.Equal(first.Add(time.Second)) {
			t.Errorf("a new version: got %v, want a second later", got)
		}
		r.forget(l)
		if len(r.seen) > 0 {
			t.Errorf("remembered of a Lease that is gone: %v", r.seen)
		}
	})
}

// Where a pod elsewhere could have the holder's name, because pods cannot be read, the Lease stays.
func TestReleaseWithUnreadPods(t *testing.T) {
	w := newWorld(t)
	l := w.lease("x1", "db-1")
	w.r.Live = fake.NewFakeClient() // it selects by no field, so its error says nothing about the pods
	w.r.ReleaseHeld(w.proof())
	w.r.work.Wait()
	if got := w.holder(l); got != "db-1" {
		t.Errorf("with pods that cannot be read: got the holder %q, want db-1", got)
	}
}

// client-go's own leader election takes a released Lease at its next try, a tenth of the Lease's duration later.
func TestElectionAfterRelease(t *testing.T) {
	w := newWorld(t)
	cs, err := kubernetes.NewForConfig(shared.RESTConfig())
	kit.Must(t, err)
	elect := func(ctx context.Context, pod string) (leads <-chan struct{}) {
		started := make(chan struct{})
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "x-elected"},
				Client: cs.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: pod + "_0b0f"}},
			LeaseDuration: 10 * time.Minute, RenewDeadline: time.Minute, RetryPeriod: time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { close(started) }, OnStoppedLeading: func() {}},
		})
		kit.Must(t, err)
		go e.Run(ctx)
		return started
	}
	old, die := context.WithCancel(t.Context())
	<-elect(old, "db-1")
	next := elect(t.Context(), "other-1")
	die() // without a release, as a machine does
	w.until("the Lease is released", func() bool {
		w.r.ReleaseHeld(w.proof())
		w.r.work.Wait()
		select {
		case <-next:
			return true
		default:
			return false
		}
	})
	var l coordinationv1.Lease
	kit.Must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "x-elected"}, &l))
	if got := *l.Spec.HolderIdentity; got != "other-1_0b0f" {
		t.Errorf("got the holder %q, want other-1_0b0f", got)
	}
}
