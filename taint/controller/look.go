package controller

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
)

// readTimeout bounds one read of the API server, and one write to it.
const apiTimeout = 15 * time.Second

// look reads the Node and its Lease live. A Node that is not there is a Look that does not exist, without error.
func (r *Reconciler) look(ctx context.Context, name string) (*corev1.Node, taint.Look, error) {
	return Look(ctx, r.Live, name, r.Key, r.Now)
}

// Look reads a Node and its Lease from c, which must read from the API server and not from a cache.
func Look(ctx context.Context, c client.Reader, name, key string, now func() time.Time) (*corev1.Node, taint.Look, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	sent := now()
	// Both at once: a fence looks a dozen times. Which of the two is the older answer does not matter: a heartbeat that one of them
	// misses is one that came just after the look, which every act must allow for in any case.
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
	return node, taint.See(node, lease, key, sent, now()), nil
}

// pods lists live what is bound to the node, without their volumes.
func (t *turn) pods(ctx context.Context) ([]evict.Pod, []corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var list corev1.PodList
	if err := t.Live.List(ctx, &list, client.MatchingFields{"spec.nodeName": t.look.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing pods live: %w", err)
	}
	out := make([]evict.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = SeePod(&list.Items[i], t.Key, t.policy.EvictFirst)
	}
	return out, list.Items, nil
}

// resolvers is how many claims are read at the same time.
const resolvers = 16

// resolve finds the volumes of the unfinished pods: of the exempt ones, or of all. They matter only for pods that stay, and cost two
// reads each.
func (t *turn) resolve(ctx context.Context, pods []evict.Pod, objects []corev1.Pod, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(resolvers)
	for i := range pods {
		if p := &pods[i]; !p.Terminal && p.Volumes == nil && (all || p.Exempt != taint.NotExempt) {
			g.Go(func() (err error) {
				p.Volumes, err = t.volumes(ctx, &objects[i])
				return err
			})
		}
	}
	return g.Wait()
}

// SeePod reduces a pod to what evict.Step decides on, without its volumes.
func SeePod(p *corev1.Pod, key string, first labels.Selector) evict.Pod {
	out := evict.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
		Exempt: taint.Exempt(p, key), Terminal: taint.IsTerminal(p), Tombstone: taint.IsTombstone(p), Spared: taint.SparedBy(p), Message: p.Status.Message,
		First:       first != nil && !first.Empty() && first.Matches(labels.Set(p.Labels)),
		Deleting:    p.DeletionTimestamp != nil,
		Finalizers:  p.Finalizers,
		Tolerations: p.Spec.Tolerations,
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	if p.DeletionGracePeriodSeconds != nil {
		out.Grace = *p.DeletionGracePeriodSeconds
	}
	return out
}

// volumes resolves a pod's claims. A claim or volume that is not there is passed over: nothing can be attached for it.
func (t *turn) volumes(ctx context.Context, p *corev1.Pod) ([]evict.Volume, error) {
	var out []evict.Volume
	for _, v := range p.Spec.Volumes {
		var claim string
		switch {
		case v.PersistentVolumeClaim != nil:
			claim = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			claim = p.Name + "-" + v.Name
		default:
			continue
		}
		var pvc corev1.PersistentVolumeClaim
		if err := t.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: claim}, &pvc); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading claim %s/%s: %w", p.Namespace, claim, err)
		} else if err != nil || pvc.Spec.VolumeName == "" {
			continue
		}
		vol := evict.Volume{PV: pvc.Spec.VolumeName}
		var pv corev1.PersistentVolume
		if err := t.Live.Get(ctx, client.ObjectKey{Name: vol.PV}, &pv); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading volume %s: %w", vol.PV, err)
		} else if err == nil && pv.Spec.CSI != nil {
			// The name that the kubelet and the attach/detach controller give a CSI volume in the node's lists.
			vol.Unique = corev1.UniqueVolumeName("kubernetes.io/csi/" + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle)
		}
		out = append(out, vol)
	}
	return out, nil
}

// attachments returns the VolumeAttachments that name the node, from c. A list from the API server is one of all nodes: it is
// asked for once, before the mark goes; until then the cache serves.
func attachments(ctx context.Context, c client.Reader, node string, opts ...client.ListOption) ([]evict.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var list storagev1.VolumeAttachmentList
	if err := c.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("listing volume attachments: %w", err)
	}
	var out []evict.Attachment
	for i := range list.Items {
		va := &list.Items[i]
		if va.Spec.NodeName != node {
			continue
		}
		a := evict.Attachment{Name: va.Name, Deleting: va.DeletionTimestamp != nil}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			a.PV = *pv
		}
		out = append(out, a)
	}
	return out, nil
}

func (t *turn) cachedAttachments(ctx context.Context) ([]evict.Attachment, error) {
	return attachments(ctx, t.Cache, t.look.Name, client.MatchingFields{NodeNameIndex: t.look.Name})
}
