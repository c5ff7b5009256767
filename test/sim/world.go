package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// build makes a cluster at rest: every node up and Ready, every workload running.
func (w *World) build() {
	w.limits = limits{
		slow:       []float64{0, 0.02, 0.1, 0.25}[w.rng.IntN(4)],
		bmcTrouble: []float64{0, 0.05, 0.3}[w.rng.IntN(3)],
		jolt:       []float64{0.01, 0.04, 0.12}[w.rng.IntN(3)],
		leaseGrace: w.between(15*time.Second, 45*time.Second),
		tolerate:   []int64{-1, 0, 5, 60, 300}[w.rng.IntN(5)],
		staleHook:  w.chance(0.5),
		events:     w.chance(0.6),
		lostEvents: w.chance(0.3),
	}
	w.storm, w.hints, w.wires = drawStorm(w.rng.script, w.Seed, w.Scenario),
		drawHints(w.rng.script, w.Seed, w.Scenario),
		wires{newDice(w.rng.script, w.Seed, 0x7769726573)}
	w.skew = drawSkew(w.rng.script, w.Seed)
	w.cloud = drawCloud(w.rng.script, w.Seed, w.Scenario)
	if w.Scenario == Cut {
		w.storm.plane, w.storm.limits.MinHealthy.Number, w.limits.jolt = 0, 0, 0.01
		w.storm.after.PowerOn, w.storm.after.PerDay = true, max(w.storm.after.PerDay, 1)
		w.storm.after.Again = []time.Duration{0, 10 * time.Minute}[w.Seed%2]
	}
	if w.chance(0.1) {
		w.limits.api = 6 * time.Second
	}
	if w.chance(0.2) {
		w.limits.large = "db-0"
	}
	if w.Seed%8 == 5 {
		w.limits.device = []time.Duration{4400, 4700, 4900}[w.Seed/8%3] * time.Millisecond
	}
	w.limits.overtime = w.Seed%7 == 3 // drawn, it would change what all other histories draw
	if w.Small != nil {
		w.Small.build(w)
	}
	w.check.begin()
	w.api = &server{w: w, maintenance: map[string]*coordinationv1.Lease{}}
	w.api.past = []state{{at: w.now.Add(-time.Hour)}}
	w.addNeighbours()
	for i := range w.storm.nodes {
		w.machines = append(w.machines, &machine{
			w: w, name: fmt.Sprintf("n%d", i+1), uuid: fmt.Sprintf("4c4c4544-0000-4000-8000-%012d", i+1),
			device: w.Scenario == Bare || !w.chance(0.08), second: w.chance(0.4), told: i > 0, power: true,
			switched: w.now.Add(-time.Hour),
		})
	}
	for i, m := range w.machines { // no draw: the other histories stay what they were
		m.split = m.second && w.Scenario != Lying && (w.Seed+uint64(i))%3 == 0
		m.limits = w.drawLimits()
	}
	w.drawRules()
	w.lodge()
	w.logf("%s, seed %d, limits %+v", w.Scenario, w.Seed, w.limits)
	w.buildObjects()
	w.addPool()
	w.near.start()

	w.addStock(w.runSets, pods)
	w.addStock(w.runScheduler, pods, nodes)
	w.detach = w.addStock(w.runAttachDetach, pods, nodes, attachments)
	ev := &eviction{w: w, timers: map[string]*timer{}}
	w.addStock(ev.run, pods, nodes)
	lc := &lifecycle{w: w, rv: map[string]string{}, from: map[string]time.Time{}}
	w.after(time.Second, lc.tick)

	trust := w.chance(0.15)
	overtime := evict.Alert
	if w.limits.overtime {
		overtime = [...]evict.OnDetachTimeout{evict.ForceDetach, evict.TakeOutOfService}[w.rng.IntN(2)]
	}
	for i := range 2 {
		w.procs = append(w.procs, &Process{
			w: w, name: fmt.Sprintf("ff-%d", i), index: i,
			fence: fence.Settings{
				PowerOffAfter:   w.between(10*time.Second, 30*time.Second),
				PowerOffTimeout: w.between(15*time.Second, 60*time.Second),
				Retry:           w.between(10*time.Second, 60*time.Second), Quorum: w.storm.quorum,
				Cordoned: w.rules.cordoned, AfterFence: w.storm.after,
			},
			evict: evict.Settings{DetachTimeout: w.between(10*time.Second, 5*time.Minute), OnDetachTimeout: overtime,
				TrustPerson: trust},
		})
	}
	w.addUser()
	if w.cloud.deletes && w.Small == nil {
		w.after(time.Second, w.cloudTick)
	}
	w.loseLeases()
	w.renameHost()
	w.procs[1].begin()
	w.procs[0].lead()
}

