package sim

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	nodeclaim "github.com/forcefence/forcefence/taint/features/karpenter/claim"
)

// launchInstance is a new NodeClaim, with an instance in the place of the machine.
func (n *neighbours) launchInstance(node string) *nodeclaim.Claim {
	n.launch++
	id := n.w.id("claim-")
	c := &nodeclaim.Claim{Name: id, UID: id, ResourceVersion: "1", NodeName: node, ProviderID: "cloud:///" + id}
	n.claims[node] = c
	return c
}

// deleteClaim is the deletion of a NodeClaim: Karpenter ends the instance, deletes the Node, and starts another.
func (n *neighbours) deleteClaim(m *machine, c *nodeclaim.Claim) {
	w := n.w
	gone := *c
	gone.Deleted, gone.ResourceVersion = true, "2"
	n.claims[m.name], n.deleted[c.UID] = &gone, w.now
	w.logf("Karpenter: NodeClaim %s of %s is being deleted", c.Name, m.name)
	w.after(w.between(2*time.Second, 40*time.Second), func() {
		m.cutPower("Karpenter")
		n.replace(m)
	})
}

// replace deletes the Node of an instance that is gone, and starts another. An admission policy keeps a marked Node.
func (n *neighbours) replace(m *machine) {
	w := n.w
	if m.marked() && !w.calm || w.down {
		w.after(5*time.Second, func() { n.replace(m) })
		return
	}
	if w.api.node(m.name) != nil {
		n.removeNode(m)
	}
	n.launchInstance(m.name)
	w.after(w.between(15*time.Second, time.Minute), func() { m.cut = false; m.powerOn("Karpenter") })
}

// editClaim is a person, or Karpenter's own consolidation, that deletes a NodeClaim; or a person who gives it another
// resourceVersion.
func (n *neighbours) editClaim(m *machine) {
	c := n.claims[m.name]
	switch {
	case c.Deleted:
	case n.w.chance(0.2):
		n.w.count("NodeClaim deleted by others")
		n.deleteClaim(m, c)
	default:
		edited := *c
		edited.ResourceVersion = n.w.id("")
		n.claims[m.name] = &edited
	}
}

// keptOn is what the node's NodeClaim says of its power.
func (n *neighbours) keptOn(node *corev1.Node) string {
	if n == nil || n.claims[node.Name] == nil {
		return ""
	}
	return nodeclaim.KeptOn(node, *n.claims[node.Name])
}

// refusalNote is what the last look at a node said about one more power-off, as taint/controller notes it.
type refusalNote struct {
	life taint.Life
	at   providers.Instant
	why  string
}

func (k *worker) noteRefusal() {
	l := k.course.Look()
	if k.w.near == nil || l.Record == nil || l.Record.Result != taint.ResultPowerOffFailed {
		k.refusal = refusalNote{}
		return
	}
	k.refusal = refusalNote{l.Life(), k.now(), k.course.PowerOffRefusal(k.now(), &k.fleet)}
}

// noPower is why the machine must not be ended in another way than by a power-off.
func (k *worker) noPower(l taint.Look) string {
	if !k.refusal.life.StillHolds(l) || k.refusal.at.Age(k.now()) > time.Minute {
		return "this controller has not looked at the node since"
	}
	return k.refusal.why
}

// handOver hands the node over to Karpenter, if its fence has ended, as package karpenter does.
func (k *worker) handOver() {
	n := k.heard
	if n == nil || !nodeclaim.IsEnded(n, taint.DefaultKey) || !k.takeUp("claim of "+k.m.name) {
		return
	}
	end := func(error) { k.putDown("claim of "+k.m.name, 15*time.Second) }
	k.askAll(k.ledBy(n, k.told), nil, func(a providers.Answer) {
		k.readClaim(nodeclaim.Facts{Key: taint.DefaultKey, Power: a}, end)
	})
}

// readClaim reads all else live, and hands the node over if nothing forbids it.
func (k *worker) readClaim(f nodeclaim.Facts, end func(error)) {
	w, name := k.w, k.m.name
	k.readAll(func(err error) {
		if err != nil || f.Node == nil {
			end(err)
			return
		}
		for _, o := range w.api.asOf(w.now.Add(-w.lag())).nodes {
			if nodeclaim.IsOfPool(o, f.Node) {
				f.Pool = append(f.Pool, o)
			}
		}
		f.MayAct, f.NoPower = k.m.chosenMode(f.Node).MayAct(), k.noPower(f.Look)
		if why := nodeclaim.Refusal(f); why != "" {
			w.logf("%s: %s: not handed over: %s", k.name, name, why)
			end(nil)
			return
		}
		w.check.handsOver(k, f)
		k.sendHandOver(f, end)
	}, func() {
		if n := w.api.node(name); n != nil {
			f.LeftAlone = cmp.Or(fence.ExclusionReason(n, w.now), w.excluded(name))
		}
	}, func() {
		f.Claim = *w.near.claims[name]
	}, func() {
		f.Node = w.api.node(name)
		f.Look = k.lookAt(f.Node, w.api.lease(name))
	})
}

// sendHandOver announces the hand-over on the Node, and deletes the NodeClaim.
func (k *worker) sendHandOver(f nodeclaim.Facts, end func(error)) {
	w, name := k.w, k.m.name
	w.jolt(k.Process, k.m)
	announce := func() error {
		rec := *f.Look.Record
		rec.AfterFence = taint.AfterFenceHandedOver
		return w.api.patchNode(k.name, name, f.Look.ResourceVersion,
			func(n *corev1.Node) { setRecord(n, rec.Encode()) })
	}
	if f.Look.Record.AfterFence == taint.AfterFenceHandedOver {
		announce = func() error { return nil }
	}
	k.call(announce, func(err error) {
		if err != nil {
			end(err)
			return
		}
		k.call(func() error {
			w.receive(k.name, "delete", "nodeclaims/"+f.Claim.Name, f.Claim.ResourceVersion)
			if c := w.near.claims[name]; c.UID != f.Claim.UID || c.ResourceVersion != f.Claim.ResourceVersion {
				return errConflict
			}
			w.count("handed over " + string(f.Look.Record.Result))
			w.near.deleteClaim(k.m, w.near.claims[name])
			return nil
		}, end)
	})
}

// handsOver is what holds when a node is handed over: nothing was heard of it since its fence began, and its machine is
// off, or all that a power-off requires held within the last minute.
func (c *checker) handsOver(k *worker, f nodeclaim.Facts) {
	w, l, what := c.w, f.Look, "handed over"
	if by := c.leftAlone(l.Name, l.Sent.Wall.Add(-10*time.Second), false); by != "" {
		w.fail("8", "%s is %s, which is to be left alone by %s", l.Name, what, by)
	}
	then := w.api.asOf(l.Sent.Wall)
	began := c.recorded[l.Record.ID]
	if lease := then.lease(l.Name); lease != nil && lease.Spec.RenewTime.After(began) {
		w.fail("hand-over", "%s is %s, and its kubelet beat %s after its fence began", l.Name, what,
			lease.Spec.RenewTime.Sub(began))
	}
	if l.Record.Result == taint.ResultEvicted {
		if !w.truth[proofKey{l.Name, f.Power.At.Wall}] {
			w.fail("2", "%s is %s, and the machine was not off when it was asked", l.Name, what)
		}
		return
	}
	c.silent(l, k.Process, what)
	c.mayPowerOff(l, w.now.Add(-time.Minute), what)
}
