package sim

import (
	"cmp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	nodeclaim "github.com/forcefence/forcefence/taint/features/karpenter/claim"
)

// neighbours are the other projects' controllers of a history: a storage system with CSI-Addons' manager
// (networkfence.go), Karpenter (karpenter.go), NodeHealthCheck (requests.go) and Metal3's operator (orderLate). People
// edit the objects of each. Nodes fall silent, one after the other or together, and come back.
type neighbours struct {
	w       *World
	storage *storageSystem
	claims  map[string]*nodeclaim.Claim // by machine: the NodeClaim of its instance
	launch  int                         // names instances
	deleted map[string]time.Time        // by the NodeClaim's UID: when it was deleted

	configured time.Time // from when on forcefence follows requests, and hands nodes over

	paused   bool          // NodeHealthCheck is
	delay    time.Duration // for how long a node must be Ready before its request is deleted
	requests []*healthRequest
}

// work is what a process has under way for the neighbours. A crash loses it.
type work struct {
	busy map[string]bool      // by object
	due  map[string]time.Time // when the object is looked at again
}

// takeUp reports whether the object is to be looked at now. The caller ends that with putDown.
func (p *Process) takeUp(object string) bool {
	if p.work.busy[object] || p.w.now.Before(p.work.due[object]) {
		return false
	}
	p.work.busy[object] = true
	return true
}

// putDown lets the object be looked at again after d.
func (p *Process) putDown(object string, d time.Duration) {
	p.work.busy[object], p.work.due[object] = false, p.w.now.Add(d)
}

// readAll puts reads on their way, one after the other; each runs at the server.
func (p *Process) readAll(then func(error), reads ...func()) {
	if len(reads) == 0 {
		then(nil)
		return
	}
	p.call(func() error { reads[0](); return nil }, func(err error) {
		if err != nil {
			then(err)
			return
		}
		p.readAll(then, reads[1:]...)
	})
}

// tendNeighbours takes what forcefence does beside the nodes' courses one step further.
func (p *Process) tendNeighbours() {
	if p.w.near == nil || p.w.down {
		return
	}
	p.followFences()
	if p.w.now.Before(p.w.near.configured) {
		return
	}
	p.followRequests()
	for _, k := range p.workers {
		k.handOver()
	}
}

// addNeighbours makes the neighbours of a history that has them.
func (w *World) addNeighbours() {
	if w.Scenario != Neighbours {
		return
	}
	w.near = &neighbours{w: w, claims: map[string]*nodeclaim.Claim{}, deleted: map[string]time.Time{}}
	w.near.storage = newStorageSystem(w)
	w.storm.nodes, w.storm.plane, w.storm.limits.MinHealthy.Number = 5, 0, []int{0, 2, 3}[w.rng.IntN(3)]
	w.limits.api /= 2  // a look makes one read more
	if w.chance(0.6) { // pods stay for a while
		w.limits.tolerate = 300
	}
	if w.chance(0.5) {
		w.near.delay = w.between(time.Minute, 3*time.Minute)
	}
}

// start begins what the neighbours do by themselves.
func (n *neighbours) start() {
	if n == nil {
		return
	}
	n.healthCheck()
	n.watch()
}

// tick is how often watch looks.
const tick = time.Second

// watch notes what a leader could have seen, and done.
func (n *neighbours) watch() {
	w := n.w
	w.after(tick, n.watch)
	led := !w.down && w.leader >= 0 && w.procs[w.leader].watches()
	n.watchOutages()
	n.watchOrders(led)
}

// address is that of the machine's clients of the storage.
func (m *machine) address() string { return "10.0.0." + strings.TrimPrefix(m.name, "n") + "/32" }