// buildObjects stores the objects and starts what they say.
func (w *World) buildObjects() {
	var common []corev1.Toleration
	if s := w.limits.tolerate; s >= 0 {
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			common = append(common, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: &s,
			})
		}
	}
	for i := range 2 + w.rng.IntN(2) {
		w.ids = append(w.ids, identity{
			name: fmt.Sprintf("db-%d", i), volume: fmt.Sprintf("vol-%d", i), tolerations: common,
			finalizer: w.chance(0.08),
		})
	}
	if w.Seed%4 == 1 { // it goes before the other pods
		w.ids[0].priority = 1000
	}
	web := 1 + w.rng.IntN(2)
	if w.storm.many {
		web = w.storm.nodes - len(w.ids)
	}
	for i := range web {
		w.ids = append(w.ids, identity{name: fmt.Sprintf("web-%d", i), tolerations: common})
	}
	for i, m := range w.machines {
		w.booted++
		m.run = fmt.Sprintf("boot-%d", w.booted)
		if m.bootID, m.contained = m.run, !m.second && w.chance(0.3); m.contained {
			m.bootID = "boot-of-its-host"
		}
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: w.storm.labelsOf(i),
				Annotations: map[string]string{noteBMC: m.name}}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: m.bootID, SystemUUID: m.uuid}
		setReady(n, corev1.ConditionTrue, w.now)
		setHeartbeat(n, w.now)
		_ = w.api.createNode(n)
		_ = w.api.renew(m.name, "")
	}
	spread := 2
	if w.storm.many { // a node without a pod is not fenced
		spread = w.storm.nodes
	}
	for i, id := range w.ids {
		w.place(w.newPod(id), w.machines[i%spread])
	}
	for _, m := range w.machines {
		yes := true
		w.place(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "cni-" + m.name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "cni", Controller: &yes}}},
			Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{
					{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}},
		}, m)
		w.place(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "static-" + m.name, Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}},
			Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{
					{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}},
		}, m)
	}
	w.place(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stays"}, Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes:     []corev1.Volume{claim("vol-stays")},
	}}, w.machines[0])
	w.place(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, w.machines[0])

	for _, m := range w.machines {
		var attached []corev1.AttachedVolume
		var inUse []corev1.UniqueVolumeName
		for _, v := range m.mounted {
			w.api.putAttachment(&storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: attachmentName(v, m.name)},
				Status:     storagev1.VolumeAttachmentStatus{Attached: true},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: "sim", NodeName: m.name,
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v}},
			})
			attached = append(attached, corev1.AttachedVolume{Name: unique(v)})
			inUse = append(inUse, unique(v))
		}
		_ = w.api.patchNode("kubelet", m.name, "", func(n *corev1.Node) {
			n.Status.VolumesAttached, n.Status.VolumesInUse = attached, inUse
		})
		m.startKubelet()
		m.k.ready, m.k.wanted = true, slices.Clone(m.mounted)
		m.k.look()
	}
}

