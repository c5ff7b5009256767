package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
)

// fleetWorld is what the simulated API server of bench fleet serves: nodes with kubelets that renew their Leases every
// ten seconds and write their status every five minutes, node lifecycle as far as Ready=Unknown, and an attach/detach
// controller. A pod that was never written is made up when it is asked for: 150,000 take no memory. Nothing replaces
// pods that are gone: forcefence looks at no replacement.
type fleetWorld struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	images []corev1.ContainerImage // of each node

	mu        sync.Mutex // guards what follows
	rv        uint64
	nodes     []*fleetNode
	byName    map[string]*fleetNode
	subs      map[string]map[*subscription]bool
	detaching map[*storagev1.VolumeAttachment]time.Time // when each is detached
	gone      int                                       // pods
	firstGone map[string]time.Time                      // node -> when its storage pod went
}

type fleetNode struct {
	node   *corev1.Node // as published: never changed
	lease  *coordinationv1.Lease
	beats  time.Time // when it renews next
	status time.Time // when it writes its status next
	off    time.Time // since when it has no power; zero: it has
	pods   map[int]*corev1.Pod
	vas    []*storagev1.VolumeAttachment
	done   time.Time // when its last fence ended
	result taint.Result
}

const (
	fleetZones   = 10
	fleetPods    = 30 // on a node: a storage pod, fleetClaims with a volume, fleetDaemons of a DaemonSet, and others
	fleetClaims  = 3
	fleetDaemons = 2
	fleetDriver  = "sim.example.com"
	fleetTick    = 50 * time.Millisecond
	fleetLease   = 40 * time.Second
)

func newFleetWorld(images []corev1.ContainerImage) *fleetWorld {
	w := &fleetWorld{images: images, byName: map[string]*fleetNode{}, subs: map[string]map[*subscription]bool{},
		detaching: map[*storagev1.VolumeAttachment]time.Time{}, firstGone: map[string]time.Time{}}
	for _, kind := range []string{"nodes", "leases", "volumeattachments"} {
		w.subs[kind] = map[*subscription]bool{}
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// add makes a node on a machine.
func (w *fleetWorld) add(m *datacenter.Machine, bmc, address string, conditions []corev1.NodeCondition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, now := len(w.nodes), time.Now()
	name, created := m.Name(), metav1.NewTime(now.Add(-24*time.Hour))
	n := &fleetNode{pods: map[int]*corev1.Pod{}}
	n.node = &corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-uid-" + name), ResourceVersion: w.bump(),
			CreationTimestamp: created,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelInstanceTypeStable: "large",
				corev1.LabelTopologyZone:       fmt.Sprintf("zone-%d", i%fleetZones),
				corev1.LabelTopologyRegion:     "here",
			},
			Annotations: map[string]string{bmcAnnotation: bmc,
				"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"),
				corev1.ResourceMemory: resource.MustParse("256Gi")},
			NodeInfo: corev1.NodeSystemInfo{BootID: m.BootID(), SystemUUID: m.SystemUUID(), MachineID: m.SystemUUID(),
				KubeletVersion: "v1.36.3"},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address},
				{Type: corev1.NodeHostName, Address: name}},
			Images: w.images,
			Conditions: append([]corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: created, LastTransitionTime: created,
			}}, conditions...),
		},
	}
	for k := 1; k <= fleetClaims; k++ {
		unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + fleetDriver + "^" + volumeOf(name, k))
		n.node.Status.VolumesInUse = append(n.node.Status.VolumesInUse, unique)
		n.node.Status.VolumesAttached = append(n.node.Status.VolumesAttached, corev1.AttachedVolume{Name: unique})
		pv := volumeOf(name, k)
		n.vas = append(n.vas, &storagev1.VolumeAttachment{
			TypeMeta: metav1.TypeMeta{Kind: "VolumeAttachment", APIVersion: "storage.k8s.io/v1"},
			ObjectMeta: metav1.ObjectMeta{Name: "csi-" + pv, UID: types.UID("va-uid-" + pv), ResourceVersion: w.bump(),
				CreationTimestamp: created},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: fleetDriver, NodeName: name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true},
		})
	}
	seconds, renewed := int32(fleetLease/time.Second), metav1.NewMicroTime(now)
	n.lease = &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name,
			UID: types.UID("lease-uid-" + name), ResourceVersion: w.bump(), CreationTimestamp: created},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	// Each at a moment of its own, as kubelets that were not started together.
	n.beats = now.Add(fleetLease / 4 * time.Duration(i*7919%10007) / 10007)
	n.status = now.Add(5 * time.Minute * time.Duration(i*7919%10007) / 10007)
	w.nodes, w.byName[name] = append(w.nodes, n), n
	m.OnChange(func(m *datacenter.Machine, on bool) { w.powered(name, m.BootID(), on) })
}

