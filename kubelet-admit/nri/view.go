package nri

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

// request is what the runtime tells of the pod that asks to start.
type request struct {
	namespace, name, uid string
	annotations          map[string]string // the kubelet's own among them: kubernetes.io/config.source cannot be forged (F26)
}

// view is what the hook knows: what was last read of the own Node and its pods, which pods were exempt before the boot, and which
// are held. The zero maps hold every pod that is not static. It is safe for concurrent use; nothing in it waits.
type view struct {
	key    string // the mark's
	bootID string // the machine's own; "": cannot be read, and then Ready is never believed

	mu         sync.Mutex // guards what follows
	node       NodeView
	claims     []string               // those of node.Detaching, as namespace/name
	pods       map[string]podView     // by UID: bound to the node and not terminal
	before     map[string]bool        // UIDs that were exempt before the boot
	listed     bool                   // pods are what this process listed
	held       map[string]*Held       // by UID
	holdErrors map[admit.Reason]error // what the runtime is told, made when the node's state changes: a request allocates nothing

	changed  chan struct{}    // holds one: a status file has something to tell
	logQueue chan slog.Record // what happened, for the log; overflow is dropped rather than waited for
}

// podView is what the view knows of a pod.
type podView struct {
	exempt taint.Exemption
	lasts  bool // the exemption, as long as the UID does
	// The claims that it uses, as namespace/name; sure: it uses nothing else that is attached.
	claims []string
	sure   bool
}

// isSameAs: a pod's volumes never change.
func (p podView) isSameAs(o podView) bool { return p.exempt == o.exempt && p.lasts == o.lasts }

func (v *view) podView(pod *corev1.Pod) podView {
	claims, sure := taint.VolumeClaims(pod)
	return podView{taint.ExemptionOf(pod, v.key), hasLastingExemption(pod, v.key), claims, sure}
}

func newView(nodeName, key, bootID string) *view {
	v := &view{
		key: key, bootID: bootID, node: NodeView{Name: nodeName}, pods: map[string]podView{}, held: map[string]*Held{},
		changed: make(chan struct{}, 1), logQueue: make(chan slog.Record, 256),
	}
	v.buildErrors()
	return v
}

// restoreStatus takes over what a plugin before this one knew: on this boot, of this Node, about this mark. An API outage during an
// upgrade must not keep a running node's containers from being restarted.
func (v *view) restoreStatus(s Status) bool {
	if s.BootID == "" || s.BootID != v.bootID || s.TaintKey != v.key || s.Node.Name != v.node.Name || !s.Node.Read {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node = s.Node
	v.node.Detaching = false // what that one knew of volumes is not told
	for _, p := range s.Pods {
		v.pods[p.UID] = podView{exempt: p.Exempt}
	}
	v.buildErrors()
	return true
}

// recallExempt takes over which pods were exempt before the boot.
func (v *view) recallExempt(uids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = make(map[string]bool, len(uids))
	for _, uid := range uids {
		v.before[uid] = true
	}
}

// lastingUIDs returns the UIDs to remember beyond this boot, sorted. Before this process has listed the pods it has none to tell.
func (v *view) lastingUIDs() (uids []string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.listed {
		return nil, false
	}
	uids = []string{}
	for uid, p := range v.pods {
		if p.lasts && uid != "" {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids, true
}

// admitPod answers the runtime: nil lets the pod start, an error holds it. It never waits, and where it allows it allocates nothing.
func (v *view) admitPod(r request, now func() time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	pod, known := v.pods[r.uid]
	if !known {
		pod.exempt = v.staticExemption(r)
	}
	allow, why := admit.Decide(v.node.Node, admit.Pod{
		Exempt: pod.exempt != taint.NotExempt, WasExempt: v.before[r.uid], Known: known,
		Unaffected: v.node.Detaching && taint.FreeOf(pod.claims, pod.sure, v.claims),
	})
	h := v.held[r.uid]
	switch {
	case allow && h == nil:
		return nil
	case allow:
		delete(v.held, r.uid)
		v.queueLog("Admitted pod", "pod", r.namespace+"/"+r.name, "uid", r.uid, "why", string(why), "held", now().Sub(h.Since))
		return nil
	case h == nil:
		h = &Held{Namespace: r.namespace, Name: r.name, UID: r.uid, Since: now()}
		v.held[r.uid] = h
	}
	if h.Why != why {
		v.queueLog("Holding pod", "pod", r.namespace+"/"+r.name, "uid", r.uid, "why", string(why))
	}
	h.Why, h.Last, h.Times = why, now(), h.Times+1
	v.signalChange()
	return v.holdErrors[why]
}

// staticExemption pods are not bound by the API server and go by the hash of their file: only what the kubelet says of them counts.
func (v *view) staticExemption(r request) taint.Exemption {
	if len(r.annotations) == 0 {
		return taint.NotExempt
	}
	pod := corev1.Pod{}
	pod.Annotations = r.annotations
	if e := taint.ExemptionOf(&pod, v.key); e == taint.ExemptStatic {
		return e
	}
	return taint.NotExempt
}

// hasRead reports whether the own Node was read on this boot.
func (v *view) hasRead() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node.Read
}

// holdsAll reports whether the Node, as it was last seen, carried a mark that holds every ordinary pod.
func (v *view) holdsAll() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node.Marked && !v.node.Detaching
}

// holdsSome reports whether it carried a mark that holds the pods of some volumes.
func (v *view) holdsSome() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node.Detaching
}