// place stores a pod as running on m.
func (w *World) place(p *corev1.Pod, m *machine) {
	p.Namespace, p.Spec.NodeName = "default", m.name
	if p.Status.Phase != corev1.PodSucceeded {
		p.Status.Phase = corev1.PodRunning
		setPodReady(p, corev1.ConditionTrue, "")
	}
	_ = w.api.createPod(p)
	if p.Status.Phase == corev1.PodRunning && !isMirror(p) {
		m.running = append(m.running, &container{name: p.Name, uid: string(p.UID), volumes: volumesOf(p)})
		m.mounted = append(m.mounted, volumesOf(p)...)
		slices.Sort(m.mounted)
	}
}

// marked reports whether the node carries the mark, whosever.
func (m *machine) marked() bool {
	n := m.w.api.node(m.name)
	if n == nil {
		return false
	}
	_, ok := taint.FindMark(n, taint.DefaultKey, "")
	return ok
}

// scheduleFaults spreads trouble over the time until end: one node is hit for sure, the rest is chance.
func (w *World) scheduleFaults(end time.Time) {
	first := w.machines[w.rng.IntN(2)]
	if w.Scenario == Lying {
		if first.device = true; first.second && w.chance(0.5) {
			first.liar = 1
		}
		w.after(w.between(2*time.Second, 15*time.Second), func() {
			first.lies = true
			if w.hints.flaps {
				w.flap(first)
			}
			if w.hints.alone {
				w.count("polled, alive, and its device lies")
				w.logf("%s: device %d begins to lie", first.name, first.liar)
				return
			}
			if first.k != nil && w.chance(0.4) {
				first.k.ready = false
				first.k.status()
				w.count("NotReady, beating, and its device lies")
				w.logf("%s: its runtime fails, its kubelet beats on, and device %d begins to lie", first.name,
					first.liar)
				return
			}
			first.cut = true
			w.logf("%s: cut off, and device %d begins to lie", first.name, first.liar)
		})
	}
	if w.chance(0.15) {
		forger, victim := w.machines[w.rng.IntN(3)], w.machines[w.rng.IntN(3)]
		w.after(w.between(2*time.Second, end.Sub(w.now)/2), func() { w.forge(forger, victim) })
	}
	if w.chance(0.25) {
		w.after(w.between(0, end.Sub(w.now)/2), func() { w.outage(w.between(10*time.Second, 2*time.Minute)) })
	}
	w.after(w.between(2*time.Second, 25*time.Second), func() { w.trouble(first) })
	n := w.rng.IntN(12)
	if w.storm.many {
		n = w.rng.IntN(4)
		storm := w.silence
		if w.storm.severed {
			storm = w.sever
		}
		w.after(w.between(2*time.Second, 30*time.Second), storm)
	}
	w.changeModes(end)
	w.partitions(end)
	if w.near != nil {
		n /= 8
		w.near.schedule(end)
	}
	if w.Scenario == Cut {
		n /= 8
		for i := range 4 { // in turns, so that there is something to move again
			at, m := time.Duration(i+1)*90*time.Second, w.machines[(slices.Index(w.machines, first)+1+i)%2]
			w.after(at+w.between(0, 30*time.Second), func() { w.trouble(m) })
		}
	}
	for range n {
		w.after(w.between(5*time.Second, end.Sub(w.now)),
			func() { w.anyFault(w.machines[w.rng.IntN(len(w.machines))]) })
	}
}

// loseLeases makes the API server refuse the renewals of one node's Lease for a while, in every seventh history. Its
// kubelet goes on writing the Node's status.
func (w *World) loseLeases() {
	if w.Small != nil || w.Seed%7 != 3 {
		return
	}
	rng := rand.New(rand.NewPCG(w.Seed, 0x6c65617365))
	m := w.machines[rng.IntN(len(w.machines))]
	at := 10*time.Second + time.Duration(rng.Int64N(int64(30*time.Second)))
	w.after(at, func() {
		if w.calm {
			return
		}
		w.count("Lease alone refused")
		w.logf("%s: renewals of its Lease are refused", m.name)
		m.leaseless = true
	})
}