// start has the kubelets and controllers work.
func (w *fleetWorld) start() {
	w.wg.Go(func() {
		t := time.NewTicker(fleetTick)
		defer t.Stop()
		for {
			select {
			case <-w.ctx.Done():
				return
			case now := <-t.C:
				w.live(now)
			}
		}
	})
}

func (w *fleetWorld) close() {
	w.cancel()
	w.wg.Wait()
}

// live is a moment of all kubelets and controllers.
func (w *fleetWorld) live(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		switch {
		case !n.off.IsZero():
			if now.Sub(n.off) > fleetLease && readyOf(n.node).Status == corev1.ConditionTrue {
				w.setReady(n, corev1.ConditionUnknown, now)
			}
		case now.After(n.beats):
			n.beats = now.Add(fleetLease / 4)
			w.renew(n, now)
			if now.After(n.status) {
				n.status = now.Add(5 * time.Minute)
				w.setReady(n, corev1.ConditionTrue, now)
			}
		}
	}
	for va, at := range w.detaching {
		if now.After(at) {
			delete(w.detaching, va)
			w.detached(va)
		}
	}
}

// The caller of the following holds mu, where it does not say otherwise.

func (w *fleetWorld) bump() string {
	w.rv++
	return strconv.FormatUint(w.rv, 10)
}

func (w *fleetWorld) renew(n *fleetNode, now time.Time) {
	l, at := *n.lease, metav1.NewMicroTime(now)
	l.Spec.RenewTime, l.ResourceVersion = &at, w.bump()
	n.lease = &l
	w.tell("leases", "MODIFIED", &l)
}

// put publishes a Node.
func (w *fleetWorld) put(n *fleetNode, node *corev1.Node) {
	node.ResourceVersion = w.bump()
	n.node = node
	w.tell("nodes", "MODIFIED", node)
	w.detach(n)
}

func readyOf(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (w *fleetWorld) setReady(n *fleetNode, to corev1.ConditionStatus, now time.Time) {
	node := *n.node
	node.Status.Conditions = slices.Clone(node.Status.Conditions)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			if c.LastHeartbeatTime = metav1.NewTime(now); c.Status != to {
				c.Status, c.LastTransitionTime = to, metav1.NewTime(now)
			}
		}
	}
	w.put(n, &node)
}

// powered is a machine's power; the caller does not hold mu. A node that boots has its pods and volumes again.
func (w *fleetWorld) powered(name, boot string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, now := w.byName[name], time.Now()
	if !on {
		n.off, n.done, n.result = now, time.Time{}, ""
		return
	}
	n.off = time.Time{}
	node := *n.node
	node.Status.NodeInfo.BootID = boot
	n.node = &node
	w.renew(n, now)
	w.setReady(n, corev1.ConditionTrue, now)
}

// detach has the volumes detached that no pod uses and the kubelet does not list.
func (w *fleetWorld) detach(n *fleetNode) {
	for k, va := range n.vas {
		p, written := n.pods[k+1]
		if va == nil || !written || p != nil {
			continue
		}
		used := slices.ContainsFunc(n.node.Status.VolumesInUse, func(u corev1.UniqueVolumeName) bool {
			return strings.HasSuffix(string(u), "^"+*va.Spec.Source.PersistentVolumeName)
		})
		if _, under := w.detaching[va]; !used && !under {
			w.detaching[va] = time.Now().Add(attach)
		}
	}
}

func (w *fleetWorld) detached(va *storagev1.VolumeAttachment) {
	n := w.byName[va.Spec.NodeName]
	for k := range n.vas {
		if n.vas[k] != va {
			continue
		}
		n.vas[k] = nil
		last := *va
		last.ResourceVersion = w.bump()
		w.tell("volumeattachments", "DELETED", &last)
		node := *n.node
		node.Status.VolumesAttached = slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached),
			func(v corev1.AttachedVolume) bool {
				return strings.HasSuffix(string(v.Name), "^"+*va.Spec.Source.PersistentVolumeName)
			})
		w.put(n, &node)
	}
}

func volumeOf(node string, k int) string { return fmt.Sprintf("pv-%s-%d", node, k) }

