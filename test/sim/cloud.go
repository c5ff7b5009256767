package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// cloud deletes the Nodes of machines that are off, in some histories, as a cloud's controller does. Kubernetes' pod
// garbage collector then ends their pods, and its attach/detach controller waits six minutes for an unmount. It has a
// generator of its own, as hints have, and it is in one of eight blocks of a hundred seeds: the others are what they
// were.
type cloud struct {
	dice
	deletes bool
	gone    map[string][]corev1.UniqueVolumeName // Nodes that the cloud deleted, with their volumes in use
}

func drawCloud(s *script, seed uint64, scenario Scenario) cloud {
	return cloud{dice: newDice(s, seed, 0x636c6f7564), deletes: scenario.stormy() && seed/100%8 == 5,
		gone: map[string][]corev1.UniqueVolumeName{}}
}

// cloudTick deletes Nodes. An admission policy keeps those that are marked.
func (w *World) cloudTick() {
	if c := &w.cloud; !w.calm && !w.down {
		for _, m := range w.machines {
			n := w.api.node(m.name)
			if n == nil || m.power || m.marked() || !c.chance(0.3) {
				continue
			}
			w.count("node deleted by the cloud")
			w.logf("cloud: deletes node %s", m.name)
			m.excused = cmp.Or(m.excused, "its Node was deleted: a kubelet's list of pods may be older")
			c.gone[m.name] = n.Status.VolumesInUse
			w.api.deleteNode(m.name)
			w.after(c.between(40*time.Second, time.Minute), func() { w.collect(m.name) })
		}
	}
	w.after(w.cloud.between(time.Second, 8*time.Second), w.cloudTick)
}

// collect ends the pods of a Node that does not exist.
func (w *World) collect(node string) {
	if w.api.node(node) != nil {
		return
	}
	for _, p := range w.api.podsOn(node) {
		_ = w.api.deletePod("podgc", p.Name, string(p.UID), "", 0)
	}
	w.after(20*time.Second, func() { w.collect(node) })
}

// unmountWait returns how much longer the attach/detach controller waits for an unmount on a deleted Node. No pod has
// needed the volume there since unwanted.
func (w *World) unmountWait(node, volume string, unwanted time.Time) time.Duration {
	if !slices.Contains(w.cloud.gone[node], unique(volume)) {
		return 0
	}
	return 6*time.Minute - w.now.Sub(unwanted)
}

// goneCourse is what a worker knows of a Node that was deleted, as taint/controller does.
type goneCourse struct {
	decide.GoneNode
	node *corev1.Node
	due  time.Time
	pods []*corev1.Pod // of the last look
}

// askAll asks all devices, and brings what they say together. The Off of a device that this process, or the record, has
// found to lie does not count.
func (k *worker) askAll(to led, rec *taint.Record, then func(providers.Answer)) {
	life := k.life
	k.w.ask(k.m, to.to, k.now, func(all []providers.Answer) {
		k.within(life, 0, func() {
			for i, d := range to.devices() {
				if k.fleet.DistrustingNode(d.Machine, d.Name, k.m.name) != "" ||
					rec != nil && rec.DistrustsDevice(d.Machine, d.Name, true) {
					all[i] = proof.WithoutOff(all[i])
				}
			}
			var a proof.Answers
			a.SetDevices(to.devices()...)
			a.ApplyAnswers(all...)
			then(a.Answer)
		})
	})
}

// followGone goes on with a Node that was deleted.
func (k *worker) followGone() {
	w, g := k.w, k.gone
	if g == nil || w.now.Before(g.due) || len(k.cachedAttachments(k.m.name)) == 0 {
		return
	}
	l := k.lookAt(g.node, nil)
	to := k.ledBy(g.node, l)
	g.GoneNode = decide.GoneNode{
		Now: k.now(), Since: g.Since, Look: l, Mode: to.mode, MayDetach: true,
		Attachments: attachedOf(k.cachedAttachments(k.m.name)),
	}
	if len(to.to) == 0 {
		g.NoMachineErr = errors.New(to.why)
	}
	if s := g.Next(); !s.Ask && s.Detail == "" {
		g.due = w.now.Add(s.Again)
		return
	}
	k.busy = true
	end := func(again time.Duration) { k.busy, g.due = false, w.now.Add(again) }
	k.lookGone(g, func(err error) {
		s := g.Next()
		if err != nil || !s.Ask {
			end(10 * time.Second)
			return
		}
		life := k.life
		k.askAll(to, l.Record, func(a providers.Answer) {
			g.Answer = a
			k.within(life, time.Millisecond, func() {
				k.lookGone(g, func(err error) {
					if err != nil {
						end(time.Second)
						return
					}
					k.deleteGone(g, g.Next().Delete, end)
				})
			})
		})
	})
}

// lookGone looks at what is left of the Node: at the Node first.
func (k *worker) lookGone(g *goneCourse, then func(error)) {
	w, name := k.w, k.m.name
	sent := k.now()
	noted := func(read func()) func() {
		return func() { w.receive(k.name, "get", "gone of "+name, nil); read() }
	}
	k.readAll(func(err error) {
		g.Used = map[string]bool{}
		for _, p := range g.pods {
			for _, v := range volumesOf(p) {
				g.Used[v] = true
			}
		}
		g.Sent, g.Now, g.Twin = sent, k.now(), k.fleet.TwinOfDeleted(name, g.Look.MachineUUID(), nil, k.now())
		then(err)
	}, noted(func() {
		g.Exists = w.api.node(name) != nil
		g.Excluded = cmp.Or(fence.ExclusionReason(g.node, w.now), w.excluded(name))
	}), noted(func() {
		g.Attachments = attachedOf(w.api.attachmentsOf(name))
	}), noted(func() {
		g.pods = w.api.podsOn(name)
	}))
}

// deleteGone deletes attachments, each after another look at the Node.
func (k *worker) deleteGone(g *goneCourse, list []action.Attachment, end func(time.Duration)) {
	w := k.w
	if len(list) == 0 {
		end(10 * time.Second)
		return
	}
	a, exists := list[0], false
	k.get("gone", func() { exists = w.api.node(k.m.name) != nil }, func(err error) {
		if _, may := g.MaySend(k.now()); err != nil || exists || !may {
			end(time.Second)
			return
		}
		w.check.detachGone(k, g, a)
		k.call(func() error {
			if w.api.node(k.m.name) != nil {
				w.count("a late deletion meets another Node")
			}
			return w.api.deleteAttachment(a.Name, a.UID, a.ResourceVersion)
		}, func(error) { k.deleteGone(g, list[1:], end) })
	})
}

// detachGone checks what the deletion of an attachment of a deleted Node is decided on.
func (c *checker) detachGone(k *worker, g *goneCourse, a action.Attachment) {
	w := c.w
	w.count("attachment of a deleted Node deleted")
	switch at := g.Answer.At; {
	case !w.truth[proofKey{k.m.name, at.Wall}]:
		w.fail("gone", "attachment %s is deleted, and the machine of %s was not off", a.Name, k.m.name)
	case at.Age(k.now()) > proofTTL:
		w.fail("gone", "attachment %s is deleted by an Off of %s ago", a.Name, at.Age(k.now()))
	case !at.After(g.Since) || !g.Sent.After(g.Answer.Got):
		w.fail("gone", "attachment %s is deleted without a look after the Off", a.Name)
	}
	for _, p := range g.pods {
		if slices.Contains(volumesOf(p), a.PV) {
			w.fail("gone", "attachment %s is deleted, and pod %s of that node uses it", a.Name, p.Name)
		}
	}
}
