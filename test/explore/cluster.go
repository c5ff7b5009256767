package explore

import (
	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// verb is a kind of transition.
type verb uint8

// The transitions. Faults come first: what follows goes on when the faults have stopped.
const (
	nothing verb = iota
	powerCut
	boot      // of a machine that is off: a person or program switches it on
	partition // the first node's way to the API server is lost
	late      // an answer comes, but 6 s later
	dumb      // the device does not know
	first     // of two reads that were sent at once, the Node's is made first
	last      // the Lease's is
	timeOut   // a write is given up by its sender, and goes on by itself
	crash
	second // another controller begins to lead beside one that goes on
	pause  // a person writes on the Node that it is to be left alone

	heal
	unpause
	lease
	status
	list
	oldList
	mount
	admits
	starts
	stops
	tells
	confirms
	hookReads
	hookLists
	hookAsks // whether a pod is known
	nodeLost // the node lifecycle controller: Ready becomes Unknown, and taints follow
	setWorks // the StatefulSet controller deletes what is ended and makes what is missing
	bind
	detach
	attach
	otherRuns
	otherStops
	goesOff // an ordered power-off comes to its end
	lands   // a write of a dead process arrives
	deliver // a request arrives and is answered, and the controller goes on
	wake    // a controller that waits sees a change
	timer   // a wait is over
	begins  // a controller begins to lead, and there is no other
	verbs
)

// act is a transition, and whom it concerns: a pod, a node, a controller, an orphan.
type act struct {
	verb
	of uint8
}

// enabled appends the transitions of the world around the controllers that change something.
func (s *state) enabled(o *Options, out []act) []act {
	add := func(v verb, of int) { out = append(out, act{v, uint8(of)}) }
	n, m := &s.node, &s.m[bad]
	switch {
	case n.paused:
		add(unpause, bad)
	case s.left.Pauses > 0 && s.left.Total > 0:
		add(pause, bad)
	}
	reaches := m.up && !m.cut
	if m.power {
		if s.left.Cuts > 0 && s.left.Total > 0 {
			add(powerCut, bad)
		}
		if m.changing {
			add(goesOff, bad)
		}
		if m.cut {
			add(heal, bad)
		} else if s.left.Partitions > 0 && s.left.Total > 0 {
			add(partition, bad)
		}
	} else if s.left.Boots > 0 && (!o.Held || n.mark == 0) {
		add(boot, bad)
	}
	if reaches {
		add(lease, bad)
		if n.boot != m.boot || n.unknown || n.inUse != m.wants {
			add(status, bad)
		}
		if c := s.live(); !m.listed || c != m.cache {
			add(list, bad)
		}
		if !m.listed && m.booted && m.before != s.live() {
			add(oldList, bad)
		}
		if o.Hook {
			s.hookEnabled(add)
		}
	}
	if m.up {
		if m.wants && !m.mounted && n.inUse && n.listed && s.att[bad] && !m.cut {
			add(mount, bad)
		}
		for i := range o.Pods {
			c, r := m.cache[i], m.run[i]
			gone := c.uid != r.uid || c.over
			switch r.stage {
			case none:
				if c.uid != 0 && !c.over && (i > 0 || m.mounted) && s.admits(o, i) {
					add(admits, i)
				}
				if c.uid != 0 && c.over && !m.cut && s.pods[i].uid == c.uid && s.pods[i].deleting {
					add(confirms, i)
				}
			case admitted:
				add(starts, i)
			case running:
				if gone {
					add(stops, i)
				}
				if !r.told && !m.cut && s.pods[i].uid == r.uid {
					add(tells, i)
				}
			}
		}
	}
	if !n.unknown && (!reaches || n.boot != m.boot) {
		add(nodeLost, bad)
	}
	for i := range o.Pods {
		p, r := s.pods[i], s.m[good].run[i]
		switch {
		case p.uid == 0, p.tomb:
			add(setWorks, i)
		case p.on == unbound:
			add(bind, i<<1|good)
			if !n.unknown && n.mark == 0 {
				add(bind, i<<1|bad)
			}
		case p.on == good && r.stage == none && !p.deleting && (i > 0 || s.att[good]):
			add(otherRuns, i)
		}
		if r.stage != none && (p.uid != r.uid || p.tomb || p.deleting) {
			add(otherStops, i)
		}
	}
	if s.att[bad] && !s.inNeed() && !n.inUse {
		add(detach, bad)
	}
	if p := s.pods[0]; p.uid != 0 && !p.tomb && p.on != unbound && !s.att[bad] && !s.att[good] {
		add(attach, int(p.on))
	}
	for i, w := range s.orphans {
		if w != nil {
			add(lands, i)
		}
	}
	return out
}

// inNeed reports that a pod of the first node, unfinished, uses the volume.
func (s *state) inNeed() bool {
	p := &s.pods[0]
	return p.uid != 0 && !p.tomb && !p.deleting && p.on == bad
}

func (s *state) hookEnabled(add func(verb, int)) {
	m := &s.m[bad]
	h := &m.hook
	c := *h
	c.see(&s.node, m.boot)
	if c != *h {
		add(hookReads, bad)
	}
	if h.fresh && h.Marked && !h.Detaching {
		add(hookLists, bad)
	}
	for i := range s.pods {
		if u := m.cache[i].uid; u != 0 && h.fresh && (!h.Marked || h.Detaching) && h.known[i] != u &&
			s.live()[i] == (seen{uid: u}) {
			add(hookAsks, i)
		}
	}
}

// see takes a state of the Node in. A mark takes effect at once; its absence, and that it holds the pod of the volume
// only, after a list that was made since.
func (h *hook) see(n *node, boot id) {
	h.ReadySeen = h.ReadySeen || !n.unknown && n.boot == boot
	named := len(n.look(0, providers.InstantOf(epoch), providers.InstantOf(epoch)).DetachingClaims()) > 0
	switch {
	case n.mark != 0 && !named:
		h.Read, h.Marked, h.Detaching, h.named, h.fresh = true, true, false, false, false
	case !h.fresh, named && !h.named:
		h.Read, h.Marked, h.Detaching, h.named, h.fresh = true, true, false, named, true
	case h.Detaching:
		h.Marked, h.Detaching, h.named = named, named, named
	default:
		h.named = named
	}
}

// admits is the node's decision on a pod.
func (s *state) admits(o *Options, i int) bool {
	if !o.Hook {
		return true
	}
	h := &s.m[bad].hook
	ok, _ := admit.Decide(h.Node,
		admit.Pod{Known: h.known[i] == s.m[bad].cache[i].uid, Unaffected: h.Detaching && i > 0})
	return ok
}

// live is what a list of the first node's pods shows its kubelet now.
func (s *state) live() (out [maxPods]seen) {
	for i, p := range s.pods {
		if p.uid != 0 && p.on == bad {
			out[i] = seen{p.uid, p.tomb || p.deleting}
		}
	}
	return out
}

// does is a transition of the world around the controllers.
func (s *state) does(a act) {
	n, m, i := &s.node, &s.m[bad], int(a.of)
	switch a.verb {
	case powerCut:
		s.left.Total--
		s.left.Cuts--
		s.cutPower()
	case goesOff:
		s.cutPower()
	case boot:
		s.left.Boots--
		// its kubelet starts: what that does first may be long in coming
		m.power, m.up, m.booted, m.boot = true, true, true, s.draw()
	case partition:
		s.left.Total--
		s.left.Partitions--
		m.cut = true
	case heal:
		m.cut = false
	case pause:
		s.left.Total--
		s.left.Pauses--
		n.paused, s.pausedAt = true, s.now()
		s.writeNode()
	case unpause:
		n.paused = false
		s.writeNode()
	case lease:
		n.lease = s.draw()
	case status:
		n.boot, n.unknown, n.inUse = m.boot, false, m.wants
		s.writeNode()
	case list:
		m.listed, m.cache = true, s.live()
		m.needs()
	case oldList:
		m.listed, m.cache = true, m.before
		m.needs()
	case mount:
		m.mounted = true
		s.writers()
	case admits:
		m.run[i] = container{uid: m.cache[i].uid, stage: admitted}
	case starts:
		m.run[i].stage = running
		s.started(i)
	case stops:
		m.run[i] = container{}
		m.needs()
	case tells:
		m.run[i].told = true
		s.pods[i].rv = s.draw()
	case confirms:
		s.pods[i] = pod{}
	case hookReads:
		m.hook.see(n, m.boot)
	case hookLists:
		m.hook.Marked, m.hook.Detaching, m.hook.Listed = m.hook.named, m.hook.named, true
		for j, c := range s.live() {
			if m.hook.known[j] = c.uid; s.pods[j].tomb {
				m.hook.known[j] = 0
			}
		}
	case hookAsks:
		m.hook.known[i] = s.pods[i].uid
	case nodeLost:
		n.unknown = true
		n.unready = n.mark != 0
		s.writeNode()
	case setWorks:
		if s.pods[i].tomb {
			s.pods[i] = pod{}
		} else {
			s.pods[i] = pod{uid: s.draw(), rv: s.draw(), on: unbound}
		}
	case bind:
		p := &s.pods[i>>1]
		p.on, p.rv = int8(i&1), s.draw()
	case detach:
		s.att[bad], n.listed = false, false
		s.writeNode()
	case attach:
		if s.att[i] = true; i == bad {
			n.listed = true
			s.writeNode()
		}
		s.writers()
	case otherRuns:
		s.m[good].run[i] = container{s.pods[i].uid, running, true}
		s.m[good].mounted = s.m[good].mounted || i == 0
		s.started(i)
	case otherStops:
		s.m[good].run[i] = container{}
		s.m[good].mounted = s.m[good].mounted && i != 0
		if p := &s.pods[i]; p.deleting && p.on == good {
			*p = pod{}
		}
	case lands:
		w := s.orphans[i]
		s.orphans[i] = nil
		_ = s.arrive(w)
	default:
		panic("no transition of the world")
	}
}

func (s *state) cutPower() {
	m := &s.m[bad]
	before := m.before
	if m.listed {
		before = m.cache
	}
	*m = machine{booted: m.booted, boot: m.boot, cut: m.cut, before: before}
	for i, c := range s.ctl { // the device tells
		if c != nil {
			c = c.clone()
			c.fleet.ApplyHint(nodeName, fleet.Push, s.now())
			s.ctl[i] = c
		}
	}
}

// needs says which volumes the kubelet has to mount, and lets go of the others.
func (m *machine) needs() {
	c := m.cache[0]
	m.wants = c.uid != 0 && !c.over || m.run[0].stage != none
	m.mounted = m.mounted && m.wants
}
