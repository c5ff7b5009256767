package main

import (
	"context"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// fleetWorld is what the simulated API server of bench fleet serves: nodes with kubelets that renew their Leases every
// ten seconds and write their status every five minutes, node lifecycle as far as Ready=Unknown, and an attach/detach
// controller. A pod that was never written is made up when it is asked for, and so are volumes and claims: 150,000 take
// no memory. Nothing replaces pods that are gone: forcefence looks at no replacement.
type fleetWorld struct {
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	images []corev1.ContainerImage // of each node

	mu        sync.Mutex // guards what follows
	rv        uint64
	objects   map[string]map[string]client.Object // by resource and namespace/name; never changed, nil: deleted
	watches   map[string]*apiwatch.Broadcaster    // by resource
	nodes     []*fleetNode
	byName    map[string]*fleetNode
	detaching map[string]time.Time // VolumeAttachment -> when it is detached
}

type fleetNode struct {
	name   string
	beats  time.Time // when it renews next
	status time.Time // when it writes its status next
	off    time.Time // since when it has no power; zero: it has
	done   time.Time // when its last fence ended
	result taint.Result
}

const (
	fleetZones   = 10
	fleetPods    = 30 // on a node: fleetClaims with a volume, fleetDaemons of a DaemonSet, and others
	fleetClaims  = 3
	fleetDaemons = 2
	fleetDriver  = "sim.example.com"
	fleetNS      = "shop"
	fleetTick    = 50 * time.Millisecond
	fleetLease   = 40 * time.Second
	fleetQueue   = 1 << 16 // events of a watch that were not sent yet
)

func newFleetWorld(images []corev1.ContainerImage) *fleetWorld {
	w := &fleetWorld{images: images, objects: map[string]map[string]client.Object{}, byName: map[string]*fleetNode{},
		watches: map[string]*apiwatch.Broadcaster{}, detaching: map[string]time.Time{}}
	for resource := range fleetKinds {
		w.objects[resource] = map[string]client.Object{}
	}
	for _, resource := range []string{"nodes", "leases", "volumeattachments"} {
		w.watches[resource] = apiwatch.NewLongQueueBroadcaster(fleetQueue, apiwatch.WaitIfChannelFull)
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// add makes a node on a machine.
func (w *fleetWorld) add(m world.Machine, address string, conditions []corev1.NodeCondition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, now := len(w.nodes), time.Now()
	name, created := m.Name(), metav1.NewTime(now.Add(-24*time.Hour))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-uid-" + name), CreationTimestamp: created,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelInstanceTypeStable: "large", corev1.LabelTopologyRegion: "here",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%fleetZones),
			},
			Annotations: map[string]string{world.BMCAnnotation: m.Address(),
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
	for k := range fleetClaims {
		pv := volumeOf(name, k)
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, uniqueOf(pv))
		node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: uniqueOf(pv)})
		w.put("volumeattachments", &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "csi-" + pv, UID: types.UID("va-uid-" + pv),
				CreationTimestamp: created},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: fleetDriver, NodeName: name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true},
		})
	}
	seconds, renewed := int32(fleetLease/time.Second), metav1.NewMicroTime(now)
	w.put("leases", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name,
			UID: types.UID("lease-uid-" + name), CreationTimestamp: created},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	})
	n := &fleetNode{name: name}
	// Their heartbeats are spread, and not in their order.
	n.beats = now.Add(fleetLease / 4 * time.Duration(i*7919%10007) / 10007)
	n.status = now.Add(5 * time.Minute * time.Duration(i*7919%10007) / 10007)
	w.nodes, w.byName[name] = append(w.nodes, n), n
	w.put("nodes", node)
	m.OnChange(func(bool) { w.noteDeath(n) })
}

// start starts the kubelets and controllers.
func (w *fleetWorld) start() {
	w.wg.Go(func() {
		t := time.NewTicker(fleetTick)
		defer t.Stop()
		for {
			select {
			case <-w.ctx.Done():
				return
			case now := <-t.C:
				w.runOnce(now)
			}
		}
	})
}

func (w *fleetWorld) close() {
	w.cancel()
	w.wg.Wait()
	for _, b := range w.watches {
		b.Shutdown()
	}
}

