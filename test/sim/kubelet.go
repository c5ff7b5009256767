package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

// kubelet is one boot's kubelet. Lease, status and pods run side by side from the start, as the real one's do: pods may
// start before Ready is written, from a list that is old.
type kubelet struct {
	m        *machine
	ready    bool // its runtime is up
	told     time.Time
	pods     []*corev1.Pod // its view: bound here
	seen     time.Time     // how old the view is; zero: nothing listed yet
	pending  bool          // a sync is scheduled
	starting map[string]bool
	wanted   []string // volumes it needs mounted
	hung     []string // UIDs of pods whose unmount hangs
	hook     hook
}

// after runs do unless the kubelet is gone by then. A hung kubelet does it when it wakes.
func (k *kubelet) after(d time.Duration, do func()) {
	k.m.w.after(d, func() {
		switch {
		case k.m.k != k:
		case k.m.hung:
			k.after(time.Second, do)
		default:
			do()
		}
	})
}

// send lets a request go. It lands even if the machine dies meanwhile.
func (k *kubelet) send(do func()) {
	if k.m.away() {
		return
	}
	d := k.m.w.between(time.Millisecond, 20*time.Millisecond)
	if !k.m.w.calm && k.m.w.chance(0.04) {
		d = k.m.w.between(20*time.Millisecond, 1500*time.Millisecond)
	}
	k.m.w.after(d, do)
}

func (m *machine) startKubelet() {
	w := m.w
	k := &kubelet{m: m, starting: map[string]bool{}, ready: w.rng.usual(0.7)}
	m.k, m.troubled = k, w.now
	w.logf("%s: kubelet starts", m.name)
	k.hook.k = k
	if !k.ready {
		k.after(w.between(time.Second, 8*time.Second), func() { k.ready = true; k.status() })
	}
	k.after(w.between(0, 2*time.Second), k.heartbeat)
	k.after(w.between(0, 2*time.Second), k.statusLoop)
	k.after(w.between(0, 2*time.Second), k.syncPods)
	k.after(w.between(0, time.Second), k.hook.poll)
}

func (k *kubelet) heartbeat() {
	w := k.m.w
	if w.api.node(k.m.name) != nil {
		rv := ""
		if l := w.api.lease(k.m.name); l != nil {
			rv = l.ResourceVersion
		}
		if !k.m.leaseless {
			k.send(func() { _ = w.api.renew(k.m.name, rv) })
		}
	}
	k.after(w.between(9*time.Second, 10500*time.Millisecond), k.heartbeat)
}

func (k *kubelet) statusLoop() {
	k.status()
	k.reconcile()
	k.after(k.m.w.between(9*time.Second, 11*time.Second), k.statusLoop)
}

// status reads the Node and patches what differs from what the kubelet knows, or all of it every five minutes.
func (k *kubelet) status() {
	w, name := k.m.w, k.m.name
	if k.m.away() {
		return
	}
	n := w.api.node(name)
	ready := corev1.ConditionFalse
	if k.ready {
		ready = corev1.ConditionTrue
	}
	inUse := k.inUse()
	if n == nil {
		fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{noteBMC: name}}}
		fresh.Status.NodeInfo = corev1.NodeSystemInfo{BootID: k.m.bootID, SystemUUID: k.m.uuid}
		fresh.Status.VolumesInUse = inUse
		setReady(fresh, ready, w.now)
		setHeartbeat(fresh, w.now)
		k.send(func() {
			if w.api.createNode(fresh) == nil {
				w.logf("%s: kubelet registers the node", name)
				w.writeAttached(name, nil) // attach/detach reports a Node that is new to it
			}
		})
		return
	}
	boot := n.Status.NodeInfo.BootID != k.m.bootID
	readyDiffers := readyOf(n) == nil || readyOf(n).Status != ready
	volumes := !slices.Equal(n.Status.VolumesInUse, inUse)
	if !boot && !readyDiffers && !volumes && w.now.Sub(k.told) < 5*time.Minute {
		return
	}
	k.told = w.now
	now := w.now
	bootID := k.m.bootID
	k.send(func() {
		err := w.api.patchNode("kubelet", name, "", func(n *corev1.Node) {
			if boot {
				n.Status.NodeInfo.BootID = bootID
			}
			if readyDiffers {
				setReady(n, ready, w.now)
			}
			setHeartbeat(n, now)
			if volumes {
				n.Status.VolumesInUse = inUse
			}
		})
		if err == nil {
			w.logf("%s: kubelet status: boot %s Ready %s inUse %v", name, bootID, ready, inUse)
		}
	})
}

