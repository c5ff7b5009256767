package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/explain"
	"github.com/forcefence/forcefence/taint/features/networkfence"
	"github.com/forcefence/forcefence/taint/features/remediation"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// ReadSnapshot reads from the API server what decides about a node, and asks no device. unknown lists what could not be
// read and is left out. Nodes, Leases and pods must be readable: without them it returns an error. It blocks for the
// API server.
func (d *Session) ReadSnapshot(
	ctx context.Context,
	name string,
	now func() time.Time,
) (s explain.Snapshot, m machine.Machine, unknown []string, _ error) {
	node, look, err := d.readNode(ctx, name, now)
	if err != nil {
		return s, m, nil, err
	}
	config := d.confs.activeConfig()
	s = explain.Snapshot{Now: providers.InstantOf(now()), Key: d.key, Node: node, Nodes: d.nodes,
		Limits: config.Limits}
	s.Facts, m = config.FactsOf(node, look, s.Now.Wall)
	for _, device := range m.Devices() {
		s.Quiet = append(s.Quiet, device.Quiet)
	}
	r := snapshotReader{d.client, &unknown}
	if err := r.readLeases(ctx, &s); err != nil {
		return s, m, nil, err
	}
	if s.Facts.Excluded == "" && look.Mark == nil {
		elsewhere, err := config.Exclusions.ReadExclusions(ctx, d.client, d.client.RESTMapper(), node, s.Now.Wall)
		if err != nil {
			return s, m, nil, err
		}
		s.Facts.Excluded, s.Facts.KeptOn = elsewhere.Excluded, cmp.Or(s.Facts.KeptOn, elsewhere.KeptOn)
		for _, object := range elsewhere.Denied {
			unknown = append(unknown, fmt.Sprintf("whether %s excludes the node: reading it is forbidden", object))
		}
	}
	if err := r.readRequest(ctx, &s, d.confs.activeFile().Remediation); err != nil {
		return s, m, nil, err
	}
	if err := r.readPods(ctx, &s, config); err != nil {
		return s, m, nil, err
	}
	if err := r.readForPolicies(ctx, &s); err != nil {
		return s, m, nil, err
	}
	if plane, _ := fleet.IsControlPlane(node.Labels); plane && s.Facts.Quorum {
		s.Members, err = kube.ListEtcdMembers(ctx, d.client)
	}
	return s, m, unknown, err
}

// snapshotReader reads for an explanation, and collects what may not be read.
type snapshotReader struct {
	client.Reader
	unknown *[]string
}

// noteForbidden returns nil for an error that is a missing right, and notes what is therefore unknown. It returns other
// errors unchanged.
func (r snapshotReader) noteForbidden(err error, what string) error {
	if apierrors.IsForbidden(err) {
		*r.unknown = append(*r.unknown, fmt.Sprintf("%s: %v", what, err))
		return nil
	}
	return err
}

// readLeases reads the Leases. The age of a renewal counts from the newest renewal of all Leases, because this
// machine's clock may differ. The API server renews its own Lease among them while it runs.
func (r snapshotReader) readLeases(ctx context.Context, s *explain.Snapshot) error {
	var list coordinationv1.LeaseList
	if err := r.List(ctx, &list); err != nil {
		return fmt.Errorf("listing leases: %w", err)
	}
	s.Leases, s.LeaseAge = map[string]*coordinationv1.Lease{}, map[string]time.Duration{}
	var newest time.Time
	for i := range list.Items {
		l := &list.Items[i]
		if l.Spec.RenewTime == nil {
			continue
		}
		if l.Spec.RenewTime.After(newest) {
			newest = l.Spec.RenewTime.Time
		}
		if l.Namespace == corev1.NamespaceNodeLease {
			s.Leases[l.Name] = l
		}
	}
	for name, l := range s.Leases {
		s.LeaseAge[name] = newest.Sub(l.Spec.RenewTime.Time)
	}
	return nil
}

// readRequest reads which request for the node permits a power-off, if its mode needs one.
func (r snapshotReader) readRequest(ctx context.Context, s *explain.Snapshot, from config.Remediation) (err error) {
	const what = "whether a request for the node permits a power-off"
	switch {
	case s.Facts.Mode != fence.OnRequest:
		return nil
	case from.Kubeconfig != "":
		*r.unknown = append(*r.unknown, what+": it is in the cluster of remediation.kubeconfig")
		return nil
	}
	s.Facts.RequestedBy, err = remediation.FindRequest(ctx, r, from.Namespaces, s.Node)
	return r.noteForbidden(err, what)
}

