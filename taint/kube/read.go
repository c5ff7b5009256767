// Package kube holds what the protocol reads from the API server and writes to it: live looks, lists, and the writes
// with their preconditions, Events included. It decides nothing.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	csitranslation "k8s.io/csi-translation-lib"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// Timeout bounds one read of the API server, and one write to it.
const Timeout = 15 * time.Second

// ReadNode reads a Node and its Lease from c, which must read from the API server and not from a cache. If the Node
// does not exist, it returns a Look that does not exist, without error. It blocks for at most Timeout.
func ReadNode(
	ctx context.Context, c client.Reader, name, key string, now func() time.Time,
) (*corev1.Node, taint.Look, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	sent := now()
	// Both at once: a fence reads them a dozen times. Which of the two answers is older does not matter: a heartbeat
	// that one of them misses came just after the look, and every action must allow for that in any case.
	node, lease := &corev1.Node{}, &coordinationv1.Lease{}
	var g errgroup.Group
	g.Go(func() error {
		err := c.Get(ctx, client.ObjectKey{Name: name}, node)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading node live: %w", err)
		case err != nil:
			node = nil
		}
		return nil
	})
	g.Go(func() error {
		err := c.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, lease)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading lease live: %w", err)
		case err != nil:
			lease = nil
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, taint.Look{}, err
	}
	return node, taint.NewLook(node, lease, key, providers.InstantOf(sent), providers.InstantOf(now())), nil
}

// ListPods lists the pods that are bound to the node.
func ListPods(ctx context.Context, c client.Reader, node string) (all []corev1.Pod, err error) {
	if err := EachPods(ctx, c, node, func(page []corev1.Pod) { all = append(all, page...) }); err != nil {
		return nil, err
	}
	return all, nil
}

// EachPods calls visit with the pods that are bound to the node: with all of them, or with page after page where they
// are too large to be read at once. Each page takes at most Timeout. If it fails, visit may have seen some of them.
func EachPods(ctx context.Context, c client.Reader, node string, visit func([]corev1.Pod)) error {
	of := pages{Reader: c, keeps: true, options: []client.ListOption{client.MatchingFields{"spec.nodeName": node}}}
	return eachPage(ctx, of, "pods live", func(l *corev1.PodList) { visit(l.Items) })
}

// ListEtcdMembers returns the nodes to which kubeadm's or RKE2's static etcd pods are bound, and whether each pod is
// Ready. This identifies etcd's members without an etcd credential. A kubelet can write any pod for its node, so a pod
// counts only on a control-plane node.
func ListEtcdMembers(ctx context.Context, c client.Reader) (map[string]bool, error) {
	ready := map[string]bool{}
	of := pages{Reader: c, options: []client.ListOption{client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"component": "etcd", "tier": "control-plane"}}}
	if err := eachPage(ctx, of, "etcd's pods live", func(l *corev1.PodList) {
		for i := range l.Items {
			p := &l.Items[i]
			if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; !static || p.Spec.NodeName == "" {
				continue
			}
			ready[p.Spec.NodeName] = isTrue(p, corev1.PodReady)
		}
	}); err != nil {
		return nil, err
	}
	return ready, nil
}

// SeePods is SeePod for each pod of a list.
func SeePods(list []corev1.Pod, key string, first labels.Selector) []action.Pod {
	out := make([]action.Pod, len(list))
	for i := range list {
		out[i] = SeePod(&list[i], key, first)
	}
	return out
}

const (
	resolvers = 16 // claims that are read at the same time
	// maxClaims is how many claims of a namespace one call reads. Users of a namespace can bind any number of pods to a
	// node, with a hundred claims each, and a look has Timeout for all.
	maxClaims = 2048
	maxOwners = 256             // the same of ReplicaSets that own pods
	pendTime  = 5 * time.Second // of the list of a namespace's Pending pods
)

