package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

// controller is one of the stock controllers: woken by writes, it acts on caches that are behind, each by an amount of
// its own.
type controller struct {
	w       *World
	wants   [kinds]bool
	seen    [kinds]time.Time
	pending bool
	run     func(v *state)
}

func (w *World) addStock(run func(*state), of ...kind) *controller {
	c := &controller{w: w, run: run}
	for _, k := range of {
		c.wants[k] = true
	}
	w.stock = append(w.stock, c)
	return c
}

func (c *controller) wake() {
	if c.pending {
		return
	}
	c.pending = true
	c.w.after(c.w.lag(), func() {
		c.pending = false
		if c.w.down {
			return // it is woken when the API server is back
		}
		var v state
		behind := false
		for k := kind(0); k < kinds; k++ {
			at := c.w.now.Add(-c.w.lag())
			if at.Before(c.seen[k]) {
				at = c.seen[k]
			}
			c.seen[k] = at
			behind = behind || c.wants[k] && at.Before(c.w.api.changed[k])
			old := c.w.api.asOf(at)
			switch k {
			case nodes:
				v.nodes = old.nodes
			case pods:
				v.pods = old.pods
			case attachments:
				v.attachments = old.attachments
			case leases:
				v.leases = old.leases
			}
		}
		c.run(&v)
		if behind {
			c.wake()
		}
	})
}

// identity is a pod of a StatefulSet.
type identity struct {
	name        string
	volume      string // its claim's volume; "" for none
	finalizer   bool
	tolerations []corev1.Toleration
	priority    int32
}

// runSets is the StatefulSet controller: it creates what is missing, and deletes by name what has failed.
func (w *World) runSets(v *state) {
	for _, id := range w.ids {
		switch p := v.pod(id.name); {
		case p == nil:
			if w.api.createPod(w.newPod(id)) == nil {
				w.logf("statefulset: creates %s", id.name)
			}
		case taint.IsTerminal(p) && p.DeletionTimestamp == nil:
			if w.api.deletePod("statefulset", id.name, "", "", 30) == nil {
				w.logf("statefulset: deletes %s", id.name)
			}
		}
	}
}

func (w *World) newPod(id identity) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: id.name, Namespace: "default",
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "set", Controller: &yes}},
	}}
	p.Spec.Tolerations, p.Spec.Priority = id.tolerations, &id.priority
	if id.volume != "" {
		p.Spec.Volumes = []corev1.Volume{claim(id.volume)}
	}
	if id.finalizer {
		p.Finalizers = []string{"example.com/slow"}
	}
	p.Status.Phase = corev1.PodPending
	return p
}

func claim(volume string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
	}}
}

func volumesOf(p *corev1.Pod) []string {
	var out []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return out
}

func unique(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/sim^" + volume)
}

func attachmentName(volume, node string) string { return volume + "@" + node }

func isMirror(p *corev1.Pod) bool {
	return taint.ExemptionOf(p, taint.DefaultKey) == taint.ExemptStatic
}

// runScheduler binds pods to nodes that its cache shows without a taint the pod does not tolerate, Ready or not.
func (w *World) runScheduler(v *state) {
	for _, p := range v.pods {
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
			continue
		}
		var fit []string
		for _, n := range v.nodes {
			refused := func(t corev1.Taint) bool { return !toleratesAll(p.Spec.Tolerations, t) }
			if !slices.ContainsFunc(n.Spec.Taints, refused) {
				fit = append(fit, n.Name)
			}
		}
		if len(fit) == 0 {
			continue
		}
		if w.Small != nil { // the emptiest first: what comes back to its node shows nothing
			slices.Reverse(fit)
		}
		to := fit[w.rng.IntN(len(fit))]
		live := w.api.pod(p.Name)
		if live == nil || live.UID != p.UID || live.Spec.NodeName != "" {
			continue
		}
		if w.api.patchPod("scheduler", p.Name, string(p.UID), "", func(p *corev1.Pod) { p.Spec.NodeName = to }) == nil {
			w.logf("scheduler: binds %s (%s) to %s", p.Name, p.UID, to)
			if w.machine(to).marked() {
				w.check.late[string(p.UID)] = true
			}
		}
	}
}