// outage is an API server that nobody reaches: no kubelet, no controller, nor we.
func (w *World) outage(d time.Duration) {
	if w.calm || w.down {
		return
	}
	w.count("outage")
	w.logf("the API server is away for %s", d)
	w.down = true
	w.after(d, w.endOutage)
}

func (w *World) endOutage() {
	if !w.down {
		return
	}
	w.logf("the API server is back")
	w.down = false
	for _, c := range w.stock {
		c.wake()
	}
}

// trouble is what makes a node look dead.
func (w *World) trouble(m *machine) {
	if w.Scenario == Cut && w.chance(0.9) {
		w.logf("%s: cut off from the API server", m.name)
		m.cut = true
		return
	}
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		m.cutPower("trouble")
	case 3:
		w.logf("%s: cut off from the API server", m.name)
		m.cut = true
	case 4:
		w.logf("%s: kubelet hangs", m.name)
		m.hung = m.power
	case 5:
		w.reboot(m)
	}
}

func (w *World) reboot(m *machine) {
	m.cutPower("reboot")
	w.after(w.between(10*time.Millisecond, 5*time.Second), func() { m.powerOn("reboot") })
}

// jolt is a fault right at an act of ours: that is where the races are.
func (w *World) jolt(p *Process, m *machine) {
	if w.calm || w.Small != nil || !w.chance(w.limits.jolt) {
		return
	}
	d := w.between(0, 50*time.Millisecond)
	if w.chance(0.5) {
		d = w.between(0, 4*time.Second)
	}
	if w.chance(0.3) { // the request that follows is long on its way, and meanwhile the machine is back
		p.heldUp = w.between(time.Second, 30*time.Second)
		w.count("held up")
		w.after(d, func() { w.heal(m); m.powerOn("held up") })
		return
	}
	w.after(d, func() {
		if w.calm {
			return
		}
		if w.chance(0.3) {
			w.say(m)
		}
		switch w.rng.IntN(8) {
		case 0:
			p.crash()
		case 1:
			d := w.between(100*time.Millisecond, 5*time.Second)
			if w.chance(0.5) {
				d = w.between(5*time.Second, 40*time.Second)
			}
			p.pause(d)
		case 2, 3:
			m.powerOn("jolt")
		case 4:
			w.reboot(m)
		case 5:
			m.cutPower("jolt")
		default:
			w.anyFault(m)
		}
	})
}

// holdUp keeps a tombstone on its way until its node may have come back and been let go: the worst moment for it to
// land.
func (w *World) holdUp(p *Process, m *machine) {
	d := time.Duration(0)
	switch {
	case w.calm:
	case w.Small == nil && w.chance(0.3):
		d = w.between(5*time.Second, 40*time.Second)
	case w.Small != nil: // around the time at which its node is let go
		if i := w.rng.step(25); i > 0 {
			d = 9*time.Second + time.Duration(i)*500*time.Millisecond
		}
	}
	if d == 0 {
		return
	}
	w.count("tombstone held up")
	p.heldUp = d
	w.after(w.between(0, 2*time.Second), func() { w.heal(m); m.powerOn("held up") })
	if w.chance(0.3) {
		w.after(w.between(0, 2*time.Second), func() { p.pause(w.between(10*time.Second, 60*time.Second)) })
	}
}