const fleetNS = "shop"

// podOf makes up a pod that was never written.
func podOf(n *corev1.Node, k int) *corev1.Pod {
	name, yes := fmt.Sprintf("pod-%s-%02d", n.Name, k), true
	owner, tier := "ReplicaSet", "web"
	switch {
	case k == 0:
		owner, tier = "StatefulSet", "storage"
	case k <= fleetClaims:
		owner, tier = "StatefulSet", "db"
	case k >= fleetPods-fleetDaemons:
		owner, tier = "DaemonSet", "agent"
	}
	seconds := int64(300)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNS, Name: name, UID: types.UID("uid-" + name),
			ResourceVersion: "1", CreationTimestamp: n.CreationTimestamp,
			Labels: map[string]string{"tier": tier, "app": tier},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: owner, Name: tier, UID: "owner", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: n.Name,
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.net/app:1"}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
					Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
					Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if k >= 1 && k <= fleetClaims {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}}}
	}
	return p
}

// placeOf is the node and the number of a pod of that name.
func (w *fleetWorld) placeOf(name string) (*fleetNode, int) {
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		if k, err := strconv.Atoi(name[i+1:]); err == nil && k < fleetPods {
			return w.byName[strings.TrimPrefix(name[:i], "pod-")], k
		}
	}
	return nil, 0
}

func (n *fleetNode) pod(k int) *corev1.Pod {
	if p, written := n.pods[k]; written {
		return p
	}
	return podOf(n.node, k)
}

// What follows is the API; its callers do not hold mu.

func (w *fleetWorld) version() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bump()
}

func (w *fleetWorld) current() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rv
}

func (w *fleetWorld) nodeList() *corev1.NodeList {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(w.rv, 10)}}
	for _, n := range w.nodes {
		l.Items = append(l.Items, *n.node)
	}
	return l
}

func (w *fleetWorld) leaseList() *coordinationv1.LeaseList {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(w.rv, 10)}}
	for _, n := range w.nodes {
		l.Items = append(l.Items, *n.lease)
	}
	return l
}

func (w *fleetWorld) attachmentList() *storagev1.VolumeAttachmentList {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &storagev1.VolumeAttachmentList{
		TypeMeta: metav1.TypeMeta{Kind: "VolumeAttachmentList", APIVersion: "storage.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(w.rv, 10)}}
	for _, n := range w.nodes {
		for _, va := range n.vas {
			if va != nil {
				l.Items = append(l.Items, *va)
			}
		}
	}
	return l
}

func (w *fleetWorld) node(name string) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.byName[name]; n != nil {
		return n.node, nil
	}
	return nil, errNotFound
}

func (w *fleetWorld) lease(name string) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.byName[name]; n != nil {
		return n.lease, nil
	}
	return nil, errNotFound
}

func (w *fleetWorld) patchNode(name, media string, patch []byte) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.byName[name]
	if n == nil {
		return nil, errNotFound
	}
	old := *n.node
	old.Status.Images = nil // they are not patched, and they are most of a Node
	node, err := apply(&old, media, patch, "")
	if err != nil {
		return nil, err
	}
	node.Status.Images = w.images
	before, _ := taint.RecordOf(n.node)
	w.put(n, node)
	if rec, _ := taint.RecordOf(node); rec != nil && rec.Phase == taint.PhaseDone && before.IsOpen() {
		n.done, n.result = time.Now(), rec.Result
	}
	return node, nil
}

func (w *fleetWorld) podList(c call) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []*corev1.Pod
	for of := range strings.SplitSeq(c.query.Get("fieldSelector"), ",") {
		name, is := strings.CutPrefix(of, "spec.nodeName=")
		if n := w.byName[name]; is && n != nil {
			for k := range fleetPods {
				if p := n.pod(k); p != nil {
					pods = append(pods, p)
				}
			}
		}
	}
	list, err := selected(c, pods) // any other list selects none of these pods
	if err != nil {
		return nil, err
	}
	list.ResourceVersion = strconv.FormatUint(w.rv, 10)
	return list, nil
}

func (w *fleetWorld) pod(_, name string) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, k := w.placeOf(name); n != nil {
		if p := n.pod(k); p != nil {
			return p, nil
		}
	}
	return nil, errNotFound
}

func (w *fleetWorld) patchPod(_, name, media string, patch []byte) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, k := w.placeOf(name)
	if n == nil || n.pod(k) == nil {
		return nil, errNotFound
	}
	p, err := apply(n.pod(k), media, patch, w.bump())
	if err != nil {
		return nil, err
	}
	n.pods[k] = p
	return p, nil
}

