package proofguard

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What cannot be read lets no request through: the answer is an error, and neither yes nor no.
func TestUnreadableIsRefused(t *testing.T) {
	silent := corev1.NodeStatus{
		Conditions:   []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/d^1"},
	}
	volume := "pv"
	objects := []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: silent},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0"},
			Spec: corev1.PodSpec{NodeName: "n1", Hostname: "db-0"}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: "n1", Attacher: "d", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "1"}}}},
	}
	requests := map[string]*request{
		"taint":      {Resource: metav1.GroupVersionResource{Resource: "nodes"}, Name: "n1"},
		"deletion":   {Resource: metav1.GroupVersionResource{Resource: "pods"}, Namespace: "ns", Name: "db-0"},
		"attachment": {Resource: metav1.GroupVersionResource{Resource: "volumeattachments"}, Name: "va"},
	}
	broken := errors.New("etcd")
	for name, tc := range map[string]struct {
		fails func(runtime.Object) bool
		errs  []string // the requests that are answered with an error; the others are refused
	}{
		"all can be read": {func(runtime.Object) bool { return false }, nil},
		"the Node": {func(o runtime.Object) bool { _, is := o.(*corev1.Node); return is },
			[]string{"taint", "deletion", "attachment"}},
		"its Lease": {func(o runtime.Object) bool { _, is := o.(*coordinationv1.Lease); return is },
			[]string{"taint", "deletion", "attachment"}},
		"the public keys": {func(o runtime.Object) bool { _, is := o.(*corev1.ConfigMap); return is },
			[]string{"taint", "deletion", "attachment"}},
		"the pod": {func(o runtime.Object) bool { _, is := o.(*corev1.Pod); return is }, []string{"deletion"}},
		"the attachment": {func(o runtime.Object) bool { _, is := o.(*storagev1.VolumeAttachment); return is },
			[]string{"attachment"}},
		"the volume": {func(o runtime.Object) bool { _, is := o.(*corev1.PersistentVolume); return is },
			[]string{"attachment"}},
	} {
		c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(objects...).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if tc.fails(o) {
					return broken
				}
				return c.Get(ctx, k, o, opts...)
			}})
		g := guard{Options: Options{Live: c, Namespace: "forcefence-system", MaxAge: time.Minute,
			Log: slog.New(slog.DiscardHandler), Now: time.Now}}
		for what, r := range requests {
			why, err := g.decide(t.Context(), r)
			fails := false
			for _, e := range tc.errs {
				fails = fails || e == what
			}
			if errors.Is(err, broken) != fails || (why != "") == fails {
				t.Errorf("%s cannot be read, %s: got %q, %v; want an error: %v, and otherwise a refusal", name, what,
					why, err, fails)
			}
		}
	}
}