func (k *kubelet) inUse() []corev1.UniqueVolumeName {
	var out []corev1.UniqueVolumeName
	for _, v := range k.wanted {
		out = append(out, unique(v))
	}
	return out
}

// changed is the watch: something may have to be synced.
func (k *kubelet) changed(of kind) {
	switch of {
	case pods:
		k.wake(k.m.w.lag())
	case nodes:
		k.hook.changed()
	}
}

func (k *kubelet) wake(d time.Duration) {
	if k.pending {
		return
	}
	k.pending = true
	k.after(d, func() { k.pending = false; k.syncPods() })
}

// look moves the view on. The first list may come from a cache of the API server that is behind; the watch catches up.
func (k *kubelet) look() {
	w := k.m.w
	if k.m.away() {
		return
	}
	at := w.now.Add(-w.lag())
	if k.seen.IsZero() && w.limits.staleHook && w.chance(0.5) {
		at = w.now.Add(-w.between(0, 30*time.Second))
	}
	if (w.Scenario == Held || w.Scenario == Bare) && at.Before(k.m.switched) {
		at = k.m.switched // without the hook nothing guards against a list older than the boot
	}
	if at.Before(k.seen) {
		at = k.seen
	}
	if k.seen.IsZero() || at.After(k.seen) {
		k.seen = at
		k.pods = w.api.asOf(at).podsOn(k.m.name)
	}
	if k.seen.Before(w.api.changed[pods]) {
		k.wake(w.between(100*time.Millisecond, time.Second))
	}
}

func (k *kubelet) syncPods() {
	k.look()
	w, m := k.m.w, k.m
	if k.seen.IsZero() {
		k.wake(time.Second)
		return
	}
	for _, c := range m.running {
		p := k.pod(c.uid)
		if !c.dying && (p == nil || taint.IsTerminal(p) || p.DeletionTimestamp != nil) {
			c.dying = true
			grace := w.between(50*time.Millisecond, 3*time.Second)
			if w.rng.usual(0.2) {
				grace = w.between(3*time.Second, 30*time.Second)
			}
			k.after(grace, func() { k.stopped(c) })
		}
	}
	for _, p := range k.pods {
		uid := string(p.UID)
		switch {
		case slices.Contains(k.hung, uid):
		case p.DeletionTimestamp != nil && !m.runs(uid) && !k.starting[uid]:
			k.confirm(p.Name, uid)
		case p.DeletionTimestamp == nil && !taint.IsTerminal(p) && !m.runs(uid) && !k.starting[uid] && !isMirror(p):
			k.starting[uid] = true
			k.prepare(p)
		}
	}
	k.volumes()
}

// reconcile corrects pods that run here and were set not ready: a kubelet compares what it reported with what is stored
// every ten seconds.
func (k *kubelet) reconcile() {
	if k.m.away() {
		return
	}
	for _, p := range k.m.w.api.podsOn(k.m.name) {
		if setNotReady(p) && !taint.IsTerminal(p) && p.DeletionTimestamp == nil &&
			(k.m.runs(string(p.UID)) || isMirror(p)) {
			k.tellReady(p.Name, string(p.UID))
		}
	}
}

