package kube

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	csitranslation "k8s.io/csi-translation-lib"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
)

// roomPage is how many objects one request for an Inventory returns at most.
const roomPage = 100

// Inventory receives what decides whether pods find room. Each method is called with what was read, once for an object.
type Inventory interface {
	AddNode(*corev1.Node)
	AddPod(*corev1.Pod)
	AddClaim(namespace, name, pv string)
	AddVolume(*corev1.PersistentVolume)
	AddAttachment(*storagev1.VolumeAttachment)
	AddCSINode(*storagev1.CSINode)
	CSINodesRead() // all of them were read
}

// ReadRoom reads into an Inventory what decides whether pods find room: nodes, pods, claims, volumes, attachments and
// CSI nodes. It calls rest after each page with how long that took. unread says which of the last four may not be
// read: the estimate then has unknown pods. It blocks for the API server, each page for at most Timeout.
func ReadRoom(
	ctx context.Context, c client.Reader, into Inventory, rest func(time.Duration),
) (unread, err error) {
	p := pages{Reader: c, rest: rest, size: roomPage, room: true}
	if err := eachPage(ctx, p, "nodes", func(l *corev1.NodeList) {
		for i := range l.Items {
			into.AddNode(&l.Items[i])
		}
	}); err != nil {
		return nil, err
	}
	unfinished := client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))}
	pods := p
	pods.options = []client.ListOption{unfinished}
	if err := eachPage(ctx, pods, "pods", func(l *corev1.PodList) {
		for i := range l.Items {
			into.AddPod(&l.Items[i])
		}
	}); err != nil {
		return nil, err
	}
	translator := csitranslation.New()
	for _, read := range []func() error{
		func() error {
			return eachPage(ctx, p, "claims", func(l *corev1.PersistentVolumeClaimList) {
				for i := range l.Items {
					into.AddClaim(l.Items[i].Namespace, l.Items[i].Name, l.Items[i].Spec.VolumeName)
				}
			})
		},
		func() error {
			return eachPage(ctx, p, "volumes", func(l *corev1.PersistentVolumeList) {
				for i := range l.Items {
					pv := &l.Items[i]
					if taint.CutParts(pv) != "" {
						continue // its pods are unknown
					}
					if translator.IsPVMigratable(pv) {
						translated, err := translator.TranslateInTreePVToCSI(logr.Discard(), pv)
						if err != nil {
							continue // its pods are unknown
						}
						pv = translated
					}
					into.AddVolume(pv)
				}
			})
		},
		func() error {
			return eachPage(ctx, p, "volume attachments", func(l *storagev1.VolumeAttachmentList) {
				for i := range l.Items {
					into.AddAttachment(&l.Items[i])
				}
			})
		},
		func() error {
			err := eachPage(ctx, p, "CSI nodes", func(l *storagev1.CSINodeList) {
				for i := range l.Items {
					into.AddCSINode(&l.Items[i])
				}
			})
			if err == nil {
				into.CSINodesRead()
			}
			return err
		},
	} {
		switch err := read(); {
		case apierrors.IsForbidden(err):
			unread = errors.Join(unread, err)
		case err != nil:
			return nil, err
		}
	}
	return unread, nil
}