// runOnce does what kubelets and controllers have to do now.
func (w *fleetWorld) runOnce(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		switch {
		case !n.off.IsZero():
			if now.Sub(n.off) > fleetLease && cluster.IsReady(w.node(n)) {
				w.setReady(n, corev1.ConditionUnknown, now)
			}
		case now.After(n.beats):
			n.beats = now.Add(fleetLease / 4)
			w.renewLease(n, now)
			if now.After(n.status) {
				n.status = now.Add(5 * time.Minute)
				w.setReady(n, corev1.ConditionTrue, now)
			}
		}
	}
	for va, at := range w.detaching {
		if now.After(at) {
			delete(w.detaching, va)
			w.endDetach(va)
		}
	}
}

// The caller of the following holds mu.

// bump returns the next resourceVersion.
func (w *fleetWorld) bump() string {
	w.rv++
	return strconv.FormatUint(w.rv, 10)
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// get returns what was written, or what is made up; nil: there is none.
func (w *fleetWorld) get(resource, key string) client.Object {
	if o, written := w.objects[resource][key]; written {
		return o
	}
	_, name, _ := strings.Cut(key, "/")
	switch resource {
	case "pods":
		if n, k := w.place(name, "pod-"); n != nil {
			return podOf(w.node(n), k)
		}
	case "persistentvolumes":
		if n, k := w.place(name, "pv-"); n != nil {
			return persistentVolume(n.name, k)
		}
	case "persistentvolumeclaims":
		if n, k := w.place(name, "data-pod-"); n != nil {
			c := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: fleetNS, Name: name, UID: types.UID("uid-" + name),
					ResourceVersion: "1"},
				Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volumeOf(n.name, k)},
			}
			return withKind(c)
		}
	}
	return nil
}

func (w *fleetWorld) node(n *fleetNode) *corev1.Node {
	return w.objects["nodes"]["/"+n.name].(*corev1.Node)
}

// keys are those of what a list, or a watch that begins, has: all, or a node's pods.
func (w *fleetWorld) keys(resource, node string) (keys []string) {
	if resource != "pods" {
		return slices.Sorted(maps.Keys(w.objects[resource]))
	}
	if w.byName[node] != nil {
		for k := range fleetPods {
			keys = append(keys, fleetNS+"/"+podName(node, k))
		}
	}
	return keys
}

// put writes an object.
func (w *fleetWorld) put(resource string, o client.Object) {
	kind, key := apiwatch.Added, keyOf(o)
	if w.objects[resource][key] != nil {
		kind = apiwatch.Modified
	}
	o.SetResourceVersion(w.bump())
	w.objects[resource][key] = withKind(o)
	w.publish(resource, kind, o)
	if resource == "nodes" {
		w.beginDetach(w.byName[o.GetName()])
	}
}

// remove deletes an object. What is made up stays deleted, too.
func (w *fleetWorld) remove(resource string, o client.Object) {
	last := o.DeepCopyObject().(client.Object)
	last.SetResourceVersion(w.bump())
	w.objects[resource][keyOf(o)] = nil
	w.publish(resource, apiwatch.Deleted, last)
	if n, _ := w.place(o.GetName(), "pod-"); n != nil {
		w.beginDetach(n)
	}
}

// publish sends a change to the watches of a resource.
func (w *fleetWorld) publish(resource string, kind apiwatch.EventType, o client.Object) {
	if b := w.watches[resource]; b != nil {
		_ = b.Action(kind, o) // an error after close, when none listens
	}
}

func (w *fleetWorld) renewLease(n *fleetNode, now time.Time) {
	l := *w.objects["leases"][corev1.NamespaceNodeLease+"/"+n.name].(*coordinationv1.Lease)
	at := metav1.NewMicroTime(now)
	l.Spec.RenewTime = &at
	w.put("leases", &l)
}

func (w *fleetWorld) setReady(n *fleetNode, to corev1.ConditionStatus, now time.Time) {
	node := *w.node(n)
	node.Status.Conditions = slices.Clone(node.Status.Conditions)
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			if c.LastHeartbeatTime = metav1.NewTime(now); c.Status != to {
				c.Status, c.LastTransitionTime = to, metav1.NewTime(now)
			}
		}
	}
	w.put("nodes", &node)
}

