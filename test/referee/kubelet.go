package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// What a fence's public documents name. The referee knows it from there.
const (
	markKey    = "forcefence.io/node-shutdown"
	recordKey  = "forcefence.io/fence" // an annotation
	driverName = "disk.referee.example.com"
	roleLabel  = "referee.example.com/role"  // of pods: what they are in a run
	homeLabel  = "referee.example.com/home-" // of Nodes, with a run's name: its pods may go there
	heartbeat  = 2500 * time.Millisecond     // a quarter of the Lease
	volumePath = "kubernetes.io/csi/" + driverName + "^"
)

// kubelet is a simulated machine with its kubelet, and the hook in its container runtime.
//
// What it keeps to: it does nothing without power; it starts no pod that is finished, being deleted or gone; it holds
// every pod but the exempt until it read its own Node live, unmarked and Ready on this boot, and then the pod, live as
// well (the hook of the node); it mounts a volume once that is attached here, and says so in volumesInUse before; it
// ends a pod that was deleted, and only then takes it away. Its containers are entries of the ledger.
type kubelet struct {
	w    *world
	name string

	power sync.Mutex // held while the power changes
	boot  *boot      // nil: off; guarded by power
}

type boot struct {
	k      *kubelet
	id     string
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards dead, and that nothing begins once it is true
	dead bool

	mounted map[string]int  // volumes in use, by name; the sync loop's alone
	started map[string]*ran // by UID; the sync loop's alone
}

// ran is a pod that was started on this boot.
type ran struct {
	key, identity string
	volumes       []string
}

// on boots the machine, if it is off.
func (k *kubelet) on() {
	k.power.Lock()
	defer k.power.Unlock()
	if k.boot != nil {
		return
	}
	ctx, cancel := context.WithCancel(k.w.ctx)
	b := &boot{k: k, id: string(uuid.NewUUID()), cancel: cancel, mounted: map[string]int{}, started: map[string]*ran{}}
	k.boot = b
	k.w.ledger.begin(&k.w.ledger.alive, span{Node: k.name})
	k.w.bmc.set(k.name, true)
	b.wg.Go(func() { b.run(ctx) })
}

// off takes the machine's power, and all that ran with it. A request on the wire may still land, as it may in life.
func (k *kubelet) off() {
	k.power.Lock()
	defer k.power.Unlock()
	b := k.boot
	if b == nil {
		return
	}
	b.cancel()
	b.mu.Lock()
	b.dead = true
	k.w.ledger.powerOff(k.name)
	b.mu.Unlock()
	k.boot = nil
	k.w.bmc.set(k.name, false)
	b.wg.Wait()
}

// begin enters a span, unless the power is gone.
func (b *boot) begin(list *[]span, s span) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return false
	}
	s.Node = b.k.name
	b.k.w.ledger.begin(list, s)
	return true
}

func (b *boot) run(ctx context.Context) {
	for !b.register(ctx) {
		if !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
	b.wg.Go(func() {
		for {
			b.renew(ctx)
			if !pause(ctx, heartbeat) {
				return
			}
		}
	})
	posted := false
	for {
		changed := b.k.w.hub.changed()
		if n := b.k.w.hub.node(b.k.name); n != nil && (!posted || !ready(n, b.id)) {
			posted = b.post(ctx) // another writer says that it is not Ready
		}
		if posted {
			b.sync(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			pause(ctx, 20*time.Millisecond) // events come in crowds
		case <-time.After(time.Second):
		}
	}
}

// register makes the Node, where there is none.
func (b *boot) register(ctx context.Context) bool {
	c := b.k.w.control.client
	_, err := c.CoreV1().Nodes().Get(ctx, b.k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: b.k.name,
			Labels: map[string]string{corev1.LabelHostname: b.k.name, "kubernetes.io/os": "linux",
				foreign: "here"},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				foreign: "here"},
		},
			Spec: corev1.NodeSpec{
				Taints: []corev1.Taint{{Key: foreign, Value: "here", Effect: corev1.TaintEffectPreferNoSchedule}}}}
		_, err = c.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	}
	if err != nil {
		return false
	}
	_, err = c.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: b.k.name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: b.k.name}}},
	}, metav1.CreateOptions{})
	return err == nil || apierrors.IsAlreadyExists(err)
}

