package controller

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/taint/fleet"
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

// A Lease that names an absurd duration is told once, and again when it does so again.
func TestOddLeaseIsTold(t *testing.T) {
	rec := events.NewFakeRecorder(10)
	r := New(Options{Now: time.Now, Log: slog.New(slog.DiscardHandler), Events: rec, Leading: func() error { return nil }})
	node, st := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &nodeState{}
	for _, odd := range []bool{false, true, true, false, true} {
		r.tellOddLease(node, st, fleet.View{OddLease: odd})
	}
	if n := len(rec.Events); n != 2 {
		t.Errorf("told %d times, want twice", n)
	}
	if e := <-rec.Events; !strings.Contains(e, "LeaseDurationOutOfBounds") {
		t.Errorf("got %q", e)
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