func (w *fleetWorld) deletePod(_, name string, body []byte) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, k := w.placeOf(name)
	if n == nil || n.pod(k) == nil {
		return nil, errNotFound
	}
	p := n.pod(k)
	want, err := preconditions(body)
	if err != nil {
		return nil, err
	}
	if want.UID != nil && *want.UID != p.UID ||
		want.ResourceVersion != nil && *want.ResourceVersion != p.ResourceVersion {
		return nil, errConflict
	}
	n.pods[k] = nil
	if w.gone++; k == 0 {
		w.firstGone[n.node.Name] = time.Now()
	}
	w.detach(n)
	return p, nil
}

func (w *fleetWorld) volume(name string) (runtime.Object, error) {
	i := strings.LastIndexByte(name, '-')
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < 0 || w.byName[strings.TrimPrefix(name[:i], "pv-")] == nil {
		return nil, errNotFound
	}
	k, _ := strconv.Atoi(name[i+1:])
	return &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: fleetDriver, VolumeHandle: name}},
			ClaimRef: &corev1.ObjectReference{Namespace: fleetNS,
				Name: fmt.Sprintf("data-pod-%s-%02d", strings.TrimPrefix(name[:i], "pv-"), k)},
		},
	}, nil
}

func (w *fleetWorld) claim(namespace, name string) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, k := w.placeOf(strings.TrimPrefix(name, "data-"))
	if n == nil {
		return nil, errNotFound
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
			ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volumeOf(n.node.Name, k)},
	}, nil
}

// subscription is one watch.
type subscription struct {
	news chan struct{} // there is something to take

	mu     sync.Mutex // guards queued
	queued []watched
}

type watched struct {
	kind   string
	object runtime.Object
}

func (s *subscription) take() []watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.queued
	s.queued = nil
	return out
}

// tell has the watches of a resource told; the caller holds mu.
func (w *fleetWorld) tell(resource, kind string, o runtime.Object) {
	for s := range w.subs[resource] {
		s.mu.Lock()
		s.queued = append(s.queued, watched{kind, o})
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// subscribe begins a watch, with the current objects and their version. nil: this resource is not watched.
func (w *fleetWorld) subscribe(resource string) (*subscription, []runtime.Object, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subs := w.subs[resource]
	if subs == nil {
		return nil, nil, 0
	}
	s := &subscription{news: make(chan struct{}, 1)}
	subs[s] = true
	var first []runtime.Object
	for _, n := range w.nodes {
		switch resource {
		case "nodes":
			first = append(first, n.node)
		case "leases":
			first = append(first, n.lease)
		default:
			for _, va := range n.vas {
				if va != nil {
					first = append(first, va)
				}
			}
		}
	}
	return s, first, w.rv
}

func (w *fleetWorld) unsubscribe(resource string, s *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs[resource], s)
}

// bookmark tells a watch how far it is.
func bookmark(resource string, rv uint64, initial bool) runtime.Object {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(rv, 10)}
	if initial {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	switch resource {
	case "nodes":
		return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta}
	case "leases":
		return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
			ObjectMeta: meta}
	}
	return &storagev1.VolumeAttachment{
		TypeMeta: metav1.TypeMeta{Kind: "VolumeAttachment", APIVersion: "storage.k8s.io/v1"}, ObjectMeta: meta}
}

// preconditions are those of a deletion.
func preconditions(body []byte) (metav1.Preconditions, error) {
	var o metav1.DeleteOptions
	if len(body) > 0 {
		if err := json.Unmarshal(body, &o); err != nil {
			return metav1.Preconditions{}, err
		}
	}
	if o.Preconditions == nil {
		return metav1.Preconditions{}, nil
	}
	return *o.Preconditions, nil
}

// pinned counts the nodes whose machine is pinned.
func (w *fleetWorld) pinned() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.nodes {
		if m.node.Labels[taint.PinLabel] != "" {
			n++
		}
	}
	return n
}

// recovered are when the fences of those that are recovered ended, and when the last of their storage pods went.
func (w *fleetWorld) recovered(names []string) (done []time.Time, storage time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if n := w.byName[name]; !n.done.IsZero() && n.result == taint.ResultEvicted {
			done = append(done, n.done)
		}
		if at := w.firstGone[name]; at.After(storage) {
			storage = at
		}
	}
	return done, storage
}

func (w *fleetWorld) podsGone() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}