// foreign names the label, annotation and taint on each Node that the judged must leave alone.
const foreign = "example.com/foreign"

func ready(n *corev1.Node, boot string) bool {
	return n.Status.NodeInfo.BootID == boot &&
		slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

func marked(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == markKey })
}

func (b *boot) renew(ctx context.Context) {
	leases := b.k.w.control.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), int32(10)
	l, err := leases.Get(ctx, b.k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: b.k.name}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &b.k.name, LeaseDurationSeconds: &seconds, RenewTime: &now,
			}}, metav1.CreateOptions{})
	case err == nil:
		l.Spec.RenewTime = &now
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err == nil {
		b.begin(&b.k.w.ledger.beats, span{To: time.Now()})
	}
}

// post writes the whole status: Ready, boot id, volumes in use.
func (b *boot) post(ctx context.Context) bool {
	now := metav1.Now()
	volumes := slices.Sorted(maps.Keys(b.mounted))
	if volumes == nil {
		volumes = []string{}
	}
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("500")}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"capacity": capacity, "allocatable": capacity, "volumesInUse": volumes,
		"conditions": []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
				LastTransitionTime: now},
			{Type: "ForcefenceGuard", Status: corev1.ConditionTrue, Reason: "FailClosed", LastHeartbeatTime: now,
				LastTransitionTime: now}},
		"nodeInfo": corev1.NodeSystemInfo{BootID: b.id, SystemUUID: b.k.w.uuid(b.k.name), MachineID: b.k.name,
			OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.0"},
	}})
	if err != nil {
		return false
	}
	_, err = b.k.w.control.client.CoreV1().Nodes().PatchStatus(ctx, b.k.name, patch)
	return err == nil
}

// sync looks at each pod of the node once.
func (b *boot) sync(ctx context.Context) {
	there := map[string]bool{}
	for _, p := range b.k.w.hub.podsOf(b.k.name) {
		there[string(p.UID)] = true
		over := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		switch {
		case over || p.DeletionTimestamp != nil:
			b.stop(ctx, string(p.UID))
			if p.DeletionTimestamp != nil {
				// again at the next look
				_ = b.k.w.control.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, now(p.UID))
			}
		case b.started[string(p.UID)] == nil:
			b.start(ctx, p)
		}
		if ctx.Err() != nil {
			return
		}
	}
	for uid := range b.started {
		if !there[uid] {
			b.stop(ctx, uid)
		}
	}
}

func now(uid types.UID) metav1.DeleteOptions {
	zero := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}}
}

// exempt are pods that no mark holds.
func exempt(p *corev1.Pod) bool {
	role := p.Labels[roleLabel]
	return role == roleStatic || role == roleDaemon || role == roleTolerating
}

func (b *boot) start(ctx context.Context, p *corev1.Pod) {
	c := b.k.w.control.client
	volumes, ok := b.attachedHere(ctx, p)
	if !ok {
		return
	}
	if !exempt(p) {
		n, err := c.CoreV1().Nodes().Get(ctx, b.k.name, metav1.GetOptions{})
		if err != nil || marked(n) || !ready(n, b.id) {
			return
		}
	}
	live, err := c.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil || live.UID != p.UID || live.DeletionTimestamp != nil || live.Status.Phase == corev1.PodFailed ||
		live.Status.Phase == corev1.PodSucceeded {
		return
	}
	r := &ran{key: p.Namespace + "/" + p.Name, volumes: volumes}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "StatefulSet" {
		r.identity = r.key
	}
	for _, v := range volumes {
		b.mounted[v]++
	}
	if len(volumes) > 0 && !b.post(ctx) { // in use, before it is
		for _, v := range volumes {
			b.release(v)
		}
		return
	}
	for _, v := range volumes {
		b.begin(&b.k.w.ledger.mounts, span{What: v, UID: string(p.UID)})
	}
	if !b.begin(&b.k.w.ledger.runs, span{What: r.key, UID: string(p.UID)}) {
		return
	}
	b.started[string(p.UID)] = r
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, PodIP: "10.1.2.3", HostIP: "10.1.2.4",
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", Image: "none", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
	}})
	if err == nil {
		// what runs counts, not what is said
		_, _ = c.CoreV1().Pods(p.Namespace).
			Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
}

