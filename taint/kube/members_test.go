package kube

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Members are identified by etcd's static pods: by kubeadm's labels, in their namespace, bound to a node, and mirrored
// by a kubelet.
func TestMembers(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	pod := func(name, node string, ready corev1.ConditionStatus, change func(*corev1.Pod)) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "kube-system", Name: name,
				Labels:      map[string]string{"component": "etcd", "tier": "control-plane"},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
			},
			Spec:   corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
		if change != nil {
			change(p)
		}
		must(t, c.Create(t.Context(), p))
	}
	pod("etcd-n1", "n1", corev1.ConditionTrue, nil)
	pod("etcd-n2", "n2", corev1.ConditionFalse, nil)
	pod("etcd-n3", "n3", corev1.ConditionTrue, func(p *corev1.Pod) { p.Status = corev1.PodStatus{} })
	pod("other-etcd", "n4", corev1.ConditionTrue, func(p *corev1.Pod) { p.Namespace = "shop" })
	pod("etcd-operator", "n5", corev1.ConditionTrue, func(p *corev1.Pod) { p.Annotations = nil })
	pod("pending", "", corev1.ConditionTrue, nil)
	pod("kube-apiserver-n6", "n6", corev1.ConditionTrue,
		func(p *corev1.Pod) { p.Labels["component"] = "kube-apiserver" })
	got, err := ListEtcdMembers(t.Context(), c)
	if want := map[string]bool{"n1": true, "n2": false, "n3": false}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := ListEtcdMembers(t.Context(), mute{}); err == nil {
		t.Error("pods that cannot be listed are none")
	}
}

type mute struct{ client.Reader }

func (mute) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no route to host")
}
