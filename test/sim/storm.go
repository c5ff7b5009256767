package sim

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/fleet"
)

// storm is what the storm guard keeps to in a history. It has a generator of its own: what it draws changes no other draw.
type storm struct {
	nodes  int
	limits fleet.Limits
	plane  bool // all nodes are of the control plane
	quorum bool // which may be powered off while etcd keeps its quorum
	pods   bool // etcd's pods can be listed; else nobody knows its members
}

func drawStorm(seed uint64) storm {
	r := rand.New(rand.NewPCG(seed, 0x73746f726d))
	s := storm{limits: fleet.Limits{
		MaxPowerOffs: fleet.Amount{Number: 1 + r.IntN(2)}, MinHealthy: fleet.Amount{Number: []int{0, 1, 2, 2}[r.IntN(4)]},
		CoolDown: time.Duration(r.IntN(20)) * time.Second,
	}}
	if s.nodes = 3; r.IntN(3) == 0 { // where two may be silent, and most are heard
		s.nodes, s.limits.MinHealthy.Number = 5, []int{0, 3, 4, 4}[r.IntN(4)]
	}
	if s.plane = r.IntN(4) == 0; s.plane {
		s.quorum, s.pods = r.IntN(4) > 0, r.IntN(3) > 0
	}
	return s
}

// labels are those of a node.
func (s storm) labels() map[string]string {
	if s.plane {
		return map[string]string{"node-role.kubernetes.io/control-plane": ""}
	}
	return nil
}

// members are the nodes of etcd's pods, and whether each is Ready.
func (w *World) members() map[string]bool {
	m := map[string]bool{}
	for _, n := range w.api.nodes {
		if w.storm.pods {
			m[n.Name] = isReady(n)
		}
	}
	return m
}

// old is how long something must have been so for a leader to know it: its watches tick once a second, and it may have been paused.
const old = 15 * time.Second

// guards is invariants 6 and 7 when a power-off is sent, by what the stored objects have said for a while: no more under way than
// the limit, not below the floor, and no control-plane node that etcd needs.
func (c *checker) guards(l taint.Look, p *Process) {
	w := c.w
	if w.leader != p.index || w.now.Sub(p.since) < old { // one that was replaced knows nothing of its successor's; a new one hears first
		return
	}
	others, healthy, members, well := 0, 0, 1, 0
	for _, n := range w.api.nodes {
		if n.Name == l.Name {
			continue
		}
		r, _ := taint.RecordOf(n)
		if r.Open() && r.PowerOff && r.Phase == taint.PhasePoweringOff && w.now.Sub(r.At) > old {
			others++
		}
		plane, _ := fleet.IsControlPlane(n.Labels)
		if plane {
			members++
		}
		if !w.sickFor(n) {
			if healthy++; plane {
				well++
			}
		}
	}
	if most := w.storm.limits.MaxPowerOffs.Number; others >= most {
		w.fail("6", "%s is powered off while %d others are, and %d may be at once", l.Name, others, most)
	}
	floor := w.storm.limits.MinHealthy.Number
	if healthy < floor {
		w.fail("6", "%s is powered off while %d others are healthy, and the floor is %d", l.Name, healthy, floor)
	}
	if plane, _ := fleet.IsControlPlane(l.Labels); !plane { // a Node that registered anew has lost the label
		return
	}
	if need := members/2 + 1; !w.storm.quorum || well < need {
		w.fail("7", "control-plane node %s is powered off with %d others healthy, where %d are the quorum (may be at all: %v)", l.Name, well, need, w.storm.quorum)
	}
	w.count("PowerOff of the control plane")
}

// sickFor reports a node that has long not been healthy.
func (w *World) sickFor(n *corev1.Node) bool {
	long := func(at time.Time) bool { return w.now.Sub(at) > old }
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && long(c.LastTransitionTime.Time) {
			return true
		}
	}
	if r, err := taint.RecordOf(n); err == nil && r.Open() && long(r.At) {
		return true
	}
	lease := w.api.lease(n.Name)
	return lease != nil && w.now.Sub(lease.Spec.RenewTime.Time) > 25*time.Second+old
}
