package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// TestPhases plays an outage: two pods of StatefulSets, one of which has a volume, and one of a Deployment, which runs
// last.
func TestPhases(t *testing.T) {
	db, queue := testPod("StatefulSet", "db-0", "1", "n1", true), testPod("StatefulSet", "queue-0", "2", "n1", true)
	web := testPod("ReplicaSet", "web-a", "3", "n1", true)
	tn := newTurn("n1", []corev1.Pod{*db, *queue, *web, *testPod("DaemonSet", "agent", "4", "n1", true),
		*testPod("StatefulSet", "db-1", "5", "n2", true)}, nil)
	tn.pod(at(-1), web, true) // before the cut
	tn.note(&tn.zero, at(0))

	tn.log(line{Time: at(0.2), Node: "n1", Msg: "Device reports that the machine does not run"})
	tn.log(line{Time: at(0.3), Node: "n1", Msg: "Noticed that a machine is off", By: "push"})
	tn.log(line{Time: at(0.35), Node: "n1", Msg: "Decided", Why: "Marking", Act: "SetMark"})
	tn.log(line{Time: at(1.1), Node: "n1", Msg: "Decided", Why: "Detaching", Act: "Wait"})
	tn.log(line{Time: at(0.36), Node: "n2", Msg: "Decided", Why: "Other"}) // another node
	n := testNode(false)
	tn.node(at(0.37), n) // not marked yet, and without volumes
	n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "f1", Effect: corev1.TaintEffectNoSchedule}}
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	tn.node(at(0.4), n)
	failed := func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodFailed; return p }
	tn.pod(at(0.5), failed(db), false)
	tn.pod(at(0.55), db, false) // again
	tn.pod(at(0.6), failed(queue), false)
	tn.pod(at(0.7), failed(web), false)
	n.Status.VolumesInUse = nil
	tn.node(at(0.8), n)
	tn.pod(at(0.9), db, true)
	tn.pod(at(1), queue, true)
	tn.pod(at(1.1), web, true)
	on := func(uid, pv, node string, attached bool) *corev1.Pod {
		va := testAttachment(uid, node)
		va.Spec.Source.PersistentVolumeName, va.Status.Attached = &pv, attached
		tn.attachment(at(1.3), va, node == "n1")
		return nil
	}
	on("va1", "pv1", "n1", true)
	on("va2", "pv1", "n2", false)
	if len(tn.phases.attached) > 0 {
		t.Error("a volume counts as attached before it is")
	}
	on("va2", "pv1", "n2", true)
	start := func(kind, name, uid string, from float64) {
		tn.pod(at(from), testPod(kind, name, uid, "", false), false)
		tn.pod(at(from+0.1), testPod(kind, name, uid, "n2", false), false)
		tn.pod(at(from+0.2), testPod(kind, name, uid, "n2", true), false)
	}
	start("StatefulSet", "db-0", "10", 1.2)
	start("DaemonSet", "agent-b", "14", 1.2)
	start("StatefulSet", "queue-0", "11", 1.3)
	tn.pod(at(1.6), testPod("StatefulSet", "db-1", "5", "n2", true), false) // ran there before
	tn.pod(at(1.7), testPod("StatefulSet", "queue-0", "11", "n2", false), false)
	start("ReplicaSet", "web-b", "12", 1.8)
	if _, over := tn.phases.node[lastRunning]; over {
		t.Error("all run, though one does not any more")
	}
	tn.pod(at(2.5), testPod("StatefulSet", "queue-0", "11", "n2", true), false)
	n.Spec.Taints = nil
	tn.node(at(3), n)
	tn.node(at(4), n)

	var r fenceRound
	r.fill(tn.phases, at(0))
	want := fenceRound{
		Cut: at(0), Pod: "queue-0", Reasons: []reasonAt{{0.35, "Marking", false}, {1.1, "Detaching", true}},
		At: map[moment]float64{noticed: 0.2, off: 0.3, marked: 0.4, firstEnded: 0.5, lastEnded: 0.7, cleared: 0.8,
			lastGone: 1.1, lastDetached: 1.3, firstRunning: 1.4, lastRunning: 2.5, unmarked: 3},
		PodAt: map[moment]float64{ended: 0.6, gone: 1, created: 1.3, bound: 1.4, running: 1.5},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
