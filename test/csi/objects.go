//go:build unix

package csi

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/test/csi/store"
)

const (
	// Name is the driver's.
	Name = store.Driver
	// StorageClass is the class of NewVolume's volumes. Nothing provisions it: a claim binds to a volume that exists.
	StorageClass = "loop"

	attacherUser = "forcefence-test-csi-attacher"
	noProvision  = "kubernetes.io/no-provisioner"
)

// register makes the driver known, and lets the attacher do its work: the rules are those of its v4 manifests, without
// leases.
func register(ctx context.Context, k kubernetes.Interface) error {
	yes, no, immediate, noGroup := true, false, storagev1.VolumeBindingImmediate, storagev1.NoneFSGroupPolicy
	opts := metav1.CreateOptions{}
	rule := func(group, what string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{what}, Verbs: verbs}
	}
	creates := map[string]func() error{
		"CSIDriver": func() error {
			_, err := k.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
				ObjectMeta: metav1.ObjectMeta{Name: Name},
				Spec:       storagev1.CSIDriverSpec{AttachRequired: &yes, PodInfoOnMount: &no, FSGroupPolicy: &noGroup},
			}, opts)
			return err
		},
		"StorageClass": func() error {
			_, err := k.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: StorageClass}, Provisioner: noProvision,
				VolumeBindingMode: &immediate,
			}, opts)
			return err
		},
		"ClusterRole": func() error {
			_, err := k.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: attacherUser},
				Rules: []rbacv1.PolicyRule{
					rule("", "persistentvolumes", "get", "list", "watch", "patch"),
					rule("storage.k8s.io", "csinodes", "get", "list", "watch"),
					rule("storage.k8s.io", "volumeattachments", "get", "list", "watch", "patch"),
					rule("storage.k8s.io", "volumeattachments/status", "patch"),
				},
			}, opts)
			return err
		},
		"ClusterRoleBinding": func() error {
			_, err := k.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: attacherUser},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: attacherUser},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: attacherUser}},
			}, opts)
			return err
		},
	}
	for what, create := range creates {
		if err := create(); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s of %s: %w", what, Name, err)
		}
	}
	return nil
}

// NewVolume makes a volume of size bytes (8 MiB at least) in the store, and its PersistentVolume of StorageClass for
// one claim, such as a StatefulSet's. It may be repeated.
func NewVolume(ctx context.Context, s *store.Store, k kubernetes.Interface, name string,
	size int64) (*corev1.PersistentVolume, error) {
	r, err := s.Create(name, size)
	if err != nil {
		return nil, err
	}
	api := k.CoreV1().PersistentVolumes()
	pv, err := api.Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(r.Size, resource.BinarySI)},
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: StorageClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: name, FSType: "ext4"},
			},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return api.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("create volume %s: %w", name, err)
	}
	return pv, nil
}

// DaemonSetOptions say how the nodes look. Image and Store are needed.
type DaemonSetOptions struct {
	Namespace  string // "": kube-system
	Image      string // has Build's driver as /driver
	Store      string // the backing store's folder, on every node
	KubeletDir string // "": /var/lib/kubelet
	BootIDFile string // on the node; "": /proc/sys/kernel/random/boot_id, which nodes of one machine share
}

// DaemonSet is the node half. It has the node's /dev, since loop devices appear at any time, and mounts into the
// kubelet's folder with propagation to the node. It needs no service account: it never speaks to the API server.
func DaemonSet(o DaemonSetOptions) *appsv1.DaemonSet {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	o.Namespace, o.KubeletDir = or(o.Namespace, metav1.NamespaceSystem), or(o.KubeletDir, "/var/lib/kubelet")
	yes, no, both := true, false, corev1.MountPropagationBidirectional
	labels := map[string]string{"app": "csi-loop-node"}
	spec := corev1.PodSpec{
		HostNetwork: true, AutomountServiceAccountToken: &no, PriorityClassName: "system-node-critical",
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	c := corev1.Container{
		Name: "driver", Image: o.Image, ImagePullPolicy: corev1.PullNever,
		SecurityContext: &corev1.SecurityContext{Privileged: &yes},
		Command: []string{
			"/driver", "node", "--endpoint", "unix://" + o.KubeletDir + "/plugins/" + Name + "/csi.sock",
			"--store", o.Store, "--node", "$(NODE)", "--kubelet-dir", o.KubeletDir,
		},
		Env: []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"},
		}}},
	}
	host := func(name, path, inside string, kind corev1.HostPathType, p *corev1.MountPropagationMode) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: inside, MountPropagation: p})
	}
	host("kubelet", o.KubeletDir, o.KubeletDir, corev1.HostPathDirectory, &both)
	host("store", o.Store, o.Store, corev1.HostPathDirectory, nil)
	host("dev", "/dev", "/dev", corev1.HostPathDirectory, nil)
	if o.BootIDFile != "" {
		host("boot-id", o.BootIDFile, "/boot_id", corev1.HostPathFile, nil)
		c.Command = append(c.Command, "--boot-id-file", "/boot_id")
	}
	spec.Containers = []corev1.Container{c}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-loop-node", Namespace: o.Namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}