// tellReady sets a pod Ready again.
func (k *kubelet) tellReady(name, uid string) {
	w := k.m.w
	k.send(func() {
		if p := w.api.pod(name); p == nil || taint.IsTerminal(p) {
			return
		}
		err := w.api.patchPod("kubelet", name, uid, "",
			func(p *corev1.Pod) { setPodReady(p, corev1.ConditionTrue, "") })
		if err == nil {
			w.count("pod Ready again")
			w.logf("%s: kubelet sets %s (%s) Ready again", k.m.name, name, uid)
		}
	})
}

func (k *kubelet) pod(uid string) *corev1.Pod {
	for _, p := range k.pods {
		if string(p.UID) == uid {
			return p
		}
	}
	return nil
}

func (m *machine) runs(uid string) bool {
	return slices.ContainsFunc(m.running, func(c *container) bool { return c.uid == uid })
}

// stopped is a container's end on a living machine.
func (k *kubelet) stopped(c *container) {
	w := k.m.w
	w.logf("%s: %s (%s) stopped", k.m.name, c.name, c.uid)
	k.m.running = slices.DeleteFunc(slices.Clone(k.m.running), func(x *container) bool { return x == c })
	if p := k.pod(c.uid); p != nil && p.DeletionTimestamp != nil {
		if w.user.hangsUnmount() {
			k.finishOnly(c.name, c.uid)
		} else {
			k.confirm(c.name, c.uid)
		}
	}
	k.volumes()
	k.wake(time.Second)
}

// confirm tells the API server that a deleted pod runs no more.
func (k *kubelet) confirm(name, uid string) {
	k.send(func() { _ = k.m.w.api.deletePod("kubelet", name, uid, "", 0) })
}

// finishOnly reports a deleted pod as Succeeded: its containers ended, and a volume cannot be unmounted for a while.
func (k *kubelet) finishOnly(name, uid string) {
	w := k.m.w
	w.count("unmount hangs")
	k.hung = append(k.hung, uid)
	k.send(func() {
		_ = w.api.patchPod("kubelet", name, uid, "", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			setPodReady(p, corev1.ConditionFalse, "PodCompleted")
		})
	})
	k.after(w.user.between(time.Minute, 10*time.Minute), func() {
		k.hung = slices.DeleteFunc(slices.Clone(k.hung), func(o string) bool { return o == uid })
		k.confirm(name, uid)
	})
}

// volumes unmounts what no pod of the view and no container uses.
func (k *kubelet) volumes() {
	used := map[string]bool{}
	for _, p := range k.pods {
		if !taint.IsTerminal(p) || slices.Contains(k.hung, string(p.UID)) {
			for _, v := range volumesOf(p) {
				used[v] = true
			}
		}
	}
	for _, c := range k.m.running {
		for _, v := range c.volumes {
			used[v] = true
		}
	}
	unused := func(v string) bool { return !used[v] }
	k.m.mounted = slices.DeleteFunc(slices.Clone(k.m.mounted), unused)
	n := len(k.wanted)
	k.wanted = slices.DeleteFunc(slices.Clone(k.wanted), unused)
	if len(k.wanted) != n {
		k.status()
	}
}

