package sim

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// zoneLabel names a node's failure domain.
const zoneLabel = "topology.kubernetes.io/zone"

// storm is what the storm guard keeps to in a history, and what becomes of the machines that it lets be powered off.
// They have generators of their own: what these draw changes no other draw.
type storm struct {
	nodes   int
	zones   int // failure domains; 0: none
	limits  fleet.Limits
	plane   int  // so many nodes, from the first on, are of the control plane
	quorum  bool // which may be powered off while etcd keeps its quorum
	pods    bool // etcd's pods can be listed
	etcd    bool // the first three nodes have k3s' and RKE2's label of members, which serves where no pod can be listed
	many    bool // several nodes fall silent, and their machines run
	severed bool // all but one of them: a partition, while policies end pods without proof
	after   fence.AfterFence
}

func drawStorm(d *script, seed uint64, scenario Scenario) storm {
	r := newDice(d, seed, 0x73746f726d)
	s := storm{limits: fleet.Limits{
		MaxPowerOffs: fleet.Amount{Number: 1 + r.IntN(2)},
		MinHealthy:   fleet.Amount{Number: []int{0, 1, 2, 2}[r.IntN(4)]},
		CoolDown:     time.Duration(r.IntN(20)) * time.Second,
	}}
	if a := newDice(d, seed, 0x6166746572); a.IntN(3) > 0 {
		s.after = fence.AfterFence{
			PowerOn: true, Delay: time.Duration(a.IntN(20)) * time.Second, PerDay: 1 + a.IntN(3),
			Again: []time.Duration{0, time.Minute, 5 * time.Minute}[a.IntN(3)],
		}
	}
	if s.nodes = 3; r.IntN(3) == 0 { // where two may be silent, and most are heard
		s.nodes, s.limits.MinHealthy.Number = 5, []int{0, 3, 4, 4}[r.IntN(4)]
	}
	if r.IntN(4) == 0 {
		s.plane, s.quorum, s.pods = s.nodes, r.IntN(4) > 0, r.IntN(3) > 0
	}
	switch {
	case scenario == Accepting && seed%23 == 6:
		s.many, s.severed, s.nodes = true, true, 33
	case !scenario.stormy() || r.IntN(6) > 0:
		return s
	default:
		s.many, s.nodes = true, 5+2*r.IntN(2)
	}
	s.limits.MinHealthy.Number = []int{0, 0, s.nodes / 2, s.nodes - 2}[r.IntN(4)]
	if s.plane > 0 {
		s.plane, s.etcd = []int{3, s.nodes}[r.IntN(2)], r.IntN(3) == 0
	}
	if s.zones = []int{0, 2, 3}[r.IntN(3)]; s.zones > 0 {
		s.limits.Domains = []fleet.Domain{{
			Label: zoneLabel, MinHealthy: fleet.Amount{Number: r.IntN(2), Percent: 25 * r.IntN(3)},
			Fixed: r.IntN(2) == 0,
		}}
	}
	return s
}

// labelsOf are those of the node at that place.
func (s storm) labelsOf(i int) map[string]string {
	l := map[string]string{}
	if i < s.plane {
		l["node-role.kubernetes.io/control-plane"] = ""
	}
	if s.etcd && i < 3 {
		l["node-role.kubernetes.io/etcd"] = "true"
	}
	if s.zones > 0 {
		l[zoneLabel] = fmt.Sprintf("z%d", i%s.zones)
	}
	return l
}

// silence cuts several nodes off, at once or one after the other: so few that most are still heard. Their machines run.
func (w *World) silence() {
	most := (w.storm.nodes - 1) / 2
	victims := w.rng.Perm(w.storm.nodes)[:most]
	if w.storm.zones > 0 && w.chance(0.4) { // a site, or the way to it
		zone := w.rng.IntN(w.storm.zones)
		victims = nil
		for i := zone; i < w.storm.nodes && len(victims) < most; i += w.storm.zones {
			victims = append(victims, i)
		}
	}
	spread := []time.Duration{0, 10 * time.Second, 90 * time.Second}[w.rng.IntN(3)]
	for _, i := range victims {
		m := w.machines[i]
		w.after(w.between(0, spread), func() {
			if w.calm {
				return
			}
			w.count("silent in a storm")
			w.logf("%s: cut off, as others are", m.name)
			m.cut = true
		})
	}
}

// sever cuts all nodes but one off from the API server for a while. Their machines run.
func (w *World) sever() {
	heard := w.rng.IntN(w.storm.nodes)
	for i, m := range w.machines {
		if i == heard {
			continue
		}
		w.after(w.between(0, 3*time.Second), func() {
			if !w.calm {
				w.logf("%s: cut off, as all but one are", m.name)
				m.cut = true
			}
		})
		w.after(w.between(70*time.Second, 110*time.Second), func() { w.heal(m) })
	}
	w.count("all nodes but one cut off")
}

