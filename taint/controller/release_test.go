package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// A release spares every pod that lives, whosever mark is on the node: the fence's tombstones may still be on their way (invariant 10).
func TestReleaseSparesWhoeverMarked(t *testing.T) {
	for _, tc := range []struct {
		name string
		mark func(*corev1.Node)
	}{
		{"our mark", func(*corev1.Node) {}},
		{"a person wrote over it", func(n *corev1.Node) {
			n.Spec.Taints = append(taint.Without(n.Spec.Taints, taint.DefaultKey, "f-1"),
				corev1.Taint{Key: taint.DefaultKey, Value: "kim", Effect: corev1.TaintEffectNoSchedule})
		}},
		{"somebody took it off", func(n *corev1.Node) { n.Spec.Taints = taint.Without(n.Spec.Taints, taint.DefaultKey, "f-1") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			rec := taint.Record{ID: "f-1", NodeUID: "uid-of-n1", BootID: "boot-1-of-n1", By: "test", Since: w.Now()}.Enter(taint.PhaseEvicting, "", w.Now())
			w.change("n1", func(n *corev1.Node) {
				n.Annotations[taint.RecordAnnotation] = rec.Encode()
				n.Spec.Taints = taint.With(n.Spec.Taints, taint.DefaultKey, "f-1", w.Now())
				tc.mark(n)
			})
			if told, err := Release(t.Context(), w.api, "n1", taint.DefaultKey, false, w.Now); err != nil || !strings.HasPrefix(told, "would release") {
				t.Errorf("asked only: got %q, error %v", told, err)
			}
			if r := w.record("n1"); !r.Open() {
				t.Error("asked only: the record was closed")
			}
			if _, err := Release(t.Context(), w.api, "n1", taint.DefaultKey, true, w.Now); err != nil {
				t.Fatal(err)
			}
			var pods corev1.PodList
			must(t, w.api.List(context.Background(), &pods))
			for _, p := range pods.Items {
				want := ""
				if p.Name == "db-n1" || p.Name == "web-n1" {
					want = rec.Token()
				}
				if got := taint.SparedBy(&p); got != want {
					t.Errorf("%s: spared by %q, want %q", p.Name, got, want)
				}
			}
			_, l, err := Look(t.Context(), w.api, "n1", taint.DefaultKey, w.Now)
			must(t, err)
			if l.Alive(l.Record) {
				t.Errorf("the record is of another life than the one that was released: %+v", l.Record)
			}
			n := w.node("n1")
			if r := w.record("n1"); r.Result != taint.ResultReleased || w.marked("n1") || len(n.Spec.Taints) != 1 {
				t.Errorf("after it: got %s %s, taints %v, want Released and the taint of others alone", r.Phase, r.Result, n.Spec.Taints)
			}
			if _, err := Release(t.Context(), w.api, "n1", taint.DefaultKey, true, w.Now); err == nil {
				t.Error("a second time: got no error, want nothing to release")
			}
		})
	}
}

// What is released stays alone until the node comes back, and is fenced as ever after that.
func TestReleasedIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.detaches = false
	w.cut("n1")
	if !w.until(time.Minute, func() bool { return w.record("n1").Phase == taint.PhaseEvicting }) {
		t.Fatalf("no fence of n1; told %q", w.told.said)
	}
	_, err := Release(t.Context(), w.api, "n1", taint.DefaultKey, true, w.Now)
	must(t, err)
	w.pod("n1", "late", nil, nil, nil)
	w.run(time.Minute)
	if r := w.record("n1"); r.Result != taint.ResultReleased || w.marked("n1") {
		t.Fatalf("a minute after the release: got %s %s, marked %v", r.Phase, r.Result, w.marked("n1"))
	}
	w.detaches = true
	w.boot("n1")
	w.run(5 * time.Second)
	w.cut("n1")
	w.untilDone("n1", taint.ResultEvicted)
}
