package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/room"
)

// paged returns each list of nodes and pods in pages of one object, and fails lists of volumes. The second page of
// nodes is no longer there when it is asked for, but a later one is.
type paged struct {
	client.Reader
	fails error
}

func (p paged) List(_ context.Context, l client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if _, is := l.(*corev1.NodeList); is && o.Continue == "2" {
		expired := apierrors.NewResourceExpired("the list is too old")
		expired.ErrStatus.Continue = "2 later"
		return expired
	}
	last := strings.HasPrefix(o.Continue, "2")
	name := map[bool]string{false: "n1", true: "n2"}[last]
	switch l := l.(type) {
	case *corev1.NodeList:
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("10")}
		l.Items = []corev1.Node{n}
	case *corev1.PodList:
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "on-" + name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of",
				Controller: new(true)}}}}
		pod.Spec.NodeName = name
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		l.Items = []corev1.Pod{pod}
	case *corev1.PersistentVolumeClaimList:
		l.Items = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}}
		return nil
	case *corev1.PersistentVolumeList:
		pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
		l.Items = []corev1.PersistentVolume{pv}
		return p.fails
	default:
		return nil
	}
	if !last {
		l.SetContinue("2")
	}
	return nil
}

// All pages are read, with a rest after each but the last. A volume of an in-tree type is served by its CSI driver,
// which no node runs here. What may not be read makes pods unknown; another error ends the read.
func TestReadRoom(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", errors.New("no"))
	gone := errors.New("gone")
	for _, tt := range []struct {
		fails, unread, err error
		why                string
		unchecked          []string
	}{
		{why: "fits on none of 1 other nodes: 1 without CSI driver ebs.csi.aws.com"},
		{fails: forbidden, unread: forbidden, unchecked: []string{"claim data"}},
		{fails: gone, err: gone},
	} {
		c, rests := room.New(taint.DefaultKey, nil), 0
		unread, err := ReadRoom(t.Context(), paged{fails: tt.fails}, c, func(time.Duration) { rests++ })
		if !errors.Is(unread, tt.unread) || !errors.Is(err, tt.err) || rests != 2 {
			t.Errorf("got unread %v, error %v and %d rests; want %v, %v and 2", unread, err, rests, tt.unread, tt.err)
		}
		if err != nil {
			continue
		}
		for _, node := range []string{"n1", "n2"} {
			all := c.Replacements(node)
			if len(all) != 1 || all[0].Why != tt.why || !slices.Equal(all[0].Unchecked, tt.unchecked) {
				t.Errorf("%s: got %+v, want %q, unchecked %q", node, all, tt.why, tt.unchecked)
			}
		}
	}
}