func toleratesAll(ts []corev1.Toleration, t corev1.Taint) bool {
	return slices.ContainsFunc(ts, func(tol corev1.Toleration) bool {
		return (tol.Key == "" || tol.Key == t.Key) && (tol.Effect == "" || tol.Effect == t.Effect) &&
			(tol.Operator == corev1.TolerationOpExists || tol.Value == t.Value)
	})
}

// runAttachDetach attaches what bound pods need, a volume to one node at a time, and detaches what none needs and no
// kubelet reports in use. One in use it detaches from a node that is not Ready, six minutes after it began to want that
// (F4). It writes volumesAttached whole at each change of its own (F5).
func (w *World) runAttachDetach(v *state) {
	type want struct{ volume, node string }
	wanted := map[want]bool{}
	for _, p := range v.pods {
		if p.Spec.NodeName == "" || taint.IsTerminal(p) {
			continue
		}
		for _, vol := range volumesOf(p) {
			wanted[want{vol, p.Spec.NodeName}] = true
		}
	}
	for _, a := range w.api.attachments {
		vol, node := *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName
		if wanted[want{vol, node}] {
			delete(w.unwanted, a.Name)
			continue
		}
		if a.DeletionTimestamp != nil {
			continue
		}
		n := v.node(node)
		out := n != nil && taint.IsOutOfService(n.Spec.Taints)
		if !out && w.overlooks(a) {
			continue
		}
		if w.unwanted[a.Name].IsZero() {
			w.unwanted[a.Name] = w.now
		}
		if n != nil && !out && slices.Contains(n.Status.VolumesInUse, unique(vol)) {
			c := readyOf(n)
			if c == nil || c.Status == corev1.ConditionTrue {
				continue
			}
			if left := 6*time.Minute - w.now.Sub(w.unwanted[a.Name]); left > 0 {
				w.detach.later(left)
				continue
			}
			w.count("forced detach")
		}
		if left := w.unmountWait(node, vol, w.unwanted[a.Name]); n == nil && left > 0 {
			w.detach.later(left)
			continue
		}
		w.startDetach(a, v.node(node))
	}
	for _, p := range v.pods {
		if p.Spec.NodeName == "" || taint.IsTerminal(p) {
			continue
		}
		for _, vol := range volumesOf(p) {
			w.attach(vol, p.Spec.NodeName)
		}
	}
}

// overlooks reports that the controller does not get to detaching this attachment, for minutes: the histories in which
// somebody else has to.
func (w *World) overlooks(a *storagev1.VolumeAttachment) bool {
	if !w.limits.overtime || w.calm {
		return false
	}
	until, known := w.overlooked[a.UID]
	if !known {
		if w.chance(0.5) {
			until = w.now.Add(w.between(time.Minute, 10*time.Minute))
		}
		if w.overlooked == nil {
			w.overlooked = map[types.UID]time.Time{}
		}
		w.overlooked[a.UID] = until
	}
	if left := until.Sub(w.now); left > 0 {
		w.detach.later(left)
		return true
	}
	return false
}

// attach makes a VolumeAttachment unless the volume has one already, anywhere.
func (w *World) attach(vol, node string) {
	for _, a := range w.api.attachments {
		if *a.Spec.Source.PersistentVolumeName == vol {
			return
		}
	}
	if w.api.node(node) == nil {
		return
	}
	name := attachmentName(vol, node)
	w.api.putAttachment(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(w.id("va-"))},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "sim", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &vol},
		},
	})
	w.after(w.between(20*time.Millisecond, time.Second), func() {
		a := w.api.attachment(name)
		if a == nil || a.DeletionTimestamp != nil || a.Status.Attached {
			return
		}
		b := *a
		b.Status.Attached = true
		w.api.putAttachment(&b)
		w.logf("attach/detach: attached %s to %s", vol, node)
		w.writeAttached(node, nil)
	})
}