// members are the nodes of etcd's pods, and whether each is Ready.
func (w *World) members() map[string]bool {
	out := map[string]bool{}
	for i, m := range w.machines {
		if n := w.api.node(m.name); n != nil && w.storm.pods && i < w.storm.plane && (!w.storm.etcd || i < 3) {
			out[n.Name] = isReady(n)
		}
	}
	return out
}

// old is how long something must have been so for a leader to know it: its watches tick once a second, and it may have
// been paused.
const old = 15 * time.Second

// turnOver is how long a fence may keep others waiting once its machine is off: a bit less than the design's five
// minutes.
const turnOver = 4 * time.Minute

// offSent is a power-off that a process sent.
type offSent struct {
	by    *Process
	life  int
	fence string
}

// turns are the other nodes that this process itself powered off in this life, whose fences go on: it knows of them,
// however young they are.
func (c *checker) turns(node string, p *Process) map[string]bool {
	out := map[string]bool{}
	for name, s := range c.offs {
		n := c.w.api.node(name)
		if name == node || s.by != p || s.life != p.life || n == nil {
			continue
		}
		r, err := taint.RecordOf(n)
		if err == nil && r.IsOpen() && r.ID == s.fence &&
			(r.Phase == taint.PhasePoweringOff || c.w.now.Sub(r.At) < turnOver) {
			out[name] = true
		}
	}
	for name, s := range c.cutOff { // whose life has not ended since, and that are not proven off
		l := p.lookAt(c.w.api.node(name), c.w.api.lease(name))
		mine := s.by == p && s.life == p.life && c.w.now.Sub(s.at) < turnOver
		if name != node && mine && s.of.StillHolds(l) && l.Mark == nil && c.w.near.storage.isAsked(l) {
			out[name] = true
		}
	}
	return out
}

// guards is invariants 6 and 7 when a power-off is sent: no more under way than the limit, nobody cut off, not below a
// floor, no site that is lost, and no control-plane node that etcd needs. It is judged by what this process did itself,
// and by what the stored objects have said for a while.
func (c *checker) guards(l taint.Look, p *Process) {
	w := c.w
	most := w.storm.limits.MaxPowerOffs.Number
	turns := c.takesTurn(l, p, "powered off")
	if len(turns) > 0 {
		w.count("PowerOff beside another")
	}
	// one that was replaced knows nothing of its successor's; a new one hears first
	if w.leader != p.index || w.now.Sub(p.since) < old {
		return
	}
	others := 0
	for _, n := range w.api.nodes {
		r, _ := taint.RecordOf(n)
		if n.Name != l.Name && r.IsOpen() && r.PowerOff && r.Phase == taint.PhasePoweringOff && w.now.Sub(r.At) > old {
			others++
		}
	}
	if others >= most {
		w.fail("6", "%s is powered off while %d others are, and %d may be at once", l.Name, others, most)
	}
	c.floors(l)
	c.quorum(l, turns)
}

// takesTurn holds that the process has fewer nodes powered off, or shut out by their storage, than may be at once. It
// returns them.
func (c *checker) takesTurn(l taint.Look, p *Process, what string) map[string]bool {
	turns, most := c.turns(l.Name, p), c.w.storm.limits.MaxPowerOffs.Number
	if len(turns) >= most {
		c.w.fail("6", "%s is %s while %d others are by the same process, and %d may be at once", l.Name, what,
			len(turns), most)
	}
	if p.unanswered >= 3 {
		c.w.fail("6", "%s is %s, and %d requests in a row got no answer", l.Name, what, p.unanswered)
	}
	return turns
}

// floors is the floor of all nodes, and that of the node's zone, which must not be lost, either.
func (c *checker) floors(l taint.Look) {
	w, zone := c.w, l.Labels[zoneLabel]
	healthy, here, size := 0, 0, 0
	for _, n := range w.api.nodes {
		same := zone != "" && n.Labels[zoneLabel] == zone
		if same {
			size++
		}
		if n.Name != l.Name && !w.sickFor(n, false) {
			healthy++
		}
		if n.Name != l.Name && same && !w.sickFor(n, true) {
			here++
		}
	}
	if t := w.twin; t != nil && !t.gone && w.now.Sub(t.last) < 4*renewEvery {
		healthy++
	}
	if floor := w.storm.limits.MinHealthy.Number; healthy < floor {
		w.fail("6", "%s is powered off while %d others are healthy, and the floor is %d", l.Name, healthy, floor)
	}
	if w.storm.zones == 0 || size < 2 {
		return
	}
	w.count("PowerOff in a zone")
	d := w.storm.limits.Domains[0].MinHealthy
	if floor := d.Number + (d.Percent*size+99)/100; here < floor {
		w.fail("6", "%s is powered off while %d others of %s are healthy, and its floor is %d of %d", l.Name, here,
			zone, floor, size)
	}
	if together := w.silentTogether(zone); 2*together > size {
		w.fail("6", "%s is powered off, and %d of %d nodes of %s fell silent together", l.Name, together, size, zone)
	}
}

