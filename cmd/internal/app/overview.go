package app

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/view"
)

// ListLeaders returns the Leases of all controllers, as they are at now. Without an error it never returns nil.
func ListLeaders(
	ctx context.Context,
	c client.Reader,
	now time.Time,
	opts ...client.ListOption,
) ([]view.Leader, error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, append(opts, client.HasLabels{LeaderLabel})...); err != nil {
		return nil, fmt.Errorf("looking for the leader's Lease: %w", err)
	}
	out := []view.Leader{}
	for i := range list.Items {
		l := &list.Items[i]
		one := view.Leader{
			Namespace: l.Namespace, Lease: l.Name, ConfigRejected: l.Annotations[ConfigRejectedAnnotation],
			ConfigDigest: l.Annotations[ConfigDigestAnnotation], Room: parseRoom(l.Annotations[RoomAnnotation]),
		}
		if since, err := time.Parse(time.RFC3339, l.Annotations[ConfigSinceAnnotation]); err == nil {
			one.ConfigSince = &since
		}
		if holder := holderOf(l); holder != "" && l.Spec.RenewTime != nil {
			one.Holder, one.Renewed = holder, new(l.Spec.RenewTime.UTC())
			age, lasts := now.Sub(*one.Renewed), leaseDuration(l)
			one.Leads = age < max(time.Minute, lasts) // this machine's clock may differ from the controller's
			one.Late = one.Leads && lasts > 0 && age > lasts
		}
		out = append(out, one)
	}
	return out, nil
}

// PauseKey returns the key of the ConfigMap that pauses all nodes.
func PauseKey(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: config.PauseConfigMap}
}

// ReadPause returns what pauses all nodes at now, for people; "": nothing does. namespace is the controller's.
func ReadPause(ctx context.Context, c client.Reader, namespace string, now time.Time) (string, error) {
	at := PauseKey(namespace)
	var cm corev1.ConfigMap
	switch err := c.Get(ctx, at, &cm); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	if p := fence.PauseOf(cm.Data); !p.IsOver(now) {
		return fmt.Sprintf("ConfigMap %s: %s", at, p), nil
	}
	return "", nil
}

// readCluster returns what the status page shows of the whole cluster. Without leader election this process leads.
func (p *process) readCluster(ctx context.Context) (view.Cluster, error) {
	now := time.Now()
	paused, err := ReadPause(ctx, p.mgr.GetAPIReader(), p.Namespace, now)
	if err != nil {
		return view.Cluster{}, err
	}
	if !p.cfg.LeaderElection.Enabled {
		self := view.Leader{
			Holder: p.Identity, Leads: true, ConfigRejected: p.confs.rejectedReason(),
			ConfigDigest: p.confs.activeFile().Digest(), ConfigSince: new(p.confs.inForceSince()),
			Room: p.room.last.Load(),
		}
		return view.Cluster{Controllers: []view.Leader{self}, Paused: paused}, nil
	}
	// From the API server's memory: the Leases of all nodes are beside the leaders'.
	leaders, err := ListLeaders(ctx, p.mgr.GetAPIReader(), now,
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: fromMemory}})
	return view.Cluster{Controllers: leaders, Paused: paused}, err
}