// startDetach takes the volume out of volumesAttached, then detaches it.
func (w *World) startDetach(a *storagev1.VolumeAttachment, cached *corev1.Node) {
	name, node := a.Name, a.Spec.NodeName
	b := *a
	at := metav1.NewTime(w.now)
	b.DeletionTimestamp = &at
	w.api.putAttachment(&b)
	w.writeAttached(node, cached)
	d := w.between(20*time.Millisecond, time.Second)
	if !w.calm && w.chance(0.1) {
		d = w.between(time.Second, 2*time.Minute)
	}
	w.after(d, func() {
		if a := w.api.attachment(name); a != nil && a.DeletionTimestamp != nil && a.Spec.Attacher != goneDriver {
			w.logf("attach/detach: detached %s", name)
			w.api.dropAttachment(name)
		}
	})
}

// writeAttached reports a node's attached volumes, whole. It writes what differs from the node in its cache, if that is
// given, so that the second of two writes may be left out: a volume that the first one wrote back stays listed, though
// it is detached (F5).
func (w *World) writeAttached(node string, cached *corev1.Node) {
	var list []corev1.AttachedVolume
	for _, a := range w.api.attachmentsOf(node) {
		if a.Status.Attached && a.DeletionTimestamp == nil {
			list = append(list, corev1.AttachedVolume{Name: unique(*a.Spec.Source.PersistentVolumeName)})
		}
	}
	if cached != nil && slices.Equal(volumeNames(cached.Status.VolumesAttached), volumeNames(list)) {
		return
	}
	_ = w.api.patchNode("attach/detach", node, "", func(n *corev1.Node) { n.Status.VolumesAttached = list })
}

func volumeNames(list []corev1.AttachedVolume) (names []corev1.UniqueVolumeName) {
	for _, a := range list {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// later wakes the controller once more, where nothing else would.
func (c *controller) later(d time.Duration) {
	c.w.after(d, func() { c.wake() })
}

// drawSkew draws how far the controller-manager's clock is ahead of ours: in half of the histories it is not. It has a
// generator of its own: what it draws changes no other draw.
func drawSkew(d *script, seed uint64) time.Duration {
	r := newDice(d, seed, 0x736b6577)
	if r.IntN(2) == 0 {
		return 0
	}
	return time.Duration(r.IntN(151)-90) * time.Second
}

// lifecycle is the node lifecycle controller: Ready becomes Unknown when the Lease is not renewed, and taints follow
// Ready within three seconds.
type lifecycle struct {
	w    *World
	rv   map[string]string
	from map[string]time.Time
}

func (l *lifecycle) tick() {
	w := l.w
	if w.down {
		w.after(time.Second, l.tick)
		return
	}
	for _, n := range slices.Clone(w.api.nodes) {
		rv := ""
		if lease := w.api.lease(n.Name); lease != nil {
			rv = lease.ResourceVersion
		}
		if at, ok := l.from[n.Name]; !ok || at.IsZero() || l.rv[n.Name] != rv {
			l.rv[n.Name], l.from[n.Name] = rv, w.now
		}
		c := readyOf(n)
		if c != nil && c.Status != corev1.ConditionUnknown && w.now.Sub(l.from[n.Name]) > w.limits.leaseGrace {
			_ = w.api.patchNode("lifecycle", n.Name, "",
				func(n *corev1.Node) { setReady(n, corev1.ConditionUnknown, w.now) })
			w.logf("lifecycle: %s is Unknown", n.Name)
		}
		w.after(w.between(0, 3*time.Second), func() { l.taint(n.Name) })
	}
	w.after(w.between(time.Second, 5*time.Second), l.tick)
}

func (l *lifecycle) taint(node string) {
	w := l.w
	n := w.api.node(node)
	if n == nil || w.down {
		return // gone meanwhile; or the next tick does it
	}
	want := ""
	switch c := readyOf(n); {
	case c == nil || c.Status == corev1.ConditionUnknown:
		want = corev1.TaintNodeUnreachable
	case c.Status == corev1.ConditionFalse:
		want = corev1.TaintNodeNotReady
	}
	mine := func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
	}
	has := ""
	for _, t := range n.Spec.Taints {
		if mine(t) {
			has = t.Key
		}
	}
	if has == want {
		return
	}
	_ = w.api.patchNode("lifecycle", node, "", func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), mine)
		if want != "" {
			at := metav1.NewTime(w.now.Add(w.skew))
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: want, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at},
				corev1.Taint{Key: want, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at})
		}
	})
	w.logf("lifecycle: %s taint %q", node, want)
}