// hasHeldPods reports whether a pod is held, and whether one is because it is not known.
func (v *view) hasHeldPods() (held, unknown bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.held {
		unknown = unknown || h.Why == admit.PodUnknown
	}
	return len(v.held) > 0, unknown
}

// forgetNode forgets the Node: it was deleted. What is recreated under its name has lost its taints.
func (v *view) forgetNode() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.node.Read {
		v.queueLog("The own Node was deleted")
	}
	v.node.Read = false
	v.buildErrors()
	v.signalChange()
}

// seeNode takes over a Node that was read. Unless the pods were listed since it held every pod, or since it was never read, a mark holds
// every pod, whatever its record says, and a Node without one must not be seen: pods may have been ended meanwhile, and are known no more.
func (v *view) seeNode(node *corev1.Node, listed bool, now time.Time) {
	l := taint.NewLook(node, nil, v.key, taint.Instant{}, taint.Instant{})
	text, marked := "", l.Mark != nil
	var claims []string
	if marked {
		text = fmt.Sprintf("%s=%s:%s", v.key, l.Mark.Value, l.Mark.Effect)
	}
	if listed {
		claims = l.DetachingClaims()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.node
	v.node.UID, v.node.Mark, v.node.Read, v.node.Marked, v.node.Detaching = string(node.UID), text, true, marked, len(claims) > 0
	v.node.ReadySeen = before.ReadySeen || v.readyNow(node)
	if slices.Equal(claims, v.claims) && before.UID == v.node.UID && before.Mark == v.node.Mark && before.Node == v.node.Node {
		return
	}
	v.node.At, v.claims = now, claims
	v.queueLog("Own Node changed", "node", v.node.Name, "mark", text, "detaching", len(claims), "ready_on_this_boot", v.node.ReadySeen, "before", before.Mark)
	v.buildErrors()
	v.signalChange()
}

// readyNow: a Ready that the kubelet left behind before a crash carries the boot id of then.
func (v *view) readyNow(node *corev1.Node) bool {
	return v.bootID != "" && node.Status.NodeInfo.BootID == v.bootID &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

// seePods takes over a consistent list of the node's pods.
func (v *view) seePods(pods []corev1.Pod) {
	seen := make(map[string]podView, len(pods))
	for i := range pods {
		if !isTerminal(&pods[i]) {
			seen[string(pods[i].UID)] = v.podView(&pods[i])
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods, v.listed, v.node.Listed = seen, true, true
	maps.DeleteFunc(v.held, func(uid string, _ *Held) bool { _, there := seen[uid]; return !there })
	v.signalChange()
}

// seePod takes over a change of one pod.
func (v *view) seePod(pod *corev1.Pod, deleted bool) {
	uid := string(pod.UID)
	v.mu.Lock()
	defer v.mu.Unlock()
	before, there := v.pods[uid]
	if deleted || isTerminal(pod) {
		delete(v.pods, uid)
		delete(v.held, uid)
	} else if now := v.podView(pod); !there || !now.isSameAs(before) {
		v.pods[uid] = now
	} else {
		return // most changes of a pod are of its status
	}
	v.signalChange()
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// fillStatus writes what the view knows into a status.
func (v *view) fillStatus(s *Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.BootID, s.TaintKey, s.Node = v.bootID, v.key, v.node
	s.Held, s.Pods = nil, make([]PodView, 0, len(v.pods))
	for _, h := range v.held {
		s.Held = append(s.Held, *h)
	}
	slices.SortFunc(s.Held, func(a, b Held) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) })
	for uid, p := range v.pods {
		s.Pods = append(s.Pods, PodView{UID: uid, Exempt: p.exempt})
	}
	slices.SortFunc(s.Pods, func(a, b PodView) int { return cmp.Compare(a.UID, b.UID) })
}

// buildErrors makes the errors of the present state. mu is held, or nobody else knows v.
func (v *view) buildErrors() {
	v.holdErrors = map[admit.Reason]error{}
	for _, why := range []admit.Reason{admit.NodeUnread, admit.NodeMarked, admit.NodeNeverReady, admit.PodUnknown, admit.VolumeDetaches} {
		text := fmt.Sprintf("forcefence: held on node %s: %s", v.node.Name, why)
		if why == admit.NodeMarked || why == admit.VolumeDetaches {
			text += " (" + v.node.Mark + ")"
		}
		v.holdErrors[why] = fmt.Errorf("%s", text)
	}
}

func (v *view) signalChange() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

func (v *view) queueLog(what string, args ...any) {
	r := slog.NewRecord(time.Now(), slog.LevelInfo, what, 0)
	r.Add(args...)
	select {
	case v.logQueue <- r:
	default:
	}
}