// silentTogether is how many nodes of a zone have long been silent, and fell silent within half a minute of each other.
func (w *World) silentTogether(zone string) (most int) {
	var silent []time.Time
	for _, n := range w.api.nodes {
		if last := w.lastBeat(n.Name); n.Labels[zoneLabel] == zone && w.now.Sub(last) > staleAfter+old {
			silent = append(silent, last)
		}
	}
	for _, last := range silent {
		together := 0
		for _, t := range silent {
			if ago := last.Sub(t); ago >= 0 && ago < 30*time.Second {
				together++
			}
		}
		most = max(most, together)
	}
	return most
}

// inStorm checks that no policy acts while fewer than half of all nodes are heard, or most of the node's zone fell
// silent together. It goes by what the stored objects have said for a while. One that was replaced knows less, and a
// new one hears first.
func (c *checker) inStorm(g grounds, what string) {
	w, zone := c.w, g.look.Labels[zoneLabel]
	if w.leader != g.by.index || w.now.Sub(g.by.since) < old {
		return
	}
	if fresh, all := w.heard(); 2*fresh < all {
		w.fail("15", "%s on %s by a policy while %d of %d nodes are heard", what, g.look.Name, fresh, all)
	}
	size := 0
	for _, n := range w.api.nodes {
		if n.Labels[zoneLabel] == zone {
			size++
		}
	}
	if together := w.silentTogether(zone); zone != "" && size > 1 && 2*together > size {
		w.fail("6", "%s on %s by a policy, and %d of %d nodes of %s fell silent together", what, g.look.Name, together,
			size, zone)
	}
}

// quorum is invariant 7.
func (c *checker) quorum(l taint.Look, turns map[string]bool) {
	w := c.w
	if plane, _ := fleet.IsControlPlane(l.Labels); !plane { // a Node that registered anew has lost the label
		return
	}
	members, well, labelled, listed := 0, 0, false, w.members()
	known := true
	for _, n := range w.api.nodes {
		plane, etcd := fleet.IsControlPlane(n.Labels)
		_, there := listed[n.Name]
		labelled, known = labelled || etcd, known && (there || !plane)
	}
	for _, n := range w.api.nodes {
		if plane, etcd := fleet.IsControlPlane(n.Labels); !plane || labelled && !etcd {
			continue
		}
		if members++; n.Name != l.Name && !w.sickFor(n, false) {
			well++
		}
	}
	if need := members/2 + 1; !w.storm.quorum || well < need {
		w.fail("7", "control-plane node %s is powered off with %d others healthy, where %d are the quorum (may be at "+
			"all: %v)", l.Name, well, need, w.storm.quorum)
	}
	for name := range turns {
		if plane, _ := fleet.IsControlPlane(w.api.node(name).Labels); plane && !known && !labelled {
			w.fail("7", "control-plane node %s is powered off while %s is, and nobody knows etcd's members", l.Name,
				name)
		}
	}
	w.count("PowerOff of the control plane")
}

// sickFor reports a node that has long not been healthy. In its zone one that is not Ready is healthy while it renews
// its Lease.
func (w *World) sickFor(n *corev1.Node, inZone bool) bool {
	long := func(at time.Time) bool { return w.now.Sub(at) > old }
	renews := w.now.Sub(w.lastBeat(n.Name)) < 15*time.Second+old
	for _, c := range n.Status.Conditions {
		unready := c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && long(c.LastTransitionTime.Time)
		if unready && !(inZone && renews) {
			return true
		}
		if unready && inZone {
			w.count("not Ready, and counts in its zone")
		}
	}
	if r, err := taint.RecordOf(n); err == nil && r.IsOpen() && long(r.At) {
		return true
	}
	return w.now.Sub(w.lastBeat(n.Name)) > 25*time.Second+old
}

// lastBeat returns when a node's kubelet last renewed its Lease or wrote the Node's status.
func (w *World) lastBeat(name string) time.Time {
	last := epoch
	if lease := w.api.lease(name); lease != nil {
		last = lease.Spec.RenewTime.Time
	}
	if n := w.api.node(name); n != nil && readyOf(n) != nil && readyOf(n).LastHeartbeatTime.After(last) {
		last = readyOf(n).LastHeartbeatTime.Time
	}
	return last
}
