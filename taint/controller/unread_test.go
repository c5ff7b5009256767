package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// liveReads is an API server that answers some live reads with an error.
type liveReads struct {
	client.Reader
	fail func(o any, name string) error
}

func (r liveReads) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.fail(o, k.Name); err != nil {
		return err
	}
	return r.Reader.Get(ctx, k, o, opts...)
}

func (r liveReads) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := r.fail(l, ""); err != nil {
		return err
	}
	return r.Reader.List(ctx, l, opts...)
}

// An unreadable claim of a pod that stays keeps all entries of the volume lists, and nothing else. The other pods are
// recovered, and the mark goes once their volumes are detached.
func TestUnreadClaimOfStayingPod(t *testing.T) {
	for name, err := range map[string]error{
		"500": apierrors.NewInternalError(errors.New("unable to transform key")),
		"403": apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mode = fence.Observe
			w.r.Live = liveReads{w.api, func(o any, name string) error {
				if _, claim := o.(*corev1.PersistentVolumeClaim); claim && name == "state-of-agent-n1" {
					return err
				}
				return nil
			}}
			inUse := w.node("n1").Status.VolumesInUse
			w.cut("n1")
			w.until(2*time.Minute, func() bool { return len(w.pods("n1")) == 4 })
			w.run(10 * time.Second)
			want := []string{"agent-n1", "crashed-n1", "done-n1", "stays-n1"}
			if got := w.pods("n1"); !slices.Equal(got, want) || !w.marked("n1") {
				t.Fatalf("got pods %v, marked %v, want %v; told %q", got, w.marked("n1"), want, w.told.said)
			}
			if got := w.node("n1").Status.VolumesInUse; !slices.Equal(got, inUse) {
				t.Errorf("got in use %v, want all of %v", got, inUse)
			}
			w.detachOthers("n1", "agent-n1", "stays-n1")
			w.untilDone("n1", taint.ResultEvicted)
		})
	}
}

// detachOthers detaches the volumes of a node but those of these pods, as Kubernetes does after six minutes (F4).
func (w *world) detachOthers(node string, but ...string) {
	var list storagev1.VolumeAttachmentList
	must(w.t, w.api.List(context.Background(), &list))
	for i := range list.Items {
		va := &list.Items[i]
		used := func(pod string) bool { return slices.Contains(w.uses[pod], *va.Spec.Source.PersistentVolumeName) }
		if va.Spec.NodeName == node && va.Spec.Source.PersistentVolumeName != nil && !slices.ContainsFunc(but, used) {
			must(w.t, w.api.Delete(context.Background(), va))
		}
	}
}
