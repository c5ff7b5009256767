package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/forcefence/forcefence/taint"
)

// ReportProtection writes a node's protection as a condition on the Node and, if it changes, an Event. It uses the
// kubelet's own credential (client speaks core/v1), which may do so for its own Node. It may be repeated: it does not
// write a condition that is unchanged.
func ReportProtection(ctx context.Context, client rest.Interface, node string, p Protection) error {
	boot, _ := Host{}.bootID() // "": unknown
	want := conditionOf(p, boot, metav1.Now())
	var changed *corev1.Node
	err := patchStatus(ctx, client, node, func(n *corev1.Node) any {
		changed = nil
		if c := findCondition(n); c != nil && c.Status == want.Status {
			if c.Reason == want.Reason && c.Message == want.Message {
				return nil
			}
			want.LastTransitionTime = c.LastTransitionTime
			if c.Reason == want.Reason && strings.HasPrefix(c.Message, p.Sentence()+aboutBoot) {
				return want // the same on another boot
			}
		}
		changed = n
		return want
	})
	if err != nil {
		return fmt.Errorf("reporting the node's protection: %w", err)
	}
	if changed == nil {
		return nil
	}
	if err := client.Post().Resource("events").Namespace(metav1.NamespaceDefault).Body(newEvent(changed, want)).
		Do(ctx).Error(); err != nil {
		return fmt.Errorf("reporting the node's protection: creating Event: %w", err)
	}
	return nil
}

// removeReport removes the condition. A Node that is gone is no error.
func removeReport(ctx context.Context, client rest.Interface, node string) error {
	err := patchStatus(ctx, client, node, func(n *corev1.Node) any {
		if findCondition(n) == nil {
			return nil
		}
		return map[string]string{"type": string(taint.ProtectionCondition), "$patch": "delete"}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the node's condition %s: %w", taint.ProtectionCondition, err)
	}
	return nil
}

// patchStatus changes one condition of exactly the Node that was read. It tries again after a conflict, because the
// kubelet writes the same object. change returns nil if there is nothing to do.
func patchStatus(ctx context.Context, client rest.Interface, name string, change func(*corev1.Node) any) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := getNode(ctx, client, name)
		if err != nil {
			return err
		}
		c := change(n)
		if c == nil {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion},
			"status":   map[string]any{"conditions": []any{c}},
		})
		if err != nil {
			return err
		}
		return client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").
			Body(patch).Do(ctx).Error()
	})
}

// findCondition returns our condition of a Node, or nil.
func findCondition(n *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == taint.ProtectionCondition
	})
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

func conditionOf(p Protection, boot string, now metav1.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: taint.ProtectionCondition, Status: corev1.ConditionFalse, Reason: taint.ProtectionNone,
		Message:           p.Sentence() + aboutBoot + cmp.Or(boot, "unknown") + ".",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	switch p.Level {
	case FailClosed:
		c.Status, c.Reason = corev1.ConditionTrue, taint.ProtectionFailClosed
	case FailOpen:
		c.Status, c.Reason = corev1.ConditionTrue, taint.ProtectionFailOpen
	case NotAtBoot:
		c.Status, c.Reason = corev1.ConditionTrue, taint.ProtectionNotAtBoot
	}
	return c
}

// aboutBoot begins the part of the message that names the boot: the condition outlives it.
const aboutBoot = " Seen on boot "

func newEvent(n *corev1.Node, c corev1.NodeCondition) *corev1.Event {
	kind := corev1.EventTypeNormal
	if c.Reason != taint.ProtectionFailClosed {
		kind = corev1.EventTypeWarning
	}
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.guard.%x", n.Name, time.Now().UnixNano()),
			Namespace: metav1.NamespaceDefault,
		},
		// kubectl describe finds a Node's Events by its name as UID, as the kubelet writes them.
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.Name)},
		Reason:         string(taint.ProtectionCondition) + c.Reason, Message: c.Message, Type: kind,
		Source:         corev1.EventSource{Component: "forcefence-node", Host: n.Name},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
