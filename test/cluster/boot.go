package cluster

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

// attachDetachAnnotation hands a node's volumes to the attach/detach controller; it ignores nodes without it.
const attachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

const (
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second

	maxForbidden = 2 * time.Second // until a refusal is believed
)

// boot is one life of a machine, from power-on to power-off: everything that a power-off destroys.
type boot struct {
	n      *Node
	id     string
	ctx    context.Context // ends with the power
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ready  chan struct{} // closed once Ready was posted
	beats  sync.Once     // closes ready
	kick   chan struct{} // the status has news
	listMu sync.Mutex    // held by the one list under way

	mu     sync.Mutex            // guards the rest
	dead   bool                  // no container starts any more
	net    context.Context       // ends when the link to the API server is cut
	netCut context.CancelFunc    // cuts it
	up     chan struct{}         // closed while the link is up
	pods   map[types.UID]*worker // until gone from the API server and ended here
	// some list was taken on this boot: before, a kubelet leaves volumesInUse alone
	sourced bool
	synced  bool                            // a consistent list was taken; until then events wait in pending
	pending []podEvent                      // in order
	listRV  uint64                          // of the last list
	node    *corev1.Node                    // own Node, as last seen
	hook    admit.Node                      // what the hook knows of it
	claims  []string                        // those of hook.Detaching
	inUse   map[corev1.UniqueVolumeName]int // users of each volume
	gen     uint64                          // of inUse
	posted  uint64                          // gen that the API server has
	changed chan struct{}                   // closed and replaced when something that workers wait for changes
}

type podEvent struct {
	pod     *corev1.Pod
	deleted bool
}

func newBoot(n *Node, id string) *boot {
	b := &boot{
		n: n, id: id, ready: make(chan struct{}), kick: make(chan struct{}, 1), up: make(chan struct{}),
		changed: make(chan struct{}),
		pods:    map[types.UID]*worker{}, inUse: map[corev1.UniqueVolumeName]int{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.net, b.netCut = context.WithCancel(b.ctx)
	close(b.up)
	return b
}

func (b *boot) start() {
	b.wg.Go(func() {
		if !b.register() {
			return
		}
		b.wg.Go(b.renewLease)
		b.wg.Go(b.postStatus)
		b.wg.Go(b.list)
	})
}

func (b *boot) kill() {
	b.cancel()
	b.mu.Lock()
	b.dead = true
	b.mu.Unlock()
}

// cut ends every request under way and holds back new ones.
func (b *boot) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.net.Err() != nil {
		return
	}
	b.netCut()
	b.up = make(chan struct{})
}

func (b *boot) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead || b.net.Err() == nil {
		return
	}
	b.net, b.netCut = context.WithCancel(b.ctx)
	close(b.up)
	b.wg.Go(func() {
		if b.readNode() {
			b.list()
		}
	})
}

// do is every request of this machine: it waits for the link, retries what may pass, and returns final errors. It
// returns the context's error once the power is gone.
func (b *boot) do(request func(context.Context) error) error {
	retry := minRetry
	var refused time.Time
	for {
		b.mu.Lock()
		net, up := b.net, b.up
		b.mu.Unlock()
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-up:
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		ctx, cancel := context.WithTimeout(net, requestTimeout)
		err := request(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case net.Err() != nil:
			continue
		case final(err):
			return err
		case !apierrors.IsForbidden(err):
			refused = time.Time{}
		case refused.IsZero(): // the node authorizer learns of a pod a moment after its binding
			refused = time.Now()
		case time.Since(refused) > maxForbidden:
			return err
		}
		b.n.log.Debug("Request failed", "err", err)
		Sleep(b.ctx, retry)
		retry = min(2*retry, maxRetry)
	}
}

// register makes the Node, as kubeadm and the kubelet do, and reads it: false once the power is gone.
func (b *boot) register() bool {
	o := b.n.opts
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name,
			Labels: map[string]string{corev1.LabelHostname: o.Name, corev1.LabelOSStable: "linux",
				corev1.LabelArchStable: "amd64"},
			Annotations: map[string]string{attachDetachAnnotation: "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: o.ProviderID, Taints: o.Taints},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{ // as the node's side reports it
			Type: taint.ProtectionCondition, Status: corev1.ConditionTrue, Reason: taint.ProtectionFailClosed,
			LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		}}},
	}
	maps.Copy(node.Labels, o.Labels)
	maps.Copy(node.Annotations, o.Annotations)
	if !b.readNode() {
		return false
	}
	b.mu.Lock()
	there := b.node != nil
	b.mu.Unlock()
	if !there {
		// The administrator's client: NodeRestriction would refuse labels such as a control plane's role.
		err := b.do(func(ctx context.Context) error {
			_, err := b.n.c.clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			b.n.log.Warn("Cannot register", "err", err)
			return false
		}
		if !b.readNode() {
			return false
		}
	}
	return b.registerCSI()
}

