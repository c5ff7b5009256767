package main

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/test/kit"
)

// n1 and n2 are in zone a, n3 in zone b; n4 is not Ready.
func TestRoom(t *testing.T) {
	s := newSite(t)
	for name, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
		s.change(name, func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelTopologyZone: zone} })
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		var n corev1.Node
		kit.Must(t, s.api.Get(t.Context(), client.ObjectKey{Name: name}, &n))
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("2"), "pods": resource.MustParse("10")}
		kit.Must(t, s.api.Status().Update(t.Context(), &n))
	}
	pod := func(name, node, cpu string) {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(),
				Kind: "ReplicaSet", Name: "of", UID: "u", Controller: new(true)}}}}
		o.Spec.NodeName = node
		o.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
		kit.Must(t, s.api.Create(t.Context(), o))
	}
	pod("web-0", "n1", "1")
	s.expect("The pods of 4 of 4 nodes fit elsewhere.", "", "room")
	pod("web-1", "n2", "1")
	pod("web-2", "n3", "2")
	const short = "the pods of 1 of 4 nodes may find no room elsewhere"
	s.expect("If node n3 fails now, 1 of 1 pods do not.", short, "room")
	s.expect("with too little cpu (it asks for 2, at most 1 is free)", short, "room")
	s.expect("node/n1\n", short, "room", "-o", "name")
	out, _ := s.run("room", "-o", "json")
	var e roomEstimate
	kit.Must(t, json.Unmarshal([]byte(out), &e))
	got := map[string]room.Verdict{}
	for _, f := range e.Failures {
		got[f.Name] = f.Verdict()
	}
	if len(got) != 7 || got["n1"] != room.Fits || got["n3"] != room.Lacks ||
		got[corev1.LabelTopologyZone+"=a"] != room.Lacks {
		t.Errorf("got %+v", e.Failures)
	}
}
