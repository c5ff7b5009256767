package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestSteps plays a fence of two databases and another pod with a volume.
func TestSteps(t *testing.T) {
	s := &steps{victim: "n1", pvs: map[string]bool{"pv": true},
		old:  map[types.UID]bool{"1": true, "2": true, "3": true},
		seen: map[string]moments{}}
	for _, name := range stepNames {
		s.seen[name] = moments{}
	}
	pod := func(class, name, uid, node string, ready bool) *corev1.Pod {
		p := testPod("StatefulSet", name, uid, node, ready)
		p.Spec.PriorityClassName, p.Spec.Volumes = class, []corev1.Volume{{Name: "data"}}
		return p
	}
	db := func(name, uid, node string, ready bool) *corev1.Pod { return pod(databases, name, uid, node, ready) }
	ended := db("d-0", "1", "n1", true)
	ended.Status.Phase = corev1.PodFailed
	before, after := testAttachment("va1", "n1"), testAttachment("va2", "n2")
	pv := "pv"
	before.Spec.Source.PersistentVolumeName, after.Spec.Source.PersistentVolumeName = &pv, &pv

	s.see(at(1), ended, false)
	s.see(at(2), ended, true)
	s.see(at(3), db("d-1", "2", "n1", true), true)
	s.see(at(4), pod("", "x-0", "3", "n1", true), true) // no database
	s.see(at(5), before, true)
	s.see(at(6), db("d-0", "4", "n2", false), false)
	s.see(at(7), after, false) // not attached yet
	after.Status.Attached = true
	s.see(at(8), after, false)
	s.see(at(9), pod("", "x-0", "5", "n2", true), false)
	s.see(at(10), db("d-0", "4", "n2", true), false)
	s.see(at(11), db("d-1", "6", "n2", true), false)
	s.see(at(12), db("d-1", "6", "n2", true), false) // seen before
	want := []step{
		{"first pod with a volume runs", 9}, {"databases ended", 3}, {"databases gone", 3}, {"databases detached", 5},
		{"databases bound", 6}, {"databases attached", 8}, {"databases run", 11},
	}
	if got := s.since(zero); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFirstResults(t *testing.T) {
	r := FirstResults{Run{Date: "2026-03-01", Kubernetes: "v1.37.2", Cores: 2, Load: shopWithDatabases},
		map[string]map[string][]float64{"databases run": {
			floor.name: {9, 7, 8}, forcefence.name: {3, 4}, alone.name: {1.5, 2}}}}
	for _, want := range []string{
		"`make bench RUN=first`: 2026-03-01, Kubernetes v1.37.2,\n2 cores", "had\n110 pods: 3 databases",
		"| databases run | 8.0 s (7.0-9.0) | 3.5 s (3.0-4.0) | 1.8 s (1.5-2.0) | 2.0 |\n",
		"| databases ended | never | never | never | NaN |\n",
	} {
		if got := r.markdown(); !strings.Contains(got, want) {
			t.Errorf("want %q in it:\n%s", want, got)
		}
	}
}
