package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
)

// loopWorkers is how many pod writes the bare loop has under way, over all nodes.
const loopWorkers = 64

// loop is the floor: the writes of an eviction and nothing else. It asks no machine, writes no record, looks at nothing
// twice but what a conflict makes it, and is sent by hand at a node that is dead. Its requests are forcefence's own:
// tombstones with UID and resourceVersion, the two volume lists emptied, deletions with grace 0 and both preconditions;
// no client-side limit, protobuf answers, one connection of its own.
type loop struct {
	client  kubernetes.Interface
	workers chan struct{}
	id      string // of a fence that there is none of

	// mark sets a NoSchedule mark first, and lists again until no pod is left: a loop that lists once strands the
	// replacements that the scheduler, which does not know yet, binds to the dead node.
	mark bool
}

func newLoop(client kubernetes.Interface, mark bool) *loop {
	return &loop{client: client, workers: make(chan struct{}, loopWorkers), id: "f-floor", mark: mark}
}

// evict clears one node.
func (l *loop) evict(ctx context.Context, node string) error {
	if l.mark {
		err := l.patchNode(ctx, node, func(n *corev1.Node) object {
			return object{
				"spec": object{"taints": taint.WithMark(n.Spec.Taints, taint.DefaultKey, l.id, metav1.Now().Time)}}
		})
		if err != nil {
			return fmt.Errorf("marking %s: %w", node, err)
		}
	}
	for {
		pods, err := l.list(ctx, node)
		if err != nil || len(pods) == 0 {
			return err
		}
		if err := l.forEach(pods, func(p *corev1.Pod) error { return l.tombstone(ctx, p) }); err != nil {
			return fmt.Errorf("ending pods of %s: %w", node, err)
		}
		err = l.patchNode(ctx, node, func(*corev1.Node) object {
			return object{"status": object{"volumesInUse": nil, "volumesAttached": nil}}
		}, "status")
		if err != nil {
			return fmt.Errorf("clearing volume lists of %s: %w", node, err)
		}
		if err := l.forEach(pods, func(p *corev1.Pod) error { return l.delete(ctx, p) }); err != nil {
			return fmt.Errorf("deleting pods of %s: %w", node, err)
		}
		if !l.mark {
			return nil
		}
	}
}

// unmark takes the mark off again.
func (l *loop) unmark(ctx context.Context, node string) error {
	return l.patchNode(ctx, node, func(n *corev1.Node) object {
		return object{"spec": object{"taints": taint.WithoutMark(n.Spec.Taints, taint.DefaultKey, l.id)}}
	})
}

func (l *loop) list(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", node, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; taint.ExemptionOf(p, taint.DefaultKey) == taint.NotExempt {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// forEach returns the first error after all have ended. write may change the pod.
func (l *loop) forEach(pods []*corev1.Pod, write func(*corev1.Pod) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(pods))
	for _, p := range pods {
		l.workers <- struct{}{}
		wg.Go(func() {
			defer func() { <-l.workers }()
			errs <- write(p)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// object is a JSON object under construction.
type object = map[string]any

// tombstone is the body that taint/controller's writer sends.
func (l *loop) tombstone(ctx context.Context, p *corev1.Pod) error {
	message, now := taint.FenceMessage(l.id), metav1.Now()
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
	return l.again(ctx, p, func() error {
		body, err := json.Marshal(object{
			"metadata": object{"uid": p.UID, "resourceVersion": p.ResourceVersion},
			"status": object{
				"phase": corev1.PodFailed, "reason": taint.TombstoneReason, "message": message,
				"conditions": conditions,
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
	})
}

func (l *loop) delete(ctx context.Context, p *corev1.Pod) error {
	grace := int64(0)
	return l.again(ctx, p, func() error {
		return l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace,
			Preconditions:      &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion},
		})
	})
}

// again repeats a write that met another's. A pod that is gone, or has another under its name, is done.
func (l *loop) again(ctx context.Context, p *corev1.Pod, write func() error) error {
	for {
		err := write()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		now, err := l.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.UID != p.UID:
			return nil
		case err != nil:
			return err
		}
		p.ResourceVersion = now.ResourceVersion
	}
}

func (l *loop) patchNode(ctx context.Context, name string, change func(*corev1.Node) object, sub ...string) error {
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
