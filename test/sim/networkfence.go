package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
)

// storageSystem has one list of the addresses that it shuts out, for all its classes, as Ceph has. CSI-Addons' manager
// carries out the NetworkFences: late, again, or not at all.
type storageSystem struct {
	w       *World
	rule    policy.Policy
	classes []storagefence.Class
	objects []networkFence // NetworkFences, others' too
	shut    map[string]bool
	// addresses of which a person deleted our object: the storage still shuts them out, and nothing says so
	forgotten map[string]bool
}

// networkFence is an object in one version.
type networkFence struct {
	storagefence.Fence
	rv int
}

// newStorageSystem draws the policy that has this storage shut nodes out.
func newStorageSystem(w *World) *storageSystem {
	s := &storageSystem{w: w, shut: map[string]bool{}, forgotten: map[string]bool{}}
	for _, name := range []string{"rbd", "cephfs"} {
		s.classes = append(s.classes, storagefence.Class{Name: name, Driver: "sim"})
	}
	s.rule = policy.Policy{
		Name: "shut-out", When: policy.NotReady, Drivers: []string{"sim"}, AllVolumes: true, Detach: true,
		WithoutProof: policy.StorageFences, FenceClasses: []string{"rbd", "cephfs"}[:1+w.rng.IntN(2)],
		FenceDelay: w.between(2*time.Second, 30*time.Second),
	}
	if w.chance(0.3) {
		s.rule.FenceDelay = 3 * time.Minute
	}
	return s
}

// keeps reports that the storage lets the machine write to nothing now.
func (n *neighbours) keeps(m *machine) bool { return n != nil && n.storage.shut[m.address()] }

// cluster is what a live read of the storage's objects finds.
func (s *storageSystem) cluster(l taint.Look) storagefence.Cluster {
	c := storagefence.Cluster{Look: l, Classes: s.classes, Fences: s.fences()}
	for _, m := range s.w.machines {
		by := map[string][]string{}
		for _, k := range s.classes {
			by[k.Name] = []string{m.address()}
		}
		c.Clients = append(c.Clients, storagefence.Clients{Name: "csi/" + m.name, Driver: "sim", NodeID: m.name,
			ByClass: by})
	}
	for _, n := range s.w.api.nodes {
		c.Others = append(c.Others, storagefence.Node{Name: n.Name, Addresses: []string{n.Status.Addresses[0].Address}})
	}
	return c
}

func (s *storageSystem) fences() (out []storagefence.Fence) {
	for _, o := range s.objects {
		out = append(out, o.Fence)
	}
	return out
}

func (s *storageSystem) object(name string) (o networkFence, found bool) {
	i := slices.IndexFunc(s.objects, func(o networkFence) bool { return o.Name == name })
	if i < 0 {
		return o, false
	}
	return s.objects[i], true
}

// write stores an object, in a version of its own, and wakes the manager if its spec is another.
func (s *storageSystem) write(o networkFence) {
	s.w.made++
	o.rv = s.w.made
	old, known := s.object(o.Name)
	if known && old.State != o.State {
		o.Generation++
	}
	s.objects = append(s.others(o.Name), o)
	s.w.logf("storage: NetworkFence %s of %v: %s, generation %d, %q, confirmed %v", o.Name, o.CIDRs, o.State,
		o.Generation, o.Message, o.Confirmed)
	if !known || old.State != o.State {
		s.obey(o.Name)
	}
}

func (s *storageSystem) drop(name string) {
	s.w.logf("storage: NetworkFence %s is deleted", name)
	s.objects = s.others(name)
}

// others are all objects but that one.
func (s *storageSystem) others(name string) []networkFence {
	return slices.DeleteFunc(slices.Clone(s.objects), func(o networkFence) bool { return o.Name == name })
}

// takes is how long the manager needs for one step.
func (s *storageSystem) takes() time.Duration {
	if !s.w.calm && s.w.chance(0.3) {
		return s.w.between(3*time.Second, 50*time.Second)
	}
	return s.w.between(20*time.Millisecond, 2*time.Second)
}

