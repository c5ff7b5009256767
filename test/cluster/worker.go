package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

// RunForAnnotation on a pod makes its containers end by themselves, successfully, after that duration: a Job's pod.
const RunForAnnotation = "sim.forcefence.io/run-for"

// worker is one pod on one boot, by UID: a kubelet's pod worker.
type worker struct {
	b               *boot
	uid             types.UID
	namespace, name string
	kick            chan struct{} // something below changed

	// guarded by b.mu
	pod   *corev1.Pod // as last seen
	gone  bool        // from the API server
	pokes int         // changes a kubelet acts on: annotations, labels, deletion; not status
	ended bool
	next  func(*corev1.Pod) *corev1.PodStatus // status to report, the latest wins
	idle  chan struct{}                       // closed when nothing is being reported; nil: nothing ever was

	ran     bool // only run's goroutine uses the rest
	volumes []volume
	mounted bool
}

// volume is one that a pod's claim is bound to.
type volume struct {
	name       corev1.UniqueVolumeName // as in a node's status
	attachment string                  // VolumeAttachment's name
	handle     string
	attachable bool // by CSI
	exclusive  bool // one node may write it, and this pod does
}

func (w *worker) update(pod *corev1.Pod) { // with b.mu held
	if rv(pod) <= rv(w.pod) {
		return
	}
	if !maps.Equal(pod.Annotations, w.pod.Annotations) || !maps.Equal(pod.Labels, w.pod.Labels) ||
		(pod.DeletionTimestamp != nil) != (w.pod.DeletionTimestamp != nil) {
		w.pokes++
	}
	w.pod = pod
	w.signal()
}

func (w *worker) vanish() { // with b.mu held
	w.gone = true
	if w.ended {
		delete(w.b.pods, w.uid)
	}
	w.signal()
}

func (w *worker) signal() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *worker) run() {
	pod, ending := w.look()
	switch taint := w.untolerated(pod); {
	case ending:
	case taint != nil:
		w.report(func(*corev1.Pod) *corev1.PodStatus { // a kubelet fails such pods since 1.24
			return &corev1.PodStatus{
				Phase: corev1.PodFailed, Reason: "TaintToleration",
				Message: "Predicate TaintToleration failed: " + taint.ToString(),
			}
		})
	case w.launch():
		w.live()
	}
	if w.mounted {
		w.b.use(w.volumes, -1)
	}
	w.finish()
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.ended = true
	if w.gone {
		delete(w.b.pods, w.uid)
	}
}

// look returns the pod as last seen, and whether its containers must not run, or not any more.
func (w *worker) look() (pod *corev1.Pod, ending bool) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.pod, w.ending()
}

func (w *worker) ending() bool { // with b.mu held
	return w.gone || w.pod.DeletionTimestamp != nil || terminal(w.pod)
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func (w *worker) untolerated(pod *corev1.Pod) *corev1.Taint {
	w.b.mu.Lock()
	node := w.b.node
	w.b.mu.Unlock()
	if node == nil {
		return nil
	}
	if t, found := v1helper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, false); found {
		return &t
	}
	return nil
}

// await returns true once cond, called with b.mu held, says so; false if the pod is to end or the power is gone.
func (w *worker) await(cond func() bool) bool { return w.awaitFor(0, cond) }

// sleep returns false early if the pod is to end or the power is gone.
func (w *worker) sleep(d time.Duration) bool {
	return w.awaitFor(max(d, time.Nanosecond), func() bool { return false })
}

// awaitFor is await that returns true after d as well; 0 is for ever.
func (w *worker) awaitFor(d time.Duration, cond func() bool) bool {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	for {
		w.b.mu.Lock()
		ok, end, changed := cond(), w.ending(), w.b.changed
		w.b.mu.Unlock()
		switch {
		case end || w.b.ctx.Err() != nil:
			return false
		case ok:
			return true
		}
		select {
		case <-w.b.ctx.Done():
			return false
		case <-over:
			return true
		case <-changed:
		case <-w.kick:
		}
	}
}