// register completes a new Node, as the cloud and Karpenter do.
func (n *neighbours) register(o *corev1.Node) {
	if n == nil {
		return
	}
	o.CreationTimestamp = metav1.NewTime(n.w.now.Truncate(time.Second))
	o.Status.Addresses = []corev1.NodeAddress{{
		Type: corev1.NodeInternalIP, Address: strings.TrimSuffix(n.w.machine(o.Name).address(), "/32"),
	}}
	c := n.claims[o.Name]
	if c == nil {
		c = n.launchInstance(o.Name)
	}
	o.Spec.ProviderID = c.ProviderID
	o.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: nodeclaim.Group + "/" + nodeclaim.Version, Kind: nodeclaim.Kind, Name: c.Name,
		UID: types.UID(c.UID),
	}}
	o.Labels = with(with(o.Labels, "karpenter.sh/nodepool", "pool"), "karpenter.sh/initialized", "true")
}

// schedule spreads the outages of nodes, and what people do, over the time until end.
func (n *neighbours) schedule(end time.Time) {
	w := n.w
	at := w.between(5*time.Second, 30*time.Second)
	if w.mode == fence.OnRequest || w.chance(0.5) {
		at += n.maintenance(w.machines[w.rng.IntN(3)], at)
	}
	for at < end.Sub(w.now) {
		w.after(at, n.outage)
		at += w.between(50*time.Second, 2*time.Minute)
	}
	for range 6 + w.rng.IntN(8) {
		w.after(w.between(15*time.Second, end.Sub(w.now)), n.person)
	}
}

// maintenance is an outage that begins after a time, in which people work. They pause NodeHealthCheck, or delete the
// Node, which comes back and is silent once more. Or they lower its mode once a power-off has failed. In the middle of
// it they configure forcefence to work with the neighbours, or they stop forcefence for a while. It returns how long
// all takes.
func (n *neighbours) maintenance(m *machine, at time.Duration) time.Duration {
	w := n.w
	work := w.rng.IntN(3)
	switch {
	case w.mode == fence.Fence && w.chance(0.6):
		work = 2
	case w.mode == fence.OnRequest:
		work = w.rng.IntN(2)
	}
	begins := w.between(70*time.Second, 100*time.Second)
	first := begins + w.between(8*time.Second, 45*time.Second)
	gap, second := w.between(30*time.Second, 100*time.Second), w.between(2*time.Minute, 3*time.Minute)
	n.configured = w.now.Add(at + first + gap + second)
	stops := work == 0 && w.chance(0.3)
	if stops {
		n.configured = w.now.Add(at)
	}
	then := func(d time.Duration, do func()) {
		w.after(at+d, func() {
			if !w.calm {
				do()
			}
		})
	}
	silent := func(deaf, stubborn bool) {
		m.cut, m.deaf, m.stubborn = true, [3]bool{deaf, deaf, deaf}, stubborn
		w.logf("%s: silent in maintenance: devices deaf %v, stubborn %v", m.name, deaf, stubborn)
	}
	then(0, func() { m.configure(w.mode); silent(stops || work < 2 && w.chance(0.2), work == 2 || w.chance(0.3)) })
	if work == 1 { // for a moment it is back
		then(begins-30*time.Second, func() { w.heal(m) })
		then(begins-14*time.Second, func() { silent(false, false) })
	}
	then(begins, func() {
		switch work {
		case 0:
			// once the node is NotReady again: the request was made in another outage, whose end forcefence did not
			// watch
			late := first - begins + gap + w.between(50*time.Second, 75*time.Second)
			switch n.paused = true; {
			case stops:
				w.stopProcesses(late)
			case w.chance(0.5):
				n.configured = w.now
			default:
				n.configured = w.now.Add(late)
			}
		case 1:
			n.deleteNode(m)
			n.delay = max(n.delay, 2*time.Minute)
			n.configured = w.now.Add(w.between(0, 4*time.Second))
		default:
			n.lowerAfterFailure(m)
		}
	})
	if work < 2 {
		then(first, func() { m.recover("maintenance") })
		then(first+gap/3, n.restartSets)
		then(first+gap-3*time.Second, func() { n.storage.letIn(m) })
		then(first+gap, func() { silent(work == 0 && w.chance(0.2), false) })
	}
	then(first+gap+second, func() { m.configure(w.mode); m.recover("maintenance") })
	return first + gap + second
}

// restartSets is a person who restarts the pods with volumes: some come to another node.
func (n *neighbours) restartSets() {
	for _, id := range n.w.ids {
		if id.volume != "" {
			_ = n.w.api.deletePod("user", id.name, "", "", 30)
		}
	}
}