// prepare brings a pod's volumes, as the kubelet does before it asks for a sandbox: first say that they are in use,
// then see them listed and attached, then mount.
func (k *kubelet) prepare(p *corev1.Pod) {
	w, m := k.m.w, k.m
	again := func(d time.Duration) {
		k.after(d, func() { delete(k.starting, string(p.UID)); k.syncPods() })
	}
	vols := volumesOf(p)
	missing := false
	for _, v := range vols {
		if !slices.Contains(k.wanted, v) {
			k.wanted = append(slices.Clone(k.wanted), v)
			slices.Sort(k.wanted)
			missing = true
		}
	}
	if missing {
		k.status()
	}
	if len(vols) == 0 {
		k.after(w.between(time.Millisecond, 200*time.Millisecond), func() { k.admit(p, again) })
		return
	}
	k.after(w.between(10*time.Millisecond, 500*time.Millisecond), func() {
		n := w.api.node(m.name)
		if m.away() || n == nil {
			again(time.Second)
			return
		}
		for _, v := range vols {
			a := w.api.attachment(attachmentName(v, m.name))
			listed := slices.ContainsFunc(n.Status.VolumesAttached,
				func(x corev1.AttachedVolume) bool { return x.Name == unique(v) })
			told := slices.Contains(n.Status.VolumesInUse, unique(v))
			if !told || !listed || a == nil || !a.Status.Attached || a.DeletionTimestamp != nil || w.near.keeps(m) {
				k.status()
				again(w.between(500*time.Millisecond, 3*time.Second))
				return
			}
		}
		k.after(w.between(time.Millisecond, 200*time.Millisecond), func() {
			for _, v := range vols {
				if !slices.Contains(m.mounted, v) {
					m.mounted = append(slices.Clone(m.mounted), v)
					w.pool.mounted(m, v)
				}
			}
			w.steps++
			w.check.writers()
			k.admit(p, again)
		})
	})
}

// admit asks the hook, and starts the container.
func (k *kubelet) admit(p *corev1.Pod, again func(time.Duration)) {
	w := k.m.w
	if w.Scenario != Held && w.Scenario != Bare {
		exempt := taint.ExemptionOf(p, taint.DefaultKey) != taint.NotExempt
		claims, sure := taint.VolumeClaims(p)
		apart := k.hook.node.Detaching && taint.FreeOf(claims, sure, k.hook.claims)
		ok, why := admit.Decide(k.hook.node,
			admit.Pod{Exempt: exempt, Known: k.hook.knows(string(p.UID)), Unaffected: apart})
		if !ok {
			if exempt {
				w.fail("9", "the hook of %s holds exempt pod %s", k.m.name, p.Name)
			}
			w.count("held")
			w.count("held: " + string(why))
			w.logf("%s: %s (%s) held: %s", k.m.name, p.Name, p.UID, why)
			d := w.between(100*time.Millisecond, 3*time.Second)
			if w.chance(0.5) {
				d = w.between(3*time.Second, 15*time.Second)
			}
			again(d)
			return
		}
		w.count("admitted: " + string(why))
	}
	k.after(w.between(10*time.Millisecond, 1500*time.Millisecond), func() {
		delete(k.starting, string(p.UID))
		// The pod worker gives up on a pod that its view shows ended; the runtime, once called, does not.
		if v := k.pod(string(p.UID)); (v == nil || taint.IsTerminal(v) || v.DeletionTimestamp != nil) && w.chance(0.5) {
			k.wake(0)
			return
		}
		k.start(p)
	})
}

func (k *kubelet) start(p *corev1.Pod) {
	w, m, uid := k.m.w, k.m, string(p.UID)
	w.logf("%s: %s (%s) runs", m.name, p.Name, uid)
	m.running = append(slices.Clone(m.running), &container{name: p.Name, uid: uid, volumes: volumesOf(p)})
	w.steps++
	w.check.started(m, p)
	var was corev1.PodPhase
	if live := w.api.pod(p.Name); live != nil {
		was = live.Status.Phase
	}
	boot := m.run
	tell := func() {
		_ = w.api.patchPod("kubelet", p.Name, uid, "", func(p *corev1.Pod) {
			// A patch holds what differed when it was made: a phase that was Running already is not in it.
			if was == corev1.PodPending {
				p.Status.Phase, p.Status.Reason = corev1.PodRunning, ""
			}
			if !taint.IsTerminal(p) {
				setPodReady(p, corev1.ConditionTrue, "")
			}
			p.Status.Message = boot
		})
	}
	// A kubelet looks at its containers about once a second, and has many pods to tell of after a boot.
	k.after(w.between(10*time.Millisecond, 3*time.Second), func() { k.send(tell) })
	k.wake(w.lag()) // it may have ended meanwhile
}