// launch takes the pod to running containers: volumes, sandbox, start. It returns false if the pod is to end first.
func (w *worker) launch() bool {
	pod, _ := w.look()
	if pod.Status.Phase == corev1.PodRunning { // from an earlier boot: nothing of it runs
		w.report(w.waiting)
	}
	if !w.resolve(pod) {
		return false
	}
	if len(w.volumes) > 0 {
		// In use before mounted: once the API server has it, the attach/detach controller does not take the volume
		// away.
		gen := w.b.use(w.volumes, 1)
		w.mounted = true
		if !w.await(func() bool { return w.b.posted >= gen && w.attached() }) {
			return false
		}
	}
	if !w.sandbox() {
		return false
	}
	if !w.sleep(w.b.n.opts.StartDelay) {
		return false
	}
	return w.begin()
}

// resolve finds the volumes behind the pod's claims, and waits for claims that are not bound.
func (w *worker) resolve(pod *corev1.Pod) bool {
	hub := w.b.n.c.hub
	for _, v := range pod.Spec.Volumes {
		claim, ok := taint.VolumeClaim(pod, v)
		if !ok {
			continue
		}
		for {
			if pvc, ok := hub.claims.get(pod.Namespace + "/" + claim); ok && pvc.Spec.VolumeName != "" {
				if pv, ok := hub.volumes.get(pvc.Spec.VolumeName); ok {
					readOnly := v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
					w.volumes = append(w.volumes, newVolume(pv, w.b.n.Name(), readOnly))
					break
				}
			}
			if !w.sleep(100 * time.Millisecond) {
				return false
			}
		}
	}
	return true
}

func newVolume(pv *corev1.PersistentVolume, node string, readOnly bool) volume {
	v := volume{handle: pv.Name, exclusive: singleWriter(pv) && !readOnly}
	if src := pv.Spec.CSI; src != nil {
		v.attachable, v.handle = true, src.VolumeHandle
		v.name = corev1.UniqueVolumeName("kubernetes.io/csi/" + src.Driver + "^" + src.VolumeHandle)
		v.attachment = fmt.Sprintf("csi-%x", sha256.Sum256([]byte(src.VolumeHandle+src.Driver+node)))
	}
	return v
}

// attached reports whether the API server lists every volume as attached here, and each has its VolumeAttachment (F5).
func (w *worker) attached() bool { // with b.mu held
	if w.b.node == nil || w.b.net.Err() != nil {
		return false
	}
next:
	for _, v := range w.volumes {
		if !v.attachable {
			continue
		}
		for _, a := range w.b.node.Status.VolumesAttached {
			if va, ok := w.b.n.c.hub.attachments.get(v.attachment); a.Name == v.name && ok && va.Status.Attached {
				continue next
			}
		}
		return false
	}
	return true
}

// sandbox asks the hook until it allows. A hold fails the sandbox at once; the kubelet comes back after 10 to 15 s, or
// sooner when the pod's annotations change.
func (w *worker) sandbox() bool {
	var said admit.Reason
	for {
		w.b.mu.Lock()
		pokes := w.pokes
		w.b.mu.Unlock()
		allow, why := w.b.admit(w)
		if allow {
			return true
		}
		if why != said {
			if said == "" {
				w.report(w.waiting) // Pending, or Running since the boot before; and without a sandbox
			}
			said = why
			w.event("FailedCreatePodSandBox",
				fmt.Sprintf("Failed to create pod sandbox: held on node %s: %s", w.b.n.Name(), why))
		}
		base := w.b.n.opts.SandboxRetry
		if !w.awaitFor(base+time.Duration(rand.Int64N(int64(base)/2+1)), func() bool { return w.pokes != pokes }) {
			return false
		}
	}
}

// begin starts the containers, unless the power went meanwhile.
func (w *worker) begin() bool {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	if w.b.dead {
		return false
	}
	r := Run{Node: w.b.n.Name(), Namespace: w.namespace, Name: w.name, UID: w.uid, Since: time.Now()}
	if ref := metav1.GetControllerOfNoCopy(w.pod); ref != nil && ref.Kind == "StatefulSet" {
		r.Identity = w.namespace + "/" + w.name
	}
	for _, v := range w.volumes {
		if v.exclusive {
			r.Volumes = append(r.Volumes, v.handle)
		}
	}
	w.b.n.c.ledger.start(r)
	w.ran = true
	return true
}