// lowerAfterFailure is a person who lets a machine on once a power-off of it has failed.
func (n *neighbours) lowerAfterFailure(m *machine) {
	w := n.w
	o := w.api.node(m.name)
	if w.calm || o == nil || !m.cut {
		return
	}
	if r, _ := taint.RecordOf(o); r != nil && r.Result == taint.ResultPowerOffFailed {
		w.count("mode lowered after a power-off that failed")
		m.configure(fence.Observe)
		n.configured = w.now.Add(w.between(time.Minute, 90*time.Second))
		return
	}
	w.after(3*time.Second, func() { n.lowerAfterFailure(m) })
}

// outage makes one node or several silent for a while.
func (n *neighbours) outage() {
	w := n.w
	victims := 1
	if w.chance(0.35) {
		victims = 2
	}
	spread := []time.Duration{0, 5 * time.Second, 30 * time.Second}[w.rng.IntN(3)]
	for _, i := range w.rng.Perm(min(4, len(w.machines)))[:victims] {
		m := w.machines[i]
		w.after(w.between(0, spread), func() { n.fail(m) })
	}
}

// fail makes a node silent, and brings it back later.
func (n *neighbours) fail(m *machine) {
	w := n.w
	if w.calm || m.cut || !m.power || w.now.Before(n.configured) {
		return
	}
	switch w.rng.IntN(8) {
	case 0:
		m.cutPower("an outage")
	case 1:
		m.hung = true
	case 2:
		if m.k != nil {
			m.k.ready = false
			m.k.status()
		}
	default:
		m.cut = true
	}
	if w.chance(0.5) {
		m.deaf = [3]bool{true, true, true}
	}
	m.stubborn = w.chance(0.4)
	w.logf("%s: an outage: cut %v, hung %v, power %v, devices deaf %v, stubborn %v", m.name, m.cut, m.hung, m.power,
		m.deaf, m.stubborn)
	w.after(w.between(40*time.Second, 150*time.Second), func() {
		if w.calm {
			return
		}
		if w.chance(0.2) {
			w.reboot(m)
		}
		m.recover("an outage ends")
	})
}

// recover ends all that is wrong with a machine.
func (m *machine) recover(why string) {
	m.deaf, m.stubborn = [3]bool{}, false
	m.w.heal(m)
	m.powerOn(why)
	m.becomeReady()
}

// person edits the neighbours' objects.
func (n *neighbours) person() {
	w := n.w
	if w.calm || w.down {
		return
	}
	m := w.machines[w.rng.IntN(min(4, len(w.machines)))]
	switch w.rng.IntN(10) {
	case 0, 1:
		n.storage.edit(m)
	case 2, 3:
		n.storage.letIn(m)
	case 4:
		n.storage.foreign(m)
	case 5:
		n.paused = !n.paused
		w.logf("person: NodeHealthCheck is paused: %v", n.paused)
	case 6:
		n.editRequest(m)
	case 7:
		n.editClaim(m)
	case 8:
		n.editOrder(m)
	default:
		n.deleteNode(m)
	}
}

// deleteNode is a person who deletes a Node whose machine is away. Its kubelet registers it again.
func (n *neighbours) deleteNode(m *machine) {
	w := n.w
	if w.api.node(m.name) == nil || m.marked() || m.power && !m.cut {
		return
	}
	w.count("node deleted beside a request")
	w.logf("person: deletes node %s", m.name)
	n.removeNode(m)
}

// removeNode deletes a Node. Its pods go later.
func (n *neighbours) removeNode(m *machine) {
	w := n.w
	m.excused = cmp.Or(m.excused, "its Node was deleted, and its pods with it")
	w.api.deleteNode(m.name)
	w.after(w.between(20*time.Second, time.Minute), func() { w.collect(m.name) })
}