// obey is the manager: it does what the object asks for when it gets to it, and reports that later. By then the object
// may ask for something else.
func (s *storageSystem) obey(name string) {
	w := s.w
	w.after(s.takes(), func() {
		o, found := s.object(name)
		if !found {
			return
		}
		message := "unfencing operation successful"
		if o.State == storagefence.Fenced {
			message = "fencing operation successful"
		}
		result := "Succeeded"
		if !w.calm && w.chance(0.15) {
			result, message = "Failed", "the driver's leader does not answer"
			w.count("NetworkFence failed")
			w.after(w.between(2*time.Second, 30*time.Second), func() { s.obey(name) })
		} else {
			for _, a := range o.CIDRs {
				s.set(a, o.State == storagefence.Fenced, "NetworkFence "+name)
			}
		}
		did := o.State
		w.after(s.takes(), func() {
			o, found := s.object(name)
			if !found {
				return
			}
			if did != o.State {
				w.count("a success of an earlier state")
			}
			o.Result, o.Message = result, message
			s.write(o)
		})
	})
}

// set changes the list of addresses.
func (s *storageSystem) set(address string, out bool, by string) {
	if s.shut[address] == out {
		return
	}
	s.shut[address] = out
	delete(s.forgotten, address)
	s.w.logf("storage: shuts out %s: %v, by %s", address, out, by)
	s.w.count(map[bool]string{true: "shut out by the storage", false: "let in by the storage"}[out])
	s.w.check.writers()
}

// isAsked reports whether an object of ours of each class asks to shut out the node in its present life: people delete
// some, and then the product knows of no fence.
func (s *storageSystem) isAsked(l taint.Look) bool {
	return !slices.ContainsFunc(s.rule.FenceClasses, func(class string) bool {
		return !slices.ContainsFunc(s.objects, func(o networkFence) bool {
			return o.Owned && o.Class == class && o.State == storagefence.Fenced && o.Life.StillHolds(l)
		})
	})
}

// edit is a person who edits or deletes one of our objects of the node. An object is let go in such a way only where
// the node is well.
func (s *storageSystem) edit(m *machine) {
	for _, o := range s.objects {
		if o.Node != m.name {
			continue
		}
		switch {
		case s.w.chance(0.4):
			s.w.count("NetworkFence deleted by a person")
			s.forgotten[m.address()] = s.forgotten[m.address()] || o.State == storagefence.Fenced
			s.drop(o.Name)
		case o.State == storagefence.Fenced && s.isWell(m):
			s.w.count("NetworkFence edited by a person")
			o.State = storagefence.Unfenced
			s.write(o)
			name := o.Name
			s.w.after(s.w.between(time.Second, time.Minute), func() { // and back
				if o, found := s.object(name); found && o.State == storagefence.Unfenced && !s.w.calm {
					o.State = storagefence.Fenced
					s.write(o)
				}
			})
		}
		return
	}
}

// isWell reports whether a person would let the machine in: its node is Ready, and it has nothing open that it lost.
func (s *storageSystem) isWell(m *machine) bool {
	n := s.w.api.node(m.name)
	if n == nil || !isReady(n) || m.k == nil || m.cut || m.hung {
		return false
	}
	var used []string
	for _, c := range m.running {
		p := s.w.api.pod(c.name)
		if p == nil || string(p.UID) != c.uid || taint.IsTerminal(p) {
			return false
		}
		used = append(used, c.volumes...)
	}
	return !slices.ContainsFunc(m.mounted, func(v string) bool { return !slices.Contains(used, v) })
}

// letIn is a person who takes an address off the storage's own list. No object shows it.
func (s *storageSystem) letIn(m *machine) {
	if s.shut[m.address()] && s.isWell(m) && !slices.ContainsFunc(s.objects, func(o networkFence) bool {
		return !o.Owned && slices.Contains(o.CIDRs, m.address())
	}) {
		s.w.count("let in by hand")
		s.set(m.address(), false, "a person")
	}
}

// foreign is a person, or another operator, who shuts the address out, and lets it in later where no other object shuts
// it out.
func (s *storageSystem) foreign(m *machine) {
	w, name := s.w, s.w.id("foreign-")
	s.write(networkFence{Fence: storagefence.Fence{
		Name: name, Generation: 1, Class: "cephfs", CIDRs: []string{m.address()}, State: storagefence.Fenced,
	}})
	w.count("NetworkFence of others")
	w.after(w.between(time.Minute, 4*time.Minute), func() { s.endForeign(name) })
}