// live reports the running pod, waits until it is to end, and ends its containers.
func (w *worker) live() {
	begun := metav1.Now()
	run := func(pod *corev1.Pod) *corev1.PodStatus { return w.running(pod, begun) }
	w.report(run)
	pod, _ := w.look()
	done := false
	if d, err := time.ParseDuration(pod.Annotations[RunForAnnotation]); err == nil {
		done = w.sleep(d - time.Since(begun.Time))
	} else {
		// The node lifecycle controller takes Ready from the pods of a node that falls silent; its kubelet gives it
		// back.
		said := rv(pod)
		for w.await(func() bool { return rv(w.pod) > said && !IsPodReady(w.pod) }) {
			pod, _ = w.look()
			said = rv(pod)
			w.report(run)
		}
	}
	if w.b.ctx.Err() != nil {
		return
	}
	if !done {
		pod, _ = w.look()
		Sleep(w.b.ctx, min(w.b.n.opts.StopDelay, grace(pod)))
	}
	w.b.mu.Lock()
	if !w.b.dead { // else the power-off has ended them
		w.b.n.c.ledger.stop(w.b.n.Name(), w.uid)
	}
	w.b.mu.Unlock()
	if done {
		w.report(w.completed)
	}
}

// grace is what containers get to end: also those of a pod that was deleted by force, for a kubelet cannot know why it
// vanished.
func grace(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// finish sees a pod out that has no containers here: it waits for its deletion, and confirms that.
func (w *worker) finish() {
	for w.b.ctx.Err() == nil {
		w.b.mu.Lock()
		gone, pod := w.gone, w.pod
		w.b.mu.Unlock()
		if gone {
			return
		}
		if pod.DeletionTimestamp != nil {
			if w.ran && !terminal(pod) {
				w.report(w.completed)
			}
			w.reported()
			err := w.b.do(func(ctx context.Context) error {
				return w.b.n.core.Pods(w.namespace).Delete(ctx, w.name, deleteNow(w.uid))
			})
			if err == nil || final(err) {
				return // other finalizers may keep the object; nothing of it runs here
			}
			continue
		}
		select {
		case <-w.b.ctx.Done():
		case <-w.kick:
		}
	}
}

func deleteNow(uid types.UID) metav1.DeleteOptions {
	opts := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return opts
}

// report has a status written on the side, as a kubelet's status manager does: containers do not wait for it.
func (w *worker) report(compute func(*corev1.Pod) *corev1.PodStatus) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	busy := false
	if w.idle != nil {
		select {
		case <-w.idle:
		default:
			busy = true
		}
	}
	w.next = compute
	if busy {
		return
	}
	w.idle = make(chan struct{})
	w.b.wg.Go(func() {
		for {
			w.b.mu.Lock()
			compute := w.next
			w.next = nil
			if compute == nil {
				close(w.idle)
				w.b.mu.Unlock()
				return
			}
			w.b.mu.Unlock()
			w.write(compute)
		}
	})
}

// reported waits until nothing is being reported.
func (w *worker) reported() {
	w.b.mu.Lock()
	idle := w.idle
	w.b.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-w.b.ctx.Done():
	}
}

// write reads the pod live and patches the status that compute gives, by UID. A terminal phase that the API server has
// wins.
func (w *worker) write(compute func(*corev1.Pod) *corev1.PodStatus) {
	select {
	case w.b.n.writers <- struct{}{}:
		defer func() { <-w.b.n.writers }()
	case <-w.b.ctx.Done():
		return
	}
	err := w.b.do(func(ctx context.Context) error {
		pods := w.b.n.core.Pods(w.namespace)
		live, err := pods.Get(ctx, w.name, metav1.GetOptions{})
		if err != nil || live.UID != w.uid || terminal(live) {
			return err
		}
		status := compute(live)
		if status.Phase == live.Status.Phase {
			// A kubelet's patch holds what differs from the pod that it has read: it does not take back a tombstone
			// that lands meanwhile.
			status.Phase = ""
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.uid}, "status": status})
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil && w.b.ctx.Err() == nil {
		w.b.n.log.Debug("Cannot write pod status", "pod", w.namespace+"/"+w.name, "err", err)
	}
}

