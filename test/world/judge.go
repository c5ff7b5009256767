package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Attachment is a VolumeAttachment, and the pod whose claim its volume belongs to.
type Attachment struct {
	UID               types.UID
	Node, Volume, Pod string // Pod is "" where a volume has no claim
	Deleting          bool
}

// Attachments are all that there are, by a live list.
func (w *World) Attachments(ctx context.Context) ([]Attachment, error) {
	list, err := w.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volume attachments: %w", err)
	}
	volumes, err := w.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	pods := map[string]string{}
	for _, v := range volumes.Items {
		if ref := v.Spec.ClaimRef; ref != nil {
			pods[v.Name] = strings.TrimPrefix(ref.Name, "data-") // a StatefulSet names a claim by template and pod
		}
	}
	var out []Attachment
	for _, va := range list.Items {
		a := Attachment{UID: va.UID, Node: va.Spec.NodeName, Deleting: va.DeletionTimestamp != nil}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			a.Volume, a.Pod = *pv, pods[*pv]
		}
		out = append(out, a)
	}
	return out, nil
}

// Discrepancy compares what really runs on the machines with what the API server says of a namespace, and returns the
// first difference. It is "" if every pod is Ready and runs exactly once, where it should, and each app has as many as
// it is to have.
func (w *World) Discrepancy(namespace string, apps map[string]int) string {
	runs := map[types.UID][]string{}
	for _, r := range w.Ledger().Running() {
		if r.Namespace == namespace {
			runs[r.UID] = append(runs[r.UID], r.Node)
		}
	}
	return compare(w.Pods(namespace), w.ReadyPods(namespace), runs, apps)
}

// compare is Discrepancy's rule: pods are the API server's, ready those of them that are Ready and stay, runs the nodes
// that each UID runs on.
func compare(pods, ready []*corev1.Pod, runs map[types.UID][]string, apps map[string]int) string {
	stays := map[types.UID]bool{}
	for _, p := range ready {
		stays[p.UID] = true
	}
	counts := map[string]int{}
	known := map[types.UID]bool{}
	for _, p := range pods {
		known[p.UID] = true
		on := runs[p.UID]
		switch {
		case !stays[p.UID]:
			return fmt.Sprintf("pod %s on %s is not Ready, or is going", p.Name, p.Spec.NodeName)
		case len(on) != 1:
			return fmt.Sprintf("pod %s runs on %d machines %v", p.Name, len(on), on)
		case on[0] != p.Spec.NodeName:
			return fmt.Sprintf("pod %s runs on %s, the API server says %s", p.Name, on[0], p.Spec.NodeName)
		}
		counts[p.Labels["app"]]++
	}
	for uid, on := range runs {
		if !known[uid] {
			return fmt.Sprintf("a pod that the API server does not know runs on %v (UID %s)", on, uid)
		}
	}
	for _, app := range slices.Sorted(maps.Keys(apps)) {
		if counts[app] != apps[app] {
			return fmt.Sprintf("%s has %d pods, want %d", app, counts[app], apps[app])
		}
	}
	return ""
}