func (s *storageSystem) endForeign(name string) {
	o, found := s.object(name)
	if !found {
		return
	}
	shared := slices.ContainsFunc(s.others(name), func(x networkFence) bool {
		return slices.Contains(x.CIDRs, o.CIDRs[0])
	})
	if shared || o.State == storagefence.Unfenced && o.IsAnswered() {
		s.drop(name)
		return
	}
	for _, m := range s.w.machines {
		if m.address() == o.CIDRs[0] && s.forgotten[m.address()] {
			m.excused = cmp.Or(m.excused, "a person deleted its NetworkFence, and others let it in")
		}
	}
	o.State = storagefence.Unfenced
	s.write(o)
	s.w.after(20*time.Second, func() { s.endForeign(name) })
}

// mend is what a person does for an address that is shut out, and that forcefence may not let in.
func (s *storageSystem) mend(m *machine) {
	w, n := s.w, s.w.api.node(m.name)
	ours := false
	for _, o := range slices.Clone(s.objects) {
		switch {
		case !slices.Contains(o.CIDRs, m.address()):
		case !o.Owned:
			s.endForeign(o.Name)
		case n != nil && o.Life.NodeUID == string(n.UID):
			ours = true
			if isReady(n) && o.State == storagefence.Fenced && o.Life.BootID == m.bootID {
				w.reboot(m)
				if m.contained { // its boot id stays
					o.State = storagefence.Unfenced
					s.write(o)
				}
				return
			}
		case n != nil && o.State == storagefence.Fenced:
			ours = true
			o.State = storagefence.Unfenced
			s.write(o)
		}
	}
	if !ours && s.shut[m.address()] {
		if !s.isWell(m) {
			w.reboot(m)
		}
		s.set(m.address(), false, "people")
	}
}

// fencesTimeout bounds that read, which is a part of the look.
const fencesTimeout = 3 * time.Second

// readFences reads how far the storage has cut the node off, where a policy needs that.
func (k *worker) readFences(l taint.Look, node *corev1.Node, then func(map[string]policy.StorageFence)) {
	w := k.w
	if w.near == nil || !l.Exists || l.Mark != nil || l.IsReady() || !k.m.chosenMode(node).MayAct() {
		then(nil)
		return
	}
	var c storagefence.Cluster
	over := false
	found := func(err error) {
		if over {
			return
		}
		over = true
		out := policy.StorageFence{State: policy.FenceRefused}
		if err == nil {
			out, _ = c.Decide(w.near.storage.rule)
		}
		w.count("storage fence " + string(out.State))
		w.logf("%s: %s: its storage fence is %s %s", k.name, k.m.name, out.State, out.Detail)
		then(map[string]policy.StorageFence{w.near.storage.rule.Name: out})
	}
	k.get("fences", func() { c = w.near.storage.cluster(l) }, found)
	k.after(fencesTimeout, func() { found(errTimeout) })
}

// FenceStorage has the storage cut the node off, by NetworkFences.
func (k *worker) FenceStorage(context.Context, action.FenceStorage) decide.Observation {
	w, l := k.w, k.course.Look()
	if !k.maySend("") {
		k.did(decide.ActionDone{Withheld: true})
		return nil
	}
	w.jolt(k.Process, k.m)
	w.check.shutsOut(k)
	s := w.near.storage
	var c storagefence.Cluster
	k.get("fences", func() { c = s.cluster(l) }, func(err error) {
		state, targets := c.Decide(s.rule)
		if err != nil || state.State != policy.FenceAbsent {
			k.did(decide.ActionDone{Err: errConflict})
			return
		}
		k.makeFences(l, targets)
	})
	return nil
}

// makeFences makes one NetworkFence after the other.
func (k *worker) makeFences(l taint.Look, targets []storagefence.Target) {
	w, s := k.w, k.w.near.storage
	if len(targets) == 0 {
		w.check.cutOff[l.Name] = cutOff{k.Process, k.Process.life, l.Life(), w.now}
		k.did(decide.ActionDone{})
		return
	}
	t, name := targets[0], w.id("forcefence-")
	k.call(func() error {
		w.receive(k.name, "create", "networkfences/"+name, t)
		w.count("NetworkFence made")
		s.write(networkFence{Fence: storagefence.Fence{
			Name: name, Generation: 1, Class: t.Class, CIDRs: t.CIDRs, State: storagefence.Fenced,
			Owned: true, Made: t.CIDRs, Node: l.Name, Life: taint.ParseLife(l.Life().Encode()),
		}})
		return nil
	}, func(err error) {
		if err != nil {
			k.did(decide.ActionDone{Err: err})
			return
		}
		k.makeFences(l, targets[1:])
	})
}

