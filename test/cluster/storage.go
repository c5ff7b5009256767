package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	// StorageClass is the class whose claims the simulated CSI driver provisions at once.
	StorageClass = "sim"
	// CSIDriver is the simulated driver's name.
	CSIDriver = "sim.csi.forcefence.io"

	attacherFinalizer = "external-attacher/sim-csi-forcefence-io"
	provisionedBy     = "pv.kubernetes.io/provisioned-by"
	storageWorkers    = 16
)

// Attacher is the controller of the simulated CSI driver: it provisions and deletes the volumes of claims of
// StorageClass, and attaches and detaches them as external-attacher does, with its finalizer. It never refuses an
// attach: a second one is noted in the Ledger.
type Attacher struct {
	c     *Cluster
	queue workqueue.TypedRateLimitingInterface[string]

	mu             sync.Mutex // guards the rest
	attach, detach time.Duration
	since          map[string]time.Time // when an attach or detach was first wanted
}

// SetDelays sets how long an attach and a detach take, for those under way as well. A detach that never ends is a long
// delay.
func (a *Attacher) SetDelays(attach, detach time.Duration) {
	a.mu.Lock()
	a.attach, a.detach = attach, detach
	a.mu.Unlock()
	for _, va := range a.c.hub.attachments.all() {
		a.onAttachment(va, false)
	}
}

// onAttachment leaves attachments of other drivers alone: the finalizer of this one would keep them for ever.
func (a *Attacher) onAttachment(va *storagev1.VolumeAttachment, deleted bool) {
	switch {
	case va.Spec.Attacher != CSIDriver:
	case deleted:
		a.forget(va)
	default:
		a.queue.Add("va/" + va.Name)
	}
}

// ResetDelays sets the delays to those of Options.
func (a *Attacher) ResetDelays() { a.SetDelays(a.c.opts.AttachDelay, a.c.opts.DetachDelay) }

func newAttacher(c *Cluster) *Attacher {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, time.Second)
	return &Attacher{
		c: c, attach: c.opts.AttachDelay, detach: c.opts.DetachDelay, since: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(limit),
	}
}

// startStorage registers the driver and starts the hub and the driver's controller.
func (c *Cluster) startStorage(ctx context.Context) error {
	yes, immediate := true, storagev1.VolumeBindingImmediate
	_, err := c.clients.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: CSIDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &yes},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register CSI driver: %w", err)
	}
	_, err = c.clients.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: StorageClass}, Provisioner: CSIDriver, VolumeBindingMode: &immediate,
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create storage class: %w", err)
	}
	c.hub = newHub(c.clients)
	c.attacher = newAttacher(c)
	a := c.attacher
	c.hub.pods.on = func(pod *corev1.Pod, deleted bool) {
		if n := c.Node(pod.Spec.NodeName); n != nil {
			n.onPod(pod, deleted)
		}
	}
	c.hub.nodes.on = func(node *corev1.Node, deleted bool) {
		if n := c.Node(node.Name); n != nil && !deleted {
			n.onNode(node)
		}
	}
	c.hub.attachments.on = func(va *storagev1.VolumeAttachment, deleted bool) {
		a.onAttachment(va, deleted)
		if n := c.Node(va.Spec.NodeName); n != nil {
			n.wake()
		}
	}
	c.hub.claims.on = func(pvc *corev1.PersistentVolumeClaim, deleted bool) {
		if !deleted && pvc.Spec.VolumeName == "" && pvc.Spec.StorageClassName != nil &&
			*pvc.Spec.StorageClassName == StorageClass {
			a.queue.Add("pvc/" + key(pvc))
		}
	}
	c.hub.volumes.on = func(pv *corev1.PersistentVolume, deleted bool) {
		if !deleted && pv.Status.Phase == corev1.VolumeReleased && pv.Annotations[provisionedBy] == CSIDriver {
			a.queue.Add("pv/" + pv.Name)
		}
	}
	run, cancel := context.WithCancel(context.Background())
	c.stopHub = func() { cancel(); a.queue.ShutDown() }
	for range storageWorkers {
		c.hubDone.Go(func() { a.work(run) })
	}
	return c.hub.start(ctx, run, &c.hubDone)
}

