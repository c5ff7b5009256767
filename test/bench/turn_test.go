package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var zero = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

func testPod(kind, name, uid, node string, ready bool) *corev1.Pod {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(uid),
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	if ready {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func testAttachment(uid, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: node}}
}

func testNode(ready bool) *corev1.Node {
	status := corev1.ConditionUnknown
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
}

// TestTurn plays an outage of one node with two StatefulSet pods, one of a Deployment, and one of a DaemonSet, beside
// another node.
func TestTurn(t *testing.T) {
	db0, db1 := testPod("StatefulSet", "db-0", "1", "n1", true), testPod("StatefulSet", "db-1", "2", "n1", true)
	web := testPod("ReplicaSet", "web-a", "3", "n1", true)
	list := []corev1.Pod{*db0, *db1, *web, *testPod("DaemonSet", "agent", "4", "n1", true),
		*testPod("StatefulSet", "q-0", "5", "n2", true)}
	tn := newTurn("n1", list,
		[]storagev1.VolumeAttachment{*testAttachment("va1", "n1"), *testAttachment("va2", "n2")})

	tn.pod(at(-1), db0, true) // before the cut: not of this turn
	tn.note(&tn.zero, at(0))
	tn.log(line{Time: at(2.5), Node: "n1", Msg: "Machine answered", State: "Unknown"})
	tn.log(line{Time: at(2.6), Node: "n1", Msg: "Machine answered", State: "Off"})
	tn.log(line{Time: at(2.9), Node: "n1", Msg: "Machine answered", State: "Off"})
	if got := tn.outcome(time.Time{}).noticedBy; got != "" {
		t.Errorf("noticed by %q before any report", got)
	}
	tn.log(line{Time: at(2.6), Node: "n2", Msg: "Noticed that a machine is off", By: "lease"}) // another node
	tn.log(line{Time: at(2.9), Node: "n1", Msg: "Noticed that a machine is off", By: "line"})
	tn.node(at(2.7), testNode(false))
	for i, p := range []*corev1.Pod{db0, db1, web} {
		tn.pod(at(3+float64(i)/10), p, true)
	}
	if got, want := tn.missing(false), "1 of 1 volumes are not detached"; got != want {
		t.Errorf("missing: got %q, want %q", got, want)
	}
	tn.attachment(at(3.5), testAttachment("va2", "n2"), true)
	tn.attachment(at(3.5), testAttachment("va1", "n1"), false)
	if tn.missing(false) == "" {
		t.Error("missing: got nothing, want a volume that only changed")
	}
	tn.attachment(at(3.5), testAttachment("va1", "n1"), true)

	if got, want := tn.missing(false), "0 of 2 StatefulSet pods run again"; got != want {
		t.Errorf("missing: got %q, want %q", got, want)
	}
	tn.pod(at(4), testPod("StatefulSet", "db-0", "10", "n2", false), false)
	tn.pod(at(4.1), testPod("StatefulSet", "db-0", "10", "n2", true), false)
	tn.pod(at(4.2), testPod("StatefulSet", "db-0", "10", "n2", true), true) // a person deletes a running replacement
	tn.pod(at(4.3), testPod("StatefulSet", "db-1", "11", "n2", true), false)
	if o := tn.outcome(time.Time{}); o.isBack() || o.running != 1 {
		t.Errorf("one was deleted: got back %t and %d running, want false and 1", o.isBack(), o.running)
	}
	tn.pod(at(5), testPod("StatefulSet", "db-0", "12", "n2", true), false)
	tn.pod(at(6), testPod("ReplicaSet", "web-b", "13", "n2", false), true) // never ran

	if got := tn.missing(false); got != "" {
		t.Errorf("missing: got %q, want nothing", got)
	}
	if got := tn.missing(true); got == "" {
		t.Error("missing: got nothing, want the mark")
	}
	o := tn.outcome(at(2.5))
	if o.noticedBy != "line" || o.running != 2 || o.deaths != 1 || !o.isBack() || !o.sure {
		t.Errorf("got %+v, want it noticed by a line, two pods that run again, one replacement that was ended, and "+
			"sure", o)
	}
	if got := tn.outcome(at(2.8)).signToOff; round(got) != -0.1 {
		t.Errorf("from NotReady, which came before the Lease was stale: got %v, want -0.1", got)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"cut to off_seen", o.cutToOff, 2.6},
		{"first sign to off_seen", o.signToOff, 0.1},
		{"eviction", o.gone, 0.6},
		{"back after the cut", o.cutToBack, 5},
		{"back after NotReady", o.notReadyToBack, 2.3},
	} {
		if round(c.got) != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestTurnOfTheFloor counts from the loop's start.
func TestTurnOfTheFloor(t *testing.T) {
	p := testPod("StatefulSet", "db-0", "1", "n1", true)
	tn := newTurn("n1", []corev1.Pod{*p}, nil)
	tn.note(&tn.zero, at(0))
	tn.note(&tn.started, at(2))
	tn.log(line{Time: at(1), Node: "n1", Msg: "Machine answered", State: "Off"})
	tn.pod(at(3), p, true)
	if got := tn.outcome(time.Time{}).gone; got != 1 {
		t.Errorf("got %v, want 1", got)
	}
}

// TestSure wants an Off that came no later than the end of the first pod.
func TestSure(t *testing.T) {
	ending := testPod("StatefulSet", "db-0", "1", "n1", true)
	ending.DeletionTimestamp = &metav1.Time{Time: at(2)}
	failed := testPod("StatefulSet", "db-0", "1", "n1", false)
	failed.Status.Phase = corev1.PodFailed
	off := func(seconds float64) *line {
		return &line{Time: at(seconds), Node: "n1", Msg: "Machine answered", State: "Off"}
	}
	for _, tt := range []struct {
		name   string
		answer *line // nil: none
		seen   *corev1.Pod
		gone   bool
		want   bool
	}{
		{"Off before a pod failed", off(1), failed, false, true},
		{"Off before a pod was deleted", off(1), ending, false, true},
		{"Off after a pod failed", off(3), failed, false, false},
		{"Off after a pod was being deleted", off(3), ending, false, false},
		{"Off after a pod was gone", off(3), testPod("StatefulSet", "db-0", "1", "n1", true), true, false},
		{"Off after a pod only changed", off(3), testPod("StatefulSet", "db-0", "1", "n1", true), false, true},
		{"no Off", nil, failed, false, false},
	} {
		tn := newTurn("n1", []corev1.Pod{*testPod("StatefulSet", "db-0", "1", "n1", true)}, nil)
		tn.note(&tn.zero, at(0))
		if tt.answer != nil {
			tn.log(*tt.answer)
		}
		tn.pod(at(2), tt.seen, tt.gone)
		tn.pod(at(4), ending, true)
		if got := tn.outcome(time.Time{}).sure; got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