// followFences takes our NetworkFences one step further, as package networkfence does.
func (p *Process) followFences() {
	for _, o := range p.w.near.storage.objects {
		if o.Owned && p.takeUp(o.Name) {
			p.stepFence(o.Name)
		}
	}
}

func (p *Process) stepFence(name string) {
	s := p.w.near.storage
	var o networkFence
	var all, overlapping []storagefence.Fence
	states := map[string]storagefence.State{}
	end := func(error) { p.putDown(name, 5*time.Second) }
	reads := []func(){func() { o, _ = s.object(name) }}
	reads = append(reads, p.stateReads(func() []storagefence.Fence { return []storagefence.Fence{o.Fence} }, states)...)
	reads = append(reads, func() { all = s.fences(); overlapping = o.Overlapping(all) })
	reads = append(reads, p.stateReads(func() []storagefence.Fence { return overlapping }, states)...)
	p.readAll(func(err error) {
		step, _ := o.Next(states[name], all, states)
		if err != nil || step == storagefence.Keep {
			end(err)
			return
		}
		switch step {
		case storagefence.Confirm: // policies rely on it
			p.w.check.begins(states[name].Look, "the note of the storage's success")
		case storagefence.Unfence:
			p.w.check.letsIn(o.Fence, all)
		}
		p.writeFence(o, step, end)
	}, reads...)
}

// stateReads are the reads of the fences' nodes: what leaves them alone and the Nodes with their Leases, and their
// pods.
func (p *Process) stateReads(of func() []storagefence.Fence, into map[string]storagefence.State) []func() {
	w := p.w
	return []func(){func() {
		for _, f := range of() {
			n := w.api.node(f.Node)
			st := storagefence.State{Look: p.lookAt(n, w.api.lease(f.Node))}
			switch {
			case n == nil:
			case !w.machine(f.Node).chosenMode(n).MayAct():
				st.LeftAlone = "mode"
			default:
				st.LeftAlone = cmp.Or(fence.ExclusionReason(n, w.now), w.excluded(f.Node))
			}
			into[f.Name] = st
		}
	}, func() {
		for _, f := range of() {
			st := into[f.Name]
			st.Ended = slices.ContainsFunc(w.api.podsOn(f.Node), taint.IsTombstone)
			into[f.Name] = st
		}
	}}
}

// writeFence writes one step of a NetworkFence in the version that was read.
func (p *Process) writeFence(o networkFence, step storagefence.Step, end func(error)) {
	w, s := p.w, p.w.near.storage
	p.call(func() error {
		w.receive(p.name, string(step), "networkfences/"+o.Name, o.rv)
		now, found := s.object(o.Name)
		switch {
		case !found:
			return errNotFound
		case now.rv != o.rv:
			return errConflict
		}
		w.count("NetworkFence: " + string(step))
		switch step {
		case storagefence.Confirm:
			now.Confirmed = true
		case storagefence.Unfence:
			now.State = storagefence.Unfenced
		case storagefence.Delete:
			s.drop(o.Name)
			return nil
		}
		s.write(now)
		return nil
	}, end)
}

// cutOff is a node that a process had the storage cut off.
type cutOff struct {
	by   *Process
	life int
	of   taint.Life
	at   time.Time
}

// shutsOut is what holds when the storage is asked to shut a node out: all that a power-off requires, except the mode.
func (c *checker) shutsOut(k *worker) {
	l := k.course.Look()
	c.begins(l, "cut off from its storage")
	c.silent(l, k.Process, "cut off from its storage")
	c.takesTurn(l, k.Process, "cut off from its storage")
}

// letsIn holds that no address is let in that others shut out, by what was read.
func (c *checker) letsIn(f storagefence.Fence, all []storagefence.Fence) {
	for _, o := range all {
		if !o.Owned && o.State == storagefence.Fenced && slices.Contains(f.CIDRs, o.CIDRs[0]) {
			c.w.fail("let-in", "%s lets in %s, which NetworkFence %s of others shuts out", f.Name, o.CIDRs[0], o.Name)
		}
	}
}

// isShutOut holds that the storage shuts out the node of which a policy ends something.
func (c *checker) isShutOut(g grounds, what string) {
	w, m := c.w, c.w.machine(g.look.Name)
	if m.excused == "" && m.power && !w.near.keeps(m) {
		w.fail("shut-out", "%s on %s by a policy, and its storage lets it in", what, m.name)
	}
}