func (b *boot) registerCSI() bool {
	b.mu.Lock()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: b.n.Name()}
	if b.node != nil {
		owner.UID = b.node.UID
	}
	b.mu.Unlock()
	driver := storagev1.CSINodeDriver{Name: CSIDriver, NodeID: b.n.Name()}
	if b.n.opts.Slots != nil {
		driver.Allocatable = &storagev1.VolumeNodeResources{Count: b.n.opts.Slots}
	}
	err := b.do(func(ctx context.Context) error {
		_, err := b.n.csi.Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: b.n.Name(), OwnerReferences: []metav1.OwnerReference{owner}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		b.n.log.Warn("Cannot register CSI driver", "err", err)
	}
	return b.ctx.Err() == nil
}

// readNode is the quorum GET of the own Node: the hook's first knowledge on this boot. A missing Node is no error.
func (b *boot) readNode() bool {
	var node *corev1.Node
	err := b.do(func(ctx context.Context) (err error) {
		node, err = b.n.core.Nodes().Get(ctx, b.n.Name(), metav1.GetOptions{})
		return err
	})
	if err == nil {
		b.mu.Lock()
		b.hook.Read = true
		b.mu.Unlock()
		b.onNode(node)
	}
	return err == nil || apierrors.IsNotFound(err)
}

func (b *boot) onNode(node *corev1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.net.Err() != nil || (b.node != nil && rv(node) < rv(b.node)) {
		return
	}
	b.node = node
	if b.hook.Read {
		l := taint.NewLook(node, nil, taint.DefaultKey, taint.Instant{}, taint.Instant{})
		b.claims = l.DetachingClaims()
		b.hook.Marked, b.hook.Detaching = l.Mark != nil, len(b.claims) > 0
		b.hook.ReadySeen = b.hook.ReadySeen || (isReady(node) && node.Status.NodeInfo.BootID == b.id)
	}
	b.broadcast()
}

func isReady(node *corev1.Node) bool {
	c := condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(node *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

func (b *boot) broadcast() { // with mu held
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *boot) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broadcast()
}

// renewLease is the kubelet's lease controller.
func (b *boot) renewLease() {
	every := b.n.opts.RenewEvery
	seconds := int32(max(1, b.n.opts.LeaseDuration/time.Second))
	var lease *coordinationv1.Lease
	for {
		err := b.do(func(ctx context.Context) error {
			renewed, err := b.renewOnce(ctx, lease, seconds)
			if err != nil {
				renewed = nil // read it again
			}
			lease = renewed
			return err
		})
		b.mu.Lock()
		if err == nil && !b.dead {
			b.n.c.ledger.renew(b.n.Name())
		}
		b.mu.Unlock()
		if err != nil {
			if !Sleep(b.ctx, minRetry) {
				return
			}
			continue
		}
		// A kubelet's jitter, so that a thousand nodes do not renew in step.
		if !Sleep(b.ctx, every-time.Duration(rand.Int64N(int64(every)/20+1))) {
			return
		}
	}
}

func (b *boot) renewOnce(ctx context.Context, lease *coordinationv1.Lease, seconds int32) (*coordinationv1.Lease,
	error) {
	name, now := b.n.Name(), metav1.NowMicro()
	if lease == nil {
		var err error
		if lease, err = b.n.leases.Get(ctx, name, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil {
			fresh := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds,
					RenewTime: &now},
			}
			b.mu.Lock()
			if b.node != nil {
				fresh.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Node", Name: name, UID: b.node.UID}}
			}
			b.mu.Unlock()
			return b.n.leases.Create(ctx, fresh, metav1.CreateOptions{})
		}
	}
	next := lease.DeepCopy()
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &name, &seconds, &now
	return b.n.leases.Update(ctx, next, metav1.UpdateOptions{})
}

// postStatus looks at the own Node at every interval and on every kick, and writes what differs from the machine's
// truth: the whole list of volumes in use, and Ready.
func (b *boot) postStatus() {
	if !Sleep(b.ctx, b.n.opts.ReadyDelay) {
		return
	}
	t := time.NewTicker(b.n.opts.StatusInterval)
	defer t.Stop()
	var reported time.Time
	for {
		if b.postOnce(time.Since(reported) >= kubeletStatusReport) {
			reported = time.Now()
		}
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		case <-b.kick:
		}
	}
}

// postOnce reports whether it wrote.
func (b *boot) postOnce(force bool) bool {
	b.mu.Lock()
	node, gen := b.node, b.gen
	volumes := slices.Sorted(maps.Keys(b.inUse))
	if !b.sourced && node != nil {
		volumes = node.Status.VolumesInUse
	}
	b.mu.Unlock()
	if node == nil {
		return false
	}
	status, differs := b.status(node, volumes)
	if !differs && !force {
		b.hasPosted(gen)
		return false
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		b.n.log.Warn("Cannot encode status", "err", err)
		return false
	}
	var patched *corev1.Node
	err = b.do(func(ctx context.Context) (err error) {
		patched, err = b.n.core.Nodes().PatchStatus(ctx, b.n.Name(), patch)
		return err
	})
	if err != nil {
		b.n.log.Debug("Cannot post status", "err", err)
		return false
	}
	b.onNode(patched)
	b.hasPosted(gen)
	b.beats.Do(func() { close(b.ready) })
	return true
}

