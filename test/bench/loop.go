package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
)

const (
	loopWorkers = 64        // pod writes that the bare loop has under way
	loopFence   = "f-floor" // the id of a fence that there is none of
)

// loop is the floor: the writes of an eviction and nothing else. It asks no machine, writes no record, reads nothing
// twice unless a write conflicts, and is sent by hand at a node that is dead. Its requests are forcefence's own, in the
// same order: tombstones with UID and resourceVersion, the two volume lists emptied, deletions with grace 0 and both
// preconditions; no client-side limit, protobuf answers, one connection of its own.
type loop struct{ client kubernetes.Interface }

// evict clears one node.
func (l loop) evict(ctx context.Context, node string) error {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return fmt.Errorf("listing pods of %s: %w", node, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; taint.ExemptionOf(p, taint.DefaultKey) == taint.NotExempt {
			pods = append(pods, p)
		}
	}
	err = l.forEach(ctx, pods, func(ctx context.Context, p *corev1.Pod) error {
		if err := l.tombstone(ctx, p); err != nil || hasClaim(p) {
			return err
		}
		return l.delete(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("ending pods of %s: %w", node, err)
	}
	err = l.patchNode(ctx, node, func(*corev1.Node) object {
		return object{"status": object{"volumesInUse": nil, "volumesAttached": nil}}
	}, "status")
	if err != nil {
		return fmt.Errorf("clearing volume lists of %s: %w", node, err)
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !hasClaim(p) }) // these are gone
	if err := l.forEach(ctx, pods, l.delete); err != nil {
		return fmt.Errorf("deleting pods of %s: %w", node, err)
	}
	return nil
}

// hasClaim reports whether volume lists are to be cleared before the pod is deleted.
func hasClaim(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// forEach returns the first error after all have ended. It repeats a write that met another's. A pod that is gone, or
// has another under its name, is done.
func (l loop) forEach(ctx context.Context, pods []*corev1.Pod, write func(context.Context, *corev1.Pod) error) error {
	var g errgroup.Group
	g.SetLimit(loopWorkers)
	for _, p := range pods {
		g.Go(func() error {
			for {
				err := write(ctx, p)
				if !apierrors.IsConflict(err) {
					return client.IgnoreNotFound(err)
				}
				now, err := l.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
				if err != nil || now.UID != p.UID {
					return client.IgnoreNotFound(err)
				}
				p.ResourceVersion = now.ResourceVersion
			}
		})
	}
	return g.Wait()
}

// object is a JSON object under construction.
type object = map[string]any

// tombstone sends the body that taint/controller's writer sends.
func (l loop) tombstone(ctx context.Context, p *corev1.Pod) error {
	message, now := taint.FenceMessage(loopFence), metav1.Now()
	conditions := []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Reason: taint.TombstoneReason, Message: message,
	}}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) {
			conditions = append(conditions, corev1.PodCondition{
				Type: c.Type, Status: corev1.ConditionFalse, LastTransitionTime: now, Reason: "PodFailed",
			})
		}
	}
	body, err := json.Marshal(object{
		"metadata": object{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"status": object{
			"phase": corev1.PodFailed, "reason": taint.TombstoneReason, "message": message, "conditions": conditions,
		},
	})
	if err != nil {
		return err
	}
	ended, err := l.client.CoreV1().Pods(p.Namespace).
		Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err == nil {
		p.ResourceVersion = ended.ResourceVersion
	}
	return err
}

func (l loop) delete(ctx context.Context, p *corev1.Pod) error {
	grace := int64(0)
	return l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace,
		Preconditions:      &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion},
	})
}

// patchNode merges what change returns into the Node, until no other write comes between.
func (l loop) patchNode(ctx context.Context, name string, change func(*corev1.Node) object, sub ...string) error {
	for {
		node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		body := change(node)
		body["metadata"] = object{"resourceVersion": node.ResourceVersion, "uid": node.UID}
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = l.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, b, metav1.PatchOptions{}, sub...)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}