// calm is the end of all faults.
func (n *neighbours) calm() {
	if n == nil {
		return
	}
	n.paused, n.configured = false, n.w.now
	for _, o := range n.storage.objects { // the manager goes through all objects again, now and then
		n.storage.obey(o.Name)
	}
	for _, m := range n.w.machines {
		m.stubborn, m.order, m.deaf = false, nil, [3]bool{}
	}
	n.people()
}

// people do what forcefence leaves to them.
func (n *neighbours) people() {
	if n != nil {
		for _, m := range n.w.machines {
			n.storage.mend(m)
		}
	}
}

// unrest says what has not come to its end yet, "" if nothing.
func (n *neighbours) unrest() string {
	if n == nil {
		return ""
	}
	for _, m := range n.w.machines {
		if m.power && n.storage.shut[m.address()] {
			return m.name + " is still shut out by its storage"
		}
	}
	return ""
}

// order is a power-off that Metal3's operator has not carried out: an annotation of the BareMetalHost.
type order struct {
	node     types.UID // of its Node when it was given
	at       time.Time
	byPerson bool          // a person gave it, or broke the record that names it
	aliveFor time.Duration // for how long its node has shown life since, while one leader ran without a break
}

// withdrawTime is the most that a leader needs to take an order back once the node shows life. It ends the step under
// way, looks, and writes. Each of these is up to three requests. A request without an answer ends after 10 s.
func (w *World) withdrawTime() time.Duration { return 3 * 3 * (10*time.Second + w.limits.api) }

// orderLate leaves a power-off with Metal3's operator, which carries it out late, also in another life of the node.
// A power-on takes the order back, WithdrawOrders does, and people do. An order that a leader had the time to take back
// must not be carried out.
func (m *machine) orderLate(byPerson bool) {
	w := m.w
	o := &order{at: w.now, byPerson: byPerson}
	if n := w.api.node(m.name); n != nil {
		o.node = n.UID
	}
	m.order = o
	d := w.between(time.Second, 10*time.Second)
	switch {
	case w.calm:
	case m.stubborn:
		d = w.between(time.Minute, 6*time.Minute)
	case w.chance(0.5):
		d = w.between(10*time.Second, 4*time.Minute)
	}
	w.after(d, func() {
		if m.order != o || !m.power {
			return
		}
		m.order = nil
		switch n := w.api.node(m.name); {
		case o.byPerson:
			w.count("an order of Metal3's is a person's")
		case o.aliveFor > w.withdrawTime():
			w.fail("order", "the machine of %s goes off by an order that a leader could have taken back for %s", m.name,
				o.aliveFor)
		case n != nil && isReady(n):
			w.count("an order of Metal3's is carried out on a living node")
		}
		w.count("an order of Metal3's is carried out late")
		m.cutPower("Metal3's operator")
	})
}

// editOrder is a person who takes an order of Metal3's back. If there is none, the person gives one.
func (n *neighbours) editOrder(m *machine) {
	for _, o := range n.w.machines {
		if o.order != nil {
			n.w.count("an order of Metal3's is taken back by a person")
			o.order = nil
			return
		}
	}
	if m.metal3 && n.w.chance(0.5) {
		m.orderLate(true)
	}
}

// watchOrders notes for how long orders could have been taken back. led says that a leader could do so now.
func (n *neighbours) watchOrders(led bool) {
	w := n.w
	for _, m := range w.machines {
		o, node := m.order, w.api.node(m.name)
		if o == nil {
			continue
		}
		if !led || node == nil || node.UID != o.node || !w.lastBeat(m.name).After(o.at) {
			o.aliveFor = 0
			continue
		}
		o.aliveFor += tick
		_, err := taint.RecordOf(node)
		o.byPerson = o.byPerson || err != nil
	}
}

// chosenMode is the node's mode by the configuration and the Node's annotation.
func (m *machine) chosenMode(n *corev1.Node) fence.Mode {
	return fence.ChosenMode{Mode: m.mode}.LoweredBy(n.Annotations).Mode
}

// lookAt is a look at a Node, and at its Lease; nil: without it.
func (p *Process) lookAt(n *corev1.Node, lease *coordinationv1.Lease) taint.Look {
	return taint.NewLook(n, lease, taint.DefaultKey, p.now(), p.now())
}
