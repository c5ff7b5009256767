package app

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/view"
)

// longestLease is the longest leaseDuration that the configuration allows. A Lease that claims more counts for this
// long.
const longestLease = time.Hour

// ReadLeader returns the leader's Lease as it is at now; the zero value if there is none. It returns nil with an error.
func ReadLeader(ctx context.Context, c client.Reader, now time.Time) (*view.Leader, error) {
	var l coordinationv1.Lease
	at := client.ObjectKey{Namespace: config.LeaseNamespace, Name: config.LeaseName}
	switch err := c.Get(ctx, at, &l); {
	case apierrors.IsNotFound(err):
		return &view.Leader{}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the leader's Lease %s: %w", at, err)
	}
	out := &view.Leader{
		Lease: at.String(), Namespace: l.Annotations[NamespaceAnnotation],
		ConfigRejected: l.Annotations[ConfigRejectedAnnotation], ConfigDigest: l.Annotations[ConfigDigestAnnotation],
		Room: roomOrNone(parseRoom(l.Annotations[RoomAnnotation])),
	}
	if since, err := time.Parse(time.RFC3339, l.Annotations[ConfigSinceAnnotation]); err == nil {
		out.ConfigSince = &since
	}
	if since, err := time.Parse(time.RFC3339, l.Annotations[DrilledSinceAnnotation]); err == nil {
		out.DrilledSince = &since
	}
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder != "" && l.Spec.RenewTime != nil {
		out.Holder, out.Renewed = holder, new(l.Spec.RenewTime.UTC())
		out.HeldBack = view.ParseHeldBack(l.Annotations[HeldBackAnnotation], holder)
		lasts := min(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second, longestLease)
		age := now.Sub(*out.Renewed)
		if lasts > 0 {
			out.Until = new(out.Renewed.Add(lasts))
		}
		out.Leads = age < max(time.Minute, lasts) // this machine's clock may differ from the controller's
		out.Late = out.Leads && lasts > 0 && age > lasts
	}
	return out, nil
}

// PauseKey returns the key of the ConfigMap that pauses all nodes.
func PauseKey(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: config.PauseConfigMap}
}

// ReadPause adds to a cluster what pauses all nodes at now, for people. namespace is the controller's.
func ReadPause(ctx context.Context, c client.Reader, to *view.Cluster, namespace string, now time.Time) error {
	at := PauseKey(namespace)
	var cm corev1.ConfigMap
	switch err := c.Get(ctx, at, &cm); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	written := cm.CreationTimestamp.Time
	for _, f := range cm.ManagedFields {
		if f.Time != nil && f.Time.After(written) {
			written = f.Time.Time
		}
	}
	p := fence.PauseOf(cm.Data)
	text := fmt.Sprintf("ConfigMap %s: %s", at, p)
	switch {
	case !p.IsOver(now):
		to.Paused = text
	case !written.IsZero() && p.IsOver(written): // a pause that has ended since is no news
		to.NeverPaused = text
	}
	return nil
}

// readCluster returns what the status page shows of the whole cluster. Without leader election this process leads.
func (p *process) readCluster(ctx context.Context) (view.Cluster, error) {
	now := time.Now()
	var out view.Cluster
	if err := ReadPause(ctx, p.mgr.GetAPIReader(), &out, p.Namespace, now); err != nil {
		return view.Cluster{}, err
	}
	out.Waiting = p.countWaiting(ctx, now)
	if !p.cfg.LeaderElection.Enabled {
		self := &view.Leader{
			Holder: p.Identity, Leads: true, ConfigRejected: p.confs.rejectedReason(),
			ConfigDigest: p.confs.activeFile().Digest(), ConfigSince: new(p.confs.inForceSince()),
			Room: roomOrNone(p.room.last.Load()), HeldBack: p.heldBack(),
		}
		if at := p.drilledSince(); !at.IsZero() {
			self.DrilledSince = &at
		}
		out.Controller = self
		return out, nil
	}
	var err error
	out.Controller, err = ReadLeader(ctx, p.mgr.GetAPIReader(), now)
	return out, err
}

// countWaiting returns how many pods wait for a node; 0 if no fence of the last hour freed pods, or if it is unknown.
func (p *process) countWaiting(ctx context.Context, now time.Time) int {
	nodes, err := kube.CachedNodes(ctx, p.mgr.GetCache())
	if err != nil {
		return 0
	}
	var all []view.Node
	for _, n := range nodes {
		all = append(all, view.NodeOf(view.NodeFacts{Node: n, Key: p.cfg.TaintKey, Now: now}))
	}
	if len(view.FreedLately(all, now)) == 0 {
		return 0
	}
	return p.waiting.count(ctx, p.mgr.GetAPIReader(), now)
}