// hook is the node's own admission: what it knows on this boot.
type hook struct {
	k       *kubelet
	node    admit.Node
	seen    time.Time // how old its view of the Node is
	known   []*corev1.Pod
	claims  []string // those of node.Detaching
	listed  bool     // a consistent list was made, or is on its way, since the mark held all
	pending bool
}

// poll asks for the Node until the first quorum read succeeds; from then on it is watched.
func (h *hook) poll() {
	if h.node.Read {
		return
	}
	if !h.k.m.away() {
		if n := h.k.m.w.api.node(h.k.m.name); n != nil {
			h.see(n, h.k.m.w.now)
		}
	}
	h.k.after(h.k.m.w.between(500*time.Millisecond, 1500*time.Millisecond), h.poll)
}

// changed is the watch on the own Node.
func (h *hook) changed() {
	if !h.node.Read || h.pending {
		return
	}
	h.pending = true
	w := h.k.m.w
	h.k.after(w.lag(), func() {
		h.pending = false
		if h.k.m.away() {
			h.k.after(time.Second, h.changed)
			return
		}
		at := w.now.Add(-w.lag())
		if at.Before(h.seen) {
			at = h.seen
		}
		if n := w.api.asOf(at).node(h.k.m.name); n != nil {
			h.see(n, at)
		}
		if at.Before(w.api.changed[nodes]) {
			h.changed()
		}
	})
}

// see takes a state of the Node in. A mark takes effect at once; its absence, and that it holds the pods of some
// volumes only, after a consistent list of the node's pods made since: a pod tombstoned under the mark must not start
// from an older one.
func (h *hook) see(n *corev1.Node, at time.Time) {
	w, m := h.k.m.w, h.k.m
	h.seen = at
	l := taint.NewLook(n, nil, taint.DefaultKey, taint.Instant{}, taint.Instant{})
	h.claims = l.DetachingClaims()
	if isReady(n) && n.Status.NodeInfo.BootID == m.bootID {
		h.node.ReadySeen = true
	}
	switch {
	case l.Mark != nil && len(h.claims) == 0:
		h.node.Read, h.node.Marked, h.node.Detaching, h.listed = true, true, false, false
	case !h.listed, l.Mark != nil && !h.node.Marked:
		h.node.Read, h.node.Marked, h.node.Detaching, h.listed = true, true, false, true
		h.k.after(w.between(time.Millisecond, 100*time.Millisecond), h.list)
	case h.node.Detaching:
		h.node.Marked, h.node.Detaching = l.Mark != nil, l.Mark != nil
	}
}

func (h *hook) list() {
	switch {
	case !h.listed:
	case h.k.m.away():
		h.k.after(time.Second, h.list)
	default:
		h.known = h.k.m.w.api.podsOn(h.k.m.name)
		h.node.Marked, h.node.Detaching = len(h.claims) > 0, len(h.claims) > 0
	}
}

// knows reports whether the consistent list has the pod unfinished. One that is not in it is read for the next attempt.
func (h *hook) knows(uid string) bool {
	has := func(p *corev1.Pod) bool { return string(p.UID) == uid && !taint.IsTerminal(p) }
	if slices.ContainsFunc(h.known, has) {
		return true
	}
	if h.listed && !h.k.m.away() {
		w := h.k.m.w
		h.k.after(w.between(time.Millisecond, 50*time.Millisecond), func() {
			if !h.listed || h.node.Marked && !h.node.Detaching || h.k.m.away() {
				return
			}
			for _, p := range w.api.podsOn(h.k.m.name) {
				if has(p) {
					h.known = append(slices.Clone(h.known), p)
				}
			}
		})
	}
	return false
}

// becomeReady ends a kubelet's own word that it is not Ready.
func (m *machine) becomeReady() {
	if m.k != nil && !m.k.ready {
		m.k.ready = true
		m.k.status()
	}
}