// readPods reads all pods, and the volumes of those that are bound to the node.
func (r snapshotReader) readPods(ctx context.Context, s *explain.Snapshot, config *controller.Config) error {
	var list corev1.PodList
	if err := r.List(ctx, &list); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	s.All = list.Items
	mine := slices.Clone(list.Items)
	mine = slices.DeleteFunc(mine, func(p corev1.Pod) bool { return p.Spec.NodeName != s.Node.Name })
	s.Pods = kube.SeePods(mine, s.Key, config.EvictFirst)
	of, unread, err := kube.ReadVolumes(ctx, r, mine)
	err = r.noteForbidden(cmp.Or(err, unread), "which volumes the pods use, and where these can be attached")
	if err != nil {
		return err
	}
	if unread != nil {
		of = nil
	}
	s.Volumes = map[string]*corev1.PersistentVolume{}
	for i := range s.Pods {
		p := &s.Pods[i]
		p.Volumes, p.Claims = of[p.UID], p.Claims && of == nil
		for _, v := range p.Volumes {
			var pv corev1.PersistentVolume
			switch err := r.Get(ctx, client.ObjectKey{Name: v.PV}, &pv); {
			case err == nil:
				s.Volumes[v.PV] = &pv
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("reading volume %s: %w", v.PV, err)
			}
		}
	}
	var atts storagev1.VolumeAttachmentList
	if err := r.noteForbidden(r.List(ctx, &atts), "which volumes are attached where"); err != nil {
		return fmt.Errorf("listing volume attachments: %w", err)
	}
	s.Attached = atts.Items
	s.Attachments = kube.SeeAttachments(atts.Items)[s.Node.Name]
	var csi storagev1.CSINodeList
	switch err := r.List(ctx, &csi); {
	case err == nil:
		s.CSINodes = map[string]*storagev1.CSINode{}
		for i := range csi.Items {
			s.CSINodes[csi.Items[i].Name] = &csi.Items[i]
		}
	case r.noteForbidden(err, "attach slots, and where CSI drivers run") != nil:
		return fmt.Errorf("listing CSI nodes: %w", err)
	}
	return nil
}

// readForPolicies reads what only policies need.
func (r snapshotReader) readForPolicies(ctx context.Context, s *explain.Snapshot) error {
	owned := slices.DeleteFunc(slices.Clone(s.Pods), func(p action.Pod) bool { return p.Owner.Kind != "ReplicaSet" })
	if len(s.Facts.Policies) > 0 && len(owned) > 0 {
		var err error
		s.Owners, err = kube.ReadOwners(ctx, r, owned)
		if err = r.noteForbidden(err, "which pods are a Deployment's, for policies"); err != nil {
			return err
		}
	}
	if s.Facts.Policies != nil {
		var err error
		look := taint.NewLook(s.Node, s.Leases[s.Node.Name], s.Key, s.Now, s.Now)
		s.Facts.StorageFences, err = networkfence.FindFences(ctx, r, r, look, s.Facts.Policies)
		if apierrors.IsForbidden(err) {
			*r.unknown = append(*r.unknown, fmt.Sprintf("whom storage would cut off, for policies: %v", err))
		}
	}
	mapper, has := r.Reader.(interface{ RESTMapper() meta.RESTMapper })
	var asked []string
	for _, p := range s.Facts.Policies {
		if p.Yields && s.Rival == "" && has {
			s.Rival = kube.LonghornDeletes(ctx, r, mapper.RESTMapper())
		}
		if p.When == policy.StorageUnhealthy && p.WithoutProof != policy.Never {
			asked = append(asked, p.Name)
		}
	}
	if len(asked) > 0 {
		*r.unknown = append(*r.unknown, fmt.Sprintf("what policies %s would do: they ask a storage system, and this "+
			"command does not", strings.Join(asked, ", ")))
	}
	return nil
}

// ReadRoom reads from the API server what the estimate of room needs. unread is why it is incomplete; nil: it is not.
func (d *Session) ReadRoom(ctx context.Context) (c *room.Cluster, unread, err error) {
	c = room.New(d.key, domainLabels(d.confs.activeConfig().Limits))
	unread, err = kube.ReadRoom(ctx, d.client, c, func(time.Duration) {})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the cluster: %w", err)
	}
	return c, unread, nil
}

// domainLabels returns the labels of the storm guard's failure domains. nil limits are the defaults.
func domainLabels(l *fleet.Limits) (out []string) {
	if l == nil {
		l = new(fleet.DefaultLimits())
	}
	for _, d := range l.Domains {
		out = append(out, d.Label)
	}
	return out
}
