package main

import (
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ownKeys matches the keys of annotations and labels, and the types of conditions, that the controller writes on Nodes.
var ownKeys = regexp.MustCompile(`^(.*\.)?forcefence\.(io|node-restriction\.kubernetes\.io)/`)

// nodeExcerpt returns the fields of a Node that matter for fencing.
func nodeExcerpt(n *corev1.Node) map[string]any {
	notes := maps.Clone(n.Annotations)
	maps.DeleteFunc(notes, func(key, _ string) bool {
		return !ownKeys.MatchString(key) && !strings.HasPrefix(key, "cluster.x-k8s.io/")
	})
	return map[string]any{
		"name":        n.Name,
		"uid":         n.UID,
		"created":     n.CreationTimestamp,
		"labels":      n.Labels,
		"annotations": notes,
		"spec": map[string]any{
			"taints": n.Spec.Taints, "unschedulable": n.Spec.Unschedulable, "providerID": n.Spec.ProviderID,
		},
		"status": map[string]any{
			"conditions":      n.Status.Conditions,
			"nodeInfo":        n.Status.NodeInfo,
			"volumesInUse":    n.Status.VolumesInUse,
			"volumesAttached": n.Status.VolumesAttached,
		},
	}
}