func (w *worker) running(pod *corev1.Pod, begun metav1.Time) *corev1.PodStatus {
	ip := cmp.Or(pod.Status.PodIP, w.b.n.c.address(w.b.n.opts.PodNet))
	st := &corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: w.b.n.ip, HostIPs: []corev1.HostIP{{IP: w.b.n.ip}}, PodIP: ip,
		PodIPs:    []corev1.PodIP{{IP: ip}},
		StartTime: pod.Status.StartTime, Conditions: podConditions(pod, corev1.ConditionTrue),
	}
	if st.StartTime == nil {
		st.StartTime = &begun
	}
	yes := true
	st.ContainerStatuses = w.containers(pod, func(c *corev1.ContainerStatus) {
		c.Ready, c.Started = true, &yes
		c.State.Running = &corev1.ContainerStateRunning{StartedAt: begun}
	})
	return st
}

// waiting is a pod whose containers are not there: of an earlier boot, or new and held.
func (w *worker) waiting(pod *corev1.Pod) *corev1.PodStatus {
	no := false
	return &corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: podConditions(pod, corev1.ConditionFalse),
		ContainerStatuses: w.containers(pod, func(c *corev1.ContainerStatus) {
			c.Started = &no
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
			if pod.Status.Phase != corev1.PodRunning {
				c.ContainerID = "" // there never was one
				return
			}
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137,
				Reason: "ContainerStatusUnknown"}
		}),
	}
}

func (w *worker) completed(pod *corev1.Pod) *corev1.PodStatus {
	no, now := false, metav1.Now()
	return &corev1.PodStatus{
		Phase: corev1.PodSucceeded, Conditions: podConditions(pod, corev1.ConditionFalse),
		ContainerStatuses: w.containers(pod, func(c *corev1.ContainerStatus) {
			c.Started = &no
			c.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}
		}),
	}
}

// containers are the statuses of the pod's containers; a new boot's count as restarts.
func (w *worker) containers(pod *corev1.Pod, state func(*corev1.ContainerStatus)) []corev1.ContainerStatus {
	before := map[string]corev1.ContainerStatus{}
	for _, c := range pod.Status.ContainerStatuses {
		before[c.Name] = c
	}
	var out []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		id := fmt.Sprintf("sim://%s/%s/%s", w.uid, c.Name, w.b.id)
		st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "sim://" + c.Image, ContainerID: id}
		if old, ok := before[c.Name]; ok {
			st.RestartCount, st.LastTerminationState = old.RestartCount, old.LastTerminationState
			if old.ContainerID != "" && old.ContainerID != id {
				st.RestartCount++
			}
		}
		state(&st)
		out = append(out, st)
	}
	return out
}

func podConditions(pod *corev1.Pod, ready corev1.ConditionStatus) []corev1.PodCondition {
	now := metav1.Now()
	var out []corev1.PodCondition
	for _, want := range []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: ready},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready}, {Type: corev1.PodReady, Status: ready},
	} {
		want.LastTransitionTime = now
		for _, have := range pod.Status.Conditions {
			if have.Type == want.Type && have.Status == want.Status {
				want.LastTransitionTime = have.LastTransitionTime
			}
		}
		out = append(out, want)
	}
	return out
}

// event is written on the side: nothing waits for it.
func (w *worker) event(reason, message string) {
	now := metav1.Now()
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("%s.%x", w.name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, FirstTimestamp: now,
		LastTimestamp: now,
		Source:        corev1.EventSource{Component: "kubelet", Host: w.b.n.Name()},
	}
	w.b.wg.Go(func() {
		err := w.b.do(func(ctx context.Context) error {
			_, err := w.b.n.core.Events(w.namespace).Create(ctx, ev, metav1.CreateOptions{})
			return err
		})
		if err != nil && w.b.ctx.Err() == nil {
			w.b.n.log.Debug("Cannot write event", "err", err)
		}
	})
}