// eviction is the stock taint-eviction controller: it queues deletions by name, and one whose time has come cannot be
// called back.
type eviction struct {
	w      *World
	timers map[string]*timer
}

type timer struct {
	uid   string
	node  string
	since metav1.Time // when the taint landed that set it, by the controller-manager's clock
	due   time.Time   // by ours
	again bool        // the pod had been deleted before: nothing on it tells when this one has been done
	fired bool
}

func (e *eviction) run(v *state) {
	w := e.w
	for name, t := range e.timers {
		if p := v.pod(name); !t.fired && (p == nil || string(p.UID) != t.uid) {
			delete(e.timers, name)
		}
	}
	for _, n := range v.nodes {
		var harmful []corev1.Taint
		for _, t := range n.Spec.Taints {
			if t.Effect == corev1.TaintEffectNoExecute {
				harmful = append(harmful, t)
			}
		}
		for _, p := range v.podsOn(n.Name) {
			t := e.timers[p.Name]
			if len(harmful) == 0 {
				if t != nil && !t.fired && t.uid == string(p.UID) {
					delete(e.timers, p.Name)
				}
				continue
			}
			if t != nil && t.uid == string(p.UID) {
				continue
			}
			after, ends := patience(p.Spec.Tolerations, harmful)
			if !ends {
				continue
			}
			t = &timer{uid: string(p.UID), node: n.Name, since: *harmful[0].TimeAdded, fired: after <= 0,
				again: p.DeletionTimestamp != nil}
			e.timers[p.Name] = t
			t.due = t.since.Add(after - w.skew)
			w.after(t.due.Sub(w.now), func() { e.due(p.Name, t) })
		}
	}
}

func (e *eviction) due(name string, t *timer) {
	if e.timers[name] != t {
		return
	}
	t.fired = true
	e.w.after(e.w.between(0, 4*time.Second), func() {
		w := e.w
		if p := w.api.pod(name); p != nil {
			w.check.stockDelete(p, t)
			w.logf("taint-eviction: deletes %s (queued %s, is %s)", name, t.uid, p.UID)
			_ = w.api.deletePod("taint-eviction", name, "", "", 30)
		}
		if e.timers[name] == t {
			t.fired = false
		}
	})
}

// patience is how long a pod may stay under the taints; ends is false where it may stay for good.
func patience(ts []corev1.Toleration, harmful []corev1.Taint) (d time.Duration, ends bool) {
	d = -1
	for _, t := range harmful {
		tolerated := false
		for _, tol := range ts {
			if !toleratesAll([]corev1.Toleration{tol}, t) {
				continue
			}
			tolerated = true
			if tol.TolerationSeconds != nil {
				if s := time.Duration(max(*tol.TolerationSeconds, 0)) * time.Second; d < 0 || s < d {
					d = s
				}
			}
		}
		if !tolerated {
			return 0, true
		}
	}
	return d, d >= 0
}