// attachedHere are the volumes of a pod, once all are attached to this node.
func (b *boot) attachedHere(ctx context.Context, p *corev1.Pod) (names []string, ok bool) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := b.k.w.control.client.CoreV1().PersistentVolumeClaims(p.Namespace).
			Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
		if err != nil || claim.Spec.VolumeName == "" {
			return nil, false
		}
		here := b.k.w.hub.attachments(func(a *storagev1.VolumeAttachment) bool {
			return a.Spec.NodeName == b.k.name && a.Spec.Source.PersistentVolumeName != nil &&
				*a.Spec.Source.PersistentVolumeName == claim.Spec.VolumeName &&
				a.Status.Attached && a.DeletionTimestamp == nil
		})
		if len(here) == 0 {
			return nil, false
		}
		// A kubelet believes its Node's list, not the attachment: one that a fence takes off the list is not mounted.
		n, err := b.k.w.control.client.CoreV1().Nodes().Get(ctx, b.k.name, metav1.GetOptions{})
		name := volumePath + claim.Spec.VolumeName
		if err != nil ||
			!slices.ContainsFunc(n.Status.VolumesAttached,
				func(a corev1.AttachedVolume) bool { return string(a.Name) == name }) {
			return nil, false
		}
		names = append(names, name)
	}
	return names, true
}

func (b *boot) stop(ctx context.Context, uid string) {
	r := b.started[uid]
	if r == nil {
		return
	}
	l := b.k.w.ledger
	l.end(&l.runs, b.k.name, "", uid)
	l.end(&l.mounts, b.k.name, "", uid)
	delete(b.started, uid)
	for _, v := range r.volumes {
		b.release(v)
	}
	if len(r.volumes) > 0 {
		b.post(ctx)
	}
}

func (b *boot) release(volume string) {
	if b.mounted[volume]--; b.mounted[volume] <= 0 {
		delete(b.mounted, volume)
	}
}

// attach is the storage's side: it attaches and detaches as VolumeAttachments ask, and enters both in the ledger.
func (w *world) attach(ctx context.Context) {
	for {
		changed := w.hub.changed()
		for _, a := range w.hub.attachments(func(a *storagev1.VolumeAttachment) bool {
			return a.Spec.Attacher == driverName
		}) {
			w.attachOne(ctx, a)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

func (w *world) attachOne(ctx context.Context, a *storagev1.VolumeAttachment) {
	const finalizer = "external-attacher/disk-referee-example-com"
	c := w.control.client.StorageV1().VolumeAttachments()
	volume := volumePath + *a.Spec.Source.PersistentVolumeName
	has := slices.Contains(a.Finalizers, finalizer)
	switch {
	case a.DeletionTimestamp == nil && !has:
		patch, _ := json.Marshal(
			map[string]any{
				"metadata": map[string]any{"resourceVersion": a.ResourceVersion,
					"finalizers": append(slices.Clone(a.Finalizers), finalizer)}})
		_, _ = c.Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	case a.DeletionTimestamp == nil && !a.Status.Attached:
		if !w.isAttached(a.Spec.NodeName, volume) {
			w.ledger.begin(&w.ledger.attached, span{Node: a.Spec.NodeName, What: volume})
		}
		_, _ = c.Patch(ctx, a.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{},
			"status")
	case a.DeletionTimestamp != nil && has:
		w.ledger.end(&w.ledger.attached, a.Spec.NodeName, volume, "")
		rest := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == finalizer })
		patch, _ := json.Marshal(
			map[string]any{"metadata": map[string]any{"resourceVersion": a.ResourceVersion, "finalizers": rest}})
		_, _ = c.Patch(ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
}

func (w *world) isAttached(node, volume string) bool {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	return slices.ContainsFunc(w.ledger.attached,
		func(s span) bool { return s.Node == node && s.What == volume && s.To.IsZero() })
}

// uuid is a machine's, from its name.
func (w *world) uuid(name string) string {
	return string(uuidOf(name))
}

func uuidOf(name string) []byte {
	const hex = "0123456789abcdef"
	h := uint64(14695981039346656037)
	out := []byte("00000000-0000-4000-8000-000000000000")
	for i := range out {
		if out[i] == '0' && (i < 14 || i > 18) {
			h = (h ^ uint64(name[i%len(name)])) * 1099511628211
			out[i] = hex[h>>60]
		}
	}
	return []byte(strings.ToLower(string(out)))
}