func (b *boot) hasPosted(gen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gen > b.posted {
		b.posted = gen
		b.broadcast()
	}
}

// status is the machine's truth as a strategic merge patch, and whether it differs from node.
func (b *boot) status(node *corev1.Node, volumes []corev1.UniqueVolumeName) (map[string]any, bool) {
	now := metav1.Now()
	differs := node.Status.NodeInfo.BootID != b.id || node.Status.NodeInfo.SystemUUID != b.n.opts.SystemUUID ||
		!slices.Equal(node.Status.VolumesInUse, volumes) ||
		!equality.Semantic.DeepEqual(node.Status.Allocatable, b.n.capacity)
	var conditions []corev1.NodeCondition
	for _, want := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status"},
	} {
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		if have := condition(node, want.Type); have != nil && have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		} else {
			differs = true
		}
		conditions = append(conditions, want)
	}
	if volumes == nil {
		volumes = []corev1.UniqueVolumeName{} // an empty list clears, a missing one does not
	}
	return map[string]any{
		"capacity": b.n.capacity, "allocatable": b.n.capacity, "conditions": conditions, "volumesInUse": volumes,
		"addresses": []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: b.n.ip}, {Type: corev1.NodeHostName, Address: b.n.Name()},
		},
		"nodeInfo": corev1.NodeSystemInfo{
			MachineID: b.n.opts.SystemUUID, SystemUUID: b.n.opts.SystemUUID, BootID: b.id, KernelVersion: "6.1.0-sim",
			OSImage: "simulated", ContainerRuntimeVersion: "sim://1.0", KubeletVersion: "v1.37.2-sim",
			OperatingSystem: "linux", Architecture: "amd64",
		},
	}, differs
}

// use adds or, with -1, takes away users of volumes, and has the status posted. It returns the list's generation.
func (b *boot) use(volumes []volume, delta int) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range volumes {
		if !v.attachable {
			continue
		}
		if b.inUse[v.name] += delta; b.inUse[v.name] <= 0 {
			delete(b.inUse, v.name)
		}
		b.gen++
	}
	b.news()
	return b.gen
}

func (b *boot) news() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// list takes a consistent list of the node's pods and goes on with events from there.
func (b *boot) list() {
	b.listMu.Lock()
	defer b.listMu.Unlock()
	b.mu.Lock()
	b.synced, b.pending = false, nil
	b.mu.Unlock()
	var list *corev1.PodList
	err := b.do(func(ctx context.Context) (err error) {
		list, err = b.n.core.Pods("").List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", b.n.Name()).String(),
		})
		return err
	})
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listRV, _ = strconv.ParseUint(list.ResourceVersion, 10, 64)
	there := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		pod := &list.Items[i]
		there[pod.UID] = true
		if w := b.pods[pod.UID]; w == nil {
			b.startWorker(pod)
		} else {
			w.update(pod)
		}
	}
	for uid, w := range b.pods {
		if !there[uid] && rv(w.pod) <= b.listRV {
			w.vanish()
		}
	}
	b.synced, b.sourced = true, true
	for _, ev := range b.pending {
		b.apply(ev)
	}
	b.pending = nil
	b.news()
}

func (b *boot) onPod(pod *corev1.Pod, deleted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.dead || b.net.Err() != nil:
	case !b.synced:
		b.pending = append(b.pending, podEvent{pod, deleted})
	default:
		b.apply(podEvent{pod, deleted})
	}
}

// apply takes an event of the shared watch, which may lag behind the node's own list.
func (b *boot) apply(ev podEvent) { // with mu held
	w := b.pods[ev.pod.UID]
	switch {
	case ev.deleted:
		if w != nil {
			w.vanish()
		}
	case rv(ev.pod) <= b.listRV:
	case w == nil:
		b.startWorker(ev.pod)
	default:
		w.update(ev.pod)
	}
}

func (b *boot) startWorker(pod *corev1.Pod) { // with mu held
	if b.dead {
		return
	}
	w := &worker{b: b, uid: pod.UID, namespace: pod.Namespace, name: pod.Name, pod: pod, kick: make(chan struct{}, 1)}
	b.pods[pod.UID] = w
	b.wg.Go(w.run)
}

// admit asks the hook. All pods come from a consistent list of this boot or from a watch that follows it, so the hook
// knows each.
func (b *boot) admit(w *worker) (bool, admit.Reason) {
	b.mu.Lock()
	node, pod, held := b.hook, w.pod, b.claims
	b.mu.Unlock()
	claims, sure := taint.VolumeClaims(pod)
	return admit.Decide(node, admit.Pod{
		Exempt: taint.ExemptionOf(pod, taint.DefaultKey) != taint.NotExempt, Known: true,
		Unaffected: node.Detaching && taint.FreeOf(claims, sure, held),
	})
}

// requestTimeout ends requests to an API server that is paused.
const requestTimeout = 10 * time.Second

// final reports whether asking again cannot help.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