// ReadVolumes returns the volumes that the pods' claims lead to, by the pods' UIDs. Each claim costs two reads. If the
// API server refuses to return a claim or volume, the result has it as Unread, so that it does not hide the others. Of
// a namespace with more than maxClaims claims, those of the last pods are Unread. unread says why; it is nil if all
// were read. err means that the API server did not answer, or was overloaded; then nothing is known.
func ReadVolumes(
	ctx context.Context, c client.Reader, pods []corev1.Pod,
) (of map[string][]action.Volume, unread, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(resolvers)
	found, refused := make([][]action.Volume, len(pods)), make([]error, len(pods))
	claims := map[string]int{} // by namespace
	for i := range pods {
		mine, _ := taint.VolumeClaims(&pods[i])
		ns := pods[i].Namespace
		if n := claims[ns]; n+len(mine) > maxClaims {
			found[i] = []action.Volume{{Claim: action.UnreadClaim, Unread: true}}
			if n <= maxClaims {
				refused[i] = fmt.Errorf("pods of namespace %s have more than %d claims", ns, maxClaims)
			}
			claims[ns] = maxClaims + 1
			continue
		}
		claims[ns] += len(mine)
		g.Go(func() (err error) {
			found[i], refused[i], err = readPodVolumes(ctx, c, &pods[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	of = map[string][]action.Volume{}
	for i := range pods {
		of[string(pods[i].UID)] = found[i]
	}
	return of, errors.Join(refused...), nil
}

// IsRefusal reports whether err is the API server's refusal of this one request, while it answers, and has room for,
// other requests.
func IsRefusal(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsNotFound(err) && !IsCrowded(err)
}

// ReadOwners returns what controls the pods, by their UIDs: for a pod of a ReplicaSet that a Deployment controls, the
// Deployment. Each ReplicaSet costs one read. A ReplicaSet that no longer exists still counts as the pod's owner, and
// so do those of a namespace beyond maxOwners.
func ReadOwners(ctx context.Context, c client.Reader, pods []action.Pod) (map[string]action.Owner, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	out, sets, reads := map[string]action.Owner{}, map[client.ObjectKey]action.Owner{}, map[string]int{}
	for _, p := range pods {
		key := client.ObjectKey{Namespace: p.Namespace, Name: p.Owner.Name}
		owner, known := sets[key]
		if !known {
			owner = action.Owner{Kind: p.Owner.Kind, Name: p.Owner.Name, Known: true}
		}
		if reads[p.Namespace] < maxOwners && !known {
			reads[p.Namespace]++
			set := &metav1.PartialObjectMetadata{}
			set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
			if err := c.Get(ctx, key, set); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading replica set %s: %w", key, err)
			} else if ref := metav1.GetControllerOfNoCopy(set); err == nil && ref != nil {
				owner.Kind, owner.Name = ref.Kind, ref.Name
			}
			sets[key] = owner
		}
		out[p.UID] = owner
	}
	return out, nil
}

// ListAwaitedClaims returns the claims, as namespace/name, that pods of ReplicaSets wait for on other nodes. It reads
// the Pending pods in the namespaces that are not bound to the node and not being deleted. Each namespace costs one
// list. Of several namespaces, the claims of one whose list takes longer than pendTime are unknown. It is an error if
// none was listed.
func ListAwaitedClaims(
	ctx context.Context, c client.Reader, node string, namespaces []string,
) (map[string]bool, error) {
	out, late := map[string]bool{}, []error(nil)
	for _, ns := range namespaces {
		of := pages{Reader: c, options: []client.ListOption{client.InNamespace(ns),
			client.MatchingFields{"status.phase": string(corev1.PodPending)}}}
		within, cancel := ctx, context.CancelFunc(func() {})
		if len(namespaces) > 1 {
			within, cancel = context.WithTimeout(ctx, pendTime)
		}
		err := eachPage(within, of, "pending pods of "+ns, func(l *corev1.PodList) {
			for i := range l.Items {
				p := &l.Items[i]
				ref := metav1.GetControllerOfNoCopy(p)
				if ref == nil || ref.Kind != "ReplicaSet" || p.DeletionTimestamp != nil || p.Spec.NodeName == node {
					continue
				}
				for _, v := range p.Spec.Volumes {
					if name, ok := taint.VolumeClaim(p, v); ok {
						out[ns+"/"+name] = true
					}
				}
			}
		})
		tooLate := within.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err != nil && tooLate:
			late = append(late, err)
		case err != nil:
			return nil, err
		}
	}
	if len(late) > 0 && len(late) == len(namespaces) {
		return nil, errors.Join(late...)
	}
	return out, nil
}

// SeePod reduces a pod to the fields that evict.Step reads, without its volumes. first selects the pods to end first;
// nil, or an empty selector, selects none.
func SeePod(p *corev1.Pod, key string, first labels.Selector) action.Pod {
	out := action.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
		Exempt: taint.ExemptionOf(p, key), Terminal: taint.IsTerminal(p), Tombstone: taint.IsTombstone(p),
		Spared: taint.SparedBy(p), Message: p.Status.Message,
		First:       first != nil && !first.Empty() && first.Matches(labels.Set(p.Labels)),
		Deleting:    p.DeletionTimestamp != nil,
		Finalizers:  p.Finalizers,
		Labels:      p.Labels,
		Tolerations: p.Spec.Tolerations,
		Ready:       isTrue(p, corev1.PodReady), ContainersReady: isTrue(p, corev1.ContainersReady),
		OtherVolume: taint.OtherVolume(p),
	}
	for _, v := range p.Spec.Volumes {
		if claim, ok := taint.VolumeClaim(p, v); ok {
			out.ClaimNames, out.Claims = append(out.ClaimNames, claim), true
		}
		out.InlineVolume = out.InlineVolume || csitranslation.New().IsInlineMigratable(&v)
	}
	if out.Cut = taint.CutParts(p); out.Cut != "" {
		seeCut(&out, p)
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		out.Owner = action.Owner{Kind: ref.Kind, Name: ref.Name}
	}
	if p.DeletionTimestamp != nil {
		out.DeleteAt = p.DeletionTimestamp.Time
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if p.DeletionGracePeriodSeconds != nil {
		out.Grace = *p.DeletionGracePeriodSeconds
	}
	return out
}

// seeCut says of a pod with parts that were too large what is the safe side: it may have any volume, and any finalizer
// beside those that were kept.
func seeCut(out *action.Pod, p *corev1.Pod) {
	if taint.IsCut(p, "spec.volumes") {
		out.Claims, out.OtherVolume, out.InlineVolume = true, cmp.Or(out.OtherVolume, action.UnreadClaim), true
	}
	if taint.IsCut(p, "metadata.finalizers") && len(out.Finalizers) == 0 {
		out.Finalizers = []string{action.UnreadClaim}
	}
}

// isTrue reports whether a condition of the pod is True.
func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}

// readPodVolumes resolves a pod's claims. It skips a claim or volume that does not exist: nothing can be attached for
// it. It also skips a claim that names another claim's volume, which any user who creates claims can write: kubelets
// and the attach/detach controller refuse it.
func readPodVolumes(ctx context.Context, c client.Reader, p *corev1.Pod) (out []action.Volume, unread, err error) {
	if taint.IsCut(p, "spec.volumes") { // volumes that were not kept may be any of its namespace
		out = append(out, action.Volume{Claim: action.UnreadClaim, Unread: true})
	}
	for _, v := range p.Spec.Volumes {
		claim, ok := taint.VolumeClaim(p, v)
		if !ok {
			continue
		}
		var pvc corev1.PersistentVolumeClaim
		err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: claim}, &pvc)
		switch {
		case IsRefusal(err):
			unread = errors.Join(unread, fmt.Errorf("reading claim %s/%s: %w", p.Namespace, claim, err))
			out = append(out, action.Volume{Claim: claim, Unread: true})
			continue
		case client.IgnoreNotFound(err) != nil:
			return nil, nil, fmt.Errorf("reading claim %s/%s: %w", p.Namespace, claim, err)
		case pvc.Spec.VolumeName == "": // it is not bound, or not there
			continue
		}
		vol := action.Volume{PV: pvc.Spec.VolumeName, Claim: claim}
		var pv corev1.PersistentVolume
		if err := c.Get(ctx, client.ObjectKey{Name: vol.PV}, &pv); IsRefusal(err) {
			unread = errors.Join(unread, fmt.Errorf("reading volume %s: %w", vol.PV, err))
			vol.Unread = true
		} else if client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading volume %s: %w", vol.PV, err)
		} else if err == nil && taint.CutParts(&pv) != "" {
			vol.Unread = true
		} else if of := pv.Spec.ClaimRef; of != nil && (of.Namespace != pvc.Namespace || of.Name != pvc.Name) {
			continue
		} else if vol.OneNode = isForOneNode(pv.Spec.AccessModes); err == nil && pv.Spec.CSI != nil {
			vol.Driver, vol.Handle = pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
			vol.Unique = uniqueName(pv.Spec.CSI)
		} else if err == nil {
			var known bool
			vol.Migrated, known = migratedName(&pv)
			vol.Unread = !known
		}
		out = append(out, vol)
	}
	return out, unread, nil
}