// anyFault is one of everything that may happen to a node or to us.
func (w *World) anyFault(m *machine) {
	if w.calm {
		return
	}
	if m.device && m.second && w.chance(0.1) { // one of its devices goes down, and the other comes back
		which := w.rng.IntN(2)
		m.deaf = [3]bool{which == 0, which == 1, which == 1 && !m.power}
		w.count("one device down")
		w.logf("%s: device %d is down", m.name, which)
	}
	if w.chance(0.3) {
		w.say(m)
	}
	switch w.rng.IntN(16) {
	case 0, 1:
		w.trouble(m)
	case 2, 3:
		m.powerOn("fault")
	case 4:
		w.reboot(m)
	case 5:
		w.heal(m)
	case 6:
		w.procs[w.rng.IntN(len(w.procs))].crash()
	case 7:
		w.procs[w.rng.IntN(len(w.procs))].pause(w.between(time.Second, 40*time.Second))
	case 8: // leadership moves, and the old leader did not notice
		p := w.procs[w.rng.IntN(len(w.procs))]
		if p.leading {
			w.logf("%s: loses the lease unnoticed", p.name)
			w.elect(p)
		}
	case 9: // somebody else writes the Node
		_ = w.api.patchNode("someone", m.name, "", func(n *corev1.Node) { label(n, "touched", w.id("t")) })
	case 10:
		w.api.dropFinalizers(w.ids[w.rng.IntN(len(w.ids))].name)
	default:
		w.person(m)
	}
}

// heal ends what separates a running machine from the cluster.
func (w *World) heal(m *machine) {
	if m.cut || m.hung {
		w.logf("%s: healed", m.name)
	}
	m.cut, m.hung, m.leaseless, m.troubled = false, false, false, w.now
	if m.k != nil {
		m.k.wake(w.lag())
		m.k.hook.changed()
	}
}

// person is somebody with kubectl.
func (w *World) person(m *machine) {
	n := w.api.node(m.name)
	if n == nil || w.down {
		return
	}
	mark, marked := taint.FindMark(n, taint.DefaultKey, "")
	mine := func(t corev1.Taint) bool { return t.Key == taint.DefaultKey }
	rec, _ := taint.RecordOf(n)
	switch w.rng.IntN(7) {
	case 0, 1, 2: // kubectl taint
		if marked {
			return
		}
		value := ""
		if w.chance(0.7) {
			value = w.id("manual")
		}
		w.check.byPerson[value] = true
		w.count("person marks")
		w.logf("person: marks %s with %q", m.name, value)
		_ = w.api.patchNode("person", m.name, "", func(n *corev1.Node) {
			n.Spec.Taints = append(slices.Clone(n.Spec.Taints),
				corev1.Taint{Key: taint.DefaultKey, Value: value, Effect: corev1.TaintEffectNoSchedule})
		})
	case 3: // edits the value
		if !marked || w.chance(0.5) {
			return
		}
		value := w.id("edited")
		w.check.byPerson[value] = true
		w.count("person edits")
		w.logf("person: edits the mark of %s from %q to %q", m.name, mark.Value, value)
		m.override(rec, "a person edited our mark")
		_ = w.api.patchNode("person", m.name, "", func(n *corev1.Node) {
			n.Spec.Taints = append(slices.DeleteFunc(slices.Clone(n.Spec.Taints), mine),
				corev1.Taint{Key: taint.DefaultKey, Value: value, Effect: corev1.TaintEffectNoSchedule})
		})
	case 4: // takes the mark off
		if !marked || w.chance(0.5) {
			return
		}
		w.count("person unmarks")
		w.logf("person: takes the mark off %s", m.name)
		m.override(rec, "a person took our mark off")
		_ = w.api.patchNode("person", m.name, "", func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), mine)
		})
	case 5: // breaks the record
		if rec == nil || w.chance(0.7) {
			return
		}
		w.count("person breaks record")
		w.logf("person: breaks the record of %s", m.name)
		_ = w.api.patchNode("person", m.name, "", func(n *corev1.Node) { setRecord(n, `{"phase":"Perhaps"}`) })
	case 6:
		switch {
		case marked && w.chance(0.3):
			w.release(m)
		case !marked && !m.power && w.chance(0.3): // an admission policy denies it under the mark
			w.count("node deleted")
			w.logf("person: deletes node %s", m.name)
			m.excused = "its Node was deleted: podgc is not modelled"
			w.api.deleteNode(m.name)
		}
	}
}

