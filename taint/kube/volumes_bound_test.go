package kube

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/test/kit"
)

// slowReader answers each read of a claim or volume after 5 ms. Only the claims of namespace shop exist.
type slowReader struct {
	client.Reader
	reads *atomic.Int64
}

func (r slowReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.reads.Add(1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
	}
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		if key.Namespace == "shop" {
			o.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
			o.Spec.VolumeName = "pv-" + key.Name
			return nil
		}
	case *corev1.PersistentVolume:
		o.Name = key.Name
		o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: key.Name}
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// A user fills a node with pods that stay on it, and that each name 90 claims. That makes neither the reads of a look
// endless, nor hides the volumes of other namespaces.
func TestManyClaimsAreNotAllRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(namespace, name string, claims ...string) corev1.Pod {
			p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				UID: types.UID(namespace + "/" + name)}}
			for _, c := range claims {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
			}
			return p
		}
		var pods []corev1.Pod
		for i := range 1000 {
			var claims []string
			for j := range 90 {
				claims = append(claims, fmt.Sprintf("c-%d-%d", i, j))
			}
			pods = append(pods, pod("greedy", fmt.Sprint(i), claims...))
		}
		pods = append(pods, pod("shop", "db-0", "data"), pod("shop", "db-1", "data"))
		reads, began := &atomic.Int64{}, time.Now()
		of, _, err := ReadVolumes(t.Context(), slowReader{reads: reads}, pods)
		kit.Must(t, err)
		if took := time.Since(began); took > 2*time.Second || reads.Load() > 3000 {
			t.Errorf("%d reads took %v", reads.Load(), took)
		}
		for _, name := range []string{"db-0", "db-1"} {
			if v := of["shop/"+name]; len(v) != 1 || v[0].PV != "pv-data" || v[0].Unread {
				t.Errorf("%s: got %+v", name, v)
			}
		}
		last := of["greedy/999"]
		if len(last) != 1 || !last[0].Unread || last[0].Claim != action.UnreadClaim {
			t.Errorf("got volumes %+v of the last pod, want one that is not read", last)
		}
	})
}

// endlessReader has no end of Pending pods in namespace greedy, in pages of a second each.
type endlessReader struct {
	slowReader
	waits map[string]string // claims that pods wait for, by namespace
}

func (r endlessReader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	pods := l.(*corev1.PodList)
	if o.Namespace == "greedy" {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		pods.Continue = "more"
		if o.Limit == 0 {
			return errLarge
		}
		return nil
	}
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, OwnerReferences: []metav1.OwnerReference{{
		Kind: "ReplicaSet", Controller: new(true)}}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.
		PersistentVolumeClaimVolumeSource{ClaimName: r.waits[o.Namespace]}}}}
	pods.Items = []corev1.Pod{p}
	return nil
}

// A namespace with too many Pending pods hides its own claims, and no other's.
func TestOneNamespaceHidesNoAwaitedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := ListAwaitedClaims(t.Context(), endlessReader{waits: map[string]string{"shop": "data"}}, "n1",
			[]string{"greedy", "shop"})
		kit.Must(t, err)
		if took := time.Since(began); took > 10*time.Second || len(got) != 1 || !got["shop/data"] {
			t.Errorf("got %v after %v", got, took)
		}
	})
}

// A user's pods that name a thousand owners neither make a look endless, nor hide the owners of others.
func TestManyOwnersAreNotAllRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []action.Pod
		for i := range 10_000 {
			pods = append(pods, action.Pod{Namespace: "greedy", UID: fmt.Sprint(i),
				Owner: action.Owner{Kind: "ReplicaSet", Name: fmt.Sprint(i)}})
		}
		pods = append(pods, action.Pod{Namespace: "shop", UID: "web",
			Owner: action.Owner{Kind: "ReplicaSet", Name: "web-1"}})
		reads := &atomic.Int64{}
		got, err := ReadOwners(t.Context(), ownedReader{slowReader{reads: reads}}, pods)
		kit.Must(t, err)
		want := action.Owner{Kind: "Deployment", Name: "web", Known: true}
		if got["web"] != want || reads.Load() > 1000 {
			t.Errorf("got %+v after %d reads", got["web"], reads.Load())
		}
		want = action.Owner{Kind: "ReplicaSet", Name: "9999", Known: true}
		if got["9999"] != want {
			t.Errorf("the last: got %+v", got["9999"])
		}
	})
}

// ownedReader has one ReplicaSet, which a Deployment controls.
type ownedReader struct{ slowReader }

func (r ownedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	err := r.slowReader.Get(ctx, key, o)
	if set, ok := o.(*metav1.PartialObjectMetadata); ok && key.Name == "web-1" {
		set.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: new(true)}}
		return nil
	}
	return err
}