// isForOneNode reports whether the attach/detach controller refuses a second node a volume of these access modes, as
// its isMultiAttachForbidden does.
func isForOneNode(modes []corev1.PersistentVolumeAccessMode) bool {
	return len(modes) > 0 && !slices.Contains(modes, corev1.ReadWriteMany) &&
		!slices.Contains(modes, corev1.ReadOnlyMany)
}

// uniqueName returns the name that the kubelet and the attach/detach controller give a CSI volume in the node's lists.
func uniqueName(v *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + v.Driver + "^" + v.VolumeHandle)
}

// migratedName returns the name that they give an in-tree volume that a CSI driver serves; "" for any other volume.
// They translate the PersistentVolume by this same library. known is false if it cannot be translated.
func migratedName(pv *corev1.PersistentVolume) (name corev1.UniqueVolumeName, known bool) {
	translator := csitranslation.New()
	if !translator.IsPVMigratable(pv) {
		return "", true
	}
	translated, err := translator.TranslateInTreePVToCSI(logr.Discard(), pv)
	if err != nil || translated.Spec.CSI == nil {
		return "", false
	}
	return uniqueName(translated.Spec.CSI), true
}

// ReadClaims returns the claim, as namespace/name, that each volume is bound to. It is "" for a volume that is unbound,
// was released, or does not exist. It is action.UnreadClaim if the API server refuses the read. Each volume costs two
// reads.
func ReadClaims(ctx context.Context, c client.Reader, pvs []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(resolvers)
	found := make([]string, len(pvs))
	for i, name := range pvs {
		g.Go(func() error {
			var pv corev1.PersistentVolume
			switch err := c.Get(ctx, client.ObjectKey{Name: name}, &pv); {
			case IsRefusal(err):
				found[i] = action.UnreadClaim
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("reading volume %s: %w", name, err)
			case taint.CutParts(&pv) != "":
				found[i] = action.UnreadClaim
			case pv.Spec.ClaimRef != nil:
				found[i], err = readBoundClaim(ctx, c, &pv)
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(pvs))
	for i, name := range pvs {
		out[name] = found[i]
	}
	return out, nil
}

// readBoundClaim returns the claim that the volume names, as namespace/name; "" if the claim of that name has another
// volume. A StatefulSet's claim that was made again does. Then no pod can use the former volume.
func readBoundClaim(ctx context.Context, c client.Reader, pv *corev1.PersistentVolume) (string, error) {
	of := pv.Spec.ClaimRef
	var pvc corev1.PersistentVolumeClaim
	err := c.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: of.Name}, &pvc)
	switch {
	case err != nil && !IsRefusal(err) && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("reading claim %s/%s: %w", of.Namespace, of.Name, err)
	case err == nil && of.UID != "" && of.UID != pvc.UID,
		err == nil && pvc.Spec.VolumeName != "" && pvc.Spec.VolumeName != pv.Name:
		return "", nil
	}
	return of.Namespace + "/" + of.Name, nil
}

// ListAttachments returns the VolumeAttachments from c, by the nodes that they name. A list from the API server covers
// all nodes, so it is requested only when a decision depends on something that the cache cannot settle.
func ListAttachments(
	ctx context.Context, c client.Reader, opts ...client.ListOption,
) (map[string][]action.Attachment, error) {
	out := map[string][]action.Attachment{}
	of := pages{Reader: c, options: opts}
	if err := eachPage(ctx, of, "volume attachments", func(l *storagev1.VolumeAttachmentList) {
		for node, list := range SeeAttachments(l.Items) {
			out[node] = append(out[node], list...)
		}
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// SeeAttachments reduces attachments to the fields that decisions read, by the nodes that they name.
func SeeAttachments(list []storagev1.VolumeAttachment) map[string][]action.Attachment {
	out := map[string][]action.Attachment{}
	for i := range list {
		va := &list[i]
		a := action.Attachment{
			Name: va.Name, UID: string(va.UID), ResourceVersion: va.ResourceVersion,
			Attacher: va.Spec.Attacher, Deleting: va.DeletionTimestamp != nil,
			NeverAttached: !va.Status.Attached && len(va.Finalizers) == 0,
		}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			a.PV = *pv
		}
		out[va.Spec.NodeName] = append(out[va.Spec.NodeName], a)
	}
	return out
}
