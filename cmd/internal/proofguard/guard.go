// Package proofguard is the optional admission webhook that lets three kinds of requests through only while it is
// proven, or confirmed by a person, that a node's machine is off: the taint out-of-service, a forced deletion of a
// StatefulSet's pod, and the deletion of a VolumeAttachment. It does not matter who sends them.
//
// It reads the Node, its Lease and the public keys live at each request, and keeps nothing: so it needs no memory for
// large clusters, and no cache of its is ever behind. It writes nothing. attest.NeedsProof and attest.FindOff decide.
//
// The webhook's configuration in deploy selects the requests. In an ordinary fence it is not asked about pods, because
// these are Failed by then. So a fence ends pods in the same time if the webhook is down.
package proofguard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/features/signing"
)

// Options is all that a guard is made of. Every field is required.
type Options struct {
	Live      client.Reader // reads from the API server, not from a cache
	Namespace string        // the controller's own: of the public keys
	MaxAge    time.Duration // of a device's answer or a confirmation
	Log       *slog.Logger
	Now       func() time.Time
	PathHash  []byte // SHA-256 of the only path that has reviews
}

// guard decides about requests.
type guard struct {
	Options
	bodies *semaphore.Weighted // bytes of the reviews that are being answered
}

// request is what the guard reads of an admission request. It reads the objects live: a forged object, such as a pod
// with a million empty containers, would take many times the memory of its bytes.
type request struct {
	UID                          types.UID
	Resource                     metav1.GroupVersionResource
	SubResource, Namespace, Name string
	UserInfo                     struct{ Username string }
	OldObject                    struct{ Metadata struct{ Name string } }
}

// decide returns why a request is refused; "": it is allowed. An error means that something could not be read. It
// blocks for the API server.
func (g guard) decide(ctx context.Context, r *request) (why string, _ error) {
	at := client.ObjectKey{Namespace: r.Namespace, Name: r.Name}
	switch r.Resource.Resource + "/" + r.SubResource {
	case "nodes/": // as it is: this write is not to be believed
		var node corev1.Node
		if err := g.Live.Get(ctx, at, &node); err != nil {
			return "", fmt.Errorf("reading the node: %w", err)
		}
		return g.requireOff(ctx, &node, "node.kubernetes.io/out-of-service would end its pods")
	case "pods/", "pods/eviction":
		var pod corev1.Pod
		if err := g.Live.Get(ctx, at, &pod); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		return g.decidePod(ctx, &pod)
	case "volumeattachments/":
		var a storagev1.VolumeAttachment
		if err := g.Live.Get(ctx, at, &a); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		return g.decideAttachment(ctx, &a)
	}
	return "", fmt.Errorf("%s %s is not this webhook's", r.Resource.Resource, r.SubResource)
}

// decidePod decides about a deletion without grace. The webhook's configuration leaves out pods that are no
// StatefulSet's, not bound, or over; an eviction does not show that, so it is looked at again.
func (g guard) decidePod(ctx context.Context, pod *corev1.Pod) (string, error) {
	if !isStateful(pod) || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed ||
		pod.Status.Phase == corev1.PodSucceeded {
		return "", nil
	}
	node, err := g.readNotReady(ctx, pod.Spec.NodeName)
	if err != nil || node == nil {
		return "", err
	}
	return g.requireOff(ctx, node, fmt.Sprintf("a second %s could start while this one runs", pod.Name))
}

// isStateful reports whether a pod is, or was made, a StatefulSet's. Its host name cannot be changed, and owners can.
func isStateful(pod *corev1.Pod) bool {
	isOwner := func(o metav1.OwnerReference) bool {
		return o.Kind == "StatefulSet" && strings.HasPrefix(o.APIVersion, "apps/")
	}
	return pod.Spec.Hostname == pod.Name || slices.ContainsFunc(pod.OwnerReferences, isOwner)
}

// decideAttachment decides about a detachment.
func (g guard) decideAttachment(ctx context.Context, a *storagev1.VolumeAttachment) (string, error) {
	node, err := g.readNotReady(ctx, a.Spec.NodeName)
	if err != nil || node == nil {
		return "", err
	}
	volume, err := g.volumeOf(ctx, a)
	if err != nil || !signing.NeedsProof(node, volume) {
		return "", err
	}
	return g.requireOff(ctx, node, "the node may still write to the volume")
}

// volumeOf returns the name of an attachment's volume in the Node's lists. Where the volume is not known it ends with
// ^, and means all volumes of the driver.
func (g guard) volumeOf(ctx context.Context, a *storagev1.VolumeAttachment) (string, error) {
	name := "kubernetes.io/csi/" + a.Spec.Attacher + "^"
	var csi *corev1.CSIPersistentVolumeSource
	switch source := a.Spec.Source; {
	case source.InlineVolumeSpec != nil:
		csi = source.InlineVolumeSpec.CSI
	case source.PersistentVolumeName != nil:
		var pv corev1.PersistentVolume
		err := g.Live.Get(ctx, client.ObjectKey{Name: *source.PersistentVolumeName}, &pv)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the volume: %w", err)
		}
		csi = pv.Spec.CSI
	}
	if csi != nil {
		name += csi.VolumeHandle
	}
	return name, nil
}

// readNotReady returns a Node, or nil if it is Ready or does not exist. A Node that is gone has no fence: the right to
// delete Nodes is the right to state that their machines are gone.
func (g guard) readNotReady(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	switch err := g.Live.Get(ctx, client.ObjectKey{Name: name}, &node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	if signing.IsReady(&node) {
		return nil, nil
	}
	return &node, nil
}

// requireOff returns why the node's machine may be on.
func (g guard) requireOff(ctx context.Context, node *corev1.Node, danger string) (string, error) {
	lease, cm := &coordinationv1.Lease{}, &corev1.ConfigMap{}
	err := g.Live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node.Name}, lease)
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err == nil {
		at := client.ObjectKey{Namespace: g.Namespace, Name: config.KeysConfigMap}
		err = client.IgnoreNotFound(g.Live.Get(ctx, at, cm))
	}
	if err != nil {
		return "", fmt.Errorf("reading what proves node %s off: %w", node.Name, err)
	}
	keys, err := signing.ParseKeys([]byte(cm.Data[config.KeysEntry]))
	if err != nil { // a person's confirmation needs none
		g.Log.Error("Public keys cannot be read", "configMap", config.KeysConfigMap, "error", err)
	}
	by, err := signing.FindOff(node, lease, keys, g.Now(), g.MaxAge)
	if err == nil {
		g.Log.Info("Allowed a request", "node", node.Name, "because", by)
		return "", nil
	}
	return fmt.Sprintf("node %s may still run: %s. %v", node.Name, danger, err), nil
}
