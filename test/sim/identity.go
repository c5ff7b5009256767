package sim

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// noteBMC is the annotation by which a node is led to its machine. Its kubelet can write it, as it can its system UUID.
const noteBMC = "example.net/bmc"

// zeros is a system UUID that identifies no machine.
const zeros = "00000000-0000-0000-0000-000000000000"

// claimOf is what leads a node to a machine now.
func (w *World) claimOf(n *corev1.Node) taint.Claim {
	c := taint.Claim{Node: n.Name, Claimed: true, Pin: n.Labels[taint.PinLabel]}
	if id := n.Annotations[noteBMC]; id != "" && w.machine(n.Name).device {
		c.Machine = taint.MachineRef{Provider: "bmc", ID: id,
			SystemUUID: providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID)}
	}
	return c
}

// believe is which machine a node is, by a cache of the others.
func (p *Process) believe(n *corev1.Node, rec *taint.Record, healthy bool) taint.Belief {
	w := p.w
	var all []taint.Claim
	for _, o := range w.api.asOf(w.now.Add(-w.lag())).nodes {
		all = append(all, w.claimOf(o))
	}
	mine := w.claimOf(n)
	clash := taint.NewClaims(all).FindClash(mine, p.former)
	return taint.DecideMachine(taint.Identity{Claim: mine, Clash: clash, Record: rec, Healthy: healthy})
}

// speaker is a device that a worker asks about its node.
type speaker struct {
	proof.Device
	of     *machine // whose device it is
	which  int      // 0 its BMC, 1 its second device or first outlet, 2 its second outlet
	hosts  bool     // the hosts of its hypervisors
	target providers.Target
}

// led is whom a worker asks about its node on one look.
type led struct {
	to   []speaker // none: nobody
	why  string    // why nobody
	mode fence.Mode
}

// ledBy is whom a look leads to.
func (k *worker) ledBy(node *corev1.Node, l taint.Look) led {
	b := k.believe(node, l.Record, false)
	out := led{mode: k.m.chosenMode(node), why: "no provider"}
	switch {
	case b.Refused != "":
		k.w.count("machine not believed")
		out.why = b.Refused
	case b.Machine.Provider == "bmc":
		m := k.w.machine(b.Machine.ID)
		s := speaker{
			Device: proof.Device{Name: "bmc/" + m.name, Machine: b.Machine, NoPower: b.NoPower, Limits: k.m.limits[0],
				Orders: m.metal3},
			of: m}
		s.target = providers.Target{Node: k.m.name, ID: b.Machine.ID, SystemUUID: l.SystemUUID, Claimed: b.Claimed}
		if providers.CanonicalUUID(l.SystemUUID) != b.Machine.SystemUUID {
			s.target.SystemUUID = b.Machine.SystemUUID
		}
		out.to = append(out.to, s)
	}
	if k.m.split {
		for i, strip := range []string{"strip-a", "strip-b"} {
			id := taint.MachineRef{Provider: strip, ID: k.m.name, SystemUUID: providers.CanonicalUUID(l.SystemUUID)}
			out.to = append(out.to, speaker{
				Device: proof.Device{Name: strip + "/" + k.m.name, Machine: id, Level: 1, Feeds: true,
					Limits: k.m.limits[1]},
				of: k.m, which: 1 + i, target: providers.Target{Node: k.m.name, ID: id.ID, SystemUUID: l.SystemUUID},
			})
		}
		return out
	}
	if k.m.lodged != nil {
		if len(out.to) == 0 { // they speak beside a device, of the guest that it speaks of
			return out
		}
		id := taint.MachineRef{Provider: "group/within", ID: k.m.name,
			SystemUUID: providers.CanonicalUUID(l.SystemUUID)}
		out.to = append(out.to, speaker{
			Device: proof.Device{Name: "group/within/" + k.m.name, Machine: id, Level: 1,
				NoPower: "its host runs others"}, of: k.m, hosts: true,
			target: providers.Target{Node: k.m.name, ID: id.ID, SystemUUID: l.SystemUUID},
		})
		return out
	}
	if k.m.second {
		id := taint.MachineRef{Provider: "alt", ID: k.m.name, SystemUUID: providers.CanonicalUUID(l.SystemUUID)}
		out.to = append(out.to, speaker{
			Device: proof.Device{Name: "alt/" + k.m.name, Machine: id, Level: 1, Limits: k.m.limits[1]}, of: k.m,
			which:  1,
			target: providers.Target{Node: k.m.name, ID: id.ID, SystemUUID: l.SystemUUID},
		})
	}
	return out
}

func (l led) devices() []proof.Device {
	var out []proof.Device
	for _, s := range l.to {
		out = append(out, s.Device)
	}
	return out
}

// pin writes the pin of a healthy node.
func (k *worker) pin(n *corev1.Node) {
	if k.pinning || k.pinSeen == n.ResourceVersion || k.m.chosenMode(n) == fence.Disabled {
		return
	}
	k.pinSeen = n.ResourceVersion
	b := k.believe(n, k.told.Record, true)
	if b.Pin == "" {
		return
	}
	k.pinning = true
	k.call(func() error {
		k.w.count("pin")
		return k.w.api.patchNode(k.name, n.Name, n.ResourceVersion,
			func(n *corev1.Node) { label(n, taint.PinLabel, b.Pin) })
	}, func(error) { k.pinning, k.pinSeen = false, "" })
}

// forge is a node whose kubelet's credential was stolen: it is led to another's machine, or to none that anybody knows,
// and falls silent sooner or later.
func (w *World) forge(m, victim *machine) {
	n := w.api.node(m.name)
	if w.calm || w.down || n == nil || m == victim {
		return
	}
	id, uuid := n.Annotations[noteBMC], n.Status.NodeInfo.SystemUUID
	if w.chance(0.8) {
		id = victim.name
	}
	switch w.rng.IntN(3) {
	case 0:
		uuid = victim.uuid
	case 1:
		uuid = zeros
	}
	w.count("forged identity")
	m.forged = true
	w.logf("%s: its kubelet says it is machine %s with UUID %s", m.name, id, uuid)
	_ = w.api.patchNode("kubelet", m.name, "", func(n *corev1.Node) { w.claim(n, id, uuid) })
	w.after(w.between(0, 40*time.Second), func() {
		if !w.calm {
			m.cut = true
		}
	})
}

func (w *World) claim(n *corev1.Node, id, uuid string) {
	note(n, noteBMC, id)
	n.Status.NodeInfo.SystemUUID = uuid
}

// mend is a person who puts right what a forger wrote, the pin included.
func (w *World) mend(m *machine) {
	n := w.api.node(m.name)
	if n == nil || n.Annotations[noteBMC] == m.name && n.Status.NodeInfo.SystemUUID == m.uuid {
		return
	}
	_ = w.api.patchNode("person", m.name, "", func(n *corev1.Node) {
		w.claim(n, m.name, m.uuid)
		n.Labels = maps.Clone(n.Labels)
		delete(n.Labels, taint.PinLabel)
	})
}
