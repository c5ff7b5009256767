package controller

import (
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fence"
)

// clock is time as data.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func lease(node string, rv int, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: strconv.Itoa(rv)},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}
}

func TestSuspicion(t *testing.T) {
	const renew = 10 * time.Second // of a Lease of 40 s
	ready := taint.Look{Exists: true, Name: "n1", Ready: corev1.ConditionTrue}
	silent := ready
	silent.Ready = corev1.ConditionUnknown
	for _, tc := range []struct {
		name   string
		look   taint.Look
		quiet  time.Duration // of n1
		others []time.Duration
		want   string
		stale  bool
	}{
		{"fresh", ready, renew, []time.Duration{renew, renew}, "", false},
		{"one renewal missed", ready, 2*renew + 4*time.Second, []time.Duration{renew, renew}, "", false},
		{"two renewals missed", ready, 2*renew + 6*time.Second, []time.Duration{renew, renew}, "LeaseStale", true},
		{"all are silent", ready, 3 * renew, []time.Duration{3 * renew, 3 * renew}, "", true},
		{"half of the others are fresh", ready, 3 * renew, []time.Duration{renew, 3 * renew}, "", true},
		{"most of the others are fresh", ready, 3 * renew, []time.Duration{renew, renew, 3 * renew}, "LeaseStale", true},
		{"NotReady with a fresh Lease", silent, renew, []time.Duration{renew, renew}, "NotReady", false},
		{"NotReady and silent", silent, 3 * renew, []time.Duration{renew, renew}, "NotReady", true},
		{"NotReady, and all are silent", silent, 3 * renew, []time.Duration{3 * renew}, "NotReady", true},
		{"alone in the cluster", ready, 3 * renew, nil, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			r := New(Options{Now: c.Now})
			start := c.now
			seen := func(node string, quiet time.Duration) {
				c.now = start.Add(-quiet)
				if !r.leases.renewed(lease(node, 1, 40)) {
					t.Errorf("%s: a first Lease is no change", node)
				}
			}
			seen("n1", tc.quiet)
			fresh := 0
			for i, q := range tc.others {
				seen("o"+strconv.Itoa(i), q)
				if q <= renew {
					fresh++
				}
			}
			c.now = start
			got := r.suspicion(tc.look, fence.Suspicion{})
			if got.Why != tc.want || got.LeaseStale != tc.stale {
				t.Errorf("got %+v, want why %q, stale %v", got, tc.want, tc.stale)
			}
			if got.Why != "" && !got.Since.Equal(start) {
				t.Errorf("since: got %s, want %s", got.Since, start)
			}
			if all := r.allStale("n1"); all != (fresh == 0) {
				t.Errorf("allStale: got %v with %d fresh others", all, fresh)
			}
			// A suspicion that stands keeps its beginning; one that went begins anew.
			c.now = start.Add(time.Second)
			if again := r.suspicion(tc.look, got); again.Why != "" && got.Why != "" && !again.Since.Equal(start) {
				t.Errorf("since, a second later: got %s, want %s", again.Since, start)
			}
		})
	}
}

// The same resourceVersion, delivered again by a relist, is no heartbeat; a node without a Lease counts from when it was first seen.
func TestLeaseTracker(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	l := newLeaseTracker(c.Now)
	l.renewed(lease("n1", 1, 4))
	l.know("n2")
	if got := l.turned(); len(got) != 0 {
		t.Errorf("turned at the start: got %v", got)
	}
	c.now = c.now.Add(3 * time.Second)
	if l.renewed(lease("n1", 1, 4)) {
		t.Error("a relist counted as a heartbeat")
	}
	if got := l.turned(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("turned after 3 s of a Lease of 4 s: got %v, want n1", got)
	}
	if got := l.turned(); len(got) != 0 {
		t.Errorf("turned twice: got %v", got)
	}
	l.renewed(lease("n1", 2, 4))
	if l.renewed(lease("n1", 1, 4)) {
		t.Error("an informer that caught up counted as a heartbeat")
	}
	c.now = c.now.Add(23 * time.Second)
	got := l.turned()
	slices.Sort(got)
	if !slices.Equal(got, []string{"n2"}) {
		t.Errorf("turned after 26 s: got %v, want n2 (n1 went fresh and stale again in between)", got)
	}
	c.now = c.now.Add(time.Minute)
	if !l.renewed(lease("n1", 1, 4)) {
		t.Error("a Lease of a cluster that was restored from a backup is not seen")
	}
	l.drop("n2")
	if _, others, _ := l.others("n1"); others != 0 {
		t.Errorf("others after the drop: got %d, want 0", others)
	}
}

func TestIsControlPlane(t *testing.T) {
	for label, want := range map[string]bool{
		"node-role.kubernetes.io/control-plane": true, "node-role.kubernetes.io/master": true, "node-role.kubernetes.io/etcd": true,
		"node-role.kubernetes.io/worker": false,
	} {
		if got := isControlPlane(map[string]string{label: ""}); got != want {
			t.Errorf("%s: got %v, want %v", label, got, want)
		}
	}
}
