//go:build unix

package csi

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/csi/store"
)

// TestAttach has the real external-attacher attach and detach through our controller half, on a real control plane.
func TestAttach(t *testing.T) {
	if m := store.MissingToMount(); m != "" {
		if os.Getenv(store.Require) == "1" {
			t.Fatal(m)
		}
		t.Skip("SKIPPED: " + m)
	}
	c := cluster.ForTest(t, cluster.Options{})
	begin := time.Now()
	d, err := Start(t.Context(), Options{Cluster: c, Store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	t.Logf("started after %s", time.Since(begin).Round(time.Millisecond))
	k := c.Client()
	if _, err := NewVolume(t.Context(), d.Store(), k, "vol", store.MinSize); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "b"} { // as the kubelet would after the node half's registration
		if _, err := k.CoreV1().Nodes().
			Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}},
				metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.StorageV1().CSINodes().Create(t.Context(), &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: n},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: Name, NodeID: n}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	vas, pv := k.StorageV1().VolumeAttachments(), "vol"
	attach := func(node string) {
		t.Helper()
		if _, err := vas.Create(t.Context(), &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: Name, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, check func(*storagev1.VolumeAttachment, error) bool, node string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var last *storagev1.VolumeAttachment
		if err := cluster.Until(ctx, func(ctx context.Context) (bool, error) {
			va, err := vas.Get(ctx, "on-"+node, metav1.GetOptions{})
			last = va
			return check(va, err), nil
		}); err != nil {
			t.Fatalf("%s: %v: got %+v", what, err, last)
		}
	}
	attached := func(va *storagev1.VolumeAttachment, err error) bool { return err == nil && va.Status.Attached }
	published := func(want string) {
		t.Helper()
		if r, err := d.Store().Get(pv); err != nil || r.Node != want {
			t.Errorf("published: got %+v, %v; want %q", r, err, want)
		}
	}

	attach("a")
	until("attached to a", attached, "a")
	published("a")
	attach("b")
	until("refused on b", func(va *storagev1.VolumeAttachment, err error) bool {
		return err == nil && !va.Status.Attached && va.Status.AttachError != nil &&
			strings.Contains(va.Status.AttachError.Message, "published to a")
	}, "b")
	published("a")
	if err := vas.Delete(t.Context(), "on-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until("detached from a", func(_ *storagev1.VolumeAttachment, err error) bool { return apierrors.IsNotFound(err) },
		"a")
	until("attached to b", attached, "b")
	published("b")
	if v := d.Violations(); len(v) > 0 {
		t.Errorf("violations: %q", v)
	}

	class := StorageClass // a claim, such as a StatefulSet's, binds to the volume
	claims := k.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	if _, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := cluster.Until(ctx, func(ctx context.Context) (bool, error) {
		claim, err := claims.Get(ctx, "claim", metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == pv, err
	}); err != nil {
		t.Errorf("claim: %v", err)
	}
	// The real API server takes the DaemonSet as it is.
	ds := DaemonSet(DaemonSetOptions{Image: "csi:test", Store: d.Store().Dir(), BootIDFile: "/run/boot_id"})
	if _, err := k.AppsV1().DaemonSets(ds.Namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Errorf("DaemonSet: %v", err)
	}
}