func (a *Attacher) work(ctx context.Context) {
	for {
		item, down := a.queue.Get()
		if down {
			return
		}
		again, err := a.sync(ctx, item)
		switch {
		case err != nil && ctx.Err() == nil:
			a.c.log.Debug("Storage retries", "item", item, "err", err)
			a.queue.AddRateLimited(item)
		case again > 0:
			a.queue.AddAfter(item, again)
		default:
			a.queue.Forget(item)
		}
		a.queue.Done(item)
	}
}

func (a *Attacher) sync(ctx context.Context, item string) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kind, name, _ := strings.Cut(item, "/")
	switch kind {
	case "pvc":
		if pvc, ok := a.c.hub.claims.get(name); ok && pvc.Spec.VolumeName == "" && pvc.DeletionTimestamp == nil {
			return 0, a.provision(ctx, pvc)
		}
	case "pv":
		err := a.c.clients.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	case "va":
		if va, ok := a.c.hub.attachments.get(name); ok {
			return a.syncAttachment(ctx, va)
		}
	}
	return 0, nil
}

// provision makes the claim's volume; the real PV controller binds the two.
func (a *Attacher) provision(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(pvc.UID)
	// A real driver's handle is its own name of the volume, which may have a slash: who takes one for the other finds
	// nothing.
	handle := fmt.Sprintf("lab/lun-%x", sha256.Sum256([]byte(name)))[:24]
	_, err := a.c.clients.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: CSIDriver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: pvc.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: CSIDriver, VolumeHandle: handle},
			},
			AccessModes: pvc.Spec.AccessModes, VolumeMode: pvc.Spec.VolumeMode, StorageClassName: StorageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
			},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// syncAttachment attaches or detaches once the delay is over, and else returns how much of it is left.
func (a *Attacher) syncAttachment(ctx context.Context, va *storagev1.VolumeAttachment) (time.Duration, error) {
	api := a.c.clients.StorageV1().VolumeAttachments()
	ours := slices.Contains(va.Finalizers, attacherFinalizer)
	switch {
	case va.DeletionTimestamp != nil && !ours:
		return 0, nil
	case va.DeletionTimestamp != nil:
		if left := a.left(va, "detach"); left > 0 {
			return left, nil
		}
		rest := slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == attacherFinalizer })
		if handle, node, ok := a.singleWriter(va); ok {
			a.c.ledger.detach(handle, node) // the storage is detached before the API server hears of it
		}
		_, err := api.Patch(ctx, va.Name, types.MergePatchType, finalizers(va, rest), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, err
	case va.Status.Attached && ours:
		return 0, nil
	}
	if left := a.left(va, "attach"); left > 0 {
		return left, nil
	}
	if !ours {
		patch := finalizers(va, append(slices.Clone(va.Finalizers), attacherFinalizer))
		patched, err := api.Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return 0, ignoreNotFound(err)
		}
		va = patched
	}
	if handle, node, ok := a.singleWriter(va); ok {
		a.c.ledger.attach(handle, node)
	}
	_, err := api.Patch(ctx, va.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`),
		metav1.PatchOptions{}, "status")
	return 0, ignoreNotFound(err)
}

func finalizers(va *storagev1.VolumeAttachment, list []string) []byte {
	b, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // strings always marshal
		"resourceVersion": va.ResourceVersion, "uid": va.UID, "finalizers": list,
	}})
	return b
}

func (a *Attacher) left(va *storagev1.VolumeAttachment, verb string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := verb + "/" + string(va.UID)
	since, ok := a.since[k]
	if !ok {
		since = time.Now()
		a.since[k] = since
	}
	delay := a.attach
	if verb == "detach" {
		delay = a.detach
	}
	return delay - time.Since(since)
}

func (a *Attacher) forget(va *storagev1.VolumeAttachment) {
	if handle, node, ok := a.singleWriter(va); ok {
		a.c.ledger.detach(handle, node)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, "attach/"+string(va.UID))
	delete(a.since, "detach/"+string(va.UID))
}

func (a *Attacher) singleWriter(va *storagev1.VolumeAttachment) (handle, node string, ok bool) {
	if va.Spec.Source.PersistentVolumeName == nil {
		return "", "", false
	}
	pv, found := a.c.hub.volumes.get(*va.Spec.Source.PersistentVolumeName)
	if !found || pv.Spec.CSI == nil || !singleWriter(pv) {
		return "", "", false
	}
	return pv.Spec.CSI.VolumeHandle, va.Spec.NodeName, true
}

func singleWriter(pv *corev1.PersistentVolume) bool {
	for _, m := range pv.Spec.AccessModes {
		if m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany {
			return false
		}
	}
	return true
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
