package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/forcefence/forcefence/test/kit"
)

const (
	listStorage = byStatus + "forcefence may change the volume lists of a marked node only, and volumes in use of " +
		"the storage's drivers on one that is not Ready"

	byStorageAttachment = "'forcefence-controller-storageos-attachment' with binding " +
		"'forcefence-controller-storageos-attachment' denied request: "
	attachmentOther = byStorageAttachment + "forcefence may delete no VolumeAttachment but those of the storage's " +
		"drivers"
	attachmentInline = byStorageAttachment + "forcefence may delete no VolumeAttachment but those of PersistentVolumes"
	attachmentByName = byStorageAttachment + "forcefence may delete a VolumeAttachment only by its UID and " +
		"resourceVersion"
)

// The volumes of the fixtures' lists beside their own.
const (
	storageVolume = corev1.UniqueVolumeName("kubernetes.io/csi/csi.storageos.com^v2")
	// of a driver whose name begins so
	alikeVolume = corev1.UniqueVolumeName("kubernetes.io/csi/csi.storageos.com.example.net^v3")
)

// unlist takes volumes off the list of those in use.
func unlist(names ...corev1.UniqueVolumeName) func(*corev1.Node) {
	return func(n *corev1.Node) {
		var left []corev1.UniqueVolumeName
		for _, v := range n.Status.VolumesInUse {
			keep := true
			for _, name := range names {
				keep = keep && v != name
			}
			if keep {
				left = append(left, v)
			}
		}
		n.Status.VolumesInUse = left
	}
}

// What the component adds is what it says, and no more. The node "confirmed" is not marked and not Ready, "plain" is
// Ready.
func (w *world) storageOS(t *testing.T, accounts map[string]kubernetes.Interface) {
	for _, name := range []string{"plain", "confirmed"} {
		kit.Must(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, storageVolume, alikeVolume)
			n.Status.VolumesAttached = append(n.Status.VolumesAttached,
				corev1.AttachedVolume{Name: storageVolume, DevicePath: "/dev/y"})
			_, err = w.c.Client().CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
			return err
		}))
	}
	for name, attacher := range map[string]string{
		"theirs": "csi.storageos.com", "inlines": "csi.storageos.com", "anothers": "csi.storageos.com.example.net"} {
		pv := "pv-" + name
		source := storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}
		if name == "inlines" {
			source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: attacher, VolumeHandle: "h"}},
			}}
		}
		_, err := w.c.Client().StorageV1().VolumeAttachments().Create(w.ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.net/keep"}},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: "confirmed", Source: source},
		}, metav1.CreateOptions{})
		kit.Must(t, err)
	}
	asIs := func(*metav1.Preconditions) {}
	without := attempt{"an attachment, without the component", us, deleteAttachment("theirs", asIs), byRBAC}
	if bad := w.verdict(accounts, without); bad != "" {
		t.Error(bad)
	}
	w.install(overlay(t, []string{"base"}, []string{"storageos"}, nil))
	rows := []attempt{
		{"the storage's volume in use on a node that is not Ready", us,
			onNode("confirmed", unlist(storageVolume), status), ""},
		{"on one that is Ready", us, onNode("plain", unlist(storageVolume), status), listStorage},
		{"another driver's volume", us, onNode("confirmed", unlist(alikeVolume), status), listStorage},
		{"another driver's volume beside", us,
			onNode("confirmed", unlist(storageVolume, "kubernetes.io/csi/sim^v1"), status), listStorage},
		{"attached volumes", us, onNode("confirmed", func(n *corev1.Node) {
			unlist(storageVolume)(n)
			n.Status.VolumesAttached = nil
		}, status), listStorage},
		{"one that was not there", us, onNode("confirmed", func(n *corev1.Node) {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, "kubernetes.io/csi/csi.storageos.com^v9")
		}, status), listGrows},
		{"Ready on the way", us, onNode("confirmed", func(n *corev1.Node) {
			unlist(storageVolume)(n)
			condition(corev1.NodeReady, corev1.ConditionFalse)(n)
		}, status), byPolicy},
		{"a marked node's lists, as before", us, onNode("marked", clearLists, status), ""},
		{"the storage's attachment", us, deleteAttachment("theirs", asIs), ""},
		{"another driver's attachment", us, deleteAttachment("anothers", asIs), attachmentOther},
		{"an inline volume's attachment", us, deleteAttachment("inlines", asIs), attachmentInline},
		{"an attachment by its name", us, deleteAttachment("theirs", func(o *metav1.Preconditions) { o.UID = nil }),
			attachmentByName},
		{"an attachment of any state", us,
			deleteAttachment("theirs", func(o *metav1.Preconditions) { o.ResourceVersion = nil }), attachmentByName},
	}
	w.until("the component is in force", func() (bool, error) {
		for _, a := range rows {
			if a.want == "" || strings.HasPrefix(a.want, byStorageAttachment) {
				if bad := w.verdict(accounts, a); bad != "" {
					return false, fmt.Errorf("%s: %s", a.name, bad)
				}
			}
		}
		return true, nil
	})
	for _, a := range rows {
		t.Run(a.name, func(t *testing.T) {
			if bad := w.verdict(accounts, a); bad != "" {
				t.Error(bad)
			}
		})
	}
}

// TestStorageOSOverlay: the right to delete attachments, and a policy that narrows it.
func TestStorageOSOverlay(t *testing.T) {
	counts := map[string]int{"name: forcefence-controller-storageos-attachment\n": 0,
		"  - volumeattachments\n  verbs:\n  - delete\n": 0, "'csi.storageos.com'": 0}
	wantCounts(t, render(t, base), counts)
	counts["name: forcefence-controller-storageos-attachment\n"], counts["  - volumeattachments\n  verbs:\n  - "+
		"delete\n"], counts["'csi.storageos.com'"] = 2, 1, 2
	wantCounts(t, render(t, overlay(t, []string{"base"}, []string{"storageos"}, nil)), counts)
}

// untilRefused waits until the first row with that refusal gets it.
func (w *world) untilRefused(accounts map[string]kubernetes.Interface, want string) {
	w.t.Helper()
	row := refusals[slices.IndexFunc(refusals, func(a attempt) bool { return a.want == want })]
	w.until("the policies refuse", func() (bool, error) {
		if bad := w.verdict(accounts, row); bad != "" {
			return false, fmt.Errorf("%s: %s", row.name, bad)
		}
		return true, nil
	})
}