// beginDetach begins to detach the volumes that no pod uses and the kubelet does not list.
func (w *fleetWorld) beginDetach(n *fleetNode) {
	inUse := w.node(n).Status.VolumesInUse
	for k := range fleetClaims {
		pv := volumeOf(n.name, k)
		pod, written := w.objects["pods"][fleetNS+"/"+podName(n.name, k)]
		_, under := w.detaching["csi-"+pv]
		if written && pod == nil && !under && !slices.Contains(inUse, uniqueOf(pv)) &&
			w.objects["volumeattachments"]["/csi-"+pv] != nil {
			w.detaching["csi-"+pv] = time.Now().Add(attach)
		}
	}
}

// endDetach deletes the VolumeAttachment, and takes the volume out of the Node's list.
func (w *fleetWorld) endDetach(name string) {
	va := w.objects["volumeattachments"]["/"+name].(*storagev1.VolumeAttachment)
	w.remove("volumeattachments", va)
	unique := uniqueOf(*va.Spec.Source.PersistentVolumeName)
	node := *w.node(w.byName[va.Spec.NodeName])
	node.Status.VolumesAttached = slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached),
		func(v corev1.AttachedVolume) bool { return v.Name == unique })
	w.put("nodes", &node)
}

// place is the node and the number of what has such a name; nil: there is none.
func (w *fleetWorld) place(name, prefix string) (*fleetNode, int) {
	rest, ok := strings.CutPrefix(name, prefix)
	if i := strings.LastIndexByte(rest, '-'); ok && i > 0 {
		if k, err := strconv.Atoi(rest[i+1:]); err == nil && k < fleetPods {
			return w.byName[rest[:i]], k
		}
	}
	return nil, 0
}

// The following do not need mu, or take it.

// noteDeath notes that a machine lost its power. No machine gets it back.
func (w *fleetWorld) noteDeath(n *fleetNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n.off = time.Now()
}

// noteFence notes the end of a fence.
func (w *fleetWorld) noteFence(before, after *corev1.Node) {
	old, _ := taint.RecordOf(before)
	if rec, _ := taint.RecordOf(after); rec != nil && rec.Phase == taint.PhaseDone && old.IsOpen() {
		n := w.byName[after.Name]
		n.done, n.result = time.Now(), rec.Result
	}
}

func podName(node string, k int) string  { return fmt.Sprintf("pod-%s-%02d", node, k) }
func volumeOf(node string, k int) string { return fmt.Sprintf("pv-%s-%02d", node, k) }
func uniqueOf(pv string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + fleetDriver + "^" + pv)
}

// podOf makes up a pod that was never written.
func podOf(n *corev1.Node, k int) client.Object {
	name, yes := podName(n.Name, k), true
	owner, tier := "ReplicaSet", "web"
	switch {
	case k < fleetClaims:
		owner, tier = "StatefulSet", "db"
	case k >= fleetPods-fleetDaemons:
		owner, tier = "DaemonSet", "agent"
	}
	seconds := int64(300)
	p := &corev1.Pod{
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
	if k < fleetClaims {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}}}
	}
	return withKind(p)
}

// persistentVolume makes up the volume of a pod.
func persistentVolume(node string, k int) client.Object {
	name := volumeOf(node, k)
	return withKind(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: fleetDriver, VolumeHandle: name}},
			ClaimRef: &corev1.ObjectReference{Namespace: fleetNS, Name: "data-" + podName(node, k)},
		},
	})
}

// largeNode is what real nodes have: 50 images, and four conditions beside the kubelet's own four.
func largeNode() (images []corev1.ContainerImage, conditions []corev1.NodeCondition) {
	for i := range 50 {
		repo := fmt.Sprintf("registry.example.net/team-%02d/service-%02d", i%7, i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repo, i+1), repo + ":v1.2." + strconv.Itoa(i)},
			SizeBytes: int64(i+1) << 22,
		})
	}
	now := metav1.Now()
	for _, t := range []corev1.NodeConditionType{
		"NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentContainerdRestart"} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: t, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
			Reason:  "No" + string(t),
			Message: "a node problem detector finds nothing wrong here",
		})
	}
	return images, conditions
}

// pinned counts the nodes whose machine is pinned.
func (w *fleetWorld) pinned() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects["nodes"] {
		if o.GetLabels()[taint.PinLabel] != "" {
			n++
		}
	}
	return n
}

// recovered are when the fences of those that are recovered ended.
func (w *fleetWorld) recovered(names []string) (done []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if n := w.byName[name]; !n.done.IsZero() && n.result == taint.ResultEvicted {
			done = append(done, n.done)
		}
	}
	return done
}