// override notes that a person took an eviction in progress out of our hands.
func (m *machine) override(r *taint.Record, why string) {
	if r.IsOpen() && r.Phase == taint.PhaseEvicting && m.excused == "" {
		m.excused = why
		m.w.logf("%s: excused: %s", m.name, why)
	}
}

// release is `forcefence release NODE --yes`: the way out of a mark that cannot end by itself.
func (w *World) release(m *machine) {
	n := w.api.node(m.name)
	if n == nil {
		return
	}
	w.count("release")
	w.logf("person: releases %s", m.name)
	rec, err := taint.RecordOf(n)
	m.override(rec, "a person released it")
	if err != nil && m.excused == "" {
		m.excused = "a person released a broken record"
	}
	r := taint.Record{ID: "release", NodeUID: string(n.UID), By: taint.ByPerson, Since: w.now}
	if rec != nil {
		r = *rec
	}
	_ = w.api.patchNode("person", m.name, n.ResourceVersion, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(taint.WithoutOutOfService(n.Spec.Taints),
			func(t corev1.Taint) bool { return t.Key == taint.DefaultKey })
		setRecord(n, r.EnterPhase(taint.PhaseDone, taint.ResultReleased, w.now).Encode())
	})
}

// calmDown ends every fault. Machines stay as they are or are switched on; what needs a person gets one.
func (w *World) calmDown() {
	w.calm = true
	clear(w.hints.apart)
	w.pool.calm()
	w.near.calm()
	w.endOutage()
	if w.twin != nil {
		w.twin.gone = true
	}
	for _, p := range w.procs {
		p.leading = false
		p.begin()
	}
	w.procs[0].lead()
	for i, m := range w.machines {
		m.lies = false
		if m.lodged != nil { // its hosts cannot tell of a guest that was shut off
			m.deaf = [3]bool{}
		}
		if n := w.api.node(m.name); n != nil {
			if r, _ := taint.RecordOf(n); r.IsOpen() && r.Device != "" && r.Device != "bmc/"+m.name {
				// begun when the first was not believed, or another was led to: only the second speaks for this fence
				m.deaf[1] = false
			}
		}
		w.heal(m)
		w.mend(m)
		m.becomeReady()
		if i == 2 || w.chance(0.5) {
			w.after(w.between(0, 20*time.Second), func() { m.powerOn("calm") })
		}
		if n := w.api.node(m.name); n == nil {
			m.powerOn("calm")
		} else if _, err := taint.RecordOf(n); err != nil {
			w.after(w.between(10*time.Second, 30*time.Second), func() { w.release(m) })
		}
	}
	w.unsayAll()
	w.people()
	w.finalize()
}

// people go round every five minutes and switch on what we may not move: a machine that no device speaks for, whose
// device is distrusted, whose identity was forged, or whose fence a person released. The last machine is always wanted:
// with all of them off nobody is fenced.
func (w *World) people() {
	w.after(5*time.Minute, func() {
		w.check.hung()
		w.near.people()
		for i, m := range w.machines {
			distrusted, released := false, false
			if n := w.api.node(m.name); n != nil {
				if r, _ := taint.RecordOf(n); r != nil {
					distrusted, released = len(r.DistrustedDevices()) > 0, r.Result == taint.ResultReleased
				}
			}
			if m.forged && m.marked() { // no device may speak for it any more
				w.release(m)
			}
			if i == 2 || !m.device && !m.second || m.forged || distrusted || released {
				m.powerOn("people")
			}
		}
		w.people()
	})
}

// finalize is whoever owns the finalizers, done within a minute.
func (w *World) finalize() {
	w.after(w.between(0, time.Minute), func() {
		for _, id := range w.ids {
			w.api.dropFinalizers(id.name)
		}
		w.finalize()
	})
}
