package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// What refuses the deletion of an attachment.
const (
	byAttachment = "'forcefence-controller-attachment' with binding 'forcefence-controller-attachment' denied " +
		"request: "
	otherAttacher  = byAttachment + "forcefence may delete no VolumeAttachment but those of its policies' drivers"
	inlineVolume   = byAttachment + "forcefence may delete no VolumeAttachment but those of PersistentVolumes"
	attachmentName = byAttachment + "forcefence may delete a VolumeAttachment only by its UID and resourceVersion"
)

// deleteAttachment deletes an attachment with its preconditions, after an edit of them.
func deleteAttachment(name string, edit func(*metav1.Preconditions)) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		va, err := admin.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p := metav1.Preconditions{UID: &va.UID, ResourceVersion: &va.ResourceVersion}
		edit(&p)
		return c.StorageV1().VolumeAttachments().
			Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun, Preconditions: &p})
	}
}

// longhornAttachments are what the component longhorn lets the controller's account do with attachments.
var longhornAttachments = []attempt{
	{"delete an attachment of Longhorn's", us, deleteAttachment("longhorn", func(*metav1.Preconditions) {}), ""},
	{"delete another driver's", us, deleteAttachment("other", func(*metav1.Preconditions) {}), otherAttacher},
	{"delete an inline volume's", us, deleteAttachment("inline", func(*metav1.Preconditions) {}), inlineVolume},
	{"delete one by name", us,
		deleteAttachment("longhorn", func(p *metav1.Preconditions) { *p = metav1.Preconditions{} }), attachmentName},
	{"delete one without resourceVersion", us,
		deleteAttachment("longhorn", func(p *metav1.Preconditions) { p.ResourceVersion = nil }), attachmentName},
	{"delete one without UID", us, deleteAttachment("longhorn", func(p *metav1.Preconditions) { p.UID = nil }),
		attachmentName},
	{"delete another driver's", admin, deleteAttachment("other", func(*metav1.Preconditions) {}), ""},
	{"delete all", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.StorageV1().VolumeAttachments().
			DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
	}, byRBAC},
	{"change one", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		_, err := c.StorageV1().VolumeAttachments().
			Patch(ctx, "longhorn", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":[]}}`),
				metav1.PatchOptions{DryRun: dryRun})
		return err
	}, byRBAC},
	{"write Longhorn's setting", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.Discovery().RESTClient().Patch("application/merge-patch+json").
			AbsPath("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/node-down-pod-deletion-policy").
			Body([]byte(`{"value":"do-nothing"}`)).Do(ctx).Error()
	}, byRBAC},
	{"read another setting of Longhorn's", us, func(ctx context.Context, _, c kubernetes.Interface) error {
		return c.Discovery().RESTClient().Get().
			AbsPath("/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/backup-target").Do(ctx).Error()
	}, byRBAC},
}

// TestLonghornAttachments tries every row, and checks that each validation is needed.
func TestLonghornAttachments(t *testing.T) {
	w := newWorld(t, cluster.Options{KCMArgs: []string{"--controllers=*,-persistentvolume-attach-detach-controller"}})
	for name, attacher := range map[string]string{
		"longhorn": "driver.longhorn.io", "other": "csi.example.net", "inline": "driver.longhorn.io"} {
		pv := "pv-" + name
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: attacher, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
			}}
		if name == "inline" {
			va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: attacher, VolumeHandle: "h"}},
			}}
		}
		_, err := w.c.Client().StorageV1().VolumeAttachments().Create(w.ctx, va, metav1.CreateOptions{})
		kit.Must(t, err)
	}
	w.install(overlay(t, []string{"base"}, []string{"longhorn"}, nil))
	accounts := map[string]kubernetes.Interface{us: w.as(account), admin: w.c.Client()}
	refused := func() (bool, error) {
		for _, a := range longhornAttachments {
			if bad := w.verdict(accounts, a); bad != "" {
				return false, fmt.Errorf("%s: %s", a.name, bad)
			}
		}
		return true, nil
	}
	w.until("every row holds", refused)
	api := w.c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	whole, err := api.Get(w.ctx, "forcefence-controller-attachment", metav1.GetOptions{})
	kit.Must(t, err)
	for i, v := range whole.Spec.Validations {
		p := whole.DeepCopy()
		p.Spec.Validations[i].Expression = "true"
		w.replace(p)
		w.until("without "+v.Message+" it passes", func() (bool, error) {
			for _, a := range longhornAttachments {
				if strings.HasSuffix(a.want, v.Message) && a.do(w.ctx, w.c.Client(), accounts[a.as]) == nil {
					return true, nil
				}
			}
			return false, fmt.Errorf("no row needs it")
		})
	}
}
