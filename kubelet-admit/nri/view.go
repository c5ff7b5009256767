package nri

import (
	"cmp"
	"errors"
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

// request is what the runtime reports of the pod that asks to start.
type request struct {
	namespace, name, uid string
	annotations          map[string]string // with the kubelet's own: kubernetes.io/config.source cannot be forged (F26)
}

// view is what the hook knows: the own Node and its pods as read last, the pods exempt before the boot, and the held
// pods. Empty maps hold every pod that is not static. It is safe for concurrent use, and no method blocks.
type view struct {
	key    string // the mark's
	bootID string // the machine's own; "": cannot be read, and then Ready is never believed
	// A hook without a configuration reads nothing, and holds ordinary pods until then. Zero: it has one.
	holdUntil time.Time

	mu     sync.Mutex // guards what follows
	node   NodeView
	claims []string           // the claims that node.Detaching waits for, as namespace/name
	pods   map[string]podView // by UID: the pods bound to the node and not terminal
	before map[string]bool    // UIDs that were exempt before the boot
	listed bool               // this process listed the pods
	held   map[string]*Held   // by UID
	// holdErrors are the answers to the runtime. They are made when the node's state changes, so that a request
	// allocates nothing.
	holdErrors map[admit.Reason]error

	changed  chan struct{}    // holds one: the status file is out of date
	logQueue chan slog.Record // records for the log; it drops records when full, and never blocks
}

// podView is what the view knows of a pod.
type podView struct {
	exempt taint.Exemption
	lasts  bool // the exemption lasts as long as the UID
	// The claims that it uses, as namespace/name. sure: it uses nothing else that is attached.
	claims []string
	sure   bool
}

// isSameAs reports whether both lead to the same answers. A pod's volumes never change.
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

// restoreStatus restores what a previous plugin knew, if it was of this boot, this Node and this mark. So containers of
// a running node can restart during an API outage and an upgrade.
func (v *view) restoreStatus(s Status) bool {
	if s.BootID == "" || s.BootID != v.bootID || s.TaintKey != v.key || s.Node.Name != v.node.Name || !s.Node.Read {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node = s.Node
	v.node.Detaching = false // the status does not contain what that plugin knew of volumes
	for _, p := range s.Pods {
		v.pods[p.UID] = podView{exempt: p.Exempt}
	}
	v.buildErrors()
	return true
}

func (v *view) recallExempt(uids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = make(map[string]bool, len(uids))
	for _, uid := range uids {
		v.before[uid] = true
	}
}

// lastingUIDs returns the UIDs to remember beyond this boot, sorted. ok is false until this process has listed the
// pods.
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

// admitPod answers the runtime: nil lets the pod start, an error holds it. It never blocks, and it allocates nothing if
// it allows.
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
	if !allow && !v.holdUntil.IsZero() && now().After(v.holdUntil) {
		allow, why = true, unconfigured
	}
	h := v.held[r.uid]
	switch {
	case allow && h == nil:
		return nil
	case allow:
		delete(v.held, r.uid)
		v.queueLog("Admitted pod",
			"pod", r.namespace+"/"+r.name, "uid", r.uid, "why", string(why), "held", now().Sub(h.Since))
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

// unconfigured is why pods start on a node whose hook has no configuration, in the end. A node whose network and
// storage never start is as good as dead, and the fence that this boot could disturb has gone on meanwhile.
const unconfigured admit.Reason = "the hook has no configuration, and has held pods for long enough"

// staticExemption returns whether the pod is static. Only the kubelet's annotations show that: the API server does not
// bind static pods, and their UID is the hash of their file.
func (v *view) staticExemption(r request) taint.Exemption {
	pod := corev1.Pod{}
	pod.Annotations = r.annotations
	if e := taint.ExemptionOf(&pod, v.key); e == taint.ExemptStatic {
		return e
	}
	return taint.NotExempt
}

// lastNode returns the own Node as seen last.
func (v *view) lastNode() admit.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node.Node
}

// hasHeldPods reports whether a pod is held, and whether one is held because it is unknown.
func (v *view) hasHeldPods() (held, unknown bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.held {
		unknown = unknown || h.Why == admit.PodUnknown
	}
	return len(v.held) > 0, unknown
}

// forgetNode forgets the Node after its deletion. A Node recreated under its name has lost its taints.
func (v *view) forgetNode() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.node.Read {
		v.queueLog("Node was deleted")
	}
	v.node.Read = false
	v.buildErrors()
	v.signalChange()
}

// seeNode applies a Node that was read. listed says that the pods were listed since the last mark that held every pod,
// or since the Node was not read yet. Without it a mark holds every pod, and node must have one: pods that were ended
// meanwhile may still count as known.
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
	v.node.UID, v.node.Mark, v.node.Read, v.node.Marked, v.node.Detaching = string(node.UID), text, true, marked,
		len(claims) > 0
	v.node.ReadySeen = before.ReadySeen || v.readyNow(node)
	if slices.Equal(claims, v.claims) && before.UID == v.node.UID && before.Mark == v.node.Mark &&
		before.Node == v.node.Node {
		return
	}
	v.node.At, v.claims = now, claims
	v.queueLog("Node changed",
		"node", v.node.Name, "mark", text, "detaching", len(claims), "ready_on_this_boot", v.node.ReadySeen, "before",
		before.Mark)
	v.buildErrors()
	v.signalChange()
}

// readyNow reports whether the Node is Ready on this boot. A Ready from before a crash has that boot's id.
func (v *view) readyNow(node *corev1.Node) bool {
	return v.bootID != "" && node.Status.NodeInfo.BootID == v.bootID &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

// listPod adds a pod to a list, unless it is terminal.
func (v *view) listPod(pods map[string]podView, pod *corev1.Pod) {
	if !taint.IsTerminal(pod) {
		pods[string(pod.UID)] = v.podView(pod)
	}
}

// seePods applies a consistent list of the node's pods.
func (v *view) seePods(seen map[string]podView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods, v.listed, v.node.Listed = seen, true, true
	maps.DeleteFunc(v.held, func(uid string, _ *Held) bool { _, there := seen[uid]; return !there })
	v.signalChange()
}

// seePod applies a change of one pod.
func (v *view) seePod(pod *corev1.Pod, deleted bool) {
	uid := string(pod.UID)
	v.mu.Lock()
	defer v.mu.Unlock()
	before, there := v.pods[uid]
	if deleted || taint.IsTerminal(pod) {
		delete(v.pods, uid)
		delete(v.held, uid)
	} else if now := v.podView(pod); !there || !now.isSameAs(before) {
		v.pods[uid] = now
	} else {
		return // most changes of a pod are of its status
	}
	v.signalChange()
}

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

// buildErrors makes the errors of the present state. The caller holds mu, or is the only user of v.
func (v *view) buildErrors() {
	v.holdErrors = map[admit.Reason]error{}
	for _, why := range []admit.Reason{
		admit.NodeUnread, admit.NodeMarked, admit.NodeNeverReady, admit.PodUnknown, admit.VolumeDetaches,
	} {
		text := fmt.Sprintf("forcefence: held on node %s: %s", v.node.Name, why)
		if why == admit.NodeMarked || why == admit.VolumeDetaches {
			text += " (" + v.node.Mark + ")"
		}
		v.holdErrors[why] = errors.New(text)
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
